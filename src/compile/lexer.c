#include "compile/lexer.h"

#include "compile/pattern.h"

#include <string.h>

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_hex(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool is_word_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
}

static bool is_word(char c) {
    return is_word_start(c) || is_digit(c);
}

/* The character n places on; 0 behind the end. */
static char lexer_peek(const struct lexer *l, size_t n) {
    return l->len - l->at > n ? l->text[l->at + n] : 0;
}

static bool skip_line(struct lexer *l) {
    const char *end = memchr(l->text + l->at, '\n', l->len - l->at);
    l->at = end ? (size_t)(end - l->text) : l->len;
    return true;
}

static bool skip_comment(struct lexer *l, bool *newline) {
    const char *from = l->text + l->at + 2;
    const char *end = memmem(from, l->len - l->at - 2, "*/", 2);
    if (!end)
        return false;
    *newline = *newline || memchr(from, '\n', (size_t)(end - from));
    l->at = (size_t)(end - l->text) + 2;
    return true;
}

/* White space and comments. */
static bool skip_between(struct lexer *l, bool *newline) {
    for (;;) {
        char c = lexer_peek(l, 0);
        if (c == '/' && lexer_peek(l, 1) == '/') {
            (void)skip_line(l);
        } else if (c == '/' && lexer_peek(l, 1) == '*') {
            if (!skip_comment(l, newline))
                return false;
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
            *newline = *newline || c == '\n';
            l->at++;
        } else {
            return true;
        }
    }
}

static bool skip_hex(struct lexer *l, size_t n) {
    for (; n > 0; n--)
        if (!is_hex(lexer_peek(l, 0)))
            return false;
        else
            l->at++;
    return true;
}

/* After \u{ */
static bool skip_code_point(struct lexer *l) {
    size_t n = 0;
    while (n < 6 && is_hex(lexer_peek(l, n)))
        n++;
    /* Up to 10ffff; six digits that begin otherwise are zeros in front, which nobody writes. */
    if (n == 0 || lexer_peek(l, n) != '}' ||
        (n == 6 && (lexer_peek(l, 0) != '1' || lexer_peek(l, 1) != '0')))
        return false;
    l->at += n + 1;
    return true;
}

/* After the backslash, in a string or a template. */
static bool skip_escape(struct lexer *l) {
    char c = lexer_peek(l, 0);
    if (l->at == l->len || (is_digit(c) && (c != '0' || is_digit(lexer_peek(l, 1)))))
        return false;
    l->at++;
    if (c == 'x')
        return skip_hex(l, 2);
    if (c == 'u' && lexer_peek(l, 0) != '{')
        return skip_hex(l, 4);
    if (c == 'u') {
        l->at++;
        return skip_code_point(l);
    }
    if (c == '\r')
        l->at++; /* and its \n */
    return true;
}

static bool lexer_skip_string(struct lexer *l) {
    char quote = l->text[l->at++];
    while (l->at < l->len) {
        char c = l->text[l->at++];
        if (c == quote)
            return true;
        if (c == '\n' || (c == '\\' && !skip_escape(l)))
            return false;
    }
    return false;
}

static struct token skip_template(struct lexer *l, size_t start) {
    struct token t = {.kind = TOKEN_TEMPLATE, .start = start};
    while (l->at < l->len) {
        char c = l->text[l->at++];
        t.opens = c == '$' && lexer_peek(l, 0) == '{';
        if (c == '`' || t.opens) {
            l->at += t.opens;
            t.end = l->at;
            return t;
        }
        if (c == '\\' && !skip_escape(l))
            break;
    }
    return (struct token){.kind = TOKEN_BAD};
}

/* Digits, and _ between two of them. */
static bool skip_digits(struct lexer *l) {
    while (is_digit(lexer_peek(l, 0)))
        l->at += 1 + (lexer_peek(l, 1) == '_' && is_digit(lexer_peek(l, 2)));
    return lexer_peek(l, 0) != '_';
}

static bool skip_exponent(struct lexer *l) {
    if (lexer_peek(l, 0) != 'e' && lexer_peek(l, 0) != 'E')
        return true;
    l->at += 1 + (lexer_peek(l, 1) == '+' || lexer_peek(l, 1) == '-');
    return is_digit(lexer_peek(l, 0)) && skip_digits(l);
}

static bool skip_number(struct lexer *l) {
    if (lexer_peek(l, 0) == '0' && (lexer_peek(l, 1) == 'x' || lexer_peek(l, 1) == 'X')) {
        l->at += 2;
        if (!is_hex(lexer_peek(l, 0)))
            return false;
        while (is_hex(lexer_peek(l, 0)))
            l->at++;
        return !is_word(lexer_peek(l, 0));
    }
    if (lexer_peek(l, 0) == '0' && is_word(lexer_peek(l, 1)) && lexer_peek(l, 1) != 'e' &&
        lexer_peek(l, 1) != 'E')
        return false;
    if (!skip_digits(l))
        return false;
    if (lexer_peek(l, 0) == '.') {
        l->at++;
        if (!skip_digits(l))
            return false;
    }
    return skip_exponent(l) && !is_word(lexer_peek(l, 0)) && lexer_peek(l, 0) != '\\';
}

