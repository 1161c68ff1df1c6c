/* The queue of the store's writes and the thread that does them.
 *
 * The loop never waits for the disk: it appends operations here. After GATHER_MS, or at once if
 * somebody waits, the writer thread gets all of them and commits them together. A commit is safe
 * from the death of any process when it returns (SQLite's synchronous = NORMAL); one with a durable
 * operation in it is on the disk (FULL).
 *
 * Each operation has a number, its ticket. Readers wait until everything that was queued before
 * them is committed (store_after(), and for HTTP requests http_server_committed()), so nobody can
 * see that the writes are late.
 *
 * If the database cannot be written (mostly: the disk is full), the operations stay in the queue,
 * in their order, and are tried again every RETRY_MS. Meanwhile what would begin something new is
 * refused, what ends is still accepted, and readers do not wait: they see what is committed. */
#include "front/store/internal.h"

#include "base/log.h"
#include "base/mem.h"

#include <sqlite3.h>
#include <stdlib.h>

enum { GATHER_MS = 10, RETRY_MS = 500, QUEUE_BYTES = 64 << 20 };

/* --- one transaction --- */

/* Whether the database as a whole cannot be written. Other errors are the operation's own. */
static bool queue_is_blocked(int rc) {
    return rc == -ERR_FULL || rc == -ERR_IO || rc == -ERR_UNAVAILABLE;
}

/* Whether SQLite refused what the operation would write. It may have written a part of it. */
static bool queue_is_refused(const struct store *s) {
    int code = sqlite3_errcode(s->db) & 0xff;
    return code == SQLITE_CONSTRAINT || code == SQLITE_TOOBIG || code == SQLITE_MISMATCH;
}

static int queue_exec(struct store *s, const char *sql, struct err *err) {
    return store_exec(s->db, sql, err, "write");
}

/* 1: one operation was refused, and the rest is to be tried without it. */
static int queue_run_all(struct store *s, struct store_op *first, struct err *err) {
    for (struct store_op *op = first; op; op = op->next) {
        if (op->left_out)
            continue;
        op->err = (struct err){0};
        int rc = op->type->run(s, op, &op->err);
        if (rc < 0 && queue_is_refused(s)) {
            op->left_out = true;
            return 1;
        }
        if (queue_is_blocked(rc)) {
            *err = op->err;
            return rc;
        }
    }
    return 0;
}

