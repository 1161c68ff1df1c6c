#pragma once
/* Plays the front towards cay-isolate, for tests and the benchmark: starts the program, asks for
 * isolates, runs programs and answers their binding calls. Blocking, with deadlines. */

#include "wire/frame.h"
#include "wire/isolate.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct front {
    pid_t pid;
    int control;
    struct wire_reader reader;
    char *features;
    struct buf plan; /* as the zygote said it; what the next one is started with */
    struct front_exit {
        uint32_t number;
        int status;
        uint64_t cpu_us;
        uint64_t max_rss_kib;
        uint64_t minor_faults;
        uint64_t base_rss_kib;
        uint64_t shared_kib;
    } exits[4096];
    size_t nexits;
};

struct front_isolate {
    uint32_t number;
    pid_t pid;
    int channel;
    int pidfd;
    struct wire_reader reader;
};

struct front_run {
    uint32_t flags;
    struct isolate_run_limits {
        uint32_t cpu_ms;
        uint64_t memory_bytes;
        uint32_t output_bytes;
        uint32_t binding_calls; /* 0: ISOLATE_DEFAULT_BINDING_CALLS */
        bool no_binding_calls;
        uint32_t result_bytes;
        uint32_t wait_until_ms;
    } limits;
    const char *program; /* one script; or what the compiler linked, if it begins with { */
    const char *spec;
    int fds[WIRE_FDS_MAX];
    size_t nfds;
    int timeout_ms; /* the wall */
    /* Answers a call on capability i; returns the frame type and points *ret_json at JSON text. */
    uint16_t (*answer)(void *arg, size_t i, const char *method, const char *args, uint64_t id,
                       const char **ret_json);
    void *arg;
    int facets[WIRE_FDS_MAX]; /* our ends of fds */
};

/* What a run came to. Finish with front_outcome_finish(). */
struct front_outcome {
    struct buf logs; /* one line per LOG: "<level> text\n" */
    size_t nlogs;
    char *result; /* NULL: none came */
    char *error;  /* JSON, NULL: none came */
    size_t nerrors;
    struct buf response; /* the head of an HTTP response, a newline, the body */
    size_t npieces;
    bool body_ended;
    bool done;
    bool closed;  /* the channel ended */
    bool timeout; /* the wall was reached and the isolate killed */
    bool reset_ready;
    uint32_t reset_restored, reset_dropped; /* pages */
    uint32_t reset_known;                   /* only known ones were looked at */
    uint64_t cpu_us, peak_bytes, output_bytes, dropped_bytes;
    uint32_t binding_calls;
    bool ending; /* ENDING came in this outcome's time */
};

/* path: the program. Fails the process on an error: tests have no use for less. */
void front_start(struct front *f, const char *path, uint32_t flags, uint32_t levers);
/* cpu_max_s: what an isolate may use before it is allowed more. */
void front_start_with(struct front *f, const char *path, uint32_t flags, uint32_t levers,
                      uint32_t cpu_max_s, const struct buf *plan);
void front_start_planned(struct front *f, const char *path, uint32_t flags, uint32_t levers,
                         const struct buf *plan);
void front_want(struct front *f, uint32_t n);
/* Waits for the next READY. */
void front_take(struct front *f, struct front_isolate *ret_isolate);
/* Closes the channel and kills what is left. */
void front_drop(struct front_isolate *i);
/* Waits for the EXITED of that isolate. */
struct front_exit front_wait_exit(struct front *f, uint32_t number);
/* Reads what is there on control without waiting. */
void front_poll(struct front *f, int wait_ms);
void front_stop(struct front *f);

void front_send_run(struct front_isolate *i, uint64_t id, const struct front_run *run);
void front_send_call(struct front_isolate *i, uint64_t id, const char *spec, const char *body);
void front_send_call_limited(struct front_isolate *i, uint64_t id, const char *spec,
                             const struct isolate_run_limits *limits);
/* A call begins: the isolate may use its processor time again. */
void front_allow(struct front *f, const struct front_isolate *i);
/* Serves the isolate until DONE of that call, the end of the channel, or the wall. */
void front_finish_run(struct front_isolate *i, uint64_t id, const struct front_run *run,
                      struct front_outcome *ret);
/* After a run that asked for it: waits for RESET_READY or the end of the channel. */
void front_wait_reset(struct front_isolate *i, struct front_outcome *o);
void front_outcome_finish(struct front_outcome *o);
