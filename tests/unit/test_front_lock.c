#include "base/fd.h"
#include "front/common/lock.h"
#include "lock/sanitized.h"
#include "loop/init.h"
#include "loop/spawner.h"
#include "unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Each returns what a system call does: negative with errno, or not. */

static long do_fork(void) {
    return syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}
static long do_exec(void) {
    char *argv[] = {(char *)"true", NULL};
    return execve("/bin/true", argv, argv + 1);
}
static long do_mount(void) {
    return mount("none", "/tmp", "tmpfs", 0, NULL);
}
static long do_unshare(void) {
    return unshare(CLONE_NEWUSER);
}
static long do_ptrace(void) {
    return ptrace(PTRACE_ATTACH, getppid(), NULL, NULL);
}
static long do_bpf(void) {
    return syscall(SYS_bpf, 0, NULL, 0);
}
static long do_uring(void) {
    return syscall(SYS_io_uring_setup, 1, NULL);
}
static long do_packet(void) {
    return socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
}
static long do_code(void) {
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                0) == MAP_FAILED
               ? -1
               : 0;
}
static long do_limit(void) {
    struct rlimit r = {1, 1};
    return setrlimit(RLIMIT_CORE, &r);
}
static long do_setuid(void) {
    return setresuid(1, 1, 1);
}
static long do_memory_of_others(void) {
    return syscall(SYS_process_vm_readv, getppid(), NULL, 0, NULL, 0, 0);
}

/* The child that tries: 0 if all of it is as it should be, else the number of what is not. */
static int try_forbidden(void) {
    static long (*const calls[])(void) = {do_fork,   do_exec,  do_mount,  do_unshare,
                                          do_ptrace, do_bpf,   do_uring,  do_packet,
                                          do_code,   do_limit, do_setuid, do_memory_of_others};
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        errno = 0;
        if (calls[i]() >= 0 || errno != EPERM)
            return (int)i + 1;
    }
    return 0;
}

static int in_locked(int (*fn)(void)) {
    pid_t pid = fork();
    if (pid == 0) {
        struct err err;
        if (front_lock_calls(&err) < 0)
            _exit(100);
        _exit(fn());
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 200 + WTERMSIG(status);
}

static void test_what_the_front_does_not_need_is_refused(void **state) {
    (void)state;
    if (SANITIZED)
        return;
    assert_int_equal(in_locked(try_forbidden), 0);
}

static void *in_thread(void *ctx) {
    *(long *)ctx = !SANITIZED && (do_fork() >= 0 || errno != EPERM);
    return NULL;
}

static int try_allowed(void) {
    pthread_t t;
    long wrong = 1;
    char path[] = "/tmp/cay-lock-XXXXXX";
    if (pthread_create(&t, NULL, in_thread, &wrong) != 0 || pthread_join(t, NULL) != 0 || wrong)
        return 1;
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, "x", 1) != 1 || fdatasync(fd) < 0 || unlink(path) < 0)
        return 2;
    int pair[2];
    struct err err;
    return fd_pair(pair, &err) < 0 || write(pair[0], "x", 1) != 1 ? 3 : 0;
}

static void test_what_it_needs_is_not(void **state) {
    (void)state;
    assert_int_equal(in_locked(try_allowed), 0);
}

static int exit_status = -1;

static void on_exit_(void *ctx, int wait_status, const struct rusage *usage) {
    (void)ctx;
    (void)usage;
    exit_status = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 200;
}

/* The program is not locked: it can do what the front cannot. */
static int start_a_program(void) {
    uv_loop_t loop = {0};
    struct spawner *s = NULL;
    struct child *c;
    struct err err;
    int channel;
    int spawn = open(getenv("CAY_SPAWN"), O_PATH | O_CLOEXEC);
    int sh = open("/bin/sh", O_PATH | O_CLOEXEC);
    static const char *const args[] = {"-c", "/bin/true && exit 7", NULL};
    if (loop_init(&loop) != 0 || spawner_start(&loop, spawn, &s, &err) < 0 ||
        front_lock_calls(&err) < 0)
        return 50;
    struct child_options o = {.name = "sh", .exec_fd = sh, .args = args, .on_exit = on_exit_};
    if (child_spawn(&loop, &o, &c, &channel, &err) < 0)
        return 51;
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return exit_status;
}

static void test_programs_are_started_without_its_filter(void **state) {
    (void)state;
    pid_t pid = fork();
    if (pid == 0)
        _exit(start_a_program());
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
}

/* What a ring does no filter sees. */
static void test_its_loop_has_no_ring(void **state) {
    (void)state;
    uv_loop_t loop;
    assert_int_equal(loop_init(&loop), 0);
    for (int fd = 0; fd < 256; fd++) {
        char path[64];
        char name[64] = "";
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (readlink(path, name, sizeof(name) - 1) > 0)
            assert_null(strstr(name, "io_uring"));
    }
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_its_loop_has_no_ring),
        PLAIN(test_what_the_front_does_not_need_is_refused),
        PLAIN(test_what_it_needs_is_not),
        PLAIN(test_programs_are_started_without_its_filter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
