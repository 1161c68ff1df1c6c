#include "base/ignore.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A pattern is matched part by part, and in both loops only the last star is gone back to. So the
 * time is bounded by the product of the lengths, whatever the pattern. */

struct ignore_rule {
    char *pattern; /* without "!", a "/" in front or behind */
    char *dir;     /* whose file has it: "" or "a/b" */
    bool negated;
    bool dirs_only;
    bool anchored; /* to dir; else it matches the last part of a path */
};

void ignore_drop(struct ignore *g, size_t n) {
    while (g->n > n) {
        g->n--;
        free(g->rules[g->n].pattern);
        free(g->rules[g->n].dir);
    }
}

void ignore_finish(struct ignore *g) {
    ignore_drop(g, 0);
    free(g->rules);
    *g = (struct ignore){0};
}

/* Trailing spaces do not count, unless a backslash stands before them. */
static size_t line_length(const char *line, size_t n) {
    if (n > 0 && line[n - 1] == '\r')
        n--;
    while (n > 0 && line[n - 1] == ' ' && !(n > 1 && line[n - 2] == '\\'))
        n--;
    return n;
}

static void add_line(struct ignore *g, const char *dir, const char *line, size_t n) {
    struct ignore_rule r = {0};
    n = line_length(line, n);
    if (n == 0 || *line == '#')
        return;
    if (*line == '!') {
        r.negated = true;
        line++;
        n--;
    }
    if (n > 0 && line[n - 1] == '/') {
        r.dirs_only = true;
        n--;
    }
    r.anchored = memchr(line, '/', n) != NULL;
    if (n > 0 && *line == '/') {
        line++;
        n--;
    }
    if (n == 0 || memchr(line, 0, n))
        return;
    if (g->n == IGNORE_RULES_MAX) {
        g->full = true;
        return;
    }
    if (g->n == g->room) {
        g->room = 2 * g->room + 16;
        g->rules = xrealloc(g->rules, g->room * sizeof(*g->rules));
    }
    r.pattern = xstrndup(line, n);
    r.dir = xstrdup(dir);
    g->rules[g->n++] = r;
}

void ignore_add(struct ignore *g, const char *dir, const char *text, size_t len) {
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        len -= 3;
    }
    while (len > 0) {
        const char *end = memchr(text, '\n', len);
        size_t n = end ? (size_t)(end - text) : len;
        add_line(g, dir, text, n);
        n += end != NULL;
        text += n;
        len -= n;
    }
}

void ignore_read(struct ignore *g, int fd, const char *name, const char *dir) {
    struct stat st;
    _cleanup_(close) int file =
        openat(fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (file < 0 || fstat(file, &st) < 0 || !S_ISREG(st.st_mode))
        return;
    _cleanup_(free) char *text = xmalloc(IGNORE_FILE_BYTES);
    ssize_t n = fd_read_all(file, text, IGNORE_FILE_BYTES);
    if (n > 0)
        ignore_add(g, dir, text, (size_t)n);
    g->full = g->full || n == IGNORE_FILE_BYTES;
}

/* "[:digit:]" at p, in a set; its end, or NULL if it is none that is known. */
static const char *match_class(const char *p, const char *end, unsigned char c, bool *found) {
    static const struct {
        const char *name;
        int (*has)(int);
    } classes[] = {{"[:alnum:]", isalnum}, {"[:alpha:]", isalpha}, {"[:blank:]", isblank},
                   {"[:cntrl:]", iscntrl}, {"[:digit:]", isdigit}, {"[:graph:]", isgraph},
                   {"[:lower:]", islower}, {"[:print:]", isprint}, {"[:punct:]", ispunct},
                   {"[:space:]", isspace}, {"[:upper:]", isupper}, {"[:xdigit:]", isxdigit}};
    for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++) {
        size_t n = strlen(classes[i].name);
        if ((size_t)(end - p) < n || memcmp(p, classes[i].name, n) != 0)
            continue;
        *found = *found || (c < 0x80 && classes[i].has(c));
        return p + n;
    }
    return NULL;
}

