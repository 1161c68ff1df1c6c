#include "base/json.h"

#include "base/cleanup.h"
#include "base/text.h"
#include "base/utf8.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The one rule: any value, no key twice, a NUL may stand in a string (program output has them).
 * What is written by this rule is read by it. */
enum { READ_FLAGS = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL };

static bool json_is_deeper(const char *text, size_t len, unsigned max) {
    unsigned depth = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '[' || text[i] == '{') {
            if (++depth > max)
                return true;
        } else if (text[i] == ']' || text[i] == '}') {
            depth -= depth > 0;
        } else if (text[i] == '"') { /* to the end of the string */
            for (i++; i < len && text[i] != '"'; i++)
                i += text[i] == '\\';
        }
    }
    return false;
}

int json_parse(const char *text, size_t len, const char *what, json_t **ret_json, struct err *err) {
    json_error_t e;
    if (json_is_deeper(text, len, JSON_DEPTH_MAX))
        return err_set(err, ERR_BAD_REQUEST, "%s is nested more than %d levels deep", what,
                       JSON_DEPTH_MAX);
    json_t *j = json_loadb(text, len, READ_FLAGS, &e);
    if (!j)
        return err_set(err, ERR_BAD_REQUEST, "%s is not valid JSON: line %d, column %d: %s", what,
                       e.line, e.column, e.text);
    *ret_json = j;
    return 0;
}

int json_parse_private(const char *text, size_t len, const char *what, json_t **ret_json,
                       struct err *err) {
    int rc = json_parse(text, len, what, ret_json, err);
    char *quoted = rc < 0 && err ? strstr(err->message, " near '") : NULL;
    if (quoted)
        *quoted = 0;
    return rc;
}

json_t *json_read(const char *text, size_t len) {
    return text ? json_loadb(text, len, READ_FLAGS, NULL) : NULL;
}

json_t *json_read_str(const char *text) {
    return text ? json_read(text, strlen(text)) : NULL;
}

bool json_has_more_values(const char *text, size_t len, size_t max) {
    size_t n = 1;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == ',' || text[i] == '[' || text[i] == '{') {
            if (++n > max)
                return true;
        } else if (text[i] == '"') { /* to the end of the string */
            for (i++; i < len && text[i] != '"'; i++)
                i += text[i] == '\\';
        }
    }
    return false;
}

/* --- the validator --- */

enum { VALID_DEPTH_MAX = 200 };

struct scan {
    const char *at;
    const char *end;
};

static void json_skip_space(struct scan *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\r' || *s->at == '\t'))
        s->at++;
}

static bool scan_word(struct scan *s, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0)
        return false;
    s->at += n;
    return true;
}

static bool scan_digits(struct scan *s) {
    const char *from = s->at;
    while (s->at < s->end && *s->at >= '0' && *s->at <= '9')
        s->at++;
    return s->at > from;
}

static bool scan_number(struct scan *s) {
    if (s->at < s->end && *s->at == '-')
        s->at++;
    if (s->at < s->end && *s->at == '0')
        s->at++;
    else if (!scan_digits(s))
        return false;
    if (s->at < s->end && *s->at == '.') {
        s->at++;
        if (!scan_digits(s))
            return false;
    }
    if (s->at < s->end && (*s->at == 'e' || *s->at == 'E')) {
        s->at++;
        if (s->at < s->end && (*s->at == '+' || *s->at == '-'))
            s->at++;
        return scan_digits(s);
    }
    return true;
}

static bool json_scan_escape(struct scan *s) {
    s->at++;
    if (s->at == s->end)
        return false;
    char c = *s->at++;
    if (c != 'u')
        return strchr("\"\\/bfnrt", c) != NULL && c != 0;
    for (int i = 0; i < 4; i++, s->at++)
        if (s->at == s->end || !isxdigit((unsigned char)*s->at))
            return false;
    return true;
}

