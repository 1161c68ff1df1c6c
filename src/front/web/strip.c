#include "front/web/strip.h"

#include "base/cleanup.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --- places in the text --- */

/* The end of the tag that begins at `at`: behind its ">", or the end of all. Quotes are respected,
 * as browsers do. */
static size_t tag_end(const char *s, size_t len, size_t at) {
    char quote = 0;
    for (size_t i = at + 1; i < len; i++) {
        if (quote) {
            if (s[i] == quote)
                quote = 0;
        } else if ((s[i] == '"' || s[i] == '\'') && s[i - 1] == '=') {
            quote = s[i];
        } else if (s[i] == '>') {
            return i + 1;
        }
    }
    return len;
}

/* The name of the tag at "<name" or "</name", in lower case; "" if it is none. */
static void tag_name(const char *s, size_t len, size_t at, char out[16]) {
    size_t i = at + 1;
    size_t n = 0;
    if (i < len && s[i] == '/')
        i++;
    while (i < len && n < 15 && isalnum((unsigned char)s[i]))
        out[n++] = (char)tolower((unsigned char)s[i++]);
    out[n] = 0;
}

static bool strip_is_one_of(const char *name, const char *const *list) {
    for (; *list; list++)
        if (strcmp(name, *list) == 0)
            return true;
    return false;
}

/* Where "</name" stands, from `at` on; the end if nowhere. */
static size_t find_close(const char *s, size_t len, size_t at, const char *name) {
    size_t n = strlen(name);
    for (size_t i = at; i + n + 2 <= len; i++) {
        const char *lt = memchr(s + i, '<', len - i);
        if (!lt)
            return len;
        i = (size_t)(lt - s);
        if (i + n + 2 <= len && s[i + 1] == '/' && strncasecmp(s + i + 2, name, n) == 0)
            return i;
    }
    return len;
}

static size_t comment_end(const char *s, size_t len, size_t at) {
    const char *end = memmem(s + at + 4, len - at - 4, "-->", 3);
    return end ? (size_t)(end - s) + 3 : len;
}

/* Behind what nobody sees at `at`, where a "<" stands; `at` itself if it is something else. */
static size_t skip_unseen(const char *s, size_t len, size_t at) {
    static const char *const unseen[] = {"script", "style", "svg", "template", "noscript", NULL};
    char name[16];
    if (len - at >= 4 && memcmp(s + at, "<!--", 4) == 0)
        return comment_end(s, len, at);
    tag_name(s, len, at, name);
    if (s[at + 1 < len ? at + 1 : at] == '/' || !strip_is_one_of(name, unseen))
        return at;
    size_t close = find_close(s, len, tag_end(s, len, at), name);
    return close < len ? tag_end(s, len, close) : len;
}

void strip_unseen(const char *s, size_t len, struct buf *out) {
    size_t at = 0;
    while (at < len && !out->full) {
        const char *lt = memchr(s + at, '<', len - at);
        size_t next = lt ? (size_t)(lt - s) : len;
        (void)buf_add(out, s + at, MIN(next - at, out->max - out->len));
        if (next == len || out->len == out->max)
            return;
        at = skip_unseen(s, len, next);
        if (at == next) {
            (void)buf_add_char(out, '<');
            at++;
        }
    }
}

/* --- text --- */

struct text {
    struct buf *out;
    bool space; /* one is due, unless a line begins */
    unsigned lines;
};

static void add_char(struct text *t, const char *c, size_t n) {
    if (t->lines > 0 && t->out->len > 0)
        (void)buf_add(t->out, "\n\n", MIN(t->lines, 2));
    else if (t->space && t->out->len > 0)
        (void)buf_add_char(t->out, ' ');
    t->lines = 0;
    t->space = false;
    (void)buf_add(t->out, c, n);
}

static void add_code(struct text *t, uint32_t c) {
    char u[4];
    size_t n = 0;
    if (c == 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        c = 0xfffd;
    if (c < 0x80) {
        u[n++] = (char)c;
    } else if (c < 0x800) {
        u[n++] = (char)(0xc0 | c >> 6);
        u[n++] = (char)(0x80 | (c & 63));
    } else {
        if (c < 0x10000) {
            u[n++] = (char)(0xe0 | c >> 12);
        } else {
            u[n++] = (char)(0xf0 | c >> 18);
            u[n++] = (char)(0x80 | (c >> 12 & 63));
        }
        u[n++] = (char)(0x80 | (c >> 6 & 63));
        u[n++] = (char)(0x80 | (c & 63));
    }
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == 0xa0)
        t->space = true;
    else
        add_char(t, u, n);
}

/* A character reference at "&"; how many bytes it took, 0 if it is none. */
static size_t add_reference(struct text *t, const char *s, size_t len) {
    static const struct {
        const char *name;
        uint32_t code;
    } names[] = {{"amp;", '&'},      {"lt;", '<'},       {"gt;", '>'},       {"quot;", '"'},
                 {"apos;", '\''},    {"nbsp;", 0xa0},    {"copy;", 0xa9},    {"hellip;", 0x2026},
                 {"ndash;", 0x2013}, {"mdash;", 0x2014}, {"rsquo;", 0x2019}, {"lsquo;", 0x2018},
                 {"ldquo;", 0x201c}, {"rdquo;", 0x201d}};
    char digits[12] = "";
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        n = strlen(names[i].name);
        if (len > n && memcmp(s + 1, names[i].name, n) == 0) {
            add_code(t, names[i].code);
            return n + 1;
        }
    }
    if (len < 4 || s[1] != '#')
        return 0;
    bool hex = s[2] == 'x' || s[2] == 'X';
    size_t at = hex ? 3 : 2;
    for (n = 0; at + n < len && n < 8 && isxdigit((unsigned char)s[at + n]); n++)
        digits[n] = s[at + n];
    if (n == 0 || at + n >= len || s[at + n] != ';')
        return 0;
    add_code(t, (uint32_t)strtoul(digits, NULL, hex ? 16 : 10));
    return at + n + 1;
}

static void strip_end_line(struct text *t, const char *name) {
    static const char *const blocks[] = {"p",       "div",     "h1",     "h2",     "h3",  "h4",
                                         "h5",      "h6",      "ul",     "ol",     "li",  "tr",
                                         "br",      "hr",      "dt",     "dd",     "pre", "table",
                                         "section", "article", "header", "footer", NULL};
    if (!strip_is_one_of(name, blocks))
        t->space = t->space || strcmp(name, "td") == 0 || strcmp(name, "th") == 0;
    else
        t->lines += strcmp(name, "br") == 0 || strcmp(name, "li") == 0 ? 1 : 2;
}

void strip_tags(const char *s, size_t len, struct buf *out) {
    struct text t = {.out = out};
    size_t at = 0;
    while (at < len && !out->full) {
        unsigned char c = (unsigned char)s[at];
        size_t n;
        if (c == '<' && (n = skip_unseen(s, len, at)) != at) {
            at = n;
        } else if (c == '<' && at + 1 < len &&
                   (isalpha((unsigned char)s[at + 1]) || strchr("/!?", s[at + 1]))) {
            char name[16];
            tag_name(s, len, at, name);
            strip_end_line(&t, name);
            at = tag_end(s, len, at);
        } else if (c == '&' && (n = add_reference(&t, s + at, len - at)) > 0) {
            at += n;
        } else if (isspace(c)) {
            t.space = true;
            at++;
        } else {
            add_char(&t, s + at, 1);
            at++;
        }
    }
}
