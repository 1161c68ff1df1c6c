/* Where cgroups are looked for and what is written to them, on a made-up tree: version 2 with
 * delegation cannot be had on every machine that runs the tests. */

#include "lock/cgroup.h"
#include "lock/scope.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64];

static void put(const char *path, const char *text) {
    _cleanup_(free) char *full = xasprintf("%s%s", root, path);
    _cleanup_(free) char *dir = xstrndup(full, (size_t)(strrchr(full, '/') - full));
    struct err err;
    assert_int_equal(path_mkdirs(dir, 0755, &err), 0);
    _cleanup_(close) int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

static char *get(const char *path) {
    _cleanup_(free) char *full = xasprintf("%s%s", root, path);
    struct buf b;
    struct err err;
    buf_init(&b, 4096);
    if (fd_read_file(AT_FDCWD, full, &b, &err) < 0)
        return NULL;
    return b.data ? buf_steal(&b, NULL) : xstrdup("");
}

static void is(const char *path, const char *want) {
    _cleanup_(free) char *got = get(path);
    if (!got)
        fail_msg("%s is missing", path);
    assert_string_equal(got, want);
}

static int make_root(void **state) {
    (void)state;
    (void)snprintf(root, sizeof(root), "/tmp/cay-cgroup-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/rm", "rm", "-rf", root, (char *)NULL);
        _exit(127);
    }
    return waitpid(pid, NULL, 0) == pid ? 0 : -1;
}

static void paths_are_seen_through_the_mount(void **state) {
    (void)state;
    char out[256];
    cgroup_path("/sys/fs/cgroup", "/", "/", out, sizeof(out));
    assert_string_equal(out, "/sys/fs/cgroup");
    cgroup_path("/sys/fs/cgroup", "/", "/system.slice/cay.service", out, sizeof(out));
    assert_string_equal(out, "/sys/fs/cgroup/system.slice/cay.service");
    /* A container that sees a part of the hierarchy. */
    cgroup_path("/sys/fs/cgroup/memory", "/docker/abc", "/docker/abc/x", out, sizeof(out));
    assert_string_equal(out, "/sys/fs/cgroup/memory/x");
    cgroup_path("/sys/fs/cgroup/memory", "/docker/abc", "/docker/abc", out, sizeof(out));
    assert_string_equal(out, "/sys/fs/cgroup/memory");
    cgroup_path("/sys/fs/cgroup/memory", "/docker/ab", "/docker/abc", out, sizeof(out));
    assert_string_equal(out, "/sys/fs/cgroup/memory");
}

#define STAT "42 (a) b) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0\n"

static void version_two_with_delegation(void **state) {
    (void)state;
    put("/proc/42/stat", STAT);
    put("/proc/self/cgroup", "0::/system.slice/cay.service\n");
    put("/proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/system.slice/cay.service/cgroup.controllers",
        "cpuset cpu io memory pids\n");
    struct cgroups c;
    struct cgroup_slot s;
    struct err err;
    char why[128];
    cgroups_open(&c, root, 42, why, sizeof(why));
    assert_int_equal(c.version, SANDBOX_CGROUP_V2);
    assert_int_equal(c.n, 1);
    assert_int_equal(c.controllers, 15);
    assert_string_equal(why, "");
    assert_string_equal(c.name, "cay.42.777");
#define BASE "/sys/fs/cgroup/system.slice/cay.service/cay.42.777"
    is("/sys/fs/cgroup/system.slice/cay.service/cgroup.subtree_control", "+cpu");
    is(BASE "/cgroup.subtree_control", "+cpu");
    assert_int_equal(cgroup_slot_open(&c, 3, &s, &err), 0);
    assert_int_equal(cgroup_slot_limit(&c, &s, 1 << 20, 50, 1500, &err), 0);
    is(BASE "/s3/memory.max", "1048576");
    is(BASE "/s3/memory.swap.max", "0");
    is(BASE "/s3/pids.max", "50");
    is(BASE "/s3/cpu.max", "150000 100000");
    /* What stays the same is not written again; no quota is "max". */
    put(BASE "/s3/pids.max", "untouched");
    assert_int_equal(cgroup_slot_limit(&c, &s, 1 << 20, 50, 0, &err), 0);
    is(BASE "/s3/pids.max", "untouched");
    is(BASE "/s3/cpu.max", "max 100000");
    assert_true(cgroup_slot_freeze(&c, &s, true));
    is(BASE "/s3/cgroup.freeze", "1");
    put(BASE "/s3/memory.current", "4096\n");
    put(BASE "/s3/memory.peak", "8192\n");
    put(BASE "/s3/memory.events", "low 0\nhigh 0\nmax 9\noom 2\noom_kill 3\n");
    put(BASE "/s3/cpu.stat", "usage_usec 1234\nuser_usec 1\n");
    put(BASE "/s3/pids.current", "7\n");
    struct sandbox_stats st;
    cgroup_slot_stats(&c, &s, &st);
    assert_int_equal(st.memory_bytes, 4096);
    assert_int_equal(st.memory_peak_bytes, 8192);
    assert_int_equal(st.cpu_us, 1234);
    assert_int_equal(st.pids, 7);
    assert_int_equal(st.oom_kills, 3);
    /* The next sandbox in this slot starts from zero. */
    cgroup_slot_reset(&c, &s, &st);
    put(BASE "/s3/cpu.stat", "usage_usec 1300\n");
    cgroup_slot_stats(&c, &s, &st);
    assert_int_equal(st.cpu_us, 66);
    assert_int_equal(st.oom_kills, 0);
    cgroup_slot_close(&s);
    cgroups_close(&c);
}

