#include "base/base64.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/mem.h"
#include "front/cli/cli.h"
#include "front/cli/console.h"
#include "front/cli/sandbox.h"
#include "front/cli/socket.h"
#include "front/cli/stdio.h"
#include "front/cli/terminal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* Commands in a sandbox of a server. Its output is a stream of events with byte offsets, which is
 * taken up again where a lost connection left it; a terminal is a WebSocket. */

enum {
    EVENT_MAX_BYTES = 8 << 20,
    TRIES = 8,
    RETRY_MS = 250,
    INPUT_MAX_BYTES = 1 << 20,
    SOCKET_HIGH_BYTES = 256 << 10,
    /* A stream on which nothing comes may be that of a quiet command, or of a server that is gone:
     * after this long it is asked, and then has this long to answer. */
    SILENCE_MS = 8000,
    ANSWER_MS = 4000,
    SIGNAL_MS = 5000, /* for passing on a signal that is to end the command */
    RECORD_MAX_BYTES = 4 << 20,
};

struct follower {
    struct sandbox_cli *cli;
    char *path; /* of the exec */
    struct console console;
    struct client_socket *socket; /* of a terminal; or: */
    struct client_request *output;
    struct client_request *input; /* one piece at a time */
    uint64_t offsets[3];
    struct client_request *probe; /* asks whether it still runs */
    struct buf record;            /* the probe's answer */
    uv_timer_t retry;
    uv_timer_t silence;
    uv_timer_t signalled; /* runs while the server has not taken our signal */
    int signo;            /* that one */
    bool hangs_up;        /* the terminal goes with that signal, and we do */
    int tries;
    bool interactive; /* our input and signals are the command's */
    bool over;
    bool lost;  /* the output request has ended without an exit */
    bool waits; /* more output came than is written */
    bool input_ended;
    struct buf pending; /* input that is not sent yet */
    json_t *exit;       /* the record, when it has ended */
    int status;         /* when there is no record */
    struct err err;
};

static void sandbox_exec_follow(struct follower *f);

/* --- the end --- */

static void sandbox_exec_give_up(struct follower *f, const struct err *err) {
    if (!f->over)
        f->err = *err;
    f->over = true;
}

static int sandbox_exec_signal_number(const json_t *j) {
    const char *name = json_string_value(j);
    if (!name)
        return (int)json_integer_value(j);
    if (strncasecmp(name, "SIG", 3) == 0)
        name += 3;
    for (int i = 1; i < NSIG; i++) {
        const char *abbreviation = sigabbrev_np(i);
        if (abbreviation && strcasecmp(abbreviation, name) == 0)
            return i;
    }
    return 0;
}

static int sandbox_exec_status_of(const json_t *record) {
    const json_t *code = json_object_get(record, "exit_code");
    const json_t *signo = json_object_get(record, "signal");
    const json_t *error = json_object_get(record, "error");
    if (json_is_true(json_object_get(record, "timed_out")))
        return err_exit_status(ERR_TIMEOUT);
    if (json_is_integer(code))
        return (int)json_integer_value(code);
    if (json_is_string(signo) || json_is_integer(signo))
        return 128 + sandbox_exec_signal_number(signo);
    const char *name = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    if (name && strcmp(name, "not_found") == 0)
        return message && strstr(message, "Permission denied") ? EXIT_STATUS_NOT_EXECUTABLE
                                                               : EXIT_STATUS_NOT_FOUND;
    return 1;
}

static void print_failure(const json_t *record) {
    const json_t *error = json_object_get(record, "error");
    const char *text = json_is_string(error) ? json_string_value(error)
                                             : json_string_value(json_object_get(error, "message"));
    if (text)
        terminal_say(stderr, "cay: ", text);
}

/* --- output --- */

static void sandbox_exec_write(struct follower *f, int stream, const char *data, size_t len) {
    if (console_write(&f->console, stream, data, len))
        return;
    f->waits = true;
    if (f->socket)
        socket_read(f->socket, false);
}

