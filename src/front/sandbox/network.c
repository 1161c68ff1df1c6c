#include "front/sandbox/network.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json_table.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/sandbox/sandboxes.h"
#include "front/store/network_events.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    QUEUE_BYTES = 8 << 20,
    BATCH = 256, /* events that are written together */
    BATCH_MS = 50,
};

struct change {
    struct change *next;
    uint64_t id;
    struct network_line *line; /* NULL when that is closed */
    struct egress_policy policy;
    void (*cb)(void *ctx, const struct err *err);
    void *ctx;
};

/* Waits for somebody to knock at a line that leads nowhere. */
struct knock {
    uv_poll_t poll;
    struct network_line *line; /* NULL when that does not wait any more */
};

struct network_line {
    struct network_line *next;
    struct network *network;
    char *id;
    int listener;
    struct knock *knock; /* cay-egress was not told of it, and need not be while nobody knocks */
    struct egress_policy policy;
    struct egress_usage usage;
    void (*on_event)(void *ctx, const struct egress_event *event); /* NULL: they are stored */
    void *event_ctx;
    const struct network_payer *payer; /* or NULL */
    void *payer_ctx;
    uint64_t *calls; /* that were asked for, and not told of as spent */
    size_t ncalls;
    uint64_t unwritten; /* events that the store did not take */
    uint64_t closing;   /* the number of its CLOSE: what still ends is told before its DONE */
};

struct network {
    struct network_options opt;
    struct keeper *keeper;
    struct channel *channel;
    struct egress_route *routes;
    size_t nroutes;
    struct egress_price *prices;
    size_t nprices;
    struct egress_allow *allow; /* what a request may allow at most */
    size_t nallow;
    struct network_line *lines;
    struct change *changes;
    struct store_network *events;
    struct store_network_event batch[BATCH];
    size_t nbatch;
    bool failing;     /* the store did not take the last one */
    uv_timer_t timer; /* of the batch */
    uint64_t next_id;
    void (*on_stopped)(void *ctx);
    void *stopped_ctx;
};

/* --- settings --- */

static const char *get_secret(void *ctx, const char *name) {
    return secrets_take(ctx, name);
}

static int read_routes(struct network *n, struct err *err) {
    const char *name;
    json_t *v;
    json_object_foreach(n->opt.settings->routes, name, v) {
        n->routes = xrealloc(n->routes, (n->nroutes + 1) * sizeof(*n->routes));
        int rc =
            egress_route_parse(name, v, get_secret, n->opt.secrets, &n->routes[n->nroutes], err);
        if (rc < 0)
            return err_wrap(err, "\"sandboxes\": \"routes\"");
        n->routes[n->nroutes].private = true;
        n->nroutes++;
    }
    return 0;
}

static void read_prices(struct network *n) {
    size_t i;
    const json_t *m;
    json_array_foreach(json_object_get(n->opt.models, "models"), i, m) {
        const char *id = json_string_value(json_object_get(m, "id"));
        struct model_price p = {0};
        if (!id || model_price_read(m, &p, NULL) < 0 || !p.known ||
            n->nprices == EGRESS_PRICES_MAX - 1) /* one may be added */
            continue;
        n->prices = xrealloc(n->prices, (n->nprices + 1) * sizeof(*n->prices));
        n->prices[n->nprices++] = network_price(id, &p);
        n->prices[n->nprices - 1].model = xstrdup(id);
    }
}

struct egress_price network_price(const char *model, const struct model_price *p) {
    return (struct egress_price){.model = (char *)(uintptr_t)model,
                                 .input = (uint64_t)p->input,
                                 .output = (uint64_t)p->output,
                                 .cache_read = (uint64_t)p->cache_read,
                                 .cache_write = (uint64_t)p->cache_write,
                                 .cache_write_1h = (uint64_t)p->cache_write_1h};
}

static int network_read_allow(struct network *n, struct err *err) {
    size_t i;
    const json_t *v;
    json_array_foreach(n->opt.settings->allow, i, v) {
        n->allow = xrealloc(n->allow, (n->nallow + 1) * sizeof(*n->allow));
        int rc = egress_allow_parse(json_string_value(v), &n->allow[n->nallow], err);
        if (rc < 0)
            return rc;
        n->nallow++;
    }
    return 0;
}

/* --- what a request may have --- */

static bool is_below(const char *host, const char *parent) {
    size_t n = strlen(host);
    size_t k = strlen(parent);
    return strcmp(host, parent) == 0 ||
           (n > k && host[n - k - 1] == '.' && strcmp(host + n - k, parent) == 0);
}

