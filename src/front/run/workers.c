#include "front/run/workers.h"

#include "base/base64.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/common/digest.h"
#include "front/common/intake.h"
#include "front/common/share.h"
#include "front/http/request.h"
#include "loop/channel.h"
#include "wire/isolate.h"
#include "wire/pack.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SWEEP_MS = 1000, PEER_CALLS_MAX = 64, CODE_ASKS_MAX = 256 };
/* A frame of a binding is what an isolate may send or be sent: ISOLATE_FRAME_MAX. The body of a
 * response goes in it as base64; what all calls of a binding hold of bodies is bounded too. */
#define PEER_BODY_MAX   ((size_t)ISOLATE_FRAME_MAX / 2)
#define PEER_BODIES_MAX ((size_t)ISOLATE_FRAME_MAX)

/* A program that is, or was, warm. */
struct worker {
    struct worker *next;
    struct workers *workers;
    char *owner;
    char key[ID_SIZE]; /* what it holds is what this key is granted; "" for the operator */
    char *id;
    bool deployed; /* by PUT; others came with a run */
    /* What the guest was started with: the version of one that is deployed, the hash of others. */
    int64_t version;
    unsigned char hash[SHA256_DIGEST_LENGTH];
    unsigned char grants[SHA256_DIGEST_LENGTH]; /* of its key, when the guest was started */
    struct guest *guest;
    int64_t used_ms;
};

/* A code that the ledger was asked for. Whoever waits for it, if anybody does still, is found when
 * it comes. */
struct worker_ask {
    struct worker_ask *next;
    struct workers *workers; /* NULL: they are gone */
    char owner[ID_SIZE];
    char id[LEDGER_WORKER_NAME_SIZE];
    int64_t version; /* of the roster then */
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
    size_t body_bytes; /* of responses that are not whole */
    bool ended;
};

struct workers {
    struct workers_options opt;
    struct bindings bindings;
    struct roster *roster;
    struct programs *codes; /* the last ones that were got, by owner, id and version */
    struct worker_ask *asks;
    struct worker *list;
    struct peer *peers;
    uv_timer_t timer;
    bool destroyed;
};

const struct bindings *workers_bindings(const struct workers *w) {
    return &w->bindings;
}

size_t workers_warm(const struct workers *w) {
    size_t n = 0;
    for (const struct worker *k = w->list; k; k = k->next)
        n += k->guest != NULL;
    return n;
}

static void workers_free(struct worker *k) {
    free(k->owner);
    free(k->id);
    free(k);
}

static void workers_cool(struct worker *k) {
    struct guest *g = k->guest;
    k->guest = NULL;
    guest_destroy(g);
}

static void workers_on_guest_end(void *ctx) {
    struct worker *k = ctx;
    k->guest = NULL;
}

/* The guest that takes calls, or NULL. One whose database has died is of no use any more: it goes
 * as soon as nothing runs in it. */
static struct guest *warm_guest(struct worker *k) {
    if (k->guest && guest_active_calls(k->guest) == 0 && guest_lacks_database(k->guest))
        workers_cool(k);
    if (k->guest && !guest_takes_calls(k->guest)) {
        guest_let_go(k->guest);
        k->guest = NULL;
    }
    return k->guest;
}

/* Ends those that were idle for long, and forgets those that came with a run. */
static void workers_on_sweep(uv_timer_t *t) {
    struct workers *w = t->data;
    int64_t now = clock_mono_ms();
    for (struct worker **at = &w->list; *at;) {
        struct worker *k = *at;
        bool idle = !k->guest || (guest_active_calls(k->guest) == 0 &&
                                  now - k->used_ms > w->opt.runner->config.warm_idle_ms);
        if (idle && k->guest)
            workers_cool(k);
        if (idle && !k->guest) {
            *at = k->next;
            workers_free(k);
        } else {
            at = &k->next;
        }
    }
    if (!w->list)
        (void)uv_timer_stop(t);
}

static const char *worker_share(const struct worker *k) {
    return share_name(k->owner, k->key);
}

/* Ends the warm isolate of this share (NULL: of any) that has been idle longest. */
static bool workers_evict(struct workers *w, const char *owner) {
    struct worker *oldest = NULL;
    for (struct worker *k = w->list; k; k = k->next)
        if (k->guest && guest_active_calls(k->guest) == 0 &&
            (!owner || strcmp(worker_share(k), owner) == 0) &&
            (!oldest || k->used_ms < oldest->used_ms))
            oldest = k;
    if (oldest)
        workers_cool(oldest);
    return oldest != NULL;
}

