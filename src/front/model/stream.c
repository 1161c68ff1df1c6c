/* A stream: its life, its attempts, its end. */

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "base/sm.h"
#include "front/model/internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum {
    /* When the content is whole, or an error page has begun, the rest is not waited for long. */
    TAIL_MS = 5000,
    BYTES_PER_TOKEN = 4,
    TURN_BYTES = 32768, /* of an answer that comes at once, before others have their turn */
};

static const struct sm_state states[] = {
    [STREAM_ASKING] = {"asking", SM_TO(STREAM_EVENTS) | SM_TO(STREAM_COMPLAINT) |
                                     SM_TO(STREAM_RESTING) | SM_TO(STREAM_OVER)},
    [STREAM_EVENTS] = {"events", SM_TO(STREAM_WHOLE) | SM_TO(STREAM_FINISHED) |
                                     SM_TO(STREAM_RESTING) | SM_TO(STREAM_OVER)},
    [STREAM_WHOLE] = {"whole", SM_TO(STREAM_FINISHED) | SM_TO(STREAM_RESTING) | SM_TO(STREAM_OVER)},
    [STREAM_FINISHED] = {"finished", SM_TO(STREAM_OVER)},
    [STREAM_COMPLAINT] = {"complaint", SM_TO(STREAM_RESTING) | SM_TO(STREAM_OVER)},
    [STREAM_RESTING] = {"resting", SM_TO(STREAM_ASKING) | SM_TO(STREAM_OVER)},
    [STREAM_OVER] = {"over", 0},
};
static const struct sm stream_sm = {"model stream", states, ARRAY_LEN(states)};

static void fail_by_fetch(struct model_stream *s, const struct err *why);
static void model_stream_go_on(struct model_stream *s);
static bool model_stream_read_input(struct model_stream *s);

static void stream_move(struct model_stream *s, enum stream_state to) {
    s->state = (enum stream_state)sm_next(&stream_sm, s->state, to);
    s->reply.closed = s->state == STREAM_OVER;
}

/* --- the life of a stream --- */

bool stream_is_over(const struct model_stream *s) {
    return s->state == STREAM_OVER;
}

void stream_drop(struct model_stream *s) {
    stream_move(s, STREAM_OVER);
}

void stream_enter(struct model_stream *s) {
    s->depth++;
}

static void model_stream_on_closed(uv_handle_t *h) {
    struct model_stream *s = h->data;
    sse_finish(&s->sse);
    buf_finish(&s->body);
    buf_finish(&s->error_body);
    buf_finish(&s->signature);
    buf_finish(&s->rest);
    json_decref(s->ids);
    demo_destroy(s->demo);
    free(s->owner);
    free(s);
}

/* In a thread. */
static void model_stream_free_reply(void *ctx) {
    struct reply *r = ctx;
    reply_finish(r);
    free(r);
}

/* What it has said may be trees of many parts. */
static void model_stream_drop_reply(struct model_stream *s) {
    if (!stream_is_large(s, s->reply.bytes)) {
        reply_finish(&s->reply);
        return;
    }
    struct reply *r = xmalloc(sizeof(*r));
    *r = s->reply;
    s->reply = (struct reply){.closed = true};
    intake_dispose_on(s->m->loop, model_stream_free_reply, r);
}

void stream_leave(struct model_stream *s) {
    if (--s->depth > 0 || !stream_is_over(s))
        return;
    later_cancel(&s->turn);
    stream_stop_aside(s);
    stream_dispose(s, steal_ptr(&s->pieces));
    model_stream_drop_reply(s);
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    uv_close((uv_handle_t *)&s->timer, model_stream_on_closed);
}

static void stop_all(struct model_stream *s) {
    (void)uv_timer_stop(&s->timer);
    fetch_cancel(s->fetch);
    s->fetch = NULL;
}

void model_stream_cancel(struct model_stream *s) {
    if (!s || stream_is_over(s))
        return;
    stream_enter(s);
    stream_drop(s);
    stop_all(s);
    stream_leave(s);
}

/* It was asked, and has not refused: who is cut off before the first sign of an answer may pay for
 * the question all the same. */
