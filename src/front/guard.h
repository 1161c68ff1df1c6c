#pragma once
/* The guard that every request passes: does it come from a page that may call us (Host and Origin,
 * against DNS rebinding and cross-site requests), who sends it (key, session or local operator),
 * may they, and not too often. */

#include "front/front.h"

bool guard_request(struct http_req *req, unsigned flags, void *front);
/* True for "NAME.localhost": guest-made content. */
bool guard_is_guest_host(const char *host, void *front);

/* True for an Authorization field that holds one of our keys: never for a guest to see. */
bool guard_is_our_key(const char *authorization);

struct sessions *sessions_create(void);
void sessions_destroy(struct sessions *s);
/* POST and DELETE /v1/session: a page trades its key for a cookie that scripts cannot read. */
void session_create(struct http_req *req, void *front);
void session_delete(struct http_req *req, void *front);
