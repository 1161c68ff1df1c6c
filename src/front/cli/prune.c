#include "base/cleanup.h"
#include "base/json.h"
#include "base/mem.h"
#include "front/cli/cli.h"
#include "front/config/config.h"
#include "front/store/store.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

static const char usage[] =
    "usage: cay prune [--keep-runs N] [--keep TIME] [--keep-size SIZE] [--json]\n\n"
    "Deletes records of runs, with their events and artifacts, beyond what is to be kept: the\n"
    "oldest, of the key that has the most. A running server does so by itself, by \"store\" in\n"
    "cay.json; this does it now, with the server running or not. What runs is left alone.\n\n"
    "  --keep-runs N     at most N runs\n"
    "  --keep TIME       none that are older: 12h, 90m; a bare number is seconds\n"
    "  --keep-size SIZE  at most so much of them: 500m, 2g\n"
    "  --json            what was there and what is left as JSON\n"
    "  --data-dir D, --config FILE   as for `cay serve`\n";

struct prune_args {
    const char *data_dir;
    const char *config;
    int64_t runs, ms, bytes; /* 0: as the settings say */
    bool json;
};

static int parse(int argc, char **argv, struct prune_args *a) {
    static const struct option options[] = {{"keep-runs", required_argument, NULL, 'r'},
                                            {"keep", required_argument, NULL, 'k'},
                                            {"keep-size", required_argument, NULL, 's'},
                                            {"data-dir", required_argument, NULL, 'd'},
                                            {"config", required_argument, NULL, 'c'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int c;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        char *end = NULL;
        if (c == 'r')
            a->runs = strtoll(optarg, &end, 10);
        if (c == 'h')
            return fputs(usage, stdout) < 0;
        if (c == '?')
            return cli_usage("prune", "unknown option");
        if (c == 'r' && (*end || a->runs < 1))
            return cli_usage("prune", "--keep-runs is a number from 1 on");
        if (c == 'k' && (!cli_parse_time(optarg, &a->ms) || a->ms < 1000))
            return cli_usage("prune", "--keep is a time such as 12h, of a second or more");
        if (c == 's' && (!cli_parse_size(optarg, &a->bytes) || a->bytes < 1 << 20))
            return cli_usage("prune", "--keep-size is a size such as 500m, of 1m or more");
        a->data_dir = c == 'd' ? optarg : a->data_dir;
        a->config = c == 'c' ? optarg : a->config;
        a->json = a->json || c == 'j';
    }
    return optind < argc ? cli_usage("prune", "it takes no further words") : -1;
}

static int load(const struct prune_args *a, struct config *c, struct err *err) {
    int rc = config_load(c, a->config, err);
    if (rc < 0)
        return rc;
    if (a->data_dir) {
        free(c->data_dir);
        c->data_dir = xstrdup(a->data_dir);
    }
    config_defaults(c);
    if (a->runs)
        c->store.keep_runs = a->runs;
    if (a->ms)
        c->store.keep_s = a->ms / 1000;
    if (a->bytes)
        c->store.keep_mb = a->bytes >> 20;
    return cli_become_owner(c->data_dir, err);
}

static int prune(const struct config *c, struct store_totals *before, struct store_totals *after,
                 struct err *err) {
    struct store *s = NULL;
    _cleanup_(free) char *file = xasprintf("%s/cay.db", c->data_dir);
    int rc = store_open(file, &s, err);
    if (rc < 0)
        return rc;
    store_configure(s, &c->store);
    rc = store_totals(s, before, err);
    if (rc == 0)
        rc = store_care(s, err);
    if (rc == 0)
        rc = store_totals(s, after, err);
    store_close(s);
    return rc;
}

int cli_prune(int argc, char **argv) {
    struct prune_args a = {0};
    struct store_totals before = {0};
    struct store_totals after = {0};
    struct err err;
    struct config c;
    int done = parse(argc, argv, &a);
    if (done >= 0)
        return done;
    config_init(&c);
    int rc = load(&a, &c, &err);
    if (rc == 0)
        rc = prune(&c, &before, &after, &err);
    config_finish(&c);
    if (rc < 0)
        return cli_fail(&err);
    if (a.json)
        (void)printf("{\"runs_before\":%lld,\"bytes_before\":%lld,\"runs\":%lld,\"bytes\":%lld}\n",
                     (long long)before.runs, (long long)before.bytes, (long long)after.runs,
                     (long long)after.bytes);
    else
        (void)printf("%lld of %lld runs were deleted; the %lld that are kept have %.1f MiB\n",
                     (long long)(before.runs - after.runs), (long long)before.runs,
                     (long long)after.runs, (double)after.bytes / (1 << 20));
    return 0;
}
