#pragma once
/* The two ways to ask a model: Anthropic's Messages and OpenAI's Chat Completions, without streams
 * and without tool calls. Requests as text, answers as a struct; no I/O. */

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

enum dialect { DIALECT_ANTHROPIC, DIALECT_OPENAI, DIALECT_COUNT };

/* DIALECT_COUNT if there is none of that name. */
enum dialect dialect_find(const char *name);
const char *dialect_name(enum dialect d);
/* What comes behind the base URL. */
const char *dialect_path(enum dialect d);

struct dialect_request {
    enum dialect dialect;
    const char *model;
    const char *system;
    int64_t max_tokens;
};

/* A body: dialect_begin(), the messages in turn, dialect_end(). False when it became too long. */
void dialect_begin(const struct dialect_request *r, struct json_writer *w);
void dialect_message(struct json_writer *w, bool assistant, const char *text, size_t len);
bool dialect_end(struct json_writer *w);

enum answer_stop { ANSWER_WHOLE, ANSWER_CUT, ANSWER_REFUSED };

struct answer {
    struct buf text;
    struct buf thinking;
    enum answer_stop stop;
    char stop_name[64]; /* as the server says it */
    int64_t input_tokens;
    int64_t output_tokens;
    int64_t cache_read_tokens;
    int64_t cache_write_tokens;
};

/* ERR_UPSTREAM for what is no answer, ERR_TOO_LARGE for a text that is too long. */
int answer_parse(enum dialect d, const char *body, size_t len, struct answer *ret, struct err *err);
void answer_finish(struct answer *a);
/* What an error's body says, or "" : a text of one line. */
void answer_error_text(const char *body, size_t len, char *out, size_t size);
