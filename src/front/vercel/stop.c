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
    struct err err;
    struct watcher *watchers;
    struct later later;
};

static struct session_stop *find(const struct vercel *v, const char *session) {
    struct session_stop *s = v->stops;
    while (s && strcmp(s->session, session) != 0)
        s = s->next;
    return s;
}

bool stop_is_under_way(const struct vercel *v, const char *session) {
    return find(v, session) != NULL;
}

bool stop_watch(struct vercel *v, const char *session, void (*cb)(void *ctx), void *ctx) {
    struct session_stop *s = find(v, session);
    if (!s)
        return false;
    struct watcher *w = xcalloc(1, sizeof(*w));
    *w = (struct watcher){.next = s->watchers, .cb = cb, .ctx = ctx};
    s->watchers = w;
    return true;
}

void stop_unwatch(struct vercel *v, const void *ctx) {
    for (struct session_stop *s = v->stops; s; s = s->next)
        for (struct watcher *w = s->watchers; w; w = w->next)
            if (w->ctx == ctx)
                w->cb = NULL;
}

void stop_leave(struct session_stop *s) {
    s->ask.cb = NULL;
}

/* It is over: the session is gone, or it goes on. */
static void over(void *ctx) {
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

static void end(struct session_stop *s) {
    struct sandbox *box = sandboxes_find(s->v->front->sandboxes, s->session);
    if (box)
        (void)sandbox_end(box, over, s);
    else
        later_post(sandboxes_later(s->v->front->sandboxes), &s->later, over, s);
}

static void give_up(struct session_stop *s, const struct err *err) {
    struct sandbox *box = sandboxes_find(s->v->front->sandboxes, s->session);
    log_warn("vercel.stop", "sandbox", s->session, "error", err->message);
    /* Its time is over, or somebody has ended it: it is stopped, whatever it had. */
    bool ends = !box || box->expired || box->state == SANDBOX_ENDING;
    if (!ends || s->ask.snapshot)
        s->err = *err;
    if (ends && err->code == ERR_CANCELLED && s->ask.snapshot)
        (void)err_set(&s->err, ERR_CONFLICT, "the session ended before it was kept");
    if (ends)
        end(s);
    else
        later_post(sandboxes_later(s->v->front->sandboxes), &s->later, over, s);
}

static void on_made(void *ctx, const json_t *shown, const struct err *err) {
    struct session_stop *s = ctx;
    struct named n = {0};
    struct err why;
    if (err) {
        give_up(s, err);
        return;
    }
    s->snapshot = json_deep_copy(shown);
    const char *id = json_string_value(json_object_get(shown, "id"));
    if (vercel_named_of(s->v, s->owner, s->session, &n, &why) == 0) {
        named_add_snapshot(s->v, &n, id);
        if (named_save(s->v, &n, &why) < 0)
            log_error("vercel.stop", "sandbox", s->session, "error", why.message);
    } else if (!s->ask.snapshot) { /* the name was deleted meanwhile, and with it all use of this */
        (void)snapshot_delete(s->v->front->sandboxes, id, (struct store_scope){.owner = s->owner},
                              &why);
    }
    named_finish(&n);
    end(s);
}

/* What is written down with a snapshot. */
static json_t *note_of(const struct session_stop *s, const struct named *n) {
    const char *parent = json_string_value(json_object_get(n->doc, "snapshot"));
    const json_t *keep = named_config(n, "keepLastSnapshots");
    int64_t after = s->ask.expiration_ms;
    if (after < 0 && keep && json_object_get(keep, "expiration"))
        after = json_integer_value(json_object_get(keep, "expiration"));
    if (after < 0)
        after = json_integer_value(named_config(n, "snapshotExpiration"));
    json_t *note = json_pack("{s:s,s:s*,s:s}", "name", named_name(n), "parent", parent, "by",
                             s->ask.snapshot ? "manual" : "stop");
    if (after > 0)
        (void)json_object_set_new(note, "expires_ms", json_integer(clock_wall_ms() + after));
    return note;
}

static void keep(struct session_stop *s, struct sandbox *box, const struct named *n) {
    struct snapshot *made = NULL;
    struct err err;
    _cleanup_(json) json_t *note = note_of(s, n);
    struct snapshot_ask ask = {.note = note, .made = on_made, .ctx = s};
    if (snapshot_make(box, &ask, &made, &err) < 0)
        give_up(s, &err);
}

struct session_stop *stop_session(struct vercel *v, struct sandbox *box,
                                  const struct stop_ask *ask) {
    struct named n = {0};
    struct err err;
    struct session_stop *s = xcalloc(1, sizeof(*s));
    *s = (struct session_stop){.next = v->stops, .v = v, .ask = *ask};
    memcpy(s->session, box->id, sizeof(s->session));
    memcpy(s->owner, box->owner, sizeof(s->owner));
    v->stops = s;
    bool known = vercel_named_of(v, box->owner, box->id, &n, &err) == 0;
    if (known && (ask->snapshot || named_is_persistent(&n)))
        keep(s, box, &n);
    else
        end(s);
    named_finish(&n);
    return s;
}

bool vercel_on_expire(void *ctx, struct sandbox *s) {
    if (!sandbox_note(s) || s->state != SANDBOX_RUNNING || stop_is_under_way(ctx, s->id))
        return stop_is_under_way(ctx, s->id);
    (void)stop_session(ctx, s, &(struct stop_ask){.expiration_ms = -1});
    return true;
}
