#include "base/base64.h"
#include "base/cleanup.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/cli/cli.h"
#include "front/cli/client.h"
#include "front/guard.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEAM    "team_cay"
#define PROJECT "prj_cay"

enum { YEARS_S = 10 * 365 * 24 * 3600 };

static const char usage[] =
    "usage: cay vercel env [--export] [--url URL]\n\n"
    "Prints the environment in which programs that use @vercel/sandbox use this server instead,\n"
    "unchanged; in the form of .env.local, or with --export for a shell:\n\n"
    "  eval \"$(cay vercel env --export)\" && node app.mjs\n\n"
    "  --url U   the server (default: CAY_URL, or http://127.0.0.1:8787)\n\n"
    "The key is that of CAY_API_KEY; without one the token names nobody, which is enough on the\n"
    "server's own machine unless \"require_key\" is set. What is printed holds the key.\n";

/* Of RFC 4648 for URLs, without padding. The caller frees. */
static char *encode(const char *text) {
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
    _cleanup_(free) char *head = encode("{\"alg\":\"none\",\"typ\":\"JWT\"}");
    _cleanup_(free) char *body = encode(claims);
    return xasprintf("%s.%s.%s", head, body, key);
}

static int print_env(const char *url, bool export) {
    struct err err;
    const char *key = getenv("CAY_API_KEY");
    const char *before = export ? "export " : "";
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
    (void)printf("%sNODE_OPTIONS=\"--import=%s\"\n", before, preload);
    (void)printf("%sCAY_URL=\"%s\"\n", before, url);
    (void)printf("%sVERCEL_OIDC_TOKEN=\"%s\"\n", before, token);
    (void)printf("%sVERCEL_TOKEN=\"%s\"\n", before, key && *key ? key : token);
    (void)printf("%sVERCEL_TEAM_ID=\"" TEAM "\"\n", before);
    (void)printf("%sVERCEL_PROJECT_ID=\"" PROJECT "\"\n", before);
    return 0;
}

int cli_vercel(int argc, char **argv) {
    static const struct option options[] = {{"export", no_argument, NULL, 'e'},
                                            {"url", required_argument, NULL, 'u'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    const char *url = client_default_url();
    bool export = false;
    int c;
    optind = 1;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (c == 'h') {
            (void)fputs(usage, stdout);
            return 0;
        }
        if (c == 'u')
            url = optarg;
        else if (c == 'e')
            export = true;
        else
            return cli_usage("vercel", "there is no such option");
    }
    if (optind + 1 != argc || strcmp(argv[optind], "env") != 0)
        return cli_usage("vercel", "say what: env");
    return print_env(url, export);
}
