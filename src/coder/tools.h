#pragma once
/* What the model can have done: a table of tools. A tool that cannot do what it was asked for is a
 * result like any other, which the model reads; only the end of the run is an error. */

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "coder/events.h"
#include "coder/life.h"

#include <stdbool.h>
#include <stdint.h>

struct workdir {
    int fd;
    const char *path; /* as the model knows it: absolute names below it are taken too */
};

struct tools {
    struct workdir dir;
    struct life *life;
    struct events *events;
    bool reads_only; /* there are only the tools that change nothing */
    int64_t command_timeout_ms;
};

struct coder_result {
    bool ok;
    bool told;     /* the output went out as events while it came */
    bool exited;   /* the three below are set */
    int exit_code; /* -1: by a signal */
    int signal;
    bool timed_out;    /* the command's own time */
    unsigned ended;    /* processes that were left running, and were ended */
    struct buf output; /* for the model: bounded, UTF-8 */
    struct err error;  /* if not ok and not exited: why, in words for the model */
};

void tool_result_init(struct coder_result *r);
void tool_result_finish(struct coder_result *r);

/* ERR_CANCELLED or ERR_TIMEOUT when the run ended meanwhile; `ret` is filled then too. */
int tools_run(struct tools *t, int64_t step, const char *name, const json_t *args,
              struct coder_result *ret, struct err *err);

/* Opens what is below the work directory, whatever links or ".." the name holds. -1 with errno;
 * EXDEV if it leads out. Follows links that stay inside, where the kernel lets us ask for that. */
int workdir_open(const struct workdir *d, const char *path, int flags, mode_t mode);
/* The same with calls that every kernel and every filter has: follows no link at all. */
int workdir_walk(int dirfd, const char *path, int flags, mode_t mode);
/* The path below the work directory; NULL if it is an absolute one elsewhere. */
const char *workdir_relative(const struct workdir *d, const char *path);

/* files.c */
int tool_write_file(struct tools *t, const json_t *args, struct coder_result *ret);
int tool_read_file(struct tools *t, const json_t *args, struct coder_result *ret);
int tool_edit_file(struct tools *t, const json_t *args, struct coder_result *ret);
/* list.c */
int tool_list_files(struct tools *t, const json_t *args, struct coder_result *ret);
/* command.c: as tools_run() */
int tool_run_command(struct tools *t, int64_t step, const json_t *args, struct coder_result *ret,
                     struct err *err);
