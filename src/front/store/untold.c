#include "front/store/internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

/* What began and was told to nobody yet waits in memory for UNTOLD_MS. Most of it has ended by
 * then, and is written once instead of twice. Whoever asks the store for anything has all of it
 * written first (store_ready()), so what somebody can have heard of is in the database. */
enum { UNTOLD_MS = 10, UNTOLD_MAX = 256, UNTOLD_BYTES = 4 << 20, RETRY_MS = 1000 };

enum { BEGIN, COMMIT, ROLLBACK };

static const char *const sql[] = {
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
    [ROLLBACK] = "ROLLBACK",
};

const struct store_statements store_untold_statements = {sql, ARRAY_LEN(sql)};

struct store_untold {
    struct store_untold *next;
    char *kind; /* of a record; NULL: a run */
    struct store_record record;
    struct store_run run;
    bool ended; /* and stands in the file of ends */
    size_t bytes;
    int64_t since_ms; /* monotonic */
};

static void drop(struct store *s, struct store_untold **at) {
    struct store_untold *u = *at;
    *at = u->next;
    if (!*at)
        s->untold_last = at;
    s->nuntold--;
    s->nended -= u->ended;
    s->untold_bytes -= u->bytes;
    free(u->kind);
    store_record_finish(&u->record);
    store_run_finish(&u->run);
    free(u);
}

void store_untold_drop(struct store *s) {
    while (s->untold)
        drop(s, &s->untold);
}

/* --- writing --- */

static int step(struct store *s, int which, struct err *err) {
    return store_step(store_next(s, STORE_UNTOLD, which), sql[which], NULL, err);
}

static int write_one(struct store *s, const struct store_untold *u, struct err *err) {
    struct store_run_end end;
    if (u->kind)
        return store_add_record(s, u->kind, &u->record, err);
    if (!u->ended)
        return store_add_run(s, &u->run, NULL, 0, err);
    end = store_end_of(&u->run);
    return store_add_run(s, &u->run, &end, u->run.finished_ms, err);
}

/* Those before `last`, in their order, and that one too if it ends; NULL: all of them. */
static int write_list(struct store *s, const struct store_untold *last,
                      const struct store_run_end *end, struct err *err) {
    int rc = 0;
    for (const struct store_untold *u = s->untold; rc == 0 && u != last; u = u->next)
        rc = write_one(s, u, err);
    if (rc == 0 && end)
        rc = store_add_run(s, &last->run, end, clock_wall_ms(), err);
    return rc;
}

/* The same, all or nothing; a statement alone is a transaction by itself. */
static int write_upto(struct store *s, const struct store_untold *last,
                      const struct store_run_end *end, struct err *err) {
    struct err ignored;
    bool alone = end ? last == s->untold && !store_has_usage(&end->usage)
                     : last == s->untold->next && !store_has_usage(&s->untold->run.usage);
    int rc = alone ? 0 : step(s, BEGIN, err);
    if (rc < 0 || alone)
        return rc < 0 ? rc : write_list(s, last, end, err);
    rc = write_list(s, last, end, err);
    if (rc == 0)
        rc = step(s, COMMIT, err);
    if (rc < 0)
        (void)step(s, ROLLBACK, &ignored);
    return rc;
}

static int write_before(struct store *s, const struct store_untold *last, struct err *err) {
    if (s->untold == last || !sqlite3_get_autocommit(s->db))
        return 0;
    store_care_give_way(s);
    int rc = write_upto(s, last, NULL, err);
    s->untold_stuck = rc < 0;
    while (rc == 0 && s->untold != last)
        drop(s, &s->untold);
    if (rc == 0 && s->nended == 0)
        store_ends_clear(s);
    for (struct store_untold *u = s->untold; rc < 0 && u; u = u->next)
        u->since_ms = clock_mono_ms() + RETRY_MS;
    return rc;
}

int store_untold_write(struct store *s, struct err *err) {
    return write_before(s, NULL, err);
}

/* What has only begun would be written again at its end, before its answer: it may wait on. The
 * list keeps its order, so what began before one that has ended goes with it. Where one takes
 * longer, so will others, and all are written together. */
int store_untold_write_due(struct store *s, int64_t now_ms, struct err *err) {
    const struct store_untold *last = s->untold;
    for (const struct store_untold *u = s->untold; u; u = u->next) {
        if (u->ended)
            last = u->next;
        else if (u->since_ms + UNTOLD_MS <= now_ms)
            return write_before(s, NULL, err);
    }
    return write_before(s, last, err);
}

int64_t store_untold_due_ms(const struct store *s) {
    return s->untold ? MAX(s->untold->since_ms + UNTOLD_MS - clock_mono_ms(), 0) : -1;
}

/* --- what begins --- */

