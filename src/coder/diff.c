#include "coder/diff.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/mem.h"
#include "wire/changes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    CONTEXT = 3,
    LOOK_BYTES = 8000,    /* in which a NUL means that it is no text, as git has it */
    EDITS_MAX = 2000,     /* more differences are not searched for: the middle is replaced */
    STEPS_MAX = 50000000, /* of the search */
    PATCH_LINE = 52,      /* bytes in a line of a binary patch */
    STORED_BYTES = 65535, /* in a block of zlib's that is stored as it is */
};

struct diff_writer {
    diff_out out;
    void *ctx;
};

static void coder_diff_put(const struct diff_writer *w, const char *data, size_t len) {
    if (len > 0)
        w->out(w->ctx, data, len);
}

__attribute__((format(printf, 2, 3))) static void coder_diff_putf(const struct diff_writer *w,
                                                                  const char *fmt, ...) {
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    coder_diff_put(w, text, (size_t)MIN(MAX(n, 0), (int)sizeof(text) - 1));
}

void diff_hash(const char *data, size_t len, unsigned char ret[SHA1_SIZE]) {
    struct sha1 s;
    char head[32];
    int n = snprintf(head, sizeof(head), "blob %zu", len);
    sha1_init(&s);
    sha1_add(&s, head, (size_t)n + 1); /* with its NUL */
    sha1_add(&s, data, len);
    sha1_end(&s, ret);
}

bool diff_is_text(const char *data, size_t len) {
    return len <= CHANGES_TEXT_BYTES && !(len > 0 && memchr(data, 0, MIN(len, LOOK_BYTES)));
}

/* --- names --- */

