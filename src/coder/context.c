#include "coder/context.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT_BYTES = 400, NOTE_BYTES = 64 };

void context_init(struct context *c, const char *spec, size_t max_bytes) {
    *c = (struct context){.spec = spec, .max_bytes = max_bytes};
}

static void coder_context_free_turn(struct exchange *t) {
    free(t->action);
    free(t->result);
}

void context_finish(struct context *c) {
    for (size_t i = 0; i < c->nturns; i++)
        coder_context_free_turn(&c->turns[i]);
    free(c->turns);
    *c = (struct context){0};
}

void context_add(struct context *c, const struct exchange *turn) {
    c->turns = xrealloc(c->turns, (c->nturns + 1) * sizeof(*c->turns));
    c->turns[c->nturns++] = *turn;
}

static size_t coder_context_size_of(const struct context *c) {
    size_t n = strlen(c->spec) + NOTE_BYTES;
    for (size_t i = 0; i < c->nturns; i++)
        n += strlen(c->turns[i].action) + strlen(c->turns[i].result);
    return n;
}

/* Texts of an object, and of the objects in it, that are long are replaced by a note. The rest is
 * what it was: the model sees its own words as it must write them. */
static void shorten_members(json_t *obj, size_t keep) {
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(obj, next, key, value) {
        if (json_is_object(value)) {
            shorten_members(value, keep);
            continue;
        }
        size_t n = json_dumpb(value, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
        if (n <= keep + NOTE_BYTES)
            continue;
        size_t cut = 0;
        const char *text = "";
        if (json_is_string(value)) {
            text = json_string_value(value);
            cut = utf8_floor(text, json_string_length(value), keep / 2);
        }
        (void)json_object_set_new(obj, key,
                                  json_sprintf("%.*s [shortened: %zu bytes]", (int)cut, text, n));
    }
}

static void coder_context_shorten(char **text, size_t keep) {
    struct err err;
    _cleanup_(json) json_t *json = NULL;
    _cleanup_(buf) struct buf out;
    buf_init(&out, strlen(*text) + 4096);
    if (strlen(*text) <= keep || json_parse(*text, strlen(*text), "a turn", &json, &err) < 0 ||
        !json_is_object(json))
        return;
    shorten_members(json, keep);
    if (!json_dump(json, &out))
        return;
    free(*text);
    *text = buf_steal(&out, NULL);
}

/* One thing less; false if there is nothing more to be had. */
static bool coder_context_make_room(struct context *c) {
    size_t old = c->nturns > 0 ? c->nturns - 1 : 0;
    for (size_t i = 0; i < old; i++)
        if (!c->turns[i].short_result) {
            c->turns[i].short_result = true;
            coder_context_shorten(&c->turns[i].result, SHORT_BYTES);
            return true;
        }
    for (size_t i = 0; i < old; i++)
        if (!c->turns[i].short_action) {
            c->turns[i].short_action = true;
            coder_context_shorten(&c->turns[i].action, SHORT_BYTES);
            return true;
        }
    if (old > 0) {
        coder_context_free_turn(&c->turns[0]);
        memmove(c->turns, c->turns + 1, --c->nturns * sizeof(*c->turns));
        c->left_out++;
        return true;
    }
    if (c->nturns == 0 || c->turns[0].short_action)
        return false;
    c->turns[0].short_action = true;
    coder_context_shorten(&c->turns[0].action, SHORT_BYTES);
    return true;
}

void context_fit(struct context *c) {
    while (coder_context_size_of(c) > c->max_bytes && coder_context_make_room(c))
        ;
}

void context_write(const struct context *c, struct json_writer *w) {
    if (c->left_out > 0) {
        _cleanup_(free) char *spec =
            xasprintf("%s\n\n[the first %zu steps are left out here]", c->spec, c->left_out);
        dialect_message(w, false, spec, strlen(spec));
    } else {
        dialect_message(w, false, c->spec, strlen(c->spec));
    }
    for (size_t i = 0; i < c->nturns; i++) {
        dialect_message(w, true, c->turns[i].action, strlen(c->turns[i].action));
        dialect_message(w, false, c->turns[i].result, strlen(c->turns[i].result));
    }
}
