#pragma once
/* Long texts in a database of ours, in pieces. To write megabytes takes SQLite milliseconds, for
 * which nothing else is done; a piece takes half a one, and each is a transaction of its own. A
 * text is nobody's until it is kept, in the transaction of the row that refers to it: so a crash
 * leaves it whole or as nothing. What was not kept, or was dropped, is removed in pieces too. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sqlite3;

enum { PIECES_BYTES = 256 << 10, PIECES_MAX = 1024 };

/* For a migration. A trigger that drops a text has PIECES_DROP and the column behind it. */
#define PIECES_SCHEMA                                                                              \
    "CREATE TABLE texts (id INTEGER PRIMARY KEY AUTOINCREMENT, state INTEGER NOT NULL);"           \
    "CREATE INDEX texts_dropped ON texts (id) WHERE state = 2;"                                    \
    "CREATE TABLE text_pieces (id INTEGER PRIMARY KEY, piece BLOB NOT NULL);"
#define PIECES_DROP "UPDATE texts SET state = 2 WHERE id = "

struct pieces;

/* The tables are there. */
int pieces_open(struct sqlite3 *db, struct pieces **ret_pieces, struct err *err);
/* Before the connection is closed. NULL is allowed. */
void pieces_close(struct pieces *p);

/* What was being written when the server ended is to be removed. For the server alone, before it
 * writes. */
int pieces_recover(struct pieces *p, struct err *err);

/* A new text, which is nobody's. Its number is never given again: who reads a text that went does
 * not get another one. */
int pieces_begin(struct pieces *p, int64_t *ret_text, struct err *err);
/* Its n-th piece, of at most PIECES_BYTES. */
int pieces_add(struct pieces *p, int64_t text, size_t n, const void *data, size_t len,
               struct err *err);
/* Something refers to it now. */
int pieces_keep(struct pieces *p, int64_t text, struct err *err);
int pieces_drop(struct pieces *p, int64_t text, struct err *err);
/* ERR_NOT_FOUND: it has no such piece, or not any more. */
int pieces_read(struct pieces *p, int64_t text, size_t n, char out[PIECES_BYTES], size_t *ret_len,
                struct err *err);
/* Removes a piece of what was dropped. False: there is nothing to remove. */
bool pieces_sweep(struct pieces *p);
bool pieces_wants_sweep(struct pieces *p);
