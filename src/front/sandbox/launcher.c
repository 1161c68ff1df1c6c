#include "front/sandbox/launcher.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/sm.h"
#include "front/sandbox/internal.h"
#include "loop/channel.h"

#include <assert.h>
#include <errno.h>
#include <linux/magic.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>

enum { QUEUE_BYTES = 8 << 20, CALLS_MAX = 1024, PATROL_MS = 1000 };

struct sandbox_call {
    struct sandbox_call *next;
    uint64_t id;
    uint16_t type; /* of the request */
    bool works;    /* init does it in a process of its own, and it may take its time */
    int64_t by_ms; /* when init must have answered, on the loop's clock; 0: the launcher's */
    sandbox_replied cb;
    void *ctx;
};

enum box_state {
    BOX_ASKED,    /* CREATE was sent */
    BOX_UNWANTED, /* the same, and DESTROY is due when CREATED comes */
    BOX_BOOTING,  /* init has not greeted */
    BOX_READY,
    BOX_FAILING, /* DESTROY was sent before it was ready */
    BOX_ENDING,  /* DESTROY was sent after that */
    BOX_GONE,    /* those who wait are being told */
};

static const struct sm_state box_states[] = {
    [BOX_ASKED] = {"asked", SM_TO(BOX_UNWANTED) | SM_TO(BOX_BOOTING) | SM_TO(BOX_GONE)},
    [BOX_UNWANTED] = {"unwanted", SM_TO(BOX_BOOTING) | SM_TO(BOX_GONE)},
    [BOX_BOOTING] = {"booting", SM_TO(BOX_READY) | SM_TO(BOX_FAILING) | SM_TO(BOX_GONE)},
    [BOX_READY] = {"ready", SM_TO(BOX_ENDING) | SM_TO(BOX_GONE)},
    [BOX_FAILING] = {"failing", SM_TO(BOX_GONE)},
    [BOX_ENDING] = {"ending", SM_TO(BOX_GONE)},
    [BOX_GONE] = {"gone", 0},
};
static const struct sm box_sm = {"box", box_states, ARRAY_LEN(box_states)};

struct sandbox_box {
    struct sandbox_box *next;
    struct sandbox_launcher *host;
    char *id;
    enum box_state state;
    struct channel *channel;
    struct sandbox_box_callbacks callbacks; /* all NULL when it was abandoned */
    void *ctx;
    struct sandbox_call *calls;
    size_t ncalls;
    struct sandbox_command *commands;
    struct sandbox_command *left;
    uint64_t next_id;
    uint64_t create_id;
    uint64_t pause_id; /* the last PAUSE: init may be frozen, and need not answer. 0: it is not */
    int64_t ready_by_ms;
    bool egress;
    bool by_itself; /* init ended before anybody asked it to */
    struct err err; /* why it ends, if it was not asked to */
};

struct sandbox_launcher {
    uv_loop_t *loop;
    struct keeper *keeper;
    struct channel *channel; /* of this life of the launcher */
    struct buf config;       /* CONFIG, packed */
    struct sandbox_features features;
    bool ready;
    struct err failed; /* what CONFIG was answered with */
    struct sandbox_box *boxes;
    struct sandbox_call *calls; /* STATS, PAUSE, RESUME */
    uint64_t next_id;
    int64_t answer_ms;
    uv_timer_t patrol; /* runs while an answer of some init is due */
    bool stopping;
    void (*on_state)(void *ctx);
    void *ctx;
    void (*on_stopped)(void *ctx);
    void *stopped_ctx;
};

static void box_state_move(struct sandbox_box *b, enum box_state to) {
    b->state = (enum box_state)sm_next(&box_sm, b->state, to);
    assert(b->state != BOX_BOOTING || b->channel || b->err.code);
    assert(b->state != BOX_READY || b->channel);
    assert(b->state != BOX_GONE || !b->channel);
}

static bool box_is_asked(const struct sandbox_box *b) {
    return b->state == BOX_ASKED || b->state == BOX_UNWANTED;
}

/* It is there, and nobody has ended it. */
static bool box_is_up(const struct sandbox_box *b) {
    return b->state == BOX_BOOTING || b->state == BOX_READY;
}

/* --- calls --- */

