#pragma once
/* Sessions and passes: how a browser that cannot send a key is recognized. A page trades its key
 * for a session cookie that scripts cannot read. A pass is a link to a guest's host that works
 * once, within a minute, and leaves a cookie there. Both name a key, never carry it, and are kept
 * in memory only: a restart ends them. */

#include "front/server/front.h"

enum { PASS_SIZE = 49 };

struct sessions *sessions_create(void);
void sessions_destroy(struct sessions *s);

/* The id of the key that the request's session cookie stands for; NULL: it has none. */
const char *session_key_id(struct sessions *all, const struct http_req *req);
/* The same for the cookie that a pass left at the request's host. */
const char *session_pass_key_id(struct sessions *all, const struct http_req *req);

/* POST and DELETE /v1/session. */
void session_create(struct http_req *req, void *front);
void session_delete(struct http_req *req, void *front);

/* A new pass for a guest's host. False: the caller is the operator, who needs none. */
bool session_pass_create(struct http_req *req, struct front *f, const char *host,
                         char ret_token[PASS_SIZE]);
/* Answers a request to a guest's host that carries a pass. False: it carries none. */
bool session_pass_enter(struct http_req *req, struct front *f);
