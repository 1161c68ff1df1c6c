#include "egress/head.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Refused here, because llhttp would let them pass (or did, in some release): lines that end in a
 * bare LF, a bare CR inside a line, folded lines, NULs. */
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
        if (memchr(data + at, 0, i - at))
            return err_set(err, ERR_BAD_REQUEST, "a header line holds a NUL");
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

struct span {
    const char *data;
    size_t len;
};

struct parse {
    struct span url;
    struct span names[HEAD_FIELDS_MAX];
    struct span values[HEAD_FIELDS_MAX];
    size_t n;
    size_t max;
    bool too_many;
};

/* The whole head is in one piece; a second call for a span continues it. */
static void extend(struct span *s, const char *at, size_t len) {
    if (!s->data)
        s->data = at;
    s->len = (size_t)(at + len - s->data);
}

static int on_url(llhttp_t *p, const char *at, size_t len) {
    struct parse *s = p->data;
    extend(&s->url, at, len);
    return 0;
}

static int on_field(llhttp_t *p, const char *at, size_t len) {
    struct parse *s = p->data;
    if (s->n == s->max) {
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

static int on_message_complete(llhttp_t *p) {
    (void)p;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_url = on_url,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_header_value_complete = on_value_complete,
    .on_message_complete = on_message_complete,
};
static const llhttp_settings_t no_settings = {.on_message_complete = on_message_complete};

static char *terminate(struct span s) {
    char *p = (char *)(uintptr_t)s.data;
    size_t n = s.len;
    while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t'))
        n--;
    p[n] = 0;
    return p;
}

static int parser_error(const llhttp_t *p, enum llhttp_errno e, struct err *err) {
    switch (e) {
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

static int check(struct head *h, struct err *err) {
    const char *te = head_value(h, "transfer-encoding");
    if (head_count(h, "host") > 1)
        return err_set(err, ERR_BAD_REQUEST, "more than one Host field");
    if (!head_value(h, "host") && !h->http10)
        return err_set(err, ERR_BAD_REQUEST, "the Host field is missing");
    if (head_count(h, "content-length") > 1)
        return err_set(err, ERR_BAD_REQUEST, "more than one Content-Length field");
    if (te && (head_count(h, "transfer-encoding") > 1 || strcasecmp(te, "chunked") != 0))
        return err_set(err, ERR_BAD_REQUEST, "Transfer-Encoding may only be \"chunked\"");
    if (te && head_value(h, "content-length"))
        return err_set(err, ERR_BAD_REQUEST, "both Content-Length and Transfer-Encoding");
    if (te && h->http10)
        return err_set(err, ERR_BAD_REQUEST, "HTTP/1.0 has no Transfer-Encoding");
    h->chunked = te != NULL;
    h->has_length = head_value(h, "content-length") != NULL;
    const char *expect = head_value(h, "expect");
    if (expect && strcasecmp(expect, "100-continue") != 0)
        return err_set(err, ERR_BAD_REQUEST, "Expect may only be \"100-continue\"");
    h->expects_continue = expect && h->has_body && !h->http10;
    return 0;
}

int head_parse(struct head *h, llhttp_t *parser, const char *data, size_t len, size_t max_fields,
               struct err *err) {
    head_finish(h);
    h->text = xmalloc(len + 1);
    memcpy(h->text, data, len);
    h->text[len] = 0;
    struct parse s = {.max = MIN(max_fields, HEAD_FIELDS_MAX)};
    llhttp_init(parser, HTTP_REQUEST, &settings);
    parser->data = &s;
    enum llhttp_errno e = llhttp_execute(parser, h->text, len);
    parser->data = NULL;
    parser->settings = (void *)(uintptr_t)&no_settings;
    if (s.too_many)
        return err_set(err, ERR_TOO_LARGE, "more than %zu header fields (limit headers)", s.max);
    if (e != HPE_OK && e != HPE_PAUSED && e != HPE_PAUSED_UPGRADE)
        return parser_error(parser, e, err);
    if (parser->http_major != 1 || parser->http_minor > 1)
        return err_set(err, ERR_BAD_REQUEST, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    h->has_body = e == HPE_OK;
    h->http10 = parser->http_minor == 0;
    h->keep_alive = llhttp_should_keep_alive(parser) == 1;
    h->content_length = parser->content_length;
    size_t method = strcspn(h->text, " ");
    for (size_t i = 0; i < s.n; i++) {
        if (s.names[i].len == 0)
            return err_set(err, ERR_BAD_REQUEST, "a header field has no name");
        h->fields[i].name = terminate(s.names[i]);
        /* The parser finds an empty value at the start of the next line. */
        h->fields[i].value = s.values[i].len > 0 ? terminate(s.values[i]) : "";
    }
    h->nfields = s.n;
    h->text[method] = 0;
    h->method = h->text;
    if (!s.url.data || s.url.len == 0)
        return err_set(err, ERR_BAD_REQUEST, "the request has no target");
    char *url = (char *)(uintptr_t)s.url.data;
    url[s.url.len] = 0;
    for (const char *p = url; *p; p++)
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 127 || *p == '#')
            return err_set(err, ERR_BAD_REQUEST,
                           "the request target holds a character that must be percent-encoded");
    h->target = url;
    return check(h, err);
}

void head_finish(struct head *h) {
    free(h->text);
    *h = (struct head){0};
}

const char *head_value(const struct head *h, const char *name) {
    for (size_t i = 0; i < h->nfields; i++)
        if (strcasecmp(h->fields[i].name, name) == 0)
            return h->fields[i].value;
    return NULL;
}

size_t head_count(const struct head *h, const char *name) {
    size_t n = 0;
    for (size_t i = 0; i < h->nfields; i++)
        n += strcasecmp(h->fields[i].name, name) == 0 ? 1 : 0;
    return n;
}

bool head_is_hop_by_hop(const char *name, const char *connection) {
    static const char *const names[] = {
        "connection", "keep-alive",     "te", "trailer", "transfer-encoding",
        "upgrade",    "http2-settings",
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    if (strncasecmp(name, "proxy-", 6) == 0)
        return true;
    for (const char *p = connection ? connection : ""; *p;) {
        p += strspn(p, ", \t");
        size_t n = strcspn(p, ", \t");
        if (n > 0 && n == strlen(name) && strncasecmp(p, name, n) == 0)
            return true;
        p += n;
    }
    return false;
}
