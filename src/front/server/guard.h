#pragma once
/* The guard that every request passes: does it come from a page that may call us (Host and Origin,
 * against DNS rebinding and cross-site requests), who sends it (key, session or local operator),
 * may they, and not too often. */

#include "front/server/front.h"

/* The token, or last part of one, that names nobody: as good as none. */
#define GUARD_NO_KEY "operator"

bool guard_request(struct http_req *req, unsigned flags, void *front);
/* What a page of a listed origin asks before it sends a request. */
void guard_preflight(struct http_req *req, const char *methods, void *front);
/* True for "NAME.localhost": guest-made content. */
bool guard_is_guest_host(const char *host, void *front);

/* Keys are checked where work is admitted: for what comes over a connection that was let in before,
 * or is done for a stranger. ERR_UNAUTHORIZED if the key was revoked, ERR_RATE if it has had its
 * requests (*ret_wait_s: how long until the next). The key id "" is the operator's. */
int guard_admit(struct front *f, const char *key_id, int64_t *ret_wait_s, struct err *err);
/* A GET is let through from any page, because it changes nothing. One that does (a client's wire
 * may have such) asks here first. False: it came from a page of another site, or may have, and is
 * answered. */
bool guard_check_effect(struct http_req *req);
/* Whether it is valid still; nothing is counted. */
int guard_check_key(struct front *f, const char *key_id, struct err *err);
/* 429 with Retry-After. */
void guard_respond_rate(struct http_req *req, int64_t wait_s, const struct err *err);