bool network_names(const struct network *n, const struct egress_allow *a) {
    for (size_t i = 0; i < n->nallow; i++) {
        const struct egress_allow *rule = &n->allow[i];
        if (a->plain && !rule->plain)
            continue;
        if (a->subdomains
                ? rule->subdomains && rule->port == a->port && is_below(a->host, rule->host)
                : egress_allow_covers(rule, a->host, a->port))
            return true;
    }
    return false;
}

static bool operator_allows(const struct network *n, const struct egress_allow *a) {
    /* What is spoken in a tunnel is looked at, unless the operator says so. */
    return n->opt.settings->allow ? network_names(n, a) : !a->plain;
}

static int add_allow(const struct network *n, struct egress_policy *p, const char *text,
                     struct err *err) {
    struct egress_allow a;
    int rc = egress_allow_parse(text, &a, err);
    if (rc < 0)
        return err_wrap(err, "\"allow\"");
    if (!operator_allows(n, &a)) {
        egress_allow_finish(&a);
        return err_set(err, ERR_FORBIDDEN,
                       "\"allow\": the operator does not let sandboxes reach \"%.100s\" (setting "
                       "sandboxes.allow)",
                       text);
    }
    a.private = network_names(n, &a);
    p->allow = xrealloc(p->allow, (p->nallow + 1) * sizeof(*p->allow));
    p->allow[p->nallow++] = a;
    return 0;
}

int network_find_route(const struct network *n, const char *name, const json_t *grants,
                       const struct egress_route **ret_route, struct err *err) {
    for (size_t i = 0; i < n->nroutes; i++) {
        if (strcmp(n->routes[i].name, name) != 0 || !key_is_granted(grants, "routes", name))
            continue;
        if (n->routes[i].api && !key_may_spend(grants))
            return err_set(
                err, ERR_FORBIDDEN,
                "this key has a limit for a day, which the route \"%.64s\" to a model is "
                "not held to: use /v1/code or /execute, or have the route granted by "
                "name",
                name);
        *ret_route = &n->routes[i];
        return 0;
    }
    return err_set(err, ERR_FORBIDDEN, "there is no route \"%.64s\" for this key", name);
}

static int sandbox_network_add_route(const struct network *n, const json_t *grants,
                                     struct egress_policy *p, const char *name, struct err *err) {
    const struct egress_route *route = NULL;
    int rc = network_find_route(n, name, grants, &route, err);
    if (rc < 0)
        return rc;
    for (size_t k = 0; k < p->nroutes; k++)
        if (strcmp(p->routes[k].name, name) == 0)
            return 0;
    p->routes = xrealloc(p->routes, (p->nroutes + 1) * sizeof(*p->routes));
    egress_route_copy(route, &p->routes[p->nroutes++]);
    return 0;
}

int network_may_reach(const struct network *n, const char *url, struct err *err) {
    bool tls = false;
    const char *path = NULL;
    struct egress_allow a = {0};
    int rc = egress_url_parse(url, &tls, &a.host, &a.port, &path, err);
    if (rc == 0 && !operator_allows(n, &a))
        rc = err_set(err, ERR_FORBIDDEN,
                     "the operator does not let sandboxes reach %.100s (setting sandboxes.allow)",
                     a.host);
    egress_allow_finish(&a);
    return rc;
}

static bool url_is_named(const struct network *n, const char *url) {
    bool tls = false;
    const char *path = NULL;
    struct egress_allow a = {0};
    bool named = egress_url_parse(url, &tls, &a.host, &a.port, &path, NULL) == 0;
    a.plain = !tls && a.port != 80;
    named = named && network_names(n, &a);
    egress_allow_finish(&a);
    return named;
}

static int network_ask_refuse(const char *key, int max, struct err *err) {
    return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be a list of at most %d strings", key, max);
}

static int network_ask_read_list(const json_t *list, const char *key, int max,
                                 struct sandbox_strv *ret, struct err *err) {
    size_t i;
    const json_t *v;
    if (!json_is_array(list) || json_array_size(list) > (size_t)max)
        return network_ask_refuse(key, max, err);
    json_array_foreach(list, i, v) {
        const char *text = json_string_value(v);
        if (!text || strlen(text) != json_string_length(v))
            return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be a list of strings", key);
        sandbox_strv_add(ret, text);
    }
    return 0;
}

static int network_ask_read_allow(const json_t *list, void *member, struct err *err) {
    return network_ask_read_list(list, "allow", EGRESS_ALLOW_MAX, member, err);
}

static int network_ask_read_routes(const json_t *list, void *member, struct err *err) {
    return network_ask_read_list(list, "routes", EGRESS_ROUTES_MAX, member, err);
}

