#include "base/json_table.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int json_table_check_keys(const struct json_field *table, size_t n, const json_t *obj,
                                 const char *what, struct err *err) {
    const char *keys[JSON_FIELDS_MAX + 1];
    for (size_t i = 0; i < n; i++)
        keys[i] = table[i].key;
    keys[n] = NULL;
    return json_check_keys(obj, what, keys, err);
}

/* "a", "b" or "c" */
static int json_table_refuse_name(const struct json_field *f, struct err *err) {
    char known[200] = "";
    for (int64_t i = 0; i < f->max; i++) {
        size_t len = strlen(known);
        const char *before = i == 0 ? "" : i == f->max - 1 ? " or " : ", ";
        (void)snprintf(known + len, sizeof(known) - len, "%s\"%s\"", before, f->names[i]);
    }
    return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be %s", f->key, known);
}

static int json_table_read_name(const struct json_field *f, const json_t *obj, unsigned *ret,
                                struct err *err) {
    const char *text = NULL;
    int rc = json_get_str(obj, f->key, &text, err);
    if (rc < 0 || !text)
        return rc;
    for (unsigned i = 0; i < f->max; i++)
        if (strcmp(f->names[i], text) == 0) {
            *ret = i;
            return 0;
        }
    return json_table_refuse_name(f, err);
}

static int json_table_read_text(const struct json_field *f, const json_t *obj, const char **ret,
                                struct err *err) {
    const char *text = NULL;
    int rc = json_get_str(obj, f->key, &text, err);
    if (rc < 0 || !text)
        return rc;
    if (f->max && strlen(text) > (size_t)f->max)
        return err_set(err, ERR_TOO_LARGE, "\"%s\" exceeds %" PRId64 " bytes", f->key, f->max);
    *ret = text;
    return 0;
}

static int json_table_read_list(const struct json_field *f, const json_t *value, const json_t **ret,
                                struct err *err) {
    if (!json_is_array(value))
        return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be a list", f->key);
    if (f->max && json_array_size(value) > (size_t)f->max)
        return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be a list of at most %" PRId64 " values",
                       f->key, f->max);
    *ret = value;
    return 0;
}

static int json_table_read_rows(const struct json_field *table, size_t n, const json_t *obj,
                                bool strict, void *out, struct err *err);

static int json_table_read_object(const struct json_field *f, const json_t *value, bool strict,
                                  void *out, struct err *err) {
    char what[80];
    (void)snprintf(what, sizeof(what), "\"%s\"", f->key);
    int rc = strict ? json_table_check_keys(f->fields, (size_t)f->max, value, what, err) : 0;
    if (rc < 0)
        return rc;
    rc = json_table_read_rows(f->fields, (size_t)f->max, value, strict, out, err);
    return rc < 0 ? err_wrap(err, "%s", f->key) : 0;
}

static int json_table_read_tree(const struct json_field *f, const json_t *value, bool strict,
                                void *member, struct err *err) {
    bool is_null = !value || json_is_null(value);
    if (f->kind == JSON_KIND_READ)
        return value ? f->read(value, member, err) : 0;
    if (f->kind == JSON_KIND_TREE && value)
        *(const json_t **)member = value;
    if (f->kind == JSON_KIND_TREE || is_null)
        return 0;
    if (f->kind == JSON_KIND_LIST)
        return json_table_read_list(f, value, member, err);
    if (!json_is_object(value))
        return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be an object", f->key);
    if (f->kind == JSON_KIND_OBJECT)
        return json_table_read_object(f, value, strict, member, err);
    *(const json_t **)member = value;
    return 0;
}

static int json_table_read_rows(const struct json_field *table, size_t n, const json_t *obj,
                                bool strict, void *out, struct err *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const struct json_field *f = &table[i];
        void *member = (char *)out + f->offset;
        switch (f->kind) {
        case JSON_KIND_TEXT:
            rc = json_table_read_text(f, obj, member, err);
            break;
        case JSON_KIND_INT:
            rc = json_get_int(obj, f->key, f->min, f->max, member, err);
            break;
        case JSON_KIND_UPTO:
            rc = json_get_int(obj, f->key, f->min, *(int64_t *)member, member, err);
            break;
        case JSON_KIND_BOOL:
            rc = json_get_bool(obj, f->key, member, err);
            break;
        case JSON_KIND_ENUM:
            rc = json_table_read_name(f, obj, member, err);
            break;
        case JSON_KIND_LIST:
        case JSON_KIND_MAP:
        case JSON_KIND_TREE:
        case JSON_KIND_OBJECT:
        case JSON_KIND_READ:
            rc = json_table_read_tree(f, json_object_get(obj, f->key), strict, member, err);
            break;
        }
    }
    return rc;
}

int json_table_read(const struct json_field *table, size_t n, const json_t *obj, const char *what,
                    void *out, struct err *err) {
    assert(n <= JSON_FIELDS_MAX);
    int rc = what ? json_table_check_keys(table, n, obj, what, err) : 0;
    return rc < 0 ? rc : json_table_read_rows(table, n, obj, what != NULL, out, err);
}
