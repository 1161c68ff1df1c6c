#include "front/run/code.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/run/workers.h"
#include "wire/compile.h"
#include "wire/isolate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const code_keys[] = {"code",
                                        "language",
                                        "mainModule",
                                        "modules",
                                        "env",
                                        "limits",
                                        "entrypoint",
                                        "method",
                                        "args",
                                        "props",
                                        "id",
                                        "isolation",
                                        "title",
                                        "verify",
                                        "tails",
                                        "globalOutbound",
                                        "compatibilityDate",
                                        "compatibilityFlags",
                                        "public",
                                        NULL};

bool code_is_worker_id(const char *id) {
    size_t n = strlen(id);
    if (n == 0 || n > 40 || id[0] == '-' || id[n - 1] == '-')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!((id[i] >= 'a' && id[i] <= 'z') || (id[i] >= '0' && id[i] <= '9') || id[i] == '-'))
            return false;
    return true;
}

static int read_limits(struct run_limits *l, const json_t *obj, const struct run_limits *max,
                       struct err *err) {
    *l = *max;
    if (!obj || json_is_null(obj))
        return 0;
    static const char *const keys[] = {
        "wall_ms",      "cpu_ms",        "cpuMs",       "memory_bytes",
        "output_bytes", "binding_calls", "subRequests", NULL};
    int rc = json_check_keys(obj, "\"limits\"", keys, err);
    int64_t wall = l->wall_ms;
    int64_t cpu = l->cpu_ms;
    int64_t memory = (int64_t)l->memory_bytes;
    int64_t output = l->output_bytes;
    int64_t calls = l->binding_calls;
    if (rc == 0)
        rc = json_get_int(obj, "wall_ms", 1, max->wall_ms, &wall, err);
    if (rc == 0)
        rc = json_get_int(obj, "cpu_ms", 1, max->cpu_ms, &cpu, err);
    if (rc == 0)
        rc = json_get_int(obj, "cpuMs", 1, max->cpu_ms, &cpu, err);
    if (rc == 0)
        rc = json_get_int(obj, "memory_bytes", 16 << 20, (int64_t)max->memory_bytes, &memory, err);
    if (rc == 0)
        rc = json_get_int(obj, "output_bytes", 1024, max->output_bytes, &output, err);
    if (rc == 0)
        rc = json_get_int(obj, "binding_calls", 0, max->binding_calls, &calls, err);
    if (rc == 0)
        rc = json_get_int(obj, "subRequests", 0, max->binding_calls, &calls, err);
    if (rc < 0)
        return err_wrap(err, "limits");
    l->wall_ms = (uint32_t)wall;
    l->cpu_ms = (uint32_t)cpu;
    l->memory_bytes = (uint64_t)memory;
    l->output_bytes = (uint32_t)output;
    l->binding_calls = (uint32_t)calls;
    return 0;
}

static const char *module_text(const json_t *m) {
    if (json_is_string(m))
        return json_string_value(m);
    static const char *const kinds[] = {"js", "ts", "tsx", "jsx", "cjs"};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        const char *t = json_string_value(json_object_get(m, kinds[i]));
        if (t)
            return t;
    }
    return NULL;
}

/* What a person would call the code: the user's module where a harness is the main one. */
static const char *shown_code(const json_t *modules, const char *main) {
    const char *user = module_text(json_object_get(modules, "user-code.js"));
    return user ? user : module_text(json_object_get(modules, main));
}

