#include "base/cleanup.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/http/internal.h"

#include <stdlib.h>
#include <string.h>

/* The bytes that clients have not taken yet: of answers, event streams, WebSockets and connections
 * that were handed over alike. conn.c puts here what the kernel did not accept.
 *
 * Three bounds hold. A connection may have LIMIT_WS_QUEUE_BYTES waiting after the write that began
 * its queue. A key may have its share of held_bytes, and all together have held_bytes. Where a
 * write would pass one of the last two, the connection that has taken nothing for the longest time
 * is cut off and its memory is freed in that very call: a broadcast to thousands of clients happens
 * in one turn of the loop.
 *
 * For that the memory must be ours to free, and what libuv writes is not. So libuv gets only a
 * small copy of the first bytes, whose end says that the socket takes bytes again; the rest is
 * written from here without waiting. Text that goes to many sockets is shared, and counts once. */

enum {
    WAKE_BYTES = 4096,
    BLOCK_BYTES = 4096,  /* the least that a copy takes: small writes go into one */
    SHARED_MIN = 16384,  /* less is copied */
    TAKEN_MIN = 65536,   /* less is copied */
    VECTORS = 16,        /* of one write */
    SMALL_QUEUE = 16384, /* nobody is cut off for less */
    TELL_AGAIN_MS = 10000,
};

/* Memory that waits, for one connection or for several. */
struct unsent_block {
    struct http_server *server;
    size_t refs;
    size_t charged;
    json_t *text; /* where it is a shared one's */
    char *taken;  /* where it is a buffer that was taken over */
    size_t used;  /* of data */
    size_t cap;
    char owner[ID_SIZE];
    char data[];
};

struct unsent {
    struct unsent *next;
    struct unsent_block *block;
    const char *at;
    size_t len;
};

struct unsent_wake {
    uv_write_t req;
    struct http_conn *conn;
    size_t len;
    char data[WAKE_BYTES];
};

/* --- memory --- */

static struct unsent_block *block_create(const struct http_conn *c, size_t cap, size_t charged) {
    struct http_server *s = c->server;
    struct unsent_block *b = xmalloc(sizeof(*b) + cap);
    *b = (struct unsent_block){.server = s, .refs = 1, .charged = charged, .cap = cap};
    memcpy(b->owner, c->owner, sizeof(b->owner));
    s->stats.unread_bytes += charged;
    shares_hold(&s->unread, b->owner, charged);
    return b;
}

static void block_unref(struct unsent_block *b) {
    struct http_server *s = b->server;
    if (--b->refs > 0)
        return;
    s->stats.unread_bytes -= b->charged;
    shares_release(&s->unread, b->owner, b->charged);
    if (s->shared == b)
        s->shared = NULL;
    json_decref(b->text);
    free(b->taken);
    free(b);
}

static struct unsent *unsent_push(struct http_conn *c, struct unsent_block *b, const char *at,
                                  size_t len) {
    struct unsent *u = xmalloc(sizeof(*u));
    *u = (struct unsent){.block = b, .at = at, .len = len};
    if (c->unsent_last)
        c->unsent_last->next = u;
    else
        c->unsent = u;
    c->unsent_last = u;
    c->queued += len;
    return u;
}

static void unsent_copy(struct http_conn *c, const char *data, size_t len) {
    struct unsent *last = c->unsent_last;
    struct unsent_block *b = last ? last->block : NULL;
    if (b && b->refs == 1 && b->cap > b->used) {
        size_t n = MIN(len, b->cap - b->used);
        memcpy(b->data + b->used, data, n);
        b->used += n;
        last->len += n;
        c->queued += n;
        data += n;
        len -= n;
    }
    if (len == 0)
        return;
    size_t cap = MAX(len, (size_t)BLOCK_BYTES);
    b = block_create(c, cap, cap);
    memcpy(b->data, data, len);
    b->used = len;
    (void)unsent_push(c, b, b->data, len);
}

/* What goes to many sockets does so in one loop: the last one is the one that is asked for. */
static void unsent_share(struct http_conn *c, json_t *text, size_t skip) {
    struct http_server *s = c->server;
    struct unsent_block *b = s->shared;
    if (b && b->text == text) {
        b->refs++;
    } else {
        b = block_create(c, 0, json_string_length(text));
        b->text = json_incref(text);
        s->shared = b;
    }
    (void)unsent_push(c, b, json_string_value(text) + skip, json_string_length(text) - skip);
}

static void unsent_take(struct http_conn *c, struct buf *own, size_t skip) {
    struct unsent_block *b = block_create(c, 0, own->cap);
    size_t len = own->len;
    b->taken = buf_steal(own, NULL);
    (void)unsent_push(c, b, b->taken + skip, len - skip);
}

static void unsent_shift(struct http_conn *c, size_t n) {
    c->queued -= n;
    while (n > 0 && c->unsent) {
        struct unsent *u = c->unsent;
        size_t k = MIN(n, u->len);
        u->at += k;
        u->len -= k;
        n -= k;
        if (u->len > 0)
            return;
        c->unsent = u->next;
        if (!c->unsent)
            c->unsent_last = NULL;
        block_unref(u->block);
        free(u);
    }
}

void unsent_drop(struct http_conn *c) {
    size_t n = 0;
    for (const struct unsent *u = c->unsent; u; u = u->next)
        n += u->len;
    unsent_shift(c, n);
}

/* --- bounds --- */

/* The one of this owner (NULL: of anyone), other than c, that has taken nothing for the longest
 * time. */
