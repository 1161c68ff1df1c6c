/* One thread writes all conversations.
 *
 * history.c keeps what was changed in memory. In the next turn of the loop the thread gets the
 * changed rows of every history, as they are then, and writes them, in one transaction for each
 * file. While it waits for the disk the next ones gather. Every change has a number, its ticket,
 * which is common to all histories; whoever must not speak before the disk has a change waits for
 * its ticket (histories_after()).
 *
 * If a file cannot be written (mostly: the disk is full), its changes stay where they are and are
 * tried again every RETRY_MS. Meanwhile nobody waits for them, and what would begin something new
 * in that conversation is refused (history_admit()). */
#include "front/agent/history_queue.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "base/mem.h"
#include "loop/writer.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RETRY_MS = 500, QUEUE_BYTES = 64 << 20 };

struct folder {
    struct folder *next;
    char *path;
};

struct histories {
    struct writer *writer;
    struct later_queue later;
    struct later_queue next; /* what has changed is copied in a turn of its own */
    struct later start;
    struct later settled;
    uv_timer_t retry;
    struct history *changed; /* in the order of their first change */
    struct folder *folders;  /* to be synced */
    struct history *batch;   /* at work */
    struct folder *batch_folders;
    int64_t submitted;
    int64_t handed;
    int64_t written;
    struct history_wait *waits;
    unsigned handles; /* open, with the writer */
};

/* --- what waits --- */

static void histories_on_start(void *ctx);

static void histories_on_retry(uv_timer_t *t) {
    histories_on_start(t->data);
}

static void histories_start(struct histories *all) {
    if (!all->writer || writer_is_busy(all->writer))
        return;
    /* A change may have changed nothing, or have gone with its history. */
    bool ready = all->folders || (!all->changed && all->written < all->submitted);
    for (struct history *h = all->changed; h; h = history_writes(h)->next)
        ready = ready || !history_writes(h)->blocked;
    if (ready)
        later_post(&all->next, &all->start, histories_on_start, all);
    else if (all->changed && !uv_is_active((uv_handle_t *)&all->retry))
        (void)uv_timer_start(&all->retry, histories_on_retry, RETRY_MS, 0);
}

int64_t histories_ticket(struct histories *all) {
    return ++all->submitted;
}

void histories_add(struct histories *all, struct history *h) {
    struct history_writes *w = history_writes(h);
    if (w->at_work)
        return; /* it comes again when that is done */
    if (!w->waits) {
        struct history **at = &all->changed;
        while (*at)
            at = &history_writes(*at)->next;
        w->next = NULL;
        w->waits = true;
        *at = h;
    }
    histories_start(all);
}

void histories_sync_folder(struct histories *all, const char *path) {
    struct folder *f = xmalloc(sizeof(*f));
    *f = (struct folder){.next = all->folders, .path = xstrdup(path)};
    all->folders = f;
    all->submitted++;
    histories_start(all);
}

int histories_admit(const struct histories *all, struct err *err) {
    size_t bytes = 0;
    for (struct history *h = all->changed; h; h = history_writes(h)->next)
        bytes += history_writes(h)->bytes;
    for (struct history *h = all->batch; h; h = history_writes(h)->next)
        bytes += history_writes(h)->bytes;
    if (bytes <= QUEUE_BYTES)
        return 0;
    return err_set(err, ERR_UNAVAILABLE,
                   "%d MiB of messages wait for the disk: try again in some seconds",
                   QUEUE_BYTES >> 20);
}

static void histories_remove(struct histories *all, struct history *h) {
    struct history **at = &all->changed;
    while (*at && *at != h)
        at = &history_writes(*at)->next;
    if (*at)
        *at = history_writes(h)->next;
    history_writes(h)->waits = false;
}

static void histories_free(struct histories *all, struct history *h) {
    for (struct history_wait *w = all->waits; w; w = w->next)
        if (w->history == h)
            w->history = NULL;
    history_free(h);
}

void histories_leave(struct history *h) {
    struct history_writes *w = history_writes(h);
    w->closed = true;
    if (w->dropped || history_is_settled(h))
        histories_remove(w->all, h);
    if (!w->at_work && !w->waits)
        histories_free(w->all, h);
}

/* --- who waits --- */

int64_t histories_submitted(const struct histories *all) {
    return all->submitted;
}

bool histories_have_written(const struct histories *all, int64_t ticket) {
    return ticket <= all->written;
}

void history_wait_cancel(struct history_wait *w) {
    if (!w->at)
        return;
    *w->at = w->next;
    if (w->next)
        w->next->at = w->at;
    w->at = NULL;
}

static struct history_wait *histories_find_settled(const struct histories *all) {
    struct history_wait *w = all->waits;
    while (w && !histories_have_written(all, w->ticket))
        w = w->next;
    return w;
}

static void histories_on_settled(void *ctx) {
    struct histories *all = ctx;
    struct history_wait *w;
    /* One that is called may cancel others, and add some. */
    while ((w = histories_find_settled(all))) {
        struct history_writes *of = w->history ? history_writes(w->history) : NULL;
        history_wait_cancel(w);
        w->on_written(w->ctx, of && of->blocked ? &of->why : NULL);
    }
}

