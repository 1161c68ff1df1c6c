#pragma once
/* What the endpoint families of sandboxes share. */

#include "front/sandbox/exec.h"
#include "front/sandbox/sandboxes.h"
#include "front/server/front.h"

/* A request that waits for one answer of a sandbox. When the client leaves, or the answer comes, it
 * is over; the request is answered in either case. */
struct ask {
    struct front *front;
    struct http_req *req;
    struct sandbox_call *call;
    /* The answer: err NULL is success. Responds. */
    void (*on_reply)(struct ask *a, struct sandbox_reply *reply);
};

/* Makes one for a request. */
struct ask *ask_new(struct front *f, struct http_req *req,
                    void (*on_reply)(struct ask *a, struct sandbox_reply *reply));
/* The callback for sandbox_box_*(); ctx is the ask. */
void ask_replied(void *ctx, struct sandbox_reply *reply, const struct err *err);
/* After sandbox_box_*(): waits, or answers that the sandbox takes no requests. */
void ask_wait(struct ask *a, struct sandbox_call *call);

/* A request that waits for a change of a sandbox and then shows it: by show(ctx, ...), where the id
 * is the sandbox's. */
struct changing {
    struct http_req *req;
    struct sandbox_change *change;
    void (*show)(void *ctx, struct http_req *req, const char *id);
    void *ctx;
    char id[ID_SIZE];
};

struct changing *changing_new(struct http_req *req, const struct sandbox *s,
                              void (*show)(void *ctx, struct http_req *req, const char *id),
                              void *ctx);
/* The callback for sandbox_pause() and the like; ctx is the changing. */
void changing_done(void *ctx, const struct err *err);
/* After these: waits, or answers with the error. */
void changing_wait(struct changing *c, struct sandbox_change *change, const struct err *err);

/* As http_respond_err(); what is full says when to come again. */
void api_fail(struct http_req *req, const struct err *err);
/* The sandbox that the path names, or NULL: then the request is answered. */
struct sandbox *api_sandbox(struct http_req *req, struct front *f, bool paused);
/* The command that the path names (a reference), or NULL: then the request is answered. */
struct exec *api_exec(struct http_req *req, struct front *f);
/* The same, of a command that runs in a sandbox that can answer. */
struct exec *api_running_exec(struct http_req *req, struct front *f);
enum { API_EXEC_BYTES = 4 << 20 }; /* of a command with the longest words, each byte escaped */
/* Answers with what a command writes from these offsets on: as events, or all of it when it has
 * ended. Takes the reference. */
void api_output(struct front *f, struct http_req *req, struct exec *e, const uint64_t offsets[3],
                bool events);
/* The body as an object; an empty one is {}. No text in it holds a NUL, but of "files" and "stdin".
 */
int api_body(struct http_req *req, json_t **ret, struct err *err);
/* A body that may have "files": as JSON, their base64 decoded. */
extern const struct http_reader api_reader_files;
/* A path that is given as base 64, since its names need not be text; NULL if it is none. */
char *api_decode_path(const char *text);
/* ?path= or ?path_base64=; the caller frees. NULL: then the request is answered. */
char *api_path(struct http_req *req);
/* A flag of the query: "1" or "true". */
bool api_flag(struct http_req *req, const char *name);
/* A number of the query; negative: then err says why. */
int api_number(struct http_req *req, const char *name, uint64_t max, uint64_t *ret,
               struct err *err);
json_t *api_grants(const struct http_req *req);
/* {KEY: [...], next_cursor} of records. */
void api_records(struct http_req *req, struct front *f, const char *kind, const char *prefix,
                 const char *key, const char *parent,
                 json_t *(*show)(const struct front *f, const struct store_record *r));

/* Answers with a file of the sandbox, as it is. */
void api_send_file(struct http_req *req, struct sandbox *s, const char *path);
/* Unpacks the body, an archive, below a path; then respond() is called. The route streams. */
void api_take_archive(struct http_req *req, struct sandbox *s, const char *path,
                      void (*respond)(struct http_req *req));
