#pragma once
/* The sandboxes of this server: who owns them, how long they live, what is remembered of them. A
 * sandbox is recorded before it starts; its record and the output of its commands stay when it is
 * gone, until they are deleted or grow old. Everything here is on the loop. */

#include "base/err.h"
#include "base/id.h"
#include "base/json.h"
#include "front/common/features.h"
#include "front/common/secrets.h"
#include "front/ledger/keyring.h"
#include "front/sandbox/launcher.h"
#include "front/sandbox/network.h"
#include "front/sandbox/settings.h"
#include "front/store/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct exec;
struct later_queue;
struct snapshot;
struct sandboxes;

struct sandboxes_options {
    uv_loop_t *loop;
    struct store *store;
    const struct sandbox_settings *settings;
    struct secrets *secrets;
    const json_t *models;       /* models.json, for prices; or NULL; borrowed */
    const json_t *private_also; /* besides the settings' "private"; or NULL; borrowed */
    const char *data_dir;
    int sandbox_fd; /* the programs, opened with O_PATH, or -1; borrowed */
    int egress_fd;
    int starter; /* see host.h */
    /* It became known whether sandboxes can be made, or that changed. May be NULL. */
    void (*on_state)(void *ctx);
    void *ctx;
};

enum { SANDBOX_FILES_MAX = 10000 /* that one is made with */, SANDBOX_EXTRA_BINDS = 2 };

enum sandbox_state { SANDBOX_STARTING, SANDBOX_RUNNING, SANDBOX_PAUSED, SANDBOX_ENDING };

/* What its record says, and clients are shown. */
enum sandbox_status {
    SANDBOX_STATUS_RUNNING,
    SANDBOX_STATUS_PAUSED,
    SANDBOX_STATUS_STOPPED,
    SANDBOX_STATUS_FAILED,
    SANDBOX_STATUS_INTERRUPTED,
};

struct sandbox_waiter {
    struct sandbox_waiter *next;
    void (*cb)(void *ctx);
    void *ctx;
};

/* One who waits for something inside; on_late is called when the time is over. */
struct sandbox_visitor {
    struct sandbox_visitor *next; /* the newest first */
    int64_t deadline_ms;          /* monotonic; 0: none */
    void (*on_late)(void *ctx);   /* may take it out */
    void *ctx;
};

/* One that lives. */
struct sandbox {
    struct sandbox *next;
    struct sandboxes *all;
    char id[ID_SIZE];
    char owner[ID_SIZE];
    char agent[SANDBOX_ID_MAX]; /* whose program is bound into it; "": nobody's */
    enum sandbox_state state;
    struct sandbox_box *box;
    json_t *doc;                /* what is shown of it, but for what changes */
    struct sandbox_strv env;    /* "NAME=value", as it was asked for */
    struct network_ask network; /* what it may reach, but for what the server added */
    struct network_line *line;
    struct exec *execs;               /* running, or looked at */
    uint64_t kept_bytes;              /* of the output of its commands */
    size_t recorded;                  /* of its commands */
    struct store_wait prune;          /* until the oldest of them go */
    struct sandbox_visitor *visitors; /* connections to its ports */
    size_t connections;
    size_t snapshots;   /* being made */
    int64_t created_ms; /* wall clock */
    int64_t expires_ms;
    struct sandbox_stats stats;
    struct err err; /* why it ends, if nobody asked for it */
    bool expired;
    bool unwritten;      /* the store could not take it: there is no record of it */
    struct setup *setup; /* while it is being made ready */
    struct sandbox_waiter *waiters;
};

int sandboxes_open(const struct sandboxes_options *options, struct sandboxes **ret,
                   struct err *err);
/* Before a sandbox ends because its time is over: true if the callee ends it, which must be soon
 * (EXPIRE_GRACE_S, or it is ended all the same). */
void sandboxes_on_expire(struct sandboxes *all, bool (*on_expire)(void *ctx, struct sandbox *s),
                         void *ctx);
/* Ends all of them; the pointer is dead when on_closed is called. */
void sandboxes_close(struct sandboxes *all, void (*on_closed)(void *ctx), void *ctx);

