#pragma once
/* Linked programs, shared and counted, and the cache of those that were asked for last: by SHA-256
 * of the compiler's request, bounded in bytes. */

#include <stddef.h>

struct program {
    unsigned refs;
    size_t len;
    char data[];
};
/* A copy of the text, with one reference. */
struct program *program_create(const void *data, size_t len);
void program_unref(struct program *p);
struct program *program_ref(struct program *p);

#define PROGRAM_HASH_SIZE 32

struct programs;

struct programs *programs_create(size_t max_bytes);
void programs_destroy(struct programs *all);
void programs_hash(const void *request, size_t len, unsigned char ret_hash[PROGRAM_HASH_SIZE]);
/* Borrowed from the cache; NULL if it is not there. */
struct program *programs_get(struct programs *all, const unsigned char *hash);
/* Keeps a reference of its own, if the program fits at all. */
void programs_put(struct programs *all, const unsigned char *hash, struct program *p);
size_t programs_bytes(const struct programs *all);
size_t programs_count(const struct programs *all);
