#include "compile/quick.h"

#include "base/cleanup.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "compile/plain.h"
#include "compile/symbols.h"

#include <stdlib.h>
#include <string.h>

enum {
    MODULES_MAX = 500, /* as in js/compile.js */
    NAME_MAX_BYTES = 128,
    SOURCE_MAX_BYTES = 4 << 20, /* of the whole request: js/compile.js counts the modules */
    ARG_VALUE = 0,              /* these two as in js/emit.js */
    ARG_HOLDER = 7,
};

/* js/specifiers.js has the same. */
static const char *const workers_names[] = {
    "DurableObject",    "RpcPromise",         "RpcProperty", "RpcStub", "RpcTarget", "ServiceStub",
    "WorkerEntrypoint", "WorkflowEntrypoint", "env",         "exports", "waitUntil", "withEnv",
    "withExports",      "withEnvAndExports",
};
static const char *const sockets_names[] = {"connect", "internalNewHttpClient"};
static const struct quick_builtin {
    const char *name;
    const char *const *names;
    size_t count;
} builtins[] = {
    {"cloudflare:workers", workers_names, ARRAY_LEN(workers_names)},
    {"cloudflare:sockets", sockets_names, ARRAY_LEN(sockets_names)},
};

/* What the request gives under a name. */
struct quick_given {
    struct plain_text name;
    struct plain_text source;
    int module; /* -1: nobody has asked for it yet */
};

enum visit { VISIT_NONE, VISIT_OPEN, VISIT_DONE };

struct quick_module {
    struct plain_text name;
    const struct quick_builtin *builtin; /* NULL: one that was given */
    struct plain plain;
    struct buf deps; /* int: the module of each request */
    uint32_t used;   /* of a built-in: a bit for each name */
    enum visit visit;
};

struct quick {
    struct symbols names;         /* of the modules that were given */
    uint32_t first;               /* their first number */
    struct buf given;             /* struct quick_given */
    struct quick_module *modules; /* room for all that were given and all built-in ones */
    size_t nmodules;
    int built_in[ARRAY_LEN(builtins)]; /* the module of each, -1: none */
    char *text;                        /* the decoded strings */
};

static bool compile_quick_is_same(struct plain_text a, const char *b) {
    return strlen(b) == a.len && memcmp(a.text, b, a.len) == 0;
}

/* --- the request --- */

struct quick_cursor {
    const char *at, *end;
    char *to; /* where the next decoded byte goes */
};

static bool compile_quick_take(struct quick_cursor *c, const char *text) {
    size_t n = strlen(text);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, text, n) != 0)
        return false;
    c->at += n;
    return true;
}

/* Behind the backslash: a character that may stand in a plain source. A \r has its \n behind it. */
static bool decode_escape(struct quick_cursor *c) {
    static const char from[] = "nt\"\\/";
    static const char to[] = "\n\t\"\\/";
    if (c->at == c->end)
        return false;
    char e = *c->at++;
    const char *known = e ? strchr(from, e) : NULL;
    if (!known && (e != 'r' || c->end - c->at < 2 || memcmp(c->at, "\\n", 2) != 0))
        return false;
    *c->to++ = known ? to[known - from] : '\r';
    return true;
}

/* A character that is not ASCII, and is no control character or end of a line either. */
static bool decode_sequence(struct quick_cursor *c) {
    size_t n = utf8_sequence(c->at, (size_t)(c->end - c->at));
    if (n < 2 || (n == 2 && memcmp(c->at, "\xc2\xa0", 2) < 0) ||
        (n == 3 && (memcmp(c->at, "\u2028", 3) == 0 || memcmp(c->at, "\u2029", 3) == 0)))
        return false;
    memcpy(c->to, c->at, n);
    c->at += n;
    c->to += n;
    return true;
}