struct sandboxes_stats {
    size_t starting, running, paused, execs;
    uint64_t created_total, failed_total;
    int64_t output_bytes; /* of commands that run */
};
struct sandboxes_stats sandboxes_stats(const struct sandboxes *all);
/* Commands that run: of all sandboxes, and of those of one owner. */
struct sandboxes_running {
    size_t all, own;
    size_t unread_all, unread_own; /* bytes of input that they have not read */
};
struct sandboxes_running sandboxes_running(const struct sandboxes *all, const char *owner);
/* Whether more input may be kept for a command of this owner that does not read. */
bool sandboxes_take_input(const struct sandboxes *all, const char *owner);
/* An upload holds so many bytes now; *held is what it held before. */
void sandboxes_hold_upload(struct sandboxes *all, size_t *held, size_t now);
/* The list of what writes files, and the number of who waits next: files.c keeps them. */
struct file_writer;
struct file_writer **sandboxes_writers(struct sandboxes *all);
uint64_t sandboxes_next_turn(struct sandboxes *all);
/* How many it may gather: when all of them hold much, a little each. */
size_t sandboxes_upload_most(const struct sandboxes *all, size_t wanted);
/* 0, or why no sandbox can be made now. */
int sandboxes_check(const struct sandboxes *all, struct err *err);
/* The same without a reason, and true while they are being opened for the first time. */
bool sandboxes_are_well(const struct sandboxes *all);
/* The feature "sandboxes" of this machine: what is missing and what to do. False if it is not known
 * yet: the launcher has not answered since the server started. */
bool sandboxes_feature(const struct sandboxes *all, struct feature *ret);
const struct sandbox_features *sandboxes_features(const struct sandboxes *all);
/* Calls on_child for each program that is kept running for them. */
void sandboxes_children(const struct sandboxes *all,
                        void (*on_child)(void *ctx, const struct keeper_info *info), void *ctx);
struct store *sandboxes_store(const struct sandboxes *all);
const struct sandbox_settings *sandboxes_settings(const struct sandboxes *all);
uv_loop_t *sandboxes_loop(const struct sandboxes *all);
/* For what is told later in the turn. */
struct later_queue *sandboxes_later(struct sandboxes *all);
struct network *sandboxes_network(const struct sandboxes *all);
/* The folder of a sandbox's output, opened (made if `make`), or -1 with errno. */
int sandboxes_dir(const struct sandboxes *all, const char *id, bool make);
int sandboxes_snapshots_dir(const struct sandboxes *all);
/* Those that are being made: snapshot.c's. */
struct snapshot **sandboxes_snapshots(struct sandboxes *all);

/* What the server itself adds to a sandbox that it makes for its own ends; borrowed. */
struct sandbox_extra {
    struct sandbox_extra_bind {
        int fd; /* a file or folder, read-only at the path */
        const char *path;
    } binds[SANDBOX_EXTRA_BINDS];
    size_t nbinds;
    const char *agent; /* whose program that is; NULL: nobody's */
    const struct egress_route *routes;
    size_t nroutes;
    const struct egress_price *price; /* of a model that the list may not have; or NULL */
    const json_t *injected;           /* what is shown of them, or NULL */
    const char *user;                 /* the guest's account; NULL: cay */
    const char *work;                 /* where /work is too; NULL: nowhere */
    json_t *note;                     /* kept with it and not shown; or NULL */
    double max_usd;                   /* of models; 0: what the settings say */
    bool asks;                        /* each call of a model waits for who pays it */
};

/* A file that a sandbox is made with. */
struct sandbox_file {
    char *path;
    const char *content; /* in the tree, or: */
    char *decoded;
    size_t len;
    uint32_t mode;
};
struct sandbox_files {
    struct sandbox_file *items;
    size_t n;
    json_t *tree; /* a reference to what contents are in */
};
/* From a list of {path, content | content_base64, mode}; a path that is not absolute is below
 * `dir`, unless that is NULL. */
int sandbox_files_read(const json_t *list, const char *dir, struct sandbox_files *ret,
                       struct err *err);
void sandbox_files_finish(struct sandbox_files *files);

/* What of the machine the settings name, and where it is wanted. */
struct sandbox_named_bind {
    const char *name;
    const char *path;
    enum sandbox_bind_mode mode;
};

/* Who asks, and for what. Files, env and network are its own, the rest is borrowed. A number that
 * is 0 stands for the setting. */
