/* What a facet can no longer do once it is locked, and what the real process shows of it. */

#include "base/cleanup.h"
#include "client.h"
#include "facet/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/cay-facet-lock.XXXXXX";

/* Runs fn in a locked child: its exit status, or 1000 + the signal. */
static int locked(int (*lock)(struct err *), int (*fn)(void)) {
    pid_t pid = fork();
    if (pid == 0) {
        struct err err;
        uint32_t abi;
        int dir = open(folder, O_RDONLY | O_DIRECTORY);
        if (facet_lock_process(&err) < 0 || fchdir(dir) < 0 ||
            facet_lock_folder(dir, &abi, &err) < 0 || (lock && lock(&err) < 0))
            _exit(99);
        _exit(fn());
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int open_outside(void) {
    return open("/etc/passwd", O_RDONLY) < 0 ? errno : 0;
}

static int make_outside(void) {
    return open("../cay-facet-outside", O_WRONLY | O_CREAT, 0600) < 0 ? errno : 0;
}

static int link_outside(void) {
    return open("link", O_RDONLY) < 0 ? errno : 0;
}

static int open_inside(void) {
    return open("inside", O_RDWR | O_CREAT, 0600) < 0 ? errno : 0;
}

static int execute(void) {
    execl("/bin/true", "true", (char *)NULL);
    return errno;
}

static int internet(void) {
    return socket(AF_INET, SOCK_STREAM, 0) < 0 ? errno : 0;
}

static int local_socket(void) {
    return socket(AF_UNIX, SOCK_STREAM, 0) < 0 ? errno : 0;
}

static int pair_of_another_family(void) {
    int p[2];
    return socketpair(AF_TIPC, SOCK_STREAM, 0, p) < 0 ? errno : 0;
}

static int local_pair(void) {
    int p[2];
    return socketpair(AF_UNIX, SOCK_STREAM, 0, p) < 0 ? errno : 0;
}

static int executable_memory(void) {
    return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED
               ? errno
               : 0;
}

static int memory(void) {
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
                   MAP_FAILED
               ? errno
               : 0;
}

static int memory_file(void) {
    return memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING) < 0 ? errno : 0;
}

static int open_memory_file(void) {
    return memfd_create("x", 0) < 0 ? errno : 0;
}

static int new_process(void) {
    return fork() < 0 ? errno : 0;
}

static int trace(void) {
    return ptrace(PTRACE_ATTACH, getppid(), NULL, NULL) < 0 ? errno : 0;
}

static int kill_parent(void) {
    return kill(getppid(), 0) < 0 ? errno : 0;
}

static void only_its_folder_can_be_opened(void **state) {
    (void)state;
    assert_int_equal(locked(NULL, open_inside), 0);
    struct err err;
    uint32_t abi = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(facet_lock_folder(AT_FDCWD, &abi, &err) == 0 && abi == 0);
    int status;
    (void)waitpid(pid, &status, 0);
    if (WEXITSTATUS(status) == 1) {
        (void)fprintf(stderr, "not checked: the kernel has no Landlock\n");
        return;
    }
    assert_int_equal(locked(NULL, open_outside), EACCES);
    assert_int_equal(locked(NULL, make_outside), EACCES);
    assert_int_equal(locked(NULL, link_outside), EACCES);
    assert_int_equal(locked(NULL, execute), EACCES);
}

static void what_is_not_listed_ends_the_process(void **state) {
    (void)state;
    if (facet_lock_is_relaxed()) {
        (void)fprintf(stderr, "not checked: the sanitizer needs system calls of its own\n");
        return;
    }
    static const struct {
        const char *name;
        int (*fn)(void);
        int opening;
        int running;
    } CASES[] = {
        {"internet", internet, 1000 + SIGSYS, 1000 + SIGSYS},
        {"local socket", local_socket, 1000 + SIGSYS, 1000 + SIGSYS},
        {"pair of another family", pair_of_another_family, 1000 + SIGSYS, 1000 + SIGSYS},
        {"local pair", local_pair, 0, 0},
        {"exec", execute, 1000 + SIGSYS, 1000 + SIGSYS},
        {"fork", new_process, 1000 + SIGSYS, 1000 + SIGSYS},
        {"ptrace", trace, 1000 + SIGSYS, 1000 + SIGSYS},
        {"kill", kill_parent, 1000 + SIGSYS, 1000 + SIGSYS},
        {"executable memory", executable_memory, 1000 + SIGSYS, 1000 + SIGSYS},
        {"memory file", memory_file, 0, 0},
        {"memory file that exec inherits", open_memory_file, 1000 + SIGSYS, 1000 + SIGSYS},
        {"memory", memory, 0, 0},
        {"open inside", open_inside, 0, 1000 + SIGSYS},
        {"open outside", open_outside, EACCES, 1000 + SIGSYS},
    };
    for (size_t i = 0; i < ARRAY_LEN(CASES); i++) {
        int opening = locked(facet_lock_calls_while_opening, CASES[i].fn);
        int running = locked(facet_lock_calls, CASES[i].fn);
        if (opening != CASES[i].opening || running != CASES[i].running)
            fail_msg("%s: %d while opening, %d while running", CASES[i].name, opening, running);
    }
}

static void assert_status(const char *status, const char *line) {
    if (!strstr(status, line))
        fail_msg("expected '%s' in:\n%s", line, status);
}

static void the_process_is_locked(void **state) {
    (void)state;
    struct client c;
    char path[64];
    char text[4096];
    client_init(&c);
    assert_int_equal(client_open_schema(&c, ""), 0);
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)c.pid);
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    assert_true(n > 0);
    text[n] = 0;
    assert_status(text, "NoNewPrivs:\t1\n");
    assert_status(text, "CapPrm:\t0000000000000000\n");
    assert_status(text, "CapEff:\t0000000000000000\n");
    assert_status(text, "CapBnd:\t0000000000000000\n");
    assert_status(text, "Threads:\t1\n");
    struct rlimit r;
    assert_int_equal(prlimit(c.pid, RLIMIT_CORE, NULL, &r), 0);
    assert_int_equal(r.rlim_max, 0);
    assert_int_equal(prlimit(c.pid, RLIMIT_NOFILE, NULL, &r), 0);
    assert_int_equal(r.rlim_max, 128);
    assert_int_equal(prlimit(c.pid, RLIMIT_FSIZE, NULL, &r), 0);
    assert_true(r.rlim_max < (300U << 20));
    if (!facet_lock_is_relaxed()) {
        assert_status(text, "Seccomp:\t2\n");
        assert_status(text, "Seccomp_filters:\t2\n");
        assert_int_equal(prlimit(c.pid, RLIMIT_DATA, NULL, &r), 0);
        assert_true(r.rlim_max < (512U << 20));
    }
    /* Nobody of the same user looks into its memory: not dumpable. */
    if (geteuid() != 0) {
        (void)snprintf(path, sizeof(path), "/proc/%d/mem", (int)c.pid);
        assert_true(open(path, O_RDONLY) < 0);
    }
    client_finish(&c);
}

