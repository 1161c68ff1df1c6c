#include "base/fd.h"
#include "base/log.h"
#include "loop/child.h"
#include "loop/spawner.h"
#include "unit/fds.h"
#include "unit/unit.h"
#include "until.h"
#include "wire/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static uv_loop_t loop;
static int helper;
static int spawn_fd = -1; /* if children are started by a spawner */
static struct spawner *spawner;
static size_t before;
static int exits;
static int status;

static int setup(void **state) {
    (void)state;
    before = fds_open();
    exits = 0;
    status = -1;
    const char *path = getenv("LOOP_HELPER");
    helper = open(path ? path : "", O_PATH | O_CLOEXEC);
    return helper < 0 ? -1 : uv_loop_init(&loop);
}

static int setup_spawned(void **state) {
    struct err e;
    if (setup(state) < 0)
        return -1;
    const char *path = getenv("CAY_SPAWN");
    spawn_fd = open(path ? path : "", O_PATH | O_CLOEXEC);
    return spawn_fd < 0 ? -1 : spawner_start(&loop, spawn_fd, &spawner, &e);
}

static int teardown(void **state) {
    (void)state;
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    spawner_stop(spawner);
    spawner = NULL;
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    fd_close(&spawn_fd);
    fd_close(&helper);
    return uv_loop_close(&loop) == 0 && fds_open() == before ? 0 : -1;
}

static void on_exit_(void *ctx, int wait_status, const struct rusage *usage) {
    (void)ctx;
    (void)usage;
    exits++;
    status = wait_status;
}

static struct child *spawn(const char *const *args, const int *fds, size_t nfds, int *ret_fd) {
    struct child_options o = {.name = "helper",
                              .exec_fd = helper,
                              .args = args,
                              .fds = fds,
                              .nfds = nfds,
                              .on_exit = on_exit_};
    struct child *c = NULL;
    struct err e;
    assert_int_equal(child_spawn(&loop, &o, &c, ret_fd, &e), 0);
    return c;
}

static void test_a_child_is_born_with_nothing_else(void **state) {
    (void)state;
    static const char *const args[] = {"report", NULL};
    (void)setenv("SECRET", "x", 1);
    /* Descriptors without CLOEXEC, low and high ones, must not get through either. */
    int stray = dup2(0, 40);
    int high = dup2(0, 300);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction old;
    (void)sigaction(SIGPIPE, &ignore, &old);
    int more[2] = {0, 2};
    int fd;
    (void)spawn(args, more, 2, &fd);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(exits, 1);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    struct wire_reader r;
    struct wire_frame f;
    struct err e;
    char text[1000] = "";
    wire_reader_init(&r, 1000);
    assert_int_equal(wire_read(&r, fd, &f, &e), 1);
    memcpy(text, f.data, f.len);
    char wanted[200];
    (void)snprintf(wanted, sizeof(wanted),
                   "env=0 death=9 term_blocked=0 pipe_ignored=0 uid=%u fds=0,1,2,3,4,5,",
                   (unsigned)getuid());
    assert_string_equal(text, wanted);
    wire_reader_finish(&r);
    close(fd);
    close(stray);
    close(high);
    (void)sigaction(SIGPIPE, &old, NULL);
}

static void test_how_it_ended_is_told(void **state) {
    (void)state;
    static const char *const args[] = {"exit", "7", NULL};
    static const char *const stubborn[] = {"stubborn", NULL};
    char text[64];
    int fd;
    (void)spawn(args, NULL, 0, &fd);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_string_equal(child_status_text(status, text, sizeof(text)), "exit status 7");
    close(fd);
    struct child *c = spawn(stubborn, NULL, 0, &fd);
    assert_true(child_pid(c) > 0);
    child_kill(c, SIGTERM);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_string_equal(child_status_text(status, text, sizeof(text)), "signal 15 (Terminated)");
    assert_int_equal(exits, 2);
    close(fd);
}

