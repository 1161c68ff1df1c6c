#include "base/buf.h"
#include "base/cleanup.h"
#include "base/id.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/sse.h"
#include "front/cli/cli.h"
#include "front/cli/client.h"
#include "front/cli/terminal.h"
#include "loop/fetch.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

/* A chat in the terminal with an agent of a running server, over plain HTTP. */

static const char usage[] =
    "usage: cay chat [--agent NAME] [--name NAME] [--model MODEL] [--url URL] [MESSAGE]\n\n"
    "Talks to an agent of a running server: its text comes as it is written, with the code it runs "
    "and\n"
    "what that printed. Without a MESSAGE, each line of the input is one.\n\n"
    "  --agent A   which agent (default sandbox-agent)\n"
    "  --name N    which conversation with it (default \"default\")\n"
    "  --model M   which model answers, of those the server offers (default the agent's)\n"
    "  --url U     where the server is (default $CAY_URL, or http://127.0.0.1:8787)\n\n"
    "Ctrl-C stops what the agent is doing. /clear empties the conversation, /quit (or Ctrl-D) "
    "ends.\n"
    "CAY_API_KEY in the environment is sent as the key.\n";

enum { EVENT_MAX_BYTES = 16 << 20, ERROR_MAX_BYTES = 64 << 10, NAME_MAX_BYTES = 128 };

struct chat {
    uv_loop_t loop;
    uv_signal_t interrupt;
    struct fetch_pool *pool;
    char *base;        /* URL of the conversation */
    char *auth;        /* or NULL */
    const char *model; /* or NULL */
    bool styled;
    /* the turn that runs */
    struct fetch *fetch;
    struct fetch *stop;
    struct sse sse;
    struct buf error_body;
    char turn[ID_SIZE];
    int status; /* HTTP */
    bool over;
    bool ended; /* with [DONE] */
    bool stopped;
    bool failed;
    bool fresh_line; /* nothing stands in the line that is being written */
};

/* --- what is shown --- */

static void show(struct chat *c, const char *text, size_t len) {
    if (len == 0)
        return;
    terminal_print(stdout, text, len);
    c->fresh_line = text[len - 1] == '\n';
}

static void end_line(struct chat *c) {
    if (!c->fresh_line)
        (void)fputc('\n', stdout);
    c->fresh_line = true;
}

static void style(const struct chat *c, const char *code) {
    if (c->styled)
        (void)fprintf(stdout, "\x1b[%sm", code);
}

static void show_title(struct chat *c, const char *what, const char *more) {
    end_line(c);
    style(c, "1");
    show(c, what, strlen(what));
    if (more)
        show(c, more, strlen(more));
    style(c, "0");
    end_line(c);
}

static void show_indented(struct chat *c, const char *text) {
    style(c, "2");
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n");
        (void)fputs("    ", stdout);
        c->fresh_line = false;
        show(c, p, n);
        end_line(c);
        p += n + (p[n] == '\n');
    }
    style(c, "0");
}

static void show_json(struct chat *c, const json_t *v) {
    _cleanup_(free) char *text =
        v ? json_dumps(v, JSON_INDENT(2) | JSON_ENCODE_ANY) : xstrdup("null");
    show_indented(c, text ? text : "");
}

/* The one text of the input, or all of it. */
static void show_input(struct chat *c, const json_t *chunk) {
    const json_t *input = json_object_get(chunk, "input");
    const char *code = json_string_value(json_object_get(input, "code"));
    const char *sql = json_string_value(json_object_get(input, "sql"));
    show_title(c, "> ", json_string_value(json_object_get(chunk, "toolName")));
    if (code || sql)
        show_indented(c, code ? code : sql);
    else
        show_json(c, input);
}

static void show_output(struct chat *c, const json_t *output) {
    const char *text = json_string_value(json_object_get(output, "output"));
    const char *error = json_string_value(json_object_get(output, "error"));
    const json_t *rows = json_object_get(output, "rows");
    show_title(c, error ? "< error" : "< output", NULL);
    if (text && *text)
        show_indented(c, text);
    else if (error)
        show_indented(c, error);
    else
        show_json(c, rows ? rows : output);
}

