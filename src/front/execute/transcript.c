#include "front/execute/transcript.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct transcript {
    struct transcript_options opt;
    const struct dialog *dialog;
    int64_t begun_ms;
    int64_t step_ms; /* when the present step began; 0: none runs */
    int64_t api_ms;
    bool overflown;
    char *said; /* the text of the last answer that had one */
};

struct transcript *transcript_create(const struct transcript_options *options) {
    struct transcript *t = xcalloc(1, sizeof(*t));
    t->opt = *options;
    t->begun_ms = clock_mono_ms();
    return t;
}

void transcript_destroy(struct transcript *t) {
    if (!t)
        return;
    free(t->said);
    free(t);
}

void transcript_overflow(struct transcript *t) {
    t->overflown = true;
}

/* Takes the message. */
static void transcript_tell(struct transcript *t, json_t *message) {
    char uuid[UUID_SIZE];
    const char *type = json_string_value(json_object_get(message, "type"));
    (void)json_object_set_new(message, "uuid", json_string(id_uuid(uuid)));
    (void)json_object_set_new(message, "session_id", json_string(t->opt.session));
    t->opt.on_message(t->opt.ctx, type, message);
    json_decref(message);
}

void transcript_begin(struct transcript *t, const struct dialog *dialog) {
    json_t *tools = json_array();
    t->dialog = dialog;
    for (size_t i = 0; i < t->opt.ntools; i++)
        (void)json_array_append_new(tools, json_string(t->opt.tools[i].name));
    bool keyed = t->opt.model->provider == MODEL_ANTHROPIC;
    transcript_tell(t, json_pack("{s:s,s:s,s:s,s:s,s:s,s:o,s:[],s:s,s:s,s:[],s:s,s:[],s:[]}",
                                 "type", "system", "subtype", "init", "apiKeySource",
                                 keyed ? "ANTHROPIC_API_KEY" : "none", "claude_code_version",
                                 "cay/" CAY_VERSION, "cwd", "/", "tools", tools, "mcp_servers",
                                 "model", t->opt.model->id, "permissionMode", "default",
                                 "slash_commands", "output_style", "default", "skills", "plugins"));
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

static json_t *transcript_block_json(const json_t *b) {
    const char *type = json_string_value(json_object_get(b, "type"));
    json_t *text = json_object_get(b, "text");
    json_t *raw = json_object_get(b, "raw");
    if (type && strcmp(type, "text") == 0)
        return json_pack("{s:s,s:O,s:n}", "type", "text", "text", text, "citations");
    if (type && strcmp(type, "tool_call") == 0)
        return json_pack("{s:s,s:O,s:O,s:O}", "type", "tool_use", "id", json_object_get(b, "id"),
                         "name", json_object_get(b, "name"), "input", json_object_get(b, "input"));
    if (raw)
        return json_incref(raw);
    return json_pack("{s:s,s:O,s:s}", "type", "thinking", "thinking", text, "signature", "");
}

/* The texts of an answer, one after the other; NULL if it has none. */
static char *texts_of(const json_t *content) {
    _cleanup_(buf) struct buf text;
    buf_init(&text, LIMIT_MODEL_REPLY_BYTES + 1);
    size_t i;
    const json_t *b;
    json_array_foreach(content, i, b) {
        const char *type = json_string_value(json_object_get(b, "type"));
        const json_t *piece = json_object_get(b, "text");
        if (type && strcmp(type, "text") == 0)
            (void)buf_add(&text, json_string_value(piece), json_string_length(piece));
    }
    return text.len > 0 ? buf_steal(&text, NULL) : NULL;
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
    json_t *content = json_array();
    char id[ID_SIZE];
    size_t i;
    const json_t *b;
    end_step(t);
    json_array_foreach(from, i, b)(void) json_array_append_new(content, transcript_block_json(b));
    char *said = texts_of(from);
    if (said) {
        free(t->said);
        t->said = said;
    }
    if (json_array_size(content) == 0 && !answer->whole) {
        json_decref(content);
        return;
    }
    json_t *message =
        json_pack("{s:s,s:s,s:s,s:s,s:o,s:s?,s:n,s:n,s:n,s:n,s:n,s:o}", "id", id_new("msg", id),
                  "type", "message", "role", "assistant", "model", t->opt.model->id, "content",
                  content, "stop_reason", stop, "stop_sequence", "stop_details", "container",
                  "context_management", "diagnostics", "usage", usage_json(&answer->usage));
    json_t *told =
        json_pack("{s:s,s:o,s:n}", "type", "assistant", "message", message, "parent_tool_use_id");
    if (!answer->whole)
        (void)json_object_set_new(told, "error", json_string("server_error"));
    transcript_tell(t, told);
}

/* --- a tool's result --- */

static json_t *transcript_text_of(const json_t *output) {
    if (json_is_string(output))
        return json_incref((json_t *)(uintptr_t)output);
    _cleanup_(free) char *text = json_dumps(output, JSON_COMPACT | JSON_ENCODE_ANY);
    return json_string(text ? text : "");
}

static void transcript_on_tool_result(void *ctx, const struct dialog_result *r) {
    struct transcript *t = ctx;
    json_t *shown = (json_t *)(uintptr_t)(r->detail ? r->detail : r->output);
    transcript_tell(t, json_pack("{s:s,s:{s:s,s:[{s:s,s:s,s:o,s:b}]},s:n,s:O}", "type", "user",
                                 "message", "role", "user", "content", "type", "tool_result",
                                 "tool_use_id", r->id, "content", transcript_text_of(r->output),
                                 "is_error", (int)r->failed, "parent_tool_use_id",
                                 "tool_use_result", shown));
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
    else
        (void)json_object_set_new(message, "result", json_string(t->said ? t->said : ""));
    transcript_tell(t, message);
    _cleanup_(json) json_t *error = e.error;
    t->opt.on_end(t->opt.ctx, &(struct transcript_end){.result = t->said ? t->said : "",
                                                       .held_up = end->held_up,
                                                       .turns = turns,
                                                       .code = e.code,
                                                       .status = e.status,
                                                       .retry_after_s = end->retry_after_s,
                                                       .message = json_string_value(error)});
}

const struct dialog_view transcript_view = {
    .on_step_start = transcript_on_step_start,
    .on_answer = transcript_on_answer,
    .on_tool_result = transcript_on_tool_result,
    .on_end = transcript_on_end,
};
