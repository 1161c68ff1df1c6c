#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/mem.h"
#include "front/cli/cli.h"
#include "front/cli/client.h"
#include "front/cli/options.h"
#include "front/cli/own.h"
#include "front/cli/steps.h"
#include "front/cli/terminal.h"

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
    "      --json             print the whole answer as one JSON object, instead of the steps\n"
    "      --url URL          use this server (default: CAY_URL, else one is started for it)\n"
    "      --config FILE      settings of the server that is started (default /etc/cay/cay.json);\n"
    "                         ./cay.json and ./.env are not read\n\n"
    "With no ANTHROPIC_API_KEY or OPENAI_API_KEY a demo answers, a script that knows a few "
    "prompts:\n"
    "  cay execute --sdk \"What is 2 + 2? Just give me the number.\"\n\n"
    "The exit status is 0 if it succeeded, 1 if it did not, 3 if the diff is not all that "
    "changed.\n";

enum { EVENT_BYTES = 16 << 20, SHOWN_BYTES = 400 };

struct execute_cli {
    json_t *options; /* of the request */
    const char *repo;
    const char *ref;
    bool sdk;
    bool json;
    struct own_server server;
    struct steps steps;
    json_t *end; /* the answer */
};

/* --- what is shown --- */

static void cli_execute_say_some(const char *before, const char *text) {
    size_t n = strlen(text);
    (void)fputs(before, stdout);
    terminal_print(stdout, text, MIN(n, (size_t)SHOWN_BYTES));
    (void)fputs(n < SHOWN_BYTES ? "\n" : " ...\n", stdout);
}

static void show_block(const json_t *b) {
    const char *type = client_text(b, "type");
    if (strcmp(type, "text") == 0) {
        terminal_say(stdout, "", client_text(b, "text"));
    } else if (strcmp(type, "tool_use") == 0) {
        _cleanup_(free) char *input = json_dumps(json_object_get(b, "input"), JSON_COMPACT);
        (void)fputs("  > ", stdout);
        terminal_print(stdout, client_text(b, "name"), strlen(client_text(b, "name")));
        cli_execute_say_some(" ", input ? input : "");
    } else if (strcmp(type, "tool_result") == 0) {
        cli_execute_say_some(json_is_true(json_object_get(b, "is_error")) ? "  ! " : "  < ",
                             client_text(b, "content"));
    } else if (strcmp(type, "thinking") == 0) {
        cli_execute_say_some("  ~ ", client_text(b, "thinking"));
    }
}

static void cli_execute_show_event(const char *type, const json_t *j) {
    size_t i;
    const json_t *b;
    if (strcmp(type, "system") == 0)
        terminal_say(stdout, "model  ", client_text(j, "model"));
    json_array_foreach(json_object_get(json_object_get(j, "message"), "content"), i, b) {
        show_block(b);
    }
    (void)fflush(stdout);
}

static bool cli_execute_on_event(void *ctx, const char *event, const char *data, size_t len) {
    struct execute_cli *c = ctx;
    _cleanup_(json) json_t *j = json_read(data, len);
    if (event && strcmp(event, "end") == 0)
        c->end = json_incref(j);
    else if (event && j && c->sdk)
        cli_execute_show_event(event, j);
    else if (event && j)
        steps_show(&c->steps, event, j);
    return true;
}

static int show_task_end(const struct execute_cli *c, bool success) {
    const json_t *m = json_object_get(c->end, "metadata");
    const char *diff = client_text(c->end, "diff");
    if (*diff)
        (void)fputc('\n', stdout);
    terminal_print(stdout, diff, strlen(diff));
    if (!success)
        terminal_say(stdout, "failed  ", client_text(json_object_get(c->end, "error"), "message"));
    (void)printf("%.1f s\n",
                 (double)json_integer_value(json_object_get(m, "execution_time_ms")) / 1000.0);
    bool part = json_is_false(json_object_get(c->end, "diff_is_whole"));
    if (part)
        terminal_say(stderr,
                     "cay: the diff is not all that changed: ", client_text(c->end, "diff_note"));
    return !success ? 1 : part ? EXIT_STATUS_NOT_ALL : 0;
}

static int cli_execute_show_end(const struct execute_cli *c) {
    const json_t *m = json_object_get(c->end, "metadata");
    bool success = json_is_true(json_object_get(c->end, "success"));
    if (c->json) {
        terminal_json(c->end);
        return success ? 0 : 1;
    }
    if (!c->sdk)
        return show_task_end(c, success);
    if (!success)
        terminal_say(stdout, "failed  ", client_text(json_object_get(c->end, "error"), "message"));
    long long turns = (long long)json_integer_value(json_object_get(m, "num_turns"));
    (void)printf("%s  %lld turn%s, $%.4f, %.1f s\n", success ? "done" : "    ", turns,
                 turns == 1 ? "" : "s", json_number_value(json_object_get(m, "total_cost_usd")),
                 (double)json_integer_value(json_object_get(m, "execution_time_ms")) / 1000.0);
    return success ? 0 : 1;
}