static bool decode_string(struct quick_cursor *c, struct plain_text *ret) {
    char *from = c->to;
    if (!compile_quick_take(c, "\""))
        return false;
    while (c->at < c->end && *c->at != '"') {
        unsigned char u = (unsigned char)*c->at;
        if (u >= 0x20 && u < 0x7f && u != '\\') {
            *c->to++ = *c->at++;
        } else if (u == '\\') {
            c->at++;
            if (!decode_escape(c))
                return false;
        } else if (u < 0x80 || !decode_sequence(c)) {
            return false;
        }
    }
    *ret = (struct plain_text){from, (size_t)(c->to - from)};
    return compile_quick_take(c, "\"");
}

/* A name whose path is itself, of a module in JavaScript. */
static bool name_is_plain(struct plain_text name) {
    for (size_t i = 0; i < name.len; i++) {
        char c = name.text[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
            c != '-' && c != '_' && c != '.')
            return false;
    }
    return name.len > 3 && name.len <= NAME_MAX_BYTES &&
           memcmp(name.text + name.len - 3, ".js", 3) == 0;
}

static bool read_given(struct quick *q, struct quick_cursor *c) {
    struct quick_given g = {.module = -1};
    size_t n = PLAIN_COUNT(&q->given, g);
    if (!decode_string(c, &g.name) || !compile_quick_take(c, ":") || !decode_string(c, &g.source) ||
        !name_is_plain(g.name))
        return false;
    /* Not twice the same. */
    return symbols_add(&q->names, g.name.text, g.name.len) == q->first + n &&
           buf_add(&q->given, &g, sizeof(g));
}

static bool compile_quick_read_request(struct quick *q, const char *request, size_t len,
                                       struct plain_text *ret_main) {
    q->text = xmalloc(len + 1);
    struct quick_cursor c = {request, request + len, q->text};
    if (!compile_quick_take(&c, "{\"mainModule\":") || !decode_string(&c, ret_main) ||
        !compile_quick_take(&c, ",\"modules\":{"))
        return false;
    do {
        if (!read_given(q, &c))
            return false;
    } while (compile_quick_take(&c, ","));
    size_t room = PLAIN_COUNT(&q->given, struct quick_given) + ARRAY_LEN(builtins);
    q->modules = xcalloc(room, sizeof(*q->modules));
    return compile_quick_take(&c, "}}") && c.at == c.end;
}

/* --- the graph --- */

static int compile_quick_add_module(struct quick *q, struct plain_text name,
                                    const struct quick_builtin *builtin) {
    struct quick_module *m = &q->modules[q->nmodules];
    m->name = name;
    m->builtin = builtin;
    buf_init(&m->deps, SOURCE_MAX_BYTES);
    return (int)q->nmodules++;
}

static int load_builtin(struct quick *q, size_t i) {
    if (q->built_in[i] < 0)
        q->built_in[i] = compile_quick_add_module(
            q, (struct plain_text){builtins[i].name, strlen(builtins[i].name)}, &builtins[i]);
    return q->built_in[i];
}

/* The module that a specifier means, read if it is new; -1: it is not plain, or not there. */
static int compile_quick_load(struct quick *q, struct plain_text specifier) {
    for (size_t i = 0; i < ARRAY_LEN(builtins); i++)
        if (compile_quick_is_same(specifier, builtins[i].name))
            return load_builtin(q, i);
    if (specifier.len > 2 && memcmp(specifier.text, "./", 2) == 0)
        specifier = (struct plain_text){specifier.text + 2, specifier.len - 2};
    uint32_t number = symbols_find(&q->names, specifier.text, specifier.len);
    if (number == SYMBOL_NONE || number < q->first)
        return -1;
    struct quick_given *g = PLAIN_AT(&q->given, struct quick_given, number - q->first);
    if (g->module < 0) {
        g->module = compile_quick_add_module(q, g->name, NULL);
        if (!plain_read(g->source.text, g->source.len, &q->modules[g->module].plain))
            return -1;
    }
    return g->module;
}