static int workers_make_room(struct workers *w, const char *owner, struct err *err) {
    size_t max = w->opt.runner->config.warm_workers;
    size_t share = share_of(owner, max);
    size_t all = 0;
    size_t own = 0;
    for (const struct worker *k = w->list; k; k = k->next) {
        all += k->guest != NULL;
        own += k->guest && strcmp(worker_share(k), owner) == 0;
    }
    if (own >= share && !workers_evict(w, owner))
        return err_set(err, ERR_RATE,
                       "%zu warm isolates of this key are all at work, which may have no more of "
                       "the %zu (limit warm_workers)",
                       share, max);
    if (all >= max && own < share && !workers_evict(w, NULL))
        return err_set(err, ERR_RATE, "%zu warm isolates are all at work (limit warm_workers)",
                       max);
    return 0;
}

/* key NULL: a deployed one; else one that came with a run of that key. */
static struct worker *workers_find(struct workers *w, const char *owner, const char *key,
                                   const char *id) {
    struct worker *k = w->list;
    while (k && (k->deployed != !key || strcmp(k->owner, owner) != 0 || strcmp(k->id, id) != 0 ||
                 (key && strcmp(k->key, key) != 0)))
        k = k->next;
    return k;
}

static struct worker *workers_add(struct workers *w, const char *owner, const char *key,
                                  const char *id, bool deployed) {
    struct worker *k = xcalloc(1, sizeof(*k));
    k->workers = w;
    k->owner = xstrdup(owner);
    (void)snprintf(k->key, sizeof(k->key), "%s", key);
    k->id = xstrdup(id);
    k->deployed = deployed;
    k->used_ms = clock_mono_ms();
    k->next = w->list;
    w->list = k;
    if (!uv_is_active((uv_handle_t *)&w->timer))
        (void)uv_timer_start(&w->timer, workers_on_sweep, SWEEP_MS, SWEEP_MS);
    return k;
}

/* The list has changed: what was put anew or deleted is not served any more by what was there. Who
 * waits for the code of one that was put anew gets the new one. */
static void workers_on_roster(void *ctx) {
    const struct workers *w = ctx;
    for (struct worker *k = w->list; k; k = k->next) {
        struct ledger_worker now;
        struct err err;
        if (!k->deployed || !k->guest)
            continue;
        bool gone = roster_find(w->roster, k->owner, k->id, &now, &err) < 0;
        bool awaits = guest_awaits(k->guest);
        if (gone && awaits)
            guest_refuse(k->guest, &err);
        else if (!awaits && (gone || k->version < now.version))
            workers_cool(k);
    }
}

/* --- the grants of their keys --- */

/* Of a key that is gone: nobody's. */
static void hash_grants(const struct worker *k, unsigned char hash[SHA256_DIGEST_LENGTH]) {
    struct identity who = {0};
    struct keyring *keys = k->workers->opt.keys;
    bool known = !*k->key || (keys && key_identity(keys, k->key, &who, NULL) == 0);
    digest_sha256(known ? who.grants : "?", known ? strlen(who.grants) : 1, hash);
}

static void keep_grants(struct worker *k) {
    hash_grants(k, k->grants);
}

/* What an isolate holds was bound by the grants of then: where they are others, it ends with the
 * calls in it, and the next one is started with what may be bound now. */
void workers_recheck(struct workers *w) {
    for (struct worker *k = w->list; k; k = k->next) {
        unsigned char now[SHA256_DIGEST_LENGTH];
        if (!*k->key || !k->guest || guest_awaits(k->guest))
            continue;
        hash_grants(k, now);
        if (memcmp(now, k->grants, sizeof(now)) != 0)
            workers_cool(k);
    }
}

int workers_create(const struct workers_options *options, struct workers **ret_workers,
                   struct err *err) {
    struct workers *w = xcalloc(1, sizeof(*w));
    w->opt = *options;
    w->bindings = (struct bindings){.keys = options->keys,
                                    .data_dir = options->data_dir,
                                    .facet_open = options->facet_open,
                                    .workers = w};
    w->roster = roster_create(clock_mono_ms);
    w->codes = programs_create(options->runner->config.worker_cache_bytes);
    (void)uv_timer_init(options->runner->loop, &w->timer);
    w->timer.data = w;
    uv_unref((uv_handle_t *)&w->timer);
    struct ledger_worker_watch watch = roster_watch(w->roster);
    int rc = ledger_watch_workers(options->ledger, &watch, err);
    if (rc < 0) {
        workers_destroy(w);
        return rc;
    }
    roster_on_stale(w->roster, ledger_refresh, options->ledger);
    roster_on_change(w->roster, workers_on_roster, w);
    *ret_workers = w;
    return 0;
}

