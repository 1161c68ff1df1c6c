#pragma once
/* The mappings of this process, from /proc/self/maps. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAPS_MAX = 1024, MAPS_TEXT_SIZE = 256 * 1024 };

struct map {
    uintptr_t start;
    uintptr_t end;
    bool read, write, exec, shared;
    char name[96]; /* the end of the path; empty: anonymous */
};

struct maps {
    size_t count;
    struct map map[MAPS_MAX];
};

/* Changes text. */
int maps_parse(struct maps *m, char *text, struct err *err);
/* proc_fd: /proc. text: room for the file; nothing else is touched, so that a process can look at
 * its own pages without changing many. */
int maps_read(struct maps *m, int proc_fd, char *text, size_t size, struct err *err);