#undef BASE
#define BASE "/sys/fs/cgroup/a/cay.42.777"

static void open_slot(struct cgroups *c, struct cgroup_slot *s) {
    char why[128];
    struct err err;
    put("/proc/42/stat", STAT);
    put("/proc/self/cgroup", "0::/a\n");
    put("/proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/a/cgroup.controllers", "memory\n");
    cgroups_open(c, root, 42, why, sizeof(why));
    assert_int_equal(cgroup_slot_open(c, 0, s, &err), 0);
    assert_int_equal(cgroup_slot_limit(c, s, 4096, 0, 0, &err), 0);
    is(BASE "/s0/memory.max", "4096");
}

static void the_peak_is_never_that_of_the_sandbox_before(void **state) {
    (void)state;
    struct cgroups c;
    struct cgroup_slot s;
    struct sandbox_stats st;
    struct err err;
    open_slot(&c, &s);
    put(BASE "/s0/memory.current", "100\n");
    put(BASE "/s0/memory.peak", "8192\n");
    cgroup_slot_stats(&c, &s, &st);
    assert_int_equal(st.memory_peak_bytes, 8192);
    /* The group cannot be removed: what is known of the next one is what it holds now. */
    cgroup_slot_reset(&c, &s, &st);
    cgroup_slot_stats(&c, &s, &st);
    assert_int_equal(st.memory_peak_bytes, 100);
    put(BASE "/s0/memory.peak", "9000\n"); /* no doubt its own */
    cgroup_slot_stats(&c, &s, &st);
    assert_int_equal(st.memory_peak_bytes, 9000);
    /* Else it gets a new one, with limits that are written again. */
    static const char *const files[] = {"memory.current", "memory.peak", "memory.max",
                                        "memory.swap.max"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        _cleanup_(free) char *path = xasprintf("%s" BASE "/s0/%s", root, files[i]);
        assert_int_equal(unlink(path), 0);
    }
    cgroup_slot_reset(&c, &s, &st);
    assert_int_equal(cgroup_slot_limit(&c, &s, 4096, 0, 0, &err), 0);
    is(BASE "/s0/memory.max", "4096");
    put(BASE "/s0/memory.peak", "512\n");
    cgroup_slot_stats(&c, &s, &st);
    assert_int_equal(st.memory_peak_bytes, 512);
    cgroup_slot_close(&s);
    cgroups_close(&c);
}

/* Linux 6.12: a write resets what is read by the same descriptor. */
static void a_peak_that_can_be_reset_is(void **state) {
    (void)state;
    struct cgroups c;
    struct cgroup_slot s;
    struct sandbox_stats st;
    put(BASE "/s0/memory.peak", "8192\n");
    open_slot(&c, &s);
    cgroup_slot_stats(&c, &s, &st);
    assert_int_equal(st.memory_peak_bytes, 8192);
    cgroup_slot_reset(&c, &s, &st);
    _cleanup_(free) char *text = get(BASE "/s0/memory.peak");
    assert_string_not_equal(text, "8192\n");
    put(BASE "/s0/memory.peak", "512\n");
    cgroup_slot_stats(&c, &s, &st);
    assert_int_equal(st.memory_peak_bytes, 512);
    cgroup_slot_close(&s);
    cgroups_close(&c);
}

