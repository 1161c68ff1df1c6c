#include "coder/agent.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "coder/reply.h"

#include <stdlib.h>
#include <string.h>

enum { REQUEST_MAX = 16 * 1024 * 1024, REPAIR_BYTES = 4096 };

/* What the last words of a failed run are. */
struct failure {
    enum coder_reason reason;
    struct err err;
    struct buf text; /* of the model, that was at fault */
};

static json_t *coder_agent_usage(const struct coder *a) {
    json_t *u =
        json_pack("{s:I,s:I,s:I}", "input_tokens", (json_int_t)a->input_tokens, "output_tokens",
                  (json_int_t)a->output_tokens, "model_calls", (json_int_t)a->calls);
    if (a->cache_read_tokens > 0)
        (void)json_object_set_new(u, "cache_read_tokens", json_integer(a->cache_read_tokens));
    if (a->cache_write_tokens > 0)
        (void)json_object_set_new(u, "cache_write_tokens", json_integer(a->cache_write_tokens));
    return u;
}

static void coder_agent_tell_end(struct coder *a, enum coder_reason reason, json_t *words,
                                 json_t *text) {
    bool done = reason == CODER_REASON_DONE;
    json_t *fields =
        json_pack("{s:s,s:o,s:I,s:I,s:o}", "reason", coder_reason_name(reason),
                  done ? "summary" : "message", words, "steps", (json_int_t)a->steps, "ms",
                  (json_int_t)(clock_mono_ms() - a->life->begun_ms), "usage", coder_agent_usage(a));
    if (text)
        (void)json_object_set_new(fields, "text", text);
    events_tell(a->events, done ? CODER_DONE : CODER_FAILED, fields);
}

void agent_fail(struct coder *a, enum coder_reason reason, const char *message, const char *text,
                size_t len) {
    coder_agent_tell_end(a, reason, coder_shorten_text(message, strlen(message)),
                         len > 0 ? coder_shorten_text(text, len) : NULL);
}

/* --- asking --- */

/* A reply that was no action, while the model is asked to repair it. */
struct repair {
    const char *text;
    size_t len;
    const char *why;
};

static int coder_agent_write_request(struct coder *a, const struct repair *repair, struct buf *out,
                                     struct err *err) {
    struct json_writer w;
    json_writer_init(&w, out);
    context_fit(&a->context);
    dialect_begin(&a->request, &w);
    context_write(&a->context, &w);
    if (repair) {
        size_t n = utf8_floor(repair->text, repair->len, REPAIR_BYTES);
        _cleanup_(free) char *ask =
            xasprintf("{\"error\":\"Your reply could not be read: it must be one JSON object and "
                      "nothing else, no Markdown, no prose. Reply again.\",\"why\":");
        _cleanup_(buf) struct buf b;
        buf_init(&b, REPAIR_BYTES);
        (void)buf_add_str(&b, ask);
        json_write_str(&b, repair->why, strlen(repair->why));
        (void)buf_add_char(&b, '}');
        dialect_message(&w, true, n ? repair->text : "(no text)", n ? n : 9);
        dialect_message(&w, false, b.data, b.len);
    }
    if (!dialect_end(&w))
        return err_set(err, ERR_TOO_LARGE, "the request to the model is longer than %d bytes",
                       REQUEST_MAX);
    return 0;
}

static void tell_call(struct coder *a, int64_t began_ms, int rc, const struct call_result *r) {
    json_t *fields = json_pack("{s:I,s:I,s:b,s:I}", "call", (json_int_t)a->calls, "ms",
                               (json_int_t)(clock_mono_ms() - began_ms), "ok", rc == 0, "attempts",
                               (json_int_t)r->attempts);
    if (rc == 0) {
        const struct answer *n = &r->answer;
        a->input_tokens += n->input_tokens;
        a->output_tokens += n->output_tokens;
        a->cache_read_tokens += n->cache_read_tokens;
        a->cache_write_tokens += n->cache_write_tokens;
        (void)json_object_set_new(fields, "input_tokens", json_integer(n->input_tokens));
        (void)json_object_set_new(fields, "output_tokens", json_integer(n->output_tokens));
        (void)json_object_set_new(fields, "stop", json_string(n->stop_name));
    }
    events_tell(a->events, CODER_MODEL_END, fields);
}

