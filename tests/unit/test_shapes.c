/* openapi.json says what the tables say that read the bodies of requests: every JSON_SHAPE of the
 * server is turned into a schema and compared with the one that is served. With --print the schemas
 * are printed, for tests/e2e/bad-input. */

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json_table.h"
#include "base/mem.h"
#include "unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const char openapi_json[];
/* The linker makes these. */
extern const struct json_shape *const __start_json_shapes[];
extern const struct json_shape *const __stop_json_shapes[];

enum { LINES_BYTES = 64 << 10 };

/* Read without a table (yet). */
static const char *const by_hand[] = {
    "post /v1/agents/{agent}/{name}/messages",
    "post /v1/agents/{agent}/{name}/rename",
    "post /v1/sandboxes/{id}/extend",
    "post /v1/sandboxes/{id}/execs/{exec}/signal",
    "post /v1/sandboxes/{id}/execs/{exec}/resize",
    "post /v1/sandboxes/{id}/files/mkdir",
    "post /v1/sandboxes/{id}/files/move",
    "post /v1/sandboxes/{id}/snapshots",
    "post /v1/tasks",
    "post /v1/keys",
    "patch /v1/keys/{id}",
    "post /v1/keys/{id}/rotate",
    "post /v1/projects",
    "patch /v1/projects/{id}",
    "put /v1/facets/{name}",
    "post /v1/facets/{name}/query",
    "post /v1/facets/{name}/copy",
};

/* --- a table as a schema --- */

static json_t *schema_of_table(const struct json_field *table, size_t n);

/* "string,boolean" -> ["string", "boolean"]; one alone is a string. */
static json_t *types_of(const char *takes) {
    json_t *list = json_array();
    for (size_t len; *takes; takes += len + (takes[len] == ',')) {
        len = strcspn(takes, ",");
        (void)json_array_append_new(list, json_stringn(takes, len));
    }
    if (json_array_size(list) != 1)
        return list;
    json_t *one = json_incref(json_array_get(list, 0));
    json_decref(list);
    return one;
}

static json_t *schema_of_field(const struct json_field *f) {
    static const char *const types[] = {
        [JSON_KIND_TEXT] = "string",  [JSON_KIND_INT] = "integer", [JSON_KIND_UPTO] = "integer",
        [JSON_KIND_BOOL] = "boolean", [JSON_KIND_ENUM] = "string", [JSON_KIND_LIST] = "array",
        [JSON_KIND_MAP] = "object",   [JSON_KIND_TREE] = "",       [JSON_KIND_OBJECT] = "object",
        [JSON_KIND_READ] = "",
    };
    if (f->kind == JSON_KIND_OBJECT)
        return schema_of_table(f->fields, (size_t)f->max);
    json_t *s = json_object();
    const char *takes = f->kind == JSON_KIND_READ ? f->takes : types[f->kind];
    if (*takes)
        (void)json_object_set_new(s, "type", types_of(takes));
    if (f->kind == JSON_KIND_TREE || (f->kind == JSON_KIND_READ && *takes))
        (void)json_object_set_new(s, "x-more", json_true()); /* which the table does not know */
    if (f->kind == JSON_KIND_INT || f->kind == JSON_KIND_UPTO)
        (void)json_object_set_new(s, "minimum", json_integer(f->min));
    if (f->kind == JSON_KIND_INT && f->max != INT64_MAX)
        (void)json_object_set_new(s, "maximum", json_integer(f->max));
    if (f->kind == JSON_KIND_TEXT && f->max)
        (void)json_object_set_new(s, "maxLength", json_integer(f->max));
    if (f->kind == JSON_KIND_LIST && f->max)
        (void)json_object_set_new(s, "maxItems", json_integer(f->max));
    if (f->kind == JSON_KIND_ENUM) {
        json_t *names = json_array();
        for (int64_t i = 0; i < f->max; i++)
            (void)json_array_append_new(names, json_string(f->names[i]));
        (void)json_object_set_new(s, "enum", names);
    }
    return s;
}

