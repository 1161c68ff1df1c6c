#include "front/store/internal.h"

#include "base/clock.h"
#include "base/limits.h"
#include "front/store/files.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* PASSES over what has been written since the one before get the rest below a page or two; LOCK_US
 * is how long one waits at a time for the other connection's lock. */
enum { PASSES = 3, LOCK_US = 100, CARE_LOCK_TRIES = 50, WRITER_LOCK_TRIES = 50000 };
/* At a quarter of the limit: writing goes on while the log is put away. */
enum { MOST_PAGES = LIMIT_STORE_LOG_BYTES / 4096, LOG_PAGES = MOST_PAGES / 4 };
/* A disk that does not keep up slows down who writes, from half of the limit on: hardly at first,
 * and so much near the limit that seconds of the disk's are only a few more pages. */
enum { SLOW_PAGES = MOST_PAGES / 2, SLOWER = 1200, SLOWEST_US = 50000 };
/* One step of deleting keeps others out for about a millisecond; then they have as long. */
enum { STEP_RUNS = 32, STEP_BYTES = 1 << 20, GIVE_WAY_US = 1000 };

enum {
    CARE_BEGIN,
    CARE_COMMIT,
    CARE_ROLLBACK,
    CARE_TOTAL,
    CARE_MOST_RUNS,
    CARE_MOST_BYTES,
    CARE_AGED,
    CARE_OLDEST,
    CARE_DELETE,
    CARE_WATCH,
    CARE_UNWATCH,
    CARE_UNUSED,
    CARE_FORGET_BLOB,
    CARE_DOOM_BLOB,
    CARE_BLOB,
};

/* The length is of no interest, but to tell it the text is read: now, not in the step that keeps
 * others out. */
#define FIND "SELECT id, bytes, length(detail) FROM "
/* The newest stays, so that no later one gets its rowid: run_watch goes by these. */
#define MAY_GO "status <> 'running' AND rowid < (SELECT max(rowid) FROM runs)"

static const char *const sql[] = {
    [CARE_BEGIN] = "BEGIN IMMEDIATE",
    [CARE_COMMIT] = "COMMIT",
    [CARE_ROLLBACK] = "ROLLBACK",
    [CARE_TOTAL] = "SELECT coalesce(sum(runs), 0), coalesce(sum(bytes), 0) FROM run_sums",
    [CARE_MOST_RUNS] = "SELECT owner FROM run_sums ORDER BY runs DESC LIMIT 1",
    [CARE_MOST_BYTES] = "SELECT owner FROM run_sums ORDER BY bytes DESC LIMIT 1",
    [CARE_AGED] = FIND
    "runs WHERE rowid IN (SELECT rowid FROM runs WHERE rowid > 0 ORDER BY rowid LIMIT 1000)"
    " AND created_ms < ?1 AND " MAY_GO " ORDER BY rowid LIMIT ?2",
    [CARE_OLDEST] = STORE_KINDS_OF("?1") FIND
    "kinds CROSS JOIN runs ON owner = ?1 AND kind = its AND runs.rowid <= coalesce((SELECT rowid"
    " FROM runs AS r WHERE r.owner = ?1 AND r.kind = its AND r.status <> 'running'"
    " ORDER BY r.rowid LIMIT 1 OFFSET ?2 - 1), 9223372036854775807) AND runs." MAY_GO
    " ORDER BY runs.rowid LIMIT ?2",
    [CARE_DELETE] = "DELETE FROM runs WHERE id = ?1 AND " MAY_GO,
    [CARE_WATCH] = "INSERT INTO run_watch SELECT rowid FROM runs"
                   " WHERE rowid > (SELECT max(run) FROM run_watch)"
                   " AND (status = 'running' OR rowid = (SELECT max(rowid) FROM runs))",
    [CARE_UNWATCH] = "DELETE FROM run_watch WHERE run < (SELECT max(run) FROM run_watch)"
                     " AND NOT EXISTS (SELECT 1 FROM runs WHERE rowid = run"
                     " AND status = 'running')",
    /* With a bucket, what is there has to be removed there first. */
    [CARE_UNUSED] = "SELECT hash FROM blobs WHERE uses = 0 AND hash > ''"
                    " AND (stored <> 2 OR NOT ?1) LIMIT 32",
    [CARE_DOOM_BLOB] = "UPDATE blobs SET stored = 2 WHERE hash = ?1 AND uses = 0"
                       " AND stored IN (1, 3)",
    [CARE_FORGET_BLOB] = "DELETE FROM blobs WHERE hash = ?1 AND uses = 0",
    [CARE_BLOB] = "SELECT 1 FROM blobs WHERE hash = ?1",
};

