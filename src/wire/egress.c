#include "wire/egress.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Each item takes at least so many bytes: a false count allocates little. */
static size_t unpack_count(struct unpack *u, size_t max, size_t item_bytes) {
    size_t n = unpack_u32(u);
    if (n > max || n > (size_t)(u->end - u->at) / item_bytes) {
        u->bad = true;
        return 0;
    }
    return n;
}

static uint32_t egress_wire_or_default(uint32_t v, uint32_t fallback) {
    return v ? v : fallback;
}

void pack_egress_config(struct buf *b, const struct egress_config *c) {
    pack_str(b, c->ca_file);
    pack_strv(b, &c->private);
    pack_strv(b, &c->private_routes);
    pack_u32(b, c->sandboxes);
    pack_u32(b, c->connections);
    pack_u32(b, c->tunnels);
    pack_u32(b, c->head_bytes);
    pack_u32(b, c->headers);
    pack_u64(b, c->body_bytes);
    pack_u64(b, c->held_bytes);
    pack_u64(b, c->held_all_bytes);
    pack_u32(b, c->head_timeout_ms);
    pack_u32(b, c->body_timeout_ms);
    pack_u32(b, c->idle_timeout_ms);
    pack_u32(b, c->connect_timeout_ms);
    pack_u32(b, c->events_per_second);
}

void unpack_egress_config(struct unpack *u, struct egress_config *ret) {
    struct egress_config c = {0};
    c.ca_file = unpack_strdup(u);
    unpack_strv(u, EGRESS_LIST_MAX, &c.private);
    unpack_strv(u, EGRESS_LIST_MAX, &c.private_routes);
    c.sandboxes = egress_wire_or_default(unpack_u32(u), 4096);
    c.connections = egress_wire_or_default(unpack_u32(u), 128);
    c.tunnels = egress_wire_or_default(unpack_u32(u), 64);
    c.head_bytes = egress_wire_or_default(unpack_u32(u), 32 * 1024);
    c.headers = egress_wire_or_default(unpack_u32(u), 100);
    c.body_bytes = unpack_u64(u);
    c.held_bytes = unpack_u64(u);
    c.held_all_bytes = unpack_u64(u);
    c.head_timeout_ms = egress_wire_or_default(unpack_u32(u), 10000);
    c.body_timeout_ms = egress_wire_or_default(unpack_u32(u), 30000);
    c.idle_timeout_ms = egress_wire_or_default(unpack_u32(u), 300000);
    c.connect_timeout_ms = egress_wire_or_default(unpack_u32(u), 10000);
    c.events_per_second = egress_wire_or_default(unpack_u32(u), 50);
    if (c.body_bytes == 0)
        c.body_bytes = 32ULL * 1024 * 1024;
    if (c.held_bytes == 0)
        c.held_bytes = 64ULL * 1024 * 1024;
    if (c.held_all_bytes == 0)
        c.held_all_bytes = 256ULL * 1024 * 1024;
    *ret = c;
}

void egress_config_finish(struct egress_config *c) {
    free(c->ca_file);
    sandbox_strv_finish(&c->private);
    sandbox_strv_finish(&c->private_routes);
    *c = (struct egress_config){0};
}

static void pack_route(struct buf *b, const struct egress_route *r) {
    pack_str(b, r->name);
    pack_str(b, r->url);
    pack_u32(b, (uint32_t)r->nheaders);
    for (size_t i = 0; i < r->nheaders; i++) {
        pack_str(b, r->headers[i].name);
        pack_str(b, r->headers[i].value);
    }
    pack_u8(b, r->private);
    pack_strv(b, &r->methods);
    pack_strv(b, &r->paths);
    pack_u32(b, r->api);
    pack_u32(b, r->endpoints);
    pack_strv(b, &r->models);
    pack_strv(b, &r->server_tools);
    pack_strv(b, &r->fields);
    pack_u8(b, r->urls);
}

