#include "front/model/catalog.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json_table.h"
#include "base/mem.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX_BYTES = 1 << 20 };
/* Billionths of a dollar. */
enum { PER_MILLION = 1000, PER_THOUSAND = 1000000 };

extern const char models_json[];

struct model_catalog {
    json_t *root;
    const char *defaults[MODEL_PROVIDERS];
    const json_t *models, *note; /* of the root */
    struct entry {
        struct model_info info;
        const json_t *aliases;
        struct entry *next;
    } * first;
};

static const char *const provider_names[MODEL_PROVIDERS] = {
    [MODEL_ANTHROPIC] = "anthropic", [MODEL_OPENAI] = "openai", [MODEL_DEMO] = "demo"};

const char *model_provider_name(enum model_provider p) {
    return provider_names[p];
}

static bool parse_provider(const char *text, size_t len, enum model_provider *ret) {
    for (int i = 0; i < MODEL_PROVIDERS; i++) {
        const char *name = model_provider_name((enum model_provider)i);
        if (strlen(name) == len && memcmp(name, text, len) == 0) {
            *ret = (enum model_provider)i;
            return true;
        }
    }
    return false;
}

static int read_price(const json_t *obj, const char *key, double nusd_per_usd, int64_t *ret,
                      struct err *err) {
    const json_t *v = json_object_get(obj, key);
    if (!v)
        return 0;
    double usd = json_number_value(v);
    if (!json_is_number(v) || !(usd >= 0 && usd <= 1000000))
        return err_set(err, ERR_BAD_REQUEST, "a price: \"%s\" must be a number from 0 to 1000000",
                       key);
    *ret = llround(usd * nusd_per_usd);
    return 0;
}

int model_price_read(const json_t *model, struct model_price *p, struct err *err) {
    static const char *const keys[] = {"input",       "output",         "cache_read",
                                       "cache_write", "cache_write_1h", NULL};
    const json_t *obj = json_object_get(model, "usd_per_million");
    if (!obj)
        return 0;
    int rc = json_check_keys(obj, "\"usd_per_million\"", keys, err);
    if (rc == 0)
        rc = read_price(obj, "input", PER_MILLION, &p->input, err);
    if (rc == 0)
        rc = read_price(obj, "output", PER_MILLION, &p->output, err);
    /* A cache that has no price of its own costs what input costs. */
    p->cache_read = p->cache_write = p->input;
    if (rc == 0)
        rc = read_price(obj, "cache_read", PER_MILLION, &p->cache_read, err);
    if (rc == 0)
        rc = read_price(obj, "cache_write", PER_MILLION, &p->cache_write, err);
    /* Anthropic's are 1.25 and 2 times what input costs. */
    p->cache_write_1h = json_object_get(obj, "cache_write") ? p->cache_write * 8 / 5 : p->input;
    if (rc == 0)
        rc = read_price(obj, "cache_write_1h", PER_MILLION, &p->cache_write_1h, err);
    if (rc == 0)
        rc = read_price(model, "usd_per_thousand_searches", PER_THOUSAND, &p->search, err);
    p->known = true;
    return rc;
}

static struct entry *model_catalog_add(struct model_catalog *c) {
    struct entry *e = xcalloc(1, sizeof(*e));
    e->next = c->first;
    c->first = e;
    return e;
}

