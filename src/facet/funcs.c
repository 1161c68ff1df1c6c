#include "facet/funcs.h"

#include "base/cleanup.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static size_t limit_of(sqlite3_context *ctx) {
    return (size_t)sqlite3_limit(sqlite3_context_db_handle(ctx), SQLITE_LIMIT_LENGTH, -1);
}

/* Text or blob as bytes; a number is turned into text. */
static const char *facet_funcs_bytes_of(sqlite3_value *v, size_t *ret_len) {
    const void *p = sqlite3_value_type(v) == SQLITE_BLOB ? sqlite3_value_blob(v)
                                                         : (const void *)sqlite3_value_text(v);
    *ret_len = (size_t)sqlite3_value_bytes(v);
    return p ? p : "";
}

static const char *facet_funcs_text_of(sqlite3_value *v, size_t *ret_len) {
    const unsigned char *p = sqlite3_value_text(v);
    *ret_len = (size_t)sqlite3_value_bytes(v);
    return p ? (const char *)p : "";
}

static bool any_null(int n, sqlite3_value **argv) {
    for (int i = 0; i < n; i++)
        if (sqlite3_value_type(argv[i]) == SQLITE_NULL)
            return true;
    return false;
}

/* Ends the text and makes it the result, unless it or the caller (rc) failed. */
static void result_str(sqlite3_context *ctx, sqlite3_str *out, int rc, const char *if_empty) {
    if (rc == SQLITE_OK)
        rc = sqlite3_str_errcode(out);
    int len = sqlite3_str_length(out);
    char *s = sqlite3_str_finish(out);
    if (rc == SQLITE_OK)
        sqlite3_result_text(ctx, s ? s : if_empty, len, s ? sqlite3_free : SQLITE_STATIC);
    else
        sqlite3_free(s);
    if (rc == SQLITE_TOOBIG)
        sqlite3_result_error_toobig(ctx);
    else if (rc != SQLITE_OK)
        sqlite3_result_error_nomem(ctx);
}

/* SQLite compares at every place: 2 MB in 1 MB takes minutes. memmem() is linear. */
static void fn_instr(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
    if (any_null(argc, argv))
        return;
    bool blobs =
        sqlite3_value_type(argv[0]) == SQLITE_BLOB && sqlite3_value_type(argv[1]) == SQLITE_BLOB;
    size_t n;
    size_t m;
    const char *hay = blobs ? facet_funcs_bytes_of(argv[0], &n) : facet_funcs_text_of(argv[0], &n);
    const char *needle =
        blobs ? facet_funcs_bytes_of(argv[1], &m) : facet_funcs_text_of(argv[1], &m);
    const char *hit = m == 0 ? hay : memmem(hay, n, needle, m);
    if (!hit) {
        sqlite3_result_int(ctx, 0);
        return;
    }
    sqlite3_int64 at = 1;
    for (const char *p = hay; p < hit; p++)
        at += blobs || ((unsigned char)*p & 0xc0) != 0x80;
    sqlite3_result_int64(ctx, at);
}

static void fn_replace(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
    (void)argc;
    if (any_null(2, argv))
        return;
    size_t n;
    size_t m;
    const char *text = facet_funcs_text_of(argv[0], &n);
    const char *from = facet_funcs_text_of(argv[1], &m);
    if (m == 0 || from[0] == 0) {
        /* As SQLite does: 3.40 answers what it was given, 3.46 its text. */
        if (sqlite3_libversion_number() >= 3046000)
            sqlite3_result_text(ctx, text, (int)n, SQLITE_TRANSIENT);
        else
            sqlite3_result_value(ctx, argv[0]);
        return;
    }
    if (any_null(1, argv + 2))
        return;
    size_t k;
    const char *to = facet_funcs_text_of(argv[2], &k);
    const char *hit = memmem(text, n, from, m);
    sqlite3_str *out = sqlite3_str_new(sqlite3_context_db_handle(ctx));
    const char *end = text + n;
    while (hit && sqlite3_str_errcode(out) == SQLITE_OK) {
        sqlite3_str_append(out, text, (int)(hit - text));
        sqlite3_str_append(out, to, (int)k);
        text = hit + m;
        hit = memmem(text, (size_t)(end - text), from, m);
    }
    sqlite3_str_append(out, text, (int)(end - text));
    result_str(ctx, out, SQLITE_OK, "");
}

enum { TRIM_WIDE_MAX = 64 };

/* The characters to trim: single bytes in a map, longer ones in a short list. */
struct trim_set {
    bool byte[256];
    const char *wide[TRIM_WIDE_MAX];
    size_t wide_len[TRIM_WIDE_MAX];
    size_t nwide;
};

