/* Archives of strangers: whatever they hold, nothing is made outside the folder. */
#include "front/cli/untar.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void remove_all(int dir, const char *name) {
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            remove_all(fd, e->d_name);
    if (d)
        closedir(d);
    (void)unlinkat(dir, name, fd < 0 ? 0 : AT_REMOVEDIR);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char home[] = "/tmp/cay-fuzz-untar-XXXXXX";
    static int outer = -1;
    struct untar t;
    struct err err;
    struct stat st;
    if (outer < 0) {
        if (!mkdtemp(home))
            abort();
        outer = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void)mkdirat(outer, "only", 0755);
    }
    (void)mkdirat(outer, "only/in", 0755);
    int in = openat(outer, "only/in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    untar_init(&t, in);
    /* The first byte says how it is cut. */
    size_t piece = size > 0 ? (size_t)data[0] * 8 + 1 : 1;
    for (size_t at = 1; at < size; at += piece)
        if (untar_feed(&t, (const char *)data + at, size - at < piece ? size - at : piece, &err) <
            0)
            break;
    (void)untar_end(&t, &err);
    untar_finish(&t);
    close(in);
    remove_all(outer, "only/in");
    /* The folder around it holds nothing else: two links, its own and its parent's. */
    if (fstatat(outer, "only", &st, 0) < 0 || st.st_nlink != 2)
        abort();
    return 0;
}
