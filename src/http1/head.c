#include "http1/head.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

void http1_head_init(struct http1_head *h, struct http1_field *fields, size_t max_fields) {
    *h = (struct http1_head){.fields = fields, .max_fields = MIN(max_fields, HTTP1_FIELDS_MAX)};
}

void http1_head_finish(struct http1_head *h) {
    free(h->text);
    http1_head_init(h, h->fields, h->max_fields);
}

/* Refused while looking for the end of the head, because llhttp would let them pass (or did, in
 * some release): lines that end in a bare LF, a bare CR inside a line, NULs, folded lines. Each
 * lets two parsers see two different requests. */
ssize_t http1_head_find_end(const char *data, size_t len, size_t *scanned, struct err *err) {
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

/* Only the entries up to n are initialised: the tables are large, and most heads small. */
struct parse {
    struct span url;
    size_t n;
    size_t max;
    bool too_many;
    struct span names[HTTP1_FIELDS_MAX + 1];
    struct span values[HTTP1_FIELDS_MAX + 1];
};

static void clear_next(struct parse *s) {
    s->names[s->n] = s->values[s->n] = (struct span){0};
}

/* The whole head is in one piece, so a span comes as one call; a second one continues it. */
static void http1_head_extend(struct span *s, const char *at, size_t len) {
    if (!s->data)
        s->data = at;
    s->len = (size_t)(at + len - s->data);
}

static int http1_head_on_url(llhttp_t *p, const char *at, size_t len) {
    struct parse *s = p->data;
    http1_head_extend(&s->url, at, len);
    return 0;
}

static int http1_head_on_field(llhttp_t *p, const char *at, size_t len) {
    struct parse *s = p->data;
    if (s->n == s->max) {
        s->too_many = true;
        return HPE_USER;
    }
    http1_head_extend(&s->names[s->n], at, len);
    return 0;
}

static int http1_head_on_value(llhttp_t *p, const char *at, size_t len) {
    struct parse *s = p->data;
    http1_head_extend(&s->values[s->n], at, len);
    return 0;
}

static int http1_head_on_value_complete(llhttp_t *p) {
    struct parse *s = p->data;
    s->n++;
    clear_next(s);
    return 0;
}

static int http1_head_on_message_complete(llhttp_t *p) {
    (void)p;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_url = http1_head_on_url,
    .on_header_field = http1_head_on_field,
    .on_header_value = http1_head_on_value,
    .on_header_value_complete = http1_head_on_value_complete,
    .on_message_complete = http1_head_on_message_complete,
};
/* What reads a struct parse must not be called after the head. */
static const llhttp_settings_t no_settings = {.on_message_complete =
                                                  http1_head_on_message_complete};

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

static char *http1_head_terminate(struct span s) {
    char *p = (char *)(uintptr_t)s.data;
    size_t n = s.len;
    while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t'))
        n--;
    p[n] = 0;
    return p;
}

static int take_fields(struct http1_head *h, const struct parse *s, struct err *err) {
    for (size_t i = 0; i < s->n; i++) {
        if (s->names[i].len == 0)
            return err_set(err, ERR_BAD_REQUEST, "a header field has no name");
        h->fields[i].name = http1_head_terminate(s->names[i]);
        /* The parser finds an empty value at the start of the next line, which is not ours to cut.
         */
        h->fields[i].value = s->values[i].len > 0 ? http1_head_terminate(s->values[i]) : "";
    }
    h->nfields = s->n;
    return 0;
}

/* The parser refuses ambiguous lengths by itself; a release that does not must not open the door.
 */
static int check_lengths(struct http1_head *h, struct err *err) {
    const char *te = http1_head_value(h, "transfer-encoding");
    if (http1_head_count(h, "content-length") > 1)
        return err_set(err, ERR_BAD_REQUEST, "more than one Content-Length field");
    if (te && (http1_head_count(h, "transfer-encoding") > 1 || strcasecmp(te, "chunked") != 0))
        return err_set(err, ERR_UNSUPPORTED, "Transfer-Encoding may only be \"chunked\"");
    if (te && http1_head_value(h, "content-length"))
        return err_set(err, ERR_BAD_REQUEST, "both Content-Length and Transfer-Encoding");
    if (te && h->http10)
        return err_set(err, ERR_BAD_REQUEST, "HTTP/1.0 has no Transfer-Encoding");
    h->chunked = te != NULL;
    h->has_length = http1_head_value(h, "content-length") != NULL;
    return 0;
}

static int http1_head_check_fields(struct http1_head *h, struct err *err) {
    size_t hosts = http1_head_count(h, "host");
    if (hosts > 1)
        return err_set(err, ERR_BAD_REQUEST, "more than one Host field");
    if (hosts == 0 && !h->http10)
        return err_set(err, ERR_BAD_REQUEST, "the Host field is missing");
    const char *expect = http1_head_value(h, "expect");
    if (expect && strcasecmp(expect, "100-continue") != 0)
        return err_set(err, ERR_BAD_REQUEST, "Expect may only be \"100-continue\"");
    h->expects_continue = expect && h->has_body && !h->http10;
    return check_lengths(h, err);
}

static int check_target(const struct parse *s, char **ret_target, struct err *err) {
    if (!s->url.data || s->url.len == 0)
        return err_set(err, ERR_BAD_REQUEST, "the request has no target");
    char *url = (char *)(uintptr_t)s->url.data;
    url[s->url.len] = 0;
    for (const char *p = url; *p; p++)
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 127 || *p == '#')
            return err_set(err, ERR_BAD_REQUEST,
                           "the request target holds a character that must be percent-encoded");
    *ret_target = url;
    return 0;
}

