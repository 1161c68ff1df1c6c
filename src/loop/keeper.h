#pragma once
/* Keeps one child program running: starts it, connects a channel to it, starts it again with a
 * growing pause when it ends.
 *
 * A program that needs rights which we have given up is started by a starter: a process that kept
 * them, at the other end of a socket. Each byte sent there comes with a descriptor, the program's
 * end of a new channel. The end of that channel is the end of that life; there is no pid. */

#include "loop/channel.h"
#include "loop/child.h"

struct keeper;

enum keeper_state {
    KEEPER_STARTING,
    KEEPER_RUNNING,
    KEEPER_BACKOFF,  /* between two lives */
    KEEPER_STOPPING, /* the last life is about to end */
    KEEPER_STOPPED,
};

struct keeper_options {
    const char *name;
    int exec_fd;
    int starter; /* a socket to a starter; 0 or negative: none. Borrowed */
    const char *const *args;
    const int *joins; /* as of struct child_options; borrowed */
    size_t njoins;
    bool drop;
    uid_t uid;
    gid_t gid;
    size_t max_frame_bytes;
    size_t max_queue_bytes;
    /* A new life has begun: send it its configuration. */
    void (*on_start)(void *ctx, struct channel *channel);
    void (*on_frame)(void *ctx, struct wire_frame *frame);
    /* This life has ended: what was asked of it gets no answer. May be NULL. */
    void (*on_end)(void *ctx);
    void *ctx;
};

struct keeper_info {
    const char *name;
    enum keeper_state state;
    pid_t pid;
    unsigned restarts;
    int64_t started_ms; /* monotonic */
    int wait_status;    /* of the last life; -1 if it cannot be known */
    const char *ended;  /* the same in words; "" before that. Borrowed */
    bool lost;          /* its starter is gone: there is no next life */
};

struct keeper *keeper_create(uv_loop_t *loop, const struct keeper_options *options);
/* NULL while it is not running. */
struct channel *keeper_channel(struct keeper *k);
struct keeper_info keeper_info(const struct keeper *k);
/* Ends this life. */
void keeper_kill(struct keeper *k);
/* In on_end: this life ended for a known cause, so that the next one begins at once, without the
 * pause that keeps a program which cannot run from being started all the time. */
void keeper_hurry(struct keeper *k);
const char *keeper_state_name(enum keeper_state state);
/* Closes the channel, which ends the child; kills it after a while if it does not go. on_stopped
 * may be NULL. The pointer is dead after that. */
void keeper_stop(struct keeper *k, void (*on_stopped)(void *ctx), void *ctx);