static void end_peer(struct peer *p);

static void workers_on_timer_closed(uv_handle_t *h) {
    free(h->data);
}

void workers_destroy(struct workers *w) {
    if (!w)
        return;
    w->destroyed = true;
    (void)ledger_watch_workers(w->opt.ledger, NULL, NULL);
    for (struct worker_ask *a = w->asks; a; a = a->next)
        a->workers = NULL;
    while (w->list) {
        struct worker *k = w->list;
        w->list = k->next;
        if (k->guest)
            workers_cool(k);
        workers_free(k);
    }
    while (w->peers)
        end_peer(w->peers);
    roster_destroy(w->roster);
    programs_destroy(w->codes);
    uv_close((uv_handle_t *)&w->timer, workers_on_timer_closed);
}

static void hash_code(const struct code *c, unsigned char hash[SHA256_DIGEST_LENGTH]) {
    unsigned char both[2 * PROGRAM_HASH_SIZE];
    memcpy(both, c->source_hash, PROGRAM_HASH_SIZE);
    memcpy(both + PROGRAM_HASH_SIZE, c->env_hash, PROGRAM_HASH_SIZE);
    digest_sha256(both, sizeof(both), hash);
}

struct run *workers_run(struct workers *w, const struct code *code,
                        const struct run_request *request, struct err *err) {
    unsigned char hash[SHA256_DIGEST_LENGTH];
    hash_code(code, hash);
    const char *owner = request->owner;
    struct worker *k = workers_find(w, owner, request->key, code->id);
    if (k && warm_guest(k) && memcmp(k->hash, hash, sizeof(hash)) == 0) {
        k->used_ms = clock_mono_ms();
        return run_on_guest(k->guest, w->opt.jobs, request, err);
    }
    if (k && k->guest)
        workers_cool(k);
    if (workers_make_room(w, share_name(owner, request->key), err) < 0)
        return NULL;
    if (!k)
        k = workers_add(w, owner, request->key, code->id, false);
    memcpy(k->hash, hash, sizeof(hash));
    keep_grants(k);
    k->used_ms = clock_mono_ms();
    return run_start_warm(w->opt.runner, w->opt.jobs, request, workers_on_guest_end, k, &k->guest,
                          err);
}

/* --- definitions --- */

/* Workers of the default project have their id as host name; after the id of others comes a part of
 * their project's id. */
static void make_label(const char *owner, const char *id, char label[64]) {
    if (*owner)
        (void)snprintf(label, 64, "%s-%.10s", id, owner + strlen(owner) - 10);
    else
        (void)snprintf(label, 64, "%s", id);
}

int worker_ask_read(const char *text, size_t len, const struct run_limits *max,
                    struct worker_asked *ret_asked, struct err *err) {
    struct worker_asked a = {0};
    _cleanup_(json) json_t *body = NULL;
    int rc = http_read_json(text, len, &body, err);
    if (rc == 0)
        rc = code_read(&a.code, body, max, err);
    if (rc < 0)
        return rc;
    a.code.id = a.code.title = NULL; /* the body's, which goes */
    a.code.tails = NULL;
    a.tails = json_incref(json_object_get(body, "tails"));
    a.text = json_dumps(body, JSON_COMPACT);
    a.text_len = a.text ? strlen(a.text) : 0;
    a.public = json_is_true(json_object_get(body, "public"));
    *ret_asked = a;
    return 0;
}

void worker_asked_finish(struct worker_asked *a) {
    code_finish(&a->code);
    json_decref(a->tails);
    free(a->text);
    *a = (struct worker_asked){0};
}

