#include "sandbox/launcher.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sm.h"
#include "base/text.h"
#include "lock/cgroup.h"
#include "sandbox/box.h"
#include "sandbox/lockdown.h"
#include "sandbox/netns.h"
#include "sandbox/stage.h"
#include "sandbox/sys.h"
#include "sandbox/wall.h"
#include "wire/frame.h"
#include "wire/sandbox.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum {
    REFILL_QUIET_MS = 20, /* what is made ahead is made when nothing happened for this long */
    REFILL_SOON_US = 250, /* or for this long, when there is none left */
    POOL_FAILURES = 3,    /* then the pool is given up: something is wrong that will stay wrong */
    BLANKS = 2,           /* boxes that stand ready for any spec, whatever the pool has */
    PIDS_MARGIN = 16,     /* for init and its workers */
    SWEEP_MS = 5000,
    LEFTOVER_BYTES = 8 << 20,
    LITTER_BYTES = 1 << 20, /* what an ended box may leave for the janitor to keep a while */
    LITTER_MAX = 16,        /* descriptors that it keeps */
};

/* To the janitor. */
enum { LITTER = 1, LITTER_NOW };

enum launched_state {
    LAUNCHED_FREE,
    LAUNCHED_WARM,       /* made, and without a spec */
    LAUNCHED_LIVE,       /* the front has its channel */
    LAUNCHED_FROZEN,     /* live, and its group is frozen */
    LAUNCHED_FAILED,     /* killed before the front knew it */
    LAUNCHED_DESTROYING, /* killed at the front's request, which is answered when it is gone */
};

static const struct sm_state launched_states[] = {
    [LAUNCHED_FREE] = {"free", SM_TO(LAUNCHED_WARM)},
    [LAUNCHED_WARM] = {"warm",
                       SM_TO(LAUNCHED_LIVE) | SM_TO(LAUNCHED_FAILED) | SM_TO(LAUNCHED_FREE)},
    [LAUNCHED_LIVE] = {"live",
                       SM_TO(LAUNCHED_FROZEN) | SM_TO(LAUNCHED_DESTROYING) | SM_TO(LAUNCHED_FREE)},
    [LAUNCHED_FROZEN] = {"frozen",
                         SM_TO(LAUNCHED_LIVE) | SM_TO(LAUNCHED_DESTROYING) | SM_TO(LAUNCHED_FREE)},
    [LAUNCHED_FAILED] = {"failed", SM_TO(LAUNCHED_FREE)},
    [LAUNCHED_DESTROYING] = {"destroying", SM_TO(LAUNCHED_FREE)},
};
static const struct sm launched_sm = {"launched", launched_states, ARRAY_LEN(launched_states)};

struct launched {
    enum launched_state state;
    enum box_ahead ahead; /* of a warm one */
    char id[SANDBOX_ID_MAX];
    struct box box;
    struct cgroup_slot slot;
    bool slot_open;
    bool leftover;       /* there was something in its group after its end */
    uint64_t destroy_id; /* of one that is being destroyed: the request that waits for the end */
};

struct launcher {
    int control;
    int signals;
    struct wire_reader reader;
    struct sandbox_config config;
    bool configured;
    struct cgroups cgroups;
    struct lockdown lockdown;
    struct stage stage;
    struct netns netns;
    struct launched *boxes;
    size_t nboxes;                /* config.max, and places for blanks */
    size_t nwarm[BOX_LOCKED + 1]; /* by how far they are */
    size_t nused;                 /* all but blanks: config.max at most */
    unsigned pool_failures;
    int64_t busy_ns; /* when something happened last */
    int64_t refill_at_ns;
    bool refill_failed;
    enum box_ahead wanted; /* what would have served the last one best */
    int janitor;           /* its end says that the launcher is gone */
    pid_t janitor_pid;
};

/* ---- replies ---- */

static _Noreturn void launcher_leave(struct launcher *l, int status);

static void launcher_send_out(struct launcher *l, const struct wire_out *out) {
    if (wire_send(l->control, out) < 0)
        launcher_leave(l, 0);
}

static void launcher_reply(struct launcher *l, uint16_t type, uint64_t id, const struct buf *b) {
    launcher_send_out(l, &(struct wire_out){.type = type,
                                            .id = id,
                                            .pieces = {{b ? b->data : NULL, b ? b->len : 0}}});
}

