#include "loop/writer.h"

#include "base/mem.h"

#include <stdlib.h>

enum writer_state { WRITER_IDLE, WRITER_ASKED, WRITER_DONE, WRITER_ENDED };

struct writer {
    uv_thread_t thread;
    uv_mutex_t mutex;
    uv_cond_t wake;
    uv_async_t async;
    enum writer_state state; /* under the mutex */
    void (*work)(void *ctx);
    void (*done)(void *ctx);
    void *ctx;
    bool busy; /* the loop's: from writer_start() until done is called */
    void (*closed)(void *ctx);
    void *closed_ctx;
};

static void writer_run(void *arg) {
    struct writer *w = arg;
    uv_mutex_lock(&w->mutex);
    for (;;) {
        while (w->state == WRITER_IDLE || w->state == WRITER_DONE)
            uv_cond_wait(&w->wake, &w->mutex);
        if (w->state == WRITER_ENDED)
            break;
        uv_mutex_unlock(&w->mutex);
        w->work(w->ctx);
        uv_mutex_lock(&w->mutex);
        w->state = WRITER_DONE;
        uv_cond_broadcast(&w->wake); /* writer_close() may wait */
        (void)uv_async_send(&w->async);
    }
    uv_mutex_unlock(&w->mutex);
}

static void writer_on_async(uv_async_t *async) {
    struct writer *w = async->data;
    uv_mutex_lock(&w->mutex);
    bool done = w->state == WRITER_DONE;
    if (done)
        w->state = WRITER_IDLE;
    uv_mutex_unlock(&w->mutex);
    if (!done)
        return;
    w->busy = false;
    w->done(w->ctx);
}

struct writer *writer_create(uv_loop_t *loop) {
    struct writer *w = xcalloc(1, sizeof(*w));
    if (uv_mutex_init(&w->mutex) != 0) {
        free(w);
        return NULL;
    }
    if (uv_cond_init(&w->wake) == 0) {
        if (uv_thread_create(&w->thread, writer_run, w) == 0) {
            /* The thread sends to it only after it was given work. */
            (void)uv_async_init(loop, &w->async, writer_on_async);
            w->async.data = w;
            return w;
        }
        uv_cond_destroy(&w->wake);
    }
    uv_mutex_destroy(&w->mutex);
    free(w);
    return NULL;
}

bool writer_is_busy(const struct writer *w) {
    return w->busy;
}

void writer_start(struct writer *w, void (*work)(void *ctx), void (*done)(void *ctx), void *ctx) {
    w->busy = true;
    uv_mutex_lock(&w->mutex);
    w->work = work;
    w->done = done;
    w->ctx = ctx;
    w->state = WRITER_ASKED;
    uv_cond_signal(&w->wake);
    uv_mutex_unlock(&w->mutex);
}

static void writer_on_closed(uv_handle_t *h) {
    struct writer *w = h->data;
    uv_cond_destroy(&w->wake);
    uv_mutex_destroy(&w->mutex);
    void (*closed)(void *ctx) = w->closed;
    void *ctx = w->closed_ctx;
    free(w);
    closed(ctx);
}

void writer_close(struct writer *w, void (*closed)(void *ctx), void *ctx) {
    if (!w)
        return;
    uv_mutex_lock(&w->mutex);
    while (w->state == WRITER_ASKED)
        uv_cond_wait(&w->wake, &w->mutex);
    w->state = WRITER_ENDED;
    uv_cond_broadcast(&w->wake);
    uv_mutex_unlock(&w->mutex);
    (void)uv_thread_join(&w->thread);
    if (w->busy) {
        w->busy = false;
        w->done(w->ctx);
    }
    w->closed = closed;
    w->closed_ctx = ctx;
    uv_close((uv_handle_t *)&w->async, writer_on_closed);
}
