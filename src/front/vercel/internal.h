#pragma once
/* Between the parts of the Vercel wire. */

#include "front/api/sandbox.h"
#include "front/front.h"
#include "front/sandbox/exec.h"
#include "front/sandbox/snapshot.h"
#include "front/vercel/policy.h"
#include "front/vercel/vercel.h"

#define VERCEL_CWD  "/vercel/sandbox"
#define VERCEL_USER "vercel-sandbox"

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
    json_t *doc;
};
void named_finish(struct named *n);
/* A new one; it is nowhere until it is saved. */
void named_init(struct named *n, const char *owner, const char *name, json_t *config);
int named_find(struct vercel *v, const char *owner, const char *name, struct named *ret,
               struct err *err);
int named_save(struct vercel *v, struct named *n, struct err *err);
int named_delete(struct vercel *v, const struct named *n, struct err *err);
/* All of an owner, newest first, at most VERCEL_NAMES_MAX. */
enum { VERCEL_NAMES_MAX = 1000 };
int named_each(struct vercel *v, const char *owner,
               void (*on_named)(void *ctx, const struct named *n), void *ctx, struct err *err);
/* Forgets old ones that cannot be resumed. ERR_RATE if there are too many that can. */
int named_make_room(struct vercel *v, const char *owner, struct err *err);
const char *named_name(const struct named *n);
const char *named_session(const struct named *n);
/* NULL: there is none (any more). */
const char *named_snapshot(struct vercel *v, struct named *n);
const json_t *named_config(const struct named *n, const char *key);
bool named_is_persistent(const struct named *n);
/* A new session, or a new snapshot, of it. Not saved. */
void named_add_session(struct named *n, const char *id);
void named_add_snapshot(struct vercel *v, struct named *n, const char *id);

/* --- what the SDK sees; new references --- */

/* Whether the path is one of 1.x. */
bool vercel_is_v1(const struct http_req *req);
const char *vercel_owner(const struct http_req *req);
json_t *show_session(struct vercel *v, const char *owner, const char *id);
json_t *show_sandbox(struct vercel *v, struct named *n);
json_t *show_routes(const struct http_req *req, const struct named *n);
json_t *show_command(struct exec *e);
/* NULL for one that has expired: it is deleted. */
json_t *show_snapshot(struct vercel *v, const struct store_record *r);
/* {sandbox, session, routes}, as the SDK of that version has it. */
json_t *show_whole(struct vercel *v, const struct http_req *req, struct named *n);
void vercel_fail(struct http_req *req, int status, const char *code, const char *message);

/* The living session that the path names, or NULL: then the request is answered, with 410 (which
 * makes the SDK resume it) if it has ended. */
struct sandbox *vercel_session(struct http_req *req, struct vercel *v);
/* The name that a session belongs to. */
int vercel_named_of(struct vercel *v, const char *owner, const char *session, struct named *ret,
                    struct err *err);
const json_t *sandbox_note(const struct sandbox *s);
/* Whether nobody has used it yet. */
bool sandbox_is_fresh(const struct sandbox *s);

/* A page of a list: ?limit&cursor&sortOrder; a cursor is how many came before. */
struct vercel_page {
    uint64_t limit, skip;
    bool ascending;
};
int vercel_page_read(struct http_req *req, struct vercel_page *p, struct err *err);
/* {KEY: the page of all, pagination}. Takes the list, which has the newest first. */
void vercel_page_respond(struct http_req *req, const char *key, json_t *all,
                         const struct vercel_page *p);

/* --- sessions --- */

/* Reads the configuration that a request has, over what is there. */
int config_read(const json_t *body, json_t *config, struct err *err);
/* A session that is being stopped. */
bool stop_is_under_way(const struct vercel *v, const char *session);
/* Calls cb when that is over, one way or the other; false: it is not being stopped. */
bool stop_watch(struct vercel *v, const char *session, void (*cb)(void *ctx), void *ctx);
void stop_unwatch(struct vercel *v, const void *ctx);
/* Keeps what it has, if that is wanted, and ends it. */
struct stop_ask {
    bool snapshot;         /* whether or not it is persistent */
    int64_t expiration_ms; /* of the snapshot; negative: as it is configured */
    /* snapshot: the object that clients of cay see, or NULL. err: it goes on. */
    void (*cb)(void *ctx, const json_t *snapshot, const struct err *err);
    void *ctx;
};
struct session_stop *stop_session(struct vercel *v, struct sandbox *box,
                                  const struct stop_ask *ask);
/* Nobody waits for it any more. */
void stop_leave(struct session_stop *s);
bool vercel_on_expire(void *ctx, struct sandbox *s);

void create_routes(struct vercel *v);
void session_routes(struct vercel *v);
void command_routes(struct vercel *v);
void file_routes(struct vercel *v);
void snapshot_routes(struct vercel *v);
void logs_tick(struct vercel *v);
void vercel_route(struct vercel *v, const char *methods, const char *pattern, http_handler handler,
                  unsigned flags, size_t body_bytes);