static void reply_failed(struct launcher *l, uint64_t id, const struct err *err) {
    struct buf b;
    buf_init(&b, 4096);
    pack_sandbox_error(&b, err);
    launcher_reply(l, SANDBOX_FAILED, id, &b);
    buf_finish(&b);
}

/* ---- sandboxes ---- */

/* Blanks have places of their own. */
static bool launched_is_used(const struct launched *s) {
    return s->state != LAUNCHED_FREE && (s->state != LAUNCHED_WARM || s->ahead != BOX_BLANK);
}

static bool launched_is_whole(const struct launched *s) {
    switch (s->state) {
    case LAUNCHED_FREE:
        return s->box.pidfd < 0 && s->box.channel < 0;
    case LAUNCHED_WARM:
        return s->slot_open && s->box.pidfd >= 0 && s->box.channel >= 0;
    case LAUNCHED_LIVE:
    case LAUNCHED_FROZEN:
    case LAUNCHED_DESTROYING:
        return *s->id && s->box.pidfd >= 0;
    case LAUNCHED_FAILED:
        return s->box.pidfd >= 0;
    }
    return false;
}

/* The one place that changes a box's state, and the counts that follow from it. */
static void launched_move(struct launcher *l, struct launched *s, enum launched_state to) {
    l->nwarm[s->ahead] -= s->state == LAUNCHED_WARM;
    l->nused -= launched_is_used(s);
    s->state = (enum launched_state)sm_next(&launched_sm, s->state, to);
    l->nwarm[s->ahead] += s->state == LAUNCHED_WARM;
    l->nused += launched_is_used(s);
    assert(launched_is_whole(s) && l->nused <= l->config.max);
}

static struct launched *launcher_find(struct launcher *l, const char *id) {
    for (size_t i = 0; i < l->nboxes; i++)
        if ((l->boxes[i].state == LAUNCHED_LIVE || l->boxes[i].state == LAUNCHED_FROZEN) &&
            strcmp(l->boxes[i].id, id) == 0)
            return &l->boxes[i];
    return NULL;
}

static uid_t uid_of(const struct launcher *l, const struct launched *s) {
    return l->config.uid_base + 2 * (uid_t)(s - l->boxes);
}

/* The kernel clears away what a sandbox left (System V memory) a while after its last process: the
 * next one in the same group would have to pay for it. */
static struct launched *launcher_free_place(const struct launcher *l) {
    struct launched *last = NULL;
    for (size_t i = 0; i < l->nboxes; i++) {
        struct launched *s = &l->boxes[i];
        if (s->state != LAUNCHED_FREE)
            continue;
        if (!s->leftover || cgroup_slot_memory(&l->cgroups, &s->slot) < LEFTOVER_BYTES)
            return s;
        last = s;
    }
    return last;
}

static int launcher_check_room(const struct launcher *l, struct err *err) {
    return l->nused < l->config.max
               ? 0
               : err_set(err, ERR_LIMIT, "there are already %u sandboxes, which is the limit",
                         l->config.max);
}

static int launcher_spawn(struct launcher *l, const char *root, enum box_ahead ahead,
                          struct launched **ret, struct err *err) {
    int rc = ahead == BOX_BLANK ? 0 : launcher_check_room(l, err);
    if (rc < 0)
        return rc;
    struct launched *s = launcher_free_place(l);
    if (!s)
        return err_set(err, ERR_LIMIT, "there is no place for a sandbox");
    if (!s->slot_open) {
        rc = cgroup_slot_open(&l->cgroups, (unsigned)(s - l->boxes), &s->slot, err);
        if (rc < 0)
            return rc;
        s->slot_open = true;
    }
    struct box_params p = {.stage = &l->stage,
                           .netns = &l->netns,
                           .lockdown = &l->lockdown,
                           .cgroups = &l->cgroups,
                           .slot = &s->slot,
                           .root = root,
                           .ahead = ahead,
                           .uid = uid_of(l, s)};
    rc = box_spawn(&p, &s->box, err);
    if (rc < 0)
        return rc;
    s->ahead = ahead;
    launched_move(l, s, LAUNCHED_WARM);
    *ret = s;
    return 0;
}

