#include "front/vercel/policy.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void vercel_policy_finish(struct policy *p) {
    for (size_t i = 0; i < p->nroutes; i++)
        egress_route_finish(&p->routes[i]);
    free(p->routes);
    network_ask_finish(&p->network);
    json_decref(p->injected);
    *p = (struct policy){0};
}

static void allow_all(struct policy *p, const json_t *all) {
    size_t i;
    json_t *host;
    json_array_foreach((json_t *)(uintptr_t)all, i, host) {
        sandbox_strv_add(&p->network.allow, json_string_value(host));
    }
}

static void add_allowed(struct policy *p, const char *domain, const json_t *all) {
    if (strcmp(domain, "*") == 0)
        allow_all(p, all);
    else
        sandbox_strv_add(&p->network.allow, domain);
}

/* "api.example.com" as a name of a route: "api-example-com". */
static void route_name(const char *domain, char out[EGRESS_NAME_MAX + 1]) {
    size_t n = 0;
    for (const char *c = domain; *c && n < EGRESS_NAME_MAX; c++)
        out[n++] = isalnum((unsigned char)*c) ? (char)tolower((unsigned char)*c) : '-';
    out[n] = 0;
}

/* Credentials that come with the request: put on outside, by a route of the domain's own. */
static int vercel_policy_add_route(struct policy *p, const char *domain, const json_t *headers,
                                   struct err *err) {
    char name[EGRESS_NAME_MAX + 1];
    const char *key;
    json_t *v;
    if (p->nroutes == EGRESS_ROUTES_MAX)
        return err_set(err, ERR_BAD_REQUEST, "a network policy has transforms for at most %d hosts",
                       EGRESS_ROUTES_MAX);
    route_name(domain, name);
    for (size_t i = 0; i < p->nroutes; i++)
        if (strcmp(p->routes[i].name, name) == 0)
            return err_set(err, ERR_BAD_REQUEST,
                           "\"%.100s\" and \"%.100s\" would have the same route, %s", domain,
                           p->routes[i].url + strlen("https://"), name);
    _cleanup_(json) json_t *url = json_sprintf("https://%s", domain);
    _cleanup_(json) json_t *route =
        json_pack("{s:O,s:O,s:[s,s,s,s,s,s,s]}", "url", url, "headers", headers, "methods", "GET",
                  "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS");
    p->routes = xrealloc(p->routes, (p->nroutes + 1) * sizeof(*p->routes));
    /* No secret of the operator is named by it. */
    int rc = egress_route_parse(name, route, NULL, NULL, &p->routes[p->nroutes], err);
    if (rc < 0)
        return rc;
    p->nroutes++;
    json_t *names = json_array();
    json_object_foreach((json_t *)(uintptr_t)headers, key, v) {
        (void)json_array_append_new(names, json_string(key));
    }
    if (!p->injected)
        p->injected = json_array();
    (void)json_array_append_new(
        p->injected, json_pack("{s:s,s:s,s:o}", "domain", domain, "route", name, "headers", names));
    return 0;
}

struct rule_wire {
    const json_t *list, *headers;
};

/* The headers that a rule of a domain puts on: {transform: [{headers}]}. */
static int add_rule(const char *domain, const json_t *rule, json_t *headers, struct err *err) {
    static const struct json_field rule_fields[] = {JSON_LIST("transform", struct rule_wire, list)};
    static const struct json_field transform_fields[] = {
        JSON_MAP("headers", struct rule_wire, headers)};
    struct rule_wire w = {0};
    size_t i;
    const json_t *transform;
    int rc = json_table_read(rule_fields, ARRAY_LEN(rule_fields), rule, "a rule", &w, err);
    json_array_foreach(w.list, i, transform) {
        w.headers = NULL;
        if (rc == 0)
            rc = json_table_read(transform_fields, ARRAY_LEN(transform_fields), transform,
                                 "a transform", &w, err);
        if (rc == 0 && !w.headers)
            rc = err_set(err, ERR_BAD_REQUEST, "a transform needs \"headers\", an object");
        if (rc == 0)
            (void)json_object_update(headers, (json_t *)(uintptr_t)w.headers);
    }
    return rc < 0 ? err_wrap(err, "\"%.100s\": only \"transform\" with \"headers\" is served here",
                             domain)
                  : 0;
}

static int add_domain(struct policy *p, const char *domain, const json_t *rules, const json_t *all,
                      struct err *err) {
    size_t i;
    const json_t *rule;
    _cleanup_(json) json_t *headers = json_object();
    if (!json_is_array(rules))
        return err_set(err, ERR_BAD_REQUEST, "the rules of \"%.100s\" must be a list", domain);
    json_array_foreach(rules, i, rule) {
        int rc = add_rule(domain, rule, headers, err);
        if (rc < 0)
            return rc;
    }
    add_allowed(p, domain, all);
    if (json_object_size(headers) == 0)
        return 0;
    if (strchr(domain, '*'))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"%.100s\": headers are put on for one host, not for a pattern", domain);
    return vercel_policy_add_route(p, domain, headers, err);
}

