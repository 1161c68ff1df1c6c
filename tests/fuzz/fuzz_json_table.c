/* Objects that clients send, read by tables: one of every kind of row, and the bodies of the
 * requests that make sandboxes, commands, coding jobs and runs. What is taken is what the rows
 * allow, seen in the tree itself; what is not has a reason. The first byte says which it is. */

#include "base/json_table.h"
#include "front/code/request.h"
#include "front/run/code.h"
#include "front/sandbox/exec.h"
#include "front/sandbox/sandboxes.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NAME_MAX_BYTES = 8, LIST_MAX = 3, MOST = 50, DEPTH_MAX = 9 };

static void need(bool holds) {
    if (!holds)
        abort();
}

struct thing {
    const char *name;
    int64_t size, most;
    bool open;
    enum thing_color { THING_RED, THING_GREEN, THING_UNSET } color;
    const json_t *list, *map, *tree;
    struct thing_inside {
        int64_t depth;
    } inside;
};

static const char *const thing_colors[] = {"red", "green"};
static const struct json_field inside_fields[] = {
    JSON_INT("depth", struct thing_inside, depth, -1, DEPTH_MAX)};
static const struct json_field thing_fields[] = {
    JSON_TEXT_MAX("name", struct thing, name, NAME_MAX_BYTES),
    JSON_INT("size", struct thing, size, 1, INT64_MAX),
    JSON_INT_UPTO("most", struct thing, most, 2),
    JSON_BOOL("open", struct thing, open),
    JSON_ENUM("color", struct thing, color, thing_colors),
    JSON_LIST_MAX("list", struct thing, list, LIST_MAX),
    JSON_MAP("map", struct thing, map),
    JSON_TREE("tree", struct thing, tree),
    JSON_OBJECT("inside", struct thing, inside, inside_fields),
};

/* Whether the tree has a value there that is not null. */
static bool is_given(const json_t *j, const char *key) {
    const json_t *v = json_object_get(j, key);
    return v && !json_is_null(v);
}

static int read_thing(const json_t *j, const char *what, struct err *err) {
    struct thing t = {.most = MOST, .color = THING_UNSET};
    int rc = json_table_read(thing_fields, JSON_FIELD_COUNT(thing_fields), j, what, &t, err);
    need(t.most >= 2 && t.most <= MOST && t.inside.depth >= -1 && t.inside.depth <= DEPTH_MAX);
    need(!t.name || strlen(t.name) <= NAME_MAX_BYTES);
    need(t.color <= THING_UNSET && json_array_size(t.list) <= LIST_MAX);
    if (rc < 0)
        return rc;
    need(!is_given(j, "name") || json_string_length(json_object_get(j, "name")) == strlen(t.name));
    need(is_given(j, "size") ? t.size >= 1 : t.size == 0);
    need(is_given(j, "color") == (t.color != THING_UNSET));
    need(is_given(j, "list") == json_is_array(t.list));
    need(is_given(j, "map") == json_is_object(t.map));
    need(t.tree == json_object_get(j, "tree"));
    need(!is_given(j, "inside") || json_is_object(json_object_get(j, "inside")));
    for (void *at = json_object_iter((json_t *)(uintptr_t)j); what && at;
         at = json_object_iter_next((json_t *)(uintptr_t)j, at)) {
        bool known = false;
        for (size_t i = 0; i < JSON_FIELD_COUNT(thing_fields); i++)
            known = known || strcmp(thing_fields[i].key, json_object_iter_key(at)) == 0;
        need(known);
    }
    return 0;
}

static int read_sandbox(const json_t *j, struct err *err) {
    struct sandbox_request r = {0};
    int rc = sandbox_request_read(j, &r, err);
    need(r.files.n <= SANDBOX_FILES_MAX && r.binds.n <= SANDBOX_BINDS_MAX && r.memory_mb >= 0);
    for (size_t i = 0; i < r.env.n; i++)
        need(strchr(r.env.items[i], '=') > r.env.items[i]);
    sandbox_request_finish(&r);
    return rc;
}

static int read_exec(const json_t *j, struct err *err) {
    struct exec_request r = {0};
    int rc = exec_request_read(j, &r, err);
    need(r.cols >= 0 && r.cols <= 1000 && r.timeout_s >= 0);
    exec_request_finish(&r);
    return rc;
}

static int read_code(const json_t *j, struct err *err) {
    struct code_request r = {0};
    int rc = code_request_read(j, &r, err);
    need(rc < 0 || json_array_size(r.files) <= SANDBOX_FILES_MAX);
    code_request_finish(&r);
    return rc;
}

static int read_run(const json_t *j, struct err *err) {
    static const struct run_limits max = {.wall_ms = 1000,
                                          .cpu_ms = 500,
                                          .memory_bytes = 64 << 20,
                                          .output_bytes = 4096,
                                          .binding_calls = 10,
                                          .module_bytes = 1 << 20};
    struct code c;
    int rc = code_read(&c, j, &max, err);
    if (rc < 0)
        return rc;
    need(c.limits.wall_ms >= 1 && c.limits.wall_ms <= max.wall_ms);
    need(c.limits.cpu_ms >= 1 && c.limits.cpu_ms <= max.cpu_ms);
    need(c.limits.memory_bytes <= max.memory_bytes && c.limits.output_bytes <= max.output_bytes);
    need(c.limits.binding_calls <= max.binding_calls);
    code_finish(&c);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err err = {0};
    json_t *j = NULL;
    int rc = 0;
    if (size == 0 || json_parse((const char *)data + 1, size - 1, "input", &j, &err) < 0)
        return 0;
    err = (struct err){0};
    switch (data[0]) {
    case 's':
        rc = read_sandbox(j, &err);
        break;
    case 'e':
        rc = read_exec(j, &err);
        break;
    case 'c':
        rc = read_code(j, &err);
        break;
    case 'r':
        rc = read_run(j, &err);
        break;
    case 'o':
        rc = read_thing(j, NULL, &err);
        break;
    default:
        rc = read_thing(j, "the thing", &err);
    }
    need(rc == 0 || (err.code && err.message[0]));
    json_decref(j);
    return 0;
}
