#include "compile/plain.h"

#include "base/cleanup.h"
#include "compile/reader.h"

#include <stdlib.h>
#include <string.h>

enum { LIST_MAX_BYTES = 4 << 20 };

static bool add_edit(struct plain_reader *r, size_t start, size_t end, const char *text) {
    for (size_t i = start; i < end; i++)
        if ((unsigned char)r->lexer.text[i] >= 0x80)
            return false; /* a blank for each of its units, not of its bytes */
    struct plain_edit e = {start, end, text};
    return buf_add(&r->out->edits, &e, sizeof(e));
}

static bool add_import(struct plain_reader *r, struct plain_text name) {
    struct plain_import i = {
        .name = name, .local = reader_text(r, &r->t), .request = SIZE_MAX, .symbol = r->t.symbol};
    return reader_declare(r) && buf_add(&r->out->imports, &i, sizeof(i));
}

static bool read_imported(struct plain_reader *r) {
    struct token name = r->t;
    struct token after = reader_look(r);
    if (name.kind != TOKEN_WORD)
        return false;
    bool renamed = after.kind == TOKEN_WORD && after.symbol == WORD_AS;
    if (renamed && (!reader_take(r) || !reader_expect_word(r, WORD_AS)))
        return false;
    return add_import(r, reader_text(r, &name));
}

static bool read_import_list(struct plain_reader *r) {
    if (!reader_expect(r, '{'))
        return false;
    while (!reader_is_mark(r, '}'))
        if (!read_imported(r) || (!reader_is_mark(r, '}') && !reader_expect(r, ',')))
            return false;
    return reader_take(r);
}

/* The number of a request: a new one, if nobody has asked this module for anything yet. */
static bool find_request(struct plain_reader *r, struct plain_text from, size_t *ret) {
    struct buf *b = &r->out->requests;
    uint32_t symbol = symbols_add(&r->symbols, from.text, from.len);
    if (symbol == SYMBOL_NONE)
        return false;
    uint32_t *request = &r->symbols.list[symbol].request;
    if (*request == 0) {
        if (!buf_add(b, &from, sizeof(from)))
            return false;
        *request = (uint32_t)PLAIN_COUNT(b, from);
    }
    *ret = *request - 1;
    return true;
}

static bool read_from(struct plain_reader *r, size_t first) {
    if (!reader_expect_word(r, WORD_FROM) || r->t.kind != TOKEN_STRING)
        return false;
    struct plain_text from = reader_text(r, &r->t);
    from = (struct plain_text){from.text + 1, from.len - 2};
    size_t request;
    if (memchr(from.text, '\\', from.len) || !find_request(r, from, &request))
        return false;
    struct buf *b = &r->out->imports;
    for (size_t i = first; i < PLAIN_COUNT(b, struct plain_import); i++)
        PLAIN_AT(b, struct plain_import, i)->request = request;
    return reader_take(r);
}

static bool read_import(struct plain_reader *r) {
    size_t start = r->t.start;
    size_t first = PLAIN_COUNT(&r->out->imports, struct plain_import);
    bool more = true;
    if (!reader_take(r))
        return false;
    if (reader_is_name(r) &&
        (!add_import(r, (struct plain_text){"default", 7}) || !reader_take_if(r, ',', &more)))
        return false;
    if (more && !read_import_list(r))
        return false;
    return read_from(r, first) && reader_end_statement(r) && add_edit(r, start, r->last_end, ";");
}

/* An export without a name: `export default` becomes the beginning of an object, which ends at
 * `end`. */
static bool plain_hold(struct plain_reader *r, size_t start, size_t end, bool declaration) {
    bool closed = !declaration && r->lexer.text[end - 1] == ';';
    struct plain_text name = {"default", 7};
    r->out->has_holder = true;
    r->constant = true;
    return add_edit(r, start, start + 14, ";" PLAIN_HOLDER "={default:") &&
           add_edit(r, end - closed, end - closed, closed ? "}" : "};") &&
           reader_add_export(r, name, (struct plain_text){NULL, 0}, 0);
}

/* `export default function f`, of which f is the local name. */
static bool read_named_default(struct plain_reader *r, size_t start) {
    struct buf *b = &r->out->exports;
    if (!add_edit(r, start, r->t.start, ";"))
        return false;
    r->exporting = true;
    size_t at = PLAIN_COUNT(b, struct plain_export);
    bool ok = reader_declaration(r);
    r->exporting = false;
    if (ok)
        PLAIN_AT(b, struct plain_export, at)->name = (struct plain_text){"default", 7};
    return ok;
}

