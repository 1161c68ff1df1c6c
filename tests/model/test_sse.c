#include "unit/unit.h"

#include "base/buf.h"
#include "base/sse.h"

#include <stdlib.h>
#include <string.h>

/* Events are noted as "name=data;" so that a whole stream can be compared at once. */
struct noted {
    struct buf text;
    unsigned count;
    unsigned stop_after;
};

static bool on_event(void *ctx, const char *event, const char *data, size_t len) {
    struct noted *n = ctx;
    assert_int_equal(data[len], 0);
    (void)buf_addf(&n->text, "%s=", event);
    (void)buf_add(&n->text, data, len);
    (void)buf_add_char(&n->text, ';');
    return ++n->count != n->stop_after;
}

/* Feeds the text in two parts, split at every place, and byte by byte; each time the same events
 * must come. */
static void check(const char *text, size_t len, const char *expected) {
    for (size_t split = 0; split <= len + 1; split++) {
        struct noted n = {.count = 0};
        struct sse s;
        struct err err;
        buf_init(&n.text, 1 << 20);
        sse_init(&s, 1000, on_event, &n);
        if (split <= len) {
            assert_int_equal(sse_feed(&s, text, split, &err), 0);
            assert_int_equal(sse_feed(&s, text + split, len - split, &err), 0);
        }
        for (size_t i = 0; split > len && i < len; i++)
            assert_int_equal(sse_feed(&s, text + i, 1, &err), 0);
        assert_string_equal(n.text.data ? n.text.data : "", expected);
        sse_finish(&s);
        buf_finish(&n.text);
    }
}

#define CHECK(text, expected) check(text, sizeof(text) - 1, expected)

static void test_one_event(void **state) {
    (void)state;
    CHECK("data: hello\n\n", "message=hello;");
    CHECK("event: ping\ndata: {}\n\n", "ping={};");
    CHECK("data:no space\n\n", "message=no space;");
    CHECK("data:  two spaces\n\n", "message= two spaces;");
    CHECK("event:x\nevent:y\ndata:z\n\n", "y=z;");
}

static void test_lines_end_in_lf_cr_or_crlf(void **state) {
    (void)state;
    CHECK("event: a\ndata: 1\n\nevent: b\ndata: 2\n\n", "a=1;b=2;");
    CHECK("event: a\r\ndata: 1\r\n\r\nevent: b\r\ndata: 2\r\n\r\n", "a=1;b=2;");
    CHECK("event: a\rdata: 1\r\revent: b\rdata: 2\r\r", "a=1;b=2;");
    CHECK("event: a\rdata: 1\r\n\nevent: b\ndata: 2\n\r", "a=1;b=2;");
    CHECK("data: 1\r\n\ndata: 2\n\r\n", "message=1;message=2;");
}

static void test_data_of_several_lines_is_joined(void **state) {
    (void)state;
    CHECK("data: a\ndata: b\n\n", "message=a\nb;");
    CHECK("data\ndata\n\n", "message=\n;");
    CHECK("data:\n\n", "message=;");
}

static void test_what_is_no_event_is_ignored(void **state) {
    (void)state;
    CHECK(": comment\n\n", "");
    CHECK("event: lonely\n\ndata: x\n\n", "message=x;");
    CHECK("id: 7\nretry: 10\nother: y\ndata: x\n\n", "message=x;");
    CHECK("dataset: y\n\n", "");
    CHECK("\n\n\n", "");
}

static void test_an_unfinished_event_is_dropped(void **state) {
    (void)state;
    CHECK("data: a\n\ndata: b\n", "message=a;");
    CHECK("data: a\n\ndata: b", "message=a;");
}

static void test_a_byte_order_mark_is_skipped_once(void **state) {
    (void)state;
    CHECK("\xef\xbb\xbf"
          "data: a\n\n\xef\xbb\xbf"
          "data: b\n\n",
          "message=a;");
    CHECK("\xef\xbb\xbf\n\ndata: a\n\n", "message=a;");
}

static void test_nul_bytes_are_kept(void **state) {
    (void)state;
    struct noted n = {.count = 0};
    struct sse s;
    struct err err;
    buf_init(&n.text, 1000);
    sse_init(&s, 1000, on_event, &n);
    assert_int_equal(sse_feed(&s, "data: a\0b\n\n", 11, &err), 0);
    assert_int_equal(n.text.len, 12);
    assert_memory_equal(n.text.data, "message=a\0b;", 12);
    sse_finish(&s);
    buf_finish(&n.text);
}

static void test_events_are_bounded(void **state) {
    (void)state;
    static const char *const parts[] = {
        "data: 0123456789\n",   /* many lines */
        "0123456789",           /* a line without end */
        "event: 0123456789012", /* a name without end */
    };
    for (size_t i = 0; i < 3; i++) {
        struct noted n = {.count = 0};
        struct sse s;
        struct err err;
        int rc = 0;
        buf_init(&n.text, 1000);
        sse_init(&s, 100, on_event, &n);
        for (int k = 0; k < 20 && rc == 0; k++)
            rc = sse_feed(&s, parts[i], strlen(parts[i]), &err);
        assert_int_equal(rc, -(int)ERR_LIMIT);
        assert_non_null(strstr(err.message, "100 bytes"));
        assert_int_equal(n.count, 0);
        sse_finish(&s);
        buf_finish(&n.text);
    }
}

static void test_the_callback_can_stop_it(void **state) {
    (void)state;
    struct noted n = {.stop_after = 2};
    struct sse s;
    struct err err;
    const char *text = "data: 1\r\n\r\ndata: 2\r\n\r\ndata: 3\r\n\r\n";
    buf_init(&n.text, 1000);
    sse_init(&s, 100, on_event, &n);
    assert_int_equal(sse_feed(&s, text, strlen(text), &err), 0);
    assert_string_equal(n.text.data, "message=1;message=2;");
    /* What it did not take can be fed again, in the middle of a line's end too. */
    assert_int_equal(sse_feed(&s, text + s.taken, strlen(text) - s.taken, &err), 0);
    assert_string_equal(n.text.data, "message=1;message=2;message=3;");
    sse_finish(&s);
    buf_finish(&n.text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_event),
        cmocka_unit_test(test_lines_end_in_lf_cr_or_crlf),
        cmocka_unit_test(test_data_of_several_lines_is_joined),
        cmocka_unit_test(test_what_is_no_event_is_ignored),
        cmocka_unit_test(test_an_unfinished_event_is_dropped),
        cmocka_unit_test(test_a_byte_order_mark_is_skipped_once),
        cmocka_unit_test(test_nul_bytes_are_kept),
        cmocka_unit_test(test_events_are_bounded),
        cmocka_unit_test(test_the_callback_can_stop_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
