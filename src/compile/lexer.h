#pragma once
/* The tokens of a module's source, one at a time. Whether a slash divides or begins a regular
 * expression, and where a template goes on, only its reader knows, and says so. What is not surely
 * a token of plain JavaScript is TOKEN_BAD: names beyond ASCII, escapes in names, private names,
 * the odder numbers and regular expressions.
 *
 * The source has no control character but tabs and line breaks, which are \n or \r\n; it is UTF-8.
 */

#include "compile/symbols.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum token_kind {
    TOKEN_END,
    TOKEN_BAD,
    TOKEN_WORD, /* a name or a reserved word */
    TOKEN_NUMBER,
    TOKEN_STRING,
    TOKEN_TEMPLATE, /* up to its end or to the next ${, which is `opens` */
    TOKEN_REGEX,
    TOKEN_MARK, /* an operator or a bracket */
};

/* A mark is the number that its characters make. */
#define MARK2(a, b)       ((uint32_t)(a) << 8 | (uint32_t)(b))
#define MARK3(a, b, c)    (MARK2(a, b) << 8 | (uint32_t)(c))
#define MARK4(a, b, c, d) (MARK3(a, b, c) << 8 | (uint32_t)(d))

struct token {
    enum token_kind kind;
    bool newline; /* a line ends somewhere before it */
    bool opens;
    uint32_t symbol; /* of a word */
    uint32_t mark;   /* 0 unless it is one */
    size_t start, end;
};

struct lexer {
    const char *text;
    size_t len;
    size_t at;
    struct symbols *symbols;
};

struct token lexer_next(struct lexer *l);
/* Reads again from the slash that `t` begins with. */
struct token lexer_regex(struct lexer *l, const struct token *t);
/* Goes on with the template behind the brace `t`. */
struct token lexer_template(struct lexer *l, const struct token *t);
