#include "coder/response.h"

#include "base/cleanup.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HEAD_MAX = 32 * 1024, LINE_MAX_BYTES = 16 * 1024, RETRY_AFTER_MAX_S = 86400 };

void response_init(struct response *r, size_t max_body) {
    *r = (struct response){.retry_after_ms = -1, .may_retry = true};
    buf_init(&r->line, LINE_MAX_BYTES);
    buf_init(&r->body, max_body);
}

void response_finish(struct response *r) {
    buf_finish(&r->line);
    buf_finish(&r->body);
}

static int coder_response_malformed(struct err *err, const char *what) {
    return err_set(err, ERR_PROTOCOL, "the model's server answered with what is no HTTP: %s", what);
}

/* Digits and nothing else; UINT64_MAX if it is not that or too large. */
static uint64_t coder_response_read_number(const char *s, unsigned base) {
    uint64_t n = 0;
    if (!*s)
        return UINT64_MAX;
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        unsigned digit = isdigit(c)    ? (unsigned)c - '0'
                         : isxdigit(c) ? (unsigned)tolower(c) - 'a' + 10
                                       : 99;
        if (digit >= base || n > (UINT64_MAX >> 8))
            return UINT64_MAX;
        n = n * base + digit;
    }
    return n;
}

static int read_status(struct response *r, const char *line, struct err *err) {
    bool known = strncmp(line, "HTTP/1.1 ", 9) == 0 || strncmp(line, "HTTP/1.0 ", 9) == 0;
    if (!known || !isdigit((unsigned char)line[9]) || !isdigit((unsigned char)line[10]) ||
        !isdigit((unsigned char)line[11]) || (line[12] != 0 && line[12] != ' '))
        return coder_response_malformed(err, "its first line");
    r->status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
    if (r->status < 100)
        return coder_response_malformed(err, "its status");
    r->state = RESPONSE_FIELDS;
    return 0;
}

static int read_length(struct response *r, const char *value, struct err *err) {
    uint64_t n = coder_response_read_number(value, 10);
    if (n == UINT64_MAX || (r->has_length && n != r->left))
        return coder_response_malformed(err, "its length");
    r->has_length = true;
    r->left = n;
    return 0;
}

