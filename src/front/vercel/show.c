#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/vercel/commands.h"
#include "front/vercel/internal.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REGION "cay"

enum { PAGE_DEFAULT = 20 };

bool vercel_is_v1(const struct http_req *req) {
    return strncmp(http_req_path(req), "/api/v1/", 8) == 0;
}

const char *vercel_owner(const struct http_req *req) {
    return front_project(req);
}

void vercel_fail(struct http_req *req, int status, const char *code, const char *message) {
    _cleanup_(json) json_t *o = json_pack("{s:{s:s,s:s,s:s}}", "error", "code", code, "message",
                                          message, "request_id", http_req_id(req));
    http_respond_json(req, status, o);
}

void vercel_respond(struct http_req *req, json_t *o) {
    http_respond_json(req, 200, o);
    json_decref(o);
}

int vercel_body(struct http_req *req, const struct json_field *table, size_t n, json_t **ret_body,
                void *out, struct err *err) {
    int rc = api_body(req, ret_body, err);
    return rc < 0 ? rc : json_table_read(table, n, *ret_body, NULL, out, err);
}

int vercel_record(struct vercel *v, const char *kind, const char *owner, const char *id,
                  struct store_record *ret, struct err *err) {
    return store_record_get(v->front->store, kind, id, NULL, (struct store_scope){.owner = owner},
                            ret, err);
}

int vercel_snapshot_delete(struct vercel *v, const char *owner, const char *id, struct err *err) {
    return snapshot_delete(v->front->sandboxes, id, (struct store_scope){.owner = owner}, err);
}

const json_t *vercel_sandbox_note(const struct sandbox *s) {
    return json_object_get(s->doc, "note");
}

bool vercel_sandbox_is_fresh(const struct sandbox *s) {
    return json_is_true(json_object_get(vercel_sandbox_note(s), "fresh"));
}

/* --- sessions --- */

static const char *living_status(const struct vercel *v, const struct sandbox *s) {
    if (s->state == SANDBOX_ENDING)
        return "stopping";
    if (s->state == SANDBOX_STARTING)
        return "pending";
    return vercel_stop_is_under_way(v, s->id) ? "snapshotting" : "running";
}

static const char *ended_status(enum sandbox_status status) {
    return status == SANDBOX_STATUS_STOPPED  ? "stopped"
           : status == SANDBOX_STATUS_FAILED ? "failed"
                                             : "aborted";
}

static void set_int(json_t *o, const char *key, int64_t v) {
    (void)json_object_set_new(o, key, json_integer(v));
}

static void vercel_show_copy(json_t *to, const char *key, const json_t *from) {
    if (from && !json_is_null(from))
        (void)json_object_set(to, key, (json_t *)(uintptr_t)from);
}

static void vercel_show_add_usage(json_t *o, const json_t *usage) {
    const json_t *network = json_object_get(usage, "network");
    set_int(o, "activeCpuDurationMs", json_integer_value(json_object_get(usage, "cpu_ms")));
    (void)json_object_set_new(
        o, "networkTransfer",
        json_pack("{s:I,s:I}", "ingress", json_integer_value(json_object_get(network, "bytes_in")),
                  "egress", json_integer_value(json_object_get(network, "bytes_out"))));
}

static json_int_t vercel_show_processors(const json_t *limits) {
    double cpus = json_number_value(json_object_get(limits, "cpus"));
    json_int_t has = (json_int_t)sysconf(_SC_NPROCESSORS_ONLN);
    return cpus >= 1 ? MIN((json_int_t)cpus, has) : has;
}

static void add_times(json_t *o, const struct store_record *r, int64_t expires_ms) {
    static const char *const began[] = {"requestedAt", "startedAt", "createdAt"};
    for (size_t i = 0; i < ARRAY_LEN(began); i++)
        set_int(o, began[i], r->created_ms);
    set_int(o, "timeout", MAX(expires_ms - r->created_ms, (int64_t)0));
    set_int(o, "updatedAt", r->ended_ms ? r->ended_ms : clock_wall_ms());
    if (!r->ended_ms)
        return;
    set_int(o, "requestedStopAt", r->ended_ms);
    set_int(o, "stoppedAt", r->ended_ms);
    set_int(o, "duration", r->ended_ms - r->created_ms);
}