int workers_make(struct workers *w, const struct workers_put *put, struct worker_asked *asked,
                 struct ledger_worker *ret_worker, struct err *err) {
    struct env env;
    if (!code_is_worker_id(put->id))
        return err_set(err, ERR_BAD_REQUEST,
                       "a worker's id must have 1 to 40 characters of a-z, 0-9 and \"-\"");
    int rc = bindings_make(&w->bindings, put->owner, put->key, &asked->code, &env, err);
    if (rc < 0)
        return rc;
    env_finish(&env);
    struct ledger_worker out = {
        .public = asked->public, .code = steal_ptr(&asked->text), .code_len = asked->text_len};
    (void)snprintf(out.owner, sizeof(out.owner), "%s", put->owner);
    (void)snprintf(out.key, sizeof(out.key), "%s", put->key);
    (void)snprintf(out.id, sizeof(out.id), "%s", put->id);
    make_label(put->owner, put->id, out.label);
    *ret_worker = out;
    return 0;
}

json_t *workers_describe(struct workers *w, const struct ledger_worker *worker) {
    char time[CLOCK_RFC3339_SIZE];
    const struct worker *k = workers_find(w, worker->owner, NULL, worker->id);
    return json_pack("{s:s,s:s,s:s,s:b,s:b}", "id", worker->id, "host", worker->label, "updated_at",
                     clock_rfc3339(worker->updated_ms, time), "warm", k && k->guest != NULL,
                     "public", worker->public);
}

int workers_list(struct workers *w, const char *owner, json_t **ret_json, struct err *err) {
    struct ledger_worker *const *list;
    size_t n;
    int rc = roster_list(w->roster, owner, &list, &n, err);
    if (rc < 0)
        return rc;
    *ret_json = json_array();
    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(*ret_json, workers_describe(w, list[i]));
    return 0;
}

/* --- the code of deployed ones --- */

static void hash_version(const struct ledger_worker *v, unsigned char hash[PROGRAM_HASH_SIZE]) {
    char name[ID_SIZE + LEDGER_WORKER_NAME_SIZE + 32];
    int n = snprintf(name, sizeof(name), "%s/%s/%lld", v->owner, v->id, (long long)v->version);
    programs_hash(name, (size_t)n, hash);
}

/* A code that is read for whoever awaits it then. */
struct code_load {
    struct workers *workers;
    struct ledger_worker of; /* its names and version only */
    struct run_limits limits;
    char *text;
    size_t len;
    json_t *json;
    struct code code;
    int rc;
    struct err err;
};

/* In any thread. */
static void workers_read_load(void *ctx) {
    struct code_load *l = ctx;
    l->rc = json_parse(l->text, l->len, "the worker", &l->json, &l->err);
    if (l->rc == 0)
        l->rc = code_read(&l->code, l->json, &l->limits, &l->err);
}

static void workers_free_load(void *ctx) {
    struct code_load *l = ctx;
    code_finish(&l->code);
    json_decref(l->json);
    free(l->text);
    free(l);
}

/* Gives the guest what it awaits. */
static void give_code(struct worker *k, struct code_load *l) {
    struct err err = l->err;
    struct env env;
    int rc = l->rc;
    memcpy(k->key, l->of.key, sizeof(k->key));
    if (rc == 0)
        rc = bindings_make(&k->workers->bindings, k->owner, k->key, &l->code, &env, &err);
    if (rc < 0) {
        guest_refuse(k->guest, &err);
        return;
    }
    if (guest_awaits(k->guest)) { /* it may have been deleted just now */
        k->version = l->of.version;
        keep_grants(k);
        guest_load(k->guest, &(struct guest_spec){.source = l->code.source.data,
                                                  .source_len = l->code.source.len,
                                                  .source_hash = l->code.source_hash,
                                                  .env = &env,
                                                  .limits = l->code.limits});
    }
    env_finish(&env);
}

static int ask_code(struct workers *w, const struct ledger_worker *of, struct err *err);

/* Something newer may have been put while it was read. */
static void workers_on_load_read(void *ctx) {
    struct code_load *l = ctx;
    struct workers *w = l->workers;
    struct worker *k = workers_find(w, l->of.owner, NULL, l->of.id);
    struct ledger_worker now;
    struct err err;
    if (k && k->guest && guest_awaits(k->guest)) {
        if (roster_find(w->roster, l->of.owner, l->of.id, &now, &err) < 0 ||
            now.version <= l->of.version)
            give_code(k, l);
        else if (ask_code(w, &now, &err) < 0)
            guest_refuse(k->guest, &err);
    }
    intake_dispose(w->opt.intake, workers_free_load, l);
}

