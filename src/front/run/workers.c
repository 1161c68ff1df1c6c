#include "front/run/workers.h"

#include "base/base64.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/share.h"
#include "loop/channel.h"
#include "wire/isolate.h"
#include "wire/pack.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SWEEP_MS = 1000, PEER_FRAME_MAX = 8 << 20, PEER_CALLS_MAX = 64 };

/* A program that is, or was, warm. */
struct worker {
    struct worker *next;
    struct workers *workers;
    char *owner;
    char *id;
    bool deployed;                            /* by PUT; others came with a run */
    json_t *def;                              /* of one that is deployed, once it was read */
    unsigned char hash[SHA256_DIGEST_LENGTH]; /* of what the guest was started with */
    struct guest *guest;
    int64_t used_ms;
};

/* The front's end of a worker binding. */
struct peer {
    struct peer *next;
    struct workers *workers;
    struct channel *channel;
    char *owner;
    char *id;
    char *entrypoint;
    json_t *props;
    size_t calls;
    bool ended;
};

struct workers {
    struct workers_options opt;
    struct worker *list;
    struct peer *peers;
    uv_timer_t timer;
    bool destroyed;
};

char *workers_facets_dir(const struct workers *w, const char *owner) {
    return xasprintf("%s/facets/%s", w->opt.data_dir, *owner ? owner : "operator");
}

size_t workers_warm(const struct workers *w) {
    size_t n = 0;
    for (const struct worker *k = w->list; k; k = k->next)
        n += k->guest != NULL;
    return n;
}

static void free_worker(struct worker *k) {
    free(k->owner);
    free(k->id);
    json_decref(k->def);
    free(k);
}

static void cool(struct worker *k) {
    struct guest *g = k->guest;
    k->guest = NULL;
    guest_destroy(g);
}

static void on_guest_end(void *ctx) {
    struct worker *k = ctx;
    k->guest = NULL;
}

/* The guest that takes calls, or NULL. */
static struct guest *warm_guest(struct worker *k) {
    if (k->guest && !guest_takes_calls(k->guest)) {
        guest_let_go(k->guest);
        k->guest = NULL;
    }
    return k->guest;
}

/* Ends those that were idle for long, and forgets those that came with a run. */
static void on_sweep(uv_timer_t *t) {
    struct workers *w = t->data;
    int64_t now = clock_mono_ms();
    for (struct worker **at = &w->list; *at;) {
        struct worker *k = *at;
        bool idle = !k->guest || (guest_active_calls(k->guest) == 0 &&
                                  now - k->used_ms > w->opt.runner->config.warm_idle_ms);
        if (idle && k->guest)
            cool(k);
        if (idle && !k->guest) {
            *at = k->next;
            free_worker(k);
        } else {
            at = &k->next;
        }
    }
}

/* Ends the warm isolate of the key (NULL: of any) that has been idle longest. */
static bool evict(struct workers *w, const char *owner) {
    struct worker *oldest = NULL;
    for (struct worker *k = w->list; k; k = k->next)
        if (k->guest && guest_active_calls(k->guest) == 0 &&
            (!owner || strcmp(k->owner, owner) == 0) && (!oldest || k->used_ms < oldest->used_ms))
            oldest = k;
    if (oldest)
        cool(oldest);
    return oldest != NULL;
}

static int make_room(struct workers *w, const char *owner, struct err *err) {
    size_t max = w->opt.runner->config.warm_workers;
    size_t share = share_of(owner, max);
    size_t all = 0;
    size_t own = 0;
    for (const struct worker *k = w->list; k; k = k->next) {
        all += k->guest != NULL;
        own += k->guest && strcmp(k->owner, owner) == 0;
    }
    if (own >= share && !evict(w, owner))
        return err_set(err, ERR_RATE,
                       "%zu warm isolates of this key are all at work, which may have no more of "
                       "the %zu (limit warm_workers)",
                       share, max);
    if (all >= max && own < share && !evict(w, NULL))
        return err_set(err, ERR_RATE, "%zu warm isolates are all at work (limit warm_workers)",
                       max);
    return 0;
}

static struct worker *find(struct workers *w, const char *owner, const char *id, bool deployed) {
    struct worker *k = w->list;
    while (k && (k->deployed != deployed || strcmp(k->owner, owner) != 0 || strcmp(k->id, id) != 0))
        k = k->next;
    return k;
}

static struct worker *add(struct workers *w, const char *owner, const char *id, bool deployed) {
    struct worker *k = xcalloc(1, sizeof(*k));
    k->workers = w;
    k->owner = xstrdup(owner);
    k->id = xstrdup(id);
    k->deployed = deployed;
    k->used_ms = clock_mono_ms();
    k->next = w->list;
    w->list = k;
    return k;
}

