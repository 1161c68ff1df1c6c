#pragma once
/* Reads the modules that most programs are made of: everyday JavaScript with imports by name and
 * exports of declarations. It says what such a module imports and exports and where its text must
 * change; of every other module, also of one with an error, it says that it is not plain, and the
 * compiler in js/ has the word. So the question at each place is not what the language allows but
 * what js/ surely takes, and takes in this way.
 *
 * Left out, among others: var (hoisting), await at the top, generators, labels, private names and
 * fields, accessors, patterns that assign, import.meta, import(), eval, arguments, a name that is
 * declared twice in a scope, an import or an exported variable that is assigned to. */

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* A part of the source, or a constant. */
struct plain_text {
    const char *text;
    size_t len;
};

struct plain_import {
    struct plain_text name; /* of the other module's export */
    struct plain_text local;
    size_t request;
    uint32_t symbol;
    int module, slot; /* what it means, for whoever links */
};

struct plain_export {
    struct plain_text name;
    struct plain_text local; /* empty: what `export default` says without a name */
    uint32_t symbol;
    bool constant;
};

/* From start to end comes `text`, and blanks for what it leaves; lines stay where they are. */
struct plain_edit {
    size_t start, end;
    const char *text;
};

struct plain {
    const char *text; /* borrowed */
    size_t len;
    struct buf requests; /* struct plain_text: whom it imports from, once each */
    struct buf imports;
    struct buf exports;
    struct buf edits; /* in the order of the source */
    bool has_default;
    bool has_holder; /* its default export has no name: the edits put it into HOLDER */
};

#define PLAIN_HOLDER "$0"

#define PLAIN_COUNT(b, type) ((b)->len / sizeof(type))
#define PLAIN_AT(b, type, i) ((type *)(void *)(b)->data + (i))

/* False if the module is not plain. `ret` is finished by the caller, whatever comes back. */
bool plain_read(const char *text, size_t len, struct plain *ret);
void plain_finish(struct plain *m);
