/* Every known way out is tried from inside a real sandbox, made by the program that ships, and must
 * end in the errno listed here; then the walls it names are taken away in a build made for that,
 * and the same attempt must end differently. A test that cannot fail proves nothing.
 *
 *   escape CAY-SANDBOX CAY-SANDBOX-WITHOUT-WALLS PROBE [uid] */

#include "client.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

static const char *program, *weak_program;
static struct buf probe;
static uid_t uid;
static char abstract_name[64], port[16], own_pid[16], secret_path[64];
static int checks, failures;

enum { EITHER = 256 }; /* two errnos in one number: low byte or the byte above */
#define OR(a, b) ((a) | (b) << 8 | EITHER << 16)

struct attempt {
    const char *probe, *arg;
    int expect;
    const char *walls; /* without these it must end differently; NULL: the kernel's own rule */
    const char *base;  /* these are off in both runs, to look at the second line of defence */
    const char *needs; /* a file that this kernel has if it has what is tried at all */
    int landlock;      /* the version of Landlock that has the rule */
    int since;         /* older kernels refuse it by a rule of their own: no wall to take away */
};

#define LINUX(major, minor) ((major)*1000 + (minor))

#define SC  "seccomp"
#define SCC "seccomp,caps,landlock"
static const struct attempt attempts[] = {
    {"mount", "", EPERM, SCC},
    {"mount", "", EPERM, "caps,landlock", .base = "seccomp"},
    {"mount", "", EPERM, "seccomp,landlock", .base = "caps"},
    {"mount", "", EPERM, "landlock", .base = "seccomp,caps"},
    {"remount", "", EPERM, SCC},
    {"umount", "", EPERM, SCC},
    {"pivot_root", "", EPERM, SCC},
    {"chroot", "", EPERM, "caps"},
    {"fsopen", "", EPERM, "seccomp,caps"},
    {"open_tree", "", EPERM, "seccomp,caps"},
    {"move_mount", "", EPERM, SCC},
    {"mount_setattr", "", EPERM, "seccomp,caps"},
    {"unshare_user", "", EPERM, SC},
    {"unshare_net", "", EPERM, "seccomp,caps"},
    {"clone_newuser", "", EPERM, SC},
    {"clone3", "", ENOSYS, SC},
    {"setns", "", EPERM, SCC},
    {"ptrace", "", EPERM, SC},
    {"ptrace_init", "", EPERM, "seccomp,dumpable,uid,view"},
    {"vm_readv", "", EPERM, SC},
    {"vm_writev", "", EPERM, SC},
    {"keyctl", "", EPERM, SC},
    {"add_key", "", EPERM, SC},
    {"bpf", "", EPERM, NULL},
    {"userfaultfd", "", EPERM, SC},
    {"io_uring", "", EPERM, SC},
    {"perf", "", EPERM, SC},
    {"handle", "", EPERM, SC, .since = LINUX(6, 18)},
    {"name_to_handle", "", EPERM, SC},
    {"init_module", "", EPERM, NULL},
    {"finit_module", "", EPERM, NULL},
    {"delete_module", "", EPERM, NULL},
    {"kexec", "", EPERM, NULL},
    {"reboot", "", EPERM, "seccomp,caps"},
    {"settimeofday", "", EPERM, NULL},
    {"clock_settime", "", EPERM, NULL},
    {"sethostname", "", EPERM, "seccomp,caps"},
    {"mknod", "", EPERM, NULL},
    {"mknod_fifo", "", 0, NULL},
    {"iopl", "", EPERM, NULL},
    {"ioperm", "", EPERM, NULL},
    {"setuid0", "", OR(EPERM, EINVAL), NULL},
    {"setuid_init", "", OR(EPERM, EINVAL), NULL},
    {"personality", "", EPERM, SC},
    {"pidfd_getfd", "", EPERM, SC},
    {"kcmp", "", EPERM, SC},
    {"prlimit_init", "", EPERM, "seccomp,uid"},
    {"syslog", "", EPERM, NULL},
    {"swapon", "", EPERM, NULL},
    {"acct", "", EPERM, NULL},
    {"fanotify", "", EPERM, SC},
    {"mbind", "", EPERM, SC},
    {"syncfs", "", EPERM, SC},
    {"raise_caps", "", EPERM, "caps"},
    {"no_new_privs", "", EPERM, "nnp", .base = "seccomp,landlock"},
    {"bounding", "", EPERM, "caps"},
    {"x32", "", SIGSYS, SC},
    {"int80", "", SIGSYS, SC},
    {"tiocsti", "", EPERM, SC},
    {"tiocsti_high", "", EPERM, SC},
    {"raw", "", EPERM, NULL}, /* the network is the launcher's */
    {"sockets", "", 0, NULL},
    {"mptcp", "", EPROTONOSUPPORT, SC, .needs = "/proc/sys/net/mptcp/enabled"},
    {"udplite", "", EPROTONOSUPPORT, SC, .needs = "/proc/net/udplite"},
    {"sctp", "", EPERM, SC},
    {"packet", "", EAFNOSUPPORT, SC},
    {"vsock", "", EAFNOSUPPORT, SC},
    {"alg", "", EAFNOSUPPORT, NULL},
    {"netlink_audit", "", EPERM, SC},
    {"abstract", abstract_name, ECONNREFUSED, "net,landlock"},
    {"abstract", abstract_name, EPERM, "landlock", .base = "net", .landlock = 6},
    {"loopback", port, ECONNREFUSED, "net"},
    {"metadata", "", ENETUNREACH, NULL},
    {"scm_rights", "", ENOTSOCK, NULL},
    {"kill", own_pid, ESRCH, NULL},
    {"kill_init", "", 0, NULL}, /* and the sandbox goes on */
    {"fds", "", 0, "close"},
    {"write", "/proc/sys/kernel/core_pattern", OR(EACCES, EROFS), NULL},
    {"write", "/proc/sys/kernel/ns_last_pid", OR(EACCES, EROFS), NULL},
    {"write", "/proc/sysrq-trigger", ENODEV, "mask", .needs = "/proc/sysrq-trigger"},
    {"write", "/proc/sys/net/ipv4/ping_group_range", OR(EROFS, EACCES), NULL},
    {"pressure", "", EROFS, "mask", .needs = "/proc/pressure/memory"},
    {"read", "/proc/kcore", ENODEV, "mask", .needs = "/proc/kcore"},
    {"read", "/proc/1/mem", ENOENT, "hidepid"},
    {"read", "/proc/1/mem", EACCES, "dumpable,uid,view", .base = "hidepid"},
    {"read", "/proc/1/environ", ENOENT, "hidepid"},
    {"read", "/proc/1/environ", EACCES, "dumpable,uid,view", .base = "hidepid"},
    {"write", "/proc/1/exe", ENOENT, "hidepid"},
    {"read", "/proc/1/exe", EACCES, "dumpable,uid,landlock,view", .base = "hidepid"},
    {"read", "/proc/1/root/etc/passwd", ENOENT, "hidepid"},
    {"write", "/proc/self/exe", ETXTBSY, NULL}, /* the probe's own file */
    {"read", "/dev/kvm", ENOENT, NULL},
    {"read", "/dev/mem", ENOENT, NULL},
    {"read", "/dev/vda", ENOENT, NULL},
    {"read", "/sys/kernel", ENOENT, NULL},
    {"read", "/sys/fs/cgroup/release_agent", ENOENT, NULL},
    {"read", "/etc/shadow", ENOENT, NULL},
    {"read", "/root", ENOENT, NULL},
    {"read", secret_path, ENOENT, NULL},
    {"read", "/m", ENOENT, NULL},
    {"read", "/t", ENOENT, NULL},
    {"create", "/usr/bin/x", EROFS, "readonly", .base = "landlock"},
    {"create", "/etc/x", EROFS, "readonly", .base = "landlock"},
    {"create", "/x", EROFS, "readonly", .base = "landlock"},
    {"create", "/dev/x", EROFS, NULL, .base = "landlock"},
    {"create", "/etc/x", OR(EACCES, EROFS), NULL},
    {"create", "/work/x", 0, NULL},
    {"create", "/tmp/x", 0, NULL},
    {"create", "/dev/shm/x", 0, NULL},
    {"create", "/home/cay/x", 0, NULL},
};

