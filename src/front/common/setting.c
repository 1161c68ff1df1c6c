#include "front/common/setting.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

int64_t setting_get(const struct setting *s) {
    uint32_t narrow;
    int64_t wide;
    if (s->size == sizeof(narrow)) {
        memcpy(&narrow, s->at, sizeof(narrow));
        return narrow;
    }
    memcpy(&wide, s->at, sizeof(wide));
    return wide;
}

void setting_set(const struct setting *s, int64_t value) {
    uint32_t narrow = (uint32_t)value;
    if (s->size == sizeof(narrow))
        memcpy(s->at, &narrow, sizeof(narrow));
    else
        memcpy(s->at, &value, sizeof(value));
}

int settings_read(const struct setting *table, size_t n, const json_t *obj, struct err *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        int64_t v = setting_get(&table[i]);
        rc = json_get_int(obj, table[i].key, table[i].min, table[i].max, &v, err);
        if (rc == 0)
            setting_set(&table[i], v);
    }
    return rc;
}

int settings_check_keys(const struct setting *table, size_t n, const char *const *others,
                        const json_t *obj, const char *what, struct err *err) {
    size_t all = n;
    for (size_t i = 0; others && others[i]; i++)
        all++;
    const char **keys = xcalloc(all + 1, sizeof(*keys));
    for (size_t i = 0; i < n; i++)
        keys[i] = table[i].key;
    for (size_t i = n; i < all; i++)
        keys[i] = others[i - n];
    int rc = json_check_keys(obj, what, keys, err);
    free(keys);
    return rc;
}
