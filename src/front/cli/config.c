#include "base/cleanup.h"
#include "base/json.h"
#include "front/cli/cli.h"
#include "front/cli/client.h"
#include "front/cli/options.h"
#include "front/cli/terminal.h"
#include "front/config/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: cay config check [FILE] [--json]\n"
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
    json_t *mistakes;
};

/* --- check --- */

static void cli_config_on_mistake(void *ctx, const struct config_mistake *m) {
    const struct config_args *a = ctx;
    if (a->json)
        (void)json_array_append_new(a->mistakes,
                                    json_pack("{s:I,s:s?,s:s}", "line", (json_int_t)m->line, "key",
                                              m->key, "message", m->message));
    else if (m->line > 0)
        (void)printf("%s:%zu: %s: %s\n", a->file, m->line, m->key ? m->key : "the file",
                     m->message);
    else
        (void)printf("%s\n", m->message);
}

static int cli_config_check(struct config_args *a) {
    struct err err;
    if (!a->file)
        a->file = config_usual_file();
    _cleanup_(json) json_t *mistakes = a->mistakes = json_array();
    int n = a->file ? config_check(a->file, cli_config_on_mistake, a, &err) : 0;
    if (n < 0)
        return cli_fail(&err);
    if (a->json) {
        _cleanup_(json) json_t *answer =
            json_pack("{s:s?,s:O}", "file", a->file, "mistakes", mistakes);
        terminal_json(answer);
    } else if (!a->file) {
        (void)printf("there is no cay.json here and no /etc/cay/cay.json: all settings are the "
                     "defaults\n");
    } else if (n == 0) {
        (void)printf("%s: no mistakes\n", a->file);
    } else {
        (void)printf("%d mistake%s\n", n, n > 1 ? "s" : "");
    }
    return n > 0 ? 1 : 0;
}

/* --- show --- */

static void print_value(void *ctx, const struct config_value *v) {
    (void)ctx;
    (void)printf("%-32s ", v->key);
    terminal_print(stdout, v->value, strlen(v->value));
    (void)printf("%*s ", (int)MAX(16 - (int64_t)strlen(v->value), 0), "");
    terminal_line(stdout, v->source);
}

static void cli_config_add_value(void *ctx, const struct config_value *v) {
    json_t *value = json_read_str(v->value);
    (void)json_object_set_new(
        ctx, v->key,
        json_pack("{s:o,s:s}", "value", value ? value : json_null(), "source", v->source));
}

static int cli_config_show(const struct config_args *a) {
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
        rc = config_show(&c, c.file, a->json ? cli_config_add_value : print_value, all, &err);
    config_finish(&c);
    if (rc < 0) {
        int status = cli_fail(&err);
        (void)fprintf(stderr, "`cay config check` lists every mistake with its line.\n");
        return status;
    }
    if (a->json)
        terminal_json(all);
    return 0;
}

/* --- reload --- */

static void print_changes(const json_t *list, const char *what) {
    size_t i;
    const json_t *v;
    json_array_foreach(list, i, v) {
        static const char *const parts[][2] = {{"", "key"}, {": ", "to"}, {", was ", "from"}};
        (void)printf("%-14s ", what);
        for (size_t k = 0; k < ARRAY_LEN(parts); k++) {
            const json_t *text = json_object_get(v, parts[k][1]);
            (void)fputs(parts[k][0], stdout);
            terminal_print(stdout, json_string_value(text), json_string_length(text));
        }
        (void)putchar('\n');
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

static int cli_config_reload(const struct config_args *a) {
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
    if (a->json)
        terminal_json(report);
    else
        print_report(report);
    return 0;
}

int cli_config(int argc, char **argv) {
    static const struct cli_option options[] = {OPTION(struct config_args, "url", 0, TEXT, url),
                                                OPTIONS_JSON(struct config_args, json)};
    static const struct cli_command command = {.name = "config",
                                               .usage = usage,
                                               .options = options,
                                               .noptions = ARRAY_LEN(options),
                                               .max_words = 2};
    static const char *const verbs[] = {"check", "show", "reload", NULL};
    struct config_args a = {0};
    int status = cli_options(&command, &argc, argv, &a);
    if (status >= 0)
        return status;
    int verb = cli_choose("config", argc > 1 ? argv[1] : "", verbs);
    if (verb < 0)
        return 2;
    a.file = argc > 2 ? argv[2] : NULL;
    if (verb == 2 && a.file)
        return cli_usage("config", "unexpected argument \"%s\"", a.file);
    return verb == 0   ? cli_config_check(&a)
           : verb == 1 ? cli_config_show(&a)
                       : cli_config_reload(&a);
}