static struct sandbox_call *sandbox_launcher_add_call(struct sandbox_call **list, uint64_t id,
                                                      uint16_t type, sandbox_replied cb,
                                                      void *ctx) {
    struct sandbox_call *c = xcalloc(1, sizeof(*c));
    *c = (struct sandbox_call){.next = *list, .id = id, .type = type, .cb = cb, .ctx = ctx};
    *list = c;
    return c;
}

static struct sandbox_call *take_call(struct sandbox_call **list, uint64_t id) {
    while (*list && (*list)->id != id)
        list = &(*list)->next;
    struct sandbox_call *c = *list;
    if (c)
        *list = c->next;
    return c;
}

static void sandbox_launcher_finish_call(struct sandbox_call *c, struct sandbox_reply *reply,
                                         const struct err *err) {
    if (c->cb)
        c->cb(c->ctx, reply, err);
    free(c);
}

void sandbox_call_cancel(struct sandbox_call *c) {
    if (c)
        c->cb = NULL;
}

static void fail_calls(struct sandbox_call **list, const struct err *err) {
    struct sandbox_call *c = *list;
    *list = NULL;
    while (c) {
        struct sandbox_call *next = c->next;
        sandbox_launcher_finish_call(c, NULL, err);
        c = next;
    }
}

/* --- the end of a box --- */

static void unlink_box(struct sandbox_box *b) {
    struct sandbox_box **at = &b->host->boxes;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
}

/* Nothing of it is left: tells everybody who waits, then the owner. */
static void box_gone(struct sandbox_box *b, const struct sandbox_stats *stats,
                     const struct err *why) {
    struct err err;
    bool asked = b->state != BOX_ASKED && !box_is_up(b) && !b->err.code && !why;
    bool was_ready = b->state == BOX_READY || b->state == BOX_ENDING;
    if (b->err.code)
        err = b->err;
    else if (why)
        err = *why;
    else if (was_ready && b->by_itself && stats && stats->oom_kills > 0)
        (void)err_set(
            &err, ERR_LIMIT,
            "the sandbox ran out of memory, its files and shared memory included, and was "
            "ended: give it more (memory_mb)");
    else if (was_ready)
        (void)err_set(&err, ERR_CANCELLED, "the sandbox %s",
                      b->by_itself ? "ended by itself" : "has ended");
    else
        (void)err_set(&err, ERR_UNAVAILABLE, "the sandbox ended before it was ready");
    unlink_box(b);
    channel_close(b->channel);
    b->channel = NULL;
    box_state_move(b, BOX_GONE); /* callbacks may ask for more */
    fail_calls(&b->calls, &err);
    while (b->commands)
        command_lost(b->commands, &err);
    while (b->left) {
        struct sandbox_command *j = b->left;
        b->left = command_next(j);
        command_box_gone(j);
    }
    struct sandbox_stats none = {0};
    if (was_ready && b->callbacks.on_exited)
        b->callbacks.on_exited(b->ctx, stats ? stats : &none, asked ? NULL : &err);
    else if (!was_ready && b->callbacks.on_failed)
        b->callbacks.on_failed(b->ctx, &err);
    free(b->id);
    free(b);
}

static bool send_str(struct channel *c, uint16_t type, uint64_t id, const char *text) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, 1024);
    pack_str(&b, text);
    return c &&
           channel_send(c, &(struct wire_out){.type = type, .id = id, .pieces = {{b.data, b.len}}});
}

void sandbox_box_destroy(struct sandbox_box *b) {
    if (b->state == BOX_ASKED)
        box_state_move(b, BOX_UNWANTED);
    if (!box_is_up(b))
        return;
    box_state_move(b, b->state == BOX_READY ? BOX_ENDING : BOX_FAILING);
    if (!send_str(b->host->channel, SANDBOX_DESTROY, ++b->host->next_id, b->id)) {
        /* The launcher does not listen: init ends with its channel. */
        channel_close(b->channel);
        b->channel = NULL;
    }
}

/* --- the patrol: answers that do not come --- */

/* A guest may have found a way to hold up its init, or init is not what it should be. Whoever
 * waits is told now, and not when the last process has been seen to go. */
