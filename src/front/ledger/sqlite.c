#include "base/log.h"
#include "base/mem.h"
#include "front/ledger/backend.h"
#include "front/ledger/db.h"
#include "front/ledger/long.h"

#include <stdlib.h>

/* Another process (`cay key`) writes to the file as we do, and touches it then. It is watched, so
 * that this is noticed before a request that comes after it is looked at: the kernel queues both in
 * the order they happened. Where there is no watch (the machine's inotify instances are used up), a
 * timer looks more often. */
enum { UNWATCHED_MS = 100 };

struct sqlite {
    struct ledger *ledger;
    uv_work_t work;
    bool at_work;
    struct ledger_db *db;
    struct longs *longs;
    struct ledger_watch watch;
    struct ledger_worker_watch workers; /* zeroed: nobody keeps the list */
    uint64_t list;                      /* the version that was told; 0: none */
    uv_timer_t timer;
    uv_fs_event_t event;
    int handles; /* that are not closed */
    int64_t seen;
    uint64_t version;
    bool failing; /* it was said */
};

static int tell_keys(struct sqlite *l, struct err *err) {
    struct ledger_key *keys = NULL;
    size_t n = 0;
    int rc = ledger_db_keys(l->db, &keys, &n, err);
    if (rc == 0)
        l->watch.on_keys(l->watch.ctx, keys, n, ++l->version);
    return rc;
}

/* The list of workers, if it is another one than was told, else that it is the same. */
static int tell_workers(struct sqlite *l, struct err *err) {
    struct ledger_worker *workers = NULL;
    size_t n = 0;
    if (!l->workers.on_all)
        return 0;
    int64_t now = ledger_db_worker_version(l->db);
    if (now < 0)
        return err_set(err, ERR_IO, "the ledger cannot be read");
    if ((uint64_t)now == l->list) {
        l->workers.on_confirmed(l->workers.ctx, l->list);
        return 0;
    }
    int rc = ledger_db_workers(l->db, &workers, &n, err);
    if (rc < 0)
        return rc;
    l->list = (uint64_t)now;
    l->workers.on_all(l->workers.ctx, workers, n, l->list);
    return 0;
}

/* Tells what may have changed, else that it has not. */
static int tell(struct sqlite *l, struct err *err) {
    int64_t now = ledger_db_version(l->db);
    if (now < 0)
        return err_set(err, ERR_IO, "the ledger cannot be read");
    if (now == l->seen) {
        l->watch.on_confirmed(l->watch.ctx, l->version);
        if (l->list)
            l->workers.on_confirmed(l->workers.ctx, l->list);
        return 0;
    }
    int rc = tell_keys(l, err);
    if (rc == 0)
        rc = tell_workers(l, err);
    if (rc == 0)
        l->seen = now;
    return rc;
}

static void refresh(void *backend) {
    struct sqlite *l = backend;
    struct err err;
    bool failed = tell(l, &err) < 0;
    if (failed && !l->failing)
        log_error("ledger.read", "error", err.message);
    l->failing = failed;
}

static void free_if_over(struct sqlite *l) {
    if (l->handles == 0 && !l->at_work)
        free(l);
}

/* What waits in the log is moved into the file by a thread: it waits for the disk. */
static void on_work(uv_work_t *w) {
    struct sqlite *l = w->data;
    ledger_db_checkpoint(l->db);
}

static void on_worked(uv_work_t *w, int status) {
    (void)status;
    struct sqlite *l = w->data;
    l->at_work = false;
    if (l->handles > 0) {
        ledger_db_checkpointed(l->db);
        longs_pause(l->longs, false);
    }
    free_if_over(l);
}

static void move_log(struct sqlite *l) {
    if (!l->at_work && ledger_db_wants_checkpoint(l->db))
        l->at_work = uv_queue_work(l->timer.loop, &l->work, on_work, on_worked) == 0;
}

static void on_timer(uv_timer_t *t) {
    struct sqlite *l = t->data;
    refresh(l);
    move_log(l);
}

static void on_event(uv_fs_event_t *h, const char *name, int events, int status) {
    (void)name;
    (void)events;
    (void)status;
    refresh(h->data);
}

/* One that we have put or deleted. */
static void tell_change(struct sqlite *l, const struct ledger_worker *w, bool gone) {
    if (!l->workers.on_all || (uint64_t)w->version != l->list + 1)
        return;
    l->list++;
    l->workers.on_change(l->workers.ctx, w, gone, l->list);
}

