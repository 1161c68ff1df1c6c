#pragma once
/* The ledger of a data folder, for commands that change keys and projects on the server's machine.
 * A server that runs there hears of what they change. */

#include "front/ledger/db.h"

/* command: its name, in errors. make: the folder is made if there is none. */
int cli_ledger_open(const char *command, const char *config, const char *data_dir, bool make,
                    struct ledger_db **ret_db, struct err *err);
/* The answer is the caller's to finish. */
int cli_ledger_ask(struct ledger_db *db, const struct ledger_ask *ask, struct ledger_answer *ret,
                   struct err *err);
