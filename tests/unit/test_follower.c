#include "front/http/follower.h"

#include "unit.h"

#include <stdlib.h>
#include <string.h>

/* Followers with a request that is made up here: it takes as many pieces as there is room for. */

struct http_req {
    bool head, streaming, ended, broken;
    int room, pieces, status;
    void (*on_gone)(void *ctx);
    void *gone_ctx;
    void (*on_drain)(void *ctx);
    void *drain_ctx;
};

void http_req_on_gone(struct http_req *req, void (*on_gone)(void *ctx), void *ctx) {
    req->on_gone = on_gone;
    req->gone_ctx = ctx;
}

void http_stream_on_drain(struct http_req *req, void (*on_drain)(void *ctx), void *ctx) {
    req->on_drain = on_drain;
    req->drain_ctx = ctx;
}

void http_stream_begin(struct http_req *req, int status, const char *type) {
    (void)status;
    (void)type;
    assert_false(req->streaming);
    req->streaming = true;
}

void http_sse_begin(struct http_req *req) {
    http_stream_begin(req, 200, "text/event-stream");
}

bool http_stream_has_body(const struct http_req *req) {
    return !req->head;
}

bool http_stream_write(struct http_req *req, const void *data, size_t len) {
    (void)data;
    (void)len;
    assert_true(req->streaming && !req->ended);
    req->pieces++;
    return --req->room > 0;
}

bool http_sse_send(struct http_req *req, const char *event, const char *id, const char *data,
                   size_t len) {
    (void)event;
    (void)id;
    return http_stream_write(req, data, len);
}

void http_stream_end(struct http_req *req) {
    assert_true(req->streaming && !req->ended);
    req->ended = true;
}

void http_stream_break(struct http_req *req) {
    http_stream_end(req);
    req->broken = true;
}

static void answer(struct http_req *req, int status) {
    assert_true(!req->streaming && !req->ended);
    req->status = status;
    req->ended = true;
}

void http_respond_empty(struct http_req *req, int status) {
    answer(req, status);
}

void http_respond_err(struct http_req *req, const struct err *err) {
    answer(req, err_http_status(err->code));
}

/* --- one that has pieces to send --- */

struct owner {
    struct http_follower out;
    int left; /* pieces that are there */
    bool over;
    bool broken;
    int calls, ends, gones, frees;
};

static enum http_next next(void *ctx) {
    struct owner *o = ctx;
    assert_non_null(o->out.req);
    assert_false(o->out.full);
    o->calls++;
    if (o->left == 0)
        return o->broken ? HTTP_NEXT_BREAK : o->over ? HTTP_NEXT_END : HTTP_NEXT_WAIT;
    o->left--;
    (void)http_follower_write(&o->out, "x", 1);
    return HTTP_NEXT_MORE;
}

static void end(void *ctx) {
    struct owner *o = ctx;
    assert_non_null(o->out.req);
    o->ends++;
    if (o->out.streams)
        (void)http_follower_send(&o->out, "end", NULL, "{}", 2);
    else
        http_respond_empty(o->out.req, 204);
}

static void gone(void *ctx) {
    struct owner *o = ctx;
    assert_non_null(o->out.req);
    o->gones++;
}

static void free_(void *ctx) {
    struct owner *o = ctx;
    assert_null(o->out.req);
    o->frees++;
}

static const struct http_follower_type type = {
    .next = next, .end = end, .gone = gone, .free = free_};

static void drain(struct http_req *req, int room) {
    req->room = room;
    req->on_drain(req->drain_ctx);
}

static void test_nothing_is_sent_to_a_client_that_does_not_read(void **state) {
    (void)state;
    struct http_req req = {.room = 3};
    struct owner o = {.left = 10};
    http_follower_init(&o.out, &req, &type, &o);
    http_follower_begin(&o.out, NULL);
    http_follower_more(&o.out);
    assert_int_equal(req.pieces, 3);
    http_follower_more(&o.out); /* more has come */
    assert_int_equal(req.pieces, 3);
    drain(&req, 4);
    assert_int_equal(req.pieces, 7);
    o.over = true;
    http_follower_more(&o.out); /* not even the end */
    assert_int_equal(o.ends, 0);
    drain(&req, 10);
    assert_int_equal(req.pieces, 10 + 1);
    assert_true(req.ended && !req.broken);
    assert_int_equal(o.ends, 1);
    assert_int_equal(o.frees, 1);
    assert_int_equal(o.gones, 0);
}