struct workers *workers_create(const struct workers_options *options) {
    struct workers *w = xcalloc(1, sizeof(*w));
    w->opt = *options;
    (void)uv_timer_init(options->runner->loop, &w->timer);
    w->timer.data = w;
    (void)uv_timer_start(&w->timer, on_sweep, SWEEP_MS, SWEEP_MS);
    uv_unref((uv_handle_t *)&w->timer);
    return w;
}

static void end_peer(struct peer *p);

static void on_timer_closed(uv_handle_t *h) {
    free(h->data);
}

void workers_destroy(struct workers *w) {
    if (!w)
        return;
    w->destroyed = true;
    while (w->list) {
        struct worker *k = w->list;
        w->list = k->next;
        if (k->guest)
            cool(k);
        free_worker(k);
    }
    while (w->peers)
        end_peer(w->peers);
    uv_close((uv_handle_t *)&w->timer, on_timer_closed);
}

static void hash_code(const struct code *c, unsigned char hash[SHA256_DIGEST_LENGTH]) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, c->source.len + ((size_t)8 << 20));
    (void)buf_add(&b, c->source.data, c->source.len);
    if (c->env)
        (void)json_dump(c->env, &b);
    (void)SHA256((const unsigned char *)b.data, b.len, hash);
}

struct run *workers_run(struct workers *w, const char *owner, const struct code *code,
                        const struct run_request *request, struct err *err) {
    unsigned char hash[SHA256_DIGEST_LENGTH];
    hash_code(code, hash);
    struct worker *k = find(w, owner, code->id, false);
    if (k && warm_guest(k) && memcmp(k->hash, hash, sizeof(hash)) == 0) {
        k->used_ms = clock_mono_ms();
        return run_on_guest(k->guest, w->opt.jobs, request, err);
    }
    if (k && k->guest)
        cool(k);
    if (make_room(w, owner, err) < 0)
        return NULL;
    if (!k)
        k = add(w, owner, code->id, false);
    memcpy(k->hash, hash, sizeof(hash));
    k->used_ms = clock_mono_ms();
    return run_start_warm(w->opt.runner, w->opt.jobs, request, on_guest_end, k, &k->guest, err);
}

/* --- definitions --- */

/* The operator's workers have their id as host name; a key's have a part of the key's id behind. */
static void make_label(const char *owner, const char *id, char label[64]) {
    if (*owner)
        (void)snprintf(label, 64, "%s-%.10s", id, owner + strlen(owner) - 10);
    else
        (void)snprintf(label, 64, "%s", id);
}

static int read_env(struct workers *w, const char *owner, const json_t *env, struct env *ret_env,
                    struct err *err) {
    _cleanup_(free) char *dir = workers_facets_dir(w, owner);
    int rc = code_read_env(
        env, &(struct env_scope){.facets_dir = dir, .owner = owner, .workers = w}, ret_env, err);
    if (rc == 0)
        ret_env->facet_open = w->opt.facet_open;
    return rc;
}

int workers_put(struct workers *w, const char *owner, const char *id, const json_t *json,
                char ret_label[64], struct err *err) {
    struct code c;
    struct env env;
    if (!code_is_worker_id(id))
        return err_set(err, ERR_BAD_REQUEST,
                       "a worker's id must have 1 to 40 characters of a-z, 0-9 and \"-\"");
    int rc = code_read(&c, json, &w->opt.runner->config.limits, err);
    if (rc < 0)
        return rc;
    rc = read_env(w, owner, c.env, &env, err);
    code_finish(&c);
    if (rc < 0)
        return rc;
    env_finish(&env);
    make_label(owner, id, ret_label);
    _cleanup_(free) char *text = json_dumps(json, JSON_COMPACT);
    rc = store_worker_put(w->opt.store,
                          &(struct store_worker){.owner = (char *)(uintptr_t)owner,
                                                 .id = (char *)(uintptr_t)id,
                                                 .label = ret_label,
                                                 .code = text},
                          err);
    if (rc < 0)
        return rc;
    struct worker *k = find(w, owner, id, true);
    if (k) {
        if (k->guest)
            cool(k);
        json_decref(k->def);
        k->def = json_deep_copy(json);
    }
    return 0;
}

int workers_delete(struct workers *w, const char *owner, const char *id, struct err *err) {
    int rc = store_worker_delete(w->opt.store, owner, id, err);
    struct worker *k = find(w, owner, id, true);
    if (rc == 0 && k && k->guest)
        cool(k);
    if (rc == 0 && k) {
        json_decref(k->def);
        k->def = NULL;
    }
    return rc;
}

