#include "front/execute/transcript.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct transcript {
    struct transcript_options opt;
    const struct dialog *dialog;
    int64_t begun_ms;
    int64_t step_ms; /* when the present step began; 0: none runs */
    int64_t api_ms;
    bool overflown;
    struct buf said; /* the text of the last answer that had one: a JSON string, or nothing */
    /* Of the answer that comes, as JSON: what is long is written once, when it comes. */
    struct transcript_piece {
        char *call;      /* its id; NULL: a text, without its quotes */
        struct buf json; /* or the input of the call */
    } * pieces;
    size_t npieces;
};

struct transcript *transcript_create(const struct transcript_options *options) {
    struct transcript *t = xcalloc(1, sizeof(*t));
    t->opt = *options;
    t->begun_ms = clock_mono_ms();
    buf_init(&t->said, INT_MAX);
    return t;
}

static void transcript_drop_pieces(struct transcript *t) {
    for (size_t i = 0; i < t->npieces; i++) {
        free(t->pieces[i].call);
        buf_finish(&t->pieces[i].json);
    }
    free(t->pieces);
    t->pieces = NULL;
    t->npieces = 0;
}

void transcript_destroy(struct transcript *t) {
    if (!t)
        return;
    buf_finish(&t->said);
    transcript_drop_pieces(t);
    free(t);
}

void transcript_overflow(struct transcript *t) {
    t->overflown = true;
}

/* The object, which has members, with one more that is JSON already. Takes the object. */
static void transcript_add(struct buf *out, json_t *object, const char *key, const char *json,
                           size_t len) {
    (void)json_dump(object, out);
    json_decref(object);
    if (!key || out->full)
        return;
    out->len--; /* its brace */
    (void)buf_addf(out, ",\"%s\":", key);
    (void)buf_add(out, json, len);
    (void)buf_add_char(out, '}');
}

/* Takes the message, which has one more member if key is not NULL. */
static void transcript_tell(struct transcript *t, json_t *message, const char *key,
                            const char *json, size_t len) {
    char uuid[UUID_SIZE];
    char type[16];
    _cleanup_(buf) struct buf text;
    buf_init(&text, INT_MAX);
    (void)text_print(type, sizeof(type), "%s", json_string_value(json_object_get(message, "type")));
    (void)json_object_set_new(message, "uuid", json_string(id_uuid(uuid)));
    (void)json_object_set_new(message, "session_id", json_string(t->opt.session));
    transcript_add(&text, message, key, json, len);
    if (!text.full)
        t->opt.on_message(t->opt.ctx, type, text.data, text.len);
}

void transcript_begin(struct transcript *t, const struct dialog *dialog) {
    json_t *tools = json_array();
    t->dialog = dialog;
    for (size_t i = 0; i < t->opt.ntools; i++)
        (void)json_array_append_new(tools, json_string(t->opt.tools[i].name));
    bool keyed = t->opt.model->provider == MODEL_ANTHROPIC;
    transcript_tell(t,
                    json_pack("{s:s,s:s,s:s,s:s,s:s,s:o,s:[],s:s,s:s,s:[],s:s,s:[],s:[]}", "type",
                              "system", "subtype", "init", "apiKeySource",
                              keyed ? "ANTHROPIC_API_KEY" : "none", "claude_code_version",
                              "cay/" CAY_VERSION, "cwd", "/", "tools", tools, "mcp_servers",
                              "model", t->opt.model->id, "permissionMode", "default",
                              "slash_commands", "output_style", "default", "skills", "plugins"),
                    NULL, NULL, 0);
}

/* --- an answer --- */

/* Every key is there, as the published type asks. */
static json_t *usage_json(const struct model_usage *u) {
    return json_pack(
        "{s:I,s:I,s:I,s:I,s:{s:i,s:I},s:{s:I,s:i},s:{s:i},s:s,s:s,s:[],s:s,s:n}", "input_tokens",
        (json_int_t)u->input_tokens, "output_tokens", (json_int_t)u->output_tokens,
        "cache_creation_input_tokens", (json_int_t)u->cache_write_tokens, "cache_read_input_tokens",
        (json_int_t)u->cache_read_tokens, "cache_creation", "ephemeral_1h_input_tokens", 0,
        "ephemeral_5m_input_tokens", (json_int_t)u->cache_write_tokens, "server_tool_use",
        "web_search_requests", (json_int_t)u->searches, "web_fetch_requests", 0,
        "output_tokens_details", "thinking_tokens", 0, "service_tier", "standard", "inference_geo",
        "", "iterations", "speed", "standard", "fallback_credit");
}