static void show_error(struct chat *c, const char *text) {
    end_line(c);
    (void)fflush(stdout);
    (void)fputs("cay: ", stderr);
    terminal_print(stderr, text, strlen(text));
    (void)fputc('\n', stderr);
    c->failed = true;
}

static void show_chunk(struct chat *c, const json_t *j) {
    const char *type = json_string_value(json_object_get(j, "type"));
    const json_t *delta = json_object_get(j, "delta");
    if (!type)
        return;
    if (strcmp(type, "text-delta") == 0 || strcmp(type, "reasoning-delta") == 0) {
        show(c, json_string_value(delta), json_string_length(delta));
    } else if (strcmp(type, "text-end") == 0) {
        end_line(c);
    } else if (strcmp(type, "reasoning-start") == 0) {
        style(c, "2;3");
    } else if (strcmp(type, "reasoning-end") == 0) {
        style(c, "0");
        end_line(c);
    } else if (strcmp(type, "tool-input-available") == 0) {
        show_input(c, j);
    } else if (strcmp(type, "tool-output-available") == 0) {
        show_output(c, json_object_get(j, "output"));
    } else if (strcmp(type, "tool-output-error") == 0) {
        const char *text = json_string_value(json_object_get(j, "errorText"));
        show_title(c, "< error", NULL);
        show_indented(c, text ? text : "");
    } else if (strcmp(type, "error") == 0) {
        const char *text = json_string_value(json_object_get(j, "errorText"));
        show_error(c, text ? text : "the turn failed");
    } else if (strcmp(type, "abort") == 0) {
        show_title(c, "(stopped)", NULL);
        c->stopped = true;
    } else if (strcmp(type, "finish") == 0) {
        const json_t *limit = json_object_get(json_object_get(j, "messageMetadata"), "limit");
        if (json_is_string(limit))
            show_title(c, "(ended: ", json_string_value(limit));
    }
}

/* --- a turn --- */

static bool on_event(void *ctx, const char *event, const char *data, size_t len) {
    (void)event;
    struct chat *c = ctx;
    _cleanup_(json) json_t *j = json_loadb(data, len, JSON_ALLOW_NUL, NULL);
    if (j)
        show_chunk(c, j);
    else if (strcmp(data, "[DONE]") == 0)
        c->ended = true;
    return true;
}

static void on_head(void *ctx, struct fetch *f, int status) {
    struct chat *c = ctx;
    const char *turn = fetch_header(f, "x-cay-turn");
    c->status = status;
    if (turn && id_is_valid("turn", turn, strlen(turn)))
        (void)snprintf(c->turn, sizeof(c->turn), "%s", turn);
}

static void on_data(void *ctx, const char *data, size_t len) {
    struct chat *c = ctx;
    struct err err;
    if (c->status != 200) {
        (void)buf_add(&c->error_body, data, len);
    } else if (sse_feed(&c->sse, data, len, &err) < 0) {
        show_error(c, err.message);
        fetch_cancel(c->fetch);
        c->fetch = NULL;
        c->over = true;
    }
    (void)fflush(stdout);
}

/* What a server says that refuses, in its own words. */
static void show_refusal(struct chat *c) {
    _cleanup_(json) json_t *j =
        json_loadb(c->error_body.data ? c->error_body.data : "", c->error_body.len, 0, NULL);
    const char *text = json_string_value(json_object_get(json_object_get(j, "error"), "message"));
    char plain[64];
    (void)snprintf(plain, sizeof(plain), "the server answered with status %d", c->status);
    show_error(c, text ? text : plain);
}

static void on_end(void *ctx, const struct err *err) {
    struct chat *c = ctx;
    c->fetch = NULL;
    c->over = true;
    style(c, "0");
    end_line(c);
    if (err)
        show_error(c, err->message);
    else if (c->status < 200 || c->status > 299)
        show_refusal(c);
    else if (c->status == 200 && !c->ended)
        show_error(c, "the answer broke off; the agent may still be at work");
}

