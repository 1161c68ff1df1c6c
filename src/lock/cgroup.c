#include "lock/cgroup.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "lock/scope.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "cay."
#define MAIN   "cay-main"

/* Version 1 counts what TCP and UDP sockets hold apart from memory, and only where it has a limit:
 * a sandbox may have this part of its memory for them in addition. */
#define V1_SOCKETS "memory.kmem.tcp.limit_in_bytes"
enum { SOCKETS_SHARE = 16 };

enum { HAS_MEMORY = 1, HAS_PIDS = 2, HAS_CPU = 4, HAS_CPUACCT = 8, HAS_FREEZER = 16 };

static const struct {
    const char *name;
    unsigned bit;
} v1_names[] = {{"memory", HAS_MEMORY},
                {"pids", HAS_PIDS},
                {"cpu", HAS_CPU},
                {"cpuacct", HAS_CPUACCT},
                {"freezer", HAS_FREEZER}};

static int write_at(const struct cgroups *c, int dir, const char *file, const char *text) {
    _cleanup_(close) int fd =
        openat(dir, file, O_WRONLY | O_CLOEXEC | (c->fake ? O_CREAT | O_TRUNC : 0), 0644);
    if (fd < 0)
        return -1;
    return write(fd, text, strlen(text)) < 0 ? -1 : 0;
}

static int write_num(const struct cgroups *c, int dir, const char *file, uint64_t v) {
    char text[32];
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
    return write_at(c, dir, file, text);
}

