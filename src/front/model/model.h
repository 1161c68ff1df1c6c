#pragma once
/* Talking to language models: one request, one streamed answer, whoever the provider is. The front
 * makes one struct models; the agent loop starts streams on it. A stream retries by itself until
 * the first token has come; after that an error is final. A stream ends with exactly one of on_done
 * and on_error, unless it is cancelled.
 *
 * Messages have one shape for all providers (JSON):
 *
 *   {"role": "user", "content": "text" | [{"type": "text", "text": T}]}
 *   {"role": "assistant", "content": [
 *       {"type": "reasoning", "text": T, "provider": P, "raw": {...}},
 *       {"type": "text", "text": T},
 *       {"type": "tool_call", "id": I, "name": N, "input": {...}, "input_error": E?}]}
 *   {"role": "tool", "content": [
 *       {"type": "tool_result", "id": I, "name": N, "output": any JSON, "is_error": bool}]}
 *
 * `raw` is the provider's own block, kept verbatim (with its signature) and given back unchanged to
 * that provider and to no other. What on_done hands over can be appended to the messages as it is.
 * Unknown keys and content types are ignored. A tool call whose result is missing (a turn that was
 * stopped) is sent with a result that says so, because providers refuse it otherwise. */

#include "base/err.h"
#include "base/json.h"
#include "front/common/intake.h"
#include "front/common/secrets.h"
#include "front/model/catalog.h"
#include "front/model/meter.h"
#include "loop/fetch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct models;
struct model_stream;

struct models_options {
    const char *file;              /* models.json; NULL: the built-in one */
    const struct secrets *secrets; /* borrowed: must outlive the models */
    const char *ca_file;           /* NULL: the system's certificates */
    unsigned connect_timeout_ms;   /* each 0: the default of base/limits.h */
    unsigned idle_timeout_ms;
    unsigned total_timeout_ms; /* of a stream with its retries */
    size_t reply_bytes;
    size_t event_bytes;
    int retries;            /* -1: none, 0: the default */
    unsigned retry_base_ms; /* 0: 500; doubles each time, with jitter */
    unsigned retry_wait_ms; /* the longest wait; a Retry-After beyond it ends the stream */
    int demo_delay_ms;      /* between two pieces of the demo's text; -1: the default, 0: none */
    struct intake *intake;  /* where what is large is read and written; NULL: on the loop */
};

struct model_request {
    const struct model_info *model;
    const char *system;         /* or NULL */
    const json_t *messages;     /* of which nothing may change while the stream is not over */
    size_t bytes;               /* about how many they have as JSON: a thread writes many */
    const char *owner;          /* whose turn the thread's work is; NULL: nobody's */
    const json_t *server_tools; /* the provider's own, as it names them; anthropic only; or NULL.
                                   What they gave is in the message as
                                   {"type": "server", "raw": the block} */
    const json_t *tools;        /* [{"name", "description", "input_schema"}], or NULL */
    int64_t max_tokens;         /* of the answer; 0: the model's own limit */
    double temperature;         /* negative: not sent */
    const json_t *script;       /* demo.json of the agent, for the demo model; or NULL */
};

enum model_stop {
    MODEL_STOP_END,
    MODEL_STOP_TOOL_CALLS,
    MODEL_STOP_LENGTH,
    MODEL_STOP_REFUSAL,
    MODEL_STOP_OTHER,
};

/* The input of a tool call. If it is no object, the error says why: the loop gives that text to the
 * model as the tool's result and runs nothing. */
struct model_input {
    const json_t *tree; /* an object, or NULL */
    const char *text;   /* the same as compact JSON */
    size_t len;
    const char *error;
};

/* Each may be NULL. Text comes in pieces that are whole UTF-8 each, unless the server splits one.
 * Any of them may cancel the stream. Pointers are borrowed. */
struct model_callbacks {
    void (*on_text_start)(void *ctx);
    void (*on_text_delta)(void *ctx, const char *text, size_t len);
    void (*on_text_end)(void *ctx);
    void (*on_reasoning_start)(void *ctx);
    void (*on_reasoning_delta)(void *ctx, const char *text, size_t len);
    void (*on_reasoning_end)(void *ctx);
    void (*on_tool_start)(void *ctx, const char *id, const char *name);
    /* A piece of the input's JSON text. */
    void (*on_tool_delta)(void *ctx, const char *id, const char *json, size_t len);
    /* The whole input, when it was read: other calls may have begun meanwhile. */
    void (*on_tool_end)(void *ctx, const char *id, const char *name,
                        const struct model_input *input);
    /* The sums of this stream so far, not a difference. The last call comes before the end. */
    void (*on_usage)(void *ctx, const struct model_usage *usage);
    /* The attempt failed before the first token; the next begins after wait_ms. */
    void (*on_retry)(void *ctx, unsigned attempt, unsigned wait_ms, const struct err *why);
    /* The stream is dead when one of these two returns. */
    void (*on_done)(void *ctx, enum model_stop stop, json_t *message);
    /* err's message is fit for a person and holds no secret; retryable: the same request may well
     * work later. `partial` is the message so far (unfinished tool calls left out), or NULL if
     * nothing came. */
    void (*on_error)(void *ctx, const struct err *err, bool retryable, json_t *partial);
};

/* When its server wants to be asked again, inside on_error; 0: it said nothing about it. */
unsigned model_retry_after_ms(const struct model_stream *s);

int models_create(uv_loop_t *loop, const struct models_options *options, struct models **ret_models,
                  struct err *err);
/* Cancels the streams that are left. Not inside a callback of one. NULL is allowed; on_closed may
 * be NULL. */
void models_close(struct models *m, void (*on_closed)(void *ctx), void *ctx);
/* The provider used when nothing is named: anthropic or openai if there is a key (or an address)
 * for it, else demo. */
enum model_provider models_default_provider(const struct models *m);
/* By alias, id or "provider/id"; NULL: the default. ERR_UNAUTHORIZED, with what to do, if there is
 * no key for its provider. */
int models_find(const struct models *m, const char *name, struct model_info *ret_info,
                struct err *err);
struct model_catalog *models_catalog(struct models *m);
/* Those that models.json lists and that can be used, for clients to choose from: a list. */
json_t *models_list(struct models *m);

/* Nothing of the request is borrowed when this returns. No callback comes before it returns. On
 * failure no callback comes at all. */
int model_stream(struct models *m, const struct model_request *request,
                 const struct model_callbacks *callbacks, void *ctx,
                 struct model_stream **ret_stream, struct err *err);
/* What was used so far: for a turn that is about to be cancelled. Output is estimated then. */
struct model_usage model_stream_usage(const struct model_stream *s);
/* At any time, also inside a callback. No callback comes after it; NULL is allowed. */
void model_stream_cancel(struct model_stream *s);

/* The AI SDK's word for it: stop, tool-calls, length, content-filter, other. */
const char *model_stop_name(enum model_stop stop);
