#include "front/store/mirror.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
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
    struct store_wait wait; /* until something about it is noted */
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

static void mirror_look(struct mirror *b);

/* --- the store --- */

static sqlite3_stmt *mirror_ready(const struct mirror *b, int which, const char *hash) {
    sqlite3_stmt *st = store_read_statement(b->opt.store, STORE_MIRROR, which);
    if (hash)
        store_bind_str(st, 1, hash);
    return st;
}

/* What is noted about a blob. */
enum blob_note { BLOB_SENDING, BLOB_SENT, BLOB_NOT_SENT, BLOB_REMOVED, BLOB_NONE_SENT };

struct blob_op {
    struct store_op op;
    enum blob_note note;
    char hash[ARTIFACT_HASH_SIZE];
};

static int blob_write(struct store *s, int which, const struct blob_op *o, int64_t stored,
                      int64_t *ret_changes, struct err *err) {
    sqlite3_stmt *st = store_write_statement(s, STORE_MIRROR, which);
    if (*o->hash)
        store_bind_str(st, 1, o->hash);
    if (which == MIRROR_MARK)
        store_bind_int(st, 2, stored);
    return store_step(st, "note an upload", ret_changes, err);
}

static int blob_run(struct store *s, const struct store_op *op, struct err *err) {
    const struct blob_op *o = (const struct blob_op *)op;
    int64_t changes = 0;
    int rc;
    switch (o->note) {
    case BLOB_SENDING:
        return blob_write(s, MIRROR_MARK, o, STORED_SENDING, &changes, err);
    case BLOB_SENT: /* what nobody has any more when it has come there is to go again */
        rc = blob_write(s, MIRROR_MARK, o, STORED_THERE, &changes, err);
        return rc == 0 && changes == 0 ? blob_write(s, MIRROR_DOOM, o, 0, &changes, err) : rc;
    case BLOB_REMOVED: /* if nobody has it again, who takes care forgets it */
        rc = blob_write(s, MIRROR_DROP, o, 0, &changes, err);
        return rc == 0 && changes == 0 ? blob_write(s, MIRROR_MARK, o, STORED_NOT, &changes, err)
                                       : rc;
    case BLOB_NOT_SENT:
        return blob_write(s, MIRROR_MARK, o, STORED_NOT, &changes, err);
    case BLOB_NONE_SENT:
        return blob_write(s, MIRROR_RESET, o, 0, &changes, err);
    }
    return 0;
}

static void blob_free(struct store_op *op) {
    free(op);
}

static const struct store_op_type blob_begin_type = {
    .name = "an upload", .begins = true, .run = blob_run, .free = blob_free};
static const struct store_op_type blob_end_type = {
    .name = "the end of an upload", .run = blob_run, .free = blob_free};

static int blob_note(const struct mirror *b, const char *hash, enum blob_note note,
                     struct err *err) {
    struct blob_op *o = xcalloc(1, sizeof(*o));
    o->op.type = note == BLOB_SENDING ? &blob_begin_type : &blob_end_type;
    o->op.bytes = sizeof(*o);
    o->note = note;
    (void)snprintf(o->hash, sizeof(o->hash), "%s", hash);
    return store_submit(b->opt.store, &o->op, err);
}