static void inherited_descriptors_are_closed(void **state) {
    (void)state;
    struct client c;
    client_init(&c);
    int leak = open("/etc/passwd", O_RDONLY); /* not close-on-exec */
    int high = fcntl(leak, F_DUPFD, 200);
    assert_int_equal(client_open_schema(&c, ""), 0);
    char path[64];
    char target[256];
    for (int fd = 0; fd < 300; fd++) {
        (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)c.pid, fd);
        ssize_t n = readlink(path, target, sizeof(target) - 1);
        if (n > 0) {
            target[n] = 0;
            assert_null(strstr(target, "passwd"));
        }
    }
    close(leak);
    close(high);
    client_finish(&c);
}

static int setup(void **state) {
    (void)state;
    if (!mkdtemp(folder) || chdir(folder) < 0)
        return -1;
    return symlink("/etc/passwd", "link");
}

static int teardown(void **state) {
    (void)state;
    (void)unlink("link");
    (void)unlink("inside");
    (void)unlink("/tmp/cay-facet-outside");
    return chdir("/") < 0 || rmdir(folder) < 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_its_folder_can_be_opened),
        cmocka_unit_test(what_is_not_listed_ends_the_process),
        cmocka_unit_test(the_process_is_locked),
        cmocka_unit_test(inherited_descriptors_are_closed),
    };
    return cmocka_run_group_tests_name("facet lock", tests, setup, teardown);
}