int network_ask_read(const json_t *json, void *ask, struct err *err) {
    static const struct json_field table[] = {
        JSON_READ("allow", struct network_ask, allow, network_ask_read_allow, "array"),
        JSON_READ("routes", struct network_ask, routes, network_ask_read_routes, "array"),
    };
    JSON_SHAPE("SandboxNetwork", table);
    return json_is_null(json)
               ? 0
               : json_table_read(table, ARRAY_LEN(table), json, "\"network\"", ask, err);
}

static void network_strv_copy(const struct sandbox_strv *from, struct sandbox_strv *to) {
    *to = (struct sandbox_strv){0};
    for (size_t i = 0; i < from->n; i++)
        sandbox_strv_add(to, from->items[i]);
}

void network_ask_copy(const struct network_ask *from, struct network_ask *ret) {
    network_strv_copy(&from->allow, &ret->allow);
    network_strv_copy(&from->routes, &ret->routes);
}

void network_ask_finish(struct network_ask *a) {
    sandbox_strv_finish(&a->allow);
    sandbox_strv_finish(&a->routes);
}

static json_t *network_strv_show(const struct sandbox_strv *v) {
    json_t *list = json_array();
    for (size_t i = 0; i < v->n; i++)
        (void)json_array_append_new(list, json_string(v->items[i]));
    return list;
}

json_t *network_ask_show(const struct network_ask *a) {
    return json_pack("{s:o,s:o}", "allow", network_strv_show(&a->allow), "routes",
                     network_strv_show(&a->routes));
}

static void add_prices(const struct network *n, struct egress_policy *p) {
    if (p->prices)
        return;
    p->prices = xcalloc(n->nprices ? n->nprices : 1, sizeof(*p->prices));
    for (size_t k = 0; k < n->nprices; k++) {
        p->prices[k] = n->prices[k];
        p->prices[k].model = xstrdup(n->prices[k].model);
    }
    p->nprices = n->nprices;
}

void network_add_route(const struct network *n, struct egress_policy *p,
                       const struct egress_route *route) {
    p->routes = xrealloc(p->routes, (p->nroutes + 1) * sizeof(*p->routes));
    struct egress_route *r = &p->routes[p->nroutes++];
    egress_route_copy(route, r);
    r->private = r->private || url_is_named(n, r->url);
    add_prices(n, p);
}

void network_add_price(const struct network *n, struct egress_policy *p,
                       const struct egress_price *price) {
    add_prices(n, p);
    for (size_t i = 0; i < p->nprices; i++)
        if (strcmp(p->prices[i].model, price->model) == 0)
            return;
    p->prices = xrealloc(p->prices, (p->nprices + 1) * sizeof(*p->prices));
    p->prices[p->nprices] = *price;
    p->prices[p->nprices++].model = xstrdup(price->model);
}

void network_cap_cost(struct egress_policy *p, double usd) {
    uint64_t cost = usd > 0 ? MAX((uint64_t)llround(usd * 1e9), 1) : 0;
    if (cost > 0 && (p->caps.cost_nusd == 0 || cost < p->caps.cost_nusd))
        p->caps.cost_nusd = cost;
}

struct network_spent network_line_spent(const struct network_line *l) {
    const struct egress_usage *u = &l->usage;
    return (struct network_spent){.tokens_in = u->tokens_in + u->running_in,
                                  .tokens_out = u->tokens_out + u->running_out,
                                  .cost_nusd = u->cost_nusd + u->running_nusd};
}

struct network_spent network_line_ended(const struct network_line *l) {
    const struct egress_usage *u = &l->usage;
    return (struct network_spent){
        .tokens_in = u->tokens_in, .tokens_out = u->tokens_out, .cost_nusd = u->cost_nusd};
}

int network_resolve(const struct network *n, const struct network_ask *ask, const json_t *grants,
                    struct egress_policy *ret_policy, struct err *err) {
    struct egress_policy p = {0};
    int rc = 0;
    if (ask->allow.n > EGRESS_ALLOW_MAX)
        rc = network_ask_refuse("allow", EGRESS_ALLOW_MAX, err);
    if (rc == 0 && ask->routes.n > EGRESS_ROUTES_MAX)
        rc = network_ask_refuse("routes", EGRESS_ROUTES_MAX, err);
    if (rc == 0 && !n->keeper && ask->allow.n + ask->routes.n > 0)
        rc = err_set(err, ERR_UNSUPPORTED,
                     "sandboxes have no network here: the program cay-egress is missing beside "
                     "cay; leave \"network\" out");
    for (size_t i = 0; rc == 0 && i < ask->allow.n; i++)
        rc = add_allow(n, &p, ask->allow.items[i], err);
    for (size_t i = 0; rc == 0 && i < ask->routes.n; i++)
        rc = sandbox_network_add_route(n, grants, &p, ask->routes.items[i], err);
    if (rc < 0) {
        egress_policy_finish(&p);
        return rc;
    }
    const struct sandbox_settings *set = n->opt.settings;
    p.caps = (struct egress_caps){.requests = set->cap_requests,
                                  .requests_per_minute = set->cap_requests_per_minute,
                                  .bytes = set->cap_bytes,
                                  .tokens = set->cap_tokens,
                                  .cost_nusd = (uint64_t)llround(set->cap_usd * 1e9)};
    if (p.nroutes > 0)
        add_prices(n, &p);
    *ret_policy = p;
    return 0;
}

