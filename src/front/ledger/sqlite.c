/* The ledger on SQLite. A thread (loop/writer.h) owns the file and does what is asked, in order;
 * all that was asked while it waited for the disk is its next transaction, so that one flush serves
 * many callers. The loop reads the keys and the list of workers itself, by a second connection:
 * they are few, and must be known before the request that follows a change is looked at. */
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/common/share.h"
#include "front/ledger/ask.h"
#include "front/ledger/backend.h"
#include "front/ledger/db.h"
#include "loop/writer.h"

#include <stdlib.h>
#include <string.h>

/* Another process (`cay key`) writes to the file as we do, and touches it then. It is watched, so
 * that this is noticed before a request that comes after it is looked at: the kernel queues both in
 * the order they happened. Where there is no watch (the machine's inotify instances are used up), a
 * timer looks more often. */
enum { UNWATCHED_MS = 100 };

/* A transaction has at most so many asks; and no further one once it has so many bytes of texts,
 * since everybody waits for the whole. */
enum { GROUP_MAX = 64, GROUP_BYTES = 4 << 20 };

/* From here on the text of an ask counts in what may wait. */
enum { LONG_TEXT_BYTES = 256 << 10 };

/* One that was asked, until its answer is passed on. */
struct sqlite_ask {
    struct sqlite_ask *next;
    uint64_t id;
    struct ledger_ask_copy copy;
    size_t text_bytes; /* of a long text; else 0 */
    char owner[ID_SIZE];
    struct ledger_answer answer;
};

struct sqlite {
    struct ledger *ledger;
    struct writer *writer;
    struct ledger_db *db;     /* the thread's, while it is busy */
    struct ledger_db *reader; /* the loop's */
    struct sqlite_ask *first; /* those that wait */
    struct sqlite_ask **last;
    struct sqlite_ask *group[GROUP_MAX]; /* those that the thread has */
    size_t ngroup;
    size_t text_bytes; /* of all of both */
    struct ledger_watch watch;
    struct ledger_worker_watch workers; /* zeroed: nobody keeps the list */
    uint64_t keys;                      /* the version that was told; 0: none */
    uint64_t list;                      /* the same of the workers */
    uv_timer_t timer;
    uv_fs_event_t event;
    int handles; /* that are not closed */
    int64_t seen;
    bool failing; /* it was said */
};

/* --- copies of the keys and of the list of workers --- */

static int sqlite_tell_keys(struct sqlite *l, struct err *err) {
    struct ledger_key *keys = NULL;
    size_t n = 0;
    int64_t now = ledger_db_key_version(l->reader);
    if (now < 0)
        return err_set(err, ERR_IO, "the ledger cannot be read");
    if ((uint64_t)now == l->keys) {
        l->watch.on_confirmed(l->watch.ctx, l->keys);
        return 0;
    }
    int rc = ledger_db_keys(l->reader, &keys, &n, err);
    if (rc < 0)
        return rc;
    l->keys = (uint64_t)now;
    l->watch.on_keys(l->watch.ctx, keys, n, l->keys);
    return 0;
}

static int sqlite_tell_workers(struct sqlite *l, struct err *err) {
    struct ledger_worker *workers = NULL;
    size_t n = 0;
    if (!l->workers.on_all)
        return 0;
    int64_t now = ledger_db_worker_version(l->reader);
    if (now < 0)
        return err_set(err, ERR_IO, "the ledger cannot be read");
    if ((uint64_t)now == l->list) {
        l->workers.on_confirmed(l->workers.ctx, l->list);
        return 0;
    }
    int rc = ledger_db_workers(l->reader, &workers, &n, err);
    if (rc < 0)
        return rc;
    l->list = (uint64_t)now;
    l->workers.on_all(l->workers.ctx, workers, n, l->list);
    return 0;
}

/* Passes on what has changed, else that it has not. */
static int sqlite_tell(struct sqlite *l, struct err *err) {
    int64_t now = ledger_db_version(l->reader);
    if (now < 0)
        return err_set(err, ERR_IO, "the ledger cannot be read");
    if (now == l->seen) {
        l->watch.on_confirmed(l->watch.ctx, l->keys);
        if (l->list)
            l->workers.on_confirmed(l->workers.ctx, l->list);
        return 0;
    }
    int rc = sqlite_tell_keys(l, err);
    if (rc == 0)
        rc = sqlite_tell_workers(l, err);
    if (rc == 0)
        l->seen = now;
    return rc;
}

static void sqlite_refresh(void *backend) {
    struct sqlite *l = backend;
    struct err err;
    bool failed = sqlite_tell(l, &err) < 0;
    if (failed && !l->failing)
        log_error("ledger.read", "error", err.message);
    l->failing = failed;
}