__attribute__((format(printf, 2, 3))) static void report(bool ok, const char *fmt, ...) {
    checks++;
    if (ok)
        return;
    failures++;
    va_list ap;
    va_start(ap, fmt);
    (void)fprintf(stderr, "FAIL (uid %u) ", uid);
    (void)vfprintf(stderr, fmt, ap);
    (void)fprintf(stderr, "\n");
    va_end(ap);
}

/* Runs one probe and returns what it printed after "NAME=", or -1. */
static int attempt(struct guest *g, const char *name, const char *arg) {
    struct run r;
    struct err err = {0};
    int value = -1;
    if (guest_runv(g, &r, &err, "/work/probe", name, arg, NULL) < 0) {
        (void)fprintf(stderr, "%s: %s\n", name, err.message);
        return -1;
    }
    char key[64];
    (void)snprintf(key, sizeof(key), "%s=", name);
    char *at = r.out.data ? strstr(r.out.data, key) : NULL;
    if (at)
        value = (int)strtol(at + strlen(key), NULL, 10);
    else
        (void)fprintf(stderr, "%s: status %d, %s%.*s\n", name, run_status(&r), r.err.message,
                      (int)r.out.len, r.out.data ? r.out.data : "");
    run_finish(&r);
    return value;
}

static bool make(struct client *c, struct guest *g, struct err *err) {
    struct sandbox_spec spec = {.id = "escape"};
    return client_create(c, &spec, NULL, g, err) == 0 && guest_wait_ready(g, err) == 0 &&
           guest_write(g, "/work/probe", probe.data, probe.len, 0755, err) == 0;
}

