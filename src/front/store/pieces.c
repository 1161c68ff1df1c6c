#include "front/store/pieces.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "front/store/sql.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_KEPT = 1, TEXT_DROPPED }; /* 0: it is being written */

enum { RECOVER, BEGIN, ADD, SET_STATE, READ, DROPPED, REMOVE_PIECE, REMOVE_TEXT, STATEMENTS };

static const char *const sql[STATEMENTS] = {
    [RECOVER] = "UPDATE texts SET state = 2 WHERE state = 0",
    [BEGIN] = "INSERT INTO texts (state) VALUES (0)",
    [ADD] = "INSERT INTO text_pieces VALUES (?1, ?2)",
    [SET_STATE] = "UPDATE texts SET state = ?2 WHERE id = ?1",
    [READ] = "SELECT piece FROM text_pieces WHERE id = ?1",
    [DROPPED] = "SELECT id FROM texts WHERE state = 2 ORDER BY id LIMIT 1",
    [REMOVE_PIECE] = ("DELETE FROM text_pieces WHERE id = (SELECT max(id) FROM text_pieces "
                      "WHERE id >= ?1 AND id < ?2)"),
    [REMOVE_TEXT] = "DELETE FROM texts WHERE id = ?1",
};

struct pieces {
    sqlite3_stmt *statements[STATEMENTS];
};

static sqlite3_stmt *ready(struct pieces *p, int which, int64_t first) {
    sqlite3_stmt *st = p->statements[which];
    (void)sqlite3_reset(st);
    (void)sqlite3_clear_bindings(st);
    if (sqlite3_bind_parameter_count(st) > 0)
        store_bind_int(st, 1, first);
    errno = 0; /* for store_error() */
    return st;
}

static int64_t place_of(int64_t text, size_t n) {
    return text * PIECES_MAX + (int64_t)n;
}

int pieces_open(struct sqlite3 *db, struct pieces **ret_pieces, struct err *err) {
    struct pieces *p = xcalloc(1, sizeof(*p));
    for (int i = 0; i < STATEMENTS; i++)
        if (sqlite3_prepare_v3(db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &p->statements[i],
                               NULL) != SQLITE_OK) {
            (void)store_error(db, err, sql[i]);
            pieces_close(p);
            return -(int)err->code;
        }
    *ret_pieces = p;
    return 0;
}

void pieces_close(struct pieces *p) {
    if (!p)
        return;
    for (int i = 0; i < STATEMENTS; i++)
        (void)sqlite3_finalize(p->statements[i]);
    free(p);
}

int pieces_recover(struct pieces *p, struct err *err) {
    return store_step(ready(p, RECOVER, 0), "look for texts that were cut off", NULL, err);
}

int pieces_begin(struct pieces *p, int64_t *ret_text, struct err *err) {
    sqlite3_stmt *st = ready(p, BEGIN, 0);
    int rc = store_step(st, "begin a text", NULL, err);
    if (rc == 0)
        *ret_text = sqlite3_last_insert_rowid(sqlite3_db_handle(st));
    return rc;
}

int pieces_add(struct pieces *p, int64_t text, size_t n, const void *data, size_t len,
               struct err *err) {
    if (n >= PIECES_MAX)
        return err_set(err, ERR_TOO_LARGE, "a text has at most %d pieces", PIECES_MAX);
    sqlite3_stmt *st = ready(p, ADD, place_of(text, n));
    (void)sqlite3_bind_blob64(st, 2, data, len, SQLITE_STATIC);
    return store_step(st, "write a piece of a text", NULL, err);
}

static int set_state(struct pieces *p, int64_t text, int state, struct err *err) {
    sqlite3_stmt *st = ready(p, SET_STATE, text);
    store_bind_int(st, 2, state);
    return store_step(st, "write a text", NULL, err);
}

int pieces_keep(struct pieces *p, int64_t text, struct err *err) {
    return set_state(p, text, TEXT_KEPT, err);
}

int pieces_drop(struct pieces *p, int64_t text, struct err *err) {
    return set_state(p, text, TEXT_DROPPED, err);
}

int pieces_read(struct pieces *p, int64_t text, size_t n, char out[PIECES_BYTES], size_t *ret_len,
                struct err *err) {
    sqlite3_stmt *st = ready(p, READ, place_of(text, n));
    int rc = n < PIECES_MAX ? sqlite3_step(st) : SQLITE_DONE;
    int e = rc == SQLITE_ROW    ? 0
            : rc == SQLITE_DONE ? err_set(err, ERR_NOT_FOUND, "a text has no piece %zu", n)
                                : store_error(sqlite3_db_handle(st), err, "read a text");
    if (e == 0) {
        const void *piece = sqlite3_column_blob(st, 0);
        size_t len = MIN((size_t)sqlite3_column_bytes(st, 0), (size_t)PIECES_BYTES);
        if (len > 0)
            memcpy(out, piece, len);
        *ret_len = len;
    }
    (void)sqlite3_reset(st);
    return e;
}

static int64_t first_dropped(struct pieces *p) {
    sqlite3_stmt *st = ready(p, DROPPED, 0);
    int64_t text = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    (void)sqlite3_reset(st);
    return text;
}

bool pieces_wants_sweep(struct pieces *p) {
    return first_dropped(p) != 0;
}

/* The last one first: what has none left has no place among the texts either. */
bool pieces_sweep(struct pieces *p) {
    struct err err;
    int64_t changes = 0;
    int64_t text = first_dropped(p);
    if (text == 0)
        return false;
    sqlite3_stmt *st = ready(p, REMOVE_PIECE, place_of(text, 0));
    store_bind_int(st, 2, place_of(text + 1, 0));
    int rc = store_step(st, "remove a piece of a text", &changes, &err);
    if (rc == 0 && changes == 0)
        rc = store_step(ready(p, REMOVE_TEXT, text), "remove a text", NULL, &err);
    return rc == 0; /* else it is tried with the next one that is dropped */
}
