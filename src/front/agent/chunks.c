#include "front/agent/chunks.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/agent/draft.h"
#include "front/agent/uimessage.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAVE_MS = 1000, FRAME_BYTES = 160 };

static const char stopped[] = "The turn was stopped before this tool had an answer.";

struct chunk {
    struct buf json;
    size_t seq;
    size_t value_at; /* of a delta: where its text begins; the next one of its kind is joined */
};

struct chunks {
    struct chunks_options opt;
    char message_id[64];
    struct draft *draft;
    json_t *message; /* when it is over: JSON, in a string */
    struct chunk *list;
    size_t count;
    size_t held_from; /* those from here on are held back... */
    bool held;        /* ...if any is */
    size_t next_seq;
    size_t bytes; /* as frames of a WebSocket, about */
    bool full;
    char failure[96];
    unsigned blocks; /* numbers the text and reasoning blocks */
    int64_t saved_ms;
    bool unsaved;    /* the message is to be saved, at a better time */
    json_t *account; /* what the message says of itself, when it is over */
};

/* --- the stream --- */

/* Joins a delta to the one before it, as one delta with both texts. */
static bool chunks_join(struct chunks *c, const struct buf *b, size_t value_at) {
    struct chunk *last = c->count > c->held_from ? &c->list[c->count - 1] : NULL;
    if (!last || value_at == 0 || last->value_at != value_at ||
        memcmp(last->json.data, b->data, value_at) != 0)
        return false;
    last->json.len -= 2; /* the closing quote and brace */
    (void)buf_add(&last->json, b->data + value_at, b->len - value_at);
    c->bytes += json_quoted_bytes(b->data + value_at, b->len - value_at);
    return true;
}

static void chunks_keep(struct chunks *c, const struct buf *b, size_t seq, size_t value_at) {
    if (chunks_join(c, b, value_at))
        return;
    if ((c->count & (c->count + 1)) == 0)
        c->list = xrealloc(c->list, 2 * (c->count + 1) * sizeof(*c->list));
    struct chunk *new = &c->list[c->count++];
    *new = (struct chunk){.seq = seq, .value_at = value_at};
    buf_init(&new->json, c->opt.max_bytes);
    (void)buf_add(&new->json, b->data, b->len);
    c->bytes += json_quoted_bytes(b->data, b->len) + FRAME_BYTES;
}

/* Keeps the chunk for those who join later, and tells it. */
static void chunks_emit(struct chunks *c, const struct buf *b, size_t value_at) {
    size_t max = c->opt.max_bytes;
    if (c->full)
        return;
    if (b->full || c->bytes + json_quoted_bytes(b->data, b->len) + FRAME_BYTES > max) {
        (void)snprintf(c->failure, sizeof(c->failure),
                       "the turn's stream exceeds %zu bytes (limit agent_stream_bytes)", max);
        c->full = true;
        c->opt.events->on_full(c->opt.ctx);
        return;
    }
    size_t seq = c->next_seq++;
    chunks_keep(c, b, seq, value_at);
    if (!c->held)
        c->opt.events->on_chunk(c->opt.ctx, seq, b->data, b->len);
}

static void begin_chunk(struct json_writer *w, struct buf *b, size_t max, const char *type) {
    buf_init(b, max);
    json_writer_init(w, b);
    json_writer_object_begin(w);
    json_writer_key(w, "type");
    json_writer_str(w, type);
}

static void add_pair(struct json_writer *w, const char *key, const char *value) {
    json_writer_key(w, key);
    json_writer_str(w, value);
}

static void emit_type(struct chunks *c, const char *type) {
    _cleanup_(buf) struct buf b;
    struct json_writer w;
    begin_chunk(&w, &b, c->opt.max_bytes, type);
    json_writer_object_end(&w);
    chunks_emit(c, &b, 0);
}

