#pragma once
/* Paths. What a guest or a client names is opened only through path_open_beneath(). */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
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
/* True for one plain file name: not empty, ".", "..", without "/" or NUL, at most 255 bytes. */
bool path_is_plain_name(const char *name, size_t len);
/* Removes a folder with all that is in it; links are not followed. */
int path_remove_tree(const char *path, struct err *err);