static struct http_conn *unsent_stalled(const struct http_conn *c, const char *owner) {
    struct http_conn *found = NULL;
    for (struct http_conn *o = c->server->conns; o; o = o->next) {
        if (o == c || !o->unsent || o->queued <= SMALL_QUEUE)
            continue;
        if (owner && strcmp(o->owner, owner) != 0)
            continue;
        if (!found || o->taken_ms < found->taken_ms ||
            (o->taken_ms == found->taken_ms && o->queued > found->queued))
            found = o;
    }
    return found;
}

static void unsent_cut(struct http_conn *c) {
    struct http_server *s = c->server;
    uint64_t now = uv_now(s->opt.loop);
    s->stats.cut_total++;
    if (s->told_cut_ms == 0 || now > s->told_cut_ms + TELL_AGAIN_MS) {
        s->told_cut_ms = now;
        log_warn("http.cut", "why", "clients do not read what they are sent (limit held_bytes)",
                 "key", c->owner, "cut_total", (int64_t)s->stats.cut_total);
    }
    unsent_drop(c);
    conn_break(c);
}

/* Others that do not read make room. If there is none, the write is let through: one answer always
 * passes. */
static void unsent_make_room(struct http_conn *c, size_t need) {
    struct http_server *s = c->server;
    size_t all = s->opt.limits.held_bytes;
    size_t share = share_of(c->owner, all);
    struct http_conn *o;
    while (shares_held(&s->unread, c->owner) + need > share && (o = unsent_stalled(c, c->owner)))
        unsent_cut(o);
    while (s->stats.unread_bytes + need > all) {
        o = unsent_stalled(c, shares_greatest(&s->unread));
        if (!o)
            o = unsent_stalled(c, NULL);
        if (!o)
            break;
        unsent_cut(o);
    }
}

size_t unsent_high_mark(const struct http_conn *c) {
    const struct http_server *s = c->server;
    size_t all = s->opt.limits.held_bytes;
    bool much = s->stats.unread_bytes > all / 2 ||
                (s->stats.unread_bytes > LIMIT_WRITE_HIGH_BYTES &&
                 shares_held(&s->unread, c->owner) > share_of(c->owner, all) / 2);
    return much ? SMALL_QUEUE : LIMIT_WRITE_HIGH_BYTES;
}

/* --- writing --- */

static void unsent_wake(struct http_conn *c);
static void unsent_flush(struct http_conn *c);

static void unsent_on_wake(uv_write_t *r, int status) {
    struct unsent_wake *w = (struct unsent_wake *)r;
    struct http_conn *c = w->conn;
    c->queued -= w->len;
    c->waking = false;
    free(w);
    if (c->closing || c->broken)
        return;
    if (status < 0) {
        conn_close(c);
        return;
    }
    unsent_flush(c);
}

void unsent_release(struct http_conn *c) {
    if (!c->closing && !c->broken && !c->waking && !c->hold_ticket)
        unsent_flush(c);
}

static void unsent_flush(struct http_conn *c) {
    while (c->unsent && !c->hold_ticket) {
        uv_buf_t bufs[VECTORS];
        unsigned n = 0;
        for (const struct unsent *u = c->unsent; u && n < VECTORS; u = u->next)
            bufs[n++] = uv_buf_init((char *)(uintptr_t)u->at, (unsigned)u->len);
        int k = uv_try_write(&c->uv.stream, bufs, n);
        if (k < 0 && k != UV_EAGAIN) {
            conn_close(c);
            return;
        }
        if (k <= 0)
            break;
        unsent_shift(c, (size_t)k);
    }
    if (c->unsent && !c->hold_ticket)
        unsent_wake(c);
    conn_taken(c);
}

/* Waits until the socket takes bytes again. */
static void unsent_wake(struct http_conn *c) {
    struct unsent_wake *w = xmalloc(sizeof(*w));
    w->conn = c;
    w->len = 0;
    for (const struct unsent *u = c->unsent; u && w->len < WAKE_BYTES; u = u->next) {
        size_t n = MIN(u->len, WAKE_BYTES - w->len);
        memcpy(w->data + w->len, u->at, n);
        w->len += n;
    }
    unsent_shift(c, w->len);
    c->queued += w->len;
    uv_buf_t b = uv_buf_init(w->data, (unsigned)w->len);
    c->waking = true;
    if (uv_write(&w->req, &c->uv.stream, &b, 1, unsent_on_wake) == 0)
        return;
    c->waking = false;
    c->queued -= w->len;
    free(w);
    unsent_drop(c);
    conn_break(c);
}

bool unsent_add(struct http_conn *c, const uv_buf_t *pieces, unsigned n, size_t sent,
                const struct unsent_source *from) {
    size_t need = 0;
    for (unsigned i = 0; i < n; i++)
        need += pieces[i].len;
    need -= sent;
    if (c->queued == 0)
        c->queue_first = need;
    else if (c->queued + need > LIMIT_WS_QUEUE_BYTES + c->queue_first)
        return false; /* its producer does not wait for it */
    bool shares = from->text && c->server->shared && c->server->shared->text == from->text;
    unsent_make_room(c, shares ? need - MIN(need, json_string_length(from->text)) : need);
    for (unsigned i = 0; i < n; i++) {
        size_t skip = MIN(sent, pieces[i].len);
        size_t rest = pieces[i].len - skip;
        sent -= skip;
        if (rest == 0)
            continue;
        if (from->text && pieces[i].base == json_string_value(from->text) && rest >= SHARED_MIN)
            unsent_share(c, from->text, skip);
        /* If the kernel has most of it already, a copy of the rest takes less. */
        else if (from->own && i == n - 1 && rest > TAKEN_MIN && rest > from->own->len / 2)
            unsent_take(c, from->own, skip);
        else
            unsent_copy(c, pieces[i].base + skip, rest);
    }
    if (!c->waking && !c->hold_ticket)
        unsent_wake(c);
    return !c->broken;
}
