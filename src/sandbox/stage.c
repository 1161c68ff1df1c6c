#include "sandbox/stage.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "sandbox/sys.h"
#include "sandbox/wall.h"
#include "wire/frame.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>

enum { BIND_REQUEST = 1, BIND_OK, BIND_ERROR, BIND_FRAME_MAX = 4096 };

#define RO_ATTRS (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define PRIVATE  (1UL << 18)
#define SLAVE    (1UL << 19)
#define REC      16384UL

/* Terminals of one sandbox: not so few that a multiplexer does not work, not more than anybody
 * needs. */
enum { TERMINALS_MIN = 4, TERMINALS_MAX = 64 };

static int write_file(int dirfd, const char *path, const char *text, struct err *err) {
    _cleanup_(close) int fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_sys(err, "open %s", path);
    if (fd_write_all(fd, text, strlen(text)) < 0)
        return err_sys(err, "write %s", path);
    return 0;
}

static int stage_write_proc(const char *path, const char *text, struct err *err) {
    _cleanup_(close) int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "open %s", path);
    if (write(fd, text, strlen(text)) < 0)
        return err_sys(err, "write %s", path);
    return 0;
}

/* ---- templates: built in the current directory ---- */

static int make_dir(const char *path, mode_t mode, struct err *err) {
    if (mkdir(path, mode) < 0 && errno != EEXIST)
        return err_sys(err, "template: make %s", path);
    if (chmod(path, mode) < 0)
        return err_sys(err, "template: chmod %s", path);
    return 0;
}

static int bind_ro(const char *from, const char *to, struct err *err) {
    _cleanup_(close) int tree =
        sys_open_tree(AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (tree < 0)
        return err_sys(err, "template: open %s", from);
    struct mount_attr attr = {.attr_set = RO_ATTRS};
    if (!wall_on(WALL_READONLY))
        attr.attr_set &= ~(uint64_t)MOUNT_ATTR_RDONLY;
    if (sys_mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr) < 0)
        return err_sys(err, "template: make %s read-only", from);
    if (sys_move_mount(tree, AT_FDCWD, to) < 0)
        return err_sys(err, "template: attach %s", to);
    return 0;
}

/* Directories of `from` are bound, links copied; files on the top level are left out. */
static int stage_add_entry(const char *from, const char *name, struct err *err) {
    _cleanup_(free) char *path = path_join(from, name);
    struct stat st;
    if (lstat(path, &st) < 0)
        return 0;
    if (S_ISLNK(st.st_mode)) {
        char target[PATH_MAX];
        ssize_t n = readlink(path, target, sizeof(target) - 1);
        if (n < 0)
            return err_sys(err, "template: read link %s", path);
        target[n] = 0;
        if (symlink(target, name) < 0)
            return err_sys(err, "template: link %s", name);
        return 0;
    }
    if (!S_ISDIR(st.st_mode))
        return 0;
    int rc = make_dir(name, 0755, err);
    return rc < 0 ? rc : bind_ro(path, name, err);
}

static int add_etc(struct err *err) {
    static const struct {
        const char *path, *text;
    } files[] = {
        {"etc/passwd", "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
                       "init:x:1:1:cay init:/nonexistent:/usr/sbin/nologin\n"
                       "cay:x:1000:1000:cay guest:/home/cay:/bin/bash\n"
                       "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
        {"etc/group", "root:x:0:\ninit:x:1:\ntty:x:5:\ncay:x:1000:\nnogroup:x:65534:\n"},
        {"etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"},
        {"etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"},
        {"etc/resolv.conf", ""},
        {"etc/host.conf", "multi on\n"},
        {"etc/protocols", "ip 0 IP\nicmp 1 ICMP\ntcp 6 TCP\nudp 17 UDP\n"},
        {"etc/services", "http 80/tcp\nhttps 443/tcp\n"},
        {"etc/shells", "/bin/sh\n/bin/bash\n"},
        {"etc/gitconfig",
         "[safe]\n\tdirectory = *\n[user]\n\tname = cay\n\temail = cay@localhost\n"},
    };
    int rc = make_dir("etc", 0755, err);
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(files); i++)
        rc = write_file(AT_FDCWD, files[i].path, files[i].text, err);
    /* What programs of the host's /usr reach through /etc. */
    static const char *const dirs[] = {"alternatives", "ssl",        "ca-certificates",
                                       "python3",      "python3.11", "npm"};
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(dirs); i++) {
        char from[64], to[64];
        (void)snprintf(from, sizeof(from), "/etc/%s", dirs[i]);
        (void)snprintf(to, sizeof(to), "etc/%s", dirs[i]);
        struct stat st;
        if (stat(from, &st) < 0 || !S_ISDIR(st.st_mode))
            continue;
        rc = make_dir(to, 0755, err);
        if (rc == 0)
            rc = bind_ro(from, to, err);
    }
    /* The loader's cache saves every program a search; it names nothing secret. */
    struct buf b;
    buf_init(&b, 4 * 1024 * 1024);
    if (rc == 0 && fd_read_file(AT_FDCWD, "/etc/ld.so.cache", &b, NULL) == 0) {
        _cleanup_(close) int fd =
            open("etc/ld.so.cache", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (fd < 0 || fd_write_all(fd, b.data, b.len) < 0)
            rc = err_sys(err, "template: ld.so.cache");
    }
    buf_finish(&b);
    return rc;
}