const struct store_statements store_care_statements = {sql, ARRAY_LEN(sql)};

/* SQLite's own way to wait sleeps for whole milliseconds, which a lock of microseconds is not
 * worth. */
static int store_care_on_busy(void *tries, int n) {
    if (n >= *(const int *)tries)
        return 0;
    (void)usleep(LOCK_US);
    return 1;
}

static int store_care_on_commit(void *ctx, sqlite3 *db, const char *name, int pages) {
    (void)db;
    (void)name;
    struct store *s = ctx;
    atomic_store(&s->log_pages, pages);
    return SQLITE_OK;
}

static int store_care_on_care_commit(void *ctx, sqlite3 *db, const char *name, int pages) {
    (void)db;
    (void)name;
    struct store *s = ctx;
    s->care_log_pages = pages;
    return SQLITE_OK;
}

void store_care_init(struct store *s) {
    static const int writer_tries = WRITER_LOCK_TRIES;
    static const int care_tries = CARE_LOCK_TRIES;
    s->care_at_pages = LOG_PAGES;
    (void)sqlite3_busy_handler(s->db, store_care_on_busy, (void *)(uintptr_t)&writer_tries);
    (void)sqlite3_busy_handler(s->care_db, store_care_on_busy, (void *)(uintptr_t)&care_tries);
    (void)sqlite3_wal_hook(s->db, store_care_on_commit, s);
    (void)sqlite3_wal_hook(s->care_db, store_care_on_care_commit, s);
}

bool store_wants_care(struct store *s) {
    int pages = atomic_load(&s->log_pages);
    if (pages < s->care_at_pages - LOG_PAGES)
        s->care_at_pages = LOG_PAGES; /* it began from the front again */
    if (pages < s->care_at_pages)
        return false;
    s->care_at_pages = pages + LOG_PAGES; /* should this time be in vain */
    return true;
}

bool store_log_is_stuck(const struct store *s) {
    return s->log_pages > MOST_PAGES;
}

void store_care_give_way(struct store *s) {
    int64_t beyond = s->log_pages - SLOW_PAGES;
    if (atomic_load_explicit(&s->care_waits, memory_order_relaxed))
        (void)usleep(2 * LOCK_US);
    else if (beyond > 0 && atomic_load_explicit(&s->care_moves, memory_order_relaxed))
        (void)usleep((useconds_t)MIN(beyond * beyond / SLOWER, SLOWEST_US));
}

void store_care_end(struct store *s) {
    atomic_store(&s->care_over, true);
}

/* --- the log --- */

/* The log can begin from the front again only when all of it is in the database, and a checkpoint
 * that lets others write never gets there while they do: each time it is done there is a little
 * more. So others are kept out for the last little; because that waits for the disk, only when the
 * log is long. */
static void store_care_checkpoint(struct store *s) {
    int pages = 0;
    int done = 0;
    atomic_store(&s->care_moves, true);
    for (int i = 0; i < PASSES; i++) {
        (void)sqlite3_wal_checkpoint_v2(s->care_db, NULL, SQLITE_CHECKPOINT_PASSIVE, &pages, &done);
        if (pages == done)
            break;
    }
    if (pages >= LOG_PAGES) {
        atomic_store(&s->care_waits, true);
        (void)sqlite3_wal_checkpoint_v2(s->care_db, NULL, SQLITE_CHECKPOINT_RESTART, NULL, NULL);
        atomic_store(&s->care_waits, false);
    }
    atomic_store(&s->care_moves, false);
    s->care_log_pages = 0;
}