static bool trim_set_read(struct trim_set *s, const char *p, size_t n) {
    *s = (struct trim_set){0};
    for (size_t i = 0; i < n;) {
        size_t len = 1;
        while ((unsigned char)p[i] >= 0xc0 && i + len < n &&
               ((unsigned char)p[i + len] & 0xc0) == 0x80)
            len++;
        if (len == 1) {
            s->byte[(unsigned char)p[i]] = true;
        } else if (s->nwide < TRIM_WIDE_MAX) {
            s->wide[s->nwide] = p + i;
            s->wide_len[s->nwide++] = len;
        } else {
            return false;
        }
        i += len;
    }
    return true;
}

/* Length of the character of the set at the beginning (or the end) of the text, 0 if none. */
static size_t trim_hit(const struct trim_set *s, const char *p, size_t n, bool at_end) {
    if (n == 0)
        return 0;
    if (s->byte[(unsigned char)p[at_end ? n - 1 : 0]])
        return 1;
    for (size_t i = 0; i < s->nwide; i++)
        if (s->wide_len[i] <= n &&
            memcmp(at_end ? p + n - s->wide_len[i] : p, s->wide[i], s->wide_len[i]) == 0)
            return s->wide_len[i];
    return 0;
}

static void fn_trim(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
    if (any_null(argc, argv))
        return;
    const char *sides = sqlite3_user_data(ctx);
    size_t n;
    const char *p = facet_funcs_text_of(argv[0], &n);
    size_t m = 1;
    const char *chars = argc > 1 ? facet_funcs_text_of(argv[1], &m) : " ";
    struct trim_set set;
    if (!trim_set_read(&set, chars, strnlen(chars, m))) {
        sqlite3_result_error(ctx, "trim: more than 64 characters beyond ASCII to remove", -1);
        return;
    }
    size_t hit;
    while (strchr(sides, 'l') && (hit = trim_hit(&set, p, n, false)) > 0) {
        p += hit;
        n -= hit;
    }
    while (strchr(sides, 'r') && (hit = trim_hit(&set, p, n, true)) > 0)
        n -= hit;
    sqlite3_result_text(ctx, p, (int)n, SQLITE_TRANSIENT);
}

/* One %... of a format. */
struct spec {
    char flags[8];
    size_t nflags;
    int width;
    int precision; /* -1: none */
    char conversion;
};

struct format {
    const char *at;
    const char *end;
    int argc;
    sqlite3_value **argv;
    int used;
    sqlite3_str *out;
    size_t limit;
};

static sqlite3_value *next_arg(struct format *f) {
    return f->used < f->argc ? f->argv[f->used++] : NULL;
}

/* Digits or an argument, cut to an int as SQLite does. */
static int next_number(struct format *f) {
    if (f->at < f->end && *f->at == '*') {
        f->at++;
        sqlite3_value *v = next_arg(f);
        return v ? (int)sqlite3_value_int64(v) : 0;
    }
    unsigned n = 0;
    while (f->at < f->end && *f->at >= '0' && *f->at <= '9')
        n = n * 10 + (unsigned)(*f->at++ - '0');
    return (int)(n & INT32_MAX);
}

static void next_spec(struct format *f, struct spec *s) {
    *s = (struct spec){.precision = -1};
    while (f->at < f->end && strchr("-+ 0#!,", *f->at) && *f->at) {
        if (s->nflags < sizeof(s->flags) - 1 && !strchr(s->flags, *f->at))
            s->flags[s->nflags++] = *f->at;
        f->at++;
    }
    s->width = next_number(f);
    if (s->width < 0) {
        s->width = s->width == INT32_MIN ? 0 : -s->width;
        if (!strchr(s->flags, '-'))
            s->flags[s->nflags++] = '-';
    }
    if (f->at < f->end && *f->at == '.') {
        f->at++;
        s->precision = next_number(f);
        if (s->precision < 0)
            s->precision = s->precision == INT32_MIN ? -1 : -s->precision;
    }
    while (f->at < f->end && *f->at == 'l')
        f->at++;
    s->conversion = f->at < f->end ? *f->at++ : 0;
}

/* What SQLite's own printf makes of one conversion. Widths and precisions are checked before. */
static void put_spec(struct format *f, const struct spec *s) {
    char fmt[80];
    char width[24] = "";
    char precision[24] = "";
    if (s->width > 0)
        (void)snprintf(width, sizeof(width), "%d", s->width);
    if (s->precision >= 0)
        (void)snprintf(precision, sizeof(precision), ".%d", s->precision);
    const char *length = strchr("diuxXo", s->conversion) ? "ll" : "";
    (void)snprintf(fmt, sizeof(fmt), "%%%s%s%s%s%c", s->flags, width, precision, length,
                   s->conversion);
    sqlite3_value *v = s->conversion == '%' ? NULL : next_arg(f);
    switch (s->conversion) {
    case '%':
        sqlite3_str_appendf(f->out, fmt);
        break;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        sqlite3_str_appendf(f->out, fmt, v ? sqlite3_value_int64(v) : (sqlite3_int64)0);
        break;
    case 'f':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
        sqlite3_str_appendf(f->out, fmt, v ? sqlite3_value_double(v) : 0.0);
        break;
    default: {
        const char *text = v ? (const char *)sqlite3_value_text(v) : NULL;
        if (!text && (s->conversion == 's' || s->conversion == 'z'))
            text = "";
        fmt[strlen(fmt) - 1] = s->conversion == 'z' ? 's' : s->conversion;
        sqlite3_str_appendf(f->out, fmt, text);
    }
    }
}