static bool may_have_read(const struct model_stream *s) {
    return s->ended || (s->fetch && (s->state == STREAM_ASKING || s->state == STREAM_EVENTS) &&
                        fetch_sent(s->fetch));
}

struct model_usage model_stream_usage(const struct model_stream *s) {
    struct model_usage u = s->usage;
    int64_t sent = (int64_t)(MAX(s->body.len, s->asked_bytes) / BYTES_PER_TOKEN) + 1;
    int64_t came = (int64_t)((s->reply.bytes + BYTES_PER_TOKEN - 1) / BYTES_PER_TOKEN);
    /* A server that leaves counts out, or says 0, must not make a budget endless. */
    bool input_known = s->input_known && !s->usage_odd;
    bool output_known = s->output_known && !s->usage_odd;
    if (!s->input_known && !s->usage_odd && s->reply.count == 0 && !may_have_read(s))
        return u;
    if (!input_known || u.input_tokens + u.cache_read_tokens + u.cache_write_tokens == 0) {
        u.cache_read_tokens = u.cache_write_tokens = u.cache_write_1h_tokens = 0;
        u.input_tokens = sent;
        u.estimated = true;
    }
    if (!output_known || (u.output_tokens == 0 && came > 0)) {
        u.output_tokens = MAX(u.output_tokens, came);
        u.estimated = true;
    }
    u.searches = MAX(u.searches, (int64_t)reply_count(&s->reply, REPLY_SERVER));
    return u;
}

int stream_usage(struct model_stream *s) {
    struct model_usage u = model_stream_usage(s);
    if (s->cb.on_usage)
        s->cb.on_usage(s->ctx, &u);
    return stream_is_over(s) ? -(int)ERR_CANCELLED : 0;
}

void stream_stop(struct model_stream *s, enum model_stop stop) {
    s->stop = stop;
    if (s->state != STREAM_EVENTS)
        return; /* some say it twice */
    stream_move(s, STREAM_WHOLE);
    if (s->fetch)
        fetch_set_idle_timeout(s->fetch, TAIL_MS);
}

void stream_finish(struct model_stream *s) {
    stream_move(s, STREAM_FINISHED);
}

/* --- its end --- */

static void model_stream_tell_error(struct model_stream *s, const struct err *err, bool retryable) {
    stop_all(s);
    int rc = s->reply.count > 0 ? stream_usage(s) : 0;
    if (rc == 0) {
        json_t *partial = s->reply.count > 0 ? reply_message(&s->reply) : NULL;
        stream_move(s, STREAM_OVER);
        if (s->cb.on_error)
            s->cb.on_error(s->ctx, err, retryable, partial);
        json_decref(partial);
    }
}

/* The answer is whole. The connection is worth keeping: its last bytes are on their way. */
void stream_done(struct model_stream *s) {
    struct err err;
    stream_enter(s);
    if (s->fetch)
        fetch_detach(s->fetch);
    s->fetch = NULL;
    int rc = reply_close_all(&s->reply, &err);
    if (rc == 0 && model_stream_read_input(s)) {
        s->ended = true; /* it comes back */
        stream_leave(s);
        return;
    }
    if (rc == 0)
        rc = stream_usage(s);
    if (rc == 0) {
        json_t *message = reply_message(&s->reply);
        stream_move(s, STREAM_OVER);
        if (s->cb.on_done)
            s->cb.on_done(s->ctx, s->stop, message);
        json_decref(message);
    } else if (!stream_is_over(s)) {
        model_stream_tell_error(s, &err, false);
    }
    stream_leave(s);
}

static unsigned model_stream_wait_ms(const struct model_stream *s) {
    uint64_t ms = s->m->opt.retry_base_ms;
    for (unsigned i = 1; i < s->attempt && ms < s->m->opt.retry_wait_ms; i++)
        ms *= 2;
    ms = MIN(ms, (uint64_t)s->m->opt.retry_wait_ms);
    /* Between half and all of it, so that many clients do not come back together. */
    ms -= rand_u64() % (ms / 2 + 1);
    return MAX((unsigned)ms, s->retry_after_ms);
}