static void kill_box(struct launcher *l, struct launched *s) {
    if (s->state == LAUNCHED_FROZEN) /* a frozen process of version 1 does not even die */
        (void)cgroup_slot_freeze(&l->cgroups, &s->slot, false);
    (void)sys_pidfd_send_signal(s->box.pidfd, SIGKILL);
}

/* The janitor closes what a box was in, so that the next request does not wait for that either:
 * when nothing happens, or at once if much is held by it. */
static void launcher_let_go(struct launcher *l, struct box *b, bool now) {
    int fds[2];
    size_t n = 0;
    if (b->mounts >= 0)
        fds[n++] = b->mounts;
    if (b->net >= 0)
        fds[n++] = b->net;
    struct wire_out out = {.type = now ? LITTER_NOW : LITTER, .fds = fds, .nfds = n};
    if (n > 0 && l->janitor >= 0)
        (void)wire_try_send(l->janitor, &out); /* what it has no room for is closed here */
    fd_close(&b->mounts);
    fd_close(&b->net);
}

static void launcher_on_gone(struct launcher *l, struct launched *s, int status) {
    enum launched_state was = s->state;
    struct sandbox_stats st = {0};
    cgroup_slot_stats(&l->cgroups, &s->slot, &st);
    if (was == LAUNCHED_WARM) {
        l->pool_failures++;
        log_warn("sandbox.pool", "error", "a ready sandbox ended by itself", "status", status);
    }
    fd_close(&s->box.channel);
    fd_close(&s->box.pidfd);
    launched_move(l, s, LAUNCHED_FREE);
    if (was != LAUNCHED_WARM && was != LAUNCHED_FAILED) {
        struct buf b;
        buf_init(&b, 512);
        pack_str(&b, s->id);
        pack_u32(&b, (uint32_t)status);
        pack_sandbox_stats(&b, &st);
        launcher_reply(l, SANDBOX_EXITED, 0, &b);
        buf_finish(&b);
        if (was == LAUNCHED_DESTROYING)
            launcher_reply(l, SANDBOX_DONE, s->destroy_id, NULL);
    }
    launcher_let_go(l, &s->box, st.memory_bytes >= LITTER_BYTES);
    s->leftover = st.memory_bytes >= LEFTOVER_BYTES;
    cgroup_slot_reset(&l->cgroups, &s->slot, &st);
}

static void launcher_on_helper_gone(struct launcher *l, pid_t pid);

static void launcher_reap(struct launcher *l) {
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid <= 0)
            return;
        launcher_on_helper_gone(l, pid);
        for (size_t i = 0; i < l->nboxes; i++)
            if (l->boxes[i].state != LAUNCHED_FREE && l->boxes[i].box.pid == pid)
                launcher_on_gone(l, &l->boxes[i], status);
    }
}

/* Everything ends: sandboxes, then their groups. The janitor stands by in case this does not. */
static _Noreturn void launcher_leave(struct launcher *l, int status) {
    for (size_t i = 0; i < l->nboxes; i++)
        if (l->boxes[i].state != LAUNCHED_FREE)
            kill_box(l, &l->boxes[i]);
    for (size_t i = 0; i < l->nboxes; i++)
        if (l->boxes[i].state != LAUNCHED_FREE)
            while (waitpid(l->boxes[i].box.pid, NULL, 0) < 0 && errno == EINTR)
                ;
    cgroups_sweep_own(&l->cgroups, SWEEP_MS);
    fd_close(&l->janitor);
    fd_close(&l->stage.binder);
    fd_close(&l->netns.maker);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ;
    _exit(status);
}

/* ---- configuration ---- */

static void close_litter(int *fds, size_t *n) {
    while (*n > 0)
        fd_close(&fds[--*n]);
}

/* Whatever comes is closed, several at a time: the kernel takes network namespaces down together,
 * and waits once for all of them. Returns at the end of the socket. */
static void launcher_close_all(int socket) {
    struct wire_reader r;
    struct wire_frame f;
    struct err err;
    struct pollfd p = {.fd = socket, .events = POLLIN};
    int fds[LITTER_MAX + WIRE_FDS_MAX];
    size_t n = 0;
    wire_reader_init(&r, 0);
    int rc = 0;
    while (rc >= 0) {
        rc = wire_next(&r, &f, &err);
        if (rc == 0 && poll(&p, 1, n > 0 ? REFILL_QUIET_MS : -1) == 0) {
            close_litter(fds, &n);
        } else if (rc == 0) {
            rc = wire_recv(&r, socket, &err);
        } else if (rc == 1) {
            for (size_t i = 0; i < f.nfds; i++)
                fds[n++] = wire_frame_take_fd(&f, i);
            if (n >= LITTER_MAX || f.type == LITTER_NOW)
                close_litter(fds, &n);
        }
    }
    wire_reader_finish(&r);
}

