#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/sm.h"
#include "front/server/guard.h"
#include "front/vercel/internal.h"
#include "front/vercel/source.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sessions that begin: made, forked, or resumed from a snapshot. */

enum {
    BODY_BYTES = 1 << 20,
    SAME_MS = 60000, /* a request that comes again within this time is the same one */
    MB_PER_VCPU = 2048,
    HASH_SIZE = 2 * SHA256_DIGEST_LENGTH + 1,
};

enum making_state { MAKING_BOX, MAKING_SOURCE, MAKING_NETWORK, MAKING_DONE };

static const struct sm_state states[] = {
    [MAKING_BOX] = {"box", SM_TO(MAKING_SOURCE) | SM_TO(MAKING_DONE)},
    [MAKING_SOURCE] = {"source", SM_TO(MAKING_NETWORK) | SM_TO(MAKING_DONE)},
    [MAKING_NETWORK] = {"network", SM_TO(MAKING_DONE)},
    [MAKING_DONE] = {"done", 0},
};
static const struct sm making_sm = {"making", states, ARRAY_LEN(states)};

struct vercel_making {
    struct vercel_making *next;
    struct vercel *v;
    struct http_req *req;
    enum making_state state;
    struct named named;
    bool resumed;
    json_t *grants;
    struct policy policy;    /* for good */
    struct source_plan plan; /* what is fetched before that */
    struct source *source;
    struct sandbox_change *change;
    struct sandbox *making; /* while it is in the making */
    char id[ID_SIZE];
};

static void vercel_create_move(struct vercel_making *m, enum making_state to) {
    m->state = (enum making_state)sm_next(&making_sm, m->state, to);
}

static void free_making(struct vercel_making *m) {
    struct vercel_making **at = &m->v->making;
    while (*at && *at != m)
        at = &(*at)->next;
    if (*at)
        *at = m->next;
    vercel_named_finish(&m->named);
    json_decref(m->grants);
    vercel_policy_finish(&m->policy);
    vercel_source_plan_finish(&m->plan);
    free(m);
}

static void end_box(const struct vercel_making *m) {
    struct sandbox *s = sandboxes_find(m->v->front->sandboxes, m->id);
    if (s)
        (void)sandbox_end(s, NULL, NULL);
}

static void vercel_create_fail(struct vercel_making *m, const struct err *err) {
    vercel_create_move(m, MAKING_DONE);
    end_box(m);
    http_req_on_gone(m->req, NULL, NULL);
    api_fail(m->req, err);
    free_making(m);
}

/* What became of the sandbox while its session was resumed: it may have been changed, or deleted.
 */
static int read_again(struct vercel_making *m, struct err *err) {
    struct named now = {0};
    int rc = vercel_named_find_same(m->v, &m->named, &now, err);
    if (rc < 0)
        return rc;
    vercel_named_finish(&m->named);
    m->named = now;
    return 0;
}

static void vercel_create_done(struct vercel_making *m) {
    struct err err;
    int rc = m->resumed ? read_again(m, &err) : 0;
    if (rc == 0) {
        vercel_named_add_session(&m->named, m->id);
        rc = vercel_named_save(m->v, &m->named, &err);
    }
    if (rc < 0) {
        vercel_create_fail(m, &err);
        return;
    }
    vercel_create_move(m, MAKING_DONE);
    http_req_on_gone(m->req, NULL, NULL);
    json_t *o = vercel_show_whole(m->v, m->req, &m->named);
    if (m->resumed)
        (void)json_object_set_new(o, "resumed", json_true());
    vercel_respond(m->req, o);
    free_making(m);
}

/* Nobody knows of it, and nobody waits for it: a client that asks again gets another. */
static void vercel_create_on_gone(void *ctx) {
    struct vercel_making *m = ctx;
    http_respond_empty(m->req, 499);
    if (m->making)
        sandbox_drop_maker(m->making);
    if (m->source)
        vercel_source_leave(m->source);
    if (m->change)
        sandbox_change_leave(m->change);
    end_box(m);
    free_making(m);
}

