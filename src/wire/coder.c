#include "wire/coder.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    VALUES_MAX = 20000,      /* in a line: each takes some 50 bytes as a tree */
    ARG_TEXT_MAX = 2 * 1024, /* of one text among the arguments of a step */
    CALLS_MAX = 64,          /* of Claude Code that wait for their results */
    CALL_ID_MAX = 128,
    STEPS_MAX = 1000000,
};

/* --- names --- */

static const char *const reasons[CODER_REASON_COUNT] = {
    [CODER_REASON_DONE] = "done",           [CODER_REASON_MAX_STEPS] = "max_steps",
    [CODER_REASON_MALFORMED] = "malformed", [CODER_REASON_MODEL_ERROR] = "model_error",
    [CODER_REASON_TIMEOUT] = "timeout",     [CODER_REASON_CANCELLED] = "cancelled",
    [CODER_REASON_ERROR] = "error",
};

static const char *const line_kinds[CODER_LINES_COUNT] = {
    [CODER_LINES_CAY] = "cay",
    [CODER_LINES_CLAUDE] = "claude-stream-json",
    [CODER_LINES_TEXT] = "text",
};

const char *coder_reason_name(enum coder_reason reason) {
    return (unsigned)reason < CODER_REASON_COUNT ? reasons[reason] : "error";
}

enum coder_reason coder_reason_find(const char *name) {
    unsigned i = 0;
    while (i < CODER_REASON_COUNT && strcmp(reasons[i], name) != 0)
        i++;
    return (enum coder_reason)i;
}

enum coder_lines coder_lines_find(const char *name) {
    unsigned i = 0;
    while (i < CODER_LINES_COUNT && strcmp(line_kinds[i], name) != 0)
        i++;
    return (enum coder_lines)i;
}

/* --- the fields of each type --- */

enum kind { KIND_NAME, KIND_TEXT, KIND_COUNT, KIND_INT, KIND_BOOL, KIND_ARGS, KIND_USAGE };

struct field {
    const char *name;
    enum kind kind;
    bool optional;
};

#define FIELDS_MAX 12

static const struct {
    const char *name;
    struct field fields[FIELDS_MAX];
} types[CODER_TYPE_COUNT] = {
    [CODER_START] = {"start",
                     {{"v", KIND_COUNT},
                      {"agent", KIND_NAME},
                      {"version", KIND_NAME},
                      {"model", KIND_NAME},
                      {"dir", KIND_NAME},
                      {"max_steps", KIND_COUNT},
                      {"dialect", KIND_NAME, true},
                      {"timeout_ms", KIND_COUNT, true}}},
    [CODER_MODEL_BEGIN] = {"model_begin", {{"call", KIND_COUNT}, {"bytes", KIND_COUNT}}},
    [CODER_MODEL_END] = {"model_end",
                         {{"call", KIND_COUNT},
                          {"ms", KIND_COUNT},
                          {"ok", KIND_BOOL},
                          {"attempts", KIND_COUNT},
                          {"input_tokens", KIND_COUNT, true},
                          {"output_tokens", KIND_COUNT, true},
                          {"stop", KIND_NAME, true}}},
    [CODER_RETRY] = {"retry",
                     {{"call", KIND_COUNT},
                      {"attempt", KIND_COUNT},
                      {"wait_ms", KIND_COUNT},
                      {"message", KIND_TEXT},
                      {"status", KIND_COUNT, true}}},
    [CODER_REPAIR] = {"repair", {{"message", KIND_TEXT}, {"text", KIND_TEXT}}},
    [CODER_THOUGHT] = {"thought", {{"text", KIND_TEXT}}},
    [CODER_TEXT] = {"text", {{"text", KIND_TEXT}}},
    [CODER_STEP_BEGIN] = {"step_begin",
                          {{"step", KIND_COUNT}, {"tool", KIND_NAME}, {"args", KIND_ARGS}}},
    [CODER_OUTPUT] = {"output",
                      {{"step", KIND_COUNT}, {"text", KIND_TEXT}, {"left_out", KIND_COUNT, true}}},
    [CODER_STEP_END] = {"step_end",
                        {{"step", KIND_COUNT},
                         {"ok", KIND_BOOL},
                         {"ms", KIND_COUNT},
                         {"exit_code", KIND_INT, true},
                         {"signal", KIND_COUNT, true},
                         {"timed_out", KIND_BOOL, true},
                         {"error", KIND_TEXT, true},
                         {"ended", KIND_COUNT, true}}},
    [CODER_ERROR] = {"error", {{"message", KIND_TEXT}}},
    [CODER_DONE] = {"done",
                    {{"reason", KIND_NAME},
                     {"summary", KIND_TEXT},
                     {"steps", KIND_COUNT},
                     {"ms", KIND_COUNT},
                     {"usage", KIND_USAGE}}},
    [CODER_FAILED] = {"failed",
                      {{"reason", KIND_NAME},
                       {"message", KIND_TEXT},
                       {"steps", KIND_COUNT},
                       {"ms", KIND_COUNT},
                       {"usage", KIND_USAGE},
                       {"text", KIND_TEXT, true}}},
};

