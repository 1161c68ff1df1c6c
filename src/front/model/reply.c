#include "front/model/reply.h"

#include "base/cleanup.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

void reply_init(struct reply *r, const struct model_callbacks *cb, void *ctx, size_t max_bytes) {
    *r = (struct reply){.cb = cb, .ctx = ctx, .max_bytes = max_bytes, .read_at_once = SIZE_MAX};
}

void reply_finish(struct reply *r) {
    for (size_t i = 0; i < r->count; i++) {
        struct reply_block *b = &r->blocks[i];
        free(b->id);
        free(b->server_id);
        free(b->name);
        free(b->input_error);
        buf_finish(&b->text);
        json_decref(b->input);
        json_decref(b->raw);
        json_decref(b->raw_json);
    }
    free(r->blocks);
    r->blocks = NULL;
    r->count = 0;
}

static int model_reply_alive(const struct reply *r) {
    return r->closed ? -(int)ERR_CANCELLED : 0;
}

static struct reply_block *last_open(struct reply *r) {
    struct reply_block *b = r->count > 0 ? &r->blocks[r->count - 1] : NULL;
    return b && b->open && b->type != REPLY_TOOL ? b : NULL;
}

struct reply_block *reply_open_reasoning(struct reply *r) {
    struct reply_block *b = last_open(r);
    return b && b->type == REPLY_REASONING ? b : NULL;
}

static int too_large(const struct reply *r, struct err *err) {
    return err_set(err, ERR_LIMIT, "the answer of the model exceeds %zu bytes", r->max_bytes);
}

static int add_block(struct reply *r, enum reply_type type, struct reply_block **ret_block,
                     struct err *err) {
    if (r->count >= LIMIT_MODEL_BLOCKS)
        return err_set(err, ERR_LIMIT, "the answer of the model has more than %d parts",
                       LIMIT_MODEL_BLOCKS);
    r->blocks = xrealloc(r->blocks, (r->count + 1) * sizeof(*r->blocks));
    struct reply_block *b = &r->blocks[r->count++];
    *b = (struct reply_block){.type = type, .open = true};
    buf_init(&b->text, r->max_bytes);
    *ret_block = b;
    return 0;
}

static int add_bytes(struct reply *r, struct reply_block *b, const char *data, size_t len,
                     struct err *err) {
    r->bytes += len;
    if (r->bytes > r->max_bytes || !buf_add(&b->text, data, len))
        return too_large(r, err);
    return 0;
}

int reply_close_text(struct reply *r, struct err *err) {
    (void)err;
    struct reply_block *b = last_open(r);
    if (!b)
        return 0;
    b->open = false;
    if (!b->told)
        return 0;
    if (b->type == REPLY_TEXT && r->cb->on_text_end)
        r->cb->on_text_end(r->ctx);
    else if (b->type == REPLY_REASONING && r->cb->on_reasoning_end)
        r->cb->on_reasoning_end(r->ctx);
    return model_reply_alive(r);
}

/* Adds to the open block of that type, which is told about when its first byte comes. */
static int model_reply_add_text(struct reply *r, enum reply_type type, const char *text, size_t len,
                                struct err *err) {
    if (len == 0)
        return 0;
    struct reply_block *b = last_open(r);
    int rc = 0;
    if (b && b->type != type) {
        rc = reply_close_text(r, err);
        b = NULL;
    }
    if (rc == 0 && !b)
        rc = add_block(r, type, &b, err);
    if (rc == 0)
        rc = add_bytes(r, b, text, len, err);
    if (rc < 0)
        return rc;
    bool reasoning = type == REPLY_REASONING;
    if (!b->told) {
        b->told = true;
        void (*on_start)(void *) = reasoning ? r->cb->on_reasoning_start : r->cb->on_text_start;
        if (on_start)
            on_start(r->ctx);
        if (model_reply_alive(r) < 0)
            return model_reply_alive(r);
    }
    void (*on_delta)(void *, const char *, size_t) =
        reasoning ? r->cb->on_reasoning_delta : r->cb->on_text_delta;
    if (on_delta)
        on_delta(r->ctx, text, len);
    return model_reply_alive(r);
}

int reply_text(struct reply *r, const char *text, size_t len, struct err *err) {
    return model_reply_add_text(r, REPLY_TEXT, text, len, err);
}

int reply_reasoning(struct reply *r, const char *text, size_t len, struct err *err) {
    return model_reply_add_text(r, REPLY_REASONING, text, len, err);
}

