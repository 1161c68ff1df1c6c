#include "front/run/roster.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { SLOT = sizeof(void *) };

struct roster {
    struct ledger_worker **by_id; /* by owner, then id */
    struct ledger_worker **by_label;
    size_t n;
    size_t room;
    uint64_t version;
    int64_t (*now_ms)(void);
    int64_t fresh_ms; /* when it was told or confirmed */
    void (*look)(void *ctx);
    void *look_ctx;
    void (*changed)(void *ctx);
    void *changed_ctx;
};

static void roster_make_room(struct roster *r, size_t n) {
    if (n <= r->room)
        return;
    r->room = MAX(n, MAX(2 * r->room, 16));
    r->by_id = xrealloc(r->by_id, r->room * SLOT);
    r->by_label = xrealloc(r->by_label, r->room * SLOT);
}

struct roster *roster_create(int64_t (*now_ms)(void)) {
    struct roster *r = xcalloc(1, sizeof(*r));
    r->now_ms = now_ms;
    roster_make_room(r, 1);
    return r;
}

static void roster_drop(struct roster *r) {
    for (size_t i = 0; i < r->n; i++)
        free(r->by_id[i]);
    r->n = 0;
}

void roster_destroy(struct roster *r) {
    if (!r)
        return;
    roster_drop(r);
    free(r->by_id);
    free(r->by_label);
    free(r);
}

void roster_on_stale(struct roster *r, void (*look)(void *ctx), void *ctx) {
    r->look = look;
    r->look_ctx = ctx;
}

void roster_on_change(struct roster *r, void (*changed)(void *ctx), void *ctx) {
    r->changed = changed;
    r->changed_ctx = ctx;
}

static int roster_compare_ids(const struct ledger_worker *a, const struct ledger_worker *b) {
    int c = strcmp(a->owner, b->owner);
    return c ? c : strcmp(a->id, b->id);
}

static int compare_labels(const struct ledger_worker *a, const struct ledger_worker *b) {
    return strcmp(a->label, b->label);
}

typedef int (*comparison)(const struct ledger_worker *a, const struct ledger_worker *b);

static int roster_by_id(const void *a, const void *b) {
    return roster_compare_ids(*(struct ledger_worker *const *)a, *(struct ledger_worker *const *)b);
}

static int by_label(const void *a, const void *b) {
    return compare_labels(*(struct ledger_worker *const *)a, *(struct ledger_worker *const *)b);
}