static void vercel_create_on_network(void *ctx, const struct err *err) {
    struct vercel_making *m = ctx;
    m->change = NULL;
    if (err)
        vercel_create_fail(m, err);
    else
        vercel_create_done(m);
}

/* The source is there: from now on what was asked for holds. */
static void vercel_create_on_source(void *ctx, const struct err *err) {
    struct vercel_making *m = ctx;
    struct err why;
    m->source = NULL;
    struct sandbox *s = sandboxes_find(m->v->front->sandboxes, m->id);
    if (err || !s) {
        (void)err_set(&why, ERR_UNAVAILABLE, "the sandbox ended");
        vercel_create_fail(m, err ? err : &why);
        return;
    }
    vercel_create_move(m, MAKING_NETWORK);
    struct sandbox_network network = {.ask = &m->policy.network,
                                      .grants = m->grants,
                                      .routes = m->policy.routes,
                                      .nroutes = m->policy.nroutes,
                                      .injected = m->policy.injected};
    m->change = sandbox_set_network(s, &network, vercel_create_on_network, m, &why);
    if (!m->change)
        vercel_create_fail(m, &why);
}

static void vercel_create_on_made(void *ctx, struct sandbox *s, const struct err *err) {
    struct vercel_making *m = ctx;
    struct err why;
    m->making = NULL;
    if (err) {
        vercel_create_fail(m, err);
    } else if (m->plan.argv.n == 0) {
        vercel_create_done(m);
    } else {
        vercel_create_move(m, MAKING_SOURCE);
        m->source = vercel_source_start(s, &m->plan, vercel_create_on_source, m, &why);
        if (!m->source)
            vercel_create_fail(m, &why);
    }
}

/* What the SDK asks for, in this server's words. What it has less of, it gives what it has. */
static int fill_request(const struct vercel_making *m, const char *snapshot,
                        struct sandbox_request *r, struct err *err) {
    const struct sandbox_settings *set = &m->v->front->config->sandboxes;
    const struct named *n = &m->named;
    int64_t vcpus = json_integer_value(vercel_named_config(n, "vcpus"));
    int64_t timeout = json_integer_value(vercel_named_config(n, "timeout"));
    const json_t *env = vercel_named_config(n, "env");
    const char *runtime = json_string_value(vercel_named_config(n, "runtime"));
    const char *image = json_string_value(vercel_named_config(n, "image"));
    const char *root = image ? image : runtime;
    *r = (struct sandbox_request){.owner = n->owner,
                                  .scope = {.owner = n->owner},
                                  .grants = m->grants,
                                  .name = vercel_named_name(n),
                                  .snapshot = snapshot,
                                  .timeout_s = (timeout + 999) / 1000};
    network_ask_copy(m->plan.argv.n > 0 ? &m->plan.network : &m->policy.network, &r->network);
    if (vcpus) {
        r->cpus = set->cpus > 0 ? MIN((double)vcpus, set->cpus) : (double)vcpus;
        r->memory_mb = MIN(vcpus * MB_PER_VCPU, (int64_t)set->memory_mb);
    }
    /* A runtime is what the host has, unless the operator has a root of that name. An image must be
     * one. */
    if (root && (image || sandbox_settings_root(set, root)))
        r->root = root;
    return env ? sandbox_env_read(env, &r->env, err) : 0;
}

static json_t *vercel_create_note_of(const struct named *n) {
    const char *runtime = json_string_value(vercel_named_config(n, "runtime"));
    return json_pack("{s:s,s:s,s:s*,s:b}", "name", vercel_named_name(n), "named", n->id, "runtime",
                     runtime, "fresh", 1);
}

