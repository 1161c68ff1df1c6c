#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/cli/cli.h"
#include "front/config/config.h"
#include "front/keys.h"
#include "front/ledger/db.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: cay key create --name NAME [--scope read|run|admin] [--rate N] [--facet F]... "
    "[--worker W]...\n"
    "                      [--route R]... [--bind B]... [--max-jobs N] [--tokens-per-day N]\n"
    "                      [--usd-per-day X]\n"
    "       cay key list [--json]\n"
    "       cay key revoke ID\n\n"
    "Keys for the API, sent as \"Authorization: Bearer KEY\". A key is shown once, when it is "
    "made;\n"
    "only its hash is kept. What a key makes is seen by that key alone.\n\n"
    "  --scope   read: look at its own records; run (the default): also run code;\n"
    "            admin: also see what other keys made, and make and revoke keys\n"
    "  --rate    at most N requests a minute (default: no limit)\n"
    "  --max-jobs         at most N jobs at a time (default: no limit but the server's)\n"
    "  --tokens-per-day, --usd-per-day   that its jobs may use of models in a day (UTC); what a "
    "call\n"
    "            may need at the worst is set aside before it is made (default: no limit)\n"
    "  --facet, --worker   its programs may use only the databases and workers of these names\n"
    "            (default: all that the key makes itself)\n"
    "  --route, --bind   its sandboxes may use only the routes and binds of these names (default:\n"
    "            all of cay.json); with one of these four options the others are none by default\n"
    "  --data-dir D, --config FILE   as for `cay serve`\n";

struct key_args {
    const char *name;
    const char *scope;
    const char *data_dir;
    const char *config;
    long rate;
    long max_jobs;
    long tokens_per_day;
    double usd_per_day;
    bool json;
    json_t *grants; /* NULL: none were named */
};

static int open_ledger(const struct key_args *a, struct ledger_db **ret_db, struct err *err) {
    struct config c;
    config_init(&c);
    int rc = config_load(&c, a->config, err);
    if (rc == 0 && a->data_dir) {
        free(c.data_dir);
        c.data_dir = xstrdup(a->data_dir);
    }
    if (rc == 0) {
        config_defaults(&c);
        rc = path_mkdirs(c.data_dir, 0700, err);
    }
    if (rc == 0)
        rc = cli_become_owner(c.data_dir, err);
    if (rc == 0)
        rc = ledger_db_open(c.data_dir, ret_db, err);
    config_finish(&c);
    return rc;
}

static int create(struct ledger_db *db, const struct key_args *a, struct err *err) {
    struct key_request r = {.name = a->name ? a->name : "",
                            .scope = a->scope ? a->scope : "run",
                            .rate_per_minute = a->rate,
                            .max_jobs = a->max_jobs,
                            .tokens_per_day = a->tokens_per_day,
                            .usd_per_day = a->usd_per_day};
    _cleanup_(free) char *grants = a->grants ? json_dumps(a->grants, JSON_COMPACT) : NULL;
    r.grants = grants;
    char text[KEY_TEXT_SIZE];
    struct ledger_key k;
    int rc = key_create(db, &r, text, &k, err);
    if (rc < 0)
        return rc;
    (void)printf("%s\n", text);
    (void)fprintf(stderr, "Key %s (\"%s\", scope %s). It is not shown again: keep it safe.\n", k.id,
                  k.name, k.scope);
    ledger_key_finish(&k);
    return 0;
}

/* What it has of limits beside its rate. */
static void print_limits(const struct ledger_key *k) {
    if (k->max_jobs)
        (void)printf("  jobs %lld", (long long)k->max_jobs);
    if (k->tokens_per_day)
        (void)printf("  %lld tokens/day", (long long)k->tokens_per_day);
    if (k->nusd_per_day)
        (void)printf("  $%.2f/day", (double)k->nusd_per_day / 1e9);
}

static void print_key(void *ctx, const struct ledger_key *k) {
    char time[CLOCK_RFC3339_SIZE];
    char rate[32] = "no limit";
    if (k->rate_per_minute)
        (void)snprintf(rate, sizeof(rate), "%lld/min", (long long)k->rate_per_minute);
    clock_rfc3339(k->created_ms, time);
    if (!ctx) {
        (void)printf("%s  %-6s %-9s %.10s  %s", k->id, k->scope, rate, time, k->name);
        print_limits(k);
        (void)printf("%s\n", k->revoked_ms ? "  (revoked)" : "");
        return;
    }
    json_t *j = json_pack(
        "{s:s,s:s,s:s,s:I,s:I,s:I,s:f,s:s,s:b}", "id", k->id, "name", k->name, "scope", k->scope,
        "rate_per_minute", (json_int_t)k->rate_per_minute, "max_jobs", (json_int_t)k->max_jobs,
        "tokens_per_day", (json_int_t)k->tokens_per_day, "usd_per_day",
        (double)k->nusd_per_day / 1e9, "created_at", time, "revoked", k->revoked_ms != 0);
    (void)json_array_append_new(ctx, j);
}

