#pragma once
/* Files of a sandbox: carried out inside, as the guest; here bytes only pass through, as fast as
 * the other side takes them. Callbacks come from the loop. */

#include "front/sandbox/sandboxes.h"

/* --- one file --- */

struct file_reader;
struct file_reader_callbacks {
    void (*on_open)(void *ctx, const struct sandbox_stat *stat);
    bool (*on_data)(void *ctx, const char *data, size_t len); /* false: wait for a resume */
    /* All was read, or why not. The pointer is dead afterwards. */
    void (*on_end)(void *ctx, const struct err *err);
};
/* NULL with err if it cannot be asked for. */
struct file_reader *file_read(struct sandbox *s, const char *path,
                              const struct file_reader_callbacks *callbacks, void *ctx,
                              struct err *err);
void file_reader_resume(struct file_reader *r);
/* No callback comes any more. */
void file_reader_cancel(struct file_reader *r);

/* Written in pieces, each before the next is taken: memory stays bounded, and a full disk is known
 * at once. */
struct file_writer;
struct file_writer_callbacks {
    void (*on_room)(void *ctx);
    /* All is written, or why not. The pointer is dead afterwards. */
    void (*on_end)(void *ctx, uint64_t written, const struct err *err);
};
struct file_target {
    const char *path;
    uint32_t mode;
    uint32_t flags; /* enum sandbox_write */
};
struct file_writer *file_write(struct sandbox *s, const struct file_target *target,
                               const struct file_writer_callbacks *callbacks, void *ctx);
/* Takes all of it. False: no more before on_room, but for what is on its way already (128 KiB). */
bool file_writer_add(struct file_writer *w, const char *data, size_t len);
/* That was all: on_end comes. */
void file_writer_finish(struct file_writer *w);
void file_writer_cancel(struct file_writer *w);

/* --- archives: packed and unpacked by tar inside --- */

struct archive;
struct archive_callbacks {
    /* Packing. False: wait for a resume. Nothing comes before it is clear that it can be packed, or
     * that it is large. */
    bool (*on_data)(void *ctx, const char *data, size_t len);
    void (*on_room)(void *ctx); /* unpacking: after an add that said false */
    /* The end, or why. The pointer is dead afterwards. */
    void (*on_end)(void *ctx, const struct err *err);
};
struct archive_pack {
    const char *path;
    bool skip_unreadable;
};
struct archive *archive_pack(struct sandbox *s, const struct archive_pack *what,
                             const struct archive_callbacks *callbacks, void *ctx, struct err *err);
/* gzip is recognised by its first bytes. */
struct archive *archive_unpack(struct sandbox *s, const char *path,
                               const struct archive_callbacks *callbacks, void *ctx);
bool archive_add(struct archive *a, const char *data, size_t len);
void archive_finish(struct archive *a);
void archive_resume(struct archive *a);
/* Ends it, whatever it has done. No callback comes any more. */
void archive_cancel(struct archive *a);
/* Whether tar, by how it ended or what it said, found no room on the disk. */
bool sandbox_tar_is_too_large(const struct sandbox_exit *exit, const char *said, size_t len);
