#include "front/cli/own.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int own_server_wait_ready(int out, struct err *err) {
    _cleanup_(buf) struct buf text;
    buf_init(&text, 16384);
    char data[512];
    ssize_t n;
    while ((n = read(out, data, sizeof(data))) > 0) {
        (void)buf_add(&text, data, (size_t)n);
        if (text.data && strstr(text.data, "\n  data "))
            return 0;
    }
    return err_set(err, ERR_UNAVAILABLE,
                   "the server did not start; `cay doctor` and `cay config check` may say why");
}

/* Where the server is started: a relative path in its settings, and a file that it looks for by
 * itself, must not lead to the folder that the command was called in. */
static char *start_folder(const struct own_server *s, const char *config) {
    const char *slash = config ? strrchr(config, '/') : NULL;
    if (!slash)
        return xstrdup(s->home);
    return slash == config ? xstrdup("/") : xstrndup(config, (size_t)(slash - config));
}

static int own_server_start(struct own_server *s, const char *verb, char **ret_url,
                            struct err *err) {
    const char *config = s->config;
    int out[2];
    _cleanup_(free) char *file = config ? realpath(config, NULL) : NULL;
    if (config && !file)
        return err_sys(err, "--config %s", config);
    if (!config) { /* a server that a person starts reads these two */
        cli_note_unread(verb, "cay.json");
        cli_note_unread(verb, ".env");
    }
    const char *tmp = getenv("TMPDIR");
    s->home = xasprintf("%s/cay-own-XXXXXX", tmp && *tmp == '/' ? tmp : "/tmp");
    /* Started by root the server becomes somebody else, who must come through. */
    if (!mkdtemp(s->home) || (geteuid() == 0 && chmod(s->home, 0711) < 0))
        return err_sys(err, "make a folder");
    if (pipe2(out, O_CLOEXEC) < 0)
        return err_sys(err, "pipe");
    _cleanup_(free) char *listen = xasprintf("unix:%s/socket", s->home);
    _cleanup_(free) char *data = xasprintf("%s/data", s->home);
    char *argv[] = {(char *)"cay",
                    (char *)"serve",
                    (char *)"--listen",
                    listen,
                    (char *)"--data-dir",
                    data,
                    file ? (char *)"--config" : NULL,
                    file,
                    NULL};
    _cleanup_(free) char *folder = start_folder(s, file);
    posix_spawn_file_actions_t actions;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    (void)posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    (void)posix_spawn_file_actions_addchdir_np(&actions, folder);
    int e = posix_spawn(&s->pid, "/proc/self/exe", &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(out[1]);
    _cleanup_(close) int ready = out[0];
    if (e != 0) {
        s->pid = 0;
        return err_set(err, ERR_INTERNAL, "start a server: %s", strerror(e));
    }
    *ret_url = xasprintf("unix:%s/socket", s->home);
    return own_server_wait_ready(ready, err);
}

const char *own_server_url(const struct own_server *s) {
    const char *set = getenv("CAY_URL");
    return s->url ? s->url : set && *set ? set : NULL;
}

int own_server_open(struct own_server *s, const char *verb, struct err *err) {
    _cleanup_(free) char *own = NULL;
    const char *url = own_server_url(s);
    if (url && s->config)
        return err_set(err, ERR_BAD_REQUEST,
                       "--config is of a server that is started for this: it does not go with "
                       "--url or CAY_URL");
    int rc = url ? 0 : own_server_start(s, verb, &own, err);
    return rc < 0 ? rc : client_init(&s->client, url ? url : own, err);
}

void own_server_close(struct own_server *s) {
    int status;
    client_finish(&s->client);
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
