#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/api/sandbox.h"
#include "front/ledger/keyring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* /v1/keys: what `cay key` does, for an admin who is not at the machine. */

enum { KEYS_DEFAULT = 50, ANSWER_BYTES = 1 << 20, GRACE_MAX_S = 30 * 24 * 3600 };

/* --- in JSON --- */

static void api_keys_write_text(struct json_writer *w, const char *key, const char *v) {
    json_writer_key(w, key);
    json_writer_str(w, v);
}

static void api_keys_write_time(struct json_writer *w, const char *key, int64_t ms) {
    char text[CLOCK_RFC3339_SIZE];
    api_keys_write_text(w, key, ms ? clock_rfc3339(ms, text) : NULL);
}

/* text: the key itself, or NULL. */
static void api_keys_write(struct json_writer *w, const struct ledger_key *k, const char *text) {
    json_writer_object_begin(w);
    api_keys_write_text(w, "id", k->id);
    api_keys_write_text(w, "project", *k->project ? k->project : "default");
    api_keys_write_text(w, "name", k->name);
    api_keys_write_text(w, "scope", k->scope);
    json_writer_key(w, "server");
    json_writer_bool(w, k->server);
    api_limits_write(w, &k->limits);
    json_writer_key(w, "grants");
    if (k->grants && json_is_valid(k->grants, strlen(k->grants)))
        json_writer_raw(w, k->grants, strlen(k->grants));
    else if (k->grants)
        json_writer_raw(w, "{}", 2); /* damaged: they grant nothing */
    else
        json_writer_null(w);
    api_keys_write_time(w, "created_at", k->created_ms);
    api_keys_write_time(w, "expires_at", k->expires_ms);
    api_keys_write_time(w, "revoked_at", k->revoked_ms);
    api_keys_write_time(w, "last_used_at", k->used_ms);
    api_keys_write_time(w, "old_secret_until", k->old_until_ms);
    if (text)
        api_keys_write_text(w, "key", text);
    json_writer_object_end(w);
}

/* --- POST --- */

static int check_names(const json_t *names, const char *key, struct err *err) {
    size_t i;
    json_t *name;
    if (!json_is_array(names))
        return err_set(err, ERR_BAD_REQUEST, "\"grants\": \"%s\" must be a list of names", key);
    json_array_foreach(names, i, name) {
        const char *text = json_string_value(name);
        if (!text || !*text || strlen(text) != json_string_length(name))
            return err_set(err, ERR_BAD_REQUEST, "\"grants\": \"%s\" must be a list of names", key);
    }
    return 0;
}

/* What it does not name is none of it. */
static int read_grants(const json_t *body, char **ret_text, struct err *err) {
    static const char *const keys[] = {"facets", "workers", "routes", "binds", NULL};
    const json_t *grants = json_object_get(body, "grants");
    if (!grants || json_is_null(grants))
        return 0;
    int rc = json_check_keys(grants, "\"grants\"", keys, err);
    _cleanup_(json) json_t *whole = json_object();
    for (size_t i = 0; rc == 0 && keys[i]; i++) {
        json_t *names = json_object_get(grants, keys[i]);
        if (names)
            rc = check_names(names, keys[i], err);
        (void)json_object_set_new(whole, keys[i], names ? json_incref(names) : json_array());
    }
    if (rc == 0)
        *ret_text = json_dumps(whole, JSON_COMPACT);
    return rc;
}

/* 0: never. */
static int api_keys_read_expiry(const json_t *body, int64_t *ret_ms, struct err *err) {
    const char *text = NULL;
    int64_t ms = 0;
    int rc = json_get_str(body, "expires_at", &text, err);
    if (rc < 0)
        return rc;
    if (text && !clock_parse_rfc3339(text, &ms))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"expires_at\" must be a time such as 2027-01-31T00:00:00Z, or null");
    if (text && ms <= clock_wall_ms())
        return err_set(err, ERR_BAD_REQUEST, "\"expires_at\" is in the past");
    *ret_ms = ms;
    return 0;
}