static int add_dev(bool root, struct err *err) {
    static const struct {
        const char *name;
        unsigned major, minor;
    } nodes[] = {{"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
                 {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};
    int rc = make_dir("dev", 0755, err);
    if (rc < 0)
        return rc;
    if (mount("tmpfs", "dev", "tmpfs", 0, "mode=755,size=64k,nr_inodes=64") < 0)
        return err_sys(err, "template: mount dev");
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
        char from[32], to[32];
        (void)snprintf(from, sizeof(from), "/dev/%s", nodes[i].name);
        (void)snprintf(to, sizeof(to), "dev/%s", nodes[i].name);
        /* A node of our own needs no mount, which makes every clone of the tree cheaper. */
        if (root && mknod(to, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)) == 0) {
            (void)chmod(to, 0666);
            continue;
        }
        rc = write_file(AT_FDCWD, to, "", err);
        if (rc < 0)
            return rc;
        if (mount(from, to, NULL, 4096 /* MS_BIND */, NULL) < 0)
            return err_sys(err, "template: bind %s", from);
    }
    rc = make_dir("dev/pts", 0755, err);
    if (rc == 0)
        rc = make_dir("dev/shm", 0755, err);
    static const char *const links[][2] = {{"pts/ptmx", "dev/ptmx"},
                                           {"/proc/self/fd", "dev/fd"},
                                           {"/proc/self/fd/0", "dev/stdin"},
                                           {"/proc/self/fd/1", "dev/stdout"},
                                           {"/proc/self/fd/2", "dev/stderr"}};
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(links); i++)
        if (symlink(links[i][0], links[i][1]) < 0)
            rc = err_sys(err, "template: link %s", links[i][1]);
    struct mount_attr attr = {.attr_set =
                                  MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC};
    if (rc == 0 && sys_mount_setattr(AT_FDCWD, "dev", AT_RECURSIVE, &attr) < 0)
        rc = err_sys(err, "template: make dev read-only");
    return rc;
}

static bool is_ours(const char *name) {
    static const char *const ours[] = {"proc", "dev", "sys", "tmp",  "work",
                                       "home", "mnt", "run", "boot", "root"};
    for (size_t i = 0; i < ARRAY_LEN(ours); i++)
        if (strcmp(name, ours[i]) == 0)
            return true;
    return false;
}

/* Fills the current directory, a fresh tmpfs. */
static int fill_template(const struct stage *s, const char *from, struct err *err) {
    static const char *const dirs[] = {"proc", "work", "tmp",     "home",    "mnt",
                                       "run",  "var",  "var/tmp", "home/cay"};
    int rc = 0;
    if (!from) {
        static const char *const system_dirs[] = {"usr",   "bin",   "sbin",  "lib",
                                                  "lib32", "lib64", "libx32"};
        for (size_t i = 0; rc == 0 && i < ARRAY_LEN(system_dirs); i++)
            rc = stage_add_entry("/", system_dirs[i], err);
        if (rc == 0)
            rc = add_etc(err);
    } else {
        DIR *d = opendir(from);
        if (!d)
            return err_sys(err, "root %s", from);
        for (struct dirent *e; rc == 0 && (e = readdir(d));)
            if (e->d_name[0] != '.' && !is_ours(e->d_name))
                rc = stage_add_entry(from, e->d_name, err);
        closedir(d);
    }
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(dirs); i++) {
        struct stat st;
        if (lstat(dirs[i], &st) == 0)
            continue;
        if (mkdir(dirs[i], 0755) < 0 && errno == EROFS)
            continue; /* the given root has a /var of its own, without it */
        rc = make_dir(dirs[i], 0755, err);
    }
    if (rc == 0)
        rc = add_dev(s->root, err);
    return rc;
}

