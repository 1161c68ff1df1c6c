/* What people write into policies: hosts, addresses of routes, routes as JSON. */

#include "base/cleanup.h"
#include "base/mem.h"
#include "wire/egress.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LABEL_MAX = 63, VALUE_MAX = 16 * 1024 };

/* A last label that is a number makes resolvers read the whole as an address, in forms of which
 * only the usual one is taken here. */
static bool ends_in_number(const char *host) {
    const char *last = strrchr(host, '.');
    last = last ? last + 1 : host;
    if (last[0] == '0' && last[1] == 'x')
        return strspn(last + 2, "0123456789abcdef") == strlen(last + 2);
    return *last && strspn(last, "0123456789") == strlen(last);
}

static bool egress_parse_is_name(const char *host) {
    for (const char *label = host;;) {
        size_t n = strcspn(label, ".");
        if (n == 0 || n > LABEL_MAX || label[0] == '-' || label[n - 1] == '-')
            return false;
        for (size_t i = 0; i < n; i++)
            if (!isalnum((unsigned char)label[i]) && label[i] != '-' && label[i] != '_')
                return false;
        if (!label[n])
            return true;
        label += n + 1;
    }
}

static bool parse_port(const char *text, size_t len, uint32_t *ret) {
    uint32_t v = 0;
    if (len == 0 || len > 5 || text[0] == '0')
        return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        v = v * 10 + (uint32_t)(text[i] - '0');
    }
    *ret = v;
    return v <= 65535;
}

bool egress_authority_parse(const char *text, size_t len, uint32_t port,
                            char ret_host[EGRESS_HOST_MAX + 1], uint32_t *ret_port,
                            bool *ret_literal) {
    char host[EGRESS_HOST_MAX + 1] = {0};
    bool six = len > 0 && text[0] == '[';
    const char *end = six ? memchr(text, ']', len) : memchr(text, ':', len);
    if (six && !end)
        return false;
    size_t n = six ? (size_t)(end - text) - 1 : end ? (size_t)(end - text) : len;
    const char *rest = six ? end + 1 : text + n;
    size_t left = len - (size_t)(rest - text);
    if (n == 0 || n > EGRESS_HOST_MAX || memchr(text, 0, len))
        return false;
    for (size_t i = 0; i < n; i++)
        host[i] = (char)tolower((unsigned char)text[i + (six ? 1 : 0)]);
    host[n] = 0;
    if (left > 0 && (rest[0] != ':' || !parse_port(rest + 1, left - 1, &port)))
        return false;
    bool literal = six || ends_in_number(host);
    struct in6_addr a6;
    struct in_addr a4;
    if (six &&
        (inet_pton(AF_INET6, host, &a6) != 1 || !inet_ntop(AF_INET6, &a6, host, sizeof(host))))
        return false;
    if (!six && literal && inet_pton(AF_INET, host, &a4) != 1)
        return false;
    if (port == 0 || (!literal && !egress_parse_is_name(host)))
        return false;
    memcpy(ret_host, host, sizeof(host));
    *ret_port = port;
    *ret_literal = literal;
    return true;
}

