#include "front/agent/draft.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum draft_kind { DRAFT_STEP, DRAFT_TEXT, DRAFT_REASONING, DRAFT_CALL };
enum draft_call { DRAFT_CALL_OPEN, DRAFT_CALL_DONE, DRAFT_CALL_FAILED };

struct draft_part {
    enum draft_kind kind;
    enum draft_call state;
    char *id; /* of a call */
    char *name;
    struct buf value; /* a text without its quotes, or a call's input */
    struct buf more;  /* of reasoning: providerMetadata; of a call: its output, or its error */
};

struct draft {
    const char *id;
    struct draft_part *parts;
    size_t count;
    size_t said; /* from here on it is what the running stream has said so far */
    json_t *metadata;
};

struct draft *draft_create(const char *id) {
    struct draft *d = xcalloc(1, sizeof(*d));
    d->id = id;
    return d;
}

static void draft_part_finish(struct draft_part *p) {
    free(p->id);
    free(p->name);
    buf_finish(&p->value);
    buf_finish(&p->more);
}

void draft_destroy(struct draft *d) {
    if (!d)
        return;
    for (size_t i = 0; i < d->count; i++)
        draft_part_finish(&d->parts[i]);
    free(d->parts);
    json_decref(d->metadata);
    free(d);
}

static struct draft_part *draft_add(struct draft *d, enum draft_kind kind) {
    if ((d->count & (d->count + 1)) == 0)
        d->parts = xrealloc(d->parts, 2 * (d->count + 1) * sizeof(*d->parts));
    struct draft_part *p = &d->parts[d->count++];
    *p = (struct draft_part){.kind = kind};
    buf_init(&p->value, INT_MAX);
    buf_init(&p->more, INT_MAX);
    return p;
}

void draft_step(struct draft *d) {
    (void)draft_add(d, DRAFT_STEP);
    d->said = d->count;
}

void draft_begin_text(struct draft *d, bool reasoning) {
    (void)draft_add(d, reasoning ? DRAFT_REASONING : DRAFT_TEXT);
}

/* The text that is open is the last: calls may come in between, but end it. */
void draft_add_text(struct draft *d, const char *json, size_t len) {
    size_t i = d->count;
    while (i > d->said && d->parts[i - 1].kind != DRAFT_TEXT &&
           d->parts[i - 1].kind != DRAFT_REASONING)
        i--;
    if (i > d->said)
        (void)buf_add(&d->parts[i - 1].value, json, len);
}

void draft_add_call(struct draft *d, const char *id, const char *name, const char *json,
                    size_t len) {
    struct draft_part *p = draft_add(d, DRAFT_CALL);
    p->id = xstrdup(id);
    p->name = xstrdup(name);
    (void)buf_add(&p->value, json, len);
}

/* --- the answer --- */

/* What the stream has said, until the answer has taken it. */
struct draft_taking {
    struct draft_part *parts;
    size_t count;
};

/* The first that is left of this kind; of calls, the one with this id. NULL: there is none. */
static struct draft_part *draft_find_said(const struct draft_taking *t, enum draft_kind kind,
                                          const char *id) {
    for (size_t i = 0; i < t->count; i++) {
        struct draft_part *p = &t->parts[i];
        if (p->kind == kind && (kind != DRAFT_CALL || (p->id && strcmp(p->id, id) == 0)))
            return p;
    }
    return NULL;
}

/* A part of the answer: what the stream has said of it, or an empty one. */
static struct draft_part *draft_take(struct draft *d, struct draft_taking *t, enum draft_kind kind,
                                     const char *id, bool *ret_was_said) {
    struct draft_part *said = draft_find_said(t, kind, id);
    struct draft_part *p = draft_add(d, kind);
    *ret_was_said = said != NULL;
    if (said) {
        *p = *said;
        *said = (struct draft_part){.kind = DRAFT_STEP};
    }
    return p;
}

/* Without its quotes. */
static void draft_quote(struct buf *out, const json_t *text) {
    struct buf b;
    buf_init(&b, INT_MAX);
    json_write_str(&b, json_string_value(text), json_string_length(text));
    (void)buf_add(out, b.data + 1, b.len - 2);
    buf_finish(&b);
}

static void draft_take_text(struct draft *d, struct draft_taking *t, const json_t *block,
                            bool reasoning) {
    bool was_said;
    json_t *raw = json_object_get(block, "raw");
    struct draft_part *p =
        draft_take(d, t, reasoning ? DRAFT_REASONING : DRAFT_TEXT, NULL, &was_said);
    if (!was_said)
        draft_quote(&p->value, json_object_get(block, "text"));
    if (!reasoning || !raw)
        return;
    _cleanup_(json) json_t *own = json_pack("{s:{s:O,s:O}}", "cay", "provider",
                                            json_object_get(block, "provider"), "raw", raw);
    (void)json_dump(own, &p->more);
}

static void draft_take_call(struct draft *d, struct draft_taking *t, const json_t *block) {
    bool was_said;
    const char *id = json_string_value(json_object_get(block, "id"));
    const char *name = json_string_value(json_object_get(block, "name"));
    const json_t *input = json_object_get(block, "input");
    struct draft_part *p = draft_take(d, t, DRAFT_CALL, id ? id : "", &was_said);
    if (was_said)
        return;
    p->id = xstrdup(id ? id : "");
    p->name = xstrdup(name ? name : "");
    if (json_is_object(input))
        (void)json_dump(input, &p->value);
    else
        (void)buf_add_str(&p->value, "null");
}