static bool renew(struct client *c, struct guest *g) {
    struct err err = {0};
    bool ok = client_destroy(c, g, &err) == 0 && make(c, g, &err);
    if (!ok)
        report(false, "a new sandbox: %s", err.message);
    return ok;
}

static bool start(struct client *c, struct guest *g, const char *without) {
    struct err err = {0};
    char *env[] = {"CAY_ESCAPE_KEY=sk-very-secret", NULL};
    struct client_options o = {
        .program = without ? weak_program : program, .uid = uid, .without = without, .env = env};
    if (client_start(c, &o, &err) < 0 || !make(c, g, &err)) {
        report(false, "start without '%s': %s", without ? without : "", err.message);
        return false;
    }
    return true;
}

static bool matches(int got, int want) {
    if (want >= EITHER << 16)
        return got == (want & 255) || got == (want >> 8 & 255);
    return got == want;
}

static void join(char *out, size_t size, const char *a, const char *b) {
    (void)snprintf(out, size, "%s%s%s", a ? a : "", a && b ? "," : "", b ? b : "");
}

static bool has_file(const char *path) {
    struct stat st;
    return !path || stat(path, &st) == 0;
}

static int kernel_version(void) {
    struct utsname u;
    int major = 0, minor = 0;
    if (uname(&u) < 0 || sscanf(u.release, "%d.%d", &major, &minor) != 2)
        return 0;
    return LINUX(major, minor);
}

static bool applies(const struct attempt *a, bool control) {
    if (control && (!a->walls || kernel_version() < a->since))
        return false;
    return has_file(a->needs) &&
           (a->landlock == 0 || syscall(SYS_landlock_create_ruleset, NULL, 0,
                                        LANDLOCK_CREATE_RULESET_VERSION) >= a->landlock);
}

/* One launcher for each set of missing walls serves all attempts that want it. */
static void run_with(const char *without, bool control) {
    struct client c;
    struct guest g;
    bool started = false;
    for (size_t i = 0; i < ARRAY_LEN(attempts); i++) {
        const struct attempt *a = &attempts[i];
        char set[128];
        if (!applies(a, control))
            continue;
        join(set, sizeof(set), a->base, control ? a->walls : NULL);
        if (strcmp(set, without) != 0)
            continue;
        if (!started && !start(&c, &g, *without ? without : NULL))
            return;
        started = true;
        /* What works without its wall leaves the sandbox in ruins: the next one gets a new one. */
        if (control && !renew(&c, &g))
            return;
        int got = attempt(&g, a->probe, a->arg);
        if (control)
            report(got >= 0 && !matches(got, a->expect),
                   "%s %s: still %d (%d) when its walls are gone", a->probe, a->arg, got,
                   a->expect);
        else
            report(matches(got, a->expect), "%s %s: got %d, want %d", a->probe, a->arg, got,
                   a->expect);
    }
    if (!started)
        return;
    if (!*without) {
        struct run r;
        struct err err;
        bool ok = guest_runv(&g, &r, &err, "/usr/bin/true", NULL) == 0 && run_status(&r) == 0;
        report(ok, "the sandbox works no more after all attempts");
        run_finish(&r);
    }
    guest_close(&g);
    client_stop(&c);
}

