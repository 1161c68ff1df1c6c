/* Whatever a model server sends as an event stream, each provider's reader survives it and the
 * message that comes out can be written as JSON. The first byte picks the provider. */

#include "base/limits.h"
#include "front/model/internal.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool on_event(void *ctx, const char *event, const char *data, size_t len) {
    struct model_stream *s = ctx;
    struct err err;
    (void)event;
    return s->provider->on_event(s, data, len, &err) == 0 && s->state != STREAM_FINISHED;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct secrets secrets = {{0}};
    static const struct model_info info = {.id = "m", .provider = MODEL_OPENAI};
    struct models m = {.opt = {.secrets = &secrets}};
    struct model_stream s = {.m = &m, .info = info, .state = STREAM_EVENTS};
    struct err err;
    if (size == 0)
        return 0;
    s.provider = data[0] & 1 ? &provider_anthropic : &provider_openai;
    s.ids = json_object();
    buf_init(&s.signature, 65536);
    buf_init(&s.body, 1);
    sse_init(&s.sse, 65536, on_event, &s);
    reply_init(&s.reply, &s.cb, NULL, 65536);
    s.reply.provider = "anthropic";
    s.reply.used_ids = s.ids;
    (void)sse_feed(&s.sse, (const char *)data + 1, size - 1, &err);
    json_t *message = reply_message(&s.reply);
    if (reply_close_all(&s.reply, &err) == 0) {
        json_decref(message);
        message = reply_message(&s.reply);
    }
    char *text = json_dumps(message, JSON_COMPACT);
    if (!text)
        abort();
    free(text);
    json_decref(message);
    reply_finish(&s.reply);
    sse_finish(&s.sse);
    buf_finish(&s.signature);
    json_decref(s.ids);
    return 0;
}