struct key_body {
    struct key_request request;
    struct api_limits limits;
    const char *project; /* or NULL */
    char *grants;
};

static int api_keys_read_request(const json_t *body, struct key_body *b, struct err *err) {
    static const char *const keys[] = {"name",       "scope",         "project", "grants",
                                       "expires_at", API_LIMITS_KEYS, NULL};
    struct key_request *r = &b->request;
    *b = (struct key_body){.request = {.name = "", .scope = "run"}};
    int rc = json_check_keys(body, "the request", keys, err);
    if (rc == 0)
        rc = json_get_str(body, "name", &r->name, err);
    if (rc == 0)
        rc = json_get_str(body, "scope", &r->scope, err);
    if (rc == 0)
        rc = json_get_str(body, "project", &b->project, err);
    if (rc == 0)
        rc = api_limits_read(body, &b->limits, err);
    if (rc == 0)
        rc = api_keys_read_expiry(body, &r->expires_ms, err);
    if (rc == 0)
        rc = read_grants(body, &b->grants, err);
    r->limits = b->limits.asked;
    r->grants = b->grants;
    return rc;
}

/* An admin of a project makes keys of that project, and changes those only. NULL: of any. */
static const char *bound_to(const struct identity *who) {
    return who->server ? NULL : who->project;
}

static int check_own_project(const struct identity *who, const char **project, struct err *err) {
    if (who->server)
        return 0;
    if (*project && strcmp(*project, who->project) != 0)
        return err_set(err, ERR_FORBIDDEN,
                       "this key makes keys of its own project: leave out \"project\"");
    *project = who->project;
    return 0;
}

/* A key that is held to something would get rid of it by a new key. */
static int check_maker(const struct identity *who, struct err *err) {
    static const struct ledger_limits none;
    if (memcmp(&who->limits, &none, sizeof(none)) == 0 && !*who->grants)
        return 0;
    return err_set(err, ERR_FORBIDDEN,
                   "a key with limits or grants of its own makes no keys: use one without, or "
                   "`cay key create` on the server's machine");
}

static void log_made(const struct api_wait *w, const struct ledger_key *k) {
    const struct identity *who = w->req ? front_identity(w->req) : NULL;
    log_info("key.created", "key", k->id, "scope", k->scope, "by",
             !who             ? "somebody who left"
             : who->operator_ ? "operator"
                              : who->key_id);
}

static void respond_made(struct api_wait *w, const struct ledger_answer *a) {
    struct buf b;
    struct json_writer j;
    char location[ID_SIZE + 16];
    const struct ledger_key *k = &a->key_added.key;
    if (!a->err.code)
        log_made(w, k);
    if (w->req) {
        buf_init(&b, ANSWER_BYTES);
        json_writer_init(&j, &b);
        api_keys_write(&j, k, w->text);
        (void)snprintf(location, sizeof(location), "/v1/keys/%s", k->id);
        http_res_header(w->req, "Location", location);
        http_res_header(w->req, "Cache-Control", "no-store");
        http_respond_buf(w->req, 201, "application/json", &b);
    }
    mem_wipe(w->text, strlen(w->text));
}

static void api_keys_create(struct http_req *req, void *ctx) {
    struct front *f = ctx;
    struct err err;
    struct key_body b = {0};
    struct ledger_key k = {0};
    char text[KEY_TEXT_SIZE];
    const struct identity *who = front_identity(req);
    _cleanup_(json) json_t *body = NULL;
    int rc = check_maker(who, &err);
    if (rc == 0)
        rc = http_req_json(req, &body, &err);
    if (rc == 0)
        rc = api_keys_read_request(body, &b, &err);
    if (rc == 0)
        rc = check_own_project(who, &b.project, &err);
    if (rc == 0)
        rc = key_make(&b.request, text, &k, &err);
    free(b.grants);
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    api_ask_with(
        f, req,
        &(struct ledger_ask){
            .op = LEDGER_KEY_ADD,
            .key_add = {.key = &k, .project = b.project, .valid_max = (size_t)f->config->keys}},
        text, respond_made);
    mem_wipe(text, sizeof(text));
    ledger_key_finish(&k);
}