static json_t *session_head(const char *id, const char *status, const char *runtime) {
    return json_pack("{s:s,s:s,s:s,s:s,s:s}", "id", id, "status", status, "region", REGION, "cwd",
                     VERCEL_CWD, "runtime", runtime ? runtime : "host");
}

/* From what is recorded of it; what lives is recorded too. */
static json_t *session_of(struct vercel *v, const struct store_record *r) {
    const struct sandbox *s = sandboxes_find(v->front->sandboxes, r->id);
    _cleanup_(json) json_t *doc = store_record_doc(r);
    const json_t *limits = json_object_get(doc, "limits");
    const json_t *note = json_object_get(doc, "note");
    json_t *o =
        session_head(r->id, s ? living_status(v, s) : ended_status(sandbox_record_status(r)),
                     json_string_value(json_object_get(note, "runtime")));
    set_int(o, "memory", json_integer_value(json_object_get(limits, "memory_mb")));
    set_int(o, "vcpus", vercel_show_processors(limits));
    add_times(o, r, s ? s->expires_ms : json_integer_value(json_object_get(doc, "expires_ms")));
    (void)json_object_set_new(o, "networkPolicy",
                              vercel_policy_show(json_object_get(doc, "network")));
    vercel_show_copy(o, "sourceSnapshotId", json_object_get(doc, "snapshot"));
    if (json_object_get(doc, "usage"))
        vercel_show_add_usage(o, json_object_get(doc, "usage"));
    return o;
}

/* One whose record has been forgotten. */
static json_t *vercel_show_forgotten(const char *id) {
    json_t *o = session_head(id, "stopped", NULL);
    static const char *const numbers[] = {"memory",      "vcpus",     "timeout",
                                          "requestedAt", "createdAt", "updatedAt"};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        set_int(o, numbers[i], 0);
    return o;
}

json_t *vercel_show_session(struct vercel *v, const char *owner, const char *id) {
    struct store_record r;
    struct err err;
    if (!id || vercel_record(v, "sandbox", owner, id, &r, &err) < 0)
        return vercel_show_forgotten(id ? id : "");
    json_t *o = session_of(v, &r);
    store_record_finish(&r);
    return o;
}

/* --- sandboxes --- */

json_t *vercel_show_sandbox(struct vercel *v, struct named *n) {
    static const char *const of_session[] = {"status", "vcpus", "memory", "networkPolicy"};
    static const char *const same[] = {
        "tags", "timeout", "image", "runtime", "snapshotExpiration", "keepLastSnapshots"};
    const char *session = vercel_named_session(n);
    _cleanup_(json) json_t *s = vercel_show_session(v, n->owner, session);
    json_t *o = json_pack("{s:s,s:b,s:s,s:s,s:s,s:I,s:I}", "name", vercel_named_name(n),
                          "persistent", vercel_named_is_persistent(n), "region", REGION, "cwd",
                          VERCEL_CWD, "currentSessionId", session ? session : "", "createdAt",
                          (json_int_t)n->created_ms, "updatedAt",
                          json_integer_value(json_object_get(n->doc, "updated_ms")));
    for (size_t i = 0; i < ARRAY_LEN(of_session); i++)
        vercel_show_copy(o, of_session[i], json_object_get(s, of_session[i]));
    for (size_t i = 0; i < ARRAY_LEN(same); i++)
        vercel_show_copy(o, same[i], vercel_named_config(n, same[i]));
    vercel_show_copy(o, "currentSnapshotId", json_object_get(n->doc, "snapshot"));
    if (n->unreadable)
        (void)json_object_set_new(o, "status", json_string("failed"));
    return o;
}

