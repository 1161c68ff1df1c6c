#include "front/run/facets.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/common/share.h"
#include "loop/channel.h"
#include "loop/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { CALL_FRAME_MAX = 64 << 20, QUEUE_BYTES = 64 << 20, LOST_MAX = 64 };

enum op_kind { OP_GRANT, OP_CALL, OP_ASK };
enum { LINE_CALLS, LINE_READS, LINES };

struct facet_op {
    struct facet_op *next;
    enum op_kind kind;
    uint64_t id;
    uint64_t life;
    bool sent;
    bool cancelled;
    union {
        facet_granted granted;
        facet_answered answered;
    } cb;
    void *ctx;
    unsigned line;      /* of a CALL: which of our own capabilities it goes over */
    enum facet_msg ask; /* of an ASK */
    int fd;             /* of an ASK, -1: none */
    struct buf payload; /* what waits to be sent */
    struct buf methods; /* of a GRANT, as list_methods() has them */
};

struct facet {
    struct facet *next;
    struct facets *facets;
    char *dir;
    struct child *child;
    struct channel *control;
    /* Our own capabilities: one that may do everything, and one that only reads. */
    struct facet_line {
        struct channel *calls;
        uint64_t grant; /* id of the request for it, 0: it was not asked for */
    } lines[LINES];
    struct facet_op *ops;
    size_t grants; /* capabilities that somebody holds */
    int64_t used_ms;
    char owner[ID_SIZE];
    uint64_t life; /* a number that no other process of this server has */
    uint64_t next_id;
    struct buf granted; /* the last list of methods that it granted */
    bool open;
    bool dying;
};

struct facets {
    struct facets_options opt;
    struct facet *list;
    struct facet_hold *holds;
    struct shares shares; /* of those that run and are not about to end, by key */
    struct facets_stats stats;
    uint64_t lives;
    uint64_t lost[LOST_MAX]; /* the last lives that were cut off */
    size_t nlost;
    bool stopping;
    void (*on_stopped)(void *ctx);
    void *stopped_ctx;
};

static void facets_pump(struct facet *f);

static void finish_op(struct facet_op *op, int fd, bool ok, const char *json, size_t len,
                      const struct err *err) {
    if (op->cancelled) {
        fd_close(&fd);
    } else if (op->kind == OP_GRANT) {
        op->cb.granted(op->ctx, fd, err);
    } else {
        op->cb.answered(op->ctx, ok, json, len, err);
    }
    fd_close(&op->fd);
    buf_finish(&op->payload);
    buf_finish(&op->methods);
    free(op);
}

static struct facet_op *take_op(struct facet *f, uint64_t id, bool call) {
    struct facet_op **at = &f->ops;
    while (*at && !((*at)->sent && (*at)->id == id && ((*at)->kind == OP_CALL) == call))
        at = &(*at)->next;
    struct facet_op *op = *at;
    if (op)
        *at = op->next;
    return op;
}

/* Nobody may add to it any more. */
static void facets_retire(struct facet *f) {
    if (f->dying)
        return;
    f->dying = true;
    f->facets->stats.running--;
    shares_remove(&f->facets->shares, f->owner);
}

static void fail_all(struct facet *f, const struct err *err) {
    while (f->ops) {
        struct facet_op *op = f->ops;
        f->ops = op->next;
        finish_op(op, -1, false, NULL, 0, err);
    }
}

static void drop_channels(struct facet *f) {
    channel_close(f->control);
    f->control = NULL;
    for (size_t i = 0; i < LINES; i++) {
        channel_close(f->lines[i].calls);
        f->lines[i] = (struct facet_line){0};
    }
    f->open = false;
    buf_clear(&f->granted); /* the next one may have other methods */
}

/* Also one that is about to end: it has its files open until it has. */
static bool facets_has_process(const struct facets *all, const char *dir) {
    for (const struct facet *f = all->list; f; f = f->next)
        if (strcmp(f->dir, dir) == 0)
            return true;
    return false;
}

/* The process of this folder has ended: tells who waits for that. */
static void facets_tell_hold(const struct facets *all, const char *dir) {
    for (struct facet_hold *h = all->holds; h; h = h->next)
        if (strcmp(h->dir, dir) == 0 && !facets_has_process(all, dir)) {
            h->on_closed(h->ctx);
            return; /* there is one for each folder */
        }
}