static void box_silent(struct sandbox_box *b) {
    if (!b->err.code)
        (void)err_set(&b->err, ERR_TIMEOUT,
                      "the sandbox did not answer within %lld s and was ended: something in it "
                      "holds up its first process",
                      (long long)((b->host->answer_ms + 999) / 1000));
    log_warn("sandbox.silent", "sandbox", b->id, "error", b->err.message);
    struct err err = b->err;
    sandbox_box_destroy(b);
    b->ncalls = 0;
    fail_calls(&b->calls, &err);
}

/* When the first answer is due: 0 if none is. */
static int64_t box_due_ms(const struct sandbox_box *b) {
    int64_t due = b->state == BOX_BOOTING ? b->ready_by_ms : 0;
    if (b->pause_id != 0 || !box_is_up(b))
        return 0;
    for (const struct sandbox_call *c = b->calls; c; c = c->next)
        due = due == 0 || c->by_ms < due ? c->by_ms : due;
    for (const struct sandbox_command *j = b->commands; j; j = command_next(j))
        if (command_start_by_ms(j) != 0 && (due == 0 || command_start_by_ms(j) < due))
            due = command_start_by_ms(j);
    return due;
}

static void sandbox_launcher_on_patrol(uv_timer_t *t) {
    struct sandbox_launcher *h = t->data;
    int64_t now = (int64_t)uv_now(h->loop);
    bool waiting = false;
    /* One at a time: callbacks may end others. */
    for (struct sandbox_box *b = h->boxes; b; b = b->next) {
        int64_t due = box_due_ms(b);
        waiting = waiting || due != 0;
        if (due != 0 && due <= now) {
            box_silent(b);
            return;
        }
    }
    if (!waiting)
        (void)uv_timer_stop(t);
}

static uint64_t patrol_every_ms(const struct sandbox_launcher *h) {
    return (uint64_t)MIN((int64_t)PATROL_MS, (h->answer_ms + 3) / 4);
}

int64_t box_answer_by_ms(struct sandbox_box *b, bool works) {
    struct sandbox_launcher *h = b->host;
    enum { WORKS = LIMIT_SANDBOX_WORK_MS / LIMIT_SANDBOX_INIT_MS };
    uint64_t every = patrol_every_ms(h);
    if (!uv_is_active((uv_handle_t *)&h->patrol))
        (void)uv_timer_start(&h->patrol, sandbox_launcher_on_patrol, every, every);
    return (int64_t)uv_now(h->loop) + h->answer_ms * (works ? WORKS : 1);
}

/* Its answers are due anew: it was frozen. */
static void box_resumed(struct sandbox_box *b) {
    b->pause_id = 0;
    if (b->state == BOX_BOOTING)
        b->ready_by_ms = box_answer_by_ms(b, false);
    for (struct sandbox_call *c = b->calls; c; c = c->next)
        c->by_ms = box_answer_by_ms(b, c->works);
    for (struct sandbox_command *j = b->commands; j; j = command_next(j))
        command_set_start_by_ms(j, box_answer_by_ms(b, false));
}

/* Init said something that it may not say. */
static void box_broken(struct sandbox_box *b, const char *what) {
    log_warn("sandbox.broken", "sandbox", b->id, "error", what);
    if (!b->err.code)
        (void)err_set(&b->err, ERR_PROTOCOL, "the sandbox broke its contract: %s", what);
    sandbox_box_destroy(b);
}

/* --- what init says --- */

static void sandbox_launcher_on_ready(struct sandbox_box *b, struct wire_frame *f) {
    struct stat st;
    int listener = f->nfds > 0 ? wire_frame_take_fd(f, 0) : -1;
    bool socket = listener >= 0 && fstat(listener, &st) == 0 && S_ISSOCK(st.st_mode);
    if (f->len > 0 || f->nfds > 1 || b->egress != (listener >= 0) || (listener >= 0 && !socket)) {
        fd_close(&listener);
        box_broken(b, "a greeting that is none");
        return;
    }
    box_state_move(b, BOX_READY);
    if (b->callbacks.on_ready)
        b->callbacks.on_ready(b->ctx, listener);
    else
        fd_close(&listener);
}

/* Some codes are for what we say ourselves, about keys and hosts: not for a guest to say. */
static void read_error(struct unpack *u, struct err *err) {
    switch (-unpack_sandbox_error(u, err)) {
    case ERR_UNAUTHORIZED:
    case ERR_METHOD:
    case ERR_RATE:
    case ERR_TIMEOUT:
    case ERR_MISDIRECTED:
        err->code = ERR_IO;
        break;
    default:
        break;
    }
}