static bool scan_string(struct scan *s) {
    s->at++;
    while (s->at < s->end) {
        unsigned char c = (unsigned char)*s->at;
        size_t n = 1;
        if (c == '"') {
            s->at++;
            return true;
        }
        if (c == '\\') {
            if (!json_scan_escape(s))
                return false;
            continue;
        }
        if (c < 0x20 || (c >= 0x80 && (n = utf8_sequence(s->at, (size_t)(s->end - s->at))) == 0))
            return false;
        s->at += n;
    }
    return false;
}

static bool scan_value(struct scan *s, unsigned depth);

static bool scan_members(struct scan *s, char close, unsigned depth) {
    s->at++;
    json_skip_space(s);
    if (s->at < s->end && *s->at == close) {
        s->at++;
        return true;
    }
    while (s->at < s->end) {
        json_skip_space(s);
        if (close == '}') {
            if (s->at == s->end || *s->at != '"' || !scan_string(s))
                return false;
            json_skip_space(s);
            if (s->at == s->end || *s->at++ != ':')
                return false;
        }
        if (!scan_value(s, depth))
            return false;
        json_skip_space(s);
        if (s->at == s->end)
            return false;
        char c = *s->at++;
        if (c == close)
            return true;
        if (c != ',')
            return false;
    }
    return false;
}

static bool scan_value(struct scan *s, unsigned depth) {
    json_skip_space(s);
    if (s->at == s->end || depth > VALID_DEPTH_MAX)
        return false;
    switch (*s->at) {
    case '{':
        return scan_members(s, '}', depth + 1);
    case '[':
        return scan_members(s, ']', depth + 1);
    case '"':
        return scan_string(s);
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    default:
        return scan_number(s);
    }
}

bool json_is_valid(const char *text, size_t len) {
    struct scan s = {text, text + len};
    if (!scan_value(&s, 0))
        return false;
    json_skip_space(&s);
    return s.at == s.end;
}

/* The key of the next member, with its quotes; stops behind the colon. */
static bool scan_key(struct scan *s, const char **ret_key, size_t *ret_len) {
    json_skip_space(s);
    const char *from = s->at;
    if (s->at == s->end || *s->at != '"' || !scan_string(s))
        return false;
    *ret_key = from;
    *ret_len = (size_t)(s->at - from);
    json_skip_space(s);
    return s->at < s->end && *s->at++ == ':';
}

const char *json_find_member(const char *text, size_t len, const char *key, size_t *ret_len) {
    struct scan s = {text, text + len};
    const char *name;
    size_t n;
    json_skip_space(&s);
    if (s.at == s.end || *s.at != '{')
        return NULL;
    do {
        s.at++;
        if (!scan_key(&s, &name, &n))
            return NULL;
        json_skip_space(&s);
        const char *from = s.at;
        if (!scan_value(&s, 1))
            return NULL;
        if (n == strlen(key) && memcmp(name, key, n) == 0) {
            *ret_len = (size_t)(s.at - from);
            return from;
        }
        json_skip_space(&s);
    } while (s.at < s.end && *s.at == ',');
    return NULL;
}

int json_check_keys(const json_t *obj, const char *what, const char *const *allowed,
                    struct err *err) {
    if (!json_is_object(obj))
        return err_set(err, ERR_BAD_REQUEST, "%s must be a JSON object", what);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)obj, key, value) {
        const char *const *a = allowed;
        while (*a && strcmp(*a, key) != 0)
            a++;
        const char *meant = *a ? NULL : text_nearest(key, allowed);
        if (meant)
            return err_set(err, ERR_BAD_REQUEST, "%s: unknown key \"%.80s\": did you mean \"%s\"?",
                           what, key, meant);
        if (!*a)
            return err_set(err, ERR_BAD_REQUEST, "%s: unknown key \"%.80s\"", what, key);
    }
    return 0;
}

int json_get_str(const json_t *obj, const char *key, const char **ret, struct err *err) {
    const json_t *v = json_object_get(obj, key);
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_string(v))
        return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be a string", key);
    if (strlen(json_string_value(v)) != json_string_length(v))
        return err_set(err, ERR_BAD_REQUEST, "\"%s\" must not hold a NUL character", key);
    *ret = json_string_value(v);
    return 0;
}

