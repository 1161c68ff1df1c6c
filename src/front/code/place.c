#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/code/internal.h"
#include "front/code/route.h"
#include "front/code/tree.h"

#include <string.h>

enum { SPARE_S = 60 /* of the sandbox's life, beyond the agent's time */ };

struct sandbox *code_place(const struct code_job *c) {
    return *c->sandbox_id ? sandboxes_find(c->all->opt.sandboxes, c->sandbox_id) : NULL;
}

/* What its model costs; the most that any does, if that is not known. */
static struct egress_price price_of(const struct code_job *c) {
    const struct model_info *m = &c->resolved.model;
    const struct model_price *p =
        m->price.known ? &m->price : accounts_dearest(c->all->opt.accounts);
    return network_price(m->id, p);
}

/* With the route to its model: what the agent may reach. Without: what the sandbox shows. */
static int make_policy(const struct code_job *c, const struct egress_route *route,
                       struct egress_policy *ret, struct err *err) {
    struct network *net = sandboxes_network(c->all->opt.sandboxes);
    const struct sandbox *s = code_place(c);
    const struct network_ask *ask =
        s && !(route && c->ask.has_network) ? &s->network : &c->ask.network;
    int rc = network_resolve(net, ask, c->grants, ret, err);
    if (rc == 0 && route)
        network_add_route(net, ret, route);
    if (rc == 0) {
        struct egress_price price = price_of(c);
        network_add_price(net, ret, &price);
    }
    if (rc == 0 && c->ask.max_usd > 0)
        network_cap_cost(ret, c->ask.max_usd + (double)c->before.cost_nusd / 1e9);
    ret->asks = route != NULL;
    return rc;
}

static int model_route(const struct code_job *c, struct egress_route *ret, struct err *err) {
    const struct codes_options *o = &c->all->opt;
    return code_route_model(o->secrets, o->door, &c->resolved.model, c->resolved.dialect, ret, err);
}

int code_place_policy(const struct code_job *c, bool working, struct egress_policy *ret,
                      struct err *err) {
    struct egress_route route = {0};
    if (!working)
        return make_policy(c, NULL, ret, err);
    int rc = model_route(c, &route, err);
    if (rc == 0) {
        rc = make_policy(c, &route, ret, err);
        egress_route_finish(&route);
    }
    return rc;
}

static struct store_scope scope_of(const struct code_job *c) {
    return (struct store_scope){.all = c->sees_all, .owner = c->owner};
}

/* The way to the repository: one of the operator's, with its credential, or to any host that a
 * sandbox may be let out to. */
static int repo_route(struct code_job *c, struct egress_route *ret, struct err *err) {
    struct network *net = sandboxes_network(c->all->opt.sandboxes);
    const struct egress_route *granted = NULL;
    const char *name = c->ask.credential;
    int rc = name ? network_find_route(net, name, c->grants, &granted, err)
                  : network_may_reach(net, c->resolved.repo, err);
    if (rc < 0)
        return err_wrap(err, name ? "\"credential\"" : "\"repo\"");
    /* A name that no route of the settings has. */
    c->clone_route = xasprintf("clone-%s", job_id(c->job));
    return code_route_repo(c->clone_route, c->resolved.repo, granted, ret, err);
}

int64_t code_around_ms(bool repo) {
    return 1000 * (int64_t)(SPARE_S + (repo ? CODE_CLONE_S : 0));
}

int64_t code_limit_ms(const json_t *body) {
    const json_t *own = json_object_get(body, "timeout_ms");
    return (json_is_integer(own) ? json_integer_value(own) : LIMIT_CODER_TIMEOUT_MS) +
           code_around_ms(json_object_get(body, "repo") != NULL);
}

/* How long the sandbox is needed. */
static int life_of(const struct code_job *c, int64_t *ret_s, struct err *err) {
    int64_t most = sandboxes_settings(c->all->opt.sandboxes)->max_timeout_s;
    int64_t around = code_around_ms(c->resolved.repo != NULL) / 1000;
    if (c->ask.timeout_ms / 1000 + around > most)
        return err_set(err, ERR_LIMIT,
                       "\"timeout_ms\" may be %lld at most here: a sandbox lives %lld s (setting "
                       "sandboxes.max_timeout_s), of which %lld are for what is around the agent",
                       (long long)MAX((most - around) * 1000, (int64_t)0), (long long)most,
                       (long long)around);
    *ret_s = c->ask.timeout_ms / 1000 + around;
    return 0;
}

