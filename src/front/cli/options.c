#include "front/cli/options.h"

#include "base/cleanup.h"
#include "base/json.h"
#include "base/text.h"
#include "front/cli/cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool wants_json;

bool cli_wants_json(void) {
    return wants_json;
}

__attribute__((format(printf, 2, 3))) static int options_usage(const struct cli_command *c,
                                                               const char *fmt, ...) {
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    (void)text_vprint(text, sizeof(text), fmt, ap);
    va_end(ap);
    return cli_usage_with(c->name, c->synopsis, text);
}

/* --- values --- */

static bool options_parse_unit(const char *text, const char *const *units, const int64_t *factors,
                               int64_t *ret) {
    char *end = NULL;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || errno || v < 0)
        return false;
    for (size_t i = 0; units[i]; i++)
        if (strcasecmp(end, units[i]) == 0 && v * (double)factors[i] < 9e15) {
            *ret = (int64_t)(v * (double)factors[i]);
            return *ret > 0;
        }
    return false;
}

bool cli_parse_time(const char *text, int64_t *ret_ms) {
    static const char *const units[] = {"", "ms", "s", "m", "h", NULL};
    static const int64_t factors[] = {1000, 1, 1000, 60000, 3600000};
    return options_parse_unit(text, units, factors, ret_ms) && *ret_ms <= 86400000;
}

bool cli_parse_size(const char *text, int64_t *ret_bytes) {
    static const char *const units[] = {"", "b", "k", "m", "g", "kib", "mib", "gib", NULL};
    static const int64_t factors[] = {1, 1, 1 << 10, 1 << 20, 1 << 30, 1 << 10, 1 << 20, 1 << 30};
    return options_parse_unit(text, units, factors, ret_bytes);
}

static bool options_takes_value(const struct cli_option *o) {
    return o->kind != OPTION_FLAG;
}

static int options_wrong(const struct cli_option *o, struct err *err) {
    static const char *const usual[] = {[OPTION_COUNT] = "a number",
                                        [OPTION_AMOUNT] = "a number",
                                        [OPTION_TIME] = "a time: 500ms, 10s, 2m, 24h",
                                        [OPTION_SIZE] = "a size: 256m, 4g",
                                        [OPTION_FORMAT] = "\"json\""};
    return err_set(err, ERR_BAD_REQUEST, "--%s needs %s", o->name,
                   o->wants ? o->wants : usual[o->kind]);
}

static bool options_read(const struct cli_option *o, const char *value, int64_t *ret_whole,
                         double *ret_amount) {
    char *end = NULL;
    errno = 0;
    switch (o->kind) {
    case OPTION_COUNT:
        *ret_whole = strtoll(value, &end, 10);
        return *value && !*end && !errno && *ret_whole >= o->min;
    case OPTION_AMOUNT:
        *ret_amount = strtod(value, &end);
        return *value && !*end && *ret_amount < 1e15 &&
               (*ret_amount > 0 || (o->min < 0 && *ret_amount >= 0));
    case OPTION_TIME:
        return cli_parse_time(value, ret_whole) && *ret_whole >= o->min;
    case OPTION_SIZE:
        return cli_parse_size(value, ret_whole) && *ret_whole >= o->min;
    case OPTION_FORMAT:
        return strcmp(value, "json") == 0;
    default:
        return true;
    }
}

static json_t *options_json(const struct cli_option *o, const char *value, int64_t whole,
                            double amount) {
    switch (o->kind) {
    case OPTION_FLAG:
        return json_true();
    case OPTION_TEXT:
        return json_string(value);
    case OPTION_AMOUNT:
        return json_real(amount);
    default:
        return json_integer(whole);
    }
}

static int options_set(const struct cli_option *o, void *args, const char *value, struct err *err) {
    void *at = (char *)args + o->at;
    int64_t whole = 0;
    double amount = 0;
    if (o->kind == OPTION_CALL)
        return o->set(args, o, value, err);
    if (!options_read(o, value, &whole, &amount))
        return options_wrong(o, err);
    if (o->key)
        return json_object_set_new(*(json_t **)at, o->key, options_json(o, value, whole, amount)) ==
                       0
                   ? 0
                   : err_set(err, ERR_BAD_REQUEST, "--%s must be UTF-8 text", o->name);
    if (o->kind == OPTION_TEXT)
        *(const char **)at = value;
    else if (o->kind == OPTION_AMOUNT)
        *(double *)at = amount;
    else if (o->kind == OPTION_FLAG || o->kind == OPTION_FORMAT)
        *(bool *)at = true;
    else
        *(int64_t *)at = whole;
    if (o->kind == OPTION_FORMAT || strcmp(o->name, "json") == 0)
        wants_json = true;
    return 0;
}

/* --- names --- */

static const struct cli_option help = {.name = "help", .letter = 'h'};