static const char *stop_reason(enum model_stop stop) {
    static const char *const names[] = {[MODEL_STOP_END] = "end_turn",
                                        [MODEL_STOP_TOOL_CALLS] = "tool_use",
                                        [MODEL_STOP_LENGTH] = "max_tokens",
                                        [MODEL_STOP_REFUSAL] = "refusal",
                                        [MODEL_STOP_OTHER] = NULL};
    return names[stop];
}

/* --- what comes of it --- */

static struct buf *transcript_add_piece(struct transcript *t, const char *call) {
    t->pieces = xrealloc(t->pieces, (t->npieces + 1) * sizeof(*t->pieces));
    struct transcript_piece *p = &t->pieces[t->npieces++];
    p->call = call ? xstrdup(call) : NULL;
    buf_init(&p->json, INT_MAX);
    return &p->json;
}

static void transcript_on_text_start(void *ctx) {
    (void)transcript_add_piece(ctx, NULL);
}

/* Without the quotes. */
static void transcript_quote(struct buf *out, const char *text, size_t len) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, INT_MAX);
    json_write_str(&b, text, len);
    (void)buf_add(out, b.data + 1, b.len - 2);
}

static void transcript_on_text_delta(void *ctx, const char *text, size_t len) {
    struct transcript *t = ctx;
    for (size_t i = t->npieces; i-- > 0;)
        if (!t->pieces[i].call) {
            transcript_quote(&t->pieces[i].json, text, len);
            return;
        }
}

static void transcript_on_tool_input(void *ctx, const char *id, const char *name,
                                     const struct model_input *input) {
    (void)name;
    if (input->tree)
        (void)buf_add(transcript_add_piece(ctx, id), input->text, input->len);
}

/* What came of the text with this number, or of this call; NULL: nothing. */
static const struct buf *transcript_find_piece(const struct transcript *t, size_t number,
                                               const char *call) {
    for (size_t i = 0; i < t->npieces; i++) {
        const struct transcript_piece *p = &t->pieces[i];
        if (call ? p->call && strcmp(p->call, call) == 0 : !p->call && number-- == 0)
            return &p->json;
    }
    return NULL;
}

static void transcript_write_quoted(struct json_writer *w, const struct buf *json) {
    json_writer_raw(w, "\"", 1);
    (void)buf_add(w->out, json->data, json->len);
    (void)buf_add_char(w->out, '"');
}

/* A text also goes into what was said. */
static void transcript_write_text(struct transcript *t, struct json_writer *w, const json_t *b,
                                  size_t number) {
    const json_t *text = json_object_get(b, "text");
    const struct buf *piece = transcript_find_piece(t, number, NULL);
    _cleanup_(buf) struct buf own;
    buf_init(&own, INT_MAX);
    if (!piece)
        transcript_quote(&own, json_string_value(text), json_string_length(text));
    piece = piece ? piece : &own;
    json_writer_object_begin(w);
    json_writer_key(w, "type");
    json_writer_str(w, "text");
    json_writer_key(w, "text");
    transcript_write_quoted(w, piece);
    json_writer_key(w, "citations");
    json_writer_null(w);
    json_writer_object_end(w);
    if (number == 0)
        buf_clear(&t->said);
    else
        t->said.len--; /* the quote at its end */
    if (number == 0)
        (void)buf_add_char(&t->said, '"');
    (void)buf_add(&t->said, piece->data, piece->len);
    (void)buf_add_char(&t->said, '"');
}

static void transcript_write_call(const struct transcript *t, struct json_writer *w,
                                  const json_t *b) {
    const char *id = json_string_value(json_object_get(b, "id"));
    const struct buf *piece = transcript_find_piece(t, 0, id ? id : "");
    json_writer_object_begin(w);
    json_writer_key(w, "type");
    json_writer_str(w, "tool_use");
    json_writer_key(w, "id");
    json_writer_str(w, id);
    json_writer_key(w, "name");
    json_writer_tree(w, json_object_get(b, "name"));
    json_writer_key(w, "input");
    if (piece)
        json_writer_raw(w, piece->data, piece->len);
    else
        json_writer_tree(w, json_object_get(b, "input"));
    json_writer_object_end(w);
}

static void transcript_write_other(struct json_writer *w, const json_t *b) {
    const json_t *text = json_object_get(b, "text");
    const json_t *json = json_object_get(b, "json");
    if (json) {
        json_writer_raw(w, json_string_value(json), json_string_length(json));
        return;
    }
    if (json_object_get(b, "raw")) {
        json_writer_tree(w, json_object_get(b, "raw"));
        return;
    }
    json_writer_object_begin(w);
    json_writer_key(w, "type");
    json_writer_str(w, "thinking");
    json_writer_key(w, "thinking");
    json_writer_text(w, json_string_value(text), json_string_length(text));
    json_writer_key(w, "signature");
    json_writer_str(w, "");
    json_writer_object_end(w);
}