/* --- PATCH, rotate --- */

static void respond_edited(struct api_wait *w, const struct ledger_answer *a) {
    const struct ledger_key *k = &a->key_edited.key;
    struct buf b;
    struct json_writer j;
    log_info(w->text ? "key.rotated" : "key.changed", "key", k->id);
    if (w->req) {
        buf_init(&b, ANSWER_BYTES);
        json_writer_init(&j, &b);
        api_keys_write(&j, k, w->text);
        http_res_header(w->req, "Cache-Control", "no-store");
        http_respond_buf(w->req, 200, "application/json", &b);
    }
    if (w->text)
        mem_wipe(w->text, strlen(w->text));
}

/* The key in the path; its id is checked. */
static int key_in_path(const struct http_req *req, struct ledger_key *k, struct err *err) {
    const char *id = http_req_param(req, "id");
    *k = (struct ledger_key){0};
    if (!id_is_valid("key", id, strlen(id)))
        return err_set(err, ERR_NOT_FOUND, "there is no key \"%.40s\"", id);
    (void)snprintf(k->id, sizeof(k->id), "%s", id);
    return 0;
}

static int api_keys_read_edit(const json_t *body, struct ledger_key *k, unsigned *ret_fields,
                              char **ret_grants, struct err *err) {
    static const char *const keys[] = {"name", "grants", "expires_at", API_LIMITS_KEYS, NULL};
    struct api_limits limits = {0};
    const char *name = NULL;
    int rc = json_check_keys(body, "the request", keys, err);
    if (rc == 0)
        rc = json_get_str(body, "name", &name, err);
    if (rc == 0 && name)
        rc = key_check_name("key", name, err);
    if (rc == 0)
        rc = api_limits_read(body, &limits, err);
    if (rc == 0)
        rc = limits_read(&limits.asked, &k->limits, err);
    if (rc == 0)
        rc = api_keys_read_expiry(body, &k->expires_ms, err);
    if (rc == 0)
        rc = read_grants(body, ret_grants, err);
    if (rc == 0 && *ret_grants && strlen(*ret_grants) >= KEY_GRANTS_SIZE)
        rc = err_set(err, ERR_TOO_LARGE, "a key's grants have at most %d bytes",
                     KEY_GRANTS_SIZE - 1);
    k->name = (char *)(uintptr_t)name; /* both are copied before the ledger is asked */
    k->grants = *ret_grants;
    *ret_fields = limits.fields | (name ? LEDGER_KEY_NAME : 0) |
                  (json_object_get(body, "grants") ? LEDGER_KEY_GRANTS : 0) |
                  (json_object_get(body, "expires_at") ? LEDGER_KEY_EXPIRES : 0);
    return rc;
}

