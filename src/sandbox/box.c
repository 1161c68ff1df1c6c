#include "sandbox/box.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "lock/privileges.h"
#include "sandbox/init.h"
#include "sandbox/sys.h"
#include "sandbox/wall.h"
#include "sandbox/watch.h"
#include "wire/frame.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <linux/openat2.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define NOSUID_NODEV (2UL | 4UL)
#define NOEXEC       8UL
#define REMOUNT      32UL
#define BIND         4096UL

enum { INOTIFY_SHARE = 4 };

struct maker {
    const struct box_params *p;
    int channel;
    int ruleset;
    int listener;
    int proc;     /* its /proc where the stage is lean, until that is mounted, or -1 */
    int watch;    /* a /proc for init alone, or -1, as are the next two */
    int disk;     /* the root of the disk, whatever will be bound over it */
    int diag;     /* a socket that tells of sockets */
    int base;     /* where the kernel leaves no bare namespace: what is below the root, until that
                     is entered, or -1 */
    int place;    /* a folder below the root, for the view, until that is there, or -1 */
    int view;     /* the root of the same tree with nothing writable of the work, or -1 */
    bool limited; /* a cgroup limits its memory */
    bool own_root;
    struct wire_reader reader;
    struct sandbox_spec spec;
    struct err err;
};

/* ---- the child: what every sandbox has ---- */

static int join_cgroups(struct maker *m) {
    if (m->p->cgroups->version != SANDBOX_CGROUP_V1 || !wall_on(WALL_CGROUP))
        return 0;
    /* Writing "0" to "tasks" moves the caller without the kernel's global lock, which moving
     * another process takes and which costs milliseconds. */
    for (size_t i = 0; i < m->p->slot->n; i++)
        if (write(m->p->slot->joins[i], "0", 1) < 0)
            return err_sys(&m->err, "join a cgroup");
    /* Only now, so that the guest sees its own group as the root. */
    if (unshare(CLONE_NEWCGROUP) < 0)
        return err_sys(&m->err, "new cgroup namespace");
    return 0;
}

static int wait_frame(struct maker *m, uint16_t type, struct wire_frame *ret) {
    int rc = wire_read(&m->reader, m->channel, ret, &m->err);
    if (rc == -ERR_CANCELLED)
        _exit(0); /* the launcher is gone: nobody wants this sandbox */
    if (rc < 0)
        return rc;
    if (ret->type != type) {
        wire_frame_finish(ret);
        return err_set(&m->err, ERR_PROTOCOL, "expected message %d, got %d", type, ret->type);
    }
    return 0;
}

/* Becomes init's ids with every capability of the new user namespace kept for now. Files are made
 * as the guest from here on. */
static int take_ids(struct maker *m) {
    bool root = m->p->stage->root;
    uid_t id = root && wall_on(WALL_UID) ? INIT_UID : SANDBOX_GUEST_UID;
    unsigned long bits = SECBIT_NO_SETUID_FIXUP;
    if (wall_on(WALL_CAPS))
        bits |= SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED |
                SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
    if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0)
        return err_sys(&m->err, "secure bits");
    if (root && setgroups(0, NULL) < 0)
        return err_sys(&m->err, "drop groups");
    if (sys_setresgid(id) < 0 || sys_setresuid(id) < 0)
        return err_sys(&m->err, "take the ids of init");
    (void)setfsgid(SANDBOX_GUEST_UID);
    (void)setfsuid(SANDBOX_GUEST_UID);
    /* Changing ids cleared it. The channel's end covers the time before. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return err_sys(&m->err, "parent death signal");
    if (prctl(PR_SET_DUMPABLE, wall_on(WALL_DUMPABLE) ? 0 : 1) < 0)
        return err_sys(&m->err, "forbid dumping");
    return 0;
}

static void disk_options(const struct sandbox_spec *s, char *out, size_t size) {
    unsigned long long bytes = s->disk_bytes, inodes = s->disk_inodes;
    if (!wall_on(WALL_DISK))
        bytes = 1ULL << 40;
    if (!wall_on(WALL_INODES))
        inodes = 0;
    (void)snprintf(out, size, "mode=755,size=%llu,nr_inodes=%llu", bytes, inodes);
}

/* A root of somebody's may have none, or links there that lead elsewhere. */
static bool has_var_tmp(void) {
    struct stat var, tmp;
    return lstat("var", &var) == 0 && S_ISDIR(var.st_mode) && lstat("var/tmp", &tmp) == 0 &&
           S_ISDIR(tmp.st_mode);
}

/* One tmpfs is the whole disk, so that one limit bounds it; the usual places are parts of it. Each
 * is reached by its own path alone: the last part covers the place that the disk itself was mounted
 * at, or a command that may not write to /work could do so by another name. The current directory
 * is the new root. */