static void transcript_write_content(struct transcript *t, const json_t *content, struct buf *out) {
    struct json_writer w;
    size_t texts = 0;
    size_t i;
    const json_t *b;
    json_writer_init(&w, out);
    json_writer_array_begin(&w);
    json_array_foreach(content, i, b) {
        const char *type = json_string_value(json_object_get(b, "type"));
        if (type && strcmp(type, "text") == 0)
            transcript_write_text(t, &w, b, texts++);
        else if (type && strcmp(type, "tool_call") == 0)
            transcript_write_call(t, &w, b);
        else
            transcript_write_other(&w, b);
    }
    json_writer_array_end(&w);
}

static void transcript_on_step_start(void *ctx) {
    struct transcript *t = ctx;
    t->step_ms = clock_mono_ms();
}

static void end_step(struct transcript *t) {
    if (t->step_ms)
        t->api_ms += clock_mono_ms() - t->step_ms;
    t->step_ms = 0;
}

static void transcript_on_answer(void *ctx, const struct dialog_answer *answer) {
    struct transcript *t = ctx;
    const json_t *from = json_object_get(answer->message, "content");
    const char *stop = answer->whole ? stop_reason(answer->stop) : NULL;
    char id[ID_SIZE];
    _cleanup_(buf) struct buf content;
    _cleanup_(buf) struct buf message;
    buf_init(&content, INT_MAX);
    buf_init(&message, INT_MAX);
    end_step(t);
    transcript_write_content(t, from, &content);
    transcript_drop_pieces(t);
    if (json_array_size(from) == 0 && !answer->whole)
        return;
    transcript_add(&message,
                   json_pack("{s:s,s:s,s:s,s:s,s:s?,s:n,s:n,s:n,s:n,s:n,s:o}", "id",
                             id_new("msg", id), "type", "message", "role", "assistant", "model",
                             t->opt.model->id, "stop_reason", stop, "stop_sequence", "stop_details",
                             "container", "context_management", "diagnostics", "usage",
                             usage_json(&answer->usage)),
                   "content", content.data, content.len);
    json_t *told = json_pack("{s:s,s:n}", "type", "assistant", "parent_tool_use_id");
    if (!answer->whole)
        (void)json_object_set_new(told, "error", json_string("server_error"));
    transcript_tell(t, told, "message", message.data, message.len);
}

/* --- a tool's result --- */

static void transcript_on_tool_result(void *ctx, const struct dialog_result *r) {
    struct transcript *t = ctx;
    _cleanup_(buf) struct buf b;
    struct json_writer w;
    buf_init(&b, INT_MAX);
    json_writer_init(&w, &b);
    json_writer_object_begin(&w);
    json_writer_key(&w, "role");
    json_writer_str(&w, "user");
    json_writer_key(&w, "content");
    json_writer_array_begin(&w);
    json_writer_object_begin(&w);
    json_writer_key(&w, "type");
    json_writer_str(&w, "tool_result");
    json_writer_key(&w, "tool_use_id");
    json_writer_str(&w, r->id);
    json_writer_key(&w, "content");
    if (json_is_string(r->output))
        json_writer_raw(&w, r->text, r->len);
    else
        json_writer_text(&w, r->text, r->len);
    json_writer_key(&w, "is_error");
    json_writer_bool(&w, r->failed);
    json_writer_object_end(&w);
    json_writer_array_end(&w);
    json_writer_object_end(&w);
    (void)buf_add_str(&b, ",\"tool_use_result\":");
    if (r->detail)
        (void)json_dump(r->detail, &b);
    else
        (void)buf_add(&b, r->text, r->len);
    transcript_tell(t, json_pack("{s:s,s:n}", "type", "user", "parent_tool_use_id"), "message",
                    b.data, b.len);
}

/* --- the end --- */

struct transcript_ending {
    const char *subtype;
    const char *reason;
    const char *code; /* NULL: it went well */
    int status;
    json_t *error; /* a text */
};