/* The text of a delta goes into the message as it was written here. */
static void emit_delta(struct chunks *c, const char *type, const char *id_key, const char *id,
                       const char *key, const char *text, size_t len, bool is_said) {
    _cleanup_(buf) struct buf b;
    struct json_writer w;
    begin_chunk(&w, &b, c->opt.max_bytes, type);
    add_pair(&w, id_key, id);
    json_writer_key(&w, key);
    size_t value_at = b.len + 1;
    json_writer_text(&w, text, len);
    json_writer_object_end(&w);
    if (is_said && !b.full)
        draft_add_text(c->draft, b.data + value_at, b.len - value_at - 2);
    chunks_emit(c, &b, value_at);
}

/* A chunk about a tool call, with a value that is JSON. */
static void emit_call(struct chunks *c, const char *type, const char *id, const char *name,
                      const char *key, const char *json, size_t len) {
    _cleanup_(buf) struct buf b;
    struct json_writer w;
    begin_chunk(&w, &b, c->opt.max_bytes, type);
    add_pair(&w, "toolCallId", id);
    if (name)
        add_pair(&w, "toolName", name);
    if (key) {
        json_writer_key(&w, key);
        json_writer_raw(&w, json, len);
    }
    json_writer_object_end(&w);
    chunks_emit(c, &b, 0);
}

/* Takes the chunk. */
static void emit_tree(struct chunks *c, json_t *chunk) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, c->opt.max_bytes);
    (void)json_dump(chunk, &b);
    chunks_emit(c, &b, 0);
    json_decref(chunk);
}

/* A chunk of the text or reasoning block that is open, or was. */
static void emit_block(struct chunks *c, const char *type) {
    _cleanup_(buf) struct buf b;
    struct json_writer w;
    char id[16];
    (void)snprintf(id, sizeof(id), "b%u", c->blocks);
    begin_chunk(&w, &b, c->opt.max_bytes, type);
    add_pair(&w, "id", id);
    json_writer_object_end(&w);
    chunks_emit(c, &b, 0);
}

/* --- the message --- */

static void agent_chunks_write(struct chunks *c, struct buf *out) {
    buf_init(out, INT_MAX);
    draft_write(c->draft, out);
    c->opt.events->on_save(c->opt.ctx, out->data, out->len);
}

static void agent_chunks_save(struct chunks *c) {
    _cleanup_(buf) struct buf b = {0};
    c->saved_ms = clock_mono_ms();
    c->unsaved = false;
    if (!draft_is_empty(c->draft))
        agent_chunks_write(c, &b);
}

void chunks_save(struct chunks *c) {
    if (c->unsaved)
        agent_chunks_save(c);
}

/* Now and then what was said so far is saved, so that little is lost with the server. */
static void save_said_sometimes(struct chunks *c) {
    if (!c->full && clock_mono_ms() - c->saved_ms >= SAVE_MS)
        agent_chunks_save(c);
}

void chunks_settle(json_t *message) {
    uimessage_settle(message, stopped);
}

/* The stream and the message that is kept say the same, also of how long it took. */
static json_t *copy_account(struct chunks *c) {
    if (!c->account)
        c->account = c->opt.events->metadata(c->opt.ctx);
    return json_copy(c->account);
}

void chunks_close(struct chunks *c, const json_t *error, bool aborted) {
    draft_settle(c->draft, stopped);
    draft_add_metadata(c->draft, copy_account(c));
    if (error)
        draft_add_metadata(c->draft, json_pack("{s:O}", "error", error));
    else if (aborted)
        draft_add_metadata(c->draft, json_pack("{s:b}", "aborted", 1));
    bool is_empty = draft_is_empty(c->draft);
    _cleanup_(buf) struct buf b = {0};
    /* One that failed before its first word is kept too: with why. */
    if (error || !is_empty)
        agent_chunks_write(c, &b);
    if (!is_empty)
        c->message = json_stringn_nocheck(b.data, b.len);
}

/* --- the view --- */