static const struct cli_option *options_by_letter(const struct cli_command *c, char letter) {
    for (size_t i = 0; i < c->noptions; i++)
        if (c->options[i].letter == letter)
            return &c->options[i];
    return letter == help.letter ? &help : NULL;
}

/* The one of this name, or the only one that begins so. */
static const struct cli_option *options_by_name(const struct cli_command *c, const char *name,
                                                size_t len) {
    const struct cli_option *found = NULL;
    int n = 0;
    for (size_t i = 0; i <= c->noptions; i++) {
        const struct cli_option *o = i < c->noptions ? &c->options[i] : &help;
        if (strncmp(o->name, name, len) != 0)
            continue;
        if (!o->name[len])
            return o;
        found = o;
        n++;
    }
    return n == 1 ? found : NULL;
}

/* word has its dashes; name is what may be compared, or NULL. */
static int options_unknown(const struct cli_command *c, const char *word, const char *name) {
    const char *names[64];
    size_t n = 0;
    while (n < c->noptions && n < ARRAY_LEN(names) - 2) {
        names[n] = c->options[n].name;
        n++;
    }
    names[n++] = help.name;
    names[n] = NULL;
    const char *meant = name ? text_nearest(name, names) : NULL;
    if (meant)
        return options_usage(c, "unknown option %s: did you mean --%s?", word, meant);
    return options_usage(c, "unknown option %s%s%s", word, c->unknown ? "; " : "",
                         c->unknown ? c->unknown : "");
}

/* --- words --- */

struct options_reader {
    const struct cli_command *command;
    void *args;
    char **argv;
    int argc;
    int at;    /* the word that is read next */
    int words; /* those that are no options, in argv[1] and after it */
};

/* attached: the value stands in the same word, or NULL. -1, or the exit status. */
static int options_take(struct options_reader *r, const struct cli_option *o, const char *attached,
                        const char *written) {
    const struct cli_command *c = r->command;
    struct err err;
    if (o == &help) {
        if (c->usage)
            (void)fputs(c->usage, stdout);
        else
            c->help(r->args);
        return 0;
    }
    if (!options_takes_value(o) && attached)
        return options_usage(c, "%s takes no value", written);
    if (options_takes_value(o) && !attached && r->at == r->argc)
        return options_usage(c, "%s needs a value", written);
    const char *value = attached || !options_takes_value(o) ? attached : r->argv[r->at++];
    if (options_set(o, r->args, value, &err) == 0)
        return -1;
    return err.code == ERR_BAD_REQUEST ? options_usage(c, "%s", err.message) : cli_fail(&err);
}

static int options_take_long(struct options_reader *r, const char *name) {
    size_t len = strcspn(name, "=");
    const struct cli_option *o = options_by_name(r->command, name, len);
    _cleanup_(free) char *written =
        o ? text_make("--%s", o->name) : text_make("--%.*s", (int)len, name);
    if (!o)
        return options_unknown(r->command, written, written + 2);
    return options_take(r, o, name[len] ? name + len + 1 : NULL, written);
}

/* -tq, -ofile */
static int options_take_short(struct options_reader *r, const char *letters) {
    int status = -1;
    for (const char *p = letters; status < 0 && *p; p++) {
        const struct cli_option *o = options_by_letter(r->command, *p);
        char written[] = {'-', *p, 0};
        if (!o)
            return options_unknown(r->command, written, NULL);
        if (o != &help && options_takes_value(o))
            return options_take(r, o, p[1] ? p + 1 : NULL, written);
        status = options_take(r, o, NULL, written);
    }
    return status;
}

/* An error may come before the option that says how it is printed. */
static void options_look_for_json(const struct cli_command *c, int argc, char **argv) {
    const struct cli_option *json = options_by_name(c, "json", strlen("json"));
    for (int i = 1; json && i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (c->command_word && argv[i][0] != '-')
            return;
        wants_json = wants_json || strcmp(argv[i], "--json") == 0;
    }
}

int cli_options(const struct cli_command *c, int *argc, char **argv, void *args) {
    struct options_reader r = {.command = c, .args = args, .argv = argv, .argc = *argc, .at = 1};
    bool ended = false;
    options_look_for_json(c, *argc, argv);
    while (r.at < r.argc) {
        char *word = argv[r.at++];
        int status = -1;
        if (ended || word[0] != '-' || !word[1]) {
            argv[1 + r.words++] = word;
            ended = ended || r.words == c->command_word;
        } else if (strcmp(word, "--") == 0) {
            ended = true;
        } else {
            status =
                word[1] == '-' ? options_take_long(&r, word + 2) : options_take_short(&r, word + 1);
        }
        if (status >= 0)
            return status;
    }
    if (r.words < c->min_words)
        return options_usage(c, "%s", r.words == 0 ? c->missing : "something is missing");
    if (c->max_words >= 0 && r.words > c->max_words)
        return options_usage(c, "unexpected argument \"%s\"", argv[1 + c->max_words]);
    *argc = 1 + r.words;
    argv[*argc] = NULL;
    return -1;
}