static void unlink_facet(struct facet *f) {
    struct facets *all = f->facets;
    struct facet **at = &all->list;
    while (*at && *at != f)
        at = &(*at)->next;
    if (*at)
        *at = f->next;
    facets_retire(f);
    facets_tell_hold(all, f->dir);
    buf_finish(&f->granted);
    free(f->dir);
    free(f);
    if (all->stopping && !all->list && all->on_stopped) {
        void (*cb)(void *) = all->on_stopped;
        all->on_stopped = NULL;
        cb(all->stopped_ctx);
        shares_finish(&all->shares);
        free(all);
    }
}

static void facets_on_child_exit(void *ctx, int wait_status, const struct rusage *usage) {
    (void)usage;
    struct facet *f = ctx;
    struct err err;
    char text[64];
    f->child = NULL;
    channel_drain(f->control); /* what it said comes before its end */
    for (size_t i = 0; i < LINES; i++)
        channel_drain(f->lines[i].calls);
    drop_channels(f);
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == FACET_EXIT_TIME)
        (void)err_set(&err, ERR_LIMIT, "the database was stopped: a call outlived its time limit");
    else
        (void)err_set(&err, ERR_UNAVAILABLE, "the database's process ended (%s)",
                      child_status_text(wait_status, text, sizeof(text)));
    if (!f->dying && err.code == ERR_UNAVAILABLE)
        f->facets->lost[f->facets->nlost++ % LOST_MAX] = f->life;
    if (!f->dying)
        log_warn("facet.ended", "dir", f->dir, "status",
                 child_status_text(wait_status, text, sizeof(text)));
    facets_retire(f);
    fail_all(f, &err);
    unlink_facet(f);
}

/* Ends the process; the rest happens when it has exited. */
static void end_facet(struct facet *f) {
    facets_retire(f);
    drop_channels(f);
    if (f->child)
        child_kill(f->child, SIGKILL);
}

static void log_audit(const struct facet *f, const struct wire_frame *frame) {
    struct unpack u;
    struct facet_audit a;
    struct err err;
    unpack_init(&u, frame->data, frame->len);
    while (facet_audit_next(&u, &a, &err) > 0) {
        f->facets->stats.calls++;
        f->facets->stats.failed_calls += a.code_len > 0;
        if (!log_enabled(LOG_LEVEL_DEBUG))
            continue;
        _cleanup_(free) char *method = xstrndup(a.method, a.method_len);
        _cleanup_(free) char *code = xstrndup(a.code, a.code_len);
        _cleanup_(free) char *sql = xstrndup(a.sql, a.sql_len);
        log_debug("facet.call", "dir", f->dir, "grant", (int64_t)a.grant, "method", method, "us",
                  (int64_t)a.duration_us, "rows", (int64_t)a.rows, "code", code, "sql", sql);
    }
}

static void facets_on_answer(void *ctx, struct wire_frame *frame) {
    struct facet *f = ctx;
    struct facet_op *op = take_op(f, frame->id, true);
    if (op)
        finish_op(op, -1, frame->type == FACET_RESULT, (const char *)frame->data, frame->len, NULL);
}

static void facets_on_answers_end(void *ctx, const struct err *err) {
    (void)err;
    struct facet *f = ctx;
    end_facet(f);
}

static void facets_on_own_grant(struct facet *f, struct facet_line *line,
                                struct wire_frame *frame) {
    struct err err;
    int fd = wire_frame_take_fd(frame, 0);
    struct channel_options o = {.max_frame_bytes = CALL_FRAME_MAX,
                                .max_queue_bytes = QUEUE_BYTES,
                                .on_frame = facets_on_answer,
                                .on_end = facets_on_answers_end,
                                .ctx = f};
    if (fd < 0 || channel_create(f->facets->opt.loop, fd, &o, &line->calls, &err) < 0)
        end_facet(f);
    else
        facets_pump(f);
}

/* One of our own capabilities that was asked for by this id, or NULL. */
static struct facet_line *facets_line(struct facet *f, uint64_t id) {
    for (size_t i = 0; i < LINES; i++)
        if (f->lines[i].grant == id)
            return &f->lines[i];
    return NULL;
}