/* Bytes from an offset on; those that are known are left out. */
static void sandbox_exec_on_piece(struct follower *f, int stream, const json_t *j) {
    const json_t *text = json_object_get(j, "data");
    const char *coded = json_string_value(json_object_get(j, "data_base64"));
    uint64_t offset = (uint64_t)json_integer_value(json_object_get(j, "offset"));
    _cleanup_(free) char *raw = NULL;
    const char *data = json_string_value(text);
    size_t len = json_string_length(text);
    if (coded) {
        size_t n = strlen(coded);
        raw = xmalloc(n + 1);
        if (!base64_decode(raw, coded, n, &len))
            len = 0;
        data = raw;
    }
    uint64_t known = f->offsets[stream] > offset ? f->offsets[stream] - offset : 0;
    if (!data || known >= len)
        return;
    f->offsets[stream] = offset + len;
    sandbox_exec_write(f, stream, data + known, len - known);
}

static bool sandbox_exec_on_event(void *ctx, const char *event, const char *data, size_t len) {
    struct follower *f = ctx;
    _cleanup_(json) json_t *j = json_read(data, len);
    if (strcmp(event, "stdout") == 0) {
        sandbox_exec_on_piece(f, 1, j);
    } else if (strcmp(event, "stderr") == 0) {
        sandbox_exec_on_piece(f, 2, j);
    } else if (strcmp(event, "exit") == 0 && j) {
        json_decref(f->exit);
        f->exit = json_incref(j);
        f->over = true;
    }
    return true;
}

/* --- silence --- */

static void sandbox_exec_on_silence(uv_timer_t *t);

static void sandbox_exec_heard(struct follower *f) {
    (void)uv_timer_start(&f->silence, sandbox_exec_on_silence, SILENCE_MS, 0);
}

static void sandbox_exec_on_output_end(void *ctx, const struct err *err);

/* The stream says nothing any more: a new one begins where it was. A terminal has no such place. */
static void drop_stream(struct follower *f, const struct err *err) {
    if (f->console.tty) {
        sandbox_exec_give_up(f, err);
        return;
    }
    client_cancel(f->output);
    sandbox_exec_on_output_end(f, err);
}

static bool has_more(const struct follower *f, const json_t *record) {
    static const char *const names[] = {"", "stdout_bytes", "stderr_bytes"};
    for (int i = 1; i < 3; i++)
        if ((uint64_t)json_integer_value(json_object_get(record, names[i])) > f->offsets[i] &&
            !json_is_true(json_object_get(record, "truncated")))
            return true;
    return false;
}

static void sandbox_exec_on_probed(void *ctx, const struct err *err) {
    struct follower *f = ctx;
    struct err quiet;
    f->probe = NULL;
    _cleanup_(json) json_t *record =
        err ? NULL : json_read(f->record.data ? f->record.data : "", f->record.len);
    const char *status = json_string_value(json_object_get(record, "status"));
    (void)err_set(&quiet, ERR_UNAVAILABLE, "the connection died without a word");
    sandbox_exec_heard(f);
    if (f->over || f->lost)
        return;
    if (err)
        drop_stream(f, err);
    else if (!status || strcmp(status, "running") != 0 || (!f->console.tty && has_more(f, record)))
        drop_stream(f, &quiet);
}

static int sandbox_exec_on_record_data(void *ctx, const char *data, size_t len, struct err *err) {
    struct follower *f = ctx;
    return buf_add(&f->record, data, len) ? 0 : err_set(err, ERR_TOO_LARGE, "a record too long");
}

