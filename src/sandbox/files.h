#pragma once
/* The guest's files, touched as the guest from inside its own root. Every path is resolved by
 * openat2() with RESOLVE_IN_ROOT and without magic links, so that a link means what it means to the
 * guest and never leads to what init alone can see; /proc is refused altogether. */

#include "base/buf.h"
#include "base/err.h"
#include "wire/sandbox.h"

#include <stdbool.h>
#include <stdint.h>

/* Each returns 0 or a negative code. Paths are absolute, or relative to /work. */
int sandbox_files_open_read(const char *path, int *ret_fd, struct sandbox_stat *ret,
                            struct err *err);
int sandbox_files_open_write(const char *path, uint32_t mode, uint32_t flags, int *ret_fd,
                             struct err *err);
int sandbox_files_stat(const char *path, bool follow, struct sandbox_stat *ret, struct err *err);
/* Appends the payload of INIT_ENTRIES. */
int sandbox_files_list(const char *path, uint64_t skip, struct buf *out, struct err *err);
int sandbox_files_mkdir(const char *path, uint32_t mode, bool parents, struct err *err);
int sandbox_files_move(const char *from, const char *to, struct err *err);
int sandbox_files_delete(const char *path, bool recursive, uint64_t *ret_count, struct err *err);
/* Copies a pipe into a file; the number of bytes. */
int sandbox_files_copy(int from, int to, uint64_t *ret_bytes, struct err *err);