static void facets_on_control(void *ctx, struct wire_frame *frame) {
    struct facet *f = ctx;
    struct err err;
    struct facet_opened opened;
    struct facet_op *op;
    switch (frame->type) {
    case FACET_OPENED:
        if (facet_opened_decode(frame->data, frame->len, &opened, &err) == 0) {
            if (opened.warnings && *opened.warnings)
                log_warn("facet.schema", "dir", f->dir, "warnings", opened.warnings);
            facet_opened_finish(&opened);
        }
        f->open = true;
        facets_pump(f);
        break;
    case FACET_GRANTED:
        if (facets_line(f, frame->id)) {
            facets_on_own_grant(f, facets_line(f, frame->id), frame);
            break;
        }
        op = take_op(f, frame->id, false);
        f->grants++;
        if (op && op->methods.len > 0) {
            buf_finish(&f->granted);
            f->granted = op->methods;
            op->methods = (struct buf){0};
        }
        if (op)
            finish_op(op, wire_frame_take_fd(frame, 0), true, NULL, 0, NULL);
        break;
    case FACET_CLOSED:
        f->grants -= f->grants > 0;
        f->used_ms = clock_mono_ms();
        break;
    case FACET_ERROR:
        (void)facet_error_decode(frame->data, frame->len, &err);
        op = take_op(f, frame->id, false);
        if (op) {
            finish_op(op, -1, false, NULL, 0, &err);
        } else { /* it could not be opened, or did not grant what it cannot but grant */
            end_facet(f);
            fail_all(f, &err);
        }
        break;
    case FACET_EXPORTED:
    case FACET_INSPECTED:
    case FACET_MIGRATED:
        op = take_op(f, frame->id, false);
        if (op)
            finish_op(op, -1, true, (const char *)frame->data, frame->len, NULL);
        break;
    case FACET_AUDIT:
        log_audit(f, frame);
        break;
    case FACET_IDLE:
        if (!f->ops && f->grants == 0) /* it may not have heard of the last */
            end_facet(f);
        break;
    default:
        break;
    }
}

static void facets_on_control_end(void *ctx, const struct err *err) {
    (void)err;
    struct facet *f = ctx;
    if (f->child)
        child_kill(f->child, SIGKILL);
}

static bool facets_send_frame(struct channel *ch, uint16_t type, uint64_t id,
                              const struct buf *payload) {
    return channel_send(
        ch, &(struct wire_out){.type = type, .id = id, .pieces = {{payload->data, payload->len}}});
}

static void ask_own_grant(struct facet *f, struct facet_line *line) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, 256);
    line->grant = ++f->next_id;
    facet_grant_encode(&b, &(struct facet_grant){.grant = line->grant,
                                                 .label = (char *)"owner",
                                                 .all = true,
                                                 .passive = true,
                                                 .readonly = line == &f->lines[LINE_READS]});
    (void)facets_send_frame(f->control, FACET_GRANT, line->grant, &b);
}

static bool facets_send_ask(struct facet *f, struct facet_op *op) {
    struct wire_out out = {.type = (uint16_t)op->ask,
                           .id = op->id,
                           .pieces = {{op->payload.data, op->payload.len}},
                           .fds = &op->fd,
                           .nfds = op->fd >= 0};
    bool sent = channel_send(f->control, &out);
    if (sent)
        fd_close(&op->fd);
    return sent;
}

/* Sends what waits, as far as it can go now. */
static void facets_pump(struct facet *f) {
    if (!f->open)
        return;
    for (struct facet_op *op = f->ops; op; op = op->next) {
        if (op->sent)
            continue;
        struct facet_line *line = &f->lines[op->line];
        if (op->kind == OP_GRANT)
            op->sent = facets_send_frame(f->control, FACET_GRANT, op->id, &op->payload);
        else if (op->kind == OP_ASK)
            op->sent = facets_send_ask(f, op);
        else if (line->calls)
            op->sent = facets_send_frame(line->calls, FACET_CALL, op->id, &op->payload);
        else if (!line->grant)
            ask_own_grant(f, line);
    }
}

/* Where an agent or a caller has set no limit, the server's holds. */
static void facet_limits_default(struct facet_limits *l, const struct facet_limits *all) {
    l->rows = l->rows ? l->rows : all->rows;
    l->time_ms = l->time_ms ? l->time_ms : all->time_ms;
    l->disk_bytes = l->disk_bytes ? l->disk_bytes : all->disk_bytes;
    l->memory_bytes = l->memory_bytes ? l->memory_bytes : all->memory_bytes;
}