static void unpack_route(struct unpack *u, struct egress_route *ret) {
    struct egress_route r = {0};
    r.name = unpack_strdup(u);
    r.url = unpack_strdup(u);
    r.nheaders = unpack_count(u, EGRESS_HEADERS_MAX, 8);
    for (size_t i = 0; i < r.nheaders; i++) {
        r.headers[i].name = unpack_strdup(u);
        r.headers[i].value = unpack_strdup(u);
    }
    r.private = unpack_u8(u) != 0;
    unpack_strv(u, EGRESS_LIST_MAX, &r.methods);
    unpack_strv(u, EGRESS_LIST_MAX, &r.paths);
    r.api = unpack_u32(u);
    r.endpoints = unpack_u32(u);
    unpack_strv(u, EGRESS_LIST_MAX, &r.models);
    unpack_strv(u, EGRESS_LIST_MAX, &r.server_tools);
    unpack_strv(u, EGRESS_LIST_MAX, &r.fields);
    r.urls = unpack_u8(u) != 0;
    if (r.api >= EGRESS_APIS)
        u->bad = true;
    *ret = r;
}

void egress_route_finish(struct egress_route *r) {
    free(r->name);
    free(r->url);
    for (size_t i = 0; i < r->nheaders; i++) {
        free(r->headers[i].name);
        if (r->headers[i].value)
            mem_wipe(r->headers[i].value, strlen(r->headers[i].value));
        free(r->headers[i].value);
    }
    sandbox_strv_finish(&r->methods);
    sandbox_strv_finish(&r->paths);
    sandbox_strv_finish(&r->models);
    sandbox_strv_finish(&r->server_tools);
    sandbox_strv_finish(&r->fields);
    *r = (struct egress_route){0};
}

static void copy_strv(const struct sandbox_strv *from, struct sandbox_strv *ret) {
    *ret = (struct sandbox_strv){0};
    for (size_t i = 0; i < from->n; i++)
        sandbox_strv_add(ret, from->items[i]);
}

void egress_route_copy(const struct egress_route *from, struct egress_route *ret) {
    struct egress_route r = *from;
    r.name = xstrdup(from->name);
    r.url = xstrdup(from->url);
    for (size_t i = 0; i < from->nheaders; i++) {
        r.headers[i].name = xstrdup(from->headers[i].name);
        r.headers[i].value = xstrdup(from->headers[i].value);
    }
    copy_strv(&from->methods, &r.methods);
    copy_strv(&from->paths, &r.paths);
    copy_strv(&from->models, &r.models);
    copy_strv(&from->server_tools, &r.server_tools);
    copy_strv(&from->fields, &r.fields);
    *ret = r;
}

void pack_egress_policy(struct buf *b, const struct egress_policy *p) {
    pack_u32(b, (uint32_t)p->nallow);
    for (size_t i = 0; i < p->nallow; i++) {
        pack_str(b, p->allow[i].host);
        pack_u32(b, p->allow[i].port);
        pack_u8(b, p->allow[i].subdomains);
        pack_u8(b, p->allow[i].plain);
        pack_u8(b, p->allow[i].private);
    }
    pack_u32(b, (uint32_t)p->nroutes);
    for (size_t i = 0; i < p->nroutes; i++)
        pack_route(b, &p->routes[i]);
    pack_u32(b, (uint32_t)p->nprices);
    for (size_t i = 0; i < p->nprices; i++) {
        pack_str(b, p->prices[i].model);
        pack_u64(b, p->prices[i].input);
        pack_u64(b, p->prices[i].output);
        pack_u64(b, p->prices[i].cache_read);
        pack_u64(b, p->prices[i].cache_write);
        pack_u64(b, p->prices[i].cache_write_1h);
    }
    pack_u64(b, p->caps.requests);
    pack_u64(b, p->caps.requests_per_minute);
    pack_u64(b, p->caps.bytes);
    pack_u64(b, p->caps.tokens);
    pack_u64(b, p->caps.cost_nusd);
    pack_u8(b, p->asks);
}

