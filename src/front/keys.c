#include "front/keys.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"
#include "base/utf8.h"
#include "front/digest.h"
#include "front/ledger/db.h"

#include <math.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SECRET_BYTES = 20, NAME_MAX_BYTES = 60, USD_PER_DAY_MAX = 1000000 };

static const char *const scopes[] = {"read", "run", "admin"};

bool key_scope_parse(const char *text, enum key_scope *ret_scope) {
    for (size_t i = 0; i < ARRAY_LEN(scopes); i++)
        if (strcmp(text, scopes[i]) == 0) {
            *ret_scope = (enum key_scope)i;
            return true;
        }
    return false;
}

static int check_request(const struct key_request *r, struct err *err) {
    enum key_scope scope;
    size_t n = strlen(r->name);
    if (n == 0 || n > NAME_MAX_BYTES)
        return err_set(err, ERR_BAD_REQUEST, "a key's name has 1 to %d bytes", NAME_MAX_BYTES);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)r->name[i] < ' ' || r->name[i] == 127)
            return err_set(err, ERR_BAD_REQUEST, "a key's name has no control characters");
    if (!utf8_is_valid(r->name, n))
        return err_set(err, ERR_BAD_REQUEST, "a key's name is UTF-8");
    if (!key_scope_parse(r->scope, &scope))
        return err_set(err, ERR_BAD_REQUEST, "a key's scope is read, run or admin");
    if (r->rate_per_minute < 0 || r->max_jobs < 0 || r->tokens_per_day < 0)
        return err_set(err, ERR_BAD_REQUEST, "a limit is not negative");
    if (!(r->usd_per_day >= 0 && r->usd_per_day <= USD_PER_DAY_MAX))
        return err_set(err, ERR_BAD_REQUEST, "dollars a day are from 0 to %d", USD_PER_DAY_MAX);
    if (r->grants && strlen(r->grants) >= KEY_GRANTS_SIZE)
        return err_set(err, ERR_TOO_LARGE, "a key's grants have at most %d bytes",
                       KEY_GRANTS_SIZE - 1);
    return 0;
}

int key_make(const struct key_request *request, char ret_text[KEY_TEXT_SIZE],
             struct ledger_key *ret_key, struct err *err) {
    int rc = check_request(request, err);
    if (rc < 0)
        return rc;
    struct ledger_key k = {.name = xstrdup(request->name),
                           .scope = xstrdup(request->scope),
                           .rate_per_minute = request->rate_per_minute,
                           .max_jobs = request->max_jobs,
                           .tokens_per_day = request->tokens_per_day,
                           .nusd_per_day = llround(request->usd_per_day * 1e9),
                           .grants = request->grants ? xstrdup(request->grants) : NULL,
                           .created_ms = clock_wall_ms()};
    id_new("key", k.id);
    unsigned char secret[SECRET_BYTES];
    rand_bytes(secret, sizeof(secret));
    int n = snprintf(ret_text, KEY_TEXT_SIZE, "cay_%s_", k.id + 4);
    for (size_t i = 0; i < sizeof(secret); i++)
        n += snprintf(ret_text + n, KEY_TEXT_SIZE - (size_t)n, "%02x", secret[i]);
    (void)SHA256((const unsigned char *)ret_text, (size_t)n, k.hash);
    mem_wipe(secret, sizeof(secret));
    *ret_key = k;
    return 0;
}

int key_create(struct ledger_db *db, const struct key_request *request,
               char ret_text[KEY_TEXT_SIZE], struct ledger_key *ret_key, struct err *err) {
    struct ledger_key k;
    int rc = key_make(request, ret_text, &k, err);
    if (rc < 0)
        return rc;
    rc = ledger_db_key_add(db, &k, err);
    if (rc < 0) {
        ledger_key_finish(&k);
        return rc;
    }
    *ret_key = k;
    return 0;
}

static int refuse(struct err *err) {
    return err_set(err, ERR_UNAUTHORIZED,
                   "that is not a valid key; `cay key create` makes one on the server's machine");
}

static void fill(const struct ledger_key *k, struct identity *id) {
    *id = (struct identity){.rate_per_minute = k->rate_per_minute,
                            .max_jobs = k->max_jobs,
                            .tokens_per_day = k->tokens_per_day,
                            .nusd_per_day = k->nusd_per_day};
    (void)snprintf(id->key_id, sizeof(id->key_id), "%s", k->id);
    (void)snprintf(id->name, sizeof(id->name), "%s", k->name);
    (void)snprintf(id->grants, sizeof(id->grants), "%s", k->grants ? k->grants : "");
    if (!key_scope_parse(k->scope, &id->scope))
        id->scope = KEY_SCOPE_READ;
}

