#include "front/ledger/keyring.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "base/text.h"
#include "base/utf8.h"
#include "front/common/digest.h"

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

/* C1 controls, marks and overrides of direction, ends of lines: what would show a name as another
 * one. The name is UTF-8. */
static bool has_hidden(const char *name) {
    static const struct {
        const char *lead;
        unsigned char from, to; /* of the byte after it */
    } bad[] = {{"\xc2", 0x80, 0x9f},     {"\xd8", 0x9c, 0x9c},     {"\xe2\x80", 0x8b, 0x8b},
               {"\xe2\x80", 0x8e, 0x8f}, {"\xe2\x80", 0xa8, 0xae}, {"\xe2\x81", 0xa0, 0xaf},
               {"\xef\xbb", 0xbf, 0xbf}};
    for (; *name; name++)
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
            size_t n = strlen(bad[i].lead);
            unsigned char last = strncmp(name, bad[i].lead, n) == 0 ? (unsigned char)name[n] : 0;
            if (last >= bad[i].from && last <= bad[i].to)
                return true;
        }
    return false;
}

int key_check_name(const char *what, const char *name, struct err *err) {
    size_t n = strlen(name);
    if (n == 0 || n > NAME_MAX_BYTES)
        return err_set(err, ERR_BAD_REQUEST, "a %s's name has 1 to %d bytes", what, NAME_MAX_BYTES);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 127)
            return err_set(err, ERR_BAD_REQUEST, "a %s's name has no control characters", what);
    if (!utf8_is_valid(name, n))
        return err_set(err, ERR_BAD_REQUEST, "a %s's name is UTF-8", what);
    if (has_hidden(name))
        return err_set(err, ERR_BAD_REQUEST,
                       "a %s's name has no control characters, and none that hide or reorder "
                       "others",
                       what);
    return 0;
}

int project_check_name(const char *name, struct err *err) {
    int rc = key_check_name("project", name, err);
    if (rc == 0 && (strncmp(name, "prj_", 4) == 0 || strncmp(name, "key_", 4) == 0))
        rc = err_set(err, ERR_BAD_REQUEST,
                     "a project's name does not begin with \"%.4s\", as an id does", name);
    return rc;
}

int limits_read(const struct limits_request *r, struct ledger_limits *ret, struct err *err) {
    if (r->rate_per_minute < 0 || r->max_jobs < 0 || r->tokens_per_day < 0)
        return err_set(err, ERR_BAD_REQUEST, "a limit is not negative");
    if (!(r->usd_per_day >= 0 && r->usd_per_day <= USD_PER_DAY_MAX))
        return err_set(err, ERR_BAD_REQUEST, "dollars a day are from 0 to %d", USD_PER_DAY_MAX);
    *ret = (struct ledger_limits){.rate_per_minute = r->rate_per_minute,
                                  .max_jobs = r->max_jobs,
                                  .tokens_per_day = r->tokens_per_day,
                                  .nusd_per_day = llround(r->usd_per_day * 1e9)};
    return 0;
}

static int keyring_check_request(const struct key_request *r, struct err *err) {
    enum key_scope scope;
    int rc = key_check_name("key", r->name, err);
    if (rc < 0)
        return rc;
    if (!key_scope_parse(r->scope, &scope))
        return err_set(err, ERR_BAD_REQUEST, "a key's scope is read, run or admin");
    if (r->grants && strlen(r->grants) >= KEY_GRANTS_SIZE)
        return err_set(err, ERR_TOO_LARGE, "a key's grants have at most %d bytes",
                       KEY_GRANTS_SIZE - 1);
    return 0;
}

void key_new_secret(const char *id, char ret_text[KEY_TEXT_SIZE],
                    unsigned char ret_hash[LEDGER_HASH_SIZE]) {
    unsigned char secret[SECRET_BYTES];
    rand_bytes(secret, sizeof(secret));
    int n = snprintf(ret_text, KEY_TEXT_SIZE, "cay_%s_", id + 4);
    for (size_t i = 0; i < sizeof(secret); i++)
        n += snprintf(ret_text + n, KEY_TEXT_SIZE - (size_t)n, "%02x", secret[i]);
    (void)SHA256((const unsigned char *)ret_text, (size_t)n, ret_hash);
    mem_wipe(secret, sizeof(secret));
}

int key_make(const struct key_request *request, char ret_text[KEY_TEXT_SIZE],
             struct ledger_key *ret_key, struct err *err) {
    struct ledger_limits limits = {0};
    int rc = keyring_check_request(request, err);
    if (rc == 0)
        rc = limits_read(&request->limits, &limits, err);
    if (rc < 0)
        return rc;
    struct ledger_key k = {.name = xstrdup(request->name),
                           .scope = xstrdup(request->scope),
                           .limits = limits,
                           .grants = request->grants ? xstrdup(request->grants) : NULL,
                           .expires_ms = request->expires_ms,
                           .created_ms = clock_wall_ms()};
    id_new("key", k.id);
    key_new_secret(k.id, ret_text, k.hash);
    *ret_key = k;
    return 0;
}