/* Takes the text. */
// NOLINTNEXTLINE(readability-non-const-parameter): it is freed
static void workers_load(struct worker *k, char *text, size_t len, const struct ledger_worker *of) {
    struct workers *w = k->workers;
    struct code_load *l = xcalloc(1, sizeof(*l));
    *l = (struct code_load){.workers = w,
                            .of = {.version = of->version},
                            .limits = w->opt.runner->config.limits,
                            .text = text,
                            .len = len};
    (void)snprintf(l->of.owner, sizeof(l->of.owner), "%s", k->owner);
    (void)snprintf(l->of.id, sizeof(l->of.id), "%s", k->id);
    memcpy(l->of.key, of->key, sizeof(l->of.key));
    if (w->opt.intake && len > LIMIT_READ_AT_ONCE_BYTES) {
        (void)intake_start(w->opt.intake,
                           &(struct intake_ask){.owner = worker_share(k),
                                                .bytes = len,
                                                .waits = true, /* CODE_ASKS_MAX, and one a guest */
                                                .work = workers_read_load,
                                                .on_done = workers_on_load_read,
                                                .free = workers_free_load,
                                                .ctx = l},
                           NULL);
        return;
    }
    workers_read_load(l);
    give_code(k, l);
    workers_free_load(l);
}

/* Something newer was put since it was asked. */
static bool workers_is_behind(const struct worker_ask *a, const struct ledger_worker *got,
                              const struct ledger_answer *answer, const struct ledger_worker *now) {
    return got ? got->version < now->version
               : answer->err.code == ERR_NOT_FOUND && a->version < now->version;
}

static void take_code(struct workers *w, const struct worker_ask *a,
                      const struct ledger_answer *answer) {
    struct ledger_worker *got = answer->err.code ? NULL : answer->worker_got.worker;
    struct worker *k = workers_find(w, a->owner, NULL, a->id);
    struct ledger_worker now;
    struct err err;
    if (got) {
        unsigned char hash[PROGRAM_HASH_SIZE];
        struct program *p = program_create(got->code, got->code_len);
        hash_version(got, hash);
        programs_put(w->codes, hash, p);
        program_unref(p);
    }
    int rc = roster_find(w->roster, a->owner, a->id, &now, &err);
    if (!k || !k->guest || !guest_awaits(k->guest))
        return;
    if (rc == 0 && workers_is_behind(a, got, answer, &now)) {
        if (ask_code(w, &now, &err) < 0)
            guest_refuse(k->guest, &err);
    } else if (!got) {
        guest_refuse(k->guest, &answer->err);
    } else {
        workers_load(k, steal_ptr(&got->code), got->code_len, got);
    }
}

static void workers_on_code(void *ctx, const struct ledger_answer *answer) {
    struct worker_ask *a = ctx;
    struct workers *w = a->workers;
    if (w) {
        struct worker_ask **at = &w->asks;
        while (*at != a)
            at = &(*at)->next;
        *at = a->next;
        take_code(w, a, answer);
    }
    free(a);
}

/* One ask for each worker at a time, however many come and go. */
static int ask_code(struct workers *w, const struct ledger_worker *of, struct err *err) {
    size_t all = 0;
    size_t own = 0;
    for (const struct worker_ask *a = w->asks; a; a = a->next) {
        bool same = strcmp(a->owner, of->owner) == 0;
        if (same && strcmp(a->id, of->id) == 0)
            return 0;
        all++;
        own += same;
    }
    if (all >= CODE_ASKS_MAX || own >= share_of(of->owner, CODE_ASKS_MAX))
        return err_set(err, ERR_RATE, "too many workers wait for their code: try again soon");
    struct worker_ask *a = xcalloc(1, sizeof(*a));
    *a = (struct worker_ask){.next = w->asks, .workers = w, .version = of->version};
    memcpy(a->owner, of->owner, sizeof(a->owner));
    memcpy(a->id, of->id, sizeof(a->id));
    w->asks = a;
    ledger_call(w->opt.ledger,
                &(struct ledger_ask){.op = LEDGER_WORKER_GET,
                                     .worker_get = {.owner = a->owner, .id = a->id}},
                workers_on_code, a);
    return 0;
}

