#include "front/agent/history.h"
#include "unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];
static char file[100];
static struct history *h;
static struct err e;

static int setup(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/cay-unit-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(file, sizeof(file), "%s/agent.db", dir);
    return history_open(NULL, file, &h, &e);
}

static int teardown_files(void) {
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < 3; i++) {
        char path[120];
        (void)snprintf(path, sizeof(path), "%s%s", file, ends[i]);
        (void)unlink(path);
    }
    return rmdir(dir);
}

static int teardown(void **state) {
    (void)state;
    history_close(h);
    h = NULL;
    return teardown_files();
}

static int put(const char *id, const char *text) {
    char json[128];
    int n = snprintf(json, sizeof(json), "{\"id\":\"%s\",\"text\":\"%s\"}", id, text);
    return history_put(h, &(struct history_message){id, json, (size_t)n}, 1, &e);
}

/* The ids in order, each with its text: "a=1 b=2". */
static void assert_messages(const char *expected) {
    struct buf b;
    char text[256] = "";
    size_t i;
    const json_t *m;
    buf_init(&b, 10000);
    assert_int_equal(history_text(h, &b, &e), 0);
    json_t *list = json_loads(b.data, 0, NULL);
    buf_finish(&b);
    assert_true(json_is_array(list));
    json_array_foreach(list, i, m) {
        size_t n = strlen(text);
        (void)snprintf(text + n, sizeof(text) - n, "%s%s=%s", n ? " " : "",
                       json_string_value(json_object_get(m, "id")),
                       json_string_value(json_object_get(m, "text")));
    }
    json_decref(list);
    assert_string_equal(text, expected);
}

static void messages_keep_their_order_when_replaced(void **state) {
    (void)state;
    assert_int_equal(put("a", "1"), 0);
    assert_int_equal(put("b", "2"), 0);
    assert_int_equal(put("a", "3"), 0);
    assert_messages("a=3 b=2");
    assert_int_equal(history_truncate(h, "a", &e), 0);
    assert_messages("a=3");
    assert_int_equal(history_truncate(h, "nosuch", &e), 0);
    assert_messages("a=3");
    assert_int_equal(put("c", "4"), 0);
    assert_int_equal(history_remove(h, "a", &e), 0);
    assert_messages("c=4");
    char *found = NULL;
    assert_int_equal(history_find(h, "c", &found, &e), 0);
    assert_string_equal(found, "{\"id\":\"c\",\"text\":\"4\"}");
    free(found);
    assert_int_equal(history_find(h, "a", &found, &e), 0);
    assert_null(found);
    assert_int_equal(history_remove(h, NULL, &e), 0);
    assert_messages("");
}

static void a_place_is_kept_for_a_message_that_comes_later(void **state) {
    (void)state;
    int64_t place = -1;
    assert_int_equal(history_reserve(h, &place, &e), 0);
    assert_int_equal(place, 0); /* nothing was ever stored */
    assert_int_equal(put("u1", "1"), 0);
    assert_int_equal(history_reserve(h, &place, &e), 0);
    assert_int_equal(put("u2", "2"), 0);
    static const char a1[] = "{\"id\":\"a1\",\"text\":\"x\"}";
    static const char a2[] = "{\"id\":\"a2\",\"text\":\"y\"}";
    struct history_message m = {.id = "a1", .json = a1, .len = strlen(a1)};
    assert_int_equal(history_put_at(h, place, &m, &e), 0);
    assert_int_equal(history_put_at(h, place, &m, &e), 0);
    assert_messages("u1=1 a1=x u2=2");
    assert_int_equal(history_move_last(h, "u1", &e), 0);
    assert_messages("a1=x u2=2 u1=1");
    assert_int_equal(history_move_last(h, "u1", &e), 0);
    assert_int_equal(history_reserve(h, &place, &e), 0);
    assert_int_equal(put("u3", "3"), 0);
    m = (struct history_message){.id = "a2", .json = a2, .len = strlen(a2)};
    assert_int_equal(history_put_at(h, place, &m, &e), 0);
    assert_messages("a1=x u2=2 u1=1 a2=y u3=3");
}

static void what_is_not_kept_was_never_there(void **state) {
    (void)state;
    struct history_size size;
    assert_int_equal(put("a", "1"), 0);
    assert_int_equal(history_begin(h, &e), 0);
    assert_int_equal(history_remove(h, NULL, &e), 0);
    assert_int_equal(put("b", "2"), 0);
    assert_int_equal(history_end(h, false, &e), 0);
    assert_messages("a=1");
    assert_int_equal(history_begin(h, &e), 0);
    assert_int_equal(put("b", "\xc3\xa4"), 0);
    assert_int_equal(history_end(h, true, &e), 0);
    assert_messages("a=1 b=\xc3\xa4");
    assert_int_equal(history_size(h, &size, &e), 0);
    assert_int_equal(size.bytes, 2 * strlen("{\"id\":\"a\",\"text\":\"1\"}") + 1);
    assert_int_equal(size.messages, 2);
}

struct rows {
    char ids[16];
    size_t left;
};

static bool on_row(void *ctx, const char *id, const char *json, size_t len) {
    struct rows *r = ctx;
    assert_int_equal(strlen(json), len);
    (void)snprintf(r->ids + strlen(r->ids), sizeof(r->ids) - strlen(r->ids), "%s", id);
    return --r->left > 0;
}