struct sandbox_request {
    const char *owner;
    struct store_scope scope;
    const json_t *grants; /* of the key, or NULL */
    const char *name;     /* or NULL */
    const char *root;     /* a name of the settings; NULL or "": the machine's own */
    const char *snapshot; /* or NULL */
    struct sandbox_files files;
    struct sandbox_strv env; /* "NAME=value" */
    struct sandbox_binds {
        struct sandbox_named_bind items[SANDBOX_BINDS_MAX];
        size_t n;
    } binds;
    int64_t memory_mb, disk_mb, pids;
    double cpus;
    int64_t timeout_s;
    const json_t *metadata; /* or NULL */
    struct network_ask network;
    const struct sandbox_extra *extra; /* or NULL */
};
/* Fills it from the body of POST /v1/sandboxes, which must outlive it. Finish it also when that
 * fails. */
int sandbox_request_read(const json_t *body, struct sandbox_request *r, struct err *err);
void sandbox_request_finish(struct sandbox_request *r);
/* Makes each "content_base64" of the "files" a "content", which may have any bytes then. In any
 * thread. */
void sandbox_decode_files(json_t *body);
/* err NULL: it is ready. Otherwise it is gone. */
typedef void (*sandbox_made)(void *ctx, struct sandbox *s, const struct err *err);
/* NULL with err if it cannot be; made is called once, later. Takes what is the request's own. */
struct sandbox *sandboxes_make(struct sandboxes *all, struct sandbox_request *request,
                               sandbox_made made, void *ctx, struct err *err);
/* Nobody waits for it to be made any more: it ends. */
void sandbox_drop_maker(struct sandbox *s);

/* A living one that this scope may see, or NULL with ERR_NOT_FOUND or, if it is not usable now,
 * ERR_CONFLICT. paused: one that is paused will do. */
struct sandbox *sandboxes_use(struct sandboxes *all, const char *id, struct store_scope scope,
                              bool paused, struct err *err);
/* NULL if there is none. */
struct sandbox *sandboxes_find(struct sandboxes *all, const char *id);
/* The object that clients see, living or not. */
int sandboxes_show(struct sandboxes *all, const char *id, struct store_scope scope,
                   json_t **ret_object, struct err *err);
json_t *sandbox_show(const struct sandbox *s);
json_t *sandboxes_show_record(const struct sandboxes *all, const struct store_record *r);
/* Of one that is gone; interrupted, if its end could not be written down. */
enum sandbox_status sandbox_record_status(const struct store_record *r);
/* Writes down what has changed. */
void sandbox_save(struct sandbox *s);
/* From now on. */
int sandbox_extend(struct sandbox *s, int64_t timeout_ms, struct err *err);
/* Ends it; cb (may be NULL) when it is gone. */
struct sandbox_waiter *sandbox_end(struct sandbox *s, void (*cb)(void *ctx), void *ctx);
/* Calls cb when it is gone, without ending it. */
struct sandbox_waiter *sandbox_wait(struct sandbox *s, void (*cb)(void *ctx), void *ctx);

/* Something of it that takes a while; it may be gone before that is done. */
struct sandbox_change;
/* err NULL: it is so now. The pointer is dead afterwards. */
typedef void (*sandbox_changed)(void *ctx, const struct err *err);
/* Each returns NULL with err if it cannot be asked for. */
struct sandbox_change *sandbox_pause(struct sandbox *s, bool pause, sandbox_changed cb, void *ctx,
                                     struct err *err);
struct sandbox_network {
    const struct network_ask *ask;
    const json_t *grants;
    const struct egress_route *routes; /* of the server's own making */
    size_t nroutes;
    const json_t *injected; /* what is shown of those, or NULL */
};
struct sandbox_change *sandbox_set_network(struct sandbox *s, const struct sandbox_network *network,
                                           sandbox_changed cb, void *ctx, struct err *err);
/* Looks at what it uses now; an answer that does not come is no error. */
struct sandbox_change *sandbox_measure(struct sandbox *s, sandbox_changed cb, void *ctx,
                                       struct err *err);
/* Nobody waits for it any more: it goes on all the same. */
void sandbox_change_leave(struct sandbox_change *c);
/* For the parts of a sandbox: the one place that writes its state. */
void sandbox_move(struct sandbox *s, enum sandbox_state to);
void sandbox_visit(struct sandbox *s, struct sandbox_visitor *v);
void sandbox_leave(struct sandbox *s, struct sandbox_visitor *v);
/* Forgets a sandbox that is gone, with all that is remembered of it. */
int sandboxes_forget(struct sandboxes *all, const char *id, struct err *err);

/* Adds "NAME=value" for each member of the object to the struct sandbox_strv. */
int sandbox_env_read(const json_t *env, void *strv, struct err *err);
/* A name that people read in a list: of a sandbox, or of a snapshot. */
int sandbox_check_name(const char *name, struct err *err);
