#include "base/cleanup.h"
#include "base/mem.h"
#include "front/tool/tool.h"

#include <stdlib.h>
#include <string.h>

/* The list of what is to be done, which the model keeps for itself and for whoever reads along:
 * {"todos":[{"content","status","activeForm"}]} replaces it. */

enum { TODOS_MAX = 200, TEXT_BYTES = 2000 };

struct todo_call {
    struct tool_call base;
    struct later told;
    json_t *detail;
};

static void todo_write_free_call(struct todo_call *c) {
    json_decref(c->detail);
    free(c);
}

static bool is_status(const char *s) {
    return strcmp(s, "pending") == 0 || strcmp(s, "in_progress") == 0 ||
           strcmp(s, "completed") == 0;
}

/* A new item with what it has to have and nothing else. */
static int read_todo(const json_t *in, json_t **ret, struct err *err) {
    const char *content = json_string_value(json_object_get(in, "content"));
    const char *status = json_string_value(json_object_get(in, "status"));
    const char *form = json_string_value(json_object_get(in, "activeForm"));
    if (!content || !*content || !form || !status || !is_status(status))
        return err_set(err, ERR_BAD_REQUEST,
                       "each of \"todos\" needs the texts \"content\" and \"activeForm\", and a "
                       "\"status\" that is pending, in_progress or completed");
    if (strlen(content) > TEXT_BYTES || strlen(form) > TEXT_BYTES)
        return err_set(err, ERR_TOO_LARGE, "a text of \"todos\" exceeds %d bytes", TEXT_BYTES);
    *ret = json_pack("{s:s,s:s,s:s}", "content", content, "status", status, "activeForm", form);
    return 0;
}

static int read_todos(const json_t *in, json_t *out, struct err *err) {
    if (!json_is_array(in))
        return err_set(err, ERR_BAD_REQUEST, "\"todos\" must be a list");
    if (json_array_size(in) > TODOS_MAX)
        return err_set(err, ERR_TOO_LARGE, "\"todos\" has more than %d items", TODOS_MAX);
    size_t i;
    const json_t *v;
    json_array_foreach(in, i, v) {
        json_t *todo = NULL;
        int rc = read_todo(v, &todo, err);
        if (rc < 0)
            return rc;
        (void)json_array_append_new(out, todo);
    }
    return 0;
}

static void todo_write_tell(void *ctx) {
    struct todo_call *c = ctx;
    _cleanup_(json) json_t *text = json_string(
        "The list is written. Go on with what is in progress, and keep the list up to date.");
    tool_done done = c->base.done;
    void *done_ctx = c->base.ctx;
    _cleanup_(json) json_t *detail = steal_ptr(&c->detail);
    todo_write_free_call(c);
    done(done_ctx, &(struct tool_result){.output = text, .detail = detail});
}

static int todo_write_start(const struct tool_request *q, struct tool_call **ret_call,
                            struct err *err) {
    _cleanup_(json) json_t *todos = json_array();
    int rc = read_todos(json_object_get(q->input, "todos"), todos, err);
    if (rc < 0)
        return rc;
    struct todo_call *c = xcalloc(1, sizeof(*c));
    c->base = (struct tool_call){.env = q->env, .done = q->done, .ctx = q->ctx};
    json_t *before = q->env->todos ? steal_ptr(&q->env->todos) : json_array();
    c->detail = json_pack("{s:o,s:O}", "oldTodos", before, "newTodos", todos);
    q->env->todos = steal_ptr(&todos);
    later_post(q->env->later, &c->told, todo_write_tell, c);
    *ret_call = &c->base;
    return 0;
}

static void todo_write_cancel(struct tool_call *call) {
    struct todo_call *c = (struct todo_call *)call;
    later_cancel(&c->told);
    todo_write_free_call(c);
}

const struct tool tool_todo_write = {
    .name = "TodoWrite",
    .description =
        "Keeps a list of what is to be done, for work of several steps. Each call "
        "replaces the whole list. Have exactly one item in progress, and mark an item as "
        "completed as soon as it is.",
    .schema = "{\"type\":\"object\",\"properties\":{\"todos\":{\"type\":\"array\",\"items\":{"
              "\"type\":\"object\",\"properties\":{"
              "\"content\":{\"type\":\"string\",\"description\":\"What is to be done\"},"
              "\"status\":{\"type\":\"string\",\"enum\":[\"pending\",\"in_progress\","
              "\"completed\"]},"
              "\"activeForm\":{\"type\":\"string\",\"description\":\"The same while it is being "
              "done: Running the tests\"}},"
              "\"required\":[\"content\",\"status\",\"activeForm\"],\"additionalProperties\":"
              "false}}},\"required\":[\"todos\"],\"additionalProperties\":false}",
    .start = todo_write_start,
    .cancel = todo_write_cancel,
};
