#include "front/run/code.h"

#include "base/cleanup.h"
#include "base/json_table.h"
#include "base/mem.h"
#include "wire/compile.h"
#include "wire/isolate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The object as it comes. What a Worker's definition has besides is checked, and not used. */
struct code_wire {
    const char *text, *main, *entrypoint, *method, *id, *title, *date;
    const json_t *modules, *env, *args, *props, *tails, *outbound, *flags;
    struct limits_wire {
        int64_t wall, cpu, memory, output, calls; /* first the most that they may be */
    } limits;
    enum code_language { CODE_JS, CODE_TS, CODE_TSX, CODE_JSX } language;
    enum code_isolation { CODE_FRESH, CODE_RESET } isolation;
    bool verify, public;
};

static const char *const code_languages[] = {"js", "ts", "tsx", "jsx"};
static const char *const code_isolations[] = {"fresh", "reset"};

static const struct json_field limit_fields[] = {
    JSON_INT_UPTO("wall_ms", struct limits_wire, wall, 1),
    JSON_INT_UPTO("cpu_ms", struct limits_wire, cpu, 1),
    JSON_INT_UPTO("cpuMs", struct limits_wire, cpu, 1),
    JSON_INT_UPTO("memory_bytes", struct limits_wire, memory, 16 << 20),
    JSON_INT_UPTO("output_bytes", struct limits_wire, output, 1024),
    JSON_INT_UPTO("binding_calls", struct limits_wire, calls, 0),
    JSON_INT_UPTO("subRequests", struct limits_wire, calls, 0),
};

static const struct json_field code_fields[] = {
    JSON_TEXT("code", struct code_wire, text),
    JSON_ENUM("language", struct code_wire, language, code_languages),
    JSON_TEXT("mainModule", struct code_wire, main),
    JSON_MAP("modules", struct code_wire, modules),
    JSON_MAP("env", struct code_wire, env),
    JSON_OBJECT("limits", struct code_wire, limits, limit_fields),
    JSON_TEXT("entrypoint", struct code_wire, entrypoint),
    JSON_TEXT("method", struct code_wire, method),
    JSON_LIST("args", struct code_wire, args),
    JSON_MAP("props", struct code_wire, props),
    JSON_TEXT("id", struct code_wire, id),
    JSON_ENUM("isolation", struct code_wire, isolation, code_isolations),
    JSON_TEXT("title", struct code_wire, title),
    JSON_BOOL("verify", struct code_wire, verify),
    JSON_LIST("tails", struct code_wire, tails),
    JSON_TREE("globalOutbound", struct code_wire, outbound),
    JSON_TEXT("compatibilityDate", struct code_wire, date),
    JSON_LIST("compatibilityFlags", struct code_wire, flags),
    JSON_BOOL("public", struct code_wire, public),
};
JSON_SHAPE("WorkerCode", code_fields);

bool code_is_worker_id(const char *id) {
    size_t n = strlen(id);
    if (n == 0 || n > 40 || id[0] == '-' || id[n - 1] == '-')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!((id[i] >= 'a' && id[i] <= 'z') || (id[i] >= '0' && id[i] <= '9') || id[i] == '-'))
            return false;
    return true;
}