static bool mirror_find_in(const struct mirror *b, const char *after, int64_t stored,
                           struct move *m) {
    sqlite3_stmt *st = mirror_ready(b, MIRROR_NEXT, after);
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

static bool is_moving(const struct mirror *b, const struct move *m) {
    for (size_t i = 0; i < MOVES_MAX; i++)
        if (&b->moves[i] != m && strcmp(b->moves[i].hash, m->hash) == 0)
            return true;
    return false;
}

/* One that is said to be on its way, and is not: how that ended could not be noted. Whether it is
 * there is not known, so it is sent once more. */
static bool find_unnoted(const struct mirror *b, struct move *m) {
    bool found = mirror_find_in(b, "", STORED_SENDING, m);
    while (found && is_moving(b, m)) {
        char after[ARTIFACT_HASH_SIZE];
        memcpy(after, m->hash, sizeof(after));
        found = mirror_find_in(b, after, STORED_SENDING, m);
    }
    if (!found)
        m->hash[0] = 0;
    return found;
}

/* In turns, so that one that cannot be sent does not stand in the way of the others. */
static bool mirror_find_next(const struct mirror *b, struct move *m) {
    static const int64_t states[] = {STORED_DOOMED, STORED_NOT};
    for (size_t i = 0; i < ARRAY_LEN(states); i++)
        if (mirror_find_in(b, b->last, states[i], m) || mirror_find_in(b, "", states[i], m))
            return true;
    return find_unnoted(b, m);
}

/* --- the end of one --- */

static void free_move(struct move *m) {
    store_wait_cancel(&m->wait);
    fd_close(&m->fd);
    buf_finish(&m->answer);
    m->hash[0] = 0;
}

/* "SignatureDoesNotMatch" of <Code>SignatureDoesNotMatch</Code>. */
static void read_code(const struct move *m, char *out, size_t size) {
    const char *at = m->answer.data ? strstr(m->answer.data, "<Code>") : NULL;
    size_t n = at ? strspn(at + 6, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.") : 0;
    (void)text_print(out, size, "%.*s", (int)MIN(n, (size_t)60), at ? at + 6 : "");
}

static const char *advice_of(int status) {
    return status == 403   ? ": look at AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, the region and "
                             "the clock"
           : status == 404 ? ": there is no such bucket"
                           : "";
}

static void mirror_failed(struct mirror *b, const struct move *m, const struct err *err) {
    char text[sizeof(b->stats.error)];
    char code[64];
    if (err) {
        (void)text_print(text, sizeof(text), "%s", err->message);
    } else {
        read_code(m, code, sizeof(code));
        (void)text_print(text, sizeof(text), "it answers with %d %s%s", m->status, code,
                         advice_of(m->status));
    }
    if (strcmp(text, b->stats.error) != 0) /* once, not every second */
        log_warn("bucket.failed", "url", b->url, "error", text);
    memcpy(b->stats.error, text, sizeof(text));
    b->stats.failed++;
    b->retry_ms = MIN(MAX(2 * b->retry_ms, RETRY_MS), RETRY_MAX_MS);
    b->not_before_ms = clock_mono_ms() + b->retry_ms;
}

static void mirror_on_noted(void *ctx) {
    struct move *m = ctx;
    struct mirror *b = m->bucket;
    free_move(m);
    mirror_look(b);
}

/* It counts as on its way until that is noted: else it would be found again. */
static void note_end(struct move *m, enum blob_note note) {
    struct err err;
    if (blob_note(m->bucket, m->hash, note, &err) < 0)
        log_warn("bucket.note", "error", err.message); /* it is done once more */
    store_after(m->bucket->opt.store, &m->wait, mirror_on_noted, m);
}

static void mirror_on_end(void *ctx, const struct err *err) {
    struct move *m = ctx;
    struct mirror *b = m->bucket;
    bool done = !err && (m->status / 100 == 2 || (m->removes && m->status == 404));
    if (!done) {
        mirror_failed(b, m, err);
        if (m->removes)
            mirror_on_noted(m);
        else
            note_end(m, BLOB_NOT_SENT);
        return;
    }
    if (m->removes)
        b->stats.removed++;
    else
        b->stats.sent++;
    if (*b->stats.error)
        log_info("bucket.works", "url", b->url);
    b->stats.error[0] = 0;
    b->retry_ms = 0;
    note_end(m, m->removes ? BLOB_REMOVED : BLOB_SENT);
}

/* --- on its way --- */

static void mirror_on_head(void *ctx, struct fetch *f, int status) {
    (void)f;
    ((struct move *)ctx)->status = status;
}

static void mirror_on_data(void *ctx, const char *data, size_t len) {
    struct move *m = ctx;
    (void)buf_add(&m->answer, data, MIN(len, ANSWER_BYTES - 1 - m->answer.len));
}

static ssize_t mirror_on_body(void *ctx, char *out, size_t size) {
    const struct move *m = ctx;
    return read(m->fd, out, size);
}

static int mirror_start(struct mirror *b, struct move *m, struct err *err) {
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
                                               .on_body = empty ? NULL : mirror_on_body,
                                               .idle_timeout_ms = IDLE_MS,
                                               .max_body_bytes = 1 << 20,
                                               .on_head = mirror_on_head,
                                               .on_data = mirror_on_data,
                                               .on_end = mirror_on_end,
                                               .ctx = m},
                       &f, err);
}

