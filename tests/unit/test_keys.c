#include "front/ledger/db.h"
#include "front/ledger/keyring.h"
#include "unit/unit.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uv_loop_t loop;
static struct ledger_db *db;
static struct ledger *ledger;
static struct keyring *ring;
static int64_t now;
static struct err e;

static char dir[] = "/tmp/cay-keys-XXXXXX";
static char path[sizeof(dir) + 16];

static int64_t now_ms(void) {
    return now;
}

static int64_t wall = 1000000;
static int64_t wall_ms(void) {
    return wall;
}

static int open_all(void) {
    if (ledger_db_open(dir, &db, &e) < 0 || uv_loop_init(&loop) != 0)
        return -1;
    ring = keyring_create(now_ms, wall_ms);
    struct ledger_watch watch = keyring_watch(ring);
    return ledger_open(&loop, db, &watch, &ledger, &e);
}

static void close_all(void) {
    ledger_close(ledger);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    ledger_db_close(db);
    keyring_destroy(ring);
}

static int setup(void **state) {
    (void)state;
    now = 1000;
    memcpy(dir + sizeof(dir) - 7, "XXXXXX", 6);
    if (!mkdtemp(dir))
        return -1;
    return open_all();
}

static int teardown(void **state) {
    (void)state;
    close_all();
    (void)snprintf(path, sizeof(path), "%s/cay.db", dir);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/ledger.db", dir);
    return unlink(path) == 0 && rmdir(dir) == 0 ? 0 : -1;
}

/* As `cay key` does: a process of its own, a connection of its own. */
static void elsewhere(int (*change)(struct ledger_db *other, void *ctx), void *ctx) {
    struct ledger_db *other;
    assert_int_equal(ledger_db_open(dir, &other, &e), 0);
    assert_int_equal(change(other, ctx), 0);
    ledger_db_close(other);
}

static void count_change(void *ctx) {
    ++*(int *)ctx;
}

static int add_key(struct ledger_db *to, const struct ledger_key *k) {
    struct ledger_answer a;
    ledger_db_do(
        to, &(struct ledger_ask){.op = LEDGER_KEY_ADD, .key_add = {.key = k, .valid_max = 100000}},
        &a);
    e = a.err;
    ledger_answer_finish(&a);
    ledger_db_touch(to);
    return -(int)e.code;
}

static int key_create(struct ledger_db *to, const struct key_request *r, char text[KEY_TEXT_SIZE],
                      struct ledger_key *k) {
    int rc = key_make(r, text, k, &e);
    return rc < 0 ? rc : add_key(to, k);
}

static int revoke_key(struct ledger_db *of, const char *id) {
    struct ledger_answer a;
    ledger_db_do(of, &(struct ledger_ask){.op = LEDGER_KEY_REVOKE, .key_revoke = {.id = id}}, &a);
    e = a.err;
    ledger_db_touch(of);
    return -(int)e.code;
}

struct making {
    struct key_request request;
    char *text;
    struct ledger_key *key;
};

static int add_one(struct ledger_db *other, void *ctx) {
    struct making *m = ctx;
    return key_create(other, &m->request, m->text, m->key);
}

static int revoke_one(struct ledger_db *other, void *ctx) {
    return revoke_key(other, ctx);
}

static void make(const char *name, const char *scope, char text[KEY_TEXT_SIZE],
                 struct ledger_key *k) {
    struct making m = {.request = {.name = name, .scope = scope, .limits = {.rate_per_minute = 5}},
                       .text = text,
                       .key = k};
    elsewhere(add_one, &m);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
}

