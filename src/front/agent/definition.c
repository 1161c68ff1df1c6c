#include "front/agent/definition_read.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json_table.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/agent/history.h"
#include "front/model/script.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MAX_BYTES = 4 << 20, AGENTS_MAX = 256, TYPE_MAX_BYTES = 60 };

int definition_read_text(const char *dir, const char *name, bool optional, char **ret_text,
                         struct err *err) {
    if (!path_is_plain_name(name, strlen(name)))
        return err_set(err, ERR_BAD_REQUEST, "\"%.80s\" must be a file beside agent.json", name);
    _cleanup_(free) char *path = path_join(dir, name);
    struct buf b;
    buf_init(&b, FILE_MAX_BYTES);
    if (optional && faccessat(AT_FDCWD, path, F_OK, 0) < 0) {
        *ret_text = NULL;
        return 0;
    }
    int rc = fd_read_file(AT_FDCWD, path, &b, err);
    if (rc < 0) {
        buf_finish(&b);
        return rc;
    }
    *ret_text = buf_steal(&b, NULL);
    return 0;
}

static int agent_definition_read_json(const char *dir, const char *name, bool optional,
                                      json_t **ret_json, struct err *err) {
    _cleanup_(free) char *text = NULL;
    int rc = definition_read_text(dir, name, optional, &text, err);
    if (rc == 0 && text)
        rc = json_parse(text, strlen(text), name, ret_json, err);
    return rc;
}

/* --- state --- */

static int read_state_item(struct agent_def *d, struct agent_state_item *s, const json_t *v,
                           struct err *err) {
    struct state_wire {
        const char *facet, *method;
    } w = {0};
    static const struct json_field executions[] = {
        JSON_INT("executions", struct agent_state_item, limit, 1, HISTORY_EXECUTIONS_MAX)};
    static const struct json_field facet[] = {JSON_TEXT("facet", struct state_wire, facet),
                                              JSON_TEXT("method", struct state_wire, method)};
    if (json_object_get(v, "executions")) {
        s->kind = AGENT_STATE_EXECUTIONS;
        s->limit = 20;
        return json_table_read(executions, ARRAY_LEN(executions), v, "the item", s, err);
    }
    if (!json_object_get(v, "facet")) {
        s->kind = AGENT_STATE_VALUE;
        s->value = json_incref((json_t *)(uintptr_t)v);
        return 0;
    }
    s->kind = AGENT_STATE_FACET;
    int rc = json_table_read(facet, ARRAY_LEN(facet), v, "the item", &w, err);
    if (rc < 0)
        return rc;
    s->facet = w.facet ? definition_facet(d, w.facet) : NULL;
    if (!s->facet || !w.method || !agent_facet_has(s->facet, w.method))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"facet\" and \"method\" must name a facet and one of its methods");
    s->method = xstrdup(w.method);
    return 0;
}

static int agent_definition_read_state(struct agent_def *d, const json_t *obj, struct err *err) {
    if (!obj)
        return 0;
    d->state = xcalloc(json_object_size(obj), sizeof(*d->state));
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)obj, key, v) {
        struct agent_state_item *s = &d->state[d->nstate++];
        s->key = xstrdup(key);
        if (read_state_item(d, s, v, err) < 0)
            return err_wrap(err, "state.%s", key);
    }
    return 0;
}

/* --- the whole --- */

static int agent_definition_read_cost(const json_t *v, void *usd, struct err *err) {
    if (!json_is_number(v) || json_number_value(v) <= 0)
        return err_set(err, ERR_BAD_REQUEST, "\"cost_usd\" must be a positive number");
    *(double *)usd = json_number_value(v);
    return 0;
}

static char *agent_definition_copy(const char *text) {
    return text ? xstrdup(text) : NULL;
}

static int read_tries(struct agent_def *d, const json_t *list, struct err *err) {
    size_t i;
    const json_t *v;
    if (!list)
        return 0;
    bool ok = true;
    json_array_foreach(list, i, v) ok = ok && json_is_string(v);
    if (!ok)
        return err_set(err, ERR_BAD_REQUEST, "\"try\" must be a list of texts");
    d->tries = json_incref((json_t *)(uintptr_t)list);
    return 0;
}

