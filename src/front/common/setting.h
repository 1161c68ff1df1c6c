#pragma once
/* The numbers among the operator's settings, as tables: they are read, shown, compared and taken
 * over in one place, whatever room they belong to. */

#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct setting {
    const char *key;
    void *at; /* an integer of that size, 4 or 8 */
    size_t size;
    int64_t min;
    int64_t max;
    bool fixed; /* what is made of it at the start stays until the next */
};

enum { SETTINGS_MAX = 64 }; /* in a section */

/* Rows of a table; x is the field itself. */
#define SETTING(key_, x, min_, max_)                                                               \
    { key_, &(x), sizeof(x), min_, max_, false }
#define SETTING_FIXED(key_, x, min_, max_)                                                         \
    { key_, &(x), sizeof(x), min_, max_, true }

int64_t setting_get(const struct setting *s);
void setting_set(const struct setting *s, int64_t value);
/* Leaves alone what the object does not have. */
int settings_read(const struct setting *table, size_t n, const json_t *obj, struct err *err);
/* Every key of the object is in the table or in the list, which may be NULL. */
int settings_check_keys(const struct setting *table, size_t n, const char *const *others,
                        const json_t *obj, const char *what, struct err *err);