static bool read_at(int dir, const char *file, char *out, size_t size) {
    _cleanup_(close) int fd = openat(dir, file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    out[n > 0 ? n : 0] = 0;
    return n >= 0;
}

static uint64_t read_num(int dir, const char *file) {
    char text[64];
    return read_at(dir, file, text, sizeof(text)) ? strtoull(text, NULL, 10) : 0;
}

/* The number after "key " in a file of such lines. */
static uint64_t cgroup_read_key(int dir, const char *file, const char *key) {
    char text[4096];
    if (!read_at(dir, file, text, sizeof(text)))
        return 0;
    size_t n = strlen(key);
    for (const char *p = text; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
        if (strncmp(p, key, n) == 0 && p[n] == ' ')
            return strtoull(p + n + 1, NULL, 10);
    return 0;
}

static bool cgroup_has_word(const char *list, const char *word, const char *separators) {
    size_t n = strlen(word);
    for (const char *p = list; *p;) {
        size_t k = strcspn(p, separators);
        if (k == n && memcmp(p, word, n) == 0)
            return true;
        p += k;
        p += strspn(p, separators);
    }
    return false;
}

void cgroup_path(const char *mount, const char *root, const char *self, char *out, size_t size) {
    size_t n = strlen(root);
    const char *rest = "";
    if (strcmp(root, "/") == 0)
        rest = self;
    else if (strncmp(self, root, n) == 0 && (self[n] == '/' || self[n] == 0))
        rest = self + n;
    if (strcmp(rest, "/") == 0)
        rest = "";
    (void)snprintf(out, size, "%s%s", mount, rest);
}

/* ---- detection ---- */

struct mount_line {
    char root[PATH_MAX], at[PATH_MAX], type[32], options[512];
};

static bool parse_mount(const char *line, struct mount_line *m) {
    const char *dash = strstr(line, " - ");
    return sscanf(line, "%*s %*s %*s %4095s %4095s", m->root, m->at) == 2 && dash &&
           sscanf(dash, " - %31s %*s %511s", m->type, m->options) == 2;
}

/* This process's group in the hierarchy with the controller ("" is version 2). */
static bool self_group(const char *text, const char *controller, char *out, size_t size) {
    for (const char *p = text; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        const char *names = strchr(p, ':');
        const char *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        char list[256];
        (void)snprintf(list, sizeof(list), "%.*s", (int)(path - names - 1), names + 1);
        if (*controller ? cgroup_has_word(list, controller, ",") : *list == 0) {
            (void)snprintf(out, size, "%.*s", (int)strcspn(path + 1, "\n"), path + 1);
            return true;
        }
    }
    return false;
}

static uint64_t start_time(const char *sysroot, pid_t pid) {
    char path[PATH_MAX], text[1024];
    (void)snprintf(path, sizeof(path), "%s/proc/%d/stat", sysroot, (int)pid);
    if (!read_at(AT_FDCWD, path, text, sizeof(text)))
        return 0;
    const char *p = strrchr(text, ')'); /* field 2 may hold anything; starttime is field 22 */
    for (int i = 0; p && i < 20; i++)
        p = strchr(p + 1, ' ');
    return p ? strtoull(p + 1, NULL, 10) : 0;
}

static bool add_hier(struct cgroups *c, const char *path, unsigned bit) {
    struct stat a, b;
    _cleanup_(close) int parent = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0 || fstat(parent, &a) < 0)
        return false;
    for (size_t i = 0; i < c->n; i++)
        if (fstat(c->hiers[i].parent, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino) {
            c->hiers[i].has |= bit; /* "cpu,cpuacct" are often one hierarchy */
            return true;
        }
    if (c->n == CGROUP_HIERS_MAX || (mkdirat(parent, c->name, 0755) < 0 && errno != EEXIST))
        return false;
    _cleanup_(close) int base = openat(parent, c->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (base < 0)
        return false;
    c->hiers[c->n++] =
        (struct cgroup_hier){.parent = steal_fd(&parent), .base = steal_fd(&base), .has = bit};
    return true;
}

/* Controllers may be switched on below a group that holds no process, or below the root of all
 * groups, which has no type. In any other group memory is refused, but the threaded controllers
 * (pids, cpu) are not: they would turn the group into "domain threaded" and those below it into
 * groups that take no process (EOPNOTSUPP). */
static bool group_can_delegate(int dir) {
    char text[64];
    if (!read_at(dir, "cgroup.type", text, sizeof(text)))
        return true;
    return strcmp(text, "domain\n") == 0 && read_at(dir, "cgroup.procs", text, sizeof(text)) &&
           *text == 0;
}

/* Whether processes can be put into the group. */
static bool group_takes_processes(int dir) {
    char text[64];
    return !read_at(dir, "cgroup.type", text, sizeof(text)) || strcmp(text, "domain\n") == 0;
}

static void open_v2(struct cgroups *c, const char *path) {
    char list[256];
    if (!add_hier(c, path, HAS_FREEZER))
        return;
    struct cgroup_hier *h = &c->hiers[0];
    if (!group_takes_processes(h->base)) {
        (void)unlinkat(h->parent, c->name, AT_REMOVEDIR);
        cgroups_close(c);
        return;
    }
    c->version = SANDBOX_CGROUP_V2;
    static const struct {
        const char *name, *add;
        unsigned bit;
    } wanted[] = {{"memory", "+memory", HAS_MEMORY},
                  {"pids", "+pids", HAS_PIDS},
                  {"cpu", "+cpu", HAS_CPU | HAS_CPUACCT}};
    if (!read_at(h->parent, "cgroup.controllers", list, sizeof(list)) ||
        !group_can_delegate(h->parent))
        return;
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        if (!cgroup_has_word(list, wanted[i].name, " \n"))
            continue;
        if (write_at(c, h->parent, "cgroup.subtree_control", wanted[i].add) < 0 ||
            write_at(c, h->base, "cgroup.subtree_control", wanted[i].add) < 0)
            return; /* no further one without this one: see group_can_delegate() */
        h->has |= wanted[i].bit;
    }
}

/* The last part of a path. */
static const char *last_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* The leaf that we moved to is not the place for groups: that is the group above it. */
static void leave_leaf(char *path) {
    char *slash = strrchr(path, '/');
    if (slash && strcmp(slash + 1, MAIN) == 0)
        *slash = 0;
}

/* Version 1 without this file, or with one that cannot be written, counts no sockets. */
static bool has_socket_limit(const struct cgroups *c) {
    for (size_t i = 0; i < c->n; i++)
        if (c->hiers[i].has & HAS_MEMORY) {
            _cleanup_(close) int fd = openat(c->hiers[i].base, V1_SOCKETS, O_WRONLY | O_CLOEXEC);
            return fd >= 0;
        }
    return false;
}

static void open_v1(struct cgroups *c, const struct mount_line *m, const char *mounted,
                    const char *groups) {
    char self[PATH_MAX], at[2 * PATH_MAX];
    for (size_t i = 0; i < ARRAY_LEN(v1_names); i++)
        if (cgroup_has_word(m->options, v1_names[i].name, ",") &&
            self_group(groups, v1_names[i].name, self, sizeof(self))) {
            cgroup_path(mounted, m->root, self, at, sizeof(at));
            if (add_hier(c, at, v1_names[i].bit))
                c->version = SANDBOX_CGROUP_V1;
        }
}

/* Opens what version 1 has, if c is not NULL, and says where this process is in version 2: "" if
 * that is not mounted. */
static void read_mounts(struct cgroups *c, const char *sysroot, char *ret_v2, size_t size) {
    char path[PATH_MAX], self[PATH_MAX];
    _cleanup_(buf) struct buf groups;
    _cleanup_(buf) struct buf mounts;
    buf_init(&groups, 1 << 16);
    buf_init(&mounts, 4 << 20);
    *ret_v2 = 0;
    (void)snprintf(path, sizeof(path), "%s/proc/self/cgroup", sysroot);
    bool ok = fd_read_file(AT_FDCWD, path, &groups, NULL) == 0;
    (void)snprintf(path, sizeof(path), "%s/proc/self/mountinfo", sysroot);
    ok = ok && groups.data && fd_read_file(AT_FDCWD, path, &mounts, NULL) == 0;
    for (char *p = ok ? mounts.data : NULL, *next; p && *p; p = next) {
        next = strchr(p, '\n');
        if (next)
            *next++ = 0;
        struct mount_line m;
        char mounted[2 * PATH_MAX];
        if (!parse_mount(p, &m) || strncmp(m.type, "cgroup", 6) != 0)
            continue;
        (void)snprintf(mounted, sizeof(mounted), "%s%s", sysroot, m.at);
        if (strcmp(m.type, "cgroup2") != 0 && c)
            open_v1(c, &m, mounted, groups.data);
        else if (strcmp(m.type, "cgroup2") == 0 && self_group(groups.data, "", self, sizeof(self)))
            cgroup_path(mounted, m.root, self, ret_v2, size);
    }
}

void cgroups_open(struct cgroups *c, const char *sysroot, pid_t pid, char *why, size_t why_size) {
    char v2[2 * PATH_MAX];
    *c = (struct cgroups){.fake = *sysroot != 0};
    *why = 0;
    (void)snprintf(c->name, sizeof(c->name), PREFIX "%d.%llu", (int)pid,
                   (unsigned long long)start_time(sysroot, pid));
    read_mounts(c, sysroot, v2, sizeof(v2));
    leave_leaf(v2);
    if (c->version == SANDBOX_CGROUP_NONE && *v2)
        open_v2(c, v2);
    for (size_t i = 0; i < c->n; i++) {
        unsigned has = c->hiers[i].has;
        c->controllers |=
            (has & HAS_MEMORY ? SANDBOX_HAS_MEMORY : 0) | (has & HAS_PIDS ? SANDBOX_HAS_PIDS : 0) |
            (has & HAS_CPU ? SANDBOX_HAS_CPU : 0) | (has & HAS_FREEZER ? SANDBOX_HAS_FREEZER : 0);
    }
    c->counts_sockets = c->version == SANDBOX_CGROUP_V2 || has_socket_limit(c);
    if (c->version == SANDBOX_CGROUP_NONE)
        (void)snprintf(why, why_size,
                       "memory is watched, not enforced: no cgroup is writable for this user");
    else if (!(c->controllers & SANDBOX_HAS_MEMORY))
        (void)snprintf(why, why_size,
                       "memory is watched, not enforced: no cgroup with memory is delegated");
    else if (!c->counts_sockets)
        (void)snprintf(why, why_size,
                       "memory of sockets is watched, not enforced: this kernel does not count it");
}

bool cgroups_bound_memory(const struct cgroups *c) {
    return (c->controllers & SANDBOX_HAS_MEMORY) && c->counts_sockets;
}

/* ---- a place for groups ---- */

/* Moves this process to a leaf below the group, which is then free of processes. Only if it is
 * alone there: whatever else is in the group is not ours to move. */
static int take_leaf(const char *path, struct err *err) {
    char pids[64];
    _cleanup_(close) int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || !read_at(dir, "cgroup.procs", pids, sizeof(pids)))
        return err_sys(err, "the control group of this process cannot be read");
    char *end;
    if (strtol(pids, &end, 10) != getpid() || strcmp(end, "\n") != 0)
        return err_set(err, ERR_CONFLICT, "other processes share the control group \"%s\"",
                       last_name(path));
    if (mkdirat(dir, MAIN, 0755) < 0 && errno != EEXIST)
        return err_sys(err, "the control group \"%s\" is not delegated", last_name(path));
    _cleanup_(close) int procs = openat(dir, MAIN "/cgroup.procs", O_WRONLY | O_CLOEXEC);
    if (procs < 0 || write(procs, "0", 1) != 1)
        return err_sys(err, "move to the control group \"" MAIN "\"");
    return 0;
}

static bool is_session(const char *path) {
    static const char ending[] = ".scope";
    size_t n = strlen(path);
    return n > strlen(ending) && strcmp(path + n - strlen(ending), ending) == 0;
}

int cgroups_settle(const char *sysroot, enum cgroups_leave leave, struct err *err) {
    char v2[2 * PATH_MAX], file[2 * PATH_MAX + 16], socket[PATH_MAX + 64];
    struct stat st;
    struct err why;
    read_mounts(NULL, sysroot, v2, sizeof(v2));
    (void)snprintf(file, sizeof(file), "%s/cgroup.type", v2);
    if (!*v2 || !cgroups_has_memory_v2(sysroot) || strcmp(last_name(v2), MAIN) == 0 ||
        stat(file, &st) < 0)
        return 0; /* version 1, settled already, or the root of all groups: no room is needed */
    int rc = take_leaf(v2, err);
    if (rc == 0 || leave == CGROUPS_STAY || (leave == CGROUPS_LEAVE_SESSION && !is_session(v2)))
        return rc;
    scope_socket(sysroot, geteuid(), socket, sizeof(socket));
    if (scope_enter(sysroot, socket, &why) < 0) {
        struct err shared = *err;
        return err_set(err, ERR_UNAVAILABLE, "%s, and %s", shared.message, why.message);
    }
    read_mounts(NULL, sysroot, v2, sizeof(v2));
    return take_leaf(v2, err);
}

bool cgroups_has_memory_v2(const char *sysroot) {
    char path[PATH_MAX], list[256];
    (void)snprintf(path, sizeof(path), "%s/sys/fs/cgroup/cgroup.controllers", sysroot);
    return read_at(AT_FDCWD, path, list, sizeof(list)) && cgroup_has_word(list, "memory", " \n");
}

void cgroups_close(struct cgroups *c) {
    for (size_t i = 0; i < c->n; i++) {
        fd_close(&c->hiers[i].parent);
        fd_close(&c->hiers[i].base);
    }
    c->n = 0;
}

/* ---- sweeping ---- */

static void kill_group(const struct cgroups *c, int dir) {
    (void)write_at(c, dir, "freezer.state", "THAWED");
    if (write_at(c, dir, "cgroup.kill", "1") == 0)
        return;
    char pids[65536];
    if (!read_at(dir, "cgroup.procs", pids, sizeof(pids)))
        return;
    for (char *p = pids; *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : p + strlen(p)) {
        long pid = strtol(p, NULL, 10);
        if (pid > 1)
            (void)kill((pid_t)pid, SIGKILL);
    }
}

/* Removes the group `name` below parent with its slots. True when it is gone. */
static bool remove_group(const struct cgroups *c, int parent, const char *name) {
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return true;
    DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return false;
    }
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_type != DT_DIR || e->d_name[0] == '.')
            continue;
        _cleanup_(close) int sub = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (sub >= 0)
            kill_group(c, sub);
        (void)unlinkat(fd, e->d_name, AT_REMOVEDIR);
    }
    closedir(d);
    return unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

