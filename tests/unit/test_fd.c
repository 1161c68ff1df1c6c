#include "base/buf.h"
#include "base/fd.h"
#include "unit/fds.h"
#include "unit/unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_close_forgets(void **state) {
    (void)state;
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int copy = fd;
    fd_close(&fd);
    assert_int_equal(fd, -1);
    assert_int_equal(fcntl(copy, F_GETFD), -1);
    fd_close(&fd);
}

static void test_pairs_are_closed_on_exec(void **state) {
    (void)state;
    int pair[2];
    assert_int_equal(fd_pair(pair, NULL), 0);
    assert_int_equal(fcntl(pair[0], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fcntl(pair[1], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fd_set_cloexec(pair[0], false), 0);
    assert_int_equal(fcntl(pair[0], F_GETFD) & FD_CLOEXEC, 0);
    assert_int_equal(fd_set_nonblock(pair[0], true), 0);
    assert_int_equal(fcntl(pair[0], F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    assert_int_equal(fd_set_nonblock(-1, true), -1);
    fd_close(&pair[0]);
    fd_close(&pair[1]);
}

static void test_whole_reads_and_writes(void **state) {
    (void)state;
    int pair[2];
    char in[10];
    assert_int_equal(fd_pair(pair, NULL), 0);
    assert_int_equal(fd_write_all(pair[0], "hello", 5), 0);
    fd_close(&pair[0]);
    assert_int_equal(fd_read_all(pair[1], in, sizeof(in)), 5);
    assert_int_equal(fd_read_all(pair[1], in, sizeof(in)), 0);
    fd_close(&pair[1]);
    assert_int_equal(fd_read_all(-1, in, 1), -1);
    assert_int_equal(fd_write_all(-1, in, 1), -1);
}

static void test_all_but_some_are_closed(void **state) {
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 10; i < 30; i++)
            (void)dup2(0, i);
        int keep[] = {25, 3, 12, 13};
        fd_close_others(10, keep, 4);
        int bad = 0;
        for (int i = 10; i < 30; i++) {
            bool is_open = fcntl(i, F_GETFD) >= 0;
            bad += is_open != (i == 12 || i == 13 || i == 25);
        }
        _exit(bad);
    }
    int st;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_int_equal(st, 0);
}

static void test_files_are_read_up_to_a_bound(void **state) {
    (void)state;
    char name[] = "/tmp/cay-unit-XXXXXX";
    int fd = mkstemp(name);
    assert_int_equal(fd_write_all(fd, "0123456789", 10), 0);
    close(fd);
    size_t before = fds_open();
    struct buf b;
    struct err e;
    buf_init(&b, 10);
    assert_int_equal(fd_read_file(AT_FDCWD, name, &b, &e), 0);
    assert_string_equal(b.data, "0123456789");
    buf_finish(&b);
    buf_init(&b, 9);
    assert_int_equal(fd_read_file(AT_FDCWD, name, &b, &e), -ERR_TOO_LARGE);
    buf_finish(&b);
    (void)unlink(name);
    assert_int_equal(fd_read_file(AT_FDCWD, name, &b, &e), -ERR_IO);
    assert_int_equal(fds_open(), before);
    buf_finish(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(test_close_forgets),
        PLAIN(test_pairs_are_closed_on_exec),
        PLAIN(test_whole_reads_and_writes),
        PLAIN(test_all_but_some_are_closed),
        PLAIN(test_files_are_read_up_to_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