static int write_source(struct code *c, const json_t *json, const struct run_limits *max,
                        struct err *err) {
    const char *text = NULL;
    const char *main = NULL;
    const char *language = "js";
    int rc = json_get_str(json, "code", &text, err);
    if (rc == 0)
        rc = json_get_str(json, "mainModule", &main, err);
    if (rc == 0)
        rc = json_get_str(json, "language", &language, err);
    if (rc < 0)
        return rc;
    const json_t *modules = json_object_get(json, "modules");
    if (text ? (main || modules) : (!main || !json_is_object(modules)))
        return err_set(err, ERR_BAD_REQUEST,
                       "send either \"code\" (one module) or \"mainModule\" and \"modules\"");
    static const char *const languages[] = {"js", "ts", "tsx", "jsx", NULL};
    size_t i = 0;
    while (languages[i] && strcmp(languages[i], language) != 0)
        i++;
    if (!languages[i])
        return err_set(err, ERR_BAD_REQUEST, "\"language\" must be js, ts, tsx or jsx");
    struct json_writer w;
    json_writer_init(&w, &c->source);
    json_writer_object_begin(&w);
    json_writer_key(&w, "mainModule");
    char name[16];
    (void)snprintf(name, sizeof(name), "main.%s", language);
    json_writer_str(&w, text ? name : main);
    json_writer_key(&w, "modules");
    if (text) {
        json_writer_object_begin(&w);
        json_writer_key(&w, name);
        json_writer_str(&w, text);
        json_writer_object_end(&w);
    } else {
        json_writer_tree(&w, modules);
    }
    json_writer_object_end(&w);
    if (c->source.full || c->source.len > max->module_bytes)
        return err_set(err, ERR_TOO_LARGE, "the modules exceed %u bytes (limit run_module_bytes)",
                       max->module_bytes);
    const char *shown = text ? text : shown_code(modules, main);
    c->main_code = shown ? xstrdup(shown) : NULL;
    return 0;
}

static int write_spec(struct code *c, const json_t *json, struct err *err) {
    const char *entrypoint = NULL;
    const char *method = NULL;
    bool verify = false;
    int rc = json_get_str(json, "entrypoint", &entrypoint, err);
    if (rc == 0)
        rc = json_get_str(json, "method", &method, err);
    if (rc == 0)
        rc = json_get_bool(json, "verify", &verify, err);
    const json_t *args = json_object_get(json, "args");
    const json_t *props = json_object_get(json, "props");
    if (rc == 0 && args && !json_is_array(args))
        rc = err_set(err, ERR_BAD_REQUEST, "\"args\" must be a list");
    if (rc == 0 && props && !json_is_object(props))
        rc = err_set(err, ERR_BAD_REQUEST, "\"props\" must be an object");
    if (rc < 0)
        return rc;
    struct json_writer w;
    json_writer_init(&w, &c->spec);
    json_writer_object_begin(&w);
    if (entrypoint) {
        json_writer_key(&w, "entrypoint");
        json_writer_str(&w, entrypoint);
    }
    if (method) {
        json_writer_key(&w, "method");
        json_writer_str(&w, method);
    }
    if (args) {
        json_writer_key(&w, "args");
        json_writer_tree(&w, args);
    }
    if (props) {
        json_writer_key(&w, "props");
        json_writer_tree(&w, props);
    }
    if (verify) {
        json_writer_key(&w, "verify");
        json_writer_bool(&w, true);
    }
    json_writer_object_end(&w);
    return c->spec.full ? err_set(err, ERR_TOO_LARGE, "\"args\" and \"props\" are too large") : 0;
}

/* What else a Worker's definition has. */
static int check_unused(const json_t *json, struct err *err) {
    const char *date = NULL;
    bool public = false;
    size_t i;
    const json_t *flag;
    const json_t *flags = json_object_get(json, "compatibilityFlags");
    int rc = json_get_str(json, "compatibilityDate", &date, err);
    if (rc == 0)
        rc = json_get_bool(json, "public", &public, err);
    bool texts = !flags || json_is_null(flags) || json_is_array(flags);
    json_array_foreach(flags, i, flag) texts = texts && json_is_string(flag);
    if (rc == 0 && !texts)
        rc = err_set(err, ERR_BAD_REQUEST, "\"compatibilityFlags\" must be a list of strings");
    return rc;
}

static int check_rest(struct code *c, const json_t *json, struct err *err) {
    const json_t *outbound = json_object_get(json, "globalOutbound");
    if (outbound && !json_is_null(outbound))
        return err_set(err, ERR_UNSUPPORTED,
                       "\"globalOutbound\" must be null: isolates have no network; hand them a "
                       "binding in \"env\" instead");
    int rc = json_get_str(json, "id", &c->id, err);
    if (rc == 0 && c->id && !code_is_worker_id(c->id))
        rc = err_set(err, ERR_BAD_REQUEST,
                     "\"id\" must have 1 to 40 characters of a-z, 0-9 and \"-\"");
    if (rc == 0)
        rc = json_get_str(json, "title", &c->title, err);
    const char *isolation = "fresh";
    if (rc == 0)
        rc = json_get_str(json, "isolation", &isolation, err);
    c->reset = strcmp(isolation, "reset") == 0;
    if (rc == 0 && !c->reset && strcmp(isolation, "fresh") != 0)
        rc = err_set(err, ERR_BAD_REQUEST, "\"isolation\" must be fresh or reset");
    c->tails = json_object_get(json, "tails");
    if (rc == 0 && c->tails && !json_is_array(c->tails))
        rc = err_set(err, ERR_BAD_REQUEST, "\"tails\" must be a list");
    return rc < 0 ? rc : check_unused(json, err);
}

