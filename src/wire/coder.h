#pragma once
/* The contract of a coding agent: what it tells while it works in a sandbox, as JSON objects, one
 * on each line of its standard output, written before the thing that it tells is done. cay-coder
 * writes these lines itself; what other agents print is translated into them here, so that whoever
 * shows or stores a run knows one language only (docs/coder.md has an example of each).
 *
 * The lines come out of a sandbox: a reader trusts nothing. It checks lengths, JSON, types, fields,
 * their order and how many there are, and passes on what it has written anew. */

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Goes up when a line changes its meaning; a reader refuses a version that it does not know. */
#define CODER_VERSION 1

#define CODER_LINE_MAX    (256 * 1024)      /* a line of ours */
#define CODER_FOREIGN_MAX (4 * 1024 * 1024) /* a line of an agent that is translated */
#define CODER_TEXT_MAX    (32 * 1024)       /* bytes of one text in an event */
#define CODER_ARGS_MAX    (16 * 1024)       /* of the arguments of a step, as JSON */
#define CODER_NAME_MAX    256               /* of a tool, a model, a folder of work: one line */

/* `step` counts from 1; times are milliseconds, "at" since the agent was started. Every event has
 * "type" and "at"; what is in brackets may be missing. */
enum coder_type {
    CODER_START,       /* v, agent, version, model, dir, max_steps, [dialect, timeout_ms] */
    CODER_MODEL_BEGIN, /* call, bytes: a request to the model is about to be sent */
    CODER_MODEL_END,   /* call, ms, ok, attempts, [input_tokens, output_tokens, stop] */
    CODER_RETRY,      /* call, attempt, wait_ms, message, [status]: it failed, and is tried again */
    CODER_REPAIR,     /* message, text: the reply was no action; the model is asked once more */
    CODER_THOUGHT,    /* text: what the model says about its next action */
    CODER_TEXT,       /* text: what it says besides, or a line of an agent without a contract */
    CODER_STEP_BEGIN, /* step, tool, args: about to be done. Long arguments are shortened */
    CODER_OUTPUT,     /* step, text, [left_out]: so many bytes are missing before this text */
    CODER_STEP_END,   /* step, ok, ms, [exit_code, signal, timed_out, error, ended]: `ended` counts
                         processes that were left running and were ended */
    CODER_ERROR,      /* message: something went wrong, the run goes on */
    CODER_DONE,       /* reason "done", summary, steps, ms, usage */
    CODER_FAILED,     /* reason, message, steps, ms, usage, [text]: the text that was at fault */
    CODER_TYPE_COUNT,
};

enum coder_reason {
    CODER_REASON_DONE,
    CODER_REASON_MAX_STEPS,
    CODER_REASON_MALFORMED,   /* the model's replies were no actions */
    CODER_REASON_MODEL_ERROR, /* the model could not be asked, or would not answer */
    CODER_REASON_TIMEOUT,
    CODER_REASON_CANCELLED,
    CODER_REASON_ERROR, /* the agent itself could not begin, or ended without a last line */
    CODER_REASON_COUNT,
};

/* "usage": input_tokens, output_tokens, model_calls, [cache_read_tokens, cache_write_tokens,
 * cost_usd]. */

const char *coder_type_name(enum coder_type type);
const char *coder_reason_name(enum coder_reason reason);
/* CODER_REASON_COUNT if there is none of that name. */
enum coder_reason coder_reason_find(const char *name);

/* How an agent's lines are read: "lines" of its definition. */
enum coder_lines {
    CODER_LINES_CAY,    /* "cay": as above */
    CODER_LINES_CLAUDE, /* "claude-stream-json": Claude Code's --output-format stream-json */
    CODER_LINES_TEXT,   /* "text": whatever it prints, a line at a time */
    CODER_LINES_COUNT,
};

/* CODER_LINES_COUNT if there is none of that name. */
enum coder_lines coder_lines_find(const char *name);

struct coder_event {
    enum coder_type type;
    const json_t *json; /* borrowed, for the length of the call */
    const char *text;   /* the same as one line without its end, valid UTF-8 */
    size_t len;
};

/* False stops the reader: it takes nothing more. */
typedef bool coder_on_event(void *ctx, const struct coder_event *event);

struct coder_reader_options {
    enum coder_lines lines;
    /* For agents that do not say it themselves. */
    const char *agent;
    const char *model;
    const char *dir;
    int64_t max_steps;
    size_t max_events; /* 0: LIMIT_CODER_EVENTS; past it only errors' and the end's are told */
    size_t max_bytes;  /* 0: LIMIT_CODER_EVENTS_BYTES, likewise */
    coder_on_event *on_event;
    void *ctx;
};

/* How the agent's process ended, as the one who started it knows. */
struct coder_exit {
    int exit_code;
    int signal; /* 0: it exited */
    bool cancelled;
    bool timed_out;
};

struct coder_reader;

struct coder_reader *coder_reader_create(const struct coder_reader_options *opt);
void coder_reader_destroy(struct coder_reader *r);
/* Takes bytes of the agent's standard output, cut anywhere. ERR_PROTOCOL when they break the
 * contract: then nothing more is taken, and coder_reader_end() tells why. */
int coder_reader_feed(struct coder_reader *r, const char *data, size_t len, struct err *err);
/* The process has ended. If its lines did not say how the run ended, a last event does: there is
 * exactly one CODER_DONE or CODER_FAILED for each reader, and it is the last. */
void coder_reader_end(struct coder_reader *r, const struct coder_exit *how);

/* One line of Claude Code as events of ours; coder_reader_feed() does it for CODER_LINES_CLAUDE. A
 * kind that is not known is no event. ERR_PROTOCOL if it is no JSON object. */
int coder_translate_claude(struct coder_reader *r, const char *line, size_t len, struct err *err);

/* A copy of a tool's arguments in which long texts are cut, for a CODER_STEP_BEGIN. */
json_t *coder_shorten_args(const json_t *args);
/* A copy of the text, at most CODER_TEXT_MAX bytes of UTF-8, that says how much was cut off. */
json_t *coder_shorten_text(const char *text, size_t len);