static const struct field usage_fields[FIELDS_MAX] = {
    {"input_tokens", KIND_COUNT},
    {"output_tokens", KIND_COUNT},
    {"model_calls", KIND_COUNT},
    {"cache_read_tokens", KIND_COUNT, true},
    {"cache_write_tokens", KIND_COUNT, true},
};

const char *coder_type_name(enum coder_type type) {
    return (unsigned)type < CODER_TYPE_COUNT ? types[type].name : "error";
}

static int coder_wire_check_fields(const json_t *obj, const struct field *fields,
                                   const char *const *others, const char *what, struct err *err);

static bool coder_wire_is_name(const json_t *v) {
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    if (!s || n > CODER_NAME_MAX)
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return false;
    return true;
}

static bool is_args(const json_t *v) {
    return json_is_object(v) && json_dumpb(v, NULL, 0, JSON_COMPACT) <= CODER_ARGS_MAX;
}

static bool is_usage(const json_t *v, struct err *err) {
    static const char *const others[] = {"cost_usd", NULL};
    const json_t *cost = json_object_get(v, "cost_usd");
    return json_is_object(v) &&
           coder_wire_check_fields(v, usage_fields, others, "usage", err) == 0 &&
           (!cost || (json_is_number(cost) && json_number_value(cost) >= 0));
}

static bool coder_wire_fits(const json_t *v, enum kind kind, struct err *err) {
    switch (kind) {
    case KIND_NAME:
        return coder_wire_is_name(v);
    case KIND_TEXT:
        return json_is_string(v) && json_string_length(v) <= CODER_TEXT_MAX;
    case KIND_COUNT:
        return json_is_integer(v) && json_integer_value(v) >= 0;
    case KIND_INT:
        return json_is_integer(v);
    case KIND_BOOL:
        return json_is_boolean(v);
    case KIND_ARGS:
        return is_args(v);
    case KIND_USAGE:
        return is_usage(v, err);
    }
    return false;
}

/* Every field there, of its kind, and no other. */
static int coder_wire_check_fields(const json_t *obj, const struct field *fields,
                                   const char *const *others, const char *what, struct err *err) {
    size_t known = 0;
    for (const struct field *f = fields; f < fields + FIELDS_MAX && f->name; f++) {
        const json_t *v = json_object_get(obj, f->name);
        if (!v && f->optional)
            continue;
        if (!v)
            return err_set(err, ERR_PROTOCOL, "%s lacks \"%s\"", what, f->name);
        if (!coder_wire_fits(v, f->kind, err))
            return err_set(err, ERR_PROTOCOL, "\"%s\" of %s is not what it should be", f->name,
                           what);
        known++;
    }
    for (; *others; others++)
        known += json_object_get(obj, *others) != NULL;
    if (known != json_object_size(obj))
        return err_set(err, ERR_PROTOCOL, "%s has a field that is not known", what);
    return 0;
}

/* --- the reader --- */

struct line_call {
    char id[CALL_ID_MAX];
    int64_t step;
    int64_t begun_ms;
};

struct coder_reader {
    struct coder_reader_options opt;
    struct buf line;
    size_t skipped; /* bytes of a foreign line that is too long */
    int64_t begun_ms;
    size_t events;
    size_t bytes;
    bool told_full;
    bool stopped; /* takes nothing more */
    bool started;
    bool ended;
    int64_t steps;
    int64_t open_step;
    struct err broken; /* what broke the contract */
    /* Claude Code */
    int64_t model_calls;
    int64_t heard_ms; /* when the model was given something last */
    char *message_id;
    json_t *result; /* the last line that says how it ended */
    struct line_call calls[CALLS_MAX];
    size_t ncalls;
};

