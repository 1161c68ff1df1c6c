#pragma once
/* API keys: "cay_" + the key's id + "_" + a secret. The ledger has only the SHA-256 of the whole;
 * the secret has 160 random bits, so no slow hash is needed.
 *
 * The keyring is the front's copy of the keys that are valid: every request is checked against it,
 * without a call of the ledger, which tells it what changes. When the ledger has been silent for
 * too long, nobody gets in until it is back. */

#include "base/err.h"
#include "base/json.h"
#include "front/ledger/ledger.h"

#include <stdbool.h>

#define KEY_TEXT_SIZE   96
#define KEY_GRANTS_SIZE 2048

/* What a key may do; each includes the ones before it. */
enum key_scope { KEY_SCOPE_READ, KEY_SCOPE_RUN, KEY_SCOPE_ADMIN };

bool key_scope_parse(const char *text, enum key_scope *ret_scope);

/* Who asks: a key, or the operator on this machine. */
struct identity {
    bool operator_;
    char key_id[ID_SIZE];  /* "" for the operator */
    char project[ID_SIZE]; /* whose data it may use; "" for the default project */
    char name[64];
    enum key_scope scope;
    bool server; /* an admin of the whole server: may see and change what other projects have */
    struct ledger_limits limits;
    struct ledger_limits project_limits;
    char grants[KEY_GRANTS_SIZE]; /* JSON {"facets":[names],"workers":..,"routes":..,"binds":..}, or
                                     "": all */
};

/* The operator, who needs no key. */
struct identity key_operator(void);

/* What a key may have of the operator's and of its own, by name; NULL: all. One that may not spend
 * without limit in a day has all but the routes to models, unless it is granted what it may have by
 * name: what a sandbox spends by a route of its own is not put down for its key. Grants that cannot
 * be read grant nothing. */
json_t *key_grants(const struct identity *who);
/* True for grants that name it ("facets", "workers", "routes", "binds"), and for none. */
bool key_is_granted(const json_t *grants, const char *kind, const char *name);
/* Whether it, or its project, has a limit of tokens or dollars a day. */
bool key_has_budget(const struct identity *who);
/* Whether a route to a model may be among what is granted without a name. */
bool key_may_spend(const json_t *grants);

/* Limits as people write them. Each 0: no limit. */
struct limits_request {
    int64_t rate_per_minute;
    int64_t max_jobs; /* at a time */
    int64_t tokens_per_day;
    double usd_per_day;
};
int limits_read(const struct limits_request *request, struct ledger_limits *ret, struct err *err);

struct key_request {
    const char *name;
    const char *scope;
    struct limits_request limits;
    const char *grants; /* NULL: all that its project has */
    int64_t expires_ms; /* 0: never */
};

/* ERR_BAD_REQUEST unless it can be the name of a key or a project; `what` says which in the error.
 */
int key_check_name(const char *what, const char *name, struct err *err);
/* The same for a project, whose name must not look like an id either. */
int project_check_name(const char *name, struct err *err);

/* Makes a key that nobody knows yet, and its text, which is shown once and never again. */
int key_make(const struct key_request *request, char ret_text[KEY_TEXT_SIZE],
             struct ledger_key *ret_key, struct err *err);

/* A new secret for a key: its text, and the hash that the ledger keeps. */
void key_new_secret(const char *id, char ret_text[KEY_TEXT_SIZE],
                    unsigned char ret_hash[LEDGER_HASH_SIZE]);

struct keyring;
/* now_ms: clock_mono_ms, but for tests; wall_ms: clock_wall_ms. */
struct keyring *keyring_create(int64_t (*now_ms)(void), int64_t (*wall_ms)(void));
void keyring_destroy(struct keyring *k);
/* For ledger_open(). */
struct ledger_watch keyring_watch(struct keyring *k);
/* How it asks the ledger to tell or confirm, before it refuses everybody. */
void keyring_on_stale(struct keyring *k, void (*look)(void *ctx), void *ctx);
/* Called after the set of valid keys has changed; it may be inside any call of the ledger. */
void keyring_on_change(struct keyring *k, void (*on_change)(void *ctx), void *ctx);
/* False while the ledger is silent: nobody knows which keys are valid. */
bool keyring_is_current(struct keyring *k);
size_t keyring_count(const struct keyring *k);
/* The keys that were used since the last call, at most max of them. */
size_t keyring_take_uses(struct keyring *k, struct ledger_key_use *uses, size_t max);

/* ERR_UNAUTHORIZED unless the text is a valid key; ERR_UNAVAILABLE if the ledger is silent. */
int key_check(struct keyring *k, const char *text, struct identity *ret_identity, struct err *err);
/* The identity of a valid key by its id; ERR_UNAUTHORIZED if it was revoked. */
int key_identity(struct keyring *k, const char *key_id, struct identity *ret_identity,
                 struct err *err);
