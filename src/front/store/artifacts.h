#pragma once
/* What a job leaves behind beside its record: a diff, a log, an archive. The bytes lie in files
 * named by their SHA-256, each once however many jobs have it; the store knows which job has which.
 * They go with the job's record, and count to what is kept ("keep_mb").
 *
 * A file is written beside and renamed when it is whole, so that half of one is never seen; who
 * reads it gets its last bytes only when the hash of all is right. Not kept from a loss of power,
 * as the store is not; a file that such a loss has damaged is told by its hash. */

#include "front/store/store.h"

#include <sys/types.h>

enum { ARTIFACT_HASH_SIZE = 65, ARTIFACT_NAME_MAX = 100 };

struct artifact {
    const char *name;
    const char *type; /* a media type */
    int64_t bytes;
    const char *hash; /* in hexadecimal */
    int64_t created_ms;
};

/* Letters, digits and "._-", not "." first. */
bool artifact_is_name(const char *name);

struct artifact_writer;
/* ERR_LIMIT if the run has its fill, ERR_FULL on a full disk. */
int artifact_begin(struct store *s, const char *run_id, const char *name, const char *type,
                   struct artifact_writer **ret_writer, struct err *err);
/* ERR_LIMIT when it becomes too long ("artifact_mb"). */
int artifact_write(struct artifact_writer *w, const void *data, size_t len, struct err *err);
/* From now on it is there, instead of one of that name that was. The writer is dead afterwards,
 * also if it fails. */
int artifact_commit(struct artifact_writer *w, struct err *err);
/* NULL is allowed. */
void artifact_cancel(struct artifact_writer *w);
/* One whose file was lost is written anew, for all who have it. ERR_IO if what was written is not
 * what it was. The writer is dead afterwards. */
int artifact_restore_begin(struct store *s, struct artifact_writer **ret_writer, struct err *err);
int artifact_restore_commit(struct artifact_writer *w, const char *hash, struct err *err);

/* By name. */
int artifact_list(struct store *s, const char *run_id,
                  void (*on_artifact)(void *ctx, const struct artifact *a), void *ctx,
                  struct err *err);

struct artifact_reader;
int artifact_open(struct store *s, const char *run_id, const char *name,
                  struct artifact_reader **ret_reader, struct err *err);
/* Whether its file is there; else there is nothing to read, and this can be tried again. */
bool artifact_find_file(struct artifact_reader *r);
/* What lies there is damaged, and there is a copy elsewhere: it goes, so that the copy is got. */
void artifact_drop_file(struct artifact_reader *r);
/* Good as long as the reader is. */
const struct artifact *artifact_of(const struct artifact_reader *r);
/* The next bytes; 0 at the end. ERR_IO if what lies there is not what was put there: then the last
 * bytes have not been given. */
ssize_t artifact_read(struct artifact_reader *r, void *out, size_t size, struct err *err);
void artifact_close(struct artifact_reader *r);
