#include "base/cleanup.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/agent/definition_read.h"

#include <stdlib.h>
#include <string.h>

/* What agent.json grants: databases, what programs hold, what clients and the model may call. */

enum { FACET_IDLE_MS = 10000 };

const struct agent_facet *definition_facet(const struct agent_def *d, const char *name) {
    for (size_t i = 0; i < d->nfacets; i++)
        if (strcmp(d->facets[i].name, name) == 0)
            return &d->facets[i];
    return NULL;
}

int definition_need_object(const json_t *v, const char *what, struct err *err) {
    return json_is_object(v) ? 0 : err_set(err, ERR_BAD_REQUEST, "%s must be an object", what);
}

/* --- facets --- */

static int agent_grants_read_methods(struct agent_facet *f, const json_t *obj, struct err *err) {
    if (!obj)
        return 0;
    int rc = definition_need_object(obj, "\"methods\"", err);
    if (rc < 0)
        return rc;
    static const char *const keys[] = {"sql", "kind", NULL};
    f->open.methods = xcalloc(json_object_size(obj), sizeof(*f->open.methods));
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)obj, name, v) {
        const char *sql = json_string_value(v);
        const char *kind = "query";
        if (!sql) {
            rc = json_check_keys(v, "a method", keys, err);
            if (rc == 0)
                rc = json_get_str(v, "sql", &sql, err);
            if (rc == 0)
                rc = json_get_str(v, "kind", &kind, err);
            if (rc < 0)
                return err_wrap(err, "methods.%s", name);
        }
        bool execute = strcmp(kind, "execute") == 0;
        if (!sql || (!execute && strcmp(kind, "query") != 0))
            return err_set(err, ERR_BAD_REQUEST,
                           "methods.%s needs \"sql\", and a \"kind\" of query or execute", name);
        f->open.methods[f->open.nmethods++] =
            (struct facet_method){.name = xstrdup(name),
                                  .sql = xstrdup(sql),
                                  .kind = execute ? FACET_KIND_EXECUTE : FACET_KIND_QUERY};
    }
    return 0;
}

static int read_facet(struct agent_facet *f, const char *dir, const json_t *v, struct err *err) {
    static const char *const keys[] = {"schema", "methods", "durability", NULL};
    const char *schema = NULL;
    const char *durability = "normal";
    int rc = json_check_keys(v, "a facet", keys, err);
    if (rc == 0)
        rc = json_get_str(v, "schema", &schema, err);
    if (rc == 0)
        rc = json_get_str(v, "durability", &durability, err);
    if (rc == 0 && strcmp(durability, "normal") != 0 && strcmp(durability, "full") != 0)
        rc = err_set(err, ERR_BAD_REQUEST, "\"durability\" must be normal or full");
    f->open.file = xstrdup("data.db");
    f->open.idle_ms = FACET_IDLE_MS;
    f->open.full = strcmp(durability, "full") == 0;
    if (rc == 0 && schema)
        rc = definition_read_text(dir, schema, false, &f->open.schema, err);
    if (rc == 0)
        rc = agent_grants_read_methods(f, json_object_get(v, "methods"), err);
    return rc;
}

int definition_read_facets(struct agent_def *d, const char *dir, const json_t *obj,
                           struct err *err) {
    if (!obj)
        return 0;
    int rc = definition_need_object(obj, "\"facets\"", err);
    if (rc < 0)
        return rc;
    d->facets = xcalloc(json_object_size(obj), sizeof(*d->facets));
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)obj, name, v) {
        if (!path_is_plain_name(name, strlen(name)))
            return err_set(err, ERR_BAD_REQUEST, "facets.%s: the name must fit a folder", name);
        struct agent_facet *f = &d->facets[d->nfacets++];
        f->name = xstrdup(name);
        rc = read_facet(f, dir, v, err);
        if (rc < 0)
            return err_wrap(err, "facets.%s", name);
    }
    return 0;
}

/* --- env and rpc --- */

bool agent_facet_has(const struct agent_facet *f, const char *method) {
    static const char *const always[] = {"query", "execute", "batch"};
    for (size_t i = 0; i < ARRAY_LEN(always); i++)
        if (strcmp(always[i], method) == 0)
            return true;
    for (size_t i = 0; i < f->open.nmethods; i++)
        if (strcmp(f->open.methods[i].name, method) == 0)
            return true;
    return false;
}

bool agent_facet_changes(const struct agent_facet *f, const char *method) {
    for (size_t i = 0; i < f->open.nmethods; i++)
        if (strcmp(f->open.methods[i].name, method) == 0)
            return f->open.methods[i].kind == FACET_KIND_EXECUTE;
    return strcmp(method, "query") != 0;
}

