#include "base/cleanup.h"
#include "base/mem.h"
#include "front/http/internal.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* Refused while looking for the end of the head, because llhttp would let them pass (or did, in
 * some release): lines that end in a bare LF, a bare CR inside a line, and folded header lines.
 * Each lets two parsers see two different requests. */
ssize_t head_find_end(const char *data, size_t len, size_t *scanned, struct err *err) {
    size_t at = *scanned;
    while (at < len) {
        const char *lf = memchr(data + at, '\n', len - at);
        if (!lf)
            break;
        size_t i = (size_t)(lf - data);
        if (i == 0 || data[i - 1] != '\r')
            return err_set(err, ERR_BAD_REQUEST, "a header line ends in a bare line feed");
        if (memchr(data + at, '\r', i - 1 - at))
            return err_set(err, ERR_BAD_REQUEST, "a header line holds a bare carriage return");
        if (i >= 3 && data[i - 2] == '\n')
            return (ssize_t)i + 1;
        /* The line after this one decides about folding: wait for its first byte. */
        if (i + 1 == len)
            break;
        if (data[i + 1] == ' ' || data[i + 1] == '\t')
            return err_set(err, ERR_BAD_REQUEST, "folded header lines are not accepted");
        at = i + 1;
    }
    *scanned = at;
    return 0;
}

struct parse {
    struct http_req *req;
    struct http_text url;
    struct http_text names[HEADERS_MAX];
    struct http_text values[HEADERS_MAX];
    size_t n;
    bool too_many;
};

/* The whole head is in one piece, so a span comes as one call; a second one would continue it. */
static void extend(struct http_text *t, const char *at, size_t len) {
    if (!t->data)
        t->data = at;
    t->len = (size_t)(at + len - t->data);
}

static int on_url(llhttp_t *p, const char *at, size_t len) {
    struct parse *s = p->data;
    extend(&s->url, at, len);
    return 0;
}

static int on_field(llhttp_t *p, const char *at, size_t len) {
    struct parse *s = p->data;
    if (s->n == HEADERS_MAX) {
        s->too_many = true;
        return HPE_USER;
    }
    extend(&s->names[s->n], at, len);
    return 0;
}

static int on_value(llhttp_t *p, const char *at, size_t len) {
    struct parse *s = p->data;
    extend(&s->values[s->n], at, len);
    return 0;
}

static int on_value_complete(llhttp_t *p) {
    struct parse *s = p->data;
    s->n++;
    return 0;
}

static int on_body(llhttp_t *p, const char *at, size_t len) {
    conn_feed_body(p->data, at, len);
    return 0;
}

static int on_message_complete(llhttp_t *p) {
    (void)p;
    return HPE_PAUSED;
}

static const llhttp_settings_t head_settings = {
    .on_url = on_url,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_header_value_complete = on_value_complete,
    .on_message_complete = on_message_complete,
};

/* After the head parser.data is the connection, so what reads a struct parse must not be called:
 * trailer fields are dropped. */