static int request(struct chat *c, const char *method, const char *path, const char *body,
                   struct err *err) {
    _cleanup_(free) char *url = xasprintf("%s%s", c->base, path);
    struct fetch_header headers[3] = {{.name = "Content-Type", .value = "application/json"},
                                      {.name = "Accept", .value = "text/event-stream"}};
    size_t n = 2;
    if (c->auth)
        headers[n++] =
            (struct fetch_header){.name = "Authorization", .value = c->auth, .secret = true};
    struct fetch_options o = {.url = url,
                              .method = method,
                              .headers = headers,
                              .nheaders = n,
                              .body = body,
                              .body_len = body ? strlen(body) : 0,
                              .on_head = on_head,
                              .on_data = on_data,
                              .on_end = on_end,
                              .ctx = c};
    return fetch_start(c->pool, &o, &c->fetch, err);
}

static void ignore_data(void *ctx, const char *data, size_t len) {
    (void)ctx;
    (void)data;
    (void)len;
}

static void on_stop_sent(void *ctx, const struct err *err) {
    struct chat *c = ctx;
    (void)err;
    c->stop = NULL;
}

/* Asks the server to stop; asked again, leaves the turn alone. */
static void on_interrupt(uv_signal_t *h, int signo) {
    (void)signo;
    struct chat *c = h->data;
    struct err err;
    if (c->over)
        return;
    if (c->stop || !*c->turn) {
        fetch_cancel(c->fetch);
        c->fetch = NULL;
        c->over = c->stopped = true;
        end_line(c);
        return;
    }
    _cleanup_(free) char *url = xasprintf("%s/turns/%s", c->base, c->turn);
    struct fetch_header auth = {.name = "Authorization", .value = c->auth, .secret = true};
    struct fetch_options o = {.url = url,
                              .method = "DELETE",
                              .headers = &auth,
                              .nheaders = c->auth ? 1 : 0,
                              .total_timeout_ms = 10000,
                              .on_data = ignore_data,
                              .on_end = on_stop_sent,
                              .ctx = c};
    if (fetch_start(c->pool, &o, &c->stop, &err) < 0)
        show_error(c, err.message);
}

/* Sends the request and shows what comes until it has ended. */
static void exchange(struct chat *c, const char *method, const char *path, const char *body) {
    struct err err;
    c->over = c->ended = c->stopped = c->failed = false;
    c->fresh_line = true;
    c->status = 0;
    c->turn[0] = 0;
    buf_clear(&c->error_body);
    sse_init(&c->sse, EVENT_MAX_BYTES, on_event, c);
    (void)uv_signal_start(&c->interrupt, on_interrupt, SIGINT);
    if (request(c, method, path, body, &err) < 0) {
        show_error(c, err.message);
        c->over = true;
    }
    while (!c->over)
        (void)uv_run(&c->loop, UV_RUN_ONCE);
    (void)uv_signal_stop(&c->interrupt);
    sse_finish(&c->sse);
}

static void send_message(struct chat *c, const char *text) {
    _cleanup_(json) json_t *j = json_pack("{s:s,s:s*}", "text", text, "model", c->model);
    _cleanup_(free) char *body = j ? json_dumps(j, JSON_COMPACT) : NULL;
    if (!body) {
        show_error(c, "a message must be UTF-8 text");
        return;
    }
    exchange(c, "POST", "/messages", body);
}

/* --- the loop of a person --- */

static void on_prompt_interrupt(int signo) {
    (void)signo; /* only so that reading ends */
}

/* One line without its end; NULL at the end of the input. */
static char *read_line(bool prompt) {
    struct sigaction wake = {.sa_handler = on_prompt_interrupt};
    struct sigaction before;
    char *line = NULL;
    size_t size = 0;
    ssize_t n = -1;
    (void)sigaction(SIGINT, &wake, &before);
    while (n < 0) {
        if (prompt) {
            (void)fputs("you> ", stdout);
            (void)fflush(stdout);
        }
        errno = 0;
        n = getline(&line, &size, stdin);
        if (n < 0 && (errno != EINTR || !prompt))
            break;
        if (n < 0) {
            clearerr(stdin);
            (void)fputs("\n(/quit or Ctrl-D ends)\n", stdout);
        }
    }
    (void)sigaction(SIGINT, &before, NULL);
    if (n < 0) {
        free(line);
        return NULL;
    }
    line[strcspn(line, "\r\n")] = 0;
    return line;
}

