#pragma once
/* What is put down in the ledger together: what was used without anything set aside for it, and the
 * jobs that have ended. It is added up by key and kind of job, and told as one ask, each second or
 * when somebody wants to know. So a server that dies at once loses a second of it. What the ledger
 * did not acknowledge is told again, under the same ids, until it has. */

#include "front/ledger/ledger.h"

enum { TALLY_KIND_SIZE = 24 };

struct tally;

struct tally *tally_create(struct ledger *ledger);
/* Whatever was asked is answered. */
void tally_destroy(struct tally *t);

/* Adds what settling reads, to what this owner has of this kind. */
void tally_add(struct tally *t, const struct ledger_used *used);
/* Whether the ledger was not told of something of this owner, or may not have heard. */
bool tally_has(const struct tally *t, const char *owner);
/* Tells it all: so who asks the ledger next hears of it. */
void tally_tell(struct tally *t);
/* The same, once a second: what is new waits while an answer is awaited. */
void tally_tick(struct tally *t);