static int keyring_refuse(struct err *err) {
    return err_set(err, ERR_UNAUTHORIZED,
                   "that is not a valid key; `cay key create` makes one on the server's machine");
}

static void keyring_fill(const struct ledger_key *k, struct identity *id) {
    *id = (struct identity){.limits = k->limits, .project_limits = k->project_limits};
    memcpy(id->key_id, k->id, sizeof(id->key_id));
    memcpy(id->project, k->project, sizeof(id->project));
    (void)text_print(id->name, sizeof(id->name), "%s", k->name);
    /* Grants that are damaged, or longer than they may be, are not taken for none. */
    bool fits = k->grants && *k->grants && strlen(k->grants) < sizeof(id->grants);
    (void)snprintf(id->grants, sizeof(id->grants), "%s", !k->grants ? "" : fits ? k->grants : "{}");
    if (!key_scope_parse(k->scope, &id->scope))
        id->scope = KEY_SCOPE_READ;
    id->server = k->server && id->scope == KEY_SCOPE_ADMIN;
}

struct identity key_operator(void) {
    return (struct identity){
        .operator_ = true, .name = "operator", .scope = KEY_SCOPE_ADMIN, .server = true};
}

/* --- what it may have --- */

/* No key of grants that anybody may write. */
#define ALL_BUT_MODELS "all but models"

static bool limits_money(const struct ledger_limits *l) {
    return l->tokens_per_day > 0 || l->nusd_per_day > 0;
}

bool key_has_budget(const struct identity *who) {
    return limits_money(&who->limits) || limits_money(&who->project_limits);
}

json_t *key_grants(const struct identity *who) {
    if (who && *who->grants) {
        json_t *grants = json_read_str(who->grants);
        if (json_is_object(grants))
            return grants;
        log_error("key.grants", "key", who->key_id, "error",
                  "its grants cannot be read, so it is granted nothing: make a new key");
        json_decref(grants);
        return json_object();
    }
    return who && key_has_budget(who) ? json_pack("{s:b}", ALL_BUT_MODELS, true) : NULL;
}

bool key_may_spend(const json_t *grants) {
    return !json_is_true(json_object_get(grants, ALL_BUT_MODELS));
}

bool key_is_granted(const json_t *grants, const char *kind, const char *name) {
    if (!grants || !key_may_spend(grants))
        return true;
    size_t i;
    const json_t *v;
    json_array_foreach(json_object_get(grants, kind), i, v) {
        if (json_is_string(v) && strcmp(json_string_value(v), name) == 0)
            return true;
    }
    return false;
}

/* --- the copy --- */

struct keyring {
    struct ledger_key *keys; /* by id */
    size_t n;
    uint64_t version;
    int64_t (*now_ms)(void);
    int64_t (*wall_ms)(void);
    int64_t fresh_ms;       /* when it was told or confirmed */
    int64_t next_expiry_ms; /* of a key, by the wall clock; 0: none expires */
    bool *used;             /* for each of the keys: since the uses were taken */
    void (*look)(void *ctx);
    void *ctx;
    void (*on_change)(void *ctx);
    void *change_ctx;
};

static void keyring_drop(struct ledger_key *keys, size_t n) {
    for (size_t i = 0; i < n; i++)
        ledger_key_finish(&keys[i]);
    free(keys);
}

struct keyring *keyring_create(int64_t (*now_ms)(void), int64_t (*wall_ms)(void)) {
    struct keyring *k = xcalloc(1, sizeof(*k));
    k->now_ms = now_ms;
    k->wall_ms = wall_ms;
    return k;
}

void keyring_destroy(struct keyring *k) {
    if (!k)
        return;
    keyring_drop(k->keys, k->n);
    free(k->used);
    free(k);
}

size_t keyring_count(const struct keyring *k) {
    return k->n;
}

void keyring_on_stale(struct keyring *k, void (*look)(void *ctx), void *ctx) {
    k->look = look;
    k->ctx = ctx;
}

void keyring_on_change(struct keyring *k, void (*on_change)(void *ctx), void *ctx) {
    k->on_change = on_change;
    k->change_ctx = ctx;
}

static int keyring_by_id(const void *a, const void *b) {
    return strcmp(((const struct ledger_key *)a)->id, ((const struct ledger_key *)b)->id);
}

static bool keyring_has_expired(const struct keyring *k, const struct ledger_key *key) {
    return key->expires_ms > 0 && key->expires_ms <= k->wall_ms();
}

