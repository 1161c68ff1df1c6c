#pragma once
/* The answer while it comes in: gathers the blocks of the assistant's message, calls the stream's
 * callbacks in order (one text or reasoning block is open at a time, tool calls may interleave),
 * and bounds it all. Functions return 0, -ERR_LIMIT, or -ERR_CANCELLED when a callback cancelled
 * the stream: then nothing more may be touched. */

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "front/model/model.h"

#include <stdbool.h>
#include <stddef.h>

enum reply_type { REPLY_TEXT, REPLY_REASONING, REPLY_TOOL, REPLY_SERVER };

struct reply_block {
    enum reply_type type;
    int64_t index; /* the provider's number of a tool call */
    char *id;
    char *server_id; /* as the server said it */
    char *name;
    struct buf text;
    json_t *input;
    char *input_error;
    json_t *raw;
    json_t *raw_json; /* the same as text, of a large one */
    bool told;        /* its start */
    bool open;
    bool unread; /* a call that has ended, with an input that is still to be read */
    /* How deep its input is in objects and lists, so far, and in a string. */
    int64_t depth;
    bool in_string, escaped;
};

/* The input of a call. A large one is read by a thread: it has its own memory. */
struct reply_input {
    size_t block;
    char *name;
    char *json; /* as it came */
    size_t len;
    json_t *tree; /* an object, or NULL and an error */
    char *text;   /* the same as compact JSON */
    size_t text_len;
    char *error;
};

struct reply {
    const struct model_callbacks *cb;
    void *ctx;
    bool closed; /* the stream is over: nobody is told any more */
    const char *provider;
    const json_t *used_ids; /* ids of tool calls in the conversation, as keys */
    struct reply_block *blocks;
    size_t count;
    size_t bytes;
    size_t max_bytes;
    size_t read_at_once; /* larger inputs wait for reply_take_input() */
};

void reply_init(struct reply *r, const struct model_callbacks *cb, void *ctx, size_t max_bytes);
void reply_finish(struct reply *r);
int reply_text(struct reply *r, const char *text, size_t len, struct err *err);
int reply_reasoning(struct reply *r, const char *text, size_t len, struct err *err);
/* Opens a reasoning block that keeps the provider's own form; raw is stolen. */
int reply_reasoning_open(struct reply *r, json_t *raw, struct err *err);
/* What a tool of the provider's own gave, in so many bytes; raw is stolen. json: the same as text,
 * a string, or NULL. */
int reply_server(struct reply *r, json_t *raw, json_t *json, size_t bytes, struct err *err);
/* How many blocks of a type there are. */
size_t reply_count(const struct reply *r, enum reply_type type);
/* The reasoning block that is open, or NULL. */
struct reply_block *reply_open_reasoning(struct reply *r);
/* id NULL or one that the conversation has already: a new one is made. */
int reply_tool_start(struct reply *r, int64_t index, const char *id, const char *name,
                     struct err *err);
/* True if a piece with this id ("" if it has none) and name goes on with the open call. */
bool reply_tool_is_same(const struct reply *r, int64_t index, const char *id, const char *name);
bool reply_tool_is_open(const struct reply *r, int64_t index);
int reply_tool_delta(struct reply *r, int64_t index, const char *json, size_t len, struct err *err);
/* Tells the call, unless its input is left to reply_take_input(). */
int reply_tool_end(struct reply *r, int64_t index, struct err *err);
/* The next input that is to be read; NULL: there is none. */
struct reply_input *reply_take_input(struct reply *r);
/* In any thread. */
void reply_input_read(struct reply_input *in);
void reply_input_free(struct reply_input *in);
/* It was read: tells the call. Takes the input. */
int reply_give_input(struct reply *r, struct reply_input *in);
/* Ends the text or reasoning that is open. */
int reply_close_text(struct reply *r, struct err *err);
int reply_close_all(struct reply *r, struct err *err);
bool reply_has_tools(const struct reply *r);
/* The message in neutral form; tool calls that are open or not read are left out. */
json_t *reply_message(const struct reply *r);