/* In the order in which js/compile.js loads them. */
static bool load_all(struct quick *q) {
    for (size_t i = 0; i < q->nmodules; i++) {
        struct quick_module *m = &q->modules[i];
        const struct buf *requests = &m->plain.requests;
        for (size_t k = 0; k < PLAIN_COUNT(requests, struct plain_text); k++) {
            int dep = compile_quick_load(q, *PLAIN_AT(requests, struct plain_text, k));
            if (dep < 0 || !buf_add(&m->deps, &dep, sizeof(dep)))
                return false;
        }
    }
    return true;
}

/* At most MODULES_MAX deep. */
static bool is_cyclic(struct quick *q, int index) {
    struct quick_module *m = &q->modules[index];
    if (m->visit != VISIT_NONE)
        return m->visit == VISIT_OPEN;
    m->visit = VISIT_OPEN;
    for (size_t i = 0; i < PLAIN_COUNT(&m->deps, int); i++)
        if (is_cyclic(q, *PLAIN_AT(&m->deps, int, i)))
            return true;
    m->visit = VISIT_DONE;
    return false;
}

/* The place of an export among those of its module; -1: there is none. */
static int find_export(const struct quick_module *m, struct plain_text name) {
    const struct buf *b = &m->plain.exports;
    for (size_t i = 0; m->builtin && i < m->builtin->count; i++)
        if (compile_quick_is_same(name, m->builtin->names[i]))
            return (int)i;
    for (size_t i = 0; i < PLAIN_COUNT(b, struct plain_export); i++) {
        const struct plain_export *e = PLAIN_AT(b, struct plain_export, i);
        if (e->name.len == name.len && memcmp(e->name.text, name.text, name.len) == 0)
            return (int)i;
    }
    return -1;
}

/* Finds what each import means; of built-in modules, which names are used at all. */
static bool link_all(struct quick *q) {
    for (size_t i = 0; i < q->nmodules; i++) {
        const struct quick_module *m = &q->modules[i];
        const struct buf *b = &m->plain.imports;
        for (size_t k = 0; k < PLAIN_COUNT(b, struct plain_import); k++) {
            struct plain_import *p = PLAIN_AT(b, struct plain_import, k);
            p->module = *PLAIN_AT(&m->deps, int, p->request);
            p->slot = find_export(&q->modules[p->module], p->name);
            if (p->slot < 0)
                return false;
            if (q->modules[p->module].builtin)
                q->modules[p->module].used |= 1U << p->slot;
        }
    }
    return !is_cyclic(q, 0);
}

/* --- the response --- */

static int compile_quick_slot_of(const struct quick_module *from, int slot) {
    /* Only the names that are used count. */
    return from->builtin ? __builtin_popcount(from->used & ((1U << slot) - 1)) : slot;
}

static void write_edit(struct buf *out, const struct plain *m, const struct plain_edit *e) {
    (void)buf_add_str(out, e->text);
    for (size_t i = e->start + strlen(e->text); i < e->end; i++)
        (void)buf_add_char(out, m->text[i] == '\n' || m->text[i] == '\r' ? m->text[i] : ' ');
}

static void compile_quick_write_body(struct buf *out, const struct plain *m) {
    size_t at = 0;
    for (size_t i = 0; i < PLAIN_COUNT(&m->edits, struct plain_edit); i++) {
        const struct plain_edit *e = PLAIN_AT(&m->edits, struct plain_edit, i);
        (void)buf_add(out, m->text + at, e->start - at);
        write_edit(out, m, e);
        at = e->end;
    }
    (void)buf_add(out, m->text + at, m->len - at);
}

/* In UTF-16, which is what engines count. */
static size_t compile_quick_units(const char *text, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)text[i] & 0xc0) != 0x80 ? 1 + ((unsigned char)text[i] >= 0xf0) : 0;
    return n;
}

