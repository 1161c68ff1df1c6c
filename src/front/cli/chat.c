#include "base/buf.h"
#include "base/cleanup.h"
#include "base/id.h"
#include "base/json.h"
#include "base/mem.h"
#include "front/cli/cli.h"
#include "front/cli/client.h"
#include "front/cli/options.h"
#include "front/cli/terminal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A chat in the terminal with an agent of a running server, over plain HTTP. */

static const char usage[] =
    "usage: cay chat [--agent NAME] [--name NAME] [--model MODEL] [--url URL] [--json]\n"
    "                [MESSAGE]\n\n"
    "Talks to an agent of a running server: its text comes as it is written, with the code it runs "
    "and\n"
    "what that printed. Without a MESSAGE, each line of the input is one.\n\n"
    "  --agent A   which agent (default sandbox-agent)\n"
    "  --name N    which conversation with it (default \"default\")\n"
    "  --model M   which model answers, of those the server offers (default the agent's)\n"
    "  --json      print what comes as lines of JSON, as the server streams it\n"
    "  --url U     where the server is (default $CAY_URL, or http://127.0.0.1:8787)\n\n"
    "Ctrl-C stops what the agent is doing. /clear empties the conversation, /quit (or Ctrl-D) "
    "ends.\n"
    "CAY_API_KEY in the environment is sent as the key.\n";

enum { EVENT_MAX_BYTES = 16 << 20, NAME_MAX_BYTES = 128 };

struct chat {
    struct client client;
    uv_signal_t interrupt;
    char *path; /* of the conversation */
    const char *agent;
    const char *name;
    const char *model; /* or NULL */
    const char *url;
    bool json;
    bool styled;
    /* the turn that runs */
    struct client_request *request;
    struct client_request *stop;
    char turn[ID_SIZE];
    bool streams; /* its answer is events, up to [DONE] */
    bool over;
    bool ended; /* with [DONE] */
    bool stopped;
    bool failed;
    bool fresh_line; /* nothing stands in the line that is being written */
};

/* --- what is shown --- */

static void cli_chat_show(struct chat *c, const char *text, size_t len) {
    if (len == 0)
        return;
    terminal_print(stdout, text, len);
    c->fresh_line = text[len - 1] == '\n';
}

static void cli_chat_end_line(struct chat *c) {
    if (!c->fresh_line)
        (void)fputc('\n', stdout);
    c->fresh_line = true;
}

static void cli_chat_style(const struct chat *c, const char *code) {
    if (c->styled)
        (void)fprintf(stdout, "\x1b[%sm", code);
}

static void show_title(struct chat *c, const char *what, const char *more) {
    cli_chat_end_line(c);
    cli_chat_style(c, "1");
    cli_chat_show(c, what, strlen(what));
    if (more)
        cli_chat_show(c, more, strlen(more));
    cli_chat_style(c, "0");
    cli_chat_end_line(c);
}

static void show_indented(struct chat *c, const char *text) {
    cli_chat_style(c, "2");
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n");
        (void)fputs("    ", stdout);
        c->fresh_line = false;
        cli_chat_show(c, p, n);
        cli_chat_end_line(c);
        p += n + (p[n] == '\n');
    }
    cli_chat_style(c, "0");
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

static void cli_chat_show_output(struct chat *c, const json_t *output) {
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
    cli_chat_end_line(c);
    (void)fflush(stdout);
    terminal_say(stderr, "cay: ", text);
    c->failed = true;
}

