#include "front/common/features.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/text.h"
#include "loop/probe.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

const char *feature_status_name(enum feature_status s) {
    static const char *names[] = {"ok", "degraded", "missing", "absent"};
    return names[s];
}

__attribute__((format(printf, 4, 5))) static void features_add(struct features *f, const char *name,
                                                               enum feature_status status,
                                                               const char *fmt, ...) {
    if (f->n == FEATURES_MAX)
        return;
    struct feature *x = &f->items[f->n++];
    *x = (struct feature){.name = name, .status = status};
    va_list ap;
    va_start(ap, fmt);
    (void)text_vprint(x->detail, sizeof(x->detail), fmt, ap);
    va_end(ap);
}

static void features_advise(struct features *f, const char *text) {
    (void)text_print(f->items[f->n - 1].advice, sizeof(f->items[0].advice), "%s", text);
}

static void probe_kernel(struct features *f) {
    struct utsname u;
    (void)uname(&u);
    unsigned major = 0;
    unsigned minor = 0;
    (void)sscanf(u.release, "%u.%u", &major, &minor);
    bool enough = major > 5 || (major == 5 && minor >= 13);
    features_add(f, "kernel", enough ? FEATURE_OK : FEATURE_MISSING, "Linux %.100s", u.release);
    if (!enough)
        features_advise(f, "Linux 5.13 or later is needed (Debian 12 has 6.1)");
}

static int try_user_namespace(void) {
    return unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC) < 0
               ? errno
               : 0;
}

static void probe_namespaces(struct features *f) {
    int e = probe_in_child(try_user_namespace);
    if (e == 0) {
        features_add(f, "user namespaces", FEATURE_OK,
                     "user, mount, network, pid and ipc namespaces");
        return;
    }
    features_add(f, "user namespaces", FEATURE_MISSING, "unshare: %s", strerror(e));
    features_advise(
        f, "isolates and sandboxes lose their namespaces: sysctl kernel.unprivileged_userns_clone=1"
           " (or, under AppArmor, kernel.apparmor_restrict_unprivileged_userns=0), or start as "
           "root");
}

static int try_seccomp(void) {
    unsigned action = SECCOMP_RET_KILL_PROCESS;
    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0 ? 0 : 1;
}

static void probe_seccomp(struct features *f) {
    bool ok = try_seccomp() == 0;
    features_add(f, "seccomp", ok ? FEATURE_OK : FEATURE_MISSING,
                 ok ? "filters can kill a process" : "no seccomp filters");
    if (!ok)
        features_advise(f, "use a kernel with CONFIG_SECCOMP_FILTER: without it nothing may run");
}

static void probe_landlock(struct features *f) {
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi > 0) {
        /* What an older one cannot refuse is refused by read-only mounts and namespaces. */
        static const char *const lacks[] = {"",
                                            "moves between folders, truncate, ioctl, signals",
                                            "truncate, ioctl, signals",
                                            "ioctl, signals",
                                            "ioctl, signals",
                                            "signals"};
        bool old = abi < (long)ARRAY_LEN(lacks);
        features_add(f, "landlock", FEATURE_OK, "ABI %ld%s%s%s", abi,
                     old ? " (does not hold: " : "", old ? lacks[abi] : "",
                     old ? "; other walls do)" : "");
        return;
    }
    features_add(f, "landlock", FEATURE_DEGRADED, "%s",
                 errno == EOPNOTSUPP ? "built in, but disabled at boot" : "not in this kernel");
    features_advise(
        f, "facets rely on seccomp alone, read-only commands and the permission mode \"plan\" "
           "are refused; boot with lsm=landlock,...");
}

static bool file_has(const char *path, const char *word) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, 65536);
    return fd_read_file(AT_FDCWD, path, &b, NULL) == 0 && b.data && strstr(b.data, word);
}

static void probe_cgroups(struct features *f) {
    static const char *const wanted[] = {"memory", "pids", "cpu"};
    char v2[64] = "";
    char v1[64] = "";
    struct stat st;
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "/sys/fs/cgroup/%s", wanted[i]);
        size_t n = strlen(v1);
        if (stat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
            (geteuid() != 0 || faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0))
            (void)snprintf(v1 + n, sizeof(v1) - n, "%s%s", n ? ", " : "", wanted[i]);
        n = strlen(v2);
        if (file_has("/sys/fs/cgroup/cgroup.controllers", wanted[i]))
            (void)snprintf(v2 + n, sizeof(v2) - n, "%s%s", n ? ", " : "", wanted[i]);
    }
    if (*v2)
        features_add(f, "cgroups", FEATURE_OK, "v2 (%s)", v2);
    else if (*v1 && geteuid() == 0)
        features_add(f, "cgroups", FEATURE_OK, "v1 (%s)", v1);
    else
        features_add(f, "cgroups", FEATURE_DEGRADED, "%s",
                     *v1 ? "v1, not writable for this user" : "no controllers");
    if (f->items[f->n - 1].status != FEATURE_OK)
        features_advise(
            f, "memory and process limits rest on rlimits; start as root, or under systemd with "
               "Delegate=yes");
}