static void sandbox_exec_on_silence(uv_timer_t *t) {
    struct follower *f = t->data;
    struct err err;
    if (f->over || f->lost || f->waits) { /* waits: it is we who do not read */
        sandbox_exec_heard(f);
        return;
    }
    if (f->probe) {
        client_cancel(f->probe);
        (void)err_set(&err, ERR_TIMEOUT, "the server does not answer");
        sandbox_exec_on_probed(f, &err);
        return;
    }
    buf_clear(&f->record);
    if (client_start(&f->cli->client,
                     &(struct client_call){.path = f->path,
                                           .on_data = sandbox_exec_on_record_data,
                                           .on_end = sandbox_exec_on_probed,
                                           .ctx = f},
                     &f->probe, &err) < 0)
        sandbox_exec_give_up(f, &err);
    (void)uv_timer_start(t, sandbox_exec_on_silence, ANSWER_MS, 0);
}

/* Any byte is a sign of life. */
static int sandbox_exec_on_output_data(void *ctx, const char *data, size_t len, struct err *err) {
    struct follower *f = ctx;
    (void)data;
    (void)len;
    (void)err;
    f->tries = 0;
    sandbox_exec_heard(f);
    return 0;
}

static void sandbox_exec_on_retry(uv_timer_t *t) {
    struct follower *f = t->data;
    if (!f->over && f->lost)
        sandbox_exec_follow(f);
}

static void sandbox_exec_on_output_end(void *ctx, const struct err *err) {
    struct follower *f = ctx;
    struct err broken;
    f->output = NULL;
    if (f->over)
        return;
    (void)err_set(&broken, ERR_UNAVAILABLE,
                  "the connection was lost; the command may still run: `cay sandbox logs -f`");
    bool refused = err && (err->code == ERR_NOT_FOUND || err->code == ERR_UNAUTHORIZED ||
                           err->code == ERR_FORBIDDEN || err->code == ERR_BAD_REQUEST);
    if (refused || ++f->tries > TRIES) {
        sandbox_exec_give_up(f, refused ? err : &broken);
        return;
    }
    f->lost = true;
    (void)uv_timer_start(&f->retry, sandbox_exec_on_retry, (uint64_t)RETRY_MS << MIN(f->tries, 4),
                         0);
}

static void sandbox_exec_follow(struct follower *f) {
    struct err err;
    _cleanup_(free) char *path =
        xasprintf("%s/output?stdout=%llu&stderr=%llu", f->path, (unsigned long long)f->offsets[1],
                  (unsigned long long)f->offsets[2]);
    f->lost = false;
    sandbox_exec_heard(f);
    if (client_start(&f->cli->client,
                     &(struct client_call){.path = path,
                                           .on_data = sandbox_exec_on_output_data,
                                           .on_event = sandbox_exec_on_event,
                                           .max_event_bytes = EVENT_MAX_BYTES,
                                           .on_end = sandbox_exec_on_output_end,
                                           .ctx = f},
                     &f->output, &err) < 0)
        sandbox_exec_give_up(f, &err);
}

/* --- a terminal --- */

static void sandbox_exec_on_message(void *ctx, bool text, const char *data, size_t len) {
    struct follower *f = ctx;
    sandbox_exec_heard(f);
    if (!text) {
        sandbox_exec_write(f, 1, data, len);
        return;
    }
    _cleanup_(json) json_t *j = json_read(data, len);
    const char *type = json_string_value(json_object_get(j, "type"));
    if (type && strcmp(type, "exit") == 0) {
        const json_t *inner = json_object_get(j, "exec");
        json_decref(f->exit);
        f->exit = json_incref(inner ? (json_t *)(uintptr_t)inner : j);
        f->over = true;
    }
}

static void sandbox_exec_on_socket_closed(void *ctx, const struct err *err) {
    struct follower *f = ctx;
    struct err lost;
    (void)err_set(&lost, ERR_UNAVAILABLE, "the server closed the terminal");
    sandbox_exec_give_up(f, err ? err : &lost);
}

/* --- input --- */

static void sandbox_exec_send_input(struct follower *f);

static void sandbox_exec_on_input_sent(void *ctx, const struct err *err) {
    struct follower *f = ctx;
    f->input = NULL;
    if (f->over)
        return;
    if (err) { /* it does not read any more, or has ended: which the output tells */
        f->input_ended = true;
        console_read(&f->console, false);
        return;
    }
    sandbox_exec_send_input(f);
}