int code_place_make(struct code_job *c, sandbox_made on_made, struct err *err) {
    struct egress_route routes[2] = {{0}};
    size_t n = 0;
    int64_t life;
    int rc = life_of(c, &life, err);
    if (rc < 0)
        return rc;
    rc = model_route(c, &routes[n], err);
    n += rc == 0;
    if (rc == 0 && c->resolved.repo) {
        rc = repo_route(c, &routes[n], err);
        n += rc == 0;
    }
    _cleanup_(free) char *path = coder_def_bind_path(c->resolved.def);
    _cleanup_(json) json_t *metadata = json_pack("{s:s}", "run", job_id(c->job));
    struct egress_price price = price_of(c);
    struct sandbox_extra extra = {.agent = c->resolved.def->name,
                                  .routes = routes,
                                  .nroutes = n,
                                  .price = &price,
                                  .max_usd = c->ask.max_usd,
                                  .asks = true};
    if (c->resolved.def->fd >= 0)
        extra.binds[extra.nbinds++] = (struct sandbox_extra_bind){c->resolved.def->fd, path};
    if (c->all->opt.tool_fd >= 0)
        extra.binds[extra.nbinds++] = (struct sandbox_extra_bind){c->all->opt.tool_fd, CODE_TOOL};
    struct sandbox_request r = {.owner = c->owner,
                                .scope = scope_of(c),
                                .grants = c->grants,
                                .name = "coder",
                                .timeout_s = life,
                                .metadata = metadata,
                                .extra = &extra};
    network_ask_copy(&c->ask.network, &r.network);
    if (rc == 0 && c->ask.files)
        rc = sandbox_files_read(c->ask.files, CODE_DIR, &r.files, err);
    const struct sandbox *s =
        rc < 0 ? NULL : sandboxes_make(c->all->opt.sandboxes, &r, on_made, c, err);
    sandbox_request_finish(&r);
    for (size_t i = 0; i < n; i++)
        egress_route_finish(&routes[i]);
    if (!s)
        return -(int)err->code;
    memcpy(c->sandbox_id, s->id, sizeof(c->sandbox_id));
    return 0;
}

void code_place_pay(struct code_job *c) {
    const struct sandbox *s = code_place(c);
    if (!s || !s->line || c->purse)
        return;
    c->purse =
        code_purse_open(s->line, &(struct code_purse_options){.accounts = c->all->opt.accounts,
                                                              .owner = c->owner,
                                                              .key = c->key,
                                                              .kind = c->ask.kind,
                                                              .model = &c->resolved.model});
}

/* One that is there, of an earlier job, with the program of the same agent in it. */
int code_place_use(struct code_job *c, struct err *err) {
    struct sandbox *s =
        sandboxes_use(c->all->opt.sandboxes, c->ask.sandbox, scope_of(c), false, err);
    if (!s)
        return -(int)err->code;
    for (const struct code_job *other = c->all->list; other; other = other->next)
        if (other != c && strcmp(other->sandbox_id, s->id) == 0)
            return err_set(err, ERR_CONFLICT, "the run %s works in this sandbox: wait for its end",
                           job_id(other->job));
    if (!c->ask.command && strcmp(s->agent, c->resolved.def->name) != 0)
        return err_set(err, ERR_CONFLICT, "the sandbox was %s%s%s: make a new one for \"%s\"",
                       *s->agent ? "made for the agent \"" : "not made by a coding job", s->agent,
                       *s->agent ? "\"" : "", c->resolved.def->name);
    if (!s->line)
        return err_set(err, ERR_UNSUPPORTED, "the sandbox has no network");
    int64_t life;
    int rc = life_of(c, &life, err);
    if (rc == 0 && s->expires_ms < clock_wall_ms() + life * 1000)
        rc = sandbox_extend(s, life * 1000, err);
    if (rc < 0)
        return rc;
    memcpy(c->sandbox_id, s->id, sizeof(c->sandbox_id));
    c->before = network_line_spent(s->line);
    c->borrowed = true;
    return 0;
}