/* %c: the first character of the argument, `precision` times. */
static void put_char(struct format *f, const struct spec *s) {
    sqlite3_value *v = next_arg(f);
    size_t n = 0;
    const char *text = v ? facet_funcs_text_of(v, &n) : "";
    size_t len = 1; /* SQLite makes a NUL of the empty text */
    while (len < n && (unsigned char)text[0] >= 0xc0 && ((unsigned char)text[len] & 0xc0) == 0x80 &&
           len < 4)
        len++;
    int count = s->precision > 1 ? s->precision : 1;
    int pad = s->width > count ? s->width - count : 0;
    bool left = strchr(s->flags, '-') != NULL;
    if (!left && pad > 0)
        sqlite3_str_appendchar(f->out, pad, ' ');
    for (int i = 0; i < count && sqlite3_str_errcode(f->out) == SQLITE_OK; i++)
        sqlite3_str_append(f->out, text, (int)len);
    if (left && pad > 0)
        sqlite3_str_appendchar(f->out, pad, ' ');
}

enum { PRECISION_MAX = 1000 };

/* printf('%.*c', 900000000, 'x') counts to 900000000 in SQLite even when the result is refused. */
static void fn_printf(sqlite3_context *ctx, int argc, sqlite3_value **argv) {
    size_t n;
    if (argc < 1 || sqlite3_value_type(argv[0]) == SQLITE_NULL)
        return;
    const char *text = facet_funcs_text_of(argv[0], &n);
    struct format f = {.at = text,
                       .end = text + strnlen(text, n),
                       .argc = argc - 1,
                       .argv = argv + 1,
                       .out = sqlite3_str_new(sqlite3_context_db_handle(ctx)),
                       .limit = limit_of(ctx)};
    int rc = SQLITE_OK;
    while (f.at < f.end && rc == SQLITE_OK) {
        const char *percent = memchr(f.at, '%', (size_t)(f.end - f.at));
        size_t plain = (size_t)((percent ? percent : f.end) - f.at);
        sqlite3_str_append(f.out, f.at, (int)plain);
        f.at += plain;
        if (!percent)
            break;
        f.at++;
        struct spec s;
        next_spec(&f, &s);
        if (!s.conversion || !strchr("diuxXofeEgGszqQwcn%", s.conversion))
            break; /* as SQLite does: an unknown conversion ends the text */
        if (s.conversion == 'n')
            continue;
        bool number = strchr("diuxXofeEgG", s.conversion) != NULL;
        if ((size_t)s.width > f.limit ||
            (s.conversion == 'c' && (long)s.precision > (long)f.limit) ||
            (number && s.precision > PRECISION_MAX)) {
            rc = SQLITE_TOOBIG;
            break;
        }
        if (s.conversion == 'c')
            put_char(&f, &s);
        else
            put_spec(&f, &s);
        rc = sqlite3_str_errcode(f.out);
    }
    result_str(ctx, f.out, rc, NULL);
}

int funcs_install(struct sqlite3 *db) {
    static const struct {
        const char *name;
        int nargs;
        void (*fn)(sqlite3_context *, int, sqlite3_value **);
        const char *data;
    } FUNCS[] = {
        {"instr", 2, fn_instr, NULL},    {"replace", 3, fn_replace, NULL},
        {"trim", 1, fn_trim, "lr"},      {"trim", 2, fn_trim, "lr"},
        {"ltrim", 1, fn_trim, "l"},      {"ltrim", 2, fn_trim, "l"},
        {"rtrim", 1, fn_trim, "r"},      {"rtrim", 2, fn_trim, "r"},
        {"printf", -1, fn_printf, NULL}, {"format", -1, fn_printf, NULL},
    };
    /* INNOCUOUS: views, triggers and indexes may use them although the schema is not trusted. */
    const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
    for (size_t i = 0; i < ARRAY_LEN(FUNCS); i++) {
        int rc = sqlite3_create_function_v2(db, FUNCS[i].name, FUNCS[i].nargs, flags,
                                            (void *)(uintptr_t)FUNCS[i].data, FUNCS[i].fn, NULL,
                                            NULL, NULL);
        if (rc != SQLITE_OK)
            return rc;
    }
    return 0;
}