/* --- the copy --- */

struct keyring {
    struct ledger_key *keys; /* by id */
    size_t n;
    uint64_t version;
    int64_t (*now_ms)(void);
    int64_t fresh_ms; /* when it was told or confirmed */
    void (*look)(void *ctx);
    void *ctx;
};

static void drop(struct ledger_key *keys, size_t n) {
    for (size_t i = 0; i < n; i++)
        ledger_key_finish(&keys[i]);
    free(keys);
}

struct keyring *keyring_create(int64_t (*now_ms)(void)) {
    struct keyring *k = xcalloc(1, sizeof(*k));
    k->now_ms = now_ms;
    return k;
}

void keyring_destroy(struct keyring *k) {
    if (!k)
        return;
    drop(k->keys, k->n);
    free(k);
}

size_t keyring_count(const struct keyring *k) {
    return k->n;
}

void keyring_on_stale(struct keyring *k, void (*look)(void *ctx), void *ctx) {
    k->look = look;
    k->ctx = ctx;
}

static int by_id(const void *a, const void *b) {
    return strcmp(((const struct ledger_key *)a)->id, ((const struct ledger_key *)b)->id);
}

/* What comes late is older than what is here. */
static void on_keys(void *ctx, struct ledger_key *keys, size_t n, uint64_t version) {
    struct keyring *k = ctx;
    if (version <= k->version) {
        drop(keys, n);
        return;
    }
    if (n > 0)
        qsort(keys, n, sizeof(*keys), by_id);
    drop(k->keys, k->n);
    k->keys = keys;
    k->n = n;
    k->version = version;
    k->fresh_ms = k->now_ms();
}

static void on_confirmed(void *ctx, uint64_t version) {
    struct keyring *k = ctx;
    if (version == k->version)
        k->fresh_ms = k->now_ms();
}

struct ledger_watch keyring_watch(struct keyring *k) {
    return (struct ledger_watch){.on_keys = on_keys, .on_confirmed = on_confirmed, .ctx = k};
}

static bool is_stale(const struct keyring *k) {
    return k->version == 0 || k->now_ms() - k->fresh_ms > LEDGER_STALE_MS;
}

/* NULL with err: there is none, or nobody knows. */
static const struct ledger_key *find(struct keyring *k, const char *id, struct err *err) {
    if (is_stale(k) && k->look)
        k->look(k->ctx); /* the whole process may have been asleep */
    if (is_stale(k)) {
        (void)err_set(err, ERR_UNAVAILABLE,
                      "the ledger with the keys does not answer: try again in some seconds");
        return NULL;
    }
    size_t low = 0;
    size_t high = k->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int c = strcmp(k->keys[mid].id, id);
        if (c == 0)
            return &k->keys[mid];
        *(c < 0 ? &low : &high) = c < 0 ? mid + 1 : mid;
    }
    (void)refuse(err);
    return NULL;
}

static int failed(const struct err *err) {
    return -(int)err->code;
}

int key_check(struct keyring *k, const char *text, struct identity *ret_identity, struct err *err) {
    /* "cay_" id "_" secret */
    const char *sep = strncmp(text, "cay_", 4) == 0 ? strchr(text + 4, '_') : NULL;
    size_t len = strlen(text);
    char id[ID_SIZE];
    struct err why = {0};
    if (!err)
        err = &why;
    if (!sep || len >= KEY_TEXT_SIZE || (size_t)(sep - text) - 4 > 26)
        return refuse(err);
    (void)snprintf(id, sizeof(id), "key_%.*s", (int)(sep - text - 4), text + 4);
    const struct ledger_key *key = find(k, id, err);
    if (!key)
        return failed(err);
    unsigned char hash[LEDGER_HASH_SIZE];
    digest_sha256(text, len, hash);
    if (CRYPTO_memcmp(hash, key->hash, sizeof(hash)) != 0)
        return refuse(err);
    fill(key, ret_identity);
    return 0;
}

int key_identity(struct keyring *k, const char *key_id, struct identity *ret_identity,
                 struct err *err) {
    struct err why = {0};
    if (!err)
        err = &why;
    const struct ledger_key *key = find(k, key_id, err);
    if (!key)
        return failed(err);
    fill(key, ret_identity);
    return 0;
}
