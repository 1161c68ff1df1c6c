#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
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
    struct intake_item *reading; /* of a large answer */
    struct later refused;        /* it was not begun... */
    struct err why;              /* ...because of this */
};

/* An answer, which a thread reads if it is large. */
struct query_answer {
    struct query_call *call;
    char *json;
    size_t len;
    json_t *output;
    char *text; /* the same as JSON */
    size_t text_len;
};

static void query_answer_free(void *ctx) {
    struct query_answer *a = ctx;
    free(a->json);
    json_decref(a->output);
    free(a->text);
    free(a);
}

/* In any thread. */
static void query_answer_read(void *ctx) {
    struct query_answer *a = ctx;
    json_t *rows = rows_read(a->json, a->len);
    a->output = json_pack("{s:I,s:o}", "rowCount", (json_int_t)json_array_size(rows), "rows", rows);
    a->text = json_dump_text(a->output, SIZE_MAX / 2, &a->text_len);
}

static void query_answer_tell(struct query_answer *a) {
    struct query_call *c = a->call;
    c->base.done(c->base.ctx,
                 &(struct tool_result){.output = a->output, .text = a->text, .len = a->text_len});
    free(c);
}

static void query_database_on_read(void *ctx) {
    struct query_answer *a = ctx;
    struct intake *intake = a->call->base.env->intake;
    query_answer_tell(a);
    intake_dispose(intake, query_answer_free, a);
}

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
    struct query_answer *a = xcalloc(1, sizeof(*a));
    *a = (struct query_answer){.call = c, .json = xmalloc(len), .len = len};
    memcpy(a->json, json, len);
    c->op = NULL;
    if (c->base.env->intake && len > LIMIT_READ_AT_ONCE_BYTES) {
        c->reading = intake_start(c->base.env->intake,
                                  &(struct intake_ask){.owner = c->base.env->owner,
                                                       .bytes = len,
                                                       .waits = true,
                                                       .work = query_answer_read,
                                                       .on_done = query_database_on_read,
                                                       .free = query_answer_free,
                                                       .ctx = a},
                                  NULL);
        return;
    }
    query_answer_read(a);
    query_answer_tell(a);
    query_answer_free(a);
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
    if (c->reading)
        intake_cancel(c->reading);
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