int json_get_int(const json_t *obj, const char *key, int64_t min, int64_t max, int64_t *ret,
                 struct err *err) {
    const json_t *v = json_object_get(obj, key);
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
        return err_set(err, ERR_BAD_REQUEST,
                       "\"%s\" must be an integer from %" PRId64 " to %" PRId64, key, min, max);
    *ret = json_integer_value(v);
    return 0;
}

int json_get_bool(const json_t *obj, const char *key, bool *ret, struct err *err) {
    const json_t *v = json_object_get(obj, key);
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_boolean(v))
        return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be true or false", key);
    *ret = json_is_true(v);
    return 0;
}

/* Where the first string with a NUL is: adds ".key" or "[3]" for each level. */
static bool find_nul(const json_t *v, struct buf *where) {
    size_t len = where->len;
    size_t i;
    const char *key;
    json_t *item;
    if (json_is_string(v))
        return strlen(json_string_value(v)) != json_string_length(v);
    json_array_foreach(v, i, item) {
        (void)buf_addf(where, "[%zu]", i);
        if (find_nul(item, where))
            return true;
        where->len = len;
    }
    json_object_foreach((json_t *)(uintptr_t)v, key, item) {
        (void)buf_addf(where, "%s%.80s", len > 0 ? "." : "", key);
        if (find_nul(item, where))
            return true;
        where->len = len;
    }
    return false;
}

int json_check_no_nul(const json_t *v, const char *what, struct err *err) {
    _cleanup_(buf) struct buf where;
    buf_init(&where, (size_t)256 << 10);
    if (what)
        (void)buf_add_str(&where, what);
    if (!v || !find_nul(v, &where))
        return 0;
    return err_set(err, ERR_BAD_REQUEST, "\"%.200s\" must not hold a NUL character",
                   where.data ? where.data : "");
}

/* --- a tree as text: as jansson writes it, in a fifth of the time --- */

enum { DIGITS_SIZE = 24 };

/* printf takes longer than all else that is done about a number. The text ends at `end`. */
static char *write_digits(char *end, uint64_t v) {
    do
        *--end = (char)('0' + v % 10);
    while ((v /= 10) > 0);
    return end;
}

static void add_int(struct buf *out, int64_t v) {
    char text[DIGITS_SIZE];
    char *end = text + sizeof(text);
    char *p = write_digits(end, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
    if (v < 0)
        *--p = '-';
    (void)buf_add(out, p, (size_t)(end - p));
}

/* Of a character below 0x20, a quote or a backslash: at most six bytes. */
static size_t dump_escape(char *out, unsigned char c) {
    static const char hex[] = "0123456789ABCDEF";
    static const char letters[0x20] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    out[0] = '\\';
    out[1] = c >= 0x20 ? (char)c : letters[c] ? letters[c] : 'u';
    if (out[1] != 'u')
        return 2;
    out[2] = out[3] = '0';
    out[4] = hex[c >> 4];
    out[5] = hex[c & 15];
    return 6;
}

static void dump_str(struct buf *out, const char *s, size_t len) {
    char piece[1024];
    size_t n = 0;
    piece[n++] = '"';
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            piece[n++] = (char)c;
        else
            n += dump_escape(piece + n, c);
        if (n > sizeof(piece) - 8) {
            (void)buf_add(out, piece, n);
            n = 0;
        }
    }
    piece[n++] = '"';
    (void)buf_add(out, piece, n);
}

static void dump_value(struct buf *out, const json_t *j);

static void dump_object(struct buf *out, const json_t *j) {
    const char *key;
    json_t *v;
    char before = '{';
    json_object_foreach((json_t *)(uintptr_t)j, key, v) {
        if (out->full)
            return;
        (void)buf_add_char(out, before);
        dump_str(out, key, strlen(key));
        (void)buf_add_char(out, ':');
        dump_value(out, v);
        before = ',';
    }
    if (before == '{')
        (void)buf_add_char(out, '{');
    (void)buf_add_char(out, '}');
}

