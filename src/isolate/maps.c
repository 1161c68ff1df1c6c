#include "isolate/maps.h"

#include "base/cleanup.h"
#include "base/fd.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

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

int maps_parse(struct maps *m, char *text, struct err *err) {
    m->count = 0;
    for (char *line = text; line && *line;) {
        char *end = strchr(line, '\n');
        if (end)
            *end = 0;
        if (m->count == MAPS_MAX)
            return err_set(err, ERR_LIMIT, "more than %d mappings", MAPS_MAX);
        if (!parse_line(line, &m->map[m->count++]))
            return err_set(err, ERR_INTERNAL, "a line of /proc/self/maps is malformed");
        line = end ? end + 1 : NULL;
    }
    return 0;
}

int maps_read(struct maps *m, int proc_fd, char *text, size_t size, struct err *err) {
    _cleanup_(close) int fd = openat(proc_fd, "self/maps", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? fd_read_all(fd, text, size - 1) : -1;
    if (n < 0)
        return err_sys(err, "read /proc/self/maps");
    if ((size_t)n == size - 1)
        return err_set(err, ERR_LIMIT, "/proc/self/maps is larger than %zu bytes", size);
    text[n] = 0;
    return maps_parse(m, text, err);
}