int egress_allow_parse(const char *text, struct egress_allow *ret, struct err *err) {
    struct egress_allow a = {0};
    const char *at = text;
    char host[EGRESS_HOST_MAX + 1];
    bool literal;
    if (strncasecmp(at, "tcp://", 6) == 0) {
        a.plain = true;
        at += 6;
    }
    if (strstr(at, "://"))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"%.200s\": write the host and port alone (\"host:443\"); for a plain "
                       "connection \"tcp://host:port\"",
                       text);
    if (strpbrk(at, "/?#"))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"%.200s\" holds a path: what is inside TLS is not seen, so only host and "
                       "port can be allowed; to allow some paths only, configure a route",
                       text);
    if (strchr(at, '@'))
        return err_set(err, ERR_BAD_REQUEST, "\"%.200s\" holds a user name; leave it out", text);
    if (strncmp(at, "*.", 2) == 0) {
        a.subdomains = true;
        at += 2;
    }
    if (strchr(at, '*'))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"%.200s\": a wildcard may only be the first label (\"*.example.com\")",
                       text);
    const char *colon = strchr(at, ':');
    if (at[0] != '[' && colon && strchr(colon + 1, ':') &&
        strspn(at, "0123456789abcdefABCDEF:.") == strlen(at))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"%.200s\": an address of IPv6 stands in brackets, like \"[::1]:8860\"",
                       text);
    /* Without a port, "tcp://" does not say which. */
    if (!egress_authority_parse(at, strlen(at), a.plain ? 0 : 443, host, &a.port, &literal))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"%.200s\" is not a host and port like \"example.com\", "
                       "\"example.com:8443\", \"*.example.com\", \"192.0.2.1:443\" or "
                       "\"tcp://example.com:22\"",
                       text);
    if (a.subdomains && (literal || !strchr(host, '.')))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"%.200s\": a wildcard needs at least two labels behind it", text);
    a.host = xstrdup(host);
    *ret = a;
    return 0;
}

void egress_allow_finish(struct egress_allow *a) {
    free(a->host);
    *a = (struct egress_allow){0};
}

const char *egress_authority_text(const char *host, uint32_t port,
                                  char out[EGRESS_AUTHORITY_SIZE]) {
    bool six = strchr(host, ':') != NULL;
    (void)snprintf(out, EGRESS_AUTHORITY_SIZE, "%s%.*s%s:%u", six ? "[" : "", EGRESS_HOST_MAX, host,
                   six ? "]" : "", port & 0xffff);
    return out;
}

char *egress_allow_text(const struct egress_allow *a) {
    char text[EGRESS_AUTHORITY_SIZE];
    return xasprintf("%s%s%s", a->plain ? "tcp://" : "", a->subdomains ? "*." : "",
                     egress_authority_text(a->host, a->port, text));
}

char *egress_no_proxy(const struct egress_allow *allow, size_t n) {
    static const char *const own[] = {"127.0.0.1", "localhost", "::1"};
    struct buf b;
    buf_init(&b, 64);
    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        bool outside = false;
        for (size_t k = 0; k < n; k++)
            outside = outside || strcmp(allow[k].host, own[i]) == 0;
        if (!outside)
            (void)buf_addf(&b, "%s%s", b.len > 0 ? "," : "", own[i]);
    }
    return b.len > 0 ? buf_steal(&b, NULL) : xstrdup("");
}

bool egress_allow_covers(const struct egress_allow *a, const char *host, uint32_t port) {
    size_t n = strlen(host);
    size_t suffix = strlen(a->host);
    if (port != a->port)
        return false;
    if (!a->subdomains)
        return strcmp(host, a->host) == 0;
    return n > suffix + 1 && host[n - suffix - 1] == '.' && strcmp(host + n - suffix, a->host) == 0;
}

int egress_url_parse(const char *url, bool *ret_tls, char **ret_host, uint32_t *ret_port,
                     const char **ret_path, struct err *err) {
    bool tls = strncasecmp(url, "https://", 8) == 0;
    char host[EGRESS_HOST_MAX + 1];
    uint32_t port;
    bool literal;
    if (!tls && strncasecmp(url, "http://", 7) != 0)
        return err_set(err, ERR_BAD_REQUEST, "url must begin with https:// or http://");
    const char *at = url + (tls ? 8 : 7);
    size_t n = strcspn(at, "/?#");
    if (strpbrk(at, "?#") || strstr(at + n, "//") || strstr(at + n, "/.") || strpbrk(at, " %\\"))
        return err_set(err, ERR_BAD_REQUEST,
                       "url must be a plain address without query, \"..\" "
                       "or escapes");
    if (!egress_authority_parse(at, n, tls ? 443 : 80, host, &port, &literal))
        return err_set(err, ERR_BAD_REQUEST, "url has no plain host and port");
    *ret_tls = tls;
    *ret_host = xstrdup(host);
    *ret_port = port;
    *ret_path = at + n;
    return 0;
}