/* When the next one expires. */
static void keyring_look_ahead(struct keyring *k) {
    k->next_expiry_ms = 0;
    for (size_t i = 0; i < k->n; i++) {
        int64_t at = k->keys[i].expires_ms;
        if (at > 0 && !keyring_has_expired(k, &k->keys[i]) &&
            (k->next_expiry_ms == 0 || at < k->next_expiry_ms))
            k->next_expiry_ms = at;
    }
}

/* Uses that were not taken yet are of keys that may be elsewhere in the new array. */
static bool *keyring_keep_uses(const struct keyring *k, const struct ledger_key *keys, size_t n) {
    bool *used = xcalloc(MAX(n, 1), sizeof(*used));
    for (size_t i = 0; i < k->n; i++) {
        const struct ledger_key *at =
            k->used[i] && n > 0 ? bsearch(&k->keys[i], keys, n, sizeof(*keys), keyring_by_id)
                                : NULL;
        if (at)
            used[at - keys] = true;
    }
    return used;
}

size_t keyring_take_uses(struct keyring *k, struct ledger_key_use *uses, size_t max) {
    size_t n = 0;
    for (size_t i = 0; i < k->n && n < max; i++)
        if (k->used[i]) {
            k->used[i] = false;
            memcpy(uses[n].id, k->keys[i].id, sizeof(uses[n].id));
            uses[n++].ms = k->wall_ms();
        }
    return n;
}

/* What comes late is older than what is here. */
static void keyring_on_keys(void *ctx, struct ledger_key *keys, size_t n, uint64_t version) {
    struct keyring *k = ctx;
    if (version <= k->version) {
        keyring_drop(keys, n);
        return;
    }
    if (n > 0)
        qsort(keys, n, sizeof(*keys), keyring_by_id);
    bool *used = keyring_keep_uses(k, keys, n);
    free(k->used);
    k->used = used;
    keyring_drop(k->keys, k->n);
    k->keys = keys;
    k->n = n;
    k->version = version;
    k->fresh_ms = k->now_ms();
    keyring_look_ahead(k);
    if (k->on_change)
        k->on_change(k->change_ctx);
}

static void keyring_on_confirmed(void *ctx, uint64_t version) {
    struct keyring *k = ctx;
    if (version == k->version)
        k->fresh_ms = k->now_ms();
    if (k->next_expiry_ms == 0 || k->wall_ms() < k->next_expiry_ms)
        return;
    keyring_look_ahead(k);
    if (k->on_change)
        k->on_change(k->change_ctx);
}

struct ledger_watch keyring_watch(struct keyring *k) {
    return (struct ledger_watch){
        .on_keys = keyring_on_keys, .on_confirmed = keyring_on_confirmed, .ctx = k};
}

static bool keyring_is_stale(const struct keyring *k) {
    return k->version == 0 || k->now_ms() - k->fresh_ms > LEDGER_STALE_MS;
}

bool keyring_is_current(struct keyring *k) {
    if (keyring_is_stale(k) && k->look)
        k->look(k->ctx); /* the whole process may have been asleep */
    return !keyring_is_stale(k);
}

/* NULL with err: there is none, or nobody knows. */
static const struct ledger_key *keyring_find(struct keyring *k, const char *id, struct err *err) {
    if (!keyring_is_current(k)) {
        (void)err_set(err, ERR_UNAVAILABLE,
                      "the ledger with the keys does not answer: try again in some seconds");
        return NULL;
    }
    size_t low = 0;
    size_t high = k->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int c = strcmp(k->keys[mid].id, id);
        if (c == 0 && !keyring_has_expired(k, &k->keys[mid]))
            return &k->keys[mid];
        if (c == 0)
            break;
        *(c < 0 ? &low : &high) = c < 0 ? mid + 1 : mid;
    }
    (void)keyring_refuse(err);
    return NULL;
}

static int keyring_failed(const struct err *err) {
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
        return keyring_refuse(err);
    (void)snprintf(id, sizeof(id), "key_%.*s", (int)(sep - text - 4), text + 4);
    const struct ledger_key *key = keyring_find(k, id, err);
    if (!key)
        return keyring_failed(err);
    unsigned char hash[LEDGER_HASH_SIZE];
    digest_sha256(text, len, hash);
    bool is_new = CRYPTO_memcmp(hash, key->hash, sizeof(hash)) == 0;
    bool is_old =
        key->old_until_ms > k->wall_ms() && CRYPTO_memcmp(hash, key->old_hash, sizeof(hash)) == 0;
    if (!is_new && !is_old)
        return keyring_refuse(err);
    k->used[key - k->keys] = true;
    keyring_fill(key, ret_identity);
    return 0;
}

int key_identity(struct keyring *k, const char *key_id, struct identity *ret_identity,
                 struct err *err) {
    struct err why = {0};
    if (!err)
        err = &why;
    const struct ledger_key *key = keyring_find(k, key_id, err);
    if (!key)
        return keyring_failed(err);
    keyring_fill(key, ret_identity);
    return 0;
}