static int mount_disk(struct maker *m) {
    enum { VAR_TMP = 2 };
    static const struct {
        const char *from, *to;
        mode_t mode;
    } parts[] = {{"home/work", "work", 0755},
                 {"home/tmp", "tmp", 01777},
                 {"home/vartmp", "var/tmp", 01777},
                 {"home/shm", "dev/shm", 01777},
                 {"home/home", "home", 0755}};
    const struct sandbox_spec defaults = {.disk_bytes = SANDBOX_DEFAULT_DISK,
                                          .disk_inodes = SANDBOX_DEFAULT_INODES};
    char options[96];
    disk_options(&defaults, options, sizeof(options));
    if (mount("cay", "home", "tmpfs", NOSUID_NODEV, options) < 0)
        return err_sys(&m->err, "mount the disk");
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        if (i == VAR_TMP && !has_var_tmp())
            continue;
        if (mkdir(parts[i].from, 0700) < 0 || chmod(parts[i].from, parts[i].mode) < 0)
            return err_sys(&m->err, "make %s", parts[i].to);
        if (mount(parts[i].from, parts[i].to, NULL, BIND, NULL) < 0)
            return err_sys(&m->err, "mount %s", parts[i].to);
    }
    return mkdir("home/cay", 0755) < 0 ? err_sys(&m->err, "make the guest's home") : 0;
}

/* Files are covered by /dev/null; folders become read-only. What is not there is not covered. */
static int mask_proc(struct maker *m) {
    static const char *const masked[] = {"proc/kcore", "proc/keys", "proc/timer_list",
                                         "proc/sysrq-trigger", "proc/interrupts"};
    /* Who may write to "pressure" makes the kernel look for him, as often as he asks. */
    static const char *const fixed[] = {"proc/sys", "proc/bus", "proc/fs", "proc/irq",
                                        "proc/pressure"};
    if (!wall_on(WALL_MASK))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(masked); i++)
        if (mount("dev/null", masked[i], NULL, BIND, NULL) < 0 && errno != ENOENT)
            return err_sys(&m->err, "mask %s", masked[i]);
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++) {
        _cleanup_(close) int tree =
            sys_open_tree(AT_FDCWD, fixed[i], OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
        if (tree < 0 && errno == ENOENT)
            continue;
        struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
        if (tree < 0 || sys_mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr) < 0 ||
            sys_move_mount(tree, AT_FDCWD, fixed[i]) < 0)
            return err_sys(&m->err, "make %s read-only", fixed[i]);
    }
    return 0;
}

/* The kernel counts these for the user who made the namespaces, all sandboxes and all else of his
 * together: a guest gets a quarter of what there is. The current directory is the new root. */
static void limit_inotify(void) {
    static const char *const kinds[] = {"instances", "watches"};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        char path[64], text[32];
        (void)snprintf(path, sizeof(path), "proc/sys/fs/inotify/max_user_%s", kinds[i]);
        _cleanup_(close) int all = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = all < 0 ? -1 : read(all, text, sizeof(text) - 1);
        if (n <= 0)
            continue; /* a kernel without them */
        text[n] = 0;
        (void)snprintf(path, sizeof(path), "proc/sys/user/max_inotify_%s", kinds[i]);
        (void)snprintf(text, sizeof(text), "%ld", strtol(text, NULL, 10) / INOTIFY_SHARE);
        _cleanup_(close) int own = open(path, O_WRONLY | O_CLOEXEC);
        if (own >= 0) /* or else a container around us has closed it: then all share what it has */
            (void)!write(own, text, strlen(text));
    }
}

/* Where no cgroup counts memory, init does, and must see what hides: a process that made itself
 * undumpable is invisible in the guest's /proc. This one is attached nowhere. */
