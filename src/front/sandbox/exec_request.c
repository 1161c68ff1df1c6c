#include "base/cleanup.h"
#include "base/json_table.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/sandbox/internal_exec.h"

#include <stdlib.h>
#include <string.h>

/* A command that is asked for. The table turns the body of POST .../exec into a struct; the checks
 * are made on the struct, so they hold for what the server itself starts, too. */

enum {
    ARGS_MAX = 4096,
    ENV_MAX = 4096,
    ARGS_BYTES = 512 * 1024,
    STDIN_BYTES = 1 << 20,
    TIMEOUT_MAX_S = 31536000,
    SIZE_MAX_CELLS = 1000, /* of a terminal */
};

static int exec_request_refuse_argv(struct err *err) {
    return err_set(err, ERR_BAD_REQUEST, "\"argv\" must be a list of 1 to %d strings", ARGS_MAX);
}

int exec_request_add_args(struct exec_request *r, const json_t *list, struct err *err) {
    size_t i;
    const json_t *s;
    if (json_array_size(list) > ARGS_MAX)
        return exec_request_refuse_argv(err);
    json_array_foreach(list, i, s) {
        const char *text = json_string_value(s);
        if (!text || strlen(text) != json_string_length(s))
            return err_set(err, ERR_BAD_REQUEST, "\"argv\" must be a list of strings without NUL");
        sandbox_strv_add(&r->argv, text);
    }
    return 0;
}

static int exec_request_read_argv(const json_t *list, void *member, struct err *err) {
    if (json_array_size(list) == 0)
        return exec_request_refuse_argv(err);
    return exec_request_add_args(CONTAINER_OF(member, struct exec_request, argv), list, err);
}

static int exec_request_read_stdin(const json_t *v, void *member, struct err *err) {
    struct exec_stdin *in = member;
    if (json_is_boolean(v) || json_is_null(v)) {
        in->open = json_is_true(v);
        return 0;
    }
    if (!json_is_string(v))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"stdin\" is a text, or true to keep it open for POST .../stdin");
    in->text = json_string_value(v);
    in->len = json_string_length(v);
    return 0;
}

int exec_request_read(const json_t *body, struct exec_request *ret, struct err *err) {
    static const struct json_field table[] = {
        JSON_TEXT("command", struct exec_request, command),
        JSON_READ("argv", struct exec_request, argv, exec_request_read_argv, "array"),
        JSON_READ("env", struct exec_request, env, sandbox_env_read, "object"),
        JSON_TEXT("cwd", struct exec_request, cwd),
        JSON_BOOL("tty", struct exec_request, tty),
        JSON_BOOL("background", struct exec_request, background),
        JSON_BOOL("read_only", struct exec_request, read_only),
        JSON_INT("cols", struct exec_request, cols, 1, SIZE_MAX_CELLS),
        JSON_INT("rows", struct exec_request, rows, 1, SIZE_MAX_CELLS),
        JSON_INT("timeout_s", struct exec_request, timeout_s, 1, TIMEOUT_MAX_S),
        JSON_READ("stdin", struct exec_request, in, exec_request_read_stdin, "string,boolean"),
    };
    JSON_SHAPE("ExecRequest", table);
    struct exec_request r = {0};
    int rc = json_is_array(json_object_get(body, "command"))
                 ? err_set(err, ERR_BAD_REQUEST,
                           "\"command\" is a text for sh: a list of words is \"argv\"")
                 : json_table_read(table, ARRAY_LEN(table), body, "the request", &r, err);
    if (rc < 0)
        exec_request_finish(&r);
    else
        *ret = r;
    return rc;
}

void exec_request_add_env(struct exec_request *r, const char *name, const char *value) {
    _cleanup_(free) char *entry = xasprintf("%s=%s", name, value);
    sandbox_strv_add(&r->env, entry);
}

void exec_request_finish(struct exec_request *r) {
    sandbox_strv_finish(&r->argv);
    sandbox_strv_finish(&r->env);
}

static int exec_request_check(const struct exec_request *r, struct err *err) {
    size_t bytes = 0;
    for (size_t i = 0; i < r->argv.n; i++)
        bytes += strlen(r->argv.items[i]) + 1;
    if (!r->command == (r->argv.n == 0))
        return err_set(err, ERR_BAD_REQUEST,
                       "say what to run: either \"command\" (for sh) or \"argv\" (a list)");
    if (r->command && strlen(r->command) > LIMIT_SHELL_COMMAND_BYTES)
        return err_set(err, ERR_TOO_LARGE,
                       "\"command\" exceeds %d bytes: write it into a file and run that",
                       LIMIT_SHELL_COMMAND_BYTES);
    if (r->argv.n > ARGS_MAX)
        return exec_request_refuse_argv(err);
    if (bytes > ARGS_BYTES)
        return err_set(err, ERR_TOO_LARGE, "\"argv\" exceeds %d bytes", ARGS_BYTES);
    if (r->argv.n > 0 && !*r->argv.items[0])
        return err_set(err, ERR_BAD_REQUEST, "the name of the program is empty");
    if (r->cwd && strlen(r->cwd) >= SANDBOX_PATH_MAX)
        return err_set(err, ERR_BAD_REQUEST, "\"cwd\" is too long");
    if (r->in.len > STDIN_BYTES)
        return err_set(err, ERR_TOO_LARGE, "\"stdin\" exceeds %d bytes: send true, then POST them",
                       STDIN_BYTES);
    return 0;
}

int exec_request_resolve(const struct exec_request *r, const struct sandbox *s,
                         struct sandbox_exec *ret, struct err *err) {
    static const char *const sh[] = {"sh", "-c"};
    struct sandbox_exec x = {.tty = r->tty,
                             .read_only = r->read_only,
                             .cols = r->cols ? (uint32_t)r->cols : 80,
                             .rows = r->rows ? (uint32_t)r->rows : 24};
    int rc = exec_request_check(r, err);
    if (rc < 0)
        return rc;
    if (s->line)
        network_line_env(s->line, &s->env, &r->env, &x.env);
    if (x.env.n + r->env.n > ENV_MAX) {
        sandbox_strv_finish(&x.env);
        return err_set(err, ERR_TOO_LARGE, "\"env\" has more than %d names", ENV_MAX);
    }
    for (size_t i = 0; i < r->env.n; i++)
        sandbox_strv_add(&x.env, r->env.items[i]);
    for (size_t i = 0; r->command && i < ARRAY_LEN(sh); i++)
        sandbox_strv_add(&x.argv, sh[i]);
    if (r->command)
        sandbox_strv_add(&x.argv, r->command);
    for (size_t i = 0; i < r->argv.n; i++)
        sandbox_strv_add(&x.argv, r->argv.items[i]);
    x.cwd = xstrdup(r->cwd ? r->cwd : "");
    *ret = x;
    return 0;
}

json_t *exec_request_doc(const struct exec_request *r) {
    json_t *d = json_object();
    json_t *argv = json_array();
    for (size_t i = 0; i < r->argv.n; i++)
        (void)json_array_append_new(argv, json_string(r->argv.items[i]));
    if (r->command)
        (void)json_object_set_new(d, "command", json_string(r->command));
    if (r->argv.n > 0)
        (void)json_object_set(d, "argv", argv);
    json_decref(argv);
    if (r->cwd)
        (void)json_object_set_new(d, "cwd", json_string(r->cwd));
    if (r->tty)
        (void)json_object_set_new(d, "tty", json_true());
    if (r->background)
        (void)json_object_set_new(d, "background", json_true());
    return d;
}
