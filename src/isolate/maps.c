#include "isolate/maps.h"

#include "base/buf.h"
#include "base/fd.h"

#include <stdlib.h>
#include <string.h>

enum { MAPS_TEXT_MAX = 1 << 20 };

/* "start-end rwxp offset dev inode   path" */
static bool parse_line(char *line, struct map *ret) {
    char *at;
    ret->start = (uintptr_t)strtoull(line, &at, 16);
    if (*at != '-')
        return false;
    ret->end = (uintptr_t)strtoull(at + 1, &at, 16);
    if (*at != ' ' || strlen(at) < 6)
        return false;
    ret->read = at[1] == 'r';
    ret->write = at[2] == 'w';
    ret->exec = at[3] == 'x';
    ret->shared = at[4] == 's';
    const char *path = strpbrk(at + 5, "/[");
    size_t len = path ? strlen(path) : 0;
    size_t skip = len >= sizeof(ret->name) ? len - (sizeof(ret->name) - 1) : 0;
    memcpy(ret->name, path ? path + skip : "", len - skip + 1);
    return true;
}

int maps_read(struct maps *m, int proc_fd, struct err *err) {
    struct buf text;
    buf_init(&text, MAPS_TEXT_MAX);
    int rc = fd_read_file(proc_fd, "self/maps", &text, err);
    m->count = 0;
    for (char *line = text.data; rc == 0 && line && *line;) {
        char *end = strchr(line, '\n');
        if (end)
            *end = 0;
        if (m->count == MAPS_MAX)
            rc = err_set(err, ERR_LIMIT, "more than %d mappings", MAPS_MAX);
        else if (!parse_line(line, &m->map[m->count++]))
            rc = err_set(err, ERR_INTERNAL, "a line of /proc/self/maps is malformed");
        line = end ? end + 1 : NULL;
    }
    buf_finish(&text);
    return rc;
}
