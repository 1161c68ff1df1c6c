#include "front/agent/definition.h"
#include "unit/unit.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char dir[64];
static struct err e;
static struct agent_def *defs;

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static int setup(void **state) {
    (void)state;
    defs = NULL;
    (void)snprintf(dir, sizeof(dir), "/tmp/cay-unit-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    agent_defs_free(defs);
    return nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void put(const char *type, const char *name, const char *text) {
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, type);
    (void)mkdir(path, 0700);
    (void)snprintf(path, sizeof(path), "%s/%s/%s", dir, type, name);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    (void)fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void an_empty_definition_has_defaults(void **state) {
    (void)state;
    put("plain", "agent.json", "{}");
    put("notes", "README", "no agent.json: no agent");
    assert_int_equal(agent_defs_load(dir, &defs, &e), 0);
    assert_null(defs->next);
    assert_string_equal(defs->type, "plain");
    assert_string_equal(defs->title, "plain");
    assert_string_equal(defs->description, "");
    assert_int_equal(defs->max_steps, 5);
    assert_null(defs->prompt);
    assert_null(defs->model);
    assert_int_equal(defs->ntools, 0);
    assert_ptr_equal(agent_defs_find(defs, "plain"), defs);
    assert_null(agent_defs_find(defs, "Plain"));
}

static void everything_is_read(void **state) {
    (void)state;
    put("todo", "agent.json",
        "{\"title\":\"T\",\"description\":\"D\",\"model\":\"opus\",\"max_steps\":7,\"max_tokens\":"
        "99,"
        "\"facets\":{\"db\":{\"schema\":\"s.sql\",\"durability\":\"full\",\"methods\":{"
        "\"all\":\"SELECT 1\",\"add\":{\"sql\":\"INSERT\",\"kind\":\"execute\"}}}},"
        "\"env\":{\"db\":{\"facet\":\"db\",\"methods\":[\"all\",\"query\"]},\"N\":{\"x\":1}},"
        "\"rpc\":{\"plus\":{\"facet\":\"db\",\"method\":\"add\"}},"
        "\"tools\":[{\"name\":\"run\",\"kind\":\"code\",\"description\":\"c\",\"input\":\"i\"},"
        "{\"name\":\"ask\",\"kind\":\"query\",\"facet\":\"db\",\"description\":\"q\"}],"
        "\"state\":{\"rows\":{\"facet\":\"db\",\"method\":\"all\"},\"last\":{\"executions\":3},"
        "\"mode\":\"dark\"},"
        "\"budget\":{\"tokens\":10,\"cost_usd\":0.5,\"wall_ms\":1000},\"try\":[\"x\"]}");
    put("todo", "s.sql", "CREATE TABLE t (x);");
    put("todo", "prompt.md", "Be brief.");
    put("todo", "demo.json", "{\"scripts\":[]}");
    assert_int_equal(agent_defs_load(dir, &defs, &e), 0);
    assert_int_equal(defs->max_steps, 7);
    assert_int_equal(defs->max_tokens, 99);
    assert_string_equal(defs->prompt, "Be brief.");
    const struct agent_facet *f = &defs->facets[0];
    assert_string_equal(f->open.schema, "CREATE TABLE t (x);");
    assert_true(f->open.full);
    assert_true(agent_facet_has(f, "batch"));
    assert_false(agent_facet_has(f, "nosuch"));
    assert_false(agent_facet_changes(f, "all"));
    assert_false(agent_facet_changes(f, "query"));
    assert_true(agent_facet_changes(f, "add"));
    assert_true(agent_facet_changes(f, "execute"));
    assert_int_equal(defs->nenv, 2);
    assert_string_equal(defs->env[0].methods[1], "query");
    assert_null(defs->env[0].methods[2]);
    assert_null(defs->env[1].facet);
    assert_string_equal(defs->rpc[0].methods[0], "add");
    assert_ptr_equal(agent_def_tool(defs, "ask")->tool, &tool_query_database);
    assert_string_equal(agent_def_tool(defs, "ask")->facet, "db");
    assert_null(agent_def_tool(defs, "nosuch"));
    const json_t *schema = json_object_get(defs->tools[0].spec, "input_schema");
    assert_string_equal(json_string_value(json_array_get(json_object_get(schema, "required"), 0)),
                        "code");
    assert_int_equal(defs->state[1].limit, 3);
    assert_int_equal(defs->state[2].kind, AGENT_STATE_VALUE);
    assert_int_equal(defs->budget.wall_ms, 1000);
    assert_true(defs->budget.cost_usd == 0.5);
}

/* The stored state is trusted only while what it was made from is the same. */
static void the_version_changes_with_the_definition_and_the_schema(void **state) {
    (void)state;
    static const char *const one = "{\"facets\":{\"db\":{\"schema\":\"s.sql\"}}}";
    char first[32];
    put("a", "agent.json", one);
    put("a", "s.sql", "CREATE TABLE t (x);");
    assert_int_equal(agent_defs_load(dir, &defs, &e), 0);
    (void)snprintf(first, sizeof(first), "%s", defs->version);
    agent_defs_free(defs);
    defs = NULL;
    assert_int_equal(agent_defs_load(dir, &defs, &e), 0);
    assert_string_equal(defs->version, first);
    agent_defs_free(defs);
    defs = NULL;
    put("a", "s.sql", "CREATE TABLE t (y);");
    assert_int_equal(agent_defs_load(dir, &defs, &e), 0);
    assert_string_not_equal(defs->version, first);
    agent_defs_free(defs);
    defs = NULL;
    put("a", "s.sql", "CREATE TABLE t (x);");
    put("a", "agent.json", "{\"max_steps\":3,\"facets\":{\"db\":{\"schema\":\"s.sql\"}}}");
    assert_int_equal(agent_defs_load(dir, &defs, &e), 0);
    assert_string_not_equal(defs->version, first);
}

static void one_broken_folder_stops_all(void **state) {
    (void)state;
    put("a", "agent.json", "{}");
    put("b", "agent.json", "{\"tools\":[{\"name\":\"x\"}]}");
    put("c", "agent.json", "{}");
    assert_int_equal(agent_defs_load(dir, &defs, &e), -ERR_BAD_REQUEST);
    assert_null(defs);
    assert_string_equal(e.message, "agents/b/agent.json: tools[0]: needs \"name\", \"kind\" and "
                                   "\"description\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(an_empty_definition_has_defaults),
        UNIT(everything_is_read),
        UNIT(the_version_changes_with_the_definition_and_the_schema),
        UNIT(one_broken_folder_stops_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
