#include "facet/args.h"

#include "base/base64.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void args_init(struct args *a, const char *text, size_t len, struct buf *scratch) {
    buf_clear(scratch);
    *a = (struct args){.at = text, .end = text + len, .total = len, .scratch = scratch};
}

static int facet_args_bad(struct args *a, const char *why) {
    a->error = why;
    return -1;
}

static void facet_args_skip_space(struct args *a) {
    while (a->at < a->end && (*a->at == ' ' || *a->at == '\n' || *a->at == '\t' || *a->at == '\r'))
        a->at++;
}

static int facet_args_leave(struct args *a) {
    a->at++;
    a->comma = true;
    if (--a->depth > 0)
        return 1;
    facet_args_skip_space(a);
    return a->at == a->end ? 1 : facet_args_bad(a, "text follows the array of arguments");
}

/* Comes to the beginning of the next item: 1; 0 if the array ended; -1 if malformed. */
static int facet_args_item(struct args *a) {
    facet_args_skip_space(a);
    if (a->at == a->end)
        return facet_args_bad(a, "the JSON ends early");
    if (*a->at == ']' && a->depth > 0)
        return facet_args_leave(a) < 0 ? -1 : 0;
    if (a->comma) {
        if (*a->at != ',')
            return facet_args_bad(a, "a comma is missing");
        a->at++;
        facet_args_skip_space(a);
        if (a->at == a->end || *a->at == ']')
            return facet_args_bad(a, "a value is missing after a comma");
    }
    a->comma = true;
    return 1;
}

/* facet_args_item() without taking anything but the end. */
int args_leave(struct args *a) {
    facet_args_skip_space(a);
    if (a->at == a->end)
        return facet_args_bad(a, "the JSON ends early");
    return *a->at == ']' ? facet_args_leave(a) : 0;
}

static void facet_args_enter(struct args *a) {
    a->at++;
    a->depth++;
    a->comma = false;
}

int args_enter(struct args *a) {
    int rc = facet_args_item(a);
    if (rc != 1)
        return rc;
    if (*a->at != '[')
        return facet_args_bad(a, "an array is expected");
    facet_args_enter(a);
    return 1;
}

static int facet_args_hex4(const char *p, const char *end) {
    int v = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

static char *put_utf8(char *to, uint32_t c) {
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
        *to++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *to++ = (char)(0xe0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    } else {
        *to++ = (char)(0xf0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 63));
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    }
    return to;
}

/* One escape, with `at` behind the backslash. NULL if it is none of JSON's. */
static char *facet_args_unescape(struct args *a, char *to) {
    static const char FROM[] = "\"\\/bfnrt";
    static const char INTO[] = "\"\\/\b\f\n\r\t";
    char c = a->at < a->end ? *a->at++ : 0;
    if (c != 'u') {
        const char *k = c ? strchr(FROM, c) : NULL;
        if (!k)
            return NULL;
        *to = INTO[k - FROM];
        return to + 1;
    }
    int unit = facet_args_hex4(a->at, a->end);
    if (unit < 0)
        return NULL;
    a->at += 4;
    if (unit < 0xd800 || unit > 0xdfff)
        return put_utf8(to, (uint32_t)unit);
    int low = a->end - a->at >= 6 && a->at[0] == '\\' && a->at[1] == 'u'
                  ? facet_args_hex4(a->at + 2, a->end)
                  : -1;
    if (unit > 0xdbff || low < 0xdc00 || low > 0xdfff)
        return put_utf8(to, 0xfffd);
    a->at += 6;
    return put_utf8(to, 0x10000U + (((uint32_t)unit - 0xd800U) << 10) + ((uint32_t)low - 0xdc00U));
}

/* Goes over plain characters up to a quote or a backslash. */
static int facet_args_plain(struct args *a) {
    while (a->at < a->end) {
        unsigned char c = (unsigned char)*a->at;
        if (c == '"' || c == '\\')
            return 0;
        if (c < 0x20)
            return facet_args_bad(a, "a string holds a control character");
        size_t n = c < 0x80 ? 1 : utf8_sequence(a->at, (size_t)(a->end - a->at));
        if (n == 0)
            return facet_args_bad(a, "a string is not valid UTF-8");
        a->at += n;
    }
    return facet_args_bad(a, "a string does not end");
}

/* Room for whatever is left. What is decoded never takes more room than its JSON, so that the first
 * reservation is enough and earlier strings do not move. */
static char *facet_args_scratch(struct args *a) {
    return buf_reserve(a->scratch, a->total - a->scratch->len);
}

/* A string, with `at` on its opening quote. */
static int facet_args_string(struct args *a, struct arg *ret) {
    const char *from = ++a->at;
    if (facet_args_plain(a) < 0)
        return -1;
    if (*a->at == '"') {
        *ret = (struct arg){.type = ARG_TEXT, .p = from, .len = (size_t)(a->at++ - from)};
        return 1;
    }
    char *begin = facet_args_scratch(a);
    if (!begin)
        return facet_args_bad(a, "the arguments are too large");
    char *to = begin;
    for (;;) {
        size_t n = (size_t)(a->at - from);
        memcpy(to, from, n);
        to += n;
        if (*a->at == '"')
            break;
        a->at++;
        to = facet_args_unescape(a, to);
        if (!to)
            return facet_args_bad(a, "a string holds an unknown escape");
        from = a->at;
        if (facet_args_plain(a) < 0)
            return -1;
    }
    a->at++;
    *ret = (struct arg){.type = ARG_TEXT, .p = begin, .len = (size_t)(to - begin)};
    buf_claim(a->scratch, ret->len);
    return 1;
}