static void test_a_program_that_is_none_ends_with_127(void **state) {
    (void)state;
    int fd;
    int good = helper;
    helper = open("/etc/passwd", O_PATH | O_CLOEXEC);
    (void)spawn(NULL, NULL, 0, &fd);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 127);
    close(fd);
    fd_close(&helper);
    helper = good;
}

static void test_too_many_descriptors_are_refused(void **state) {
    (void)state;
    int fds[CHILD_FDS_MAX + 1] = {0};
    struct child_options o = {.name = "helper",
                              .exec_fd = helper,
                              .fds = fds,
                              .nfds = CHILD_FDS_MAX + 1,
                              .on_exit = on_exit_};
    struct child *c;
    struct err e;
    int fd;
    assert_int_equal(child_spawn(&loop, &o, &c, &fd, &e), -ERR_INTERNAL);
}

static void test_an_abandoned_child_dies_and_is_reaped(void **state) {
    (void)state;
    static const char *const stubborn[] = {"stubborn", NULL};
    int fd;
    struct child *c = spawn(stubborn, NULL, 0, &fd);
    pid_t pid = child_pid(c);
    child_abandon(c);
    child_abandon(NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(exits, 0);
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
    close(fd);
}

static void test_its_standard_error_is_in_our_log(void **state) {
    (void)state;
    static const char *const args[] = {"stderr", NULL};
    int p[2];
    int fd;
    assert_int_equal(pipe2(p, O_NONBLOCK), 0);
    int old = dup(2);
    (void)dup2(p[1], 2);
    log_init("front", LOG_LEVEL_INFO);
    (void)spawn(args, NULL, 0, &fd);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    (void)dup2(old, 2);
    char text[8000];
    ssize_t n = read(p[0], text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = 0;
    close(p[0]);
    close(p[1]);
    close(old);
    close(fd);
    assert_non_null(strstr(text, "\"level\":\"warn\",\"program\":\"front\",\"event\":\"help.me\","
                                 "\"child\":\"helper\",\"n\":7,\"s\":\"v\",\"b\":true}"));
    assert_non_null(
        strstr(text, "\"event\":\"child.stderr\",\"child\":\"helper\",\"text\":\"plain words\""));
    assert_non_null(strstr(text, "\"text\":\"no newline at the end\""));
    assert_null(strstr(text, "\"event\":\"sneaky\"")); /* it has no level: shown as text */
}

static void test_children_die_with_their_parent(void **state) {
    (void)state;
    int p[2];
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    pid_t middle = fork();
    if (middle == 0) {
        static const char *const stubborn[] = {"stubborn", NULL};
        uv_loop_t own = {0};
        struct child *c;
        struct err e;
        int fd;
        struct child_options o = {
            .name = "helper", .exec_fd = helper, .args = stubborn, .on_exit = on_exit_};
        struct spawner *own_spawner = NULL;
        (void)uv_loop_init(&own);
        if (spawner && spawner_start(&own, spawn_fd, &own_spawner, &e) < 0)
            _exit(1);
        if (child_spawn(&own, &o, &c, &fd, &e) < 0)
            _exit(1);
        struct wire_reader r;
        struct wire_frame f;
        wire_reader_init(&r, 1000);
        (void)wire_read(&r, fd, &f, &e); /* it runs */
        pid_t pid = child_pid(c);
        (void)fd_write_all(p[1], &pid, sizeof(pid));
        for (;;)
            (void)pause();
    }
    close(p[1]);
    pid_t pid = 0;
    assert_int_equal(fd_read_all(p[0], &pid, sizeof(pid)), sizeof(pid));
    close(p[0]);
    /* Who reaps it, and when, is not known here. */
    struct pollfd gone = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    assert_true(gone.fd >= 0);
    assert_int_equal(kill(middle, SIGKILL), 0);
    assert_int_equal(waitpid(middle, NULL, 0), middle);
    assert_int_equal(poll(&gone, 1, UNTIL_MS), 1);
    close(gone.fd);
}

/* The halves of the spawner that live. */
static size_t halves(pid_t ret[8]) {
    char path[64];
    char text[4096] = "";
    size_t n = 0;
    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    close(fd);
    text[got > 0 ? got : 0] = 0;
    char *end = text;
    for (long pid; n < 8 && (pid = strtol(end, &end, 10)) > 0;) {
        char stat[400] = "";
        (void)snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t len = fd < 0 ? 0 : read(fd, stat, sizeof(stat) - 1);
        close(fd);
        if (len > 0 && strstr(stat, "(cay-spawn)") && !strstr(stat, ") Z "))
            ret[n++] = (pid_t)pid;
    }
    return n;
}

static void wait_for_both(pid_t pids[8]) {
    assert_true(UNTIL(halves(pids) == 2));
}

static void test_either_half_of_the_spawner_may_be_killed(void **state) {
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        pid_t pids[8];
        int fd;
        wait_for_both(pids);
        struct pollfd gone = {.fd = (int)syscall(SYS_pidfd_open, pids[i % 2], 0), .events = POLLIN};
        assert_true(gone.fd >= 0);
        assert_int_equal(kill(pids[i % 2], SIGKILL), 0);
        exits = 0;
        (void)spawn(NULL, NULL, 0, &fd);
        close(fd);
        while (exits == 0)
            (void)uv_run(&loop, UV_RUN_ONCE);
        assert_true(WIFEXITED(status));
        assert_int_equal(poll(&gone, 1, UNTIL_MS), 1);
        close(gone.fd);
    }
}

static void test_without_its_spawner_nothing_is_started(void **state) {
    (void)state;
    pid_t pids[8];
    struct child *c;
    struct err e;
    int fd;
    wait_for_both(pids);
    /* They stop first, so that they make no other; one may have been about to. */
    size_t n;
    for (int tries = 0; (n = halves(pids)) > 0; tries++) {
        assert_true(tries < 1000);
        for (size_t i = 0; i < n; i++)
            (void)kill(pids[i], SIGSTOP);
        (void)usleep(1000);
        for (size_t i = 0; i < n; i++)
            (void)kill(pids[i], SIGKILL);
        (void)usleep(2000);
    }
    struct child_options o = {.name = "helper", .exec_fd = helper, .on_exit = on_exit_};
    assert_true(child_spawn(&loop, &o, &c, &fd, &e) < 0);
    assert_non_null(strstr(e.message, "spawner"));
}

#define SPAWNED(test)                                                                              \
    { "spawned_" #test, test, setup_spawned, teardown, NULL }

int main(void) {
    const struct CMUnitTest tests[] = {
        SPAWNED(test_a_child_is_born_with_nothing_else),
        SPAWNED(test_how_it_ended_is_told),
        SPAWNED(test_a_program_that_is_none_ends_with_127),
        SPAWNED(test_an_abandoned_child_dies_and_is_reaped),
        SPAWNED(test_its_standard_error_is_in_our_log),
        SPAWNED(test_children_die_with_their_parent),
        SPAWNED(test_either_half_of_the_spawner_may_be_killed),
        SPAWNED(test_without_its_spawner_nothing_is_started),
        UNIT(test_a_child_is_born_with_nothing_else),
        UNIT(test_how_it_ended_is_told),
        UNIT(test_a_program_that_is_none_ends_with_127),
        UNIT(test_too_many_descriptors_are_refused),
        UNIT(test_an_abandoned_child_dies_and_is_reaped),
        UNIT(test_its_standard_error_is_in_our_log),
        UNIT(test_children_die_with_their_parent),
    };
    /* The first loop of a process opens descriptors that stay. */
    (void)uv_loop_init(&loop);
    (void)uv_loop_close(&loop);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