static int facets_start(struct facet *f, const struct facet_ref *ref, struct err *err) {
    const struct facet_open *how = ref->open;
    int rc = ref->must_exist ? 0 : path_mkdirs(f->dir, 0700, err);
    if (rc < 0)
        return rc;
    _cleanup_(close) int dir = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (dir < 0 && errno == ENOENT && ref->must_exist)
        return err_set(err, ERR_NOT_FOUND, "there is no such database");
    if (dir < 0)
        return err_sys(err, "open the database's folder");
    const struct facets_options *o = &f->facets->opt;
    int fd = -1;
    rc = child_spawn(o->loop,
                     &(struct child_options){.name = "cay-facet",
                                             .exec_fd = o->exec_fd,
                                             .fds = &dir,
                                             .nfds = 1,
                                             .on_exit = facets_on_child_exit,
                                             .ctx = f},
                     &f->child, &fd, err);
    if (rc < 0)
        return rc;
    f->facets->stats.started++;
    struct channel_options co = {.max_frame_bytes = FACET_OPEN_MAX,
                                 .max_queue_bytes = 4 * (size_t)FACET_OPEN_MAX,
                                 .on_frame = facets_on_control,
                                 .on_end = facets_on_control_end,
                                 .ctx = f};
    rc = channel_create(o->loop, fd, &co, &f->control, err);
    if (rc < 0) {
        child_kill(f->child, SIGKILL);
        return rc;
    }
    _cleanup_(buf) struct buf b;
    buf_init(&b, FACET_OPEN_MAX);
    struct facet_open open = *how;
    facet_limits_default(&open.limits, &o->limits);
    facet_open_encode(&b, &open);
    if (b.full || !facets_send_frame(f->control, FACET_OPEN, ++f->next_id, &b)) {
        child_kill(f->child, SIGKILL);
        return err_set(err, ERR_TOO_LARGE, "the database's schema is too large");
    }
    return 0;
}

static struct facet *facets_find(const struct facets *all, const char *dir) {
    struct facet *f = all->list;
    while (f && (f->dying || strcmp(f->dir, dir) != 0))
        f = f->next;
    return f;
}

/* Ends the one of the key (NULL: of any) that was used longest ago and that nobody holds. */
static bool facets_evict(struct facets *all, const char *owner) {
    struct facet *oldest = NULL;
    for (struct facet *f = all->list; f; f = f->next)
        if (!f->dying && !f->ops && f->grants == 0 && (!owner || strcmp(f->owner, owner) == 0) &&
            (!oldest || f->used_ms < oldest->used_ms))
            oldest = f;
    if (oldest)
        end_facet(oldest);
    return oldest != NULL;
}

static int facets_make_room(struct facets *all, const char *owner, struct err *err) {
    size_t share = share_of(owner, all->opt.max);
    if (shares_held(&all->shares, owner) >= share && !facets_evict(all, owner))
        return err_set(err, ERR_RATE,
                       "%zu databases of this key are in use, which may have no more of the %zu "
                       "(limit facets)",
                       share, all->opt.max);
    if (all->stats.running >= all->opt.max && !facets_evict(all, NULL))
        return err_set(err, ERR_RATE, "%zu databases are in use (limit facets)", all->opt.max);
    return 0;
}

static bool facets_is_held(const struct facets *all, const char *dir) {
    for (const struct facet_hold *h = all->holds; h; h = h->next)
        if (strcmp(h->dir, dir) == 0)
            return true;
    return false;
}

static struct facet *facets_need(struct facets *all, const struct facet_ref *ref, struct err *err) {
    const char *owner = ref->owner ? ref->owner : "";
    struct facet *f = facets_find(all, ref->dir);
    if (f) {
        f->used_ms = clock_mono_ms();
        return f;
    }
    if (facets_is_held(all, ref->dir)) {
        (void)err_set(err, ERR_UNAVAILABLE, "the database is being replaced or removed: try again");
        return NULL;
    }
    if (facets_make_room(all, owner, err) < 0)
        return NULL;
    f = xcalloc(1, sizeof(*f));
    f->facets = all;
    f->life = ++all->lives;
    f->dir = xstrdup(ref->dir);
    f->used_ms = clock_mono_ms();
    (void)snprintf(f->owner, sizeof(f->owner), "%s", owner);
    f->next = all->list;
    all->list = f;
    all->stats.running++;
    shares_add(&all->shares, f->owner);
    if (facets_start(f, ref, err) < 0) {
        if (f->child)
            facets_retire(f); /* freed when it has exited */
        else
            unlink_facet(f);
        return NULL;
    }
    return f;
}