/* --- talking to cay-egress --- */

static bool network_send_out(struct network *n, uint16_t type, uint64_t id, struct buf *b, int fd) {
    bool sent = n->channel && !b->full &&
                channel_send(n->channel, &(struct wire_out){.type = type,
                                                            .id = id,
                                                            .pieces = {{b->data, b->len}},
                                                            .fds = &fd,
                                                            .nfds = fd >= 0 ? 1 : 0});
    if (b->data)
        mem_wipe(b->data, b->cap); /* credentials were in it */
    buf_finish(b);
    return sent;
}

static void send_open(struct network_line *l) {
    struct buf b;
    buf_init(&b, EGRESS_FRAME_MAX);
    pack_str(&b, l->id);
    pack_egress_policy(&b, &l->policy);
    pack_egress_usage(&b, &l->usage);
    if (!network_send_out(l->network, EGRESS_OPEN, ++l->network->next_id, &b, l->listener) &&
        l->network->channel)
        log_error("network.open", "sandbox", l->id, "error", "it was not taken");
}

static void network_on_knock_closed(uv_handle_t *h) {
    free(h->data);
}

static void stop_waiting(struct network_line *l) {
    if (!l->knock)
        return;
    l->knock->line = NULL;
    (void)uv_poll_stop(&l->knock->poll);
    uv_close((uv_handle_t *)&l->knock->poll, network_on_knock_closed);
    l->knock = NULL;
}

/* From here on cay-egress has it. */
static void begin_line(struct network_line *l) {
    stop_waiting(l);
    if (l->network->channel)
        send_open(l);
}

static void network_on_knock(uv_poll_t *p, int status, int events) {
    const struct knock *k = p->data;
    (void)status;
    (void)events;
    if (k->line)
        begin_line(k->line);
}

/* Most sandboxes have no network and never try: then nobody else is to hear of the line. */
static bool wait_for_knock(struct network_line *l) {
    struct knock *k = xcalloc(1, sizeof(*k));
    if (uv_poll_init(l->network->opt.loop, &k->poll, l->listener) < 0) {
        free(k);
        return false;
    }
    k->poll.data = k;
    k->line = l;
    l->knock = k;
    (void)uv_poll_start(&k->poll, UV_READABLE, network_on_knock);
    return true;
}

static void network_on_start(void *ctx, struct channel *channel) {
    struct network *n = ctx;
    n->channel = channel;
    struct egress_config c = {
        .ca_file = n->opt.settings->ca_file ? xstrdup(n->opt.settings->ca_file) : xstrdup("")};
    size_t i;
    const json_t *v;
    json_array_foreach(n->opt.private_also, i, v) {
        sandbox_strv_add(&c.private_routes, json_string_value(v));
    }
    json_array_foreach(n->opt.settings->private, i, v) {
        sandbox_strv_add(&c.private, json_string_value(v));
    }
    struct buf b;
    buf_init(&b, EGRESS_FRAME_MAX);
    pack_egress_config(&b, &c);
    egress_config_finish(&c);
    (void)network_send_out(n, EGRESS_CONFIG, ++n->next_id, &b, -1);
    for (struct network_line *l = n->lines; l; l = l->next)
        if (l->closing == 0 && !l->knock)
            send_open(l);
}

static void finish_change(struct change *c, const struct err *err) {
    if (!err && c->line) {
        egress_policy_finish(&c->line->policy);
        c->line->policy = c->policy;
        c->policy = (struct egress_policy){0};
    }
    if (c->cb)
        c->cb(c->ctx, err);
    egress_policy_finish(&c->policy);
    free(c);
}

/* --- who pays --- */

static struct network_line *find_line(struct network *n, const char *id);

static void line_drop_calls(struct network_line *l) {
    for (size_t i = 0; l->payer && i < l->ncalls; i++)
        l->payer->on_spent(l->payer_ctx, l->calls[i], NULL);
    l->ncalls = 0;
}

