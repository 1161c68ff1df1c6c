#pragma once
/* The store: what this server did: runs, their events, sandboxes. One SQLite file behind this
 * header. Strings in records that a call fills are owned by the record: store_*_finish() frees
 * them.
 *
 * Writes are queued, and a thread of the store's does them (queue.c): a call that writes returns at
 * once, and fails only if it is refused. There are two classes of them.
 *   history: runs, events, sandboxes, commands. Written within 100 ms. They survive the death of
 * any process once they are written, and a loss of power some seconds later. durable: deletions,
 * snapshots, sandboxes of the Vercel interface. On the disk once they are written. Reads see what
 * is written. Whoever reads what may have been queued before waits with store_after(); HTTP
 * requests do so before their handler begins, and the answers of those that change something wait
 * until that is written (HTTP_ROUTE_DIRECT).
 *
 * Without store_start_writer() (tests, `cay prune`) writes are done at once. */

#include "base/err.h"
#include "base/id.h"
#include "base/json.h"
#include "front/store/settings.h"
#include "front/store/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct store;

int store_open(const char *path, struct store **ret_store, struct err *err);
void store_close(struct store *s);
/* From now on writes are queued. */
int store_start_writer(struct store *s, uv_loop_t *loop, struct err *err);
/* Writes what waits, and has writes done at once again. The store may be closed when the loop has
 * run once more. */
void store_stop_writer(struct store *s);
/* The ticket of the newest write. */
int64_t store_submitted(struct store *s);
/* Whether all up to that ticket is written, or cannot be now; else it will be soon. */
bool store_has_written(struct store *s, int64_t ticket);
/* Why nothing can be written now; NULL: it can. */
const struct err *store_blocked(const struct store *s);
/* Told, from the loop, whenever something was written. One listener. */
void store_on_written(struct store *s, void (*on_written)(void *ctx), void *ctx);
/* Calls back once, from the loop, when all that was submitted before is written (or cannot be now:
 * then nobody waits). The memory is the caller's. */
struct store_wait {
    struct store_wait *next;
    struct store_wait **at; /* NULL: it does not wait */
    int64_t ticket;
    bool ready;
    void (*on_written)(void *ctx);
    void *ctx;
};
void store_after(struct store *s, struct store_wait *w, void (*on_written)(void *ctx), void *ctx);
/* Zeroed memory is allowed. */
void store_wait_cancel(struct store_wait *w);
/* Instead of the defaults; before care is taken of it. */
void store_configure(struct store *s, const struct store_settings *settings);
/* Deletes ended runs that are too old or too many, the oldest of the key that has the most first,
 * in steps between which others write; moves the log into the database file, and has it begin from
 * the front again before it grows long. For a worker thread, one at a time (caretaker.h), beside
 * the thread that makes all other calls. */
int store_care(struct store *s, struct err *err);
/* Has store_care return soon; it may be called while that is at work, and there is no way back. */
void store_care_end(struct store *s);
/* Whether the log has grown so far that care should not wait. True once for each such growth. */
bool store_wants_care(struct store *s);

/* Whether the log is longer than it may be: another program reads the file and does not end. */
bool store_log_is_stuck(const struct store *s);

/* --- runs --- */

/* Those that have ended, of all keys together, with their events and artifacts. */
struct store_totals {
    int64_t runs, bytes;
};
int store_totals(struct store *s, struct store_totals *ret, struct err *err);

/* What a run used of models. */
struct store_run_usage {
    int64_t input_tokens, output_tokens, cache_read_tokens, cache_write_tokens;
    int64_t cost_nusd; /* billionths of a dollar, of what has a known price */
    bool unpriced;     /* some of it has none */
};

struct store_run {
    char id[ID_SIZE];
    char owner[ID_SIZE]; /* the project */
    char key[ID_SIZE];   /* that began it, "" for the operator */
    char *kind;          /* "run", "chat", "sandbox", "task" */
    enum job_status status;
    char *title;
    char *detail; /* JSON, or NULL */
    size_t detail_len;
    char *error_code;
    char *error_message;
    int64_t created_ms;
    int64_t finished_ms; /* 0 while it runs */
    bool has_usage;      /* it has used a model, and has ended */
    struct store_run_usage usage;
};

void store_run_finish(struct store_run *r);
/* Recorded before the run starts: id, owner, key, kind, title, detail and created_ms are read. */
int store_run_begin(struct store *s, const struct store_run *run, struct err *err);

struct store_run_end {
    enum job_status status; /* not JOB_RUNNING */
    const char *error_code;
    const char *error_message;
    const char *detail; /* replaces the detail unless NULL */
    size_t detail_len;
    struct store_run_usage usage; /* all 0: it used no model */
    bool fault;                   /* the machine's doing, not the job's own; not recorded */
    const char *answer;           /* what its endpoint answers, for those who watch it; NULL: it is
                                     made of the record; not recorded */
    size_t answer_len;
    bool unbegun; /* with fault: it waits for its turn, and this try does not count; not recorded */
};
/* Never refused: on a full disk it waits until there is room. */
int store_run_end(struct store *s, const char *id, const struct store_run_end *end,
                  struct err *err);