static struct facet_op *facets_add(struct facet *f, struct facet_op *op) {
    op->id = ++f->next_id;
    op->life = f->life;
    struct facet_op **at = &f->ops;
    while (*at)
        at = &(*at)->next;
    *at = op;
    return op;
}

struct facets *facets_create(const struct facets_options *options) {
    struct facets *f = xcalloc(1, sizeof(*f));
    f->opt = *options;
    return f;
}

/* Empty: all of them, or too many to remember. */
static struct buf list_methods(const struct facet_grant *grant) {
    struct buf b;
    buf_init(&b, 4096);
    for (size_t i = 0; !grant->all && i < grant->nmethods; i++)
        pack_str(&b, grant->methods[i]);
    if (b.full)
        buf_clear(&b);
    return b;
}

struct facet_op *facets_grant(struct facets *all, const struct facet_ref *ref,
                              const struct facet_grant *grant, facet_granted done, void *ctx,
                              struct err *err) {
    struct facet *f = facets_need(all, ref, err);
    if (!f)
        return NULL;
    struct facet_op *op = xcalloc(1, sizeof(*op));
    *op = (struct facet_op){.kind = OP_GRANT, .fd = -1, .cb.granted = done, .ctx = ctx};
    (void)facets_add(f, op);
    struct facet_grant g = *grant;
    g.grant = op->id;
    buf_init(&op->payload, 65536);
    facet_grant_encode(&op->payload, &g);
    op->methods = list_methods(grant);
    facets_pump(f);
    return op;
}

/* Every method can be granted, and a list that was granted before, as long as there is room, with
 * our own capability in it. The facet says when one is closed, so that it has no more than are
 * counted here. */
static bool cannot_refuse(const struct facet *f, const struct facet_grant *grant) {
    size_t n = f->grants + LINES;
    for (const struct facet_op *op = f->ops; op; op = op->next)
        n += op->kind == OP_GRANT;
    if (!f->open || n >= FACET_GRANTS_MAX)
        return false;
    _cleanup_(buf) struct buf methods = list_methods(grant);
    return grant->all || (methods.len > 0 && methods.len == f->granted.len &&
                          memcmp(methods.data, f->granted.data, methods.len) == 0);
}

int facets_grant_now(struct facets *all, const struct facet_ref *ref,
                     const struct facet_grant *grant, uint64_t *ret_life) {
    struct facet *f = facets_find(all, ref->dir);
    struct err err;
    int ends[2];
    if (!f || !cannot_refuse(f, grant) || fd_pair(ends, &err) < 0)
        return -1;
    struct facet_grant g = *grant;
    g.grant = ++f->next_id;
    _cleanup_(buf) struct buf b;
    buf_init(&b, 65536);
    facet_grant_encode(&b, &g);
    struct wire_out out = {.type = FACET_GRANT,
                           .id = g.grant,
                           .pieces = {{b.data, b.len}},
                           .fds = &ends[1],
                           .nfds = 1};
    bool sent = channel_send(f->control, &out);
    fd_close(&ends[1]);
    if (!sent) {
        fd_close(&ends[0]);
        return -1;
    }
    f->grants++;
    f->used_ms = clock_mono_ms();
    *ret_life = f->life;
    return ends[0];
}

static struct facet_op *facets_call_over(struct facets *all, unsigned line,
                                         const struct facet_ref *ref, const char *method,
                                         const char *args_json, struct err *err) {
    struct facet *f = facets_need(all, ref, err);
    if (!f)
        return NULL;
    struct facet_op *op = xcalloc(1, sizeof(*op));
    *op = (struct facet_op){.kind = OP_CALL, .line = line, .fd = -1};
    (void)facets_add(f, op);
    buf_init(&op->payload, CALL_FRAME_MAX);
    facet_call_encode(&op->payload, method, args_json, strlen(args_json));
    facets_pump(f);
    return op;
}

static struct facet_op *facets_answer_to(struct facet_op *op, facet_answered done, void *ctx) {
    if (op) {
        op->cb.answered = done;
        op->ctx = ctx;
    }
    return op;
}