struct coder_reader *coder_reader_create(const struct coder_reader_options *opt) {
    struct coder_reader *r = xcalloc(1, sizeof(*r));
    r->opt = *opt;
    r->opt.agent = xstrdup(opt->agent ? opt->agent : "agent");
    r->opt.model = xstrdup(opt->model ? opt->model : "");
    r->opt.dir = xstrdup(opt->dir ? opt->dir : "");
    if (r->opt.max_events == 0)
        r->opt.max_events = LIMIT_CODER_EVENTS;
    if (r->opt.max_bytes == 0)
        r->opt.max_bytes = LIMIT_CODER_EVENTS_BYTES;
    buf_init(&r->line, opt->lines == CODER_LINES_CLAUDE ? CODER_FOREIGN_MAX : CODER_LINE_MAX);
    r->begun_ms = r->heard_ms = clock_mono_ms();
    return r;
}

void coder_reader_destroy(struct coder_reader *r) {
    if (!r)
        return;
    free((char *)(uintptr_t)r->opt.agent);
    free((char *)(uintptr_t)r->opt.model);
    free((char *)(uintptr_t)r->opt.dir);
    free(r->message_id);
    json_decref(r->result);
    buf_finish(&r->line);
    free(r);
}

static void coder_wire_tell(struct coder_reader *r, enum coder_type type, const json_t *json) {
    _cleanup_(buf) struct buf text;
    buf_init(&text, CODER_LINE_MAX * 2);
    if (!json_dump(json, &text))
        return;
    r->events++;
    r->bytes += text.len;
    struct coder_event e = {.type = type, .json = json, .text = text.data, .len = text.len};
    if (!r->opt.on_event(r->opt.ctx, &e))
        r->stopped = true;
}

static int64_t since_start(const struct coder_reader *r) {
    return clock_mono_ms() - r->begun_ms;
}

/* Keeps the count of what is told; the last event is told in any case. */
static void coder_wire_deliver(struct coder_reader *r, enum coder_type type, const json_t *json) {
    bool last = type == CODER_DONE || type == CODER_FAILED;
    r->ended = r->ended || last;
    if (last || (r->events < r->opt.max_events && r->bytes < r->opt.max_bytes)) {
        coder_wire_tell(r, type, json);
        return;
    }
    if (r->told_full)
        return;
    r->told_full = true;
    _cleanup_(buf) struct buf why;
    buf_init(&why, CODER_TEXT_MAX);
    (void)buf_addf(&why, "more than %zu events or %zu bytes of them: the others are left out",
                   r->opt.max_events, r->opt.max_bytes);
    _cleanup_(json) json_t *full = json_pack("{s:s,s:I,s:s}", "type", "error", "at",
                                             (json_int_t)since_start(r), "message", why.data);
    coder_wire_tell(r, CODER_ERROR, full);
}

/* An event of our own making; takes the fields. */
static void deliver_new(struct coder_reader *r, enum coder_type type, json_t *fields) {
    _cleanup_(json) json_t *json = fields;
    if (!json || r->stopped || r->ended)
        return;
    (void)json_object_set_new(json, "type", json_string(types[type].name));
    (void)json_object_set_new(json, "at", json_integer(since_start(r)));
    coder_wire_deliver(r, type, json);
}

/* --- lines of ours --- */

static int check_order(struct coder_reader *r, enum coder_type type, const json_t *json,
                       struct err *err) {
    const char *name = types[type].name;
    int64_t step = json_integer_value(json_object_get(json, "step"));
    if (r->ended)
        return err_set(err, ERR_PROTOCOL, "\"%s\" comes after the end", name);
    if ((type == CODER_START) == r->started && type != CODER_FAILED)
        return err_set(err, ERR_PROTOCOL, "\"%s\" comes %s", name,
                       r->started ? "again" : "before \"start\"");
    if (type == CODER_START) {
        r->started = true;
        if (json_integer_value(json_object_get(json, "v")) != CODER_VERSION)
            return err_set(err, ERR_PROTOCOL, "this agent speaks another version than %d",
                           CODER_VERSION);
    }
    if (type == CODER_STEP_BEGIN) {
        if (r->open_step || step != r->steps + 1 || step > STEPS_MAX)
            return err_set(err, ERR_PROTOCOL, "a step begins out of order");
        r->steps = r->open_step = step;
    }
    if ((type == CODER_OUTPUT || type == CODER_STEP_END) && (step == 0 || step != r->open_step))
        return err_set(err, ERR_PROTOCOL, "\"%s\" of a step that does not run", name);
    if (type == CODER_STEP_END)
        r->open_step = 0;
    return 0;
}

