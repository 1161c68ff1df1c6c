#include "front/web/reader.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/common/share.h"
#include "front/run/guest.h"
#include "front/web/strip.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { WALL_MS = 15000, IDLE_MS = 120000 };

extern const char web_read_json[]; /* the program, as a request to the compiler: js/build.mjs */

struct reader_call {
    struct reader_call *next;
    struct reader *reader;
    struct buf html;
    char *url;
    char *owner;
    json_t *text; /* what came */
    struct later stripped;
    reader_done done; /* NULL: cancelled */
    void *ctx;
};

struct reader {
    struct runner *runner;
    struct guest *guest; /* NULL: none is warm */
    struct guest_call *call;
    struct reader_call *first; /* the first is at work */
    size_t n;
    struct shares shares; /* of the keys in n */
    char *served;         /* the key whose page was read last */
    uv_timer_t idle;
    bool closed;
};

static void begin_next(struct reader *r);

struct reader *reader_create(struct runner *runner) {
    struct reader *r = xcalloc(1, sizeof(*r));
    r->runner = runner;
    (void)uv_timer_init(runner->loop, &r->idle);
    uv_unref((uv_handle_t *)&r->idle);
    r->idle.data = r;
    return r;
}

static void web_reader_free_call(struct reader_call *g) {
    later_cancel(&g->stripped);
    buf_finish(&g->html);
    json_decref(g->text);
    free(g->url);
    free(g->owner);
    free(g);
}

static void unlink_call(struct reader_call *g) {
    struct reader_call **at = &g->reader->first;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    g->reader->n--;
    shares_remove(&g->reader->shares, g->owner);
}

static void web_reader_on_closed(uv_handle_t *h) {
    struct reader *r = h->data;
    shares_finish(&r->shares);
    free(r->served);
    free(r);
}

/* --- the end of one --- */

static void web_reader_tell(struct reader_call *g) {
    _cleanup_(buf) struct buf stripped;
    buf_init(&stripped, LIMIT_WEB_HTML_BYTES);
    reader_done done = g->done;
    void *ctx = g->ctx;
    _cleanup_(json) json_t *text = steal_ptr(&g->text);
    if (done && !text)
        strip_tags(g->html.data ? g->html.data : "", g->html.len, &stripped);
    web_reader_free_call(g);
    if (done && text)
        done(ctx, json_string_value(text), json_string_length(text), false);
    else if (done)
        done(ctx, stripped.data ? stripped.data : "", stripped.len, true);
}

static void web_reader_on_stripped(void *ctx) {
    web_reader_tell(ctx);
}

static void web_reader_on_idle(uv_timer_t *t) {
    struct reader *r = t->data;
    if (r->guest && !r->first) {
        guest_destroy(r->guest);
        r->guest = NULL;
    }
}

static void web_reader_on_result(void *ctx, const char *json, size_t len) {
    const struct reader *r = ctx;
    json_t *v = json_read(json, len);
    if (r->first && json_is_string(v))
        r->first->text = v;
    else
        json_decref(v);
}

static void web_reader_on_done(void *ctx, const struct guest_usage *usage, const struct err *err) {
    (void)usage;
    struct reader *r = ctx;
    struct reader_call *g = r->first;
    r->call = NULL;
    assert(g);
    if (err && g->done)
        log_info("web.reader", "url", g->url, "error", err->message);
    unlink_call(g);
    if (r->closed)
        uv_close((uv_handle_t *)&r->idle, web_reader_on_closed);
    else if (r->first)
        begin_next(r);
    else
        (void)uv_timer_start(&r->idle, web_reader_on_idle, IDLE_MS, 0);
    web_reader_tell(g);
}

/* --- the beginning --- */

static void web_reader_on_guest_end(void *ctx) {
    struct reader *r = ctx;
    r->guest = NULL;
}