/* A process that clears away after the launcher: what ended boxes leave and, since it outlives a
 * kill -9 of the launcher just long enough, its groups. */
static int start_janitor(struct launcher *l, struct err *err) {
    int pair[2];
    int rc = fd_pair(pair, err);
    if (rc < 0)
        return rc;
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(err, "fork");
    if (pid == 0) {
        (void)setsid();
        int keep[1 + 2 * CGROUP_HIERS_MAX];
        size_t n = 0;
        keep[n++] = pair[1];
        for (size_t i = 0; i < l->cgroups.n; i++) {
            keep[n++] = l->cgroups.hiers[i].parent;
            keep[n++] = l->cgroups.hiers[i].base;
        }
        fd_close_others(0, keep, n);
        launcher_close_all(pair[1]);
        cgroups_sweep_own(&l->cgroups, SWEEP_MS);
        _exit(0);
    }
    close(pair[1]);
    (void)fd_set_nonblock(pair[0], true);
    l->janitor = pair[0];
    l->janitor_pid = pid;
    return 0;
}

/* The janitor and the maker are made again. The binder cannot be: it sees mounts that the launcher
 * has left behind. So the next launcher takes over, rather than one that can bind nothing. */
static void launcher_on_helper_gone(struct launcher *l, pid_t pid) {
    struct err err;
    if (pid == l->stage.binder_pid) {
        log_error("sandbox.binder", "error", "it was killed: the launcher starts again");
        launcher_leave(l, 1);
    }
    if (pid == l->netns.maker_pid && netns_start_maker(&l->netns, &err) < 0)
        log_warn("sandbox.netns", "error", err.message);
    if (pid != l->janitor_pid)
        return;
    fd_close(&l->janitor);
    l->janitor_pid = 0;
    if (start_janitor(l, &err) < 0)
        log_warn("sandbox.janitor", "error", err.message);
}

/* The first sandbox is made at once: what is wrong with this host is said at the start. */
static int launcher_probe(struct launcher *l, struct err *err) {
    struct launched *s;
    int rc = launcher_spawn(l, "", BOX_NOW, &s, err);
    if (rc < 0)
        return rc;
    struct buf b;
    buf_init(&b, 4096);
    pack_u8(&b, 0);
    struct sandbox_spec spec = {.id = "probe"};
    pack_sandbox_spec(&b, &spec);
    (void)wire_send(s->box.channel,
                    &(struct wire_out){.type = INIT_SETUP, .pieces = {{b.data, b.len}}});
    buf_finish(&b);
    struct wire_reader r;
    wire_reader_init(&r, SANDBOX_INIT_MAX);
    struct wire_frame f;
    rc = wire_read(&r, s->box.channel, &f, err);
    if (rc == 1) {
        struct unpack u;
        unpack_init(&u, f.data, f.len);
        rc = f.type == INIT_READY ? 0 : unpack_sandbox_error(&u, err);
        wire_frame_finish(&f);
    }
    wire_reader_finish(&r);
    kill_box(l, s);
    while (waitpid(s->box.pid, NULL, 0) < 0 && errno == EINTR)
        ;
    fd_close(&s->box.channel);
    fd_close(&s->box.pidfd);
    fd_close(&s->box.mounts);
    fd_close(&s->box.net);
    launched_move(l, s, LAUNCHED_FREE);
    return rc;
}

static void open_cgroups(struct launcher *l, char *why, size_t why_size) {
    struct err err;
    /* It ends with its front: whatever group that one is in need not be the launcher's. */
    int rc = cgroups_settle("", CGROUPS_LEAVE, &err);
    cgroups_open(&l->cgroups, "", getpid(), why, why_size);
    if (l->cgroups.controllers & SANDBOX_HAS_MEMORY)
        return;
    if (rc < 0)
        (void)text_print(why, why_size, "memory is watched, not enforced: %s", err.message);
    log_info("sandbox.cgroup", "error", why);
}

