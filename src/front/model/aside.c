/* What a model server says may be large, and so may a request to it. The loop belongs to everybody:
 * such an event, the input of such a tool call and such a request are read or written by a thread
 * (common/intake.c), on memory of its own. The stream waits for it, and with it what came behind. A
 * large event comes back as many small ones, which are told a few in a turn of the loop, so that
 * nobody behind the stream has to know of large ones. */

#include "base/limits.h"
#include "base/mem.h"
#include "front/model/internal.h"

#include <stdlib.h>
#include <string.h>

bool stream_is_large(const struct model_stream *s, size_t bytes) {
    return s->m->opt.intake && s->provider && bytes > MODEL_AT_ONCE_BYTES;
}

static void free_tree(void *tree) {
    json_decref(tree);
}

void stream_dispose(struct model_stream *s, json_t *tree) {
    if (tree)
        intake_dispose_on(s->m->loop, free_tree, tree);
}

static void aside_free(void *ctx) {
    struct stream_aside *a = ctx;
    if (a->stream)
        a->stream->aside = NULL;
    free(a->data);
    json_decref(a->pieces);
    reply_input_free(a->input);
    free(a->system);
    json_decref(a->messages);
    json_decref((json_t *)(uintptr_t)a->request.tools);
    json_decref((json_t *)(uintptr_t)a->request.server_tools);
    buf_finish(&a->body);
    free(a);
}

static void aside_on_work(void *ctx) {
    struct stream_aside *a = ctx;
    a->work(a);
}

static void aside_on_done(void *ctx) {
    struct stream_aside *a = ctx;
    struct model_stream *s = a->stream;
    stream_enter(s);
    s->aside = NULL;
    a->stream = NULL;
    a->done(s, a);
    aside_free(a);
    stream_leave(s);
}

void stream_start_aside(struct model_stream *s, size_t bytes, struct stream_aside *a) {
    a->stream = s;
    s->aside = a;
    if (s->fetch)
        fetch_pause(s->fetch);
    a->item = intake_start(s->m->opt.intake,
                           &(struct intake_ask){.owner = s->owner,
                                                .bytes = bytes,
                                                .waits = true,
                                                .work = aside_on_work,
                                                .on_done = aside_on_done,
                                                .free = aside_free,
                                                .ctx = a},
                           NULL);
}

void stream_stop_aside(struct model_stream *s) {
    struct stream_aside *a = s->aside;
    if (!a)
        return;
    s->aside = NULL;
    a->stream = NULL;
    intake_cancel(a->item);
}

/* --- an event --- */

static void aside_read_event(struct stream_aside *a) {
    json_t *event = NULL;
    a->rc = event_parse(a->name, &a->high, a->data, a->len, &event, &a->err);
    if (a->rc < 0)
        return;
    a->pieces = json_array();
    a->provider->cut(event, a->pieces);
    json_decref(event);
}

struct stream_aside *aside_event(const struct model_stream *s, const char *data, size_t len) {
    struct stream_aside *a = xcalloc(1, sizeof(*a));
    a->work = aside_read_event;
    a->provider = s->provider;
    a->name = s->reply.provider;
    a->high = s->high;
    a->data = xmalloc(len + 1);
    memcpy(a->data, data, len);
    a->len = len;
    return a;
}

/* --- the input of a tool call --- */

static void aside_read_input(struct stream_aside *a) {
    reply_input_read(a->input);
}

struct stream_aside *aside_input(struct reply_input *input) {
    struct stream_aside *a = xcalloc(1, sizeof(*a));
    a->work = aside_read_input;
    a->input = input;
    return a;
}

/* --- a request --- */

static void aside_write_request(struct stream_aside *a) {
    struct json_writer w;
    json_writer_init(&w, &a->body);
    a->provider->write(a->m, &a->request, a->messages, &w);
}

struct stream_aside *aside_request(const struct model_stream *s, const struct model_request *r,
                                   json_t *messages) {
    struct stream_aside *a = xcalloc(1, sizeof(*a));
    a->work = aside_write_request;
    a->provider = s->provider;
    a->m = s->m;
    a->info = s->info;
    a->messages = messages;
    a->request = *r;
    a->request.model = &a->info;
    a->request.messages = messages;
    a->request.system = a->system = r->system ? xstrdup(r->system) : NULL;
    a->request.script = NULL;
    a->request.owner = NULL;
    (void)json_incref((json_t *)(uintptr_t)r->tools);
    (void)json_incref((json_t *)(uintptr_t)r->server_tools);
    buf_init(&a->body, LIMIT_MODEL_REQUEST_BYTES);
    return a;
}