/* A key with two rows has what both of them say. */
static void add_fields(json_t *schema, const struct json_field *table, size_t n) {
    json_t *properties = json_object_get(schema, "properties");
    for (size_t i = 0; i < n; i++) {
        _cleanup_(json) json_t *s = schema_of_field(&table[i]);
        json_t *there = json_object_get(properties, table[i].key);
        if (there)
            (void)json_object_update(there, s);
        else
            (void)json_object_set(properties, table[i].key, s);
    }
}

static json_t *schema_of_table(const struct json_field *table, size_t n) {
    json_t *schema = json_pack("{s:s,s:{}}", "type", "object", "properties");
    add_fields(schema, table, n);
    return schema;
}

/* {name: schema} of all tables. */
static json_t *all_shapes(void) {
    json_t *all = json_object();
    for (const struct json_shape *const *s = __start_json_shapes; s < __stop_json_shapes; s++) {
        json_t *there = json_object_get(all, (*s)->name);
        if (there)
            add_fields(there, (*s)->fields, (*s)->n);
        else
            (void)json_object_set_new(all, (*s)->name, schema_of_table((*s)->fields, (*s)->n));
    }
    return all;
}

/* The body of a wire that openapi.json does not describe. */
static bool is_described(const char *name) {
    return strchr(name, ' ') == NULL;
}

/* --- comparing --- */

static const json_t *resolve(const json_t *api, const json_t *s) {
    static const char prefix[] = "#/components/schemas/";
    const json_t *schemas = json_object_get(json_object_get(api, "components"), "schemas");
    const char *ref = json_string_value(json_object_get(s, "$ref"));
    if (!ref || strncmp(ref, prefix, strlen(prefix)) != 0)
        return s;
    return json_object_get(schemas, ref + strlen(prefix));
}

static void add_types(json_t *to, const json_t *api, const json_t *schema) {
    const json_t *s = resolve(api, schema);
    const json_t *type = json_object_get(s, "type");
    size_t i;
    const json_t *v;
    if (json_is_string(type))
        (void)json_object_set_new(to, json_string_value(type), json_true());
    json_array_foreach(type, i, v) {
        (void)json_object_set_new(to, json_string_value(v), json_true());
    }
    json_array_foreach(json_object_get(s, "oneOf"), i, v) {
        add_types(to, api, v);
    }
    /* Null is the same as a key that is missing, for every table. */
    if (json_object_size(to) > 1)
        (void)json_object_del(to, "null");
}

static void add_line(struct buf *lines, const char *at, const char *what, const json_t *table,
                     const json_t *schema) {
    _cleanup_(free) char *a = json_dumps(table, JSON_COMPACT | JSON_ENCODE_ANY);
    _cleanup_(free) char *b = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    (void)buf_addf(lines, "%s: \"%s\" is %s in the table, and %s in openapi.json\n", at, what,
                   a ? a : "missing", b ? b : "missing");
}

static void compare(const json_t *api, const char *at, const json_t *table, const json_t *schema,
                    struct buf *lines);

static void compare_properties(const json_t *api, const char *at, const json_t *table,
                               const json_t *schema, struct buf *lines) {
    json_t *read = json_object_get(table, "properties");
    json_t *told = json_object_get(schema, "properties");
    const char *key;
    json_t *v;
    if (!json_is_false(json_object_get(schema, "additionalProperties")))
        (void)buf_addf(lines, "%s: openapi.json lacks \"additionalProperties\": false\n", at);
    json_object_foreach(read, key, v) {
        _cleanup_(free) char *where = xasprintf("%s.%s", at, key);
        if (json_object_get(told, key))
            compare(api, where, v, json_object_get(told, key), lines);
        else
            (void)buf_addf(lines, "%s: is read, and openapi.json lacks it\n", where);
    }
    json_object_foreach(told, key, v) {
        if (!json_object_get(read, key))
            (void)buf_addf(lines, "%s.%s: openapi.json has it, and nothing reads it\n", at, key);
    }
}