static void test_a_key_is_known_by_its_text_only(void **state) {
    (void)state;
    char text[KEY_TEXT_SIZE];
    struct ledger_key k;
    struct identity who;
    make("me", "read", text, &k);
    assert_int_equal(strncmp(text, "cay_", 4), 0);
    assert_int_equal(key_check(ring, text, &who, &e), 0);
    assert_string_equal(who.key_id, k.id);
    assert_string_equal(who.name, "me");
    assert_int_equal(who.scope, KEY_SCOPE_READ);
    assert_int_equal(who.limits.rate_per_minute, 5);
    assert_false(who.operator_);
    /* Any change of any character makes it invalid. */
    for (size_t i = 0; text[i]; i++) {
        char bad[KEY_TEXT_SIZE];
        memcpy(bad, text, sizeof(bad));
        bad[i] = bad[i] == '0' ? '1' : '0';
        assert_int_equal(key_check(ring, bad, &who, &e), -ERR_UNAUTHORIZED);
        memcpy(bad, text, sizeof(bad));
        bad[i] = 0;
        assert_int_equal(key_check(ring, bad, &who, &e), -ERR_UNAUTHORIZED);
    }
    char longer[200];
    (void)snprintf(longer, sizeof(longer), "%s0", text);
    assert_int_equal(key_check(ring, longer, &who, &e), -ERR_UNAUTHORIZED);
    memset(longer, '_', sizeof(longer) - 1);
    memcpy(longer, "cay_", 4);
    longer[sizeof(longer) - 1] = 0;
    assert_int_equal(key_check(ring, longer, &who, &e), -ERR_UNAUTHORIZED);
    assert_int_equal(key_check(ring, "", &who, &e), -ERR_UNAUTHORIZED);
    assert_int_equal(key_check(ring, "cay_", &who, &e), -ERR_UNAUTHORIZED);
    assert_int_equal(key_check(ring, "cay__", &who, &e), -ERR_UNAUTHORIZED);
    ledger_key_finish(&k);
}

static void on_key(void *ctx, const struct ledger_key *k) {
    /* The ledger has no part of the secret. */
    const char *secret = ctx;
    assert_null(memmem(k->hash, sizeof(k->hash), secret, 8));
    assert_null(strstr(k->id, secret));
    assert_null(strstr(k->name, secret));
}

static void test_the_secret_is_not_kept(void **state) {
    (void)state;
    char text[KEY_TEXT_SIZE];
    struct ledger_key k;
    make("me", "run", text, &k);
    assert_int_equal(ledger_db_key_list(db, false, on_key, strrchr(text, '_') + 1, &e), 0);
    ledger_key_finish(&k);
}

static void test_a_revoked_key_is_nobody(void **state) {
    (void)state;
    char text[KEY_TEXT_SIZE];
    struct ledger_key k;
    struct identity who;
    make("me", "admin", text, &k);
    assert_int_equal(key_identity(ring, k.id, &who, &e), 0);
    assert_int_equal(who.scope, KEY_SCOPE_ADMIN);
    assert_int_equal(keyring_count(ring), 1);
    elsewhere(revoke_one, k.id);
    assert_int_equal(revoke_key(db, "key_none"), -ERR_NOT_FOUND);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(key_check(ring, text, &who, &e), -ERR_UNAUTHORIZED);
    assert_int_equal(key_identity(ring, k.id, &who, &e), -ERR_UNAUTHORIZED);
    assert_int_equal(key_identity(ring, "key_nope", &who, &e), -ERR_UNAUTHORIZED);
    assert_int_equal(keyring_count(ring), 0);
    ledger_key_finish(&k);
}

static struct ledger_key *list_of(const struct ledger_key *k);

static void test_a_key_expires_and_those_who_listen_hear_of_it(void **state) {
    (void)state;
    char text[KEY_TEXT_SIZE];
    struct ledger_key k;
    struct identity who;
    int changes = 0;
    make("me", "run", text, &k);
    struct keyring *fake = keyring_create(now_ms, wall_ms);
    struct ledger_watch w = keyring_watch(fake);
    k.expires_ms = wall + 1000;
    w.on_keys(w.ctx, list_of(&k), 1, 5);
    keyring_on_change(fake, count_change, &changes);
    assert_int_equal(key_check(fake, text, &who, &e), 0);
    wall += 999;
    w.on_confirmed(w.ctx, 5);
    assert_int_equal(key_check(fake, text, &who, &e), 0);
    assert_int_equal(changes, 0);
    wall += 1;
    assert_int_equal(key_check(fake, text, &who, &e), -ERR_UNAUTHORIZED);
    w.on_confirmed(w.ctx, 5);
    w.on_confirmed(w.ctx, 5);
    assert_int_equal(changes, 1);
    keyring_destroy(fake);
    ledger_key_finish(&k);
}