static void remove_within(const struct cgroups *c, int parent, const char *name, int timeout_ms) {
    int64_t end = clock_mono_ms() + timeout_ms;
    while (!remove_group(c, parent, name) && clock_mono_ms() < end)
        (void)poll(NULL, 0, 5);
}

static bool cgroup_is_stale(const char *name) {
    char *end;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0)
        return false;
    long pid = strtol(name + strlen(PREFIX), &end, 10);
    if (*end != '.' || pid <= 0)
        return false;
    return start_time("", (pid_t)pid) != strtoull(end + 1, NULL, 10);
}

void cgroups_sweep_stale(const struct cgroups *c) {
    for (size_t i = 0; i < c->n; i++) {
        int fd = openat(c->hiers[i].parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        if (!d)
            continue;
        for (struct dirent *e; (e = readdir(d));)
            if (cgroup_is_stale(e->d_name))
                remove_within(c, c->hiers[i].parent, e->d_name, 2000);
        closedir(d);
    }
}

void cgroups_sweep_own(const struct cgroups *c, int timeout_ms) {
    for (size_t i = 0; i < c->n; i++)
        remove_within(c, c->hiers[i].parent, c->name, timeout_ms);
}

/* ---- slots ---- */

static void slot_name(unsigned index, char *out, size_t size) {
    (void)snprintf(out, size, "s%u", index);
}

int cgroup_slot_open(const struct cgroups *c, unsigned index, struct cgroup_slot *ret,
                     struct err *err) {
    struct cgroup_slot s = {.index = index, .peak = -1};
    char name[32];
    slot_name(index, name, sizeof(name));
    for (size_t i = 0; i < c->n; i++) {
        int base = c->hiers[i].base;
        if (mkdirat(base, name, 0755) < 0 && errno != EEXIST) {
            cgroup_slot_close(&s);
            return err_sys(err, "make a cgroup");
        }
        s.dirs[i] = openat(base, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        s.joins[i] = -1;
        s.n = i + 1;
        if (s.dirs[i] >= 0 && c->version == SANDBOX_CGROUP_V1)
            s.joins[i] =
                openat(s.dirs[i], "tasks", O_WRONLY | O_CLOEXEC | (c->fake ? O_CREAT : 0), 0644);
        if (s.dirs[i] < 0 || (c->version == SANDBOX_CGROUP_V1 && s.joins[i] < 0)) {
            int rc = err_sys(err, "open a cgroup");
            cgroup_slot_close(&s);
            return rc;
        }
    }
    if (c->version == SANDBOX_CGROUP_V2)
        s.peak = openat(s.dirs[0], "memory.peak", O_RDWR | O_CLOEXEC);
    *ret = s;
    return 0;
}

void cgroup_slot_close(struct cgroup_slot *s) {
    if (s->n > 0)
        fd_close(&s->peak);
    for (size_t i = 0; i < s->n; i++) {
        fd_close(&s->dirs[i]);
        fd_close(&s->joins[i]);
    }
    s->n = 0;
}

size_t cgroup_slot_joins(const struct cgroups *c, const struct cgroup_slot *s,
                         int ret_fds[CGROUP_HIERS_MAX]) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!(c->hiers[i].has & (HAS_MEMORY | HAS_PIDS)))
            continue;
        int fd = openat(s->dirs[i], c->version == SANDBOX_CGROUP_V2 ? "cgroup.procs" : "tasks",
                        O_WRONLY | O_CLOEXEC | (c->fake ? O_CREAT : 0), 0644);
        if (fd >= 0)
            ret_fds[n++] = fd;
    }
    return n;
}