static json_t *describe(struct workers *w, const struct store_worker *s, bool whole) {
    char time[CLOCK_RFC3339_SIZE];
    const struct worker *k = find(w, s->owner, s->id, true);
    json_t *j = json_pack("{s:s,s:s,s:s,s:b}", "id", s->id, "host", s->label, "updated_at",
                          clock_rfc3339(s->updated_ms, time), "warm", k && k->guest != NULL);
    json_t *code = whole ? json_loads(s->code, 0, NULL) : NULL;
    if (code)
        (void)json_object_set_new(j, "code", code);
    return j;
}

int workers_get(struct workers *w, const char *owner, const char *id, json_t **ret_json,
                struct err *err) {
    struct store_worker s;
    int rc = store_worker_get(w->opt.store, owner, id, &s, err);
    if (rc < 0)
        return rc;
    *ret_json = describe(w, &s, true);
    store_worker_finish(&s);
    return 0;
}

struct worker_listing {
    struct workers *workers;
    json_t *list;
};

static void on_listed(void *ctx, const struct store_worker *s) {
    struct worker_listing *l = ctx;
    (void)json_array_append_new(l->list, describe(l->workers, s, false));
}

int workers_list(struct workers *w, const char *owner, json_t **ret_json, struct err *err) {
    struct worker_listing l = {.workers = w, .list = json_array()};
    int rc = store_worker_list(w->opt.store, owner, on_listed, &l, err);
    if (rc < 0) {
        json_decref(l.list);
        return rc;
    }
    *ret_json = l.list;
    return 0;
}

/* The worker with its definition in memory. Either id or label is given. */
static int load(struct workers *w, const char *owner, const char *id_or_label,
                struct worker **ret_worker, struct err *err) {
    struct worker *k = owner ? find(w, owner, id_or_label, true) : NULL;
    if (k && k->def) {
        *ret_worker = k;
        return 0;
    }
    struct store_worker s;
    int rc = store_worker_get(w->opt.store, owner, id_or_label, &s, err);
    if (rc < 0)
        return rc;
    k = find(w, s.owner, s.id, true);
    if (!k)
        k = add(w, s.owner, s.id, true);
    if (!k->def)
        rc = json_parse(s.code, strlen(s.code), "the worker", &k->def, err);
    store_worker_finish(&s);
    *ret_worker = k;
    return rc;
}

/* A call on the worker's isolate, which is started if it is not warm. */
static int call(struct worker *k, const struct guest_request *request, struct guest_call **ret_call,
                struct err *err) {
    struct workers *w = k->workers;
    k->used_ms = clock_mono_ms();
    if (warm_guest(k)) {
        *ret_call = guest_call(k->guest, request);
        return 0;
    }
    struct code c;
    struct env env = {0};
    int rc = code_read(&c, k->def, &w->opt.runner->config.limits, err);
    if (rc < 0)
        return rc;
    rc = read_env(w, k->owner, c.env, &env, err);
    if (rc == 0)
        rc = make_room(w, k->owner, err);
    if (rc < 0) {
        env_finish(&env);
        code_finish(&c);
        return rc;
    }
    hash_code(&c, k->hash);
    struct guest_spec spec = {.source = c.source.data,
                              .source_len = c.source.len,
                              .env = &env,
                              .limits = c.limits,
                              .warm = true,
                              .owner = k->owner,
                              .label = k->id};
    k->guest = guest_start(w->opt.runner, &spec, request, on_guest_end, k, ret_call);
    env_finish(&env);
    code_finish(&c);
    return 0;
}

static int find_served(struct workers *w, const struct workers_fetch *fetch, struct worker **ret_k,
                       struct err *err) {
    struct worker *k = NULL;
    int rc = load(w, NULL, fetch->label, &k, err);
    if (rc < 0)
        return rc;
    *ret_k = k;
    bool public = json_is_true(json_object_get(k->def, "public"));
    if (fetch->caller_required && !public &&
        (!fetch->caller || (*fetch->caller && strcmp(fetch->caller, k->owner) != 0)))
        return err_set(err, ERR_NOT_FOUND, "there is no worker at this host name");
    return 0;
}

int workers_check_label(struct workers *w, const struct workers_fetch *fetch,
                        char ret_owner[ID_SIZE], struct err *err) {
    struct worker *k;
    int rc = find_served(w, fetch, &k, err);
    if (rc == 0)
        (void)snprintf(ret_owner, ID_SIZE, "%s", k->owner);
    return rc;
}