static int add_method(struct agent_binding *b, const json_t *name, struct err *err) {
    if (!json_is_string(name) || !agent_facet_has(b->facet, json_string_value(name)))
        return err_set(err, ERR_BAD_REQUEST, "the facet \"%s\" has no method %s%.60s%s",
                       b->facet->name, json_is_string(name) ? "\"" : "",
                       json_is_string(name) ? json_string_value(name) : "of that type",
                       json_is_string(name) ? "\"" : "");
    size_t n = 0;
    while (b->methods && b->methods[n])
        n++;
    b->methods = xrealloc(b->methods, (n + 2) * sizeof(*b->methods));
    b->methods[n] = xstrdup(json_string_value(name));
    b->methods[n + 1] = NULL;
    return 0;
}

static int agent_grants_read_binding(struct agent_def *d, struct agent_binding *b, const json_t *v,
                                     bool rpc, struct err *err) {
    const json_t *facet = json_object_get(v, "facet");
    if (!facet && !rpc) {
        b->json = json_incref((json_t *)(uintptr_t)v);
        return 0;
    }
    static const char *const env_keys[] = {"facet", "methods", NULL};
    static const char *const rpc_keys[] = {"facet", "method", NULL};
    int rc = json_check_keys(v, "a binding", rpc ? rpc_keys : env_keys, err);
    if (rc < 0)
        return rc;
    b->facet = json_is_string(facet) ? definition_facet(d, json_string_value(facet)) : NULL;
    if (!b->facet)
        return err_set(err, ERR_BAD_REQUEST, "\"facet\" must name one of \"facets\"");
    if (rpc)
        return add_method(b, json_object_get(v, "method"), err);
    const json_t *methods = json_object_get(v, "methods");
    if (methods && !json_is_array(methods))
        return err_set(err, ERR_BAD_REQUEST, "\"methods\" must be a list");
    size_t i;
    const json_t *m;
    json_array_foreach(methods, i, m) {
        rc = add_method(b, m, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int definition_read_bindings(struct agent_def *d, const json_t *obj, bool rpc, struct err *err) {
    const char *what = rpc ? "rpc" : "env";
    if (!obj)
        return 0;
    if (!json_is_object(obj))
        return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be an object", what);
    struct agent_binding *list = xcalloc(json_object_size(obj), sizeof(*list));
    size_t n = 0;
    int rc = 0;
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)obj, name, v) {
        list[n].name = xstrdup(name);
        rc = agent_grants_read_binding(d, &list[n++], v, rpc, err);
        if (rc < 0) {
            rc = err_wrap(err, "%s.%s", what, name);
            break;
        }
    }
    *(rpc ? &d->rpc : &d->env) = list;
    *(rpc ? &d->nrpc : &d->nenv) = n;
    return rc;
}

/* --- tools --- */

static int check_tool_name(const struct agent_def *d, const char *name, struct err *err) {
    for (const char *p = name; *p; p++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", *p) ||
            p - name >= 64)
            return err_set(err, ERR_BAD_REQUEST,
                           "\"name\" must have up to 64 letters, digits, \"_\" and \"-\"");
    if (!*name || agent_def_tool(d, name))
        return err_set(err, ERR_BAD_REQUEST, "\"name\" must be there once: \"%s\"", name);
    return 0;
}

static int agent_grants_read_tool(struct agent_def *d, const json_t *v, struct err *err) {
    static const char *const keys[] = {"name", "kind", "description", "input", "facet", NULL};
    const char *kind = NULL;
    struct tool_offer_options o = {0};
    int rc = json_check_keys(v, "a tool", keys, err);
    if (rc == 0)
        rc = json_get_str(v, "name", &o.name, err);
    if (rc == 0)
        rc = json_get_str(v, "kind", &kind, err);
    if (rc == 0)
        rc = json_get_str(v, "description", &o.description, err);
    if (rc == 0)
        rc = json_get_str(v, "input", &o.input, err);
    if (rc == 0)
        rc = json_get_str(v, "facet", &o.facet, err);
    if (rc < 0)
        return rc;
    if (!o.name || !kind || !o.description)
        return err_set(err, ERR_BAD_REQUEST, "needs \"name\", \"kind\" and \"description\"");
    const struct tool *tool = tool_of_kind(kind);
    char kinds[128];
    tool_kinds(kinds, sizeof(kinds));
    if (!tool)
        return err_set(err, ERR_BAD_REQUEST, "\"kind\" must be %s", kinds);
    if (tool->needs_facet && (!o.facet || !definition_facet(d, o.facet)))
        return err_set(err, ERR_BAD_REQUEST, "\"facet\" must name one of \"facets\"");
    rc = check_tool_name(d, o.name, err);
    if (rc == 0)
        rc = tool_offer_init(&d->tools[d->ntools], tool, &o, err);
    d->ntools += rc == 0;
    return rc;
}

int definition_read_tools(struct agent_def *d, const json_t *list, struct err *err) {
    if (!list)
        return 0;
    if (!json_is_array(list))
        return err_set(err, ERR_BAD_REQUEST, "\"tools\" must be a list");
    d->tools = xcalloc(json_array_size(list), sizeof(*d->tools));
    size_t i;
    const json_t *v;
    json_array_foreach(list, i, v) if (agent_grants_read_tool(d, v, err) <
                                       0) return err_wrap(err, "tools[%zu]", i);
    return 0;
}