void network_line_set_payer(struct network_line *l, const struct network_payer *payer, void *ctx) {
    line_drop_calls(l);
    if (l->payer)
        l->payer->on_gone(l->payer_ctx);
    l->payer = payer;
    l->payer_ctx = ctx;
}

static bool line_take_call(struct network_line *l, uint64_t call) {
    size_t i = 0;
    while (i < l->ncalls && l->calls[i] != call)
        i++;
    if (i == l->ncalls)
        return false;
    l->calls[i] = l->calls[--l->ncalls];
    return true;
}

void network_line_grant(struct network_line *l, uint64_t call, int64_t tokens, int64_t nusd,
                        const struct err *err) {
    struct egress_grant g = {.sandbox = l->id,
                             .tokens = tokens == INT64_MAX ? UINT64_MAX : (uint64_t)tokens,
                             .cost_nusd = nusd == INT64_MAX ? UINT64_MAX : (uint64_t)nusd,
                             .code = err ? err->code : 0,
                             .message = err ? (char *)(uintptr_t)err->message : NULL};
    struct buf b;
    if (err)
        (void)line_take_call(l, call); /* it is told no more of it */
    buf_init(&b, EGRESS_FRAME_MAX);
    pack_egress_grant(&b, &g);
    (void)network_send_out(l->network, EGRESS_GRANT, call, &b, -1);
}

static void network_on_ask(struct network *n, uint64_t call, struct unpack *u) {
    struct egress_ask a;
    struct err err;
    unpack_egress_ask(u, &a);
    struct network_line *l = unpack_ok(u) ? find_line(n, a.sandbox) : NULL;
    if (l && l->payer && l->ncalls < LIMIT_SANDBOX_CALLS) {
        l->calls = xrealloc(l->calls, (l->ncalls + 1) * sizeof(*l->calls));
        l->calls[l->ncalls++] = call;
        l->payer->on_ask(l->payer_ctx, call, &a);
    } else if (l) {
        (void)err_set(&err, l->payer ? ERR_RATE : ERR_FORBIDDEN,
                      l->payer ? "too many calls of models wait: try again"
                               : "nobody pays for a model now: the job that did is over");
        network_line_grant(l, call, 0, 0, &err);
    }
    free(a.sandbox);
}

static void network_on_spent(struct network *n, uint64_t call, struct unpack *u) {
    struct egress_spent s;
    unpack_egress_spent(u, &s);
    struct network_line *l = unpack_ok(u) ? find_line(n, s.sandbox) : NULL;
    if (l && line_take_call(l, call) && l->payer)
        l->payer->on_spent(l->payer_ctx, call, &s);
    free(s.sandbox);
}

static void free_line(struct network_line *l) {
    network_line_set_payer(l, NULL, NULL);
    free(l->calls);
    struct network_line **at = &l->network->lines;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    egress_usage_finish(&l->usage);
    free(l->id);
    free(l);
}

/* Those whose CLOSE has this number; 0 is any. */
static bool forget_closed(struct network *n, uint64_t id) {
    bool found = false;
    struct network_line *next;
    for (struct network_line *l = n->lines; l; l = next) {
        next = l->next;
        if (l->closing == 0 || (id != 0 && l->closing != id))
            continue;
        free_line(l);
        found = true;
    }
    return found;
}

static void network_on_end(void *ctx) {
    struct network *n = ctx;
    struct err err;
    (void)forget_closed(n, 0);
    for (struct network_line *l = n->lines; l; l = l->next)
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): free_line() has taken it out of the list
        line_drop_calls(l);
    (void)err_set(&err, ERR_UNAVAILABLE, "the program for the network ended: try again");
    n->channel = NULL;
    while (n->changes) {
        struct change *c = n->changes;
        n->changes = c->next;
        finish_change(c, &err);
    }
}

static struct network_line *find_line(struct network *n, const char *id) {
    struct network_line *l = n->lines;
    while (l && strcmp(l->id, id) != 0)
        l = l->next;
    return l;
}

/* Text of guests: whatever is not UTF-8 is left out. */
static json_t *network_text(const char *s) {
    json_t *j = json_string(s);
    return j ? j : json_string("(not UTF-8)");
}

