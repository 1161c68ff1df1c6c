/* cay-egress: the only way out of a sandbox. See wire/egress.h for the contract and docs/egress.md
 * for what it promises. */

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "egress/internal.h"
#include "egress/lock.h"
#include "loop/child.h"
#include "loop/init.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { QUEUE_MAX = 4 * 1024 * 1024 };

bool egress_send(struct egress *e, uint16_t type, uint64_t id, const struct buf *payload) {
    struct wire_out out = {.type = type, .id = id};
    if (payload)
        out.pieces[0] = (struct wire_piece){payload->data, payload->len};
    /* A front that does not read loses events, and is told all in the next usage. */
    bool sent = channel_send(e->channel, &out);
    if (!sent && type != EGRESS_EVENT)
        log_warn("egress.unsent", "type", (int)type);
    return sent;
}

static void egress_main_answer(struct egress *e, uint64_t id, int rc, const struct err *err) {
    struct buf b;
    if (rc == 0) {
        (void)egress_send(e, EGRESS_DONE, id, NULL);
        return;
    }
    buf_init(&b, 4096);
    pack_sandbox_error(&b, err);
    (void)egress_send(e, EGRESS_FAILED, id, &b);
    buf_finish(&b);
}

static int egress_main_malformed(struct err *err) {
    return err_set(err, ERR_PROTOCOL, "a malformed message");
}

static int egress_main_configure(struct egress *e, struct unpack *u, struct err *err) {
    struct egress_config c;
    unpack_egress_config(u, &c);
    int rc = unpack_ok(u) ? 0 : egress_main_malformed(err);
    for (size_t i = 0; rc == 0 && i < c.private.n; i++) {
        char host[EGRESS_HOST_MAX + 1];
        uint32_t port;
        bool literal;
        if (!egress_authority_parse(c.private.items[i], strlen(c.private.items[i]), 443, host,
                                    &port, &literal))
            rc = err_set(err, ERR_BAD_REQUEST, "private endpoint \"%.100s\" is no host and port",
                         c.private.items[i]);
    }
    if (rc == 0 && !e->configured)
        rc = egress_lock_world(c.ca_file, err);
    if (rc < 0) {
        egress_config_finish(&c);
        return rc;
    }
    egress_config_finish(&e->config);
    e->config = c;
    e->configured = true;
    return 0;
}

static int open_box(struct egress *e, struct wire_frame *f, struct unpack *u, struct err *err) {
    struct egress_policy policy;
    struct egress_usage usage;
    _cleanup_(free) char *id = unpack_strdup(u);
    unpack_egress_policy(u, &policy);
    unpack_egress_usage(u, &usage);
    int rc = unpack_ok(u) ? egress_policy_check(&policy, err) : egress_main_malformed(err);
    if (rc == 0)
        rc = line_open(e, id, &policy, &usage, wire_frame_take_fd(f, 0), err);
    egress_policy_finish(&policy);
    egress_usage_finish(&usage);
    return rc;
}

static int set_policy(struct egress *e, struct unpack *u, struct err *err) {
    struct egress_policy policy;
    _cleanup_(free) char *id = unpack_strdup(u);
    unpack_egress_policy(u, &policy);
    int rc = unpack_ok(u) ? egress_policy_check(&policy, err) : egress_main_malformed(err);
    struct line *b = rc == 0 ? line_find(e, id) : NULL;
    if (b)
        line_set_policy(b, &policy);
    else if (rc == 0)
        rc = err_set(err, ERR_NOT_FOUND, "this sandbox is not open");
    egress_policy_finish(&policy);
    return rc;
}

static int close_box(struct egress *e, struct unpack *u, struct err *err) {
    _cleanup_(free) char *id = unpack_strdup(u);
    if (!unpack_ok(u))
        return egress_main_malformed(err);
    struct line *b = line_find(e, id);
    if (b)
        line_close(b);
    return 0;
}

/* Of a request that is gone by now, nothing is to be done: the front was told. */
static void take_grant(struct egress *e, uint64_t number, struct unpack *u) {
    struct egress_grant g;
    unpack_egress_grant(u, &g);
    struct line *b = unpack_ok(u) ? line_find(e, g.sandbox) : NULL;
    struct egress_conn *c = b ? b->conns : NULL;
    while (c && c->event.number != number)
        c = c->next;
    if (c)
        forward_granted(c, &g);
    egress_grant_finish(&g);
}

static void egress_main_on_frame(void *ctx, struct wire_frame *f) {
    struct egress *e = ctx;
    struct err err;
    struct unpack u;
    int rc;
    unpack_init(&u, f->data, f->len);
    if (f->type == EGRESS_GRANT) {
        take_grant(e, f->id, &u);
        return;
    }
    if (f->type == EGRESS_CONFIG)
        rc = egress_main_configure(e, &u, &err);
    else if (!e->configured)
        rc = err_set(&err, ERR_CONFLICT, "CONFIG comes first");
    else if (f->type == EGRESS_OPEN)
        rc = open_box(e, f, &u, &err);
    else if (f->type == EGRESS_POLICY)
        rc = set_policy(e, &u, &err);
    else if (f->type == EGRESS_CLOSE)
        rc = close_box(e, &u, &err);
    else
        rc = err_set(&err, ERR_PROTOCOL, "message %u is not known", f->type);
    /* Credentials were in it. */
    mem_wipe((void *)(uintptr_t)f->data, f->len);
    egress_main_answer(e, f->id, rc, &err);
}

static void egress_main_on_end(void *ctx, const struct err *err) {
    (void)ctx;
    if (err->code != ERR_CANCELLED)
        log_error("egress.channel", "message", err->message);
    /* The front is gone: nobody is left to decide for. */
    _exit(err->code == ERR_CANCELLED ? 0 : 1);
}

static int egress_main_set_up(struct egress *e, struct err *err) {
    int keep[] = {CHILD_CHANNEL_FD};
    fd_close_others(3, keep, ARRAY_LEN(keep));
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    (void)sigaction(SIGXFSZ, &ignore, NULL);
    int rc = egress_lock_process(err);
    if (rc < 0)
        return rc;
    static uv_loop_t loop;
    if (loop_init(&loop) < 0)
        return err_set(err, ERR_INTERNAL, "make an event loop");
    e->loop = &loop;
    (void)uv_timer_init(e->loop, &e->sweep);
    e->sweep.data = e;
    rc = fetch_prepare(err);
    if (rc < 0)
        return rc;
    struct channel_options o = {.max_frame_bytes = EGRESS_FRAME_MAX,
                                .max_queue_bytes = QUEUE_MAX,
                                .on_frame = egress_main_on_frame,
                                .on_end = egress_main_on_end,
                                .ctx = e};
    return channel_create(e->loop, CHILD_CHANNEL_FD, &o, &e->channel, err);
}

int main(void) {
    static struct egress egress;
    struct err err;
    log_init("cay-egress", LOG_LEVEL_INFO);
    /* Names that are slow to resolve hold a thread each; libuv gives them half of these. */
    (void)setenv("UV_THREADPOOL_SIZE", "64", 1);
    if (egress_main_set_up(&egress, &err) < 0) {
        log_error("egress.setup", "message", err.message);
        return 1;
    }
    (void)uv_run(egress.loop, UV_RUN_DEFAULT);
    return 1;
}