/* Private addresses are denied anyway; others are not looked at. */
static int check_subnets(const struct policy_subnets *subnets, struct err *err) {
    static const char *const denied[] = {"10.",     "192.168.", "127.",  "169.254.", "172.16.",
                                         "100.64.", "fc00:",    "fe80:", "::1"};
    size_t i;
    const json_t *v;
    if (json_array_size(subnets->allow) > 0)
        return err_set(err, ERR_BAD_REQUEST,
                       "subnets.allow is not served here: name hosts in \"allow\"");
    json_array_foreach(subnets->deny, i, v) {
        const char *text = json_string_value(v);
        bool known = false;
        for (size_t k = 0; text && k < ARRAY_LEN(denied); k++)
            known = known || strncmp(text, denied[k], strlen(denied[k])) == 0;
        if (!known)
            return err_set(err, ERR_BAD_REQUEST,
                           "subnets.deny: only what is allowed by name is reached here, and never "
                           "a private address; other ranges are not served");
    }
    return 0;
}

static int vercel_policy_read_allow(struct policy *p, const json_t *list, const json_t *all,
                                    struct err *err) {
    size_t i;
    const char *domain;
    json_t *v;
    if (json_is_object(list)) {
        json_object_foreach((json_t *)(uintptr_t)list, domain, v) {
            int rc = add_domain(p, domain, v, all, err);
            if (rc < 0)
                return rc;
        }
        return 0;
    }
    json_array_foreach((json_t *)(uintptr_t)list, i, v) {
        if (!json_is_string(v))
            return err_set(err, ERR_BAD_REQUEST, "\"allow\" is a list of hosts");
        add_allowed(p, json_string_value(v), all);
    }
    return 0;
}

static int vercel_policy_keep_allow(const json_t *v, void *member, struct err *err) {
    if (!json_is_array(v) && !json_is_object(v) && !json_is_null(v))
        return err_set(err, ERR_BAD_REQUEST, "\"allow\" is a list of hosts, or an object of rules");
    *(const json_t **)member = v;
    return 0;
}

static const char *const policy_modes[] = {[POLICY_ALL] = "allow-all", [POLICY_NONE] = "deny-all"};

static const struct json_field subnet_fields[] = {
    JSON_LIST("allow", struct policy_subnets, allow),
    JSON_LIST("deny", struct policy_subnets, deny),
};

const struct json_field vercel_policy_fields[VERCEL_POLICY_FIELDS] = {
    JSON_ENUM("mode", struct policy_wire, mode, policy_modes),
    JSON_READ("allow", struct policy_wire, allow, vercel_policy_keep_allow, "array,object"),
    JSON_OBJECT("subnets", struct policy_wire, subnets, subnet_fields),
};
JSON_SHAPE("POST /api/v2/sandboxes/sessions/{id}/network-policy", vercel_policy_fields);

int vercel_policy_make(const struct policy_wire *wire, const json_t *all, struct policy *ret,
                       struct err *err) {
    struct policy p = {0};
    int rc = 0;
    if (wire->mode == POLICY_ALL)
        allow_all(&p, all);
    else
        rc = check_subnets(&wire->subnets, err);
    if (rc == 0 && wire->mode == POLICY_LISTED)
        rc = vercel_policy_read_allow(&p, wire->allow, all, err);
    if (rc < 0)
        vercel_policy_finish(&p);
    else
        *ret = p;
    return rc;
}

int vercel_policy_read(const json_t *policy, const json_t *all, struct policy *ret,
                       struct err *err) {
    bool asked = policy && !json_is_null(policy);
    struct policy_wire w = {.mode = asked ? POLICY_LISTED : POLICY_ALL};
    if (asked && !json_is_object(policy))
        return err_set(err, ERR_BAD_REQUEST, "a network policy is an object");
    int rc = json_table_read(vercel_policy_fields, VERCEL_POLICY_FIELDS, policy, NULL, &w, err);
    return rc < 0 ? rc : vercel_policy_make(&w, all, ret, err);
}

json_t *vercel_policy_show(const json_t *network) {
    json_t *allowed = json_object_get(network, "allow");
    size_t i;
    const json_t *v;
    if (json_array_size(allowed) == 0)
        return json_pack("{s:s}", "mode", "deny-all");
    json_t *rules = json_array();
    json_array_foreach(json_object_get(network, "injected"), i, v) {
        (void)json_array_append_new(rules,
                                    json_pack("{s:O,s:O}", "domain", json_object_get(v, "domain"),
                                              "headerNames", json_object_get(v, "headers")));
    }
    return json_pack("{s:s,s:O,s:o}", "mode", "custom", "allowedDomains", allowed, "injectionRules",
                     rules);
}