void draft_take_answer(struct draft *d, const json_t *content) {
    size_t n = d->count - d->said;
    struct draft_taking t = {.parts = xcalloc(n + 1, sizeof(*t.parts)), .count = n};
    size_t i;
    const json_t *block;
    if (n > 0)
        memcpy(t.parts, d->parts + d->said, n * sizeof(*t.parts));
    d->count = d->said;
    json_array_foreach(content, i, block) {
        const char *type = json_string_value(json_object_get(block, "type"));
        if (type && strcmp(type, "tool_call") == 0)
            draft_take_call(d, &t, block);
        else if (type && (strcmp(type, "text") == 0 || strcmp(type, "reasoning") == 0))
            draft_take_text(d, &t, block, *type == 'r');
    }
    d->said = d->count;
    for (i = 0; i < n; i++)
        draft_part_finish(&t.parts[i]);
    free(t.parts);
}

/* --- what becomes of it --- */

static void draft_end_call(struct draft_part *p, enum draft_call state, const char *json,
                           size_t len) {
    p->state = state;
    buf_clear(&p->more);
    (void)buf_add(&p->more, json, len);
}

void draft_set_output(struct draft *d, const char *id, const char *json, size_t len, bool failed) {
    for (size_t i = 0; i < d->count; i++)
        if (d->parts[i].kind == DRAFT_CALL && strcmp(d->parts[i].id, id) == 0)
            draft_end_call(&d->parts[i], failed ? DRAFT_CALL_FAILED : DRAFT_CALL_DONE, json, len);
}

void draft_settle(struct draft *d, const char *error) {
    _cleanup_(buf) struct buf text;
    buf_init(&text, INT_MAX);
    json_write_str(&text, error, strlen(error));
    for (size_t i = 0; i < d->count; i++)
        if (d->parts[i].kind == DRAFT_CALL && d->parts[i].state == DRAFT_CALL_OPEN)
            draft_end_call(&d->parts[i], DRAFT_CALL_FAILED, text.data, text.len);
    d->said = d->count;
}

void draft_add_metadata(struct draft *d, json_t *members) {
    if (!d->metadata)
        d->metadata = json_object();
    (void)json_object_update(d->metadata, members);
    json_decref(members);
}

bool draft_is_empty(const struct draft *d) {
    for (size_t i = 0; i < d->count; i++)
        if (d->parts[i].kind != DRAFT_STEP)
            return false;
    return true;
}

/* --- as JSON --- */

static void draft_write_pair(struct json_writer *w, const char *key, const char *value) {
    json_writer_key(w, key);
    json_writer_str(w, value);
}

static void draft_write_raw(struct json_writer *w, const char *key, const struct buf *json) {
    json_writer_key(w, key);
    json_writer_raw(w, json->data, json->len);
}

static void draft_write_text(struct json_writer *w, const struct draft_part *p) {
    draft_write_pair(w, "type", p->kind == DRAFT_TEXT ? "text" : "reasoning");
    json_writer_key(w, "text");
    json_writer_raw(w, "\"", 1);
    (void)buf_add(w->out, p->value.data, p->value.len);
    (void)buf_add_char(w->out, '"');
    draft_write_pair(w, "state", "done");
    if (p->more.len > 0)
        draft_write_raw(w, "providerMetadata", &p->more);
}

static void draft_write_call(struct json_writer *w, const struct draft_part *p) {
    static const char *const states[] = {[DRAFT_CALL_OPEN] = "input-available",
                                         [DRAFT_CALL_DONE] = "output-available",
                                         [DRAFT_CALL_FAILED] = "output-error"};
    _cleanup_(free) char *type = xasprintf("tool-%s", p->name);
    draft_write_pair(w, "type", type);
    draft_write_pair(w, "toolCallId", p->id);
    draft_write_pair(w, "toolName", p->name);
    draft_write_pair(w, "state", states[p->state]);
    draft_write_raw(w, "input", &p->value);
    if (p->state != DRAFT_CALL_OPEN)
        draft_write_raw(w, p->state == DRAFT_CALL_DONE ? "output" : "errorText", &p->more);
}

void draft_write(const struct draft *d, struct buf *out) {
    struct json_writer w;
    size_t bytes = 0;
    for (size_t i = 0; i < d->count; i++)
        bytes += d->parts[i].value.len + d->parts[i].more.len;
    (void)buf_reserve(out, bytes + d->count * 128); /* so that it does not grow in steps */
    json_writer_init(&w, out);
    json_writer_object_begin(&w);
    draft_write_pair(&w, "id", d->id);
    draft_write_pair(&w, "role", "assistant");
    json_writer_key(&w, "parts");
    json_writer_array_begin(&w);
    for (size_t i = 0; i < d->count; i++) {
        const struct draft_part *p = &d->parts[i];
        json_writer_object_begin(&w);
        if (p->kind == DRAFT_STEP)
            draft_write_pair(&w, "type", "step-start");
        else if (p->kind == DRAFT_CALL)
            draft_write_call(&w, p);
        else
            draft_write_text(&w, p);
        json_writer_object_end(&w);
    }
    json_writer_array_end(&w);
    if (d->metadata) {
        json_writer_key(&w, "metadata");
        json_writer_tree(&w, d->metadata);
    }
    json_writer_object_end(&w);
}