static int open_watch(struct maker *m) {
    const struct cgroups *c = m->p->cgroups;
    if (cgroups_bound_memory(c) && wall_on(WALL_CGROUP)) {
        /* Version 1 grants each TCP socket one packet beyond its limit. Version 2 ends somebody for
         * them. */
        m->diag = c->version == SANDBOX_CGROUP_V1 ? watch_diag() : -1;
        return 0;
    }
    _cleanup_(close) int fs = (int)syscall(SYS_fsopen, "proc", FSOPEN_CLOEXEC);
    if (fs < 0 || syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return err_sys(&m->err, "open the memory watch");
    m->disk = open("home", O_PATH | O_DIRECTORY | O_CLOEXEC);
    m->diag = watch_diag();
    m->watch = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
                            MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    return m->watch < 0 ? err_sys(&m->err, "mount /proc for the memory watch") : 0;
}

static int mount_proc(struct maker *m) {
    if (!m->p->stage->has_proc)
        return 0;
    const char *options = wall_on(WALL_HIDEPID) ? "hidepid=2" : "";
    if (m->p->stage->lean ? sys_move_mount(m->proc, AT_FDCWD, "proc") < 0
                          : mount("proc", "proc", "proc", NOSUID_NODEV | NOEXEC, options) < 0)
        return err_sys(&m->err, "mount /proc");
    fd_close(&m->proc);
    limit_inotify();
    int rc = open_watch(m); /* before parts are covered: the kernel asks for a whole one */
    return rc < 0 ? rc : mask_proc(m);
}

/* What the root is mounted over: in the bare namespace its own root, which is empty. Elsewhere the
 * launcher's has to go, so there is one like it. A folder in it is the place for the view. */
static int open_base(struct maker *m) {
    const char *place = "/m";
    if (!m->p->stage->lean) {
        place = "/m/m";
        if (mount("tmpfs", "/m", "tmpfs", NOSUID_NODEV, "mode=755,size=4k,nr_inodes=8") < 0 ||
            mkdir(place, 0755) < 0)
            return err_sys(&m->err, "mount what is below the root");
        m->base = open("/m", O_PATH | O_DIRECTORY | O_CLOEXEC);
    }
    m->place = open(place, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return m->place < 0 || (!m->p->stage->lean && m->base < 0)
               ? err_sys(&m->err, "open what is below the root")
               : 0;
}

/* There is nothing below that could be reached: the root covers it. The launcher's own root comes
 * to lie over it and goes. */
static int enter_root(struct maker *m) {
    _cleanup_(close) int root = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool in = root >= 0;
    if (in && !m->p->stage->lean)
        in = fchdir(m->base) == 0 && sys_pivot_root(".", ".") == 0 &&
             umount2(".", SYS_MNT_DETACH) == 0 && fchdir(root) == 0;
    fd_close(&m->base);
    return in && chroot(".") == 0 && chdir("/work") == 0 ? 0 : err_sys(&m->err, "enter the root");
}

/* The machine has a number of terminals for all: a sandbox may have its share. */
static int mount_terminals(struct maker *m) {
    char options[64];
    int n = snprintf(options, sizeof(options), "newinstance,ptmxmode=0666,mode=620");
    if (wall_on(WALL_TERMINALS))
        (void)snprintf(options + n, sizeof(options) - (size_t)n, ",max=%u", m->p->stage->terminals);
    return mount("devpts", "dev/pts", "devpts", 2UL | NOEXEC, options) < 0
               ? err_sys(&m->err, "mount /dev/pts")
               : 0;
}

static int build_world(struct maker *m, int tree) {
    int rc = open_base(m);
    if (rc < 0)
        return rc;
    if (sys_move_mount(tree, AT_FDCWD, m->p->stage->lean ? "/" : "/m") < 0 || fchdir(tree) < 0)
        return err_sys(&m->err, "attach the root");
    close(tree);
    rc = mount_disk(m);
    if (rc == 0)
        rc = mount_terminals(m);
    if (rc == 0)
        rc = mount_proc(m);
    return rc == 0 ? enter_root(m) : rc;
}

/* 0, 1 and 2 are the sandbox's own /dev/null, and no other descriptor is left. */
static int keep_only(struct maker *m, int *keep, size_t n) {
    if (wall_on(WALL_CLOSE))
        fd_close_others(3, keep, n);
    (void)m;
    return 0;
}

static int null_streams(struct maker *m) {
    _cleanup_(close) int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0 || dup2(fd, 0) < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
        return err_sys(&m->err, "open /dev/null");
    return 0;
}

static int box_warm_up(struct maker *m, int tree) {
    int rc = join_cgroups(m);
    int keep[] = {m->channel, tree};
    if (rc == 0)
        rc = keep_only(m, keep, 2);
    if (rc == 0)
        rc = lockdown_bounding(&m->err); /* while the launcher maps the ids */
    struct wire_frame f;
    if (rc == 0)
        rc = wait_frame(m, INIT_GO, &f);
    if (rc < 0)
        return rc;
    m->proc = wire_frame_take_fd(&f, 0);
    wire_frame_finish(&f);
    rc = take_ids(m);
    if (rc == 0)
        rc = build_world(m, tree);
    if (rc == 0)
        rc = null_streams(m);
    static const char *const writable[] = {"/work", "/tmp", "/var/tmp", "/home", "/dev/shm"};
    if (rc == 0)
        rc = lockdown_ruleset(m->p->lockdown, writable, ARRAY_LEN(writable), &m->ruleset, &m->err);
    if (rc == 0 && m->watch >= 0 && m->ruleset >= 0)
        rc = lockdown_allow_read(m->p->lockdown, m->ruleset, m->watch, &m->err);
    return rc;
}

/* ---- the child: what the spec asks for ---- */

static int resize_disk(struct maker *m) {
    if (m->spec.disk_bytes == SANDBOX_DEFAULT_DISK && m->spec.disk_inodes == SANDBOX_DEFAULT_INODES)
        return 0;
    char options[96];
    disk_options(&m->spec, options, sizeof(options));
    if (mount(NULL, "/home", NULL, REMOUNT | NOSUID_NODEV, options) < 0)
        return err_sys(&m->err, "set the size of the disk");
    return 0;
}

/* What a bind may not hide: guests and this program rely on what is there. A single file of /etc
 * may be another one. */
static bool is_system_path(const char *path) {
    static const char *const names[] = {"usr",  "dev", "proc",  "sys",   "bin",
                                        "sbin", "lib", "lib32", "lib64", "libx32"};
    size_t n = strcspn(path + 1, "/");
    if (strcmp(path, "/etc") == 0)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strlen(names[i]) == n && memcmp(path + 1, names[i], n) == 0)
            return true;
    return false;
}

static int check_bind_path(struct maker *m, char *path) {
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = 0;
    if (strcmp(path, "/") == 0)
        return err_set(&m->err, ERR_BAD_REQUEST,
                       "bind path '/' would hide the system: name a folder, or another root");
    if (path[0] != '/' || strlen(path) >= PATH_MAX)
        return err_set(&m->err, ERR_BAD_REQUEST, "bind path '%s' is not absolute", path);
    for (const char *p = path; *p;) {
        size_t n = strcspn(p + 1, "/");
        if (!path_is_plain_name(p + 1, n))
            return err_set(&m->err, ERR_BAD_REQUEST,
                           "bind path '%s' has a part that is empty, '.' or '..'", path);
        p += n + 1;
    }
    if (is_system_path(path))
        return err_set(&m->err, ERR_BAD_REQUEST,
                       "bind path '%s' would hide a part of the system (/usr, /etc, /dev, /proc, "
                       "/sys): name another, such as /work/src",
                       path);
    return 0;
}

/* Makes the folders of a guest path, and a folder or file for its last part, and returns a
 * descriptor of that; -1 with errno if it cannot be had. No guest has run yet. */
static int make_point(const char *path, bool is_file) {
    char part[PATH_MAX];
    for (const char *p = path + 1; *p; p++) {
        if (p[1] != '/' && p[1] != 0)
            continue;
        (void)snprintf(part, sizeof(part), "%.*s", (int)(p + 1 - path), path);
        if (p[1] == 0 && is_file) {
            int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
            fd_close(&fd);
        } else {
            (void)mkdir(part, 0755); /* what is wrong shows when it is opened */
        }
    }
    _cleanup_(close) int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return path_open_how(root, path, O_PATH | (is_file ? 0 : O_DIRECTORY), 0,
                         RESOLVE_NO_MAGICLINKS | RESOLVE_IN_ROOT);
}

/* ---- a root of its own, for mount points that the common one does not have ---- */

static int move_entry(struct maker *m, const char *from, const char *to) {
    _cleanup_(close) int tree =
        sys_open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (tree < 0 || sys_move_mount(tree, AT_FDCWD, to) < 0)
        return err_sys(&m->err, "a root for binds: %s", from);
    return 0;
}

/* What is mounted, and /etc, is mounted there too; folders that are only there to be used (/mnt,
 * /run, /var) are made anew; links are copied. */
static int copy_entry(struct maker *m, const char *name, dev_t root) {
    char from[NAME_MAX + 2], to[NAME_MAX + 8], target[PATH_MAX];
    struct stat st;
    (void)snprintf(from, sizeof(from), "/%s", name);
    (void)snprintf(to, sizeof(to), "/mnt/%s", name);
    if (lstat(from, &st) < 0)
        return err_sys(&m->err, "a root for binds: %s", from);
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlink(from, target, sizeof(target) - 1);
        if (n < 0)
            return err_sys(&m->err, "a root for binds: %s", from);
        target[n] = 0;
        return symlink(target, to) < 0 ? err_sys(&m->err, "a root for binds: %s", to) : 0;
    }
    if (!S_ISDIR(st.st_mode))
        return 0;
    if (mkdir(to, 0755) < 0)
        return err_sys(&m->err, "a root for binds: %s", to);
    if (st.st_dev != root || strcmp(name, "etc") == 0)
        return move_entry(m, from, to);
    if (strcmp(name, "var") != 0 || lstat("/var/tmp", &st) < 0 || st.st_dev == root)
        return 0;
    if (mkdir("/mnt/var/tmp", 0755) < 0)
        return err_sys(&m->err, "a root for binds: /var/tmp");
    return move_entry(m, "/var/tmp", "/mnt/var/tmp");
}

