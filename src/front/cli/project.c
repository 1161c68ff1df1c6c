#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "front/cli/cli.h"
#include "front/cli/ledger.h"
#include "front/cli/options.h"
#include "front/cli/terminal.h"
#include "front/ledger/keyring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char usage[] =
    "usage: cay project create NAME [--rate N] [--max-jobs N] [--tokens-per-day N] "
    "[--usd-per-day X]\n"
    "                           [--json]\n"
    "       cay project list [--json]\n"
    "       cay project show PROJECT [--json]\n"
    "       cay project edit PROJECT [--name NAME] [--rate N] [--max-jobs N] [--tokens-per-day N]\n"
    "                           [--usd-per-day X] [--json]\n\n"
    "A project owns data: databases, conversations, runs, tasks, workers, sandboxes. Its keys see\n"
    "that data and no other (`cay key create --project`). PROJECT is an id or a name. A server\n"
    "without keys, and keys made without --project, use the project \"default\".\n\n"
    "  --rate, --max-jobs, --tokens-per-day, --usd-per-day   limits over all keys of the project;\n"
    "            0: no limit\n"
    "  --data-dir D, --config FILE   as for `cay serve`, but ./cay.json must be named\n";

struct project_args {
    const char *name;
    const char *data_dir;
    const char *config;
    struct limits_request limits; /* -1: not given */
    bool json;
};

static const struct cli_option options[] = {
    OPTION(struct project_args, "name", 0, TEXT, name),
    OPTION(struct project_args, "rate", 0, COUNT, limits.rate_per_minute),
    OPTION(struct project_args, "max-jobs", 0, COUNT, limits.max_jobs),
    OPTION(struct project_args, "tokens-per-day", 0, COUNT, limits.tokens_per_day),
    OPTION(struct project_args, "usd-per-day", 0, AMOUNT, limits.usd_per_day, .min = -1,
           .wants = "a number of dollars"),
    OPTION(struct project_args, "data-dir", 0, TEXT, data_dir),
    OPTION(struct project_args, "config", 0, TEXT, config),
    OPTIONS_JSON(struct project_args, json)};

static const struct cli_command command = {.name = "project",
                                           .usage = usage,
                                           .options = options,
                                           .noptions = ARRAY_LEN(options),
                                           .max_words = 2};

static json_t *cli_project_json(const struct ledger_project *p) {
    char time[CLOCK_RFC3339_SIZE];
    const struct ledger_limits *l = &p->limits;
    return json_pack("{s:s,s:s,s:I,s:I,s:I,s:f,s:I,s:s?}", "id", *p->id ? p->id : "default", "name",
                     p->name, "rate_per_minute", (json_int_t)l->rate_per_minute, "max_jobs",
                     (json_int_t)l->max_jobs, "tokens_per_day", (json_int_t)l->tokens_per_day,
                     "usd_per_day", (double)l->nusd_per_day / 1e9, "keys", (json_int_t)p->keys,
                     "created_at", p->created_ms ? clock_rfc3339(p->created_ms, time) : NULL);
}

static void cli_project_print(const struct ledger_project *p) {
    const struct ledger_limits *l = &p->limits;
    (void)printf("%-30s  %3lld key%s  ", *p->id ? p->id : "default", (long long)p->keys,
                 p->keys == 1 ? " " : "s");
    terminal_print(stdout, p->name, strlen(p->name));
    if (l->rate_per_minute)
        (void)printf("  %lld/min", (long long)l->rate_per_minute);
    if (l->max_jobs)
        (void)printf("  jobs %lld", (long long)l->max_jobs);
    if (l->tokens_per_day)
        (void)printf("  %lld tokens/day", (long long)l->tokens_per_day);
    if (l->nusd_per_day)
        (void)printf("  $%.2f/day", (double)l->nusd_per_day / 1e9);
    (void)printf("\n");
}

static void cli_project_show(const struct project_args *a, const struct ledger_project *p) {
    if (a->json) {
        _cleanup_(json) json_t *j = cli_project_json(p);
        terminal_json(j);
    } else {
        cli_project_print(p);
    }
}

/* Limits that were not given stay as they are. */
static unsigned cli_project_fields(struct limits_request *r) {
    unsigned fields = 0;
    if (r->rate_per_minute >= 0)
        fields |= LEDGER_LIMIT_RATE;
    if (r->max_jobs >= 0)
        fields |= LEDGER_LIMIT_JOBS;
    if (r->tokens_per_day >= 0)
        fields |= LEDGER_LIMIT_TOKENS;
    if (r->usd_per_day >= 0)
        fields |= LEDGER_LIMIT_NUSD;
    r->rate_per_minute = MAX(r->rate_per_minute, 0);
    r->max_jobs = MAX(r->max_jobs, 0);
    r->tokens_per_day = MAX(r->tokens_per_day, 0);
    r->usd_per_day = MAX(r->usd_per_day, 0);
    return fields;
}

