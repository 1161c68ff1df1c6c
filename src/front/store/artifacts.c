#include "front/store/artifacts.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "front/store/files.h"
#include "front/store/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ARTIFACT_COUNT, ARTIFACT_ADD, ARTIFACT_REMOVE, ARTIFACT_LIST, ARTIFACT_GET };

#define COLUMNS "name, type, bytes, hash, created_ms"

static const char *const sql[] = {
    [ARTIFACT_COUNT] = "SELECT count(*) FROM artifacts WHERE run_id = ?1",
    [ARTIFACT_ADD] = "INSERT INTO artifacts (run_id, " COLUMNS
                     ") SELECT id, ?2, ?3, ?4, ?5, ?6 FROM runs WHERE id = ?1",
    [ARTIFACT_REMOVE] = "DELETE FROM artifacts WHERE run_id = ?1 AND name = ?2",
    [ARTIFACT_LIST] = "SELECT " COLUMNS " FROM artifacts WHERE run_id = ?1 ORDER BY name",
    [ARTIFACT_GET] = "SELECT " COLUMNS " FROM artifacts WHERE run_id = ?1 AND name = ?2",
};

const struct store_statements store_artifact_statements = {sql, ARRAY_LEN(sql)};

bool artifact_is_name(const char *name) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = strlen(name);
    return n > 0 && n <= ARTIFACT_NAME_MAX && name[0] != '.' && strspn(name, letters) == n;
}

static void finish_hash(EVP_MD_CTX *hash, char out[ARTIFACT_HASH_SIZE]) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    (void)EVP_DigestFinal_ex(hash, digest, &n);
    for (unsigned i = 0; i < n; i++)
        (void)snprintf(out + (size_t)2 * i, 3, "%02x", digest[i]);
}

static EVP_MD_CTX *new_hash(void) {
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    (void)EVP_DigestInit_ex(hash, EVP_sha256(), NULL);
    return hash;
}

/* --- writing --- */

struct artifact_writer {
    struct store *store;
    char run_id[ID_SIZE];
    char *name;
    char *type;
    char beside[ID_SIZE]; /* the file's name until it is whole */
    int fd;
    int64_t bytes;
    EVP_MD_CTX *hash;
};

static void free_writer(struct artifact_writer *w) {
    fd_close(&w->fd);
    EVP_MD_CTX_free(w->hash);
    free(w->name);
    free(w->type);
    free(w);
}

void artifact_cancel(struct artifact_writer *w) {
    if (!w)
        return;
    (void)unlinkat(w->store->files, w->beside, 0);
    free_writer(w);
}

static int store_artifacts_count(struct store *s, const char *run_id, int64_t *ret_n,
                                 struct err *err) {
    sqlite3_stmt *st = store_read_statement(s, STORE_ARTIFACTS, ARTIFACT_COUNT);
    store_bind_str(st, 1, run_id);
    int e = sqlite3_step(st) == SQLITE_ROW ? 0 : store_error(s->read_db, err, "count artifacts");
    *ret_n = sqlite3_column_int64(st, 0);
    (void)sqlite3_reset(st);
    return e;
}

/* A file beside; or NULL. */
static struct artifact_writer *make_writer(struct store *s, struct err *err) {
    struct artifact_writer *w = xcalloc(1, sizeof(*w));
    *w = (struct artifact_writer){.store = s, .hash = new_hash()};
    id_new(FILES_NEW, w->beside);
    w->fd = openat(s->files, w->beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (w->fd >= 0)
        return w;
    (void)files_error(err, "make a file for an artifact");
    free_writer(w);
    return NULL;
}

static int find_folder(struct store *s, struct err *err) {
    if (s->files < 0)
        s->files = files_open_folder(s->path, true, err);
    return s->files < 0 ? s->files : 0;
}

int artifact_begin(struct store *s, const char *run_id, const char *name, const char *type,
                   struct artifact_writer **ret_writer, struct err *err) {
    int64_t n = 0;
    if (!artifact_is_name(name))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"%.120s\" is no name of an artifact: 1 to %d letters, digits, \".\", "
                       "\"_\" or \"-\"",
                       name, ARTIFACT_NAME_MAX);
    int rc = find_folder(s, err);
    if (rc == 0)
        rc = store_artifacts_count(s, run_id, &n, err);
    if (rc == 0 && n >= s->settings.artifacts)
        rc = err_set(err, ERR_LIMIT, "a run keeps %lld artifacts (\"artifacts\")",
                     (long long)s->settings.artifacts);
    struct artifact_writer *w = rc < 0 ? NULL : make_writer(s, err);
    if (!w)
        return -(int)err->code;
    w->name = xstrdup(name);
    w->type = xstrdup(type);
    (void)snprintf(w->run_id, sizeof(w->run_id), "%s", run_id);
    *ret_writer = w;
    return 0;
}

