#include "front/ledger/long.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/intake.h"
#include "front/ledger/internal.h"
#include "front/share.h"
#include "front/store/pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One that waits: an ask whose text is being written, or an answer whose texts are being read. */
struct long_one {
    struct long_one *next;
    uint64_t id;
    enum ledger_op op;
    char owner[ID_SIZE];
    /* To write: the ask, with copies of what it points to. */
    struct ledger_ask ask; /* .op LEDGER_OPS: it is an answer */
    struct ledger_task task;
    struct ledger_worker worker;
    char *text;
    size_t len;
    int64_t text_id; /* 0: not begun */
    size_t pieces;   /* of the text that are written or read */
    /* To read. */
    struct ledger_answer answer;
    size_t item; /* of it, whose text is read */
};

struct longs {
    struct longs_options opt;
    uv_idle_t idle;
    struct long_one *first;
    struct long_one **last;
    size_t bytes; /* that wait to be written */
    bool sweeps;
    bool paused;
    void (*closed)(void *ctx);
    void *closed_ctx;
};

static void on_idle(uv_idle_t *h);

struct longs *longs_create(const struct longs_options *options) {
    struct longs *l = xcalloc(1, sizeof(*l));
    struct err err;
    l->opt = *options;
    l->last = &l->first;
    (void)uv_idle_init(options->loop, &l->idle);
    l->idle.data = l;
    if (pieces_recover(options->db->pieces, &err) < 0)
        log_error("ledger.recover", "error", err.message);
    longs_sweep(l);
    return l;
}

static void wake(struct longs *l) {
    if (!l->closed && !l->paused)
        (void)uv_idle_start(&l->idle, on_idle);
}

void longs_pause(struct longs *l, bool paused) {
    l->paused = paused;
    if (paused)
        (void)uv_idle_stop(&l->idle);
    else if (l->first || l->sweeps)
        wake(l);
}

void longs_sweep(struct longs *l) {
    if (l->sweeps || !pieces_wants_sweep(l->opt.db->pieces))
        return;
    l->sweeps = true;
    wake(l);
}

static void push(struct longs *l, struct long_one *o) {
    o->next = NULL;
    *l->last = o;
    l->last = &o->next;
    wake(l);
}

static struct long_one *pop(struct longs *l) {
    struct long_one *o = l->first;
    l->first = o->next;
    if (!l->first)
        l->last = &l->first;
    return o;
}

static void free_one(struct longs *l, struct long_one *o) {
    if (o->text) {
        l->bytes -= o->len;
        /* A thread made it. To free it here would make malloc put together all that the thread has
         * freed beside it, which of a tree takes 20 ms. */
        intake_dispose_on(l->opt.loop, free, o->text);
    }
    ledger_task_finish(&o->task);
    ledger_answer_finish(&o->answer);
    free(o);
}

/* It is over, with this answer. */
static void done(struct longs *l, struct long_one *o, struct ledger_answer *answer) {
    uint64_t id = o->id;
    enum ledger_op op = o->op;
    free_one(l, o);
    l->opt.on_done(l->opt.ctx, id, op, answer);
}

static void fail(struct longs *l, struct long_one *o, const struct err *err) {
    struct ledger_answer a = {.err = *err, .next_ms = -1};
    if (o->text_id) { /* of one that was being written */
        (void)pieces_drop(l->opt.db->pieces, o->text_id, &(struct err){0});
        longs_sweep(l);
    }
    done(l, o, &a);
}

/* --- asks --- */

static char *copy(const char *text) {
    return text ? xstrdup(text) : NULL;
}

/* What of the ask is read again when its text is there. */
static void keep(struct long_one *o, const struct ledger_ask *ask) {
    o->ask = (struct ledger_ask){.op = ask->op,
                                 .limit = ask->limit,
                                 .limit_bytes = ask->limit_bytes,
                                 .per_key = ask->per_key,
                                 .body_bytes = ask->body_bytes};
    if (ask->task) {
        const struct ledger_task *t = ask->task;
        o->task = *t;
        o->task.body = NULL;
        o->task.body_len = o->len;
        o->task.type = copy(t->type);
        o->task.title = copy(t->title);
        o->task.idem = copy(t->idem);
        o->task.idem_hash = copy(t->idem_hash);
        o->task.webhook = copy(t->webhook);
        o->task.secret = copy(t->secret);
        o->ask.task = &o->task;
    } else {
        o->worker = *ask->worker;
        o->worker.code = NULL;
        o->worker.code_len = o->len;
        o->ask.worker = &o->worker;
    }
}

/* Bytes of one owner that wait to be written. */
static size_t bytes_of(const struct longs *l, const char *owner) {
    size_t sum = 0;
    for (const struct long_one *o = l->first; o; o = o->next)
        if (o->text && strcmp(o->owner, owner) == 0)
            sum += o->len;
    return sum;
}

