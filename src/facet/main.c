/* cay-facet: one SQLite database in one process, for holders that trust neither each other nor us.
 * See wire/facet.h for the contract and docs/facets.md for what it promises. */

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/json_table.h"
#include "base/limits.h"
#include "base/log.h"
#include "facet/db.h"
#include "facet/lock.h"
#include "facet/serve.h"
#include "wire/facet.h"
#include "wire/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int facet_main_set_up(int *ret_epoll, uint32_t *ret_landlock, struct err *err) {
    int keep[] = {FACET_CONTROL_FD, FACET_FOLDER_FD};
    fd_close_others(3, keep, ARRAY_LEN(keep));
    (void)umask(077);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    /* Past RLIMIT_FSIZE a write fails, and SQLite reports it. */
    (void)sigaction(SIGXFSZ, &ignore, NULL);
    serve_watch_install();
    *ret_epoll = serve_epoll();
    if (*ret_epoll < 0)
        return err_sys(err, "epoll");
    int rc = db_global_init(err);
    if (rc < 0 || (rc = facet_lock_process(err)) < 0)
        return rc;
    if (fchdir(FACET_FOLDER_FD) < 0)
        return err_sys(err, "descriptor %d is not a folder", FACET_FOLDER_FD);
    rc = facet_lock_folder(FACET_FOLDER_FD, ret_landlock, err);
    (void)close(FACET_FOLDER_FD);
    return rc < 0 ? rc : facet_lock_calls_while_opening(err);
}

/* Everything a facet may hold at once: SQLite's heap, the calls and results of its holders, and
 * what the program itself needs. Past it, allocation fails and the process ends. */
static uint64_t memory_of(const struct facet_limits *l) {
    return l->memory_bytes + 12 * l->call_bytes + 8 * l->result_bytes + (64U << 20);
}

/* The log of one transaction is at most as large as the database, and a little for its frames. */
static uint64_t facet_main_file_of(const struct facet_limits *l) {
    return l->disk_bytes + l->disk_bytes / 64 + (4U << 20);
}

static void facet_main_refuse(uint64_t id, const struct err *err) {
    struct buf b;
    buf_init(&b, 4096);
    facet_error_encode(&b, err);
    struct wire_out out = {.type = FACET_ERROR, .id = id, .pieces = {{b.data, b.len}}};
    (void)wire_send(FACET_CONTROL_FD, &out);
    buf_finish(&b);
}

static void facet_main_lower(uint64_t *limit, uint64_t usual, int64_t own) {
    if (own > 0)
        *limit = MIN(*limit ? *limit : usual, (uint64_t)own);
}

/* The limits of this database alone, if it has any: never above those of the front. */
static int facet_main_read_limits(struct facet_limits *l, struct err *err) {
    struct own_limits {
        int64_t rows, result_bytes, time_ms, disk_bytes, memory_bytes, calls_per_s;
    } own = {0};
    const struct json_field table[] = {
        JSON_INT("rows", struct own_limits, rows, 1, INT64_MAX),
        JSON_INT("result_bytes", struct own_limits, result_bytes, 1, INT64_MAX),
        JSON_INT("time_ms", struct own_limits, time_ms, 1, INT64_MAX),
        JSON_INT("disk_bytes", struct own_limits, disk_bytes, 1, INT64_MAX),
        JSON_INT("memory_bytes", struct own_limits, memory_bytes, 1, INT64_MAX),
        JSON_INT("calls_per_s", struct own_limits, calls_per_s, 1, INT64_MAX),
    };
    _cleanup_(buf) struct buf text;
    buf_init(&text, 4096);
    _cleanup_(json) json_t *j = NULL;
    struct stat st;
    if (fstatat(AT_FDCWD, FACET_LIMITS_FILE, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        return 0;
    int rc = fd_read_file(AT_FDCWD, FACET_LIMITS_FILE, &text, err);
    if (rc == 0)
        rc = json_parse(text.data ? text.data : "", text.len, FACET_LIMITS_FILE, &j, err);
    if (rc == 0)
        rc = json_table_read(table, ARRAY_LEN(table), j, FACET_LIMITS_FILE, &own, err);
    if (rc < 0)
        return err_set(err, ERR_INTERNAL, "the limits of the database cannot be read: set them");
    facet_main_lower(&l->rows, LIMIT_FACET_ROWS, own.rows);
    facet_main_lower(&l->result_bytes, LIMIT_FACET_RESULT_BYTES, own.result_bytes);
    facet_main_lower(&l->time_ms, LIMIT_FACET_TIME_MS, own.time_ms);
    facet_main_lower(&l->disk_bytes, LIMIT_FACET_DISK_BYTES, own.disk_bytes);
    facet_main_lower(&l->memory_bytes, LIMIT_FACET_MEMORY_BYTES, own.memory_bytes);
    facet_main_lower(&l->calls_per_s, UINT64_MAX, own.calls_per_s);
    return 0;
}

static int open_and_serve(struct wire_frame *f, uint32_t landlock, int epoll, struct err *err) {
    struct facet_open o;
    if (f->type != FACET_OPEN)
        return err_set(err, ERR_PROTOCOL, "the first message must be OPEN");
    if (facet_open_decode(f->data, f->len, &o, err) < 0)
        return -(int)err->code;
    if (facet_main_read_limits(&o.limits, err) < 0)
        return -(int)err->code;
    struct buf warnings;
    buf_init(&warnings, 64 * 1024);
    struct db db;
    bool fresh = false;
    db_init(&db, &o.limits);
    if (facet_lock_limits(memory_of(&db.limits), facet_main_file_of(&db.limits), err) < 0)
        return -(int)err->code;
    serve_watch_begin(DB_OPEN_TIME_MS);
    if (db_open(&db, &o, &fresh, &warnings, err) < 0)
        return -(int)err->code;
    serve_watch_end();
    if (facet_lock_calls(err) < 0)
        return -(int)err->code;
    struct serve_options options = {
        .control = FACET_CONTROL_FD,
        .open_id = f->id,
        .idle_ms = o.idle_ms,
        .opened = {.fresh = fresh, .landlock = landlock, .warnings = warnings.data},
    };
    facet_open_finish(&o);
    return serve_run(&db, epoll, &options);
}

/* Returns the exit status. */
static int facet_main_run(void) {
    struct err err;
    uint32_t landlock = 0;
    int epoll;
    if (facet_main_set_up(&epoll, &landlock, &err) < 0) {
        log_error("facet.setup", "message", err.message);
        return FACET_EXIT_SETUP;
    }
    struct wire_reader in;
    struct wire_frame f;
    wire_reader_init(&in, FACET_OPEN_MAX);
    int rc = wire_read(&in, FACET_CONTROL_FD, &f, &err);
    if (rc < 0)
        return rc == -ERR_CANCELLED ? FACET_EXIT_OK : FACET_EXIT_PROTOCOL;
    rc = open_and_serve(&f, landlock, epoll, &err);
    if (rc >= 0)
        return rc;
    facet_main_refuse(f.id, &err);
    return FACET_EXIT_SETUP;
}

int main(void) {
    log_init("cay-facet", LOG_LEVEL_INFO);
    /* Nothing is left to be done at exit, and a sanitizer's search for leaks cannot trace a process
     * that is locked. */
    _exit(facet_main_run());
}