static int check_reason(enum coder_type type, const json_t *json, struct err *err) {
    if (type != CODER_DONE && type != CODER_FAILED)
        return 0;
    enum coder_reason reason =
        coder_reason_find(json_string_value(json_object_get(json, "reason")));
    if (reason == CODER_REASON_COUNT || (reason == CODER_REASON_DONE) != (type == CODER_DONE))
        return err_set(err, ERR_PROTOCOL, "\"reason\" of \"%s\" is not one of the known",
                       types[type].name);
    return 0;
}

static int parse_object(const char *line, size_t len, json_t **ret, struct err *err) {
    _cleanup_(json) json_t *json = NULL;
    if (json_has_more_values(line, len, VALUES_MAX))
        return err_set(err, ERR_PROTOCOL, "a line has more than %d values", VALUES_MAX);
    if (!json_is_valid(line, len)) /* its depth too, which whoever reads it on has a limit for */
        return err_set(err, ERR_PROTOCOL, "a line is not valid JSON, or nested too deep");
    if (json_parse(line, len, "a line", &json, err) < 0) {
        err->code = ERR_PROTOCOL;
        return -ERR_PROTOCOL;
    }
    if (!json_is_object(json))
        return err_set(err, ERR_PROTOCOL, "a line is no JSON object");
    *ret = steal_ptr(&json);
    return 0;
}

static int read_cay(struct coder_reader *r, const char *line, size_t len, struct err *err) {
    static const char *const common[] = {"type", "at", NULL};
    _cleanup_(json) json_t *json = NULL;
    int rc = parse_object(line, len, &json, err);
    if (rc < 0)
        return rc;
    const char *name = json_string_value(json_object_get(json, "type"));
    unsigned type = 0;
    while (name && type < CODER_TYPE_COUNT && strcmp(types[type].name, name) != 0)
        type++;
    if (!name || type == CODER_TYPE_COUNT)
        return err_set(err, ERR_PROTOCOL, "a line has no type that is known");
    if (!coder_wire_fits(json_object_get(json, "at"), KIND_COUNT, err))
        return err_set(err, ERR_PROTOCOL, "\"at\" of \"%s\" is not what it should be",
                       types[type].name);
    rc = coder_wire_check_fields(json, types[type].fields, common, types[type].name, err);
    if (rc == 0)
        rc = check_reason(type, json, err);
    if (rc == 0)
        rc = check_order(r, type, json, err);
    if (rc == 0)
        coder_wire_deliver(r, type, json);
    return rc;
}

/* --- what is too long --- */

/* Adds as much as fits into max bytes, as UTF-8; returns how many bytes of the text that was. */
static size_t coder_wire_add_clean(struct buf *out, const char *text, size_t len, size_t max) {
    size_t i = 0;
    while (i < len) {
        size_t n = utf8_sequence(text + i, len - i);
        size_t takes = n ? n : 3;
        if (out->len + takes > max)
            break;
        (void)buf_add(out, n ? text + i : "\xef\xbf\xbd", takes);
        i += n ? n : 1;
    }
    return i;
}

static json_t *coder_wire_cut_text(const char *text, size_t len, size_t max) {
    enum { NOTE_MAX = 48 };
    _cleanup_(buf) struct buf out;
    buf_init(&out, max);
    if (coder_wire_add_clean(&out, text, len, max) < len) {
        buf_clear(&out);
        size_t used = coder_wire_add_clean(&out, text, len, max - NOTE_MAX);
        (void)buf_addf(&out, " [%zu bytes left out]", len - used);
    }
    return json_stringn(out.data ? out.data : "", out.len);
}

