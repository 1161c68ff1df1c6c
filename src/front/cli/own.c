#include "front/cli/own.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/mem.h"
#include "base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int wait_ready(int out, struct err *err) {
    _cleanup_(buf) struct buf text;
    buf_init(&text, 16384);
    char data[512];
    ssize_t n;
    while ((n = read(out, data, sizeof(data))) > 0) {
        (void)buf_add(&text, data, (size_t)n);
        if (text.data && strstr(text.data, "\n  data "))
            return 0;
    }
    return err_set(err, ERR_UNAVAILABLE, "the server did not start; `cay doctor` may say why");
}

int own_server_start(struct own_server *s, char **ret_url, struct err *err) {
    int out[2];
    const char *tmp = getenv("TMPDIR");
    s->home = xasprintf("%s/cay-own-XXXXXX", tmp && *tmp == '/' ? tmp : "/tmp");
    /* Started by root the server becomes somebody else, who must come through. */
    if (!mkdtemp(s->home) || (geteuid() == 0 && chmod(s->home, 0711) < 0))
        return err_sys(err, "make a folder");
    if (pipe2(out, O_CLOEXEC) < 0)
        return err_sys(err, "pipe");
    _cleanup_(free) char *listen = xasprintf("unix:%s/socket", s->home);
    _cleanup_(free) char *data = xasprintf("%s/data", s->home);
    char *argv[] = {(char *)"cay", (char *)"serve",      (char *)"--listen",
                    listen,        (char *)"--data-dir", data,
                    NULL};
    posix_spawn_file_actions_t actions;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    (void)posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    int e = posix_spawn(&s->pid, "/proc/self/exe", &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(out[1]);
    _cleanup_(close) int ready = out[0];
    if (e != 0) {
        s->pid = 0;
        return err_set(err, ERR_INTERNAL, "start a server: %s", strerror(e));
    }
    *ret_url = xasprintf("unix:%s/socket", s->home);
    return wait_ready(ready, err);
}

void own_server_end(struct own_server *s) {
    int status;
    if (s->pid > 0) {
        (void)kill(s->pid, SIGTERM);
        while (waitpid(s->pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    struct err ignored;
    if (s->home)
        (void)path_remove_tree(s->home, &ignored);
    free(s->home);
    s->home = NULL;
}