static void chunks_on_step_start(void *ctx) {
    struct chunks *c = ctx;
    emit_type(c, "start-step");
    if (!c->full)
        draft_step(c->draft);
}

static void begin_block(struct chunks *c, bool reasoning) {
    c->blocks++;
    draft_begin_text(c->draft, reasoning);
    emit_block(c, reasoning ? "reasoning-start" : "text-start");
}

static void add_to_block(struct chunks *c, const char *type, const char *text, size_t len) {
    char id[16];
    (void)snprintf(id, sizeof(id), "b%u", c->blocks);
    emit_delta(c, type, "id", id, "delta", text, len, true);
    save_said_sometimes(c);
}

static void chunks_on_text_start(void *ctx) {
    begin_block(ctx, false);
}

static void chunks_on_text_delta(void *ctx, const char *text, size_t len) {
    add_to_block(ctx, "text-delta", text, len);
}

static void chunks_on_text_end(void *ctx) {
    emit_block(ctx, "text-end");
}

static void chunks_on_reasoning_start(void *ctx) {
    begin_block(ctx, true);
}

static void chunks_on_reasoning_delta(void *ctx, const char *text, size_t len) {
    add_to_block(ctx, "reasoning-delta", text, len);
}

static void chunks_on_reasoning_end(void *ctx) {
    emit_block(ctx, "reasoning-end");
}

static void chunks_on_tool_start(void *ctx, const char *id, const char *name) {
    emit_call(ctx, "tool-input-start", id, name, NULL, NULL, 0);
}

static void chunks_on_tool_delta(void *ctx, const char *id, const char *json, size_t len) {
    emit_delta(ctx, "tool-input-delta", "toolCallId", id, "inputTextDelta", json, len, false);
}

static void chunks_on_tool_input(void *ctx, const char *id, const char *name,
                                 const struct model_input *input) {
    struct chunks *c = ctx;
    if (!input->tree) {
        emit_tree(c,
                  json_pack("{s:s,s:s,s:s,s:n,s:o}", "type", "tool-input-error", "toolCallId", id,
                            "toolName", name, "input", "errorText", json_text(input->error)));
        return;
    }
    draft_add_call(c->draft, id, name, input->text, input->len);
    if (!c->full)
        agent_chunks_save(c); /* who hears of the call finds it in the history */
    emit_call(c, "tool-input-available", id, name, "input", input->text, input->len);
}

static bool has_calls(const json_t *content) {
    size_t i;
    const json_t *c;
    json_array_foreach(content, i, c) {
        const char *type = json_string_value(json_object_get(c, "type"));
        if (type && strcmp(type, "tool_call") == 0)
            return true;
    }
    return false;
}

/* The stream is over: what it said is in the message now, which is saved while its first tool is at
 * work. One without calls of tools is the last: its end saves it. */
static void chunks_on_answer(void *ctx, const struct dialog_answer *answer) {
    struct chunks *c = ctx;
    const json_t *content = json_object_get(answer->message, "content");
    draft_take_answer(c->draft, content);
    c->unsaved = c->unsaved || (answer->whole && has_calls(content));
}

static void chunks_on_tool_begun(void *ctx) {
    chunks_save(ctx);
}

void chunks_hold(struct chunks *c) {
    if (!c->held)
        c->held_from = c->count;
    c->held = true;
}

static void chunks_on_tool_result(void *ctx, const struct dialog_result *r) {
    struct chunks *c = ctx;
    draft_set_output(c->draft, r->id, r->text, r->len, r->failed);
    if (c->held)
        c->unsaved = true; /* it is saved with what it waits for */
    else
        agent_chunks_save(c);
    emit_call(c, r->failed ? "tool-output-error" : "tool-output-available", r->id, NULL,
              r->failed ? "errorText" : "output", r->text, r->len);
}

static void chunks_on_step_finish(void *ctx) {
    emit_type(ctx, "finish-step");
}

