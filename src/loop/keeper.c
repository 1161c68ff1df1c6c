#include "loop/keeper.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sm.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { BACKOFF_FIRST_MS = 100, BACKOFF_MAX_MS = 10000, STABLE_MS = 10000, STOP_WAIT_MS = 2000 };

static const struct sm_state keeper_states[] = {
    [KEEPER_STARTING] = {"starting",
                         SM_TO(KEEPER_RUNNING) | SM_TO(KEEPER_BACKOFF) | SM_TO(KEEPER_STOPPING)},
    [KEEPER_RUNNING] = {"running", SM_TO(KEEPER_BACKOFF) | SM_TO(KEEPER_STOPPING)},
    [KEEPER_BACKOFF] = {"backoff", SM_TO(KEEPER_STARTING) | SM_TO(KEEPER_STOPPING)},
    [KEEPER_STOPPING] = {"stopping", SM_TO(KEEPER_STOPPED)},
    [KEEPER_STOPPED] = {"stopped", 0},
};
static const struct sm keeper_sm = {"keeper", keeper_states, ARRAY_LEN(keeper_states)};

struct keeper {
    uv_loop_t *loop;
    struct keeper_options opt;
    struct child *child;
    struct channel *channel;
    uv_timer_t timer;
    enum keeper_state state;
    unsigned restarts;
    unsigned backoff_ms;
    int64_t started_ms;
    int wait_status;
    char ended[64];
    bool hurried;
    bool lost;
    void (*on_stopped)(void *ctx);
    void *stopped_ctx;
};

static void keeper_start(struct keeper *k);

static void keeper_move(struct keeper *k, enum keeper_state to) {
    k->state = (enum keeper_state)sm_next(&keeper_sm, k->state, to);
    assert(k->state != KEEPER_RUNNING || k->channel);
    assert(k->state == KEEPER_RUNNING || k->state == KEEPER_STOPPING || (!k->channel && !k->child));
}

static void keeper_on_timer_closed(uv_handle_t *h) {
    struct keeper *k = h->data;
    if (k->on_stopped)
        k->on_stopped(k->stopped_ctx);
    free(k);
}

static void keeper_on_retry(uv_timer_t *t) {
    struct keeper *k = t->data;
    keeper_move(k, KEEPER_STARTING);
    keeper_start(k);
}

static void retry_later(struct keeper *k) {
    keeper_move(k, KEEPER_BACKOFF);
    uv_update_time(k->loop); /* the loop's clock may be old: the pause begins now */
    (void)uv_timer_start(&k->timer, keeper_on_retry, k->hurried ? 0 : k->backoff_ms, 0);
    if (k->hurried)
        return;
    k->backoff_ms = k->backoff_ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : k->backoff_ms * 2;
}

static void drop_channel(struct keeper *k) {
    if (!k->channel)
        return;
    channel_close(k->channel);
    k->channel = NULL;
    if (k->opt.on_end && k->state != KEEPER_STOPPING)
        k->opt.on_end(k->opt.ctx);
}

static void keeper_finish(struct keeper *k) {
    keeper_move(k, KEEPER_STOPPED);
    uv_close((uv_handle_t *)&k->timer, keeper_on_timer_closed);
}

static void life_ended(struct keeper *k, int wait_status, const char *status) {
    k->wait_status = wait_status;
    (void)snprintf(k->ended, sizeof(k->ended), "%s", status);
    k->hurried = false;
    drop_channel(k);
    if (k->state == KEEPER_STOPPING) {
        keeper_finish(k);
        return;
    }
    if (clock_mono_ms() - k->started_ms > STABLE_MS)
        k->backoff_ms = BACKOFF_FIRST_MS;
    log_warn("child.ended", "child", k->opt.name, "status", status, "restart_in_ms",
             k->hurried ? 0U : k->backoff_ms);
    k->restarts++;
    retry_later(k);
}

static void keeper_on_child_exit(void *ctx, int wait_status, const struct rusage *usage) {
    (void)usage;
    struct keeper *k = ctx;
    char text[64];
    k->child = NULL;
    life_ended(k, wait_status, child_status_text(wait_status, text, sizeof(text)));
}

static void keeper_on_frame(void *ctx, struct wire_frame *frame) {
    struct keeper *k = ctx;
    k->opt.on_frame(k->opt.ctx, frame);
}

