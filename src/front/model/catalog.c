#include "front/model/catalog.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
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
    struct entry {
        struct model_info info;
        const json_t *aliases;
        struct entry *next;
    } * first;
};

const char *model_provider_name(enum model_provider p) {
    static const char *const names[] = {
        [MODEL_ANTHROPIC] = "anthropic", [MODEL_OPENAI] = "openai", [MODEL_DEMO] = "demo"};
    return names[p];
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
    static const char *const keys[] = {"id",
                                       "provider",
                                       "aliases",
                                       "usd_per_million",
                                       "usd_per_thousand_searches",
                                       "context",
                                       "max_output",
                                       "extra",
                                       "note",
                                       NULL};
    int rc = json_check_keys(m, "a model", keys, err);
    const char *id = NULL;
    const char *provider = NULL;
    if (rc == 0)
        rc = json_get_str(m, "id", &id, err);
    if (rc == 0)
        rc = json_get_str(m, "provider", &provider, err);
    if (rc < 0)
        return rc;
    if (!id || !*id || strlen(id) > MODEL_ID_BYTES)
        return err_set(err, ERR_BAD_REQUEST, "\"id\" must be a name of at most %d bytes",
                       MODEL_ID_BYTES);
    struct entry *e = model_catalog_add(c);
    (void)stpcpy(e->info.id, id);
    if (!provider || !parse_provider(provider, strlen(provider), &e->info.provider))
        return err_set(err, ERR_BAD_REQUEST, "\"provider\" must be anthropic, openai or demo");
    e->aliases = json_object_get(m, "aliases");
    size_t i;
    const json_t *alias;
    if (e->aliases && !json_is_array(e->aliases))
        return err_set(err, ERR_BAD_REQUEST, "\"aliases\" must be a list of strings");
    json_array_foreach(e->aliases, i, alias) {
        if (!json_is_string(alias))
            return err_set(err, ERR_BAD_REQUEST, "\"aliases\" must be a list of strings");
    }
    json_t *extra = json_object_get(m, "extra");
    if (extra && !json_is_object(extra))
        return err_set(err, ERR_BAD_REQUEST, "\"extra\" must be an object");
    e->info.extra = extra;
    rc = model_price_read(m, &e->info.price, err);
    if (rc == 0)
        rc = json_get_int(m, "context", 1, INT32_MAX, &e->info.context_tokens, err);
    if (rc == 0)
        rc = json_get_int(m, "max_output", 1, INT32_MAX, &e->info.max_output_tokens, err);
    return rc;
}

static int read_root(struct model_catalog *c, struct err *err) {
    static const char *const keys[] = {"defaults", "models", "note", NULL};
    int rc = json_check_keys(c->root, "the file", keys, err);
    if (rc < 0)
        return rc;
    const json_t *models = json_object_get(c->root, "models");
    if (!json_is_array(models))
        return err_set(err, ERR_BAD_REQUEST, "\"models\" must be a list");
    for (size_t i = json_array_size(models); i-- > 0;) {
        rc = read_model(c, json_array_get(models, i), err);
        if (rc < 0)
            return err_wrap(err, "models[%zu]", i);
    }
    const json_t *defaults = json_object_get(c->root, "defaults");
    const char *const known[] = {"anthropic", "openai", "demo", NULL};
    if (defaults)
        rc = json_check_keys(defaults, "\"defaults\"", known, err);
    for (int i = 0; rc == 0 && i < MODEL_PROVIDERS; i++)
        rc = json_get_str(defaults, model_provider_name((enum model_provider)i), &c->defaults[i],
                          err);
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