/* A call on the worker's isolate, which is started if it is not warm. */
static int workers_call(struct workers *w, const struct ledger_worker *of,
                        const struct guest_request *request, struct guest_call **ret_call,
                        struct err *err) {
    struct worker *k = workers_find(w, of->owner, NULL, of->id);
    if (!k)
        k = workers_add(w, of->owner, of->key, of->id, true);
    k->used_ms = clock_mono_ms();
    if (warm_guest(k)) {
        *ret_call = guest_call(k->guest, request);
        return 0;
    }
    int rc = workers_make_room(w, worker_share(k), err);
    if (rc < 0)
        return rc;
    k->guest =
        guest_await(w->opt.runner, &(struct guest_spec){.owner = worker_share(k), .label = k->id},
                    request, workers_on_guest_end, k, ret_call);
    unsigned char hash[PROGRAM_HASH_SIZE];
    hash_version(of, hash);
    const struct program *code = programs_get(w->codes, hash);
    if (code)
        workers_load(k, xstrndup(code->data, code->len), code->len, of);
    else if (ask_code(w, of, err) < 0)
        guest_refuse(k->guest, err);
    return 0;
}

static int find_served(struct workers *w, const struct workers_fetch *fetch,
                       struct ledger_worker *ret_worker, struct err *err) {
    struct ledger_worker k;
    int rc = roster_find_label(w->roster, fetch->label, &k, err);
    if (rc < 0)
        return rc;
    bool own = fetch->caller && (fetch->all || strcmp(fetch->caller, k.owner) == 0);
    if (!k.public && !own)
        return err_set(err, ERR_NOT_FOUND,
                       "there is no worker at this host name for this caller: for others than its "
                       "owner, and for pages of another origin, a worker says \"public\": true");
    *ret_worker = k;
    return 0;
}

int workers_check_label(struct workers *w, const struct workers_fetch *fetch,
                        struct workers_whose *ret_whose, struct err *err) {
    struct ledger_worker k;
    int rc = find_served(w, fetch, &k, err);
    if (rc < 0)
        return rc;
    memcpy(ret_whose->owner, k.owner, sizeof(ret_whose->owner));
    memcpy(ret_whose->key, k.key, sizeof(ret_whose->key));
    return 0;
}

int workers_call_label(struct workers *w, const struct workers_fetch *fetch,
                       const struct guest_request *request, struct guest_call **ret_call,
                       struct err *err) {
    struct ledger_worker k;
    int rc = find_served(w, fetch, &k, err);
    return rc < 0 ? rc : workers_call(w, &k, request, ret_call, err);
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

static void workers_answer(struct peer_call *c, uint16_t type, const char *json, size_t len) {
    if (c->answered)
        return;
    c->answered = true;
    static const char full[] =
        "{\"name\":\"RangeError\",\"message\":\"too many large answers wait for this program\"}";
    struct channel *channel = c->peer->channel;
    struct wire_out out = {.type = type, .id = c->id, .pieces = {{json, len}}};
    if (!channel || channel_send(channel, &out))
        return;
    out = (struct wire_out){
        .type = ISOLATE_BINDING_FAIL, .id = c->id, .pieces = {{full, sizeof(full) - 1}}};
    (void)channel_send(channel, &out);
}

static void answer_failure(struct peer_call *c, const char *name, const char *message) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, 65536);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_writer_object_begin(&w);
    json_put_str(&w, "name", name ? name : "Error");
    json_put_str(&w, "message", message ? message : "");
    json_writer_object_end(&w);
    workers_answer(c, ISOLATE_BINDING_FAIL, b.data, b.len);
}

static void workers_on_peer_result(void *ctx, const char *json, size_t len) {
    if (len == 0)
        workers_answer(ctx, ISOLATE_BINDING_RESULT, "{\"$t\":\"undefined\"}", 18);
    else
        workers_answer(ctx, ISOLATE_BINDING_RESULT, json, len);
}

/* fetch() over a binding: the answer is one value, with the body as bytes. */
static void workers_on_peer_response(void *ctx, const json_t *head) {
    struct peer_call *c = ctx;
    json_decref(c->head);
    c->head = json_deep_copy(head);
}

static void workers_on_peer_body(void *ctx, const char *data, size_t len, bool last) {
    struct peer_call *c = ctx;
    size_t before = c->body.len;
    if (c->peer->body_bytes + len > PEER_BODIES_MAX)
        c->body.full = true;
    else
        (void)buf_add(&c->body, data, len);
    c->peer->body_bytes += c->body.len - before;
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
        workers_answer(c, ISOLATE_BINDING_RESULT, b.data, b.len);
}