static void dump_array(struct buf *out, const json_t *j) {
    size_t i;
    const json_t *v;
    (void)buf_add_char(out, '[');
    json_array_foreach(j, i, v) {
        if (out->full)
            return;
        if (i > 0)
            (void)buf_add_char(out, ',');
        dump_value(out, v);
    }
    (void)buf_add_char(out, ']');
}

static void dump_real(struct buf *out, const json_t *j) {
    char text[64];
    size_t n = json_dumpb(j, text, sizeof(text), JSON_ENCODE_ANY);
    (void)buf_add(out, text, MIN(n, sizeof(text)));
}

static void dump_value(struct buf *out, const json_t *j) {
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        dump_object(out, j);
        break;
    case JSON_ARRAY:
        dump_array(out, j);
        break;
    case JSON_STRING:
        dump_str(out, json_string_value(j), json_string_length(j));
        break;
    case JSON_INTEGER:
        add_int(out, json_integer_value(j));
        break;
    case JSON_REAL:
        dump_real(out, j);
        break;
    case JSON_TRUE:
        (void)buf_add_str(out, "true");
        break;
    case JSON_FALSE:
        (void)buf_add_str(out, "false");
        break;
    case JSON_NULL:
        (void)buf_add_str(out, "null");
        break;
    }
}

bool json_dump(const json_t *j, struct buf *out) {
    if (j)
        dump_value(out, j);
    return j && !out->full;
}

char *json_dump_text(const json_t *j, size_t max, size_t *ret_len) {
    struct buf b;
    buf_init(&b, max);
    if (json_dump(j, &b))
        return buf_steal(&b, ret_len);
    buf_finish(&b);
    return NULL;
}

json_t *json_text(const char *text) {
    json_t *j = json_string(text);
    if (j)
        return j;
    struct buf b;
    buf_init(&b, 8 * strlen(text) + 16);
    json_write_str(&b, text, strlen(text));
    j = json_loadb(b.data, b.len, JSON_DECODE_ANY, NULL);
    buf_finish(&b);
    return j ? j : json_string("");
}

void json_writer_init(struct json_writer *w, struct buf *out) {
    *w = (struct json_writer){.out = out};
}

static void json_value(struct json_writer *w) {
    if (w->comma)
        (void)buf_add_char(w->out, ',');
    w->comma = true;
}

static void open_with(struct json_writer *w, char c) {
    json_value(w);
    (void)buf_add_char(w->out, c);
    w->comma = false;
}

static void close_with(struct json_writer *w, char c) {
    (void)buf_add_char(w->out, c);
    w->comma = true;
}

void json_writer_object_begin(struct json_writer *w) {
    open_with(w, '{');
}

void json_writer_object_end(struct json_writer *w) {
    close_with(w, '}');
}

void json_writer_array_begin(struct json_writer *w) {
    open_with(w, '[');
}

void json_writer_array_end(struct json_writer *w) {
    close_with(w, ']');
}

void json_writer_key(struct json_writer *w, const char *key) {
    json_value(w);
    json_write_str(w->out, key, strlen(key));
    (void)buf_add_char(w->out, ':');
    w->comma = false;
}

void json_writer_str(struct json_writer *w, const char *s) {
    if (s)
        json_writer_text(w, s, strlen(s));
    else
        json_writer_null(w);
}

void json_writer_text(struct json_writer *w, const char *s, size_t len) {
    json_value(w);
    json_write_str(w->out, s, len);
}

void json_writer_int(struct json_writer *w, int64_t v) {
    json_value(w);
    add_int(w->out, v);
}

/* Microseconds as milliseconds, and the like: the same text as printf's. False: it is no number of
 * thousandths. */
