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
    char key_id[ID_SIZE]; /* "" for the operator */
    char name[64];
    enum key_scope scope;
    int64_t rate_per_minute; /* each 0: no limit of its own */
    int64_t max_jobs;
    int64_t tokens_per_day;
    int64_t nusd_per_day;
    char grants[KEY_GRANTS_SIZE]; /* JSON {"facets":[names],"workers":..,"routes":..,"binds":..}, or
                                     "": all */
};

/* What a key may have of the operator's and of its own, by name; NULL: all. One that may not spend
 * without limit in a day has all but the routes to models, unless it is granted what it may have by
 * name: what a sandbox spends by a route of its own is not put down for its key. Grants that cannot
 * be read grant nothing. */
json_t *key_grants(const struct identity *who);
/* True for grants that name it ("facets", "workers", "routes", "binds"), and for none. */
bool key_is_granted(const json_t *grants, const char *kind, const char *name);
/* Whether a route to a model may be among what is granted without a name. */
bool key_may_spend(const json_t *grants);

struct key_request {
    const char *name;
    const char *scope;
    int64_t rate_per_minute; /* each 0: no limit */
    int64_t max_jobs;        /* at a time */
    int64_t tokens_per_day;
    double usd_per_day;
    const char *grants; /* NULL: whatever it makes itself */
};

/* Makes a key that nobody knows yet, and its text, which is shown once and never again. */
int key_make(const struct key_request *request, char ret_text[KEY_TEXT_SIZE],
             struct ledger_key *ret_key, struct err *err);

struct ledger_db;
/* The same, put down in the ledger. */
int key_create(struct ledger_db *db, const struct key_request *request,
               char ret_text[KEY_TEXT_SIZE], struct ledger_key *ret_key, struct err *err);

struct keyring;
/* now_ms: clock_mono_ms, but for tests. */
struct keyring *keyring_create(int64_t (*now_ms)(void));
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

/* ERR_UNAUTHORIZED unless the text is a valid key; ERR_UNAVAILABLE if the ledger is silent. */
int key_check(struct keyring *k, const char *text, struct identity *ret_identity, struct err *err);
/* The identity of a valid key by its id; ERR_UNAUTHORIZED if it was revoked. */
int key_identity(struct keyring *k, const char *key_id, struct identity *ret_identity,
                 struct err *err);