static void test_the_secret_before_is_valid_for_its_time(void **state) {
    (void)state;
    char first[KEY_TEXT_SIZE];
    char second[KEY_TEXT_SIZE];
    struct ledger_key k;
    struct identity who;
    struct ledger_answer a;
    make("me", "run", first, &k);
    struct ledger_ask ask = {.op = LEDGER_KEY_EDIT,
                             .key_edit = {.key = &k, .fields = LEDGER_KEY_SECRET}};
    key_new_secret(k.id, second, k.hash);
    k.old_until_ms = wall + 1000;
    for (int i = 0; i < 2; i++) { /* an answer may be lost, and what was asked is asked again */
        ledger_db_do(db, &ask, &a);
        assert_int_equal(a.err.code, 0);
        ledger_answer_finish(&a);
    }
    ledger_refresh(ledger);
    assert_int_equal(key_check(ring, first, &who, &e), 0);
    assert_int_equal(key_check(ring, second, &who, &e), 0);
    wall += 1000;
    assert_int_equal(key_check(ring, first, &who, &e), -ERR_UNAUTHORIZED);
    assert_int_equal(key_check(ring, second, &who, &e), 0);
    struct ledger_key_use uses[4];
    assert_int_equal(keyring_take_uses(ring, uses, 4), 1);
    assert_string_equal(uses[0].id, k.id);
    assert_int_equal(keyring_take_uses(ring, uses, 4), 0);
    ledger_key_finish(&k);
}

static void test_bad_requests_are_refused(void **state) {
    (void)state;
    char long_name[70];
    memset(long_name, 'n', 61);
    long_name[61] = 0;
    const struct key_request bad[] = {
        {.name = "", .scope = "run"},
        {.name = long_name, .scope = "run"},
        {.name = "a\nb", .scope = "run"},
        {.name = "a\x7f", .scope = "run"},
        {.name = "a\xff", .scope = "run"},
        {.name = "a", .scope = "root"},
        {.name = "a", .scope = ""},
        {.name = "a", .scope = "run", .limits = {.rate_per_minute = -1}},
    };
    char text[KEY_TEXT_SIZE];
    struct ledger_key k;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(key_create(db, &bad[i], text, &k), -ERR_BAD_REQUEST);
}

/* --- a ledger that answers late, out of order, twice, or not at all --- */

static struct ledger_key *list_of(const struct ledger_key *k) {
    struct ledger_key *list = calloc(1, sizeof(*list));
    *list = *k;
    list->name = strdup(k->name);
    list->scope = strdup(k->scope);
    list->grants = NULL;
    return list;
}

static int looks;
static void on_look(void *ctx) {
    (void)ctx;
    looks++;
}

static void test_a_silent_ledger_lets_nobody_in_and_says_so(void **state) {
    (void)state;
    char text[KEY_TEXT_SIZE];
    struct ledger_key k;
    struct identity who;
    make("me", "run", text, &k);
    struct keyring *fake = keyring_create(now_ms, wall_ms);
    struct ledger_watch w = keyring_watch(fake);
    looks = 0;
    keyring_on_stale(fake, on_look, NULL);
    /* not yet at all */
    assert_int_equal(key_check(fake, text, &who, &e), -ERR_UNAVAILABLE);
    assert_int_equal(key_identity(fake, k.id, &who, NULL), -ERR_UNAVAILABLE);
    assert_int_equal(err_http_status(e.code), 503);
    assert_int_equal(looks, 2);
    w.on_keys(w.ctx, list_of(&k), 1, 5);
    assert_int_equal(key_check(fake, text, &who, &e), 0);
    /* twice, and an earlier one after it: nothing changes */
    w.on_keys(w.ctx, list_of(&k), 1, 5);
    w.on_keys(w.ctx, NULL, 0, 4);
    assert_int_equal(key_check(fake, text, &who, &e), 0);
    /* silence, and a confirmation of something old, which is none */
    now += LEDGER_STALE_MS;
    assert_int_equal(key_check(fake, text, &who, &e), 0);
    now += 1;
    w.on_confirmed(w.ctx, 4);
    assert_int_equal(key_check(fake, text, &who, &e), -ERR_UNAVAILABLE);
    /* it is back */
    w.on_confirmed(w.ctx, 5);
    assert_int_equal(key_check(fake, text, &who, &e), 0);
    /* a revocation that comes late holds from then on */
    w.on_keys(w.ctx, NULL, 0, 6);
    w.on_keys(w.ctx, list_of(&k), 1, 5);
    assert_int_equal(key_check(fake, text, &who, &e), -ERR_UNAUTHORIZED);
    keyring_destroy(fake);
    ledger_key_finish(&k);
}

