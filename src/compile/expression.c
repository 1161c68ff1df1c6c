#include "compile/reader.h"

#include <string.h>

enum { CHAIN_MAX = 1000 }; /* js/parse.js takes 4000 */

/* What was read last is assigned to. */
static bool assign_to(struct plain_reader *r) {
    if (r->shape == SHAPE_NAME)
        r->symbols.list[r->name].assigned = true;
    return r->shape == SHAPE_NAME || r->shape == SHAPE_MEMBER;
}

static bool read_unary(struct plain_reader *r);

static bool read_template(struct plain_reader *r) {
    while (r->t.opens) {
        if (!reader_take(r) || !reader_expression(r) || !reader_is_mark(r, '}'))
            return false;
        r->t = lexer_template(&r->lexer, &r->t);
    }
    return r->t.kind != TOKEN_BAD && reader_take(r);
}

static bool read_spread(struct plain_reader *r) {
    bool spread;
    return reader_take_if(r, MARK3('.', '.', '.'), &spread) && reader_assignment(r);
}

/* From the bracket on; an array may have holes. */
static bool expression_read_list(struct plain_reader *r, uint32_t end) {
    if (!reader_take(r))
        return false;
    while (!reader_is_mark(r, end)) {
        bool hole = end == ']' && reader_is_mark(r, ',');
        if (!hole && !read_spread(r))
            return false;
        if (!reader_is_mark(r, end) && !reader_expect(r, ','))
            return false;
    }
    return reader_take(r);
}

static bool read_index(struct plain_reader *r) {
    return reader_take(r) && reader_expression(r) && reader_expect(r, ']');
}

static bool read_member_name(struct plain_reader *r) {
    return r->t.kind == TOKEN_WORD && reader_take(r);
}

static bool read_optional(struct plain_reader *r) {
    if (!reader_take(r))
        return false;
    if (reader_is_mark(r, '('))
        return expression_read_list(r, ')');
    return reader_is_mark(r, '[') ? read_index(r) : read_member_name(r);
}

/* What an object's method and a class's stand in. */
static struct plain_place method_place(bool async, bool super_call) {
    return (struct plain_place){
        .function = true, .async = async, .super_call = super_call, .super_member = true};
}

static bool is_key(const struct plain_reader *r) {
    return r->t.kind == TOKEN_WORD || r->t.kind == TOKEN_NUMBER || r->t.kind == TOKEN_STRING ||
           reader_is_mark(r, '[');
}

/* A key, but none that may mean the prototype. */
static bool expression_read_key(struct plain_reader *r) {
    if (reader_is_mark(r, '['))
        return reader_take(r) && reader_assignment(r) && reader_expect(r, ']');
    struct plain_text text = reader_text(r, &r->t);
    if (reader_is_word(r, WORD_PROTO) || !is_key(r) ||
        (r->t.kind == TOKEN_STRING &&
         (memchr(text.text, '\\', text.len) || memmem(text.text, text.len, "__proto__", 9))))
        return false;
    return reader_take(r);
}

static bool read_property(struct plain_reader *r) {
    if (reader_is_mark(r, MARK3('.', '.', '.')))
        return read_spread(r);
    bool name = reader_is_name(r);
    bool async = reader_is_word(r, WORD_ASYNC);
    if (!expression_read_key(r))
        return false;
    if (reader_is_mark(r, ':'))
        return reader_take(r) && reader_assignment(r);
    if (async && !r->t.newline && is_key(r)) {
        if (!expression_read_key(r))
            return false;
    } else {
        async = false;
        if (name && (reader_is_mark(r, ',') || reader_is_mark(r, '}')))
            return true;
    }
    return reader_is_mark(r, '(') && reader_function(r, method_place(async, false));
}

static bool read_object(struct plain_reader *r) {
    if (!reader_take(r))
        return false;
    while (!reader_is_mark(r, '}'))
        if (!read_property(r) || (!reader_is_mark(r, '}') && !reader_expect(r, ',')))
            return false;
    return reader_take(r);
}

