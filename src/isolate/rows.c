#include "isolate/rows.h"

#include <string.h>

enum { COLUMNS_MAX = 64 };

struct cursor {
    const char *at;
    const char *end;
};

static bool isolate_rows_take(struct cursor *c, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0)
        return false;
    c->at += n;
    return true;
}

static bool take_char(struct cursor *c, char ch) {
    if (c->at == c->end || *c->at != ch)
        return false;
    c->at++;
    return true;
}

/* A string with its quotes. */
static bool isolate_rows_skip_string(struct cursor *c) {
    if (!take_char(c, '"'))
        return false;
    while (c->at < c->end && *c->at != '"') {
        if (*c->at == '\\')
            c->at++;
        if (c->at < c->end)
            c->at++;
    }
    return take_char(c, '"');
}

/* A string, or what has no structure: a number, true, false, null. */
static bool skip_cell(struct cursor *c) {
    const char *from = c->at;
    if (c->at < c->end && *c->at == '"')
        return isolate_rows_skip_string(c);
    while (c->at < c->end && (unsigned char)*c->at > ' ' && !strchr(",[]{}:\"", *c->at))
        c->at++;
    return c->at > from;
}

/* Each column's name with what comes before and after it in an object. */
struct keys {
    struct {
        const char *text;
        size_t len;
    } key[COLUMNS_MAX];
    size_t count;
};

static bool read_columns(struct cursor *c, struct keys *k) {
    k->count = 0;
    if (!isolate_rows_take(c, "{\"columns\":["))
        return false;
    while (k->count < COLUMNS_MAX) {
        const char *from = c->at;
        if (!isolate_rows_skip_string(c))
            return false;
        k->key[k->count].text = from;
        k->key[k->count++].len = (size_t)(c->at - from);
        if (take_char(c, ']'))
            return true;
        if (!take_char(c, ','))
            return false;
    }
    return false;
}

static bool read_row(struct cursor *c, const struct keys *k, struct buf *out) {
    if (!take_char(c, '['))
        return false;
    for (size_t i = 0; i < k->count; i++) {
        const char *from = c->at;
        if (!skip_cell(c))
            return false;
        (void)buf_add_char(out, i == 0 ? '{' : ',');
        (void)buf_add(out, k->key[i].text, k->key[i].len);
        (void)buf_add_char(out, ':');
        (void)buf_add(out, from, (size_t)(c->at - from));
        if (!take_char(c, i + 1 == k->count ? ']' : ','))
            return false;
    }
    (void)buf_add_char(out, '}');
    return !out->full;
}

bool rows_to_objects(const char *text, size_t len, struct buf *out) {
    struct cursor c = {text, text + len};
    struct keys k;
    if (!read_columns(&c, &k) || !isolate_rows_take(&c, ",\"rows\":["))
        return false;
    (void)buf_add_char(out, '[');
    for (bool first = true; !take_char(&c, ']'); first = false) {
        if (!first && (!take_char(&c, ',') || !buf_add_char(out, ',')))
            return false;
        if (!read_row(&c, &k, out))
            return false;
    }
    (void)buf_add_char(out, ']');
    return take_char(&c, '}') && c.at == c.end && !out->full;
}
