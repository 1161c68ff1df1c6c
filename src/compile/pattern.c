#include "compile/pattern.h"

#include "base/cleanup.h"

#include <ctype.h>
#include <string.h>

enum { GROUPS_DEEP_MAX = 32, COUNT_DIGITS_MAX = 4 };

struct pattern_scan {
    const char *at, *end;
    bool looks[GROUPS_DEEP_MAX]; /* of the groups that are open: a look ahead */
    size_t depth;
    bool atom; /* what was read last can be repeated */
};

static bool pattern_take(struct pattern_scan *s, char c) {
    if (s->at == s->end || *s->at != c)
        return false;
    s->at++;
    return true;
}

/* After the backslash: a class, a character or, outside of a class, an assertion. */
static bool pattern_scan_escape(struct pattern_scan *s) {
    if (s->at == s->end)
        return false;
    unsigned char c = (unsigned char)*s->at++;
    s->atom = c != 'b' && c != 'B';
    return c < 0x80 && (ispunct(c) || (c != 0 && strchr("bBdDwWsSnrtfv", c)));
}

/* One character of a class or a range of letters or digits. */
static bool scan_member(struct pattern_scan *s) {
    unsigned char low = (unsigned char)*s->at++;
    if (low == '\\')
        return s->at < s->end && *s->at != 'B' && pattern_scan_escape(s);
    if (low >= 0x80 || s->end - s->at < 2 || s->at[0] != '-' || s->at[1] == ']')
        return low < 0x80;
    unsigned char high = (unsigned char)s->at[1];
    s->at += 2;
    return isalnum(low) && high < 0x80 && isalnum(high) && low <= high;
}

static bool scan_class(struct pattern_scan *s) {
    (void)pattern_take(s, '^');
    while (s->at < s->end && *s->at != ']') {
        bool escaped = *s->at == '\\';
        if (!scan_member(s))
            return false;
        /* \w-x means three characters: somebody else may say so. */
        if (escaped && s->end - s->at > 1 && s->at[0] == '-' && s->at[1] != ']')
            return false;
    }
    s->atom = true;
    return pattern_take(s, ']');
}

static bool scan_count(struct pattern_scan *s, unsigned *ret) {
    unsigned n = 0;
    const char *from = s->at;
    while (s->at < s->end && isdigit((unsigned char)*s->at))
        if (s->at - from == COUNT_DIGITS_MAX)
            return false;
        else
            n = 10 * n + (unsigned)(*s->at++ - '0');
    *ret = n;
    return s->at > from;
}

/* After the brace: {2}, {2,}, {2,3}. */
static bool scan_counts(struct pattern_scan *s) {
    unsigned low;
    unsigned high;
    if (!scan_count(s, &low))
        return false;
    if (pattern_take(s, ',') && s->at < s->end && *s->at != '}' &&
        (!scan_count(s, &high) || high < low))
        return false;
    return pattern_take(s, '}');
}

static bool scan_repeat(struct pattern_scan *s, char c) {
    if (!s->atom || (c == '{' && !scan_counts(s)))
        return false;
    (void)pattern_take(s, '?');
    s->atom = false;
    return true;
}

static bool open_group(struct pattern_scan *s) {
    bool look = false;
    if (pattern_take(s, '?') && !pattern_take(s, ':')) {
        look = pattern_take(s, '=') || pattern_take(s, '!');
        if (!look)
            return false;
    }
    if (s->depth == GROUPS_DEEP_MAX)
        return false;
    s->looks[s->depth++] = look;
    s->atom = false;
    return true;
}

static bool close_group(struct pattern_scan *s) {
    if (s->depth == 0)
        return false;
    s->atom = !s->looks[--s->depth];
    return true;
}

static bool scan_one(struct pattern_scan *s) {
    char c = *s->at++;
    switch (c) {
    case '^':
    case '$':
    case '|':
        s->atom = false;
        return true;
    case '(':
        return open_group(s);
    case ')':
        return close_group(s);
    case '[':
        return scan_class(s);
    case '\\':
        return pattern_scan_escape(s);
    case '*':
    case '+':
    case '?':
    case '{':
        return scan_repeat(s, c);
    case ']':
    case '}':
        return false;
    default:
        s->atom = true;
        return (unsigned char)c < 0x80;
    }
}

bool pattern_is_plain(const char *text, size_t len) {
    struct pattern_scan s = {.at = text, .end = text + len};
    while (s.at < s.end)
        if (!scan_one(&s))
            return false;
    return s.depth == 0;
}
