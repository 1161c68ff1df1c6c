#include "compile/reader.h"

#include <string.h>

/* --- declarations --- */

/* `a = 1, b` behind let or const. */
static bool read_declared(struct plain_reader *r, bool constant) {
    bool more = true;
    while (more) {
        bool pattern = !reader_is_name(r);
        bool valued;
        r->constant = constant;
        if (!reader_binding(r) || !reader_take_if(r, '=', &valued) ||
            (valued && !reader_assignment(r)) || (!valued && (constant || pattern)) ||
            !reader_take_if(r, ',', &more))
            return false;
    }
    return true;
}

static bool read_variables(struct plain_reader *r) {
    bool constant = reader_is_word(r, WORD_CONST);
    return reader_take(r) && read_declared(r, constant) && reader_end_statement(r);
}

static bool read_function_declaration(struct plain_reader *r, bool async) {
    r->constant = false;
    return reader_expect_word(r, WORD_FUNCTION) && reader_declare(r) &&
           reader_function(r, (struct plain_place){.function = true, .async = async});
}

static bool read_class_declaration(struct plain_reader *r) {
    r->constant = false;
    return reader_take(r) && reader_declare(r) && reader_class(r);
}

bool reader_is_async_function(struct plain_reader *r) {
    if (!reader_is_word(r, WORD_ASYNC))
        return false;
    struct token t = reader_look(r);
    return t.kind == TOKEN_WORD && t.symbol == WORD_FUNCTION && !t.newline;
}

bool reader_is_declaration(struct plain_reader *r) {
    return reader_is_word(r, WORD_CONST) || reader_is_word(r, WORD_LET) ||
           reader_is_word(r, WORD_FUNCTION) || reader_is_word(r, WORD_CLASS) ||
           reader_is_async_function(r);
}

bool reader_declaration(struct plain_reader *r) {
    switch (r->t.symbol) {
    case WORD_CONST:
    case WORD_LET:
        return read_variables(r);
    case WORD_CLASS:
        return read_class_declaration(r);
    case WORD_ASYNC:
        return reader_take(r) && read_function_declaration(r, true);
    default:
        return read_function_declaration(r, false);
    }
}

/* --- statements --- */

static bool read_statement(struct plain_reader *r);

bool reader_body(struct plain_reader *r) {
    return reader_expect(r, '{') && reader_statements(r) && reader_expect(r, '}');
}

static bool read_block(struct plain_reader *r) {
    struct plain_scope scope = reader_open_scope(r);
    bool ok = reader_body(r);
    reader_close_scope(r, scope);
    return ok;
}

static bool read_condition(struct plain_reader *r) {
    return reader_expect(r, '(') && reader_expression(r) && reader_expect(r, ')');
}

static bool read_if(struct plain_reader *r) {
    if (!reader_take(r) || !read_condition(r) || !read_statement(r))
        return false;
    return !reader_is_word(r, WORD_ELSE) || (reader_take(r) && read_statement(r));
}

static bool read_loop_body(struct plain_reader *r) {
    struct plain_place outer = r->place;
    r->place.loop = r->place.breaks = true;
    bool ok = read_statement(r);
    r->place = outer;
    return ok;
}

static bool read_while(struct plain_reader *r) {
    return reader_take(r) && read_condition(r) && read_loop_body(r);
}

static bool read_do(struct plain_reader *r) {
    bool semicolon;
    return reader_take(r) && read_loop_body(r) && reader_expect_word(r, WORD_WHILE) &&
           read_condition(r) && reader_take_if(r, ';', &semicolon);
}

/* The rest of a head with two semicolons, from the first of them on. */
static bool read_for_rest(struct plain_reader *r) {
    return reader_expect(r, ';') && (reader_is_mark(r, ';') || reader_expression(r)) &&
           reader_expect(r, ';') && (reader_is_mark(r, ')') || reader_expression(r));
}

/* Of `for (const x of y)`, from `of` or `in` on. */
static bool read_for_each(struct plain_reader *r) {
    bool of = reader_is_word(r, WORD_OF);
    return reader_take(r) && (of ? reader_assignment(r) : reader_expression(r));
}

static bool read_for_declared(struct plain_reader *r, bool awaits) {
    bool constant = reader_is_word(r, WORD_CONST);
    if (!reader_take(r))
        return false;
    bool pattern = !reader_is_name(r);
    bool valued;
    bool more = false;
    if (!reader_binding(r))
        return false;
    if (reader_is_word(r, WORD_OF) || (reader_is_word(r, WORD_IN) && !awaits))
        return read_for_each(r);
    r->no_in = true;
    bool ok = !awaits && reader_take_if(r, '=', &valued) &&
              (valued ? reader_assignment(r) : true) && (valued || !(constant || pattern)) &&
              reader_take_if(r, ',', &more) && (!more || read_declared(r, constant));
    r->no_in = false;
    return ok && read_for_rest(r);
}