/* --- routes --- */

static bool is_route_name(const char *name) {
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    return n > 0 && n <= EGRESS_NAME_MAX && !name[n];
}

static int get_list(const json_t *json, const char *key, struct sandbox_strv *ret,
                    struct err *err) {
    const json_t *list = json_object_get(json, key);
    const json_t *item;
    size_t i;
    if (!list || json_is_null(list))
        return 0;
    if (!json_is_array(list) || json_array_size(list) > EGRESS_LIST_MAX)
        return err_set(err, ERR_BAD_REQUEST, "%s must be a list of at most %d texts", key,
                       EGRESS_LIST_MAX);
    json_array_foreach(list, i, item) {
        const char *text = json_string_value(item);
        if (!text || !*text || strlen(text) != json_string_length(item))
            return err_set(err, ERR_BAD_REQUEST, "%s[%zu] must be a text", key, i);
        sandbox_strv_add(ret, text);
    }
    return 0;
}

/* Puts secrets in the place of "${NAME}". */
static int egress_parse_expand(const char *text, egress_secret *secret, void *ctx, char **ret,
                               struct err *err) {
    struct buf b;
    buf_init(&b, VALUE_MAX);
    int rc = 0;
    while (*text && rc == 0) {
        const char *end = text[0] == '$' && text[1] == '{' ? strchr(text, '}') : NULL;
        if (!end) {
            (void)buf_add_char(&b, *text++);
            continue;
        }
        char *name = xstrndup(text + 2, (size_t)(end - text) - 2);
        const char *value = secret ? secret(ctx, name) : NULL;
        if (value)
            (void)buf_add_str(&b, value);
        else
            rc = err_set(err, ERR_BAD_REQUEST, "the secret %.100s is not set", name);
        free(name);
        text = end + 1;
    }
    for (size_t i = 0; rc == 0 && i < b.len; i++)
        if ((unsigned char)b.data[i] < 0x20 || b.data[i] == 0x7f)
            rc = err_set(err, ERR_BAD_REQUEST, "a value holds a control character");
    if (rc == 0 && b.full)
        rc = err_set(err, ERR_BAD_REQUEST, "a value exceeds %d bytes", VALUE_MAX);
    if (rc == 0)
        *ret = b.len > 0 ? xstrdup(b.data) : xstrdup("");
    if (b.data)
        mem_wipe(b.data, b.len);
    buf_finish(&b);
    return rc;
}

/* --- header fields --- */

/* The fields that frame a message (RFC 9112), that concern one connection (RFC 9110, 7.6.1), or
 * that name the receiver. A name that ends in "-" is all that begin with it. */
static const char *const framing_fields[] = {
    "content-length", "transfer-encoding", "connection", "keep-alive",     "te",     "trailer",
    "trailers",       "upgrade",           "expect",     "http2-settings", "proxy-", "host",
};

/* Servers that make variables of fields, as CGI does, take "X_Api.Key" for "x-api-key". */
static int header_letter(char c) {
    return isalnum((unsigned char)c) ? tolower((unsigned char)c) : '-';
}

bool egress_header_is_framing(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(framing_fields); i++) {
        const char *field = framing_fields[i];
        size_t n = 0;
        while (field[n] && header_letter(name[n]) == field[n] && name[n])
            n++;
        if (!field[n] && (!name[n] || field[n - 1] == '-'))
            return true;
    }
    return false;
}

static bool header_is_token(const char *name) {
    for (const char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("!#$%&'*+-.^_`|~", *p))
            return false;
    return *name;
}

