#include "front/store/wal.h"

#include "base/cleanup.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A frame of the log: a head, of which the second word is not 0 in the last one of a transaction,
 * and a page. SQLite's own files take less than 128 KiB at a time. */
enum { FRAME_HEAD = 24, ROOM_FIRST = 32 << 10, ROOM_MAX = 64 << 10 };

/* A log. Frames gather until the last one of a transaction, whose write tells whether
 * all could be written; nobody looks for them before. Anything else that is done with the file has
 * them written first. */
struct wal_file {
    sqlite3_file base;
    sqlite3_file *real; /* behind this one */
    char *frames;
    size_t len;
    size_t room;
    sqlite3_int64 at;      /* where they belong */
    sqlite3_int64 read_at; /* the last place that was read */
    bool in_frame;         /* the last of them has no page yet */
    bool is_last;          /* of its transaction */
};

static struct wal_file *of(sqlite3_file *f) {
    return (struct wal_file *)f;
}

static void forget(struct wal_file *w) {
    free(w->frames);
    w->frames = NULL;
    w->len = w->room = 0;
    w->in_frame = false;
}

static int flush(struct wal_file *w) {
    int rc = SQLITE_OK;
    if (w->len > 0)
        rc = w->real->pMethods->xWrite(w->real, w->frames, (int)w->len, w->at);
    forget(w);
    return rc;
}

static bool make_room(struct wal_file *w, size_t len) {
    size_t room = w->room ? w->room : ROOM_FIRST;
    while (room < w->len + len)
        room *= 2;
    if (room == w->room)
        return true;
    char *frames = room > ROOM_MAX ? NULL : realloc(w->frames, room);
    if (!frames)
        return false;
    w->frames = frames;
    w->room = room;
    return true;
}

/* Heads alone are written too: SQLite reads a frame, and puts its sum right in place. Nothing would
 * come behind such a one, so it goes there at once. */
static bool is_next(const struct wal_file *w, int len, sqlite3_int64 at) {
    bool behind = w->len == 0 || at == w->at + (sqlite3_int64)w->len;
    if (w->in_frame)
        return behind && len >= 512 && (len & (len - 1)) == 0;
    return behind && len == FRAME_HEAD && at != w->read_at;
}

static int on_write(sqlite3_file *f, const void *data, int len, sqlite3_int64 at) {
    static const char zeros[4];
    struct wal_file *w = of(f);
    if (!is_next(w, len, at) || !make_room(w, (size_t)len)) {
        int rc = flush(w);
        return rc == SQLITE_OK ? w->real->pMethods->xWrite(w->real, data, len, at) : rc;
    }
    if (w->len == 0)
        w->at = at;
    memcpy(w->frames + w->len, data, (size_t)len);
    w->len += (size_t)len;
    w->in_frame = !w->in_frame;
    if (w->in_frame)
        w->is_last = memcmp((const char *)data + 4, zeros, sizeof(zeros)) != 0;
    return !w->in_frame && w->is_last ? flush(w) : SQLITE_OK;
}

/* --- what has them written first --- */

static int on_read(sqlite3_file *f, void *out, int len, sqlite3_int64 at) {
    struct wal_file *w = of(f);
    int rc = flush(w);
    w->read_at = at;
    return rc == SQLITE_OK ? w->real->pMethods->xRead(w->real, out, len, at) : rc;
}

static int on_truncate(sqlite3_file *f, sqlite3_int64 size) {
    struct wal_file *w = of(f);
    int rc = flush(w);
    return rc == SQLITE_OK ? w->real->pMethods->xTruncate(w->real, size) : rc;
}

static int on_sync(sqlite3_file *f, int flags) {
    struct wal_file *w = of(f);
    int rc = flush(w);
    return rc == SQLITE_OK ? w->real->pMethods->xSync(w->real, flags) : rc;
}

static int on_file_size(sqlite3_file *f, sqlite3_int64 *ret_size) {
    struct wal_file *w = of(f);
    int rc = flush(w);
    return rc == SQLITE_OK ? w->real->pMethods->xFileSize(w->real, ret_size) : rc;
}

static int on_close(sqlite3_file *f) {
    struct wal_file *w = of(f);
    (void)flush(w); /* of a transaction that was not finished */
    return w->real->pMethods->xClose(w->real);
}

/* --- what is passed on --- */

static int on_lock(sqlite3_file *f, int lock) {
    return of(f)->real->pMethods->xLock(of(f)->real, lock);
}

static int on_unlock(sqlite3_file *f, int lock) {
    return of(f)->real->pMethods->xUnlock(of(f)->real, lock);
}

static int on_check_lock(sqlite3_file *f, int *ret) {
    return of(f)->real->pMethods->xCheckReservedLock(of(f)->real, ret);
}

static int on_control(sqlite3_file *f, int op, void *arg) {
    return of(f)->real->pMethods->xFileControl(of(f)->real, op, arg);
}

static int on_sector_size(sqlite3_file *f) {
    return of(f)->real->pMethods->xSectorSize(of(f)->real);
}

static int on_characteristics(sqlite3_file *f) {
    return of(f)->real->pMethods->xDeviceCharacteristics(of(f)->real);
}

static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = on_close,
    .xRead = on_read,
    .xWrite = on_write,
    .xTruncate = on_truncate,
    .xSync = on_sync,
    .xFileSize = on_file_size,
    .xLock = on_lock,
    .xUnlock = on_unlock,
    .xCheckReservedLock = on_check_lock,
    .xFileControl = on_control,
    .xSectorSize = on_sector_size,
    .xDeviceCharacteristics = on_characteristics,
};

/* --- the files --- */

static sqlite3_vfs *base;

/* All but the log are SQLite's own. */
static int on_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *ret_flags) {
    (void)v;
    if (!(flags & SQLITE_OPEN_WAL))
        return base->xOpen(base, name, f, flags, ret_flags);
    struct wal_file *w = of(f);
    *w = (struct wal_file){.real = (sqlite3_file *)(w + 1), .read_at = -1};
    w->real->pMethods = NULL;
    int rc = base->xOpen(base, name, w->real, flags, ret_flags);
    if (rc == SQLITE_OK)
        w->base.pMethods = &methods;
    else if (w->real->pMethods)
        (void)w->real->pMethods->xClose(w->real);
    return rc;
}

static void make_vfs(void) {
    static sqlite3_vfs vfs;
    base = sqlite3_vfs_find(NULL);
    if (!base)
        return;
    vfs = *base;
    vfs.zName = "cay";
    vfs.pNext = NULL;
    vfs.szOsFile = (int)sizeof(struct wal_file) + base->szOsFile;
    vfs.xOpen = on_open;
    if (sqlite3_vfs_register(&vfs, 0) != SQLITE_OK)
        base = NULL;
}

const char *store_wal_vfs(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, make_vfs);
    return base ? "cay" : NULL;
}
