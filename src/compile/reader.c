#include "compile/reader.h"

enum {
    NESTING_MAX = 150, /* js/parse.js counts 500, and at most two for each of ours */
    EXPORTS_MAX = 256,
};

/* --- tokens --- */

bool reader_is_mark(const struct plain_reader *r, uint32_t mark) {
    return r->t.mark == mark;
}

bool reader_is_word(const struct plain_reader *r, enum word word) {
    return r->t.kind == TOKEN_WORD && r->t.symbol == (uint32_t)word;
}

bool reader_is_name(const struct plain_reader *r) {
    return r->t.kind == TOKEN_WORD && r->t.symbol >= WORDS_RESERVED_COUNT;
}

bool reader_take(struct plain_reader *r) {
    r->last_end = r->t.end;
    r->t = lexer_next(&r->lexer);
    return r->t.kind != TOKEN_BAD;
}

bool reader_expect(struct plain_reader *r, uint32_t mark) {
    return reader_is_mark(r, mark) && reader_take(r);
}

bool reader_expect_word(struct plain_reader *r, enum word word) {
    return reader_is_word(r, word) && reader_take(r);
}

bool reader_take_if(struct plain_reader *r, uint32_t mark, bool *ret_taken) {
    *ret_taken = reader_is_mark(r, mark);
    return !*ret_taken || reader_take(r);
}

struct token reader_look(struct plain_reader *r) {
    struct lexer there = r->lexer;
    return lexer_next(&there);
}

bool reader_end_statement(struct plain_reader *r) {
    if (reader_is_mark(r, ';'))
        return reader_take(r);
    return reader_is_mark(r, '}') || r->t.kind == TOKEN_END || r->t.newline;
}

struct plain_text reader_text(const struct plain_reader *r, const struct token *t) {
    return (struct plain_text){r->lexer.text + t->start, t->end - t->start};
}

bool reader_enter(struct plain_reader *r) {
    return ++r->depth <= NESTING_MAX;
}

/* --- names --- */

struct plain_undo {
    uint32_t symbol;
    uint32_t scope;
};

struct plain_scope reader_open_scope(struct plain_reader *r) {
    struct plain_scope s = {r->scope, r->undo.len};
    r->scope = ++r->scopes;
    return s;
}

void reader_close_scope(struct plain_reader *r, struct plain_scope s) {
    while (r->undo.len > s.undo) {
        r->undo.len -= sizeof(struct plain_undo);
        const struct plain_undo *u = (void *)(r->undo.data + r->undo.len);
        r->symbols.list[u->symbol].scope = u->scope;
    }
    r->scope = s.outer;
}

bool reader_add_export(struct plain_reader *r, struct plain_text name, struct plain_text local,
                       uint32_t symbol) {
    struct plain_export e = {name, local, symbol, r->constant};
    return PLAIN_COUNT(&r->out->exports, e) < EXPORTS_MAX &&
           buf_add(&r->out->exports, &e, sizeof(e));
}

bool reader_declare(struct plain_reader *r) {
    if (!reader_is_name(r))
        return false;
    struct symbol *s = &r->symbols.list[r->t.symbol];
    struct plain_undo u = {r->t.symbol, s->scope};
    if (s->scope == r->scope || !buf_add(&r->undo, &u, sizeof(u)))
        return false;
    s->scope = r->scope;
    struct plain_text text = reader_text(r, &r->t);
    if (r->exporting && r->scope == READER_MODULE_SCOPE &&
        !reader_add_export(r, text, text, r->t.symbol))
        return false;
    return reader_take(r);
}
