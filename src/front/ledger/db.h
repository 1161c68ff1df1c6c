#pragma once
/* The ledger's SQLite file, synchronous: for the back end (sqlite.c), for `cay key`, and for tests.
 * A file of its own, apart from the store's: what another process changes in it can be noticed by
 * a look at its version, without the store's own writes in between. */

#include "front/ledger/ledger.h"

/* "ledger.db" in the folder. The keys that the store of an earlier cay has ("cay.db") are taken
 * over when it is made. */
int ledger_db_open(const char *data_dir, struct ledger_db **ret_db, struct err *err);
void ledger_db_close(struct ledger_db *db);
/* In memory, for tests, with a clock of theirs. */
int ledger_db_memory(int64_t (*now_ms)(void), struct ledger_db **ret_db, struct err *err);
/* A second connection to the file of another, for another thread: the versions and lists below may
 * be read by it, and nothing can be asked. */
int ledger_db_open_reader(const struct ledger_db *of, struct ledger_db **ret_db, struct err *err);

struct ledger_item {
    const struct ledger_ask *ask;
    struct ledger_answer answer;
};
/* Does what is asked, in order, in one transaction: on the disk when this returns. If one cannot be
 * done with the others (it fails halfway, or all of them cannot be written), each has a transaction
 * of its own. */
void ledger_db_group(struct ledger_db *db, struct ledger_item *items, size_t n);
/* The same for one. */
void ledger_db_do(struct ledger_db *db, const struct ledger_ask *ask,
                  struct ledger_answer *ret_answer);
/* Changes when another connection has written. Negative: it cannot be read. */
int64_t ledger_db_version(struct ledger_db *db);
/* The file's path: it is touched after each change of the keys, for those who watch it. Its log
 * changes before a commit can be seen. */
const char *ledger_db_path(const struct ledger_db *db);

/* Tells a server that runs on the file that something was changed: for another process. */
void ledger_db_touch(const struct ledger_db *db);
/* All keys, or the valid ones; oldest first. */
int ledger_db_key_list(struct ledger_db *db, bool valid,
                       void (*on_key)(void *ctx, const struct ledger_key *key), void *ctx,
                       struct err *err);
/* The valid ones as an array that the caller owns. */
int ledger_db_keys(struct ledger_db *db, struct ledger_key **ret_keys, size_t *ret_n,
                   struct err *err);
/* Grows with every change of the keys. Negative: it cannot be read. */
int64_t ledger_db_key_version(struct ledger_db *db);

/* The workers that the store of an earlier cay has (store_path: its "cay.db", open or not) are
 * taken over, and are the store's no more. For the server alone, before it serves. Cut off at any
 * moment, it loses none, and is done again. */
int ledger_db_take_workers(struct ledger_db *db, const char *store_path, struct err *err);
/* All of them without their code, as an array that the caller owns. */
int ledger_db_workers(struct ledger_db *db, struct ledger_worker **ret_workers, size_t *ret_n,
                      struct err *err);
/* Negative: it cannot be read. */
int64_t ledger_db_worker_version(struct ledger_db *db);
