/* The messages of cay-sandbox: what goes in comes out, and what is broken is refused without harm.
 */

#include "wire/sandbox.h"

#include "base/mem.h"
#include "base/rand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct sandbox_spec sample(void) {
    struct sandbox_spec s = {.id = "sbx_1",
                             .root = "debian",
                             .hostname = "h",
                             .user = "vercel-sandbox",
                             .work = "/vercel/sandbox",
                             .memory_bytes = 1,
                             .disk_bytes = 2,
                             .disk_inodes = 3,
                             .pids = 4,
                             .files = 5,
                             .cpu_milli = 6,
                             .egress = true,
                             .binds = {{"/mnt/a", SANDBOX_BIND_RW}, {"/mnt/b", SANDBOX_BIND_RO}},
                             .nbinds = 2};
    sandbox_strv_add(&s.env, "A=1");
    sandbox_strv_add(&s.env, "B=");
    return s;
}

static void a_spec_survives_the_way(void **state) {
    (void)state;
    struct sandbox_spec in = sample(), out;
    struct buf b;
    buf_init(&b, 4096);
    pack_sandbox_spec(&b, &in);
    struct unpack u;
    unpack_init(&u, b.data, b.len);
    unpack_sandbox_spec(&u, &out);
    assert_true(unpack_ok(&u));
    assert_string_equal(out.id, in.id);
    assert_string_equal(out.root, in.root);
    assert_string_equal(out.hostname, in.hostname);
    assert_string_equal(out.user, in.user);
    assert_string_equal(out.work, in.work);
    assert_int_equal(out.memory_bytes, 1);
    assert_int_equal(out.disk_bytes, 2);
    assert_int_equal(out.disk_inodes, 3);
    assert_int_equal(out.pids, 4);
    assert_int_equal(out.files, 5);
    assert_int_equal(out.cpu_milli, 6);
    assert_true(out.egress);
    assert_int_equal(out.env.n, 2);
    assert_string_equal(out.env.items[1], "B=");
    assert_null(out.env.items[2]);
    assert_int_equal(out.nbinds, 2);
    assert_string_equal(out.binds[1].path, "/mnt/b");
    assert_int_equal(out.binds[0].mode, SANDBOX_BIND_RW);
    sandbox_spec_finish(&out);
    sandbox_strv_finish(&in.env);
    buf_finish(&b);
}

static void zero_means_the_default(void **state) {
    (void)state;
    struct sandbox_spec in = {.id = "x"}, out;
    struct buf b;
    buf_init(&b, 4096);
    pack_sandbox_spec(&b, &in);
    struct unpack u;
    unpack_init(&u, b.data, b.len);
    unpack_sandbox_spec(&u, &out);
    assert_true(unpack_ok(&u));
    assert_int_equal(out.memory_bytes, SANDBOX_DEFAULT_MEMORY);
    assert_int_equal(out.disk_bytes, SANDBOX_DEFAULT_DISK);
    assert_int_equal(out.disk_inodes, SANDBOX_DEFAULT_INODES);
    assert_int_equal(out.pids, SANDBOX_DEFAULT_PIDS);
    assert_int_equal(out.files, SANDBOX_DEFAULT_FILES);
    sandbox_spec_finish(&out);
    buf_finish(&b);
}

static void try_all(const void *data, size_t len) {
    struct unpack u;
    struct sandbox_spec spec;
    unpack_init(&u, data, len);
    unpack_sandbox_spec(&u, &spec);
    sandbox_spec_finish(&spec);
    struct sandbox_exec exec;
    unpack_init(&u, data, len);
    unpack_sandbox_exec(&u, &exec);
    sandbox_exec_finish(&exec);
    struct sandbox_config config;
    unpack_init(&u, data, len);
    unpack_sandbox_config(&u, &config);
    sandbox_config_finish(&config);
    struct err err;
    unpack_init(&u, data, len);
    (void)unpack_sandbox_error(&u, &err);
}

/* Every beginning of a message, and thousands with wrong bytes: nothing but "bad" may come of it.
 */
static void broken_messages_are_refused(void **state) {
    (void)state;
    struct sandbox_spec in = sample();
    struct buf b;
    buf_init(&b, 4096);
    pack_sandbox_spec(&b, &in);
    for (size_t n = 0; n < b.len; n++) {
        struct unpack u;
        struct sandbox_spec out;
        char *copy = xmalloc(n); /* exactly so long: a sanitizer sees a byte too much */
        memcpy(copy, b.data, n);
        unpack_init(&u, copy, n);
        unpack_sandbox_spec(&u, &out);
        assert_false(unpack_ok(&u));
        sandbox_spec_finish(&out);
        try_all(copy, n);
        free(copy);
    }
    for (int i = 0; i < 20000; i++) {
        uint64_t r = rand_u64();
        char *copy = xmalloc(b.len);
        memcpy(copy, b.data, b.len);
        copy[r % b.len] = (char)(r >> 40);
        copy[(r >> 16) % b.len] = (char)(r >> 48);
        try_all(copy, b.len);
        free(copy);
    }
    sandbox_strv_finish(&in.env);
    buf_finish(&b);
}

static void an_error_is_carried_over_and_checked(void **state) {
    (void)state;
    struct err in = {.code = ERR_LIMIT, .sys = 28, .message = "disk is full"}, out;
    struct buf b;
    struct unpack u;
    buf_init(&b, 4096);
    pack_sandbox_error(&b, &in);
    unpack_init(&u, b.data, b.len);
    assert_int_equal(unpack_sandbox_error(&u, &out), -ERR_LIMIT);
    assert_int_equal(out.sys, 28);
    assert_string_equal(out.message, "disk is full");
    buf_clear(&b);
    in.code = (enum err_code)9999; /* a code that does not exist */
    pack_sandbox_error(&b, &in);
    unpack_init(&u, b.data, b.len);
    assert_int_equal(unpack_sandbox_error(&u, &out), -ERR_PROTOCOL);
    buf_finish(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spec_survives_the_way),
        cmocka_unit_test(zero_means_the_default),
        cmocka_unit_test(broken_messages_are_refused),
        cmocka_unit_test(an_error_is_carried_over_and_checked),
    };
    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