/* Whose runs may be seen: an owner's own, or all. */
struct store_scope {
    bool all;
    const char *owner;
};
/* ERR_NOT_FOUND if there is no such run in that scope. */
int store_run_get(struct store *s, const char *id, struct store_scope scope,
                  struct store_run *ret_run, struct err *err);
/* The same with no more of its detail than that many bytes: a long one is not read. */
int store_run_look(struct store *s, const char *id, struct store_scope scope, size_t detail_bytes,
                   struct store_run *ret_run, struct err *err);
/* Newest first and without their detail, those older than `before` (an id, or NULL), at most
 * `limit`. Texts may be NULL. */
struct store_run_query {
    struct store_scope scope;
    const char *kind;
    enum job_status status; /* JOB_NO_STATUS: any */
    const char *key;        /* that began it; NULL: any */
    const char *text;       /* in the title, the id or the error's message, in either case */
    int64_t since_ms;       /* begun then or later; 0: whenever */
    int64_t until_ms;       /* begun before; 0: whenever */
    const char *before;
    size_t limit;
};
/* One call looks at STORE_RUNS_LOOK rows at most, since status and text have no index. ret_next is
 * the `before` of the next page, which may be there though this one is not full; "": there is
 * none. */
enum { STORE_RUNS_LOOK = 2000 };
int store_run_list(struct store *s, const struct store_run_query *query,
                   void (*on_run)(void *ctx, const struct store_run *run), void *ctx,
                   char ret_next[ID_SIZE], struct err *err);
/* At start, by the one server that writes here: what a crash left running becomes
 * interrupted, and files of artifacts that are not whole go. */
int store_run_interrupt_all(struct store *s, int64_t *ret_count, struct err *err);

/* --- events of a run --- */

/* Whether a run that has that many events, of that many bytes, may have one more. */
bool store_event_fits(const struct store *s, int64_t events, int64_t bytes, size_t len);
/* What one counts. */
int64_t store_event_bytes(size_t len);
/* Left out, and logged, if the run is not there (any more) or has its fill of events. */
int store_event_add(struct store *s, const char *run_id, const char *type, const char *json,
                    size_t len, struct err *err);
/* The same to a run that somebody names, which may have begun a moment ago: left out if it is not
 * in that scope when this is written. */
int store_event_send(struct store *s, const char *run_id, struct store_scope scope,
                     const char *type, const char *json, size_t len, struct err *err);
struct store_event {
    int64_t seq;
    int64_t time_ms;
    const char *type;
    const char *json;
};
int store_event_list(struct store *s, const char *run_id, int64_t after_seq, size_t limit,
                     void (*on_event)(void *ctx, const struct store_event *event), void *ctx,
                     struct err *err);

/* --- records of sandboxes, of the commands in them, and of snapshots --- */

struct store_record {
    char id[ID_SIZE];
    char owner[ID_SIZE];
    char parent[ID_SIZE]; /* of a command: its sandbox */
    char *status;
    int64_t created_ms;
    int64_t ended_ms; /* 0 while it lives */
    int64_t bytes;    /* of a snapshot */
    char *doc;        /* JSON: everything else */
};
void store_record_finish(struct store_record *r);
/* Its doc, an object; never NULL. One that cannot be read is no lost record: it has nothing but an
 * "error", as clients see it, and can be deleted. A new reference. */
json_t *store_record_doc(const struct store_record *r);
/* Whether that is what it has; err may be NULL. */
int store_doc_check(const json_t *doc, const char *what, struct err *err);
/* kind: "sandbox", "exec" or "snapshot". Adds it, or sets status, end, bytes and doc. The end of a
 * sandbox or a command is never refused. */
int store_record_put(struct store *s, const char *kind, const struct store_record *r,
                     struct err *err);
/* As it will be when what waits is written: whoever changes a record may read it at once. parent
 * may be NULL. ERR_NOT_FOUND if there is none in that scope. */
int store_record_get(struct store *s, const char *kind, const char *id, const char *parent,
                     struct store_scope scope, struct store_record *ret, struct err *err);
struct store_record_query {
    struct store_scope scope;
    const char *parent; /* NULL: any */
    const char *before; /* NULL, or an id: older ones */
    size_t limit;
};
/* Newest first, as they will be when what waits is written. */
int store_record_list(struct store *s, const char *kind, const struct store_record_query *query,
                      void (*on_record)(void *ctx, const struct store_record *r), void *ctx,
                      struct err *err);
/* With what it is the parent of. */
int store_record_delete(struct store *s, const char *kind, const char *id, struct err *err);
/* At start: what a crash left alive becomes "interrupted". */
int store_record_interrupt_all(struct store *s, int64_t *ret_count, struct err *err);
/* Those of a parent (NULL: of none) that ended before a time (0: never mind), or are not among
 * the newest `keep` that ended; the oldest 100 of each. The callback may not change records. */
int store_record_old(struct store *s, const char *kind, const char *parent, int64_t before_ms,
                     size_t keep, void (*on_record)(void *ctx, const struct store_record *r),
                     void *ctx, struct err *err);
/* Of one owner, or with NULL of all. */
int store_record_sum(struct store *s, const char *kind, const char *owner, int64_t *ret_bytes,
                     struct err *err);
