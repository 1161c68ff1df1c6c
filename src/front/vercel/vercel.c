#include "base/mem.h"
#include "front/vercel/internal.h"

#include <stdlib.h>

void vercel_route(struct vercel *v, const char *methods, const char *pattern, http_handler handler,
                  unsigned flags, size_t body_bytes) {
    http_server_route(v->front->http, &(struct http_route){.methods = methods,
                                                           .pattern = pattern,
                                                           .handler = handler,
                                                           .ctx = v,
                                                           .flags = flags,
                                                           .reader = &http_reader_json_kept,
                                                           .body_bytes = body_bytes});
}

struct vercel *vercel_create(struct front *f) {
    struct vercel *v = xcalloc(1, sizeof(*v));
    v->front = f;
    (void)uv_timer_init(f->loop, &v->timer);
    v->timer.data = v;
    sandboxes_on_expire(f->sandboxes, vercel_on_expire, v);
    /* The first route that fits is taken: words before names. */
    vercel_snapshot_routes(v);
    vercel_session_routes(v);
    vercel_command_routes(v);
    vercel_file_routes(v);
    vercel_create_routes(v);
    return v;
}

static void vercel_on_closed(uv_handle_t *h) {
    free(h->data);
}

void vercel_destroy(struct vercel *v) {
    uv_close((uv_handle_t *)&v->timer, vercel_on_closed);
}