void features_limit(struct features *f, const char *why) {
    for (size_t i = 0; *why && i < f->n; i++) {
        struct feature *x = &f->items[i];
        if (strcmp(x->name, "cgroups") != 0 || x->status != FEATURE_OK)
            continue;
        char has[sizeof(x->detail)];
        (void)text_print(has, sizeof(has), "%s", x->detail);
        x->status = FEATURE_DEGRADED;
        (void)text_print(x->detail, sizeof(x->detail),
                         "%s, but isolates have no common limit of memory: %s", has, why);
        (void)snprintf(x->advice, sizeof(x->advice),
                       "let systemd start `cay serve` by itself, with no shell around it: a unit "
                       "with Delegate=yes");
    }
}

static void probe_engine(struct features *f) {
    void *lib = dlopen("libjavascriptcoregtk-4.1.so.0", RTLD_LAZY | RTLD_LOCAL);
    if (!lib) {
        features_add(f, "javascriptcore", FEATURE_MISSING,
                     "libjavascriptcoregtk-4.1 is not installed");
        features_advise(f, "apt-get install libjavascriptcoregtk-4.1-0");
        return;
    }
    unsigned (*major)(void) = NULL;
    unsigned (*minor)(void) = NULL;
    unsigned (*micro)(void) = NULL;
    *(void **)&major = dlsym(lib, "jsc_get_major_version");
    *(void **)&minor = dlsym(lib, "jsc_get_minor_version");
    *(void **)&micro = dlsym(lib, "jsc_get_micro_version");
    if (major && minor && micro)
        features_add(f, "javascriptcore", FEATURE_OK, "%u.%u.%u", major(), minor(), micro());
    else
        features_add(f, "javascriptcore", FEATURE_DEGRADED, "unknown version");
}

static void probe_git(struct features *f) {
    static const char *const places[] = {"/usr/bin/git", "/usr/local/bin/git", "/bin/git"};
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (faccessat(AT_FDCWD, places[i], X_OK, 0) == 0) {
            features_add(f, "git", FEATURE_OK, "%s", places[i]);
            return;
        }
    features_add(f, "git", FEATURE_DEGRADED, "not found");
    features_advise(f, "tasks on repositories need it: apt-get install git");
}

static void probe_kvm(struct features *f) {
    int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        features_add(f, "kvm", FEATURE_OK, "/dev/kvm opens (not used yet)");
        close(fd);
        return;
    }
    features_add(f, "kvm", FEATURE_DEGRADED, "/dev/kvm: %s (not needed)", strerror(errno));
}

static void probe_programs(struct features *f, const char *dir) {
    static const char *const programs[] = {"cay-compile", "cay-isolate", "cay-facet",
                                           "cay-sandbox", "cay-egress",  "cay-spawn"};
    char missing[120] = "";
    for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
        _cleanup_(free) char *path = path_join(dir, programs[i]);
        size_t n = strlen(missing);
        if (faccessat(AT_FDCWD, path, X_OK, 0) < 0)
            (void)snprintf(missing + n, sizeof(missing) - n, "%s%s", n ? ", " : "", programs[i]);
    }
    if (!*missing) {
        features_add(f, "programs", FEATURE_OK, "all are beside cay");
        return;
    }
    features_add(f, "programs", FEATURE_DEGRADED, "not found: %s", missing);
    features_advise(f,
                    "run `make`, or `make install`, so that they are beside cay or in libexec/cay");
}

void features_probe(struct features *f, const char *sibling_dir, bool load_engine) {
    *f = (struct features){0};
    probe_kernel(f);
    probe_namespaces(f);
    probe_seccomp(f);
    probe_landlock(f);
    probe_cgroups(f);
    if (load_engine)
        probe_engine(f);
    probe_git(f);
    probe_kvm(f);
    probe_programs(f, sibling_dir);
}
