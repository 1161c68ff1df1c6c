#pragma once
/* Reads a JSON object into a struct, by a table with one row for each key, as systemd's
 * json_dispatch() does. A wire shape has one table, and whoever fills the struct otherwise needs no
 * JSON. The table gives the checks of kinds and ranges, and the errors: an unknown key ("did you
 * mean"), a value of another kind, a number out of range. What depends on settings, or on two keys
 * together, is checked afterwards, in the struct. A table that has a JSON_SHAPE also gives what
 * openapi.json must say about it, and the cases of tests/e2e/bad-input. */

#include "base/json.h"

#include <stddef.h>

enum json_kind {
    JSON_KIND_TEXT,   /* const char *, borrowed from the tree; without NUL; at most max bytes */
    JSON_KIND_INT,    /* int64_t, from min to max */
    JSON_KIND_UPTO,   /* int64_t, from min to what the member holds before: it may be lowered */
    JSON_KIND_BOOL,   /* bool */
    JSON_KIND_ENUM,   /* an enum: the place of the text among the names */
    JSON_KIND_LIST,   /* const json_t *, borrowed from the tree: a list of at most max values */
    JSON_KIND_MAP,    /* const json_t *, borrowed from the tree: an object whose keys are free */
    JSON_KIND_TREE,   /* const json_t *, borrowed from the tree: anything, null too */
    JSON_KIND_OBJECT, /* a struct, read by the table `fields` */
    JSON_KIND_READ,   /* whatever `read` makes of it; it is called for null too */
};

struct json_field {
    const char *key;
    enum json_kind kind;
    size_t offset;                   /* of the member */
    int64_t min, max;                /* max 0: a text, a list has no limit of its own */
    const char *const *names;        /* max of them */
    const struct json_field *fields; /* max of them */
    int (*read)(const json_t *value, void *member, struct err *err);
    const char *takes; /* the types that read() takes, in words of JSON Schema: "string,boolean" */
};

enum { JSON_FIELDS_MAX = 32 }; /* in a table */

/* The offset of a member, which must have this type. */
// NOLINTNEXTLINE(bugprone-macro-parentheses): `want` is a type
#define JSON_FIELD_IS(type, member, want) ((size_t) _Generic(((type){}).member, want : 1))
#define JSON_FIELD_AT(type, member, want)                                                          \
    (offsetof(type, member) + 0 * JSON_FIELD_IS(type, member, want))
#define JSON_FIELD_COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

/* Rows of a table. A key may have two, which put it into two members. */
#define JSON_TEXT_MAX(key_, type, member, bytes)                                                   \
    {                                                                                              \
        .key = (key_), .kind = JSON_KIND_TEXT,                                                     \
        .offset = JSON_FIELD_AT(type, member, const char *), .max = (bytes)                        \
    }
#define JSON_TEXT(key_, type, member) JSON_TEXT_MAX(key_, type, member, 0)
#define JSON_INT(key_, type, member, min_, max_)                                                   \
    {                                                                                              \
        .key = (key_), .kind = JSON_KIND_INT, .offset = JSON_FIELD_AT(type, member, int64_t),      \
        .min = (min_), .max = (max_)                                                               \
    }
#define JSON_INT_UPTO(key_, type, member, min_)                                                    \
    {                                                                                              \
        .key = (key_), .kind = JSON_KIND_UPTO, .offset = JSON_FIELD_AT(type, member, int64_t),     \
        .min = (min_)                                                                              \
    }
#define JSON_BOOL(key_, type, member)                                                              \
    { .key = (key_), .kind = JSON_KIND_BOOL, .offset = JSON_FIELD_AT(type, member, bool) }
#define JSON_ENUM(key_, type, member, names_)                                                      \
    {                                                                                              \
        .key = (key_), .kind = JSON_KIND_ENUM, .offset = JSON_FIELD_AT(type, member, unsigned),    \
        .max = JSON_FIELD_COUNT(names_), .names = (names_)                                         \
    }
#define JSON_LIST_MAX(key_, type, member, max_)                                                    \
    {                                                                                              \
        .key = (key_), .kind = JSON_KIND_LIST,                                                     \
        .offset = JSON_FIELD_AT(type, member, const json_t *), .max = (max_)                       \
    }
#define JSON_LIST(key_, type, member) JSON_LIST_MAX(key_, type, member, 0)
#define JSON_MAP(key_, type, member)                                                               \
    { .key = (key_), .kind = JSON_KIND_MAP, .offset = JSON_FIELD_AT(type, member, const json_t *) }
#define JSON_TREE(key_, type, member)                                                              \
    { .key = (key_), .kind = JSON_KIND_TREE, .offset = JSON_FIELD_AT(type, member, const json_t *) }
#define JSON_OBJECT(key_, type, member, fields_)                                                   \
    {                                                                                              \
        .key = (key_), .kind = JSON_KIND_OBJECT, .offset = offsetof(type, member),                 \
        .max = JSON_FIELD_COUNT(fields_), .fields = (fields_)                                      \
    }
/* The same, whose fields go into the struct of the table itself. */
#define JSON_OBJECT_HERE(key_, fields_)                                                            \
    {                                                                                              \
        .key = (key_), .kind = JSON_KIND_OBJECT, .max = JSON_FIELD_COUNT(fields_),                 \
        .fields = (fields_)                                                                        \
    }
/* The last argument, what it takes, is needed in a table that has a shape. */
#define JSON_READ(key_, type, member, read_, ...)                                                  \
    {                                                                                              \
        .key = (key_), .kind = JSON_KIND_READ, .offset = offsetof(type, member), .read = (read_),  \
        .takes = "" __VA_ARGS__                                                                    \
    }

/* A table that reads what clients send. The name is that of a schema in openapi.json, or the method
 * and path of a wire that is not described there; several tables may have one name, and are one
 * body then. tests/unit/test_shapes.c walks them all, from the section of the program that they are
 * put into. */
struct json_shape {
    const char *name;
    const struct json_field *fields;
    size_t n;
};

#define JSON_SHAPE_PASTE(a, b) a##b
#define JSON_SHAPE_NAME(a, b)  JSON_SHAPE_PASTE(a, b)
#define JSON_SHAPE(name_, rows)                                                                    \
    static const struct json_shape JSON_SHAPE_NAME(json_shape_, __LINE__) = {                      \
        (name_), (rows), JSON_FIELD_COUNT(rows)};                                                  \
    static const struct json_shape *const JSON_SHAPE_NAME(json_shape_at_, __LINE__)                \
        __attribute__((used, section("json_shapes"))) = &JSON_SHAPE_NAME(json_shape_, __LINE__)

/* Fills the struct at `out`, row by row. A member whose key is missing, or null, is left as it is:
 * what it holds before is the default. After an error the struct is filled in part. `what` names
 * the object in errors; NULL: keys that the table does not have are left alone, in nested objects
 * too, and so is an object that is missing. */
int json_table_read(const struct json_field *table, size_t n, const json_t *obj, const char *what,
                    void *out, struct err *err);
