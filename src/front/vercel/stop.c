#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/vercel/internal.h"
#include "loop/later.h"

#include <stdlib.h>
#include <string.h>

/* The end of a session: what a persistent sandbox has is kept first, as a snapshot that its next
 * session begins with. */

struct watcher {
    struct watcher *next;
    void (*cb)(void *ctx);
    void *ctx;
};

struct session_stop {
    struct session_stop *next;
    struct vercel *v;
    struct stop_ask ask; /* cb NULL: nobody waits */
    char session[ID_SIZE];
    char owner[ID_SIZE];
    json_t *snapshot; /* that was made */
    bool forgotten;   /* its sandbox was deleted with all snapshots */
    struct err err;
    struct watcher *watchers;
    struct later later;
};

static struct session_stop *vercel_stop_find(const struct vercel *v, const char *session) {
    struct session_stop *s = v->stops;
    while (s && strcmp(s->session, session) != 0)
        s = s->next;
    return s;
}

bool vercel_stop_is_under_way(const struct vercel *v, const char *session) {
    return vercel_stop_find(v, session) != NULL;
}

bool vercel_stop_watch(struct vercel *v, const char *session, void (*cb)(void *ctx), void *ctx) {
    struct session_stop *s = vercel_stop_find(v, session);
    if (!s)
        return false;
    struct watcher *w = xcalloc(1, sizeof(*w));
    *w = (struct watcher){.next = s->watchers, .cb = cb, .ctx = ctx};
    s->watchers = w;
    return true;
}

void vercel_stop_unwatch(struct vercel *v, const void *ctx) {
    for (struct session_stop *s = v->stops; s; s = s->next)
        for (struct watcher *w = s->watchers; w; w = w->next)
            if (w->ctx == ctx)
                w->cb = NULL;
}

void vercel_stop_forget(struct vercel *v, const char *session) {
    struct session_stop *s = vercel_stop_find(v, session);
    if (s)
        s->forgotten = true;
}

void vercel_stop_leave(struct session_stop *s) {
    s->ask.cb = NULL;
}

/* It is over: the session is gone, or it goes on. */
static void vercel_stop_over(void *ctx) {
    struct session_stop *s = ctx;
    struct session_stop **at = &s->v->stops;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    if (s->ask.cb)
        s->ask.cb(s->ask.ctx, s->snapshot, s->err.code ? &s->err : NULL);
    while (s->watchers) {
        struct watcher *w = s->watchers;
        s->watchers = w->next;
        if (w->cb)
            w->cb(w->ctx);
        free(w);
    }
    json_decref(s->snapshot);
    free(s);
}

static void vercel_stop_end(struct session_stop *s) {
    struct sandbox *box = sandboxes_find(s->v->front->sandboxes, s->session);
    if (box)
        (void)sandbox_end(box, vercel_stop_over, s);
    else
        later_post(sandboxes_later(s->v->front->sandboxes), &s->later, vercel_stop_over, s);
}

static void vercel_stop_give_up(struct session_stop *s, const struct err *err) {
    struct sandbox *box = sandboxes_find(s->v->front->sandboxes, s->session);
    log_warn("vercel.stop", "sandbox", s->session, "error", err->message);
    /* Its time is over, or somebody has ended it: it is stopped, whatever it had. */
    bool ends = !box || box->expired || box->state == SANDBOX_ENDING;
    if (!ends || s->ask.snapshot)
        s->err = *err;
    if (ends && err->code == ERR_CANCELLED && s->ask.snapshot)
        (void)err_set(&s->err, ERR_CONFLICT, "the session ended before it was kept");
    if (ends)
        vercel_stop_end(s);
    else
        later_post(sandboxes_later(s->v->front->sandboxes), &s->later, vercel_stop_over, s);
}

static void vercel_stop_drop(struct session_stop *s, const char *snapshot) {
    struct err err;
    if (vercel_snapshot_delete(s->v, s->owner, snapshot, &err) < 0)
        log_error("vercel.stop", "sandbox", s->session, "error", err.message);
    if (s->ask.snapshot)
        (void)err_set(&s->err, ERR_CONFLICT, "the sandbox was deleted, with its snapshots");
}

static void vercel_stop_on_made(void *ctx, const json_t *shown, const struct err *err) {
    struct session_stop *s = ctx;
    struct named n = {0};
    struct err why;
    if (err) {
        vercel_stop_give_up(s, err);
        return;
    }
    const char *id = json_string_value(json_object_get(shown, "id"));
    int rc = vercel_named_of(s->v, s->owner, s->session, &n, &why);
    if (rc == 0) {
        vercel_named_add_snapshot(s->v, &n, id);
        if (vercel_named_save(s->v, &n, &why) < 0)
            log_error("vercel.stop", "sandbox", s->session, "error", why.message);
    }
    /* The sandbox was deleted meanwhile, and with it all use of this. Another may have its name. */
    if (s->forgotten || (rc == -ERR_NOT_FOUND && !s->ask.snapshot))
        vercel_stop_drop(s, id);
    else
        s->snapshot = json_deep_copy(shown);
    vercel_named_finish(&n);
    vercel_stop_end(s);
}

/* What is written down with a snapshot. */
static json_t *vercel_stop_note_of(const struct session_stop *s, const struct named *n) {
    const char *parent = json_string_value(json_object_get(n->doc, "snapshot"));
    const json_t *keep = vercel_named_config(n, "keepLastSnapshots");
    int64_t after = s->ask.expiration_ms;
    if (after < 0 && keep && json_object_get(keep, "expiration"))
        after = json_integer_value(json_object_get(keep, "expiration"));
    if (after < 0)
        after = json_integer_value(vercel_named_config(n, "snapshotExpiration"));
    json_t *note = json_pack("{s:s,s:s*,s:s}", "name", vercel_named_name(n), "parent", parent, "by",
                             s->ask.snapshot ? "manual" : "stop");
    if (after > 0)
        (void)json_object_set_new(note, "expires_ms", json_integer(clock_wall_ms() + after));
    return note;
}

static void vercel_stop_keep(struct session_stop *s, struct sandbox *box, const struct named *n) {
    struct snapshot *made = NULL;
    struct err err;
    _cleanup_(json) json_t *note = vercel_stop_note_of(s, n);
    struct snapshot_ask ask = {.note = note, .made = vercel_stop_on_made, .ctx = s};
    if (snapshot_make(box, &ask, &made, &err) < 0)
        vercel_stop_give_up(s, &err);
}

struct session_stop *vercel_stop_session(struct vercel *v, struct sandbox *box,
                                         const struct stop_ask *ask) {
    struct named n = {0};
    struct err err;
    struct session_stop *s = xcalloc(1, sizeof(*s));
    *s = (struct session_stop){.next = v->stops, .v = v, .ask = *ask};
    memcpy(s->session, box->id, sizeof(s->session));
    memcpy(s->owner, box->owner, sizeof(s->owner));
    v->stops = s;
    bool known = vercel_named_of(v, box->owner, box->id, &n, &err) == 0;
    if (known && (ask->snapshot || vercel_named_is_persistent(&n)))
        vercel_stop_keep(s, box, &n);
    else
        vercel_stop_end(s);
    vercel_named_finish(&n);
    return s;
}

bool vercel_on_expire(void *ctx, struct sandbox *s) {
    if (!vercel_sandbox_note(s) || s->state != SANDBOX_RUNNING ||
        vercel_stop_is_under_way(ctx, s->id))
        return vercel_stop_is_under_way(ctx, s->id);
    (void)vercel_stop_session(ctx, s, &(struct stop_ask){.expiration_ms = -1});
    return true;
}
