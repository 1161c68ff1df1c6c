#include "base/fd.h"
#include "base/path.h"
#include "unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];
static int dirfd_;

/* dir/inside, dir/sub/deep, links that lead in and out; beside it a file that nobody may reach. */
static int setup(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/cay-unit-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    char path[200];
    (void)snprintf(path, sizeof(path), "%s/box", dir);
    (void)mkdir(path, 0700);
    dirfd_ = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    (void)mkdirat(dirfd_, "sub", 0700);
    close(openat(dirfd_, "inside", O_CREAT | O_WRONLY, 0600));
    close(openat(dirfd_, "sub/deep", O_CREAT | O_WRONLY, 0600));
    close(openat(dirfd_, "../secret", O_CREAT | O_WRONLY, 0600));
    (void)snprintf(path, sizeof(path), "%s/secret", dir);
    assert_int_equal(symlinkat(path, dirfd_, "absolute"), 0);
    assert_int_equal(symlinkat("../secret", dirfd_, "relative"), 0);
    assert_int_equal(symlinkat("sub/deep", dirfd_, "within"), 0);
    assert_int_equal(symlinkat("..", dirfd_, "up"), 0);
    assert_int_equal(symlinkat("/proc/self/root/etc/passwd", dirfd_, "magic"), 0);
    assert_int_equal(symlinkat("loop", dirfd_, "loop"), 0);
    return dirfd_ < 0 ? -1 : 0;
}

static int teardown(void **state) {
    (void)state;
    static const char *const names[] = {"inside", "sub/deep", "absolute", "relative", "within",
                                        "up",     "magic",    "loop",     "made",     "../secret"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        (void)unlinkat(dirfd_, names[i], 0);
    (void)unlinkat(dirfd_, "sub", AT_REMOVEDIR);
    (void)unlinkat(dirfd_, "../box", AT_REMOVEDIR);
    fd_close(&dirfd_);
    return rmdir(dir);
}

static void opens(const char *path) {
    int fd = path_open_beneath(dirfd_, path, O_RDONLY, 0);
    if (fd < 0)
        fail_msg("%s: %s", path, strerror(errno));
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    close(fd);
}

static void test_what_is_beneath_opens(void **state) {
    (void)state;
    opens("inside");
    opens("sub/deep");
    opens("sub/../inside");
    opens("./sub/./deep");
    opens("within");
}

/* The kernel cannot tell whether a rename anywhere on the machine changed what ".." means. */
static void test_renames_elsewhere_do_not_fail_a_step_up(void **state) {
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (child == 0) {
        (void)renameat(dirfd_, "../secret", dirfd_, "../moved");
        (void)renameat(dirfd_, "../moved", dirfd_, "../secret");
    }
    for (int i = 0; i < 50000; i++)
        opens("sub/../inside");
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    (void)renameat(dirfd_, "../moved", dirfd_, "../secret");
}

static void test_nothing_leads_out(void **state) {
    (void)state;
    char secret[100];
    char inside[100];
    (void)snprintf(secret, sizeof(secret), "%s/secret", dir);
    (void)snprintf(inside, sizeof(inside), "%s/box/inside", dir);
    const char *const out[] = {"../secret",
                               "absolute",
                               "relative",
                               "up/secret",
                               "up",
                               "magic",
                               "/etc/passwd",
                               "..",
                               "sub/../../secret",
                               "loop",
                               secret,
                               inside,
                               "/proc/self/root/etc/passwd",
                               "",
                               "inside/x"};
    for (size_t i = 0; i < sizeof(out) / sizeof(out[0]); i++) {
        int fd = path_open_beneath(dirfd_, out[i], O_RDONLY, 0);
        if (fd >= 0)
            fail_msg("opened %s", out[i]);
        fd = path_open_beneath(dirfd_, out[i], O_WRONLY | O_CREAT, 0600);
        if (fd >= 0)
            fail_msg("made %s", out[i]);
    }
}

static void test_files_are_made_with_the_mode(void **state) {
    (void)state;
    mode_t old = umask(0);
    int fd = path_open_beneath(dirfd_, "made", O_WRONLY | O_CREAT | O_EXCL, 0640);
    (void)umask(old);
    assert_true(fd >= 0);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    close(fd);
}

static void test_folders_are_made_with_their_parents(void **state) {
    (void)state;
    struct err e;
    char path[200];
    (void)snprintf(path, sizeof(path), "%s/box/sub/a//b/c/", dir);
    assert_int_equal(path_mkdirs(path, 0700, &e), 0);
    assert_int_equal(path_mkdirs(path, 0700, &e), 0);
    assert_int_equal(path_mkdirs("/", 0700, &e), 0);
    assert_int_equal(path_mkdirs("", 0700, &e), -ERR_IO);
    (void)snprintf(path, sizeof(path), "%s/box/inside", dir);
    assert_int_equal(path_mkdirs(path, 0700, &e), -ERR_IO);
    (void)snprintf(path, sizeof(path), "%s/box/inside/x", dir);
    assert_int_equal(path_mkdirs(path, 0700, &e), -ERR_IO);
    (void)unlinkat(dirfd_, "sub/a/b/c", AT_REMOVEDIR);
    (void)unlinkat(dirfd_, "sub/a/b", AT_REMOVEDIR);
    (void)unlinkat(dirfd_, "sub/a", AT_REMOVEDIR);
}

static void test_names_and_joins(void **state) {
    (void)state;
    assert_true(path_is_plain_name("a", 1));
    assert_true(path_is_plain_name("...", 3));
    assert_true(path_is_plain_name(".a", 2));
    assert_false(path_is_plain_name("", 0));
    assert_false(path_is_plain_name(".", 1));
    assert_false(path_is_plain_name("..", 2));
    assert_false(path_is_plain_name("a/b", 3));
    assert_false(path_is_plain_name("a\0b", 3));
    char name[300];
    memset(name, 'n', sizeof(name));
    assert_true(path_is_plain_name(name, 255));
    assert_false(path_is_plain_name(name, 256));
    char *p = path_join("/a", "b");
    assert_string_equal(p, "/a/b");
    free(p);
    p = path_join("/", "b");
    assert_string_equal(p, "/b");
    free(p);
    p = path_self_dir();
    assert_non_null(strstr(p, "/tests"));
    free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_what_is_beneath_opens),
        UNIT(test_renames_elsewhere_do_not_fail_a_step_up),
        UNIT(test_nothing_leads_out),
        UNIT(test_files_are_made_with_the_mode),
        UNIT(test_folders_are_made_with_their_parents),
        UNIT(test_names_and_joins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
