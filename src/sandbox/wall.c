#include "sandbox/wall.h"

#ifdef CAY_TEST_WALLS
#include <stdlib.h>
#include <string.h>

static const char *names[WALL_COUNT] = {
    "seccomp", "landlock", "caps",    "nnp",       "dumpable", "uid",    "readonly", "hidepid",
    "mask",    "net",      "disk",    "inodes",    "cgroup",   "rlimit", "close",    "env",
    "watch",   "suid",     "sockets", "terminals", "private",  "view",   "lean",
};
static bool off[WALL_COUNT];

void walls_init(void) {
    const char *list = getenv("CAY_SANDBOX_WITHOUT");
    for (const char *p = list; p && *p;) {
        size_t n = strcspn(p, ",");
        bool known = false;
        for (int g = 0; g < WALL_COUNT; g++)
            if (strlen(names[g]) == n && memcmp(names[g], p, n) == 0)
                known = off[g] = true;
        if (!known)
            abort();
        p += n + (p[n] == ',');
    }
}

bool wall_on(enum wall g) {
    return !off[g];
}
#endif