/* Not before a sandbox has shown that the kernel would give it a /proc by itself: what is covered
 * of the host's must not come to light by our making one. */
static void try_lean(struct launcher *l) {
    struct err err;
    l->stage.lean = l->stage.has_proc && wall_on(WALL_LEAN);
    if (l->stage.lean && launcher_probe(l, &err) < 0) {
        l->stage.lean = false;
        log_info("sandbox.lean", "error", err.message);
    }
}

static int launcher_configure(struct launcher *l, struct unpack *u, char *why, size_t why_size,
                              struct err *err) {
    if (l->configured)
        return err_set(err, ERR_CONFLICT, "the launcher is configured already");
    unpack_sandbox_config(u, &l->config);
    struct sandbox_config *c = &l->config;
    if (!unpack_ok(u) || c->max == 0 || c->max > 65536 || c->pool > c->max)
        return err_set(err, ERR_BAD_REQUEST, "malformed configuration");
    if (geteuid() == 0 && (c->uid_base < 65536 || c->uid_count / 2 < c->max ||
                           c->uid_base + (uint64_t)c->uid_count > 0xfffffff0U))
        return err_set(err, ERR_BAD_REQUEST,
                       "as root, sandboxes need two host uids each, from 65536 on");
    int rc = lockdown_init(&l->lockdown, err);
    if (rc < 0)
        return rc;
    open_cgroups(l, why, why_size);
    l->cgroups.counts_sockets = l->cgroups.counts_sockets && wall_on(WALL_SOCKETS);
    cgroups_sweep_stale(&l->cgroups);
    l->nboxes = c->max + BLANKS;
    if (geteuid() == 0)
        l->nboxes = MIN(l->nboxes, (size_t)c->uid_count / 2);
    l->boxes = xcalloc(l->nboxes, sizeof(*l->boxes));
    for (size_t i = 0; i < l->nboxes; i++)
        l->boxes[i].box = (struct box){.pidfd = -1, .channel = -1, .mounts = -1, .net = -1};
    if (l->cgroups.version != SANDBOX_CGROUP_NONE)
        rc = start_janitor(l, err);
    if (rc == 0)
        rc = stage_open(&l->stage, c, err);
    if (rc == 0)
        rc = netns_open(&l->netns, l->stage.proc, err);
    if (rc == 0)
        rc = launcher_probe(l, err);
    if (rc < 0 && err->sys == EPERM && strncmp(err->message, "mount /proc", 11) == 0) {
        /* Inside a container whose own /proc is masked the kernel allows no new one. */
        l->stage.has_proc = false;
        (void)snprintf(why, why_size, "sandboxes have no /proc: this host's is masked");
        rc = launcher_probe(l, err);
    }
    if (rc == 0)
        try_lean(l);
    if (rc == 0)
        l->configured = true;
    return rc;
}

static void launcher_on_config(struct launcher *l, struct wire_frame *f, struct unpack *u) {
    char why[640];
    struct err err = {0};
    if (launcher_configure(l, u, why, sizeof(why), &err) < 0) {
        log_error("sandbox.config", "error", err.message);
        reply_failed(l, f->id, &err);
        return;
    }
    struct sandbox_features features = {.root = l->stage.root,
                                        .cgroup = l->cgroups.version,
                                        .controllers = l->cgroups.controllers,
                                        .landlock = (uint32_t)l->lockdown.landlock_abi,
                                        .proc = l->stage.has_proc,
                                        .detail = why};
    struct buf b;
    buf_init(&b, 4096);
    pack_sandbox_features(&b, &features);
    launcher_reply(l, SANDBOX_FEATURES, f->id, &b);
    buf_finish(&b);
}

/* ---- requests ---- */

static struct launched *find_warm(struct launcher *l, enum box_ahead ahead) {
    for (size_t i = 0; l->nwarm[ahead] > 0 && i < l->nboxes; i++)
        if (l->boxes[i].state == LAUNCHED_WARM && l->boxes[i].ahead == ahead)
            return &l->boxes[i];
    return NULL;
}

