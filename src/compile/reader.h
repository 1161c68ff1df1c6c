#pragma once
/* The reader of one plain module (plain.h): its tokens and names are reader.c's, expressions are in
 * expression.c, statements in statement.c; plain.c has the module itself. Whatever returns a bool
 * returns false for what is not plain, and then the whole module is not. */

#include "compile/lexer.h"
#include "compile/plain.h"

#define READER_MODULE_SCOPE 1

/* What the expression that was read last can be used for. */
enum shape { SHAPE_NAME, SHAPE_MEMBER, SHAPE_UNARY, SHAPE_OTHER };

/* What the statements and expressions stand in. */
struct plain_place {
    bool function;
    bool async;
    bool loop;
    bool breaks; /* a loop or a switch */
    bool super_call;
    bool super_member;
};

struct plain_reader {
    struct lexer lexer;
    struct symbols symbols;
    struct token t;  /* the next one */
    size_t last_end; /* of the token before it */
    struct plain_place place;
    unsigned parameters; /* lists of them that we are in: nothing awaits there */
    bool no_in;          /* in the head of a for, where `in` means something else */
    uint32_t scope, scopes;
    struct buf undo; /* struct plain_undo: what the scopes that are open have declared */
    unsigned depth;
    unsigned chain;
    enum shape shape;
    uint32_t name; /* of SHAPE_NAME */
    bool exporting;
    bool constant;
    struct plain *out;
};

struct plain_scope {
    uint32_t outer;
    size_t undo;
};

bool reader_is_mark(const struct plain_reader *r, uint32_t mark);
bool reader_is_word(const struct plain_reader *r, enum word word);
/* A word that can be a name. */
bool reader_is_name(const struct plain_reader *r);
bool reader_take(struct plain_reader *r);
bool reader_expect(struct plain_reader *r, uint32_t mark);
bool reader_expect_word(struct plain_reader *r, enum word word);
/* Takes the mark if it is there; false: what follows is no token. */
bool reader_take_if(struct plain_reader *r, uint32_t mark, bool *ret_taken);
/* The token after the next one. */
struct token reader_look(struct plain_reader *r);
bool reader_end_statement(struct plain_reader *r);
struct plain_text reader_text(const struct plain_reader *r, const struct token *t);
/* One level deeper; r->depth goes down again by hand. */
bool reader_enter(struct plain_reader *r);

struct plain_scope reader_open_scope(struct plain_reader *r);
void reader_close_scope(struct plain_reader *r, struct plain_scope s);
bool reader_add_export(struct plain_reader *r, struct plain_text name, struct plain_text local,
                       uint32_t symbol);
/* The next token as a name of the scope that is open. A second time in one scope is an error most
 * often, but not always. */
bool reader_declare(struct plain_reader *r);

bool reader_assignment(struct plain_reader *r); /* an expression without commas */
bool reader_expression(struct plain_reader *r);
bool reader_binding(struct plain_reader *r); /* a name or a pattern that is declared */
/* From the parameters on. */
bool reader_function(struct plain_reader *r, struct plain_place place);
/* Behind its name. */
bool reader_class(struct plain_reader *r);

bool reader_is_async_function(struct plain_reader *r);
bool reader_is_declaration(struct plain_reader *r);
bool reader_declaration(struct plain_reader *r);
/* A declaration or another statement. */
bool reader_item(struct plain_reader *r);
/* In braces, with no scope of its own. */
bool reader_body(struct plain_reader *r);
/* Up to the end of a block or of a case. */
bool reader_statements(struct plain_reader *r);
