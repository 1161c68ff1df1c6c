#include "front/run/bindings.h"

#include "base/cleanup.h"
#include "base/json_table.h"
#include "base/mem.h"
#include "front/run/workers.h"
#include "wire/facet.h"

#include <stdlib.h>
#include <string.h>

bool database_is_name(const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++) {
        char ch = name[i];
        if (!((ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
              ch == '_' || ch == '-'))
            return false;
    }
    return n > 0 && n <= DATABASE_NAME_MAX;
}

char *database_dir(const char *data_dir, const char *owner, const char *name) {
    return xasprintf("%s/facets/%s/%s", data_dir, *owner ? owner : "operator", name);
}

static int bindings_read_methods(const json_t *list, char ***ret_methods, struct err *err) {
    *ret_methods = NULL;
    if (!list)
        return 0;
    int rc = json_check_no_nul(list, "methods", err);
    if (rc < 0)
        return rc;
    size_t n = json_array_size(list);
    char **out = xcalloc(n + 1, sizeof(*out));
    size_t i;
    const json_t *v;
    json_array_foreach(list, i, v) {
        if (!json_is_string(v) || json_string_length(v) > FACET_NAME_MAX) {
            for (size_t k = 0; k < i; k++)
                free(out[k]);
            free(out);
            return err_set(err, ERR_BAD_REQUEST, "\"methods\" must be a list of names");
        }
        out[i] = xstrdup(json_string_value(v));
    }
    *ret_methods = out;
    return 0;
}

/* Whose env it is, and what it may hold. */
struct bindings_scope {
    const struct bindings *bindings;
    const char *owner;
    const json_t *grants; /* NULL: all */
};

static int bind_facet(struct env_item *item, const json_t *v, const struct bindings_scope *scope,
                      struct err *err) {
    struct facet_wire {
        const char *name;
        const json_t *methods;
    } w = {0};
    static const struct json_field table[] = {JSON_TEXT("$facet", struct facet_wire, name),
                                              JSON_LIST("methods", struct facet_wire, methods)};
    int rc = json_table_read(table, ARRAY_LEN(table), v, "a facet in \"env\"", &w, err);
    const char *name = w.name;
    if (rc == 0 && (!name || !database_is_name(name)))
        rc = err_set(err, ERR_BAD_REQUEST,
                     "\"$facet\" must be a name of 1 to 64 letters, digits, \"_\" and \"-\"");
    if (rc == 0 && !key_is_granted(scope->grants, "facets", name))
        rc = err_set(err, ERR_FORBIDDEN, "this key may not use the facet \"%s\"", name);
    if (rc == 0)
        rc = bindings_read_methods(w.methods, &item->methods, err);
    if (rc < 0)
        return rc;
    item->kind = ENV_FACET;
    item->facet_dir = database_dir(scope->bindings->data_dir, scope->owner, name);
    return 0;
}

static int bind_worker(struct env_item *item, const json_t *v, const struct bindings_scope *scope,
                       struct err *err) {
    struct worker_wire {
        const char *id, *entrypoint;
        const json_t *props;
    } w = {0};
    static const struct json_field table[] = {
        JSON_TEXT("$worker", struct worker_wire, id),
        JSON_TEXT("entrypoint", struct worker_wire, entrypoint),
        JSON_TREE("props", struct worker_wire, props),
    };
    int rc = json_table_read(table, ARRAY_LEN(table), v, "a worker in \"env\"", &w, err);
    if (rc == 0 && (!w.id || !code_is_worker_id(w.id)))
        rc = err_set(err, ERR_BAD_REQUEST, "\"$worker\" must be the id of a worker");
    if (rc == 0 && !key_is_granted(scope->grants, "workers", w.id))
        rc = err_set(err, ERR_FORBIDDEN, "this key may not use the worker \"%s\"", w.id);
    if (rc < 0)
        return rc;
    item->kind = ENV_WORKER;
    return workers_connect(scope->bindings->workers, scope->owner, w.id, w.entrypoint, w.props,
                           &item->fd, err);
}

/* What the key may use now; NULL: all that its project has. */
static int grants_of(const struct bindings *b, const char *key, json_t **ret_grants,
                     struct err *err) {
    struct identity who;
    *ret_grants = NULL;
    if (!*key)
        return 0;
    if (!b->keys)
        return err_set(err, ERR_FORBIDDEN, "no key is known here that could use a facet");
    int rc = key_identity(b->keys, key, &who, err);
    if (rc == 0)
        *ret_grants = key_grants(&who);
    return rc;
}

static int bindings_bind_all(struct code *c, const struct bindings_scope *scope, struct env *env,
                             struct err *err) {
    int rc = 0;
    env->items = xcalloc(c->nenv, sizeof(*env->items));
    for (size_t i = 0; rc == 0 && i < c->nenv; i++) {
        struct code_env_part *p = &c->env[i];
        struct env_item *item = &env->items[env->n++];
        *item = (struct env_item){.name = p->name ? xstrdup(p->name) : NULL, .fd = -1};
        if (!p->name) {
            item->kind = ENV_TEXT;
            item->text = &p->text;
        } else if (!scope->bindings) {
            rc = err_set(err, ERR_UNSUPPORTED, "facets and workers by name need a running server");
        } else if (json_object_get(p->json, "$facet")) {
            rc = bind_facet(item, p->json, scope, err);
        } else {
            rc = bind_worker(item, p->json, scope, err);
        }
    }
    return rc;
}

int bindings_make(const struct bindings *b, const char *owner, const char *key, struct code *c,
                  struct env *ret_env, struct err *err) {
    struct env env = {.facet_open = b ? b->facet_open : NULL};
    _cleanup_(json) json_t *grants = NULL;
    bool named = false;
    int rc = 0;
    for (size_t i = 0; i < c->nenv; i++)
        named = named || c->env[i].name;
    if (named && b)
        rc = grants_of(b, key, &grants, err);
    if (rc == 0 && c->nenv > 0)
        rc = bindings_bind_all(
            c, &(struct bindings_scope){.bindings = b, .owner = owner, .grants = grants}, &env,
            err);
    if (rc < 0)
        env_finish(&env);
    else
        *ret_env = env;
    return rc;
}