static json_t *network_show_event(const struct egress_event *e) {
    static const char *const states[] = {"refused", "begun", "ended"};
    char time[CLOCK_RFC3339_SIZE];
    json_t *o = json_object();
    (void)json_object_set_new(o, "request",
                              e->number ? json_integer((json_int_t)e->number) : json_null());
    (void)json_object_set_new(o, "count", json_integer((json_int_t)e->count));
    (void)json_object_set_new(o, "time", json_string(clock_rfc3339(e->time_ms, time)));
    (void)json_object_set_new(o, "state", json_string(e->state < 3 ? states[e->state] : "?"));
    (void)json_object_set_new(o, "kind", json_string(egress_kind_name(e->kind)));
    (void)json_object_set_new(o, "route", *e->route ? network_text(e->route) : json_null());
    (void)json_object_set_new(o, "host", network_text(e->host));
    (void)json_object_set_new(o, "port", json_integer(e->port));
    (void)json_object_set_new(o, "method", network_text(e->method));
    (void)json_object_set_new(o, "path", network_text(e->path));
    (void)json_object_set_new(o, "status", e->status ? json_integer(e->status) : json_null());
    (void)json_object_set_new(o, "bytes_in", json_integer((json_int_t)e->bytes_in));
    (void)json_object_set_new(o, "bytes_out", json_integer((json_int_t)e->bytes_out));
    (void)json_object_set_new(o, "ms", json_integer((json_int_t)e->ms));
    if (*e->model) {
        (void)json_object_set_new(o, "model", network_text(e->model));
        (void)json_object_set_new(o, "tokens_in", json_integer((json_int_t)e->tokens_in));
        (void)json_object_set_new(o, "tokens_out", json_integer((json_int_t)e->tokens_out));
        (void)json_object_set_new(o, "cost_usd", json_real((double)e->cost_nusd / 1e9));
    }
    (void)json_object_set_new(o, "cut", json_boolean(e->cut));
    (void)json_object_set_new(o, "reason", *e->reason ? network_text(e->reason) : json_null());
    return o;
}

/* One commit for many: a guest can make some hundred events in a second. */
static void write_batch(struct network *n) {
    struct err err;
    bool failed = n->nbatch > 0 && store_network_add(n->events, n->batch, n->nbatch, &err) < 0;
    if (failed && !n->failing)
        log_error("network.events", "lost", (int64_t)n->nbatch, "error", err.message);
    n->failing = failed;
    for (size_t i = 0; i < n->nbatch; i++) {
        struct network_line *l = failed ? find_line(n, n->batch[i].sandbox) : NULL;
        if (l)
            l->unwritten++;
        free(n->batch[i].sandbox);
        free(n->batch[i].json);
    }
    n->nbatch = 0;
}

static void network_on_timer(uv_timer_t *t) {
    write_batch(t->data);
}

static void network_on_event(struct network *n, struct unpack *u) {
    struct egress_event e;
    unpack_egress_event(u, &e);
    struct network_line *l = unpack_ok(u) ? find_line(n, e.sandbox) : NULL;
    if (l && l->on_event) {
        if (l->closing == 0)
            l->on_event(l->event_ctx, &e);
    } else if (l) {
        _cleanup_(json) json_t *shown = network_show_event(&e);
        n->batch[n->nbatch++] =
            (struct store_network_event){.sandbox = xstrdup(l->id),
                                         .refused = e.state == EGRESS_REFUSED,
                                         .json = json_dumps(shown, JSON_COMPACT)};
        if (n->nbatch == BATCH)
            write_batch(n);
        else if (!uv_is_active((uv_handle_t *)&n->timer))
            (void)uv_timer_start(&n->timer, network_on_timer, BATCH_MS, 0);
    }
    egress_event_finish(&e);
}

static void network_on_usage(struct network *n, struct unpack *u) {
    struct egress_usage usage;
    unpack_egress_usage(u, &usage);
    struct network_line *l = unpack_ok(u) ? find_line(n, usage.sandbox) : NULL;
    if (!l) {
        egress_usage_finish(&usage);
        return;
    }
    egress_usage_finish(&l->usage);
    l->usage = usage;
}

static void network_on_frame(void *ctx, struct wire_frame *f) {
    struct network *n = ctx;
    struct unpack u;
    struct err err;
    unpack_init(&u, f->data, f->len);
    if (f->type == EGRESS_EVENT) {
        network_on_event(n, &u);
        return;
    }
    if (f->type == EGRESS_USAGE) {
        network_on_usage(n, &u);
        return;
    }
    if (f->type == EGRESS_ASK) {
        network_on_ask(n, f->id, &u);
        return;
    }
    if (f->type == EGRESS_SPENT) {
        network_on_spent(n, f->id, &u);
        return;
    }
    bool failed = f->type == EGRESS_FAILED;
    if (failed)
        (void)unpack_sandbox_error(&u, &err);
    struct change **at = &n->changes;
    while (*at && (*at)->id != f->id)
        at = &(*at)->next;
    struct change *c = *at;
    if (c) {
        *at = c->next;
        finish_change(c, failed ? &err : NULL);
    } else if (forget_closed(n, f->id)) {
        return;
    } else if (failed) {
        log_error("network.failed", "error", err.message);
    }
}