static int build_template(const struct stage *s, size_t i, const char *from, struct err *err) {
    char at[64];
    (void)snprintf(at, sizeof(at), "t/%zu", i);
    int rc = make_dir(at, 0755, err);
    if (rc < 0)
        return rc;
    if (mount("tmpfs", at, "tmpfs", 2 | 4 /* NOSUID | NODEV */, "mode=755,size=8m,nr_inodes=4096") <
        0)
        return err_sys(err, "template: mount root");
    _cleanup_(close) int back = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (back < 0 || chdir(at) < 0)
        return err_sys(err, "template: enter");
    rc = fill_template(s, from, err);
    if (fchdir(back) < 0)
        return err_sys(err, "template: leave");
    struct mount_attr attr = {.attr_set = RO_ATTRS};
    if (rc == 0 && wall_on(WALL_READONLY) && sys_mount_setattr(AT_FDCWD, at, 0, &attr) < 0)
        rc = err_sys(err, "template: make root read-only");
    return rc;
}

/* ---- archives ---- */

/* An archive is unpacked once into state_dir/NAME-SIZE-MTIME, by the host's tar without a shell. */
static int unpack_archive(const char *archive, const struct stat *st, const char *name,
                          const char *state_dir, char **ret_path, struct err *err) {
    if (!*state_dir)
        return err_set(err, ERR_BAD_REQUEST, "root '%s' is an archive: a state folder is needed",
                       name);
    _cleanup_(free) char *done = xasprintf("%s/%s-%lld-%lld", state_dir, name,
                                           (long long)st->st_size, (long long)st->st_mtim.tv_sec);
    struct stat have;
    if (stat(done, &have) == 0) {
        *ret_path = steal_ptr(&done);
        return 0;
    }
    _cleanup_(free) char *part = xasprintf("%s.part-%d", done, (int)getpid());
    int rc = path_mkdirs(part, 0755, err);
    if (rc < 0)
        return rc;
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(err, "fork");
    if (pid == 0) {
        char *argv[] = {"tar",
                        "-xf",
                        (char *)(uintptr_t)archive,
                        "-C",
                        part,
                        "--no-same-owner",
                        "--exclude=./dev/*",
                        "--exclude=dev/*",
                        NULL};
        char *env[] = {"PATH=/usr/bin:/bin", "LC_ALL=C", NULL};
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        execve("/usr/bin/tar", argv, env);
        _exit(127);
    }
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_sys(err, "wait for tar");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(err, ERR_BAD_REQUEST, "tar could not unpack root '%s'", name);
    if (rename(part, done) < 0)
        return err_sys(err, "keep root '%s'", name);
    *ret_path = steal_ptr(&done);
    return 0;
}

static int add_root(struct stage *s, const struct sandbox_root *r, const char *state_dir,
                    struct err *err) {
    if (!path_is_plain_name(r->name, strlen(r->name)))
        return err_set(err, ERR_BAD_REQUEST, "root name '%s' is not a plain name", r->name);
    struct stat st;
    if (stat(r->path, &st) < 0)
        return err_sys(err, "root '%s'", r->name);
    _cleanup_(free) char *path = NULL;
    int rc = 0;
    if (S_ISDIR(st.st_mode))
        path = xstrdup(r->path);
    else
        rc = unpack_archive(r->path, &st, r->name, state_dir, &path, err);
    if (rc == 0)
        rc = build_template(s, s->nroots, path, err);
    if (rc == 0)
        s->names[s->nroots++] = xstrdup(r->name);
    return rc;
}

/* ---- the binder ---- */

/* A user namespace that maps an owner and his group to the guest, for an idmapped mount. The kernel
 * lets nobody write to a folder whose group is not mapped: if that is another group, it becomes
 * init's, which the guest is not in. */
