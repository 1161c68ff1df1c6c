#include "base/base64.h"
#include "base/cleanup.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/cli/cli.h"
#include "front/cli/client.h"
#include "front/cli/options.h"
#include "front/cli/terminal.h"
#include "front/server/guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEAM    "team_cay"
#define PROJECT "prj_cay"

enum { YEARS_S = 10 * 365 * 24 * 3600 };

static const char usage[] =
    "usage: cay vercel env [--export | --json] [--url URL]\n\n"
    "Prints the environment in which programs that use @vercel/sandbox use this server instead,\n"
    "unchanged; in the form of .env.local, or with --export for a shell:\n\n"
    "  eval \"$(cay vercel env --export)\" && node app.mjs\n\n"
    "  --json    as one JSON object\n"
    "  --url U   the server (default: CAY_URL, or http://127.0.0.1:8787)\n\n"
    "The key is that of CAY_API_KEY; without one the token names nobody, which is enough on the\n"
    "server's own machine unless \"require_key\" is set. What is printed holds the key.\n";

/* Of RFC 4648 for URLs, without padding. The caller frees. */
static char *cli_vercel_encode(const char *text) {
    size_t n = strlen(text);
    char *out = xmalloc(BASE64_SIZE(n) + 1);
    base64_encode(out, text, n);
    out[BASE64_SIZE(n)] = 0;
    out[strcspn(out, "=")] = 0;
    for (char *c = out; *c; c++)
        *c = *c == '+' ? '-' : *c == '/' ? '_' : *c;
    return out;
}

/* The SDK reads team and project out of it and checks no signature: that part is the key. */
static char *token_of(const char *key) {
    _cleanup_(free) char *claims =
        xasprintf("{\"owner_id\":\"" TEAM "\",\"project_id\":\"" PROJECT "\",\"exp\":%lld}",
                  (long long)time(NULL) + YEARS_S);
    _cleanup_(free) char *head = cli_vercel_encode("{\"alg\":\"none\",\"typ\":\"JWT\"}");
    _cleanup_(free) char *body = cli_vercel_encode(claims);
    return xasprintf("%s.%s.%s", head, body, key);
}

struct vercel_args {
    const char *url;
    bool export;
    bool json;
};

static int print_env(const struct vercel_args *a) {
    struct err err;
    const char *key = getenv("CAY_API_KEY");
    const char *url = a->url ? a->url : client_default_url();
    _cleanup_(free) char *dir = cli_sibling_dir();
    _cleanup_(free) char *preload = path_join(dir, "cay-vercel.mjs");
    for (const char *c = key; c && *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789_", *c)) {
            (void)err_set(&err, ERR_BAD_REQUEST, "CAY_API_KEY is no key of cay");
            return cli_fail(&err);
        }
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) {
        (void)err_set(&err, ERR_BAD_REQUEST,
                      "the SDK speaks HTTP over TCP: give --url http://HOST:PORT");
        return cli_fail(&err);
    }
    if (strpbrk(url, "\"'\\$`\n") || strpbrk(preload, "\"'\\$`\n ")) {
        (void)err_set(&err, ERR_BAD_REQUEST,
                      "the URL, or the path of cay, has a character that a shell would take");
        return cli_fail(&err);
    }
    _cleanup_(free) char *token = token_of(key && *key ? key : GUARD_NO_KEY);
    _cleanup_(free) char *import = xasprintf("--import=%s", preload);
    const char *const variables[][2] = {
        {"NODE_OPTIONS", import},     {"CAY_URL", url},
        {"VERCEL_OIDC_TOKEN", token}, {"VERCEL_TOKEN", key && *key ? key : token},
        {"VERCEL_TEAM_ID", TEAM},     {"VERCEL_PROJECT_ID", PROJECT}};
    _cleanup_(json) json_t *all = json_object();
    for (size_t i = 0; i < ARRAY_LEN(variables); i++) {
        const char *name = variables[i][0];
        if (a->json)
            (void)json_object_set_new(all, name, json_string(variables[i][1]));
        else
            (void)printf("%s%s=\"%s\"\n", a->export ? "export " : "", name, variables[i][1]);
    }
    if (a->json)
        terminal_json(all);
    return 0;
}

int cli_vercel(int argc, char **argv) {
    static const struct cli_option options[] = {
        OPTION(struct vercel_args, "export", 0, FLAG, export),
        OPTION(struct vercel_args, "url", 0, TEXT, url), OPTIONS_JSON(struct vercel_args, json)};
    static const struct cli_command command = {.name = "vercel",
                                               .usage = usage,
                                               .options = options,
                                               .noptions = ARRAY_LEN(options),
                                               .min_words = 1,
                                               .max_words = 1,
                                               .missing = "say what: env"};
    static const char *const verbs[] = {"env", NULL};
    struct vercel_args a = {0};
    int status = cli_options(&command, &argc, argv, &a);
    if (status >= 0)
        return status;
    return cli_choose("vercel", argv[1], verbs) < 0 ? 2 : print_env(&a);
}