static bool read_for_head(struct plain_reader *r, bool awaits) {
    if (!reader_expect(r, '('))
        return false;
    if (reader_is_word(r, WORD_CONST) || reader_is_word(r, WORD_LET))
        return read_for_declared(r, awaits);
    r->no_in = true;
    bool ok = !awaits && (reader_is_mark(r, ';') || reader_expression(r));
    r->no_in = false;
    return ok && read_for_rest(r);
}

static bool read_for(struct plain_reader *r) {
    if (!reader_take(r))
        return false;
    bool awaits = reader_is_word(r, WORD_AWAIT);
    if (awaits && (!r->place.async || r->parameters > 0 || !reader_take(r)))
        return false;
    struct plain_scope scope = reader_open_scope(r);
    bool ok = read_for_head(r, awaits) && reader_expect(r, ')') && read_loop_body(r);
    reader_close_scope(r, scope);
    return ok;
}

static bool read_return(struct plain_reader *r) {
    if (!r->place.function || !reader_take(r))
        return false;
    if (reader_is_mark(r, ';') || reader_is_mark(r, '}') || r->t.newline)
        return reader_end_statement(r);
    return reader_expression(r) && reader_end_statement(r);
}

static bool read_throw(struct plain_reader *r) {
    return reader_take(r) && !r->t.newline && reader_expression(r) && reader_end_statement(r);
}

static bool read_leave(struct plain_reader *r) {
    bool allowed = reader_is_word(r, WORD_BREAK) ? r->place.breaks : r->place.loop;
    return allowed && reader_take(r) && reader_end_statement(r);
}

static bool read_catch(struct plain_reader *r) {
    struct plain_scope scope = reader_open_scope(r);
    bool bound;
    bool ok = reader_take(r) && reader_take_if(r, '(', &bound) &&
              (!bound || (reader_binding(r) && reader_expect(r, ')'))) && reader_body(r);
    reader_close_scope(r, scope);
    return ok;
}

static bool read_try(struct plain_reader *r) {
    if (!reader_take(r) || !read_block(r))
        return false;
    bool caught = reader_is_word(r, WORD_CATCH);
    if (caught && !read_catch(r))
        return false;
    if (!reader_is_word(r, WORD_FINALLY))
        return caught;
    return reader_take(r) && read_block(r);
}

static bool read_case(struct plain_reader *r, bool *has_default) {
    if (reader_is_word(r, WORD_DEFAULT)) {
        if (*has_default || !reader_take(r))
            return false;
        *has_default = true;
    } else if (!reader_expect_word(r, WORD_CASE) || !reader_expression(r)) {
        return false;
    }
    return reader_expect(r, ':') && reader_statements(r);
}

static bool read_switch(struct plain_reader *r) {
    if (!reader_take(r) || !read_condition(r) || !reader_expect(r, '{'))
        return false;
    struct plain_place outer = r->place;
    struct plain_scope scope = reader_open_scope(r);
    bool has_default = false;
    bool ok = true;
    r->place.breaks = true;
    while (ok && !reader_is_mark(r, '}'))
        ok = read_case(r, &has_default);
    r->place = outer;
    reader_close_scope(r, scope);
    return ok && reader_take(r);
}

static bool read_expression_statement(struct plain_reader *r) {
    struct plain_text text = reader_text(r, &r->t);
    /* Where it is a directive it can be an error. */
    if (r->t.kind == TOKEN_STRING && memmem(text.text, text.len, "use strict", 10))
        return false;
    return !reader_is_declaration(r) && reader_expression(r) && reader_end_statement(r);
}

static bool read_other(struct plain_reader *r) {
    if (reader_is_mark(r, '{'))
        return read_block(r);
    if (reader_is_mark(r, ';'))
        return reader_take(r);
    if (r->t.kind != TOKEN_WORD)
        return read_expression_statement(r);
    switch (r->t.symbol) {
    case WORD_IF:
        return read_if(r);
    case WORD_FOR:
        return read_for(r);
    case WORD_WHILE:
        return read_while(r);
    case WORD_DO:
        return read_do(r);
    case WORD_RETURN:
        return read_return(r);
    case WORD_THROW:
        return read_throw(r);
    case WORD_BREAK:
    case WORD_CONTINUE:
        return read_leave(r);
    case WORD_TRY:
        return read_try(r);
    case WORD_SWITCH:
        return read_switch(r);
    default:
        return read_expression_statement(r);
    }
}

/* One that declares nothing. */
static bool read_statement(struct plain_reader *r) {
    bool ok = reader_enter(r) && read_other(r);
    r->depth--;
    return ok;
}

bool reader_item(struct plain_reader *r) {
    if (!reader_is_declaration(r))
        return read_statement(r);
    bool ok = reader_enter(r) && reader_declaration(r);
    r->depth--;
    return ok;
}

bool reader_statements(struct plain_reader *r) {
    bool no_in = r->no_in;
    r->no_in = false;
    bool ok = true;
    while (ok && !reader_is_mark(r, '}') && !reader_is_word(r, WORD_CASE) &&
           !reader_is_word(r, WORD_DEFAULT))
        ok = reader_item(r);
    r->no_in = no_in;
    return ok;
}