/* --- the call --- */

static int cli_execute_carry_out(struct execute_cli *c, const json_t *body, struct err *err) {
    struct client_call call = {.path = c->sdk ? "/execute/sdk" : "/execute",
                               .json = body,
                               .on_event = c->json ? NULL : cli_execute_on_event,
                               .max_event_bytes = EVENT_BYTES,
                               .ctx = c};
    int rc = client_call(&c->server.client, &call, c->json ? &c->end : NULL, err);
    if (rc == 0 && !c->end)
        rc = err_set(err, ERR_UPSTREAM, "the server broke off");
    return rc < 0 ? rc : cli_execute_show_end(c);
}

static int cli_execute_run_it(struct execute_cli *c, const char *prompt, struct err *err) {
    _cleanup_(buf) struct buf text;
    buf_init(&text, 1 << 20);
    int rc = cli_read_text(prompt, &text, "the prompt", err);
    if (rc < 0)
        return rc;
    _cleanup_(json) json_t *body =
        json_pack("{s:s,s:O,s:s*,s:s*}", c->sdk ? "prompt" : "task", text.data ? text.data : "",
                  "options", c->options, "repo", c->repo, "ref", c->ref);
    if (!body)
        rc = err_set(err, ERR_BAD_REQUEST, "the prompt is no text");
    if (rc == 0)
        rc = own_server_open(&c->server, "execute", err);
    if (rc == 0)
        rc = cli_execute_carry_out(c, body, err);
    own_server_close(&c->server);
    return rc;
}

/* --- the command --- */

static int cli_execute_set_tools(void *args, const struct cli_option *o, const char *value,
                                 struct err *err) {
    const struct execute_cli *c = args;
    json_t *list = json_array();
    (void)err;
    while (*value) {
        size_t n = strcspn(value, ",");
        if (n > 0)
            (void)json_array_append_new(list, json_stringn(value, n));
        value += n + (value[n] == ',');
    }
    (void)json_object_set_new(c->options, o->key, list);
    return 0;
}

static const struct cli_option options[] = {
    OPTION(struct execute_cli, "sdk", 0, FLAG, sdk),
    OPTION(struct execute_cli, "repo", 0, TEXT, repo),
    OPTION(struct execute_cli, "ref", 0, TEXT, ref),
    OPTION(struct execute_cli, "config", 0, TEXT, server.config),
    OPTION(struct execute_cli, "url", 0, TEXT, server.url),
    OPTION(struct execute_cli, "model", 'm', TEXT, options, .key = "model"),
    OPTION(struct execute_cli, "agent", 0, TEXT, options, .key = "agent"),
    OPTION(struct execute_cli, "mode", 0, TEXT, options, .key = "permission_mode"),
    OPTION(struct execute_cli, "diff", 0, FLAG, options, .key = "include_diff"),
    OPTION(struct execute_cli, "timeout", 0, TIME, options, .key = "timeout_ms"),
    OPTION(struct execute_cli, "system", 0, TEXT, options, .key = "system_prompt"),
    OPTION(struct execute_cli, "append", 0, TEXT, options, .key = "append_system_prompt"),
    OPTION(struct execute_cli, "max-turns", 0, COUNT, options, .key = "max_turns", .min = 1,
           .wants = "a number above 0"),
    OPTION(struct execute_cli, "max-budget", 0, AMOUNT, options, .key = "max_budget_usd"),
    {.name = "tools", .kind = OPTION_CALL, .key = "allowed_tools", .set = cli_execute_set_tools},
    OPTIONS_JSON(struct execute_cli, json)};

static const struct cli_command command = {.name = "execute",
                                           .usage = usage,
                                           .options = options,
                                           .noptions = ARRAY_LEN(options),
                                           .min_words = 1,
                                           .max_words = 1,
                                           .missing =
                                               "say what is to be done, in one word or in quotes"};

/* -1: go on. */
static int cli_execute_check_usage(const struct execute_cli *c) {
    bool of_task = c->repo || c->ref || json_object_get(c->options, "agent") ||
                   json_object_get(c->options, "permission_mode") ||
                   json_object_get(c->options, "include_diff") ||
                   json_object_get(c->options, "timeout_ms");
    if (c->sdk && of_task)
        return cli_usage("execute", "--sdk has no sandbox: the options of a task are not for it");
    if (!c->sdk && json_object_get(c->options, "allowed_tools"))
        return cli_usage("execute", "--tools goes with --sdk");
    return -1;
}

int cli_execute(int argc, char **argv) {
    struct execute_cli c = {.options = json_object()};
    struct err err;
    int rc = cli_options(&command, &argc, argv, &c);
    if (rc < 0)
        rc = cli_execute_check_usage(&c);
    if (rc < 0) {
        rc = cli_execute_run_it(&c, argv[1], &err);
        if (rc < 0)
            rc = cli_fail(&err);
    }
    json_decref(c.options);
    json_decref(c.end);
    return rc;
}
