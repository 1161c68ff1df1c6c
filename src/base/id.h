#pragma once
/* Identifiers that sort by time, those of one process in the order they were made: a prefix, "_",
 * and a UUID of version 7 (60 bits of time, 62 random ones) in lower-case Crockford base 32
 * ("run_01jd3v..."). Safe in URLs, host names and file names. The UUID itself, in its usual
 * spelling, names the same thing where an interface wants one. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ID_SIZE 40 /* a prefix of up to 12 characters, "_", 26 characters, NUL */

/* Returns out. The prefix has at most 12 characters of [a-z]. */
char *id_new(const char *prefix, char out[ID_SIZE]);
/* Sorts before every id of that prefix that is made at that time or later. Returns out. */
char *id_floor(const char *prefix, int64_t time_ms, char out[ID_SIZE]);
/* True if text is what id_new(prefix) can make. */
bool id_is_valid(const char *prefix, const char *text, size_t len);
/* 36 characters of a random UUID (version 4), for interfaces that ask for one. */
#define UUID_SIZE 37
char *id_uuid(char out[UUID_SIZE]);
/* The UUID that an id is made of. The id is a valid one. Returns out. */
char *id_to_uuid(const char *id, char out[UUID_SIZE]);
/* The id that a UUID makes; false if text is none. */
bool id_from_uuid(const char *prefix, const char *text, char out[ID_SIZE]);