static int coder_agent_ask(struct coder *a, const struct repair *repair, struct call_result *ret,
                           struct err *err) {
    _cleanup_(buf) struct buf body;
    buf_init(&body, REQUEST_MAX);
    int rc = coder_agent_write_request(a, repair, &body, err);
    if (rc < 0)
        return rc;
    a->calls++;
    events_tell(
        a->events, CODER_MODEL_BEGIN,
        json_pack("{s:I,s:I}", "call", (json_int_t)a->calls, "bytes", (json_int_t)body.len));
    int64_t began = clock_mono_ms();
    struct model_call call = {.number = a->calls, .body = body.data, .len = body.len};
    rc = call_model(&a->route, &call, a->life, a->events, ret, err);
    tell_call(a, began, rc, ret);
    return rc;
}

/* What the answer says to do; ERR_BAD_REQUEST for one that may be repaired. */
static int coder_agent_read_answer(const struct coder *a, const struct answer *n,
                                   struct coder_reply *ret, struct err *err) {
    if (n->stop == ANSWER_REFUSED)
        return err_set(err, ERR_UPSTREAM, "the model refused to answer (%s)",
                       n->stop_name[0] ? n->stop_name : "refusal");
    int rc = coder_reply_parse(n->text.data ? n->text.data : "", n->text.len, ret, err);
    if (rc < 0 && n->stop == ANSWER_CUT)
        return err_set(err, ERR_BAD_REQUEST,
                       "the reply was cut off after %lld tokens (%s): do less in one reply, for "
                       "example write a long file in parts",
                       (long long)a->request.max_tokens, n->stop_name);
    return rc;
}

static enum coder_reason reason_of(const struct err *err) {
    return err->code == ERR_CANCELLED ? CODER_REASON_CANCELLED
           : err->code == ERR_TIMEOUT ? CODER_REASON_TIMEOUT
                                      : CODER_REASON_MODEL_ERROR;
}

static void note_failure(struct failure *f, enum coder_reason reason, const struct answer *n) {
    f->reason = reason;
    if (n)
        (void)buf_add(&f->text, n->text.data ? n->text.data : "",
                      utf8_floor(n->text.data, n->text.len, CODER_TEXT_MAX));
}

static void tell_repair(struct coder *a, const struct err *err, const struct answer *n) {
    events_tell(a->events, CODER_REPAIR,
                json_pack("{s:o,s:o}", "message",
                          coder_shorten_text(err->message, strlen(err->message)), "text",
                          coder_shorten_text(n->text.data ? n->text.data : "", n->text.len)));
}

/* The next action; the model may repair one reply. `ret_text` is the reply as it was written. */
static int next_action(struct coder *a, struct coder_reply *ret, char **ret_text,
                       struct failure *f) {
    struct call_result first = {0};
    struct call_result second = {0};
    struct err *err = &f->err;
    struct answer *n = &first.answer;
    int rc = coder_agent_ask(a, NULL, &first, err);
    if (rc < 0) {
        note_failure(f, reason_of(err), NULL);
        return rc;
    }
    rc = coder_agent_read_answer(a, n, ret, err);
    if (rc == -ERR_BAD_REQUEST) {
        struct repair repair = {n->text.data ? n->text.data : "", n->text.len, err->message};
        struct err again;
        tell_repair(a, err, n);
        rc = coder_agent_ask(a, &repair, &second, &again);
        if (rc < 0) {
            *err = again;
            note_failure(f, reason_of(err), NULL);
            answer_finish(&first.answer);
            return rc;
        }
        n = &second.answer;
        rc = coder_agent_read_answer(a, n, ret, err);
    }
    if (rc < 0) {
        bool model = rc != -ERR_BAD_REQUEST || n->text.len == 0 || n->stop == ANSWER_CUT;
        note_failure(f, model ? CODER_REASON_MODEL_ERROR : CODER_REASON_MALFORMED, n);
    } else {
        *ret_text = buf_steal(&n->text, NULL);
        if (n->thinking.len > 0)
            events_tell(
                a->events, CODER_THOUGHT,
                json_pack("{s:o}", "text", coder_shorten_text(n->thinking.data, n->thinking.len)));
    }
    answer_finish(&first.answer);
    answer_finish(&second.answer);
    return rc;
}

/* --- doing --- */

static void tell_step_end(struct coder *a, const struct coder_result *r, int64_t began_ms) {
    json_t *fields = json_pack("{s:I,s:b,s:I}", "step", (json_int_t)a->steps, "ok", r->ok, "ms",
                               (json_int_t)(clock_mono_ms() - began_ms));
    if (r->exited && r->exit_code >= 0)
        (void)json_object_set_new(fields, "exit_code", json_integer(r->exit_code));
    if (r->signal)
        (void)json_object_set_new(fields, "signal", json_integer(r->signal));
    if (r->timed_out)
        (void)json_object_set_new(fields, "timed_out", json_true());
    if (r->ended)
        (void)json_object_set_new(fields, "ended", json_integer(r->ended));
    if (!r->ok && !r->exited)
        (void)json_object_set_new(fields, "error",
                                  coder_shorten_text(r->error.message, strlen(r->error.message)));
    events_tell(a->events, CODER_STEP_END, fields);
}

