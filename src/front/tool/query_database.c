#include "base/buf.h"
#include "base/cleanup.h"
#include "base/mem.h"
#include "front/tool/rows.h"
#include "front/tool/tool.h"

#include <stdlib.h>
#include <string.h>

/* One query on a facet, which cannot write: {"sql"} gives {"rowCount","rows"} or {"error"}. */

enum { ARGS_MAX_BYTES = 64 << 20 };

struct query_call {
    struct tool_call base;
    struct facet_op *op;
    struct later refused; /* it was not begun... */
    struct err why;       /* ...because of this */
};

/* Takes output. */
static void query_database_finish(struct query_call *c, json_t *output) {
    c->base.done(c->base.ctx, &(struct tool_result){.output = output});
    json_decref(output);
    free(c);
}

static json_t *query_database_failure(const char *json, size_t len, const struct err *err) {
    _cleanup_(json) json_t *e = json ? json_read(json, len) : NULL;
    const char *name = json_string_value(json_object_get(e, "name"));
    _cleanup_(json) json_t *text = rows_error(json, len, err);
    return json_pack("{s:o}", "error",
                     json_sprintf("%s: %s", name ? name : "Error", json_string_value(text)));
}

static void query_database_on_answer(void *ctx, bool ok, const char *json, size_t len,
                                     const struct err *err) {
    struct query_call *c = ctx;
    size_t max = c->base.env->result_bytes;
    if (!ok) {
        query_database_finish(c, query_database_failure(json, len, err));
        return;
    }
    if (len > max) {
        query_database_finish(
            c, json_pack("{s:o}", "error",
                         json_sprintf("the result has %zu bytes and may have %zu (limit "
                                      "agent_tool_bytes): select fewer rows or columns",
                                      len, max)));
        return;
    }
    json_t *rows = rows_read(json, len);
    query_database_finish(
        c, json_pack("{s:I,s:o}", "rowCount", (json_int_t)json_array_size(rows), "rows", rows));
}

static void query_database_on_refused(void *ctx) {
    struct query_call *c = ctx;
    query_database_finish(c, query_database_failure(NULL, 0, &c->why));
}

static const struct facet_ref *find_facet(const struct tool_env *env, const char *name) {
    for (size_t i = 0; i < env->nfacets; i++)
        if (strcmp(env->facets[i].name, name) == 0)
            return &env->facets[i].ref;
    return NULL;
}

static int query_database_start(const struct tool_request *q, struct tool_call **ret_call,
                                struct err *err) {
    const json_t *sql = json_object_get(q->input, "sql");
    const struct facet_ref *ref = find_facet(q->env, q->offer->facet);
    if (!json_is_string(sql))
        return err_set(err, ERR_BAD_REQUEST, "the tool \"%s\" needs a text \"sql\"",
                       q->offer->name);
    if (!ref)
        return err_set(err, ERR_NOT_FOUND, "there is no database \"%s\" here", q->offer->facet);
    _cleanup_(buf) struct buf args;
    buf_init(&args, ARGS_MAX_BYTES);
    (void)buf_add_char(&args, '[');
    json_write_str(&args, json_string_value(sql), strlen(json_string_value(sql)));
    (void)buf_add_char(&args, ']');
    struct query_call *c = xcalloc(1, sizeof(*c));
    c->base = (struct tool_call){.env = q->env, .done = q->done, .ctx = q->ctx};
    c->op = facets_call(q->env->runner->facets, ref, "query", args.data, query_database_on_answer,
                        c, &c->why);
    if (!c->op)
        later_post(q->env->later, &c->refused, query_database_on_refused, c);
    *ret_call = &c->base;
    return 0;
}

static void query_database_cancel(struct tool_call *call) {
    struct query_call *c = (struct query_call *)call;
    facet_op_cancel(c->op);
    later_cancel(&c->refused);
    free(c);
}

const struct tool tool_query_database = {
    .name = "queryDatabase",
    .kind = "query",
    .needs_facet = true,
    .description = "Runs one SELECT on the database and gives its rows.",
    .schema = "{\"type\":\"object\",\"properties\":{\"sql\":{\"type\":\"string\","
              "\"description\":\"\"}},\"required\":[\"sql\"],\"additionalProperties\":false}",
    .parameter = "sql",
    .start = query_database_start,
    .cancel = query_database_cancel,
};
