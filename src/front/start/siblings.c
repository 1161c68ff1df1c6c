#include "front/start/siblings.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "loop/child.h"
#include "loop/spawner.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static const struct {
    const char *name;
    bool needed;
} programs[SIBLING_COUNT] = {
    [SIBLING_COMPILE] = {"cay-compile", true},     [SIBLING_ISOLATE] = {"cay-isolate", true},
    [SIBLING_FACET] = {"cay-facet", true},         [SIBLING_SANDBOX] = {"cay-sandbox", false},
    [SIBLING_EGRESS] = {"cay-egress", false},      [SIBLING_SPAWN] = {"cay-spawn", false},
    [SIBLING_CODER] = {"coders/cay-coder", false},
};

void siblings_init(struct siblings *s) {
    *s = (struct siblings){.starter_fd = -1};
    for (size_t i = 0; i < SIBLING_COUNT; i++)
        s->fds[i] = -1;
}

void siblings_finish(struct siblings *s) {
    for (size_t i = 0; i < SIBLING_COUNT; i++)
        fd_close(&s->fds[i]);
}

int siblings_open(struct siblings *s, const char *dir, bool need_spawn, struct err *err) {
    for (size_t i = 0; i < SIBLING_COUNT; i++) {
        _cleanup_(free) char *path = path_join(dir, programs[i].name);
        bool needed = programs[i].needed || (i == SIBLING_SPAWN && need_spawn);
        s->fds[i] = open(path, O_PATH | O_CLOEXEC);
        if (s->fds[i] < 0 && needed)
            return err_sys(err, "%s is missing beside cay (run `make`)", programs[i].name);
    }
    return 0;
}

static void siblings_on_starter_exit(void *ctx, int wait_status, const struct rusage *used) {
    struct siblings *s = ctx;
    char text[64];
    (void)used;
    s->starter = NULL;
    if (!s->ending)
        log_warn("sandbox.starter", "status", child_status_text(wait_status, text, sizeof(text)),
                 "advice", "sandboxes go on; the other half of it makes new ones");
}

int siblings_start_starter(struct siblings *s, uv_loop_t *loop, struct err *err) {
    static const char *const args[] = {"--starter", NULL};
    if (s->fds[SIBLING_SANDBOX] < 0)
        return 0;
    return child_spawn(loop,
                       &(struct child_options){.name = "cay-sandbox",
                                               .exec_fd = s->fds[SIBLING_SANDBOX],
                                               .args = args,
                                               .on_exit = siblings_on_starter_exit,
                                               .ctx = s},
                       &s->starter, &s->starter_fd, err);
}

int siblings_start_spawner(struct siblings *s, uv_loop_t *loop, struct err *err) {
    return spawner_start(loop, s->fds[SIBLING_SPAWN], &s->spawner, err);
}

void siblings_stop_spawner(struct siblings *s) {
    spawner_stop(steal_ptr(&s->spawner));
}
