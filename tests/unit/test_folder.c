#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/cli/folder.h"
#include "unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* home/in is the folder; home/out is what nothing may reach. */
static char *home;
static int in, out;
static struct err err;

static int setup(void **state) {
    (void)state;
    char name[] = "/tmp/cay-folder-XXXXXX";
    assert_non_null(mkdtemp(name));
    home = xstrdup(name);
    _cleanup_(close) int fd = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(fd, "in", 0755), 0);
    assert_int_equal(mkdirat(fd, "out", 0755), 0);
    in = openat(fd, "in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    out = openat(fd, "out", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    close(in);
    close(out);
    assert_int_equal(path_remove_tree(home, &err), 0);
    free(home);
    return 0;
}

static int put(const char *path, const char *text, bool replace) {
    struct folder_file f;
    int rc = folder_begin(in, path, 0666, &f, &err);
    if (rc < 0)
        return rc;
    assert_int_equal(fd_write_all(f.fd, text, strlen(text)), 0);
    return folder_commit(&f, replace, &err);
}

static void assert_content(int dir, const char *path, const char *expected) {
    char text[64] = "";
    _cleanup_(close) int fd = openat(dir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    assert_true(fd >= 0 && fd_read_all(fd, text, sizeof(text) - 1) >= 0);
    assert_string_equal(text, expected);
}

static bool is_there(int dir, const char *path) {
    struct stat st;
    return fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void files_are_written_and_replaced_in_one_step(void **state) {
    (void)state;
    assert_int_equal(put("a/b/c", "one", false), 0);
    assert_content(in, "a/b/c", "one");
    assert_int_equal(put("a/b/c", "two", false), -ERR_CONFLICT);
    assert_content(in, "a/b/c", "one");
    assert_int_equal(put("a/b/c", "two", true), 0);
    assert_content(in, "a/b/c", "two");
    assert_int_equal(put("a/b", "x", true), -ERR_CONFLICT); /* a folder */
    assert_int_equal(folder_remove(in, "a/b/c", &err), 0);
    folder_tidy(in, "a/b/c");
    assert_false(is_there(in, "a"));
}

static void no_name_leads_out(void **state) {
    (void)state;
    static const char *const names[] = {"../x", "a/../../x", "/tmp/x", "..", "", "/", "a/..", "."};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (put(names[i], "x", true) != -ERR_FORBIDDEN)
            fail_msg("'%s' is taken", names[i]);
        assert_int_equal(folder_remove(in, names[i], &err), -ERR_FORBIDDEN);
    }
}

static void no_link_is_followed(void **state) {
    (void)state;
    _cleanup_(close) int file = openat(out, "file", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    assert_int_equal(fd_write_all(file, "mine", 4), 0);
    assert_int_equal(symlinkat("../out", in, "dir"), 0);
    assert_int_equal(symlinkat("../out/file", in, "link"), 0);
    assert_int_equal(symlinkat("/proc/self/root", in, "magic"), 0);
    assert_int_equal(put("dir/x", "x", true), -ERR_FORBIDDEN);
    assert_int_equal(put("dir/file", "x", true), -ERR_FORBIDDEN);
    assert_int_equal(put("magic/tmp/x", "x", true), -ERR_FORBIDDEN);
    assert_int_equal(folder_remove(in, "dir/file", &err), -ERR_FORBIDDEN);
    assert_int_equal(put("link", "x", true), 0); /* replaced, not written through */
    assert_content(out, "file", "mine");
    assert_content(in, "link", "x");
    assert_int_equal(linkat(out, "file", in, "hard", 0), 0);
    assert_int_equal(put("hard", "x", true), 0);
    assert_content(out, "file", "mine");
}

static void links_stay_inside(void **state) {
    (void)state;
    static const struct {
        const char *path, *target;
        bool inside;
    } cases[] = {{"a", "b", true},          {"d/a", "../b", true},       {"a", "../b", false},
                 {"a", "/etc", false},      {"d/a", "../../x", false},   {"a", "b/../../c", false},
                 {"a", "", false},          {"a", ".git/config", false}, {"a", "x/.GIT", false},
                 {"d/e/a", "../../b", true}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (folder_link_is_inside(cases[i].path, cases[i].target) != cases[i].inside)
            fail_msg("%s -> %s", cases[i].path, cases[i].target);
    assert_int_equal(folder_link(in, "a", "../out", false, &err), -ERR_FORBIDDEN);
    assert_int_equal(folder_link(in, "d/a", "../b", false, &err), 0);
    assert_false(is_there(in, "a"));
}

static void nothing_becomes_a_repository(void **state) {
    (void)state;
    static const char *const names[] = {".git", ".git/config", "a/.GIT/x", "GIT~1", "x/.gIt"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_int_equal(put(names[i], "x", true), -ERR_FORBIDDEN);
    assert_int_equal(folder_make(in, "b/.git", &err), -ERR_FORBIDDEN);
    /* In any order, the last that is missing is refused. */
    static const char *const orders[][3] = {{"p/HEAD", "p/objects/x", "p/refs/x"},
                                            {"q/refs/x", "q/HEAD", "q/objects/x"},
                                            {"r/objects/x", "r/refs/x", "r/HEAD"},
                                            {"s/x", "s/commondir", "s/HEAD"},
                                            {"t/HEAD", "t/x", "t/commondir"}};
    for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
        assert_int_equal(put(orders[i][0], "x", true), 0);
        assert_int_equal(put(orders[i][1], "x", true), 0);
        assert_int_equal(put(orders[i][2], "x", true), -ERR_FORBIDDEN);
        assert_false(is_there(in, orders[i][2]));
    }
    /* One that is there is not changed. */
    assert_int_equal(mkdirat(in, "p/refs", 0755), 0);
    assert_int_equal(put("p/config", "x", true), -ERR_FORBIDDEN);
    assert_int_equal(put("p/hooks/x", "x", true), -ERR_FORBIDDEN);
    assert_int_equal(folder_link(in, "p/config", "HEAD", true, &err), -ERR_FORBIDDEN);
}

static void what_is_given_up_leaves_nothing(void **state) {
    (void)state;
    struct folder_file f;
    assert_int_equal(folder_begin(in, "x", 0666, &f, &err), 0);
    folder_cancel(&f);
    assert_int_equal(put("d", "x", true), 0);
    assert_int_equal(put("d/x", "x", true), -ERR_FORBIDDEN);
    assert_int_equal(folder_remove(in, "d", &err), 0);
    _cleanup_(free) char *path = path_join(home, "in");
    assert_int_equal(rmdir(path), 0); /* it is empty */
    assert_int_equal(mkdir(path, 0755), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(files_are_written_and_replaced_in_one_step),
        UNIT(no_name_leads_out),
        UNIT(no_link_is_followed),
        UNIT(links_stay_inside),
        UNIT(nothing_becomes_a_repository),
        UNIT(what_is_given_up_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