static int limit_one(const struct cgroups *c, struct cgroup_slot *s, size_t i, uint64_t memory,
                     uint32_t pids, uint32_t cpu_milli) {
    unsigned has = c->hiers[i].has;
    bool v2 = c->version == SANDBOX_CGROUP_V2;
    int dir = s->dirs[i];
    if ((has & HAS_MEMORY) && memory != s->memory_bytes) {
        if (write_num(c, dir, v2 ? "memory.max" : "memory.limit_in_bytes", memory) < 0)
            return -1;
        if (v2) /* a guest that swaps makes its neighbours wait */
            (void)write_num(c, dir, "memory.swap.max", 0);
        /* Busy: sockets of the sandbox before it are still being closed. Its limit stays then. */
        else if (c->counts_sockets && write_num(c, dir, V1_SOCKETS, memory / SOCKETS_SHARE) < 0 &&
                 errno != EBUSY)
            return -1;
    }
    if ((has & HAS_PIDS) && pids != s->pids && write_num(c, dir, "pids.max", pids) < 0)
        return -1;
    if ((has & HAS_CPU) && cpu_milli != s->cpu_milli) {
        char text[64];
        if (v2 && cpu_milli)
            (void)snprintf(text, sizeof(text), "%u 100000", cpu_milli * 100);
        else if (v2)
            (void)snprintf(text, sizeof(text), "max 100000");
        else if (cpu_milli)
            (void)snprintf(text, sizeof(text), "%u", cpu_milli * 100);
        else
            (void)snprintf(text, sizeof(text), "-1");
        if (write_at(c, dir, v2 ? "cpu.max" : "cpu.cfs_quota_us", text) < 0)
            return -1;
    }
    return 0;
}

