#pragma once
/* Between the parts of the Vercel wire. */

#include "base/json_table.h"
#include "front/api/sandbox.h"
#include "front/sandbox/exec.h"
#include "front/sandbox/snapshot.h"
#include "front/server/front.h"
#include "front/vercel/policy.h"
#include "front/vercel/vercel.h"

#define VERCEL_CWD  "/vercel/sandbox"
#define VERCEL_USER "vercel-sandbox"

#define VERCEL_TIME_MAX_MS ((int64_t)1000 * 315360000) /* that a request may ask for */

struct vercel {
    struct front *front;
    struct vercel_making *making; /* sandboxes that are being made */
    struct session_stop *stops;   /* sessions that are being stopped */
    struct logs *logs;            /* answers that need something sent now and then */
    uv_timer_t timer;             /* for those */
};

/* --- names --- */

/* doc: {name, config, session, sessions: [id], snapshot, snapshots: [id], updated_ms, request} */
struct named {
    char id[ID_SIZE];
    char owner[ID_SIZE];
    int64_t created_ms;
    json_t *doc;     /* always with a name, which is the id of an unreadable one */
    bool unreadable; /* its record is; it can be listed and deleted */
};
void vercel_named_finish(struct named *n);
/* A new one; it is nowhere until it is saved. */
void vercel_named_init(struct named *n, const char *owner, const char *name, json_t *config);
int vercel_named_find(struct vercel *v, const char *owner, const char *name, struct named *ret,
                      struct err *err);
/* The same, and also one whose record cannot be read. */
int vercel_named_find_any(struct vercel *v, const char *owner, const char *name, struct named *ret,
                          struct err *err);
/* Reads one again: ERR_NOT_FOUND if it was deleted since, also if another has its name now. */
int vercel_named_find_same(struct vercel *v, const struct named *n, struct named *ret,
                           struct err *err);
int vercel_named_save(struct vercel *v, struct named *n, struct err *err);
int vercel_named_delete(struct vercel *v, const struct named *n, struct err *err);
/* All of an owner, newest first or by name (the last first), at most VERCEL_NAMES_MAX. */
enum { VERCEL_NAMES_MAX = 1000 };
int vercel_named_each(struct vercel *v, const char *owner, bool by_name,
                      void (*on_named)(void *ctx, const struct named *n), void *ctx,
                      struct err *err);
/* Forgets old ones that cannot be resumed. ERR_RATE if there are too many that can. */
int vercel_named_make_room(struct vercel *v, const char *owner, struct err *err);
const char *vercel_named_name(const struct named *n);
const char *vercel_named_session(const struct named *n);
/* NULL: there is none (any more). */
const char *vercel_named_snapshot(struct vercel *v, struct named *n);
const json_t *vercel_named_config(const struct named *n, const char *key);
bool vercel_named_is_persistent(const struct named *n);
/* A new session, or a new snapshot, of it. Not saved. */
void vercel_named_add_session(struct named *n, const char *id);
void vercel_named_add_snapshot(struct vercel *v, struct named *n, const char *id);

/* --- what the SDK sees; new references --- */

/* Whether the path is one of 1.x. */
bool vercel_is_v1(const struct http_req *req);
const char *vercel_owner(const struct http_req *req);
json_t *vercel_show_session(struct vercel *v, const char *owner, const char *id);
json_t *vercel_show_sandbox(struct vercel *v, struct named *n);
json_t *vercel_show_routes(const struct http_req *req, const struct named *n);
json_t *vercel_show_command(struct exec *e);
/* NULL for one that has expired: it is deleted. */
json_t *vercel_show_snapshot(struct vercel *v, const struct store_record *r);
/* The same by its id; NULL with err if there is none, or it has expired. */
json_t *vercel_snapshot_open(struct vercel *v, const char *owner, const char *id, struct err *err);
/* {sandbox, session, routes}, as the SDK of that version has it. */
json_t *vercel_show_whole(struct vercel *v, const struct http_req *req, struct named *n);
void vercel_fail(struct http_req *req, int status, const char *code, const char *message);
/* Takes the object. */
void vercel_respond(struct http_req *req, json_t *o);
/* The body by its table; what the SDK sends besides is left alone. The texts are of ret_body, which
 * is the caller's. */
int vercel_body(struct http_req *req, const struct json_field *table, size_t n, json_t **ret_body,
                void *out, struct err *err);
/* What is recorded of a "sandbox" or "snapshot" of an owner. */
int vercel_record(struct vercel *v, const char *kind, const char *owner, const char *id,
                  struct store_record *ret, struct err *err);
int vercel_snapshot_delete(struct vercel *v, const char *owner, const char *id, struct err *err);

/* The living session that the path names, or NULL: then the request is answered, with 410 (which
 * makes the SDK resume it) if it has ended. */
struct sandbox *vercel_session(struct http_req *req, struct vercel *v);
/* The sandbox that a session belongs to; not another one that has its name by now. */
int vercel_named_of(struct vercel *v, const char *owner, const char *session, struct named *ret,
                    struct err *err);
const json_t *vercel_sandbox_note(const struct sandbox *s);
/* Whether nobody has used it yet. */
bool vercel_sandbox_is_fresh(const struct sandbox *s);

/* A page of a list: ?limit&cursor&sortOrder; a cursor is how many came before. Of what it is a list
 * is in another key of the query; that text is the caller's. */
struct vercel_page {
    uint64_t limit, skip;
    bool ascending;
};
int vercel_page_read(struct http_req *req, const char *key, struct vercel_page *p, char **ret,
                     struct err *err);
/* {KEY: the page of all, pagination}. Takes the list, which has the newest first. */
void vercel_page_respond(struct http_req *req, const char *key, json_t *all,
                         const struct vercel_page *p);

/* --- sessions --- */

/* Reads the configuration that a request has, over what is there. */
int vercel_config_read(const json_t *body, json_t *config, struct err *err);
/* A session that is being stopped. */
bool vercel_stop_is_under_way(const struct vercel *v, const char *session);
/* Calls cb when that is over, one way or the other; false: it is not being stopped. */
bool vercel_stop_watch(struct vercel *v, const char *session, void (*cb)(void *ctx), void *ctx);
void vercel_stop_unwatch(struct vercel *v, const void *ctx);
/* Keeps what it has, if that is wanted, and ends it. */
struct stop_ask {
    bool snapshot;         /* whether or not it is persistent */
    int64_t expiration_ms; /* of the snapshot; negative: as it is configured */
    /* snapshot: the object that clients of cay see, or NULL. err: it goes on. */
    void (*cb)(void *ctx, const json_t *snapshot, const struct err *err);
    void *ctx;
};
struct session_stop *vercel_stop_session(struct vercel *v, struct sandbox *box,
                                         const struct stop_ask *ask);
/* What is kept of it is not wanted any more: nor is its snapshot. */
void vercel_stop_forget(struct vercel *v, const char *session);
/* Nobody waits for it any more. */
void vercel_stop_leave(struct session_stop *s);
bool vercel_on_expire(void *ctx, struct sandbox *s);

void vercel_create_routes(struct vercel *v);
void vercel_session_routes(struct vercel *v);
void vercel_command_routes(struct vercel *v);
void vercel_file_routes(struct vercel *v);
void vercel_snapshot_routes(struct vercel *v);
void vercel_route(struct vercel *v, const char *methods, const char *pattern, http_handler handler,
                  unsigned flags, size_t body_bytes);