/* "[a-z]" at p, after the bracket; the end of the set, or NULL if there is none. */
static const char *match_set(const char *p, const char *end, unsigned char c, bool *ret) {
    bool negated = p < end && (*p == '!' || *p == '^');
    bool found = false;
    p += negated;
    for (bool first = true; p < end && (first || *p != ']'); first = false) {
        const char *after = match_class(p, end, c, &found);
        if (after) {
            p = after;
            continue;
        }
        if (*p == '\\' && p + 1 < end)
            p++;
        unsigned char from = (unsigned char)*p++;
        unsigned char to = from;
        if (end - p >= 2 && *p == '-' && p[1] != ']') {
            p++;
            if (*p == '\\' && p + 1 < end)
                p++;
            to = (unsigned char)*p++;
        }
        found = found || (c >= from && c <= to);
    }
    *ret = found != negated;
    return p < end ? p + 1 : NULL;
}

/* One character of a pattern that is no star, against one of a name. The rest of the pattern, or
 * NULL if they do not match. */
static const char *match_char(const char *p, const char *end, unsigned char c) {
    bool in = false;
    if (*p == '?')
        return p + 1;
    if (*p == '[') {
        const char *after = match_set(p + 1, end, c, &in);
        return after && in ? after : NULL; /* a set without an end is nothing */
    }
    if (*p == '\\' && p + 1 < end)
        p++;
    return (unsigned char)*p == c ? p + 1 : NULL;
}

static bool match_part(const char *p, const char *pend, const char *s, const char *send) {
    const char *star = NULL;
    const char *from = NULL;
    while (s < send) {
        const char *next = NULL;
        if (p < pend && *p == '*') {
            star = ++p;
            from = s;
            continue;
        }
        if (p < pend)
            next = match_char(p, pend, (unsigned char)*s);
        if (next) {
            p = next;
            s++;
        } else if (star) {
            p = star;
            s = ++from;
        } else {
            return false;
        }
    }
    while (p < pend && *p == '*')
        p++;
    return p == pend;
}

static const char *part_end(const char *p) {
    return p + strcspn(p, "/");
}

static const char *ignore_next_part(const char *end) {
    return *end ? end + 1 : NULL;
}

static bool is_any(const char *p, const char *end) {
    return end - p == 2 && p[0] == '*' && p[1] == '*';
}

/* NULL is the end, in both. */
static bool ignore_match_path(const char *p, const char *s) {
    const char *any = NULL; /* after the last "**" */
    const char *from = NULL;
    while (s) {
        const char *send = part_end(s);
        const char *pend = p ? part_end(p) : NULL;
        if (p && is_any(p, pend)) {
            any = ignore_next_part(pend);
            from = s;
            if (!any)
                return true; /* at the end: everything inside */
            p = any;
        } else if (p && match_part(p, pend, s, send)) {
            p = ignore_next_part(pend);
            s = ignore_next_part(send);
        } else if (any) {
            p = any;
            s = from = ignore_next_part(part_end(from));
        } else {
            return false;
        }
    }
    return !p;
}

static bool rule_matches(const struct ignore_rule *r, const char *path, bool is_dir) {
    size_t n = strlen(r->dir);
    if (r->dirs_only && !is_dir)
        return false;
    if (n > 0 && (strncmp(path, r->dir, n) != 0 || path[n] != '/'))
        return false;
    if (n > 0)
        path += n + 1;
    if (r->anchored)
        return ignore_match_path(r->pattern, path);
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return match_part(r->pattern, r->pattern + strlen(r->pattern), name, name + strlen(name));
}

bool ignore_matches(const struct ignore *g, const char *path, bool is_dir) {
    for (size_t i = g->n; i > 0; i--)
        if (rule_matches(&g->rules[i - 1], path, is_dir))
            return !g->rules[i - 1].negated;
    return false;
}