int reply_reasoning_open(struct reply *r, json_t *raw, struct err *err) {
    struct reply_block *b;
    int rc = reply_close_text(r, err);
    if (rc == 0)
        rc = add_block(r, REPLY_REASONING, &b, err);
    if (rc < 0) {
        json_decref(raw);
        return rc;
    }
    b->raw = raw;
    return 0;
}

int reply_server(struct reply *r, json_t *raw, json_t *json, size_t bytes, struct err *err) {
    struct reply_block *b;
    int rc = reply_close_text(r, err);
    r->bytes += bytes;
    if (rc == 0 && r->bytes > r->max_bytes)
        rc = too_large(r, err);
    if (rc == 0)
        rc = add_block(r, REPLY_SERVER, &b, err);
    if (rc < 0) {
        json_decref(raw);
        return rc;
    }
    b->raw = raw;
    b->raw_json = json_incref(json);
    b->open = false;
    return 0;
}

size_t reply_count(const struct reply *r, enum reply_type type) {
    size_t n = 0;
    for (size_t i = 0; i < r->count; i++)
        n += r->blocks[i].type == type;
    return n;
}

static struct reply_block *model_reply_find_tool(const struct reply *r, int64_t index) {
    for (size_t i = r->count; i-- > 0;)
        if (r->blocks[i].type == REPLY_TOOL && r->blocks[i].open && r->blocks[i].index == index)
            return &r->blocks[i];
    return NULL;
}

bool reply_tool_is_open(const struct reply *r, int64_t index) {
    return model_reply_find_tool(r, index) != NULL;
}

bool reply_tool_is_same(const struct reply *r, int64_t index, const char *id, const char *name) {
    const struct reply_block *b = model_reply_find_tool(r, index);
    if (!b || strcmp(b->name, name) != 0)
        return false;
    if (*id)
        return strcmp(b->server_id, id) == 0;
    /* Without ids, what comes after a whole object is the next call. */
    return b->text.len == 0 || b->text.data[b->text.len - 1] != '}' || b->depth > 0;
}

bool reply_has_tools(const struct reply *r) {
    for (size_t i = 0; i < r->count; i++)
        if (r->blocks[i].type == REPLY_TOOL)
            return true;
    return false;
}

static bool id_is_taken(const struct reply *r, const char *id) {
    if (json_object_get(r->used_ids, id))
        return true;
    for (size_t i = 0; i < r->count; i++)
        if (r->blocks[i].id && strcmp(r->blocks[i].id, id) == 0)
            return true;
    return false;
}

int reply_tool_start(struct reply *r, int64_t index, const char *id, const char *name,
                     struct err *err) {
    /* Some servers leave ids out or count from 0 in every answer; pages and logs need them to be
     * unique in the conversation. */
    char made[ID_SIZE];
    const char *server_id = id ? id : "";
    if (!id || !*id || id_is_taken(r, id))
        id = id_new("call", made);
    struct reply_block *b = model_reply_find_tool(r, index);
    int rc = reply_close_text(r, err);
    if (rc == 0 && b)
        rc = reply_tool_end(r, index, err);
    if (rc == 0)
        rc = add_block(r, REPLY_TOOL, &b, err);
    if (rc < 0)
        return rc;
    b->index = index;
    b->id = xstrdup(id);
    b->server_id = xstrdup(server_id);
    b->name = xstrdup(name);
    b->told = true;
    r->bytes += strlen(id) + strlen(name);
    if (r->cb->on_tool_start)
        r->cb->on_tool_start(r->ctx, b->id, b->name);
    return model_reply_alive(r);
}

/* An input may come in thousands of pieces: none is looked at twice. */
static void follow_input(struct reply_block *b, const char *json, size_t len) {
    for (size_t i = 0; i < len; i++) {
        char c = json[i];
        if (b->escaped) {
            b->escaped = false;
        } else if (b->in_string) {
            b->escaped = c == '\\';
            b->in_string = c != '"';
        } else {
            b->in_string = c == '"';
            b->depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
        }
    }
}

int reply_tool_delta(struct reply *r, int64_t index, const char *json, size_t len,
                     struct err *err) {
    struct reply_block *b = model_reply_find_tool(r, index);
    if (!b || len == 0)
        return 0;
    int rc = add_bytes(r, b, json, len, err);
    if (rc < 0)
        return rc;
    follow_input(b, json, len);
    if (r->cb->on_tool_delta)
        r->cb->on_tool_delta(r->ctx, b->id, json, len);
    return model_reply_alive(r);
}

