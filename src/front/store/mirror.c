#include "front/store/mirror.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/store/artifacts.h"
#include "front/store/files.h"
#include "front/store/internal.h"
#include "loop/fetch.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a blob's "stored" says. One that is being sent may be there already when the server dies. */
enum { STORED_NOT, STORED_THERE, STORED_DOOMED, STORED_SENDING };

enum {
    MOVES_MAX = 4,
    RECALLS_MAX = 16,
    LOOK_MS = 500,
    RETRY_MS = 1000,
    RETRY_MAX_MS = 60000,
    IDLE_MS = 30000, /* without a byte */
    ANSWER_BYTES = 8192,
};

#define EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

enum { MIRROR_NEXT, MIRROR_MARK, MIRROR_DROP, MIRROR_DOOM, MIRROR_RESET, MIRROR_WAIT, MIRROR_HAS };

static const char next_sql[] =
    "SELECT hash, bytes FROM blobs WHERE stored = ?2 AND stored <> 1 AND hash > ?1"
    " AND (uses > 0 OR stored = 2) ORDER BY hash LIMIT 1";

static const char *const sql[] = {
    [MIRROR_NEXT] = next_sql,
    [MIRROR_MARK] = "UPDATE blobs SET stored = ?2 WHERE hash = ?1",
    /* One that somebody has again is sent again. */
    [MIRROR_DROP] = "UPDATE blobs SET stored = 0 WHERE hash = ?1 AND uses > 0",
    [MIRROR_DOOM] = "INSERT OR IGNORE INTO blobs (hash, bytes, uses, stored) VALUES (?1, 0, 0, 2)",
    [MIRROR_RESET] = "UPDATE blobs SET stored = 0 WHERE stored = 3 AND stored <> 1",
    [MIRROR_HAS] = "SELECT 1 FROM blobs WHERE hash = ?1 AND stored = 1",
    [MIRROR_WAIT] = "SELECT count(*) FROM blobs WHERE stored IN (0, 2, 3) AND stored <> 1",
};

const struct store_statements store_mirror_statements = {sql, ARRAY_LEN(sql)};

/* One object on its way there, or out of there. */
struct move {
    struct mirror *bucket;
    char hash[ARTIFACT_HASH_SIZE]; /* "": it is free */
    bool removes;
    int fd;
    int64_t bytes;
    int status;
    struct buf answer;
};

struct mirror {
    struct mirror_options opt;
    struct fetch_pool *pool;
    uv_timer_t timer;
    char *url; /* with a slash behind */
    char *sign;
    char *key;
    char *secret;
    struct move moves[MOVES_MAX];
    char last[ARTIFACT_HASH_SIZE];
    int64_t retry_ms;
    int64_t not_before_ms; /* monotonic */
    struct mirror_stats stats;
    size_t recalls; /* under way */
    int holds;      /* the timer and the pool */
};

static void look(struct mirror *b);

/* --- the store --- */

static sqlite3_stmt *ready(const struct mirror *b, int which, const char *hash) {
    sqlite3_stmt *st = store_ready(b->opt.store, STORE_MIRROR, which);
    if (hash)
        store_bind_str(st, 1, hash);
    return st;
}

static void write_row(const struct mirror *b, int which, const char *hash, int64_t *ret_changes) {
    struct err err;
    if (store_step(ready(b, which, hash), "note an upload", ret_changes, &err) < 0)
        log_warn("bucket.note", "error", err.message); /* it is done once more */
}

static int64_t mark(const struct mirror *b, const char *hash, int64_t stored) {
    struct err err;
    int64_t changes = 0;
    sqlite3_stmt *st = ready(b, MIRROR_MARK, hash);
    store_bind_int(st, 2, stored);
    if (store_step(st, "note an upload", &changes, &err) < 0) {
        log_warn("bucket.note", "error", err.message);
        return -1;
    }
    return changes;
}

static bool find_in(const struct mirror *b, const char *after, int64_t stored, struct move *m) {
    sqlite3_stmt *st = ready(b, MIRROR_NEXT, after);
    store_bind_int(st, 2, stored);
    bool found = sqlite3_step(st) == SQLITE_ROW;
    if (found) {
        (void)snprintf(m->hash, sizeof(m->hash), "%s", (const char *)sqlite3_column_text(st, 0));
        m->bytes = sqlite3_column_int64(st, 1);
        m->removes = stored == STORED_DOOMED;
    }
    (void)sqlite3_reset(st);
    return found;
}

