#pragma once
/* The files of artifacts: "artifacts" beside the database, each under the first two digits of its
 * hash. For the store's own files only. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* What is not whole begins so (base/id.h). */
#define FILES_NEW "new"

/* Opens the folder; make: makes it if it is not there. A descriptor, or negative. */
int files_open_folder(const char *database, bool make, struct err *err);
/* By errno: ERR_FULL on a full disk. */
int files_error(struct err *err, const char *what);
/* One that is whole gets its name; what has it already is the same. */
int files_rename(int folder, const char *from, const char *hash, struct err *err);
/* For reading, or -1. */
int files_open(int folder, const char *hash);
void files_delete(int folder, const char *hash);
/* What a crash left: before anybody writes, what is not whole; later, part by part, what the store
 * does not know (while nobody else can write to it). */
void files_sweep_new(int folder);
enum { FILES_PARTS = 256 };
void files_sweep(int folder, unsigned part, bool (*is_known)(void *ctx, const char *hash),
                 void *ctx);