static uint64_t hash_text(uint64_t hash, const char *text) {
    for (const char *p = text; p && *p; p++)
        hash = (hash ^ (unsigned char)*p) * UINT64_C(0x100000001b3); /* FNV-1a */
    return hash;
}

static void set_version(struct agent_def *d, const json_t *j) {
    _cleanup_(free) char *text = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS);
    uint64_t hash = hash_text(UINT64_C(0xcbf29ce484222325), text);
    for (size_t i = 0; i < d->nfacets; i++)
        hash = hash_text(hash, d->facets[i].open.schema);
    d->version = xasprintf("%016" PRIx64, hash);
}

static int agent_definition_read_def(struct agent_def *d, const char *dir, const json_t *j,
                                     struct err *err) {
    struct definition_wire {
        const char *title, *description, *model;
        const json_t *facets, *env, *rpc, *tools, *state, *tries, *schema;
        int64_t max_steps, max_tokens;
        struct agent_budget budget;
    } w = {.max_steps = d->max_steps};
    static const struct json_field budget[] = {
        JSON_INT("tokens", struct agent_budget, tokens, 1, INT64_C(1) << 40),
        JSON_READ("cost_usd", struct agent_budget, cost_usd, agent_definition_read_cost),
        JSON_INT("wall_ms", struct agent_budget, wall_ms, 1, 86400000),
    };
    static const struct json_field table[] = {
        JSON_TEXT("title", struct definition_wire, title),
        JSON_TEXT("description", struct definition_wire, description),
        JSON_TEXT("model", struct definition_wire, model),
        JSON_INT("max_steps", struct definition_wire, max_steps, 1, 1000),
        JSON_INT("max_tokens", struct definition_wire, max_tokens, 1, 1000000),
        JSON_MAP("facets", struct definition_wire, facets),
        JSON_MAP("env", struct definition_wire, env),
        JSON_LIST("tools", struct definition_wire, tools),
        JSON_MAP("state", struct definition_wire, state),
        JSON_MAP("rpc", struct definition_wire, rpc),
        JSON_OBJECT("budget", struct definition_wire, budget, budget),
        JSON_LIST("try", struct definition_wire, tries),
        JSON_TREE("$schema", struct definition_wire, schema),
    };
    int rc = json_table_read(table, ARRAY_LEN(table), j, "the definition", &w, err);
    if (rc < 0)
        return rc;
    d->title = agent_definition_copy(w.title);
    d->description = agent_definition_copy(w.description);
    d->model = agent_definition_copy(w.model);
    d->max_steps = w.max_steps;
    d->max_tokens = w.max_tokens;
    d->budget = w.budget;
    rc = definition_read_facets(d, dir, w.facets, err);
    if (rc == 0)
        rc = definition_read_bindings(d, w.env, false, err);
    if (rc == 0)
        rc = definition_read_bindings(d, w.rpc, true, err);
    if (rc == 0)
        rc = definition_read_tools(d, w.tools, err);
    if (rc == 0)
        rc = agent_definition_read_state(d, w.state, err);
    if (rc == 0)
        rc = read_tries(d, w.tries, err);
    if (rc == 0)
        set_version(d, j);
    return rc;
}

static void free_binding(struct agent_binding *b) {
    free(b->name);
    for (size_t i = 0; b->methods && b->methods[i]; i++)
        free(b->methods[i]);
    free(b->methods);
    json_decref(b->json);
}