static void sandbox_exec_send_input(struct follower *f) {
    struct err err;
    if (f->input || (f->pending.len == 0 && !f->input_ended))
        return;
    if (f->pending.len == 0 && f->pending.full)
        return; /* its end was told */
    bool eof = f->input_ended;
    _cleanup_(free) char *path = xasprintf("%s/stdin%s", f->path, eof ? "?eof=1" : "");
    if (client_start(&f->cli->client,
                     &(struct client_call){.method = "POST",
                                           .path = path,
                                           .body = f->pending.data ? f->pending.data : "",
                                           .body_len = f->pending.len,
                                           .on_end = sandbox_exec_on_input_sent,
                                           .ctx = f},
                     &f->input, &err) < 0)
        sandbox_exec_give_up(f, &err);
    buf_clear(&f->pending);
    f->pending.full = eof;
    if (!eof)
        console_read(&f->console, true);
}

static void sandbox_exec_on_input(void *ctx, const char *data, size_t len) {
    struct follower *f = ctx;
    if (f->socket) {
        if (len == 0)
            data = "\x04"; /* what a terminal's end of input is */
        (void)socket_send(f->socket, false, data, len ? len : 1);
        if (socket_queued(f->socket) > SOCKET_HIGH_BYTES)
            console_read(&f->console, false);
        return;
    }
    if (len == 0)
        f->input_ended = true;
    (void)buf_add(&f->pending, data, len);
    if (f->pending.len > INPUT_MAX_BYTES / 2)
        console_read(&f->console, false);
    sandbox_exec_send_input(f);
}

static void sandbox_exec_on_drained(void *ctx) {
    struct follower *f = ctx;
    f->waits = false;
    if (f->socket && !f->over)
        socket_read(f->socket, true);
}

static void sandbox_exec_on_resize(void *ctx, uint32_t cols, uint32_t rows) {
    const struct follower *f = ctx;
    char text[80];
    int n =
        snprintf(text, sizeof(text), "{\"type\":\"resize\",\"cols\":%u,\"rows\":%u}", cols, rows);
    if (f->socket)
        (void)socket_send(f->socket, true, text, (size_t)n);
}

/* The command goes on: it is the server's then. */
static void sandbox_exec_on_leave(void *ctx, int status) {
    struct follower *f = ctx;
    if (f->over)
        return;
    f->over = true;
    f->status = status;
}

/* --- signals --- */

/* Whoever wants an end does not ask twice because the server is gone. */
static void sandbox_exec_on_signal_lost(uv_timer_t *t) {
    struct follower *f = t->data;
    if (f->over)
        return;
    (void)fputs("cay: the server does not answer; the command may still run: `cay sandbox logs "
                "-f`\n",
                stderr);
    sandbox_exec_on_leave(f, 128 + f->signo);
}

static void sandbox_exec_on_signal_sent(void *ctx, const struct err *err) {
    struct follower *f = ctx;
    bool gone = err && (err->code == ERR_UNAVAILABLE || err->code == ERR_TIMEOUT);
    if (f->signo && !f->over && gone)
        sandbox_exec_on_signal_lost(&f->signalled);
    else if (f->hangs_up)
        sandbox_exec_on_leave(f, 128 + f->signo);
    (void)uv_timer_stop(&f->signalled);
}