/* The one that is furthest: locked, blank, or made now. */
static int take_box(struct launcher *l, const struct sandbox_spec *spec, struct launched **ret,
                    struct err *err) {
    bool plain = l->config.pool > 0 && box_spec_is_plain(spec);
    struct launched *s = plain ? find_warm(l, BOX_LOCKED) : NULL;
    l->wanted = plain ? BOX_LOCKED : BOX_BLANK;
    int rc = 0;
    if (!s && *spec->root == 0 && (s = find_warm(l, BOX_BLANK)))
        rc = launcher_check_room(l, err);
    else if (!s)
        rc = launcher_spawn(l, spec->root, BOX_NOW, &s, err);
    if (rc < 0)
        return rc;
    *ret = s;
    return 0;
}

static int clone_binds(struct launcher *l, const struct launched *s,
                       const struct sandbox_spec *spec, struct wire_frame *f,
                       int trees[SANDBOX_BINDS_MAX], struct err *err) {
    if (f->nfds != spec->nbinds)
        return err_set(err, ERR_PROTOCOL, "%zu binds, %d descriptors", spec->nbinds, f->nfds);
    for (size_t i = 0; i < spec->nbinds; i++) {
        int rc = stage_clone_bind(&l->stage, f->fds[i], spec->binds[i].mode == SANDBOX_BIND_RW,
                                  uid_of(l, s) + 1, err, &trees[i]);
        if (rc < 0)
            return err_wrap(err, "bind '%s'", spec->binds[i].path);
    }
    return 0;
}

/* Limits from outside, then the spec itself, which init carries out. */
static int launcher_hand_out(struct launcher *l, struct launched *s,
                             const struct sandbox_spec *spec, struct wire_frame *f,
                             struct err *err) {
    int trees[SANDBOX_BINDS_MAX];
    for (size_t i = 0; i < SANDBOX_BINDS_MAX; i++)
        trees[i] = -1;
    int rc = wall_on(WALL_CGROUP)
                 ? cgroup_slot_limit(&l->cgroups, &s->slot, spec->memory_bytes,
                                     spec->pids + PIDS_MARGIN, spec->cpu_milli, err)
                 : 0;
    if (rc == 0)
        rc = clone_binds(l, s, spec, f, trees, err);
    if (rc == 0) {
        uint8_t limited = wall_on(WALL_CGROUP) && cgroups_bound_memory(&l->cgroups);
        struct wire_out out = {.type = INIT_SETUP,
                               .pieces = {{&limited, 1}, {f->data, f->len}},
                               .fds = trees,
                               .nfds = spec->nbinds};
        if (wire_send(s->box.channel, &out) < 0)
            rc = err_sys(err, "set up a sandbox");
    }
    for (size_t i = 0; i < SANDBOX_BINDS_MAX; i++)
        fd_close(&trees[i]);
    return rc;
}

static int launcher_create(struct launcher *l, struct wire_frame *f,
                           const struct sandbox_spec *spec, struct launched **ret,
                           struct err *err) {
    size_t n = strlen(spec->id);
    if (n == 0 || n >= SANDBOX_ID_MAX)
        return err_set(err, ERR_BAD_REQUEST, "a sandbox id has 1 to %d bytes", SANDBOX_ID_MAX - 1);
    if (launcher_find(l, spec->id))
        return err_set(err, ERR_CONFLICT, "sandbox '%s' exists", spec->id);
    if (strlen(spec->hostname) > 63)
        return err_set(err, ERR_BAD_REQUEST, "a host name has at most 63 bytes");
    int rc = wall_on(WALL_DISK) ? sandbox_spec_check(spec, err) : 0;
    if (rc < 0)
        return rc;
    struct launched *s;
    rc = take_box(l, spec, &s, err);
    if (rc < 0)
        return rc;
    rc = launcher_hand_out(l, s, spec, f, err);
    if (rc < 0) {
        kill_box(l, s);
        launched_move(l, s, LAUNCHED_FAILED);
        return rc;
    }
    memcpy(s->id, spec->id, n + 1);
    launched_move(l, s, LAUNCHED_LIVE);
    *ret = s;
    return 0;
}

