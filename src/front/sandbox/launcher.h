#pragma once
/* Linux sandboxes, on the loop: keeps cay-sandbox running, makes sandboxes ("boxes"), runs commands
 * in them and reaches their files and ports. Knows nothing of HTTP or the store, so
 * that `cay serve` and `cay exec` both use it.
 *
 * The launcher is trusted. What comes from a box's init is trusted no more than its guest: every
 * reply must answer a request that was made, lengths are bounded, passed descriptors are looked at
 * (fstat) before use and never mapped; a box that breaks the contract, or does not answer in time,
 * is destroyed. */

#include "base/err.h"
#include "loop/keeper.h"
#include "wire/sandbox.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct sandbox_launcher;
struct sandbox_box;
struct sandbox_command;
struct sandbox_call;

/* --- the launcher --- */

struct sandbox_launcher_options {
    uv_loop_t *loop;
    int exec_fd; /* cay-sandbox, opened with O_PATH; borrowed */
    int starter; /* a socket to `cay-sandbox --starter`, or -1; borrowed (see keeper.h) */
    const struct sandbox_config *config; /* copied */
    /* The launcher became ready, failed or ended. May be NULL. */
    void (*on_state)(void *ctx);
    void *ctx;
};

struct sandbox_launcher *sandbox_launcher_create(const struct sandbox_launcher_options *options);
/* NULL until the launcher has answered; its strings live until it ends. */
const struct sandbox_features *sandbox_launcher_features(const struct sandbox_launcher *h);
/* Why no sandbox can be made now: 0 if they can (or might: the launcher has not answered yet). */
int sandbox_launcher_check(const struct sandbox_launcher *h, struct err *err);
/* A box whose init takes longer to answer what it is asked from now on is ended: not as long as
 * LIMIT_SANDBOX_INIT_MS, for tests. */
void sandbox_launcher_answer_within(struct sandbox_launcher *h, int64_t ms);
struct keeper_info sandbox_launcher_info(const struct sandbox_launcher *h);
/* Ends every box (with on_exited or on_failed) and the launcher. The pointer is dead when
 * on_stopped (may be NULL) is called. */
void sandbox_launcher_stop(struct sandbox_launcher *h, void (*on_stopped)(void *ctx), void *ctx);

/* --- boxes --- */

struct sandbox_box_callbacks {
    /* It can be used. listener: the proxy's socket inside, or -1; the callee's. */
    void (*on_ready)(void *ctx, int listener);
    /* It could not be made. The pointer is dead afterwards. */
    void (*on_failed)(void *ctx, const struct err *err);
    /* It was ready and has ended, however that came: err NULL if it was asked to. stats are zero
     * when the launcher ended too. The pointer is dead afterwards. */
    void (*on_exited)(void *ctx, const struct sandbox_stats *stats, const struct err *err);
    /* It takes requests, and answers them when it is ready; may be NULL. */
    void (*on_coming)(void *ctx);
};

/* NULL with err if it cannot even be asked for; no callback comes before this has returned.
 * bind_fds: one directory for each bind of the spec; borrowed. */
struct sandbox_box *sandbox_box_create(struct sandbox_launcher *h, const struct sandbox_spec *spec,
                                       const int *bind_fds,
                                       const struct sandbox_box_callbacks *callbacks, void *ctx,
                                       struct err *err);
/* Ends it: on_exited (or on_failed) comes later, when every process is gone. */
void sandbox_box_destroy(struct sandbox_box *b);

/* --- requests: each answered once, in a callback that comes later --- */

struct sandbox_entry {
    char *name; /* no "/"; maybe not UTF-8 */
    struct sandbox_stat stat;
};

struct sandbox_reply {
    uint64_t value;            /* bytes written, entries deleted */
    struct sandbox_stat stat;  /* stat, read */
    struct sandbox_stats used; /* stats */
    int fd; /* read: a regular file; port: a TCP socket. Take it with steal_fd() */
    struct sandbox_entry *entries;
    size_t nentries;
    bool more;
};
/* err NULL: the reply is there, until the callback returns. */
typedef void (*sandbox_replied)(void *ctx, struct sandbox_reply *reply, const struct err *err);

struct sandbox_put {
    const char *path;
    uint32_t mode;
    uint32_t flags; /* enum sandbox_write */
    const void *data;
    size_t len; /* at most SANDBOX_INLINE_MAX */
    int fd;     /* -1, or a pipe that the content is read from; borrowed */
};

/* Each returns NULL if the box cannot take the request (it is ending, or too many wait): the
 * callback is not called then. */
