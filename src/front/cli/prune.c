#include "base/cleanup.h"
#include "base/json.h"
#include "base/mem.h"
#include "front/cli/cli.h"
#include "front/cli/options.h"
#include "front/config/config.h"
#include "front/store/store.h"

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
    "  --data-dir D, --config FILE   as for `cay serve`, but ./cay.json must be named\n";

struct prune_args {
    const char *data_dir;
    const char *config;
    int64_t runs, ms, bytes; /* 0: as the settings say */
    bool json;
};

static const struct cli_option options[] = {
    OPTION(struct prune_args, "keep-runs", 0, COUNT, runs, .min = 1,
           .wants = "a number of 1 or more"),
    OPTION(struct prune_args, "keep", 0, TIME, ms, .min = 1000,
           .wants = "a time such as 12h, of a second or more"),
    OPTION(struct prune_args, "keep-size", 0, SIZE, bytes, .min = 1 << 20,
           .wants = "a size such as 500m, of 1m or more"),
    OPTION(struct prune_args, "data-dir", 0, TEXT, data_dir),
    OPTION(struct prune_args, "config", 0, TEXT, config),
    OPTIONS_JSON(struct prune_args, json)};

static const struct cli_command command = {
    .name = "prune", .usage = usage, .options = options, .noptions = ARRAY_LEN(options)};

static int cli_prune_load(const struct prune_args *a, struct config *c, struct err *err) {
    int rc = cli_config_load(c, "prune", a->config,
                             a->data_dir ? CLI_SETTINGS_READ : CLI_SETTINGS_WRITE, err);
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

static int cli_prune_store(const struct config *c, struct store_totals *before,
                           struct store_totals *after, struct err *err) {
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
    int done = cli_options(&command, &argc, argv, &a);
    if (done >= 0)
        return done;
    config_init(&c);
    int rc = cli_prune_load(&a, &c, &err);
    if (rc == 0)
        rc = cli_prune_store(&c, &before, &after, &err);
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