void unpack_egress_policy(struct unpack *u, struct egress_policy *ret) {
    struct egress_policy p = {0};
    p.nallow = unpack_count(u, EGRESS_ALLOW_MAX, 11);
    p.allow = xcalloc(p.nallow, sizeof(*p.allow));
    for (size_t i = 0; i < p.nallow; i++) {
        p.allow[i].host = unpack_strdup(u);
        p.allow[i].port = unpack_u32(u);
        p.allow[i].subdomains = unpack_u8(u) != 0;
        p.allow[i].plain = unpack_u8(u) != 0;
        p.allow[i].private = unpack_u8(u) != 0;
    }
    p.nroutes = unpack_count(u, EGRESS_ROUTES_MAX, 42);
    p.routes = xcalloc(p.nroutes, sizeof(*p.routes));
    for (size_t i = 0; i < p.nroutes; i++)
        unpack_route(u, &p.routes[i]);
    p.nprices = unpack_count(u, EGRESS_PRICES_MAX, 44);
    p.prices = xcalloc(p.nprices, sizeof(*p.prices));
    for (size_t i = 0; i < p.nprices; i++) {
        p.prices[i].model = unpack_strdup(u);
        p.prices[i].input = unpack_u64(u);
        p.prices[i].output = unpack_u64(u);
        p.prices[i].cache_read = unpack_u64(u);
        p.prices[i].cache_write = unpack_u64(u);
        p.prices[i].cache_write_1h = unpack_u64(u);
    }
    p.caps.requests = unpack_u64(u);
    p.caps.requests_per_minute = unpack_u64(u);
    p.caps.bytes = unpack_u64(u);
    p.caps.tokens = unpack_u64(u);
    p.caps.cost_nusd = unpack_u64(u);
    p.asks = unpack_u8(u) != 0;
    *ret = p;
}

void egress_policy_finish(struct egress_policy *p) {
    for (size_t i = 0; i < p->nallow; i++)
        egress_allow_finish(&p->allow[i]);
    free(p->allow);
    for (size_t i = 0; i < p->nroutes; i++)
        egress_route_finish(&p->routes[i]);
    free(p->routes);
    for (size_t i = 0; i < p->nprices; i++)
        free(p->prices[i].model);
    free(p->prices);
    *p = (struct egress_policy){0};
}

const char *egress_kind_name(uint32_t kind) {
    static const char *const names[] = {[EGRESS_KIND_NONE] = "none",
                                        [EGRESS_KIND_CONNECT] = "connect",
                                        [EGRESS_KIND_HTTP] = "http",
                                        [EGRESS_KIND_ROUTE] = "route",
                                        [EGRESS_KIND_MODEL] = "model"};
    return kind < ARRAY_LEN(names) ? names[kind] : "none";
}

static void pack_cut(struct buf *b, const char *s) {
    pack_bytes(b, s, s ? strnlen(s, EGRESS_TEXT_MAX) : 0);
}

void pack_egress_event(struct buf *b, const struct egress_event *e) {
    pack_str(b, e->sandbox);
    pack_u64(b, e->number);
    pack_u64(b, e->count);
    pack_u64(b, (uint64_t)e->time_ms);
    pack_u32(b, e->state);
    pack_u32(b, e->kind);
    pack_str(b, e->route);
    pack_cut(b, e->host);
    pack_u32(b, e->port);
    pack_cut(b, e->method);
    pack_cut(b, e->path);
    pack_u32(b, e->status);
    pack_u64(b, e->bytes_in);
    pack_u64(b, e->bytes_out);
    pack_u64(b, e->ms);
    pack_cut(b, e->model);
    pack_u64(b, e->tokens_in);
    pack_u64(b, e->tokens_out);
    pack_u64(b, e->cost_nusd);
    pack_u8(b, e->cut);
    pack_cut(b, e->reason);
}

void unpack_egress_event(struct unpack *u, struct egress_event *ret) {
    struct egress_event e = {0};
    e.sandbox = unpack_strdup(u);
    e.number = unpack_u64(u);
    e.count = unpack_u64(u);
    e.time_ms = (int64_t)unpack_u64(u);
    e.state = unpack_u32(u);
    e.kind = unpack_u32(u);
    e.route = unpack_strdup(u);
    e.host = unpack_strdup(u);
    e.port = unpack_u32(u);
    e.method = unpack_strdup(u);
    e.path = unpack_strdup(u);
    e.status = unpack_u32(u);
    e.bytes_in = unpack_u64(u);
    e.bytes_out = unpack_u64(u);
    e.ms = unpack_u64(u);
    e.model = unpack_strdup(u);
    e.tokens_in = unpack_u64(u);
    e.tokens_out = unpack_u64(u);
    e.cost_nusd = unpack_u64(u);
    e.cut = unpack_u8(u) != 0;
    e.reason = unpack_strdup(u);
    *ret = e;
}