static int make_userns(const struct stat *st, gid_t gid, uid_t uid, struct err *err) {
    int pair[2];
    int rc = fd_pair(pair, err);
    if (rc < 0)
        return rc;
    _cleanup_(close) int mine = pair[0];
    _cleanup_(close) int theirs = pair[1];
    struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    pid_t pid = sys_clone3(&args);
    if (pid < 0)
        return err_sys(err, "make a user namespace");
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(mine);
        char c;
        (void)!read(theirs, &c, 1);
        _exit(0);
    }
    char path[64], map[96];
    (void)snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
    (void)snprintf(map, sizeof(map), "%u %u 1", st->st_uid, uid);
    rc = stage_write_proc(path, map, err);
    (void)snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
    int n = snprintf(map, sizeof(map), "%u %u 1\n", gid, uid);
    if (st->st_gid != gid)
        (void)snprintf(map + n, sizeof(map) - (size_t)n, "%u %u 1\n", st->st_gid, uid - 1);
    if (rc == 0)
        rc = stage_write_proc(path, map, err);
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    int ns = rc == 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (rc == 0 && ns < 0)
        rc = err_sys(err, "open %s", path);
    fd_close(&mine);
    fd_close(&theirs);
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return rc < 0 ? rc : ns;
}

/* The first four fields of a line of /etc/passwd or /etc/group, and where the next line is. */
static const char *split_line(const char *p, char *line, size_t size, char *ret[4]) {
    size_t n = strcspn(p, "\n");
    (void)snprintf(line, size, "%.*s", (int)n, p);
    char *rest = line;
    for (int i = 0; i < 4; i++) {
        ret[i] = strsep(&rest, ":");
        if (!ret[i])
            ret[i] = line + strlen(line);
    }
    return p + n + (p[n] == '\n');
}

/* The name of a user and his own group: false if /etc/passwd does not know him. */
static bool find_user(const char *passwd, uid_t uid, char name[64], gid_t *ret_gid) {
    char line[1024], *parts[4];
    for (const char *p = passwd; *p;) {
        p = split_line(p, line, sizeof(line), parts);
        if (!*parts[3] || strtoul(parts[2], NULL, 10) != uid)
            continue;
        (void)snprintf(name, 64, "%s", parts[0]);
        *ret_gid = (gid_t)strtoul(parts[3], NULL, 10);
        return true;
    }
    return false;
}

static bool is_member(const char *groups, gid_t gid, const char *name) {
    char line[4096], *parts[4];
    for (const char *p = groups; *p;) {
        p = split_line(p, line, sizeof(line), parts);
        if (!*parts[2] || strtoul(parts[2], NULL, 10) != gid)
            continue;
        for (char *one; (one = strsep(&parts[3], ","));)
            if (strcmp(one, name) == 0)
                return true;
    }
    return false;
}

/* The group whose files become the guest's: that of the folder if its owner is in it, or else his
 * own. Root's is nobody's, nor is that of a user whom this machine's files do not know. */
static gid_t group_for(const struct stat *st) {
    enum { NO_GROUP = 65534 };
    char name[64];
    gid_t own = 0;
    _cleanup_(buf) struct buf passwd;
    _cleanup_(buf) struct buf groups;
    buf_init(&passwd, 1 << 20);
    buf_init(&groups, 1 << 20);
    if (fd_read_file(AT_FDCWD, "/etc/passwd", &passwd, NULL) < 0 || !passwd.data ||
        !find_user(passwd.data, st->st_uid, name, &own))
        return NO_GROUP;
    if (st->st_gid != 0 && st->st_gid != own &&
        fd_read_file(AT_FDCWD, "/etc/group", &groups, NULL) == 0 && groups.data &&
        is_member(groups.data, st->st_gid, name))
        return st->st_gid;
    return own == 0 ? NO_GROUP : own;
}

/* The file systems that people meet: by the kernel's number of the type. */
static const char *file_system(int fd, char *number, size_t size) {
    static const struct {
        unsigned long type;
        const char *name;
    } known[] = {{0x01021994, "tmpfs"}, {0x858458f6, "ramfs"},   {0x6969, "nfs"},
                 {0x65735546, "fuse"},  {0x794c7630, "overlay"}, {0x01021997, "9p"},
                 {0x4d44, "vfat"},      {0xff534d42, "cifs"},    {0x2fc12fc1, "zfs"}};
    struct statfs st;
    if (fstatfs(fd, &st) < 0)
        return "unknown";
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (known[i].type == ((unsigned long)st.f_type & 0xffffffff))
            return known[i].name;
    (void)snprintf(number, size, "%#lx", (unsigned long)st.f_type);
    return number;
}