static void launcher_on_create(struct launcher *l, struct wire_frame *f, struct unpack *u) {
    struct sandbox_spec spec;
    struct launched *s = NULL;
    struct err err = {0};
    unpack_sandbox_spec(u, &spec);
    int rc = unpack_ok(u) ? launcher_create(l, f, &spec, &s, &err)
                          : err_set(&err, ERR_BAD_REQUEST, "malformed spec");
    if (rc < 0) {
        reply_failed(l, f->id, &err);
    } else {
        struct buf b;
        buf_init(&b, 512);
        pack_str(&b, s->id);
        // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): set when launcher_create() succeeds
        const int fds[2] = {s->box.channel, s->box.pidfd};
        launcher_send_out(l, &(struct wire_out){.type = SANDBOX_CREATED,
                                                .id = f->id,
                                                .pieces = {{b.data, b.len}},
                                                .fds = fds,
                                                .nfds = 2});
        buf_finish(&b);
        fd_close(&s->box.channel); /* the front's alone now: its end is the sandbox's end */
    }
    sandbox_spec_finish(&spec);
}

static int launcher_freeze(struct launcher *l, struct launched *s, bool on, struct err *err) {
    if (cgroup_slot_freeze(&l->cgroups, &s->slot, on)) {
        if (on != (s->state == LAUNCHED_FROZEN))
            launched_move(l, s, on ? LAUNCHED_FROZEN : LAUNCHED_LIVE);
        return 0;
    }
    if (sys_pidfd_send_signal(s->box.pidfd, on ? SIGUSR1 : SIGUSR2) < 0)
        return err_sys(err, "ask init");
    return 0;
}

static void launcher_on_request(struct launcher *l, struct wire_frame *f, struct unpack *u) {
    _cleanup_(free) char *id = unpack_strdup(u);
    struct err err = {0};
    struct launched *s = unpack_ok(u) ? launcher_find(l, id) : NULL;
    if (!s) {
        (void)err_set(&err, ERR_NOT_FOUND, "no sandbox '%.*s'", SANDBOX_ID_MAX, id);
        reply_failed(l, f->id, &err);
        return;
    }
    if (f->type == SANDBOX_DESTROY) {
        s->destroy_id = f->id;
        kill_box(l, s);
        launched_move(l, s, LAUNCHED_DESTROYING);
        return;
    }
    if (f->type == SANDBOX_STATS) {
        struct sandbox_stats st;
        struct buf b;
        cgroup_slot_stats(&l->cgroups, &s->slot, &st);
        buf_init(&b, 256);
        pack_sandbox_stats(&b, &st);
        launcher_reply(l, SANDBOX_STATS_ARE, f->id, &b);
        buf_finish(&b);
        return;
    }
    if (launcher_freeze(l, s, f->type == SANDBOX_PAUSE, &err) < 0)
        reply_failed(l, f->id, &err);
    else
        launcher_reply(l, SANDBOX_DONE, f->id, NULL);
}

static void launcher_on_frame(struct launcher *l, struct wire_frame *f) {
    struct unpack u;
    struct err err;
    unpack_init(&u, f->data, f->len);
    if (f->type == SANDBOX_CONFIG) {
        launcher_on_config(l, f, &u);
    } else if (!l->configured) {
        (void)err_set(&err, ERR_PROTOCOL, "the first message must be the configuration");
        reply_failed(l, f->id, &err);
    } else if (f->type == SANDBOX_CREATE) {
        launcher_on_create(l, f, &u);
    } else if (f->type >= SANDBOX_DESTROY && f->type <= SANDBOX_STATS) {
        launcher_on_request(l, f, &u);
    } else {
        (void)err_set(&err, ERR_PROTOCOL, "unknown message %d", f->type);
        reply_failed(l, f->id, &err);
    }
    wire_frame_finish(f);
}

/* ---- the loop ---- */

/* What is made ahead, the most wanted first. */
enum need { NEED_NOTHING, NEED_LOCKED, NEED_BLANK };

static enum need next_need(const struct launcher *l) {
    if (!l->configured || l->pool_failures >= POOL_FAILURES)
        return NEED_NOTHING;
    bool blank = l->nwarm[BOX_BLANK] < l->nboxes - l->config.max;
    bool locked = l->nwarm[BOX_LOCKED] < l->config.pool && l->nused < l->config.max;
    if (blank && (!locked || (l->wanted == BOX_BLANK && l->nwarm[BOX_BLANK] == 0)))
        return NEED_BLANK;
    return locked ? NEED_LOCKED : NEED_NOTHING;
}

/* Later, while something happens: whatever runs has the processors first. When the last one is gone
 * the next is made sooner, for whoever makes sandboxes one after the other, but not before those
 * who were told of that one have had their turn. */
