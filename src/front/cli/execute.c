#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/sse.h"
#include "front/cli/cli.h"
#include "front/cli/client.h"
#include "front/cli/own.h"
#include "front/cli/steps.h"
#include "front/cli/terminal.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A task in one call. With no server named it starts one for itself and ends it afterwards. */

static const char usage[] =
    "usage: cay execute [OPTIONS] TASK\n"
    "       cay execute --sdk [OPTIONS] PROMPT\n\n"
    "Gives TASK to a coding agent in a sandbox (POST /execute), on a clone of a repository if one\n"
    "is named; its steps are shown as they happen, and the diff at the end. With --sdk it answers\n"
    "PROMPT with a model and web tools, without a sandbox (POST /execute/sdk). \"-\" is read from "
    "the\n"
    "input.\n\n"
    "Of a task:\n"
    "      --repo URL         clone this repository into the sandbox\n"
    "      --ref REF          its branch, tag or commit\n"
    "      --agent AGENT      coder (the default), or another that `cay doctor` lists\n"
    "      --mode MODE        plan (nothing can be changed), acceptEdits (the default), or\n"
    "                         bypassPermissions (also what the operator lets sandboxes reach)\n"
    "      --diff             show what was changed also without a repository\n"
    "      --timeout TIME     how long it may take: 90s, 5m (default 5m)\n\n"
    "Of both:\n"
    "  -m, --model MODEL      opus, sonnet (the default), haiku, or a full id\n"
    "      --max-turns N      how many steps or answers (default 30, with --sdk 10)\n"
    "      --tools A,B        with --sdk: these tools and no others (default WebFetch,WebSearch,\n"
    "                         TodoWrite; there is RunCode too; \"\" is none)\n"
    "      --system TEXT      instead of the built-in prompt\n"
    "      --append TEXT      put behind the system prompt\n"
    "      --max-budget USD   end it when it has cost more\n"
    "  -o, --output json      print the whole answer as one JSON object, instead of the steps\n"
    "      --url URL          use this server (default: CAY_URL, else one is started for it)\n\n"
    "With no ANTHROPIC_API_KEY or OPENAI_API_KEY a demo answers, a script that knows a few "
    "prompts:\n"
    "  cay execute --sdk \"What is 2 + 2? Just give me the number.\"\n\n"
    "The exit status is 0 if it succeeded, 1 if it did not.\n";

enum { EVENT_BYTES = 16 << 20, SHOWN_BYTES = 400 };

struct execute_cli {
    const char *url;
    json_t *options; /* of the request */
    const char *repo;
    const char *ref;
    bool sdk;
    bool json;
    struct own_server server;
    struct sse sse;
    struct steps steps;
    json_t *end; /* the answer */
};

/* --- what is shown --- */

static const char *text_of(const json_t *j, const char *key) {
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}

static void say(const char *before, const char *text, size_t max) {
    size_t n = strlen(text);
    (void)fputs(before, stdout);
    terminal_print(stdout, text, n < max ? n : max);
    (void)fputs(n < max ? "\n" : " ...\n", stdout);
}

static void show_block(const json_t *b) {
    const char *type = text_of(b, "type");
    if (strcmp(type, "text") == 0) {
        say("", text_of(b, "text"), SIZE_MAX);
    } else if (strcmp(type, "tool_use") == 0) {
        _cleanup_(free) char *input = json_dumps(json_object_get(b, "input"), JSON_COMPACT);
        (void)fputs("  > ", stdout);
        terminal_print(stdout, text_of(b, "name"), strlen(text_of(b, "name")));
        say(" ", input ? input : "", SHOWN_BYTES);
    } else if (strcmp(type, "tool_result") == 0) {
        say(json_is_true(json_object_get(b, "is_error")) ? "  ! " : "  < ", text_of(b, "content"),
            SHOWN_BYTES);
    } else if (strcmp(type, "thinking") == 0) {
        say("  ~ ", text_of(b, "thinking"), SHOWN_BYTES);
    }
}

static void show_event(const char *type, const json_t *j) {
    size_t i;
    const json_t *b;
    if (strcmp(type, "system") == 0)
        say("model  ", text_of(j, "model"), SIZE_MAX);
    json_array_foreach(json_object_get(json_object_get(j, "message"), "content"), i, b) {
        show_block(b);
    }
    (void)fflush(stdout);
}

