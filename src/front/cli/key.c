#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "front/cli/cli.h"
#include "front/cli/ledger.h"
#include "front/cli/options.h"
#include "front/cli/terminal.h"
#include "front/ledger/db.h"
#include "front/ledger/keyring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usage[] =
    "usage: cay key create --name NAME [--project P] [--scope read|run|admin] [--expires TIME]\n"
    "                      [--rate N] [--max-jobs N] [--tokens-per-day N] [--usd-per-day X]\n"
    "                      [--facet F]... [--worker W]... [--route R]... [--bind B]... [--json]\n"
    "       cay key list [--project P] [--json]\n"
    "       cay key rotate ID [--grace SECONDS] [--json]\n"
    "       cay key revoke ID [--json]\n\n"
    "Keys for the API, sent as \"Authorization: Bearer KEY\". A key is shown once, when it is "
    "made;\n"
    "only its hash is kept. Data belongs to projects: all keys of a project see the same data, "
    "and\n"
    "revoking a key removes none of it.\n\n"
    "  --project the project that the key is for (default: \"default\", which is also the one of\n"
    "            a server that needs no keys); `cay project create` makes another\n"
    "  --scope   read: look at what the project has; run (the default): also run code;\n"
    "            admin: also make and revoke the project's keys. An admin key of the default\n"
    "            project is one of the whole server: it sees and changes every project\n"
    "  --expires the key stops working at that time, such as 2027-01-31T00:00:00Z\n"
    "  --grace   rotate: the old secret works for that many seconds more (default: 0)\n"
    "  --rate    at most N requests a minute (default: no limit)\n"
    "  --max-jobs         at most N jobs at a time (default: no limit but the server's)\n"
    "  --tokens-per-day, --usd-per-day   that its jobs may use of models in a day (UTC); what a "
    "call\n"
    "            may need at the worst is set aside before it is made (default: no limit)\n"
    "  --facet, --worker   its programs may use only the databases and workers of these names\n"
    "            (default: all that the project has)\n"
    "  --route, --bind   its sandboxes may use only the routes and binds of these names (default:\n"
    "            all of cay.json); with one of these four options the others are none by default\n"
    "  --data-dir D, --config FILE   as for `cay serve`, but ./cay.json must be named\n";

struct key_args {
    const char *name;
    const char *scope;
    const char *project;
    const char *expires;
    const char *data_dir;
    const char *config;
    struct limits_request limits;
    int64_t grace_s;
    bool json;
    json_t *grants; /* NULL: none were named */
};

static void print_secret(const struct key_args *a, const struct ledger_key *k, const char *text) {
    const char *project = *k->project ? k->project : "default";
    if (a->json) {
        _cleanup_(json) json_t *j =
            json_pack("{s:s,s:s,s:s,s:s,s:s}", "id", k->id, "project", project, "name", k->name,
                      "scope", k->scope, "key", text);
        terminal_json(j);
        return;
    }
    (void)printf("%s\n", text);
    (void)fprintf(stderr, "Key %s (\"", k->id);
    terminal_print(stderr, k->name, strlen(k->name));
    (void)fprintf(stderr, "\", project %s, scope %s). It is not shown again: keep it safe.\n",
                  project, k->scope);
}

static int cli_key_create(struct ledger_db *db, const struct key_args *a, struct err *err) {
    struct key_request r = {
        .name = a->name ? a->name : "", .scope = a->scope ? a->scope : "run", .limits = a->limits};
    _cleanup_(free) char *grants = a->grants ? json_dumps(a->grants, JSON_COMPACT) : NULL;
    r.grants = grants;
    if (a->expires && !clock_parse_rfc3339(a->expires, &r.expires_ms))
        return err_set(err, ERR_BAD_REQUEST, "--expires takes a time such as 2027-01-31T00:00:00Z");
    char text[KEY_TEXT_SIZE];
    struct ledger_key k;
    struct ledger_answer answer;
    int rc = key_make(&r, text, &k, err);
    if (rc < 0)
        return rc;
    rc = cli_ledger_ask(
        db,
        &(struct ledger_ask){
            .op = LEDGER_KEY_ADD,
            .key_add = {.key = &k, .project = a->project, .valid_max = SIZE_MAX / 2}},
        &answer, err);
    ledger_key_finish(&k);
    if (rc < 0)
        return rc;
    print_secret(a, &answer.key_added.key, text);
    ledger_answer_finish(&answer);
    return 0;
}

static int cli_key_rotate(struct ledger_db *db, const struct key_args *a, const char *id,
                          struct err *err) {
    struct ledger_key k = {.old_until_ms = a->grace_s ? clock_wall_ms() + a->grace_s * 1000 : 0};
    struct ledger_answer answer;
    char text[KEY_TEXT_SIZE];
    if (!id_is_valid("key", id, strlen(id)))
        return err_set(err, ERR_NOT_FOUND, "there is no key \"%.40s\"", id);
    (void)snprintf(k.id, sizeof(k.id), "%s", id);
    key_new_secret(id, text, k.hash);
    int rc =
        cli_ledger_ask(db,
                       &(struct ledger_ask){.op = LEDGER_KEY_EDIT,
                                            .key_edit = {.key = &k, .fields = LEDGER_KEY_SECRET}},
                       &answer, err);
    if (rc < 0)
        return rc;
    print_secret(a, &answer.key_edited.key, text);
    ledger_answer_finish(&answer);
    return 0;
}