static void sandbox_launcher_on_init_failed(struct sandbox_box *b, struct unpack *u) {
    read_error(u, &b->err);
    sandbox_box_destroy(b);
}

/* A file that reads like one: a regular file, and not one that a kernel makes up (some of those
 * block, some have no end). */
static bool fd_is_file(int fd) {
    struct stat st;
    struct statfs fs;
    return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && fstatfs(fd, &fs) == 0 &&
           fs.f_type != PROC_SUPER_MAGIC && fs.f_type != SYSFS_MAGIC;
}

static bool fd_is_tcp(int fd) {
    int type = 0;
    int domain = 0;
    int protocol = 0;
    socklen_t n = sizeof(int);
    return fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type == SOCK_STREAM &&
           getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) == 0 &&
           (domain == AF_INET || domain == AF_INET6) &&
           getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &n) == 0 && protocol == IPPROTO_TCP;
}

static bool stat_is_sane(const struct sandbox_stat *st) {
    return st->kind >= SANDBOX_FILE && st->kind <= SANDBOX_OTHER && st->size <= INT64_MAX;
}

static bool unpack_entries(struct unpack *u, struct sandbox_reply *r) {
    size_t n = unpack_u32(u);
    if (n > SANDBOX_LIST_MAX)
        return false;
    r->entries = xcalloc(n ? n : 1, sizeof(*r->entries));
    for (size_t i = 0; i < n; i++) {
        struct sandbox_entry *e = &r->entries[r->nentries++];
        e->name = unpack_strdup(u);
        unpack_sandbox_stat(u, &e->stat);
        if (u->bad || !path_is_plain_name(e->name, strlen(e->name)) || !stat_is_sane(&e->stat))
            return false;
    }
    r->more = unpack_u8(u) != 0;
    return true;
}

/* The reply must be of the kind that its request asks for. */
static bool unpack_reply(const struct sandbox_call *c, struct wire_frame *f, struct unpack *u,
                         struct sandbox_reply *r) {
    bool wants_fd = false;
    switch (c->type) {
    case INIT_FILE_READ:
        if (f->type != INIT_FILE)
            return false;
        unpack_sandbox_stat(u, &r->stat);
        r->fd = wire_frame_take_fd(f, 0);
        wants_fd = true;
        if (!stat_is_sane(&r->stat) || !fd_is_file(r->fd))
            return false;
        break;
    case INIT_FILE_STAT:
        if (f->type != INIT_STAT)
            return false;
        unpack_sandbox_stat(u, &r->stat);
        if (!stat_is_sane(&r->stat))
            return false;
        break;
    case INIT_FILE_LIST:
        if (f->type != INIT_ENTRIES || !unpack_entries(u, r))
            return false;
        break;
    case INIT_CONNECT_PORT:
        r->fd = f->type == INIT_PORT ? wire_frame_take_fd(f, 0) : -1;
        wants_fd = true;
        if (!fd_is_tcp(r->fd))
            return false;
        break;
    default:
        if (f->type != INIT_OK)
            return false;
        r->value = unpack_u64(u);
    }
    return unpack_ok(u) && f->nfds == (wants_fd ? 1 : 0);
}

static void free_reply(struct sandbox_reply *r) {
    fd_close(&r->fd);
    for (size_t i = 0; i < r->nentries; i++)
        free(r->entries[i].name);
    free(r->entries);
}

static void sandbox_launcher_on_init_frame(void *ctx, struct wire_frame *f) {
    struct sandbox_box *b = ctx;
    struct unpack u;
    struct err err;
    unpack_init(&u, f->data, f->len);
    if (!box_is_up(b))
        return; /* it is of no interest any more */
    if (b->state == BOX_BOOTING) {
        if (f->type == INIT_READY)
            sandbox_launcher_on_ready(b, f);
        else if (f->type == INIT_FAILED)
            sandbox_launcher_on_init_failed(b, &u);
        else
            box_broken(b, "no greeting");
        return;
    }
    struct sandbox_command *j = b->commands;
    while (j && sandbox_command_id(j) != f->id)
        j = command_next(j);
    if (j) {
        const char *wrong = command_frame(j, f);
        if (wrong)
            box_broken(b, wrong);
        return;
    }
    struct sandbox_call *c = take_call(&b->calls, f->id);
    if (!c) {
        box_broken(b, "an answer that nobody asked for");
        return;
    }
    b->ncalls--;
    struct sandbox_reply r = {.fd = -1};
    bool refused = f->type == INIT_ERROR;
    if (refused) {
        read_error(&u, &err);
    } else if (!unpack_reply(c, f, &u, &r)) {
        (void)err_set(&err, ERR_PROTOCOL, "the sandbox gave an answer that is none");
        refused = true;
        box_broken(b, "a malformed answer");
    }
    sandbox_launcher_finish_call(c, refused ? NULL : &r, refused ? &err : NULL);
    free_reply(&r);
}

