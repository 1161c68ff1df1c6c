#include "front/store/internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* What ended while the disk was full is written down when there is room. Without it a run would be
 * "running" until the next start, and then be called interrupted; one that was untold would not be
 * there at all, so that is tried again whatever the reason was. Few can be under way at a time,
 * and none begins while nothing can be recorded. */
enum { LATE_MAX = 1024, LATE_BYTES = 16 << 20 };

struct store_late {
    struct store_late *next;
    char *kind; /* of a record; NULL: a run */
    struct store_record record;
    struct store_run run; /* of which id, status, error, detail and finished_ms are set, and all
                             else if it is not in the database yet */
    size_t bytes;
};

static char *copy(const char *text) {
    return text ? xstrdup(text) : NULL;
}

static void free_late(struct store *s, struct store_late *l) {
    s->nlate--;
    s->late_bytes -= l->bytes;
    free(l->kind);
    store_record_finish(&l->record);
    store_run_finish(&l->run);
    free(l);
}

/* False: there are too many, or it is too big. */
static bool keep(struct store *s, struct store_late *l, size_t bytes) {
    struct store_late **at = &s->late;
    s->nlate++;
    s->late_bytes += l->bytes = bytes;
    if (s->nlate > LATE_MAX || s->late_bytes > LATE_BYTES) {
        free_late(s, l);
        return false;
    }
    while (*at)
        at = &(*at)->next;
    *at = l;
    return true;
}

void store_late_run(struct store *s, const struct store_run *run, const struct store_run_end *end) {
    struct store_late *l = xcalloc(1, sizeof(*l));
    struct store_run_end its = *end;
    const char *detail = end->detail ? end->detail : run->detail;
    size_t len = end->detail ? end->detail_len : detail ? strlen(detail) : 0;
    bool fits = detail && s->late_bytes + len <= LATE_BYTES / 2;
    memcpy(l->run.id, run->id, sizeof(l->run.id));
    memcpy(l->run.owner, run->owner, sizeof(l->run.owner));
    l->run.kind = copy(run->kind);
    l->run.title = copy(run->title);
    l->run.created_ms = run->created_ms;
    its.detail = fits ? detail : NULL;
    its.detail_len = len;
    store_run_close(&l->run, &its, clock_wall_ms());
    (void)keep(s, l, fits ? len : 0);
}

void store_late_record(struct store *s, const char *kind, const struct store_record *r) {
    struct store_late *l = xcalloc(1, sizeof(*l));
    l->kind = xstrdup(kind);
    l->record = *r;
    l->record.status = copy(r->status);
    l->record.doc = copy(r->doc);
    (void)keep(s, l, strlen(r->doc));
}

void store_late_forget(struct store *s, const char *id) {
    for (struct store_late **at = &s->late; *at;) {
        struct store_late *l = *at;
        bool same = strcmp(l->record.id, id) == 0 || strcmp(l->record.parent, id) == 0;
        if (l->kind && same) {
            *at = l->next;
            free_late(s, l);
        } else {
            at = &l->next;
        }
    }
}

void store_late_drop(struct store *s) {
    while (s->late) {
        struct store_late *l = s->late;
        s->late = l->next;
        free_late(s, l);
    }
}

static int write_late(struct store *s, const struct store_late *l, struct err *err) {
    const struct store_run *r = &l->run;
    struct store_run_end end = store_end_of(r);
    if (l->kind)
        return store_write_record(s, l->kind, &l->record, err);
    return r->kind ? store_write_whole(s, r, &end, r->finished_ms, err)
                   : store_write_end(s, r->id, &end, r->finished_ms, err);
}

void store_settle(struct store *s) {
    struct store_late *l;
    while ((l = s->late)) {
        struct err err;
        int rc = write_late(s, l, &err);
        if (rc == -ERR_FULL)
            return;
        s->late = l->next;
        free_late(s, l);
    }
}
