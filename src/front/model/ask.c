#include "front/model/ask.h"

#include <string.h>

enum { BUDGET_MAX_USD = 10000 };

static bool is_alias(const char *name) {
    return strcmp(name, "opus") == 0 || strcmp(name, "sonnet") == 0 || strcmp(name, "haiku") == 0;
}

const char *model_ask_name(const struct models *m, const char *name) {
    bool demo = name && is_alias(name) && models_default_provider(m) == MODEL_DEMO;
    return demo ? "demo" : name;
}

int model_ask_find(struct models *m, const char *name, struct model_info *ret_info,
                   struct err *err) {
    struct err why;
    int rc = models_find(m, name, ret_info, &why);
    if (rc == -ERR_UNAUTHORIZED)
        return err_set(err, ERR_BAD_REQUEST,
                       "there is no model \"%.100s\" here; ask for opus, sonnet, haiku or a full "
                       "id whose provider has a key (%s)",
                       name ? name : "", why.message);
    if (rc < 0)
        *err = why;
    return rc;
}

int model_ask_choose(struct models *m, const char *name, const char *usual,
                     struct model_info *ret_info, struct err *err) {
    struct model_info info;
    const char *meant = model_ask_name(m, name);
    if (models_find(m, usual, &info, NULL) == 0 && strcmp(info.id, meant) == 0) {
        *ret_info = info;
        return 0;
    }
    if (!model_catalog_lists(models_catalog(m), meant) || models_find(m, meant, &info, NULL) < 0)
        return err_set(err, ERR_BAD_REQUEST,
                       "there is no model \"%.100s\" to choose here; GET /v1/models lists those "
                       "that there are",
                       name);
    *ret_info = info;
    return 0;
}

int model_ask_read_budget(const json_t *v, void *usd, struct err *err) {
    double asked = json_number_value(v);
    if (!json_is_null(v) && !(asked > 0 && asked <= BUDGET_MAX_USD))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"max_budget_usd\" must be a number above 0 and at most %d",
                       BUDGET_MAX_USD);
    *(double *)usd = asked;
    return 0;
}

int model_ask_check_budget(const struct model_info *model, double usd, struct err *err) {
    if (usd == 0 || model->price.known)
        return 0;
    return err_set(err, ERR_BAD_REQUEST,
                   "\"max_budget_usd\": the price of \"%.100s\" is not known; put it into "
                   "models.json, or leave the budget out",
                   model->id);
}