/* Behind `export`: what begins with the next token is the default export. */
static bool read_default(struct plain_reader *r, size_t start) {
    bool apart = r->t.start == start + 7 && r->lexer.text[start + 6] == ' ';
    if (r->out->has_default || !reader_take(r) || !apart)
        return false;
    r->out->has_default = true;
    bool class = reader_is_word(r, WORD_CLASS);
    bool async = reader_is_async_function(r);
    if (!class && !async && !reader_is_word(r, WORD_FUNCTION))
        return reader_assignment(r) && reader_end_statement(r) &&
               plain_hold(r, start, r->last_end, false);
    struct lexer there = r->lexer;
    struct token name = lexer_next(&there);
    if (async)
        name = lexer_next(&there);
    if (name.kind == TOKEN_WORD && name.symbol >= WORDS_RESERVED_COUNT)
        return read_named_default(r, start);
    if (!reader_take(r) || (async && !reader_take(r)))
        return false;
    struct plain_place place = {.function = true, .async = async};
    return (class ? reader_class(r) : reader_function(r, place)) &&
           plain_hold(r, start, r->last_end, true);
}

static bool read_export(struct plain_reader *r) {
    size_t start = r->t.start;
    if (!reader_take(r))
        return false;
    if (reader_is_word(r, WORD_DEFAULT))
        return read_default(r, start);
    if (!reader_is_declaration(r) || !add_edit(r, start, start + 6, ";"))
        return false;
    r->exporting = true;
    bool ok = reader_declaration(r);
    r->exporting = false;
    return ok;
}

static bool plain_read_module(struct plain_reader *r) {
    while (r->t.kind != TOKEN_END) {
        bool ok = reader_is_word(r, WORD_IMPORT)   ? read_import(r)
                  : reader_is_word(r, WORD_EXPORT) ? read_export(r)
                                                   : reader_item(r);
        if (!ok)
            return false;
    }
    return true;
}

/* Nobody assigns to what others see as a value. */
static bool is_settled(const struct plain_reader *r) {
    const struct buf *b = &r->out->imports;
    for (size_t i = 0; i < PLAIN_COUNT(b, struct plain_import); i++)
        if (r->symbols.list[PLAIN_AT(b, struct plain_import, i)->symbol].assigned)
            return false;
    b = &r->out->exports;
    for (size_t i = 0; i < PLAIN_COUNT(b, struct plain_export); i++) {
        const struct plain_export *e = PLAIN_AT(b, struct plain_export, i);
        if (!e->constant && r->symbols.list[e->symbol].assigned)
            return false;
    }
    return true;
}

/* Whether an escape may stand for a character of HOLDER. */
static bool hides_ascii(const char *text, size_t len) {
    const char *end = text + len;
    for (const char *at = text; (at = memmem(at, (size_t)(end - at), "\\u", 2));) {
        at += 2;
        bool braced = at < end && *at == '{';
        at += braced;
        char digits[7] = {0};
        memcpy(digits, at, MIN(braced ? 6 : 4, (size_t)(end - at)));
        char *stop;
        if (strtoul(digits, &stop, 16) < 0x80 || stop - digits < 4)
            return true;
    }
    return false;
}

static bool holder_is_free(const struct plain *m) {
    return !memmem(m->text, m->len, PLAIN_HOLDER, strlen(PLAIN_HOLDER)) &&
           !hides_ascii(m->text, m->len);
}

bool plain_read(const char *text, size_t len, struct plain *ret) {
    *ret = (struct plain){.text = text, .len = len};
    buf_init(&ret->requests, LIST_MAX_BYTES);
    buf_init(&ret->imports, LIST_MAX_BYTES);
    buf_init(&ret->exports, LIST_MAX_BYTES);
    buf_init(&ret->edits, LIST_MAX_BYTES);
    /* A comment that renames the script, and what a script takes for a comment. */
    if (memmem(text, len, "sourceURL=", 10) || memmem(text, len, "<!--", 4))
        return false;
    struct plain_reader r = {
        .scope = READER_MODULE_SCOPE, .scopes = READER_MODULE_SCOPE, .out = ret};
    symbols_init(&r.symbols);
    buf_init(&r.undo, LIST_MAX_BYTES);
    r.lexer = (struct lexer){.text = text, .len = len, .symbols = &r.symbols};
    bool ok = reader_take(&r) && plain_read_module(&r) && is_settled(&r);
    buf_finish(&r.undo);
    symbols_finish(&r.symbols);
    return ok && (!ret->has_holder || holder_is_free(ret));
}

void plain_finish(struct plain *m) {
    buf_finish(&m->requests);
    buf_finish(&m->imports);
    buf_finish(&m->exports);
    buf_finish(&m->edits);
}
