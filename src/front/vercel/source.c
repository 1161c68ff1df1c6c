#include "front/vercel/source.h"

#include "base/base64.h"
#include "base/cleanup.h"
#include "base/mem.h"
#include "front/vercel/internal.h"

#include <stdlib.h>
#include <string.h>

enum { SAID_BYTES = 400, URL_BYTES = 2048, REVISION_BYTES = 250, CREDENTIAL_BYTES = 8 << 10 };

struct source {
    void (*cb)(void *ctx, const struct err *err);
    void *ctx;
    char said[SAID_BYTES]; /* the last of it */
    size_t len;
};

void vercel_source_plan_finish(struct source_plan *p) {
    sandbox_strv_finish(&p->argv);
    sandbox_strv_finish(&p->env);
    network_ask_finish(&p->network);
    *p = (struct source_plan){0};
}

/* "https://host[:port]/..." -> "host:port", as the policy of a sandbox has it. What is not
 * encrypted goes through a tunnel too. */
static int vercel_source_host_of(const char *url, bool only_tls, char **ret, struct err *err) {
    bool tls = false;
    _cleanup_(free) char *host = NULL;
    uint32_t port = 0;
    const char *path = NULL;
    for (const char *c = url; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 127)
            return err_set(err, ERR_BAD_REQUEST, "source.url has a space or control character");
    if (strlen(url) > URL_BYTES)
        return err_set(err, ERR_BAD_REQUEST, "source.url has at most %d bytes", URL_BYTES);
    int rc = egress_url_parse(url, &tls, &host, &port, &path, err);
    if (rc < 0)
        return err_wrap(err, "source.url");
    if (!tls && only_tls)
        return err_set(err, ERR_BAD_REQUEST, "source.url: a repository is fetched by https");
    *ret = xasprintf("%s%s:%u", tls ? "" : "tcp://", host, (unsigned)port);
    return 0;
}

/* Git asks for nothing and takes the credentials from its environment. */
static void add_credentials(struct source_plan *p, const char *user, const char *password) {
    if (!user && !password)
        return;
    _cleanup_(free) char *plain = xasprintf("%s:%s", user ? user : "", password ? password : "");
    size_t n = strlen(plain);
    _cleanup_(free) char *text = xmalloc(BASE64_SIZE(n));
    base64_encode(text, plain, n);
    _cleanup_(free) char *field =
        xasprintf("GIT_CONFIG_VALUE_0=Authorization: Basic %.*s", (int)BASE64_SIZE(n), text);
    sandbox_strv_add(&p->env, "GIT_CONFIG_COUNT=1");
    sandbox_strv_add(&p->env, "GIT_CONFIG_KEY_0=http.extraHeader");
    sandbox_strv_add(&p->env, field);
    explicit_bzero(plain, n);
}

static const char *const source_types[] = {"git", "tarball", "snapshot"};

const struct json_field vercel_source_fields[VERCEL_SOURCE_FIELDS] = {
    JSON_ENUM("type", struct source_wire, type, source_types),
    JSON_TEXT("url", struct source_wire, url),
    JSON_TEXT("snapshotId", struct source_wire, snapshot),
    JSON_TEXT("username", struct source_wire, user),
    JSON_TEXT("password", struct source_wire, password),
    JSON_TEXT("revision", struct source_wire, revision),
    JSON_INT("depth", struct source_wire, depth, 1, 1000000000),
};

static void source_add_words(struct source_plan *p, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        sandbox_strv_add(&p->argv, words[i]);
}