int artifact_restore_begin(struct store *s, struct artifact_writer **ret_writer, struct err *err) {
    struct artifact_writer *w = find_folder(s, err) < 0 ? NULL : make_writer(s, err);
    if (!w)
        return -(int)err->code;
    *ret_writer = w;
    return 0;
}

int artifact_restore_commit(struct artifact_writer *w, const char *hash, struct err *err) {
    char written[ARTIFACT_HASH_SIZE];
    finish_hash(w->hash, written);
    int rc = strcmp(written, hash) == 0
                 ? files_rename(w->store->files, w->beside, hash, err)
                 : err_set(err, ERR_IO, "the copy of the artifact is not what was put there");
    if (rc < 0)
        artifact_cancel(w);
    else
        free_writer(w);
    return rc;
}

int artifact_write(struct artifact_writer *w, const void *data, size_t len, struct err *err) {
    int64_t most = w->store->settings.artifact_mb << 20;
    if ((int64_t)len > most - w->bytes)
        return err_set(err, ERR_LIMIT, "an artifact may have %lld MiB (\"artifact_mb\")",
                       (long long)w->store->settings.artifact_mb);
    if (fd_write_all(w->fd, data, len) < 0)
        return files_error(err, "write an artifact");
    w->bytes += (int64_t)len;
    (void)EVP_DigestUpdate(w->hash, data, len);
    return 0;
}

struct artifact_op {
    struct store_op op;
    char run_id[ID_SIZE];
    char beside[ID_SIZE];
    char hash[ARTIFACT_HASH_SIZE];
    char *name;
    char *type;
    int64_t bytes;
    int64_t created_ms;
};

static int artifact_add_row(struct store *s, const struct artifact_op *o, struct err *err) {
    int64_t changes = 0;
    sqlite3_stmt *st = store_write_statement(s, STORE_ARTIFACTS, ARTIFACT_REMOVE);
    store_bind_str(st, 1, o->run_id);
    store_bind_str(st, 2, o->name);
    int rc = store_step(st, "replace an artifact", NULL, err);
    if (rc < 0)
        return rc;
    st = store_write_statement(s, STORE_ARTIFACTS, ARTIFACT_ADD);
    store_bind_str(st, 1, o->run_id);
    store_bind_str(st, 2, o->name);
    store_bind_str(st, 3, o->type);
    store_bind_int(st, 4, o->bytes);
    store_bind_str(st, 5, o->hash);
    store_bind_int(st, 6, o->created_ms);
    rc = store_step(st, "record an artifact", &changes, err);
    if (rc == 0 && changes == 0)
        rc = err_set(err, ERR_NOT_FOUND, "there is no run \"%.40s\"", o->run_id);
    return rc;
}

/* The file gets its name inside the transaction, while nobody else can write: who deletes what
 * nobody has does it in one too. */
static int artifact_run(struct store *s, const struct store_op *op, struct err *err) {
    const struct artifact_op *o = (const struct artifact_op *)op;
    int rc = artifact_add_row(s, o, err);
    return rc < 0 ? rc : files_rename(s->files, o->beside, o->hash, err);
}

static void artifact_op_free(struct store_op *op) {
    struct artifact_op *o = (struct artifact_op *)op;
    free(o->name);
    free(o->type);
    free(o);
}

static const struct store_op_type artifact_type = {
    .name = "an artifact", .run = artifact_run, .free = artifact_op_free};

int artifact_commit(struct artifact_writer *w, struct err *err) {
    struct artifact_op *o = xcalloc(1, sizeof(*o));
    struct store *s = w->store;
    o->op.type = &artifact_type;
    o->op.bytes = sizeof(*o);
    finish_hash(w->hash, o->hash);
    memcpy(o->run_id, w->run_id, sizeof(o->run_id));
    memcpy(o->beside, w->beside, sizeof(o->beside));
    o->name = steal_ptr(&w->name);
    o->type = steal_ptr(&w->type);
    o->bytes = w->bytes;
    o->created_ms = clock_wall_ms();
    free_writer(w);
    char beside[ID_SIZE];
    memcpy(beside, o->beside, sizeof(beside));
    int rc = store_submit(s, &o->op, err);
    if (rc < 0)
        (void)unlinkat(s->files, beside, 0);
    return rc;
}