/* --- what is kept --- */

struct step {
    char ids[STEP_RUNS][ID_SIZE];
    size_t n;
    int64_t bytes;
};

/* The rest of the statement's rows, up to what one step may take. */
static int read_step(struct store *s, sqlite3_stmt *st, int64_t most, struct step *step,
                     struct err *err) {
    *step = (struct step){0};
    store_bind_int(st, 2, MIN(most, STEP_RUNS));
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && step->bytes < STEP_BYTES) {
        store_column_id(st, 0, step->ids[step->n++]);
        step->bytes += sqlite3_column_int64(st, 1);
    }
    int e = rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : store_error(s->care_db, err, "find runs");
    (void)sqlite3_reset(st);
    return e;
}

static int find_aged(struct store *s, struct step *step, struct err *err) {
    sqlite3_stmt *st = store_read_statement(s, STORE_CARE, CARE_AGED);
    store_bind_int(st, 1, clock_wall_ms() - s->settings.keep_s * 1000);
    return read_step(s, st, STEP_RUNS, step, err);
}

int store_totals(struct store *s, struct store_totals *ret, struct err *err) {
    sqlite3_stmt *st = store_read_statement(s, STORE_CARE, CARE_TOTAL);
    int rc = sqlite3_step(st) == SQLITE_ROW ? 0 : store_error(s->care_db, err, "count runs");
    *ret = (struct store_totals){sqlite3_column_int64(st, 0), sqlite3_column_int64(st, 1)};
    (void)sqlite3_reset(st);
    return rc;
}

/* Of the owner that has the most: what one key does in plenty does not cost others their records.
 */
static int find_beyond(struct store *s, struct step *step, struct err *err) {
    struct store_totals now;
    int rc = store_totals(s, &now, err);
    int64_t runs = now.runs - s->settings.keep_runs;
    int64_t bytes = now.bytes - (s->settings.keep_mb << 20);
    *step = (struct step){0};
    if (rc < 0 || (runs <= 0 && bytes <= 0))
        return rc;
    char owner[ID_SIZE] = "";
    sqlite3_stmt *st =
        store_read_statement(s, STORE_CARE, bytes > 0 ? CARE_MOST_BYTES : CARE_MOST_RUNS);
    if (sqlite3_step(st) == SQLITE_ROW)
        store_column_id(st, 0, owner);
    (void)sqlite3_reset(st);
    st = store_read_statement(s, STORE_CARE, CARE_OLDEST);
    store_bind_str(st, 1, owner);
    return read_step(s, st, bytes > 0 ? STEP_RUNS : runs, step, err);
}

static int delete_step(struct store *s, const struct step *step, struct err *err) {
    int rc = store_step(store_read_statement(s, STORE_CARE, CARE_BEGIN), "delete runs", NULL, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; rc == 0 && i < step->n; i++) {
        sqlite3_stmt *st = store_read_statement(s, STORE_CARE, CARE_DELETE);
        store_bind_str(st, 1, step->ids[i]);
        rc = store_step(st, "delete a run", NULL, err);
    }
    if (rc == 0)
        rc = store_step(store_read_statement(s, STORE_CARE, CARE_COMMIT), "delete runs", NULL, err);
    if (rc < 0)
        (void)store_step(store_read_statement(s, STORE_CARE, CARE_ROLLBACK), "delete runs", NULL,
                         NULL);
    return rc;
}

static int forget_runs(struct store *s, struct err *err) {
    while (!atomic_load(&s->care_over)) {
        struct step step;
        int rc = find_aged(s, &step, err);
        if (rc == 0 && step.n == 0)
            rc = find_beyond(s, &step, err);
        if (rc == 0 && step.n > 0)
            rc = delete_step(s, &step, err);
        if (rc < 0 || step.n == 0)
            return rc;
        if (s->care_log_pages >= LOG_PAGES)
            store_care_checkpoint(s);
        (void)usleep(GIVE_WAY_US);
    }
    return 0;
}

