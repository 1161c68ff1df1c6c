#include "front/keys.h"
#include "unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct store *store;
static struct err e;

static char dir[] = "/tmp/cay-keys-XXXXXX";
static char path[sizeof(dir) + 8];

static int setup(void **state) {
    (void)state;
    memcpy(dir + sizeof(dir) - 7, "XXXXXX", 6);
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/cay.db", dir);
    return store_open(path, &store, &e);
}

static int teardown(void **state) {
    (void)state;
    store_close(store);
    return unlink(path) == 0 && rmdir(dir) == 0 ? 0 : -1;
}

static void make(const char *name, const char *scope, char text[KEY_TEXT_SIZE],
                 struct store_key *k) {
    struct key_request r = {.name = name, .scope = scope, .rate_per_minute = 5};
    assert_int_equal(key_create(store, &r, text, k, &e), 0);
}

static void test_a_key_is_known_by_its_text_only(void **state) {
    (void)state;
    char text[KEY_TEXT_SIZE];
    struct store_key k;
    struct identity who;
    make("me", "read", text, &k);
    assert_int_equal(strncmp(text, "cay_", 4), 0);
    assert_int_equal(key_check(store, text, &who, &e), 0);
    assert_string_equal(who.key_id, k.id);
    assert_string_equal(who.name, "me");
    assert_int_equal(who.scope, KEY_SCOPE_READ);
    assert_int_equal(who.rate_per_minute, 5);
    assert_false(who.operator_);
    /* Any change of any character makes it invalid. */
    for (size_t i = 0; text[i]; i++) {
        char bad[KEY_TEXT_SIZE];
        memcpy(bad, text, sizeof(bad));
        bad[i] = bad[i] == '0' ? '1' : '0';
        assert_int_equal(key_check(store, bad, &who, &e), -ERR_UNAUTHORIZED);
        memcpy(bad, text, sizeof(bad));
        bad[i] = 0;
        assert_int_equal(key_check(store, bad, &who, &e), -ERR_UNAUTHORIZED);
    }
    char longer[200];
    (void)snprintf(longer, sizeof(longer), "%s0", text);
    assert_int_equal(key_check(store, longer, &who, &e), -ERR_UNAUTHORIZED);
    memset(longer, '_', sizeof(longer) - 1);
    memcpy(longer, "cay_", 4);
    longer[sizeof(longer) - 1] = 0;
    assert_int_equal(key_check(store, longer, &who, &e), -ERR_UNAUTHORIZED);
    assert_int_equal(key_check(store, "", &who, &e), -ERR_UNAUTHORIZED);
    assert_int_equal(key_check(store, "cay_", &who, &e), -ERR_UNAUTHORIZED);
    assert_int_equal(key_check(store, "cay__", &who, &e), -ERR_UNAUTHORIZED);
    store_key_finish(&k);
}

static void on_key(void *ctx, const struct store_key *k) {
    /* The store has no part of the secret. */
    const char *secret = ctx;
    assert_null(memmem(k->hash, sizeof(k->hash), secret, 8));
    assert_null(strstr(k->id, secret));
    assert_null(strstr(k->name, secret));
}

static void test_the_secret_is_not_kept(void **state) {
    (void)state;
    char text[KEY_TEXT_SIZE];
    struct store_key k;
    make("me", "run", text, &k);
    assert_int_equal(store_key_list(store, on_key, strrchr(text, '_') + 1, &e), 0);
    store_key_finish(&k);
}

static void test_a_revoked_key_is_nobody(void **state) {
    (void)state;
    char text[KEY_TEXT_SIZE];
    struct store_key k;
    struct identity who;
    int64_t n;
    make("me", "admin", text, &k);
    assert_int_equal(key_identity(store, k.id, &who, &e), 0);
    assert_int_equal(who.scope, KEY_SCOPE_ADMIN);
    assert_int_equal(store_key_count(store, &n, &e), 0);
    assert_int_equal(n, 1);
    assert_int_equal(store_key_revoke(store, k.id, &e), 0);
    assert_int_equal(store_key_revoke(store, k.id, &e), -ERR_NOT_FOUND);
    assert_int_equal(key_check(store, text, &who, &e), -ERR_UNAUTHORIZED);
    assert_int_equal(key_identity(store, k.id, &who, &e), -ERR_UNAUTHORIZED);
    assert_int_equal(key_identity(store, "key_nope", &who, &e), -ERR_UNAUTHORIZED);
    assert_int_equal(store_key_count(store, &n, &e), 0);
    assert_int_equal(n, 0);
    store_key_finish(&k);
}

static void test_bad_requests_are_refused(void **state) {
    (void)state;
    char long_name[70];
    memset(long_name, 'n', 61);
    long_name[61] = 0;
    const struct key_request bad[] = {
        {.name = "", .scope = "run"},      {.name = long_name, .scope = "run"},
        {.name = "a\nb", .scope = "run"},  {.name = "a\x7f", .scope = "run"},
        {.name = "a\xff", .scope = "run"}, {.name = "a", .scope = "root"},
        {.name = "a", .scope = ""},        {.name = "a", .scope = "run", .rate_per_minute = -1},
    };
    char text[KEY_TEXT_SIZE];
    struct store_key k;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(key_create(store, &bad[i], text, &k, &e), -ERR_BAD_REQUEST);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_a_key_is_known_by_its_text_only),
        UNIT(test_the_secret_is_not_kept),
        UNIT(test_a_revoked_key_is_nobody),
        UNIT(test_bad_requests_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