struct facet_op *facets_call(struct facets *all, const struct facet_ref *ref, const char *method,
                             const char *args_json, facet_answered done, void *ctx,
                             struct err *err) {
    return facets_answer_to(facets_call_over(all, LINE_CALLS, ref, method, args_json, err), done,
                            ctx);
}

struct facet_op *facets_read(struct facets *all, const struct facet_ref *ref, const char *method,
                             const char *args_json, facet_answered done, void *ctx,
                             struct err *err) {
    return facets_answer_to(facets_call_over(all, LINE_READS, ref, method, args_json, err), done,
                            ctx);
}

struct facet_op *facets_ask(struct facets *all, const struct facet_ref *ref,
                            const struct facet_ask *what, facet_answered done, void *ctx,
                            struct err *err) {
    _cleanup_(close) int fd = what->fd < 0 ? -1 : fcntl(what->fd, F_DUPFD_CLOEXEC, 3);
    if (what->fd >= 0 && fd < 0) {
        (void)err_sys(err, "duplicate a descriptor");
        return NULL;
    }
    struct facet *f = facets_need(all, ref, err);
    if (!f)
        return NULL;
    struct facet_op *op = xcalloc(1, sizeof(*op));
    *op = (struct facet_op){.kind = OP_ASK, .ask = what->type, .fd = steal_fd(&fd)};
    (void)facets_add(f, op);
    buf_init(&op->payload, FACET_OPEN_MAX);
    if (what->payload)
        (void)buf_add(&op->payload, what->payload->data, what->payload->len);
    facets_pump(f);
    return facets_answer_to(op, done, ctx);
}

uint64_t facet_op_life(const struct facet_op *op) {
    return op->life;
}

/* Whoever held a grant may say that it is gone before we are told that its process is. */
bool facets_is_lost(const struct facets *all, uint64_t life) {
    for (size_t i = 0; life != 0 && i < MIN(all->nlost, (size_t)LOST_MAX); i++)
        if (all->lost[i] == life)
            return true;
    for (const struct facet *f = all->list; f; f = f->next)
        if (f->life == life)
            return !f->dying && f->control && channel_peer_is_gone(f->control);
    return false;
}

bool facets_is_over(const struct facets *all, uint64_t life) {
    for (const struct facet *f = all->list; f; f = f->next)
        if (f->life == life)
            return f->dying || (f->control && channel_peer_is_gone(f->control));
    return true;
}

void facet_op_cancel(struct facet_op *op) {
    if (op)
        op->cancelled = true;
}

void facets_abort(struct facets *all, const char *dir) {
    struct facet *f = facets_find(all, dir);
    if (f)
        end_facet(f);
}

bool facets_is_open(const struct facets *all, const char *dir) {
    return facets_find(all, dir) != NULL;
}

bool facets_close_unused(struct facets *all, const char *dir) {
    struct facet *f = facets_find(all, dir);
    if (f && (f->ops || f->grants > 0))
        return false;
    if (f)
        end_facet(f);
    return true;
}

int facets_hold(struct facets *all, struct facet_hold *hold, struct err *err) {
    if (facets_is_held(all, hold->dir))
        return err_set(err, ERR_CONFLICT, "the database is being replaced or removed already");
    hold->facets = all;
    hold->next = all->holds;
    all->holds = hold;
    facets_abort(all, hold->dir);
    return !facets_has_process(all, hold->dir);
}

void facets_release(struct facet_hold *hold) {
    if (!hold->facets)
        return;
    struct facet_hold **at = &hold->facets->holds;
    while (*at != hold)
        at = &(*at)->next;
    *at = hold->next;
    hold->facets = NULL;
}

struct facets_stats facets_stats(const struct facets *all) {
    return all->stats;
}

void facets_stop(struct facets *all, void (*on_stopped)(void *ctx), void *ctx) {
    while (all->holds)
        facets_release(all->holds);
    all->stopping = true;
    all->on_stopped = on_stopped;
    all->stopped_ctx = ctx;
    if (!all->list) {
        on_stopped(ctx);
        shares_finish(&all->shares);
        free(all);
        return;
    }
    /* Closing the control socket ends a facet after its present call. */
    for (struct facet *f = all->list; f; f = f->next) {
        facets_retire(f);
        drop_channels(f);
    }
}