/* The root is one tmpfs for all sandboxes, so nothing is made in it. */
static int own_root(struct maker *m) {
    struct stat root;
    int rc = 0;
    if (lstat("/", &root) < 0 ||
        mount("tmpfs", "/mnt", "tmpfs", NOSUID_NODEV, "mode=755,size=256k,nr_inodes=512") < 0)
        return err_sys(&m->err, "a root for binds");
    DIR *d = opendir("/");
    if (!d)
        return err_sys(&m->err, "a root for binds");
    for (struct dirent *e; rc == 0 && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = strcmp(e->d_name, "mnt") == 0 ? mkdir("/mnt/mnt", 0755)
                                               : copy_entry(m, e->d_name, root.st_dev);
    closedir(d);
    if (rc < 0)
        return m->err.code ? rc : err_sys(&m->err, "a root for binds");
    if (chdir("/mnt") < 0 || sys_pivot_root(".", ".") < 0 || umount2(".", SYS_MNT_DETACH) < 0 ||
        chdir("/work") < 0)
        return err_sys(&m->err, "enter the root for binds");
    m->own_root = true;
    return m->ruleset >= 0 ? lockdown_allow_root(m->p->lockdown, m->ruleset, &m->err) : 0;
}

static int seal_root(struct maker *m) {
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    if (!m->own_root || !wall_on(WALL_READONLY))
        return 0;
    return sys_mount_setattr(AT_FDCWD, "/", 0, &attr) < 0
               ? err_sys(&m->err, "make the root read-only")
               : 0;
}

static int is_file_bind(struct maker *m, const struct wire_frame *f, size_t i, bool *ret) {
    struct stat st;
    if (i >= f->nfds || fstat(f->fds[i], &st) < 0)
        return err_set(&m->err, ERR_PROTOCOL, "bind '%s' has no descriptor", m->spec.binds[i].path);
    *ret = !S_ISDIR(st.st_mode);
    return 0;
}

/* Before anything is attached: are all the places there, or can they be made? */
static int prepare_binds(struct maker *m, const struct wire_frame *f) {
    bool missing = false;
    for (size_t i = 0; i < m->spec.nbinds; i++) {
        bool is_file = false;
        int rc = check_bind_path(m, m->spec.binds[i].path);
        if (rc == 0)
            rc = is_file_bind(m, f, i, &is_file);
        if (rc < 0)
            return rc;
        int at = make_point(m->spec.binds[i].path, is_file);
        missing = missing || at < 0;
        fd_close(&at);
    }
    return missing && !m->own_root ? own_root(m) : 0;
}

static int attach_binds(struct maker *m, struct wire_frame *f) {
    int rc = m->spec.nbinds > 0 ? prepare_binds(m, f) : 0;
    for (size_t i = 0; rc == 0 && i < m->spec.nbinds; i++) {
        const char *path = m->spec.binds[i].path;
        bool is_file = false;
        (void)is_file_bind(m, f, i, &is_file);
        _cleanup_(close) int at = make_point(path, is_file);
        if (at < 0 && (errno == ENOENT || errno == ENOTDIR))
            return err_set(&m->err, ERR_BAD_REQUEST,
                           "bind path '%s' cannot be made: it lies in a folder of the system",
                           path);
        if (at < 0)
            return err_sys(&m->err, "bind path '%s'", path);
        _cleanup_(close) int tree = wire_frame_take_fd(f, i);
        if (syscall(SYS_move_mount, tree, "", at, "",
                    MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
            rc = err_sys(&m->err, "bind '%s'", path);
    }
    return rc;
}

/* ---- a guest with another name, and another place for its work ---- */

static int check_user(struct maker *m) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    const char *user = m->spec.user;
    size_t n = strlen(user);
    if (n > 32 || strspn(user, letters) != n || user[0] == '-')
        return err_set(&m->err, ERR_BAD_REQUEST, "'%.40s' is no name for an account", user);
    return 0;
}

/* Of a line of /etc/passwd or /etc/group: the guest's id, or its new name. */
static bool is_guests_line(const struct maker *m, const char *line, size_t len) {
    const char *x = memchr(line, ':', len);
    const char *id = x ? memchr(x + 1, ':', len - (size_t)(x + 1 - line)) : NULL;
    size_t name = x ? (size_t)(x - line) : len;
    return (id && strncmp(id, ":1000:", 6) == 0) ||
           (name == strlen(m->spec.user) && memcmp(line, m->spec.user, name) == 0);
}

/* Covers a file of /etc by one without the guest's line but with this. What is not there is not
 * covered. */
static int cover_account(struct maker *m, const char *path, const char *line) {
    static const char own[] = "/run/account";
    _cleanup_(buf) struct buf have;
    _cleanup_(buf) struct buf out;
    buf_init(&have, 1 << 20);
    buf_init(&out, 2 << 20);
    if (fd_read_file(AT_FDCWD, path, &have, NULL) < 0)
        return 0;
    (void)buf_add_char(&have, 0);
    for (const char *at = have.data; at && *at;) {
        const char *end = strchrnul(at, '\n');
        if (!is_guests_line(m, at, (size_t)(end - at)))
            (void)buf_addf(&out, "%.*s\n", (int)(end - at), at);
        at = *end ? end + 1 : end;
    }
    (void)buf_add_str(&out, line);
    _cleanup_(close) int fd = open(own, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || fd_write_all(fd, out.data, out.len) < 0)
        return err_sys(&m->err, "write %s", path);
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    if (mount(own, path, NULL, BIND, NULL) < 0 || unlink(own) < 0 ||
        (wall_on(WALL_READONLY) && sys_mount_setattr(AT_FDCWD, path, 0, &attr) < 0))
        return err_sys(&m->err, "cover %s", path);
    return 0;
}

static int box_name_guest(struct maker *m) {
    const char *user = m->spec.user;
    int rc = check_user(m);
    if (rc < 0)
        return rc;
    _cleanup_(free) char *home = xasprintf("/home/%s", user);
    _cleanup_(free) char *passwd = xasprintf("%s:x:1000:1000:%s:%s:/bin/bash\n", user, user, home);
    _cleanup_(free) char *group = xasprintf("%s:x:1000:\n", user);
    if (mkdir(home, 0755) < 0 && errno != EEXIST)
        return err_sys(&m->err, "make %s", home);
    rc = cover_account(m, "/etc/passwd", passwd);
    return rc == 0 ? cover_account(m, "/etc/group", group) : rc;
}

/* The same folder as /work. */
static int place_work(struct maker *m) {
    int rc = check_bind_path(m, m->spec.work);
    if (rc < 0)
        return rc;
    _cleanup_(close) int at = make_point(m->spec.work, false);
    if (at < 0 || mount("/work", m->spec.work, NULL, BIND, NULL) < 0)
        return err_sys(&m->err, "the work folder at %s", m->spec.work);
    return 0;
}

static int box_make_listener(struct maker *m, int *ret_fd) {
    _cleanup_(close) int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(SANDBOX_EGRESS_PORT),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    if (s < 0 || setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        bind(s, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(s, 128) < 0)
        return err_sys(&m->err, "listen on 127.0.0.1:%d inside", SANDBOX_EGRESS_PORT);
    *ret_fd = steal_fd(&s);
    return 0;
}

static int limit_self(struct maker *m) {
    const struct sandbox_spec *s = &m->spec;
    if (!wall_on(WALL_RLIMIT))
        return 0;
    /* RLIMIT_AS is never set: node and others reserve far more than they use. init may start a few
     * more processes than the guest, so that a fork bomb can still be looked at and ended, and has
     * more descriptors (see become_guest()). */
    const struct {
        int resource;
        rlim_t value;
    } limits[] = {{RLIMIT_NPROC, (rlim_t)s->pids + 16},
                  /* A memfd is a file too: it is memory that ends it, or the disk. */
                  {RLIMIT_FSIZE, MAX(MAX(s->disk_bytes, s->memory_bytes), SANDBOX_DEFAULT_DISK)},
                  {RLIMIT_MEMLOCK, 8 << 20},
                  {RLIMIT_MSGQUEUE, 819200},
                  {RLIMIT_SIGPENDING, 1024},
                  {RLIMIT_NICE, 0},
                  {RLIMIT_RTPRIO, 0},
                  {RLIMIT_DATA, m->limited ? RLIM_INFINITY : s->memory_bytes}};
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        struct rlimit have, want = {limits[i].value, limits[i].value};
        if (getrlimit((__rlimit_resource_t)limits[i].resource, &have) < 0)
            return err_sys(&m->err, "read a limit");
        want.rlim_cur = want.rlim_max = MIN(want.rlim_max, have.rlim_max);
        if (setrlimit((__rlimit_resource_t)limits[i].resource, &want) < 0)
            return err_sys(&m->err, "set limit %d", limits[i].resource);
    }
    return 0;
}

static bool binds_writable(const struct sandbox_spec *s) {
    for (size_t i = 0; i < s->nbinds; i++)
        if (s->binds[i].mode == SANDBOX_BIND_RW)
            return true;
    return false;
}

/* Landlock knows the usual places; writable binds that lie elsewhere are added. */
static int allow_binds(struct maker *m) {
    for (size_t i = 0; m->ruleset >= 0 && i < m->spec.nbinds; i++) {
        if (m->spec.binds[i].mode != SANDBOX_BIND_RW)
            continue;
        int rc =
            lockdown_allow_writable(m->p->lockdown, m->ruleset, m->spec.binds[i].path, &m->err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- the view of commands that may not write ---- */

static int close_in_view(struct maker *m, int tree, const char *path) {
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
    _cleanup_(close) int at =
        path_open_how(tree, path, O_PATH, 0, RESOLVE_NO_MAGICLINKS | RESOLVE_IN_ROOT);
    if (at < 0 || sys_mount_setattr(at, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr) < 0)
        return err_sys(&m->err, "make %s read-only for commands that are", path);
    return 0;
}

/* The same tree once more, in which the work folder and what is bound writable are read-only. Init
 * can mount nothing any more when it runs a command: one that may not write gets this root. It is
 * attached in the same namespace, below the root where no path leads, so that it goes with it. */
static int make_view(struct maker *m) {
    _cleanup_(close) int tree =
        sys_open_tree(AT_FDCWD, "/", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (tree < 0)
        return err_sys(&m->err, "copy the root");
    if (syscall(SYS_move_mount, tree, "", m->place, "",
                MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return err_sys(&m->err, "attach the copy of the root");
    fd_close(&m->place);
    int rc = close_in_view(m, tree, "/work");
    if (rc == 0 && m->spec.work && *m->spec.work)
        rc = close_in_view(m, tree, m->spec.work);
    for (size_t i = 0; rc == 0 && i < m->spec.nbinds; i++)
        if (m->spec.binds[i].mode == SANDBOX_BIND_RW)
            rc = close_in_view(m, tree, m->spec.binds[i].path);
    if (rc < 0)
        return rc;
    m->view = steal_fd(&tree);
    return 0;
}

static int take_spec(struct maker *m, struct wire_frame *f) {
    int rc = wait_frame(m, INIT_SETUP, f);
    if (rc < 0)
        return rc;
    struct unpack u;
    unpack_init(&u, f->data, f->len);
    m->limited = unpack_u8(&u) != 0;
    unpack_sandbox_spec(&u, &m->spec);
    return unpack_ok(&u) ? 0 : err_set(&m->err, ERR_PROTOCOL, "malformed spec");
}

/* What needs capabilities. */
static int box_shape(struct maker *m, struct wire_frame *f) {
    bool named = m->spec.user && *m->spec.user;
    bool placed = m->spec.work && *m->spec.work;
    int rc = resize_disk(m);
    if (rc == 0 && (named || placed))
        rc = own_root(m);
    if (rc == 0 && placed)
        rc = place_work(m);
    if (rc == 0 && named)
        rc = box_name_guest(m);
    if (rc == 0)
        rc = attach_binds(m, f);
    if (rc == 0)
        rc = seal_root(m);
    const char *name = m->spec.hostname && *m->spec.hostname ? m->spec.hostname : "sandbox";
    if (rc == 0 && sethostname(name, strlen(name)) < 0)
        rc = err_sys(&m->err, "set the host name");
    if (rc == 0)
        rc = allow_binds(m);
    return rc == 0 ? make_view(m) : rc;
}

static int box_lock(struct maker *m) {
    bool own_uid = m->p->stage->root && wall_on(WALL_UID);
    uint64_t keep = (wall_on(WALL_VIEW) ? CAPS_VIEW : 0) | (own_uid ? CAPS_INIT : 0);
    int rc = wall_on(WALL_CAPS) ? privileges_set_caps(keep) : 0;
    errno = -rc;
    if (rc < 0)
        return err_sys(&m->err, "drop capabilities");
    rc = lockdown_enforce(m->p->lockdown, m->ruleset, &m->err);
    fd_close(&m->ruleset);
    return rc;
}

/* A box for the pool is locked before it waits, because installing the filter costs as much as a
 * fork; it takes only specs that are box_spec_is_plain(). Another is shaped first. */
static int box_set_up(struct maker *m) {
    struct wire_frame f = {0};
    m->spec = (struct sandbox_spec){.disk_bytes = SANDBOX_DEFAULT_DISK,
                                    .disk_inodes = SANDBOX_DEFAULT_INODES};
    bool early = m->p->ahead == BOX_LOCKED;
    if (m->p->ahead == BOX_BLANK)
        init_prepare();
    int rc = early ? box_shape(m, &f) : take_spec(m, &f);
    if (rc == 0 && !early)
        rc = box_shape(m, &f);
    if (rc == 0)
        rc = box_lock(m);
    if (rc == 0 && early) {
        init_prepare();
        rc = take_spec(m, &f);
    }
    wire_frame_finish(&f);
    if (rc == 0 && m->spec.egress)
        rc = box_make_listener(m, &m->listener);
    return rc == 0 ? limit_self(m) : rc;
}

bool box_spec_is_plain(const struct sandbox_spec *s) {
    return *s->root == 0 && *s->hostname == 0 && *s->user == 0 && *s->work == 0 && s->nbinds == 0 &&
           s->disk_bytes == SANDBOX_DEFAULT_DISK && s->disk_inodes == SANDBOX_DEFAULT_INODES;
}

static _Noreturn void box_fail(struct maker *m) {
    struct buf b;
    buf_init(&b, 4096);
    pack_sandbox_error(&b, &m->err);
    (void)wire_send(m->channel,
                    &(struct wire_out){.type = INIT_FAILED, .pieces = {{b.data, b.len}}});
    _exit(1);
}

static _Noreturn void child_main(const struct box_params *p, int channel, int tree) {
    struct maker m = {.p = p,
                      .channel = channel,
                      .ruleset = -1,
                      .listener = -1,
                      .proc = -1,
                      .watch = -1,
                      .disk = -1,
                      .diag = -1,
                      .base = -1,
                      .place = -1,
                      .view = -1};
    wire_reader_init(&m.reader, SANDBOX_INIT_MAX);
    if (box_warm_up(&m, tree) < 0 || box_set_up(&m) < 0)
        box_fail(&m);
    struct wire_out ready = {
        .type = INIT_READY, .fds = &m.listener, .nfds = m.listener >= 0 ? 1 : 0};
    if (wire_send(channel, &ready) < 0)
        _exit(1);
    fd_close(&m.listener);
    init_run(&(struct init_options){
        .channel = channel,
        .reader = &m.reader,
        .lockdown = p->lockdown,
        .spec = &m.spec,
        .own_uid = p->stage->root && wall_on(WALL_UID),
        .proc = m.watch,
        .disk = m.disk,
        .diag = m.diag,
        .watch_memory = !m.limited && wall_on(WALL_WATCH),
        .terminals = p->stage->terminals,
        .view = m.view,
        .watch_sockets = m.limited && m.diag >= 0 && wall_on(WALL_WATCH),
        .no_suid = binds_writable(&m.spec) && wall_on(WALL_SUID),
    });
}

/* ---- the launcher's side ---- */

static int box_write_map(const struct box_params *p, pid_t pid, const char *file, const char *map,
                         struct err *err) {
    char path[64];
    (void)snprintf(path, sizeof(path), "%d/%s", (int)pid, file);
    _cleanup_(close) int fd = openat(p->stage->proc, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, map, strlen(map)) < 0)
        return err_sys(err, "write %s of a sandbox", file);
    return 0;
}

static int map_ids(const struct box_params *p, pid_t pid, struct err *err) {
    char uids[96], gids[96];
    if (p->stage->root) {
        (void)snprintf(uids, sizeof(uids), "%d %u 1\n%d %u 1\n", INIT_UID, p->uid,
                       SANDBOX_GUEST_UID, p->uid + 1);
        (void)snprintf(gids, sizeof(gids), "%s", uids);
    } else {
        (void)snprintf(uids, sizeof(uids), "%d %u 1\n", SANDBOX_GUEST_UID, p->stage->uid);
        (void)snprintf(gids, sizeof(gids), "%d %u 1\n", SANDBOX_GUEST_UID, p->stage->gid);
    }
    int rc = box_write_map(p, pid, "uid_map", uids, err);
    return rc < 0 ? rc : box_write_map(p, pid, "gid_map", gids, err);
}

/* Unmounting waits for every processor to have been somewhere else (RCU), up to a millisecond on a
 * busy machine. Held here, that does not come between the end of a box and the word of it. */
static int open_mounts(const struct box_params *p, pid_t pid) {
    char path[64];
    (void)snprintf(path, sizeof(path), "%d/ns/mnt", (int)pid);
    return openat(p->stage->proc, path, O_RDONLY | O_CLOEXEC);
}

/* The child waits for this: it has ids now, and what only we can make. */
static int let_begin(const struct box_params *p, const struct box *b, struct err *err) {
    _cleanup_(close) int proc = -1;
    int rc = map_ids(p, b->pid, err);
    if (rc == 0 && p->stage->lean)
        rc = stage_make_proc(p->stage, b->pid, &proc, err);
    if (rc < 0)
        return rc;
    struct wire_out go = {.type = INIT_GO, .fds = &proc, .nfds = proc >= 0 ? 1 : 0};
    return wire_send(b->channel, &go) < 0 ? err_sys(err, "start a sandbox") : 0;
}

int box_spawn(const struct box_params *p, struct box *ret, struct err *err) {
    int tree_fd, pair[2], pidfd = -1;
    int rc = stage_clone_root(p->stage, p->root, &tree_fd, err);
    if (rc < 0)
        return rc;
    _cleanup_(close) int tree = tree_fd;
    rc = fd_pair(pair, err);
    if (rc < 0)
        return rc;
    _cleanup_(close) int ours = pair[0];
    _cleanup_(close) int theirs = pair[1];
    struct clone_args args = {
        .flags =
            CLONE_PIDFD | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS,
        .pidfd = (uint64_t)(uintptr_t)&pidfd,
        .exit_signal = SIGCHLD,
    };
    if (p->cgroups->version != SANDBOX_CGROUP_V1)
        args.flags |= CLONE_NEWCGROUP;
    if (p->cgroups->version == SANDBOX_CGROUP_V2 && wall_on(WALL_CGROUP)) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)p->slot->dirs[0];
    }
    int net_fd;
    rc = netns_enter(p->netns, &net_fd, err);
    if (rc < 0)
        return rc;
    _cleanup_(close) int net = net_fd;
    rc = stage_leave(p->stage, err);
    pid_t pid = rc < 0 ? -1 : sys_clone3(&args);
    if (pid == 0) {
        close(ours);
        child_main(p, theirs, tree);
    }
    if (rc == 0 && pid < 0)
        rc = err_sys(err, "clone a sandbox");
    int back = stage_return(p->stage, rc == 0 ? err : NULL);
    int home = netns_leave(p->netns, rc == 0 && back == 0 ? err : NULL);
    if (pid < 0)
        return rc;
    struct box b = {
        .pid = pid, .pidfd = pidfd, .channel = steal_fd(&ours), .mounts = -1, .net = -1};
    b.mounts = open_mounts(p, pid); /* while it can still be looked at */
    rc = back < 0 ? back : home < 0 ? home : let_begin(p, &b, err);
    if (rc < 0) {
        (void)sys_pidfd_send_signal(pidfd, SIGKILL);
        fd_close(&b.pidfd);
        fd_close(&b.channel);
        fd_close(&b.mounts);
        /* The launcher's loop reaps it. */
        return rc;
    }
    b.net = steal_fd(&net);
    *ret = b;
    return 0;
}