static void compare(const json_t *api, const char *at, const json_t *table, const json_t *schema,
                    struct buf *lines) {
    static const char *const facts[] = {"enum", "minimum", "maximum", "maxLength", "maxItems"};
    const json_t *told = resolve(api, schema);
    _cleanup_(json) json_t *read_types = json_object();
    _cleanup_(json) json_t *told_types = json_object();
    add_types(read_types, api, table);
    add_types(told_types, api, told);
    if (json_object_size(read_types) > 0 && !json_equal(read_types, told_types))
        add_line(lines, at, "type", json_object_get(table, "type"), json_object_get(told, "type"));
    for (size_t i = 0; i < ARRAY_LEN(facts); i++) {
        const json_t *a = json_object_get(table, facts[i]);
        const json_t *b = json_object_get(told, facts[i]);
        if (!a && json_object_get(table, "x-more"))
            continue;
        if (a ? !json_equal(a, b) : b != NULL)
            add_line(lines, at, facts[i], a, b);
    }
    if (json_object_get(table, "properties"))
        compare_properties(api, at, table, told, lines);
    else if (!json_object_get(table, "type") && !json_object_get(table, "x-more"))
        (void)buf_addf(lines, "%s: its row does not say what it takes\n", at);
}

static json_t *parse_api(void) {
    json_t *api = json_read_str(openapi_json);
    assert_non_null(api);
    return api;
}

static void fail_with(struct buf *lines) {
    if (lines->len == 0) {
        buf_finish(lines);
        return;
    }
    print_error("%.*s", (int)lines->len, lines->data);
    buf_finish(lines);
    fail();
}

/* --- tests --- */

static void test_openapi_says_what_the_tables_read(void **state) {
    (void)state;
    _cleanup_(json) json_t *api = parse_api();
    _cleanup_(json) json_t *all = all_shapes();
    const json_t *schemas = json_object_get(json_object_get(api, "components"), "schemas");
    const char *name;
    json_t *table;
    struct buf lines;
    buf_init(&lines, LINES_BYTES);
    assert_true(json_object_size(all) >= 9);
    json_object_foreach(all, name, table) {
        if (!is_described(name))
            continue;
        if (json_object_get(schemas, name))
            compare(api, name, table, json_object_get(schemas, name), &lines);
        else
            (void)buf_addf(&lines, "%s: openapi.json has no schema of that name\n", name);
    }
    fail_with(&lines);
}

static bool is_by_hand(const char *operation) {
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++)
        if (strcmp(by_hand[i], operation) == 0)
            return true;
    return false;
}

static void check_operation(const json_t *all, const char *operation, const json_t *op,
                            struct buf *lines, size_t *bodies) {
    const json_t *content = json_object_get(json_object_get(op, "requestBody"), "content");
    const json_t *schema = json_object_get(json_object_get(content, "application/json"), "schema");
    if (!schema)
        return;
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    const char *name = ref ? strrchr(ref, '/') + 1 : "";
    bool has_table = json_object_get(all, name) != NULL;
    *bodies += 1;
    if (!has_table && !is_by_hand(operation))
        (void)buf_addf(lines, "%s: its body is read by no table with a JSON_SHAPE\n", operation);
    if (has_table && is_by_hand(operation))
        (void)buf_addf(lines, "%s: it has a table: take it from the list\n", operation);
}

static void test_every_body_has_a_table(void **state) {
    (void)state;
    _cleanup_(json) json_t *api = parse_api();
    _cleanup_(json) json_t *all = all_shapes();
    const char *path;
    const char *method;
    json_t *methods;
    json_t *op;
    size_t bodies = 0;
    struct buf lines;
    buf_init(&lines, LINES_BYTES);
    json_object_foreach(json_object_get(api, "paths"), path, methods) {
        json_object_foreach(methods, method, op) {
            _cleanup_(free) char *operation = xasprintf("%s %s", method, path);
            check_operation(all, operation, op, &lines, &bodies);
        }
    }
    assert_true(bodies > ARRAY_LEN(by_hand));
    fail_with(&lines);
}