static void start_guest(struct reader *r, const struct guest_request *q,
                        const struct run_limits *limits) {
    static const struct env none;
    r->guest = guest_start(r->runner,
                           &(struct guest_spec){.source = web_read_json,
                                                .source_len = strlen(web_read_json),
                                                .env = &none,
                                                .limits = *limits,
                                                .warm = true,
                                                .label = "web reader"},
                           q, web_reader_on_guest_end, r, &r->call);
}

/* The first page of another key than the last one's, if there is any, becomes the first. */
static void web_reader_take_turns(struct reader *r) {
    struct reader_call **at = &r->first;
    while (*at && r->served && strcmp((*at)->owner, r->served) == 0)
        at = &(*at)->next;
    struct reader_call *g = *at;
    if (g && at != &r->first) {
        *at = g->next;
        g->next = r->first;
        r->first = g;
    }
    assert(r->first);
    free(r->served);
    r->served = xstrdup(r->first->owner);
}

static void begin_next(struct reader *r) {
    web_reader_take_turns(r);
    const struct reader_call *g = r->first;
    (void)uv_timer_stop(&r->idle);
    struct run_limits limits = r->runner->config.limits;
    limits.cpu_ms = MIN(limits.cpu_ms, LIMIT_WEB_CPU_MS);
    _cleanup_(buf) struct buf spec;
    buf_init(&spec, 8 * (size_t)LIMIT_WEB_HTML_BYTES);
    struct json_writer w;
    json_writer_init(&w, &spec);
    json_writer_object_begin(&w);
    json_put_str(&w, "method", "read");
    json_put_array_begin(&w, "args");
    json_writer_text(&w, g->html.data ? g->html.data : "", g->html.len);
    json_writer_str(&w, g->url);
    json_writer_array_end(&w);
    json_writer_object_end(&w);
    struct guest_request q = {
        .spec = spec.data,
        .spec_len = spec.len,
        .wall_ms = WALL_MS,
        .limits = &limits,
        .callbacks = {.on_result = web_reader_on_result, .on_done = web_reader_on_done},
        .ctx = r};
    if (r->guest && !guest_takes_calls(r->guest)) {
        guest_let_go(r->guest);
        r->guest = NULL;
    }
    if (r->guest)
        r->call = guest_call(r->guest, &q);
    else
        start_guest(r, &q, &limits);
}

struct reader_call *reader_read(struct reader *r, const struct reader_page *page, reader_done done,
                                void *ctx) {
    struct reader_call *g = xcalloc(1, sizeof(*g));
    struct reader_call **at = &r->first;
    *g = (struct reader_call){.reader = r,
                              .url = xstrdup(page->url),
                              .owner = xstrdup(page->owner),
                              .done = done,
                              .ctx = ctx};
    buf_init(&g->html, LIMIT_WEB_HTML_BYTES);
    strip_unseen(page->html, page->len, &g->html);
    if (r->n >= LIMIT_WEB_WAITING ||
        shares_held(&r->shares, g->owner) >= share_of(g->owner, LIMIT_WEB_WAITING)) {
        g->reader = NULL;
        later_post(&r->runner->later, &g->stripped, web_reader_on_stripped, g);
        return g;
    }
    while (*at)
        at = &(*at)->next;
    *at = g;
    shares_add(&r->shares, g->owner);
    if (r->n++ == 0)
        begin_next(r);
    return g;
}

void reader_call_cancel(struct reader_call *g) {
    if (!g)
        return;
    struct reader *r = g->reader;
    g->done = NULL;
    if (r && r->first == g)
        guest_call_cancel(r->call); /* on_done comes */
    else if (r)
        unlink_call(g), web_reader_free_call(g);
    else
        web_reader_free_call(g);
}

void reader_close(struct reader *r) {
    if (!r)
        return;
    r->closed = true;
    struct reader_call *following;
    for (struct reader_call *g = r->first ? r->first->next : NULL; g; g = following) {
        following = g->next;
        reader_call_cancel(g);
    }
    if (r->first)
        r->first->done = NULL;
    else
        uv_close((uv_handle_t *)&r->idle, web_reader_on_closed);
    guest_destroy(r->guest); /* the end of its call is told, and is ours */
}