static bool sandbox_exec_on_signal(void *ctx, int signo) {
    struct follower *f = ctx;
    struct err err;
    if (!f->interactive)
        return false;
    _cleanup_(free) char *path = xasprintf("%s/signal", f->path);
    /* A shell at a terminal ignores SIGTERM: it hears that the terminal is gone, which it is. */
    f->hangs_up = f->console.tty && (signo == SIGTERM || signo == SIGHUP);
    _cleanup_(json) json_t *body =
        json_pack("{s:i,s:b}", "signal", f->hangs_up ? SIGHUP : signo, "group", 1);
    if (signo == SIGINT || signo == SIGTERM || signo == SIGHUP || signo == SIGQUIT) {
        f->signo = signo;
        (void)uv_timer_start(&f->signalled, sandbox_exec_on_signal_lost, SIGNAL_MS, 0);
    }
    (void)client_start(
        &f->cli->client,
        &(struct client_call){
            .path = path, .json = body, .on_end = sandbox_exec_on_signal_sent, .ctx = f},
        NULL, &err);
    return true;
}

/* --- the whole --- */

static void open_streams(struct follower *f) {
    static const struct console_transport transport = {.on_input = sandbox_exec_on_input,
                                                       .on_drained = sandbox_exec_on_drained,
                                                       .on_resize = sandbox_exec_on_resize,
                                                       .on_signal = sandbox_exec_on_signal,
                                                       .on_leave = sandbox_exec_on_leave};
    uv_loop_t *loop = &f->cli->client.loop;
    f->console.transport = &transport;
    f->console.ctx = f;
    console_open(&f->console, loop);
    uv_timer_t *const timers[] = {&f->retry, &f->silence, &f->signalled};
    for (size_t i = 0; i < ARRAY_LEN(timers); i++) {
        (void)uv_timer_init(loop, timers[i]);
        timers[i]->data = f;
    }
    buf_init(&f->record, RECORD_MAX_BYTES);
    buf_init(&f->pending, INPUT_MAX_BYTES);
    sandbox_exec_heard(f);
}

static void close_streams(struct follower *f) {
    console_close(&f->console);
    socket_destroy(f->socket);
    client_cancel(f->output);
    client_cancel(f->input);
    client_cancel(f->probe);
    uv_close((uv_handle_t *)&f->retry, NULL);
    uv_close((uv_handle_t *)&f->silence, NULL);
    uv_close((uv_handle_t *)&f->signalled, NULL);
    (void)uv_run(&f->cli->client.loop, UV_RUN_NOWAIT);
    buf_finish(&f->pending);
    buf_finish(&f->record);
    free(f->path);
}

/* Until it has ended, and all is written. The exit status, or a negative error code. */
static int wait_for_end(struct follower *f, struct err *err) {
    while (!f->over || (f->exit && !console_is_drained(&f->console))) {
        (void)uv_run(&f->cli->client.loop, UV_RUN_ONCE);
        if (f->socket && !f->over && socket_queued(f->socket) < SOCKET_HIGH_BYTES)
            console_read(&f->console, true);
    }
    int rc = f->err.code   ? -(int)f->err.code
             : f->hangs_up ? 128 + f->signo /* ours: the shell was told another */
             : f->exit     ? sandbox_exec_status_of(f->exit)
                           : f->status;
    if (f->err.code)
        *err = f->err;
    return rc;
}

static int run_terminal(struct follower *f, struct err *err) {
    static const struct socket_callbacks callbacks = {.on_message = sandbox_exec_on_message,
                                                      .on_closed = sandbox_exec_on_socket_closed};
    _cleanup_(free) char *path = xasprintf("%s/tty", f->path);
    int rc = socket_open(&f->cli->client, path, &callbacks, f, &f->socket, err);
    if (rc < 0)
        return rc;
    console_start(&f->console);
    uint32_t cols;
    uint32_t rows;
    if (stdio_size(&cols, &rows)) /* it may have changed since it was asked for */
        sandbox_exec_on_resize(f, cols, rows);
    return wait_for_end(f, err);
}

