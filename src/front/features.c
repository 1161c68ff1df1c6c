#include "front/features.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
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

__attribute__((format(printf, 4, 5))) static void
add(struct features *f, const char *name, enum feature_status status, const char *fmt, ...) {
    if (f->n == FEATURES_MAX)
        return;
    struct feature *x = &f->items[f->n++];
    *x = (struct feature){.name = name, .status = status};
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(x->detail, sizeof(x->detail), fmt, ap);
    va_end(ap);
}

static void advise(struct features *f, const char *text) {
    (void)snprintf(f->items[f->n - 1].advice, sizeof(f->items[0].advice), "%s", text);
}

static void probe_kernel(struct features *f) {
    struct utsname u;
    (void)uname(&u);
    unsigned major = 0;
    unsigned minor = 0;
    (void)sscanf(u.release, "%u.%u", &major, &minor);
    bool enough = major > 5 || (major == 5 && minor >= 13);
    add(f, "kernel", enough ? FEATURE_OK : FEATURE_MISSING, "Linux %.100s", u.release);
    if (!enough)
        advise(f, "Linux 5.13 or later is needed (Debian 12 has 6.1)");
}

static int try_user_namespace(void) {
    return unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC) < 0
               ? errno
               : 0;
}

static void probe_namespaces(struct features *f) {
    int e = probe_in_child(try_user_namespace);
    if (e == 0) {
        add(f, "user namespaces", FEATURE_OK, "user, mount, network, pid and ipc namespaces");
        return;
    }
    add(f, "user namespaces", FEATURE_MISSING, "unshare: %s", strerror(e));
    advise(f,
           "isolates and sandboxes lose their namespaces: sysctl kernel.unprivileged_userns_clone=1"
           " (or, under AppArmor, kernel.apparmor_restrict_unprivileged_userns=0), or start as "
           "root");
}

static int try_seccomp(void) {
    unsigned action = SECCOMP_RET_KILL_PROCESS;
    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0 ? 0 : 1;
}

static void probe_seccomp(struct features *f) {
    bool ok = try_seccomp() == 0;
    add(f, "seccomp", ok ? FEATURE_OK : FEATURE_MISSING,
        ok ? "filters can kill a process" : "no seccomp filters");
    if (!ok)
        advise(f, "use a kernel with CONFIG_SECCOMP_FILTER: without it nothing may run");
}

static void probe_landlock(struct features *f) {
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi > 0) {
        add(f, "landlock", FEATURE_OK, "ABI %ld", abi);
        return;
    }
    add(f, "landlock", FEATURE_DEGRADED, "%s",
        errno == EOPNOTSUPP ? "built in, but disabled at boot" : "not in this kernel");
    advise(f, "facets rely on seccomp alone; boot with lsm=landlock,... for a second wall");
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
        add(f, "cgroups", FEATURE_OK, "v2 (%s)", v2);
    else if (*v1 && geteuid() == 0)
        add(f, "cgroups", FEATURE_OK, "v1 (%s)", v1);
    else
        add(f, "cgroups", FEATURE_DEGRADED, "%s",
            *v1 ? "v1, not writable for this user" : "no controllers");
    if (f->items[f->n - 1].status != FEATURE_OK)
        advise(f, "memory and process limits rest on rlimits; start as root, or under systemd with "
                  "Delegate=yes");
}

static void probe_engine(struct features *f) {
    void *lib = dlopen("libjavascriptcoregtk-4.1.so.0", RTLD_LAZY | RTLD_LOCAL);
    if (!lib) {
        add(f, "javascriptcore", FEATURE_MISSING, "libjavascriptcoregtk-4.1 is not installed");
        advise(f, "apt-get install libjavascriptcoregtk-4.1-0");
        return;
    }
    unsigned (*major)(void) = NULL;
    unsigned (*minor)(void) = NULL;
    unsigned (*micro)(void) = NULL;
    *(void **)&major = dlsym(lib, "jsc_get_major_version");
    *(void **)&minor = dlsym(lib, "jsc_get_minor_version");
    *(void **)&micro = dlsym(lib, "jsc_get_micro_version");
    if (major && minor && micro)
        add(f, "javascriptcore", FEATURE_OK, "%u.%u.%u", major(), minor(), micro());
    else
        add(f, "javascriptcore", FEATURE_DEGRADED, "unknown version");
}

static void probe_git(struct features *f) {
    static const char *const places[] = {"/usr/bin/git", "/usr/local/bin/git", "/bin/git"};
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (faccessat(AT_FDCWD, places[i], X_OK, 0) == 0) {
            add(f, "git", FEATURE_OK, "%s", places[i]);
            return;
        }
    add(f, "git", FEATURE_DEGRADED, "not found");
    advise(f, "tasks on repositories need it: apt-get install git");
}

static void probe_kvm(struct features *f) {
    int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        add(f, "kvm", FEATURE_OK, "/dev/kvm opens (not used yet)");
        close(fd);
        return;
    }
    add(f, "kvm", FEATURE_DEGRADED, "/dev/kvm: %s (not needed)", strerror(errno));
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
        add(f, "programs", FEATURE_OK, "all are beside cay");
        return;
    }
    add(f, "programs", FEATURE_DEGRADED, "not found: %s", missing);
    advise(f, "run `make`, or `make install`, so that they are beside cay or in libexec/cay");
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
