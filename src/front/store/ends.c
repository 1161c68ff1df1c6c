#include "front/store/internal.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "wire/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file beside the database, in which the ends of untold runs, of sandboxes and of their commands
 * stand until the database has them: one write of what the record has, where SQLite writes five
 * pages and more. So many share a transaction, and what was answered survives the death of any
 * process. Each record has its length, the salt of those that belong together, and a sum. What an
 * earlier time left behind has another salt; a record that was cut off has another sum: it was told
 * to nobody, and is the last. */
enum { RECORD_MAX = 64 << 10, FILE_MAX = 8 << 20, HEAD_SIZE = 24 };

static uint64_t sum_of(const char *data, size_t len, uint64_t salt) {
    uint64_t sum = salt ^ len;
    while (len > 0) {
        uint64_t word = 0;
        size_t n = MIN(len, sizeof(word));
        memcpy(&word, data, n);
        sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 32;
        data += n;
        len -= n;
    }
    return sum;
}

static void pack_head(struct buf *b, size_t len, uint64_t salt, uint64_t sum) {
    pack_u64(b, len);
    pack_u64(b, salt);
    pack_u64(b, sum);
}

static void pack_run(struct buf *b, const struct store_run *r) {
    const struct store_run_usage *u = &r->usage;
    const char *const texts[] = {r->id,     r->owner,      r->kind,          r->title,
                                 r->status, r->error_code, r->error_message, r->detail};
    const int64_t numbers[] = {r->created_ms,    r->finished_ms,       u->input_tokens,
                               u->output_tokens, u->cache_read_tokens, u->cache_write_tokens,
                               u->cost_nusd,     u->unpriced};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        pack_str(b, texts[i]);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        pack_u64(b, (uint64_t)numbers[i]);
}

/* Begins with an empty text, where a run has its id. */
static void pack_record(struct buf *b, const char *kind, const struct store_record *r) {
    const char *const texts[] = {"", kind, r->id, r->owner, r->parent, r->status, r->doc};
    const int64_t numbers[] = {r->created_ms, r->ended_ms, r->bytes};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        pack_str(b, texts[i]);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        pack_u64(b, (uint64_t)numbers[i]);
}

static char *unpack_text(struct unpack *u) {
    char *text = unpack_strdup(u);
    if (text && *text)
        return text;
    free(text);
    return NULL;
}

static void unpack_id(struct unpack *u, char id[ID_SIZE]) {
    size_t len;
    const char *text = unpack_bytes(u, &len);
    u->bad = u->bad || len >= ID_SIZE;
    if (!u->bad)
        memcpy(id, text, len);
}

static bool unpack_run(struct unpack *u, struct store_run *r) {
    *r = (struct store_run){0};
    unpack_id(u, r->id);
    unpack_id(u, r->owner);
    r->kind = unpack_text(u);
    r->title = unpack_strdup(u); /* which may be empty */
    r->status = unpack_text(u);
    r->error_code = unpack_text(u);
    r->error_message = unpack_text(u);
    r->detail = unpack_text(u);
    r->created_ms = (int64_t)unpack_u64(u);
    r->finished_ms = (int64_t)unpack_u64(u);
    r->usage.input_tokens = (int64_t)unpack_u64(u);
    r->usage.output_tokens = (int64_t)unpack_u64(u);
    r->usage.cache_read_tokens = (int64_t)unpack_u64(u);
    r->usage.cache_write_tokens = (int64_t)unpack_u64(u);
    r->usage.cost_nusd = (int64_t)unpack_u64(u);
    r->usage.unpriced = unpack_u64(u) != 0;
    return unpack_ok(u) && r->kind && r->title && r->status;
}

static bool unpack_record(struct unpack *u, char **ret_kind, struct store_record *r) {
    *r = (struct store_record){0};
    *ret_kind = unpack_text(u);
    unpack_id(u, r->id);
    unpack_id(u, r->owner);
    unpack_id(u, r->parent);
    r->status = unpack_text(u);
    r->doc = unpack_text(u);
    r->created_ms = (int64_t)unpack_u64(u);
    r->ended_ms = (int64_t)unpack_u64(u);
    r->bytes = (int64_t)unpack_u64(u);
    return unpack_ok(u) && *ret_kind && r->status && r->doc;
}

/* --- what is added --- */

