#pragma once
/* API keys: "cay_" + the key's id + "_" + a secret. The store has only the SHA-256 of the whole;
 * the secret has 160 random bits, so no slow hash is needed. */

#include "base/err.h"
#include "front/store/store.h"

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
    int64_t rate_per_minute;
    char grants[KEY_GRANTS_SIZE]; /* JSON {"facets":[names],"workers":..,"routes":..,"binds":..}, or
                                     "": all */
};

struct key_request {
    const char *name;
    const char *scope;
    int64_t rate_per_minute;
    const char *grants; /* NULL: whatever it makes itself */
};

/* Makes a key and writes its text, which is shown once and never again. */
int key_create(struct store *s, const struct key_request *request, char ret_text[KEY_TEXT_SIZE],
               struct store_key *ret_key, struct err *err);
/* ERR_UNAUTHORIZED unless the text is a valid key. */
int key_check(struct store *s, const char *text, struct identity *ret_identity, struct err *err);
/* The identity of a valid key by its id; ERR_UNAUTHORIZED if it was revoked. */
int key_identity(struct store *s, const char *key_id, struct identity *ret_identity,
                 struct err *err);
