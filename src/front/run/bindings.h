#pragma once
/* Bindings: what the names in a request's "env" stand for. This is the one place that turns
 * {"$facet": NAME} and {"$worker": ID} into capabilities, for runs, tasks and deployed workers
 * alike. It looks up itself what the key is granted now, so that no caller can leave that out. A
 * deployed worker is checked when it is put, whenever its isolate starts, and ends when the grants
 * of its key change. (Programs of an agent hold what its definition gives them: its own databases,
 * under names that clients cannot choose.) */

#include "front/ledger/keyring.h"
#include "front/run/code.h"

struct workers;

enum { DATABASE_NAME_MAX = 64 };

/* 1 to 64 letters, digits, "_" and "-": a folder. */
bool database_is_name(const char *name);
/* Its folder; owner "" is the operator. The caller frees. */
char *database_dir(const char *data_dir, const char *owner, const char *name);

struct bindings {
    struct keyring *keys; /* NULL: only the operator has any */
    const char *data_dir;
    const struct facet_open *facet_open; /* how the databases are opened */
    struct workers *workers;
};

/* owner: the project; key: whose grants hold, "" for the operator. The code must outlive the
 * result; a guest that gets it may take texts of it. ERR_FORBIDDEN names what the key may not use.
 * b NULL: no server is there, and an env holds plain values only. */
int bindings_make(const struct bindings *b, const char *owner, const char *key, struct code *c,
                  struct env *ret_env, struct err *err);