/* --- reading --- */

static struct artifact row_of(sqlite3_stmt *st) {
    return (struct artifact){.name = (const char *)sqlite3_column_text(st, 0),
                             .type = (const char *)sqlite3_column_text(st, 1),
                             .bytes = sqlite3_column_int64(st, 2),
                             .hash = (const char *)sqlite3_column_text(st, 3),
                             .created_ms = sqlite3_column_int64(st, 4)};
}

int artifact_list(struct store *s, const char *run_id,
                  void (*on_artifact)(void *ctx, const struct artifact *a), void *ctx,
                  struct err *err) {
    sqlite3_stmt *st = store_read_statement(s, STORE_ARTIFACTS, ARTIFACT_LIST);
    store_bind_str(st, 1, run_id);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        struct artifact a = row_of(st);
        on_artifact(ctx, &a);
    }
    int e = rc == SQLITE_DONE ? 0 : store_error(s->read_db, err, "list artifacts");
    (void)sqlite3_reset(st);
    return e;
}

struct artifact_reader {
    const struct store *store;
    struct artifact about;
    char *name, *type, *hash;
    int fd;
    int64_t given;
    EVP_MD_CTX *sum;
};

void artifact_close(struct artifact_reader *r) {
    if (!r)
        return;
    fd_close(&r->fd);
    EVP_MD_CTX_free(r->sum);
    free(r->name);
    free(r->type);
    free(r->hash);
    free(r);
}

const struct artifact *artifact_of(const struct artifact_reader *r) {
    return &r->about;
}

int artifact_open(struct store *s, const char *run_id, const char *name,
                  struct artifact_reader **ret_reader, struct err *err) {
    sqlite3_stmt *st = store_read_statement(s, STORE_ARTIFACTS, ARTIFACT_GET);
    store_bind_str(st, 1, run_id);
    store_bind_str(st, 2, name);
    int rc = sqlite3_step(st);
    if (rc != SQLITE_ROW) {
        int e = rc == SQLITE_DONE
                    ? err_set(err, ERR_NOT_FOUND, "the run has no artifact \"%.100s\"", name)
                    : store_error(s->read_db, err, "read an artifact");
        (void)sqlite3_reset(st);
        return e;
    }
    struct artifact_reader *r = xcalloc(1, sizeof(*r));
    r->store = s;
    r->fd = -1;
    r->about = row_of(st);
    r->about.name = r->name = xstrdup(r->about.name);
    r->about.type = r->type = xstrdup(r->about.type);
    r->about.hash = r->hash = xstrdup(r->about.hash);
    r->sum = new_hash();
    (void)sqlite3_reset(st);
    (void)artifact_find_file(r);
    *ret_reader = r;
    return 0;
}

bool artifact_find_file(struct artifact_reader *r) {
    if (r->fd < 0)
        r->fd = files_open(r->store->files, r->hash);
    return r->fd >= 0;
}

void artifact_drop_file(struct artifact_reader *r) {
    files_delete(r->store->files, r->hash);
    fd_close(&r->fd);
}

static int store_artifacts_damaged(const struct artifact_reader *r, struct err *err) {
    return err_set(err, ERR_IO, "the artifact \"%.100s\" is damaged: it is not what was put there",
                   r->name);
}

ssize_t artifact_read(struct artifact_reader *r, void *out, size_t size, struct err *err) {
    int64_t left = r->about.bytes - r->given;
    size_t want = (size_t)MIN((int64_t)size, left);
    if (r->fd < 0)
        return err_set(err, ERR_IO, "the file of the artifact \"%.100s\" is gone", r->name);
    if (fd_read_all(r->fd, out, want) != (ssize_t)want)
        return store_artifacts_damaged(r, err);
    (void)EVP_DigestUpdate(r->sum, out, want);
    r->given += (int64_t)want;
    if (want > 0 && want < (size_t)left)
        return (ssize_t)want;
    /* These are the last ones, if they are right. */
    char hash[ARTIFACT_HASH_SIZE];
    EVP_MD_CTX *sum = EVP_MD_CTX_new();
    (void)EVP_MD_CTX_copy_ex(sum, r->sum);
    finish_hash(sum, hash);
    EVP_MD_CTX_free(sum);
    return strcmp(hash, r->hash) == 0 ? (ssize_t)want : store_artifacts_damaged(r, err);
}