static struct reply_input *model_reply_make_input(struct reply *r, struct reply_block *b) {
    struct reply_input *in = xcalloc(1, sizeof(*in));
    in->block = (size_t)(b - r->blocks);
    in->name = xstrdup(b->name);
    in->json = b->text.len > 0 ? buf_steal(&b->text, &in->len) : xstrdup("{}");
    b->unread = false;
    return in;
}

struct reply_input *reply_take_input(struct reply *r) {
    for (size_t i = 0; i < r->count; i++)
        if (r->blocks[i].unread)
            return model_reply_make_input(r, &r->blocks[i]);
    return NULL;
}

void reply_input_read(struct reply_input *in) {
    struct err why;
    json_t *tree = NULL;
    if (json_parse(in->json, strlen(in->json), "the input", &tree, &why) == 0 &&
        !json_is_object(tree))
        (void)err_set(&why, ERR_BAD_REQUEST, "the input is not a JSON object");
    if (json_is_object(tree)) {
        in->tree = tree;
        in->text = json_dump_text(tree, SIZE_MAX / 2, &in->text_len);
        return;
    }
    json_decref(tree);
    in->error = text_make("The input of %.100s could not be read: %.300s. Call it again with "
                          "valid JSON.",
                          in->name, why.message);
}

void reply_input_free(struct reply_input *in) {
    if (!in)
        return;
    json_decref(in->tree);
    free(in->name);
    free(in->json);
    free(in->text);
    free(in->error);
    free(in);
}

int reply_give_input(struct reply *r, struct reply_input *in) {
    struct reply_block *b = &r->blocks[in->block];
    b->input = json_incref(in->tree);
    b->input_error = steal_ptr(&in->error);
    if (r->cb->on_tool_end)
        r->cb->on_tool_end(
            r->ctx, b->id, b->name,
            &(struct model_input){
                .tree = in->tree, .text = in->text, .len = in->text_len, .error = b->input_error});
    reply_input_free(in);
    return model_reply_alive(r);
}

int reply_tool_end(struct reply *r, int64_t index, struct err *err) {
    (void)err;
    struct reply_block *b = model_reply_find_tool(r, index);
    if (!b)
        return 0;
    b->open = false;
    b->unread = b->text.len > r->read_at_once;
    if (b->unread)
        return 0;
    struct reply_input *in = model_reply_make_input(r, b);
    reply_input_read(in);
    return reply_give_input(r, in);
}

int reply_close_all(struct reply *r, struct err *err) {
    int rc = reply_close_text(r, err);
    for (size_t i = 0; rc == 0 && i < r->count; i++)
        if (r->blocks[i].open)
            rc = reply_tool_end(r, r->blocks[i].index, err);
    return rc;
}

static json_t *model_reply_block_json(const struct reply *r, const struct reply_block *b) {
    const char *said = b->text.data ? b->text.data : "";
    /* Pieces that are UTF-8 each may not be it together. */
    json_t *text = utf8_is_valid(said, b->text.len) ? json_stringn_nocheck(said, b->text.len)
                                                    : json_string("");
    if (b->type == REPLY_TEXT)
        return json_pack("{s:s, s:o}", "type", "text", "text", text);
    if (b->type == REPLY_SERVER) {
        json_decref(text);
        return json_pack("{s:s, s:O, s:O*}", "type", "server", "raw", b->raw, "json", b->raw_json);
    }
    if (b->type == REPLY_REASONING) {
        json_t *j = json_pack("{s:s, s:o}", "type", "reasoning", "text", text);
        if (b->raw) {
            (void)json_object_set_new(j, "provider", json_string(r->provider));
            (void)json_object_set(j, "raw", b->raw);
        }
        return j;
    }
    json_decref(text);
    json_t *j = json_pack("{s:s, s:s, s:s}", "type", "tool_call", "id", b->id, "name", b->name);
    (void)json_object_set_new(j, "input", b->input ? json_incref(b->input) : json_object());
    if (b->input_error)
        (void)json_object_set_new(j, "input_error", json_string(b->input_error));
    return j;
}

json_t *reply_message(const struct reply *r) {
    json_t *content = json_array();
    for (size_t i = 0; i < r->count; i++) {
        const struct reply_block *b = &r->blocks[i];
        bool empty = b->type == REPLY_TEXT && b->text.len == 0;
        if (!empty && !(b->type == REPLY_TOOL && (b->open || b->unread)))
            (void)json_array_append_new(content, model_reply_block_json(r, b));
    }
    return json_pack("{s:s, s:o}", "role", "assistant", "content", content);
}