/* Starts it in the background; its id. */
static int sandbox_exec_start(struct sandbox_cli *c, const char *id, json_t *body, char **ret_exec,
                              struct err *err) {
    const struct sandbox_args *a = &c->args;
    _cleanup_(json) json_t *j = NULL;
    _cleanup_(free) char *path = sandbox_path(id, "/exec");
    if (a->workdir)
        (void)json_object_set_new(body, "cwd", json_string(a->workdir));
    if (a->timeout_ms)
        (void)json_object_set_new(body, "timeout_s", json_integer((a->timeout_ms + 999) / 1000));
    const char *term = getenv("TERM");
    if (json_is_true(json_object_get(body, "tty")) && term && !json_object_get(a->env, "TERM"))
        (void)json_object_set_new(a->env, "TERM", json_string(term));
    if (json_object_size(a->env) > 0)
        (void)json_object_set(body, "env", a->env);
    (void)json_object_set_new(body, "background", json_true());
    int rc = client_call(&c->client, &(struct client_call){.path = path, .json = body}, &j, err);
    const char *exec = json_string_value(json_object_get(j, "id"));
    if (rc == 0 && !exec)
        rc = err_set(err, ERR_PROTOCOL, "the server's answer has no id");
    if (rc == 0)
        *ret_exec = xstrdup(exec);
    return rc;
}

static char *exec_path(const char *id, const char *exec) {
    _cleanup_(buf) struct buf rest;
    buf_init(&rest, 4096);
    (void)buf_add_str(&rest, "/execs/");
    client_encode(&rest, exec);
    return sandbox_path(id, rest.data);
}

static int sandbox_exec_run(struct sandbox_cli *c, json_t *body, struct err *err) {
    char id[ID_SIZE];
    _cleanup_(free) char *exec = NULL;
    bool tty = json_is_true(json_object_get(body, "tty"));
    if (!tty && !c->args.detach)
        (void)json_object_set_new(body, "stdin", json_true()); /* it stays open */
    int rc = sandbox_resolve(c, c->args.rest[0], id, err);
    if (rc == 0)
        rc = sandbox_exec_start(c, id, body, &exec, err);
    if (rc < 0)
        return rc;
    if (c->args.detach) {
        _cleanup_(json) json_t *answer = json_pack("{s:s}", "id", exec);
        if (c->args.json)
            terminal_json(answer);
        else
            terminal_line(stdout, exec);
        return 0;
    }
    struct follower f = {.cli = c,
                         .path = exec_path(id, exec),
                         .interactive = true,
                         .console = {.tty = tty, .recorded = c->args.json}};
    open_streams(&f);
    if (tty) {
        rc = run_terminal(&f, err);
    } else {
        sandbox_exec_follow(&f);
        console_start(&f.console);
        rc = wait_for_end(&f, err);
    }
    close_streams(&f);
    if (rc >= 0 && f.exit && c->args.json) {
        console_add_output(&f.console, f.exit);
        terminal_json(f.exit);
    } else if (rc > 0 && f.exit) {
        print_failure(f.exit);
    }
    json_decref(f.exit);
    console_finish(&f.console);
    return rc;
}

static json_t *terminal_body(json_t *body) {
    uint32_t cols;
    uint32_t rows;
    (void)stdio_size(&cols, &rows);
    (void)json_object_set_new(body, "tty", json_true());
    (void)json_object_set_new(body, "cols", json_integer(cols));
    (void)json_object_set_new(body, "rows", json_integer(rows));
    return body;
}

int sandbox_exec(struct sandbox_cli *c, struct err *err) {
    _cleanup_(json) json_t *body = json_object();
    json_t *argv = json_array();
    (void)json_object_set_new(body, "argv", argv);
    for (int i = 1; i < c->args.nrest; i++) {
        json_t *word = json_string(c->args.rest[i]);
        if (!word)
            return err_set(err, ERR_BAD_REQUEST, "the words of a command must be UTF-8");
        (void)json_array_append_new(argv, word);
    }
    if (c->args.tty && c->args.json)
        return err_set(err, ERR_BAD_REQUEST, "--json and --tty do not go together");
    return sandbox_exec_run(c, c->args.tty ? terminal_body(body) : body, err);
}