/* Nothing of the launcher's environment is in the memory that init was born with. */
static void check_environment(const char *without, bool expect_secret) {
    struct client c;
    struct guest g;
    if (!start(&c, &g, without))
        return;
    bool found = false;
    char path[64];
    pid_t pids[2] = {c.pid, 0};
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", g.pidfd);
    struct buf b;
    buf_init(&b, 65536);
    if (fd_read_file(AT_FDCWD, path, &b, NULL) == 0) {
        char *p = strstr(b.data, "\nPid:");
        pids[1] = p ? (pid_t)strtol(p + 5, NULL, 10) : 0;
    }
    for (int i = 0; i < 2; i++) {
        buf_clear(&b);
        (void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)pids[i]);
        if (fd_read_file(AT_FDCWD, path, &b, NULL) == 0 && b.len > 0 &&
            memmem(b.data, b.len, "sk-very-secret", 14))
            found = true;
    }
    buf_finish(&b);
    report(pids[1] > 0 && found == expect_secret, "a key in the environment: %d, want %d", found,
           expect_secret);
    struct run r;
    struct err err;
    if (guest_runv(&g, &r, &err, "/usr/bin/env", NULL) == 0)
        report(!memmem(r.out.data, r.out.len, "sk-very-secret", 14),
               "a key in the guest's environment");
    run_finish(&r);
    guest_close(&g);
    client_stop(&c);
}

static int listen_somewhere(void) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    (void)snprintf(abstract_name, sizeof(abstract_name), "cay-escape-%d", (int)getpid());
    memcpy(a.sun_path + 1, abstract_name, strlen(abstract_name));
    int u = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(u, (struct sockaddr *)&a,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(abstract_name))) < 0 ||
        listen(u, 128) < 0)
        return -1;
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(in);
    int t = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(t, (struct sockaddr *)&in, n) < 0 || listen(t, 128) < 0 ||
        getsockname(t, (struct sockaddr *)&in, &n) < 0)
        return -1;
    (void)snprintf(port, sizeof(port), "%d", ntohs(in.sin_port));
    (void)snprintf(own_pid, sizeof(own_pid), "%d", (int)getpid());
    (void)snprintf(secret_path, sizeof(secret_path), "/tmp/cay-escape-%d", (int)getpid());
    int s = open(secret_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (s >= 0)
        close(s);
    /* A careless parent: one descriptor that is not closed on exec. */
    return dup2(t, 57);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        (void)fprintf(stderr, "usage: escape CAY-SANDBOX WEAK-CAY-SANDBOX PROBE [UID]\n");
        return 2;
    }
    program = argv[1];
    weak_program = argv[2];
    uid = argc > 4 ? (uid_t)strtoul(argv[4], NULL, 10) : 0;
    if (uid && geteuid() != 0) {
        (void)fprintf(stderr, "skipped: only root can start a launcher as another user\n");
        return 77;
    }
    buf_init(&probe, 16 << 20);
    struct err err;
    if (fd_read_file(AT_FDCWD, argv[3], &probe, &err) < 0 || listen_somewhere() < 0) {
        (void)fprintf(stderr, "escape: cannot begin: %s\n", strerror(errno));
        return 1;
    }
    run_with("", false);
    /* Every distinct set of missing walls once: as a base, then as a control. */
    for (int control = 0; control < 2; control++)
        for (size_t i = 0; i < ARRAY_LEN(attempts); i++) {
            char set[128], other[128];
            join(set, sizeof(set), attempts[i].base, control ? attempts[i].walls : NULL);
            if (!*set || (control && !attempts[i].walls))
                continue;
            bool seen = false;
            for (size_t j = 0; j < i && !seen; j++) {
                join(other, sizeof(other), attempts[j].base, control ? attempts[j].walls : NULL);
                seen = strcmp(set, other) == 0 && (!control || attempts[j].walls);
            }
            if (!seen)
                run_with(set, control != 0);
        }
    check_environment(NULL, false);
    check_environment("env", true);
    (void)unlink(secret_path);
    (void)printf("%d checks, %d failures\n", checks, failures);
    return failures > 0;
}
