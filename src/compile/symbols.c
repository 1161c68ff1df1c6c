#include "compile/symbols.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { CAPACITY_FIRST = 256, PROBES_MAX = 64 };

static uint32_t hash_of(const char *text, size_t len) {
    uint32_t h = 2166136261U;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)text[i]) * 16777619U;
    return h ^ h >> 15;
}

/* The slot of a word, or the free one where it belongs; NULL: too many others are in its way. */
static uint32_t *symbols_slot_of(const struct symbols *s, const char *text, size_t len) {
    uint32_t mask = s->capacity - 1;
    uint32_t at = hash_of(text, len) & mask;
    for (int i = 0; i < PROBES_MAX; i++, at = (at + 1) & mask) {
        uint32_t *slot = &s->slots[at];
        if (*slot == 0)
            return slot;
        const struct symbol *y = &s->list[*slot - 1];
        if (y->len == len && memcmp(y->text, text, len) == 0)
            return slot;
    }
    return NULL;
}

static void symbols_allocate(struct symbols *s, uint32_t capacity) {
    s->capacity = capacity;
    s->slots = xcalloc(capacity, sizeof(*s->slots));
    s->list = xrealloc(s->list, capacity / 2 * sizeof(*s->list));
}

static bool symbols_grow(struct symbols *s) {
    free(s->slots);
    symbols_allocate(s, s->capacity * 2);
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t *slot = symbols_slot_of(s, s->list[i].text, s->list[i].len);
        if (!slot)
            return false;
        *slot = i + 1;
    }
    return true;
}

uint32_t symbols_add(struct symbols *s, const char *text, size_t len) {
    uint32_t *slot = symbols_slot_of(s, text, len);
    if (slot && *slot)
        return *slot - 1;
    if (slot && s->count == s->capacity / 2)
        slot = symbols_grow(s) ? symbols_slot_of(s, text, len) : NULL;
    if (!slot)
        return SYMBOL_NONE;
    s->list[s->count] = (struct symbol){.text = text, .len = (uint32_t)len};
    *slot = ++s->count;
    return s->count - 1;
}

uint32_t symbols_find(const struct symbols *s, const char *text, size_t len) {
    const uint32_t *slot = symbols_slot_of(s, text, len);
    return slot && *slot ? *slot - 1 : SYMBOL_NONE;
}

void symbols_init(struct symbols *s) {
#define WORD_TEXT(id, text) {text, sizeof(text) - 1},
    static const struct {
        const char *text;
        size_t len;
    } words[] = {WORDS_RESERVED(WORD_TEXT) WORDS_PLACED(WORD_TEXT)};
#undef WORD_TEXT
    *s = (struct symbols){0};
    symbols_allocate(s, CAPACITY_FIRST);
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        (void)symbols_add(s, words[i].text, words[i].len);
}

void symbols_finish(struct symbols *s) {
    free(s->list);
    free(s->slots);
    *s = (struct symbols){0};
}
