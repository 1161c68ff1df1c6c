#pragma once
/* Which models there are: models.json, the built-in one or the operator's. It maps aliases to a
 * provider and the provider's name for the model, and holds prices and sizes. A model that the file
 * does not list can still be used: it has no known price.
 *
 *   {"defaults": {"anthropic": "sonnet", "openai": "gpt", "demo": "demo"},
 *    "models": [{"id": "claude-x", "provider": "anthropic", "aliases": ["sonnet"],
 *                "usd_per_million": {"input": 3, "output": 15, "cache_read": 0.3,
 *                                    "cache_write": 3.75, "cache_write_1h": 6},
 *                "usd_per_thousand_searches": 10,
 *                "context": 200000, "max_output": 64000, "extra": {}}]}
 *
 * `extra` is merged into each request's body: what a model wants and no other. */

#include "base/err.h"
#include "base/json.h"
#include "front/model/meter.h"

#include <stdbool.h>
#include <stdint.h>

enum { MODEL_ID_BYTES = 200 };
enum model_provider { MODEL_ANTHROPIC, MODEL_OPENAI, MODEL_DEMO, MODEL_PROVIDERS };

struct model_info {
    char id[MODEL_ID_BYTES + 1]; /* the provider's name for it */
    enum model_provider provider;
    struct model_price price;
    int64_t context_tokens;    /* 0: not known */
    int64_t max_output_tokens; /* 0: not known */
    json_t *extra;             /* of the catalog, or NULL */
};

struct model_catalog;

/* The prices of one model of the file; known is false if there are none. */
int model_price_read(const json_t *model, struct model_price *p, struct err *err);
const char *model_provider_name(enum model_provider p);
/* Of each kind of token the highest price that any model has; of the built-in file, if none of this
 * one has any. */
struct model_price model_catalog_dearest(const struct model_catalog *c);
/* path NULL: the built-in file. */
int model_catalog_load(const char *path, struct model_catalog **ret_catalog, struct err *err);
int model_catalog_parse(const char *text, size_t len, const char *what,
                        struct model_catalog **ret_catalog, struct err *err);
void model_catalog_destroy(struct model_catalog *c);
/* `name` is an alias, an id or "provider/id"; NULL is the default of `fallback`. An id that the
 * file does not list goes to the provider it names, to anthropic if it begins with "claude", else
 * to openai. */
int model_catalog_find(const struct model_catalog *c, const char *name,
                       enum model_provider fallback, struct model_info *ret_info, struct err *err);
/* Whether the file lists what model_catalog_find() finds by this name. */
bool model_catalog_lists(const struct model_catalog *c, const char *name);
/* The file as it was read, for a page that lists the models. */
const json_t *model_catalog_json(const struct model_catalog *c);
