#pragma once
/* The one place that writes files of strangers onto this machine: what an agent changed, what a
 * sandbox is copied from. Every path is opened part by part beneath the folder, by openat2() that
 * follows no link, so that neither a name nor a link, in what is written or already there, leads
 * elsewhere. A file is written beside its place and renamed onto it: what lay there is replaced,
 * never written through. Nothing is written that git would run for its user: no `.git`, and no
 * folder becomes or is changed that git takes for a repository of its own. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum { FOLDER_NAME_SIZE = 256, FOLDER_PART_SIZE = 32 };

/* The folder that holds the last part of the path, and that part. make: what is missing is made.
 * ERR_NOT_FOUND: it is missing. ERR_FORBIDDEN: nothing may be written there, and why. */
int folder_parent(int dir, const char *path, bool make, char ret_name[FOLDER_NAME_SIZE],
                  int *ret_fd, struct err *err);

/* A file that is being written. */
struct folder_file {
    int parent;
    int fd;
    char name[FOLDER_NAME_SIZE];
    char part[FOLDER_PART_SIZE];
};

/* mode: its permissions, of which the user's umask takes away. */
int folder_begin(int dir, const char *path, unsigned mode, struct folder_file *ret,
                 struct err *err);
/* Puts it in its place. ERR_CONFLICT if something is there and is not to be replaced; a folder
 * never is. The file is dead afterwards, also if that fails. */
int folder_commit(struct folder_file *f, bool replace, struct err *err);
void folder_cancel(struct folder_file *f);

/* ERR_FORBIDDEN if its target is not inside. */
int folder_link(int dir, const char *path, const char *target, bool replace, struct err *err);
/* One that was the user's own, and may lead anywhere. */
int folder_link_back(int dir, const char *path, const char *target, bool replace, struct err *err);
/* Whether a link at `path` that says `target` stays inside, were it followed. */
bool folder_link_is_inside(const char *path, const char *target);
int folder_make(int dir, const char *path, struct err *err);
/* A file or a link; nothing if there is none. */
int folder_remove(int dir, const char *path, struct err *err);
/* Removes folders above what was at `path`, as long as they are empty. */
void folder_tidy(int dir, const char *path);
