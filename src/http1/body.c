#include "http1/body.h"

#include <stdint.h>

static int http1_body_on_data(llhttp_t *p, const char *at, size_t len) {
    const struct http1_body_sink *sink = p->data;
    return sink->on_data(sink->ctx, at, len) ? 0 : HPE_USER;
}

static int http1_body_on_message_complete(llhttp_t *p) {
    (void)p;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_body = http1_body_on_data,
    .on_message_complete = http1_body_on_message_complete,
};

ssize_t http1_body_feed(struct http1_body *b, const struct http1_body_sink *sink, const char *data,
                        size_t len, bool *ret_whole, struct err *err) {
    /* Only read while it runs. */
    b->parser.data = (void *)(uintptr_t)sink;
    b->parser.settings = (void *)(uintptr_t)&settings;
    enum llhttp_errno e = llhttp_execute(&b->parser, data, len);
    b->parser.data = NULL;
    if (e == HPE_OK || e == HPE_PAUSED || e == HPE_PAUSED_UPGRADE) {
        *ret_whole = e != HPE_OK;
        return e == HPE_OK ? (ssize_t)len : llhttp_get_error_pos(&b->parser) - data;
    }
    if (e == HPE_USER)
        return err_set(err, ERR_CANCELLED, "no more of the body is wanted");
    return err_set(err, ERR_BAD_REQUEST, "malformed body: %.100s",
                   llhttp_get_error_reason(&b->parser));
}
