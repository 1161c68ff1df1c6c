#include "front/sandbox/network.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
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
        n->nroutes++;
    }
    return 0;
}

static uint64_t nusd(const json_t *prices, const char *key) {
    /* Dollars for a million tokens are a thousand billionths for one. */
    double v = json_number_value(json_object_get(prices, key)) * 1000.0;
    return v > 0 ? (uint64_t)llround(v) : 0;
}

static void read_prices(struct network *n) {
    size_t i;
    const json_t *m;
    json_array_foreach(json_object_get(n->opt.models, "models"), i, m) {
        const char *id = json_string_value(json_object_get(m, "id"));
        const json_t *p = json_object_get(m, "usd_per_million");
        if (!id || !p || n->nprices == EGRESS_PRICES_MAX - 1) /* one may be added */
            continue;
        n->prices = xrealloc(n->prices, (n->nprices + 1) * sizeof(*n->prices));
        n->prices[n->nprices++] = (struct egress_price){.model = xstrdup(id),
                                                        .input = nusd(p, "input"),
                                                        .output = nusd(p, "output"),
                                                        .cache_read = nusd(p, "cache_read"),
                                                        .cache_write = nusd(p, "cache_write")};
    }
}

static int read_allow(struct network *n, struct err *err) {
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

static bool operator_allows(const struct network *n, const struct egress_allow *a) {
    if (!n->opt.settings->allow)
        return !a->plain; /* what is spoken in a tunnel is looked at, unless the operator says so */
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
    p->allow = xrealloc(p->allow, (p->nallow + 1) * sizeof(*p->allow));
    p->allow[p->nallow++] = a;
    return 0;
}

int network_find_route(const struct network *n, const char *name, const json_t *grants,
                       const struct egress_route **ret_route, struct err *err) {
    for (size_t i = 0; i < n->nroutes; i++) {
        if (strcmp(n->routes[i].name, name) != 0 || !sandbox_is_granted(grants, "routes", name))
            continue;
        if (n->routes[i].api && !sandbox_may_spend(grants))
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

static int add_route(const struct network *n, const json_t *grants, struct egress_policy *p,
                     const char *name, struct err *err) {
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

static int read_list(const json_t *json, const char *key, size_t max, const json_t **ret,
                     struct err *err) {
    const json_t *list = json_object_get(json, key);
    size_t i;
    const json_t *v;
    if (list && (!json_is_array(list) || json_array_size(list) > max))
        return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be a list of at most %zu strings", key,
                       max);
    json_array_foreach(list, i, v) {
        const char *text = json_string_value(v);
        if (!text || strlen(text) != json_string_length(v))
            return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be a list of strings", key);
    }
    *ret = list;
    return 0;
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
    egress_route_copy(route, &p->routes[p->nroutes++]);
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

void network_cap_tokens(struct egress_policy *p, uint64_t tokens) {
    if (tokens > 0 && (p->caps.tokens == 0 || tokens < p->caps.tokens))
        p->caps.tokens = tokens;
}

struct network_spent network_line_spent(const struct network_line *l) {
    const struct egress_usage *u = &l->usage;
    return (struct network_spent){.tokens_in = u->tokens_in + u->running_in,
                                  .tokens_out = u->tokens_out + u->running_out,
                                  .cost_nusd = u->cost_nusd + u->running_nusd};
}

int network_read(const struct network *n, const json_t *json, const json_t *grants,
                 struct egress_policy *ret_policy, json_t **ret_shown, struct err *err) {
    static const char *const keys[] = {"allow", "routes", NULL};
    const json_t *allow = NULL;
    const json_t *routes = NULL;
    struct egress_policy p = {0};
    if (json_is_null(json))
        json = NULL;
    int rc = json ? json_check_keys(json, "\"network\"", keys, err) : 0;
    if (rc == 0 && json)
        rc = read_list(json, "allow", EGRESS_ALLOW_MAX, &allow, err);
    if (rc == 0 && json)
        rc = read_list(json, "routes", EGRESS_ROUTES_MAX, &routes, err);
    if (rc == 0 && !n->keeper && json_array_size(allow) + json_array_size(routes) > 0)
        rc = err_set(err, ERR_UNSUPPORTED,
                     "sandboxes have no network here: the program cay-egress is missing beside "
                     "cay; leave \"network\" out");
    for (size_t i = 0; rc == 0 && i < json_array_size(allow); i++)
        rc = add_allow(n, &p, json_string_value(json_array_get(allow, i)), err);
    for (size_t i = 0; rc == 0 && i < json_array_size(routes); i++)
        rc = add_route(n, grants, &p, json_string_value(json_array_get(routes, i)), err);
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
    *ret_shown = json_pack("{s:o,s:o}", "allow",
                           allow ? json_incref((json_t *)(uintptr_t)allow) : json_array(), "routes",
                           routes ? json_incref((json_t *)(uintptr_t)routes) : json_array());
    return 0;
}

/* --- talking to cay-egress --- */

static bool send_out(struct network *n, uint16_t type, uint64_t id, struct buf *b, int fd) {
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
    if (!send_out(l->network, EGRESS_OPEN, ++l->network->next_id, &b, l->listener) &&
        l->network->channel)
        log_error("network.open", "sandbox", l->id, "error", "it was not taken");
}

static void on_knock_closed(uv_handle_t *h) {
    free(h->data);
}

static void stop_waiting(struct network_line *l) {
    if (!l->knock)
        return;
    l->knock->line = NULL;
    (void)uv_poll_stop(&l->knock->poll);
    uv_close((uv_handle_t *)&l->knock->poll, on_knock_closed);
    l->knock = NULL;
}

/* From here on cay-egress has it. */
static void begin_line(struct network_line *l) {
    stop_waiting(l);
    if (l->network->channel)
        send_open(l);
}

static void on_knock(uv_poll_t *p, int status, int events) {
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
    (void)uv_poll_start(&k->poll, UV_READABLE, on_knock);
    return true;
}

static void on_start(void *ctx, struct channel *channel) {
    struct network *n = ctx;
    n->channel = channel;
    struct egress_config c = {
        .ca_file = n->opt.settings->ca_file ? xstrdup(n->opt.settings->ca_file) : xstrdup("")};
    size_t i;
    const json_t *v;
    json_array_foreach(n->opt.private_also, i, v) {
        sandbox_strv_add(&c.private, json_string_value(v));
    }
    json_array_foreach(n->opt.settings->private, i, v) {
        sandbox_strv_add(&c.private, json_string_value(v));
    }
    struct buf b;
    buf_init(&b, EGRESS_FRAME_MAX);
    pack_egress_config(&b, &c);
    egress_config_finish(&c);
    (void)send_out(n, EGRESS_CONFIG, ++n->next_id, &b, -1);
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

static void free_line(struct network_line *l) {
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

static void on_end(void *ctx) {
    struct network *n = ctx;
    struct err err;
    (void)forget_closed(n, 0);
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
static json_t *text(const char *s) {
    json_t *j = json_string(s);
    return j ? j : json_string("(not UTF-8)");
}

static json_t *show_event(const struct egress_event *e) {
    static const char *const states[] = {"refused", "begun", "ended"};
    char time[CLOCK_RFC3339_SIZE];
    json_t *o = json_object();
    (void)json_object_set_new(o, "request",
                              e->number ? json_integer((json_int_t)e->number) : json_null());
    (void)json_object_set_new(o, "count", json_integer((json_int_t)e->count));
    (void)json_object_set_new(o, "time", json_string(clock_rfc3339(e->time_ms, time)));
    (void)json_object_set_new(o, "state", json_string(e->state < 3 ? states[e->state] : "?"));
    (void)json_object_set_new(o, "kind", json_string(egress_kind_name(e->kind)));
    (void)json_object_set_new(o, "route", *e->route ? text(e->route) : json_null());
    (void)json_object_set_new(o, "host", text(e->host));
    (void)json_object_set_new(o, "port", json_integer(e->port));
    (void)json_object_set_new(o, "method", text(e->method));
    (void)json_object_set_new(o, "path", text(e->path));
    (void)json_object_set_new(o, "status", e->status ? json_integer(e->status) : json_null());
    (void)json_object_set_new(o, "bytes_in", json_integer((json_int_t)e->bytes_in));
    (void)json_object_set_new(o, "bytes_out", json_integer((json_int_t)e->bytes_out));
    (void)json_object_set_new(o, "ms", json_integer((json_int_t)e->ms));
    if (*e->model) {
        (void)json_object_set_new(o, "model", text(e->model));
        (void)json_object_set_new(o, "tokens_in", json_integer((json_int_t)e->tokens_in));
        (void)json_object_set_new(o, "tokens_out", json_integer((json_int_t)e->tokens_out));
        (void)json_object_set_new(o, "cost_usd", json_real((double)e->cost_nusd / 1e9));
    }
    (void)json_object_set_new(o, "cut", json_boolean(e->cut));
    (void)json_object_set_new(o, "reason", *e->reason ? text(e->reason) : json_null());
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

static void on_timer(uv_timer_t *t) {
    write_batch(t->data);
}

static void on_event(struct network *n, struct unpack *u) {
    struct egress_event e;
    unpack_egress_event(u, &e);
    struct network_line *l = unpack_ok(u) ? find_line(n, e.sandbox) : NULL;
    if (l && l->on_event) {
        if (l->closing == 0)
            l->on_event(l->event_ctx, &e);
    } else if (l) {
        _cleanup_(json) json_t *shown = show_event(&e);
        n->batch[n->nbatch++] =
            (struct store_network_event){.sandbox = xstrdup(l->id),
                                         .refused = e.state == EGRESS_REFUSED,
                                         .json = json_dumps(shown, JSON_COMPACT)};
        if (n->nbatch == BATCH)
            write_batch(n);
        else if (!uv_is_active((uv_handle_t *)&n->timer))
            (void)uv_timer_start(&n->timer, on_timer, BATCH_MS, 0);
    }
    egress_event_finish(&e);
}

static void on_usage(struct network *n, struct unpack *u) {
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

static void on_frame(void *ctx, struct wire_frame *f) {
    struct network *n = ctx;
    struct unpack u;
    struct err err;
    unpack_init(&u, f->data, f->len);
    if (f->type == EGRESS_EVENT) {
        on_event(n, &u);
        return;
    }
    if (f->type == EGRESS_USAGE) {
        on_usage(n, &u);
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
        rc = read_allow(n, err);
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
                                                            .on_start = on_start,
                                                            .on_frame = on_frame,
                                                            .on_end = on_end,
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

static void on_timer_closed(uv_handle_t *h) {
    struct network *n = h->data;
    write_batch(n);
    void (*on_stopped)(void *ctx) = n->on_stopped;
    void *stopped_ctx = n->stopped_ctx;
    free_network(n); /* the store may go now */
    if (on_stopped)
        on_stopped(stopped_ctx);
}

static void on_keeper_stopped(void *ctx) {
    struct network *n = ctx;
    uv_close((uv_handle_t *)&n->timer, on_timer_closed);
}

void network_hush(struct network *n) {
    on_end(n);
}

void network_stop(struct network *n, void (*on_stopped)(void *ctx), void *ctx) {
    n->on_stopped = on_stopped;
    n->stopped_ctx = ctx;
    on_end(n);
    while (n->lines)
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it takes itself out of the list
        network_line_close(n->lines);
    if (n->keeper)
        keeper_stop(n->keeper, on_keeper_stopped, n);
    else
        on_keeper_stopped(n);
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
    if (!send_out(n, EGRESS_POLICY, c->id, &b, -1)) {
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
    return send_out(l->network, EGRESS_CLOSE, l->closing, &b, -1);
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

static void add_env(struct sandbox_strv *env, const json_t *over, const json_t *over2,
                    const char *name, const char *value) {
    if (json_object_get(over, name) || json_object_get(over2, name))
        return;
    _cleanup_(free) char *entry = xasprintf("%s=%s", name, value);
    sandbox_strv_add(env, entry);
}

/* Programs start only if they find a key, so they are given one that is none. */
void network_line_env(const struct network_line *l, const json_t *over, const json_t *over2,
                      struct sandbox_strv *env) {
    static const char proxy[] = "http://127.0.0.1:3128";
    static const char *const names[] = {"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"};
    const struct egress_policy *p = &l->policy;
    if (p->nallow > 0) {
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
            add_env(env, over, over2, names[i], proxy);
        _cleanup_(free) char *own = egress_no_proxy(p->allow, p->nallow);
        add_env(env, over, over2, "NO_PROXY", own);
        add_env(env, over, over2, "no_proxy", own);
    }
    for (size_t i = 0; i < p->nroutes; i++) {
        if (p->routes[i].api == EGRESS_API_ANTHROPIC) {
            add_env(env, over, over2, "ANTHROPIC_BASE_URL", proxy);
            add_env(env, over, over2, "ANTHROPIC_API_KEY", "sk-ant-placeholder-the-proxy-has-it");
        } else if (p->routes[i].api == EGRESS_API_OPENAI) {
            add_env(env, over, over2, "OPENAI_BASE_URL", "http://127.0.0.1:3128/v1");
            add_env(env, over, over2, "OPENAI_API_KEY", "sk-placeholder-the-proxy-has-it");
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

static void on_listed(void *ctx, int64_t seq, const char *json) {
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
                                on_listed, &l, &gone, err);
    if (rc < 0)
        return rc;
    (void)buf_add_str(out, "]");
    w.comma = true;
    json_writer_key(&w, "lost");
    json_writer_int(&w, gone + (line ? (int64_t)(line->unwritten + line->usage.events_lost) : 0));
    json_writer_object_end(&w);
    return out->full ? err_set(err, ERR_LIMIT, "the events are too long: ask for fewer (limit)")
                     : 0;
}