unsigned model_retry_after_ms(const struct model_stream *s) {
    return s->retry_after_ms;
}

static void model_stream_on_retry(uv_timer_t *h) {
    struct model_stream *s = h->data;
    struct err err;
    stream_enter(s);
    stream_move(s, STREAM_ASKING);
    if (stream_attempt(s, &err) < 0)
        fail_by_fetch(s, &err);
    stream_leave(s);
}

/* What is left of an attempt that has failed. */
static void model_stream_forget(struct model_stream *s) {
    stream_dispose(s, steal_ptr(&s->pieces));
    buf_clear(&s->rest);
    s->ended = s->broke = false;
}

void stream_fail(struct model_stream *s, const struct err *err, bool retryable) {
    if (stream_is_over(s))
        return;
    stream_enter(s);
    fetch_cancel(s->fetch);
    s->fetch = NULL;
    unsigned wait = model_stream_wait_ms(s);
    bool again = retryable && s->reply.count == 0 && s->provider &&
                 (int)s->attempt <= s->m->opt.retries && wait <= s->m->opt.retry_wait_ms &&
                 clock_mono_ms() + wait < s->deadline_ms;
    if (!again) {
        model_stream_tell_error(s, err, retryable);
    } else {
        stream_move(s, STREAM_RESTING);
        model_stream_forget(s);
        uv_update_time(s->m->loop);
        (void)uv_timer_start(&s->timer, model_stream_on_retry, wait, 0);
        if (s->cb.on_retry)
            s->cb.on_retry(s->ctx, s->attempt, wait, err);
    }
    stream_leave(s);
}

/* --- one attempt --- */

static unsigned retry_after_ms(const struct fetch *f) {
    const char *ms = fetch_header(f, "retry-after-ms");
    const char *text = ms ? ms : fetch_header(f, "retry-after");
    if (!text)
        return 0;
    char *end;
    double n = strtod(text, &end);
    if (end != text && *end == 0 && n >= 0)
        return (unsigned)MIN(n * (ms ? 1 : 1000), 1e9);
    struct tm tm = {0};
    if (!strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &tm))
        return 0;
    int64_t left = (int64_t)timegm(&tm) * 1000 - clock_wall_ms();
    return left > 0 ? (unsigned)MIN(left, 1000000000) : 0;
}

static bool is_type(const char *value, const char *type) {
    return value && strncasecmp(value, type, strlen(type)) == 0;
}

static void model_stream_on_head(void *ctx, struct fetch *f, int status) {
    struct model_stream *s = ctx;
    const char *type = fetch_header(f, "content-type");
    const char *again = fetch_header(f, "x-should-retry");
    bool is_events = status == 200 && !is_type(type, "text/html") &&
                     !is_type(type, "application/json") && !is_type(type, "text/plain");
    s->status = status;
    s->retry_after_ms = retry_after_ms(f);
    if (again)
        s->advice = strcmp(again, "true") == 0 ? RETRY_WANTED : RETRY_UNWANTED;
    stream_move(s, is_events ? STREAM_EVENTS : STREAM_COMPLAINT);
    if (!is_events)
        fetch_set_idle_timeout(f, TAIL_MS);
}

static void fail_by_body(struct model_stream *s) {
    struct err err;
    stream_body_error(s, &err);
    stream_fail(s, &err, s->retryable);
}

/* An event was told, with this result. True: the next may be. */
static bool model_stream_told(struct model_stream *s, int rc, const struct err *err) {
    if (stream_is_over(s))
        return false;
    if (rc < 0) {
        if (rc == -(int)ERR_LIMIT)
            s->retryable = false;
        stream_fail(s, err, s->retryable);
        return false;
    }
    if (model_stream_read_input(s))
        return false;
    if (s->state != STREAM_FINISHED)
        return true;
    stream_done(s);
    return false;
}

/* --- what a thread does --- */

static void model_stream_on_input_read(struct model_stream *s, struct stream_aside *a) {
    int rc = reply_give_input(&s->reply, steal_ptr(&a->input));
    (void)model_stream_told(s, rc, NULL);
    model_stream_go_on(s);
}

