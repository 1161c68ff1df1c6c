#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/ledger/keyring.h"

#include <stdio.h>
#include <string.h>

/* /v1/projects: who owns data. An admin of the server makes and changes them; an admin of one
 * project sees that one. */

enum { PROJECTS_DEFAULT = 50, ANSWER_BYTES = 1 << 20, RATE_MAX = 1000000000 };
#define TOKENS_MAX 1000000000000000LL

/* --- limits --- */

int api_limits_read(const json_t *body, struct api_limits *ret, struct err *err) {
    static const struct {
        const char *key;
        unsigned field;
        int64_t max;
        size_t offset;
    } counts[] = {
        {"rate_per_minute", LEDGER_LIMIT_RATE, RATE_MAX,
         offsetof(struct limits_request, rate_per_minute)},
        {"max_jobs", LEDGER_LIMIT_JOBS, RATE_MAX, offsetof(struct limits_request, max_jobs)},
        {"tokens_per_day", LEDGER_LIMIT_TOKENS, TOKENS_MAX,
         offsetof(struct limits_request, tokens_per_day)}};
    struct api_limits out = {0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(counts); i++) {
        if (json_object_get(body, counts[i].key))
            out.fields |= counts[i].field;
        rc = json_get_int(body, counts[i].key, 0, counts[i].max,
                          (int64_t *)((char *)&out.asked + counts[i].offset), err);
    }
    const json_t *usd = json_object_get(body, "usd_per_day");
    if (rc == 0 && usd && !json_is_null(usd) && !json_is_number(usd))
        rc = err_set(err, ERR_BAD_REQUEST, "\"usd_per_day\" must be a number");
    if (usd)
        out.fields |= LEDGER_LIMIT_NUSD;
    out.asked.usd_per_day = json_number_value(usd);
    if (rc == 0)
        *ret = out;
    return rc;
}

void api_limits_write(struct json_writer *w, const struct ledger_limits *limits) {
    char usd[40];
    json_writer_key(w, "rate_per_minute");
    json_writer_int(w, limits->rate_per_minute);
    json_writer_key(w, "max_jobs");
    json_writer_int(w, limits->max_jobs);
    json_writer_key(w, "tokens_per_day");
    json_writer_int(w, limits->tokens_per_day);
    int n = snprintf(usd, sizeof(usd), "%.9f", (double)limits->nusd_per_day / 1e9);
    json_writer_key(w, "usd_per_day");
    json_writer_raw(w, usd, (size_t)n);
}

/* --- projects --- */

static void api_projects_write(struct json_writer *w, const struct ledger_project *p) {
    char time[CLOCK_RFC3339_SIZE];
    json_writer_object_begin(w);
    json_writer_key(w, "id");
    json_writer_str(w, *p->id ? p->id : "default");
    json_writer_key(w, "name");
    json_writer_str(w, p->name);
    api_limits_write(w, &p->limits);
    json_writer_key(w, "keys");
    json_writer_int(w, p->keys);
    json_writer_key(w, "created_at");
    json_writer_str(w, p->created_ms ? clock_rfc3339(p->created_ms, time) : NULL);
    json_writer_object_end(w);
}

static void api_projects_respond(struct api_wait *w, int status, const struct ledger_answer *a) {
    struct buf b;
    struct json_writer j;
    if (!w->req)
        return;
    buf_init(&b, ANSWER_BYTES);
    json_writer_init(&j, &b);
    api_projects_write(&j, &a->project_got.project);
    http_respond_buf(w->req, status, "application/json", &b);
}

static void api_projects_on_added(struct api_wait *w, const struct ledger_answer *a) {
    log_info("project.created", "project", a->project_got.project.id);
    api_projects_respond(w, 201, a);
}

static void api_projects_on_got(struct api_wait *w, const struct ledger_answer *a) {
    api_projects_respond(w, 200, a);
}

/* name stays NULL if the body has none. */
static int api_projects_read(struct http_req *req, json_t **ret_body, const char **ret_name,
                             struct ledger_limits *ret_limits, unsigned *ret_fields,
                             struct err *err) {
    static const char *const keys[] = {"name", API_LIMITS_KEYS, NULL};
    struct api_limits limits = {0};
    int rc = http_req_json(req, ret_body, err);
    if (rc == 0)
        rc = json_check_keys(*ret_body, "the request", keys, err);
    if (rc == 0)
        rc = json_get_str(*ret_body, "name", ret_name, err);
    if (rc == 0 && *ret_name)
        rc = project_check_name(*ret_name, err);
    if (rc == 0)
        rc = api_limits_read(*ret_body, &limits, err);
    if (rc == 0)
        rc = limits_read(&limits.asked, ret_limits, err);
    *ret_fields = limits.fields;
    return rc;
}