static int cli_key_revoke(struct ledger_db *db, const char *id, struct err *err) {
    struct ledger_answer answer;
    int rc = cli_ledger_ask(
        db, &(struct ledger_ask){.op = LEDGER_KEY_REVOKE, .key_revoke = {.id = id}}, &answer, err);
    if (rc == 0 && answer.key_revoked.repeated)
        rc = err_set(err, ERR_NOT_FOUND, "there is no valid key \"%.40s\"", id);
    return rc;
}

/* What it has of limits beside its rate. */
static void print_limits(const struct ledger_key *k) {
    const struct ledger_limits *l = &k->limits;
    if (l->max_jobs)
        (void)printf("  jobs %lld", (long long)l->max_jobs);
    if (l->tokens_per_day)
        (void)printf("  %lld tokens/day", (long long)l->tokens_per_day);
    if (l->nusd_per_day)
        (void)printf("  $%.2f/day", (double)l->nusd_per_day / 1e9);
}

static void print_key(json_t *out, const struct ledger_key *k) {
    char time[CLOCK_RFC3339_SIZE];
    char rate[32] = "no limit";
    const struct ledger_limits *l = &k->limits;
    if (l->rate_per_minute)
        (void)snprintf(rate, sizeof(rate), "%lld/min", (long long)l->rate_per_minute);
    clock_rfc3339(k->created_ms, time);
    if (!out) {
        (void)printf("%s  %-6s %-9s %.10s  %-14.14s ", k->id, k->scope, rate, time,
                     *k->project ? k->project : "default");
        terminal_print(stdout, k->name, strlen(k->name));
        print_limits(k);
        (void)printf("%s\n", k->revoked_ms ? "  (revoked)" : "");
        return;
    }
    json_t *j = json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:f,s:s,s:b}", "id", k->id, "project",
                          *k->project ? k->project : "default", "name", k->name, "scope", k->scope,
                          "rate_per_minute", (json_int_t)l->rate_per_minute, "max_jobs",
                          (json_int_t)l->max_jobs, "tokens_per_day", (json_int_t)l->tokens_per_day,
                          "usd_per_day", (double)l->nusd_per_day / 1e9, "created_at", time,
                          "revoked", k->revoked_ms != 0);
    (void)json_array_append_new(out, j);
}

struct key_listing {
    const char *project; /* an id; NULL: all */
    json_t *out;         /* NULL: for people */
};

static void list_key(void *ctx, const struct ledger_key *k) {
    const struct key_listing *l = ctx;
    if (!l->project || strcmp(l->project, k->project) == 0)
        print_key(l->out, k);
}

static int cli_key_list(struct ledger_db *db, const struct key_args *a, struct err *err) {
    _cleanup_(json) json_t *out = a->json ? json_array() : NULL;
    struct key_listing l = {.out = out};
    struct ledger_answer project = {0};
    int rc = 0;
    if (a->project)
        rc = cli_ledger_ask(
            db, &(struct ledger_ask){.op = LEDGER_PROJECT_GET, .project_get = {.id = a->project}},
            &project, err);
    if (rc == 0 && a->project)
        l.project = project.project_got.project.id;
    if (rc == 0)
        rc = ledger_db_key_list(db, false, list_key, &l, err);
    if (rc == 0 && out)
        terminal_json(out);
    if (a->project)
        ledger_answer_finish(&project);
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
    OPTION(struct key_args, "project", 0, TEXT, project),
    OPTION(struct key_args, "expires", 0, TEXT, expires),
    OPTION(struct key_args, "grace", 0, COUNT, grace_s),
    OPTION(struct key_args, "rate", 0, COUNT, limits.rate_per_minute),
    OPTION(struct key_args, "max-jobs", 0, COUNT, limits.max_jobs),
    OPTION(struct key_args, "tokens-per-day", 0, COUNT, limits.tokens_per_day),
    OPTION(struct key_args, "usd-per-day", 0, AMOUNT, limits.usd_per_day, .min = -1,
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
    static const char *const verbs[] = {"create", "list", "revoke", "rotate", NULL};
    int done = cli_options(&command, &argc, argv, &a);
    if (done >= 0)
        return done;
    int verb = cli_choose("key", argc > 1 ? argv[1] : "", verbs);
    if (verb < 0)
        return 2;
    const char *id = argc > 2 ? argv[2] : NULL;
    bool is_create = verb == 0;
    bool is_revoke = verb == 2;
    bool is_rotate = verb == 3;
    if (id && !is_revoke && !is_rotate)
        return cli_usage("key", "unexpected argument \"%s\"", id);
    if (is_create && !a.name)
        return cli_usage("key", "a key needs a name: --name NAME");
    if ((is_revoke || is_rotate) && !id)
        return cli_usage("key", "say which key; `cay key list` shows their ids");
    (void)umask(077);
    struct err err;
    struct ledger_db *db = NULL;
    int rc = cli_ledger_open("key", a.config, a.data_dir, is_create, &db, &err);
    if (rc == 0)
        rc = is_create   ? cli_key_create(db, &a, &err)
             : is_revoke ? cli_key_revoke(db, id, &err)
             : is_rotate ? cli_key_rotate(db, &a, id, &err)
                         : cli_key_list(db, &a, &err);
    ledger_db_close(db);
    json_decref(a.grants);
    if (rc < 0)
        return cli_fail(&err);
    if (is_revoke)
        (void)printf(a.json ? "{\"id\":\"%s\",\"revoked\":true}\n" : "revoked %s\n", id);
    return 0;
}
