#include "base/cleanup.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/cli/cli.h"
#include "front/cli/options.h"
#include "front/server/front.h"
#include "front/vercel/vercel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: cay serve [OPTIONS]\n\n"
    "Starts the server and, beside it, the programs that run code.\n\n"
    "  --listen HOST:PORT|unix:PATH   where to listen (default 127.0.0.1:8787; may be repeated);\n"
    "                                 beyond loopback a key must exist: `cay key create`\n"
    "  --data-dir D                   where runs, agents and keys are kept\n"
    "  --config FILE                  settings (default ./cay.json, then /etc/cay/cay.json); a\n"
    "                                 .env file beside it may hold ANTHROPIC_API_KEY and the like\n"
    "  --agents-dir D                 folder with the agents (default: those that come with cay)\n"
    "  --web-dir D                    serve the page from this folder instead of the built-in one\n"
    "  --log-level L                  debug, info, warn, error or off\n\n"
    "Started as root, everything but the sandbox launcher changes to the user \"cay\" (or, if "
    "there\n"
    "is none, to an unused number).\n";

enum serve_word {
    WORD_CONFIG,
    WORD_DATA_DIR,
    WORD_WEB_DIR,
    WORD_AGENTS_DIR,
    WORD_LEVEL,
    WORD_COUNT
};

/* What the command line says. */
struct words {
    const char *one[WORD_COUNT]; /* NULL: it was not given */
    const char *listen[LISTENERS_MAX];
    size_t nlisten;
};

static int cli_serve_add_listen(void *args, const struct cli_option *o, const char *value,
                                struct err *err) {
    (void)o;
    struct words *w = args;
    if (w->nlisten == ARRAY_LEN(w->listen))
        return err_set(err, ERR_BAD_REQUEST, "at most %d --listen", LISTENERS_MAX);
    w->listen[w->nlisten++] = value;
    return 0;
}

static const struct cli_option options[] = {
    {.name = "listen", .kind = OPTION_CALL, .set = cli_serve_add_listen},
    OPTION(struct words, "config", 0, TEXT, one[WORD_CONFIG]),
    OPTION(struct words, "data-dir", 0, TEXT, one[WORD_DATA_DIR]),
    OPTION(struct words, "web-dir", 0, TEXT, one[WORD_WEB_DIR]),
    OPTION(struct words, "agents-dir", 0, TEXT, one[WORD_AGENTS_DIR]),
    OPTION(struct words, "log-level", 0, TEXT, one[WORD_LEVEL])};

static const struct cli_command command = {
    .name = "serve", .usage = usage, .options = options, .noptions = ARRAY_LEN(options)};

static void cli_serve_set(char **setting, const char *word) {
    if (!word)
        return;
    free(*setting);
    *setting = xstrdup(word);
}

/* The file, then the command line over it. */
static int read_settings(const struct words *w, struct config *k) {
    struct err err;
    if (config_load(k, w->one[WORD_CONFIG], &err) < 0)
        return cli_fail(&err);
    if (w->one[WORD_LEVEL] && !log_level_parse(w->one[WORD_LEVEL], &k->log_level))
        return cli_usage("serve", "--log-level is debug, info, warn, error or off");
    while (w->nlisten > 0 && k->nlisten > 0)
        free(k->listen[--k->nlisten]);
    for (size_t i = 0; i < w->nlisten; i++)
        if (config_add_listen(k, w->listen[i], &err) < 0)
            return cli_fail(&err);
    cli_serve_set(&k->data_dir, w->one[WORD_DATA_DIR]);
    cli_serve_set(&k->web_dir, w->one[WORD_WEB_DIR]);
    cli_serve_set(&k->agents_dir, w->one[WORD_AGENTS_DIR]);
    config_defaults(k);
    return -1;
}

/* "  cgroups    degraded: what is missing; what to do" */
static void print_feature(const struct feature *x, const char *status) {
    (void)printf("  %-9s  %s: %s%s%s\n", x->name, status, x->detail, *x->advice ? "; " : "",
                 x->advice);
}

static void print_banner(const struct front *f) {
    const char *provider;
    char model[MODEL_ID_BYTES + 1];
    front_model(f, &provider, model);
    (void)printf("cay " CAY_VERSION "\n");
    for (size_t i = 0; i < f->listeners.n; i++)
        (void)printf("  listening  %s\n", f->listeners.urls[i]);
    if (strcmp(provider, "demo") == 0)
        (void)printf("  model      demo (a script; set ANTHROPIC_API_KEY or OPENAI_API_KEY for a "
                     "real one)\n");
    else
        (void)printf("  model      %s (%s)\n", model, provider);
    (void)printf("  isolation  ");
    for (size_t i = 0; i < f->features.n; i++)
        (void)printf("%s%s %s", i ? ", " : "", f->features.items[i].name,
                     feature_status_name(f->features.items[i].status));
    (void)printf("\n");
    for (size_t i = 0; i < f->features.n; i++)
        if (f->features.items[i].status != FEATURE_OK && *f->features.items[i].advice)
            print_feature(&f->features.items[i], feature_status_name(f->features.items[i].status));
    (void)printf("  data       %s\n", f->config->data_dir);
    (void)fflush(stdout);
}

/* The launcher answers some milliseconds after the banner, which does not wait for it. */
static void print_sandboxes(const struct front *f, const struct feature *found) {
    (void)f;
    print_feature(found, found->status == FEATURE_MISSING ? "unavailable"
                                                          : feature_status_name(found->status));
    (void)fflush(stdout);
}

static void open_endpoints(struct front *f) {
    static void (*const routes[])(struct front *) = {
        api_health_routes,    api_status_routes, api_config_routes,    api_runs_routes,
        api_artifacts_routes, api_run_routes,    api_tasks_routes,     api_task_events_routes,
        api_usage_routes,     api_agents_routes, api_turns_routes,     api_sandboxes_routes,
        api_ports_routes,     api_execs_routes,  api_output_routes,    api_tty_routes,
        api_files_routes,     api_tar_routes,    api_snapshots_routes, api_code_routes,
        api_execute_routes,   api_keys_routes,   api_databases_routes, api_projects_routes};
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        routes[i](f);
    f->vercel = vercel_create(f);
}

static void close_endpoints(struct front *f) {
    vercel_destroy(f->vercel);
}

int cli_serve(int argc, char **argv) {
    static const struct front_endpoints endpoints = {
        .open = open_endpoints, .close = close_endpoints, .guest = api_guest};
    struct err err;
    struct words words = {0};
    struct config config;
    int done = cli_options(&command, &argc, argv, &words);
    if (done >= 0)
        return done;
    config_init(&config);
    done = read_settings(&words, &config);
    if (done < 0) {
        _cleanup_(free) char *programs_dir = cli_sibling_dir();
        log_init("cay", config.log_level);
        int rc = front_serve(&(struct front_options){.endpoints = &endpoints,
                                                     .config = &config,
                                                     .programs_dir = programs_dir,
                                                     .level_given = words.one[WORD_LEVEL] != NULL,
                                                     .on_ready = print_banner,
                                                     .on_sandboxes = print_sandboxes},
                             &err);
        done = rc < 0 ? cli_fail(&err) : 0;
    }
    config_finish(&config);
    return done;
}