/* Takes the named and the plan, also when it fails: then the request is answered. */
static void vercel_create_begin(struct vercel *v, struct http_req *req, struct vercel_making *m,
                                const char *snapshot) {
    struct err err;
    m->next = v->making;
    m->v = v;
    m->req = req;
    m->grants = api_grants(req);
    v->making = m;
    int rc = vercel_policy_read(vercel_named_config(&m->named, "networkPolicy"),
                                v->front->config->sandboxes.allow, &m->policy, &err);
    if (rc == 0) {
        _cleanup_(json) json_t *note = vercel_create_note_of(&m->named);
        bool routes = m->plan.argv.n == 0 && m->policy.nroutes > 0;
        struct sandbox_extra extra = {.routes = m->policy.routes,
                                      .nroutes = routes ? m->policy.nroutes : 0,
                                      .injected = routes ? m->policy.injected : NULL,
                                      .user = VERCEL_USER,
                                      .work = VERCEL_CWD,
                                      .note = note};
        struct sandbox_request r;
        rc = fill_request(m, snapshot, &r, &err);
        r.extra = &extra;
        if (rc == 0)
            m->making = sandboxes_make(v->front->sandboxes, &r, vercel_create_on_made, m, &err);
        sandbox_request_finish(&r);
    }
    if (!m->making) {
        api_fail(req, &err);
        free_making(m);
        return;
    }
    memcpy(m->id, m->making->id, sizeof(m->id));
    http_req_on_gone(req, vercel_create_on_gone, m);
}

static void vercel_create_hash_body(const struct http_req *req, char out[HASH_SIZE]) {
    unsigned char hash[SHA256_DIGEST_LENGTH];
    size_t len;
    const char *body = http_req_body(req, &len);
    (void)SHA256((const unsigned char *)body, len, hash);
    for (size_t i = 0; i < sizeof(hash); i++)
        (void)snprintf(out + 2 * i, 3, "%02x", hash[i]);
}

static bool is_being_made(const struct vercel *v, const char *owner, const char *name) {
    for (const struct vercel_making *m = v->making; m; m = m->next)
        if (strcmp(m->named.owner, owner) == 0 && strcmp(vercel_named_name(&m->named), name) == 0)
            return true;
    return false;
}

/* The SDK sends a request again when its answer was lost, also this one: it cannot have used a
 * sandbox that it does not know of. True: it was answered. */
static bool answer_known(struct vercel *v, struct http_req *req, const char *name,
                         const char *hash) {
    struct err err;
    struct named n = {0};
    const char *owner = vercel_owner(req);
    if (is_being_made(v, owner, name)) {
        vercel_fail(req, 503, "unavailable", "a sandbox of this name is being made: ask again");
        return true;
    }
    int rc = vercel_named_find(v, owner, name, &n, &err);
    if (rc == -ERR_NOT_FOUND)
        return false;
    if (rc < 0) {
        http_respond_err(req, &err);
        return true;
    }
    const char *request = json_string_value(json_object_get(n.doc, "request"));
    const char *session = vercel_named_session(&n);
    const struct sandbox *s = session ? sandboxes_find(v->front->sandboxes, session) : NULL;
    if (request && strcmp(request, hash) == 0 && clock_wall_ms() - n.created_ms < SAME_MS && s &&
        vercel_sandbox_is_fresh(s)) {
        vercel_respond(req, vercel_show_whole(v, req, &n));
    } else {
        vercel_fail(req, 409, "conflict",
                    "there is a sandbox of this name: get it, or delete it first");
    }
    vercel_named_finish(&n);
    return true;
}

static int vercel_create_check_name(const char *name, struct err *err) {
    /* In a path these are something else. */
    static const char *const reserved[] = {"sessions", "snapshots", "drives", ".", ".."};
    for (size_t i = 0; i < ARRAY_LEN(reserved); i++)
        if (strcmp(name, reserved[i]) == 0)
            return err_set(err, ERR_BAD_REQUEST, "a sandbox cannot be called \"%s\"", name);
    return *name ? sandbox_check_name(name, err)
                 : err_set(err, ERR_BAD_REQUEST, "\"name\" is empty");
}

