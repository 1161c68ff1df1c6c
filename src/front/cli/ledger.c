#include "front/cli/ledger.h"

#include "base/mem.h"
#include "base/path.h"
#include "front/cli/cli.h"
#include "front/config/config.h"

#include <stdlib.h>
#include <sys/stat.h>

/* A data folder is made for the first key, and for nothing else. */
static int cli_ledger_open_folder(const char *dir, bool make, struct err *err) {
    struct stat st;
    if (make)
        return path_mkdirs(dir, 0700, err);
    if (stat(dir, &st) == 0)
        return 0;
    return err_set(err, ERR_NOT_FOUND, "there is no data folder %s: name the server's (--data-dir)",
                   dir);
}

int cli_ledger_open(const char *command, const char *config, const char *data_dir, bool make,
                    struct ledger_db **ret_db, struct err *err) {
    struct config c;
    config_init(&c);
    int rc = cli_config_load(&c, command, config, data_dir ? CLI_SETTINGS_READ : CLI_SETTINGS_WRITE,
                             err);
    if (rc == 0 && data_dir) {
        free(c.data_dir);
        c.data_dir = xstrdup(data_dir);
    }
    if (rc == 0) {
        config_defaults(&c);
        rc = cli_ledger_open_folder(c.data_dir, make, err);
    }
    if (rc == 0)
        rc = cli_become_owner(c.data_dir, err);
    if (rc == 0)
        rc = ledger_db_open(c.data_dir, ret_db, err);
    config_finish(&c);
    return rc;
}

int cli_ledger_ask(struct ledger_db *db, const struct ledger_ask *ask, struct ledger_answer *ret,
                   struct err *err) {
    struct ledger_answer answer;
    ledger_db_do(db, ask, &answer);
    if (answer.err.code) {
        *err = answer.err;
        return -(int)err->code;
    }
    ledger_db_touch(db);
    *ret = answer;
    return 0;
}