void egress_event_finish(struct egress_event *e) {
    free(e->sandbox);
    free(e->route);
    free(e->host);
    free(e->method);
    free(e->path);
    free(e->model);
    free(e->reason);
    *e = (struct egress_event){0};
}

void pack_egress_usage(struct buf *b, const struct egress_usage *u) {
    pack_str(b, u->sandbox);
    pack_u64(b, u->requests);
    pack_u64(b, u->refused);
    pack_u64(b, u->bytes_in);
    pack_u64(b, u->bytes_out);
    pack_u64(b, u->tokens_in);
    pack_u64(b, u->tokens_out);
    pack_u64(b, u->cost_nusd);
    pack_u64(b, u->running_in);
    pack_u64(b, u->running_out);
    pack_u64(b, u->running_nusd);
    pack_u64(b, u->events_lost);
    pack_u8(b, u->estimated);
}

void unpack_egress_usage(struct unpack *u, struct egress_usage *ret) {
    struct egress_usage v = {0};
    v.sandbox = unpack_strdup(u);
    v.requests = unpack_u64(u);
    v.refused = unpack_u64(u);
    v.bytes_in = unpack_u64(u);
    v.bytes_out = unpack_u64(u);
    v.tokens_in = unpack_u64(u);
    v.tokens_out = unpack_u64(u);
    v.cost_nusd = unpack_u64(u);
    v.running_in = unpack_u64(u);
    v.running_out = unpack_u64(u);
    v.running_nusd = unpack_u64(u);
    v.events_lost = unpack_u64(u);
    v.estimated = unpack_u8(u) != 0;
    *ret = v;
}

void egress_usage_finish(struct egress_usage *u) {
    free(u->sandbox);
    *u = (struct egress_usage){0};
}

void pack_egress_ask(struct buf *b, const struct egress_ask *a) {
    pack_str(b, a->sandbox);
    pack_u64(b, a->tokens_in);
    pack_u64(b, a->tokens_out);
    pack_u64(b, a->cost_nusd);
    pack_u64(b, a->least_nusd);
}

void unpack_egress_ask(struct unpack *u, struct egress_ask *ret) {
    ret->sandbox = unpack_strdup(u);
    ret->tokens_in = unpack_u64(u);
    ret->tokens_out = unpack_u64(u);
    ret->cost_nusd = unpack_u64(u);
    ret->least_nusd = unpack_u64(u);
}

void pack_egress_grant(struct buf *b, const struct egress_grant *g) {
    pack_str(b, g->sandbox);
    pack_u32(b, g->code);
    pack_cut(b, g->message);
    pack_u64(b, g->tokens);
    pack_u64(b, g->cost_nusd);
}

void unpack_egress_grant(struct unpack *u, struct egress_grant *ret) {
    ret->sandbox = unpack_strdup(u);
    ret->code = unpack_u32(u);
    ret->message = unpack_strdup(u);
    ret->tokens = unpack_u64(u);
    ret->cost_nusd = unpack_u64(u);
    if (ret->code >= ERR_CODE_COUNT)
        u->bad = true;
}

void egress_grant_finish(struct egress_grant *g) {
    free(g->sandbox);
    free(g->message);
    *g = (struct egress_grant){0};
}

void pack_egress_spent(struct buf *b, const struct egress_spent *s) {
    pack_str(b, s->sandbox);
    pack_u64(b, s->input);
    pack_u64(b, s->output);
    pack_u64(b, s->cache_read);
    pack_u64(b, s->cache_write);
    pack_u64(b, s->cost_nusd);
    pack_u8(b, s->estimated);
}

void unpack_egress_spent(struct unpack *u, struct egress_spent *ret) {
    ret->sandbox = unpack_strdup(u);
    ret->input = unpack_u64(u);
    ret->output = unpack_u64(u);
    ret->cache_read = unpack_u64(u);
    ret->cache_write = unpack_u64(u);
    ret->cost_nusd = unpack_u64(u);
    ret->estimated = unpack_u8(u) != 0;
}