/* --- all of it --- */

static void free_network(struct network *n) {
    for (size_t i = 0; i < n->nroutes; i++)
        egress_route_finish(&n->routes[i]);
    for (size_t i = 0; i < n->nprices; i++)
        free(n->prices[i].model);
    for (size_t i = 0; i < n->nallow; i++)
        egress_allow_finish(&n->allow[i]);
    free(n->routes);
    free(n->prices);
    free(n->allow);
    store_network_destroy(n->events);
    free(n);
}

int network_create(const struct network_options *o, struct network **ret, struct err *err) {
    struct network *n = xcalloc(1, sizeof(*n));
    n->opt = *o;
    int rc = read_routes(n, err);
    if (rc == 0)
        rc = network_read_allow(n, err);
    if (rc < 0) {
        free_network(n);
        return rc;
    }
    read_prices(n);
    n->events = store_network_create(
        o->store, &(struct store_network_limits){.each = o->settings->events,
                                                 .total = o->settings->events_total});
    (void)uv_timer_init(o->loop, &n->timer);
    n->timer.data = n;
    if (o->exec_fd >= 0)
        n->keeper =
            keeper_create(o->loop, &(struct keeper_options){.name = "cay-egress",
                                                            .exec_fd = o->exec_fd,
                                                            .max_frame_bytes = EGRESS_FRAME_MAX,
                                                            .max_queue_bytes = QUEUE_BYTES,
                                                            .on_start = network_on_start,
                                                            .on_frame = network_on_frame,
                                                            .on_end = network_on_end,
                                                            .ctx = n});
    *ret = n;
    return 0;
}

bool network_is_there(const struct network *n) {
    return n->keeper != NULL;
}

struct keeper_info network_info(const struct network *n) {
    return keeper_info(n->keeper);
}

static void network_on_timer_closed(uv_handle_t *h) {
    struct network *n = h->data;
    write_batch(n);
    void (*on_stopped)(void *ctx) = n->on_stopped;
    void *stopped_ctx = n->stopped_ctx;
    free_network(n); /* the store may go now */
    if (on_stopped)
        on_stopped(stopped_ctx);
}

static void network_on_keeper_stopped(void *ctx) {
    struct network *n = ctx;
    uv_close((uv_handle_t *)&n->timer, network_on_timer_closed);
}

void network_hush(struct network *n) {
    network_on_end(n);
}

void network_stop(struct network *n, void (*on_stopped)(void *ctx), void *ctx) {
    n->on_stopped = on_stopped;
    n->stopped_ctx = ctx;
    network_on_end(n);
    while (n->lines)
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it takes itself out of the list
        network_line_close(n->lines);
    if (n->keeper)
        keeper_stop(n->keeper, network_on_keeper_stopped, n);
    else
        network_on_keeper_stopped(n);
}

/* --- lines --- */

struct network_line *network_open(struct network *n, const char *id, int listener,
                                  struct egress_policy *policy) {
    struct network_line *l = xcalloc(1, sizeof(*l));
    l->network = n;
    l->id = xstrdup(id);
    l->listener = listener;
    l->policy = *policy;
    *policy = (struct egress_policy){0};
    l->usage.sandbox = xstrdup(id);
    l->next = n->lines;
    n->lines = l;
    if (l->policy.nallow + l->policy.nroutes > 0 || !wait_for_knock(l))
        begin_line(l);
    return l;
}

void network_line_set(struct network_line *l, struct egress_policy *policy,
                      void (*cb)(void *ctx, const struct err *err), void *ctx) {
    struct network *n = l->network;
    struct change *c = xcalloc(1, sizeof(*c));
    *c = (struct change){.id = ++n->next_id, .line = l, .policy = *policy, .cb = cb, .ctx = ctx};
    *policy = (struct egress_policy){0};
    if (l->knock)
        begin_line(l);
    struct buf b;
    buf_init(&b, EGRESS_FRAME_MAX);
    pack_str(&b, l->id);
    pack_egress_policy(&b, &c->policy);
    if (!network_send_out(n, EGRESS_POLICY, c->id, &b, -1)) {
        struct err err;
        (void)err_set(&err, ERR_UNAVAILABLE, "the program for the network is starting: try again");
        finish_change(c, &err);
        return;
    }
    c->next = n->changes;
    n->changes = c;
}

void network_line_listen(struct network_line *l,
                         void (*told)(void *ctx, const struct egress_event *event), void *ctx) {
    l->on_event = told;
    l->event_ctx = ctx;
}

