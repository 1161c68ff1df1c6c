#include "front/code/route.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "front/code/door.h"

#include <stdlib.h>
#include <string.h>

enum { REPO_BYTES = 1024 };

/* --- the model --- */

static void add_authority(json_t *list, const char *url) {
    bool tls = false;
    _cleanup_(free) char *host = NULL;
    uint32_t port = 0;
    const char *path = NULL;
    char name[EGRESS_AUTHORITY_SIZE];
    if (url && egress_url_parse(url, &tls, &host, &port, &path, NULL) == 0)
        (void)json_array_append_new(list, json_string(egress_authority_text(host, port, name)));
}

json_t *code_route_private(const struct secrets *secrets, const struct door *door) {
    json_t *list = json_array();
    if (door)
        (void)json_array_append_new(list, json_string(door_authority(door)));
    add_authority(list, secrets->values[SECRET_ANTHROPIC_BASE_URL]);
    add_authority(list, secrets->values[SECRET_OPENAI_BASE_URL]);
    return list;
}

static void code_route_add_header(struct egress_route *r, const char *name, const char *before,
                                  const char *value) {
    if (value)
        r->headers[r->nheaders++] = (struct egress_header){
            .name = xstrdup(name), .value = xasprintf("%s%s", before, value)};
}

/* A base URL as the guest's own paths ("/v1/messages") are put behind it. */
static char *base_url(const char *set, const char *usual) {
    const char *from = set ? set : usual;
    size_t n = strlen(from);
    while (n > 0 && from[n - 1] == '/')
        n--;
    if (n >= 3 && strncmp(from + n - 3, "/v1", 3) == 0)
        n -= 3;
    return xstrndup(from, n);
}

int code_route_model(const struct secrets *secrets, const struct door *door,
                     const struct model_info *model, enum coder_dialect dialect,
                     struct egress_route *ret, struct err *err) {
    char *const *v = secrets->values;
    if (model->provider == MODEL_DEMO && !door)
        return err_set(err, ERR_UNSUPPORTED, "the demo model is not served here");
    struct egress_route r = {.name = xstrdup("model"),
                             .private = true,
                             .api = dialect == CODER_DIALECT_OPENAI ? EGRESS_API_OPENAI
                                                                    : EGRESS_API_ANTHROPIC};
    sandbox_strv_add(&r.models, model->id);
    if (model->provider == MODEL_DEMO) {
        r.url = xstrdup(door_url(door));
        code_route_add_header(&r, "x-api-key", "", door_token(door));
    } else if (dialect == CODER_DIALECT_ANTHROPIC) {
        r.url = base_url(v[SECRET_ANTHROPIC_BASE_URL], "https://api.anthropic.com");
        code_route_add_header(&r, "x-api-key", "", v[SECRET_ANTHROPIC_API_KEY]);
        code_route_add_header(&r, "authorization", "Bearer ", v[SECRET_ANTHROPIC_AUTH_TOKEN]);
    } else {
        r.url = base_url(v[SECRET_OPENAI_BASE_URL], "https://api.openai.com");
        code_route_add_header(&r, "authorization", "Bearer ", v[SECRET_OPENAI_API_KEY]);
        code_route_add_header(&r, "openai-organization", "", v[SECRET_OPENAI_ORG_ID]);
        code_route_add_header(&r, "openai-project", "", v[SECRET_OPENAI_PROJECT_ID]);
    }
    *ret = r;
    return 0;
}

/* --- a repository --- */

static bool is_plain_url(const char *url) {
    for (; *url; url++)
        if ((unsigned char)*url <= ' ' || (unsigned char)*url >= 0x7f ||
            strchr("\"'`\\<>^{|}?#@$;&()*!", *url))
            return false;
    return true;
}

int code_repo_check(const char *url, char **ret_url, struct err *err) {
    bool tls = false;
    _cleanup_(free) char *host = NULL;
    uint32_t port = 0;
    const char *path = NULL;
    size_t n = strlen(url);
    if (n > REPO_BYTES)
        return err_set(err, ERR_BAD_REQUEST, "\"repo\" exceeds %d bytes", REPO_BYTES);
    if (strchr(url, '@'))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"repo\" is an https:// address without a name or password: those are of a "
                       "route that the operator configures (\"credential\" names it)");
    if (!is_plain_url(url) || strstr(url, "/..") || strstr(url, "/./") ||
        egress_url_parse(url, &tls, &host, &port, &path, NULL) < 0 || strlen(path) < 2)
        return err_set(err, ERR_BAD_REQUEST,
                       "\"repo\" must be an address such as https://example.com/owner/name");
    while (n > 0 && url[n - 1] == '/')
        n--;
    *ret_url = xstrndup(url, n);
    return 0;
}

/* True if the repository lies where the route leads. */
static bool leads_to(const struct egress_route *route, const char *repo) {
    size_t n = strlen(route->url);
    while (n > 0 && route->url[n - 1] == '/')
        n--;
    return strncmp(route->url, repo, n) == 0 && repo[n] == '/';
}

int code_route_repo(const char *name, const char *repo, const struct egress_route *granted,
                    struct egress_route *ret, struct err *err) {
    if (granted && (granted->api != EGRESS_API_NONE || !leads_to(granted, repo)))
        return err_set(err, ERR_FORBIDDEN,
                       "\"credential\": the route \"%s\" does not lead to this repository",
                       granted->name);
    struct egress_route r = {
        .name = xstrdup(name), .url = xstrdup(repo), .private = granted && granted->private};
    for (size_t i = 0; granted && i < granted->nheaders; i++)
        code_route_add_header(&r, granted->headers[i].name, "", granted->headers[i].value);
    /* What git asks for when it fetches; to push it would ask for others. */
    sandbox_strv_add(&r.methods, "GET");
    sandbox_strv_add(&r.methods, "POST");
    sandbox_strv_add(&r.paths, "/info/refs");
    sandbox_strv_add(&r.paths, "/git-upload-pack");
    *ret = r;
    return 0;
}