static bool write_thousandths(struct json_writer *w, double v) {
    char text[DIGITS_SIZE];
    char *end = text + sizeof(text);
    if (!(v > 0 && v < 1e11))
        return false;
    uint64_t n = (uint64_t)(v * 1000 + 0.5);
    if ((double)n / 1000 != v)
        return false;
    unsigned rest = (unsigned)(n % 1000);
    json_value(w);
    char *p = write_digits(end, n / 1000);
    (void)buf_add(w->out, p, (size_t)(end - p));
    char decimals[] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10),
                       (char)('0' + rest % 10)};
    size_t len = rest % 10 ? 4 : rest % 100 ? 3 : rest ? 2 : 0;
    (void)buf_add(w->out, decimals, len);
    return true;
}

void json_writer_num(struct json_writer *w, double v) {
    if (!isfinite(v)) {
        json_writer_null(w);
        return;
    }
    if (write_thousandths(w, v))
        return;
    /* The shortest of the two forms that reads back as the same number. */
    char text[32];
    (void)snprintf(text, sizeof(text), "%.15g", v);
    if (strtod(text, NULL) != v)
        (void)snprintf(text, sizeof(text), "%.17g", v);
    json_value(w);
    (void)buf_add_str(w->out, text);
}

void json_writer_bool(struct json_writer *w, bool v) {
    json_value(w);
    (void)buf_add_str(w->out, v ? "true" : "false");
}

void json_writer_null(struct json_writer *w) {
    json_value(w);
    (void)buf_add_str(w->out, "null");
}

void json_writer_raw(struct json_writer *w, const char *json, size_t len) {
    json_value(w);
    (void)buf_add(w->out, json, len);
}

void json_writer_tree(struct json_writer *w, const json_t *j) {
    json_value(w);
    if (!j)
        (void)buf_add_str(w->out, "null");
    else if (!json_dump(j, w->out))
        w->out->full = true;
}

size_t json_quoted_bytes(const char *s, size_t len) {
    size_t n = len;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        n += c == '"' || c == '\\' || c == '\n' ? 1 : c < 0x20 ? 5 : 0;
    }
    return n;
}

/* At most six bytes. */
static size_t json_escape(char *out, unsigned char c) {
    static const char hex[] = "0123456789abcdef";
    char letter = c == '"' || c == '\\' ? (char)c
                  : c == '\n'           ? 'n'
                  : c == '\r'           ? 'r'
                  : c == '\t'           ? 't'
                                        : 'u';
    out[0] = '\\';
    out[1] = letter;
    if (letter != 'u')
        return 2;
    out[2] = out[3] = '0';
    out[4] = hex[c >> 4];
    out[5] = hex[c & 15];
    return 6;
}

/* What is no plain ASCII, as it is written; how much of s it is. */
static size_t write_odd(char *out, const char *s, size_t len, size_t *ret_len) {
    static const char unknown[] = {'\xef', '\xbf', '\xbd'};
    unsigned char c = (unsigned char)*s;
    size_t n = c < 0x80 ? 0 : utf8_sequence(s, len);
    /* U+0080 to U+009F are control characters too: one of them begins commands of terminals. */
    if (n == 2 && c == 0xc2 && (unsigned char)s[1] < 0xa0) {
        *ret_len = json_escape(out, (unsigned char)s[1]);
    } else if (n > 0) {
        memcpy(out, s, n);
        *ret_len = n;
    } else if (c < 0x80) {
        *ret_len = json_escape(out, c);
    } else {
        memcpy(out, unknown, sizeof(unknown));
        *ret_len = sizeof(unknown);
    }
    return n > 0 ? n : 1;
}

void json_write_str(struct buf *out, const char *s, size_t len) {
    char piece[1024]; /* texts may be nothing but line ends: each by itself would take long */
    size_t n = 0;
    piece[n++] = '"';
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)s[i];
        size_t more = 1;
        if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\')
            piece[n] = s[i++];
        else
            i += write_odd(piece + n, s + i, len - i, &more);
        n += more;
        if (n > sizeof(piece) - 8) {
            (void)buf_add(out, piece, n);
            n = 0;
        }
    }
    piece[n++] = '"';
    (void)buf_add(out, piece, n);
}