/* Whoever moved to a leaf to make room finds the group above it again. */
static void the_leaf_is_no_place_for_groups(void **state) {
    (void)state;
    put("/proc/42/stat", STAT);
    put("/proc/self/cgroup", "0::/cay.service/cay-main\n");
    put("/proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/cay.service/cgroup.controllers", "memory pids\n");
    struct cgroups c;
    struct cgroup_slot s;
    struct err err;
    char why[128];
    cgroups_open(&c, root, 42, why, sizeof(why));
    assert_int_equal(c.controllers, SANDBOX_HAS_MEMORY | SANDBOX_HAS_PIDS | SANDBOX_HAS_FREEZER);
    assert_int_equal(cgroup_slot_open(&c, 0, &s, &err), 0);
    int joins[CGROUP_HIERS_MAX];
    assert_int_equal(cgroup_slot_joins(&c, &s, joins), 1);
    assert_int_equal(write(joins[0], "0", 1), 1);
    close(joins[0]);
    is("/sys/fs/cgroup/cay.service/cay.42.777/s0/cgroup.procs", "0");
    cgroup_slot_close(&s);
    cgroups_close(&c);
}

static void version_two_without_controllers_can_still_freeze(void **state) {
    (void)state;
    put("/proc/42/stat", STAT);
    put("/proc/self/cgroup", "0::/user.slice\n");
    put("/proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/user.slice/cgroup.controllers", "\n");
    struct cgroups c;
    char why[128];
    cgroups_open(&c, root, 42, why, sizeof(why));
    assert_int_equal(c.version, SANDBOX_CGROUP_V2);
    assert_int_equal(c.controllers, SANDBOX_HAS_FREEZER);
    assert_non_null(strstr(why, "memory"));
    cgroups_close(&c);
}

/* The kernel would take "+pids" here, and turn the group into one whose children hold nothing. */
static void a_group_with_processes_gets_no_controllers(void **state) {
    (void)state;
    put("/proc/42/stat", STAT);
    put("/proc/self/cgroup", "0::/session-3.scope\n");
    put("/proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/session-3.scope/cgroup.controllers", "memory pids cpu\n");
    put("/sys/fs/cgroup/session-3.scope/cgroup.type", "domain\n");
    put("/sys/fs/cgroup/session-3.scope/cgroup.procs", "17\n42\n");
    struct cgroups c;
    char why[128];
    cgroups_open(&c, root, 42, why, sizeof(why));
    assert_int_equal(c.version, SANDBOX_CGROUP_V2);
    assert_int_equal(c.controllers, SANDBOX_HAS_FREEZER);
    assert_non_null(strstr(why, "watched, not enforced"));
    assert_null(get("/sys/fs/cgroup/session-3.scope/cgroup.subtree_control"));
    is("/sys/fs/cgroup/session-3.scope/cgroup.procs", "17\n42\n");
    cgroups_close(&c);
}

static void a_group_that_takes_no_processes_is_done_without(void **state) {
    (void)state;
    put("/proc/42/stat", STAT);
    put("/proc/self/cgroup", "0::/a\n");
    put("/proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/a/cgroup.controllers", "memory pids cpu\n");
    put("/sys/fs/cgroup/a/cay.42.777/cgroup.type", "domain invalid\n");
    struct cgroups c;
    char why[128];
    cgroups_open(&c, root, 42, why, sizeof(why));
    assert_int_equal(c.version, SANDBOX_CGROUP_NONE);
    assert_int_equal(c.n, 0);
    assert_int_equal(c.controllers, 0);
    cgroups_close(&c);
}

/* ---- a place for groups ---- */

#define UNIT "/sys/fs/cgroup/system.slice/cay.service"

static void put_group(const char *self, const char *procs) {
    _cleanup_(free) char *line = xasprintf("0::%s\n", self);
    _cleanup_(free) char *type = xasprintf("/sys/fs/cgroup%s/cgroup.type", self);
    _cleanup_(free) char *pids = xasprintf("/sys/fs/cgroup%s/cgroup.procs", self);
    _cleanup_(free) char *leaf = xasprintf("/sys/fs/cgroup%s/cay-main/cgroup.procs", self);
    put("/proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n");
    put("/proc/self/cgroup", line);
    put(type, "domain\n");
    put(pids, procs);
    put(leaf, "");
}

