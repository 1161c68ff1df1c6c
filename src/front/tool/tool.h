#pragma once
/* Tools: what a model may call. Each is one file of this folder that ends in a struct tool; table.c
 * lists those of agents, execute/sdk.c those of /execute/sdk, and that is all it takes to add one.
 * A tool works with what its environment hands to it and reaches for nothing else: it knows neither
 * the agent nor the request that it works for.
 *
 * A call begins with start() and ends with done(), which comes from the loop and never inside
 * start(), or with cancel(), after which nothing is told. */

#include "base/err.h"
#include "base/json.h"
#include "front/common/intake.h"
#include "front/model/model.h"
#include "front/run/run.h"
#include "front/web/web.h"
#include "loop/later.h"

#include <stdbool.h>
#include <stddef.h>

struct tool;
struct tool_env;

/* A tool as one dialog offers it: under a name, with a text for the model. */
struct tool_offer {
    const struct tool *tool;
    char *name;
    char *facet;  /* the one of the environment that it works on; NULL unless the tool needs one */
    json_t *spec; /* {"name","description","input_schema"}, as a model reads it */
};

/* What a call gives back; borrowed while it is told. */
struct tool_result {
    json_t *output;   /* what the model reads */
    const char *text; /* the same as JSON, from a tool that has it; or NULL */
    size_t len;
    json_t *detail; /* the same for programs, where it says more; or NULL */
    bool failed;    /* then the output is a text that says why */
};
typedef void (*tool_done)(void *ctx, const struct tool_result *result);

struct tool_request {
    const struct tool_offer *offer;
    struct tool_env *env;
    const json_t *input; /* an object; read before start() returns */
    tool_done done;
    void *ctx;
};

/* A call under way. Each tool's own struct begins with it. */
struct tool_call {
    struct tool_env *env; /* NULL: gone, while what a cancelled call had begun was still ending */
    struct tool_call *next;
    tool_done done; /* NULL: cancelled */
    void *ctx;
};

struct tool {
    const char *name;
    const char *kind; /* "kind" in agent.json; NULL: agents do not offer it */
    bool needs_facet;
    const char *description; /* unless the offer has its own */
    const char *schema;      /* JSON Schema of the input, as text */
    const char *parameter;   /* the property of it that an offer may describe; or NULL */
    /* Begins a call. Negative: refused, and err's message is the result that the model reads. */
    int (*start)(const struct tool_request *q, struct tool_call **ret_call, struct err *err);
    /* Done will not be called, and the pointer is dead. */
    void (*cancel)(struct tool_call *call);
};

extern const struct tool tool_execute_code;
extern const struct tool tool_query_database;
extern const struct tool tool_todo_write;
extern const struct tool tool_web_fetch;
extern const struct tool tool_web_search;

/* --- the table --- */

/* By "kind" of agent.json; NULL if there is none. */
const struct tool *tool_of_kind(const char *kind);
/* "code, query or other": the kinds that there are, for an error. */
void tool_kinds(char *out, size_t size);

/* --- an offer --- */

struct tool_offer_options {
    const char *name;        /* NULL: the tool's */
    const char *description; /* NULL: the tool's */
    const char *input;       /* describes the parameter; may be NULL */
    const char *facet;
};
/* Fails if a text is not UTF-8. */
int tool_offer_init(struct tool_offer *o, const struct tool *tool,
                    const struct tool_offer_options *options, struct err *err);
void tool_offer_finish(struct tool_offer *o);
const struct tool_offer *tool_offer_find(const struct tool_offer *list, size_t n, const char *name);

/* --- the environment --- */

struct tool_facet {
    const char *name;
    struct facet_ref ref;
};

/* A program that a tool ran, at its end. */
struct tool_execution {
    const char *run; /* its id */
    const char *code;
    const char *output;
    const char *error; /* NULL: none */
    bool cancelled;    /* its call was; what it has done stays */
};

/* What tools work with. It belongs to whoever offers them, and what it points to must last while a
 * call is under way. */
struct tool_env {
    struct later_queue *later;
    struct intake *intake; /* where large answers are read; NULL: on the loop */
    struct runner *runner;
    struct jobs *jobs; /* programs are recorded there */
    const char *owner; /* the project */
    const char *key;   /* "" for the operator */
    const char *title; /* of their records */
    struct run_limits limits;
    const struct env *bindings; /* what programs hold */
    const struct tool_facet *facets;
    size_t nfacets;
    size_t result_bytes; /* of a query; its setting is agent_tool_bytes */
    /* Told of each program, before its call is done, and of a cancelled one too. May be NULL. */
    void (*on_execution)(void *ctx, const struct tool_execution *e);
    void *ctx;
    const struct web *web; /* NULL: there are no pages */
    /* A model that tools may ask (ask.h): what it may still cost, and what it has used. */
    struct models *models;
    const struct model_info *model;
    struct accounts *accounts; /* what it spends is put down there; NULL: nowhere */
    const char *kind;          /* of the job, with accounts */
    int64_t (*left_nusd)(void *ctx);
    void (*on_spent)(void *ctx, const struct model_usage *usage);
    json_t *todos;          /* what TodoWrite keeps; NULL: nothing yet */
    struct tool_call *left; /* cancelled, but what they began has not ended */
};

/* Nothing is told any more of what is left. The memory is the caller's again. */
void tool_env_finish(struct tool_env *env);

/* --- for the tools --- */

/* A cancelled call that stays until what it began has ended; and the end of that. */
void tool_call_leave(struct tool_call *call);
void tool_call_forget(struct tool_call *call);