/* `new a.b(c)`; the callee is a name with members, or in parentheses. */
static bool read_new(struct plain_reader *r) {
    if (!reader_take(r))
        return false;
    if (reader_is_mark(r, '(')) {
        if (!reader_take(r) || !reader_expression(r) || !reader_expect(r, ')'))
            return false;
    } else if (!reader_is_name(r) || !reader_take(r)) {
        return false;
    }
    while (reader_is_mark(r, '.') || reader_is_mark(r, '['))
        if (reader_is_mark(r, '[') ? !read_index(r) : !(reader_take(r) && read_member_name(r)))
            return false;
    if (reader_is_mark(r, '('))
        return expression_read_list(r, ')');
    return !reader_is_mark(r, MARK2('?', '.')) && r->t.kind != TOKEN_TEMPLATE;
}

static bool read_super(struct plain_reader *r) {
    if (!reader_take(r))
        return false;
    if (reader_is_mark(r, '('))
        return r->place.super_call;
    return r->place.super_member && (reader_is_mark(r, '.') || reader_is_mark(r, '['));
}

/* `function` with or without a name, which is its own. js/ takes what follows an async one without
 * a name for the wrong thing: a division for a regular expression. */
static bool read_function_expression(struct plain_reader *r, bool async) {
    if (!reader_expect_word(r, WORD_FUNCTION) || (reader_is_name(r) ? !reader_take(r) : async))
        return false;
    return reader_function(r, (struct plain_place){.function = true, .async = async});
}

static bool expression_read_word(struct plain_reader *r) {
    switch (r->t.symbol) {
    case WORD_THIS:
    case WORD_NULL:
    case WORD_TRUE:
    case WORD_FALSE:
        return reader_take(r);
    case WORD_FUNCTION:
        return read_function_expression(r, false);
    case WORD_ASYNC:
        return reader_take(r) && !r->t.newline && read_function_expression(r, true);
    case WORD_CLASS:
        return reader_take(r) && (!reader_is_name(r) || reader_take(r)) && reader_class(r);
    case WORD_NEW:
        if (!read_new(r))
            return false;
        r->shape = SHAPE_OTHER;
        return true;
    case WORD_SUPER:
        return read_super(r);
    default:
        r->name = r->t.symbol;
        if (!reader_is_name(r) || !reader_take(r))
            return false;
        r->shape = SHAPE_NAME;
        return true;
    }
}

/* Whether the next token comes after one of these. Slashes are left to js/ where it tells by what
 * is before them, not by what it reads. */
static bool is_after(const struct plain_reader *r, const char *marks) {
    return r->last_end > 0 && strchr(marks, r->lexer.text[r->last_end - 1]);
}

static bool read_primary(struct plain_reader *r) {
    if (reader_is_mark(r, '/') || reader_is_mark(r, MARK2('/', '='))) {
        if (is_after(r, "})"))
            return false;
        r->t = lexer_regex(&r->lexer, &r->t);
    }
    enum token_kind kind = r->t.kind;
    uint32_t mark = r->t.mark;
    bool ok = false;
    r->shape = SHAPE_OTHER;
    if (kind == TOKEN_WORD)
        return expression_read_word(r);
    if (kind == TOKEN_NUMBER || kind == TOKEN_STRING || kind == TOKEN_REGEX)
        return reader_take(r);
    if (kind == TOKEN_TEMPLATE)
        ok = read_template(r);
    else if (mark == '(')
        ok = reader_take(r) && reader_expression(r) && reader_expect(r, ')');
    else if (mark == '[')
        ok = expression_read_list(r, ']');
    else if (mark == '{')
        ok = read_object(r);
    r->shape = SHAPE_OTHER;
    return ok;
}

/* One more link of a chain of members and calls; *ret_shape is what the chain is then. */
static bool expression_read_link(struct plain_reader *r, bool *optional, enum shape *ret_shape) {
    *ret_shape = SHAPE_OTHER;
    if (r->t.kind == TOKEN_TEMPLATE)
        return !*optional && read_template(r);
    switch (r->t.mark) {
    case '(':
        return expression_read_list(r, ')');
    case MARK2('?', '.'):
        *optional = true;
        return read_optional(r);
    case '.':
        *ret_shape = *optional ? SHAPE_OTHER : SHAPE_MEMBER;
        return reader_take(r) && read_member_name(r);
    default:
        *ret_shape = *optional ? SHAPE_OTHER : SHAPE_MEMBER;
        return read_index(r);
    }
}