void histories_after(struct histories *all, struct history_wait *w, struct history *h,
                     void (*on_written)(void *ctx, const struct err *err), void *ctx) {
    *w = (struct history_wait){
        .history = h, .ticket = all->submitted, .on_written = on_written, .ctx = ctx};
    struct history_wait **at = &all->waits;
    while (*at)
        at = &(*at)->next;
    w->at = at;
    *at = w;
    if (histories_have_written(all, w->ticket))
        later_post(&all->later, &all->settled, histories_on_settled, all);
    else
        histories_start(all);
}

/* --- the thread --- */

static void histories_work(void *ctx) {
    struct histories *all = ctx;
    for (struct history *h = all->batch; h; h = history_writes(h)->next) {
        struct history_writes *w = history_writes(h);
        if (w->rc == 0 && w->ops)
            w->rc = history_write(h, w->ops, w->batch_durable, &w->err);
    }
    for (const struct folder *f = all->batch_folders; f; f = f->next) {
        _cleanup_(close) int fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0)
            (void)fsync(fd);
    }
}

static void histories_block(struct history_writes *w) {
    if (!w->blocked)
        log_error("history.write", "error", w->err.message);
    w->blocked = true;
    w->why = w->err;
}

static void histories_finish(struct histories *all, struct history *h) {
    struct history_writes *w = history_writes(h);
    history_free_ops(steal_ptr(&w->ops));
    w->at_work = false;
    if (w->rc < 0 && !w->dropped) {
        w->durable = w->durable || w->batch_durable;
        histories_block(w);
    } else if (!w->dropped) {
        if (w->blocked)
            log_info("history.works", "written", w->ticket);
        w->blocked = false;
        history_forget_changes(h, w->ticket);
    }
    if (w->closed && (w->dropped || history_is_settled(h)))
        histories_free(all, h);
    else if (!history_is_settled(h) && !w->waits)
        histories_add(all, h);
}

static void histories_on_done(void *ctx) {
    struct histories *all = ctx;
    while (all->batch) {
        struct history *h = all->batch;
        all->batch = history_writes(h)->next;
        histories_finish(all, h);
    }
    while (all->batch_folders) {
        struct folder *f = all->batch_folders;
        all->batch_folders = f->next;
        free(f->path);
        free(f);
    }
    all->written = all->handed;
    if (all->writer)
        later_post(&all->later, &all->settled, histories_on_settled, all);
    histories_start(all);
}

static void histories_take(struct histories *all) {
    all->batch = steal_ptr(&all->changed);
    all->batch_folders = steal_ptr(&all->folders);
    all->handed = all->submitted;
    for (struct history *h = all->batch; h; h = history_writes(h)->next) {
        struct history_writes *w = history_writes(h);
        w->waits = false;
        w->at_work = true;
        w->ticket = all->handed;
        w->batch_durable = w->durable;
        w->durable = false;
        w->rc = history_take_changes(h, &w->ops, &w->err);
    }
}

static void histories_on_start(void *ctx) {
    struct histories *all = ctx;
    if (writer_is_busy(all->writer))
        return;
    histories_take(all);
    if (!all->batch && !all->batch_folders) {
        histories_on_done(all);
        return;
    }
    writer_start(all->writer, histories_work, histories_on_done, all);
}

/* --- its life --- */

struct histories *histories_create(uv_loop_t *loop) {
    struct histories *all = xcalloc(1, sizeof(*all));
    all->writer = writer_create(loop);
    if (!all->writer) {
        free(all);
        return NULL;
    }
    later_queue_init(&all->later, loop);
    later_queue_init_next(&all->next, loop);
    (void)uv_timer_init(loop, &all->retry);
    all->retry.data = all;
    all->handles = 4;
    return all;
}

static void histories_on_closed(void *ctx) {
    struct histories *all = ctx;
    if (--all->handles == 0)
        free(all);
}

static void histories_on_handle_closed(uv_handle_t *h) {
    histories_on_closed(h->data);
}

/* Those that cannot be written are lost. */
static void histories_give_up(struct histories *all) {
    while (all->changed) {
        struct history *h = all->changed;
        all->changed = history_writes(h)->next;
        log_error("history.lost", "error", history_writes(h)->why.message);
        histories_free(all, h);
    }
}

void histories_close(struct histories *all) {
    if (!all)
        return;
    writer_close(steal_ptr(&all->writer), histories_on_closed, all); /* ends what is under way */
    histories_take(all);
    histories_work(all);
    histories_on_done(all);
    histories_give_up(all);
    histories_on_settled(all);
    later_cancel(&all->start);
    later_cancel(&all->settled);
    uv_close((uv_handle_t *)&all->retry, histories_on_handle_closed);
    later_queue_close(&all->next, histories_on_handle_closed, all);
    later_queue_close(&all->later, histories_on_handle_closed, all);
}
