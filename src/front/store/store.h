#pragma once
/* The store: what this server did: runs, their events, sandboxes. One SQLite file behind this
 * header, so that another engine can come later. Calls are synchronous and short (a commit does not
 * wait for the disk: it survives the death of any process; what takes longer is done by
 * store_care). Strings in records that a call fills are owned by the record: store_*_finish() frees
 * them. */

#include "base/err.h"
#include "base/id.h"
#include "front/store/settings.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store;

int store_open(const char *path, struct store **ret_store, struct err *err);
void store_close(struct store *s);
/* Has the ends of untold runs written to a file beside the database first, and many of them to the
 * database at a time. For the one server that has the database, before it asks for anything: takes
 * over what the last one left there. */
int store_ends_open(struct store *s, struct err *err);
/* Instead of the defaults; before care is taken of it. */
void store_configure(struct store *s, const struct store_settings *settings);
/* Deletes ended runs that are too old or too many, the oldest of the key that has the most first,
 * in steps between which others write; moves the log into the database file, and has it begin from
 * the front again before it grows long. For a worker thread, one at a time (caretaker.h), beside
 * the thread that makes all other calls. */
int store_care(struct store *s, struct err *err);
/* Has store_care return soon; it may be called while that is at work, and there is no way back. */
void store_care_end(struct store *s);
/* Writes what ended while the disk was full, if there is room now. On the thread of all other
 * calls. */
void store_settle(struct store *s);
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
    char owner[ID_SIZE]; /* the key's id, "" for the operator */
    char *kind;          /* "run", "chat", "sandbox", "task" */
    char *status;        /* "running", "done", "failed", "interrupted", "cancelled" */
    char *title;
    char *detail; /* JSON, or NULL */
    char *error_code;
    char *error_message;
    int64_t created_ms;
    int64_t finished_ms; /* 0 while it runs */
    bool has_usage;      /* it has used a model, and has ended */
    struct store_run_usage usage;
};

void store_run_finish(struct store_run *r);
/* Recorded before the run starts: id, owner, kind, title, detail and created_ms are read. */
int store_run_begin(struct store *s, const struct store_run *run, struct err *err);
/* The same of a run that is told to nobody before its end: it is written some milliseconds later,
 * or before the store is asked for anything, or with its end. Where nothing can be written it is
 * refused, as by the other, from the second on. */
int store_run_begin_untold(struct store *s, const struct store_run *run, struct err *err);
/* Writes what is untold. */
int store_untold_write(struct store *s, struct err *err);
/* The same at a time of the monotonic clock, but what began of late and has not ended may wait on.
 */
int store_untold_write_due(struct store *s, int64_t now_ms, struct err *err);
/* When that is due, in milliseconds from now; -1: there is nothing. */
int64_t store_untold_due_ms(const struct store *s);

struct store_run_end {
    const char *status;
    const char *error_code;
    const char *error_message;
    const char *detail; /* replaces the detail unless NULL */
    size_t detail_len;
    struct store_run_usage usage; /* all 0: it used no model */
    bool fault;                   /* the machine's doing, not the job's own; not recorded */
};
/* On a full disk (ERR_FULL) the end is kept, and written by store_settle(); that of a run that is
 * untold also if it could not be written for another reason. */
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
    const char *status;
    const char *text; /* in the title, the id or the error's message, in either case */
    int64_t since_ms; /* begun then or later; 0: whenever */
    int64_t until_ms; /* begun before; 0: whenever */
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
/* At start, by the one server that writes here: what a crash left "running" becomes
 * "interrupted", and files of artifacts that are not whole go. */
int store_run_interrupt_all(struct store *s, int64_t *ret_count, struct err *err);

/* --- events of a run --- */

/* ERR_NOT_FOUND if the run is not there (any more), ERR_LIMIT if it has its fill of events. */
int store_event_add(struct store *s, const char *run_id, const char *type, const char *json,
                    size_t len, struct err *err);
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
/* kind: "sandbox", "exec" or "snapshot". Adds it, or sets status, end, bytes and doc. On a full
 * disk (ERR_FULL) the end of one is kept, and written by store_settle(). */
int store_record_put(struct store *s, const char *kind, const struct store_record *r,
                     struct err *err);
/* The same of one that is told to nobody before it is put again (store_run_begin_untold()). */
int store_record_put_untold(struct store *s, const char *kind, const struct store_record *r,
                            struct err *err);
/* parent may be NULL. ERR_NOT_FOUND if there is none in that scope. */
int store_record_get(struct store *s, const char *kind, const char *id, const char *parent,
                     struct store_scope scope, struct store_record *ret, struct err *err);
struct store_record_query {
    struct store_scope scope;
    const char *parent; /* NULL: any */
    const char *before; /* NULL, or an id: older ones */
    size_t limit;
};
/* Newest first. */
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