static void sqlite_on_timer(uv_timer_t *t) {
    sqlite_refresh(t->data);
}

static void sqlite_on_event(uv_fs_event_t *h, const char *name, int events, int status) {
    (void)name;
    (void)events;
    (void)status;
    sqlite_refresh(h->data);
}

/* Our own changes are in the copies before their answers are passed on. Of the workers the change
 * is enough, unless the copy lacks one that came before it. */
static void sqlite_tell_own(struct sqlite *l, enum ledger_op op, const struct ledger_answer *a) {
    bool gone = op == LEDGER_WORKER_DELETE;
    bool worker = (gone || op == LEDGER_WORKER_PUT) && !a->err.code;
    const struct ledger_worker *w = gone ? &a->worker_deleted.worker : &a->worker_stored.worker;
    if (worker && l->workers.on_all && (uint64_t)w->version == l->list + 1) {
        l->list++;
        l->workers.on_change(l->workers.ctx, w, gone, l->list);
    }
    bool missed = worker && (uint64_t)w->version > l->list;
    bool keys = op == LEDGER_KEY_ADD || op == LEDGER_KEY_REVOKE || op == LEDGER_KEY_EDIT ||
                op == LEDGER_PROJECT_EDIT;
    if (keys || missed) {
        l->seen = -1;
        sqlite_refresh(l);
    }
}

/* --- asks --- */

static void sqlite_ask_free(struct sqlite *l, struct sqlite_ask *a) {
    l->text_bytes -= a->text_bytes;
    ledger_ask_copy_finish(&a->copy);
    free(a);
}

/* On the thread. Texts of megabytes are freed there too. */
static void sqlite_do_group(void *ctx) {
    struct sqlite *l = ctx;
    struct ledger_item items[GROUP_MAX] = {0};
    for (size_t i = 0; i < l->ngroup; i++)
        items[i].ask = &l->group[i]->copy.ask;
    ledger_db_group(l->db, items, l->ngroup);
    for (size_t i = 0; i < l->ngroup; i++) {
        l->group[i]->answer = items[i].answer;
        free(l->group[i]->copy.own_text);
        l->group[i]->copy.own_text = NULL;
    }
}

static void sqlite_take_group(struct sqlite *l) {
    size_t bytes = 0;
    while (l->first && l->ngroup < GROUP_MAX && bytes < GROUP_BYTES) {
        struct sqlite_ask *a = l->first;
        l->first = a->next;
        if (!l->first)
            l->last = &l->first;
        if (!ledger_is_waited_for(l->ledger, a->id)) {
            sqlite_ask_free(l, a);
            continue;
        }
        bytes += a->text_bytes;
        l->group[l->ngroup++] = a;
    }
}

static void sqlite_answer_group(struct sqlite *l) {
    for (size_t i = 0; i < l->ngroup; i++) {
        struct sqlite_ask *a = l->group[i];
        sqlite_tell_own(l, a->copy.ask.op, &a->answer);
        ledger_answered(l->ledger, a->id, &a->answer);
        sqlite_ask_free(l, a);
    }
    l->ngroup = 0;
}

static void sqlite_on_group_done(void *ctx);

static void sqlite_go_on(struct sqlite *l) {
    if (writer_is_busy(l->writer) || !l->first)
        return;
    sqlite_take_group(l);
    if (l->ngroup == 0)
        return;
    writer_start(l->writer, sqlite_do_group, sqlite_on_group_done, l);
}

static void sqlite_on_group_done(void *ctx) {
    struct sqlite *l = ctx;
    sqlite_answer_group(l);
    sqlite_go_on(l);
}

/* Bytes of one owner's long texts that wait or are being written. */
static size_t sqlite_bytes_of(const struct sqlite *l, const char *owner) {
    size_t sum = 0;
    for (const struct sqlite_ask *a = l->first; a; a = a->next)
        sum += strcmp(a->owner, owner) == 0 ? a->text_bytes : 0;
    for (size_t i = 0; i < l->ngroup; i++)
        sum += strcmp(l->group[i]->owner, owner) == 0 ? l->group[i]->text_bytes : 0;
    return sum;
}

/* A text that is the only one is always taken, however long. */
static bool sqlite_has_room(const struct sqlite *l, const char *owner, size_t len) {
    if (l->text_bytes == 0)
        return true;
    size_t held = sqlite_bytes_of(l, owner);
    return l->text_bytes + len <= LIMIT_READ_BYTES &&
           (held == 0 || held + len <= share_of(owner, LIMIT_READ_BYTES));
}

