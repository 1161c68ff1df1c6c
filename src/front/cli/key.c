#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/cli/cli.h"
#include "front/cli/options.h"
#include "front/cli/terminal.h"
#include "front/config/config.h"
#include "front/ledger/db.h"
#include "front/ledger/keyring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usage[] =
    "usage: cay key create --name NAME [--scope read|run|admin] [--rate N] [--facet F]... "
    "[--worker W]...\n"
    "                      [--route R]... [--bind B]... [--max-jobs N] [--tokens-per-day N]\n"
    "                      [--usd-per-day X] [--json]\n"
    "       cay key list [--json]\n"
    "       cay key revoke ID [--json]\n\n"
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
    "  --data-dir D, --config FILE   as for `cay serve`, but ./cay.json must be named\n";

struct key_args {
    const char *name;
    const char *scope;
    const char *data_dir;
    const char *config;
    int64_t rate;
    int64_t max_jobs;
    int64_t tokens_per_day;
    double usd_per_day;
    bool json;
    json_t *grants; /* NULL: none were named */
};

/* A data folder is made for the first key, and for nothing else. */
static int cli_key_open_folder(const char *dir, bool make, struct err *err) {
    struct stat st;
    if (make)
        return path_mkdirs(dir, 0700, err);
    if (stat(dir, &st) == 0)
        return 0;
    return err_set(err, ERR_NOT_FOUND, "there is no data folder %s: name the server's (--data-dir)",
                   dir);
}

static int cli_key_open_ledger(const struct key_args *a, bool make, struct ledger_db **ret_db,
                               struct err *err) {
    struct config c;
    config_init(&c);
    int rc = cli_config_load(&c, "key", a->config,
                             a->data_dir ? CLI_SETTINGS_READ : CLI_SETTINGS_WRITE, err);
    if (rc == 0 && a->data_dir) {
        free(c.data_dir);
        c.data_dir = xstrdup(a->data_dir);
    }
    if (rc == 0) {
        config_defaults(&c);
        rc = cli_key_open_folder(c.data_dir, make, err);
    }
    if (rc == 0)
        rc = cli_become_owner(c.data_dir, err);
    if (rc == 0)
        rc = ledger_db_open(c.data_dir, ret_db, err);
    config_finish(&c);
    return rc;
}

static int cli_key_create(struct ledger_db *db, const struct key_args *a, struct err *err) {
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
    if (a->json) {
        _cleanup_(json) json_t *j = json_pack("{s:s,s:s,s:s,s:s}", "id", k.id, "name", k.name,
                                              "scope", k.scope, "key", text);
        terminal_json(j);
    } else {
        (void)printf("%s\n", text);
        (void)fprintf(stderr, "Key %s (\"", k.id);
        terminal_print(stderr, k.name, strlen(k.name));
        (void)fprintf(stderr, "\", scope %s). It is not shown again: keep it safe.\n", k.scope);
    }
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
        (void)printf("%s  %-6s %-9s %.10s  ", k->id, k->scope, rate, time);
        terminal_print(stdout, k->name, strlen(k->name));
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

static int cli_key_list(struct ledger_db *db, const struct key_args *a, struct err *err) {
    _cleanup_(json) json_t *out = a->json ? json_array() : NULL;
    int rc = ledger_db_key_list(db, false, print_key, out, err);
    if (rc == 0 && out)
        terminal_json(out);
    return rc;
}

static int cli_key_grant(void *args, const struct cli_option *o, const char *value,
                         struct err *err) {
    struct key_args *a = args;
    (void)err;
    if (!a->grants)
        a->grants = json_pack("{s:[],s:[],s:[],s:[]}", "facets", "workers", "routes", "binds");
    (void)json_array_append_new(json_object_get(a->grants, o->key), json_string(value));
    return 0;
}

static const struct cli_option options[] = {
    OPTION(struct key_args, "name", 0, TEXT, name),
    OPTION(struct key_args, "scope", 0, TEXT, scope),
    OPTION(struct key_args, "rate", 0, COUNT, rate),
    OPTION(struct key_args, "max-jobs", 0, COUNT, max_jobs),
    OPTION(struct key_args, "tokens-per-day", 0, COUNT, tokens_per_day),
    OPTION(struct key_args, "usd-per-day", 0, AMOUNT, usd_per_day, .min = -1,
           .wants = "a number of dollars"),
    {.name = "facet", .kind = OPTION_CALL, .key = "facets", .set = cli_key_grant},
    {.name = "worker", .kind = OPTION_CALL, .key = "workers", .set = cli_key_grant},
    {.name = "route", .kind = OPTION_CALL, .key = "routes", .set = cli_key_grant},
    {.name = "bind", .kind = OPTION_CALL, .key = "binds", .set = cli_key_grant},
    OPTION(struct key_args, "data-dir", 0, TEXT, data_dir),
    OPTION(struct key_args, "config", 0, TEXT, config),
    OPTIONS_JSON(struct key_args, json)};

static const struct cli_command command = {.name = "key",
                                           .usage = usage,
                                           .options = options,
                                           .noptions = ARRAY_LEN(options),
                                           .max_words = 2};

int cli_key(int argc, char **argv) {
    struct key_args a = {0};
    static const char *const verbs[] = {"create", "list", "revoke", NULL};
    int done = cli_options(&command, &argc, argv, &a);
    if (done >= 0)
        return done;
    int verb = cli_choose("key", argc > 1 ? argv[1] : "", verbs);
    if (verb < 0)
        return 2;
    const char *id = argc > 2 ? argv[2] : NULL;
    bool is_create = verb == 0;
    bool is_revoke = verb == 2;
    if (id && !is_revoke)
        return cli_usage("key", "unexpected argument \"%s\"", id);
    if (is_create && !a.name)
        return cli_usage("key", "a key needs a name: --name NAME");
    if (is_revoke && !id)
        return cli_usage("key", "say which key; `cay key list` shows their ids");
    (void)umask(077);
    struct err err;
    struct ledger_db *db = NULL;
    int rc = cli_key_open_ledger(&a, is_create, &db, &err);
    if (rc == 0)
        rc = is_create   ? cli_key_create(db, &a, &err)
             : is_revoke ? ledger_db_key_revoke(db, id, &err)
                         : cli_key_list(db, &a, &err);
    ledger_db_close(db);
    json_decref(a.grants);
    if (rc < 0)
        return cli_fail(&err);
    if (is_revoke)
        (void)printf(a.json ? "{\"id\":\"%s\",\"revoked\":true}\n" : "revoked %s\n", id);
    return 0;
}