static bool is_binding(const json_t *v) {
    return json_object_get(v, "$facet") || json_object_get(v, "$worker");
}

/* Where the next plain value goes: behind the last one, if that was plain too. */
static struct code_env_part *plain_part(struct code *c, struct json_writer *w) {
    if (c->nenv > 0 && !c->env[c->nenv - 1].name)
        return &c->env[c->nenv - 1];
    struct code_env_part *p = &c->env[c->nenv++];
    buf_init(&p->text, ISOLATE_FRAME_MAX);
    json_writer_init(w, &p->text);
    return p;
}

static int add_env(struct code *c, struct json_writer *w, size_t *bindings, const char *key,
                   json_t *v, struct err *err) {
    if (is_binding(v)) {
        if (++*bindings > ENV_BINDINGS_MAX)
            return err_set(err, ERR_TOO_LARGE, "\"env\" may hold at most %d facets and workers",
                           ENV_BINDINGS_MAX);
        c->env[c->nenv++] = (struct code_env_part){.name = xstrdup(key), .json = json_incref(v)};
        return 0;
    }
    const struct code_env_part *p = plain_part(c, w);
    json_writer_key(w, key);
    json_writer_object_begin(w);
    json_writer_key(w, "json");
    json_writer_tree(w, v);
    json_writer_object_end(w);
    return p->text.full ? err_set(err, ERR_TOO_LARGE, "the values of \"env\" are too large") : 0;
}