/* For the model: JSON too, so that nothing in a file or an output can end it and begin something
 * else. */
static char *result_text(const struct coder *a, const char *tool, const struct coder_result *r) {
    struct buf b;
    struct json_writer w;
    buf_init(&b, 1024 * 1024);
    json_writer_init(&w, &b);
    json_writer_object_begin(&w);
    json_put_int(&w, "step", a->steps);
    json_put_str(&w, "tool", tool);
    json_put_bool(&w, "ok", r->ok);
    if (r->exited) {
        json_put_int(&w, r->signal ? "signal" : "exit_code", r->signal ? r->signal : r->exit_code);
    } else if (!r->ok) {
        json_put_str(&w, "error", r->error.message);
    }
    if (r->timed_out)
        json_put_bool(&w, "timed_out", true);
    if (r->ended)
        json_put_int(&w, "background_processes_ended", r->ended);
    if (r->ok || r->exited)
        json_put_text(&w, "output", r->output.data ? r->output.data : "", r->output.len);
    json_put_int(&w, "steps_left", a->max_steps - a->steps);
    json_writer_object_end(&w);
    return buf_steal(&b, NULL);
}

/* Takes the action's text. */
static int do_step(struct coder *a, const struct coder_reply *reply, char *text,
                   struct failure *f) {
    struct coder_result result;
    const char *tool = json_string_value(reply->tool);
    json_t *name = json_string(tool);
    tool_result_init(&result);
    a->steps++;
    for (size_t i = 0; tool[i]; i++)
        if ((unsigned char)tool[i] < 0x20 || tool[i] == 0x7f) {
            json_decref(name);
            name = json_string("?");
            break;
        }
    events_tell(a->events, CODER_STEP_BEGIN,
                json_pack("{s:I,s:o,s:o}", "step", (json_int_t)a->steps, "tool", name, "args",
                          coder_shorten_args(reply->args)));
    int64_t began = clock_mono_ms();
    int rc = tools_run(&a->tools, a->steps, tool, reply->args, &result, &f->err);
    if (result.ok && !result.told && result.output.len > 0)
        events_tell(a->events, CODER_OUTPUT,
                    json_pack("{s:I,s:o}", "step", (json_int_t)a->steps, "text",
                              coder_shorten_text(result.output.data, result.output.len)));
    tell_step_end(a, &result, began);
    if (rc < 0)
        f->reason = reason_of(&f->err);
    context_add(&a->context,
                &(struct exchange){.action = text, .result = result_text(a, tool, &result)});
    tool_result_finish(&result);
    return rc;
}

/* --- the loop --- */

/* 0 to go on, 1 when it is done, negative with the failure. */
static int coder_agent_turn(struct coder *a, struct failure *f) {
    struct coder_reply reply;
    char *text = NULL;
    int rc = next_action(a, &reply, &text, f);
    if (rc < 0)
        return rc;
    if (reply.thought)
        events_tell(a->events, CODER_THOUGHT,
                    json_pack("{s:o}", "text",
                              coder_shorten_text(json_string_value(reply.thought),
                                                 json_string_length(reply.thought))));
    if (reply.done) {
        coder_agent_tell_end(
            a, CODER_REASON_DONE,
            coder_shorten_text(json_string_value(reply.summary), json_string_length(reply.summary)),
            NULL);
        rc = 1;
    } else if (a->steps >= a->max_steps) {
        f->reason = CODER_REASON_MAX_STEPS;
        rc = err_set(&f->err, ERR_LIMIT,
                     "the model was not done after %lld steps; allow more (max_steps), or ask for "
                     "less",
                     (long long)a->max_steps);
    } else {
        rc = do_step(a, &reply, steal_ptr(&text), f);
    }
    free(text);
    coder_reply_finish(&reply);
    return rc;
}

enum coder_reason agent_run(struct coder *a) {
    struct failure f = {.reason = CODER_REASON_DONE};
    int rc = 0;
    buf_init(&f.text, CODER_TEXT_MAX);
    while (rc == 0)
        rc = coder_agent_turn(a, &f);
    if (rc < 0)
        agent_fail(a, f.reason, f.err.message, f.text.data, f.text.len);
    buf_finish(&f.text);
    return f.reason;
}
