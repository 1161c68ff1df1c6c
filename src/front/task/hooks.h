#pragma once
/* Messages to webhooks: takes them from the ledger's outbox and posts them, again and again until
 * the receiver has them or they are given up. Signed as Standard Webhooks says: webhook-id,
 * webhook-timestamp and webhook-signature, "v1," and the base64 of an HMAC-SHA256 over
 * "ID.TIMESTAMP.BODY". Receivers have public addresses, but for those that the operator lists;
 * redirects are not followed. */

#include "base/json.h"
#include "front/ledger/ledger.h"

struct hooks;

struct hooks_options {
    uv_loop_t *loop;
    struct ledger *ledger;
    const json_t *private_hosts; /* "host:port" that need not be public; borrowed, or NULL */
};

struct hooks *hooks_create(const struct hooks_options *options);
/* There may be one to be sent. NULL is allowed. */
void hooks_hint(struct hooks *h);
/* What is under way is sent again later, by whoever finds it. Before ledger_close(). */
void hooks_close(struct hooks *h);

/* "whsec_" and the base64 of 16 to 64 bytes. */
int hooks_check_secret(const char *secret, struct err *err);
/* An http or https URL without a user. */
int hooks_check_url(const char *url, struct err *err);
/* "v1,..." for a message; the caller frees. NULL: the secret is none. */
char *hooks_sign(const char *secret, const char *id, const char *timestamp, const char *body);