json_t *vercel_show_routes(const struct http_req *req, const struct named *n) {
    json_t *list = json_array();
    const char *session = vercel_named_session(n);
    const char *port_text = strrchr(http_req_authority(req), ':');
    if (port_text && strchr(port_text, ']'))
        port_text = NULL; /* of an address of IPv6, without a port */
    size_t i;
    const json_t *port;
    json_array_foreach(vercel_named_config(n, "ports"), i, port) {
        _cleanup_(free) char *sub =
            xasprintf("%lld-%s", (long long)json_integer_value(port), session ? session : "");
        _cleanup_(free) char *url =
            xasprintf("http://%s.localhost%s", sub, port_text ? port_text : "");
        (void)json_array_append_new(list, json_pack("{s:s,s:s,s:I}", "url", url, "subdomain", sub,
                                                    "port", json_integer_value(port)));
    }
    return list;
}

json_t *vercel_show_whole(struct vercel *v, const struct http_req *req, struct named *n) {
    json_t *session = vercel_show_session(v, n->owner, vercel_named_session(n));
    json_t *routes = vercel_show_routes(req, n);
    if (vercel_is_v1(req))
        return json_pack("{s:o,s:o}", "sandbox", session, "routes", routes);
    return json_pack("{s:o,s:o,s:o}", "sandbox", vercel_show_sandbox(v, n), "session", session,
                     "routes", routes);
}

/* --- commands --- */

/* 128 and the signal, as a shell has it; null while it runs, and where no end was seen. */
static json_t *exit_code(const struct exec *e, const json_t *shown) {
    const json_t *code = json_object_get(shown, "exit_code");
    const json_t *signo = json_object_get(shown, "signal");
    if (json_is_integer(code))
        return json_integer(json_integer_value(code));
    if (json_is_integer(signo))
        return json_integer(128 + json_integer_value(signo));
    if (e->state == EXEC_FAILED)
        return json_integer(COMMAND_NOT_STARTED);
    return e->state == EXEC_INTERRUPTED ? json_integer(128 + SIGKILL) : json_null();
}

json_t *vercel_show_command(struct exec *e) {
    _cleanup_(json) json_t *shown = exec_show(e);
    const json_t *argv = json_object_get(shown, "argv");
    size_t first = vercel_command_first_word(argv);
    const char *cwd = json_string_value(json_object_get(shown, "cwd"));
    json_t *args = json_array();
    for (size_t i = first + 1; i < json_array_size(argv); i++)
        (void)json_array_append(args, json_array_get(argv, i));
    json_t *name = json_array_get(argv, first);
    json_t *o =
        json_pack("{s:s,s:s,s:o,s:s,s:s,s:s,s:o,s:I}", "id", e->id, "name",
                  name ? json_string_value(name) : "sh", "args", args, "cwd",
                  cwd ? cwd : VERCEL_CWD, "sessionId", e->sandbox_id, "sandboxId", e->sandbox_id,
                  "exitCode", exit_code(e, shown), "startedAt", (json_int_t)e->created_ms);
    if (e->ended_ms)
        set_int(o, "durationMs", e->ended_ms - e->created_ms);
    return o;
}

/* --- snapshots --- */

json_t *vercel_show_snapshot(struct vercel *v, const struct store_record *r) {
    _cleanup_(json) json_t *doc = store_record_doc(r);
    const json_t *note = json_object_get(doc, "note");
    const json_t *expires = json_object_get(note, "expires_ms");
    const char *sandbox = json_string_value(json_object_get(doc, "sandbox"));
    struct err err;
    if (expires && json_integer_value(expires) <= clock_wall_ms()) {
        if (vercel_snapshot_delete(v, r->owner, r->id, &err) < 0)
            log_warn("vercel.snapshot", "error", err.message);
        return NULL;
    }
    json_t *o =
        json_pack("{s:s,s:s,s:s,s:s,s:s,s:I,s:I,s:I}", "id", r->id, "sourceSessionId",
                  sandbox ? sandbox : "", "sourceSandboxId", sandbox ? sandbox : "", "region",
                  REGION, "status", "created", "sizeBytes", (json_int_t)r->bytes, "createdAt",
                  (json_int_t)r->created_ms, "updatedAt", (json_int_t)r->created_ms);
    vercel_show_copy(o, "expiresAt", expires);
    vercel_show_copy(o, "parentId", json_object_get(note, "parent"));
    vercel_show_copy(o, "creationMethod", json_object_get(note, "by"));
    return o;
}

