#include "base/buf.h"
#include "base/cleanup.h"
#include "base/mem.h"
#include "front/tool/tool.h"

#include <stdlib.h>
#include <string.h>

/* A module that the model wrote, run in a fresh isolate with the bindings of the environment:
 * {"code"} gives {"output","error"}. */

enum { SOURCE_MAX_BYTES = 64 << 20 };

static const char harness[] = "import { WorkerEntrypoint } from \"cloudflare:workers\";\n"
                              "import run from \"user-code.js\";\n"
                              "export default class extends WorkerEntrypoint {\n"
                              "  verify() {}\n"
                              "  async run() { await run(this.env); }\n"
                              "}\n";

struct code_call {
    struct tool_call base;
    struct run *run;
    char *code;
};

static void execute_code_free_call(struct code_call *c) {
    tool_call_forget(&c->base);
    free(c->code);
    free(c);
}

/* The error of a run as one text: its stack, or its name, message and place. */
static char *execute_code_error_text(const json_t *error) {
    const json_t *stack = json_object_get(error, "stack");
    if (json_is_string(stack))
        return xstrdup(json_string_value(stack));
    const char *name = json_string_value(json_object_get(error, "name"));
    const char *message = json_string_value(json_object_get(error, "message"));
    const char *excerpt = json_string_value(json_object_get(error, "excerpt"));
    return xasprintf("%s: %s%s%s", name ? name : "Error", message ? message : "",
                     excerpt ? "\n" : "", excerpt ? excerpt : "");
}

/* {"output","error"} as the Sandbox example shapes it: console lines, a blank line, the error. A
 * program that could not be loaded has printed nothing. */
static json_t *shape_output(const struct run *run) {
    const json_t *error = run_error(run);
    const char *kind = json_string_value(json_object_get(error, "kind"));
    _cleanup_(free) char *text = error ? execute_code_error_text(error) : NULL;
    size_t n;
    const char *lines = run_output(run, &n);
    _cleanup_(buf) struct buf out;
    buf_init(&out, n + (text ? strlen(text) : 0) + 64);
    if (!kind || strcmp(kind, "load") != 0) {
        (void)buf_add(&out, lines, n);
        if (text)
            (void)buf_addf(&out, "%sError: %s", n ? "\n\n" : "", text);
        if (out.len == 0)
            (void)buf_add_str(&out, "(no output)");
    }
    json_t *output = json_stringn(out.data ? out.data : "", out.len);
    return json_pack("{s:o,s:o}", "output",
                     output ? output : json_string("(the output is not text)"), "error",
                     text ? json_text(text) : json_null());
}

static void execute_code_on_run_done(void *ctx, const struct run *run, const char *record,
                                     size_t len) {
    (void)record;
    (void)len;
    struct code_call *c = ctx;
    struct tool_env *env = c->base.env;
    _cleanup_(json) json_t *output = shape_output(run);
    if (env && env->on_execution)
        env->on_execution(
            env->ctx,
            &(struct tool_execution){.run = run_id(run),
                                     .code = c->code,
                                     .output = json_string_value(json_object_get(output, "output")),
                                     .error = json_string_value(json_object_get(output, "error")),
                                     .cancelled = !c->base.done});
    tool_done done = c->base.done;
    void *done_ctx = c->base.ctx;
    execute_code_free_call(c);
    if (done)
        done(done_ctx, &(struct tool_result){.output = output});
}

static void execute_code_write_source(struct buf *out, const char *code) {
    struct json_writer w;
    json_writer_init(&w, out);
    json_writer_object_begin(&w);
    json_put_str(&w, "mainModule", "harness.js");
    json_put_object_begin(&w, "modules");
    json_put_str(&w, "harness.js", harness);
    json_put_str(&w, "user-code.js", code);
    json_writer_object_end(&w);
    json_writer_object_end(&w);
}

static int execute_code_start(const struct tool_request *q, struct tool_call **ret_call,
                              struct err *err) {
    const char *code = json_string_value(json_object_get(q->input, "code"));
    if (!code)
        return err_set(err, ERR_BAD_REQUEST, "the tool \"%s\" needs a text \"code\"",
                       q->offer->name);
    _cleanup_(buf) struct buf source;
    buf_init(&source, SOURCE_MAX_BYTES);
    execute_code_write_source(&source, code);
    static const char spec[] = "{\"verify\":true,\"method\":\"run\"}";
    struct code_call *c = xcalloc(1, sizeof(*c));
    c->base = (struct tool_call){.env = q->env, .done = q->done, .ctx = q->ctx};
    c->code = xstrdup(code);
    struct run_request r = {.owner = q->env->owner,
                            .key = q->env->key,
                            .kind = "execution",
                            .inner = true,
                            .title = q->env->title,
                            .source = source.data,
                            .source_len = source.len,
                            .code = c->code,
                            .spec = spec,
                            .spec_len = sizeof(spec) - 1,
                            .env = q->env->bindings,
                            .limits = q->env->limits,
                            .callbacks = {.on_done = execute_code_on_run_done},
                            .ctx = c};
    c->run = run_start(q->env->runner, q->env->jobs, &r, err);
    if (!c->run) {
        execute_code_free_call(c);
        return -(int)err->code;
    }
    *ret_call = &c->base;
    return 0;
}

/* What the program has done stays, and is told when it has ended. */
static void execute_code_cancel(struct tool_call *call) {
    struct code_call *c = (struct code_call *)call;
    tool_call_leave(call);
    run_cancel(c->run);
}

const struct tool tool_execute_code = {
    .name = "executeCode",
    .kind = "code",
    .description = "Runs a JavaScript module, whose default export is an async function (env), in "
                   "an isolate. What it prints with console.log comes back.",
    .schema = "{\"type\":\"object\",\"properties\":{\"code\":{\"type\":\"string\","
              "\"description\":\"\"}},\"required\":[\"code\"],\"additionalProperties\":false}",
    .parameter = "code",
    .start = execute_code_start,
    .cancel = execute_code_cancel,
};