/* Our own changes do not change the version: the copies have them before the answer is told. */
static void tell_own(struct sqlite *l, enum ledger_op op, const struct ledger_answer *a) {
    bool worker = (op == LEDGER_WORKER_PUT || op == LEDGER_WORKER_DELETE) && a->nworkers > 0;
    if (worker)
        tell_change(l, &a->workers[0], op == LEDGER_WORKER_DELETE);
    bool missed = worker && (uint64_t)a->workers[0].version != l->list;
    if (op == LEDGER_KEY_ADD || op == LEDGER_KEY_REVOKE || missed) {
        l->seen = -1;
        refresh(l);
    }
}

/* What may leave a long text that nobody needs any more. */
static bool drops(enum ledger_op op) {
    return op == LEDGER_TASK_FINISH || op == LEDGER_TASK_CANCEL || op == LEDGER_TASK_REAP ||
           op == LEDGER_WORKER_PUT || op == LEDGER_WORKER_DELETE;
}

static void on_done(void *ctx, uint64_t id, enum ledger_op op, struct ledger_answer *answer) {
    struct sqlite *l = ctx;
    tell_own(l, op, answer);
    ledger_answered(l->ledger, id, answer);
    if (drops(op))
        longs_sweep(l->longs);
}

/* Megabytes come faster than a disk may take them: they wait until the log was moved, of which the
 * rest would keep everybody from writing. */
static void on_progress(void *ctx, uint64_t id) {
    struct sqlite *l = ctx;
    ledger_progress(l->ledger, id);
    if (!ledger_db_log_is_long(l->db))
        return;
    move_log(l);
    longs_pause(l->longs, l->at_work);
}

static void ask(void *backend, uint64_t id, const struct ledger_ask *what) {
    struct sqlite *l = backend;
    struct ledger_answer answer;
    if (longs_ask(l->longs, id, what))
        return;
    ledger_db_do(l->db, what, &answer);
    if (!longs_fill(l->longs, id, what->op, &answer))
        on_done(l, id, what->op, &answer);
}

static int watch_workers(void *backend, const struct ledger_worker_watch *watch, struct err *err) {
    struct sqlite *l = backend;
    l->workers = watch ? *watch : (struct ledger_worker_watch){0};
    l->list = 0;
    return tell_workers(l, err);
}

static void on_part_closed(void *ctx) {
    struct sqlite *l = ctx;
    l->handles--;
    free_if_over(l);
}

static void on_closed(uv_handle_t *h) {
    on_part_closed(h->data);
}

static void close_backend(void *backend) {
    struct sqlite *l = backend;
    uv_close((uv_handle_t *)&l->timer, on_closed);
    uv_close((uv_handle_t *)&l->event, on_closed);
    longs_close(l->longs, on_part_closed, l);
}

int ledger_open(uv_loop_t *loop, struct ledger_db *db, const struct ledger_watch *watch,
                struct ledger **ret_ledger, struct err *err) {
    static const struct ledger_backend ops = {
        .ask = ask, .refresh = refresh, .close = close_backend, .watch_workers = watch_workers};
    struct sqlite *l = xcalloc(1, sizeof(*l));
    *l = (struct sqlite){.db = db, .watch = *watch, .seen = -1, .handles = 3};
    l->ledger = ledger_create(loop, &ops, l);
    l->longs = longs_create(&(struct longs_options){
        .loop = loop, .db = db, .on_done = on_done, .on_progress = on_progress, .ctx = l});
    (void)uv_timer_init(loop, &l->timer);
    (void)uv_fs_event_init(loop, &l->event);
    l->timer.data = l->event.data = l->work.data = l;
    bool watched = uv_fs_event_start(&l->event, on_event, ledger_db_path(db), 0) == 0;
    unsigned ms = watched ? LEDGER_CONFIRM_MS : UNWATCHED_MS;
    if (!watched)
        log_warn("ledger.watch", "error", "there is no inotify: changes of keys are looked for");
    (void)uv_timer_start(&l->timer, on_timer, ms, ms);
    int rc = tell(l, err);
    if (rc < 0) {
        ledger_close(l->ledger);
        return rc;
    }
    *ret_ledger = l->ledger;
    return 0;
}