/* Has others give way meanwhile. One who does not is no fault: there is a next time. */
static int store_care_write_now(struct store *s, int which, const char *what, struct err *err) {
    atomic_store(&s->care_waits, true);
    int rc = store_step(store_read_statement(s, STORE_CARE, which), what, NULL, err);
    bool busy = rc < 0 && sqlite3_errcode(s->care_db) == SQLITE_BUSY;
    atomic_store(&s->care_waits, false);
    return busy ? 0 : rc;
}

/* So that a start after a crash need not look at all runs. */
static int watch_runs(struct store *s, struct err *err) {
    int rc = store_care_write_now(s, CARE_WATCH, "watch runs", err);
    return rc < 0 ? rc : store_care_write_now(s, CARE_UNWATCH, "watch runs", err);
}

/* --- files of artifacts --- */

/* In a transaction: who adds one renames its file in one. */
static int forget_blob(struct store *s, const char *hash, struct err *err) {
    int64_t doomed = 0;
    int rc = 0;
    files_delete(s->files, hash);
    if (*s->settings.bucket_url) {
        sqlite3_stmt *st = store_read_statement(s, STORE_CARE, CARE_DOOM_BLOB);
        store_bind_str(st, 1, hash);
        rc = store_step(st, "forget an artifact", &doomed, err);
    }
    if (rc < 0 || doomed > 0)
        return rc;
    sqlite3_stmt *st = store_read_statement(s, STORE_CARE, CARE_FORGET_BLOB);
    store_bind_str(st, 1, hash);
    return store_step(st, "forget an artifact", NULL, err);
}

static size_t read_unused(struct store *s, char hashes[STEP_RUNS][65]) {
    size_t n = 0;
    sqlite3_stmt *st = store_read_statement(s, STORE_CARE, CARE_UNUSED);
    store_bind_int(st, 1, *s->settings.bucket_url != 0);
    while (n < STEP_RUNS && sqlite3_step(st) == SQLITE_ROW)
        (void)snprintf(hashes[n++], 65, "%s", (const char *)sqlite3_column_text(st, 0));
    (void)sqlite3_reset(st);
    return n;
}

static bool store_care_is_known(void *ctx, const char *hash) {
    struct store *s = ctx;
    sqlite3_stmt *st = store_read_statement(s, STORE_CARE, CARE_BLOB);
    store_bind_str(st, 1, hash);
    bool known = sqlite3_step(st) != SQLITE_DONE; /* or it cannot be told */
    (void)sqlite3_reset(st);
    return known;
}

static int care_for_files(struct store *s, struct err *err) {
    char hashes[STEP_RUNS][65];
    bool sweeps = s->swept < FILES_PARTS;
    if (atomic_load(&s->files) < 0)
        return 0; /* there has never been one */
    size_t n = read_unused(s, hashes);
    if (n == 0 && !sweeps)
        return 0;
    int rc = store_care_write_now(s, CARE_BEGIN, "forget artifacts", err);
    if (rc < 0 || sqlite3_get_autocommit(s->care_db))
        return rc;
    n = read_unused(s, hashes); /* now nobody changes it */
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = forget_blob(s, hashes[i], err);
    if (sweeps)
        files_sweep(s->files, s->swept++, store_care_is_known, s);
    if (rc == 0)
        rc = store_step(store_read_statement(s, STORE_CARE, CARE_COMMIT), "forget artifacts", NULL,
                        err);
    if (rc < 0)
        (void)store_step(store_read_statement(s, STORE_CARE, CARE_ROLLBACK), "forget artifacts",
                         NULL, NULL);
    return rc < 0 ? rc : n == STEP_RUNS;
}

int store_care(struct store *s, struct err *err) {
    int rc = watch_runs(s, err);
    if (rc == 0)
        rc = forget_runs(s, err);
    int more = 1;
    while (rc == 0 && more > 0 && !atomic_load(&s->care_over)) {
        more = care_for_files(s, err);
        rc = MIN(more, 0);
    }
    store_care_checkpoint(s);
    return rc;
}