static void worker_code_set_limits(struct run_limits *l, const struct limits_wire *w,
                                   const struct run_limits *max) {
    *l = *max;
    l->wall_ms = (uint32_t)w->wall;
    l->cpu_ms = (uint32_t)w->cpu;
    l->memory_bytes = (uint64_t)w->memory;
    l->output_bytes = (uint32_t)w->output;
    l->binding_calls = (uint32_t)w->calls;
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

static int worker_code_write_source(struct code *c, const struct code_wire *in,
                                    const struct run_limits *max, struct err *err) {
    if (in->text ? (in->main || in->modules) : (!in->main || !in->modules))
        return err_set(err, ERR_BAD_REQUEST,
                       "send either \"code\" (one module) or \"mainModule\" and \"modules\"");
    struct json_writer w;
    json_writer_init(&w, &c->source);
    json_writer_object_begin(&w);
    char name[16];
    (void)snprintf(name, sizeof(name), "main.%s", code_languages[in->language]);
    json_put_str(&w, "mainModule", in->text ? name : in->main);
    if (in->text) {
        json_put_object_begin(&w, "modules");
        json_put_str(&w, name, in->text);
        json_writer_object_end(&w);
    } else {
        json_put_tree(&w, "modules", in->modules);
    }
    json_writer_object_end(&w);
    if (c->source.full || c->source.len > max->module_bytes)
        return err_set(err, ERR_TOO_LARGE, "the modules exceed %u bytes (limit run_module_bytes)",
                       max->module_bytes);
    const char *shown = in->text ? in->text : shown_code(in->modules, in->main);
    c->main_code = shown ? xstrdup(shown) : NULL;
    return 0;
}

static int write_spec(struct code *c, const struct code_wire *in, struct err *err) {
    struct json_writer w;
    json_writer_init(&w, &c->spec);
    json_writer_object_begin(&w);
    if (in->entrypoint)
        json_put_str(&w, "entrypoint", in->entrypoint);
    if (in->method)
        json_put_str(&w, "method", in->method);
    if (in->args)
        json_put_tree(&w, "args", in->args);
    if (in->props)
        json_put_tree(&w, "props", in->props);
    if (in->verify)
        json_put_bool(&w, "verify", true);
    json_writer_object_end(&w);
    return c->spec.full ? err_set(err, ERR_TOO_LARGE, "\"args\" and \"props\" are too large") : 0;
}

static int check_rest(const struct code_wire *in, struct err *err) {
    if (in->outbound && !json_is_null(in->outbound))
        return err_set(err, ERR_UNSUPPORTED,
                       "\"globalOutbound\" must be null: isolates have no network; hand them a "
                       "binding in \"env\" instead");
    if (in->id && !code_is_worker_id(in->id))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"id\" must have 1 to 40 characters of a-z, 0-9 and \"-\"");
    size_t i;
    const json_t *flag;
    bool texts = true;
    json_array_foreach(in->flags, i, flag) texts = texts && json_is_string(flag);
    return texts
               ? 0
               : err_set(err, ERR_BAD_REQUEST, "\"compatibilityFlags\" must be a list of strings");
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

static int worker_code_add_env(struct code *c, struct json_writer *w, size_t *bindings,
                               const char *key, json_t *v, struct err *err) {
    if (is_binding(v)) {
        if (++*bindings > ENV_BINDINGS_MAX)
            return err_set(err, ERR_TOO_LARGE, "\"env\" may hold at most %d facets and workers",
                           ENV_BINDINGS_MAX);
        c->env[c->nenv++] = (struct code_env_part){.name = xstrdup(key), .json = json_incref(v)};
        return 0;
    }
    const struct code_env_part *p = plain_part(c, w);
    json_put_object_begin(w, key);
    json_put_tree(w, "json", v);
    json_writer_object_end(w);
    return p->text.full ? err_set(err, ERR_TOO_LARGE, "the values of \"env\" are too large") : 0;
}

/* What is plain is written here, where a thread may be at work: it may be megabytes. */
static int write_env(struct code *c, const json_t *env, struct err *err) {
    const char *key;
    json_t *v;
    size_t bindings = 0;
    struct json_writer w = {0};
    json_object_foreach((json_t *)(uintptr_t)env, key, v) {
        int rc = worker_code_add_env(c, &w, &bindings, key, v, err);
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
    struct code_wire in = {.limits = {max->wall_ms, max->cpu_ms, (int64_t)max->memory_bytes,
                                      max->output_bytes, max->binding_calls}};
    int rc = json_table_read(code_fields, ARRAY_LEN(code_fields), json, "the request", &in, err);
    worker_code_set_limits(&c->limits, &in.limits, max);
    if (rc == 0)
        rc = worker_code_write_source(c, &in, max, err);
    if (rc == 0)
        rc = write_spec(c, &in, err);
    if (rc == 0)
        rc = check_rest(&in, err);
    if (rc == 0)
        rc = write_env(c, in.env, err);
    c->id = in.id;
    c->title = in.title;
    c->tails = in.tails;
    c->reset = in.isolation == CODE_RESET;
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