static void a_service_makes_room_by_moving_itself(void **state) {
    (void)state;
    struct err err;
    _cleanup_(free) char *alone = xasprintf("%d\n", (int)getpid());
    put_group("/system.slice/cay.service", alone);
    assert_int_equal(cgroups_settle(root, CGROUPS_LEAVE_SESSION, &err), 0);
    is(UNIT "/cay-main/cgroup.procs", "0"); /* the caller itself */
    /* Settled already. */
    put(UNIT "/cay-main/cgroup.procs", "");
    put("/proc/self/cgroup", "0::/system.slice/cay.service/cay-main\n");
    assert_int_equal(cgroups_settle(root, CGROUPS_LEAVE, &err), 0);
    is(UNIT "/cay-main/cgroup.procs", "");
}

static void processes_of_others_are_never_moved(void **state) {
    (void)state;
    struct err err;
    _cleanup_(free) char *shared = xasprintf("1\n%d\n", (int)getpid());
    put_group("/system.slice/cay.service", shared);
    put("/run/systemd/private", "would be asked");
    for (enum cgroups_leave l = CGROUPS_STAY; l <= CGROUPS_LEAVE_SESSION; l++) {
        assert_int_equal(cgroups_settle(root, l, &err), -ERR_CONFLICT);
        assert_string_equal(err.message, "other processes share the control group \"cay.service\"");
    }
    /* Not even where nobody has a group to give away. */
    assert_int_equal(cgroups_settle(root, CGROUPS_LEAVE, &err), -ERR_UNAVAILABLE);
    assert_non_null(strstr(err.message, "cay.service"));
    assert_non_null(strstr(err.message, "no systemd answers"));
    is(UNIT "/cay-main/cgroup.procs", "");
}

/* Controllers may be enabled in the root of all groups as it is, and version 1 needs no room. */
static void room_is_made_only_where_it_is_needed(void **state) {
    (void)state;
    struct err err;
    put("/proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n");
    put("/sys/fs/cgroup/cgroup.procs", "1\n2\n");
    put("/proc/self/cgroup", "0::/\n");
    assert_int_equal(cgroups_settle(root, CGROUPS_STAY, &err), 0);
    put_group("/x", "1\n");
    put("/sys/fs/cgroup/cgroup.controllers", "\n");
    assert_int_equal(cgroups_settle(root, CGROUPS_STAY, &err), 0);
    is("/sys/fs/cgroup/x/cay-main/cgroup.procs", "");
}

/* Plays root's or the user's systemd, which moves the caller to the scope that was asked for. */
static void a_session_is_left_by_a_scope(void **state) {
    (void)state;
    char path[128];
    struct err err;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    _cleanup_(free) char *shared = xasprintf("1\n%d\n", (int)getpid());
    _cleanup_(free) char *alone = xasprintf("%d\n", (int)getpid());
    put_group("/user.slice/session-3.scope", shared);
    scope_socket(root, geteuid(), path, sizeof(path));
    put(path + strlen(root), "");
    assert_int_equal(unlink(path), 0);
    memcpy(a.sun_path, path, strlen(path) + 1);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(listener, 1), 0);
    pid_t pid = fork();
    if (pid == 0) {
        static const char done[16] = {'l', 2, 1, 1};
        char text[4096];
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        (void)!read(fd, text, sizeof(text));
        (void)!write(fd, "OK 0123456789abcdef\r\n", 21);
        size_t have = 0;
        const char *name = NULL;
        while (!name) {
            have += (size_t)read(fd, text + have, sizeof(text) - have);
            name = memmem(text, have, "cay-", 4);
        }
        _cleanup_(free) char *self = xasprintf("/system.slice/%s", name);
        put_group(self, alone);
        (void)!write(fd, done, sizeof(done));
        _exit(0);
    }
    close(listener);
    assert_int_equal(cgroups_settle(root, CGROUPS_LEAVE_SESSION, &err), 0);
    (void)waitpid(pid, NULL, 0);
    is("/sys/fs/cgroup/user.slice/session-3.scope/cay-main/cgroup.procs", "");
    _cleanup_(free) char *now = get("/proc/self/cgroup");
    assert_memory_equal(now, "0::/system.slice/cay-", 21);
    now[strcspn(now, "\n")] = 0;
    _cleanup_(free) char *leaf = xasprintf("/sys/fs/cgroup%s/cay-main/cgroup.procs", now + 3);
    is(leaf, "0");
}