static void test_what_comes_later_is_sent_when_it_comes(void **state) {
    (void)state;
    struct http_req req = {.room = 100};
    struct owner o = {.left = 1};
    http_follower_init(&o.out, &req, &type, &o);
    http_follower_begin(&o.out, "text/plain");
    http_follower_begin(&o.out, "text/plain"); /* the head is out */
    http_follower_more(&o.out);
    assert_int_equal(req.pieces, 1);
    assert_false(req.ended);
    o.left = 2;
    http_follower_more(&o.out);
    assert_int_equal(req.pieces, 3);
    o.broken = true;
    http_follower_more(&o.out);
    assert_true(req.ended && req.broken);
    assert_int_equal(o.ends, 0);
    assert_int_equal(o.frees, 1);
}

static void test_one_that_leaves_is_told_once(void **state) {
    (void)state;
    for (int streams = 0; streams < 2; streams++) {
        struct http_req req = {.room = 1};
        struct owner o = {.left = 5};
        http_follower_init(&o.out, &req, &type, &o);
        if (streams) {
            http_follower_begin(&o.out, NULL);
            http_follower_more(&o.out);
        }
        req.on_gone(req.gone_ctx);
        assert_true(req.ended);
        assert_int_equal(req.status, streams ? 0 : 499);
        assert_int_equal(o.gones, 1);
        assert_int_equal(o.frees, 1);
        assert_int_equal(o.ends, 0);
        int calls = o.calls;
        http_follower_more(&o.out); /* from one who does not know yet */
        assert_int_equal(o.calls, calls);
    }
}

static void test_one_that_waits_for_the_end_is_answered_then(void **state) {
    (void)state;
    struct http_req req = {0};
    struct owner o = {0};
    http_follower_init(&o.out, &req, &type, &o);
    http_follower_more(&o.out);
    assert_false(req.ended);
    o.over = true;
    http_follower_more(&o.out);
    assert_int_equal(req.status, 204);
    assert_null(req.on_gone);
    assert_int_equal(o.frees, 1);
}

static void test_an_error_is_the_answer_or_breaks_the_stream(void **state) {
    (void)state;
    struct err err;
    (void)err_set(&err, ERR_NOT_FOUND, "no");
    for (int streams = 0; streams < 2; streams++) {
        struct http_req req = {.room = 1};
        struct owner o = {0};
        http_follower_init(&o.out, &req, &type, &o);
        if (streams)
            http_follower_begin(&o.out, NULL);
        http_follower_fail(&o.out, &err);
        assert_int_equal(req.status, streams ? 0 : 404);
        assert_int_equal(req.broken, streams);
        assert_int_equal(o.frees, 1);
        assert_int_equal(o.ends, 0);
    }
}

static void test_nothing_is_read_for_a_head(void **state) {
    (void)state;
    struct http_req req = {.head = true, .room = 100};
    struct owner o = {.left = 5};
    http_follower_init(&o.out, &req, &type, &o);
    http_follower_begin(&o.out, NULL);
    http_follower_more(&o.out);
    assert_int_equal(o.calls, 0);
    assert_true(req.ended);
    assert_int_equal(o.frees, 1);
}

static void test_pieces_may_come_from_others(void **state) {
    (void)state;
    static const struct http_follower_type pushed = {0};
    struct http_req req = {.room = 1};
    struct http_follower f;
    http_follower_init(&f, &req, &pushed, NULL);
    http_follower_begin(&f, NULL);
    assert_false(http_follower_send(&f, "log", NULL, "1", 1));
    drain(&req, 9);
    http_follower_more(&f);
    assert_true(http_follower_send(&f, "log", NULL, "2", 1));
    http_follower_end(&f);
    assert_true(req.ended);
    assert_null(f.req);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(test_nothing_is_sent_to_a_client_that_does_not_read),
        PLAIN(test_what_comes_later_is_sent_when_it_comes),
        PLAIN(test_one_that_leaves_is_told_once),
        PLAIN(test_one_that_waits_for_the_end_is_answered_then),
        PLAIN(test_an_error_is_the_answer_or_breaks_the_stream),
        PLAIN(test_nothing_is_read_for_a_head),
        PLAIN(test_pieces_may_come_from_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