/* One alone is always taken, however long. */
static bool has_room(const struct longs *l, const char *owner, size_t len) {
    if (l->bytes == 0)
        return true;
    size_t held = bytes_of(l, owner);
    return l->bytes + len <= LIMIT_READ_BYTES &&
           (held == 0 || held + len <= share_of(owner, LIMIT_READ_BYTES));
}

bool longs_ask(struct longs *l, uint64_t id, const struct ledger_ask *ask) {
    const char *owner = ask->task ? ask->task->owner : ask->worker ? ask->worker->owner : "";
    size_t len = ask->task ? ask->task->body_len : ask->worker ? ask->worker->code_len : 0;
    if (!ask->own_text || len <= PIECES_BYTES)
        return false;
    struct long_one *o = xcalloc(1, sizeof(*o));
    *o = (struct long_one){.id = id, .op = ask->op, .len = len};
    (void)snprintf(o->owner, sizeof(o->owner), "%s", owner);
    bool room = has_room(l, owner, len);
    if (room) {
        o->text = steal_ptr(ask->own_text);
        l->bytes += len;
        keep(o, ask);
    } else {
        o->ask.op = LEDGER_OPS;
        (void)err_set(&o->answer.err, ERR_RATE,
                      "%zu bytes wait to be written, of %d at most: try again in a second",
                      l->bytes, LIMIT_READ_BYTES);
    }
    push(l, o);
    return true;
}

/* What would be refused is refused before it is written; what was done before is answered so. */
static bool begin(struct longs *l, struct long_one *o) {
    struct ledger_answer a;
    struct err err;
    o->ask.rehearsal = true;
    ledger_db_do(l->opt.db, &o->ask, &a);
    o->ask.rehearsal = false;
    if (a.err.code || a.repeated) {
        done(l, o, &a);
        return false;
    }
    ledger_answer_finish(&a);
    if (pieces_begin(l->opt.db->pieces, &o->text_id, &err) < 0) {
        fail(l, o, &err);
        return false;
    }
    return true;
}

static void finish_ask(struct longs *l, struct long_one *o) {
    struct ledger_answer a;
    int64_t text = o->text_id;
    o->task.text = o->worker.text = text;
    ledger_db_do(l->opt.db, &o->ask, &a);
    if (a.err.code || a.repeated) {
        (void)pieces_drop(l->opt.db->pieces, text, &(struct err){0});
        longs_sweep(l);
    }
    done(l, o, &a);
}

static void write_piece(struct longs *l, struct long_one *o) {
    struct err err;
    size_t at = o->pieces * PIECES_BYTES;
    size_t len = MIN(o->len - at, (size_t)PIECES_BYTES);
    if (pieces_add(l->opt.db->pieces, o->text_id, o->pieces, o->text + at, len, &err) < 0) {
        fail(l, o, &err);
        return;
    }
    o->pieces++;
    l->opt.on_progress(l->opt.ctx, o->id);
    push(l, o);
}

static void go_on_writing(struct longs *l, struct long_one *o) {
    if (!o->text_id) {
        if (begin(l, o))
            push(l, o);
    } else if (o->pieces * PIECES_BYTES < o->len) {
        write_piece(l, o);
    } else {
        finish_ask(l, o);
    }
}

/* --- answers --- */

/* The first text that the answer lacks, from an item on. */
static bool find_lack(const struct long_one *o, int64_t *ret_text, size_t *ret_len, char ***ret_to,
                      size_t *item) {
    for (; *item < o->answer.ntasks; (*item)++) {
        struct ledger_task *t = &o->answer.tasks[*item];
        if (t->text) {
            *ret_text = t->text;
            *ret_len = t->body_len;
            *ret_to = &t->body;
            return true;
        }
    }
    struct ledger_worker *w = o->answer.nworkers > 0 ? &o->answer.workers[0] : NULL;
    if (!w || !w->text || *item > o->answer.ntasks)
        return false;
    *ret_text = w->text;
    *ret_len = w->code_len;
    *ret_to = &w->code;
    return true;
}

bool longs_fill(struct longs *l, uint64_t id, enum ledger_op op, struct ledger_answer *answer) {
    struct long_one seen = {.answer = *answer};
    int64_t text;
    size_t len;
    char **to;
    size_t item = 0;
    if ((op != LEDGER_TASK_CLAIM && op != LEDGER_WORKER_GET) ||
        !find_lack(&seen, &text, &len, &to, &item))
        return false;
    struct long_one *o = xcalloc(1, sizeof(*o));
    *o = (struct long_one){
        .id = id, .op = op, .ask = {.op = LEDGER_OPS}, .answer = *answer, .item = item};
    push(l, o);
    return true;
}

