#pragma once
/* Reads a JSON object into a struct, by a table with one row for each key, as systemd's
 * json_dispatch() does. A wire shape has one table, and whoever fills the struct otherwise needs no
 * JSON. The table gives the checks of kinds and ranges, and the errors: an unknown key ("did you
 * mean"), a value of another kind, a number out of range. What depends on settings, or on two keys
 * together, is checked afterwards, in the struct. */

#include "base/json.h"

#include <stddef.h>

enum json_kind {
    JSON_KIND_TEXT, /* const char *, borrowed from the tree; without NUL */
    JSON_KIND_INT,  /* int64_t, from min to max */
    JSON_KIND_BOOL, /* bool */
    JSON_KIND_ENUM, /* an enum: the place of the text among the names */
    JSON_KIND_TREE, /* const json_t *, borrowed from the tree; null too */
    JSON_KIND_READ, /* whatever `read` makes of it; it is called for null too */
};

struct json_field {
    const char *key;
    enum json_kind kind;
    size_t offset; /* of the member */
    int64_t min, max;
    const char *const *names; /* max of them */
    int (*read)(const json_t *value, void *member, struct err *err);
};

enum { JSON_FIELDS_MAX = 32 }; /* in a table */

/* The offset of a member, which must have this type. */
// NOLINTNEXTLINE(bugprone-macro-parentheses): `want` is a type
#define JSON_FIELD_IS(type, member, want) ((size_t) _Generic(((type){}).member, want : 1))
#define JSON_FIELD_AT(type, member, want)                                                          \
    (offsetof(type, member) + 0 * JSON_FIELD_IS(type, member, want))

/* Rows of a table. */
#define JSON_TEXT(key_, type, member)                                                              \
    { .key = (key_), .kind = JSON_KIND_TEXT, .offset = JSON_FIELD_AT(type, member, const char *) }
#define JSON_INT(key_, type, member, min_, max_)                                                   \
    {                                                                                              \
        .key = (key_), .kind = JSON_KIND_INT, .offset = JSON_FIELD_AT(type, member, int64_t),      \
        .min = (min_), .max = (max_)                                                               \
    }
#define JSON_BOOL(key_, type, member)                                                              \
    { .key = (key_), .kind = JSON_KIND_BOOL, .offset = JSON_FIELD_AT(type, member, bool) }
#define JSON_ENUM(key_, type, member, names_)                                                      \
    {                                                                                              \
        .key = (key_), .kind = JSON_KIND_ENUM, .offset = JSON_FIELD_AT(type, member, unsigned),    \
        .max = sizeof(names_) / sizeof((names_)[0]), .names = (names_)                             \
    }
#define JSON_TREE(key_, type, member)                                                              \
    { .key = (key_), .kind = JSON_KIND_TREE, .offset = JSON_FIELD_AT(type, member, const json_t *) }
#define JSON_READ(key_, type, member, read_)                                                       \
    { .key = (key_), .kind = JSON_KIND_READ, .offset = offsetof(type, member), .read = (read_) }

/* Fills the struct at `out`, row by row. A member whose key is missing, or null, is left as it is:
 * what it holds before is the default. After an error the struct is filled in part. `what` names
 * the object in errors; NULL: keys that the table does not have are left alone, and so is an object
 * that is missing. */
int json_table_read(const struct json_field *table, size_t n, const json_t *obj, const char *what,
                    void *out, struct err *err);