static int read_git(const struct source_wire *w, struct source_plan *p, struct err *err) {
    /* Words of the request are arguments, never part of the script. */
    static const char script[] =
        "set -e; url=$1; depth=$2; revision=$3\n"
        "git init -q .; git remote add origin -- \"$url\"\n"
        "git fetch -q ${depth:+--depth \"$depth\"} origin -- \"${revision:-HEAD}\"\n"
        "git checkout -q FETCH_HEAD 2>&1";
    const char *revision = w->revision ? w->revision : "";
    if (*revision == '-' || strchr(revision, ':') || strlen(revision) > REVISION_BYTES)
        return err_set(err, ERR_BAD_REQUEST, "source.revision is a branch, a tag or a commit");
    if ((w->user ? strlen(w->user) : 0) + (w->password ? strlen(w->password) : 0) >
        CREDENTIAL_BYTES)
        return err_set(err, ERR_BAD_REQUEST, "source: username and password have at most %d bytes",
                       CREDENTIAL_BYTES);
    char digits[24] = "";
    if (w->depth)
        (void)snprintf(digits, sizeof(digits), "%lld", (long long)w->depth);
    const char *words[] = {"sh", "-c", script, "git", w->url, digits, revision};
    source_add_words(p, words, ARRAY_LEN(words));
    sandbox_strv_add(&p->env, "GIT_TERMINAL_PROMPT=0");
    add_credentials(p, w->user, w->password);
    return 0;
}

static void read_tarball(const char *url, struct source_plan *p) {
    static const char script[] = "set -e; f=/tmp/.source.$$; trap 'rm -f \"$f\"' EXIT\n"
                                 "curl -gfsSLp --proto =http,https -o \"$f\" -- \"$1\"\n"
                                 "tar -xf \"$f\" --no-same-owner";
    const char *words[] = {"sh", "-c", script, "tarball", url};
    source_add_words(p, words, ARRAY_LEN(words));
}

int vercel_source_plan(const struct source_wire *w, struct source_plan *ret,
                       const char **ret_snapshot, struct err *err) {
    struct source_plan p = {0};
    if (w->type == SOURCE_SNAPSHOT) {
        if (!w->snapshot)
            return err_set(err, ERR_BAD_REQUEST, "source.snapshotId is needed");
        *ret_snapshot = w->snapshot;
        return 0;
    }
    if (!w->url)
        return err_set(err, ERR_BAD_REQUEST,
                       "\"source\" is of the type git or tarball with a url, or a snapshot");
    bool git = w->type == SOURCE_GIT;
    _cleanup_(free) char *host = NULL;
    int rc = vercel_source_host_of(w->url, git, &host, err);
    if (rc < 0)
        return rc;
    sandbox_strv_add(&p.network.allow, host);
    if (git)
        rc = read_git(w, &p, err);
    else
        read_tarball(w->url, &p);
    if (rc < 0)
        vercel_source_plan_finish(&p);
    else
        *ret = p;
    return rc;
}

static void vercel_source_on_output(void *ctx, int stream, const char *data, size_t len) {
    struct source *s = ctx;
    (void)stream;
    size_t n = MIN(len, sizeof(s->said) - s->len);
    memcpy(s->said + s->len, data, n);
    s->len += n;
}

static void vercel_source_on_exited(void *ctx, const struct sandbox_exit *exit,
                                    const struct err *why) {
    struct source *s = ctx;
    struct err err = {0};
    bool ok = exit && !exit->signaled && exit->code == 0;
    if (why)
        err = *why;
    else if (!ok)
        (void)err_set(&err, ERR_BAD_REQUEST, "the source could not be fetched: %.*s", (int)s->len,
                      s->said);
    if (s->cb)
        s->cb(s->ctx, ok ? NULL : &err);
    free(s);
}

struct source *vercel_source_start(struct sandbox *box, const struct source_plan *plan,
                                   void (*cb)(void *ctx, const struct err *err), void *ctx,
                                   struct err *err) {
    struct sandbox_exec e = {.cwd = (char *)VERCEL_CWD, .argv = plan->argv};
    struct source *s = xcalloc(1, sizeof(*s));
    s->cb = cb;
    s->ctx = ctx;
    if (box->line)
        network_line_env(box->line, NULL, NULL, &e.env);
    for (size_t i = 0; i < plan->env.n; i++)
        sandbox_strv_add(&e.env, plan->env.items[i]);
    struct sandbox_command_options options = {
        .exec = &e,
        .callbacks = {.on_output = vercel_source_on_output, .on_exit = vercel_source_on_exited},
        .ctx = s};
    bool ok = sandbox_command_start(box->box, &options, err) != NULL;
    sandbox_strv_finish(&e.env);
    if (ok)
        return s;
    free(s);
    return NULL;
}

void vercel_source_leave(struct source *s) {
    s->cb = NULL;
}