/* Where the input is no terminal, the commands in it are run to their end, as any shell does. */
int sandbox_sh(struct sandbox_cli *c, struct err *err) {
    _cleanup_(json) json_t *body = json_pack(
        "{s:s}", "command", "if command -v bash >/dev/null; then exec bash; else exec sh; fi");
    return sandbox_exec_run(c, isatty(STDIN_FILENO) ? terminal_body(body) : body, err);
}

/* --- logs --- */

static int sandbox_exec_on_raw(void *ctx, const char *data, size_t len, struct err *err) {
    FILE *out = ctx;
    return fwrite(data, 1, len, out) == len ? 0 : err_set(err, ERR_IO, "nobody reads the output");
}

/* What there is now, of a command that still runs. */
static int print_so_far(struct sandbox_cli *c, const char *path, json_t *record, struct err *err) {
    static const char *const names[] = {"stdout", "stderr"};
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(names) && rc == 0; i++) {
        _cleanup_(free) char *one = xasprintf("%s/%s", path, names[i]);
        _cleanup_(free) char *text = NULL;
        size_t len = 0;
        FILE *out = c->args.json ? open_memstream(&text, &len) : i == 0 ? stdout : stderr;
        if (!out)
            return err_sys(err, "keep the output");
        rc = client_call(
            &c->client,
            &(struct client_call){
                .path = one, .accept = "*/*", .on_data = sandbox_exec_on_raw, .ctx = out},
            NULL, err);
        if (c->args.json)
            (void)fclose(out);
        else
            (void)fflush(out);
        if (text)
            (void)json_object_set_new(record, names[i], json_text(text));
    }
    if (rc == 0 && c->args.json)
        terminal_json(record);
    return rc;
}

static int last_exec(struct sandbox_cli *c, const char *id, char **ret_exec, struct err *err) {
    _cleanup_(json) json_t *j = NULL;
    _cleanup_(free) char *path = sandbox_path(id, "/execs?limit=100");
    int rc = client_call(&c->client, &(struct client_call){.path = path}, &j, err);
    if (rc < 0)
        return rc;
    size_t i;
    const json_t *it;
    const char *best = NULL;
    const char *when = "";
    json_array_foreach(json_object_get(j, "execs"), i, it) {
        const char *at = json_string_value(json_object_get(it, "started_at"));
        const char *name = json_string_value(json_object_get(it, "id"));
        if (name && at && strcmp(at, when) >= 0) {
            best = name;
            when = at;
        }
    }
    if (!best)
        return err_set(err, ERR_NOT_FOUND, "no command was run in this sandbox");
    *ret_exec = xstrdup(best);
    return 0;
}

int sandbox_logs(struct sandbox_cli *c, struct err *err) {
    char id[ID_SIZE];
    _cleanup_(free) char *exec = c->args.nrest > 1 ? xstrdup(c->args.rest[1]) : NULL;
    _cleanup_(json) json_t *record = NULL;
    int rc = sandbox_resolve(c, c->args.rest[0], id, err);
    if (rc == 0 && !exec)
        rc = last_exec(c, id, &exec, err);
    if (rc < 0)
        return rc;
    _cleanup_(free) char *path = exec_path(id, exec);
    rc = client_call(&c->client, &(struct client_call){.path = path}, &record, err);
    if (rc < 0)
        return rc;
    const char *status = json_string_value(json_object_get(record, "status"));
    if (!c->args.follow && status && strcmp(status, "running") == 0)
        return print_so_far(c, path, record, err);
    struct follower f = {.cli = c, .path = steal_ptr(&path), .console = {.recorded = c->args.json}};
    open_streams(&f);
    sandbox_exec_follow(&f);
    rc = wait_for_end(&f, err);
    close_streams(&f);
    if (f.exit && c->args.json) {
        console_add_output(&f.console, f.exit);
        terminal_json(f.exit);
    }
    console_finish(&f.console);
    bool ended = f.exit != NULL;
    json_decref(f.exit);
    return ended ? 0 : rc; /* that it could be read is the success, not what it came to */
}
