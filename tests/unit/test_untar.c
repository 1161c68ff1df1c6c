#include "base/cleanup.h"
#include "base/mem.h"
#include "front/cli/untar.h"
#include "unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Archives are made here, byte by byte: no tar would make the hostile ones. */

static char *home;   /* a folder that nothing may get into but below "in" */
static int in;       /* "in" */
static struct buf a; /* the archive */

static int setup(void **state) {
    (void)state;
    char name[] = "/tmp/cay-untar-XXXXXX";
    assert_non_null(mkdtemp(name));
    home = xstrdup(name);
    int fd = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(fd, "in", 0755), 0);
    in = openat(fd, "in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(fd);
    buf_init(&a, 16 << 20);
    return 0;
}

static void remove_all(int dir, const char *name);

static int teardown(void **state) {
    (void)state;
    close(in);
    remove_all(AT_FDCWD, home);
    free(home);
    buf_finish(&a);
    return 0;
}

#include <dirent.h>

static void remove_all(int dir, const char *name) {
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            remove_all(fd, e->d_name);
    if (d)
        closedir(d);
    (void)unlinkat(dir, name, fd < 0 ? 0 : AT_REMOVEDIR);
}

static void add(const char *name, char kind, const char *link, unsigned mode, const char *content) {
    char b[512] = {0};
    size_t n = content ? strlen(content) : 0;
    memcpy(b, name, MIN(strlen(name), (size_t)100));
    (void)snprintf(b + 100, 8, "%07o", mode);
    (void)snprintf(b + 124, 12, "%011o", (unsigned)n);
    b[156] = kind;
    memcpy(b + 157, link, MIN(strlen(link), (size_t)100));
    memcpy(b + 257, "ustar\00000", 8);
    memset(b + 148, ' ', 8);
    unsigned sum = 0;
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)b[i];
    (void)snprintf(b + 148, 8, "%06o", sum);
    assert_true(buf_add(&a, b, sizeof(b)));
    static const char zero[512];
    if (n > 0)
        assert_true(buf_add(&a, content, n) && buf_add(&a, zero, -n & 511));
}

static int unpack(size_t piece, size_t *ret_skipped, struct err *err) {
    static const char zero[1024];
    struct untar t;
    assert_true(buf_add(&a, zero, sizeof(zero)));
    untar_init(&t, in);
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < a.len; at += piece)
        rc = untar_feed(&t, a.data + at, MIN(piece, a.len - at), err);
    if (rc == 0)
        rc = untar_end(&t, err);
    *ret_skipped = t.skipped;
    untar_finish(&t);
    return rc;
}