static enum llhttp_errno http1_head_run(llhttp_t *parser, struct parse *s, const char *text,
                                        size_t len) {
    clear_next(s);
    llhttp_init(parser, HTTP_REQUEST, &settings);
    parser->data = s;
    enum llhttp_errno e = llhttp_execute(parser, text, len);
    parser->data = NULL;
    parser->settings = (void *)(uintptr_t)&no_settings;
    return e;
}

int http1_head_parse(struct http1_head *h, struct http1_body *body, const char *data, size_t len,
                     struct err *err) {
    http1_head_finish(h);
    h->text = xmalloc(len + 1);
    memcpy(h->text, data, len);
    h->text[len] = 0;
    llhttp_t *parser = &body->parser;
    struct parse s;
    s.url = (struct span){0};
    s.n = 0;
    s.max = h->max_fields;
    s.too_many = false;
    enum llhttp_errno e = http1_head_run(parser, &s, h->text, len);
    if (s.too_many)
        return err_set(err, ERR_TOO_LARGE, "more than %zu header fields", s.max);
    if (e != HPE_OK && e != HPE_PAUSED && e != HPE_PAUSED_UPGRADE)
        return parser_error(parser, e, err);
    if (parser->http_major != 1 || parser->http_minor > 1)
        return err_set(err, ERR_BAD_REQUEST, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    h->has_body = e == HPE_OK;
    h->http10 = parser->http_minor == 0;
    h->keep_alive = llhttp_should_keep_alive(parser) == 1;
    h->content_length = parser->content_length;
    int rc = take_fields(h, &s, err);
    if (rc < 0)
        return rc;
    h->text[strcspn(h->text, " ")] = 0;
    h->method = h->text;
    char *target = NULL;
    rc = check_target(&s, &target, err);
    if (rc == 0)
        rc = http1_head_check_fields(h, err);
    if (rc == 0)
        h->target = target;
    return rc;
}

const char *http1_head_value(const struct http1_head *h, const char *name) {
    for (size_t i = 0; i < h->nfields; i++)
        if (strcasecmp(h->fields[i].name, name) == 0)
            return h->fields[i].value;
    return NULL;
}

size_t http1_head_count(const struct http1_head *h, const char *name) {
    size_t n = 0;
    for (size_t i = 0; i < h->nfields; i++)
        n += strcasecmp(h->fields[i].name, name) == 0 ? 1 : 0;
    return n;
}