static int map_owner(int tree, const struct stat *st, uid_t uid, struct err *err) {
    _cleanup_(close) int ns = make_userns(st, group_for(st), uid, err);
    if (ns < 0)
        return -ERR_IO;
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)ns};
    if (sys_mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr) == 0)
        return 0;
    if (errno != EINVAL)
        return err_sys(err, "map the owner of a bind");
    char number[32];
    return err_set(err, ERR_UNSUPPORTED,
                   "this kernel cannot map the owner of files on a file system of type %s, or on "
                   "one that is mounted below it: bind it read-only, bind a folder of another file "
                   "system (ext4, xfs), or run cay as the owner of the folder instead of root",
                   file_system(tree, number, sizeof(number)));
}

static int bind_tree(const struct stage *s, int fd, bool rw, uid_t uid, int *ret_fd,
                     struct err *err) {
    struct stat want, have;
    char link[64], path[PATH_MAX];
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    if (n < 0 || fstat(fd, &want) < 0)
        return err_sys(err, "bind");
    path[n] = 0;
    if (!S_ISDIR(want.st_mode) && !S_ISREG(want.st_mode))
        return err_set(err, ERR_BAD_REQUEST, "a bind must be a folder or a file");
    /* The descriptor is the capability: the name only finds the same folder in this namespace. */
    _cleanup_(close) int here = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (here < 0 || fstat(here, &have) < 0)
        return err_sys(err, "bind: open the folder");
    if (have.st_dev != want.st_dev || have.st_ino != want.st_ino)
        return err_set(err, ERR_CONFLICT, "what is bound was moved or replaced: try again");
    _cleanup_(close) int tree =
        sys_open_tree(here, "", AT_EMPTY_PATH | AT_RECURSIVE | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0)
        return err_sys(err, "bind: clone the mount");
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    if (!rw)
        attr.attr_set |= MOUNT_ATTR_RDONLY;
    if (wall_on(WALL_PRIVATE))
        attr.propagation = PRIVATE;
    if (sys_mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr) < 0)
        return err_sys(err, "bind: set its attributes");
    if (s->root) {
        /* Never let a guest own files of the host's root. */
        if (rw && want.st_uid == 0)
            return err_set(err, ERR_FORBIDDEN,
                           "what root owns is not bound writable: give it another owner");
        int rc = want.st_uid == 0 ? 0 : map_owner(tree, &want, uid, err);
        if (rc < 0 && rw)
            return rc;
    }
    *ret_fd = steal_fd(&tree);
    return 0;
}

static _Noreturn void binder_main(const struct stage *s, int sock) {
    struct wire_reader r;
    wire_reader_init(&r, BIND_FRAME_MAX);
    for (;;) {
        struct wire_frame f;
        struct err err = {0};
        if (wire_read(&r, sock, &f, &err) != 1)
            _exit(0);
        struct unpack u;
        unpack_init(&u, f.data, f.len);
        bool rw = unpack_u8(&u) != 0;
        uid_t uid = unpack_u32(&u);
        int tree = -1;
        int rc = unpack_ok(&u) && f.nfds == 1
                     ? bind_tree(s, f.fds[0], rw, uid, &tree, &err)
                     : err_set(&err, ERR_PROTOCOL, "malformed bind request");
        wire_frame_finish(&f);
        struct buf b;
        buf_init(&b, BIND_FRAME_MAX);
        if (rc < 0)
            pack_sandbox_error(&b, &err);
        struct wire_out out = {.type = rc < 0 ? BIND_ERROR : BIND_OK,
                               .pieces = {{b.data, b.len}},
                               .fds = &tree,
                               .nfds = rc < 0 ? 0 : 1};
        if (wire_send(sock, &out) < 0)
            _exit(1);
        buf_finish(&b);
        fd_close(&tree);
    }
}

static int start_binder(struct stage *s, struct err *err) {
    int pair[2];
    int rc = fd_pair(pair, err);
    if (rc < 0)
        return rc;
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(err, "fork");
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        int keep[] = {pair[1]};
        fd_close_others(3, keep, 1);
        binder_main(s, pair[1]);
    }
    close(pair[1]);
    s->binder = pair[0];
    s->binder_pid = pid;
    return 0;
}