/* The exit status. */
static int talk(struct chat *c) {
    bool prompt = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
    bool failed = false;
    while (true) {
        _cleanup_(free) char *line = read_line(prompt);
        if (!line || strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0)
            break;
        if (line[strspn(line, " \t")] == 0)
            continue;
        if (strcmp(line, "/clear") == 0)
            exchange(c, "DELETE", "/messages", NULL);
        else if (line[0] == '/')
            (void)printf("/clear empties the conversation, /quit ends\n");
        else
            send_message(c, line);
        failed = failed || c->failed;
        if (c->stopped && !prompt)
            return 130;
    }
    if (prompt)
        (void)fputc('\n', stdout);
    return failed && !prompt ? 1 : 0;
}

/* --- arguments --- */

static bool add_encoded(struct buf *b, const char *name) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~";
    for (const char *p = name; *p; p++)
        if (strchr(plain, *p))
            (void)buf_add_char(b, *p);
        else
            (void)buf_addf(b, "%%%02X", (unsigned char)*p);
    size_t n = strlen(name);
    return n > 0 && n <= NAME_MAX_BYTES && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static char *make_base(const char *url, const char *agent, const char *name) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, 4096);
    size_t n = strlen(url);
    while (n > 0 && url[n - 1] == '/')
        n--;
    bool ok = (strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0) &&
              buf_add(&b, url, n) && buf_add_str(&b, "/v1/agents/") && add_encoded(&b, agent) &&
              buf_add_char(&b, '/') && add_encoded(&b, name);
    return ok && !b.full ? buf_steal(&b, NULL) : NULL;
}

static void on_pool_closed(void *ctx) {
    (void)ctx;
}

static int run_chat(struct chat *c, const char *message, struct err *err) {
    const char *key = getenv("CAY_API_KEY");
    if (key && *key)
        c->auth = xasprintf("Bearer %s", key);
    c->styled = isatty(STDOUT_FILENO) == 1 && !getenv("NO_COLOR");
    buf_init(&c->error_body, ERROR_MAX_BYTES);
    (void)uv_loop_init(&c->loop);
    (void)uv_signal_init(&c->loop, &c->interrupt);
    c->interrupt.data = c;
    int rc = fetch_pool_create(&c->loop, 4, &c->pool, err);
    if (rc == 0 && message) {
        send_message(c, message);
        rc = c->stopped ? 130 : c->failed ? 1 : 0;
    } else if (rc == 0) {
        rc = talk(c);
    }
    fetch_pool_close(c->pool, on_pool_closed, NULL);
    uv_close((uv_handle_t *)&c->interrupt, NULL);
    (void)uv_run(&c->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&c->loop);
    buf_finish(&c->error_body);
    if (c->auth)
        mem_wipe(c->auth, strlen(c->auth));
    free(c->auth);
    return rc;
}

int cli_chat(int argc, char **argv) {
    static const struct option options[] = {
        {"agent", required_argument, NULL, 'a'}, {"name", required_argument, NULL, 'n'},
        {"model", required_argument, NULL, 'm'}, {"url", required_argument, NULL, 'u'},
        {"help", no_argument, NULL, 'h'},        {NULL, 0, NULL, 0}};
    const char *agent = "sandbox-agent";
    const char *name = "default";
    const char *url = client_default_url();
    struct chat c = {.fresh_line = true};
    int opt;
    optind = 0;
    while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (opt == 'a')
            agent = optarg;
        else if (opt == 'n')
            name = optarg;
        else if (opt == 'm')
            c.model = optarg;
        else if (opt == 'u')
            url = optarg;
        else if (opt == 'h')
            return fputs(usage, stdout) < 0;
        else
            return 2;
    }
    if (argc - optind > 1)
        return cli_usage("chat", "one message, in quotes");
    struct err err;
    c.base = make_base(url, agent, name);
    if (!c.base)
        return cli_usage("chat",
                         "--url is http://HOST:PORT; --agent and --name have 1 to 128 bytes");
    int rc = run_chat(&c, optind < argc ? argv[optind] : NULL, &err);
    free(c.base);
    return rc < 0 ? cli_fail(&err) : rc;
}