static bool on_event(void *ctx, const char *event, const char *data, size_t len) {
    struct execute_cli *c = ctx;
    _cleanup_(json) json_t *j = json_loadb(data, len, 0, NULL);
    if (event && strcmp(event, "end") == 0)
        c->end = json_incref(j);
    else if (event && j && c->sdk)
        show_event(event, j);
    else if (event && j)
        steps_show(&c->steps, event, j);
    return true;
}

static int on_data(void *ctx, const char *data, size_t len, struct err *err) {
    struct execute_cli *c = ctx;
    return sse_feed(&c->sse, data, len, err);
}

static int show_task_end(const struct execute_cli *c, bool success) {
    const json_t *m = json_object_get(c->end, "metadata");
    const char *diff = text_of(c->end, "diff");
    if (*diff)
        (void)fputc('\n', stdout);
    terminal_print(stdout, diff, strlen(diff));
    if (!success)
        say("failed  ", text_of(json_object_get(c->end, "error"), "message"), SIZE_MAX);
    (void)printf("%.1f s\n",
                 (double)json_integer_value(json_object_get(m, "execution_time_ms")) / 1000.0);
    return success ? 0 : 1;
}

static int show_end(const struct execute_cli *c) {
    const json_t *m = json_object_get(c->end, "metadata");
    bool success = json_is_true(json_object_get(c->end, "success"));
    if (c->json) {
        _cleanup_(free) char *text = json_dumps(c->end, JSON_INDENT(2));
        (void)printf("%s\n", text ? text : "{}");
        return success ? 0 : 1;
    }
    if (!c->sdk)
        return show_task_end(c, success);
    if (!success)
        say("failed  ", text_of(json_object_get(c->end, "error"), "message"), SIZE_MAX);
    long long turns = (long long)json_integer_value(json_object_get(m, "num_turns"));
    (void)printf("%s  %lld turn%s, $%.4f, %.1f s\n", success ? "done" : "    ", turns,
                 turns == 1 ? "" : "s", json_number_value(json_object_get(m, "total_cost_usd")),
                 (double)json_integer_value(json_object_get(m, "execution_time_ms")) / 1000.0);
    return success ? 0 : 1;
}

/* --- the call --- */

static int carry_out(struct execute_cli *c, const json_t *body, const char *url, struct err *err) {
    struct client client;
    int rc = client_init(&client, url, err);
    if (rc < 0)
        return rc;
    sse_init(&c->sse, EVENT_BYTES, on_event, c);
    struct client_call call = {
        .path = c->sdk ? "/execute/sdk" : "/execute", .json = body, .ctx = c};
    if (!c->json) {
        call.accept = "text/event-stream";
        call.on_data = on_data;
    }
    rc = client_call(&client, &call, c->json ? &c->end : NULL, err);
    sse_finish(&c->sse);
    client_finish(&client);
    if (rc == 0 && !c->end)
        rc = err_set(err, ERR_UPSTREAM, "the server broke off");
    return rc < 0 ? rc : show_end(c);
}

static int run_it(struct execute_cli *c, const char *prompt, struct err *err) {
    _cleanup_(buf) struct buf text;
    _cleanup_(free) char *own = NULL;
    buf_init(&text, 1 << 20);
    const char *set = getenv("CAY_URL");
    const char *url = c->url ? c->url : set && *set ? set : NULL;
    int rc = cli_read_text(prompt, &text, "the prompt", err);
    if (rc < 0)
        return rc;
    _cleanup_(json) json_t *body =
        json_pack("{s:s,s:O,s:s*,s:s*}", c->sdk ? "prompt" : "task", text.data ? text.data : "",
                  "options", c->options, "repo", c->repo, "ref", c->ref);
    if (!body)
        rc = err_set(err, ERR_BAD_REQUEST, "the prompt is no text");
    if (rc == 0 && !url)
        rc = own_server_start(&c->server, &own, err);
    if (rc == 0)
        rc = carry_out(c, body, url ? url : own, err);
    own_server_end(&c->server);
    return rc;
}

/* --- the command --- */

static json_t *split(const char *text) {
    json_t *list = json_array();
    while (*text) {
        size_t n = strcspn(text, ",");
        if (n > 0)
            (void)json_array_append_new(list, json_stringn(text, n));
        text += n + (text[n] == ',');
    }
    return list;
}