/* The place of the first that is not before the key. */
static size_t roster_place_of(struct ledger_worker *const *list, size_t n,
                              const struct ledger_worker *key, comparison compare) {
    size_t low = 0;
    size_t high = n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (compare(list[mid], key) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static struct ledger_worker *roster_get(struct ledger_worker *const *list, size_t n,
                                        const struct ledger_worker *key, comparison compare) {
    size_t i = roster_place_of(list, n, key, compare);
    return i < n && compare(list[i], key) == 0 ? list[i] : NULL;
}

static void roster_insert(struct ledger_worker **list, size_t n, struct ledger_worker *w,
                          comparison compare) {
    size_t i = roster_place_of(list, n, w, compare);
    memmove(list + i + 1, list + i, (n - i) * SLOT);
    list[i] = w;
}

static void roster_take_out(struct ledger_worker **list, size_t n, const struct ledger_worker *w,
                            comparison compare) {
    size_t i = roster_place_of(list, n, w, compare);
    memmove(list + i, list + i + 1, (n - i - 1) * SLOT);
}

static void roster_told(struct roster *r, uint64_t version) {
    r->version = version;
    r->fresh_ms = r->now_ms();
    if (r->changed)
        r->changed(r->changed_ctx);
}

static struct ledger_worker *roster_copy(const struct ledger_worker *w) {
    struct ledger_worker *own = xmalloc(sizeof(*own));
    *own = *w;
    own->code = NULL;
    return own;
}

/* What comes late is older than what is here. */
static void roster_on_all(void *ctx, struct ledger_worker *workers, size_t n, uint64_t version) {
    struct roster *r = ctx;
    if (version > r->version) {
        roster_drop(r);
        roster_make_room(r, n);
        for (size_t i = 0; i < n; i++)
            r->by_id[i] = r->by_label[i] = roster_copy(&workers[i]);
        r->n = n;
        if (n > 0) {
            qsort(r->by_id, n, SLOT, roster_by_id);
            qsort(r->by_label, n, SLOT, by_label);
        }
        roster_told(r, version);
    }
    for (size_t i = 0; i < n; i++)
        ledger_worker_finish(&workers[i]);
    free(workers);
}

static void remove_worker(struct roster *r, const struct ledger_worker *key) {
    struct ledger_worker *w = roster_get(r->by_id, r->n, key, roster_compare_ids);
    if (!w)
        return;
    roster_take_out(r->by_id, r->n, w, roster_compare_ids);
    roster_take_out(r->by_label, r->n, w, compare_labels);
    r->n--;
    free(w);
}

/* What does not follow on what is here is not used: it is older, or something is missing between,
 * and then the list is not confirmed either. */
static void run_roster_on_change(void *ctx, const struct ledger_worker *worker, bool gone,
                                 uint64_t version) {
    struct roster *r = ctx;
    if (r->version == 0 || version != r->version + 1)
        return;
    remove_worker(r, worker);
    if (!gone) {
        struct ledger_worker *w = roster_copy(worker);
        roster_make_room(r, r->n + 1);
        roster_insert(r->by_id, r->n, w, roster_compare_ids);
        roster_insert(r->by_label, r->n, w, compare_labels);
        r->n++;
    }
    roster_told(r, version);
}

static void roster_on_confirmed(void *ctx, uint64_t version) {
    struct roster *r = ctx;
    if (version == r->version)
        r->fresh_ms = r->now_ms();
}

struct ledger_worker_watch roster_watch(struct roster *r) {
    return (struct ledger_worker_watch){.on_all = roster_on_all,
                                        .on_change = run_roster_on_change,
                                        .on_confirmed = roster_on_confirmed,
                                        .ctx = r};
}

static bool roster_is_stale(const struct roster *r) {
    return r->version == 0 || r->now_ms() - r->fresh_ms > LEDGER_STALE_MS;
}

static int check_fresh(struct roster *r, struct err *err) {
    if (roster_is_stale(r) && r->look)
        r->look(r->look_ctx); /* the whole process may have been asleep */
    return roster_is_stale(r)
               ? err_set(err, ERR_UNAVAILABLE,
                         "the ledger with the workers does not answer: try again in some "
                         "seconds")
               : 0;
}

static int run_roster_find(struct roster *r, bool label, const char *name,
                           const struct ledger_worker *key, struct ledger_worker *ret_worker,
                           struct err *err) {
    int rc = check_fresh(r, err);
    if (rc < 0)
        return rc;
    const struct ledger_worker *w = label ? roster_get(r->by_label, r->n, key, compare_labels)
                                          : roster_get(r->by_id, r->n, key, roster_compare_ids);
    if (!w)
        return err_set(err, ERR_NOT_FOUND, "there is no worker \"%.60s\"", name);
    *ret_worker = *w;
    return 0;
}

/* False: no worker has such a name. */
static bool set_name(char *out, size_t size, const char *name) {
    size_t n = strlen(name);
    if (n >= size)
        return false;
    memcpy(out, name, n + 1);
    return true;
}

int roster_find(struct roster *r, const char *owner, const char *id,
                struct ledger_worker *ret_worker, struct err *err) {
    struct ledger_worker key = {0};
    if (!set_name(key.owner, sizeof(key.owner), owner) || !set_name(key.id, sizeof(key.id), id))
        return err_set(err, ERR_NOT_FOUND, "there is no worker \"%.60s\"", id);
    return run_roster_find(r, false, id, &key, ret_worker, err);
}

int roster_find_label(struct roster *r, const char *label, struct ledger_worker *ret_worker,
                      struct err *err) {
    struct ledger_worker key = {0};
    if (!set_name(key.label, sizeof(key.label), label))
        return err_set(err, ERR_NOT_FOUND, "there is no worker \"%.60s\"", label);
    return run_roster_find(r, true, label, &key, ret_worker, err);
}

int roster_list(struct roster *r, const char *owner, struct ledger_worker *const **ret_workers,
                size_t *ret_n, struct err *err) {
    struct ledger_worker key = {0};
    int rc = check_fresh(r, err);
    if (rc < 0)
        return rc;
    (void)set_name(key.owner, sizeof(key.owner), owner);
    size_t from = roster_place_of(r->by_id, r->n, &key, roster_compare_ids);
    size_t to = from;
    while (to < r->n && strcmp(r->by_id[to]->owner, owner) == 0)
        to++;
    *ret_workers = r->by_id + from;
    *ret_n = to - from;
    return 0;
}