/* Reaching a limit that the request itself has set is an answer, not a failure of the server. */
static struct transcript_ending ending_of(const struct transcript *t,
                                          const struct dialog_end *end) {
    int status = dialog_http_status(end);
    if (end->held_up)
        return (struct transcript_ending){"error_during_execution", "budget_exhausted",
                                          err_name(ERR_RATE), status,
                                          json_text(end->error.message)};
    switch (end->outcome) {
    case DIALOG_DONE:
        return (struct transcript_ending){"success", "completed", NULL, status, NULL};
    case DIALOG_STEPS:
        return (struct transcript_ending){
            "error_max_turns", "max_turns", "max_turns", status,
            json_sprintf("Reached maximum number of turns (%lld)", (long long)t->opt.max_turns)};
    case DIALOG_BUDGET:
        if (end->error.code == ERR_QUOTA)
            return (struct transcript_ending){"error_during_execution", "budget_exhausted",
                                              err_name(ERR_QUOTA), status,
                                              json_text(end->error.message)};
        if (end->error.code != ERR_TIMEOUT)
            return (struct transcript_ending){
                "error_max_budget_usd", "budget_exhausted", "max_budget_usd", status,
                json_sprintf("Reached maximum budget ($%g)", t->opt.max_budget_usd)};
        return (struct transcript_ending){
            "error_during_execution", "aborted_streaming", "timeout", status,
            json_sprintf("It took longer than %lld ms (MAX_EXECUTION_TIME)",
                         (long long)t->opt.timeout_ms)};
    case DIALOG_CANCELLED:
        if (t->overflown)
            return (struct transcript_ending){
                "error_during_execution", "blocking_limit", err_name(ERR_LIMIT),
                err_http_status(ERR_LIMIT),
                json_sprintf("Its messages exceed %d bytes", LIMIT_EXECUTE_TRANSCRIPT_BYTES)};
        return (struct transcript_ending){"error_during_execution", "aborted_streaming",
                                          "cancelled", status, json_string("It was cancelled")};
    default:
        return (struct transcript_ending){"success", "api_error", err_name(end->error.code), status,
                                          json_text(end->error.message)};
    }
}

static json_t *model_usage(const struct transcript *t, const struct model_meter *m) {
    const struct model_usage *u = &m->usage;
    return json_pack("{s:{s:I,s:I,s:I,s:I,s:I,s:f,s:I,s:I}}", t->opt.model->id, "inputTokens",
                     (json_int_t)u->input_tokens, "outputTokens", (json_int_t)u->output_tokens,
                     "cacheReadInputTokens", (json_int_t)u->cache_read_tokens,
                     "cacheCreationInputTokens", (json_int_t)u->cache_write_tokens,
                     "webSearchRequests", (json_int_t)u->searches, "costUSD",
                     (double)m->cost_nusd / NANO_USD_PER_USD, "contextWindow",
                     (json_int_t)t->opt.model->context_tokens, "maxOutputTokens",
                     (json_int_t)t->opt.model->max_output_tokens);
}

static void transcript_on_end(void *ctx, const struct dialog_end *end) {
    struct transcript *t = ctx;
    const struct model_meter *m = dialog_meter(t->dialog);
    struct transcript_ending e = ending_of(t, end);
    /* At the limit the turn that could not be taken counts, as the original counts it. */
    int64_t turns = dialog_steps(t->dialog) + (end->outcome == DIALOG_STEPS);
    end_step(t);
    json_t *message = json_pack(
        "{s:s,s:s,s:b,s:I,s:I,s:I,s:s?,s:f,s:o,s:o,s:[],s:s}", "type", "result", "subtype",
        e.subtype, "is_error", e.code != NULL, "duration_ms",
        (json_int_t)(clock_mono_ms() - t->begun_ms), "duration_api_ms", (json_int_t)t->api_ms,
        "num_turns", (json_int_t)turns, "stop_reason", stop_reason(end->stop), "total_cost_usd",
        (double)m->cost_nusd / NANO_USD_PER_USD, "usage", usage_json(&m->usage), "modelUsage",
        model_usage(t, m), "permission_denials", "terminal_reason", e.reason);
    if (strcmp(e.subtype, "success") != 0)
        (void)json_object_set_new(message, "errors", json_pack("[O]", e.error));
    else if (e.error)
        (void)json_object_set(message, "result", e.error);
    if (t->said.len == 0)
        (void)buf_add_str(&t->said, "\"\"");
    bool went_well = strcmp(e.subtype, "success") == 0 && !e.error;
    transcript_tell(t, message, went_well ? "result" : NULL, t->said.data, t->said.len);
    _cleanup_(json) json_t *error = e.error;
    t->opt.on_end(t->opt.ctx, &(struct transcript_end){.result = t->said.data,
                                                       .result_len = t->said.len,
                                                       .held_up = end->held_up,
                                                       .turns = turns,
                                                       .code = e.code,
                                                       .status = e.status,
                                                       .retry_after_s = end->retry_after_s,
                                                       .message = json_string_value(error)});
}

const struct dialog_view transcript_view = {
    .on_step_start = transcript_on_step_start,
    .on_text_start = transcript_on_text_start,
    .on_text_delta = transcript_on_text_delta,
    .on_tool_input = transcript_on_tool_input,
    .on_answer = transcript_on_answer,
    .on_tool_result = transcript_on_tool_result,
    .on_end = transcript_on_end,
};