static void sqlite_refuse(struct sqlite *l, uint64_t id) {
    struct ledger_answer a = {0};
    (void)err_set(
        &a.err, ERR_RATE,
        "%zu bytes wait to be written to the ledger, of %d at most: try again in a second",
        l->text_bytes, LIMIT_READ_BYTES);
    ledger_answered(l->ledger, id, &a);
}

static void sqlite_on_ask(void *backend, uint64_t id, const struct ledger_ask *ask) {
    struct sqlite *l = backend;
    const struct ledger_task_submit *t = ask->op == LEDGER_TASK_SUBMIT ? &ask->task_submit : NULL;
    const struct ledger_worker *w = ask->op == LEDGER_WORKER_PUT ? ask->worker_put.worker : NULL;
    const char *owner = t ? t->owner : w ? w->owner : "";
    const char *text = t ? t->body : w ? w->code : NULL;
    size_t len = text ? strlen(text) : 0;
    if (len < LONG_TEXT_BYTES)
        len = 0;
    if (len > 0 && !sqlite_has_room(l, owner, len)) {
        sqlite_refuse(l, id);
        return;
    }
    struct sqlite_ask *a = xcalloc(1, sizeof(*a));
    a->id = id;
    a->text_bytes = len;
    memcpy(a->owner, owner, strlen(owner) + 1);
    ledger_ask_copy(ask, &a->copy);
    l->text_bytes += len;
    *l->last = a;
    l->last = &a->next;
    sqlite_go_on(l);
}

static int sqlite_watch_workers(void *backend, const struct ledger_worker_watch *watch,
                                struct err *err) {
    struct sqlite *l = backend;
    l->workers = watch ? *watch : (struct ledger_worker_watch){0};
    l->list = 0;
    return sqlite_tell_workers(l, err);
}

/* --- opening and closing --- */

static void sqlite_on_part_closed(void *ctx) {
    struct sqlite *l = ctx;
    if (--l->handles == 0)
        free(l);
}

static void sqlite_on_handle_closed(uv_handle_t *h) {
    sqlite_on_part_closed(h->data);
}

/* What the server accepted before it stops is kept: the thread is waited for, and what it had not
 * begun is done here. */
static void sqlite_close(void *backend) {
    struct sqlite *l = backend;
    struct sqlite_ask *rest = l->first; /* so that the thread begins nothing more */
    l->first = NULL;
    l->last = &l->first;
    writer_close(l->writer, sqlite_on_part_closed, l);
    l->first = rest;
    while (l->first) {
        sqlite_take_group(l);
        sqlite_do_group(l);
        sqlite_answer_group(l);
    }
    ledger_db_close(l->reader);
    uv_close((uv_handle_t *)&l->timer, sqlite_on_handle_closed);
    uv_close((uv_handle_t *)&l->event, sqlite_on_handle_closed);
}

int ledger_open(uv_loop_t *loop, struct ledger_db *db, const struct ledger_watch *watch,
                struct ledger **ret_ledger, struct err *err) {
    static const struct ledger_backend ops = {.ask = sqlite_on_ask,
                                              .refresh = sqlite_refresh,
                                              .close = sqlite_close,
                                              .watch_workers = sqlite_watch_workers};
    struct ledger_db *reader = NULL;
    int rc = ledger_db_open_reader(db, &reader, err);
    if (rc < 0)
        return rc;
    struct writer *writer = writer_create(loop);
    if (!writer) {
        ledger_db_close(reader);
        return err_set(err, ERR_UNAVAILABLE, "there is no thread for the ledger");
    }
    struct sqlite *l = xcalloc(1, sizeof(*l));
    *l = (struct sqlite){.db = db,
                         .reader = reader,
                         .writer = writer,
                         .watch = *watch,
                         .seen = -1,
                         .last = &l->first,
                         .handles = 3};
    l->ledger = ledger_create(loop, &ops, l);
    (void)uv_timer_init(loop, &l->timer);
    (void)uv_fs_event_init(loop, &l->event);
    l->timer.data = l->event.data = l;
    bool watched = uv_fs_event_start(&l->event, sqlite_on_event, ledger_db_path(db), 0) == 0;
    unsigned ms = watched ? LEDGER_CONFIRM_MS : UNWATCHED_MS;
    if (!watched)
        log_warn("ledger.watch", "error", "there is no inotify: changes of keys are looked for");
    (void)uv_timer_start(&l->timer, sqlite_on_timer, ms, ms);
    rc = sqlite_tell(l, err);
    if (rc < 0) {
        ledger_close(l->ledger);
        return rc;
    }
    *ret_ledger = l->ledger;
    return 0;
}