/* Whether it may wait. What could not be written is still here: who comes now is to hear of it. */
static bool has_room(struct store *s, size_t bytes) {
    struct err ignored;
    if (s->untold_stuck || s->late || bytes > UNTOLD_BYTES)
        return false;
    return (s->nuntold < UNTOLD_MAX && s->untold_bytes + bytes <= UNTOLD_BYTES) ||
           store_untold_write(s, &ignored) == 0;
}

static struct store_untold *add(struct store *s, size_t bytes) {
    struct store_untold *u = xcalloc(1, sizeof(*u));
    u->since_ms = clock_mono_ms();
    u->bytes = bytes;
    s->untold_bytes += bytes;
    s->nuntold++;
    *s->untold_last = u;
    s->untold_last = &u->next;
    return u;
}

static char *copy(const char *text) {
    return text ? xstrdup(text) : NULL;
}

int store_run_begin_untold(struct store *s, const struct store_run *run, struct err *err) {
    size_t bytes = strlen(run->title) + (run->detail ? strlen(run->detail) : 0);
    if (!has_room(s, bytes)) {
        int rc = store_run_begin(s, run, err);
        s->untold_stuck = rc < 0 || s->untold != NULL;
        return rc;
    }
    struct store_untold *u = add(s, bytes);
    u->run.created_ms = run->created_ms;
    memcpy(u->run.id, run->id, sizeof(run->id));
    memcpy(u->run.owner, run->owner, sizeof(run->owner));
    u->run.kind = copy(run->kind);
    u->run.title = copy(run->title);
    u->run.detail = copy(run->detail);
    return 0;
}

/* NULL is there if there is none. */
static struct store_untold **find_record(struct store *s, const char *kind, const char *id) {
    struct store_untold **at = &s->untold;
    while (*at &&
           (!(*at)->kind || strcmp((*at)->record.id, id) != 0 || strcmp((*at)->kind, kind) != 0))
        at = &(*at)->next;
    return at;
}

static struct store_untold *add_record(struct store *s, const char *kind,
                                       const struct store_record *r) {
    struct store_untold *u = add(s, strlen(r->doc));
    u->kind = xstrdup(kind);
    u->record = *r;
    u->record.status = copy(r->status);
    u->record.doc = copy(r->doc);
    return u;
}

int store_record_put_untold(struct store *s, const char *kind, const struct store_record *r,
                            struct err *err) {
    size_t bytes = strlen(r->doc);
    store_untold_forget(s, kind, r->id);
    if (!has_room(s, bytes)) {
        int rc = store_record_put(s, kind, r, err);
        s->untold_stuck = rc < 0 || s->untold != NULL;
        return rc;
    }
    (void)add_record(s, kind, r);
    return 0;
}

bool store_untold_record(struct store *s, const char *kind, const struct store_record *r) {
    if (s->ends_fd < 0 || !has_room(s, strlen(r->doc)) || !store_ends_add_record(s, kind, r))
        return false;
    struct store_untold **older = find_record(s, kind, r->id);
    if (*older)
        drop(s, older);
    add_record(s, kind, r)->ended = true;
    s->nended++;
    return true;
}

/* --- what ends, or is written in another way --- */

void store_untold_forget(struct store *s, const char *kind, const char *id) {
    struct err ignored;
    struct store_untold **at = find_record(s, kind, id);
    /* What the file of ends has of it is older, and must not be taken from there after it. */
    if (*at && (*at)->ended && store_untold_write(s, &ignored) == 0)
        return;
    if (*at)
        drop(s, at);
}

/* It is told when that returns true: the file has it, and the database soon. */
static bool end_in_file(struct store *s, struct store_untold *u, const struct store_run_end *end) {
    if (s->ends_fd < 0 || s->untold_stuck || end->detail_len > UNTOLD_BYTES / 4)
        return false;
    store_run_close(&u->run, end, clock_wall_ms());
    size_t bytes = strlen(u->run.title) + (u->run.detail ? strlen(u->run.detail) : 0);
    s->untold_bytes += bytes - u->bytes;
    u->bytes = bytes;
    u->ended = store_ends_add(s, &u->run);
    s->nended += u->ended;
    return u->ended;
}

bool store_untold_end(struct store *s, const char *id, const struct store_run_end *end, int *ret_rc,
                      struct err *err) {
    struct store_untold *u = s->untold;
    while (u && (u->kind || u->ended || strcmp(u->run.id, id) != 0))
        u = u->next;
    if (!u)
        return false;
    *ret_rc = 0;
    if (end_in_file(s, u, end))
        return true;
    store_care_give_way(s);
    int rc = write_upto(s, u, end, err);
    s->untold_stuck = rc < 0;
    if (rc < 0) /* whatever the reason is: nothing of it is in the database */
        store_late_run(s, &u->run, end);
    struct store_untold **at = &s->untold;
    while (*at && *at != u)
        if (rc == 0)
            drop(s, at); /* it is written too */
        else
            at = &(*at)->next;
    if (*at)
        drop(s, at);
    if (s->nended == 0)
        store_ends_clear(s);
    *ret_rc = rc;
    return true;
}
