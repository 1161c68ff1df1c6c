#include "base/json_table.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static int json_table_check_keys(const struct json_field *table, size_t n, const json_t *obj,
                                 const char *what, struct err *err) {
    const char *keys[JSON_FIELDS_MAX + 1];
    for (size_t i = 0; i < n; i++)
        keys[i] = table[i].key;
    keys[n] = NULL;
    return json_check_keys(obj, what, keys, err);
}

/* "a", "b" or "c" */
static int json_table_refuse_name(const struct json_field *f, struct err *err) {
    char known[200] = "";
    for (int64_t i = 0; i < f->max; i++) {
        size_t len = strlen(known);
        const char *before = i == 0 ? "" : i == f->max - 1 ? " or " : ", ";
        (void)snprintf(known + len, sizeof(known) - len, "%s\"%s\"", before, f->names[i]);
    }
    return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be %s", f->key, known);
}

static int json_table_read_name(const struct json_field *f, const json_t *obj, unsigned *ret,
                                struct err *err) {
    const char *text = NULL;
    int rc = json_get_str(obj, f->key, &text, err);
    if (rc < 0 || !text)
        return rc;
    for (unsigned i = 0; i < f->max; i++)
        if (strcmp(f->names[i], text) == 0) {
            *ret = i;
            return 0;
        }
    return json_table_refuse_name(f, err);
}

int json_table_read(const struct json_field *table, size_t n, const json_t *obj, const char *what,
                    void *out, struct err *err) {
    assert(n <= JSON_FIELDS_MAX);
    int rc = what ? json_table_check_keys(table, n, obj, what, err) : 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct json_field *f = &table[i];
        void *member = (char *)out + f->offset;
        const json_t *value;
        switch (f->kind) {
        case JSON_KIND_TEXT:
            rc = json_get_str(obj, f->key, member, err);
            break;
        case JSON_KIND_INT:
            rc = json_get_int(obj, f->key, f->min, f->max, member, err);
            break;
        case JSON_KIND_BOOL:
            rc = json_get_bool(obj, f->key, member, err);
            break;
        case JSON_KIND_ENUM:
            rc = json_table_read_name(f, obj, member, err);
            break;
        case JSON_KIND_TREE:
            value = json_object_get(obj, f->key);
            if (value)
                *(const json_t **)member = value;
            break;
        case JSON_KIND_READ:
            value = json_object_get(obj, f->key);
            if (value)
                rc = f->read(value, member, err);
            break;
        }
    }
    return rc;
}
