#pragma once
/* What the files of the ledger's SQLite file share: one per subject, each with its statements. */

#include "base/cleanup.h"
#include "front/ledger/db.h"
#include "front/store/sql.h"

enum ledger_subject { LEDGER_OWN, LEDGER_KEYS, LEDGER_SUBJECTS };

struct ledger_statements {
    const char *const *sql;
    size_t n;
};
extern const struct ledger_statements ledger_key_statements;

struct ledger_db {
    struct sqlite3 *db;
    char *path;
    struct sqlite3_stmt **statements[LEDGER_SUBJECTS];
};

/* The statement, fresh. */
struct sqlite3_stmt *ledger_ready(struct ledger_db *db, enum ledger_subject subject, int which);
/* Tells who watches the file that something was committed. */
void ledger_touch(const struct ledger_db *db);