int workers_call_label(struct workers *w, const struct workers_fetch *fetch,
                       const struct guest_request *request, struct guest_call **ret_call,
                       struct err *err) {
    struct worker *k;
    int rc = find_served(w, fetch, &k, err);
    return rc < 0 ? rc : call(k, request, ret_call, err);
}

/* --- bindings: calls from one worker to another --- */

static void free_peer(struct peer *p) {
    free(p->owner);
    free(p->id);
    free(p->entrypoint);
    json_decref(p->props);
    free(p);
}

static void end_peer(struct peer *p) {
    if (p->ended)
        return;
    p->ended = true;
    struct peer **at = &p->workers->peers;
    while (*at && *at != p)
        at = &(*at)->next;
    if (*at)
        *at = p->next;
    channel_close(p->channel);
    p->channel = NULL;
    if (p->calls == 0)
        free_peer(p);
}

struct peer_call {
    struct peer *peer;
    struct guest_call *call;
    uint64_t id;
    bool answered;
    json_t *head;    /* of a fetch() */
    struct buf body; /* what it answered */
};

static void answer(struct peer_call *c, uint16_t type, const char *json, size_t len) {
    if (c->answered)
        return;
    c->answered = true;
    if (c->peer->channel)
        (void)channel_send(c->peer->channel,
                           &(struct wire_out){.type = type, .id = c->id, .pieces = {{json, len}}});
}

static void answer_failure(struct peer_call *c, const char *name, const char *message) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, 65536);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_writer_object_begin(&w);
    json_writer_key(&w, "name");
    json_writer_str(&w, name ? name : "Error");
    json_writer_key(&w, "message");
    json_writer_str(&w, message ? message : "");
    json_writer_object_end(&w);
    answer(c, ISOLATE_BINDING_FAIL, b.data, b.len);
}

static void on_peer_result(void *ctx, const char *json, size_t len) {
    if (len == 0)
        answer(ctx, ISOLATE_BINDING_RESULT, "{\"$t\":\"undefined\"}", 18);
    else
        answer(ctx, ISOLATE_BINDING_RESULT, json, len);
}

/* fetch() over a binding: the answer is one value, with the body as bytes. */
static void on_peer_response(void *ctx, const json_t *head) {
    struct peer_call *c = ctx;
    json_decref(c->head);
    c->head = json_deep_copy(head);
}

static void on_peer_body(void *ctx, const char *data, size_t len, bool last) {
    struct peer_call *c = ctx;
    (void)buf_add(&c->body, data, len);
    guest_call_passed(c->call, len);
    if (!last || !c->head)
        return;
    if (c->body.full) {
        answer_failure(c, "RangeError", "the response is too large for a binding");
        return;
    }
    _cleanup_(free) char *text = xcalloc(1, BASE64_SIZE(c->body.len) + 1);
    base64_encode(text, c->body.data, c->body.len);
    (void)json_object_set_new(
        c->head, "body", json_pack("{s:s,s:s,s:s}", "$t", "bytes", "k", "Uint8Array", "v", text));
    _cleanup_(buf) struct buf b;
    buf_init(&b, ISOLATE_FRAME_MAX);
    if (json_dump(c->head, &b))
        answer(c, ISOLATE_BINDING_RESULT, b.data, b.len);
}

static void on_peer_error(void *ctx, const json_t *e) {
    answer_failure(ctx, json_string_value(json_object_get(e, "name")),
                   json_string_value(json_object_get(e, "message")));
}

static void on_peer_done(void *ctx, const struct guest_usage *usage, const struct err *err) {
    (void)usage;
    struct peer_call *c = ctx;
    struct peer *p = c->peer;
    answer_failure(c, "Error", err ? err->message : "the worker gave no answer");
    p->calls--;
    if (p->ended && p->calls == 0)
        free_peer(p);
    json_decref(c->head);
    buf_finish(&c->body);
    free(c);
}

/* The call as the target's isolate reads it. A fetch() becomes a request with its body beside it.
 */