static void version_one_is_preferred_where_both_are(void **state) {
    (void)state;
    put("/proc/42/stat", STAT);
    put("/proc/self/cgroup",
        "4:memory:/box\n3:cpu,cpuacct:/\n2:freezer:/\n1:name=systemd:/\n0::/\n");
    put("/proc/self/mountinfo", "1 1 0:1 / /cg/memory rw - cgroup cgroup rw,memory\n"
                                "2 1 0:2 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                                "3 1 0:3 / /cg/freezer rw - cgroup cgroup rw,freezer\n"
                                "4 1 0:4 / /cg/unified rw - cgroup2 cgroup2 rw\n");
    put("/cg/memory/box/x", "");
    put("/cg/memory/box/cay.42.777/memory.kmem.tcp.limit_in_bytes", "");
    put("/cg/cpu/x", "");
    put("/cg/freezer/x", "");
    put("/cg/unified/cgroup.controllers", "");
    struct cgroups c;
    struct cgroup_slot s;
    struct err err;
    char why[128];
    cgroups_open(&c, root, 42, why, sizeof(why));
    assert_int_equal(c.version, SANDBOX_CGROUP_V1);
    assert_int_equal(c.n, 3); /* cpu and cpuacct are one */
    assert_int_equal(c.controllers, SANDBOX_HAS_MEMORY | SANDBOX_HAS_CPU | SANDBOX_HAS_FREEZER);
    assert_int_equal(cgroup_slot_open(&c, 0, &s, &err), 0);
    assert_int_equal(cgroup_slot_limit(&c, &s, 4096, 9, 250, &err), 0);
    is("/cg/memory/box/cay.42.777/s0/memory.limit_in_bytes", "4096");
    is("/cg/memory/box/cay.42.777/s0/memory.kmem.tcp.limit_in_bytes", "256");
    assert_true(cgroups_bound_memory(&c));
    put("/cg/memory/box/cay.42.777/s0/memory.usage_in_bytes", "1000\n");
    put("/cg/memory/box/cay.42.777/s0/memory.kmem.tcp.usage_in_bytes", "24\n");
    assert_int_equal(cgroup_slot_memory(&c, &s), 1024);
    is("/cg/cpu/cay.42.777/s0/cpu.cfs_quota_us", "25000");
    assert_true(cgroup_slot_freeze(&c, &s, true));
    is("/cg/freezer/cay.42.777/s0/freezer.state", "FROZEN");
    assert_true(cgroup_slot_freeze(&c, &s, false));
    is("/cg/freezer/cay.42.777/s0/freezer.state", "THAWED");
    cgroup_slot_close(&s);
    cgroups_close(&c);
}

/* A kernel of version 1 that has no limit for sockets: memory is enforced, they are watched. */
static void version_one_may_not_count_sockets(void **state) {
    (void)state;
    put("/proc/42/stat", STAT);
    put("/proc/self/cgroup", "4:memory:/\n");
    put("/proc/self/mountinfo", "1 1 0:1 / /cg/memory rw - cgroup cgroup rw,memory\n");
    put("/cg/memory/x", "");
    struct cgroups c;
    struct cgroup_slot s;
    struct err err;
    char why[128];
    cgroups_open(&c, root, 42, why, sizeof(why));
    assert_int_equal(c.controllers, SANDBOX_HAS_MEMORY);
    assert_false(cgroups_bound_memory(&c));
    assert_non_null(strstr(why, "sockets"));
    assert_int_equal(cgroup_slot_open(&c, 0, &s, &err), 0);
    assert_int_equal(cgroup_slot_limit(&c, &s, 4096, 9, 0, &err), 0);
    is("/cg/memory/cay.42.777/s0/memory.limit_in_bytes", "4096");
    cgroup_slot_close(&s);
    cgroups_close(&c);
}

static void nothing_usable_is_no_error(void **state) {
    (void)state;
    struct cgroups c;
    struct cgroup_slot s;
    struct err err;
    char why[128];
    cgroups_open(&c, root, 42, why, sizeof(why));
    assert_int_equal(c.version, SANDBOX_CGROUP_NONE);
    assert_non_null(strstr(why, "watched, not enforced"));
    assert_int_equal(cgroup_slot_open(&c, 0, &s, &err), 0);
    assert_int_equal(cgroup_slot_limit(&c, &s, 4096, 9, 250, &err), 0);
    assert_false(cgroup_slot_freeze(&c, &s, true));
    struct sandbox_stats st;
    cgroup_slot_stats(&c, &s, &st);
    assert_int_equal(st.memory_bytes, 0);
    cgroup_slot_close(&s);
    cgroups_close(&c);
}

/* ---- a scope from the user's systemd ---- */

/* Plays the manager for one caller: reads the greeting and the call, and says `answer`. The call is
 * handed to the test by a pipe. */