struct sandbox_call *sandbox_box_read(struct sandbox_box *b, const char *path, sandbox_replied cb,
                                      void *ctx);
struct sandbox_call *sandbox_box_write(struct sandbox_box *b, const struct sandbox_put *put,
                                       sandbox_replied cb, void *ctx);
struct sandbox_call *sandbox_box_stat(struct sandbox_box *b, const char *path, bool follow,
                                      sandbox_replied cb, void *ctx);
struct sandbox_call *sandbox_box_list(struct sandbox_box *b, const char *path, uint64_t skip,
                                      sandbox_replied cb, void *ctx);
struct sandbox_call *sandbox_box_mkdir(struct sandbox_box *b, const char *path, uint32_t mode,
                                       bool parents, sandbox_replied cb, void *ctx);
struct sandbox_call *sandbox_box_move(struct sandbox_box *b, const char *from, const char *to,
                                      sandbox_replied cb, void *ctx);
struct sandbox_call *sandbox_box_delete(struct sandbox_box *b, const char *path, bool recursive,
                                        sandbox_replied cb, void *ctx);
struct sandbox_call *sandbox_box_port(struct sandbox_box *b, uint16_t port, sandbox_replied cb,
                                      void *ctx);
/* To a command, or with NULL to every process of the guest. */
struct sandbox_call *sandbox_box_signal(struct sandbox_box *b,
                                        const struct sandbox_command *command, int signo,
                                        bool group, sandbox_replied cb, void *ctx);
/* These three are answered by the launcher. */
struct sandbox_call *sandbox_box_stats(struct sandbox_box *b, sandbox_replied cb, void *ctx);
struct sandbox_call *sandbox_box_pause(struct sandbox_box *b, sandbox_replied cb, void *ctx);
struct sandbox_call *sandbox_box_resume(struct sandbox_box *b, sandbox_replied cb, void *ctx);
/* The callback does not come; what was asked for may still happen. NULL is allowed. */
void sandbox_call_cancel(struct sandbox_call *c);

/* --- commands, and archives --- */

struct sandbox_command_callbacks {
    void (*on_started)(void *ctx); /* may be NULL */
    /* stream is 1 or 2; a terminal's output is 1. */
    void (*on_output)(void *ctx, int stream, const char *data, size_t len);
    void (*on_input_drained)(void *ctx); /* what was given to write() is gone; may be NULL */
    /* Called once, after the last output: exit as wait4() said it, or NULL with err when it did not
     * start or its end is not known, because the sandbox ended. The pointer is dead afterwards. */
    void (*on_exit)(void *ctx, const struct sandbox_exit *exit, const struct err *err);
};

struct sandbox_command_options {
    /* A command. `in`, `out` and `err` of it are set here: output is always read, stderr too. */
    const struct sandbox_exec *exec;
    bool input; /* its input stays open for sandbox_command_write() */
    bool brief; /* only its end matters: its output may come with that */
    /* Or, with exec NULL, an archive: TAR_IN, TAR_OUT or SNAPSHOT. What tar says is stream 2. */
    uint16_t archive;
    const char *dir;
    const struct sandbox_strv *paths; /* TAR_OUT; NULL: all of dir */
    int fd; /* of the archive; borrowed. -1: it is the command's input or output */
    struct sandbox_command_callbacks callbacks;
    void *ctx;
};

/* NULL with err if it cannot be asked for. */
struct sandbox_command *sandbox_command_start(struct sandbox_box *b,
                                              const struct sandbox_command_options *options,
                                              struct err *err);
/* Takes bytes for its input: all or, when they would pass SANDBOX_INPUT_MAX, none (false). */
#define SANDBOX_INPUT_MAX (1024 * 1024)
bool sandbox_command_write(struct sandbox_command *c, const void *data, size_t len);
size_t sandbox_command_input_queued(const struct sandbox_command *c);
/* Closes its input when all is written; at a terminal, types the end-of-file character. */
void sandbox_command_end_input(struct sandbox_command *c);
/* Sets the size of its terminal, or remembers it until the terminal exists. False: it has none. */
bool sandbox_command_resize(struct sandbox_command *c, uint32_t cols, uint32_t rows);
/* No output comes while it is paused, unless the sandbox ends; the guest waits when its pipe is
 * full.
 */
void sandbox_command_pause(struct sandbox_command *c, bool paused);
bool sandbox_command_is_terminal(const struct sandbox_command *c);
/* From now on what comes on this stream is dropped, and only counted. */
void sandbox_command_discard(struct sandbox_command *c, int stream);
uint64_t sandbox_command_discarded(const struct sandbox_command *c, int stream);