static int list(struct ledger_db *db, const struct key_args *a, struct err *err) {
    _cleanup_(json) json_t *out = a->json ? json_array() : NULL;
    int rc = ledger_db_key_list(db, false, print_key, out, err);
    if (rc == 0 && out) {
        _cleanup_(free) char *text = json_dumps(out, JSON_INDENT(2));
        (void)printf("%s\n", text);
    }
    return rc;
}

static bool parse_number(const char *text, long *ret) {
    char *end;
    *ret = strtol(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end;
}

static bool parse_usd(const char *text, double *ret) {
    char *end;
    *ret = strtod(text, &end);
    return *text >= '0' && *text <= '9' && !*end && *ret >= 0;
}

static int parse(int argc, char **argv, struct key_args *a) {
    static const struct option options[] = {{"name", required_argument, NULL, 'n'},
                                            {"scope", required_argument, NULL, 's'},
                                            {"rate", required_argument, NULL, 'r'},
                                            {"facet", required_argument, NULL, 'f'},
                                            {"worker", required_argument, NULL, 'w'},
                                            {"data-dir", required_argument, NULL, 'd'},
                                            {"route", required_argument, NULL, 'R'},
                                            {"bind", required_argument, NULL, 'B'},
                                            {"config", required_argument, NULL, 'c'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"max-jobs", required_argument, NULL, 'J'},
                                            {"tokens-per-day", required_argument, NULL, 'T'},
                                            {"usd-per-day", required_argument, NULL, 'U'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    int c;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 'n':
            a->name = optarg;
            break;
        case 's':
            a->scope = optarg;
            break;
        case 'r':
            if (!parse_number(optarg, &a->rate))
                return cli_usage("key", "--rate needs a number");
            break;
        case 'J':
            if (!parse_number(optarg, &a->max_jobs))
                return cli_usage("key", "--max-jobs needs a number");
            break;
        case 'T':
            if (!parse_number(optarg, &a->tokens_per_day))
                return cli_usage("key", "--tokens-per-day needs a number");
            break;
        case 'U':
            if (!parse_usd(optarg, &a->usd_per_day))
                return cli_usage("key", "--usd-per-day needs a number of dollars");
            break;
        case 'f':
        case 'w':
        case 'R':
        case 'B':
            if (!a->grants)
                a->grants =
                    json_pack("{s:[],s:[],s:[],s:[]}", "facets", "workers", "routes", "binds");
            (void)json_array_append_new(json_object_get(a->grants, c == 'f'   ? "facets"
                                                                   : c == 'w' ? "workers"
                                                                   : c == 'R' ? "routes"
                                                                              : "binds"),
                                        json_string(optarg));
            break;
        case 'd':
            a->data_dir = optarg;
            break;
        case 'c':
            a->config = optarg;
            break;
        case 'j':
            a->json = true;
            break;
        case 'h':
            (void)fputs(usage, stdout);
            return 0;
        default:
            return cli_usage("key", "unknown option");
        }
    }
    return -1;
}

int cli_key(int argc, char **argv) {
    struct key_args a = {0};
    int done = parse(argc, argv, &a);
    if (done >= 0)
        return done;
    const char *what = optind < argc ? argv[optind] : "";
    const char *id = optind + 1 < argc ? argv[optind + 1] : NULL;
    bool is_create = strcmp(what, "create") == 0;
    bool is_revoke = strcmp(what, "revoke") == 0;
    if (!is_create && !is_revoke && strcmp(what, "list") != 0)
        return cli_usage("key", "say create, list or revoke");
    if (optind + (is_revoke ? 2 : 1) < argc)
        return cli_usage("key", "it takes no further words");
    if (is_create && !a.name)
        return cli_usage("key", "a key needs a name: --name NAME");
    if (is_revoke && !id)
        return cli_usage("key", "say which key; `cay key list` shows their ids");
    (void)umask(077);
    struct err err;
    struct ledger_db *db = NULL;
    int rc = open_ledger(&a, &db, &err);
    if (rc == 0)
        rc = is_create   ? create(db, &a, &err)
             : is_revoke ? ledger_db_key_revoke(db, id, &err)
                         : list(db, &a, &err);
    ledger_db_close(db);
    json_decref(a.grants);
    if (rc < 0)
        return cli_fail(&err);
    if (is_revoke)
        (void)printf("revoked %s\n", id);
    return 0;
}
