#pragma once
/* What requests say of models and money, read in one way by all that take them. */

#include "front/model/model.h"

/* Without a key of any provider the demo answers for opus, sonnet and haiku; any other name is
 * meant as it is. NULL stays NULL. */
const char *model_ask_name(const struct models *m, const char *name);
/* As models_find(). A model that is not to be had is the request's fault, not its key's. */
int model_ask_find(struct models *m, const char *name, struct model_info *ret_info,
                   struct err *err);
/* The same of one that models.json lists, or that is the usual one (as models_find() takes it): for
 * clients that choose among what there is. */
int model_ask_choose(struct models *m, const char *name, const char *usual,
                     struct model_info *ret_info, struct err *err);
/* "max_budget_usd" of a request's options, for their table, into a double; null: 0, none. */
int model_ask_read_budget(const json_t *value, void *usd, struct err *err);
/* A budget can be held only where prices are known. */
int model_ask_check_budget(const struct model_info *model, double usd, struct err *err);