static void emit_finish(struct chunks *c, const char *reason, const char *limit) {
    json_t *m = copy_account(c);
    (void)json_object_set_new(m, "finishReason", json_string(reason));
    if (limit)
        (void)json_object_set_new(m, "limit", json_text(limit));
    emit_tree(c, json_pack("{s:s,s:o}", "type", "finish", "messageMetadata", m));
}

static void chunks_on_end(void *ctx, const struct dialog_end *end) {
    struct chunks *c = ctx;
    if (end->outcome == DIALOG_DONE)
        emit_finish(c, model_stop_name(end->stop), NULL);
    if (end->outcome == DIALOG_STEPS) {
        /* As the original's stepCountIs(), this is no error. */
        draft_add_metadata(c->draft, json_pack("{s:s}", "limit", end->error.message));
        emit_finish(c, "tool-calls", end->error.message);
    }
    c->opt.events->on_end(c->opt.ctx, end); /* the chunks may be gone now */
}

const struct dialog_view chunks_view = {
    .on_step_start = chunks_on_step_start,
    .on_text_start = chunks_on_text_start,
    .on_text_delta = chunks_on_text_delta,
    .on_text_end = chunks_on_text_end,
    .on_reasoning_start = chunks_on_reasoning_start,
    .on_reasoning_delta = chunks_on_reasoning_delta,
    .on_reasoning_end = chunks_on_reasoning_end,
    .on_tool_start = chunks_on_tool_start,
    .on_tool_delta = chunks_on_tool_delta,
    .on_tool_input = chunks_on_tool_input,
    .on_answer = chunks_on_answer,
    .on_tool_begun = chunks_on_tool_begun,
    .on_tool_result = chunks_on_tool_result,
    .on_step_finish = chunks_on_step_finish,
    .on_end = chunks_on_end,
};

/* --- its life --- */

struct chunks *chunks_create(const struct chunks_options *options) {
    struct chunks *c = xcalloc(1, sizeof(*c));
    c->opt = *options;
    (void)snprintf(c->message_id, sizeof(c->message_id), "assistant_%lld_%08x",
                   (long long)clock_wall_ms(), (unsigned)(clock_mono_ns() & 0xffffffff));
    c->draft = draft_create(c->message_id);
    c->saved_ms = clock_mono_ms();
    return c;
}

void chunks_destroy(struct chunks *c) {
    if (!c)
        return;
    for (size_t i = 0; i < c->count; i++)
        buf_finish(&c->list[i].json);
    free(c->list);
    draft_destroy(c->draft);
    json_decref(c->message);
    json_decref(c->account);
    free(c);
}

void chunks_begin(struct chunks *c) {
    _cleanup_(buf) struct buf b;
    struct json_writer w;
    begin_chunk(&w, &b, c->opt.max_bytes, "start");
    add_pair(&w, "messageId", c->message_id);
    json_writer_object_end(&w);
    chunks_emit(c, &b, 0);
}

const char *chunks_message_id(const struct chunks *c) {
    return c->message_id;
}

const json_t *chunks_message(const struct chunks *c) {
    return c->message;
}

const char *chunks_failure(const struct chunks *c) {
    return c->full ? c->failure : NULL;
}

void chunks_release(struct chunks *c) {
    if (!c->held)
        return;
    c->held = false;
    for (size_t i = c->held_from; i < c->count; i++)
        c->opt.events->on_chunk(c->opt.ctx, c->list[i].seq, c->list[i].json.data,
                                c->list[i].json.len);
    c->held_from = 0;
}

size_t chunks_count(const struct chunks *c) {
    return c->held ? c->held_from : c->count;
}

const char *chunks_get(const struct chunks *c, size_t i, size_t *ret_seq, size_t *ret_len) {
    *ret_seq = c->list[i].seq;
    *ret_len = c->list[i].json.len;
    return c->list[i].json.data;
}