static int cli_project_ask(struct ledger_db *db, const struct project_args *a,
                           const struct ledger_ask *ask, struct err *err) {
    struct ledger_answer answer;
    int rc = cli_ledger_ask(db, ask, &answer, err);
    if (rc < 0)
        return rc;
    cli_project_show(a, &answer.project_got.project);
    ledger_answer_finish(&answer);
    return 0;
}

static int cli_project_create(struct ledger_db *db, struct project_args *a, const char *name,
                              struct err *err) {
    struct ledger_project p = {.created_ms = clock_wall_ms(), .name = (char *)(uintptr_t)name};
    (void)cli_project_fields(&a->limits);
    int rc = project_check_name(name, err);
    if (rc == 0)
        rc = limits_read(&a->limits, &p.limits, err);
    if (rc < 0)
        return rc;
    id_new("prj", p.id);
    return cli_project_ask(
        db, a,
        &(struct ledger_ask){.op = LEDGER_PROJECT_ADD,
                             .project_add = {.project = &p, .projects_max = LIMIT_PROJECTS}},
        err);
}

static int cli_project_edit(struct ledger_db *db, struct project_args *a, const char *id,
                            struct err *err) {
    struct ledger_project p = {.name = (char *)(uintptr_t)a->name};
    unsigned fields = cli_project_fields(&a->limits);
    int rc = a->name ? project_check_name(a->name, err) : 0;
    if (rc == 0)
        rc = limits_read(&a->limits, &p.limits, err);
    if (rc < 0)
        return rc;
    return cli_project_ask(
        db, a,
        &(struct ledger_ask){.op = LEDGER_PROJECT_EDIT,
                             .project_edit = {.id = id, .project = &p, .fields = fields}},
        err);
}

static int cli_project_list(struct ledger_db *db, const struct project_args *a, struct err *err) {
    struct ledger_answer answer;
    _cleanup_(json) json_t *out = json_array();
    int rc = cli_ledger_ask(
        db,
        &(struct ledger_ask){.op = LEDGER_PROJECT_LIST, .project_list = {.limit = LIMIT_PROJECTS}},
        &answer, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < answer.project_listed.n; i++) {
        const struct ledger_project *p = &answer.project_listed.projects[i];
        if (a->json)
            (void)json_array_append_new(out, cli_project_json(p));
        else
            cli_project_print(p);
    }
    if (a->json)
        terminal_json(out);
    ledger_answer_finish(&answer);
    return 0;
}

int cli_project(int argc, char **argv) {
    enum { CREATE, LIST, SHOW, EDIT };
    static const char *const verbs[] = {"create", "list", "show", "edit", NULL};
    struct project_args a = {.limits = {-1, -1, -1, -1}};
    int done = cli_options(&command, &argc, argv, &a);
    if (done >= 0)
        return done;
    int verb = cli_choose("project", argc > 1 ? argv[1] : "", verbs);
    if (verb < 0)
        return 2;
    const char *word = argc > 2 ? argv[2] : NULL;
    if (word && verb == LIST)
        return cli_usage("project", "unexpected argument \"%s\"", word);
    if (!word && verb == CREATE)
        return cli_usage("project", "a project needs a name: cay project create NAME");
    if (!word && verb != LIST)
        return cli_usage("project", "say which project; `cay project list` shows them");
    if (a.name && verb != EDIT)
        return cli_usage("project", "--name is for `cay project edit`");
    (void)umask(077);
    struct err err;
    struct ledger_db *db = NULL;
    int rc = cli_ledger_open("project", a.config, a.data_dir, verb == CREATE, &db, &err);
    if (rc == 0)
        rc = verb == CREATE ? cli_project_create(db, &a, word, &err)
             : verb == EDIT ? cli_project_edit(db, &a, word, &err)
             : verb == LIST ? cli_project_list(db, &a, &err)
                            : cli_project_ask(db, &a,
                                              &(struct ledger_ask){.op = LEDGER_PROJECT_GET,
                                                                   .project_get = {.id = word}},
                                              &err);
    ledger_db_close(db);
    return rc < 0 ? cli_fail(&err) : 0;
}