json_t *vercel_snapshot_open(struct vercel *v, const char *owner, const char *id, struct err *err) {
    struct store_record r;
    if (vercel_record(v, "snapshot", owner, id, &r, err) < 0)
        return NULL;
    json_t *o = vercel_show_snapshot(v, &r);
    store_record_finish(&r);
    if (!o)
        (void)err_set(err, ERR_NOT_FOUND, "the snapshot \"%.40s\" has expired", id);
    return o;
}

/* --- lists --- */

int vercel_page_read(struct http_req *req, const char *key, struct vercel_page *p, char **ret,
                     struct err *err) {
    _cleanup_(free) char *order = NULL;
    *p = (struct vercel_page){.limit = PAGE_DEFAULT};
    int rc = api_number(req, "limit", VERCEL_NAMES_MAX, &p->limit, err);
    if (rc >= 0)
        rc = api_number(req, "cursor", VERCEL_NAMES_MAX, &p->skip, err);
    if (rc >= 0)
        rc = http_req_query_get(req, "sortOrder", &order, err);
    if (rc >= 0)
        rc = http_req_query_get(req, key, ret, err);
    p->ascending = order && strcmp(order, "asc") == 0;
    return rc < 0 ? rc : 0;
}

void vercel_page_respond(struct http_req *req, const char *key, json_t *all,
                         const struct vercel_page *p) {
    size_t n = json_array_size(all);
    size_t end = (size_t)MIN((uint64_t)n, p->skip + p->limit);
    json_t *list = json_array();
    for (size_t i = (size_t)p->skip; i < end; i++)
        (void)json_array_append(list, json_array_get(all, p->ascending ? n - 1 - i : i));
    json_t *next = end < n && !vercel_is_v1(req) ? json_sprintf("%zu", end) : json_null();
    json_decref(all);
    vercel_respond(req, json_pack("{s:o,s:{s:I,s:o,s:n}}", key, list, "pagination", "count",
                                  (json_int_t)json_array_size(list), "next", next, "prev"));
}

/* --- the session that a path names --- */

struct sandbox *vercel_session(struct http_req *req, struct vercel *v) {
    const char *id = http_req_param(req, "id");
    const char *owner = vercel_owner(req);
    struct sandbox *s = sandboxes_find(v->front->sandboxes, id);
    struct store_record r;
    struct err err;
    if (s && (strcmp(s->owner, owner) != 0 || !vercel_sandbox_note(s)))
        s = NULL;
    if (!s && vercel_record(v, "sandbox", owner, id, &r, &err) < 0) {
        http_respond_err(req, &err);
        return NULL;
    }
    if (!s) {
        store_record_finish(&r);
        vercel_fail(req, 410, "sandbox_stopped", "the session has ended: resume the sandbox");
        return NULL;
    }
    (void)json_object_del(json_object_get(s->doc, "note"), "fresh");
    if (s->state == SANDBOX_RUNNING && !vercel_stop_is_under_way(v, id))
        return s;
    if (s->state == SANDBOX_PAUSED)
        vercel_fail(req, 409, "sandbox_paused", "the sandbox is paused: resume it first");
    else if (s->state == SANDBOX_STARTING)
        vercel_fail(req, 409, "sandbox_pending", "the sandbox is starting");
    else if (s->state == SANDBOX_ENDING)
        vercel_fail(req, 422, "sandbox_stopping", "the session is ending");
    else
        vercel_fail(req, 422, "sandbox_snapshotting", "the session is being kept, and ends then");
    return NULL;
}