static int read_model(struct model_catalog *c, const json_t *m, struct err *err) {
    struct model_wire {
        const char *id;
        enum model_provider provider;
        const json_t *aliases, *extra, *other;
        int64_t context, max_output;
    } w = {.provider = MODEL_PROVIDERS};
    static const struct json_field table[] = {
        JSON_TEXT("id", struct model_wire, id),
        JSON_ENUM("provider", struct model_wire, provider, provider_names),
        JSON_LIST("aliases", struct model_wire, aliases),
        JSON_TREE("usd_per_million", struct model_wire, other),
        JSON_TREE("usd_per_thousand_searches", struct model_wire, other),
        JSON_INT("context", struct model_wire, context, 1, INT32_MAX),
        JSON_INT("max_output", struct model_wire, max_output, 1, INT32_MAX),
        JSON_MAP("extra", struct model_wire, extra),
        JSON_TREE("note", struct model_wire, other),
    };
    int rc = json_table_read(table, ARRAY_LEN(table), m, "a model", &w, err);
    if (rc < 0)
        return rc;
    if (!w.id || !*w.id || strlen(w.id) > MODEL_ID_BYTES)
        return err_set(err, ERR_BAD_REQUEST, "\"id\" must be a name of at most %d bytes",
                       MODEL_ID_BYTES);
    if (w.provider == MODEL_PROVIDERS)
        return err_set(err, ERR_BAD_REQUEST,
                       "\"provider\" is missing: \"anthropic\", \"openai\" or \"demo\"");
    size_t i;
    const json_t *alias;
    json_array_foreach(w.aliases, i, alias) {
        if (!json_is_string(alias))
            return err_set(err, ERR_BAD_REQUEST, "\"aliases\" must be a list of strings");
    }
    struct entry *e = model_catalog_add(c);
    (void)stpcpy(e->info.id, w.id);
    e->aliases = w.aliases;
    e->info.provider = w.provider;
    e->info.extra = (json_t *)(uintptr_t)w.extra;
    e->info.context_tokens = w.context;
    e->info.max_output_tokens = w.max_output;
    return model_price_read(m, &e->info.price, err);
}

static int read_root(struct model_catalog *c, struct err *err) {
    static const struct json_field defaults[] = {
        JSON_TEXT("anthropic", struct model_catalog, defaults[MODEL_ANTHROPIC]),
        JSON_TEXT("openai", struct model_catalog, defaults[MODEL_OPENAI]),
        JSON_TEXT("demo", struct model_catalog, defaults[MODEL_DEMO]),
    };
    static const struct json_field table[] = {
        JSON_OBJECT_HERE("defaults", defaults),
        JSON_LIST("models", struct model_catalog, models),
        JSON_TREE("note", struct model_catalog, note),
    };
    int rc = json_table_read(table, ARRAY_LEN(table), c->root, "the file", c, err);
    if (rc == 0 && !c->models)
        rc = err_set(err, ERR_BAD_REQUEST, "\"models\" must be a list");
    for (size_t i = json_array_size(c->models); rc == 0 && i-- > 0;) {
        rc = read_model(c, json_array_get(c->models, i), err);
        if (rc < 0)
            return err_wrap(err, "models[%zu]", i);
    }
    return rc;
}

int model_catalog_parse(const char *text, size_t len, const char *what,
                        struct model_catalog **ret_catalog, struct err *err) {
    struct model_catalog *c = xcalloc(1, sizeof(*c));
    int rc = json_parse(text, len, what, &c->root, err);
    if (rc == 0) {
        rc = read_root(c, err);
        if (rc < 0)
            rc = err_wrap(err, "%s", what);
    }
    if (rc < 0) {
        model_catalog_destroy(c);
        return rc;
    }
    *ret_catalog = c;
    return 0;
}

int model_catalog_load(const char *path, struct model_catalog **ret_catalog, struct err *err) {
    if (!path)
        return model_catalog_parse(models_json, strlen(models_json), "the built-in models.json",
                                   ret_catalog, err);
    _cleanup_(buf) struct buf text;
    buf_init(&text, FILE_MAX_BYTES);
    int rc = fd_read_file(AT_FDCWD, path, &text, err);
    if (rc < 0)
        return rc;
    return model_catalog_parse(text.data ? text.data : "", text.len, path, ret_catalog, err);
}

void model_catalog_destroy(struct model_catalog *c) {
    if (!c)
        return;
    while (c->first) {
        struct entry *e = c->first;
        c->first = e->next;
        free(e);
    }
    json_decref(c->root);
    free(c);
}

