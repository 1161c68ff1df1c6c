#include "base/cleanup.h"
#include "base/mem.h"
#include "front/cli/cli.h"
#include "front/cli/client.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: cay usage [--since DAY] [-o json] [--url URL]\n\n"
    "Shows what each key used, newest day first: its jobs that ended, those of them that are "
    "done,\n"
    "how long they took, the tokens they used and what they cost (\"+\": and some whose price is\n"
    "not known); then its tasks; then what it has spent today of its limits. A key sees its "
    "own.\n\n"
    "  --since DAY   the first day, such as 2026-01-31\n"
    "  --url URL     the server (default: CAY_URL, else http://127.0.0.1:8787)\n";

static const char *text_of(const json_t *row, const char *key) {
    const char *v = json_string_value(json_object_get(row, key));
    return v ? v : "";
}

static long long number_of(const json_t *row, const char *key) {
    return (long long)json_integer_value(json_object_get(row, key));
}

static const char *key_of(const json_t *row) {
    const char *key = text_of(row, "key");
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
        long long in = number_of(r, "input_tokens") + number_of(r, "cache_read_tokens") +
                       number_of(r, "cache_write_tokens");
        (void)printf("%-10s  %-30s  %-11s  %8lld  %8lld  %10.1f  %12lld  %12lld  %10.4f%s\n",
                     text_of(r, "day"), key_of(r), text_of(r, "kind"), number_of(r, "jobs"),
                     number_of(r, "done"), (double)number_of(r, "wall_ms") / 1000, in,
                     number_of(r, "output_tokens"), usd_of(r, "cost_usd"),
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
        (void)printf("%-10s  %-30s  %-11s  %8lld  %8lld  %8lld  %10.1f\n", text_of(r, "day"),
                     key_of(r), text_of(r, "type"), number_of(r, "tasks"), number_of(r, "done"),
                     number_of(r, "attempts"), (double)number_of(r, "wall_ms") / 1000);
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
        (void)printf("%s%s today:", any ? "" : "\n", key_of(r));
        any = true;
        if (json_is_number(tokens))
            (void)printf(" %lld of %lld tokens (%lld set aside)", number_of(r, "tokens"),
                         (long long)json_integer_value(tokens), number_of(r, "held_tokens"));
        if (json_is_number(usd))
            (void)printf(" $%.4f of $%.2f ($%.4f set aside)", usd_of(r, "charged_usd"),
                         json_number_value(usd), usd_of(r, "held_usd"));
        (void)printf("\n");
    }
}

static int show(const char *url, const char *since, bool as_json, struct err *err) {
    struct client client;
    struct buf path;
    _cleanup_(json) json_t *answer = NULL;
    int rc = client_init(&client, url, err);
    if (rc < 0)
        return rc;
    buf_init(&path, 4096);
    (void)buf_add_str(&path, "/v1/usage");
    if (since) {
        (void)buf_add_str(&path, "?since=");
        client_encode(&path, since);
    }
    rc = client_call(&client, &(struct client_call){.path = path.data}, &answer, err);
    buf_finish(&path);
    client_finish(&client);
    if (rc < 0)
        return rc;
    _cleanup_(free) char *text = as_json ? json_dumps(answer, JSON_INDENT(2)) : NULL;
    if (text) {
        (void)printf("%s\n", text);
    } else {
        print_jobs(json_object_get(answer, "jobs"));
        print_tasks(json_object_get(answer, "usage"));
        print_today(json_object_get(answer, "today"));
    }
    return 0;
}

int cli_usage_table(int argc, char **argv) {
    static const struct option options[] = {{"since", required_argument, NULL, 's'},
                                            {"url", required_argument, NULL, 'u'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    const char *since = NULL;
    const char *url = NULL;
    bool as_json = false;
    struct err err;
    int o;
    while ((o = getopt_long(argc, argv, "ho:", options, NULL)) != -1) {
        if (o == 's')
            since = optarg;
        else if (o == 'u')
            url = optarg;
        else if (o == 'o' && strcmp(optarg, "json") == 0)
            as_json = true;
        else if (o == 'h') {
            (void)fputs(usage, stdout);
            return 0;
        } else
            return cli_usage("usage", o == 'o' ? "-o is json" : "unknown option");
    }
    if (optind < argc)
        return cli_usage("usage", "it takes no further words");
    return show(url, since, as_json, &err) < 0 ? cli_fail(&err) : 0;
}