/* The columns that have moved: behind the head, and behind what closes the holder. */
static void compile_quick_write_map(struct buf *out, const struct plain *m, size_t head) {
    (void)buf_addf(out, "[1,0,%zu", head);
    for (size_t i = 0; i < PLAIN_COUNT(&m->edits, struct plain_edit); i++) {
        const struct plain_edit *e = PLAIN_AT(&m->edits, struct plain_edit, i);
        if (e->start < e->end)
            continue;
        const char *line = memrchr(m->text, '\n', e->start);
        size_t number = 1;
        for (const char *p = m->text; line && p <= line; number++)
            p = (const char *)memchr(p, '\n', (size_t)(line - p) + 1) + 1;
        size_t from = line ? (size_t)(line - m->text) + 1 : 0;
        size_t moved = strlen(e->text) + (line ? 0 : head);
        (void)buf_addf(out, ",%zu,%zu,%zu", number,
                       compile_quick_units(m->text + from, e->start - from) + moved, moved);
    }
    (void)buf_add_char(out, ']');
}

/* The names of the parameters, and what the loader is to give for them. */
static void write_parameters(const struct quick *q, const struct plain *m, struct buf *code,
                             struct buf *args) {
    const struct buf *b = &m->imports;
    for (size_t i = 0; i < PLAIN_COUNT(b, struct plain_import); i++) {
        const struct plain_import *p = PLAIN_AT(b, struct plain_import, i);
        (void)buf_addf(code, "%s%.*s", i ? "," : "", (int)p->local.len, p->local.text);
        (void)buf_addf(args, "%s%d,%d,%d", i ? "," : "", ARG_VALUE, p->module,
                       compile_quick_slot_of(&q->modules[p->module], p->slot));
    }
    if (!m->has_holder)
        return;
    (void)buf_addf(code, "%s" PLAIN_HOLDER, b->len ? "," : "");
    (void)buf_addf(args, "%s%d,0,0", b->len ? "," : "", ARG_HOLDER);
}

static void write_results(const struct plain *m, struct buf *code) {
    size_t n = PLAIN_COUNT(&m->exports, struct plain_export);
    if (n > 0)
        (void)buf_add_str(code, "\n;return[");
    for (size_t i = 0; i < n; i++) {
        const struct plain_export *e = PLAIN_AT(&m->exports, struct plain_export, i);
        if (i > 0)
            (void)buf_add_char(code, ',');
        if (e->local.len > 0)
            (void)buf_add(code, e->local.text, e->local.len);
        else
            (void)buf_add_str(code, PLAIN_HOLDER ".default");
    }
    (void)buf_add_str(code, n > 0 ? "]})" : "\n})");
}

struct quick_export {
    struct plain_text name;
    size_t slot;
};

static int compare_exports(const void *a, const void *b) {
    const struct plain_text *x = &((const struct quick_export *)a)->name;
    const struct plain_text *y = &((const struct quick_export *)b)->name;
    int order = memcmp(x->text, y->text, MIN(x->len, y->len));
    return order ? order : (x->len > y->len) - (x->len < y->len);
}

/* The exports of the main module, by name: name, module, slot. */
static void write_exports(const struct plain *m, struct buf *out) {
    size_t n = PLAIN_COUNT(&m->exports, struct plain_export);
    _cleanup_(free) struct quick_export *list = xcalloc(n + 1, sizeof(*list));
    for (size_t i = 0; i < n; i++)
        list[i] = (struct quick_export){PLAIN_AT(&m->exports, struct plain_export, i)->name, i};
    qsort(list, n, sizeof(*list), compare_exports);
    (void)buf_add_str(out, ",\"exports\":[");
    for (size_t i = 0; i < n; i++)
        (void)buf_addf(out, "%s\"%.*s\",0,%zu", i ? "," : "", (int)list[i].name.len,
                       list[i].name.text, list[i].slot);
    (void)buf_add_char(out, ']');
}