/* True: a thread reads the input of a call; what comes behind it waits. */
static bool model_stream_read_input(struct model_stream *s) {
    struct reply_input *in = reply_take_input(&s->reply);
    if (!in)
        return false;
    struct stream_aside *a = aside_input(in);
    a->done = model_stream_on_input_read;
    stream_start_aside(s, in->len, a);
    return true;
}

static void model_stream_on_event_read(struct model_stream *s, struct stream_aside *a) {
    s->high = a->high;
    s->retryable = true;
    s->pieces = steal_ptr(&a->pieces);
    s->piece = 0;
    if (a->rc < 0)
        (void)model_stream_told(s, a->rc, &a->err);
    model_stream_go_on(s);
}

static bool model_stream_on_event(void *ctx, const char *event, const char *data, size_t len) {
    struct model_stream *s = ctx;
    struct err err;
    (void)event;
    s->event_bytes = len;
    if (stream_is_large(s, len)) {
        struct stream_aside *a = aside_event(s, data, len);
        a->done = model_stream_on_event_read;
        stream_start_aside(s, len, a);
        return false;
    }
    int rc = s->provider->on_event(s, data, len, &err);
    return model_stream_told(s, rc, &err);
}

/* --- turns of the loop --- */

static void model_stream_feed(struct model_stream *s, const char *data, size_t len) {
    struct err err;
    if (sse_feed(&s->sse, data, len, &err) < 0)
        stream_fail(s, &err, false);
    else if (s->aside)
        (void)buf_add(&s->rest, data + s->sse.taken, len - s->sse.taken);
}

static void model_stream_tell_piece(struct model_stream *s) {
    struct err err;
    json_t *event = json_array_get(s->pieces, s->piece++);
    int rc = event ? s->provider->on_tree(s, event, &err) : 0;
    if (s->piece >= json_array_size(s->pieces))
        stream_dispose(s, steal_ptr(&s->pieces));
    (void)model_stream_told(s, rc, &err);
}

static void model_stream_on_turn(void *ctx) {
    struct model_stream *s = ctx;
    stream_enter(s);
    if (s->pieces) {
        model_stream_tell_piece(s);
    } else if (s->rest.len > 0) {
        size_t len;
        _cleanup_(free) char *data = buf_steal(&s->rest, &len);
        model_stream_feed(s, data, len);
    }
    model_stream_go_on(s);
    stream_leave(s);
}

static void model_stream_take_end(struct model_stream *s, const struct err *why);

/* Nothing of it is told at the moment. What is left goes first, then what comes. */
static void model_stream_go_on(struct model_stream *s) {
    if (stream_is_over(s) || s->aside)
        return;
    if (s->pieces || s->rest.len > 0)
        later_post(&s->m->turns, &s->turn, model_stream_on_turn, s);
    else if (s->ended)
        model_stream_take_end(s, s->broke ? &s->why : NULL);
    else if (s->fetch)
        fetch_resume(s->fetch);
}

static bool model_stream_is_behind(const struct model_stream *s) {
    return s->aside || s->pieces || s->rest.len > 0;
}

/* Others have their turn before what comes next. */
static void model_stream_take_turns(struct model_stream *s, size_t len) {
    s->turn_bytes += len;
    if (s->turn_bytes < TURN_BYTES || !s->fetch || model_stream_is_behind(s))
        return;
    s->turn_bytes = 0;
    fetch_pause(s->fetch);
    later_post(&s->m->turns, &s->turn, model_stream_on_turn, s);
}

static void model_stream_on_data(void *ctx, const char *data, size_t len) {
    struct model_stream *s = ctx;
    stream_enter(s);
    if (s->state != STREAM_COMPLAINT) {
        model_stream_feed(s, data, len);
    } else {
        size_t room = LIMIT_MODEL_ERROR_BYTES - s->error_body.len;
        (void)buf_add(&s->error_body, data, MIN(len, room));
        if (len >= room)
            fail_by_body(s);
    }
    if (s->state == STREAM_EVENTS || s->state == STREAM_WHOLE)
        model_stream_take_turns(s, len);
    stream_leave(s);
}

