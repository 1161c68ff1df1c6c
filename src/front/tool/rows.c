#include "front/tool/rows.h"

#include "base/cleanup.h"

static json_t *tool_rows_scalar(json_t *v) {
    /* ["b", base64] and ["i", digits]: what JSON has no word for. */
    return json_is_array(v) ? json_array_get(v, 1) : v;
}

json_t *rows_read(const char *json, size_t len) {
    _cleanup_(json) json_t *j = NULL;
    if (json_parse(json, len, "rows", &j, NULL) < 0)
        return json_array();
    const json_t *columns = json_object_get(j, "columns");
    const json_t *rows = json_object_get(j, "rows");
    if (!json_is_array(rows))
        return json_incref(j);
    json_t *out = json_array();
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row) {
        json_t *o = json_object();
        size_t k;
        const json_t *name;
        json_array_foreach(columns, k, name)(void)
            json_object_set(o, json_string_value(name), tool_rows_scalar(json_array_get(row, k)));
        (void)json_array_append_new(out, o);
    }
    return out;
}

char *rows_text(const char *json, size_t len, size_t max_bytes, size_t *ret_len, size_t *ret_all,
                size_t *ret_kept) {
    _cleanup_(json) json_t *rows = rows_read(json, len);
    size_t all = json_array_size(rows);
    size_t kept = len > max_bytes ? all * max_bytes / len : all;
    while (json_is_array(rows) && json_array_size(rows) > kept)
        (void)json_array_remove(rows, json_array_size(rows) - 1);
    *ret_all = all;
    *ret_kept = kept;
    return json_dump_text(rows, SIZE_MAX / 2, ret_len);
}

json_t *rows_error(const char *json, size_t len, const struct err *err) {
    _cleanup_(json) json_t *e = json ? json_read(json, len) : NULL;
    json_t *message = json_object_get(e, "message");
    if (json_is_string(message))
        return json_incref(message);
    return json_text(err ? err->message : "failed");
}
