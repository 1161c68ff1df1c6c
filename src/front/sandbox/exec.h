#pragma once
/* A command in a sandbox, as clients see it: recorded before it starts, its output kept in files
 * that only grow, so that a reader can come back at any byte. The little that a short command says
 * is kept in its record instead, which is written anyway. An exec lives as long as somebody
 * holds it; one that ended can be opened again from its record. */

#include "front/sandbox/sandboxes.h"

enum { EXEC_STDOUT = 1, EXEC_STDERR = 2 };

struct exec_follower {
    struct exec_follower *next;
    void (*on_change)(void *ctx); /* more output, or the end; may unfollow */
    void *ctx;
};

enum exec_state {
    EXEC_STARTING,
    EXEC_RUNNING,
    EXEC_EXITED,
    EXEC_FAILED,      /* it never ran */
    EXEC_INTERRUPTED, /* nobody saw its end */
};

struct exec {
    struct exec *next; /* in its sandbox */
    struct sandboxes *all;
    struct sandbox *sandbox; /* NULL when it has ended */
    char id[ID_SIZE];
    char sandbox_id[ID_SIZE];
    char owner[ID_SIZE];
    struct sandbox_command *command; /* NULL when it has ended */
    json_t *doc;                     /* what is shown of it */
    enum exec_state state;
    int64_t created_ms, ended_ms;
    int64_t deadline_ms; /* monotonic; 0: none */
    int dir;
    int fds[3];
    struct buf held[3]; /* all that is kept, while that is little and in no file */
    uint64_t first[3];  /* offset of the first byte that is kept */
    uint64_t sizes[3];  /* offset behind the last one */
    uint64_t bytes[3];  /* that were written */
    bool truncated, timed_out;
    bool wants_input;
    bool has_exit;
    struct sandbox_exit exit;
    struct err err;
    struct exec_follower *followers;
    struct exec_input *input; /* who writes to it; one at a time */
    unsigned refs;
};

/* A command to start. The lists are its own, the texts are borrowed. */
struct exec_request {
    const char *command;      /* for sh, or: */
    struct sandbox_strv argv; /* a program and its arguments */
    struct sandbox_strv env;  /* "NAME=value", over the sandbox's own */
    const char *cwd;          /* NULL: /work */
    struct exec_stdin {
        const char *text; /* all that it reads; NULL: */
        size_t len;
        bool open; /* what exec_input_open() writes; else it has no input */
    } in;
    bool tty, background, read_only;
    bool brief;         /* nobody hears of it before it ends */
    int64_t cols, rows; /* of the terminal; 0: 80 and 24 */
    int64_t timeout_s;  /* 0: none */
};
/* From the body of POST .../exec, which must outlive it. */
int exec_request_read(const json_t *body, struct exec_request *ret, struct err *err);
/* Adds the strings of a list to argv. */
int exec_request_add_args(struct exec_request *r, const json_t *list, struct err *err);
void exec_request_add_env(struct exec_request *r, const char *name, const char *value);
void exec_request_finish(struct exec_request *r);
/* The caller holds a reference to what comes back. */
int exec_start(struct sandbox *s, const struct exec_request *request, struct exec **ret,
               struct err *err);
/* Ends it so long after now. */
void exec_limit(struct exec *e, int64_t timeout_ms);
/* Living or from its record; a reference. */
int exec_open(struct sandboxes *all, const char *sandbox, const char *id, struct store_scope scope,
              struct exec **ret, struct err *err);
void exec_unref(struct exec *e);
void exec_follow(struct exec *e, struct exec_follower *f);
void exec_unfollow(struct exec *e, struct exec_follower *f);
/* Kept bytes from an offset (at least first[]); 0: there are none (yet). */
ssize_t exec_read(struct exec *e, int stream, uint64_t offset, void *out, size_t len);

/* Where one who follows a command has come to. */
struct exec_cursor {
    uint64_t offsets[3];
    int last; /* stream that was read last */
};
struct exec_chunk {
    int stream;
    uint64_t offset;
    const char *data; /* until the next call */
    size_t len;
    bool is_text; /* and has whole characters */
};
/* The next piece of output, of the streams in turn; false: there is none (yet). A character that is
 * not whole is kept back while more may come. */
bool exec_next(struct exec *e, struct exec_cursor *c, struct exec_chunk *ret);

/* Whatever became of it, it is over. */
bool exec_has_ended(const struct exec *e);
/* 0 if the command runs in a sandbox that can answer, else ERR_CONFLICT. */
int exec_check_running(const struct exec *e, struct err *err);

/* One who writes to a command's input. */
struct exec_input;
struct exec_input_callbacks {
    void (*on_room)(void *ctx);                       /* after a write that said false */
    void (*on_end)(void *ctx, const struct err *err); /* it takes no more; the pointer is dead */
};
/* ERR_CONFLICT if it has no input, or somebody else writes to it. Takes a reference. */
int exec_input_open(struct exec *e, const struct exec_input_callbacks *callbacks, void *ctx,
                    struct exec_input **ret, struct err *err);
/* False: wait for on_room. */
bool exec_input_write(struct exec_input *i, const char *data, size_t len);
/* False: on_end is on its way. */
bool exec_input_is_open(const struct exec_input *i);
/* Nothing more comes from this one; eof: from nobody. NULL is allowed. */
void exec_input_close(struct exec_input *i, bool eof);

/* The object that clients see, without output; a new reference. */
json_t *exec_show(struct exec *e);
json_t *exec_show_record(const struct store_record *r);
enum exec_state exec_record_state(const struct store_record *r);
/* Its sandbox is gone. */
void exec_detach(struct exec *e);
void exec_kill(struct exec *e, int signo);
/* Called by the clock. */
void exec_check_time(struct exec *e, int64_t now_ms);
/* Its output is not kept any more, on this side: it has ended, and was the caller's alone. */
void exec_forget_output(struct exec *e);
/* Forgets old commands of a sandbox, soon. */
void exec_prune(struct sandbox *s);
