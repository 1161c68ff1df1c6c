#include "base/mem.h"
#include "front/http/internal.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* What this server asks of a head beyond http1/: which hosts and targets it understands. */

static enum http_method method_of(uint8_t m) {
    switch (m) {
    case HTTP_GET:
        return HTTP_METHOD_GET;
    case HTTP_HEAD:
        return HTTP_METHOD_HEAD;
    case HTTP_POST:
        return HTTP_METHOD_POST;
    case HTTP_PUT:
        return HTTP_METHOD_PUT;
    case HTTP_PATCH:
        return HTTP_METHOD_PATCH;
    case HTTP_DELETE:
        return HTTP_METHOD_DELETE;
    case HTTP_OPTIONS:
        return HTTP_METHOD_OPTIONS;
    default:
        return HTTP_METHOD_OTHER;
    }
}

static bool is_host_char(unsigned char c) {
    return isalnum(c) || c == '.' || c == '-' || c == '_' || c == ':' || c == '[' || c == ']';
}

/* Splits "host:port" and stores the host in lower case. */
static int set_host(struct http_req *req, const char *authority, struct err *err) {
    size_t n = strlen(authority);
    for (size_t i = 0; i < n; i++)
        if (!is_host_char((unsigned char)authority[i]))
            return err_set(err, ERR_BAD_REQUEST, "the Host field is malformed");
    const char *bracket = strchr(authority, ']');
    const char *colon = strchr(bracket ? bracket : authority, ':');
    size_t len = colon ? (size_t)(colon - authority) : n;
    size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
    if (colon && (digits > 5 || colon[1 + digits]))
        return err_set(err, ERR_BAD_REQUEST, "the port in the Host field is malformed");
    req->host = xmalloc(len + 1);
    for (size_t i = 0; i < len; i++)
        req->host[i] = (char)tolower((unsigned char)authority[i]);
    req->host[len] = 0;
    req->authority = authority;
    return 0;
}

/* Origin form "/path?query", "*" for OPTIONS, or absolute form whose authority must be the Host. */
static int set_target(struct http_req *req, char *url, struct err *err) {
    if (strncasecmp(url, "http://", 7) == 0) {
        char *authority = url + 7;
        char *slash = strchr(authority, '/');
        size_t n = slash ? (size_t)(slash - authority) : strlen(authority);
        if (strlen(req->authority) != n || strncasecmp(req->authority, authority, n) != 0)
            return err_set(err, ERR_BAD_REQUEST, "the request target and Host name two hosts");
        url = slash ? slash : (char *)"/";
    }
    if (url[0] != '/' && !(strcmp(url, "*") == 0 && req->method == HTTP_METHOD_OPTIONS))
        return err_set(err, ERR_BAD_REQUEST, "the request target must begin with \"/\"");
    char *q = strchr(url, '?');
    if (q)
        *q++ = 0;
    req->path = url;
    req->query = q ? q : "";
    return 0;
}

int head_parse(struct http_conn *c, struct http_req *req, const char *head, size_t len,
               struct err *err) {
    int rc = http1_head_parse(&req->head, &c->body, head, len, err);
    if (rc < 0)
        return rc;
    req->keep_alive = req->head.keep_alive;
    req->method = method_of(c->body.parser.method);
    const char *host = http1_head_value(&req->head, "host");
    rc = set_host(req, host ? host : "", err);
    return rc < 0 ? rc : set_target(req, req->head.target, err);
}
