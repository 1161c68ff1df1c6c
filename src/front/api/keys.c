#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/ledger/keyring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* /v1/keys: what `cay key` does, for an admin who is not at the machine. */

enum { KEYS_DEFAULT = 50, ANSWER_BYTES = 1 << 20, RATE_MAX = 1000000000 };
#define TOKENS_MAX 1000000000000000LL

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
    char usd[40];
    json_writer_object_begin(w);
    api_keys_write_text(w, "id", k->id);
    api_keys_write_text(w, "name", k->name);
    api_keys_write_text(w, "scope", k->scope);
    json_writer_key(w, "rate_per_minute");
    json_writer_int(w, k->rate_per_minute);
    json_writer_key(w, "max_jobs");
    json_writer_int(w, k->max_jobs);
    json_writer_key(w, "tokens_per_day");
    json_writer_int(w, k->tokens_per_day);
    int n = snprintf(usd, sizeof(usd), "%.9f", (double)k->nusd_per_day / 1e9);
    json_writer_key(w, "usd_per_day");
    json_writer_raw(w, usd, (size_t)n);
    json_writer_key(w, "grants");
    if (k->grants && json_is_valid(k->grants, strlen(k->grants)))
        json_writer_raw(w, k->grants, strlen(k->grants));
    else if (k->grants)
        json_writer_raw(w, "{}", 2); /* damaged: they grant nothing */
    else
        json_writer_null(w);
    api_keys_write_time(w, "created_at", k->created_ms);
    api_keys_write_time(w, "revoked_at", k->revoked_ms);
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

static int api_keys_read_request(const json_t *body, struct key_request *r, char **ret_grants,
                                 struct err *err) {
    static const char *const keys[] = {
        "name",           "scope",       "rate_per_minute", "max_jobs",
        "tokens_per_day", "usd_per_day", "grants",          NULL};
    *r = (struct key_request){.name = "", .scope = "run"};
    int rc = json_check_keys(body, "the request", keys, err);
    if (rc == 0)
        rc = json_get_str(body, "name", &r->name, err);
    if (rc == 0)
        rc = json_get_str(body, "scope", &r->scope, err);
    if (rc == 0)
        rc = json_get_int(body, "rate_per_minute", 0, RATE_MAX, &r->rate_per_minute, err);
    if (rc == 0)
        rc = json_get_int(body, "max_jobs", 0, RATE_MAX, &r->max_jobs, err);
    if (rc == 0)
        rc = json_get_int(body, "tokens_per_day", 0, TOKENS_MAX, &r->tokens_per_day, err);
    const json_t *usd = json_object_get(body, "usd_per_day");
    if (rc == 0 && usd && !json_is_null(usd) && !json_is_number(usd))
        rc = err_set(err, ERR_BAD_REQUEST, "\"usd_per_day\" must be a number");
    r->usd_per_day = json_number_value(usd);
    if (rc == 0)
        rc = read_grants(body, ret_grants, err);
    r->grants = *ret_grants;
    return rc;
}

/* A key that is held to something would get rid of it by a new key. */
static int check_maker(const struct identity *who, struct err *err) {
    if (!who->rate_per_minute && !who->max_jobs && !who->tokens_per_day && !who->nusd_per_day &&
        !*who->grants)
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
    struct key_request r;
    struct ledger_key k = {0};
    char text[KEY_TEXT_SIZE];
    _cleanup_(json) json_t *body = NULL;
    _cleanup_(free) char *grants = NULL;
    int rc = check_maker(front_identity(req), &err);
    if (rc == 0)
        rc = http_req_json(req, &body, &err);
    if (rc == 0)
        rc = api_keys_read_request(body, &r, &grants, &err);
    if (rc == 0)
        rc = key_make(&r, text, &k, &err);
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
    api_ask_with(f, req,
                 &(struct ledger_ask){.op = LEDGER_KEY_ADD,
                                      .key_add = {.key = &k, .valid_max = (size_t)f->config->keys}},
                 text, respond_made);
    mem_wipe(text, sizeof(text));
    ledger_key_finish(&k);
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
    static const char *const params[] = {"limit", "cursor", NULL};
    struct ledger_ask what = {.op = LEDGER_KEY_LIST, .key_list.limit = KEYS_DEFAULT};
    int rc = http_req_query_check(req, params, &err);
    if (rc == 0)
        rc = api_read_limit(req, &what.key_list.limit, &err);
    if (rc >= 0)
        rc = http_req_query_get(req, "cursor", &cursor, &err);
    if (rc > 0 && !id_is_valid("key", cursor, strlen(cursor)))
        rc = err_set(&err, ERR_BAD_REQUEST, "\"cursor\" must be a next_cursor of an earlier page");
    if (rc < 0) {
        http_respond_err(req, &err);
        return;
    }
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
    const char *id = http_req_param(req, "id");
    if (!id_is_valid("key", id, strlen(id))) {
        (void)err_set(&err, ERR_NOT_FOUND, "there is no key \"%.40s\"", id);
        http_respond_err(req, &err);
        return;
    }
    api_ask(ctx, req, &(struct ledger_ask){.op = LEDGER_KEY_REVOKE, .key_revoke.id = id},
            respond_revoked);
}

void api_keys_routes(struct front *f) {
    const struct http_route routes[] = {
        {"POST", "/v1/keys", api_keys_create, f, FRONT_ROUTE_ADMIN, 0},
        {"GET", "/v1/keys", api_keys_list, f, FRONT_ROUTE_ADMIN, 0},
        {"DELETE", "/v1/keys/{id}", api_keys_revoke, f, FRONT_ROUTE_ADMIN, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        http_server_route(f->http, &routes[i]);
}