static bool is_link(const struct plain_reader *r) {
    return r->t.kind == TOKEN_TEMPLATE || reader_is_mark(r, '.') || reader_is_mark(r, '(') ||
           reader_is_mark(r, '[') || reader_is_mark(r, MARK2('?', '.'));
}

static bool read_chain(struct plain_reader *r) {
    if (!read_primary(r))
        return false;
    bool optional = false;
    while (is_link(r)) {
        enum shape shape;
        if (!expression_read_link(r, &optional, &shape))
            return false;
        r->shape = shape;
    }
    return true;
}

static bool is_step(const struct plain_reader *r) {
    return reader_is_mark(r, MARK2('+', '+')) || reader_is_mark(r, MARK2('-', '-'));
}

static bool read_postfix(struct plain_reader *r) {
    if (!read_chain(r))
        return false;
    if (!is_step(r) || r->t.newline)
        return true;
    if (!assign_to(r))
        return false;
    r->shape = SHAPE_OTHER;
    return reader_take(r);
}

static bool is_prefix(const struct plain_reader *r) {
    return reader_is_mark(r, '!') || reader_is_mark(r, '-') || reader_is_mark(r, '+') ||
           reader_is_mark(r, '~') || reader_is_word(r, WORD_TYPEOF) || reader_is_word(r, WORD_VOID);
}

static bool read_operand(struct plain_reader *r) {
    bool ok;
    if (is_prefix(r))
        ok = reader_take(r) && read_unary(r);
    else if (reader_is_word(r, WORD_AWAIT))
        ok = r->place.async && r->parameters == 0 && reader_take(r) && read_unary(r);
    else if (reader_is_word(r, WORD_DELETE))
        ok = reader_take(r) && read_unary(r) && r->shape == SHAPE_MEMBER;
    else if (is_step(r))
        ok = reader_take(r) && read_unary(r) && assign_to(r);
    else
        return read_postfix(r);
    r->shape = SHAPE_UNARY;
    return ok;
}

static bool read_unary(struct plain_reader *r) {
    bool ok = reader_enter(r) && read_operand(r);
    r->depth--;
    return ok;
}

static bool is_binary(const struct plain_reader *r) {
    if (reader_is_word(r, WORD_IN))
        return !r->no_in;
    switch (r->t.mark) {
    case '+':
    case '-':
    case '*':
    case '/':
    case '%':
    case '<':
    case '>':
    case '&':
    case '|':
    case '^':
    case MARK2('*', '*'):
    case MARK2('<', '='):
    case MARK2('>', '='):
    case MARK2('=', '='):
    case MARK2('!', '='):
    case MARK2('<', '<'):
    case MARK2('>', '>'):
    case MARK2('&', '&'):
    case MARK2('|', '|'):
    case MARK2('?', '?'):
    case MARK3('=', '=', '='):
    case MARK3('!', '=', '='):
    case MARK3('>', '>', '>'):
        return true;
    default:
        return reader_is_word(r, WORD_INSTANCEOF);
    }
}

static bool read_operators(struct plain_reader *r) {
    bool nullish = false;
    bool logical = false;
    if (!read_unary(r))
        return false;
    while (is_binary(r)) {
        uint32_t mark = r->t.mark;
        nullish = nullish || mark == MARK2('?', '?');
        logical = logical || mark == MARK2('&', '&') || mark == MARK2('|', '|');
        if ((mark == '/' && is_after(r, "}")) || (nullish && logical) ||
            (mark == MARK2('*', '*') && r->shape == SHAPE_UNARY) || ++r->chain > CHAIN_MAX ||
            !reader_take(r) || !read_unary(r))
            return false;
        if (r->shape != SHAPE_UNARY)
            r->shape = SHAPE_OTHER;
    }
    return true;
}

static bool read_conditional(struct plain_reader *r) {
    unsigned chain = r->chain;
    if (!read_operators(r))
        return false;
    r->chain = chain;
    if (!reader_is_mark(r, '?'))
        return true;
    if (!reader_take(r) || !reader_assignment(r) || !reader_expect(r, ':') || !reader_assignment(r))
        return false;
    r->shape = SHAPE_OTHER;
    return true;
}