/* As git quotes them: what is not plain ASCII stands as octal digits. */
static void put_name(const struct diff_writer *w, const char *prefix, const char *path) {
    static const char plain[] = "\a\b\t\n\v\f\r\"\\";
    static const char letters[] = "abtnvfr\"\\";
    bool quoted = false;
    for (const char *p = path; *p; p++)
        quoted = quoted || (unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f || *p == '"' ||
                 *p == '\\';
    coder_diff_putf(w, "%s%s", quoted ? "\"" : "", prefix);
    for (const char *p = path; *p; p++) {
        unsigned char c = (unsigned char)*p;
        const char *known = strchr(plain, c);
        if (known)
            coder_diff_putf(w, "\\%c", letters[known - plain]);
        else if (c < 0x20 || c >= 0x7f)
            coder_diff_putf(w, "\\%03o", c);
        else
            coder_diff_put(w, p, 1);
    }
    if (quoted)
        coder_diff_put(w, "\"", 1);
}

static void put_names(const struct diff_writer *w, const char *path, bool before, bool after) {
    coder_diff_put(w, "--- ", 4);
    if (before)
        put_name(w, "a/", path);
    else
        coder_diff_putf(w, "/dev/null");
    /* git ends a name that has a space by a tab, so that nothing after it counts. */
    coder_diff_putf(w, "%s\n+++ ", before && strchr(path, ' ') ? "\t" : "");
    if (after)
        put_name(w, "b/", path);
    else
        coder_diff_putf(w, "/dev/null");
    coder_diff_putf(w, "%s\n", after && strchr(path, ' ') ? "\t" : "");
}

/* --- lines --- */

struct lines {
    const char *data;
    size_t len;
    uint32_t *starts; /* n + 1 of them */
    uint32_t *hashes;
    bool *changed;
    size_t n;
};

static void lines_init(struct lines *l, const char *data, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += data[i] == '\n' || i + 1 == len;
    *l = (struct lines){.data = data, .len = len, .n = n};
    l->starts = xcalloc(n + 1, sizeof(*l->starts));
    l->hashes = xcalloc(n + 1, sizeof(*l->hashes));
    l->changed = xcalloc(n + 1, sizeof(*l->changed));
    size_t at = 0;
    uint32_t hash = 2166136261U;
    for (size_t i = 0; i < len; i++) {
        hash = (hash ^ (unsigned char)data[i]) * 16777619U;
        if (data[i] != '\n' && i + 1 < len)
            continue;
        l->hashes[at++] = hash;
        l->starts[at] = (uint32_t)(i + 1);
        hash = 2166136261U;
    }
}

static void lines_finish(struct lines *l) {
    free(l->starts);
    free(l->hashes);
    free(l->changed);
}

static bool lines_equal(const struct lines *a, size_t i, const struct lines *b, size_t j) {
    size_t n = a->starts[i + 1] - a->starts[i];
    return a->hashes[i] == b->hashes[j] && n == b->starts[j + 1] - b->starts[j] &&
           memcmp(a->data + a->starts[i], b->data + b->starts[j], n) == 0;
}

static void coder_diff_mark(struct lines *l, size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        l->changed[i] = true;
}

/* Myers' search for the fewest edits that make b[..] of a[..], between the lines that are the same
 * at both ends. What it saw on its way is kept (`trail`), and followed back. */
struct search {
    struct lines *a, *b;
    ptrdiff_t from_a, from_b, n, m;
    int32_t *v;      /* the furthest on each diagonal, EDITS_MAX + 1 is the middle */
    int32_t **trail; /* v as it was before each round, of its round's width */
    uint64_t steps;
};

static ptrdiff_t search_run(struct search *s) {
    ptrdiff_t mid = EDITS_MAX + 1;
    for (ptrdiff_t d = 0; d <= EDITS_MAX && d <= s->n + s->m; d++) {
        size_t width = 2 * (size_t)d + 3;
        s->trail[d] = xmalloc(width * sizeof(int32_t));
        memcpy(s->trail[d], s->v + mid - d - 1, width * sizeof(int32_t));
        for (ptrdiff_t k = -d; k <= d; k += 2) {
            int32_t *v = s->v + mid + k;
            ptrdiff_t x = k == -d || (k != d && v[-1] < v[1]) ? v[1] : v[-1] + 1;
            ptrdiff_t y = x - k;
            while (x < s->n && y < s->m && y >= 0 &&
                   lines_equal(s->a, (size_t)(s->from_a + x), s->b, (size_t)(s->from_b + y))) {
                x++;
                y++;
                s->steps++;
            }
            *v = (int32_t)x;
            if (x >= s->n && y >= s->m)
                return d;
        }
        if (s->steps > STEPS_MAX)
            break;
    }
    return -1;
}

static void search_follow(const struct search *s, ptrdiff_t d) {
    ptrdiff_t x = s->n;
    ptrdiff_t y = s->m;
    for (; d > 0; d--) {
        const int32_t *v = s->trail[d] + d + 1; /* of diagonal 0 */
        ptrdiff_t k = x - y;
        bool down = k == -d || (k != d && v[k - 1] < v[k + 1]);
        ptrdiff_t before = down ? k + 1 : k - 1;
        x = v[before];
        y = x - before;
        if (down)
            s->b->changed[s->from_b + y] = true;
        else
            s->a->changed[s->from_a + x] = true;
    }
}

static void compare_lines(struct lines *a, struct lines *b) {
    size_t head = 0;
    size_t tail = 0;
    while (head < a->n && head < b->n && lines_equal(a, head, b, head))
        head++;
    while (tail < a->n - head && tail < b->n - head &&
           lines_equal(a, a->n - 1 - tail, b, b->n - 1 - tail))
        tail++;
    struct search s = {.a = a,
                       .b = b,
                       .from_a = (ptrdiff_t)head,
                       .from_b = (ptrdiff_t)head,
                       .n = (ptrdiff_t)(a->n - head - tail),
                       .m = (ptrdiff_t)(b->n - head - tail)};
    ptrdiff_t d = -1;
    if (s.n > 0 && s.m > 0) {
        s.v = xcalloc(2 * (EDITS_MAX + 2) + 1, sizeof(*s.v));
        s.trail = xcalloc(EDITS_MAX + 1, sizeof(*s.trail));
        d = search_run(&s);
        if (d >= 0)
            search_follow(&s, d);
        for (size_t i = 0; i <= EDITS_MAX; i++)
            free(s.trail[i]);
        free((void *)s.trail);
        free(s.v);
    }
    if (d < 0) {
        coder_diff_mark(a, head, a->n - tail);
        coder_diff_mark(b, head, b->n - tail);
    }
}

/* --- hunks --- */

static void put_line(const struct diff_writer *w, char sign, const struct lines *l, size_t i) {
    size_t n = l->starts[i + 1] - l->starts[i];
    const char *text = l->data + l->starts[i];
    coder_diff_put(w, &sign, 1);
    coder_diff_put(w, text, n);
    if (text[n - 1] != '\n')
        coder_diff_putf(w, "\n\\ No newline at end of file\n");
}

/* "12,3"; an empty range is told by the line before it, a single line without its number. */
static void put_range(const struct diff_writer *w, char sign, size_t from, size_t n) {
    coder_diff_putf(w, "%c%zu", sign, from + (n > 0));
    if (n != 1)
        coder_diff_putf(w, ",%zu", n);
}

static bool is_changed(const struct lines *l, size_t i) {
    return i < l->n && l->changed[i];
}

/* Both stand at a change. Where the hunk ends: after CONTEXT lines that are the same, unless the
 * next change is near. */
static void hunk_end(const struct lines *a, const struct lines *b, size_t *i, size_t *j) {
    size_t same = 0;
    size_t x = *i;
    size_t y = *j;
    while ((x < a->n || y < b->n) && same <= 2 * CONTEXT) {
        if (is_changed(a, x) || is_changed(b, y)) {
            while (is_changed(a, x))
                x++;
            while (is_changed(b, y))
                y++;
            same = 0;
            *i = x;
            *j = y;
        } else {
            x++;
            y++;
            same++;
        }
    }
}

static void put_hunk(const struct diff_writer *w, const struct lines *a, const struct lines *b,
                     size_t range[4]) {
    size_t i = range[0];
    size_t j = range[1];
    coder_diff_put(w, "@@ ", 3);
    put_range(w, '-', range[0], range[2] - range[0]);
    coder_diff_put(w, " ", 1);
    put_range(w, '+', range[1], range[3] - range[1]);
    coder_diff_putf(w, " @@\n");
    while (i < range[2] || j < range[3]) {
        if (i < range[2] && is_changed(a, i))
            put_line(w, '-', a, i++);
        else if (j < range[3] && is_changed(b, j))
            put_line(w, '+', b, j++);
        else {
            put_line(w, ' ', a, i++);
            j++;
        }
    }
}

static void put_hunks(const struct diff_writer *w, const struct diff_side *before,
                      const struct diff_side *after) {
    struct lines a, b;
    lines_init(&a, before->data, before->len);
    lines_init(&b, after->data, after->len);
    compare_lines(&a, &b);
    size_t i = 0;
    size_t j = 0;
    while (i < a.n || j < b.n) {
        if (!is_changed(&a, i) && !is_changed(&b, j)) {
            i++;
            j++;
            continue;
        }
        size_t back = MIN(MIN(i, j), (size_t)CONTEXT);
        size_t range[4] = {i - back, j - back};
        hunk_end(&a, &b, &i, &j);
        size_t on = MIN(a.n - i, (size_t)CONTEXT);
        range[2] = i + on;
        range[3] = j + on;
        put_hunk(w, &a, &b, range);
        i += on;
        j += on;
    }
    lines_finish(&a);
    lines_finish(&b);
}

/* --- binary patches --- */

struct patch {
    const struct diff_writer *w;
    unsigned char line[PATCH_LINE];
    size_t have;
};

static void patch_flush(struct patch *p) {
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                 "!#$%&()*+-;<=>?@^_`{|}~";
    char text[1 + PATCH_LINE / 4 * 5 + 1];
    size_t n = 0;
    if (p->have == 0)
        return;
    text[n++] = (char)(p->have <= 26 ? 'A' + (int)p->have - 1 : 'a' + (int)p->have - 27);
    memset(p->line + p->have, 0, sizeof(p->line) - p->have);
    for (size_t i = 0; i < p->have; i += 4) {
        uint32_t v = (uint32_t)p->line[i] << 24 | (uint32_t)p->line[i + 1] << 16 |
                     (uint32_t)p->line[i + 2] << 8 | p->line[i + 3];
        for (int k = 4; k >= 0; k--, v /= 85)
            text[n + (size_t)k] = digits[v % 85];
        n += 5;
    }
    text[n++] = '\n';
    coder_diff_put(p->w, text, n);
    p->have = 0;
}

static void patch_add(struct patch *p, const void *data, size_t len) {
    const unsigned char *from = data;
    while (len > 0) {
        size_t n = MIN(len, sizeof(p->line) - p->have);
        memcpy(p->line + p->have, from, n);
        p->have += n;
        from += n;
        len -= n;
        if (p->have == sizeof(p->line))
            patch_flush(p);
    }
}

static uint32_t coder_diff_adler32(const char *data, size_t len) {
    uint32_t a = 1;
    uint32_t b = 0;
    for (size_t i = 0; i < len;) {
        for (size_t end = MIN(len, i + 5000); i < end; i++) {
            a += (unsigned char)data[i];
            b += a;
        }
        a %= 65521;
        b %= 65521;
    }
    return b << 16 | a;
}

/* "literal": zlib's format, with blocks that are stored as they are. */
static void put_patch(const struct diff_writer *w, const char *data, size_t len) {
    struct patch p = {.w = w};
    static const unsigned char head[] = {0x78, 0x01};
    coder_diff_putf(w, "GIT binary patch\nliteral %zu\n", len);
    patch_add(&p, head, sizeof(head));
    size_t at = 0;
    do {
        size_t n = MIN(len - at, (size_t)STORED_BYTES);
        unsigned char block[5] = {at + n == len, (unsigned char)n, (unsigned char)(n >> 8),
                                  (unsigned char)~n, (unsigned char)(~n >> 8)};
        patch_add(&p, block, sizeof(block));
        patch_add(&p, data + at, n);
        at += n;
    } while (at < len);
    uint32_t sum = coder_diff_adler32(data, len);
    unsigned char end[4] = {(unsigned char)(sum >> 24), (unsigned char)(sum >> 16),
                            (unsigned char)(sum >> 8), (unsigned char)sum};
    patch_add(&p, end, sizeof(end));
    patch_flush(&p);
    coder_diff_putf(w, "\n");
}

/* --- a file --- */

static void put_index(const struct diff_writer *w, const struct diff_side *before,
                      const struct diff_side *after) {
    char a[SHA1_HEX_SIZE];
    char b[SHA1_HEX_SIZE];
    sha1_hex(before->hash, a);
    sha1_hex(after->hash, b);
    coder_diff_putf(w, "index %s..%s", a, b);
    if (before->mode == after->mode)
        coder_diff_putf(w, " %06o", after->mode);
    coder_diff_putf(w, "\n");
}

/* Both are of one kind, or one is not there. */
static void write_one(const struct diff_writer *w, const char *path, const struct diff_side *before,
                      const struct diff_side *after) {
    bool same = memcmp(before->hash, after->hash, SHA1_SIZE) == 0;
    coder_diff_putf(w, "diff --git ");
    put_name(w, "a/", path);
    coder_diff_put(w, " ", 1);
    put_name(w, "b/", path);
    coder_diff_put(w, "\n", 1);
    if (!before->mode)
        coder_diff_putf(w, "new file mode %06o\n", after->mode);
    else if (!after->mode)
        coder_diff_putf(w, "deleted file mode %06o\n", before->mode);
    else if (before->mode != after->mode)
        coder_diff_putf(w, "old mode %06o\nnew mode %06o\n", before->mode, after->mode);
    if (same)
        return;
    put_index(w, before, after);
    bool text = (!before->mode || (before->data && diff_is_text(before->data, before->len))) &&
                diff_is_text(after->data, after->len);
    if (!text) {
        put_patch(w, after->data, after->len);
    } else if (before->len > 0 || after->len > 0) {
        put_names(w, path, before->mode != 0, after->mode != 0);
        put_hunks(w, before, after);
    }
}

void diff_write(const char *path, const struct diff_side *before, const struct diff_side *after,
                diff_out out, void *ctx) {
    struct diff_writer w = {out, ctx};
    static const struct diff_side none = {.data = ""};
    bool kind = before->mode && after->mode && S_ISLNK(before->mode) != S_ISLNK(after->mode);
    if (kind) {
        write_one(&w, path, before, &none);
        write_one(&w, path, &none, after);
    } else {
        write_one(&w, path, before, after);
    }
}