static int open_and_start(struct move *m, struct err *err) {
    struct mirror *b = m->bucket;
    if (!m->removes)
        m->fd = files_open(b->opt.store->files, m->hash);
    if (!m->removes && m->fd < 0)
        return err_sys(err, "open the artifact %s", m->hash);
    return mirror_start(b, m, err);
}

static void mirror_on_sending_noted(void *ctx) {
    struct move *m = ctx;
    struct err err;
    if (open_and_start(m, &err) == 0)
        return;
    mirror_failed(m->bucket, m, &err);
    note_end(m, BLOB_NOT_SENT);
}

/* That it is being sent is noted before the first byte goes. */
static int mirror_begin(struct mirror *b, struct move *m, struct err *err) {
    m->status = 0;
    m->fd = -1;
    buf_init(&m->answer, ANSWER_BYTES);
    if (m->removes)
        return open_and_start(m, err);
    int rc = blob_note(b, m->hash, BLOB_SENDING, err);
    if (rc == 0)
        store_after(b->opt.store, &m->wait, mirror_on_sending_noted, m);
    return rc;
}

/* Fills the places that are free. */
static void mirror_look(struct mirror *b) {
    for (size_t i = 0; i < MOVES_MAX; i++) {
        struct move *m = &b->moves[i];
        struct err err;
        if (*m->hash)
            continue;
        if (clock_mono_ms() < b->not_before_ms || !mirror_find_next(b, m))
            return;
        if (is_moving(b, m)) { /* it is being removed, or that it is sent is not noted yet */
            m->hash[0] = 0;
            return;
        }
        memcpy(b->last, m->hash, sizeof(b->last));
        m->bucket = b;
        if (mirror_begin(b, m, &err) == 0)
            continue;
        mirror_failed(b, m, &err);
        free_move(m);
    }
}

static void mirror_on_timer(uv_timer_t *t) {
    mirror_look(t->data);
}

/* --- and back --- */

bool mirror_has(const struct mirror *b, const char *hash) {
    if (!b)
        return false;
    sqlite3_stmt *st = mirror_ready(b, MIRROR_HAS, hash);
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

static void mirror_on_recalled(void *ctx, const struct err *failure) {
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

static void mirror_on_recall_head(void *ctx, struct fetch *f, int status) {
    (void)f;
    ((struct mirror_recall *)ctx)->status = status;
}

static void mirror_on_recall_data(void *ctx, const char *data, size_t len) {
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
                                                 .on_head = mirror_on_recall_head,
                                                 .on_data = mirror_on_recall_data,
                                                 .on_end = mirror_on_recalled,
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
    sqlite3_stmt *st = mirror_ready(b, MIRROR_WAIT, NULL);
    s.waiting = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    (void)sqlite3_reset(st);
    return s;
}

static void mirror_release(struct mirror *b) {
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
    if (blob_note(b, "", BLOB_NONE_SENT, &err) < 0)
        log_warn("bucket.note", "error", err.message);
    if (b->pool)
        (void)uv_timer_start(&b->timer, mirror_on_timer, 0, LOOK_MS);
    return b;
}

static void mirror_on_timer_closed(uv_handle_t *h) {
    mirror_release(h->data);
}

static void mirror_on_pool_closed(void *ctx) {
    mirror_release(ctx);
}

void mirror_close(struct mirror *b) {
    if (!b)
        return;
    for (size_t i = 0; i < MOVES_MAX; i++)
        store_wait_cancel(&b->moves[i].wait);
    if (b->pool)
        fetch_pool_close(b->pool, mirror_on_pool_closed, b);
    uv_close((uv_handle_t *)&b->timer, mirror_on_timer_closed);
}