static void fail_by_fetch(struct model_stream *s, const struct err *why) {
    const char *name = model_provider_name(s->info.provider);
    struct err err = *why;
    bool retryable = why->code == ERR_UNAVAILABLE || why->code == ERR_TIMEOUT;
    /* The detail may name hosts of the operator: it is for the log alone. */
    log_warn("model.unreachable", "provider", name, "attempt", s->attempt, "error", why->message);
    if (why->code == ERR_TIMEOUT)
        (void)err_set(&err, ERR_TIMEOUT, "the model server of %s did not answer in time", name);
    else if (s->status > 0)
        (void)err_set(&err, ERR_UNAVAILABLE,
                      "the model server of %s broke off in the middle of its answer", name);
    else if (why->code == ERR_UNAVAILABLE)
        (void)err_set(&err, ERR_UNAVAILABLE, "cannot reach the model server of %s", name);
    else
        (void)err_set(&err, why->code, "cannot talk to the model server of %s: %s", name,
                      why->code == ERR_UPSTREAM ? "its certificate or protocol is not accepted"
                                                : "its base URL is not usable");
    stream_fail(s, &err, retryable);
}

/* The connection has ended, and what came of it is told. */
static void model_stream_take_end(struct model_stream *s, const struct err *why) {
    const char *name = model_provider_name(s->info.provider);
    struct err err;
    s->ended = false;
    if (s->state == STREAM_COMPLAINT)
        fail_by_body(s);
    else if (s->state == STREAM_WHOLE || s->state == STREAM_FINISHED)
        stream_done(s); /* all but the last words came */
    else if (why)
        fail_by_fetch(s, why);
    else {
        (void)err_set(&err, ERR_UNAVAILABLE,
                      s->reply.count > 0
                          ? "the model server of %s broke off in the middle of its answer"
                          : "the model server of %s sent an empty answer",
                      name);
        stream_fail(s, &err, true);
    }
}

static void model_stream_on_end(void *ctx, const struct err *why) {
    struct model_stream *s = ctx;
    s->fetch = NULL;
    stream_enter(s);
    s->broke = why != NULL;
    if (why)
        s->why = *why;
    if (model_stream_is_behind(s))
        s->ended = true;
    else
        model_stream_take_end(s, why);
    stream_leave(s);
}

static void model_stream_reset(struct model_stream *s) {
    sse_finish(&s->sse);
    sse_init(&s->sse, s->m->opt.event_bytes, model_stream_on_event, s);
    buf_clear(&s->error_body);
    buf_clear(&s->signature);
    s->usage = (struct model_usage){0};
    s->input_known = s->output_known = s->usage_odd = false;
    s->status = 0;
    s->retry_after_ms = 0;
    s->advice = RETRY_UNSAID;
    s->high = 0;
    s->stop = MODEL_STOP_END;
}

int stream_attempt(struct model_stream *s, struct err *err) {
    struct models *m = s->m;
    struct fetch_header headers[PROVIDER_HEADERS_MAX + 2] = {
        {"content-type", "application/json", false}, {"accept", "text/event-stream", false}};
    struct buf space;
    int64_t left = s->deadline_ms - clock_mono_ms();
    model_stream_reset(s);
    s->attempt++;
    buf_init(&space, 65536);
    size_t n = 2 + s->provider->headers(m, headers + 2, &space);
    struct fetch_options o = {.url = m->urls[s->info.provider],
                              .method = "POST",
                              .headers = headers,
                              .nheaders = n,
                              .body = s->body.data,
                              .body_len = s->body.len,
                              .connect_timeout_ms = m->opt.connect_timeout_ms,
                              .idle_timeout_ms = m->opt.idle_timeout_ms,
                              .total_timeout_ms = (unsigned)MAX(left, 1),
                              .ca_file = m->opt.ca_file,
                              .on_head = model_stream_on_head,
                              .on_data = model_stream_on_data,
                              .on_end = model_stream_on_end,
                              .ctx = s};
    int rc = fetch_start(m->pool, &o, &s->fetch, err);
    if (space.data)
        mem_wipe(space.data, space.cap);
    buf_finish(&space);
    return rc;
}
