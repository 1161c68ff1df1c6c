#include "base/cleanup.h"
#include "base/json_table.h"
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

/* --- facets --- */

/* "SELECT 1", or {sql, kind}. */
struct method_wire {
    const char *sql;
    enum facet_kind kind;
};

static int agent_grants_read_method(const json_t *v, struct method_wire *w, struct err *err) {
    static const char *const kinds[] = {
        [FACET_KIND_QUERY] = "query", [FACET_KIND_EXECUTE] = "execute"};
    static const struct json_field table[] = {JSON_TEXT("sql", struct method_wire, sql),
                                              JSON_ENUM("kind", struct method_wire, kind, kinds)};
    w->sql = json_string_value(v);
    int rc = w->sql ? 0 : json_table_read(table, ARRAY_LEN(table), v, "a method", w, err);
    return rc == 0 && !w->sql ? err_set(err, ERR_BAD_REQUEST, "a method needs \"sql\"") : rc;
}

static int agent_grants_read_methods(struct agent_facet *f, const json_t *obj, struct err *err) {
    if (!obj)
        return 0;
    f->open.methods = xcalloc(json_object_size(obj), sizeof(*f->open.methods));
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)obj, name, v) {
        struct method_wire w = {.kind = FACET_KIND_QUERY};
        if (agent_grants_read_method(v, &w, err) < 0)
            return err_wrap(err, "methods.%s", name);
        f->open.methods[f->open.nmethods++] =
            (struct facet_method){.name = xstrdup(name), .sql = xstrdup(w.sql), .kind = w.kind};
    }
    return 0;
}

static int read_facet(struct agent_facet *f, const char *dir, const json_t *v, struct err *err) {
    static const char *const durabilities[] = {"normal", "full"};
    struct agent_facet_wire {
        const char *schema;
        const json_t *methods;
        unsigned full;
    } w = {0};
    static const struct json_field table[] = {
        JSON_TEXT("schema", struct agent_facet_wire, schema),
        JSON_MAP("methods", struct agent_facet_wire, methods),
        JSON_ENUM("durability", struct agent_facet_wire, full, durabilities),
    };
    int rc = json_table_read(table, ARRAY_LEN(table), v, "a facet", &w, err);
    f->open.file = xstrdup("data.db");
    f->open.idle_ms = FACET_IDLE_MS;
    f->open.full = w.full;
    if (rc == 0 && w.schema)
        rc = definition_read_text(dir, w.schema, false, &f->open.schema, err);
    return rc == 0 ? agent_grants_read_methods(f, w.methods, err) : rc;
}

int definition_read_facets(struct agent_def *d, const char *dir, const json_t *obj,
                           struct err *err) {
    if (!obj)
        return 0;
    d->facets = xcalloc(json_object_size(obj), sizeof(*d->facets));
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)obj, name, v) {
        if (!path_is_plain_name(name, strlen(name)))
            return err_set(err, ERR_BAD_REQUEST, "facets.%s: the name must fit a folder", name);
        struct agent_facet *f = &d->facets[d->nfacets++];
        f->name = xstrdup(name);
        if (read_facet(f, dir, v, err) < 0)
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
    if (!json_object_get(v, "facet") && !rpc) {
        b->json = json_incref((json_t *)(uintptr_t)v);
        return 0;
    }
    struct binding_wire {
        const char *facet;
        const json_t *method, *methods;
    } w = {0};
    static const struct json_field env_table[] = {
        JSON_TEXT("facet", struct binding_wire, facet),
        JSON_LIST("methods", struct binding_wire, methods)};
    static const struct json_field rpc_table[] = {JSON_TEXT("facet", struct binding_wire, facet),
                                                  JSON_TREE("method", struct binding_wire, method)};
    int rc = json_table_read(rpc ? rpc_table : env_table, 2, v, "a binding", &w, err);
    if (rc < 0)
        return rc;
    b->facet = w.facet ? definition_facet(d, w.facet) : NULL;
    if (!b->facet)
        return err_set(err, ERR_BAD_REQUEST, "\"facet\" must name one of \"facets\"");
    if (rpc)
        return add_method(b, w.method, err);
    size_t i;
    const json_t *m;
    json_array_foreach(w.methods, i, m) {
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
    struct tool_wire {
        struct tool_offer_options offer;
        const char *kind;
    } w = {0};
    static const struct json_field table[] = {
        JSON_TEXT("name", struct tool_wire, offer.name),
        JSON_TEXT("kind", struct tool_wire, kind),
        JSON_TEXT("description", struct tool_wire, offer.description),
        JSON_TEXT("input", struct tool_wire, offer.input),
        JSON_TEXT("facet", struct tool_wire, offer.facet),
    };
    const struct tool_offer_options *o = &w.offer;
    int rc = json_table_read(table, ARRAY_LEN(table), v, "a tool", &w, err);
    if (rc < 0)
        return rc;
    if (!o->name || !w.kind || !o->description)
        return err_set(err, ERR_BAD_REQUEST, "needs \"name\", \"kind\" and \"description\"");
    const struct tool *tool = tool_of_kind(w.kind);
    char kinds[128];
    tool_kinds(kinds, sizeof(kinds));
    if (!tool)
        return err_set(err, ERR_BAD_REQUEST, "\"kind\" must be %s", kinds);
    if (tool->needs_facet && (!o->facet || !definition_facet(d, o->facet)))
        return err_set(err, ERR_BAD_REQUEST, "\"facet\" must name one of \"facets\"");
    rc = check_tool_name(d, o->name, err);
    if (rc == 0)
        rc = tool_offer_init(&d->tools[d->ntools], tool, o, err);
    d->ntools += rc == 0;
    return rc;
}

int definition_read_tools(struct agent_def *d, const json_t *list, struct err *err) {
    if (!list)
        return 0;
    d->tools = xcalloc(json_array_size(list), sizeof(*d->tools));
    size_t i;
    const json_t *v;
    json_array_foreach(list, i, v) if (agent_grants_read_tool(d, v, err) <
                                       0) return err_wrap(err, "tools[%zu]", i);
    return 0;
}