static void test_keys_of_many_are_found_by_their_ids(void **state) {
    (void)state;
    enum { N = 300 };
    static char texts[N][KEY_TEXT_SIZE];
    struct ledger_key k;
    struct identity who;
    for (int i = 0; i < N; i++) {
        struct key_request r = {.name = "n", .scope = "run", .limits = {.rate_per_minute = i}};
        assert_int_equal(key_create(db, &r, texts[i], &k), 0);
        ledger_key_finish(&k);
    }
    make("last", "run", texts[0], &k); /* from elsewhere, so that all are read again */
    ledger_key_finish(&k);
    assert_int_equal(keyring_count(ring), N + 1);
    for (int i = 1; i < N; i++) {
        assert_int_equal(key_check(ring, texts[i], &who, &e), 0);
        assert_int_equal(who.limits.rate_per_minute, i);
    }
}

static void test_a_process_that_slept_looks_before_it_refuses(void **state) {
    (void)state;
    char text[KEY_TEXT_SIZE];
    struct ledger_key k;
    struct identity who;
    make("me", "run", text, &k);
    keyring_on_stale(ring, ledger_refresh, ledger);
    now += 10 * LEDGER_STALE_MS;
    assert_int_equal(key_check(ring, text, &who, &e), 0);
    ledger_key_finish(&k);
}

