#pragma once
/* A stand-in for the front: starts cay-sandbox, speaks both channels, blocking and with a deadline.
 * Used by the tests and by the benchmark. */

#include "base/buf.h"
#include "wire/frame.h"
#include "wire/sandbox.h"

#include <stdbool.h>
#include <sys/types.h>

struct client_options {
    const char *program;
    uid_t uid; /* 0: as the caller; else the launcher runs as this ordinary user */
    uint32_t pool, max;
    uint32_t uids; /* that the launcher may give away; 2 * max leave none for boxes made ahead */
    const char *without; /* CAY_SANDBOX_WITHOUT */
    char *const *env;    /* more environment for the launcher */
    struct sandbox_root *roots;
    size_t nroots;
    const char *state_dir;
};

struct client {
    pid_t pid;
    int control;
    struct wire_reader reader;
    uint64_t next_id;
    struct sandbox_features features;
    struct buf exited; /* payloads of EXITED that came while something else was awaited */
    size_t nexited;
    int last_status; /* of the last EXITED */
    struct sandbox_stats last_stats;
};

struct guest {
    char id[SANDBOX_ID_MAX];
    int channel, pidfd, listener;
    struct wire_reader reader;
    uint64_t next_id;
    bool ready;
};

struct run {
    bool started;
    struct sandbox_exit exit;
    struct buf out; /* standard output and error */
    struct err err; /* why it did not start */
    uint32_t pid;
};

int client_start(struct client *c, const struct client_options *o, struct err *err);
/* Closes the channel and waits for the launcher. */
void client_stop(struct client *c);
int client_create(struct client *c, const struct sandbox_spec *spec, const int *bind_fds,
                  struct guest *ret, struct err *err);
int client_destroy(struct client *c, struct guest *g, struct err *err);
/* PAUSE, RESUME, STATS. */
int client_request(struct client *c, uint16_t type, const char *id, struct sandbox_stats *ret,
                   struct err *err);
/* Waits for the next EXITED; the id must be this. */
int client_wait_exited(struct client *c, const char *id, struct err *err);
/* INIT_READY or the error. */
int guest_wait_ready(struct guest *g, struct err *err);
void guest_close(struct guest *g);

/* Sends one request and returns its reply (not STARTED's follow-up). */
int guest_call(struct guest *g, uint16_t type, const struct buf *payload, const int *fds,
               size_t nfds, struct wire_frame *ret, struct err *err);
int guest_send(struct guest *g, uint16_t type, uint64_t id, const struct buf *payload,
               const int *fds, size_t nfds);
int guest_read(struct guest *g, struct wire_frame *ret, struct err *err);
/* Runs a command to its end with its output collected, at most max_out bytes of it kept. */
int guest_run(struct guest *g, struct sandbox_exec *e, struct run *ret, struct err *err);
int guest_runv(struct guest *g, struct run *ret, struct err *err, ...) __attribute__((sentinel));
int guest_write(struct guest *g, const char *path, const void *data, size_t n, uint32_t mode,
                struct err *err);
/* Reads a whole file into out. */
int guest_read_file(struct guest *g, const char *path, struct buf *out, struct err *err);
void run_finish(struct run *r);
/* Exit status as a shell says it: 128 + signal when killed. */
int run_status(const struct run *r);
