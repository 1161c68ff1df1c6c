#pragma once
/* Between the parts of the sandboxes: sandboxes.c (their life), request.c (what is asked for),
 * setup.c (making one ready), records.c (what is remembered). */

#include "front/sandbox/sandboxes.h"
#include "loop/later.h"

struct sandboxes {
    struct sandboxes_options opt;
    struct sandbox_launcher *host; /* NULL: there is no cay-sandbox */
    struct network *network;
    struct sandbox *list;
    size_t live;
    int dir;               /* data_dir/sandboxes */
    int snapshots;         /* data_dir/snapshots */
    struct snapshot *made; /* snapshots that are being made */
    uv_timer_t timer;
    struct later_queue later;
    int64_t pruned_ms;
    struct file_writer *writers;
    uint64_t turns;       /* of writers */
    size_t uploads_bytes; /* that they hold */
    unsigned ended;       /* since then */
    bool prune_again;     /* it found some, and there may be more */
    uint64_t created_total, failed_total;
    bool (*on_expire)(void *ctx, struct sandbox *s);
    void *expire_ctx;
    bool closing;
    unsigned parts; /* that are to be closed */
    void (*on_closed)(void *ctx);
    void *closed_ctx;
};

/* What is left to do before it can be handed out. */
struct setup {
    struct sandbox *sandbox;
    sandbox_made made;
    void *ctx;
    struct egress_policy policy;
    struct sandbox_files files;
    size_t file;  /* the next */
    bool writing; /* a part of that */
    bool begun;   /* the box was ready */
    size_t at;
    int snapshot; /* an archive to restore, or -1 */
    struct sandbox_command *restore;
    bool restored;
    /* What tar said: the line that comes, by its first and last bytes, and the lines that matter.
     */
    char line[256], tail[32], said[400];
    size_t line_len, tail_len, said_len;
    uint64_t too_long; /* paths */
};

/* A request, checked against the settings and the key's grants. */
struct sandbox_resolved {
    struct sandbox_spec spec;
    int bind_fds[SANDBOX_BINDS_MAX];
    struct egress_policy policy;
    json_t *doc;
    int64_t timeout_s;
    int snapshot; /* an archive, or -1 */
};

/* --- request.c --- */

/* Fills what is zero but for the snapshot, also when it fails: finish it. */
int sandbox_request_resolve(struct sandboxes *all, const struct sandbox_request *r,
                            struct sandbox_resolved *p, struct err *err);
void sandbox_resolved_finish(struct sandbox_resolved *p);

/* --- setup.c --- */

/* The box is coming, and takes a file meanwhile. */
void setup_ahead(struct sandbox *s);
/* It is there: listener as sandbox_box_callbacks has it. */
void setup_begin(struct sandbox *s, int listener);
void setup_free(struct setup *u);
/* What it takes to be made ready did not work: it ends. */
void sandbox_give_up(struct sandbox *s, const struct err *err);

/* --- records.c --- */

int records_open(struct sandboxes *all, struct err *err);
void records_close(struct sandboxes *all);
/* Deletes what a crash has left of sandboxes and snapshots that nobody knows. */
void records_sweep(struct sandboxes *all);
/* Forgets the oldest. */
void records_prune(struct sandboxes *all);
const char *sandbox_status_name(enum sandbox_status status);
int record_put(const struct sandbox *s, enum sandbox_status status, int64_t ended_ms,
               struct err *err);
/* As it is while it lives. */
int record_put_living(const struct sandbox *s, struct err *err);
json_t *records_usage_of(const struct sandbox_stats *st);
