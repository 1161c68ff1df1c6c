#pragma once
/* The dialog: the model loop. Messages go in; the model's answer is streamed, its tool calls are
 * run one after the other, their results go back to the model, until it stops, a limit is reached
 * or somebody cancels. It knows nothing of who asked: what happens is told to a view.
 *
 * Every callback comes from the loop, never inside a function of this header, and pointers in it
 * are borrowed. on_end is the last one and comes once, whatever happened, unless the dialog is
 * destroyed before; after it the dialog waits for dialog_destroy(). Any callback may call
 * dialog_cancel() or dialog_destroy().
 *
 * A step is one call of the model with the tool calls that it makes:
 *
 *   on_step_start   (on_text_* | on_reasoning_* | on_tool_*)...   on_answer
 *                   (on_tool_begun on_tool_result)...   on_step_finish
 *
 * A step that is cut off has no on_step_finish, and no on_answer if it was cut by a limit or a
 * cancel; a stream that fails gives what came of it. */

#include "base/err.h"
#include "base/json.h"
#include "front/account/account.h"
#include "front/model/model.h"
#include "front/store/store.h"
#include "front/tool/tool.h"
#include "loop/later.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dialog;

/* Why it is over. */
enum dialog_outcome {
    DIALOG_DONE,      /* the model came to its end */
    DIALOG_STEPS,     /* it wants to go on, but has had max_steps */
    DIALOG_BUDGET,    /* tokens, cost or time are used up */
    DIALOG_FAILED,    /* the model failed */
    DIALOG_CANCELLED, /* by dialog_cancel() */
};

/* What the model said in one step. */
struct dialog_answer {
    const json_t *message; /* the assistant's, in the shape of model.h */
    bool whole;            /* false: the stream failed, and this is what came before */
    enum model_stop stop;  /* of a whole one */
    struct model_usage usage;
};

struct dialog_result {
    const char *id; /* of the tool call */
    const char *name;
    const json_t *output;
    const char *text; /* the output as JSON */
    size_t len;
    const json_t *detail; /* as of the tool; or NULL */
    bool failed;          /* then the output is a text that says why */
};

struct dialog_end {
    enum dialog_outcome outcome;
    enum model_stop stop;  /* of the last whole answer */
    struct err error;      /* says why, unless it is done or was cancelled; for people. Of a budget:
                              ERR_TIMEOUT if it is the time's, ERR_QUOTA if it is the key's for the
                              day, else ERR_LIMIT */
    bool by_model;         /* it failed because the model did */
    int64_t retry_after_s; /* the same may go well then; 0: nobody said so */
    bool held_up;          /* other calls of the key hold what it needs: it may try again soon */
};

/* What HTTP answers for that end: one table for all that run a dialog. A model that failed is 502,
 * whatever its server answered to us: the client's request was not at fault, and neither was its
 * key. A limit that the request itself has set is an answer. */
int dialog_http_status(const struct dialog_end *end);

/* Each may be NULL. */
struct dialog_view {
    void (*on_step_start)(void *ctx);
    void (*on_text_start)(void *ctx);
    void (*on_text_delta)(void *ctx, const char *text, size_t len);
    void (*on_text_end)(void *ctx);
    void (*on_reasoning_start)(void *ctx);
    void (*on_reasoning_delta)(void *ctx, const char *text, size_t len);
    void (*on_reasoning_end)(void *ctx);
    void (*on_tool_start)(void *ctx, const char *id, const char *name);
    /* A piece of the input's JSON text. */
    void (*on_tool_delta)(void *ctx, const char *id, const char *json, size_t len);
    /* The whole input. */
    void (*on_tool_input)(void *ctx, const char *id, const char *name,
                          const struct model_input *input);
    void (*on_answer)(void *ctx, const struct dialog_answer *answer);
    /* A tool was given its call, and is at work. */
    void (*on_tool_begun)(void *ctx);
    void (*on_tool_result)(void *ctx, const struct dialog_result *result);
    void (*on_step_finish)(void *ctx);
    void (*on_end)(void *ctx, const struct dialog_end *end);
};

struct dialog_budget { /* each 0: no limit */
    int64_t tokens;
    int64_t cost_nusd;
    int64_t wall_ms;
};

/* What it points to must last as long as the dialog, but for the messages. */
struct dialog_options {
    uv_loop_t *loop;
    struct later_queue *later;
    struct later_queue *next; /* for what follows a large answer; NULL: later */
    struct models *models;
    struct accounts *accounts; /* what it spends is put down there; NULL: nowhere */
    const char *owner;         /* whose it is, with accounts */
    const char *key;           /* "" for the operator */
    const char *kind;          /* of its job, with accounts */
    const struct model_info *model;
    const char *system;             /* or NULL */
    json_t *messages;               /* taken over: what the model reads, and what is added to */
    size_t bytes;                   /* that they have as JSON: a thread deals with many */
    const struct tool_offer *tools; /* those and no others */
    size_t ntools;
    struct tool_env *tool_env;
    const json_t *script; /* for the demo model, or NULL */
    int64_t max_steps;    /* 1 at least */
    int64_t max_tokens;   /* of one answer; 0: the model's own limit */
    struct dialog_budget budget;
    const struct dialog_view *view;
    void *ctx;
};

/* Its first step begins from the loop. */
struct dialog *dialog_start(const struct dialog_options *options);
/* Stops the model and the tools at once; on_end comes. Nothing happens if the end is on its way. */
void dialog_cancel(struct dialog *d);
/* The same, but nothing is told any more, and the pointer is dead. NULL is allowed. */
void dialog_destroy(struct dialog *d);

/* A tool has used the dialog's model by itself: it counts. */
void dialog_spend(struct dialog *d, const struct model_usage *usage);
/* What the budget leaves; INT64_MAX if it has no limit. */
int64_t dialog_left_nusd(const struct dialog *d);

/* How many steps were begun, and what they have used so far; all of it once it is over. */
int64_t dialog_steps(const struct dialog *d);
const struct model_meter *dialog_meter(const struct dialog *d);
/* The same for the record of its job. */
struct store_run_usage dialog_usage(const struct dialog *d);
