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

void source_plan_finish(struct source_plan *p) {
    json_decref(p->argv);
    json_decref(p->env);
    json_decref(p->network);
    *p = (struct source_plan){0};
}

/* "https://host[:port]/..." -> "host:port", as the policy of a sandbox has it. What is not
 * encrypted goes through a tunnel too. */
static int host_of(const char *url, bool only_tls, json_t **ret, struct err *err) {
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
    *ret = json_sprintf("%s%s:%u", tls ? "" : "tcp://", host, (unsigned)port);
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
    _cleanup_(free) char *field = xasprintf("Authorization: Basic %.*s", (int)BASE64_SIZE(n), text);
    (void)json_object_set_new(p->env, "GIT_CONFIG_COUNT", json_string("1"));
    (void)json_object_set_new(p->env, "GIT_CONFIG_KEY_0", json_string("http.extraHeader"));
    (void)json_object_set_new(p->env, "GIT_CONFIG_VALUE_0", json_string(field));
    explicit_bzero(plain, n);
}

static int read_git(const json_t *j, const char *url, struct source_plan *p, struct err *err) {
    /* Words of the request are arguments, never part of the script. */
    static const char script[] =
        "set -e; url=$1; depth=$2; revision=$3\n"
        "git init -q .; git remote add origin -- \"$url\"\n"
        "git fetch -q ${depth:+--depth \"$depth\"} origin -- \"${revision:-HEAD}\"\n"
        "git checkout -q FETCH_HEAD 2>&1";
    const char *user = NULL;
    const char *password = NULL;
    const char *revision = NULL;
    int64_t depth = 0;
    int rc = json_get_str(j, "username", &user, err);
    if (rc == 0)
        rc = json_get_str(j, "password", &password, err);
    if (rc == 0)
        rc = json_get_str(j, "revision", &revision, err);
    if (rc == 0)
        rc = json_get_int(j, "depth", 1, 1000000000, &depth, err);
    if (rc == 0 && revision &&
        (*revision == '-' || strchr(revision, ':') || strlen(revision) > REVISION_BYTES))
        rc = err_set(err, ERR_BAD_REQUEST, "source.revision is a branch, a tag or a commit");
    if (rc == 0 && (user ? strlen(user) : 0) + (password ? strlen(password) : 0) > CREDENTIAL_BYTES)
        rc = err_set(err, ERR_BAD_REQUEST, "source: username and password have at most %d bytes",
                     CREDENTIAL_BYTES);
    if (rc < 0)
        return rc;
    char digits[24] = "";
    if (depth)
        (void)snprintf(digits, sizeof(digits), "%lld", (long long)depth);
    p->argv = json_pack("[s,s,s,s,s,s,s]", "sh", "-c", script, "git", url, digits,
                        revision ? revision : "");
    p->env = json_pack("{s:s}", "GIT_TERMINAL_PROMPT", "0");
    add_credentials(p, user, password);
    return 0;
}

static void read_tarball(const char *url, struct source_plan *p) {
    static const char script[] = "set -e; f=/tmp/.source.$$; trap 'rm -f \"$f\"' EXIT\n"
                                 "curl -gfsSLp --proto =http,https -o \"$f\" -- \"$1\"\n"
                                 "tar -xf \"$f\" --no-same-owner";
    p->argv = json_pack("[s,s,s,s,s]", "sh", "-c", script, "tarball", url);
    p->env = json_object();
}

int source_read(const json_t *source, struct source_plan *ret, const char **ret_snapshot,
                struct err *err) {
    const char *type = NULL;
    const char *url = NULL;
    struct source_plan p = {0};
    if (!source || json_is_null(source))
        return 0;
    if (!json_is_object(source))
        return err_set(err, ERR_BAD_REQUEST, "\"source\" must be an object");
    int rc = json_get_str(source, "type", &type, err);
    if (rc == 0)
        rc = json_get_str(source, "url", &url, err);
    if (rc < 0)
        return rc;
    if (type && strcmp(type, "snapshot") == 0) {
        const char *id = NULL;
        rc = json_get_str(source, "snapshotId", &id, err);
        if (rc == 0 && !id)
            rc = err_set(err, ERR_BAD_REQUEST, "source.snapshotId is needed");
        if (rc == 0)
            *ret_snapshot = id;
        return rc;
    }
    bool git = type ? strcmp(type, "git") == 0 : url != NULL;
    if (!url || (!git && strcmp(type, "tarball") != 0))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"source\" is of the type git or tarball with a url, or a snapshot");
    json_t *host = NULL;
    rc = host_of(url, git, &host, err);
    if (rc < 0)
        return rc;
    p.network = json_pack("{s:[o]}", "allow", host);
    if (git)
        rc = read_git(source, url, &p, err);
    else
        read_tarball(url, &p);
    if (rc < 0)
        source_plan_finish(&p);
    else
        *ret = p;
    return rc;
}

static void on_output(void *ctx, int stream, const char *data, size_t len) {
    struct source *s = ctx;
    (void)stream;
    size_t n = MIN(len, sizeof(s->said) - s->len);
    memcpy(s->said + s->len, data, n);
    s->len += n;
}

static void on_exited(void *ctx, const struct sandbox_exit *exit, const struct err *why) {
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

struct source *source_start(struct sandbox *box, const struct source_plan *plan,
                            void (*cb)(void *ctx, const struct err *err), void *ctx,
                            struct err *err) {
    struct sandbox_exec e = {.cwd = (char *)VERCEL_CWD};
    struct source *s = xcalloc(1, sizeof(*s));
    size_t i;
    const char *name;
    json_t *v;
    s->cb = cb;
    s->ctx = ctx;
    json_array_foreach(plan->argv, i, v) {
        sandbox_strv_add(&e.argv, json_string_value(v));
    }
    if (box->line)
        network_line_env(box->line, NULL, NULL, &e.env);
    json_object_foreach(plan->env, name, v) {
        _cleanup_(free) char *entry = xasprintf("%s=%s", name, json_string_value(v));
        sandbox_strv_add(&e.env, entry);
    }
    struct sandbox_command_options options = {
        .exec = &e, .callbacks = {.on_output = on_output, .on_exit = on_exited}, .ctx = s};
    bool ok = sandbox_command_start(box->box, &options, err) != NULL;
    e.cwd = NULL;
    sandbox_exec_finish(&e);
    if (ok)
        return s;
    free(s);
    return NULL;
}

void source_leave(struct source *s) {
    s->cb = NULL;
}