static void api_keys_edit(struct http_req *req, void *ctx) {
    struct err err;
    struct ledger_key k;
    unsigned fields = 0;
    const struct identity *who = front_identity(req);
    _cleanup_(json) json_t *body = NULL;
    _cleanup_(free) char *grants = NULL;
    int rc = key_in_path(req, &k, &err);
    if (rc == 0)
        rc = check_maker(who, &err);
    if (rc == 0)
        rc = http_req_json(req, &body, &err);
    if (rc == 0)
        rc = api_keys_read_edit(body, &k, &fields, &grants, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    api_ask(
        ctx, req,
        &(struct ledger_ask){.op = LEDGER_KEY_EDIT,
                             .key_edit = {.key = &k, .fields = fields, .project = bound_to(who)}},
        respond_edited);
}

/* A new secret. The old one is valid for grace_s more seconds, so that programs can be changed one
 * after the other. */
static void api_keys_rotate(struct http_req *req, void *ctx) {
    static const char *const keys[] = {"grace_s", NULL};
    struct err err;
    struct ledger_key k;
    int64_t grace_s = 0;
    char text[KEY_TEXT_SIZE];
    const struct identity *who = front_identity(req);
    _cleanup_(json) json_t *body = NULL;
    int rc = key_in_path(req, &k, &err);
    if (rc == 0)
        rc = api_body(req, &body, &err);
    if (rc == 0)
        rc = json_check_keys(body, "the request", keys, &err);
    if (rc == 0)
        rc = json_get_int(body, "grace_s", 0, GRACE_MAX_S, &grace_s, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    key_new_secret(k.id, text, k.hash);
    k.old_until_ms = grace_s > 0 ? clock_wall_ms() + grace_s * 1000 : 0;
    api_ask_with(
        ctx, req,
        &(struct ledger_ask){
            .op = LEDGER_KEY_EDIT,
            .key_edit = {.key = &k, .fields = LEDGER_KEY_SECRET, .project = bound_to(who)}},
        text, respond_edited);
    mem_wipe(text, sizeof(text));
}

/* --- GET, DELETE --- */

static void api_keys_write_listed(struct json_writer *j, const struct ledger_answer *a, size_t i) {
    api_keys_write(j, &a->key_listed.keys[i], NULL);
}

static void api_keys_respond_list(struct api_wait *w, const struct ledger_answer *a) {
    api_respond_page(w, a,
                     &(struct api_page){.name = "keys",
                                        .n = a->key_listed.n,
                                        .next = a->key_listed.next,
                                        .max_bytes = ANSWER_BYTES,
                                        .write = api_keys_write_listed});
}

static void api_keys_list(struct http_req *req, void *ctx) {
    struct err err;
    _cleanup_(free) char *cursor = NULL;
    _cleanup_(free) char *project = NULL;
    static const char *const params[] = {"limit", "cursor", "project", NULL};
    struct ledger_ask what = {.op = LEDGER_KEY_LIST, .key_list.limit = KEYS_DEFAULT};
    int rc = http_req_query_check(req, params, &err);
    if (rc == 0)
        rc = api_read_limit(req, &what.key_list.limit, &err);
    if (rc >= 0)
        rc = http_req_query_get(req, "cursor", &cursor, &err);
    if (rc > 0 && !id_is_valid("key", cursor, strlen(cursor)))
        rc = err_set(&err, ERR_BAD_REQUEST, "\"cursor\" must be a next_cursor of an earlier page");
    if (rc >= 0)
        rc = http_req_query_get(req, "project", &project, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    what.key_list.project = bound_to(front_identity(req));
    what.key_list.named = project;
    what.key_list.before = cursor;
    api_ask(ctx, req, &what, api_keys_respond_list);
}

static void respond_revoked(struct api_wait *w, const struct ledger_answer *a) {
    if (!a->err.code && !a->key_revoked.repeated)
        log_info("key.revoked", "key", a->key_revoked.id);
    if (w->req)
        http_respond_empty(w->req, 204);
}

static void api_keys_revoke(struct http_req *req, void *ctx) {
    struct err err;
    struct ledger_key k;
    if (key_in_path(req, &k, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    api_ask(
        ctx, req,
        &(struct ledger_ask){.op = LEDGER_KEY_REVOKE,
                             .key_revoke = {.id = k.id, .project = bound_to(front_identity(req))}},
        respond_revoked);
}

void api_keys_routes(struct front *f) {
    const struct http_route routes[] = {
        {"POST", "/v1/keys", api_keys_create, f, FRONT_ROUTE_PROJECT_ADMIN, 0},
        {"GET", "/v1/keys", api_keys_list, f, FRONT_ROUTE_PROJECT_ADMIN, 0},
        {"PATCH", "/v1/keys/{id}", api_keys_edit, f, FRONT_ROUTE_PROJECT_ADMIN, 0},
        {"POST", "/v1/keys/{id}/rotate", api_keys_rotate, f, FRONT_ROUTE_PROJECT_ADMIN, 0},
        {"DELETE", "/v1/keys/{id}", api_keys_revoke, f, FRONT_ROUTE_PROJECT_ADMIN, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        http_server_route(f->http, &routes[i]);
}
