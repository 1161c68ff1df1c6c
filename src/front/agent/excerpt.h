#pragma once
/* What a model reads of a history: its newest messages, as many as fit. They are gathered as text
 * and made into messages for a model later, in a thread where that would take long. */

#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>

struct excerpt;

struct excerpt *excerpt_create(size_t max_bytes);
void excerpt_destroy(struct excerpt *c);
/* Newest first; the newest is taken however large it is. False: it does not fit, and those before
 * it are left out too. */
bool excerpt_add(struct excerpt *c, const char *json, size_t len);
/* The same without a copy: *json is taken, and NULL then, if it fits. */
bool excerpt_take(struct excerpt *c, char **json, size_t len);
size_t excerpt_bytes(const struct excerpt *c);
/* Oldest first, with a note if some are left out. In any thread. */
json_t *excerpt_read(const struct excerpt *c);