static pid_t play_manager(const char *path, const char *answer, size_t n, int *ret_call) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int calls[2];
    memcpy(a.sun_path, path, strlen(path) + 1);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(pipe2(calls, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char text[4096];
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        size_t have = 0;
        while (have == 0 || text[have - 1] != '\n')
            have += (size_t)read(fd, text + have, 1);
        (void)!write(fd, "OK 0123456789abcdef\r\n", 21);
        have = 0;
        while (have < 7 + 16)
            have += (size_t)read(fd, text + have, sizeof(text) - have);
        (void)!write(calls[1], text, have);
        (void)!write(fd, answer, n);
        _exit(0);
    }
    close(listener);
    close(calls[1]);
    *ret_call = calls[0];
    return pid;
}

static int ask_manager(const char *answer, size_t n, char *call, size_t size, size_t *ret_len,
                       struct err *err) {
    _cleanup_(free) char *path = xasprintf("%s/private", root);
    int fd;
    pid_t pid = play_manager(path, answer, n, &fd);
    int rc = scope_enter("", path, err);
    *ret_len = (size_t)fd_read_all(fd, call, size);
    close(fd);
    (void)waitpid(pid, NULL, 0);
    (void)unlink(path);
    return rc;
}

/* The same bytes were understood by systemd 252. */
static void a_scope_is_asked_for_in_so_many_words(void **state) {
    (void)state;
    static const char refused[16] = {'l', 3, 1, 1};
    char call[4096];
    size_t n;
    struct err err;
    assert_int_equal(ask_manager(refused, sizeof(refused), call, sizeof(call), &n, &err),
                     -ERR_UNAVAILABLE);
    assert_memory_equal(call, "BEGIN\r\nl\1\0\1", 11);
    const uint8_t *m = (const uint8_t *)call + 7;
    n -= 7;
    size_t body = m[4] | (size_t)m[5] << 8;
    size_t fields = m[12] | (size_t)m[13] << 8;
    size_t start = (16 + fields + 7) & ~(size_t)7;
    assert_int_equal(n, start + body);
    assert_non_null(memmem(m + 16, fields, "StartTransientUnit", 19));
    assert_non_null(memmem(m + 16, fields, "ssa(sv)a(sa(sv))", 17));
    assert_memory_equal(m + start + 4, "cay-", 4);
    const uint8_t *delegate = memmem(m + start, body, "Delegate\0\1b", 12);
    assert_non_null(delegate);
    const uint8_t *pids = memmem(m + start, body, "PIDs\0\2au", 9);
    assert_non_null(pids);
    pids += 9;
    pids += (4 - (size_t)(pids - m) % 4) % 4;
    uint32_t words[2];
    memcpy(words, pids, sizeof(words));
    assert_int_equal(words[0], 4);
    assert_int_equal(words[1], getpid());
}

static void a_manager_that_lies_or_is_not_there_is_done_without(void **state) {
    (void)state;
    static const char huge[16] = {'l', 2, 1, 1, -1, -1, -1, 127};
    char call[4096];
    size_t n;
    struct err err;
    assert_true(ask_manager(huge, sizeof(huge), call, sizeof(call), &n, &err) < 0);
    assert_true(ask_manager("junk", 4, call, sizeof(call), &n, &err) < 0);
    assert_true(ask_manager("", 0, call, sizeof(call), &n, &err) < 0);
    _cleanup_(free) char *nobody = xasprintf("%s/nobody", root);
    assert_true(scope_enter("", nobody, &err) < 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(paths_are_seen_through_the_mount),
        T(version_two_with_delegation),
        T(the_peak_is_never_that_of_the_sandbox_before),
        T(a_peak_that_can_be_reset_is),
        T(the_leaf_is_no_place_for_groups),
        T(version_two_without_controllers_can_still_freeze),
        T(a_group_with_processes_gets_no_controllers),
        T(a_group_that_takes_no_processes_is_done_without),
        T(a_service_makes_room_by_moving_itself),
        T(processes_of_others_are_never_moved),
        T(room_is_made_only_where_it_is_needed),
        T(a_session_is_left_by_a_scope),
        T(version_one_is_preferred_where_both_are),
        T(version_one_may_not_count_sockets),
        T(nothing_usable_is_no_error),
        T(a_scope_is_asked_for_in_so_many_words),
        T(a_manager_that_lies_or_is_not_there_is_done_without),
    };
    return cmocka_run_group_tests_name("cgroup", tests, NULL, NULL);
}