/* Init is gone; EXITED from the launcher, which has the numbers, is on its way. */
static void sandbox_launcher_on_init_end(void *ctx, const struct err *err) {
    struct sandbox_box *b = ctx;
    if (err->code == ERR_PROTOCOL)
        box_broken(b, "a malformed frame");
    else if (box_is_up(b))
        b->by_itself = true;
}

/* --- what the launcher says --- */

static struct sandbox_box *find_asked(struct sandbox_launcher *h, uint64_t id) {
    struct sandbox_box *b = h->boxes;
    while (b && !(box_is_asked(b) && b->create_id == id))
        b = b->next;
    return b;
}

static void sandbox_launcher_on_created(struct sandbox_launcher *h, struct wire_frame *f) {
    struct sandbox_box *b = find_asked(h, f->id);
    int fd = wire_frame_take_fd(f, 0); /* the pidfd is not needed: the launcher tells the end */
    if (!b || fd < 0) {
        fd_close(&fd);
        return;
    }
    struct err err;
    bool wanted = b->state == BOX_ASKED;
    b->ready_by_ms = box_answer_by_ms(b, false);
    if (channel_create(h->loop, fd,
                       &(struct channel_options){.max_frame_bytes = SANDBOX_INIT_MAX,
                                                 .max_queue_bytes = QUEUE_BYTES,
                                                 .on_frame = sandbox_launcher_on_init_frame,
                                                 .on_end = sandbox_launcher_on_init_end,
                                                 .ctx = b},
                       &b->channel, &err) < 0)
        b->err = err;
    box_state_move(b, BOX_BOOTING);
    if (!wanted || b->err.code)
        sandbox_box_destroy(b);
    else if (b->callbacks.on_coming)
        b->callbacks.on_coming(b->ctx);
}

static void sandbox_launcher_on_exited(struct sandbox_launcher *h, struct unpack *u) {
    _cleanup_(free) char *id = unpack_strdup(u);
    (void)unpack_u32(u);
    struct sandbox_stats stats;
    unpack_sandbox_stats(u, &stats);
    struct sandbox_box *b = h->boxes;
    while (b && (box_is_asked(b) || strcmp(b->id, id) != 0))
        b = b->next;
    if (!b)
        return;
    channel_drain(b->channel); /* what init said comes before its end */
    box_gone(b, &stats, NULL);
}

static void sandbox_launcher_on_answer(struct sandbox_launcher *h, struct wire_frame *f,
                                       struct unpack *u) {
    struct err err;
    struct sandbox_reply r = {.fd = -1};
    bool failed = f->type == SANDBOX_FAILED;
    if (failed && sandbox_launcher_check(h, &err) == 0) /* what is wrong with the machine, first */
        (void)unpack_sandbox_error(u, &err);
    struct sandbox_box *b = failed ? find_asked(h, f->id) : NULL;
    if (b) {
        box_gone(b, NULL, &err);
        return;
    }
    for (b = h->boxes; b && failed; b = b->next)
        if (b->pause_id != 0 && b->pause_id == f->id)
            box_resumed(b);
    struct sandbox_call *c = take_call(&h->calls, f->id);
    if (!c)
        return; /* DONE of a DESTROY */
    if (f->type == SANDBOX_STATS_ARE)
        unpack_sandbox_stats(u, &r.used);
    sandbox_launcher_finish_call(c, failed ? NULL : &r, failed ? &err : NULL);
}

static void tell_state(struct sandbox_launcher *h) {
    if (h->on_state && !h->stopping)
        h->on_state(h->ctx);
}

