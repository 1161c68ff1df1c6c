#pragma once
/* Landlock, in every version of it: what a version cannot refuse is left out, and what is not in
 * the kernel at all is version 0, with which everything here does nothing. A ruleset refuses all
 * that its version can; then files and folders are allowed, then it is enforced. */

#include "base/err.h"

#include <stdint.h>

/* Rights to files and folders, by their meaning; the header of Debian 12 knows the first three
 * versions. */
#define LANDLOCK_RIGHT_EXECUTE   (1ULL << 0)
#define LANDLOCK_RIGHT_WRITE     (1ULL << 1)
#define LANDLOCK_RIGHT_READ      (1ULL << 2)
#define LANDLOCK_RIGHT_LIST      (1ULL << 3)
#define LANDLOCK_RIGHT_REMOVE    (1ULL << 5)
#define LANDLOCK_RIGHT_MAKE_CHAR (1ULL << 6)
#define LANDLOCK_RIGHT_MAKE_FILE (1ULL << 8)
#define LANDLOCK_RIGHT_MAKE_DISK (1ULL << 11)
#define LANDLOCK_RIGHT_TRUNCATE  (1ULL << 14)
#define LANDLOCK_RIGHT_IOCTL     (1ULL << 15)
#define LANDLOCK_RIGHT_ALL       UINT64_MAX

/* What may be refused of TCP, from version 4 on. */
enum { LANDLOCK_TCP_BIND = 1, LANDLOCK_TCP_CONNECT = 2 };

struct landlock {
    int version; /* 0: there is none */
    int fd;      /* the ruleset; -1: none */
};

int landlock_version(void);
/* Owns a descriptor that landlock_close() closes. Abstract sockets and signals to others are
 * refused from version 6 on. */
int landlock_open(struct landlock *l, uint64_t refused_tcp, struct err *err);
/* Allows what is below, or the file. What is not there needs no right. */
int landlock_allow(const struct landlock *l, const char *path, uint64_t rights, struct err *err);
int landlock_allow_fd(const struct landlock *l, int fd, uint64_t rights, struct err *err);
int landlock_enforce(const struct landlock *l, struct err *err);
void landlock_close(struct landlock *l);
