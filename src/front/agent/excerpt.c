#include "front/agent/excerpt.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "front/agent/uimessage.h"

#include <stdlib.h>
#include <string.h>

struct excerpt {
    struct piece {
        char *json;
        size_t len;
    } * list; /* newest first */
    size_t count;
    size_t bytes;
    size_t max_bytes;
    bool cut;
};

struct excerpt *excerpt_create(size_t max_bytes) {
    struct excerpt *c = xcalloc(1, sizeof(*c));
    c->max_bytes = max_bytes;
    return c;
}

void excerpt_destroy(struct excerpt *c) {
    if (!c)
        return;
    for (size_t i = 0; i < c->count; i++)
        free(c->list[i].json);
    free(c->list);
    free(c);
}

static bool excerpt_has_room(struct excerpt *c, size_t len) {
    c->cut = c->cut || (c->count > 0 && c->bytes + len > c->max_bytes);
    return !c->cut;
}

bool excerpt_take(struct excerpt *c, char **json, size_t len) {
    if (!excerpt_has_room(c, len))
        return false;
    if ((c->count & (c->count + 1)) == 0)
        c->list = xrealloc(c->list, 2 * (c->count + 1) * sizeof(*c->list));
    c->list[c->count++] = (struct piece){.json = steal_ptr(json), .len = len};
    c->bytes += len;
    return true;
}

bool excerpt_add(struct excerpt *c, const char *json, size_t len) {
    if (!excerpt_has_room(c, len))
        return false;
    char *copy = xmalloc(len);
    memcpy(copy, json, len);
    return excerpt_take(c, &copy, len);
}

size_t excerpt_bytes(const struct excerpt *c) {
    return c->bytes;
}

json_t *excerpt_read(const struct excerpt *c) {
    _cleanup_(json) json_t *list = json_array();
    for (size_t i = c->count; i-- > 0;) {
        json_t *m = json_read(c->list[i].json, c->list[i].len);
        if (m)
            (void)json_array_append_new(list, m);
    }
    return uimessage_to_model(list, c->cut);
}