/* In turns, so that one that cannot be sent does not stand in the way of the others. */
static bool find_next(const struct mirror *b, struct move *m) {
    static const int64_t states[] = {STORED_DOOMED, STORED_NOT};
    for (size_t i = 0; i < ARRAY_LEN(states); i++)
        if (find_in(b, b->last, states[i], m) || find_in(b, "", states[i], m))
            return true;
    return false;
}

/* --- the end of one --- */

static void free_move(struct move *m) {
    fd_close(&m->fd);
    buf_finish(&m->answer);
    m->hash[0] = 0;
}

/* "SignatureDoesNotMatch" of <Code>SignatureDoesNotMatch</Code>. */
static void read_code(const struct move *m, char *out, size_t size) {
    const char *at = m->answer.data ? strstr(m->answer.data, "<Code>") : NULL;
    size_t n = at ? strspn(at + 6, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.") : 0;
    (void)snprintf(out, size, "%.*s", (int)MIN(n, (size_t)60), at ? at + 6 : "");
}

static const char *advice_of(int status) {
    return status == 403   ? ": look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, the region and "
                             "the clock"
           : status == 404 ? ": there is no such bucket"
                           : "";
}

static void failed(struct mirror *b, const struct move *m, const struct err *err) {
    char text[sizeof(b->stats.error)];
    char code[64];
    if (err) {
        (void)snprintf(text, sizeof(text), "%.190s", err->message);
    } else {
        read_code(m, code, sizeof(code));
        (void)snprintf(text, sizeof(text), "it answers with %d %s%s", m->status, code,
                       advice_of(m->status));
    }
    if (strcmp(text, b->stats.error) != 0) /* once, not every second */
        log_warn("bucket.failed", "url", b->url, "error", text);
    memcpy(b->stats.error, text, sizeof(text));
    b->stats.failed++;
    b->retry_ms = MIN(MAX(2 * b->retry_ms, RETRY_MS), RETRY_MAX_MS);
    b->not_before_ms = clock_mono_ms() + b->retry_ms;
}

/* What nobody has any more when it has come there is to go again. */
static void sent(struct mirror *b, const struct move *m) {
    b->stats.sent++;
    if (mark(b, m->hash, STORED_THERE) == 0)
        write_row(b, MIRROR_DOOM, m->hash, NULL);
}

static void removed(struct mirror *b, const struct move *m) {
    int64_t again = 0;
    b->stats.removed++;
    write_row(b, MIRROR_DROP, m->hash, &again);
    if (again == 0)
        (void)mark(b, m->hash, STORED_NOT); /* who takes care forgets it */
}

static void on_end(void *ctx, const struct err *err) {
    struct move *m = ctx;
    struct mirror *b = m->bucket;
    bool done = !err && (m->status / 100 == 2 || (m->removes && m->status == 404));
    if (done) {
        (m->removes ? removed : sent)(b, m);
        if (*b->stats.error)
            log_info("bucket.works", "url", b->url);
        b->stats.error[0] = 0;
        b->retry_ms = 0;
    } else {
        failed(b, m, err);
        if (!m->removes)
            (void)mark(b, m->hash, STORED_NOT);
    }
    free_move(m);
    look(b);
}

/* --- on its way --- */

static void on_head(void *ctx, struct fetch *f, int status) {
    (void)f;
    ((struct move *)ctx)->status = status;
}

static void on_data(void *ctx, const char *data, size_t len) {
    struct move *m = ctx;
    (void)buf_add(&m->answer, data, MIN(len, ANSWER_BYTES - 1 - m->answer.len));
}

static ssize_t on_body(void *ctx, char *out, size_t size) {
    const struct move *m = ctx;
    return read(m->fd, out, size);
}

static int start(struct mirror *b, struct move *m, struct err *err) {
    const struct fetch_header headers[] = {
        {.name = "x-amz-content-sha256", .value = m->removes ? EMPTY_HASH : m->hash},
        {.name = "Content-Type", .value = "application/octet-stream"},
    };
    _cleanup_(free) char *url = xasprintf("%s%.2s/%s", b->url, m->hash, m->hash);
    struct fetch *f;
    bool empty = m->removes || m->bytes == 0;
    return fetch_start(b->pool,
                       &(struct fetch_options){.url = url,
                                               .method = m->removes ? "DELETE" : "PUT",
                                               .sign = b->sign,
                                               .user = b->key,
                                               .password = b->secret,
                                               .headers = headers,
                                               .nheaders = m->removes ? 1 : 2,
                                               .body = empty && !m->removes ? "" : NULL,
                                               .body_len = (size_t)(empty ? 0 : m->bytes),
                                               .on_body = empty ? NULL : on_body,
                                               .idle_timeout_ms = IDLE_MS,
                                               .max_body_bytes = 1 << 20,
                                               .on_head = on_head,
                                               .on_data = on_data,
                                               .on_end = on_end,
                                               .ctx = m},
                       &f, err);
}

static int begin(struct mirror *b, struct move *m, struct err *err) {
    m->status = 0;
    m->fd = -1;
    buf_init(&m->answer, ANSWER_BYTES);
    if (!m->removes && mark(b, m->hash, STORED_SENDING) < 0)
        return err_set(err, ERR_IO, "the store cannot be written");
    if (!m->removes)
        m->fd = files_open(b->opt.store->files, m->hash);
    if (!m->removes && m->fd < 0)
        return err_sys(err, "open the artifact %s", m->hash);
    return start(b, m, err);
}

static bool is_moving(const struct mirror *b, const struct move *m) {
    for (size_t i = 0; i < MOVES_MAX; i++)
        if (&b->moves[i] != m && strcmp(b->moves[i].hash, m->hash) == 0)
            return true;
    return false;
}

/* Fills the places that are free. */
static void look(struct mirror *b) {
    for (size_t i = 0; i < MOVES_MAX; i++) {
        struct move *m = &b->moves[i];
        struct err err;
        if (*m->hash)
            continue;
        if (clock_mono_ms() < b->not_before_ms || !find_next(b, m))
            return;
        if (is_moving(b, m)) { /* it is being removed */
            m->hash[0] = 0;
            return;
        }
        memcpy(b->last, m->hash, sizeof(b->last));
        m->bucket = b;
        if (begin(b, m, &err) == 0)
            continue;
        failed(b, m, &err);
        if (!m->removes)
            (void)mark(b, m->hash, STORED_NOT);
        free_move(m);
    }
}

static void on_timer(uv_timer_t *t) {
    look(t->data);
}

/* --- and back --- */

bool mirror_has(const struct mirror *b, const char *hash) {
    if (!b)
        return false;
    sqlite3_stmt *st = ready(b, MIRROR_HAS, hash);
    bool has = sqlite3_step(st) == SQLITE_ROW;
    (void)sqlite3_reset(st);
    return has;
}

struct mirror_recall {
    struct mirror *bucket;
    struct artifact_writer *writer;
    struct fetch *fetch;
    char hash[ARTIFACT_HASH_SIZE];
    int status;
    struct err err; /* of writing it */
    void (*on_back)(void *ctx, const struct err *err);
    void *ctx;
};

static void free_recall(struct mirror_recall *r) {
    artifact_cancel(r->writer);
    r->bucket->recalls--;
    free(r);
}

void mirror_recall_cancel(struct mirror_recall *r) {
    if (!r)
        return;
    fetch_cancel(r->fetch);
    free_recall(r);
}

static int end_recall(struct mirror_recall *r, const struct err *failure, struct err *err) {
    if (failure)
        return err_set(err, ERR_IO, "the artifact's file is gone, and its copy cannot be got: %s",
                       failure->message);
    if (r->status != 200)
        return err_set(err, ERR_IO, "the artifact's file is gone, and the bucket answers with %d%s",
                       r->status, r->status == 404 ? ": it has no copy" : advice_of(r->status));
    if (r->err.code) {
        *err = r->err;
        return -(int)err->code;
    }
    return artifact_restore_commit(steal_ptr(&r->writer), r->hash, err);
}

static void on_recalled(void *ctx, const struct err *failure) {
    struct mirror_recall *r = ctx;
    void (*on_back)(void *, const struct err *) = r->on_back;
    void *to = r->ctx;
    struct err err = {0};
    if (end_recall(r, failure, &err) == 0) {
        r->bucket->stats.recalled++;
        log_info("bucket.recalled", "artifact", r->hash);
    } else {
        log_warn("bucket.recall", "artifact", r->hash, "error", err.message);
    }
    free_recall(r);
    on_back(to, err.code ? &err : NULL);
}

static void on_recall_head(void *ctx, struct fetch *f, int status) {
    (void)f;
    ((struct mirror_recall *)ctx)->status = status;
}

static void on_recall_data(void *ctx, const char *data, size_t len) {
    struct mirror_recall *r = ctx;
    if (r->status == 200 && !r->err.code)
        (void)artifact_write(r->writer, data, len, &r->err);
}

int mirror_recall(struct mirror *b, const char *hash, int64_t bytes,
                  void (*on_back)(void *ctx, const struct err *err), void *ctx,
                  struct mirror_recall **ret_recall, struct err *err) {
    const struct fetch_header header = {.name = "x-amz-content-sha256", .value = EMPTY_HASH};
    _cleanup_(free) char *url = xasprintf("%s%.2s/%s", b->url, hash, hash);
    if (!b->pool || b->recalls >= RECALLS_MAX)
        return err_set(err, ERR_RATE, "%d artifacts are being got from the bucket: wait for one",
                       RECALLS_MAX);
    struct mirror_recall *r = xcalloc(1, sizeof(*r));
    *r = (struct mirror_recall){.bucket = b, .on_back = on_back, .ctx = ctx};
    (void)snprintf(r->hash, sizeof(r->hash), "%s", hash);
    b->recalls++;
    int rc = artifact_restore_begin(b->opt.store, &r->writer, err);
    if (rc == 0)
        rc = fetch_start(b->pool,
                         &(struct fetch_options){.url = url,
                                                 .sign = b->sign,
                                                 .user = b->key,
                                                 .password = b->secret,
                                                 .headers = &header,
                                                 .nheaders = 1,
                                                 .idle_timeout_ms = IDLE_MS,
                                                 .max_body_bytes = (size_t)bytes + ANSWER_BYTES,
                                                 .on_head = on_recall_head,
                                                 .on_data = on_recall_data,
                                                 .on_end = on_recalled,
                                                 .ctx = r},
                         &r->fetch, err);
    if (rc < 0)
        free_recall(r);
    else
        *ret_recall = r;
    return rc;
}

/* --- the bucket --- */

struct mirror_stats mirror_stats(const struct mirror *b) {
    struct mirror_stats s = b->stats;
    sqlite3_stmt *st = ready(b, MIRROR_WAIT, NULL);
    s.waiting = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    (void)sqlite3_reset(st);
    return s;
}

static void release(struct mirror *b) {
    if (--b->holds > 0)
        return;
    for (size_t i = 0; i < MOVES_MAX; i++)
        if (*b->moves[i].hash)
            free_move(&b->moves[i]);
    mem_wipe(b->secret, strlen(b->secret));
    free(b->secret);
    free(b->key);
    free(b->sign);
    free(b->url);
    free(b);
}

struct mirror *mirror_create(const struct mirror_options *options) {
    const struct store_settings *s = &options->store->settings;
    struct mirror *b;
    struct err err;
    if (!*s->bucket_url)
        return NULL;
    if (!options->key || !options->secret) {
        log_error("bucket.key", "error",
                  "\"bucket\" needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: nothing is sent");
        return NULL;
    }
    b = xcalloc(1, sizeof(*b));
    b->opt = *options;
    b->url = xasprintf("%s/", s->bucket_url);
    b->sign = xasprintf("aws:amz:%s:s3", s->bucket_region);
    b->key = xstrdup(options->key);
    b->secret = xstrdup(options->secret);
    b->holds = 1;
    if (fetch_pool_create(options->loop, MOVES_MAX, &b->pool, &err) < 0)
        log_error("bucket.failed", "error", err.message);
    else
        b->holds++;
    (void)uv_timer_init(options->loop, &b->timer);
    b->timer.data = b;
    write_row(b, MIRROR_RESET, NULL, NULL);
    if (b->pool)
        (void)uv_timer_start(&b->timer, on_timer, 0, LOOK_MS);
    return b;
}

static void on_timer_closed(uv_handle_t *h) {
    release(h->data);
}

static void on_pool_closed(void *ctx) {
    release(ctx);
}

void mirror_close(struct mirror *b) {
    if (!b)
        return;
    if (b->pool)
        fetch_pool_close(b->pool, on_pool_closed, b);
    uv_close((uv_handle_t *)&b->timer, on_timer_closed);
}