static void test_the_keys_of_an_earlier_cay_are_taken_over(void **state) {
    (void)state;
    char text[KEY_TEXT_SIZE];
    struct ledger_key k;
    struct identity who;
    make("me", "run", text, &k);
    close_all();
    (void)snprintf(path, sizeof(path), "%s/ledger.db", dir);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(path, sizeof(path), "%s/cay.db", dir);
    sqlite3 *old;
    assert_int_equal(sqlite3_open(path, &old), SQLITE_OK);
    char *sql = sqlite3_mprintf(
        "CREATE TABLE keys (id TEXT PRIMARY KEY, name TEXT, scope TEXT, hash BLOB,"
        " rate_per_minute INTEGER, grants TEXT, created_ms INTEGER, revoked_ms INTEGER);"
        "INSERT INTO keys VALUES (%Q, 'me', 'run', zeroblob(32), 7, NULL, 1, 0),"
        " ('key_gone', 'x', 'run', zeroblob(32), 7, NULL, 1, 9)",
        k.id);
    assert_int_equal(sqlite3_exec(old, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_free(sql);
    (void)sqlite3_close(old);
    assert_int_equal(open_all(), 0);
    assert_int_equal(key_identity(ring, k.id, &who, &e), 0);
    assert_int_equal(who.limits.rate_per_minute, 7);
    assert_int_equal(key_identity(ring, "key_gone", &who, &e), -ERR_UNAUTHORIZED);
    /* Once only: what is revoked here does not come back from there. */
    assert_int_equal(revoke_key(db, k.id), 0);
    close_all();
    assert_int_equal(open_all(), 0);
    assert_int_equal(key_identity(ring, k.id, &who, &e), -ERR_UNAUTHORIZED);
    ledger_key_finish(&k);
}

static struct ledger_answer key_ask(enum ledger_op op, const struct ledger_key *k) {
    struct ledger_answer a;
    struct ledger_ask add = {.op = op, .key_add = {.key = k, .valid_max = 2}};
    struct ledger_ask revoke = {.op = op, .key_revoke.id = k->id};
    ledger_db_do(db, op == LEDGER_KEY_ADD ? &add : &revoke, &a);
    return a;
}

/* An answer may be lost, and what was asked is asked again. */
static void test_an_ask_about_a_key_can_be_repeated(void **state) {
    (void)state;
    struct ledger_key k;
    char text[KEY_TEXT_SIZE];
    struct key_request r = {.name = "n", .scope = "run"};
    assert_int_equal(key_make(&r, text, &k, &e), 0);
    for (int i = 0; i < 2; i++) {
        struct ledger_answer a = key_ask(LEDGER_KEY_ADD, &k);
        assert_int_equal(a.err.code, 0);
        assert_int_equal(a.key_added.repeated, i);
        assert_string_equal(a.key_added.key.id, k.id);
        ledger_answer_finish(&a);
    }
    for (int i = 0; i < 2; i++) {
        struct ledger_answer a = key_ask(LEDGER_KEY_REVOKE, &k);
        assert_int_equal(a.err.code, 0);
        assert_int_equal(a.key_revoked.repeated, i);
        ledger_answer_finish(&a);
    }
    k.id[strlen(k.id) - 1] ^= 1;
    struct ledger_answer none = key_ask(LEDGER_KEY_REVOKE, &k);
    assert_int_equal(none.err.code, ERR_NOT_FOUND);
    ledger_answer_finish(&none);
    ledger_key_finish(&k);
}

static void count_key(void *ctx, const struct ledger_key *k) {
    (void)k;
    ++*(int *)ctx;
}

static void test_so_many_revoked_keys_are_remembered(void **state) {
    (void)state;
    enum { MADE = 1010, REMEMBERED = 1000 };
    char text[KEY_TEXT_SIZE];
    struct key_request r = {.name = "n", .scope = "run"};
    char oldest[ID_SIZE];
    for (int i = 0; i < MADE; i++) {
        struct ledger_key k;
        assert_int_equal(key_make(&r, text, &k, &e), 0);
        if (i == 0)
            memcpy(oldest, k.id, sizeof(oldest));
        struct ledger_answer a = key_ask(LEDGER_KEY_ADD, &k);
        assert_int_equal(a.err.code, 0);
        ledger_answer_finish(&a);
        a = key_ask(LEDGER_KEY_REVOKE, &k);
        assert_int_equal(a.err.code, 0);
        ledger_answer_finish(&a);
        ledger_key_finish(&k);
    }
    int n = 0;
    assert_int_equal(ledger_db_key_list(db, false, count_key, &n, &e), 0);
    assert_int_equal(n, REMEMBERED);
    struct ledger_key first = {0};
    memcpy(first.id, oldest, sizeof(oldest));
    struct ledger_answer gone = key_ask(LEDGER_KEY_REVOKE, &first);
    assert_int_equal(gone.err.code, ERR_NOT_FOUND);
    ledger_answer_finish(&gone);
}

/* Whatever it holds: a file can be damaged. */
static int add_as_it_is(struct ledger_db *other, void *ctx) {
    return add_key(other, ctx);
}

static void grants_are(const char *text, bool granted) {
    char key[KEY_TEXT_SIZE];
    struct ledger_key k;
    struct identity who;
    struct key_request r = {.name = "n", .scope = "run"};
    assert_int_equal(key_make(&r, key, &k, &e), 0);
    k.grants = text ? strdup(text) : NULL;
    elsewhere(add_as_it_is, &k);
    ledger_refresh(ledger);
    assert_int_equal(key_identity(ring, k.id, &who, &e), 0);
    json_t *grants = key_grants(&who);
    assert_int_equal(key_is_granted(grants, "facets", "shop"), granted);
    assert_int_equal(key_is_granted(grants, "routes", "shop"), granted && !text);
    json_decref(grants);
    ledger_key_finish(&k);
}

static void test_grants_that_cannot_be_read_grant_nothing(void **state) {
    (void)state;
    char longer[2 * KEY_GRANTS_SIZE];
    int n = snprintf(longer, sizeof(longer), "{\"facets\":[\"shop\"],\"routes\":[\"");
    memset(longer + n, 'x', sizeof(longer) - (size_t)n);
    memcpy(longer + sizeof(longer) - 4, "\"]}", 4);
    grants_are(NULL, true);
    grants_are("{\"facets\":[\"shop\"]}", true);
    grants_are("{\"facets\":[\"other\"]}", false);
    grants_are("{\"facets\":\"shop\"}", false);
    grants_are("{}", false);
    grants_are("", false);
    grants_are("{\"facets\":[\"shop\"", false);
    grants_are("[\"shop\"]", false);
    grants_are("null", false);
    grants_are("true", false);
    grants_are("{\"facets\":[\"sh\xc3\"]}", false);
    grants_are(longer, false);
    assert_false(key_is_granted(json_true(), "facets", "shop"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_a_key_is_known_by_its_text_only),
        UNIT(test_the_secret_is_not_kept),
        UNIT(test_a_revoked_key_is_nobody),
        UNIT(test_bad_requests_are_refused),
        UNIT(test_a_key_expires_and_those_who_listen_hear_of_it),
        UNIT(test_the_secret_before_is_valid_for_its_time),
        UNIT(test_a_silent_ledger_lets_nobody_in_and_says_so),
        UNIT(test_keys_of_many_are_found_by_their_ids),
        UNIT(test_a_process_that_slept_looks_before_it_refuses),
        UNIT(test_the_keys_of_an_earlier_cay_are_taken_over),
        UNIT(test_an_ask_about_a_key_can_be_repeated),
        UNIT(test_so_many_revoked_keys_are_remembered),
        UNIT(test_grants_that_cannot_be_read_grant_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
