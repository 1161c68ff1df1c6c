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

static int add_transform(const char *domain, const json_t *transform, json_t *headers,
                         struct err *err) {
    static const char *const keys[] = {"headers", NULL};
    const json_t *set = json_object_get(transform, "headers");
    if (!json_is_object(set) || json_check_keys(transform, "a transform", keys, err) < 0)
        return err_set(err, ERR_BAD_REQUEST,
                       "\"%.100s\": a transform has \"headers\", an object, and nothing else",
                       domain);
    (void)json_object_update(headers, (json_t *)(uintptr_t)set);
    return 0;
}

static int add_rule(const char *domain, const json_t *rule, json_t *headers, struct err *err) {
    static const char *const keys[] = {"transform", NULL};
    const json_t *transforms = json_object_get(rule, "transform");
    size_t i;
    const json_t *t;
    if (!json_is_object(rule))
        return err_set(err, ERR_BAD_REQUEST, "a rule of \"%.100s\" must be an object", domain);
    if (json_check_keys(rule, "a rule", keys, err) < 0)
        return err_set(
            err, ERR_BAD_REQUEST,
            "\"%.100s\": of the rules only \"transform\" with \"headers\" is served here", domain);
    if (transforms && !json_is_array(transforms))
        return err_set(err, ERR_BAD_REQUEST, "\"%.100s\": \"transform\" must be a list", domain);
    json_array_foreach(transforms, i, t) {
        int rc = add_transform(domain, t, headers, err);
        if (rc < 0)
            return rc;
    }
    return 0;
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
static int check_subnets(const json_t *subnets, struct err *err) {
    static const char *const denied[] = {"10.",     "192.168.", "127.",  "169.254.", "172.16.",
                                         "100.64.", "fc00:",    "fe80:", "::1"};
    const json_t *allow = json_object_get(subnets, "allow");
    const json_t *deny = json_object_get(subnets, "deny");
    size_t i;
    const json_t *v;
    if (subnets && (!json_is_object(subnets) || (deny && !json_is_array(deny))))
        return err_set(err, ERR_BAD_REQUEST, "\"subnets\" is an object with a list, \"deny\"");
    if (allow && (!json_is_array(allow) || json_array_size(allow) > 0))
        return err_set(err, ERR_BAD_REQUEST,
                       "subnets.allow is not served here: name hosts in \"allow\"");
    json_array_foreach(deny, i, v) {
        const char *text = json_string_value(v);
        bool known = false;
        for (size_t k = 0; text && k < sizeof(denied) / sizeof(*denied); k++)
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
    if (!json_is_array(list))
        return err_set(err, ERR_BAD_REQUEST, "\"allow\" is a list of hosts, or an object of rules");
    json_array_foreach((json_t *)(uintptr_t)list, i, v) {
        if (!json_is_string(v))
            return err_set(err, ERR_BAD_REQUEST, "\"allow\" is a list of hosts");
        add_allowed(p, json_string_value(v), all);
    }
    return 0;
}

static int read_policy(const json_t *policy, const json_t *all, struct policy *p, struct err *err) {
    const char *mode = NULL;
    int rc = json_get_str(policy, "mode", &mode, err);
    if (rc < 0)
        return rc;
    if (mode && strcmp(mode, "allow-all") == 0) {
        allow_all(p, all);
        return 0;
    }
    if (mode && strcmp(mode, "deny-all") != 0)
        return err_set(err, ERR_BAD_REQUEST, "a policy's \"mode\" is allow-all or deny-all");
    const json_t *list = json_object_get(policy, "allow");
    if (!mode && list)
        rc = vercel_policy_read_allow(p, list, all, err);
    return rc == 0 ? check_subnets(json_object_get(policy, "subnets"), err) : rc;
}

int vercel_policy_read(const json_t *policy, const json_t *all, struct policy *ret,
                       struct err *err) {
    struct policy p = {0};
    int rc = 0;
    if (!policy || json_is_null(policy))
        allow_all(&p, all);
    else if (!json_is_object(policy))
        rc = err_set(err, ERR_BAD_REQUEST, "a network policy is an object");
    else
        rc = read_policy(policy, all, &p, err);
    if (rc < 0) {
        vercel_policy_finish(&p);
        return rc;
    }
    *ret = p;
    return 0;
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