int stage_clone_bind(struct stage *s, int dirfd, bool rw, uid_t uid, struct err *err, int *ret_fd) {
    struct buf b;
    buf_init(&b, 64);
    pack_u8(&b, rw);
    pack_u32(&b, uid);
    struct wire_out out = {
        .type = BIND_REQUEST, .pieces = {{b.data, b.len}}, .fds = &dirfd, .nfds = 1};
    int sent = wire_send(s->binder, &out);
    buf_finish(&b);
    if (sent < 0)
        return err_sys(err, "ask the binder");
    struct wire_reader r;
    wire_reader_init(&r, BIND_FRAME_MAX);
    struct wire_frame f;
    int rc = wire_read(&r, s->binder, &f, err);
    if (rc < 0)
        rc = err_set(err, ERR_UNAVAILABLE, "the process that binds folders has ended");
    if (rc == 1) {
        rc = 0;
        if (f.type == BIND_OK && f.nfds == 1) {
            *ret_fd = wire_frame_take_fd(&f, 0);
        } else {
            struct unpack u;
            unpack_init(&u, f.data, f.len);
            rc = unpack_sandbox_error(&u, err);
        }
        wire_frame_finish(&f);
    }
    wire_reader_finish(&r);
    return rc;
}

/* ---- the launcher's own root ---- */

static int own_userns(const struct stage *s, struct err *err) {
    char map[64];
    int rc = stage_write_proc("/proc/self/setgroups", "deny", err);
    (void)snprintf(map, sizeof(map), "%u %u 1", s->uid, s->uid);
    if (rc == 0)
        rc = stage_write_proc("/proc/self/uid_map", map, err);
    (void)snprintf(map, sizeof(map), "%u %u 1", s->gid, s->gid);
    if (rc == 0)
        rc = stage_write_proc("/proc/self/gid_map", map, err);
    return rc;
}

static int enter_namespaces(struct stage *s, struct err *err) {
    if (unshare(CLONE_NEWNS | (s->root ? 0 : CLONE_NEWUSER)) < 0)
        return err_sys(err, s->root ? "new mount namespace"
                                    : "new user namespace (are unprivileged user namespaces "
                                      "switched off on this host?)");
    int rc = s->root ? 0 : own_userns(s, err);
    if (rc < 0)
        return rc;
    /* The binder sees what is mounted on the host later, so that it can be bound. What sandboxes
     * are made of stays as it is: there a new mount would be as writable as it is on the host. */
    if (mount(NULL, "/", NULL, REC | SLAVE, NULL) < 0)
        return err_sys(err, "stop mounts from spreading to the host");
    rc = start_binder(s, err);
    if (rc < 0)
        return rc;
    if (unshare(CLONE_NEWNS) < 0)
        return err_sys(err, "new mount namespace");
    if (wall_on(WALL_PRIVATE) && mount(NULL, "/", NULL, REC | PRIVATE, NULL) < 0)
        return err_sys(err, "stop mounts of the host from spreading");
    return 0;
}

static int current_mounts(const struct stage *s) {
    return openat(s->proc, "self/ns/mnt", O_RDONLY | O_CLOEXEC);
}

/* Taking a mount away waits for every processor to have been somewhere else (RCU), up to a
 * millisecond on a busy machine: here once, and not in each sandbox. */
static int open_bare(struct stage *s, struct err *err) {
    s->full = current_mounts(s);
    if (s->full < 0 || unshare(CLONE_NEWNS) < 0)
        return err_sys(err, "new mount namespace");
    char at[64];
    for (size_t i = 0; i < s->nroots; i++) {
        (void)snprintf(at, sizeof(at), "/t/%zu", i);
        if (umount2(at, SYS_MNT_DETACH) < 0)
            return err_sys(err, "empty a mount namespace: %s", at);
    }
    if (umount2("/proc", SYS_MNT_DETACH) < 0)
        return err_sys(err, "empty a mount namespace: /proc");
    s->bare = current_mounts(s);
    if (s->bare < 0 || setns(s->full, CLONE_NEWNS) < 0)
        return err_sys(err, "leave the bare mount namespace");
    return 0;
}

int stage_leave(const struct stage *s, struct err *err) {
    return s->lean && setns(s->bare, CLONE_NEWNS) < 0
               ? err_sys(err, "enter the bare mount namespace")
               : 0;
}

