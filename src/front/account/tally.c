#include "front/account/tally.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 64, TOLD_MAX = 16 };

/* Rows that are told together. */
struct batch {
    struct batch *next;
    struct tally *tally;
    struct ledger_used rows[ROWS_MAX];
    char kinds[ROWS_MAX][TALLY_KIND_SIZE];
    size_t n;
    bool asked; /* the ledger is, and has not answered */
};

struct tally {
    struct ledger *ledger;
    struct batch *open; /* what is added up, newest first: a row for each key and kind */
    struct batch *told; /* oldest first, until they are acknowledged */
};

struct tally *tally_create(struct ledger *ledger) {
    struct tally *t = xcalloc(1, sizeof(*t));
    t->ledger = ledger;
    return t;
}

static void free_all(struct batch *first) {
    struct batch *next;
    for (struct batch *b = first; b; b = next) {
        next = b->next;
        free(b);
    }
}

void tally_destroy(struct tally *t) {
    if (!t)
        return;
    free_all(t->told);
    free_all(t->open);
    free(t);
}

/* --- telling --- */

static void tally_drop(struct batch *b) {
    struct batch **at = &b->tally->told;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    free(b);
}

static void tally_on_settled(void *ctx, const struct ledger_answer *answer) {
    struct batch *b = ctx;
    enum err_code code = answer->err.code;
    b->asked = false;
    if (code == ERR_UNAVAILABLE || code == ERR_FULL)
        return;
    if (code)
        log_error("account.tally", "error", answer->err.message);
    tally_drop(b);
}

static void tally_ask(struct batch *b) {
    b->asked = true;
    ledger_call(b->tally->ledger,
                &(struct ledger_ask){.op = LEDGER_SETTLE,
                                     .settle = {.node = LEDGER_HERE, .used = b->rows, .n = b->n}},
                tally_on_settled, b);
}

/* When so many are not acknowledged, the ledger is away and answers nobody: what is new waits. */
static void close_open(struct tally *t, size_t told_max) {
    struct batch **at = &t->told;
    size_t n = 0;
    for (; *at; at = &(*at)->next)
        n++;
    if (n >= told_max)
        return;
    *at = t->open;
    t->open = NULL;
}

static void ask_all(struct tally *t) {
    for (struct batch *b = t->told; b; b = b->next)
        if (!b->asked)
            tally_ask(b);
}

void tally_tell(struct tally *t) {
    close_open(t, TOLD_MAX);
    ask_all(t);
}

void tally_tick(struct tally *t) {
    close_open(t, 1);
    ask_all(t);
}

/* --- adding up --- */

static struct ledger_used *tally_find(struct tally *t, const struct ledger_used *used) {
    for (struct batch *b = t->open; b; b = b->next)
        for (size_t i = 0; i < b->n; i++)
            if (strcmp(b->rows[i].owner, used->owner) == 0 &&
                strcmp(b->rows[i].key, used->key) == 0 &&
                strncmp(b->kinds[i], used->kind, TALLY_KIND_SIZE - 1) == 0)
                return &b->rows[i];
    return NULL;
}

/* While the ledger is awaited nothing new is told: so a key has one row of a kind that waits,
 * however long the ledger stays away. */
static struct ledger_used *add_row(struct tally *t, const struct ledger_used *used) {
    if (t->open && t->open->n == ROWS_MAX && !t->told)
        tally_tell(t);
    if (!t->open || t->open->n == ROWS_MAX) {
        struct batch *fresh = xcalloc(1, sizeof(*fresh));
        fresh->tally = t;
        fresh->next = t->open;
        t->open = fresh;
    }
    struct batch *b = t->open;
    struct ledger_used *row = &b->rows[b->n];
    (void)id_new("hold", row->id);
    memcpy(row->owner, used->owner, sizeof(row->owner));
    memcpy(row->key, used->key, sizeof(row->key));
    (void)snprintf(b->kinds[b->n], TALLY_KIND_SIZE, "%s", used->kind);
    row->kind = b->kinds[b->n++];
    return row;
}

void tally_add(struct tally *t, const struct ledger_used *used) {
    struct ledger_used *row = tally_find(t, used);
    if (!row)
        row = add_row(t, used);
    row->jobs += used->jobs;
    row->done += used->done;
    row->wall_ms += used->wall_ms;
    row->input_tokens += used->input_tokens;
    row->output_tokens += used->output_tokens;
    row->cache_read_tokens += used->cache_read_tokens;
    row->cache_write_tokens += used->cache_write_tokens;
    row->cost_nusd += used->cost_nusd;
    row->charged_nusd += used->charged_nusd;
}

static bool batch_has(const struct batch *b, const char *owner) {
    for (size_t i = 0; i < b->n; i++)
        if (strcmp(b->rows[i].owner, owner) == 0)
            return true;
    return false;
}

bool tally_has(const struct tally *t, const char *owner) {
    for (const struct batch *b = t->told; b; b = b->next)
        if (!b->asked && batch_has(b, owner))
            return true;
    for (const struct batch *b = t->open; b; b = b->next)
        if (batch_has(b, owner))
            return true;
    return false;
}