static int queue_try(struct store *s, struct store_op *first, struct err *err) {
    int rc = queue_exec(s, "BEGIN IMMEDIATE", err);
    if (rc < 0)
        return rc;
    rc = queue_run_all(s, first, err);
    if (rc == 0)
        rc = queue_exec(s, "COMMIT", err);
    if (rc != 0)
        (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

static int queue_transaction(struct store *s, struct store_op *first, struct err *err) {
    bool durable = false;
    for (const struct store_op *op = first; op; op = op->next)
        durable = durable || op->type->durable;
    store_care_give_way(s);
    int rc =
        queue_exec(s, durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL", err);
    if (rc < 0)
        return rc;
    do
        rc = queue_try(s, first, err);
    while (rc > 0);
    return rc;
}

/* --- what waits --- */

static void queue_append(struct store *s, struct store_op *op) {
    struct store_queue *q = &s->queue;
    op->ticket = ++q->submitted;
    op->next = NULL;
    op->prev = q->last;
    if (q->last)
        q->last->next = op;
    else
        q->first = op;
    q->last = op;
    q->bytes += op->bytes;
}

struct store_op *store_queue_last(const struct store *s) {
    return s->queue.last;
}

void store_queue_resized(struct store *s, struct store_op *op, size_t bytes) {
    s->queue.bytes += bytes - op->bytes;
    op->bytes = bytes;
}

static void queue_free(struct store *s, struct store_op *first) {
    while (first) {
        struct store_op *op = first;
        first = op->next;
        s->queue.bytes -= op->bytes;
        op->type->free(op);
    }
}

static int queue_refuse(const struct store *s, const struct store_op *op, struct err *err) {
    const struct store_queue *q = &s->queue;
    if (!op->type->begins)
        return 0;
    if (q->blocked) {
        *err = q->err;
        return -(int)err->code;
    }
    if (q->bytes + op->bytes <= QUEUE_BYTES)
        return 0;
    return err_set(err, ERR_UNAVAILABLE,
                   "%d MiB of records wait for the disk: try again in some seconds",
                   QUEUE_BYTES >> 20);
}

static void queue_start(struct store *s);

int store_submit(struct store *s, struct store_op *op, struct err *err) {
    int rc = queue_refuse(s, op, err);
    if (rc < 0) {
        op->type->free(op);
        return rc;
    }
    if (!s->queue.writer) {
        op->next = NULL;
        rc = queue_transaction(s, op, err);
        if (rc == 0 && op->err.code) {
            *err = op->err;
            rc = -(int)err->code;
        }
        op->type->free(op);
        return rc;
    }
    queue_append(s, op);
    queue_start(s);
    return 0;
}

/* --- who waits --- */

static bool queue_is_settled(const struct store_queue *q, int64_t ticket) {
    return ticket <= q->written || q->blocked;
}

int64_t store_submitted(struct store *s) {
    return s->queue.submitted;
}

bool store_has_written(struct store *s, int64_t ticket) {
    if (queue_is_settled(&s->queue, ticket))
        return true;
    s->queue.hurry = true;
    queue_start(s);
    return false;
}

const struct err *store_blocked(const struct store *s) {
    return s->queue.blocked ? &s->queue.err : NULL;
}

static void queue_on_settled(void *ctx) {
    struct store *s = ctx;
    struct store_queue *q = &s->queue;
    struct store_wait *next;
    /* One that is called may cancel others, and add some: those come in front. */
    for (struct store_wait *w = q->waits; w; w = next) {
        next = w->next;
        if (!w->ready && queue_is_settled(q, w->ticket))
            w->ready = true;
    }
    for (struct store_wait *w = q->waits; w;) {
        if (!w->ready) {
            w = w->next;
            continue;
        }
        store_wait_cancel(w);
        w->on_written(w->ctx);
        w = q->waits; /* whatever that did */
    }
    if (q->on_written)
        q->on_written(q->written_ctx);
}

static void queue_tell(struct store *s) {
    if (s->queue.waits || s->queue.on_written)
        later_post(&s->queue.later, &s->queue.settled, queue_on_settled, s);
}

void store_after(struct store *s, struct store_wait *w, void (*on_written)(void *ctx), void *ctx) {
    struct store_queue *q = &s->queue;
    *w = (struct store_wait){.ticket = q->submitted, .on_written = on_written, .ctx = ctx};
    w->next = q->waits;
    w->at = &q->waits;
    if (w->next)
        w->next->at = &w->next;
    q->waits = w;
    if (store_has_written(s, w->ticket))
        queue_tell(s);
}

void store_wait_cancel(struct store_wait *w) {
    if (!w->at)
        return;
    *w->at = w->next;
    if (w->next)
        w->next->at = w->at;
    w->at = NULL;
    w->ready = false;
}

void store_on_written(struct store *s, void (*on_written)(void *ctx), void *ctx) {
    s->queue.on_written = on_written;
    s->queue.written_ctx = ctx;
}

/* --- the thread --- */

static void queue_work(void *ctx) {
    struct store *s = ctx;
    struct store_queue *q = &s->queue;
    q->batch_rc = queue_transaction(s, q->batch, &q->batch_err);
}

static void queue_log_own_errors(const struct store_op *first) {
    for (const struct store_op *op = first; op; op = op->next)
        if (op->err.code && op->err.code != ERR_NOT_FOUND)
            log_warn("store.write", "what", op->type->name, "error", op->err.message);
}

static void queue_unblock(struct store_queue *q) {
    if (q->blocked)
        log_info("store.works", "written", q->written);
    q->blocked = false;
}

static void queue_block(struct store_queue *q) {
    if (!q->blocked)
        log_error("store.write", "error", q->batch_err.message);
    q->blocked = true;
    q->err = q->batch_err;
}

static void queue_put_back(struct store_queue *q) {
    struct store_op *last = q->batch;
    while (last->next)
        last = last->next;
    last->next = q->first;
    if (q->first)
        q->first->prev = last;
    else
        q->last = last;
    q->first = q->batch;
    q->batch = NULL;
}

static void queue_on_done(void *ctx) {
    struct store *s = ctx;
    struct store_queue *q = &s->queue;
    if (q->batch_rc < 0) {
        queue_put_back(q);
        queue_block(q);
    } else {
        struct store_op *batch = q->batch;
        q->batch = NULL;
        for (const struct store_op *op = batch; op; op = op->next)
            q->written = op->ticket;
        queue_unblock(q);
        queue_log_own_errors(batch);
        queue_free(s, batch);
    }
    queue_tell(s);
    queue_start(s);
}

static void queue_hand_over(struct store *s) {
    struct store_queue *q = &s->queue;
    q->hurry = false;
    q->batch = q->first;
    q->first = q->last = NULL;
    writer_start(q->writer, queue_work, queue_on_done, s);
}

static void queue_on_timer(uv_timer_t *t) {
    struct store *s = t->data;
    if (s->queue.first && !writer_is_busy(s->queue.writer))
        queue_hand_over(s);
}

static void queue_start(struct store *s) {
    struct store_queue *q = &s->queue;
    if (!q->first || q->closing || writer_is_busy(q->writer))
        return;
    if (q->hurry && !q->blocked)
        queue_hand_over(s);
    else if (!uv_is_active((uv_handle_t *)&q->timer))
        (void)uv_timer_start(&q->timer, queue_on_timer, q->blocked ? RETRY_MS : GATHER_MS, 0);
}

int store_start_writer(struct store *s, uv_loop_t *loop, struct err *err) {
    struct store_queue *q = &s->queue;
    q->writer = writer_create(loop);
    if (!q->writer)
        return err_set(err, ERR_INTERNAL, "there is no thread to be had for the store");
    (void)uv_timer_init(loop, &q->timer);
    q->timer.data = s;
    later_queue_init(&q->later, loop);
    return 0;
}

static void queue_on_closed(void *ctx) {
    (void)ctx;
}

static void queue_on_handle_closed(uv_handle_t *h) {
    (void)h;
}

void store_stop_writer(struct store *s) {
    struct store_queue *q = &s->queue;
    struct err err;
    if (!q->writer)
        return;
    q->on_written = NULL;
    q->closing = true;
    writer_close(q->writer, queue_on_closed, NULL); /* which ends what is under way */
    q->writer = NULL;
    later_cancel(&q->settled);
    uv_close((uv_handle_t *)&q->timer, queue_on_handle_closed);
    later_queue_close(&q->later, queue_on_handle_closed, NULL);
    if (q->first && queue_transaction(s, q->first, &err) < 0)
        log_error("store.lost", "error", err.message, "writes", q->submitted - q->written);
    queue_free(s, q->first);
    q->first = q->last = NULL;
    q->written = q->submitted;
    q->blocked = false;
    queue_on_settled(s);
}