/* Makes one of a configuration. Takes the plan. */
static void vercel_create_make(struct vercel *v, struct http_req *req, const char *name,
                               json_t *config, struct source_plan *plan, const char *snapshot) {
    struct err err;
    char hash[HASH_SIZE];
    vercel_create_hash_body(req, hash);
    int rc = name ? vercel_create_check_name(name, &err) : 0;
    if (rc == 0 && name && answer_known(v, req, name, hash)) {
        vercel_source_plan_finish(plan);
        return;
    }
    if (rc == 0)
        rc = vercel_named_make_room(v, vercel_owner(req), &err);
    if (rc < 0) {
        vercel_source_plan_finish(plan);
        api_fail(req, &err);
        return;
    }
    struct vercel_making *m = xcalloc(1, sizeof(*m));
    vercel_named_init(&m->named, vercel_owner(req), name, config);
    (void)json_object_set_new(m->named.doc, "request", json_string(hash));
    m->plan = *plan;
    *plan = (struct source_plan){0};
    vercel_create_begin(v, req, m, snapshot);
}

struct create_wire {
    const char *name;
    const json_t *given; /* NULL: no source */
    struct source_wire source;
};

static void vercel_create_request(struct http_req *req, void *ctx) {
    static const struct json_field table[] = {
        JSON_TEXT("name", struct create_wire, name),
        JSON_MAP("source", struct create_wire, given),
        JSON_OBJECT("source", struct create_wire, source, vercel_source_fields),
    };
    JSON_SHAPE("POST /api/v2/sandboxes", table);
    struct create_wire w = {0};
    struct err err;
    const char *snapshot = NULL;
    struct source_plan plan = {0};
    _cleanup_(json) json_t *body = NULL;
    _cleanup_(json) json_t *config = json_pack("{s:b}", "persistent", !vercel_is_v1(req));
    int rc = vercel_body(req, table, ARRAY_LEN(table), &body, &w, &err);
    if (rc == 0)
        rc = vercel_config_read(body, config, &err);
    if (rc == 0 && w.given)
        rc = vercel_source_plan(&w.source, &plan, &snapshot, &err);
    if (rc < 0)
        http_respond_err(req, &err);
    else
        vercel_create_make(ctx, req, w.name, config, &plan, snapshot);
}

static void fork_(struct http_req *req, void *ctx) {
    static const struct json_field table[] = {JSON_TEXT("name", struct create_wire, name)};
    JSON_SHAPE("POST /api/v2/sandboxes/{name}/fork", table);
    struct create_wire w = {0};
    struct vercel *v = ctx;
    struct err err;
    struct named n = {0};
    struct source_plan none = {0};
    _cleanup_(json) json_t *body = NULL;
    _cleanup_(json) json_t *config = NULL;
    int rc = vercel_body(req, table, ARRAY_LEN(table), &body, &w, &err);
    if (rc == 0)
        rc = vercel_named_find(v, vercel_owner(req), http_req_param(req, "name"), &n, &err);
    if (rc == 0) {
        config = json_deep_copy(json_object_get(n.doc, "config"));
        rc = vercel_config_read(body, config, &err);
    }
    if (rc < 0)
        http_respond_err(req, &err);
    else
        vercel_create_make(v, req, w.name, config, &none, vercel_named_snapshot(v, &n));
    vercel_named_finish(&n);
}

/* --- coming back --- */

/* A request that waits for the end of the former session. */
struct coming {
    struct vercel *v;
    struct http_req *req;
    struct sandbox_waiter *waiter; /* or, while that is being stopped, a stop calls */
    struct named named;            /* as it was */
};

static void vercel_create_resume(struct vercel *v, struct http_req *req, struct named *n);

