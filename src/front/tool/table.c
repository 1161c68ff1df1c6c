#include "base/cleanup.h"
#include "base/mem.h"
#include "front/tool/tool.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tools of agents: a new one is a file and a line here. Those of /execute/sdk, which have no
 * kind, are listed in execute/sdk.c. */
static const struct tool *const table[] = {
    &tool_execute_code,
    &tool_query_database,
};

const struct tool *tool_of_kind(const char *kind) {
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i]->kind && strcmp(table[i]->kind, kind) == 0)
            return table[i];
    return NULL;
}

void tool_kinds(char *out, size_t size) {
    size_t n = 0;
    size_t left = 0;
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        left += table[i]->kind != NULL;
    out[0] = 0;
    for (size_t i = 0; i < ARRAY_LEN(table) && n < size; i++) {
        if (!table[i]->kind)
            continue;
        const char *before = n == 0 ? "" : left == 1 ? " or " : ", ";
        n += (size_t)snprintf(out + n, size - n, "%s%s", before, table[i]->kind);
        left--;
    }
}

/* --- an offer --- */

int tool_offer_init(struct tool_offer *o, const struct tool *tool,
                    const struct tool_offer_options *options, struct err *err) {
    const char *name = options->name ? options->name : tool->name;
    const char *description = options->description ? options->description : tool->description;
    json_t *schema = json_read_str(tool->schema);
    assert(schema);
    json_t *property = tool->parameter
                           ? json_object_get(json_object_get(schema, "properties"), tool->parameter)
                           : NULL;
    bool ok = !options->input || !property ||
              json_object_set_new(property, "description", json_string(options->input)) == 0;
    json_t *spec = ok ? json_pack("{s:s,s:s,s:O}", "name", name, "description", description,
                                  "input_schema", schema)
                      : NULL;
    json_decref(schema);
    if (!spec)
        return err_set(err, ERR_BAD_REQUEST, "its texts must be UTF-8");
    *o = (struct tool_offer){.tool = tool,
                             .name = xstrdup(name),
                             .facet = options->facet ? xstrdup(options->facet) : NULL,
                             .spec = spec};
    return 0;
}

void tool_offer_finish(struct tool_offer *o) {
    free(o->name);
    free(o->facet);
    json_decref(o->spec);
    *o = (struct tool_offer){0};
}

const struct tool_offer *tool_offer_find(const struct tool_offer *list, size_t n,
                                         const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    return NULL;
}

/* --- calls that are left --- */

void tool_call_leave(struct tool_call *call) {
    call->done = NULL;
    call->next = call->env->left;
    call->env->left = call;
}

void tool_call_forget(struct tool_call *call) {
    if (!call->env || call->done)
        return;
    struct tool_call **at = &call->env->left;
    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
}

void tool_env_finish(struct tool_env *env) {
    for (struct tool_call *c = env->left; c; c = c->next)
        c->env = NULL;
    env->left = NULL;
    json_decref(env->todos);
    env->todos = NULL;
}