/* The child closed its end or broke the contract: its life is over either way. */
static void keeper_on_end(void *ctx, const struct err *err) {
    struct keeper *k = ctx;
    if (err->code == ERR_PROTOCOL)
        log_error("child.protocol", "child", k->opt.name, "error", err->message);
    if (k->child)
        child_kill(k->child, SIGKILL);
    else
        life_ended(k, -1, "its channel ended");
}

/* Asks the starter for a new life. */
static int ask_starter(int starter, int *ret_fd, struct err *err) {
    int pair[2];
    int rc = fd_pair(pair, err);
    if (rc < 0)
        return rc;
    _cleanup_(close) int ours = pair[0];
    _cleanup_(close) int theirs = pair[1];
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {.iov_base = (char[]){1}, .iov_len = 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.space,
                         .msg_controllen = sizeof(control.space)};
    struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &theirs, sizeof(int));
    if (sendmsg(starter, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
        return err_sys(err, "ask the starter");
    *ret_fd = steal_fd(&ours);
    return 0;
}

static int start_child(struct keeper *k, int *ret_fd, struct err *err) {
    if (k->opt.starter > 0)
        return ask_starter(k->opt.starter, ret_fd, err);
    struct child_options o = {.name = k->opt.name,
                              .exec_fd = k->opt.exec_fd,
                              .args = k->opt.args,
                              .joins = k->opt.joins,
                              .njoins = k->opt.njoins,
                              .drop = k->opt.drop,
                              .uid = k->opt.uid,
                              .gid = k->opt.gid,
                              .on_exit = keeper_on_child_exit,
                              .ctx = k};
    return child_spawn(k->loop, &o, &k->child, ret_fd, err);
}

static void keeper_start(struct keeper *k) {
    struct err err;
    int fd = -1;
    k->hurried = false;
    k->started_ms = clock_mono_ms();
    if (start_child(k, &fd, &err) < 0) {
        log_error("child.start", "child", k->opt.name, "error", err.message);
        k->lost = k->opt.starter > 0 && (err.sys == EPIPE || err.sys == ECONNRESET);
        retry_later(k);
        return;
    }
    struct channel_options co = {.max_frame_bytes = k->opt.max_frame_bytes,
                                 .max_queue_bytes = k->opt.max_queue_bytes,
                                 .on_frame = keeper_on_frame,
                                 .on_end = keeper_on_end,
                                 .ctx = k};
    if (channel_create(k->loop, fd, &co, &k->channel, &err) < 0) {
        log_error("child.start", "child", k->opt.name, "error", err.message);
        if (k->child)
            child_kill(k->child, SIGKILL);
        else
            retry_later(k);
        return;
    }
    keeper_move(k, KEEPER_RUNNING);
    log_debug("child.started", "child", k->opt.name, "pid", k->child ? child_pid(k->child) : 0);
    if (k->opt.on_start)
        k->opt.on_start(k->opt.ctx, k->channel);
}

struct keeper *keeper_create(uv_loop_t *loop, const struct keeper_options *options) {
    struct keeper *k = xcalloc(1, sizeof(*k));
    k->loop = loop;
    k->opt = *options;
    k->backoff_ms = BACKOFF_FIRST_MS;
    (void)uv_timer_init(loop, &k->timer);
    k->timer.data = k;
    keeper_start(k);
    return k;
}

struct channel *keeper_channel(struct keeper *k) {
    return k->channel;
}

struct keeper_info keeper_info(const struct keeper *k) {
    return (struct keeper_info){.name = k->opt.name,
                                .state = k->state,
                                .pid = k->child ? child_pid(k->child) : 0,
                                .restarts = k->restarts,
                                .started_ms = k->started_ms,
                                .wait_status = k->wait_status,
                                .ended = k->ended,
                                .lost = k->lost};
}

void keeper_kill(struct keeper *k) {
    if (k->child)
        child_kill(k->child, SIGKILL);
}

void keeper_hurry(struct keeper *k) {
    k->hurried = true;
}

const char *keeper_state_name(enum keeper_state state) {
    return keeper_states[state].name;
}

static void keeper_on_stop_timeout(uv_timer_t *t) {
    struct keeper *k = t->data;
    if (k->child)
        child_kill(k->child, SIGKILL);
}

void keeper_stop(struct keeper *k, void (*on_stopped)(void *ctx), void *ctx) {
    keeper_move(k, KEEPER_STOPPING);
    k->on_stopped = on_stopped;
    k->stopped_ctx = ctx;
    drop_channel(k);
    if (!k->child)
        keeper_finish(k);
    else
        (void)uv_timer_start(&k->timer, keeper_on_stop_timeout, STOP_WAIT_MS, 0);
}