int egress_header_check(const char *name, const char *value, struct err *err) {
    if (!header_is_token(name))
        return err_set(err, ERR_BAD_REQUEST, "headers: \"%.100s\" is no name of a header field",
                       name);
    if (egress_header_is_framing(name))
        return err_set(
            err, ERR_BAD_REQUEST,
            "headers.%.100s cannot be set: the field frames the request or belongs to its "
            "connection, so the proxy writes it; leave it out",
            name);
    for (const char *p = value; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return err_set(err, ERR_BAD_REQUEST, "headers.%.100s holds a control character", name);
    return 0;
}

int egress_policy_check(const struct egress_policy *p, struct err *err) {
    for (size_t i = 0; i < p->nroutes; i++)
        for (size_t k = 0; k < p->routes[i].nheaders; k++) {
            const struct egress_header *h = &p->routes[i].headers[k];
            int rc = egress_header_check(h->name, h->value, err);
            if (rc < 0)
                return err_wrap(err, "route \"%s\"", p->routes[i].name);
        }
    return 0;
}

static int get_headers(const json_t *json, egress_secret *secret, void *ctx, struct egress_route *r,
                       struct err *err) {
    json_t *headers = json_object_get(json, "headers");
    const char *name;
    json_t *value;
    if (!headers || json_is_null(headers))
        return 0;
    if (!json_is_object(headers) || json_object_size(headers) > EGRESS_HEADERS_MAX)
        return err_set(err, ERR_BAD_REQUEST, "headers must be an object of at most %d fields",
                       EGRESS_HEADERS_MAX);
    json_object_foreach(headers, name, value) {
        const char *text = json_string_value(value);
        if (!text || strlen(text) != json_string_length(value))
            return err_set(err, ERR_BAD_REQUEST, "headers.%.100s must be a text on one line", name);
        /* Before secrets are put in, so that no message is about one. */
        int rc = egress_header_check(name, text, err);
        if (rc < 0)
            return rc;
        struct egress_header *h = &r->headers[r->nheaders];
        rc = egress_parse_expand(text, secret, ctx, &h->value, err);
        if (rc < 0)
            return err_wrap(err, "headers.%.100s", name);
        h->name = xstrdup(name);
        for (char *p = h->name; *p; p++)
            *p = (char)tolower((unsigned char)*p);
        r->nheaders++;
    }
    return 0;
}

static int get_api(const json_t *json, struct egress_route *r, struct err *err) {
    static const struct {
        const char *name;
        enum egress_endpoint bit;
        bool of[EGRESS_APIS];
    } known[] = {
        {"messages", EGRESS_MESSAGES, {[EGRESS_API_ANTHROPIC] = true}},
        {"count_tokens", EGRESS_COUNT_TOKENS, {[EGRESS_API_ANTHROPIC] = true}},
        {"chat", EGRESS_CHAT, {[EGRESS_API_OPENAI] = true}},
        {"models", EGRESS_MODELS, {[EGRESS_API_ANTHROPIC] = true, [EGRESS_API_OPENAI] = true}},
    };
    const char *api = NULL;
    struct sandbox_strv list = {0};
    int rc = json_get_str(json, "api", &api, err);
    if (rc == 0)
        rc = get_list(json, "endpoints", &list, err);
    if (rc == 0 && api) {
        r->api = strcmp(api, "anthropic") == 0 ? EGRESS_API_ANTHROPIC
                 : strcmp(api, "openai") == 0  ? EGRESS_API_OPENAI
                                               : EGRESS_API_NONE;
        if (r->api == EGRESS_API_NONE)
            rc = err_set(err, ERR_BAD_REQUEST, "api must be \"anthropic\" or \"openai\"");
    }
    for (size_t i = 0; rc == 0 && i < list.n; i++) {
        uint32_t bit = 0;
        for (size_t k = 0; k < ARRAY_LEN(known); k++)
            if (strcmp(known[k].name, list.items[i]) == 0 && known[k].of[r->api])
                bit = known[k].bit;
        if (!bit)
            rc = err_set(err, ERR_BAD_REQUEST, "endpoints: \"%.100s\" is none of this api",
                         list.items[i]);
        r->endpoints |= bit;
    }
    sandbox_strv_finish(&list);
    return rc;
}

static int check_route(const struct egress_route *r, struct err *err) {
    bool tls;
    char *host;
    uint32_t port;
    const char *path;
    int rc = egress_url_parse(r->url, &tls, &host, &port, &path, err);
    if (rc < 0)
        return rc;
    free(host);
    for (size_t i = 0; i < r->methods.n; i++)
        if (strspn(r->methods.items[i], "ABCDEFGHIJKLMNOPQRSTUVWXYZ") !=
            strlen(r->methods.items[i]))
            return err_set(err, ERR_BAD_REQUEST, "methods: \"%.100s\" is not in upper case",
                           r->methods.items[i]);
    for (size_t i = 0; i < r->paths.n; i++) {
        const char *rest = strstr(r->paths.items[i], "**");
        if (r->paths.items[i][0] != '/' || (rest && rest[2]))
            return err_set(err, ERR_BAD_REQUEST,
                           "paths: \"%.100s\" must begin with \"/\" and may hold \"**\" at its end "
                           "only",
                           r->paths.items[i]);
    }
    if (r->api == EGRESS_API_NONE && (r->models.n > 0 || r->server_tools.n > 0 || r->fields.n > 0))
        return err_set(err, ERR_BAD_REQUEST, "models, server_tools and fields need \"api\"");
    if (r->api != EGRESS_API_NONE && (r->methods.n > 0 || r->paths.n > 0))
        return err_set(err, ERR_BAD_REQUEST,
                       "a route with \"api\" has \"endpoints\" in place of methods and paths");
    if (r->api != EGRESS_API_NONE && r->models.n == 0)
        return err_set(err, ERR_BAD_REQUEST,
                       "a route with \"api\" needs \"models\", the names that may be used");
    return 0;
}

int egress_route_parse(const char *name, const json_t *json, egress_secret *secret, void *ctx,
                       struct egress_route *ret, struct err *err) {
    static const char *const keys[] = {"url",    "headers",      "methods", "paths", "api",
                                       "models", "server_tools", "fields",  "urls",  "endpoints",
                                       NULL};
    struct egress_route r = {0};
    const char *url = NULL;
    if (!is_route_name(name))
        return err_set(err, ERR_BAD_REQUEST,
                       "a route's name is 1 to %d characters of a-z, 0-9, \"_\" and \"-\"",
                       EGRESS_NAME_MAX);
    int rc = json_check_keys(json, name, keys, err);
    if (rc == 0)
        rc = json_get_str(json, "url", &url, err);
    if (rc == 0 && !url)
        rc = err_set(err, ERR_BAD_REQUEST, "url is missing");
    if (rc < 0)
        return err_wrap(err, "route \"%s\"", name);
    r.name = xstrdup(name);
    r.url = xstrdup(url);
    rc = get_headers(json, secret, ctx, &r, err);
    if (rc == 0)
        rc = get_list(json, "methods", &r.methods, err);
    if (rc == 0)
        rc = get_list(json, "paths", &r.paths, err);
    if (rc == 0)
        rc = get_api(json, &r, err);
    if (rc == 0)
        rc = get_list(json, "models", &r.models, err);
    if (rc == 0)
        rc = get_list(json, "server_tools", &r.server_tools, err);
    if (rc == 0)
        rc = get_list(json, "fields", &r.fields, err);
    if (rc == 0)
        rc = json_get_bool(json, "urls", &r.urls, err);
    if (rc == 0)
        rc = check_route(&r, err);
    if (rc < 0) {
        egress_route_finish(&r);
        return err_wrap(err, "route \"%s\"", name);
    }
    *ret = r;
    return 0;
}
