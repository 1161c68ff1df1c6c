#include "front/store/internal.h"

#include "base/limits.h"

#include <sqlite3.h>
#include <unistd.h>

/* PASSES over what has been written since the one before get the rest below a page or two; LOCK_US
 * is how long one waits at a time for the other connection's lock. */
enum { PASSES = 3, LOCK_US = 100, CARE_LOCK_TRIES = 50, LOOP_LOCK_TRIES = 50000 };
/* At half of the limit: writing goes on while the log is put away. */
enum { LOG_PAGES = LIMIT_STORE_LOG_BYTES / 2 / 4096 };

/* SQLite's own way to wait sleeps for whole milliseconds, which a lock of microseconds is not
 * worth. */
static int on_busy(void *tries, int n) {
    if (n >= *(const int *)tries)
        return 0;
    (void)usleep(LOCK_US);
    return 1;
}

static int on_commit(void *ctx, sqlite3 *db, const char *name, int pages) {
    (void)db;
    (void)name;
    struct store *s = ctx;
    if (pages < s->log_pages)
        s->care_at_pages = LOG_PAGES; /* it began from the front again */
    s->log_pages = pages;
    return SQLITE_OK;
}

void store_care_init(struct store *s) {
    static const int loop_tries = LOOP_LOCK_TRIES;
    static const int care_tries = CARE_LOCK_TRIES;
    s->care_at_pages = LOG_PAGES;
    (void)sqlite3_busy_handler(s->db, on_busy, (void *)(uintptr_t)&loop_tries);
    (void)sqlite3_busy_handler(s->care_db, on_busy, (void *)(uintptr_t)&care_tries);
    (void)sqlite3_wal_hook(s->db, on_commit, s);
}

bool store_wants_care(struct store *s) {
    if (s->log_pages < s->care_at_pages)
        return false;
    s->care_at_pages = s->log_pages + LOG_PAGES; /* should this time be in vain */
    return true;
}

/* The log can begin from the front again only when all of it is in the database, and a checkpoint
 * that lets others write never gets there while they do: each time it is done there is a little
 * more. So others are kept out for the last little; because that waits for the disk, only when the
 * log is long. */
static void checkpoint(struct store *s) {
    int pages = 0;
    int done = 0;
    for (int i = 0; i < PASSES; i++) {
        (void)sqlite3_wal_checkpoint_v2(s->care_db, NULL, SQLITE_CHECKPOINT_PASSIVE, &pages, &done);
        if (pages == done)
            break;
    }
    if (pages >= LOG_PAGES)
        (void)sqlite3_wal_checkpoint_v2(s->care_db, NULL, SQLITE_CHECKPOINT_RESTART, NULL, NULL);
}

void store_care(struct store *s) {
    checkpoint(s);
}
