#include "base/cleanup.h"
#include "base/mem.h"
#include "front/api/api.h"

#include <stdlib.h>

/* One ask of the ledger, one answer to the client. */

static void api_ask_on_gone(void *ctx) {
    struct api_wait *w = ctx;
    http_respond_empty(w->req, 499);
    w->req = NULL;
}

static void api_ask_on_answer(void *ctx, const struct ledger_answer *a) {
    struct api_wait *w = ctx;
    if (w->req && a->err.code == ERR_UNAVAILABLE)
        http_res_header(w->req, "Retry-After", "5");
    if (w->req && a->err.code)
        http_respond_err(w->req, &a->err);
    else
        w->respond(w, a); /* also for one who left: it was done */
    free(w->text);
    free(w);
}

void api_ask_with(struct front *f, struct http_req *req, const struct ledger_ask *what,
                  const char *text,
                  void (*respond)(struct api_wait *w, const struct ledger_answer *a)) {
    struct api_wait *w = xcalloc(1, sizeof(*w));
    *w = (struct api_wait){
        .front = f, .req = req, .text = text ? xstrdup(text) : NULL, .respond = respond};
    http_req_on_gone(req, api_ask_on_gone, w);
    ledger_call(f->ledger, what, api_ask_on_answer, w);
}

void api_ask(struct front *f, struct http_req *req, const struct ledger_ask *what,
             void (*respond)(struct api_wait *w, const struct ledger_answer *a)) {
    api_ask_with(f, req, what, NULL, respond);
}

void api_respond_page(struct api_wait *w, const struct ledger_answer *a,
                      const struct api_page *page) {
    struct buf b;
    struct json_writer j;
    if (!w->req)
        return;
    buf_init(&b, page->max_bytes);
    json_writer_init(&j, &b);
    json_writer_object_begin(&j);
    json_put_array_begin(&j, page->name);
    for (size_t i = 0; i < page->n; i++)
        page->write(&j, a, i);
    json_writer_array_end(&j);
    json_put_str(&j, "next_cursor", *page->next ? page->next : NULL);
    json_writer_object_end(&j);
    http_respond_buf(w->req, 200, "application/json", &b);
}