json_t *coder_shorten_text(const char *text, size_t len) {
    return coder_wire_cut_text(text, len, CODER_TEXT_MAX);
}

static json_t *cut_name(const char *text) {
    _cleanup_(buf) struct buf out;
    buf_init(&out, CODER_NAME_MAX);
    (void)coder_wire_add_clean(&out, text, strlen(text), CODER_NAME_MAX);
    for (size_t i = 0; i < out.len; i++)
        if ((unsigned char)out.data[i] < 0x20 || out.data[i] == 0x7f)
            out.data[i] = ' ';
    return json_stringn(out.data ? out.data : "", out.len);
}

json_t *coder_shorten_args(const json_t *args) {
    json_t *out = json_object();
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)args, key, value) {
        size_t n = json_dumpb(value, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
        if (n <= ARG_TEXT_MAX)
            (void)json_object_set(out, key, value);
        else if (json_is_string(value))
            (void)json_object_set_new(out, key,
                                      coder_wire_cut_text(json_string_value(value),
                                                          json_string_length(value), ARG_TEXT_MAX));
        else
            (void)json_object_set_new(out, key, json_sprintf("[%zu bytes left out]", n));
    }
    size_t n = json_dumpb(out, NULL, 0, JSON_COMPACT);
    if (n > CODER_ARGS_MAX) {
        (void)json_object_clear(out);
        (void)json_object_set_new(out, "left_out", json_integer((json_int_t)n));
    }
    return out;
}

/* --- Claude Code --- */

static const char *str_of(const json_t *obj, const char *key) {
    const char *s = json_string_value(json_object_get(obj, key));
    return s ? s : "";
}

static int64_t coder_wire_count_of(const json_t *obj, const char *key) {
    int64_t n = json_integer_value(json_object_get(obj, key));
    return n > 0 ? n : 0;
}

static void ensure_started(struct coder_reader *r, const char *version, const char *model,
                           const char *dir) {
    if (r->started)
        return;
    r->started = true;
    deliver_new(r, CODER_START,
                json_pack("{s:i,s:o,s:o,s:o,s:o,s:I}", "v", CODER_VERSION, "agent",
                          cut_name(r->opt.agent), "version", cut_name(version), "model",
                          cut_name(*model ? model : r->opt.model), "dir",
                          cut_name(*dir ? dir : r->opt.dir), "max_steps",
                          (json_int_t)r->opt.max_steps));
}

static void coder_wire_say(struct coder_reader *r, enum coder_type type, const char *key,
                           const char *text, size_t len) {
    if (len > 0)
        deliver_new(r, type, json_pack("{s:o}", key, coder_shorten_text(text, len)));
}

static void coder_wire_begin_call(struct coder_reader *r, const json_t *block) {
    const char *id = str_of(block, "id");
    if (strlen(id) >= CALL_ID_MAX || r->steps >= STEPS_MAX)
        return;
    if (r->ncalls == CALLS_MAX) /* one that never got its result */
        memmove(r->calls, r->calls + 1, --r->ncalls * sizeof(*r->calls));
    struct line_call *c = &r->calls[r->ncalls++];
    memcpy(c->id, id, strlen(id) + 1);
    c->step = ++r->steps;
    c->begun_ms = clock_mono_ms();
    deliver_new(r, CODER_STEP_BEGIN,
                json_pack("{s:I,s:o,s:o}", "step", (json_int_t)c->step, "tool",
                          cut_name(str_of(block, "name")), "args",
                          coder_shorten_args(json_object_get(block, "input"))));
}

/* A result is a text, or a list of blocks some of which are texts. */
static void add_result_text(const json_t *content, struct buf *out) {
    const json_t *block;
    size_t i;
    if (json_is_string(content))
        (void)buf_add(out, json_string_value(content), json_string_length(content));
    json_array_foreach(content, i, block) {
        const json_t *text = json_object_get(block, "text");
        if (json_is_string(text))
            (void)buf_add(out, json_string_value(text), json_string_length(text));
        else
            (void)buf_addf(out, "[%.40s]", str_of(block, "type"));
    }
}