static bool has_alias(const struct entry *e, const char *name) {
    size_t i;
    const json_t *alias;
    json_array_foreach(e->aliases, i, alias) {
        if (strcmp(json_string_value(alias), name) == 0)
            return true;
    }
    return false;
}

/* By alias or by id; any: of whatever provider. */
static const struct entry *model_catalog_lookup(const struct model_catalog *c, const char *name,
                                                bool any, enum model_provider provider) {
    for (const struct entry *e = c->first; e; e = e->next) {
        if (!any && e->info.provider != provider)
            continue;
        if (strcmp(e->info.id, name) == 0 || has_alias(e, name))
            return e;
    }
    return NULL;
}

int model_catalog_find(const struct model_catalog *c, const char *name,
                       enum model_provider fallback, struct model_info *ret_info, struct err *err) {
    if (!name || !*name) {
        name = c->defaults[fallback];
        if (!name && fallback != MODEL_DEMO)
            return err_set(err, ERR_NOT_FOUND,
                           "models.json has no default for %s: name a model, or add one",
                           model_provider_name(fallback));
        if (!name)
            name = "demo";
    }
    if (strlen(name) > MODEL_ID_BYTES)
        return err_set(err, ERR_BAD_REQUEST, "the name of the model exceeds %d bytes",
                       MODEL_ID_BYTES);
    const struct entry *e = model_catalog_lookup(c, name, true, MODEL_DEMO);
    if (e) {
        *ret_info = e->info;
        return 0;
    }
    enum model_provider provider = strncmp(name, "claude", 6) == 0 ? MODEL_ANTHROPIC : MODEL_OPENAI;
    if (strcmp(name, "demo") == 0)
        provider = MODEL_DEMO;
    const char *slash = strchr(name, '/');
    if (slash && parse_provider(name, (size_t)(slash - name), &provider))
        name = slash + 1;
    if (!*name)
        return err_set(err, ERR_BAD_REQUEST, "the name of the model is empty");
    e = model_catalog_lookup(c, name, false, provider);
    if (e) {
        *ret_info = e->info;
        return 0;
    }
    *ret_info = (struct model_info){.provider = provider,
                                    .price.known = provider == MODEL_DEMO}; /* it is free */
    (void)stpcpy(ret_info->id, name);
    return 0;
}

bool model_catalog_lists(const struct model_catalog *c, const char *name) {
    enum model_provider provider;
    const char *slash = strchr(name, '/');
    const struct entry *e = model_catalog_lookup(c, name, true, MODEL_DEMO);
    if (!e && slash && parse_provider(name, (size_t)(slash - name), &provider))
        e = model_catalog_lookup(c, slash + 1, false, provider);
    return e != NULL;
}

static struct model_price dearest_of(const struct model_catalog *c) {
    struct model_price most = {.known = true};
    for (const struct entry *e = c->first; e; e = e->next) {
        const struct model_price *p = &e->info.price;
        most.input = MAX(most.input, p->input);
        most.output = MAX(most.output, p->output);
        most.cache_read = MAX(most.cache_read, p->cache_read);
        most.cache_write = MAX(most.cache_write, p->cache_write);
        most.cache_write_1h = MAX(most.cache_write_1h, p->cache_write_1h);
        most.search = MAX(most.search, p->search);
    }
    return most;
}

/* A list without prices must not make everything free. */
struct model_price model_catalog_dearest(const struct model_catalog *c) {
    struct model_price most = dearest_of(c);
    struct model_catalog *own = NULL;
    if (most.input > 0 || most.output > 0 || model_catalog_load(NULL, &own, NULL) < 0)
        return most;
    most = dearest_of(own);
    model_catalog_destroy(own);
    return most;
}

const json_t *model_catalog_json(const struct model_catalog *c) {
    return c->root;
}
