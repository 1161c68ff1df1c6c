#include "base/cleanup.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/cli/cli.h"
#include "front/front.h"

#include <getopt.h>
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

enum word { WORD_CONFIG, WORD_DATA_DIR, WORD_WEB_DIR, WORD_AGENTS_DIR, WORD_LEVEL, WORD_COUNT };

/* What the command line says. */
struct words {
    const char *one[WORD_COUNT]; /* NULL: it was not given */
    const char *listen[LISTENERS_MAX];
    size_t nlisten;
};

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, struct words *w) {
    static const struct option options[] = {
        {"listen", required_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},
        {"config", required_argument, NULL, WORD_CONFIG},
        {"data-dir", required_argument, NULL, WORD_DATA_DIR},
        {"web-dir", required_argument, NULL, WORD_WEB_DIR},
        {"agents-dir", required_argument, NULL, WORD_AGENTS_DIR},
        {"log-level", required_argument, NULL, WORD_LEVEL},
        {0}};
    int c;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (c == 'h') {
            (void)fputs(usage, stdout);
            return 0;
        }
        if (c >= 0 && c < WORD_COUNT)
            w->one[c] = optarg;
        else if (c != 'l')
            return cli_usage("serve", "unknown option");
        else if (w->nlisten == ARRAY_LEN(w->listen))
            return cli_usage("serve", "too many --listen");
        else
            w->listen[w->nlisten++] = optarg;
    }
    return optind < argc ? cli_usage("serve", "it takes no further words") : -1;
}

static void set(char **setting, const char *word) {
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
    set(&k->data_dir, w->one[WORD_DATA_DIR]);
    set(&k->web_dir, w->one[WORD_WEB_DIR]);
    set(&k->agents_dir, w->one[WORD_AGENTS_DIR]);
    config_defaults(k);
    return -1;
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
    (void)printf("\n  data       %s\n", f->config->data_dir);
    (void)fflush(stdout);
}

int cli_serve(int argc, char **argv) {
    struct err err;
    struct words words = {0};
    struct config config;
    int done = parse(argc, argv, &words);
    if (done >= 0)
        return done;
    config_init(&config);
    done = read_settings(&words, &config);
    if (done < 0) {
        _cleanup_(free) char *programs_dir = cli_sibling_dir();
        log_init("cay", config.log_level);
        int rc = front_serve(&(struct front_options){.config = &config,
                                                     .programs_dir = programs_dir,
                                                     .level_given = words.one[WORD_LEVEL] != NULL,
                                                     .on_ready = print_banner},
                             &err);
        done = rc < 0 ? cli_fail(&err) : 0;
    }
    config_finish(&config);
    return done;
}