static void agent_definition_free_def(struct agent_def *d) {
    for (size_t i = 0; i < d->nenv; i++)
        free_binding(&d->env[i]);
    for (size_t i = 0; i < d->nrpc; i++)
        free_binding(&d->rpc[i]);
    for (size_t i = 0; i < d->ntools; i++)
        tool_offer_finish(&d->tools[i]);
    for (size_t i = 0; i < d->nstate; i++) {
        free(d->state[i].key);
        free(d->state[i].method);
        json_decref(d->state[i].value);
    }
    for (size_t i = 0; i < d->nfacets; i++) {
        free(d->facets[i].name);
        facet_open_finish(&d->facets[i].open);
    }
    free(d->env);
    free(d->rpc);
    free(d->tools);
    free(d->state);
    free(d->facets);
    free(d->type);
    free(d->title);
    free(d->description);
    free(d->model);
    free(d->prompt);
    free(d->version);
    json_decref(d->tries);
    json_decref(d->demo);
    free(d);
}

void agent_defs_free(struct agent_def *defs) {
    while (defs) {
        struct agent_def *d = defs;
        defs = d->next;
        agent_definition_free_def(d);
    }
}

static int load_one(const char *root, const char *type, struct agent_def **ret_def,
                    struct err *err) {
    _cleanup_(free) char *dir = path_join(root, type);
    _cleanup_(json) json_t *j = NULL;
    struct agent_def *d = xcalloc(1, sizeof(*d));
    d->type = xstrdup(type);
    d->max_steps = 5;
    const char *file = "agent.json";
    int rc = agent_definition_read_json(dir, file, false, &j, err);
    if (rc == 0)
        rc = agent_definition_read_def(d, dir, j, err);
    if (rc == 0) {
        file = "prompt.md";
        rc = definition_read_text(dir, file, true, &d->prompt, err);
    }
    if (rc == 0) {
        file = "demo.json";
        rc = agent_definition_read_json(dir, file, true, &d->demo, err);
        if (rc == 0 && d->demo)
            rc = script_check(d->demo, err);
    }
    if (rc < 0) {
        agent_definition_free_def(d);
        return err_wrap(err, "agents/%s/%s", type, file);
    }
    if (!d->title)
        d->title = xstrdup(type);
    if (!d->description)
        d->description = xstrdup("");
    *ret_def = d;
    return 0;
}

/* Clients write the type into addresses, in lower case with "-" between the words. */
static int check_type(const char *type, struct err *err) {
    if (strspn(type, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(type) ||
        strlen(type) > TYPE_MAX_BYTES)
        return err_set(err, ERR_BAD_REQUEST,
                       "agents/%.80s: a folder's name has up to %d of a-z, 0-9 and \"-\"", type,
                       TYPE_MAX_BYTES);
    return 0;
}

int agent_defs_load(const char *dir, struct agent_def **ret_defs, struct err *err) {
    struct dirent **names = NULL;
    int n = scandir(dir, &names, NULL, alphasort);
    if (n < 0)
        return err_sys(err, "agents folder %s", dir);
    struct agent_def *first = NULL;
    struct agent_def **last = &first;
    size_t count = 0;
    int rc = 0;
    for (int i = 0; i < n; i++) {
        _cleanup_(free) char *path = xasprintf("%s/%s/agent.json", dir, names[i]->d_name);
        if (rc == 0 && names[i]->d_name[0] != '.' && faccessat(AT_FDCWD, path, F_OK, 0) == 0) {
            rc = count++ < AGENTS_MAX
                     ? check_type(names[i]->d_name, err)
                     : err_set(err, ERR_LIMIT, "%s has over %d agents", dir, AGENTS_MAX);
            if (rc == 0)
                rc = load_one(dir, names[i]->d_name, last, err);
            if (rc == 0)
                last = &(*last)->next;
        }
        free(names[i]);
    }
    free(names);
    if (rc < 0) {
        agent_defs_free(first);
        return rc;
    }
    *ret_defs = first;
    return 0;
}

const struct agent_def *agent_defs_find(const struct agent_def *defs, const char *type) {
    while (defs && strcmp(defs->type, type) != 0)
        defs = defs->next;
    return defs;
}

const struct tool_offer *agent_def_tool(const struct agent_def *def, const char *name) {
    return tool_offer_find(def->tools, def->ntools, name);
}