static void api_projects_create(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    struct ledger_project p = {.created_ms = clock_wall_ms()};
    unsigned fields = 0;
    const char *name = NULL;
    _cleanup_(json) json_t *body = NULL;
    int rc = api_projects_read(req, &body, &name, &p.limits, &fields, &err);
    if (rc == 0 && !name)
        rc = err_set(&err, ERR_BAD_REQUEST, "a project needs a \"name\"");
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    id_new("prj", p.id);
    p.name = (char *)(uintptr_t)name; /* copied before the call returns */
    api_ask(f, req,
            &(struct ledger_ask){.op = LEDGER_PROJECT_ADD,
                                 .project_add = {.project = &p, .projects_max = LIMIT_PROJECTS}},
            api_projects_on_added);
}

static void api_projects_edit(struct http_req *req, void *ctx) {
    struct err err;
    struct ledger_project p = {0};
    unsigned fields = 0;
    const char *name = NULL;
    _cleanup_(json) json_t *body = NULL;
    if (api_projects_read(req, &body, &name, &p.limits, &fields, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    p.name = (char *)(uintptr_t)name;
    api_ask(ctx, req,
            &(struct ledger_ask){
                .op = LEDGER_PROJECT_EDIT,
                .project_edit = {.id = http_req_param(req, "id"), .project = &p, .fields = fields}},
            api_projects_on_got);
}

/* An admin of a project sees no other: not even whether it exists. */
static bool api_projects_may_see(const struct http_req *req, const struct ledger_project *p) {
    const struct identity *who = front_identity(req);
    return who->server || strcmp(who->project, p->id) == 0;
}

static void api_projects_on_shown(struct api_wait *w, const struct ledger_answer *a) {
    struct err err;
    if (w->req && !api_projects_may_see(w->req, &a->project_got.project)) {
        (void)err_set(&err, ERR_NOT_FOUND, "there is no such project");
        http_respond_err(w->req, &err);
        return;
    }
    api_projects_respond(w, 200, a);
}

static void api_projects_show(struct http_req *req, void *ctx) {
    api_ask(ctx, req,
            &(struct ledger_ask){.op = LEDGER_PROJECT_GET,
                                 .project_get = {.id = http_req_param(req, "id")}},
            api_projects_on_shown);
}

static void api_projects_write_listed(struct json_writer *j, const struct ledger_answer *a,
                                      size_t i) {
    api_projects_write(j, &a->project_listed.projects[i]);
}

static void api_projects_on_listed(struct api_wait *w, const struct ledger_answer *a) {
    api_respond_page(
        w, a,
        &(struct api_page){.name = "projects",
                           .n = a->project_listed.n,
                           .next = a->project_listed.more ? a->project_listed.next : "",
                           .max_bytes = ANSWER_BYTES,
                           .write = api_projects_write_listed});
}

static void api_projects_list(struct http_req *req, void *ctx) {
    struct err err;
    _cleanup_(free) char *cursor = NULL;
    static const char *const params[] = {"limit", "cursor", NULL};
    struct ledger_ask what = {.op = LEDGER_PROJECT_LIST, .project_list.limit = PROJECTS_DEFAULT};
    int rc = http_req_query_check(req, params, &err);
    if (rc == 0)
        rc = api_read_limit(req, &what.project_list.limit, &err);
    if (rc >= 0)
        rc = http_req_query_get(req, "cursor", &cursor, &err);
    if (rc > 0 && strlen(cursor) >= ID_SIZE)
        rc = err_set(&err, ERR_BAD_REQUEST, "\"cursor\" must be a next_cursor of an earlier page");
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    what.project_list.after = cursor;
    api_ask(ctx, req, &what, api_projects_on_listed);
}

void api_projects_routes(struct front *f) {
    const struct http_route routes[] = {
        {"POST", "/v1/projects", api_projects_create, f, FRONT_ROUTE_ADMIN, 0},
        {"GET", "/v1/projects", api_projects_list, f, FRONT_ROUTE_ADMIN, 0},
        {"GET", "/v1/projects/{id}", api_projects_show, f, FRONT_ROUTE_PROJECT_ADMIN, 0},
        {"PATCH", "/v1/projects/{id}", api_projects_edit, f, FRONT_ROUTE_ADMIN, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        http_server_route(f->http, &routes[i]);
}