static void assert_content(const char *name, const char *want) {
    char got[4096] = "";
    int fd = openat(in, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        fail_msg("%s is not there", name);
    ssize_t n = read(fd, got, sizeof(got) - 1);
    close(fd);
    assert_true(n >= 0);
    assert_string_equal(got, want);
}

static bool exists(const char *name) {
    struct stat st;
    return fstatat(in, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void unpacks_files_folders_and_links_however_they_are_cut(void **state) {
    (void)state;
    static const size_t pieces[] = {1, 7, 511, 512, 513, 100000};
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        struct err err;
        size_t skipped;
        struct stat st;
        buf_clear(&a);
        add("./", '5', "", 0755, NULL);
        add("./d/", '5', "", 0755, NULL);
        add("./d/a", '0', "", 0644, "hello");
        add("b/c/run", '0', "", 04777, "#!");
        add("empty", 0, "", 0600, NULL);
        add("d/l", '2', "../empty", 0777, NULL);
        assert_int_equal(unpack(pieces[i], &skipped, &err), 0);
        assert_int_equal(skipped, 0);
        assert_content("d/a", "hello");
        assert_content("empty", "");
        char target[32] = "";
        assert_int_equal(readlinkat(in, "d/l", target, sizeof(target) - 1), 8);
        assert_string_equal(target, "../empty");
        assert_int_equal(fstatat(in, "b/c/run", &st, 0), 0);
        assert_int_equal(st.st_mode & 0100, 0100);
        assert_int_equal(st.st_mode & 07000, 0); /* no setuid, whatever it says */
    }
}

static void nothing_gets_out(void **state) {
    (void)state;
    struct err err;
    size_t skipped;
    add("../out1", '0', "", 0644, "x");
    add("/out2", '0', "", 0644, "inside");
    add("a/../../out3", '0', "", 0644, "x");
    add("up", '2', "..", 0777, NULL);
    add("up/out4", '0', "", 0644, "inside too");
    add("abs", '2', "/tmp", 0777, NULL);
    add("deep/l", '2', "../../x", 0777, NULL);
    add("self", '2', ".", 0777, NULL);
    add("through", '2', "self/..", 0777, NULL); /* up from where the other link leads: outside */
    add("d/through", '2', "../self/self/../../x", 0777, NULL);
    add("d/fine", '2', "../self/out2", 0777, NULL);
    add("self/f", '0', "", 0644, "x"); /* through a link that stays inside: not followed either */
    assert_int_equal(unpack(512, &skipped, &err), 0);
    assert_true(skipped >= 6);
    static const char *const outside[] = {"../out1", "../out3", "../out4"};
    for (size_t i = 0; i < ARRAY_LEN(outside); i++)
        assert_false(exists(outside[i]));
    assert_content("out2", "inside");
    assert_content("up/out4", "inside too"); /* "up" was no link, so it became a folder */
    assert_false(exists("abs"));
    assert_false(exists("deep/l"));
    assert_true(exists("self"));
    assert_false(exists("through"));
    assert_false(exists("d/through"));
    assert_true(exists("d/fine"));
    assert_false(exists("f"));
}

static void a_link_that_is_there_is_replaced_not_written_through(void **state) {
    (void)state;
    struct err err;
    size_t skipped;
    _cleanup_(free) char *victim = xasprintf("%s/victim", home);
    int fd = open(victim, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(write(fd, "safe", 4), 4);
    close(fd);
    assert_int_equal(symlinkat(victim, in, "f"), 0);
    assert_int_equal(symlinkat("..", in, "d"), 0);
    add("f", '0', "", 0644, "mine");
    add("d/victim", '0', "", 0644, "mine");
    assert_int_equal(unpack(512, &skipped, &err), 0);
    assert_content("f", "mine");
    assert_content("../victim", "safe");
    assert_int_equal(skipped, 1);
}

static void what_is_neither_file_nor_folder_nor_link_is_left_out(void **state) {
    (void)state;
    struct err err;
    size_t skipped;
    add("hard", '1', "../victim", 0644, NULL);
    add("char", '3', "", 0666, NULL);
    add("block", '4', "", 0666, NULL);
    add("fifo", '6', "", 0666, NULL);
    assert_int_equal(unpack(512, &skipped, &err), 0);
    assert_int_equal(skipped, 4);
    assert_false(exists("hard") || exists("char") || exists("block") || exists("fifo"));
}

static void long_names_of_both_kinds(void **state) {
    (void)state;
    struct err err;
    size_t skipped;
    char name[151];
    char pax[256];
    memset(name, 'n', 150);
    name[150] = 0;
    add("././@LongLink", 'L', "", 0, name);
    add("short", '0', "", 0644, "gnu");
    (void)snprintf(pax, sizeof(pax), "30 mtime=1350244992.023960108\n160 path=%.*s\n", 150, name);
    pax[30 + 9] = 'p'; /* another name */
    add("pax", 'x', "", 0, pax);
    add("short", '0', "", 0644, "pax");
    assert_int_equal(unpack(512, &skipped, &err), 0);
    assert_content(name, "gnu");
    name[0] = 'p';
    assert_content(name, "pax");
    assert_false(exists("short"));
}

static void what_is_broken_is_said(void **state) {
    (void)state;
    struct err err;
    size_t skipped;
    struct untar t;
    add("f", '0', "", 0644, "hello");
    untar_init(&t, in);
    assert_int_equal(untar_feed(&t, a.data, 514, &err), 0);
    assert_int_equal(untar_end(&t, &err), -ERR_IO);
    untar_finish(&t);
    a.data[0] ^= 1;
    assert_int_equal(unpack(512, &skipped, &err), -ERR_PROTOCOL);
    buf_clear(&a);
    static const char *const records[] = {"999 path=x\n", "5 p=\n", "x", "0 path=x\n", "7 path\n"};
    for (size_t i = 0; i < ARRAY_LEN(records); i++)
        add("x", 'x', "", 0, records[i]);
    add("g", '0', "", 0644, "still read");
    assert_int_equal(unpack(512, &skipped, &err), 0);
    assert_content("g", "still read");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(unpacks_files_folders_and_links_however_they_are_cut),
        UNIT(nothing_gets_out),
        UNIT(a_link_that_is_there_is_replaced_not_written_through),
        UNIT(what_is_neither_file_nor_folder_nor_link_is_left_out),
        UNIT(long_names_of_both_kinds),
        UNIT(what_is_broken_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