static const llhttp_settings_t body_settings = {
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

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

static int parser_error(const llhttp_t *p, enum llhttp_errno e, struct err *err) {
    switch (e) {
    case HPE_INVALID_VERSION:
        return err_set(err, ERR_BAD_REQUEST, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    case HPE_INVALID_TRANSFER_ENCODING:
    case HPE_UNEXPECTED_CONTENT_LENGTH:
    case HPE_INVALID_CONTENT_LENGTH:
        return err_set(err, ERR_BAD_REQUEST,
                       "the length of the body is ambiguous: send one Content-Length or "
                       "Transfer-Encoding: chunked");
    default: {
        const char *why = llhttp_get_error_reason(p);
        return err_set(err, ERR_BAD_REQUEST, "malformed request: %.100s",
                       why && *why ? why : llhttp_errno_name(e));
    }
    }
}

static bool is_host_char(unsigned char c) {
    return isalnum(c) || c == '.' || c == '-' || c == '_' || c == ':' || c == '[' || c == ']';
}

/* Splits "host:port" and stores the host in lower case. */
static int set_host(struct http_req *req, char *space, const char *authority, struct err *err) {
    size_t n = strlen(authority);
    for (size_t i = 0; i < n; i++)
        if (!is_host_char((unsigned char)authority[i]))
            return err_set(err, ERR_BAD_REQUEST, "the Host field is malformed");
    const char *end = authority + n;
    const char *bracket = strchr(authority, ']');
    const char *colon = strchr(bracket ? bracket : authority, ':');
    if (colon)
        end = colon;
    size_t len = (size_t)(end - authority);
    for (size_t i = 0; i < len; i++)
        space[i] = (char)tolower((unsigned char)authority[i]);
    space[len] = 0;
    req->authority = authority;
    req->host = space;
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
    for (const char *p = url; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 127 || *p == '#')
            return err_set(err, ERR_BAD_REQUEST,
                           "the request target holds a character that must "
                           "be percent-encoded");
    char *q = strchr(url, '?');
    if (q)
        *q++ = 0;
    req->path = url;
    req->query = q ? q : "";
    return 0;
}

static char *terminate(struct http_text t) {
    char *p = (char *)(uintptr_t)t.data;
    size_t n = t.len;
    while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t'))
        n--;
    p[n] = 0;
    return p;
}

static int check_fields(struct http_req *req, struct err *err) {
    size_t hosts = http_req_header_count(req, "host");
    if (hosts > 1)
        return err_set(err, ERR_BAD_REQUEST, "more than one Host field");
    if (hosts == 0 && !req->http10)
        return err_set(err, ERR_BAD_REQUEST, "the Host field is missing");
    if (http_req_header_count(req, "content-length") > 1)
        return err_set(err, ERR_BAD_REQUEST, "more than one Content-Length field");
    const char *te = http_req_header(req, "transfer-encoding");
    if (te &&
        (http_req_header_count(req, "transfer-encoding") > 1 || strcasecmp(te, "chunked") != 0))
        return err_set(err, ERR_UNSUPPORTED, "Transfer-Encoding may only be \"chunked\"");
    if (te && http_req_header(req, "content-length"))
        return err_set(err, ERR_BAD_REQUEST, "both Content-Length and Transfer-Encoding");
    if (te && req->http10)
        return err_set(err, ERR_BAD_REQUEST, "HTTP/1.0 has no Transfer-Encoding");
    return 0;
}

int head_parse(struct http_conn *c, struct http_req *req, const char *head, size_t len,
               struct err *err) {
    /* Room for the head, a NUL, and the host once more in lower case. */
    if (req->head_cap < 2 * len + 2) {
        req->head_cap = 2 * len + 2;
        req->head = xrealloc(req->head, req->head_cap);
    }
    memcpy(req->head, head, len);
    req->head[len] = 0;
    struct parse s = {.req = req};
    llhttp_init(&c->parser, HTTP_REQUEST, &head_settings);
    c->parser.data = &s;
    enum llhttp_errno e = llhttp_execute(&c->parser, req->head, len);
    c->parser.data = c;
    c->parser.settings = (void *)(uintptr_t)&body_settings;
    if (s.too_many)
        return err_set(err, ERR_TOO_LARGE, "more than %d header fields", HEADERS_MAX);
    if (e != HPE_OK && e != HPE_PAUSED && e != HPE_PAUSED_UPGRADE)
        return parser_error(&c->parser, e, err);
    if (c->parser.http_major != 1 || c->parser.http_minor > 1)
        return err_set(err, ERR_BAD_REQUEST, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    req->has_body = e == HPE_OK;
    req->http10 = c->parser.http_minor == 0;
    req->keep_alive = llhttp_should_keep_alive(&c->parser) == 1;
    req->method = method_of(c->parser.method);
    req->method_text = (struct http_text){req->head, strcspn(req->head, " ")};
    for (size_t i = 0; i < s.n; i++) {
        if (s.names[i].len == 0)
            return err_set(err, ERR_BAD_REQUEST, "a header field has no name");
        req->headers[i].name = terminate(s.names[i]);
        /* The parser finds an empty value at the start of the next line, which is not ours to cut.
         */
        req->headers[i].value = s.values[i].len > 0 ? terminate(s.values[i]) : "";
    }
    req->nheaders = s.n;
    int rc = check_fields(req, err);
    if (rc < 0)
        return rc;
    const char *host = http_req_header(req, "host");
    rc = set_host(req, req->head + len + 1, host ? host : "", err);
    if (rc < 0)
        return rc;
    char *url = (char *)(uintptr_t)s.url.data;
    url[s.url.len] = 0;
    rc = set_target(req, url, err);
    if (rc < 0)
        return rc;
    const char *expect = http_req_header(req, "expect");
    if (expect && strcasecmp(expect, "100-continue") != 0)
        return err_set(err, ERR_BAD_REQUEST, "Expect may only be \"100-continue\"");
    req->expects_continue = expect && req->has_body && !req->http10;
    return 0;
}