/* What follows the head's place in `b`. */
static bool append(struct store *s, struct buf *b) {
    char head[HEAD_SIZE + 1] = {0};
    struct buf at_front = {.data = head, .cap = sizeof(head), .max = HEAD_SIZE};
    if (b->full)
        return false;
    size_t len = b->len - HEAD_SIZE;
    pack_head(&at_front, len, s->ends_salt, sum_of(b->data + HEAD_SIZE, len, s->ends_salt));
    memcpy(b->data, head, HEAD_SIZE);
    if (pwrite(s->ends_fd, b->data, b->len, (off_t)s->ends_len) != (ssize_t)b->len)
        return false;
    s->ends_len += b->len;
    return true;
}

static bool begin(const struct store *s, struct buf *b) {
    buf_init(b, RECORD_MAX);
    return s->ends_fd >= 0 && s->ends_len <= FILE_MAX &&
           buf_add(b, (char[HEAD_SIZE]){0}, HEAD_SIZE);
}

bool store_ends_add(struct store *s, const struct store_run *run) {
    _cleanup_(buf) struct buf b;
    if (!begin(s, &b))
        return false;
    pack_run(&b, run);
    return append(s, &b);
}

bool store_ends_add_record(struct store *s, const char *kind, const struct store_record *r) {
    _cleanup_(buf) struct buf b;
    if (!begin(s, &b))
        return false;
    pack_record(&b, kind, r);
    return append(s, &b);
}

/* The database has all of them. What is still to be read there is not theirs: its salt is not. */
void store_ends_clear(struct store *s) {
    static const char nothing[HEAD_SIZE];
    if (s->ends_len == 0)
        return;
    if (pwrite(s->ends_fd, nothing, sizeof(nothing), 0) != (ssize_t)sizeof(nothing))
        fd_close(&s->ends_fd); /* what cannot be taken back is not to grow */
    s->ends_len = 0;
    s->ends_salt++;
}

/* --- what a server finds that begins --- */

static int take_record(struct store *s, struct unpack *u, struct err *err) {
    struct store_record r;
    _cleanup_(free) char *kind = NULL;
    int rc = unpack_record(u, &kind, &r) ? store_write_record(s, kind, &r, err) : 0;
    store_record_finish(&r);
    return rc;
}

static int take(struct store *s, struct unpack *record, struct err *err) {
    struct store_run run;
    struct store_run known;
    struct unpack first = *record;
    size_t len;
    int rc = 0;
    (void)unpack_bytes(&first, &len);
    if (!first.bad && len == 0)
        return take_record(s, &first, err);
    if (unpack_run(record, &run)) {
        rc = store_run_get(s, run.id, (struct store_scope){.all = true}, &known, err);
        if (rc == 0) { /* it died between the commit and store_ends_clear() */
            store_run_finish(&known);
        } else if (rc == -ERR_NOT_FOUND) {
            struct store_run_end end = store_end_of(&run);
            rc = store_write_whole(s, &run, &end, run.finished_ms, err);
        }
    }
    store_run_finish(&run);
    return rc;
}

static int take_all(struct store *s, const struct buf *b, struct err *err) {
    struct unpack u;
    uint64_t salt = 0;
    int rc = 0;
    unpack_init(&u, b->data, b->len);
    while (rc == 0) {
        size_t len = unpack_u64(&u);
        uint64_t its = unpack_u64(&u);
        uint64_t sum = unpack_u64(&u);
        const char *data = (const char *)u.at;
        if (u.bad || len == 0 || len > (size_t)(u.end - u.at) || (salt && its != salt) ||
            sum_of(data, len, its) != sum)
            return 0;
        struct unpack record;
        unpack_init(&record, data, len);
        rc = take(s, &record, err);
        salt = its;
        u.at += len;
    }
    return rc;
}

int store_ends_open(struct store *s, struct err *err) {
    _cleanup_(free) char *path = xasprintf("%s-ends", s->path);
    _cleanup_(buf) struct buf b;
    buf_init(&b, 2 * FILE_MAX);
    _cleanup_(close) int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "open %s", path);
    if (!S_ISREG(st.st_mode)) /* to read a pipe would take for ever */
        return err_set(err, ERR_IO, "%s is not a file: move it away", path);
    int rc = fd_read_file(AT_FDCWD, path, &b, err);
    if (rc == 0)
        rc = take_all(s, &b, err);
    if (rc == -ERR_FULL)
        return 0; /* they stay there, and the next server takes them; none is added */
    if (rc < 0)
        return err_wrap(err, "take over what ended last");
    if (ftruncate(fd, 0) < 0)
        return err_sys(err, "empty %s", path);
    s->ends_fd = steal_fd(&fd);
    s->ends_salt = (uint64_t)clock_wall_ms() << 20 | 1;
    return 0;
}