static bool send_close(struct network_line *l) {
    struct buf b;
    buf_init(&b, 1024);
    pack_str(&b, l->id);
    l->closing = ++l->network->next_id;
    return network_send_out(l->network, EGRESS_CLOSE, l->closing, &b, -1);
}

void network_line_close(struct network_line *l) {
    struct network *n = l->network;
    bool sent = !l->knock && send_close(l);
    stop_waiting(l);
    for (struct change *c = n->changes; c; c = c->next)
        if (c->line == l)
            c->line = NULL;
    egress_policy_finish(&l->policy);
    fd_close(&l->listener);
    if (!sent)
        free_line(l);
}

static bool network_env_has(const struct sandbox_strv *env, const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; env && i < env->n; i++)
        if (strncmp(env->items[i], name, n) == 0 && env->items[i][n] == '=')
            return true;
    return false;
}

static void network_add_env(struct sandbox_strv *env, const struct sandbox_strv *over,
                            const struct sandbox_strv *over2, const char *name, const char *value) {
    if (network_env_has(over, name) || network_env_has(over2, name))
        return;
    _cleanup_(free) char *entry = xasprintf("%s=%s", name, value);
    sandbox_strv_add(env, entry);
}

/* Programs start only if they find a key, so they are given one that is none. */
void network_line_env(const struct network_line *l, const struct sandbox_strv *over,
                      const struct sandbox_strv *over2, struct sandbox_strv *env) {
    static const char proxy[] = "http://127.0.0.1:3128";
    static const char *const names[] = {"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"};
    const struct egress_policy *p = &l->policy;
    if (p->nallow > 0) {
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
            network_add_env(env, over, over2, names[i], proxy);
        _cleanup_(free) char *own = egress_no_proxy(p->allow, p->nallow);
        network_add_env(env, over, over2, "NO_PROXY", own);
        network_add_env(env, over, over2, "no_proxy", own);
    }
    for (size_t i = 0; i < p->nroutes; i++) {
        if (p->routes[i].api == EGRESS_API_ANTHROPIC) {
            network_add_env(env, over, over2, "ANTHROPIC_BASE_URL", proxy);
            network_add_env(env, over, over2, "ANTHROPIC_API_KEY",
                            "sk-ant-placeholder-the-proxy-has-it");
        } else if (p->routes[i].api == EGRESS_API_OPENAI) {
            network_add_env(env, over, over2, "OPENAI_BASE_URL", "http://127.0.0.1:3128/v1");
            network_add_env(env, over, over2, "OPENAI_API_KEY", "sk-placeholder-the-proxy-has-it");
        }
    }
}

json_t *network_line_usage(const struct network_line *l) {
    const struct egress_usage *u = &l->usage;
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:b}", "requests", (json_int_t)u->requests,
                     "refused", (json_int_t)u->refused, "bytes_in", (json_int_t)u->bytes_in,
                     "bytes_out", (json_int_t)u->bytes_out, "tokens_in", (json_int_t)u->tokens_in,
                     "tokens_out", (json_int_t)u->tokens_out, "cost_usd",
                     (double)u->cost_nusd / 1e9, "estimated", u->estimated);
}

struct listing {
    struct json_writer *writer;
    bool any;
};

static void network_on_listed(void *ctx, int64_t seq, const char *json) {
    struct listing *l = ctx;
    struct buf *out = l->writer->out;
    /* The number is the store's; the rest of the object stands as it was written. */
    (void)buf_addf(out, "%s{\"seq\":%lld,%s", l->any ? "," : "", (long long)seq, json + 1);
    l->any = true;
}

int network_events(struct network *n, const struct network_query *query, struct buf *out,
                   struct err *err) {
    struct json_writer w;
    struct listing l = {.writer = &w};
    const struct network_line *line = find_line(n, query->sandbox);
    int64_t gone = 0;
    write_batch(n);
    json_writer_init(&w, out);
    json_writer_object_begin(&w);
    json_writer_key(&w, "events");
    (void)buf_add_str(out, "[");
    int rc = store_network_list(n->events,
                                &(struct store_network_query){.sandbox = query->sandbox,
                                                              .after = query->after,
                                                              .limit = query->limit},
                                network_on_listed, &l, &gone, err);
    if (rc < 0)
        return rc;
    (void)buf_add_str(out, "]");
    w.comma = true;
    json_put_int(&w, "lost",
                 gone + (line ? (int64_t)(line->unwritten + line->usage.events_lost) : 0));
    json_writer_object_end(&w);
    return out->full ? err_set(err, ERR_LIMIT, "the events are too long: ask for fewer (limit)")
                     : 0;
}