static void tell_output(struct coder_reader *r, int64_t step, const char *text, size_t len) {
    enum { HALF = LIMIT_CODER_OUTPUT_BYTES / 2 };
    size_t head = len <= 2 * HALF ? len : utf8_floor(text, len, HALF);
    size_t from = len <= 2 * HALF ? len : len - HALF;
    while (from < len && from > head && ((unsigned char)text[from] & 0xc0) == 0x80)
        from++;
    if (head > 0)
        deliver_new(r, CODER_OUTPUT,
                    json_pack("{s:I,s:o}", "step", (json_int_t)step, "text",
                              coder_shorten_text(text, head)));
    if (from < len)
        deliver_new(r, CODER_OUTPUT,
                    json_pack("{s:I,s:o,s:I}", "step", (json_int_t)step, "text",
                              coder_shorten_text(text + from, len - from), "left_out",
                              (json_int_t)(from - head)));
}

static void end_call(struct coder_reader *r, const json_t *block) {
    const char *id = str_of(block, "tool_use_id");
    size_t i = 0;
    while (i < r->ncalls && strcmp(r->calls[i].id, id) != 0)
        i++;
    if (i == r->ncalls)
        return;
    struct line_call c = r->calls[i];
    memmove(r->calls + i, r->calls + i + 1, (--r->ncalls - i) * sizeof(c));
    _cleanup_(buf) struct buf text;
    buf_init(&text, CODER_FOREIGN_MAX);
    add_result_text(json_object_get(block, "content"), &text);
    tell_output(r, c.step, text.data, text.len);
    deliver_new(r, CODER_STEP_END,
                json_pack("{s:I,s:b,s:I}", "step", (json_int_t)c.step, "ok",
                          !json_is_true(json_object_get(block, "is_error")), "ms",
                          (json_int_t)(clock_mono_ms() - c.begun_ms)));
}

/* Its messages come in pieces, one line for each block, with the same id. */
static void count_message(struct coder_reader *r, const json_t *message) {
    const char *id = str_of(message, "id");
    if (r->message_id && strcmp(r->message_id, id) == 0)
        return;
    free(r->message_id);
    r->message_id = xstrdup(id);
    r->model_calls++;
    json_t *usage = json_object_get(message, "usage");
    deliver_new(r, CODER_MODEL_END,
                json_pack("{s:I,s:I,s:b,s:i,s:I}", "call", (json_int_t)r->model_calls, "ms",
                          (json_int_t)(clock_mono_ms() - r->heard_ms), "ok", true, "attempts", 1,
                          "input_tokens", (json_int_t)coder_wire_count_of(usage, "input_tokens")));
}

static void read_assistant(struct coder_reader *r, const json_t *line) {
    const json_t *message = json_object_get(line, "message");
    const json_t *block;
    size_t i;
    count_message(r, message);
    json_array_foreach(json_object_get(message, "content"), i, block) {
        const char *type = str_of(block, "type");
        const json_t *text = json_object_get(block, "text");
        const json_t *thinking = json_object_get(block, "thinking");
        if (strcmp(type, "text") == 0)
            coder_wire_say(r, CODER_TEXT, "text", str_of(block, "text"), json_string_length(text));
        else if (strcmp(type, "thinking") == 0)
            coder_wire_say(r, CODER_THOUGHT, "text", str_of(block, "thinking"),
                           json_string_length(thinking));
        else if (strcmp(type, "tool_use") == 0)
            coder_wire_begin_call(r, block);
    }
}

static void read_user(struct coder_reader *r, const json_t *line) {
    const json_t *block;
    size_t i;
    json_array_foreach(json_object_get(json_object_get(line, "message"), "content"), i, block) {
        if (strcmp(str_of(block, "type"), "tool_result") == 0)
            end_call(r, block);
    }
    r->heard_ms = clock_mono_ms();
}

static void read_system(struct coder_reader *r, const json_t *line) {
    const char *subtype = str_of(line, "subtype");
    if (strcmp(subtype, "api_retry") == 0) {
        const char *why = str_of(line, "error");
        json_t *retry =
            json_pack("{s:I,s:I,s:I,s:o}", "call", (json_int_t)r->model_calls + 1, "attempt",
                      (json_int_t)coder_wire_count_of(line, "attempt"), "wait_ms",
                      (json_int_t)coder_wire_count_of(line, "retry_delay_ms"), "message",
                      coder_shorten_text(why, strlen(why)));
        if (coder_wire_count_of(line, "error_status") > 0)
            (void)json_object_set_new(retry, "status",
                                      json_integer(coder_wire_count_of(line, "error_status")));
        deliver_new(r, CODER_RETRY, retry);
    } else if (strcmp(subtype, "permission_denied") == 0) {
        const char *message = str_of(line, "message");
        _cleanup_(free) char *why =
            text_make("%.64s was denied: %.1000s", str_of(line, "tool_name"), message);
        coder_wire_say(r, CODER_ERROR, "message", why, strlen(why));
    }
}