int stage_return(const struct stage *s, struct err *err) {
    return s->lean && setns(s->full, CLONE_NEWNS) < 0
               ? err_sys(err, "leave the bare mount namespace")
               : 0;
}

int stage_make_proc(const struct stage *s, pid_t pid, int *ret_fd, struct err *err) {
    char path[64];
    (void)snprintf(path, sizeof(path), "%d/ns/pid", (int)pid);
    _cleanup_(close) int pids = openat(s->proc, path, O_RDONLY | O_CLOEXEC);
    _cleanup_(close) int fs = (int)syscall(SYS_fsopen, "proc", FSOPEN_CLOEXEC);
    if (pids < 0 || fs < 0 || syscall(SYS_fsconfig, fs, FSCONFIG_SET_FD, "pidns", NULL, pids) < 0 ||
        (wall_on(WALL_HIDEPID) &&
         syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "hidepid", "2", 0) < 0) ||
        syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return err_sys(err, "make a /proc");
    int fd = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
                          MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    if (fd < 0)
        return err_sys(err, "make a /proc");
    *ret_fd = fd;
    return 0;
}

static unsigned terminals_for(uint32_t boxes) {
    static const char *const files[] = {"/proc/sys/kernel/pty/max", "/proc/sys/kernel/pty/reserve"};
    long have[2] = {4096, 1024}; /* what the kernel begins with */
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char text[32];
        _cleanup_(close) int fd = open(files[i], O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        if (n > 0) {
            text[n] = 0;
            have[i] = strtol(text, NULL, 10);
        }
    }
    long share = (have[0] - have[1]) / (long)MAX(boxes, 1U);
    return (unsigned)MIN(MAX(share, TERMINALS_MIN), TERMINALS_MAX);
}

int stage_open(struct stage *s, const struct sandbox_config *config, struct err *err) {
    *s = (struct stage){.has_proc = true,

                        .root = geteuid() == 0,
                        .uid = geteuid(),
                        .gid = getegid(),
                        .proc = -1,
                        .full = -1,
                        .bare = -1,
                        .terminals = terminals_for(config->max),
                        .binder = -1};
    (void)umask(022);
    int rc = enter_namespaces(s, err);
    if (rc < 0)
        return rc;
    /* Any folder will do until pivot_root; nobody keeps a root file system below /sys. */
    if (mount("tmpfs", "/sys", "tmpfs", 2 | 4, "mode=755,size=8m") < 0 || chdir("/sys") < 0)
        return err_sys(err, "mount the launcher's root");
    rc = make_dir("proc", 0755, err);
    if (rc == 0)
        rc = make_dir("t", 0755, err);
    if (rc == 0)
        rc = make_dir("m", 0755, err);
    if (rc < 0)
        return rc;
    s->names = xcalloc(config->nroots + 1, sizeof(char *));
    rc = build_template(s, 0, NULL, err);
    if (rc < 0)
        return rc;
    s->names[s->nroots++] = xstrdup("");
    for (size_t i = 0; i < config->nroots; i++) {
        rc = add_root(s, &config->roots[i], config->state_dir, err);
        if (rc < 0)
            return rc;
    }
    if (mount("/proc", "proc", NULL, 4096 | 16384 /* MS_BIND | MS_REC */, NULL) < 0)
        return err_sys(err, "bind /proc");
    if (sys_pivot_root(".", ".") < 0 || umount2(".", SYS_MNT_DETACH) < 0 || chdir("/") < 0)
        return err_sys(err, "enter the launcher's root");
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
    if (sys_mount_setattr(AT_FDCWD, "/", 0, &attr) < 0)
        return err_sys(err, "make the launcher's root read-only");
    s->proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return s->proc < 0 ? err_sys(err, "open /proc") : open_bare(s, err);
}

int stage_clone_root(const struct stage *s, const char *name, int *ret_fd, struct err *err) {
    for (size_t i = 0; i < s->nroots; i++) {
        if (strcmp(s->names[i], name) != 0)
            continue;
        char at[64];
        (void)snprintf(at, sizeof(at), "/t/%zu", i);
        int fd = sys_open_tree(AT_FDCWD, at, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
        if (fd < 0)
            return err_sys(err, "clone root '%s'", name);
        *ret_fd = fd;
        return 0;
    }
    return err_set(err, ERR_NOT_FOUND, "no root is named '%s'", name);
}