static int set_text(struct execute_cli *c, const char *key) {
    return json_object_set_new(c->options, key, json_string(optarg)) == 0
               ? 0
               : cli_usage("execute", "an option is no text");
}

static int set_number(struct execute_cli *c, const char *key, bool whole) {
    char *end = NULL;
    double v = strtod(optarg, &end);
    if (!*optarg || *end || !(v > 0 && v < 1e9))
        return cli_usage("execute", "--max-turns and --max-budget are numbers above 0");
    return json_object_set_new(c->options, key,
                               whole ? json_integer((json_int_t)v) : json_real(v)) == 0
               ? 0
               : 2;
}

static int read_option(struct execute_cli *c, int option) {
    int64_t ms = 0;
    switch (option) {
    case 'S':
        c->sdk = true;
        return 0;
    case 'r':
        c->repo = optarg;
        return 0;
    case 'R':
        c->ref = optarg;
        return 0;
    case 'A':
        return set_text(c, "agent");
    case 'M':
        return set_text(c, "permission_mode");
    case 'd':
        (void)json_object_set_new(c->options, "include_diff", json_true());
        return 0;
    case 'T':
        if (!cli_parse_time(optarg, &ms))
            return cli_usage("execute", "--timeout is a time: 90s, 5m");
        (void)json_object_set_new(c->options, "timeout_ms", json_integer(ms));
        return 0;
    case 'm':
        return set_text(c, "model");
    case 'n':
        return set_number(c, "max_turns", true);
    case 't':
        (void)json_object_set_new(c->options, "allowed_tools", split(optarg));
        return 0;
    case 's':
        return set_text(c, "system_prompt");
    case 'a':
        return set_text(c, "append_system_prompt");
    case 'b':
        return set_number(c, "max_budget_usd", false);
    case 'o':
        c->json = strcmp(optarg, "json") == 0;
        return c->json ? 0 : cli_usage("execute", "--output is json");
    case 'u':
        c->url = optarg;
        return 0;
    default:
        return cli_usage("execute", "unknown option");
    }
}

int cli_execute(int argc, char **argv) {
    static const struct option options[] = {{"sdk", no_argument, NULL, 'S'},
                                            {"repo", required_argument, NULL, 'r'},
                                            {"ref", required_argument, NULL, 'R'},
                                            {"agent", required_argument, NULL, 'A'},
                                            {"mode", required_argument, NULL, 'M'},
                                            {"diff", no_argument, NULL, 'd'},
                                            {"timeout", required_argument, NULL, 'T'},
                                            {"model", required_argument, NULL, 'm'},
                                            {"max-turns", required_argument, NULL, 'n'},
                                            {"tools", required_argument, NULL, 't'},
                                            {"system", required_argument, NULL, 's'},
                                            {"append", required_argument, NULL, 'a'},
                                            {"max-budget", required_argument, NULL, 'b'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"url", required_argument, NULL, 'u'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct execute_cli c = {.options = json_object()};
    struct err err;
    int option;
    int rc = 0;
    while (rc == 0 && (option = getopt_long(argc, argv, "m:o:h", options, NULL)) != -1) {
        if (option == 'h') {
            (void)fputs(usage, stdout);
            json_decref(c.options);
            return 0;
        }
        rc = read_option(&c, option);
    }
    if (rc == 0 && optind + 1 != argc)
        rc = cli_usage("execute", "say what is to be done, in one word or in quotes");
    bool of_task = c.repo || c.ref || json_object_get(c.options, "agent") ||
                   json_object_get(c.options, "permission_mode") ||
                   json_object_get(c.options, "include_diff") ||
                   json_object_get(c.options, "timeout_ms");
    if (rc == 0 && c.sdk && of_task)
        rc = cli_usage("execute", "--sdk has no sandbox: the options of a task are not for it");
    if (rc == 0 && !c.sdk && json_object_get(c.options, "allowed_tools"))
        rc = cli_usage("execute", "--tools goes with --sdk");
    if (rc == 0) {
        rc = run_it(&c, argv[optind], &err);
        if (rc < 0)
            rc = cli_fail(&err);
    }
    json_decref(c.options);
    json_decref(c.end);
    return rc;
}