static void write_deps(const struct quick_module *m, struct buf *out) {
    (void)buf_add_str(out, ",\"flags\":0,\"deps\":[");
    for (size_t i = 0; i < PLAIN_COUNT(&m->deps, int); i++)
        (void)buf_addf(out, "%s%d", i ? "," : "", *PLAIN_AT(&m->deps, int, i));
    (void)buf_add_str(out, "],\"mutable\":null");
}

static bool write_module(const struct quick *q, const struct quick_module *m, struct buf *out) {
    size_t max = 2 * m->plain.len + SOURCE_MAX_BYTES;
    _cleanup_(buf) struct buf code;
    _cleanup_(buf) struct buf args;
    buf_init(&code, max);
    buf_init(&args, max);
    (void)buf_add_str(&code, "(function(");
    write_parameters(q, &m->plain, &code, &args);
    (void)buf_add_str(&code, "){\"use strict\";");
    size_t head = code.len;
    compile_quick_write_body(&code, &m->plain);
    write_results(&m->plain, &code);
    (void)buf_add_str(out, "\"kind\":\"esm\",\"code\":");
    json_write_str(out, code.data, code.len);
    (void)buf_add_str(out, ",\"map\":");
    compile_quick_write_map(out, &m->plain, head);
    (void)buf_addf(out, ",\"args\":[%s]", args.data ? args.data : "");
    write_deps(m, out);
    if (m == &q->modules[0])
        write_exports(&m->plain, out);
    return !code.full && !args.full;
}

static void write_builtin(const struct quick_module *m, struct buf *out) {
    (void)buf_add_str(out, "\"kind\":\"builtin\",\"names\":[");
    for (size_t i = 0; i < m->builtin->count; i++)
        if (m->used & 1U << i)
            (void)buf_addf(out, "%s\"%s\"", compile_quick_slot_of(m, (int)i) ? "," : "",
                           m->builtin->names[i]);
    (void)buf_add_char(out, ']');
}

static bool write_response(const struct quick *q, struct buf *out) {
    (void)buf_add_str(out, "{\"ok\":true,\"main\":0,\"modules\":[");
    for (size_t i = 0; i < q->nmodules; i++) {
        const struct quick_module *m = &q->modules[i];
        int n = (int)m->name.len;
        (void)buf_addf(out, "%s{\"name\":\"%.*s\",\"key\":\"%.*s\",", i ? "," : "", n, m->name.text,
                       n, m->name.text);
        if (m->builtin)
            write_builtin(m, out);
        else if (!write_module(q, m, out))
            return false;
        (void)buf_add_char(out, '}');
    }
    return buf_add_str(out, "]}") && !out->full;
}

static bool link_program(struct quick *q, const char *request, size_t len) {
    struct plain_text main;
    return len <= SOURCE_MAX_BYTES && compile_quick_read_request(q, request, len, &main) &&
           symbols_find(&q->names, main.text, main.len) != SYMBOL_NONE &&
           compile_quick_load(q, main) == 0 && !q->modules[0].builtin && load_all(q) && link_all(q);
}

static void quick_finish(struct quick *q) {
    for (size_t i = 0; i < q->nmodules; i++) {
        plain_finish(&q->modules[i].plain);
        buf_finish(&q->modules[i].deps);
    }
    free(q->modules);
    buf_finish(&q->given);
    symbols_finish(&q->names);
    free(q->text);
}

char *quick_compile(const char *request, size_t len, size_t *ret_len) {
    struct quick q = {0};
    for (size_t i = 0; i < ARRAY_LEN(builtins); i++)
        q.built_in[i] = -1;
    symbols_init(&q.names);
    q.first = q.names.count;
    struct buf out;
    buf_init(&q.given, MODULES_MAX * sizeof(struct quick_given));
    buf_init(&out, 4 * len + SOURCE_MAX_BYTES);
    char *response = NULL;
    if (link_program(&q, request, len) && write_response(&q, &out))
        response = buf_steal(&out, ret_len);
    buf_finish(&out);
    quick_finish(&q);
    return response;
}