/* What is plain is written here, where a thread may be at work: it may be megabytes. */
static int write_env(struct code *c, json_t *env, struct err *err) {
    const char *key;
    json_t *v;
    size_t bindings = 0;
    struct json_writer w = {0};
    if (!env || json_is_null(env))
        return 0;
    if (!json_is_object(env))
        return err_set(err, ERR_BAD_REQUEST, "\"env\" must be an object");
    json_object_foreach(env, key, v) {
        int rc = add_env(c, &w, &bindings, key, v, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static void hash_env(struct code *c) {
    struct buf b;
    buf_init(&b, (size_t)2 * ISOLATE_FRAME_MAX);
    for (size_t i = 0; i < c->nenv; i++) {
        const struct code_env_part *p = &c->env[i];
        if (p->name) {
            json_write_str(&b, p->name, strlen(p->name));
            (void)json_dump(p->json, &b);
        }
        (void)buf_add(&b, p->text.data, p->text.len);
        (void)buf_add_char(&b, '\n');
    }
    programs_hash(b.data, b.len, c->env_hash);
    buf_finish(&b);
}

int code_read(struct code *c, const json_t *json, const struct run_limits *max, struct err *err) {
    *c = (struct code){0};
    buf_init(&c->source, COMPILE_FRAME_MAX);
    buf_init(&c->spec, ISOLATE_FRAME_MAX);
    int rc = json_check_keys(json, "the request", code_keys, err);
    if (rc == 0)
        rc = read_limits(&c->limits, json_object_get(json, "limits"), max, err);
    if (rc == 0)
        rc = write_source(c, json, max, err);
    if (rc == 0)
        rc = write_spec(c, json, err);
    if (rc == 0)
        rc = check_rest(c, json, err);
    if (rc == 0)
        rc = write_env(c, json_object_get(json, "env"), err);
    if (rc < 0) {
        code_finish(c);
        return rc;
    }
    programs_hash(c->source.data, c->source.len, c->source_hash);
    if (c->id || c->reset)
        hash_env(c);
    return 0;
}

void code_finish(struct code *c) {
    buf_finish(&c->source);
    buf_finish(&c->spec);
    free(c->main_code);
    c->main_code = NULL;
    for (size_t i = 0; i < c->nenv; i++) {
        buf_finish(&c->env[i].text);
        free(c->env[i].name);
        json_decref(c->env[i].json);
    }
    c->nenv = 0;
}

char *code_domain(const struct code *c, const char *owner) {
    char hex[2 * PROGRAM_HASH_SIZE + 1];
    for (size_t i = 0; i < PROGRAM_HASH_SIZE; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", c->env_hash[i]);
    return xasprintf("%s\n%s", owner, hex);
}

/* --- env --- */

static bool is_facet_name(const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++) {
        char ch = name[i];
        if (!((ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
              ch == '_' || ch == '-'))
            return false;
    }
    return n > 0 && n <= 64;
}

static bool is_granted(const json_t *grants, const char *kind, const char *name) {
    const json_t *list = json_object_get(grants, kind);
    if (!list)
        return grants == NULL || !json_is_object(grants);
    size_t i;
    const json_t *v;
    json_array_foreach(list, i,
                       v) if (json_is_string(v) && !strcmp(json_string_value(v), name)) return true;
    return false;
}

static int read_methods(const json_t *list, char ***ret_methods, struct err *err) {
    *ret_methods = NULL;
    if (!list || json_is_null(list))
        return 0;
    if (!json_is_array(list))
        return err_set(err, ERR_BAD_REQUEST, "\"methods\" must be a list of names");
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

static int read_facet(struct env_item *item, const json_t *v, const struct env_scope *scope,
                      struct err *err) {
    static const char *const keys[] = {"$facet", "methods", NULL};
    const char *name = json_string_value(json_object_get(v, "$facet"));
    int rc = json_check_keys(v, "a facet in \"env\"", keys, err);
    if (rc == 0 && (!name || !is_facet_name(name)))
        rc = err_set(err, ERR_BAD_REQUEST,
                     "\"$facet\" must be a name of 1 to 64 letters, digits, \"_\" and \"-\"");
    if (rc == 0 && !is_granted(scope->grants, "facets", name))
        rc = err_set(err, ERR_FORBIDDEN, "this key may not use the facet \"%s\"", name);
    if (rc == 0)
        rc = read_methods(json_object_get(v, "methods"), &item->methods, err);
    if (rc < 0)
        return rc;
    item->kind = ENV_FACET;
    item->facet_dir = path_join(scope->facets_dir, name);
    return 0;
}

static int read_worker(struct env_item *item, const json_t *v, const struct env_scope *scope,
                       struct err *err) {
    static const char *const keys[] = {"$worker", "entrypoint", "props", NULL};
    const char *id = json_string_value(json_object_get(v, "$worker"));
    const char *entrypoint = NULL;
    int rc = json_check_keys(v, "a worker in \"env\"", keys, err);
    if (rc == 0 && (!id || !code_is_worker_id(id)))
        rc = err_set(err, ERR_BAD_REQUEST, "\"$worker\" must be the id of a worker");
    if (rc == 0 && !is_granted(scope->grants, "workers", id))
        rc = err_set(err, ERR_FORBIDDEN, "this key may not use the worker \"%s\"", id);
    if (rc == 0)
        rc = json_get_str(v, "entrypoint", &entrypoint, err);
    if (rc < 0)
        return rc;
    item->kind = ENV_WORKER;
    return workers_connect(scope->workers, scope->owner, id, entrypoint,
                           json_object_get(v, "props"), &item->fd, err);
}

int code_read_env(struct code *c, const struct env_scope *scope, struct env *ret_env,
                  struct err *err) {
    *ret_env = (struct env){0};
    if (c->nenv == 0)
        return 0;
    ret_env->items = xcalloc(c->nenv, sizeof(*ret_env->items));
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->nenv; i++) {
        struct code_env_part *p = &c->env[i];
        struct env_item *item = &ret_env->items[ret_env->n++];
        *item = (struct env_item){.name = p->name ? xstrdup(p->name) : NULL, .fd = -1};
        if (!p->name) {
            item->kind = ENV_TEXT;
            item->text = &p->text;
        } else if (json_object_get(p->json, "$facet")) {
            rc = read_facet(item, p->json, scope, err);
        } else {
            rc = read_worker(item, p->json, scope, err);
        }
    }
    if (rc < 0)
        env_finish(ret_env);
    return rc;
}
