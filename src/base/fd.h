#pragma once
/* File descriptors: closed in one place, CLOEXEC from birth, read and written whole. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Closes *fd if it is open and sets it to -1. */
void fd_close(int *fd);
/* A connected pair of stream sockets, CLOEXEC. */
int fd_pair(int ret_fds[2], struct err *err);
int fd_set_nonblock(int fd, bool on);
int fd_set_cloexec(int fd, bool on);
/* Writes all n bytes to a blocking descriptor. 0, or -1 with errno. */
int fd_write_all(int fd, const void *data, size_t n);
/* Reads until n bytes or the end; returns the number read, or -1 with errno. */
ssize_t fd_read_all(int fd, void *out, size_t n);
/* Closes every descriptor from `first` on, but those listed (sorted by the function). */
void fd_close_others(int first, int *keep, size_t nkeep);

struct buf;
/* Reads a whole file, up to the buffer's maximum. dirfd may be AT_FDCWD. */
int fd_read_file(int dirfd, const char *path, struct buf *out, struct err *err);