static void sandbox_launcher_on_frame(void *ctx, struct wire_frame *f) {
    struct sandbox_launcher *h = ctx;
    struct unpack u;
    unpack_init(&u, f->data, f->len);
    if (f->type == SANDBOX_FEATURES) {
        unpack_sandbox_features(&u, &h->features);
        h->ready = true;
        tell_state(h);
    } else if (f->type == SANDBOX_FAILED && !h->ready && !h->failed.code && f->id == 1) {
        (void)unpack_sandbox_error(&u, &h->failed);
        log_error("sandbox.unavailable", "error", h->failed.message, "advice",
                  "`cay doctor` says what to do");
        tell_state(h);
    } else if (f->type == SANDBOX_CREATED) {
        sandbox_launcher_on_created(h, f);
    } else if (f->type == SANDBOX_EXITED) {
        sandbox_launcher_on_exited(h, &u);
    } else {
        sandbox_launcher_on_answer(h, f, &u);
    }
}

/* The configuration is request 1 of every life. */
static void sandbox_launcher_on_start(void *ctx, struct channel *channel) {
    struct sandbox_launcher *h = ctx;
    h->channel = channel;
    h->next_id = 1;
    (void)channel_send(channel, &(struct wire_out){.type = SANDBOX_CONFIG,
                                                   .id = 1,
                                                   .pieces = {{h->config.data, h->config.len}}});
}

/* With the launcher every sandbox dies. */
static void sandbox_launcher_on_end(void *ctx) {
    struct sandbox_launcher *h = ctx;
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the program that holds the sandboxes ended");
    h->channel = NULL;
    h->ready = false;
    h->failed = (struct err){0};
    free(h->features.detail);
    h->features = (struct sandbox_features){0};
    fail_calls(&h->calls, &err);
    while (h->boxes)
        box_gone(h->boxes, NULL, &err);
    tell_state(h);
}

/* --- the host --- */

struct sandbox_launcher *sandbox_launcher_create(const struct sandbox_launcher_options *o) {
    struct sandbox_launcher *h = xcalloc(1, sizeof(*h));
    h->loop = o->loop;
    h->on_state = o->on_state;
    h->ctx = o->ctx;
    h->answer_ms = LIMIT_SANDBOX_INIT_MS;
    (void)uv_timer_init(h->loop, &h->patrol);
    h->patrol.data = h;
    buf_init(&h->config, SANDBOX_CONTROL_MAX);
    pack_sandbox_config(&h->config, o->config);
    h->keeper =
        keeper_create(o->loop, &(struct keeper_options){.name = "cay-sandbox",
                                                        .exec_fd = o->exec_fd,
                                                        .starter = o->starter,
                                                        .max_frame_bytes = SANDBOX_CONTROL_MAX,
                                                        .max_queue_bytes = QUEUE_BYTES,
                                                        .on_start = sandbox_launcher_on_start,
                                                        .on_frame = sandbox_launcher_on_frame,
                                                        .on_end = sandbox_launcher_on_end,
                                                        .ctx = h});
    return h;
}

const struct sandbox_features *sandbox_launcher_features(const struct sandbox_launcher *h) {
    return h->ready ? &h->features : NULL;
}

int sandbox_launcher_check(const struct sandbox_launcher *h, struct err *err) {
    if (h->stopping)
        return err_set(err, ERR_UNAVAILABLE, "the server is shutting down");
    if (!h->channel)
        return err_set(err, ERR_UNAVAILABLE, "the program that makes sandboxes is starting again");
    if (h->failed.code)
        return err_set(err, ERR_UNAVAILABLE, "sandboxes cannot be made on this machine: %s",
                       h->failed.message);
    return 0;
}

void sandbox_launcher_answer_within(struct sandbox_launcher *h, int64_t ms) {
    h->answer_ms = ms;
    (void)uv_timer_start(&h->patrol, sandbox_launcher_on_patrol, patrol_every_ms(h),
                         patrol_every_ms(h));
}

struct keeper_info sandbox_launcher_info(const struct sandbox_launcher *h) {
    return keeper_info(h->keeper);
}

static void sandbox_launcher_on_patrol_closed(uv_handle_t *handle) {
    struct sandbox_launcher *h = handle->data;
    if (h->on_stopped)
        h->on_stopped(h->stopped_ctx);
    buf_finish(&h->config);
    free(h->features.detail);
    free(h);
}