static bool is_assignment(const struct plain_reader *r) {
    switch (r->t.mark) {
    case '=':
    case MARK2('+', '='):
    case MARK2('-', '='):
    case MARK2('*', '='):
    case MARK2('/', '='):
    case MARK2('%', '='):
    case MARK2('&', '='):
    case MARK2('|', '='):
    case MARK2('^', '='):
    case MARK3('*', '*', '='):
    case MARK3('<', '<', '='):
    case MARK3('>', '>', '='):
    case MARK3('&', '&', '='):
    case MARK3('|', '|', '='):
    case MARK3('?', '?', '='):
    case MARK4('>', '>', '>', '='):
        return true;
    default:
        return false;
    }
}

/* --- functions --- */

static bool read_parameters(struct plain_reader *r) {
    if (!reader_expect(r, '('))
        return false;
    while (!reader_is_mark(r, ')')) {
        bool rest;
        bool has_default = false;
        if (!reader_take_if(r, MARK3('.', '.', '.'), &rest) || !reader_binding(r) ||
            (!rest && !reader_take_if(r, '=', &has_default)) ||
            (has_default && !reader_assignment(r)))
            return false;
        if (!reader_is_mark(r, ')') && (rest || !reader_expect(r, ',')))
            return false;
    }
    return reader_take(r);
}

/* Of an arrow function, behind the parameters. */
static bool read_arrow_body(struct plain_reader *r) {
    if (!reader_is_mark(r, MARK2('=', '>')) || r->t.newline || !reader_take(r))
        return false;
    return reader_is_mark(r, '{') ? reader_body(r) : reader_assignment(r);
}

/* From the parameters on: an arrow function when `arrow`. */
static bool expression_read_whole(struct plain_reader *r, struct plain_place place, bool arrow) {
    struct plain_place outer = r->place;
    struct plain_scope scope = reader_open_scope(r);
    r->place = place;
    r->parameters++;
    bool ok = arrow && !reader_is_mark(r, '(') ? reader_declare(r) : read_parameters(r);
    r->parameters--;
    ok = ok && (arrow ? read_arrow_body(r) : reader_body(r));
    r->place = outer;
    reader_close_scope(r, scope);
    r->shape = SHAPE_OTHER;
    return ok;
}

bool reader_function(struct plain_reader *r, struct plain_place place) {
    return expression_read_whole(r, place, false);
}

static bool read_arrow(struct plain_reader *r, bool async) {
    struct plain_place place = {.function = true,
                                .async = async,
                                .super_call = r->place.super_call,
                                .super_member = r->place.super_member};
    return expression_read_whole(r, place, true);
}

/* Whether what begins with the parenthesis that is next is surely the list of an arrow function.
 * It ends at the next parenthesis, so that nothing is looked at twice. */
static bool is_arrow_list(struct lexer there) {
    for (;;) {
        struct token t = lexer_next(&there);
        if (t.mark == ')')
            break;
        if (t.kind == TOKEN_MARK && t.mark != '{' && t.mark != '}' && t.mark != '[' &&
            t.mark != ']' && t.mark != ',' && t.mark != '=' && t.mark != ':' && t.mark != '-' &&
            t.mark != MARK3('.', '.', '.'))
            return false;
        if (t.kind != TOKEN_MARK && t.kind != TOKEN_WORD && t.kind != TOKEN_NUMBER &&
            t.kind != TOKEN_STRING)
            return false;
    }
    return lexer_next(&there).mark == MARK2('=', '>');
}

/* Behind a name, with nothing but blanks between. */
static bool is_arrow_sign(const struct lexer *l) {
    size_t at = l->at;
    while (at < l->len && l->text[at] == ' ')
        at++;
    return l->len - at > 1 && l->text[at] == '=' && l->text[at + 1] == '>';
}

/* Whether an arrow function begins with `t`, behind which we are `there`. */
static bool is_arrow(const struct token *t, const struct lexer *there) {
    if (t->mark == '(')
        return is_arrow_list(*there);
    return t->kind == TOKEN_WORD && t->symbol >= WORDS_RESERVED_COUNT && is_arrow_sign(there);
}

static bool read_async(struct plain_reader *r) {
    struct lexer there = r->lexer;
    struct token t = lexer_next(&there);
    if (t.newline)
        return false;
    if (t.kind == TOKEN_WORD && t.symbol == WORD_FUNCTION)
        return read_conditional(r);
    return is_arrow(&t, &there) && reader_take(r) && read_arrow(r, true);
}