static bool facet_args_digits(struct args *a) {
    const char *from = a->at;
    while (a->at < a->end && *a->at >= '0' && *a->at <= '9')
        a->at++;
    return a->at > from;
}

/* Decimal digits with an optional minus as a 64-bit integer; false if they do not fit. */
static bool to_int(const char *p, size_t len, int64_t *ret) {
    bool minus = len > 0 && *p == '-';
    int64_t v = 0;
    for (size_t i = minus; i < len; i++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_sub_overflow(v, p[i] - '0', &v))
            return false;
    if (!minus && __builtin_sub_overflow(0, v, &v))
        return false;
    *ret = v;
    return true;
}

static int facet_args_number(struct args *a, struct arg *ret) {
    const char *from = a->at;
    if (*a->at == '-')
        a->at++;
    const char *first = a->at;
    if (!facet_args_digits(a) || (*first == '0' && a->at - first > 1))
        return facet_args_bad(a, "a value is not JSON");
    bool integer = true;
    if (a->at < a->end && *a->at == '.') {
        integer = false;
        a->at++;
        if (!facet_args_digits(a))
            return facet_args_bad(a, "a number is malformed");
    }
    if (a->at < a->end && (*a->at == 'e' || *a->at == 'E')) {
        integer = false;
        a->at++;
        if (a->at < a->end && (*a->at == '+' || *a->at == '-'))
            a->at++;
        if (!facet_args_digits(a))
            return facet_args_bad(a, "a number is malformed");
    }
    /* strtod() must find an end inside the text. */
    if (a->at == a->end)
        return facet_args_bad(a, "the JSON ends early");
    if (integer && to_int(from, (size_t)(a->at - from), &ret->i)) {
        ret->type = ARG_INT;
        return 1;
    }
    double d = strtod(from, NULL);
    if (!isfinite(d))
        return facet_args_bad(a, "a number is out of range");
    *ret = (struct arg){.type = ARG_REAL, .d = d};
    return 1;
}

static bool facet_args_word(struct args *a, const char *w) {
    size_t n = strlen(w);
    if ((size_t)(a->end - a->at) < n || memcmp(a->at, w, n) != 0)
        return false;
    a->at += n;
    return true;
}

static int tagged_string(struct args *a, struct arg *ret) {
    int rc = facet_args_item(a);
    if (rc == 1 && *a->at == '"')
        return facet_args_string(a, ret);
    return rc < 0 ? rc
                  : facet_args_bad(
                        a, "an array is not a value: use [\"b\",base64] or [\"i\",decimal]");
}

/* ["b","..."] or ["i","..."]. */
static int facet_args_tagged(struct args *a, struct arg *ret) {
    struct arg tag;
    struct arg v;
    facet_args_enter(a);
    if (tagged_string(a, &tag) < 0 || tagged_string(a, &v) < 0)
        return -1;
    if (args_leave(a) != 1 || tag.len != 1)
        return facet_args_bad(a, "an array is not a value: use [\"b\",base64] or [\"i\",decimal]");
    if (*tag.p == 'i') {
        size_t minus = v.len > 0 && *v.p == '-';
        for (size_t i = minus; i < v.len; i++)
            if (v.p[i] < '0' || v.p[i] > '9')
                return facet_args_bad(a, "an integer holds something else than digits");
        if (v.len == minus || !to_int(v.p, v.len, &v.i))
            return facet_args_bad(a, "an integer does not fit into 64 bits");
        *ret = (struct arg){.type = ARG_INT, .i = v.i};
        return 1;
    }
    if (*tag.p != 'b')
        return facet_args_bad(a, "an array is not a value: use [\"b\",base64] or [\"i\",decimal]");
    /* A string that was decoded into the scratch buffer already is decoded in its place. */
    struct buf *s = a->scratch;
    bool inside = s->data && v.p >= s->data && v.p < s->data + s->len;
    char *to = inside ? s->data + (v.p - s->data) : facet_args_scratch(a);
    size_t n;
    if (!to || !base64_decode(to, v.p, v.len, &n))
        return facet_args_bad(a, "a blob is not valid base64");
    if (!inside)
        buf_claim(s, n);
    *ret = (struct arg){.type = ARG_BLOB, .p = to, .len = n};
    return 1;
}

int args_value(struct args *a, struct arg *ret) {
    int rc = facet_args_item(a);
    if (rc != 1)
        return rc;
    switch (*a->at) {
    case '"':
        return facet_args_string(a, ret);
    case '[':
        return facet_args_tagged(a, ret);
    case '{':
        return facet_args_bad(a, "an object is not a value: pass JSON.stringify(it)");
    case 'n':
        *ret = (struct arg){.type = ARG_NULL};
        return facet_args_word(a, "null") ? 1 : facet_args_bad(a, "a value is not JSON");
    case 't':
        *ret = (struct arg){.type = ARG_INT, .i = 1};
        return facet_args_word(a, "true") ? 1 : facet_args_bad(a, "a value is not JSON");
    case 'f':
        *ret = (struct arg){.type = ARG_INT, .i = 0};
        return facet_args_word(a, "false") ? 1 : facet_args_bad(a, "a value is not JSON");
    default:
        return facet_args_number(a, ret);
    }
}