/* How many characters the mark has; 0: there is none. */
static size_t mark_len(const struct lexer *l) {
    static const char *const marks[] = {
        ">>>=", "...", "===", "!==", "**=", "<<=", ">>=", ">>>",  "&&=", "||=", "\?\?=",
        "=>",   "==",  "!=",  "<=",  ">=",  "&&",  "||",  "\?\?", "?.",  "++",  "--",
        "+=",   "-=",  "*=",  "/=",  "%=",  "&=",  "|=",  "^=",   "<<",  ">>",  "**"};
    char c = lexer_peek(l, 0);
    if (c == 0)
        return 0;
    if (strchr("{}()[];,~:", c))
        return 1;
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        size_t n = strlen(marks[i]);
        if (marks[i][0] == c && l->len - l->at >= n && memcmp(l->text + l->at, marks[i], n) == 0)
            /* a?.5:b */
            return n == 2 && c == '?' && marks[i][1] == '.' && is_digit(lexer_peek(l, 2)) ? 1 : n;
    }
    return strchr(".<>=!+-*/%&|^?", c) ? 1 : 0;
}

static bool skip_mark(struct lexer *l, uint32_t *ret_mark) {
    size_t n = mark_len(l);
    if (n == 0)
        return false;
    uint32_t mark = 0;
    for (size_t i = 0; i < n; i++)
        mark = mark << 8 | (unsigned char)lexer_peek(l, i);
    l->at += n;
    *ret_mark = mark;
    return true;
}

static bool lexer_read_word(struct lexer *l, struct token *t) {
    while (is_word(lexer_peek(l, 0)))
        l->at++;
    char c = lexer_peek(l, 0);
    t->symbol = symbols_add(l->symbols, l->text + t->start, l->at - t->start);
    return t->symbol != SYMBOL_NONE && c != '\\' && (unsigned char)c < 0x80;
}

static enum token_kind read_token(struct lexer *l, struct token *t) {
    char c = lexer_peek(l, 0);
    if (is_word_start(c))
        return lexer_read_word(l, t) ? TOKEN_WORD : TOKEN_BAD;
    if (c == '"' || c == '\'')
        return lexer_skip_string(l) ? TOKEN_STRING : TOKEN_BAD;
    if (is_digit(c) || (c == '.' && is_digit(lexer_peek(l, 1))))
        return skip_number(l) ? TOKEN_NUMBER : TOKEN_BAD;
    return skip_mark(l, &t->mark) ? TOKEN_MARK : TOKEN_BAD;
}

struct token lexer_next(struct lexer *l) {
    struct token t = {.kind = TOKEN_BAD};
    bool newline = false;
    if (!skip_between(l, &newline))
        return t;
    t.start = l->at;
    if (l->at == l->len) {
        t.kind = TOKEN_END;
    } else if (l->text[l->at] == '`') {
        l->at++;
        t = skip_template(l, t.start);
    } else {
        t.kind = read_token(l, &t);
    }
    t.newline = newline;
    t.end = l->at;
    return t;
}

static bool skip_regex(struct lexer *l) {
    bool set = false;
    for (; l->at < l->len; l->at++) {
        char c = l->text[l->at];
        if (c == '\n' || c == '\r')
            return false;
        if (c == '/' && !set)
            return true;
        if (c == '\\' && l->len - l->at > 1)
            l->at++;
        else if (c == '[' || c == ']')
            set = c == '[';
    }
    return false;
}

struct token lexer_regex(struct lexer *l, const struct token *t) {
    struct token r = {.kind = TOKEN_BAD, .newline = t->newline, .start = t->start};
    size_t from = t->start + 1;
    l->at = from;
    if (!skip_regex(l) || !pattern_is_plain(l->text + from, l->at - from))
        return r;
    l->at++;
    static const char flags[] = "dgimsy";
    unsigned seen = 0;
    for (char c; is_word(c = lexer_peek(l, 0)); l->at++) {
        const char *flag = strchr(flags, c);
        if (!flag || (seen & 1U << (flag - flags)))
            return r;
        seen |= 1U << (flag - flags);
    }
    if (lexer_peek(l, 0) == '\\' || (unsigned char)lexer_peek(l, 0) >= 0x80)
        return r;
    r.kind = TOKEN_REGEX;
    r.end = l->at;
    return r;
}

struct token lexer_template(struct lexer *l, const struct token *t) {
    l->at = t->end;
    return skip_template(l, t->start);
}
