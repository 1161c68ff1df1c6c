#include "base/cleanup.h"
#include "base/json.h"
#include "front/cli/cli.h"
#include "front/cli/client.h"
#include "front/config/check.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: cay config check [FILE]\n"
    "       cay config show [FILE] [--json]\n"
    "       cay config reload [--url URL] [--json]\n\n"
    "The settings of cay.json (FILE; default ./cay.json, then /etc/cay/cay.json).\n\n"
    "  check    every mistake with its line, and what may have been meant; exit status 1 if there\n"
    "           is one\n"
    "  show     every setting that is in force, and where it comes from\n"
    "  reload   has a running server read its file again; says what has changed, and what will\n"
    "           not before a restart. A mistake in the file changes nothing. SIGHUP does the "
    "same\n\n"
    "  --url    the server (default: CAY_URL, then http://127.0.0.1:8787)\n"
    "  --json   as JSON\n";

struct config_args {
    const char *file;
    const char *url;
    bool json;
};

/* --- check --- */

static void on_mistake(void *ctx, const struct config_mistake *m) {
    const struct config_args *a = ctx;
    if (m->line > 0)
        (void)printf("%s:%zu: %s: %s\n", a->file, m->line, m->key ? m->key : "the file",
                     m->message);
    else
        (void)printf("%s\n", m->message);
}

static int check(struct config_args *a) {
    struct err err;
    if (!a->file)
        a->file = config_usual_file();
    if (!a->file) {
        (void)printf("there is no cay.json here and no /etc/cay/cay.json: all settings are the "
                     "defaults\n");
        return 0;
    }
    int n = config_check(a->file, on_mistake, a, &err);
    if (n < 0)
        return cli_fail(&err);
    if (n == 0)
        (void)printf("%s: no mistakes\n", a->file);
    else
        (void)printf("%d mistake%s\n", n, n > 1 ? "s" : "");
    return n > 0 ? 1 : 0;
}

/* --- show --- */

static void print_value(void *ctx, const struct config_value *v) {
    (void)ctx;
    (void)printf("%-32s %-16s %s\n", v->key, v->value, v->source);
}

static void add_value(void *ctx, const struct config_value *v) {
    json_t *value = json_loads(v->value, JSON_DECODE_ANY, NULL);
    (void)json_object_set_new(
        ctx, v->key,
        json_pack("{s:o,s:s}", "value", value ? value : json_null(), "source", v->source));
}

static int show(const struct config_args *a) {
    struct err err;
    struct config c;
    config_init(&c);
    int rc = config_load(&c, a->file, &err);
    if (rc == 0)
        config_defaults(&c);
    const char *time = getenv("MAX_EXECUTION_TIME");
    if (rc == 0)
        rc = execute_settings_time(&c.execute, time, &err);
    _cleanup_(json) json_t *all = json_object();
    if (rc == 0)
        rc = config_show(&c, c.file, a->json ? add_value : print_value, all, &err);
    config_finish(&c);
    if (rc < 0) {
        int status = cli_fail(&err);
        (void)fprintf(stderr, "`cay config check` lists every mistake with its line.\n");
        return status;
    }
    if (a->json && json_dumpf(all, stdout, JSON_INDENT(2)) == 0)
        (void)putchar('\n');
    return 0;
}

/* --- reload --- */

static void print_changes(const json_t *list, const char *what) {
    size_t i;
    const json_t *v;
    json_array_foreach(list, i, v) {
        (void)printf("%-14s %s: %s, was %s\n", what, json_string_value(json_object_get(v, "key")),
                     json_string_value(json_object_get(v, "to")),
                     json_string_value(json_object_get(v, "from")));
    }
}

static void print_report(const json_t *report) {
    const json_t *applied = json_object_get(report, "applied");
    const json_t *later = json_object_get(report, "needs_restart");
    const char *file = json_string_value(json_object_get(report, "file"));
    print_changes(applied, "changed");
    print_changes(later, "needs restart");
    if (json_array_size(applied) + json_array_size(later) == 0)
        (void)printf("%s%snothing has changed\n", file ? file : "", file ? ": " : "");
}

static int reload(const struct config_args *a) {
    struct err err;
    struct client c;
    if (client_init(&c, a->url, &err) < 0)
        return cli_fail(&err);
    _cleanup_(json) json_t *report = NULL;
    int rc = client_call(&c, &(struct client_call){.method = "POST", .path = "/v1/config/reload"},
                         &report, &err);
    client_finish(&c);
    if (rc < 0)
        return cli_fail(&err);
    if (!a->json)
        print_report(report);
    else if (json_dumpf(report, stdout, JSON_INDENT(2)) == 0)
        (void)putchar('\n');
    return 0;
}

int cli_config(int argc, char **argv) {
    static const struct option options[] = {{"url", required_argument, NULL, 'u'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct config_args a = {0};
    int c;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (c == 'u')
            a.url = optarg;
        else if (c == 'j')
            a.json = true;
        else if (c == 'h')
            return fputs(usage, stdout) < 0;
        else
            return cli_usage("config", "unknown option");
    }
    const char *verb = optind < argc ? argv[optind++] : "";
    if (optind < argc)
        a.file = argv[optind++];
    if (optind < argc)
        return cli_usage("config", "too many words");
    if (strcmp(verb, "check") == 0)
        return check(&a);
    if (strcmp(verb, "show") == 0)
        return show(&a);
    if (strcmp(verb, "reload") == 0 && !a.file)
        return reload(&a);
    return cli_usage("config", "say check, show or reload");
}