int coder_translate_claude(struct coder_reader *r, const char *line, size_t len, struct err *err) {
    _cleanup_(json) json_t *json = NULL;
    int rc = parse_object(line, len, &json, err);
    if (rc < 0)
        return rc;
    const char *type = str_of(json, "type");
    bool init = strcmp(type, "system") == 0 && strcmp(str_of(json, "subtype"), "init") == 0;
    ensure_started(r, init ? str_of(json, "claude_code_version") : "",
                   init ? str_of(json, "model") : "", init ? str_of(json, "cwd") : "");
    if (strcmp(type, "assistant") == 0)
        read_assistant(r, json);
    else if (strcmp(type, "user") == 0)
        read_user(r, json);
    else if (strcmp(type, "system") == 0 && !init)
        read_system(r, json);
    else if (strcmp(type, "result") == 0) {
        /* A background agent that ends begins one more turn, with a result of its own: the last
         * counts, and its totals are those of the whole session. */
        json_decref(r->result);
        r->result = steal_ptr(&json);
    }
    return 0;
}

/* --- lines --- */

static int coder_wire_read_line(struct coder_reader *r, const char *line, size_t len,
                                struct err *err) {
    size_t n = len;
    if (n > 0 && line[n - 1] == '\r')
        n--;
    switch (r->opt.lines) {
    case CODER_LINES_CLAUDE:
        if (n > 0 && coder_translate_claude(r, line, n, err) < 0) {
            /* Not worth the run: it may be a remark of a library. */
            ensure_started(r, "", "", "");
            coder_wire_say(r, CODER_ERROR, "message", err->message, strlen(err->message));
            coder_wire_say(r, CODER_TEXT, "text", line, n);
        }
        return 0;
    case CODER_LINES_TEXT:
        if (r->told_full) /* nothing of it will be told */
            return 0;
        ensure_started(r, "", "", "");
        deliver_new(r, CODER_TEXT, json_pack("{s:o}", "text", coder_shorten_text(line, n)));
        return 0;
    default:
        return read_cay(r, line, n, err);
    }
}

/* The part of a line that came with this feed. */
static int add_to_line(struct coder_reader *r, const char *data, size_t len, struct err *err) {
    if (r->skipped == 0 && buf_add(&r->line, data, len))
        return 0;
    if (r->opt.lines == CODER_LINES_CAY)
        return err_set(err, ERR_PROTOCOL, "a line is longer than %d bytes", CODER_LINE_MAX);
    r->skipped += len + r->line.len;
    buf_clear(&r->line);
    return 0;
}

static int coder_wire_end_line(struct coder_reader *r, struct err *err) {
    int rc = 0;
    if (r->skipped > 0) {
        char why[64];
        int n = snprintf(why, sizeof(why), "a line of %zu bytes was left out", r->skipped);
        ensure_started(r, "", "", "");
        coder_wire_say(r, CODER_ERROR, "message", why, (size_t)n);
    } else {
        rc = coder_wire_read_line(r, r->line.data ? r->line.data : "", r->line.len, err);
    }
    r->skipped = 0;
    buf_clear(&r->line);
    return rc;
}

int coder_reader_feed(struct coder_reader *r, const char *data, size_t len, struct err *err) {
    int rc = 0;
    if (r->broken.code) {
        *err = r->broken;
        return -(int)err->code;
    }
    while (rc == 0 && len > 0 && !r->stopped) {
        const char *end = memchr(data, '\n', len);
        size_t n = end ? (size_t)(end - data) : len;
        rc = add_to_line(r, data, n, err);
        if (rc == 0 && end)
            rc = coder_wire_end_line(r, err);
        n += end ? 1 : 0;
        data += n;
        len -= n;
    }
    if (rc < 0)
        r->broken = *err;
    return rc;
}