static void sandbox_launcher_on_keeper_stopped(void *ctx) {
    struct sandbox_launcher *h = ctx;
    uv_close((uv_handle_t *)&h->patrol, sandbox_launcher_on_patrol_closed);
}

void sandbox_launcher_stop(struct sandbox_launcher *h, void (*on_stopped)(void *ctx), void *ctx) {
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the server is shutting down");
    h->stopping = true;
    h->on_stopped = on_stopped;
    h->stopped_ctx = ctx;
    h->channel = NULL;
    fail_calls(&h->calls, &err);
    while (h->boxes)
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it takes itself out of the list
        box_gone(h->boxes, NULL, &err);
    keeper_stop(h->keeper, sandbox_launcher_on_keeper_stopped, h);
}

/* --- requests --- */

struct sandbox_box *sandbox_box_create(struct sandbox_launcher *h, const struct sandbox_spec *spec,
                                       const int *bind_fds,
                                       const struct sandbox_box_callbacks *callbacks, void *ctx,
                                       struct err *err) {
    if (sandbox_launcher_check(h, err) < 0)
        return NULL;
    _cleanup_(buf) struct buf p;
    buf_init(&p, SANDBOX_CONTROL_MAX);
    pack_sandbox_spec(&p, spec);
    uint64_t id = ++h->next_id;
    if (p.full || !channel_send(h->channel, &(struct wire_out){.type = SANDBOX_CREATE,
                                                               .id = id,
                                                               .pieces = {{p.data, p.len}},
                                                               .fds = bind_fds,
                                                               .nfds = spec->nbinds})) {
        (void)err_set(err, p.full ? ERR_TOO_LARGE : ERR_UNAVAILABLE, "%s",
                      p.full ? "what the sandbox is to have does not fit into a message"
                             : "the program that makes sandboxes is busy");
        return NULL;
    }
    struct sandbox_box *b = xcalloc(1, sizeof(*b));
    *b = (struct sandbox_box){.next = h->boxes,
                              .host = h,
                              .id = xstrdup(spec->id),
                              .callbacks = *callbacks,
                              .ctx = ctx,
                              .create_id = id,
                              .egress = spec->egress};
    h->boxes = b;
    return b;
}

bool box_send(struct sandbox_box *b, uint16_t type, uint64_t id, const struct buf *payload,
              const int *fds, size_t nfds) {
    return box_is_up(b) && b->channel && !payload->full &&
           channel_send(b->channel, &(struct wire_out){.type = type,
                                                       .id = id,
                                                       .pieces = {{payload->data, payload->len}},
                                                       .fds = fds,
                                                       .nfds = nfds});
}

uint64_t box_next_id(struct sandbox_box *b) {
    return ++b->next_id;
}

struct sandbox_command **box_commands(struct sandbox_box *b) {
    return &b->commands;
}

struct sandbox_command **box_left(struct sandbox_box *b) {
    return &b->left;
}

uv_loop_t *box_loop(struct sandbox_box *b) {
    return b->host->loop;
}

static struct sandbox_call *sandbox_launcher_ask(struct sandbox_box *b, uint16_t type,
                                                 struct buf *payload, int fd, sandbox_replied cb,
                                                 void *ctx) {
    struct sandbox_call *c = NULL;
    if (b->ncalls < CALLS_MAX && box_send(b, type, b->next_id + 1, payload, &fd, fd >= 0 ? 1 : 0)) {
        c = sandbox_launcher_add_call(&b->calls, ++b->next_id, type, cb, ctx);
        c->works = type == INIT_FILE_DELETE || fd >= 0;
        c->by_ms = box_answer_by_ms(b, c->works);
        b->ncalls++;
    }
    buf_finish(payload);
    return c;
}

/* What a request about a file begins with. */
static struct buf sandbox_launcher_about(const char *path) {
    struct buf p;
    buf_init(&p, SANDBOX_INIT_MAX);
    pack_str(&p, path);
    return p;
}

struct sandbox_call *sandbox_box_read(struct sandbox_box *b, const char *path, sandbox_replied cb,
                                      void *ctx) {
    struct buf p = sandbox_launcher_about(path);
    return sandbox_launcher_ask(b, INIT_FILE_READ, &p, -1, cb, ctx);
}