static void workers_on_peer_error(void *ctx, const json_t *e) {
    answer_failure(ctx, json_string_value(json_object_get(e, "name")),
                   json_string_value(json_object_get(e, "message")));
}

static void workers_on_peer_done(void *ctx, const struct guest_usage *usage,
                                 const struct err *err) {
    (void)usage;
    struct peer_call *c = ctx;
    struct peer *p = c->peer;
    answer_failure(c, "Error", err ? err->message : "the worker gave no answer");
    p->calls--;
    p->body_bytes -= c->body.len;
    if (p->ended && p->calls == 0)
        free_peer(p);
    json_decref(c->head);
    buf_finish(&c->body);
    free(c);
}

/* The call as the target's isolate reads it. A fetch() becomes a request with its body beside it.
 */
static int workers_write_call(const struct peer *p, const char *method, size_t n, const char *args,
                              size_t args_len, struct buf *out, struct buf *body, struct err *err) {
    bool fetch = n == 5 && memcmp(method, "fetch", 5) == 0;
    struct json_writer w;
    json_writer_init(&w, out);
    json_writer_object_begin(&w);
    if (p->entrypoint)
        json_put_str(&w, "entrypoint", p->entrypoint);
    if (p->props)
        json_put_tree(&w, "props", p->props);
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
        json_put_tree(&w, "http", request);
    } else {
        json_put_bool(&w, "tagged", true);
        json_put_text(&w, "method", method, n);
        json_put_raw(&w, "args", args, args_len);
    }
    json_writer_object_end(&w);
    return out->full ? err_set(err, ERR_TOO_LARGE, "the call is too large") : 0;
}

static void workers_on_peer_frame(void *ctx, struct wire_frame *f) {
    struct peer *p = ctx;
    struct unpack u;
    size_t n;
    unpack_init(&u, f->data, f->len);
    const char *method = unpack_bytes(&u, &n);
    const char *args = (const char *)u.at;
    size_t args_len = (size_t)(u.end - u.at);
    struct peer_call *c = xcalloc(1, sizeof(*c));
    *c = (struct peer_call){.peer = p, .id = f->id};
    buf_init(&c->body, PEER_BODY_MAX);
    p->calls++;
    struct err err;
    struct ledger_worker k;
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
        rc = roster_find(p->workers->roster, p->owner, p->id, &k, &err);
    if (rc == 0)
        rc = workers_write_call(p, method, n, args, args_len, &spec, &body, &err);
    if (rc == 0)
        rc = workers_call(
            p->workers, &k,
            &(struct guest_request){.spec = spec.data,
                                    .spec_len = spec.len,
                                    .body = body.data,
                                    .body_len = body.len,
                                    .wall_ms = p->workers->opt.runner->config.limits.wall_ms,
                                    .callbacks = {.on_result = workers_on_peer_result,
                                                  .on_response = workers_on_peer_response,
                                                  .on_body = workers_on_peer_body,
                                                  .on_error = workers_on_peer_error,
                                                  .on_done = workers_on_peer_done},
                                    .ctx = c},
            &c->call, &err);
    if (rc < 0)
        workers_on_peer_done(c, NULL, &err);
}

static void workers_on_peer_end(void *ctx, const struct err *err) {
    (void)err;
    end_peer(ctx);
}

int workers_connect(struct workers *w, const char *owner, const char *id, const char *entrypoint,
                    const json_t *props, int *ret_fd, struct err *err) {
    struct ledger_worker there;
    if (!w)
        return err_set(err, ERR_UNSUPPORTED, "worker bindings need a running server");
    int rc = roster_find(w->roster, owner, id, &there, err);
    if (rc < 0)
        return rc;
    int pair[2];
    rc = fd_pair(pair, err);
    if (rc < 0)
        return rc;
    struct peer *p = xcalloc(1, sizeof(*p));
    p->workers = w;
    p->owner = xstrdup(owner);
    p->id = xstrdup(id);
    p->entrypoint = entrypoint ? xstrdup(entrypoint) : NULL;
    p->props = json_incref((json_t *)(uintptr_t)props);
    rc = channel_create(w->opt.runner->loop, pair[0],
                        &(struct channel_options){.max_frame_bytes = ISOLATE_FRAME_MAX,
                                                  .max_queue_bytes = (size_t)2 * ISOLATE_FRAME_MAX,
                                                  .on_frame = workers_on_peer_frame,
                                                  .on_end = workers_on_peer_end,
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