static void vercel_create_on_ended(void *ctx) {
    struct coming *c = ctx;
    struct err err;
    struct named n = {0};
    http_req_on_gone(c->req, NULL, NULL);
    if (vercel_named_find_same(c->v, &c->named, &n, &err) < 0)
        http_respond_err(c->req, &err);
    else
        vercel_create_resume(c->v, c->req, &n);
    vercel_named_finish(&c->named);
    free(c);
}

static void vercel_create_on_coming_gone(void *ctx) {
    struct coming *c = ctx;
    if (c->waiter)
        c->waiter->cb = NULL;
    else
        vercel_stop_unwatch(c->v, c);
    http_respond_empty(c->req, 499);
    vercel_named_finish(&c->named);
    free(c);
}

/* The former session is ending: then. Takes the named. */
static void resume_later(struct vercel *v, struct http_req *req, struct named *n,
                         struct sandbox *s) {
    struct coming *c = xcalloc(1, sizeof(*c));
    *c = (struct coming){.v = v, .req = req, .named = *n};
    *n = (struct named){0};
    http_req_on_gone(req, vercel_create_on_coming_gone, c);
    if (!vercel_stop_watch(v, s->id, vercel_create_on_ended, c))
        c->waiter = sandbox_wait(s, vercel_create_on_ended, c);
}

/* Takes the named. */
static void vercel_create_resume(struct vercel *v, struct http_req *req, struct named *n) {
    const char *session = vercel_named_session(n);
    struct sandbox *s = session ? sandboxes_find(v->front->sandboxes, session) : NULL;
    const char *had = json_string_value(json_object_get(n->doc, "snapshot"));
    if (s && (s->state == SANDBOX_ENDING || vercel_stop_is_under_way(v, s->id))) {
        resume_later(v, req, n, s);
    } else if (s) {
        vercel_respond(req, vercel_show_whole(v, req, n));
    } else if (is_being_made(v, n->owner, vercel_named_name(n))) {
        vercel_fail(req, 503, "unavailable", "the sandbox is being resumed: ask again");
    } else if (had && !vercel_named_snapshot(v, n)) {
        vercel_fail(req, 410, "snapshot_not_found",
                    "the snapshot of this sandbox is gone: delete the sandbox, or make a new one");
    } else {
        struct vercel_making *m = xcalloc(1, sizeof(*m));
        m->named = *n;
        *n = (struct named){0};
        m->resumed = true;
        vercel_create_begin(v, req, m, had);
    }
    vercel_named_finish(n);
}

static void vercel_create_get(struct http_req *req, void *ctx) {
    struct vercel *v = ctx;
    struct err err;
    struct named n = {0};
    if (vercel_named_find(v, vercel_owner(req), http_req_param(req, "name"), &n, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    if (api_flag(req, "resume")) {
        const struct identity *who = front_identity(req);
        if (!guard_check_effect(req)) {
            vercel_named_finish(&n);
            return;
        }
        if (who && who->scope >= KEY_SCOPE_RUN) {
            vercel_create_resume(v, req, &n);
            return;
        }
        (void)err_set(&err, ERR_FORBIDDEN, "this needs a key with the scope \"run\"");
        http_respond_err(req, &err);
    } else {
        vercel_respond(req, vercel_show_whole(v, req, &n));
    }
    vercel_named_finish(&n);
}

void vercel_create_routes(struct vercel *v) {
    vercel_route(v, "POST", "/api/v3/sandboxes", vercel_create_request, 0, BODY_BYTES);
    vercel_route(v, "POST", "/api/v2/sandboxes", vercel_create_request, 0, BODY_BYTES);
    vercel_route(v, "POST", "/api/v1/sandboxes", vercel_create_request, 0, BODY_BYTES);
    vercel_route(v, "POST", "/api/v2/sandboxes/{name}/fork", fork_, 0, BODY_BYTES);
    vercel_route(v, "GET", "/api/v2/sandboxes/{name}", vercel_create_get, FRONT_ROUTE_READ, 0);
}