struct sandbox_call *sandbox_box_write(struct sandbox_box *b, const struct sandbox_put *put,
                                       sandbox_replied cb, void *ctx) {
    struct buf p = sandbox_launcher_about(put->path);
    pack_u32(&p, put->mode);
    pack_u32(&p, put->flags);
    pack_bytes(&p, put->data, put->fd >= 0 ? 0 : put->len);
    return sandbox_launcher_ask(b, INIT_FILE_WRITE, &p, put->fd, cb, ctx);
}

struct sandbox_call *sandbox_box_stat(struct sandbox_box *b, const char *path, bool follow,
                                      sandbox_replied cb, void *ctx) {
    struct buf p = sandbox_launcher_about(path);
    pack_u8(&p, follow);
    return sandbox_launcher_ask(b, INIT_FILE_STAT, &p, -1, cb, ctx);
}

struct sandbox_call *sandbox_box_list(struct sandbox_box *b, const char *path, uint64_t skip,
                                      sandbox_replied cb, void *ctx) {
    struct buf p = sandbox_launcher_about(path);
    pack_u64(&p, skip);
    return sandbox_launcher_ask(b, INIT_FILE_LIST, &p, -1, cb, ctx);
}

struct sandbox_call *sandbox_box_mkdir(struct sandbox_box *b, const char *path, uint32_t mode,
                                       bool parents, sandbox_replied cb, void *ctx) {
    struct buf p = sandbox_launcher_about(path);
    pack_u32(&p, mode);
    pack_u8(&p, parents);
    return sandbox_launcher_ask(b, INIT_FILE_MKDIR, &p, -1, cb, ctx);
}

struct sandbox_call *sandbox_box_move(struct sandbox_box *b, const char *from, const char *to,
                                      sandbox_replied cb, void *ctx) {
    struct buf p = sandbox_launcher_about(from);
    pack_str(&p, to);
    return sandbox_launcher_ask(b, INIT_FILE_MOVE, &p, -1, cb, ctx);
}

struct sandbox_call *sandbox_box_delete(struct sandbox_box *b, const char *path, bool recursive,
                                        sandbox_replied cb, void *ctx) {
    struct buf p = sandbox_launcher_about(path);
    pack_u8(&p, recursive);
    return sandbox_launcher_ask(b, INIT_FILE_DELETE, &p, -1, cb, ctx);
}

struct sandbox_call *sandbox_box_port(struct sandbox_box *b, uint16_t port, sandbox_replied cb,
                                      void *ctx) {
    struct buf p;
    buf_init(&p, 64);
    pack_u32(&p, port);
    return sandbox_launcher_ask(b, INIT_CONNECT_PORT, &p, -1, cb, ctx);
}

struct sandbox_call *sandbox_box_signal(struct sandbox_box *b,
                                        const struct sandbox_command *command, int signo,
                                        bool group, sandbox_replied cb, void *ctx) {
    struct buf p;
    buf_init(&p, 64);
    pack_u64(&p, command ? sandbox_command_id(command) : 0);
    pack_u32(&p, (uint32_t)signo);
    pack_u8(&p, group);
    return sandbox_launcher_ask(b, INIT_SIGNAL, &p, -1, cb, ctx);
}

static struct sandbox_call *ask_launcher(struct sandbox_box *b, uint16_t type, sandbox_replied cb,
                                         void *ctx) {
    struct sandbox_launcher *h = b->host;
    if (!box_is_up(b) || !send_str(h->channel, type, h->next_id + 1, b->id))
        return NULL;
    return sandbox_launcher_add_call(&h->calls, ++h->next_id, type, cb, ctx);
}

struct sandbox_call *sandbox_box_stats(struct sandbox_box *b, sandbox_replied cb, void *ctx) {
    return ask_launcher(b, SANDBOX_STATS, cb, ctx);
}

struct sandbox_call *sandbox_box_pause(struct sandbox_box *b, sandbox_replied cb, void *ctx) {
    struct sandbox_call *c = ask_launcher(b, SANDBOX_PAUSE, cb, ctx);
    if (c)
        b->pause_id = c->id;
    return c;
}

struct sandbox_call *sandbox_box_resume(struct sandbox_box *b, sandbox_replied cb, void *ctx) {
    struct sandbox_call *c = ask_launcher(b, SANDBOX_RESUME, cb, ctx);
    if (c)
        box_resumed(b);
    return c;
}