static int read_field(struct response *r, char *line, struct err *err) {
    char *colon = strchr(line, ':');
    if (!colon || colon == line || strcspn(line, " \t") < (size_t)(colon - line))
        return coder_response_malformed(err, "a header field");
    *colon = 0;
    char *value = colon + 1 + strspn(colon + 1, " \t");
    size_t n = strlen(value);
    while (n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t'))
        value[--n] = 0;
    if (strcasecmp(line, "content-length") == 0)
        return read_length(r, value, err);
    if (strcasecmp(line, "transfer-encoding") == 0) {
        if (strcasecmp(value, "chunked") != 0 || r->chunked)
            return coder_response_malformed(err, "a transfer encoding that was not asked for");
        r->chunked = true;
    } else if (strcasecmp(line, "content-encoding") == 0 && strcasecmp(value, "identity") != 0) {
        return coder_response_malformed(err, "a content encoding that was not asked for");
    } else if (strcasecmp(line, "retry-after") == 0) {
        /* A date is not read: then the usual waits are kept. */
        uint64_t s = coder_response_read_number(value, 10);
        if (s != UINT64_MAX)
            r->retry_after_ms = (int64_t)MIN(s, (uint64_t)RETRY_AFTER_MAX_S) * 1000;
    } else if (strcasecmp(line, "x-should-retry") == 0) {
        r->may_retry = strcasecmp(value, "false") != 0;
    }
    return 0;
}

static int end_head(struct response *r, struct err *err) {
    if (r->chunked && r->has_length)
        return coder_response_malformed(err, "two lengths");
    if (r->status < 200) { /* the real one follows */
        if (r->status == 101)
            return coder_response_malformed(err, "another protocol");
        r->state = RESPONSE_STATUS;
        r->has_length = r->chunked = false;
        return 0;
    }
    if (r->status == 204 || r->status == 304 || (r->has_length && r->left == 0)) {
        r->state = RESPONSE_DONE;
        return 0;
    }
    if (r->has_length && r->left > r->body.max)
        return err_set(err, ERR_TOO_LARGE, "the model's answer is longer than %zu bytes",
                       r->body.max);
    r->state = r->chunked ? RESPONSE_CHUNK_SIZE : r->has_length ? RESPONSE_LENGTH : RESPONSE_REST;
    return 0;
}

static int read_chunk_size(struct response *r, char *line, struct err *err) {
    line[strcspn(line, "; \t")] = 0;
    r->left = coder_response_read_number(line, 16);
    if (r->left == UINT64_MAX)
        return coder_response_malformed(err, "the size of a chunk");
    r->state = r->left == 0 ? RESPONSE_TRAILERS : RESPONSE_CHUNK;
    return 0;
}

static int coder_response_end_line(struct response *r, struct err *err) {
    size_t n = r->line.len;
    char *line = r->line.data;
    if (n > 0 && line[n - 1] == '\r')
        line[--n] = 0;
    if (n > 0 && strlen(line) != n)
        return coder_response_malformed(err, "a NUL");
    switch (r->state) {
    case RESPONSE_STATUS:
        return read_status(r, n ? line : "", err);
    case RESPONSE_FIELDS:
        return n ? read_field(r, line, err) : end_head(r, err);
    case RESPONSE_CHUNK_SIZE:
        return n ? read_chunk_size(r, line, err)
                 : coder_response_malformed(err, "the size of a chunk");
    case RESPONSE_CHUNK_END:
        r->state = RESPONSE_CHUNK_SIZE;
        return n ? coder_response_malformed(err, "the end of a chunk") : 0;
    default: /* RESPONSE_TRAILERS: nothing in them is of use */
        if (n == 0)
            r->state = RESPONSE_DONE;
        return 0;
    }
}

/* Returns how many bytes were taken. */
static ssize_t feed_line(struct response *r, const char *data, size_t len, struct err *err) {
    const char *end = memchr(data, '\n', len);
    size_t n = end ? (size_t)(end - data) : len;
    bool head =
        r->state == RESPONSE_STATUS || r->state == RESPONSE_FIELDS || r->state == RESPONSE_TRAILERS;
    r->head_bytes += head ? n + 1 : 0;
    if (r->head_bytes > HEAD_MAX || !buf_add(&r->line, data, n))
        return coder_response_malformed(err, "a head that is too long");
    if (!end)
        return (ssize_t)n;
    int rc = coder_response_end_line(r, err);
    buf_clear(&r->line);
    return rc < 0 ? rc : (ssize_t)n + 1;
}

static ssize_t coder_response_feed_body(struct response *r, const char *data, size_t len,
                                        struct err *err) {
    bool counted = r->state != RESPONSE_REST;
    size_t n = counted ? (size_t)MIN((uint64_t)len, r->left) : len;
    if (!buf_add(&r->body, data, n))
        return err_set(err, ERR_TOO_LARGE, "the model's answer is longer than %zu bytes",
                       r->body.max);
    if (counted) {
        r->left -= n;
        if (r->left == 0)
            r->state = r->state == RESPONSE_CHUNK ? RESPONSE_CHUNK_END : RESPONSE_DONE;
    }
    return (ssize_t)n;
}

int response_feed(struct response *r, const char *data, size_t len, struct err *err) {
    while (len > 0 && r->state != RESPONSE_DONE) {
        bool body =
            r->state == RESPONSE_LENGTH || r->state == RESPONSE_REST || r->state == RESPONSE_CHUNK;
        ssize_t n =
            body ? coder_response_feed_body(r, data, len, err) : feed_line(r, data, len, err);
        if (n < 0)
            return (int)n;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

int response_end(struct response *r, struct err *err) {
    if (r->state == RESPONSE_REST)
        r->state = RESPONSE_DONE;
    if (r->state != RESPONSE_DONE)
        return err_set(err, ERR_UPSTREAM, "the model's server ended the connection %s",
                       r->state == RESPONSE_STATUS && r->line.len == 0
                           ? "without an answer"
                           : "in the middle of its answer");
    return 0;
}