static bool read_simple(struct plain_reader *r) {
    if (reader_is_word(r, WORD_ASYNC))
        return read_async(r);
    if (is_arrow(&r->t, &r->lexer))
        return read_arrow(r, false);
    if (!read_conditional(r))
        return false;
    if (!is_assignment(r))
        return true;
    if (!assign_to(r) || !reader_take(r) || !reader_assignment(r))
        return false;
    r->shape = SHAPE_OTHER;
    return true;
}

bool reader_assignment(struct plain_reader *r) {
    bool ok = reader_enter(r) && read_simple(r);
    r->depth--;
    return ok;
}

bool reader_expression(struct plain_reader *r) {
    bool more = true;
    while (more)
        if (!reader_assignment(r) || !reader_take_if(r, ',', &more))
            return false;
    return true;
}

/* --- classes --- */

/* A method of a class; *constructors counts. */
static bool read_method(struct plain_reader *r, bool derived, unsigned *constructors) {
    struct token key = r->t;
    bool fixed = false;
    bool async = false;
    if (key.kind != TOKEN_WORD || !reader_take(r))
        return false;
    if (key.symbol == WORD_STATIC && !reader_is_mark(r, '(')) {
        fixed = true;
        key = r->t;
        if (key.kind != TOKEN_WORD || !reader_take(r))
            return false;
    }
    if (key.symbol == WORD_ASYNC && !reader_is_mark(r, '(') && !r->t.newline) {
        async = true;
        key = r->t;
        if (key.kind != TOKEN_WORD || !reader_take(r))
            return false;
    }
    bool constructs = key.symbol == WORD_CONSTRUCTOR && !fixed;
    if (!reader_is_mark(r, '(') || (constructs && (async || ++*constructors > 1)) ||
        (fixed && key.symbol == WORD_PROTOTYPE))
        return false;
    return reader_function(r, method_place(async, constructs && derived));
}

bool reader_class(struct plain_reader *r) {
    bool derived = reader_is_word(r, WORD_EXTENDS);
    if (derived && (!reader_take(r) || !read_chain(r)))
        return false;
    if (!reader_expect(r, '{'))
        return false;
    unsigned constructors = 0;
    while (!reader_is_mark(r, '}'))
        if (reader_is_mark(r, ';') ? !reader_take(r) : !read_method(r, derived, &constructors))
            return false;
    r->shape = SHAPE_OTHER;
    return reader_take(r);
}

/* --- bindings --- */

static bool read_default_value(struct plain_reader *r) {
    bool there;
    return reader_take_if(r, '=', &there) && (!there || reader_assignment(r));
}

static bool read_array_binding(struct plain_reader *r) {
    if (!reader_take(r))
        return false;
    while (!reader_is_mark(r, ']')) {
        bool rest = false;
        if (!reader_is_mark(r, ',') && (!reader_take_if(r, MARK3('.', '.', '.'), &rest) ||
                                        !reader_binding(r) || (!rest && !read_default_value(r))))
            return false;
        if (!reader_is_mark(r, ']') && (rest || !reader_expect(r, ',')))
            return false;
    }
    return reader_take(r);
}

static bool read_bound_property(struct plain_reader *r) {
    if (reader_is_name(r)) {
        struct token t = reader_look(r);
        if (t.mark != ':')
            return reader_declare(r) && read_default_value(r);
    }
    return expression_read_key(r) && reader_expect(r, ':') && reader_binding(r) &&
           read_default_value(r);
}

static bool read_object_binding(struct plain_reader *r) {
    if (!reader_take(r))
        return false;
    while (!reader_is_mark(r, '}')) {
        bool rest;
        if (!reader_take_if(r, MARK3('.', '.', '.'), &rest) ||
            !(rest ? reader_declare(r) : read_bound_property(r)))
            return false;
        if (!reader_is_mark(r, '}') && (rest || !reader_expect(r, ',')))
            return false;
    }
    return reader_take(r);
}

bool reader_binding(struct plain_reader *r) {
    bool ok = reader_enter(r);
    if (ok && reader_is_mark(r, '['))
        ok = read_array_binding(r);
    else if (ok && reader_is_mark(r, '{'))
        ok = read_object_binding(r);
    else if (ok)
        ok = reader_declare(r);
    r->depth--;
    return ok;
}