int cgroup_slot_limit(const struct cgroups *c, struct cgroup_slot *s, uint64_t memory_bytes,
                      uint32_t pids, uint32_t cpu_milli, struct err *err) {
    for (size_t i = 0; i < s->n; i++)
        if (limit_one(c, s, i, memory_bytes, pids, cpu_milli) < 0) {
            int rc = err_sys(err, "set the limits of a cgroup");
            s->memory_bytes = 0; /* unknown now */
            s->pids = 0;
            return rc;
        }
    s->memory_bytes = memory_bytes;
    s->pids = pids;
    s->cpu_milli = cpu_milli;
    return 0;
}

/* What is charged now. */
static uint64_t cgroup_memory_now(const struct cgroups *c, int dir) {
    if (c->version == SANDBOX_CGROUP_V2)
        return read_num(dir, "memory.current");
    return read_num(dir, "memory.usage_in_bytes") +
           (c->counts_sockets ? read_num(dir, "memory.kmem.tcp.usage_in_bytes") : 0);
}

/* A reset counts for the descriptor that asked for it. */
static uint64_t read_peak(const struct cgroups *c, const struct cgroup_slot *s, int dir) {
    char text[64];
    if (c->version == SANDBOX_CGROUP_V1)
        return read_num(dir, "memory.max_usage_in_bytes");
    if (s->peak < 0)
        return read_num(dir, "memory.peak");
    ssize_t n = pread(s->peak, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = 0;
    return strtoull(text, NULL, 10);
}

static void read_stats(const struct cgroups *c, const struct cgroup_slot *s,
                       struct sandbox_stats *st) {
    bool v2 = c->version == SANDBOX_CGROUP_V2;
    for (size_t i = 0; i < s->n; i++) {
        unsigned has = c->hiers[i].has;
        int dir = s->dirs[i];
        if (has & HAS_MEMORY) {
            st->memory_bytes = cgroup_memory_now(c, dir);
            st->memory_peak_bytes = read_peak(c, s, dir);
            st->oom_kills = (uint32_t)(v2 ? cgroup_read_key(dir, "memory.events", "oom_kill")
                                          : cgroup_read_key(dir, "memory.oom_control", "oom_kill"));
        }
        if (has & HAS_PIDS)
            st->pids = (uint32_t)read_num(dir, "pids.current");
        if (v2)
            st->cpu_us = cgroup_read_key(dir, "cpu.stat", "usage_usec");
        else if (has & HAS_CPUACCT)
            st->cpu_us = read_num(dir, "cpuacct.usage") / 1000;
    }
}

uint64_t cgroup_slot_memory(const struct cgroups *c, const struct cgroup_slot *s) {
    for (size_t i = 0; i < s->n; i++)
        if (c->hiers[i].has & HAS_MEMORY)
            return cgroup_memory_now(c, s->dirs[i]);
    return 0;
}

void cgroup_slot_stats(const struct cgroups *c, const struct cgroup_slot *s,
                       struct sandbox_stats *ret) {
    struct sandbox_stats st = {0};
    read_stats(c, s, &st);
    st.cpu_us = st.cpu_us > s->cpu_base_us ? st.cpu_us - s->cpu_base_us : 0;
    st.oom_kills = st.oom_kills > s->oom_base ? st.oom_kills - s->oom_base : 0;
    if (st.memory_peak_bytes <= s->peak_base)
        st.memory_peak_bytes = st.memory_bytes; /* at least; it did not reach the one before it */
    *ret = st;
}

/* A new group for a slot of version 2. False if the old one cannot be removed: something is in it.
 */
static bool slot_remake(const struct cgroups *c, struct cgroup_slot *s) {
    char name[32];
    struct cgroup_slot fresh;
    slot_name(s->index, name, sizeof(name));
    if (unlinkat(c->hiers[0].base, name, AT_REMOVEDIR) < 0 ||
        cgroup_slot_open(c, s->index, &fresh, NULL) < 0)
        return false;
    cgroup_slot_close(s);
    *s = fresh;
    return true;
}

void cgroup_slot_reset(const struct cgroups *c, struct cgroup_slot *s,
                       const struct sandbox_stats *last) {
    bool has_memory = c->controllers & SANDBOX_HAS_MEMORY;
    for (size_t i = 0; has_memory && c->version == SANDBOX_CGROUP_V1 && i < s->n; i++)
        if (c->hiers[i].has & HAS_MEMORY)
            (void)write_at(c, s->dirs[i], "memory.max_usage_in_bytes", "0");
    if (has_memory && c->version == SANDBOX_CGROUP_V2 &&
        (s->peak < 0 || write(s->peak, "0", 1) < 0)) {
        if (slot_remake(c, s))
            return;
        s->peak_base = MAX(s->peak_base, last->memory_peak_bytes);
    }
    s->cpu_base_us += last->cpu_us;
    s->oom_base += last->oom_kills;
}

bool cgroup_slot_freeze(const struct cgroups *c, const struct cgroup_slot *s, bool on) {
    for (size_t i = 0; i < s->n; i++) {
        if (!(c->hiers[i].has & HAS_FREEZER))
            continue;
        if (c->version == SANDBOX_CGROUP_V2)
            return write_at(c, s->dirs[i], "cgroup.freeze", on ? "1" : "0") == 0;
        return write_at(c, s->dirs[i], "freezer.state", on ? "FROZEN" : "THAWED") == 0;
    }
    return false;
}