/* --- the end --- */

static json_t *claude_usage(const struct coder_reader *r) {
    const json_t *u = json_object_get(r->result, "usage");
    const json_t *cost = json_object_get(r->result, "total_cost_usd");
    json_t *usage = json_pack(
        "{s:I,s:I,s:I,s:I,s:I}", "input_tokens", (json_int_t)coder_wire_count_of(u, "input_tokens"),
        "output_tokens", (json_int_t)coder_wire_count_of(u, "output_tokens"), "model_calls",
        (json_int_t)r->model_calls, "cache_read_tokens",
        (json_int_t)coder_wire_count_of(u, "cache_read_input_tokens"), "cache_write_tokens",
        (json_int_t)coder_wire_count_of(u, "cache_creation_input_tokens"));
    if (json_is_number(cost) && json_number_value(cost) >= 0)
        (void)json_object_set_new(usage, "cost_usd", json_real(json_number_value(cost)));
    return usage;
}

static void deliver_end(struct coder_reader *r, enum coder_reason reason, const char *text) {
    bool done = reason == CODER_REASON_DONE;
    deliver_new(r, done ? CODER_DONE : CODER_FAILED,
                json_pack("{s:s,s:o,s:I,s:I,s:o}", "reason", reasons[reason],
                          done ? "summary" : "message", coder_shorten_text(text, strlen(text)),
                          "steps", (json_int_t)r->steps, "ms", (json_int_t)since_start(r), "usage",
                          claude_usage(r)));
}

static const char *claude_text(const struct coder_reader *r) {
    const json_t *errors = json_object_get(r->result, "errors");
    const char *text = str_of(r->result, "result");
    if (!*text && json_is_string(json_array_get(errors, 0)))
        text = json_string_value(json_array_get(errors, 0));
    return *text ? text : str_of(r->result, "subtype");
}

static enum coder_reason claude_reason(const struct coder_reader *r) {
    if (strcmp(str_of(r->result, "subtype"), "error_max_turns") == 0)
        return CODER_REASON_MAX_STEPS;
    if (strcmp(str_of(r->result, "subtype"), "error_max_budget_usd") == 0 ||
        strcmp(str_of(r->result, "terminal_reason"), "api_error") == 0 ||
        json_object_get(r->result, "api_error_status"))
        return CODER_REASON_MODEL_ERROR;
    return CODER_REASON_ERROR;
}

static void end_without_last_line(struct coder_reader *r, const struct coder_exit *how) {
    char text[600];
    bool clean = how->exit_code == 0 && how->signal == 0;
    if (r->broken.code) {
        (void)text_print(text, sizeof(text), "the agent's output broke its contract: %s",
                         r->broken.message);
        deliver_end(r, CODER_REASON_ERROR, text);
    } else if (r->opt.lines == CODER_LINES_TEXT && clean) {
        deliver_end(r, CODER_REASON_DONE, "");
    } else {
        (void)snprintf(text, sizeof(text), "the agent ended without a last word (%s %d)",
                       how->signal ? "signal" : "exit status",
                       how->signal ? how->signal : how->exit_code);
        deliver_end(r, CODER_REASON_ERROR, text);
    }
}

void coder_reader_end(struct coder_reader *r, const struct coder_exit *how) {
    struct err err;
    r->stopped = false; /* whoever stopped it wants to know the end all the same */
    if (!r->broken.code && (r->line.len > 0 || r->skipped > 0) && coder_wire_end_line(r, &err) < 0)
        r->broken = err;
    if (r->ended)
        return;
    ensure_started(r, "", "", "");
    const json_t *is_error = json_object_get(r->result, "is_error");
    bool clean = how->exit_code == 0 && how->signal == 0;
    /* Never by its subtype alone: that is "success" for a model that could not be asked. */
    if (r->result && clean && json_is_false(is_error))
        deliver_end(r, CODER_REASON_DONE, str_of(r->result, "result"));
    else if (how->cancelled)
        deliver_end(r, CODER_REASON_CANCELLED, "the run was cancelled");
    else if (how->timed_out)
        deliver_end(r, CODER_REASON_TIMEOUT, "the run's time was up");
    else if (r->result)
        deliver_end(r, claude_reason(r), claude_text(r));
    else
        end_without_last_line(r, how);
}