static int64_t need_in_ns(const struct launcher *l, enum need need) {
    if (need == NEED_NOTHING)
        return -1;
    bool soon = l->nwarm[l->wanted] == 0 && !l->refill_failed;
    int64_t at = soon ? l->busy_ns + REFILL_SOON_US * INT64_C(1000) : l->refill_at_ns;
    return MAX(at - clock_mono_ns(), 0);
}

static void delay_refill(struct launcher *l, int ms) {
    l->busy_ns = clock_mono_ns();
    l->refill_at_ns = MAX(l->refill_at_ns, l->busy_ns + ms * INT64_C(1000000));
}

static void launcher_refill(struct launcher *l, enum box_ahead ahead) {
    struct launched *s;
    struct err err;
    l->refill_failed = launcher_spawn(l, "", ahead, &s, &err) < 0;
    if (!l->refill_failed)
        return;
    if (err.code != ERR_LIMIT) {
        l->pool_failures++;
        log_warn("sandbox.pool", "error", err.message);
    }
    delay_refill(l, 1000);
}

static void launcher_drain(struct launcher *l) {
    struct wire_frame f;
    struct err err;
    int rc;
    while ((rc = wire_next(&l->reader, &f, &err)) == 1)
        launcher_on_frame(l, &f);
    if (rc < 0) {
        log_error("sandbox.control", "error", err.message);
        launcher_leave(l, 1);
    }
    delay_refill(l, REFILL_QUIET_MS);
}

static int launcher_prepare(struct launcher *l) {
    /* At 0 the kernel writes no core file, but still starts a handler that reads cores from a pipe,
     * outside; at 1 neither. Here, because sandboxes cannot change it any more. */
    struct rlimit files, core = {1, 1};
    if (setrlimit(RLIMIT_CORE, &core) < 0)
        log_info("sandbox.core", "error", "crashes inside may reach this machine's crash handler");
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    if (sigaction(SIGPIPE, &ignore, NULL) < 0 || sigprocmask(SIG_SETMASK, &set, NULL) < 0)
        return -1;
    l->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    /* An ordinary user writes the id maps of a child that inherits this: /proc would refuse. */
    if (l->signals < 0 || (geteuid() == 0 && prctl(PR_SET_DUMPABLE, 0) < 0))
        return -1;
    return fd_set_nonblock(l->control, true) < 0 || fd_set_cloexec(l->control, true) < 0 ? -1 : 0;
}

static void launcher_on_signals(struct launcher *l) {
    struct signalfd_siginfo si[16];
    ssize_t n = read(l->signals, si, sizeof(si));
    for (ssize_t i = 0; i < n / (ssize_t)sizeof(si[0]); i++)
        if (si[i].ssi_signo != SIGCHLD)
            launcher_leave(l, 0);
    launcher_reap(l);
    delay_refill(l, REFILL_QUIET_MS);
}

int launcher_run(int control) {
    static struct launcher l;
    l = (struct launcher){
        .control = control, .janitor = -1, .stage = {.binder = -1}, .netns = {.maker = -1}};
    wire_reader_init(&l.reader, SANDBOX_CONTROL_MAX);
    if (launcher_prepare(&l) < 0) {
        log_error("sandbox.start", "error", strerror(errno));
        return 1;
    }
    for (;;) {
        struct pollfd p[2] = {{.fd = control, .events = POLLIN},
                              {.fd = l.signals, .events = POLLIN}};
        enum need need = next_need(&l);
        int64_t in_ns = need_in_ns(&l, need);
        struct timespec t = {.tv_sec = in_ns / 1000000000, .tv_nsec = in_ns % 1000000000};
        int n = ppoll(p, 2, in_ns < 0 ? NULL : &t, NULL);
        if (n < 0 && errno != EINTR)
            launcher_leave(&l, 1);
        if (n == 0 && need != NEED_NOTHING)
            launcher_refill(&l, need == NEED_LOCKED ? BOX_LOCKED : BOX_BLANK);
        if (n > 0 && p[1].revents)
            launcher_on_signals(&l);
        struct err err;
        if (n > 0 && p[0].revents) {
            if (wire_recv(&l.reader, control, &err) < 0)
                launcher_leave(&l, 0); /* the front is gone */
            launcher_drain(&l);
        }
    }
}
