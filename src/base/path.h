#pragma once
/* Paths. What a guest or a client names is opened only through path_open_beneath() or
 * path_open_how(). */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* "a/b", in memory that the caller frees. */
char *path_join(const char *a, const char *b);
/* Makes the folder and its missing parents. */
int path_mkdirs(const char *path, mode_t mode, struct err *err);
/* The folder that holds this program, without a slash at the end; the caller frees. */
char *path_self_dir(void);
/* openat2() with RESOLVE_BENEATH and RESOLVE_NO_MAGICLINKS: no name leads out of dirfd, whatever
 * links, ".." or races it holds. Returns the descriptor (CLOEXEC), or -1 with errno. */
int path_open_beneath(int dirfd, const char *path, int flags, mode_t mode);
/* The same with RESOLVE_ flags of the caller's choice. The one place that calls openat2(): the
 * kernel answers EAGAIN for a ".." whenever anything on the machine is renamed or mounted at that
 * moment, so a few tries are made. */
int path_open_how(int dirfd, const char *path, int flags, mode_t mode, uint64_t resolve);
/* True for one plain file name: not empty, ".", "..", without "/" or NUL, at most 255 bytes. */
bool path_is_plain_name(const char *name, size_t len);
/* Removes a folder with all that is in it; links are not followed. */
int path_remove_tree(const char *path, struct err *err);
