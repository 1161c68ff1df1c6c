#pragma once
/* The words of one module, each with a number; the reserved ones come first, in the order of enum
 * word. The text is borrowed. What the reader of modules keeps of a word stands here, too. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* RESERVED are those that can be no name in a module, and those that mean something else often
 * enough that they are not taken for one. */
#define WORDS_RESERVED(X)                                                                          \
    X(ARGUMENTS, "arguments")                                                                      \
    X(ASYNC, "async")                                                                              \
    X(AWAIT, "await")                                                                              \
    X(BREAK, "break")                                                                              \
    X(CASE, "case")                                                                                \
    X(CATCH, "catch")                                                                              \
    X(CLASS, "class")                                                                              \
    X(CONST, "const")                                                                              \
    X(CONTINUE, "continue")                                                                        \
    X(DEBUGGER, "debugger")                                                                        \
    X(DEFAULT, "default")                                                                          \
    X(DELETE, "delete")                                                                            \
    X(DO, "do")                                                                                    \
    X(ELSE, "else")                                                                                \
    X(ENUM, "enum")                                                                                \
    X(EVAL, "eval")                                                                                \
    X(EXPORT, "export")                                                                            \
    X(EXTENDS, "extends")                                                                          \
    X(FALSE, "false")                                                                              \
    X(FINALLY, "finally")                                                                          \
    X(FOR, "for")                                                                                  \
    X(FUNCTION, "function")                                                                        \
    X(IF, "if")                                                                                    \
    X(IMPLEMENTS, "implements")                                                                    \
    X(IMPORT, "import")                                                                            \
    X(IN, "in")                                                                                    \
    X(INSTANCEOF, "instanceof")                                                                    \
    X(INTERFACE, "interface")                                                                      \
    X(LET, "let")                                                                                  \
    X(NEW, "new")                                                                                  \
    X(NULL, "null")                                                                                \
    X(OF, "of")                                                                                    \
    X(PACKAGE, "package")                                                                          \
    X(PRIVATE, "private")                                                                          \
    X(PROTECTED, "protected")                                                                      \
    X(PROTO, "__proto__")                                                                          \
    X(PUBLIC, "public")                                                                            \
    X(RETURN, "return")                                                                            \
    X(STATIC, "static")                                                                            \
    X(SUPER, "super")                                                                              \
    X(SWITCH, "switch")                                                                            \
    X(THIS, "this")                                                                                \
    X(THROW, "throw")                                                                              \
    X(TRUE, "true")                                                                                \
    X(TRY, "try")                                                                                  \
    X(TYPEOF, "typeof")                                                                            \
    X(USING, "using")                                                                              \
    X(VAR, "var")                                                                                  \
    X(VOID, "void")                                                                                \
    X(WHILE, "while")                                                                              \
    X(WITH, "with")                                                                                \
    X(YIELD, "yield")
/* Words with a meaning in their place, and names elsewhere. */
#define WORDS_PLACED(X)                                                                            \
    X(AS, "as")                                                                                    \
    X(CONSTRUCTOR, "constructor")                                                                  \
    X(FROM, "from")                                                                                \
    X(GET, "get")                                                                                  \
    X(PROTOTYPE, "prototype")                                                                      \
    X(SET, "set")

#define WORD_NUMBER(id, text) WORD_##id,
enum word { WORDS_RESERVED(WORD_NUMBER) WORDS_PLACED(WORD_NUMBER) WORDS };
enum { WORDS_RESERVED_COUNT = WORD_YIELD + 1 };
#undef WORD_NUMBER

#define SYMBOL_NONE UINT32_MAX

struct symbol {
    const char *text;
    uint32_t len;
    uint32_t scope;   /* the innermost that declares it; 0: none */
    uint32_t request; /* the number, and one, of the module that is asked for by it; 0: none */
    bool assigned;    /* somewhere, in any scope */
};

struct symbols {
    struct symbol *list;
    uint32_t *slots; /* by hash: a number and one, 0: free */
    uint32_t count;
    uint32_t capacity; /* of slots: a power of two, at least twice the count */
};

void symbols_init(struct symbols *s);
void symbols_finish(struct symbols *s);
/* The number of a word, a new one if it was not seen yet. SYMBOL_NONE when its place is crowded:
 * whoever chose the words chose them for that. */
uint32_t symbols_add(struct symbols *s, const char *text, size_t len);
/* SYMBOL_NONE: it was not seen. */
uint32_t symbols_find(const struct symbols *s, const char *text, size_t len);

static inline void cleanup_symbols(struct symbols *s) {
    symbols_finish(s);
}