static void rows_come_from_either_end_until_there_are_enough(void **state) {
    (void)state;
    struct rows r = {.left = 10};
    for (int i = 0; i < 3; i++)
        assert_int_equal(put((char[]){(char)('a' + i), 0}, "1"), 0);
    assert_int_equal(history_each(h, false, on_row, &r, &e), 0);
    assert_string_equal(r.ids, "abc");
    r = (struct rows){.left = 2};
    assert_int_equal(history_each(h, true, on_row, &r, &e), 0);
    assert_string_equal(r.ids, "cb");
    assert_int_equal(put("d", "1"), 0); /* nothing is held */
    struct buf b;
    buf_init(&b, 20);
    assert_int_equal(history_text(h, &b, &e), -ERR_TOO_LARGE);
    buf_finish(&b);
}

static void rest_loses_nothing(void **state) {
    (void)state;
    char *value = NULL;
    assert_int_equal(put("a", "1"), 0);
    assert_int_equal(history_set(h, "k", "v", &e), 0);
    (void)history_rest(h);
    (void)history_rest(h);
    assert_int_equal(history_get(h, "k", &value, &e), 0);
    assert_string_equal(value, "v");
    free(value);
    (void)history_rest(h);
    assert_messages("a=1");
    assert_int_equal(history_set(h, "k", NULL, &e), 0);
    assert_int_equal(history_get(h, "k", &value, &e), 0);
    assert_null(value);
}

static void a_file_that_cannot_be_opened_is_an_error(void **state) {
    (void)state;
    struct history *other = NULL;
    assert_int_equal(history_open(NULL, "/nosuch/agent.db", &other, &e), -ERR_IO);
    assert_non_null(strstr(e.message, "history: open"));
    (void)history_rest(h);
    assert_int_equal(teardown_files(), 0);
    assert_int_equal(put("a", "1"), -ERR_IO);
    struct buf b;
    buf_init(&b, 100);
    assert_int_equal(history_text(h, &b, &e), -ERR_IO);
    buf_finish(&b);
    assert_int_equal(mkdir(dir, 0700), 0);
    assert_int_equal(put("a", "1"), 0);
}

static void the_newest_executions_come_first_and_old_ones_go(void **state) {
    (void)state;
    char id[32];
    assert_int_equal(history_begin(h, &e), 0);
    for (int i = 0; i < HISTORY_EXECUTIONS_MAX + 5; i++) {
        (void)snprintf(id, sizeof(id), "e%d", i);
        assert_int_equal(
            history_add_execution(h, id, "code", "0123456\xc3\xa4xyz", i % 2 ? "failed" : NULL, &e),
            0);
    }
    assert_int_equal(history_end(h, true, &e), 0);
    json_t *list = NULL;
    assert_int_equal(history_executions(h, 3, 8, &list, &e), 0);
    assert_int_equal(json_array_size(list), 3);
    const json_t *first = json_array_get(list, 0);
    assert_string_equal(json_string_value(json_object_get(first, "id")), "e204");
    assert_true(json_is_null(json_object_get(first, "error")));
    /* Cut between characters, never inside one. */
    assert_string_equal(json_string_value(json_object_get(first, "output")),
                        "0123456\n... (5 more bytes)");
    assert_int_equal(json_string_length(json_object_get(first, "timestamp")), 19);
    json_decref(list);
    assert_int_equal(history_executions(h, 100000, 100, &list, &e), 0);
    assert_int_equal(json_array_size(list), HISTORY_EXECUTIONS_MAX);
    json_decref(list);
}

/* More than may be open at once; one of them is in the middle of something. */
static void conversations_beyond_the_open_ones_lose_nothing(void **state) {
    (void)state;
    enum { MANY = 60 };
    struct history *all[MANY];
    char path[MANY][120];
    assert_int_equal(history_begin(h, &e), 0);
    assert_int_equal(put("a", "1"), 0);
    for (int i = 0; i < MANY; i++) {
        (void)snprintf(path[i], sizeof(path[i]), "%s/many-%d.db", dir, i);
        assert_int_equal(history_open(NULL, path[i], &all[i], &e), 0);
    }
    char value[32];
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < MANY; i++) {
            (void)snprintf(value, sizeof(value), "%d.%d", i, round);
            assert_int_equal(history_set(all[i], "key", value, &e), 0);
        }
    assert_int_equal(history_end(h, true, &e), 0);
    assert_messages("a=1");
    int open = 0;
    for (int i = 0; i < MANY; i++)
        open += history_rest(all[i]);
    assert_in_range(open, 1, 30);
    for (int i = 0; i < MANY; i++) {
        char *got = NULL;
        (void)snprintf(value, sizeof(value), "%d.2", i);
        assert_int_equal(history_get(all[i], "key", &got, &e), 0);
        assert_string_equal(got, value);
        free(got);
        history_close(all[i]);
        static const char *const ends[] = {"", "-wal", "-shm"};
        for (size_t k = 0; k < 3; k++) {
            char name[140];
            (void)snprintf(name, sizeof(name), "%.110s%s", path[i], ends[k]);
            (void)unlink(name);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(messages_keep_their_order_when_replaced),
        UNIT(a_place_is_kept_for_a_message_that_comes_later),
        UNIT(what_is_not_kept_was_never_there),
        UNIT(rows_come_from_either_end_until_there_are_enough),
        UNIT(rest_loses_nothing),
        UNIT(conversations_beyond_the_open_ones_lose_nothing),
        UNIT(a_file_that_cannot_be_opened_is_an_error),
        UNIT(the_newest_executions_come_first_and_old_ones_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
