#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "front/account/account.h"
#include "front/api/api.h"

#include <stdlib.h>
#include <string.h>

/* GET /v1/usage: what a key has used by day, as the ledger adds it up for all servers. */

enum { ANSWER_BYTES = 32 << 20, USAGE_ROWS = 10000 };

static void respond_usage(struct api_wait *w, const struct ledger_answer *a) {
    struct buf b;
    struct json_writer j;
    if (!w->req)
        return;
    buf_init(&b, ANSWER_BYTES);
    json_writer_init(&j, &b);
    json_writer_object_begin(&j);
    json_put_raw_str(&j, "usage", a->usage_report.tasks);
    json_put_raw_str(&j, "jobs", a->usage_report.jobs);
    json_put_raw_str(&j, "today", a->usage_report.today);
    json_writer_object_end(&j);
    http_respond_buf(w->req, 200, "application/json", &b);
}

static bool is_day(const char *text) {
    int64_t ms;
    if (!text)
        return false;
    _cleanup_(free) char *time = xasprintf("%.10sT00:00:00Z", text);
    return strlen(text) == 10 && clock_parse_rfc3339(time, &ms);
}

static void api_usage_get(struct http_req *req, void *ctx) {
    struct err err;
    static const char *const params[] = {"since", NULL};
    _cleanup_(free) char *since = NULL;
    int rc = http_req_query_check(req, params, &err);
    if (rc == 0)
        rc = http_req_query_get(req, "since", &since, &err);
    if (rc > 0 && !is_day(since))
        rc = err_set(&err, ERR_BAD_REQUEST, "\"since\" must be a day such as 2026-01-31");
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    accounts_tell(((struct front *)ctx)->accounts);
    api_ask(ctx, req,
            &(struct ledger_ask){
                .op = LEDGER_USAGE,
                .usage = {.owner = api_whose(req), .since = since, .limit = USAGE_ROWS}},
            respond_usage);
}

void api_usage_routes(struct front *f) {
    http_server_route(f->http, &(struct http_route){.methods = "GET",
                                                    .pattern = "/v1/usage",
                                                    .handler = api_usage_get,
                                                    .ctx = f,
                                                    .flags = FRONT_ROUTE_READ | HTTP_ROUTE_DIRECT});
}
