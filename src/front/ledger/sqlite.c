#include "base/log.h"
#include "base/mem.h"
#include "front/ledger/backend.h"
#include "front/ledger/db.h"

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
    struct ledger_watch watch;
    uv_timer_t timer;
    uv_fs_event_t event;
    int handles; /* that are not closed */
    int64_t seen;
    uint64_t version;
    bool failing; /* it was said */
};

/* Tells the keys if they may have changed, else that they have not. */
static int tell(struct sqlite *l, struct err *err) {
    int64_t now = ledger_db_version(l->db);
    struct ledger_key *keys = NULL;
    size_t n = 0;
    if (now < 0)
        return err_set(err, ERR_IO, "the ledger cannot be read");
    if (now == l->seen) {
        l->watch.on_confirmed(l->watch.ctx, l->version);
        return 0;
    }
    int rc = ledger_db_keys(l->db, &keys, &n, err);
    if (rc < 0)
        return rc;
    l->seen = now;
    l->watch.on_keys(l->watch.ctx, keys, n, ++l->version);
    return 0;
}

static void refresh(void *backend) {
    struct sqlite *l = backend;
    struct err err;
    bool failed = tell(l, &err) < 0;
    if (failed && !l->failing)
        log_error("ledger.keys", "error", err.message);
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
    if (l->handles > 0)
        ledger_db_restart_log(l->db);
    free_if_over(l);
}

static void on_timer(uv_timer_t *t) {
    struct sqlite *l = t->data;
    refresh(l);
    if (!l->at_work && ledger_db_wants_checkpoint(l->db))
        l->at_work = uv_queue_work(t->loop, &l->work, on_work, on_worked) == 0;
}

static void on_event(uv_fs_event_t *h, const char *name, int events, int status) {
    (void)name;
    (void)events;
    (void)status;
    refresh(h->data);
}

static void ask(void *backend, uint64_t id, const struct ledger_ask *what) {
    struct sqlite *l = backend;
    struct ledger_answer answer;
    ledger_db_do(l->db, what, &answer);
    /* Our own changes do not change the version: the copy has them before the answer is told. */
    if (what->op == LEDGER_KEY_ADD || what->op == LEDGER_KEY_REVOKE) {
        l->seen = -1;
        refresh(l);
    }
    ledger_answered(l->ledger, id, &answer);
}

static void on_closed(uv_handle_t *h) {
    struct sqlite *l = h->data;
    l->handles--;
    free_if_over(l);
}

static void close_backend(void *backend) {
    struct sqlite *l = backend;
    uv_close((uv_handle_t *)&l->timer, on_closed);
    uv_close((uv_handle_t *)&l->event, on_closed);
}

int ledger_open(uv_loop_t *loop, struct ledger_db *db, const struct ledger_watch *watch,
                struct ledger **ret_ledger, struct err *err) {
    static const struct ledger_backend ops = {
        .ask = ask, .refresh = refresh, .close = close_backend};
    struct sqlite *l = xcalloc(1, sizeof(*l));
    *l = (struct sqlite){.db = db, .watch = *watch, .seen = -1, .handles = 2};
    l->ledger = ledger_create(loop, &ops, l);
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