static int write_call(const struct peer *p, const char *method, size_t n, const char *args,
                      size_t args_len, struct buf *out, struct buf *body, struct err *err) {
    bool fetch = n == 5 && memcmp(method, "fetch", 5) == 0;
    struct json_writer w;
    json_writer_init(&w, out);
    json_writer_object_begin(&w);
    if (p->entrypoint) {
        json_writer_key(&w, "entrypoint");
        json_writer_str(&w, p->entrypoint);
    }
    if (p->props) {
        json_writer_key(&w, "props");
        json_writer_tree(&w, p->props);
    }
    if (fetch) {
        _cleanup_(json) json_t *list = NULL;
        int rc = json_parse(args, args_len, "the call", &list, err);
        if (rc < 0)
            return rc;
        json_t *request = json_array_get(list, 0);
        const json_t *bytes = json_object_get(request, "body");
        const char *text = json_string_value(json_object_get(bytes, "v"));
        size_t len = text ? strlen(text) : 0;
        size_t got = 0;
        char *at = buf_reserve(body, len);
        if (!json_is_object(request) || !at || (len && !base64_decode(at, text, len, &got)))
            return err_set(err, ERR_PROTOCOL, "malformed request");
        buf_claim(body, got);
        (void)json_object_del(request, "body");
        json_writer_key(&w, "http");
        json_writer_tree(&w, request);
    } else {
        json_writer_key(&w, "tagged");
        json_writer_bool(&w, true);
        json_writer_key(&w, "method");
        json_writer_text(&w, method, n);
        json_writer_key(&w, "args");
        json_writer_raw(&w, args, args_len);
    }
    json_writer_object_end(&w);
    return out->full ? err_set(err, ERR_TOO_LARGE, "the call is too large") : 0;
}

static void on_peer_frame(void *ctx, struct wire_frame *f) {
    struct peer *p = ctx;
    struct unpack u;
    size_t n;
    unpack_init(&u, f->data, f->len);
    const char *method = unpack_bytes(&u, &n);
    const char *args = (const char *)u.at;
    size_t args_len = (size_t)(u.end - u.at);
    struct peer_call *c = xcalloc(1, sizeof(*c));
    *c = (struct peer_call){.peer = p, .id = f->id};
    buf_init(&c->body, PEER_FRAME_MAX / 2);
    p->calls++;
    struct err err;
    struct worker *k = NULL;
    _cleanup_(buf) struct buf spec;
    _cleanup_(buf) struct buf body;
    buf_init(&spec, ISOLATE_FRAME_MAX);
    buf_init(&body, ISOLATE_FRAME_MAX);
    int rc = 0;
    if (f->type != ISOLATE_BINDING_CALL || u.bad || !json_is_valid(args, args_len))
        rc = err_set(&err, ERR_PROTOCOL, "malformed call");
    else if (p->calls > PEER_CALLS_MAX)
        rc = err_set(&err, ERR_RATE, "more than %d calls at a time on one binding", PEER_CALLS_MAX);
    if (rc == 0)
        rc = load(p->workers, p->owner, p->id, &k, &err);
    if (rc == 0)
        rc = write_call(p, method, n, args, args_len, &spec, &body, &err);
    if (rc == 0)
        rc = call(k,
                  &(struct guest_request){.spec = spec.data,
                                          .spec_len = spec.len,
                                          .body = body.data,
                                          .body_len = body.len,
                                          .wall_ms = p->workers->opt.runner->config.limits.wall_ms,
                                          .callbacks = {.on_result = on_peer_result,
                                                        .on_response = on_peer_response,
                                                        .on_body = on_peer_body,
                                                        .on_error = on_peer_error,
                                                        .on_done = on_peer_done},
                                          .ctx = c},
                  &c->call, &err);
    if (rc < 0)
        on_peer_done(c, NULL, &err);
}

static void on_peer_end(void *ctx, const struct err *err) {
    (void)err;
    end_peer(ctx);
}

int workers_connect(struct workers *w, const char *owner, const char *id, const char *entrypoint,
                    const json_t *props, int *ret_fd, struct err *err) {
    struct store_worker s;
    if (!w || !w->opt.store)
        return err_set(err, ERR_UNSUPPORTED, "worker bindings need a running server");
    int rc = store_worker_get(w->opt.store, owner, id, &s, err);
    if (rc < 0)
        return rc;
    store_worker_finish(&s);
    int pair[2];
    rc = fd_pair(pair, err);
    if (rc < 0)
        return rc;
    struct peer *p = xcalloc(1, sizeof(*p));
    p->workers = w;
    p->owner = xstrdup(owner);
    p->id = xstrdup(id);
    p->entrypoint = entrypoint ? xstrdup(entrypoint) : NULL;
    p->props = props ? json_deep_copy(props) : NULL;
    rc = channel_create(w->opt.runner->loop, pair[0],
                        &(struct channel_options){.max_frame_bytes = PEER_FRAME_MAX,
                                                  .max_queue_bytes = (size_t)4 * PEER_FRAME_MAX,
                                                  .on_frame = on_peer_frame,
                                                  .on_end = on_peer_end,
                                                  .ctx = p},
                        &p->channel, err);
    if (rc < 0) {
        close(pair[1]);
        free_peer(p);
        return rc;
    }
    p->next = w->peers;
    w->peers = p;
    *ret_fd = pair[1];
    return 0;
}