/* Of those that were claimed this one is not told of. */
static void leave_out(struct longs *l, struct long_one *o) {
    struct ledger_answer *a = &o->answer;
    o->pieces = 0;
    ledger_task_finish(&a->tasks[o->item]);
    a->ntasks--;
    memmove(&a->tasks[o->item], &a->tasks[o->item + 1], (a->ntasks - o->item) * sizeof(*a->tasks));
    push(l, o);
}

/* One whose text cannot be read ends by itself; the others that were claimed with it go on. What is
 * the disk's fault may go better the next time. */
static void fail_task(struct longs *l, struct long_one *o, struct err *err) {
    const struct ledger_task *t = &o->answer.tasks[o->item];
    struct ledger_task end = {.attempt = t->attempt,
                              .state = TASK_FAILED,
                              .error_code = (char *)(uintptr_t)err_name(err->code),
                              .error_message = err->message};
    struct ledger_answer ended;
    memcpy(end.id, t->id, sizeof(end.id));
    log_error("ledger.text", "task", t->id, "error", err->message);
    ledger_db_do(l->opt.db,
                 &(struct ledger_ask){
                     .op = LEDGER_TASK_FINISH, .task = &end, .fault = err->code != ERR_INTERNAL},
                 &ended);
    ledger_answer_finish(&ended);
    longs_sweep(l);
    leave_out(l, o);
}

/* A text that went meanwhile: of a worker that was put anew, whose new one is got; of a task whose
 * lease is over, which is another's then. */
static void miss(struct longs *l, struct long_one *o) {
    struct ledger_answer *a = &o->answer;
    o->pieces = 0;
    if (o->op == LEDGER_TASK_CLAIM) {
        leave_out(l, o);
        return;
    }
    struct ledger_worker w = a->workers[0];
    struct err err;
    w.code = NULL;
    ledger_answer_finish(a);
    ledger_db_do(l->opt.db, &(struct ledger_ask){.op = o->op, .worker = &w}, a);
    if (a->nworkers > 0 && a->workers[0].text == w.text) {
        (void)err_set(&err, ERR_INTERNAL, "a text of the ledger is damaged");
        fail(l, o, &err);
        return;
    }
    push(l, o);
}

/* They may have been asked to end meanwhile, and who claims them did not know of them yet. */
static void look_again(struct longs *l, struct ledger_answer *a) {
    for (size_t i = 0; i < a->ntasks; i++) {
        struct ledger_answer now;
        ledger_db_do(l->opt.db, &(struct ledger_ask){.op = LEDGER_TASK_GET, .task = &a->tasks[i]},
                     &now);
        a->tasks[i].cancel = now.ntasks > 0 && now.tasks[0].cancel;
        ledger_answer_finish(&now);
    }
}

static void go_on_reading(struct longs *l, struct long_one *o) {
    struct ledger_answer a;
    struct err err;
    int64_t text;
    size_t len;
    size_t got = 0;
    char **to;
    if (o->answer.err.code || !find_lack(o, &text, &len, &to, &o->item)) {
        a = o->answer;
        o->answer = (struct ledger_answer){0};
        look_again(l, &a);
        done(l, o, &a);
        return;
    }
    if (!*to)
        *to = xmalloc(len + PIECES_BYTES + 1);
    size_t at = o->pieces * PIECES_BYTES;
    int rc = pieces_read(l->opt.db->pieces, text, o->pieces, *to + at, &got, &err);
    if (rc == 0 && got != MIN(len - at, (size_t)PIECES_BYTES))
        rc = err_set(&err, ERR_INTERNAL, "a text of the ledger is damaged");
    if (rc < 0 && err.code == ERR_NOT_FOUND) {
        miss(l, o);
        return;
    }
    if (rc < 0 && o->op == LEDGER_TASK_CLAIM) {
        fail_task(l, o, &err);
        return;
    }
    if (rc < 0) {
        fail(l, o, &err);
        return;
    }
    o->pieces++;
    if (at + got == len) {
        (*to)[len] = 0;
        o->pieces = 0;
        o->item++;
    }
    l->opt.on_progress(l->opt.ctx, o->id);
    push(l, o);
}

/* --- the loop --- */

static void on_idle(uv_idle_t *h) {
    struct longs *l = h->data;
    if (l->first) {
        struct long_one *o = pop(l);
        if (o->ask.op == LEDGER_OPS)
            go_on_reading(l, o);
        else
            go_on_writing(l, o);
    }
    if (l->sweeps && !l->paused)
        l->sweeps = pieces_sweep(l->opt.db->pieces);
    if (!l->first && !l->sweeps && !l->closed)
        (void)uv_idle_stop(h);
}

static void on_closed(uv_handle_t *h) {
    struct longs *l = h->data;
    l->closed(l->closed_ctx);
    free(l);
}

void longs_close(struct longs *l, void (*closed)(void *ctx), void *ctx) {
    l->closed = closed;
    l->closed_ctx = ctx;
    while (l->first)
        free_one(l, pop(l));
    uv_close((uv_handle_t *)&l->idle, on_closed);
}
