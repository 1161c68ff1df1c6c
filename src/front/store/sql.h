#pragma once
/* Small helpers around SQLite's prepared statements, for the store and for the ledger. */

#include "base/err.h"
#include "base/id.h"

#include <stdint.h>

struct sqlite3;
struct sqlite3_stmt;

/* Right after a call that failed: whether it was for want of room on the disk. */
bool store_is_full(struct sqlite3 *db);
/* The connection's last failure. */
int store_error(struct sqlite3 *db, struct err *err, const char *what);
/* Fails if the file has no bytes while the one beside it has some: SQLite would begin a new
 * database there without a word. A file that is not there is a new one. */
int store_check_emptied(const char *path, const char *beside, const char *lost, struct err *err);
/* A database that could not be set up leaves no file without bytes, which would be taken for that.
 */
void store_remove_empty(const char *path);
/* Runs statements that return no rows. */
int store_exec(struct sqlite3 *db, const char *sql, struct err *err, const char *what);
/* PRAGMA user_version; negative if it cannot be read. */
int store_version(struct sqlite3 *db);
/* Runs the migrations that the file lacks, in one transaction; PRAGMA user_version counts them.
 * after, which may be NULL, is called inside it, when some have run, with the version before. */
int store_migrate(struct sqlite3 *db, const char *const *migrations, int latest,
                  int (*after)(void *ctx, int from, struct err *err), void *ctx, struct err *err);
/* Runs a statement that returns no rows; ret_changes may be NULL. */
int store_step(struct sqlite3_stmt *st, const char *what, int64_t *ret_changes, struct err *err);
/* NULL leaves it null. */
void store_bind_str(struct sqlite3_stmt *st, int i, const char *v);
void store_bind_int(struct sqlite3_stmt *st, int i, int64_t v);
char *store_column_dup(struct sqlite3_stmt *st, int i);
void store_column_id(struct sqlite3_stmt *st, int i, char out[ID_SIZE]);
