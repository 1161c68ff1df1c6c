#include "base/cleanup.h"
#include "base/mem.h"
#include "front/cli/cli.h"
#include "front/cli/client.h"
#include "front/cli/options.h"
#include "front/cli/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: cay usage [--since DAY] [--json] [--url URL]\n\n"
    "Shows what each key used, newest day first: its jobs that ended, those of them that are "
    "done,\n"
    "how long they took, the tokens they used and what they cost (\"+\": and some whose price is\n"
    "not known); then its tasks; then what it has spent today of its limits. A key sees its "
    "own.\n\n"
    "  --since DAY   the first day, such as 2026-01-31\n"
    "  --json        as JSON\n"
    "  --url URL     the server (default: CAY_URL, else http://127.0.0.1:8787)\n";

static long long cli_usage_number_of(const json_t *row, const char *key) {
    return (long long)json_integer_value(json_object_get(row, key));
}

static const char *cli_usage_key_of(const json_t *row) {
    const char *key = client_text(row, "key");
    return *key ? key : "operator";
}

static double usd_of(const json_t *row, const char *key) {
    return json_number_value(json_object_get(row, key));
}

static void print_jobs(const json_t *list) {
    size_t i;
    const json_t *r;
    (void)printf("%-10s  %-30s  %-11s  %8s  %8s  %10s  %12s  %12s  %11s\n", "DAY", "KEY", "KIND",
                 "JOBS", "DONE", "SECONDS", "TOKENS IN", "TOKENS OUT", "USD");
    json_array_foreach(list, i, r) {
        long long in = cli_usage_number_of(r, "input_tokens") +
                       cli_usage_number_of(r, "cache_read_tokens") +
                       cli_usage_number_of(r, "cache_write_tokens");
        (void)printf("%-10s  %-30s  %-11s  %8lld  %8lld  %10.1f  %12lld  %12lld  %10.4f%s\n",
                     client_text(r, "day"), cli_usage_key_of(r), client_text(r, "kind"),
                     cli_usage_number_of(r, "jobs"), cli_usage_number_of(r, "done"),
                     (double)cli_usage_number_of(r, "wall_ms") / 1000, in,
                     cli_usage_number_of(r, "output_tokens"), usd_of(r, "cost_usd"),
                     usd_of(r, "charged_usd") > usd_of(r, "cost_usd") + 1e-9 ? "+" : "");
    }
}

static void print_tasks(const json_t *list) {
    size_t i;
    const json_t *r;
    if (json_array_size(list) == 0)
        return;
    (void)printf("\n%-10s  %-30s  %-11s  %8s  %8s  %8s  %10s\n", "DAY", "KEY", "TYPE", "TASKS",
                 "DONE", "ATTEMPTS", "SECONDS");
    json_array_foreach(list, i, r) {
        (void)printf("%-10s  %-30s  %-11s  %8lld  %8lld  %8lld  %10.1f\n", client_text(r, "day"),
                     cli_usage_key_of(r), client_text(r, "type"), cli_usage_number_of(r, "tasks"),
                     cli_usage_number_of(r, "done"), cli_usage_number_of(r, "attempts"),
                     (double)cli_usage_number_of(r, "wall_ms") / 1000);
    }
}

static void print_today(const json_t *list) {
    size_t i;
    const json_t *r;
    bool any = false;
    json_array_foreach(list, i, r) {
        const json_t *tokens = json_object_get(r, "tokens_per_day");
        const json_t *usd = json_object_get(r, "usd_per_day");
        if (!json_is_number(tokens) && !json_is_number(usd))
            continue;
        (void)printf("%s%s today:", any ? "" : "\n", cli_usage_key_of(r));
        any = true;
        if (json_is_number(tokens))
            (void)printf(" %lld of %lld tokens (%lld set aside)", cli_usage_number_of(r, "tokens"),
                         (long long)json_integer_value(tokens),
                         cli_usage_number_of(r, "held_tokens"));
        if (json_is_number(usd))
            (void)printf(" $%.4f of $%.2f ($%.4f set aside)", usd_of(r, "charged_usd"),
                         json_number_value(usd), usd_of(r, "held_usd"));
        (void)printf("\n");
    }
}

struct usage_args {
    const char *since;
    const char *url;
    bool json;
};

static int cli_usage_show(const struct usage_args *a, struct err *err) {
    struct client client;
    struct buf path;
    _cleanup_(json) json_t *answer = NULL;
    int rc = client_init(&client, a->url, err);
    if (rc < 0)
        return rc;
    buf_init(&path, 4096);
    (void)buf_add_str(&path, "/v1/usage");
    if (a->since) {
        (void)buf_add_str(&path, "?since=");
        client_encode(&path, a->since);
    }
    rc = client_call(&client, &(struct client_call){.path = path.data}, &answer, err);
    buf_finish(&path);
    client_finish(&client);
    if (rc < 0)
        return rc;
    if (a->json) {
        terminal_json(answer);
    } else {
        print_jobs(json_object_get(answer, "jobs"));
        print_tasks(json_object_get(answer, "usage"));
        print_today(json_object_get(answer, "today"));
    }
    return 0;
}

int cli_usage_table(int argc, char **argv) {
    static const struct cli_option options[] = {OPTION(struct usage_args, "since", 0, TEXT, since),
                                                OPTION(struct usage_args, "url", 0, TEXT, url),
                                                OPTIONS_JSON(struct usage_args, json)};
    static const struct cli_command command = {
        .name = "usage", .usage = usage, .options = options, .noptions = ARRAY_LEN(options)};
    struct usage_args a = {0};
    struct err err;
    int status = cli_options(&command, &argc, argv, &a);
    if (status >= 0)
        return status;
    return cli_usage_show(&a, &err) < 0 ? cli_fail(&err) : 0;
}
