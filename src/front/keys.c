#include "front/keys.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"
#include "base/utf8.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

enum { SECRET_BYTES = 20, NAME_MAX_BYTES = 60 };

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
    if (r->rate_per_minute < 0)
        return err_set(err, ERR_BAD_REQUEST, "a rate limit is not negative");
    if (r->grants && strlen(r->grants) >= KEY_GRANTS_SIZE)
        return err_set(err, ERR_TOO_LARGE, "a key's grants have at most %d bytes",
                       KEY_GRANTS_SIZE - 1);
    return 0;
}

int key_create(struct store *s, const struct key_request *request, char ret_text[KEY_TEXT_SIZE],
               struct store_key *ret_key, struct err *err) {
    int rc = check_request(request, err);
    if (rc < 0)
        return rc;
    struct store_key k = {.name = xstrdup(request->name),
                          .scope = xstrdup(request->scope),
                          .rate_per_minute = request->rate_per_minute,
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
    rc = store_key_add(s, &k, err);
    if (rc < 0) {
        store_key_finish(&k);
        return rc;
    }
    *ret_key = k;
    return 0;
}

static int refuse(struct err *err) {
    return err_set(err, ERR_UNAUTHORIZED,
                   "that is not a valid key; `cay key create` makes one on the server's machine");
}

static void fill(const struct store_key *k, struct identity *id) {
    *id = (struct identity){.rate_per_minute = k->rate_per_minute};
    (void)snprintf(id->key_id, sizeof(id->key_id), "%s", k->id);
    (void)snprintf(id->name, sizeof(id->name), "%s", k->name);
    (void)snprintf(id->grants, sizeof(id->grants), "%s", k->grants ? k->grants : "");
    if (!key_scope_parse(k->scope, &id->scope))
        id->scope = KEY_SCOPE_READ;
}

int key_check(struct store *s, const char *text, struct identity *ret_identity, struct err *err) {
    /* "cay_" id "_" secret */
    const char *sep = strncmp(text, "cay_", 4) == 0 ? strchr(text + 4, '_') : NULL;
    size_t len = strlen(text);
    char id[ID_SIZE];
    if (!sep || len >= KEY_TEXT_SIZE || (size_t)(sep - text) - 4 > 26)
        return refuse(err);
    (void)snprintf(id, sizeof(id), "key_%.*s", (int)(sep - text - 4), text + 4);
    struct store_key k;
    int rc = store_key_get(s, id, &k, err);
    if (rc == -ERR_NOT_FOUND)
        return refuse(err);
    if (rc < 0)
        return rc;
    unsigned char hash[STORE_HASH_SIZE];
    (void)SHA256((const unsigned char *)text, len, hash);
    bool same = CRYPTO_memcmp(hash, k.hash, sizeof(hash)) == 0;
    bool valid = same && k.revoked_ms == 0;
    if (valid)
        fill(&k, ret_identity);
    store_key_finish(&k);
    return valid ? 0 : refuse(err);
}

int key_identity(struct store *s, const char *key_id, struct identity *ret_identity,
                 struct err *err) {
    struct store_key k;
    int rc = store_key_get(s, key_id, &k, err);
    if (rc == -ERR_NOT_FOUND)
        return refuse(err);
    if (rc < 0)
        return rc;
    bool valid = k.revoked_ms == 0;
    if (valid)
        fill(&k, ret_identity);
    store_key_finish(&k);
    return valid ? 0 : refuse(err);
}
