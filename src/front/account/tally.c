#include "front/account/tally.h"

#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 64 };

/* Rows that are told together. */
struct batch {
    struct batch *next;
    struct tally *tally;
    struct ledger_spend rows[ROWS_MAX];
    char kinds[ROWS_MAX][TALLY_KIND_SIZE];
    size_t n;
    bool asked; /* the ledger is, and has not answered */
};

struct tally {
    struct ledger *ledger;
    struct batch *open; /* what is added up; NULL: nothing */
    struct batch *told; /* oldest first, until they are acknowledged */
};

struct tally *tally_create(struct ledger *ledger) {
    struct tally *t = xcalloc(1, sizeof(*t));
    t->ledger = ledger;
    return t;
}

void tally_destroy(struct tally *t) {
    if (!t)
        return;
    struct batch *next;
    for (struct batch *b = t->told; b; b = next) {
        next = b->next;
        free(b);
    }
    free(t->open);
    free(t);
}

/* --- telling --- */

static void drop(struct batch *b) {
    struct batch **at = &b->tally->told;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    free(b);
}

static void on_settled(void *ctx, const struct ledger_answer *answer) {
    struct batch *b = ctx;
    enum err_code code = answer->err.code;
    b->asked = false;
    if (code == ERR_UNAVAILABLE || code == ERR_FULL)
        return;
    if (code)
        log_error("account.tally", "error", answer->err.message);
    drop(b);
}

static void ask(struct batch *b) {
    b->asked = true;
    ledger_call(b->tally->ledger,
                &(struct ledger_ask){
                    .op = LEDGER_SETTLE, .node = LEDGER_HERE, .spends = b->rows, .nspends = b->n},
                on_settled, b);
}

static void close_open(struct tally *t) {
    struct batch **at = &t->told;
    if (!t->open)
        return;
    while (*at)
        at = &(*at)->next;
    *at = t->open;
    t->open = NULL;
}

void tally_tell(struct tally *t) {
    close_open(t);
    for (struct batch *b = t->told; b; b = b->next)
        if (!b->asked)
            ask(b);
}

void tally_tick(struct tally *t) {
    if (!t->told)
        close_open(t);
    for (struct batch *b = t->told; b; b = b->next)
        if (!b->asked)
            ask(b);
}

/* --- adding up --- */

static struct ledger_spend *find(struct batch *b, const char *owner, const char *kind) {
    for (size_t i = 0; i < b->n; i++)
        if (strcmp(b->rows[i].owner, owner) == 0 &&
            strncmp(b->kinds[i], kind, TALLY_KIND_SIZE - 1) == 0)
            return &b->rows[i];
    return NULL;
}

static struct ledger_spend *add_row(struct tally *t, const char *owner, const char *kind) {
    if (t->open && t->open->n == ROWS_MAX)
        tally_tell(t);
    if (!t->open) {
        t->open = xcalloc(1, sizeof(*t->open));
        t->open->tally = t;
    }
    struct batch *b = t->open;
    struct ledger_spend *row = &b->rows[b->n];
    (void)id_new("hold", row->id);
    (void)snprintf(row->owner, sizeof(row->owner), "%s", owner);
    (void)snprintf(b->kinds[b->n], TALLY_KIND_SIZE, "%s", kind);
    row->kind = b->kinds[b->n++];
    return row;
}

void tally_add(struct tally *t, const struct ledger_spend *used) {
    struct ledger_spend *row = t->open ? find(t->open, used->owner, used->kind) : NULL;
    if (!row)
        row = add_row(t, used->owner, used->kind);
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
    return t->open && batch_has(t->open, owner);
}