/* The rows of a thing that is not served, against schemas that differ in one place each. */
static void test_each_difference_is_found(void **state) {
    (void)state;
    struct thing {
        const char *name;
        int64_t size;
        unsigned color;
        const json_t *list;
        int64_t depth;
    };
    static const char *const colors[] = {"red", "blue"};
    static const struct json_field inner[] = {JSON_INT("depth", struct thing, depth, 0, INT64_MAX)};
    static const struct json_field rows[] = {
        JSON_TEXT_MAX("name", struct thing, name, 9),
        JSON_INT("size", struct thing, size, 1, 10),
        JSON_ENUM("color", struct thing, color, colors),
        JSON_LIST("list", struct thing, list),
        JSON_OBJECT_HERE("inner", inner),
    };
#define HEAD  "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{"
#define NAME  "\"name\":{\"type\":\"string\",\"maxLength\":9}"
#define SIZE  "\"size\":{\"type\":[\"integer\",\"null\"],\"minimum\":1,\"maximum\":10}"
#define COLOR "\"color\":{\"type\":\"string\",\"enum\":[\"red\",\"blue\"]}"
#define LIST  "\"list\":{\"type\":\"array\"}"
#define INNER "\"inner\":" HEAD "\"depth\":{\"type\":\"integer\",\"minimum\":0}}}"
    static const struct {
        const char *schema, *says;
    } cases[] = {
        {HEAD NAME "," SIZE "," COLOR "," LIST "," INNER "}}", ""},
        {HEAD NAME "," SIZE "," COLOR "," INNER "}}",
         "T.list: is read, and openapi.json lacks it\n"},
        {HEAD NAME "," SIZE "," COLOR "," LIST "," INNER ",\"new\":{}}}",
         "T.new: openapi.json has it, and nothing reads it\n"},
        {HEAD "\"name\":{\"type\":\"string\"}," SIZE "," COLOR "," LIST "," INNER "}}",
         "T.name: \"maxLength\" is 9 in the table, and missing in openapi.json\n"},
        {HEAD NAME ",\"size\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":10}," COLOR "," LIST
                   "," INNER "}}",
         "T.size: \"minimum\" is 1 in the table, and 0 in openapi.json\n"},
        {HEAD NAME ",\"size\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":11}," COLOR "," LIST
                   "," INNER "}}",
         "T.size: \"maximum\" is 10 in the table, and 11 in openapi.json\n"},
        {HEAD NAME "," SIZE ",\"color\":{\"type\":\"string\",\"enum\":[\"red\"]}," LIST "," INNER
                   "}}",
         "T.color: \"enum\" is [\"red\",\"blue\"] in the table, and [\"red\"] in openapi.json\n"},
        {HEAD NAME "," SIZE "," COLOR ",\"list\":{\"type\":\"object\"}," INNER "}}",
         "T.list: \"type\" is \"array\" in the table, and \"object\" in openapi.json\n"},
        {HEAD NAME "," SIZE "," COLOR ",\"list\":{\"type\":\"array\",\"maxItems\":3}," INNER "}}",
         "T.list: \"maxItems\" is missing in the table, and 3 in openapi.json\n"},
        {HEAD NAME "," SIZE "," COLOR "," LIST ",\"inner\":" HEAD "}}}}",
         "T.inner.depth: is read, and openapi.json lacks it\n"},
        {"{\"type\":\"object\",\"properties\":{" NAME "," SIZE "," COLOR "," LIST "," INNER "}}",
         "T: openapi.json lacks \"additionalProperties\": false\n"},
    };
    _cleanup_(json) json_t *table = schema_of_table(rows, ARRAY_LEN(rows));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_(json) json_t *schema = json_read_str(cases[i].schema);
        struct buf lines;
        assert_non_null(schema);
        buf_init(&lines, LINES_BYTES);
        compare(NULL, "T", table, schema, &lines);
        (void)buf_add_char(&lines, 0);
        assert_string_equal(lines.data, cases[i].says);
        buf_finish(&lines);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        PLAIN(test_openapi_says_what_the_tables_read),
        PLAIN(test_every_body_has_a_table),
        PLAIN(test_each_difference_is_found),
    };
    if (argc > 1 && strcmp(argv[1], "--print") == 0) {
        _cleanup_(json) json_t *all = all_shapes();
        return json_dumpf(all, stdout, JSON_INDENT(1)) < 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