static void show_chunk(struct chat *c, const json_t *j) {
    const char *type = json_string_value(json_object_get(j, "type"));
    const json_t *delta = json_object_get(j, "delta");
    if (!type)
        return;
    if (strcmp(type, "text-delta") == 0 || strcmp(type, "reasoning-delta") == 0) {
        cli_chat_show(c, json_string_value(delta), json_string_length(delta));
    } else if (strcmp(type, "text-end") == 0) {
        cli_chat_end_line(c);
    } else if (strcmp(type, "reasoning-start") == 0) {
        cli_chat_style(c, "2;3");
    } else if (strcmp(type, "reasoning-end") == 0) {
        cli_chat_style(c, "0");
        cli_chat_end_line(c);
    } else if (strcmp(type, "tool-input-available") == 0) {
        show_input(c, j);
    } else if (strcmp(type, "tool-output-available") == 0) {
        cli_chat_show_output(c, json_object_get(j, "output"));
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

static bool cli_chat_on_event(void *ctx, const char *event, const char *data, size_t len) {
    (void)event;
    struct chat *c = ctx;
    _cleanup_(json) json_t *j = json_read(data, len);
    if (j && c->json)
        terminal_line(stdout, data);
    else if (j)
        show_chunk(c, j);
    else if (strcmp(data, "[DONE]") == 0)
        c->ended = true;
    (void)fflush(stdout);
    return true;
}

static void cli_chat_on_end(void *ctx, const struct err *err) {
    struct chat *c = ctx;
    c->request = NULL;
    c->over = true;
    cli_chat_style(c, "0");
    cli_chat_end_line(c);
    if (err)
        show_error(c, err->message);
    else if (c->streams && !c->ended)
        show_error(c, "the answer broke off; the agent may still be at work");
}

static void cli_chat_on_stop_sent(void *ctx, const struct err *err) {
    struct chat *c = ctx;
    (void)err;
    c->stop = NULL;
}

/* Asks the server to stop; asked again, leaves the turn alone. */
static void cli_chat_on_interrupt(uv_signal_t *h, int signo) {
    (void)signo;
    struct chat *c = h->data;
    struct err err;
    if (c->over)
        return;
    if (c->stop || !*c->turn) {
        client_cancel(c->request);
        c->request = NULL;
        c->over = c->stopped = true;
        cli_chat_end_line(c);
        return;
    }
    _cleanup_(free) char *path = xasprintf("%s/turns/%s", c->path, c->turn);
    if (client_start(
            &c->client,
            &(struct client_call){
                .method = "DELETE", .path = path, .on_end = cli_chat_on_stop_sent, .ctx = c},
            &c->stop, &err) < 0)
        show_error(c, err.message);
}

/* Sends the request and shows what comes until it has ended: a message, or NULL to empty the
 * conversation. */
static void cli_chat_exchange(struct chat *c, const json_t *message) {
    struct err err;
    _cleanup_(free) char *path = xasprintf("%s/messages", c->path);
    c->over = c->ended = c->stopped = c->failed = false;
    c->fresh_line = true;
    c->streams = message != NULL;
    c->turn[0] = 0;
    if (message)
        (void)id_new("turn", c->turn); /* it can be stopped before its answer begins */
    (void)uv_signal_start(&c->interrupt, cli_chat_on_interrupt, SIGINT);
    struct client_call call = {.method = message ? "POST" : "DELETE",
                               .path = path,
                               .json = message,
                               .header = {.name = "x-cay-turn", .value = *c->turn ? c->turn : NULL},
                               .on_event = message ? cli_chat_on_event : NULL,
                               .max_event_bytes = EVENT_MAX_BYTES,
                               .on_end = cli_chat_on_end,
                               .ctx = c};
    if (client_start(&c->client, &call, &c->request, &err) < 0) {
        show_error(c, err.message);
        c->over = true;
    }
    while (!c->over)
        (void)uv_run(&c->client.loop, UV_RUN_ONCE);
    (void)uv_signal_stop(&c->interrupt);
}

static void cli_chat_send_message(struct chat *c, const char *text) {
    _cleanup_(json) json_t *j = json_pack("{s:s,s:s*}", "text", text, "model", c->model);
    if (j)
        cli_chat_exchange(c, j);
    else
        show_error(c, "a message must be UTF-8 text");
}

/* --- the loop of a person --- */

static void cli_chat_on_prompt_interrupt(int signo) {
    (void)signo; /* only so that reading ends */
}

/* One line without its end; NULL at the end of the input. */
static char *cli_chat_read_line(bool prompt) {
    struct sigaction wake = {.sa_handler = cli_chat_on_prompt_interrupt};
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
static int cli_chat_talk(struct chat *c) {
    bool prompt = isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
    bool failed = false;
    while (true) {
        _cleanup_(free) char *line = cli_chat_read_line(prompt);
        if (!line || strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0)
            break;
        if (line[strspn(line, " \t")] == 0)
            continue;
        if (strcmp(line, "/clear") == 0)
            cli_chat_exchange(c, NULL);
        else if (line[0] == '/')
            (void)printf("/clear empties the conversation, /quit ends\n");
        else
            cli_chat_send_message(c, line);
        failed = failed || c->failed;
        if (c->stopped && !prompt)
            return 130;
    }
    if (prompt)
        (void)fputc('\n', stdout);
    return failed && !prompt ? 1 : 0;
}

/* --- arguments --- */

static bool cli_chat_is_name(const char *name) {
    size_t n = strlen(name);
    return n > 0 && n <= NAME_MAX_BYTES && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static char *cli_chat_path(const char *agent, const char *name) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, 4096);
    (void)buf_add_str(&b, "/v1/agents/");
    client_encode_name(&b, agent);
    (void)buf_add_char(&b, '/');
    client_encode_name(&b, name);
    return buf_steal(&b, NULL);
}

static int run_chat(struct chat *c, const char *message, struct err *err) {
    int rc = client_init(&c->client, c->url, err);
    if (rc < 0)
        return rc;
    c->styled = isatty(STDOUT_FILENO) == 1 && !getenv("NO_COLOR");
    (void)uv_signal_init(&c->client.loop, &c->interrupt);
    c->interrupt.data = c;
    if (message) {
        cli_chat_send_message(c, message);
        rc = c->stopped ? 130 : c->failed ? 1 : 0;
    } else {
        rc = cli_chat_talk(c);
    }
    uv_close((uv_handle_t *)&c->interrupt, NULL);
    client_finish(&c->client);
    return rc;
}

int cli_chat(int argc, char **argv) {
    static const struct cli_option options[] = {
        OPTION(struct chat, "agent", 0, TEXT, agent), OPTION(struct chat, "name", 0, TEXT, name),
        OPTION(struct chat, "model", 0, TEXT, model), OPTION(struct chat, "url", 0, TEXT, url),
        OPTIONS_JSON(struct chat, json)};
    static const struct cli_command command = {.name = "chat",
                                               .usage = usage,
                                               .options = options,
                                               .noptions = ARRAY_LEN(options),
                                               .max_words = 1};
    struct chat c = {.fresh_line = true, .agent = "sandbox-agent", .name = "default"};
    struct err err;
    int rc = cli_options(&command, &argc, argv, &c);
    if (rc >= 0)
        return rc;
    if (!cli_chat_is_name(c.agent) || !cli_chat_is_name(c.name))
        return cli_usage("chat", "--agent and --name have 1 to 128 bytes");
    c.path = cli_chat_path(c.agent, c.name);
    rc = run_chat(&c, argv[1], &err);
    free(c.path);
    return rc < 0 ? cli_fail(&err) : rc;
}
