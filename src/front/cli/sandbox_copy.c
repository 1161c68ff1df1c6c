#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/cli/cli.h"
#include "front/cli/sandbox.h"
#include "front/cli/untar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* `cay sandbox cp`: files as they are, folders as archives. What a guest packed is unpacked by
 * untar.c, never by a program that would believe it. */

struct remote {
    char id[ID_SIZE];
    const char *path;
};

/* "SANDBOX:PATH"; a path of this machine has a slash before its first colon, or none. */
static const char *remote_path(const char *text) {
    const char *colon = strchr(text, ':');
    return colon && colon > text && !memchr(text, '/', (size_t)(colon - text)) ? colon + 1 : NULL;
}

static int read_remote(struct sandbox_cli *c, const char *text, struct remote *ret,
                       struct err *err) {
    ret->path = remote_path(text);
    _cleanup_(free) char *name = xstrndup(text, (size_t)(ret->path - text - 1));
    if (!*ret->path)
        ret->path = "/work";
    return sandbox_resolve(c, name, ret->id, err);
}

static char *make_path(const char *id, const char *what, const char *path, const char *more) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, 32768);
    (void)buf_addf(&b, "%s?path=", what);
    if (*path != '/')
        (void)buf_add_str(&b, "/work/");
    client_encode(&b, path);
    (void)buf_add_str(&b, more);
    return sandbox_path(id, b.data);
}

static const char *base_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* kind of a path inside: "" if there is nothing. */
static int remote_kind(struct sandbox_cli *c, const struct remote *r, char ret[16],
                       struct err *err) {
    _cleanup_(json) json_t *j = NULL;
    _cleanup_(free) char *path = make_path(r->id, "/files/stat", r->path, "");
    int rc = client_call(&c->client, &(struct client_call){.path = path}, &j, err);
    const char *kind = json_string_value(json_object_get(j, "kind"));
    (void)snprintf(ret, 16, "%s", rc == 0 && kind ? kind : "");
    /* A sandbox that is not there is said by the next call as well. */
    return rc == -ERR_NOT_FOUND ? 0 : rc;
}

/* --- in --- */

static ssize_t on_body(void *ctx, char *out, size_t size) {
    const int *fd = ctx;
    ssize_t n;
    do
        n = read(*fd, out, size);
    while (n < 0 && errno == EINTR);
    return n;
}

static int put(struct sandbox_cli *c, const char *path, int fd, struct err *err) {
    return client_call(
        &c->client,
        &(struct client_call){.method = "PUT", .path = path, .on_body = on_body, .ctx = &fd}, NULL,
        err);
}

static int put_file(struct sandbox_cli *c, const char *from, mode_t mode, const struct remote *to,
                    struct err *err) {
    char kind[16];
    char more[48];
    _cleanup_(close) int fd = open(from, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "%s", from);
    int rc = remote_kind(c, to, kind, err);
    if (rc < 0)
        return rc;
    size_t n = strlen(to->path);
    bool into = strcmp(kind, "dir") == 0 || (n > 0 && to->path[n - 1] == '/');
    _cleanup_(free) char *target = into ? path_join(to->path, base_of(from)) : xstrdup(to->path);
    (void)snprintf(more, sizeof(more), "&parents=1&mode=%04o", mode & 0777);
    _cleanup_(free) char *path = make_path(to->id, "/files", target, more);
    return put(c, path, fd, err);
}

struct packer {
    uv_process_t process;
    int64_t status;
    bool ended;
};

static void on_packer_exit(uv_process_t *p, int64_t status, int signo) {
    struct packer *k = CONTAINER_OF(p, struct packer, process);
    k->status = signo ? 128 + signo : status;
    k->ended = true;
}

/* A folder as an archive, packed by this machine's tar while it is sent. With a trailing "/." only
 * what is in it. */
static int put_folder(struct sandbox_cli *c, const char *from, const struct remote *to,
                      struct err *err) {
    char kind[16];
    int fds[2];
    struct packer k = {.ended = false};
    _cleanup_(free) char *real = realpath(from, NULL);
    int rc = real ? remote_kind(c, to, kind, err) : err_sys(err, "%s", from);
    if (rc < 0)
        return rc;
    const char *name = base_of(from);
    bool content = *name == 0 || strcmp(name, ".") == 0 || strcmp(kind, "dir") != 0;
    _cleanup_(free) char *target = content ? xstrdup(to->path) : path_join(to->path, base_of(real));
    _cleanup_(free) char *mkdir_path = sandbox_path(to->id, "/files/mkdir");
    _cleanup_(free) char *full = *target == '/' ? xstrdup(target) : path_join("/work", target);
    _cleanup_(json) json_t *body = json_pack("{s:s,s:b}", "path", full, "parents", 1);
    rc =
        client_call(&c->client, &(struct client_call){.path = mkdir_path, .json = body}, NULL, err);
    if (rc < 0 && err->code != ERR_CONFLICT)
        return rc;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(err, "pipe");
    _cleanup_(close) int out = fds[0];
    _cleanup_(close) int in = fds[1];
    char *args[] = {(char *)"tar", (char *)"-C", real, (char *)"-cf",
                    (char *)"-",   (char *)".",  NULL};
    uv_stdio_container_t stdio[3] = {{.flags = UV_IGNORE},
                                     {.flags = UV_INHERIT_FD, .data.fd = in},
                                     {.flags = UV_INHERIT_FD, .data.fd = STDERR_FILENO}};
    uv_process_options_t o = {
        .exit_cb = on_packer_exit, .file = "tar", .args = args, .stdio_count = 3, .stdio = stdio};
    int uv = uv_spawn(&c->client.loop, &k.process, &o);
    close(steal_fd(&in));
    _cleanup_(free) char *path = make_path(to->id, "/tar", target, "");
    rc =
        uv < 0 ? err_set(err, ERR_UNAVAILABLE, "tar: %s", uv_strerror(uv)) : put(c, path, out, err);
    close(steal_fd(&out)); /* so that tar ends if the server did not take it */
    while (uv == 0 && !k.ended)
        (void)uv_run(&c->client.loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&k.process, NULL);
    (void)uv_run(&c->client.loop, UV_RUN_NOWAIT);
    if (rc == 0 && k.status != 0)
        rc = err_set(err, ERR_IO, "tar could not read all of %s", from);
    return rc;
}

static int copy_in(struct sandbox_cli *c, const char *from, const char *text, struct err *err) {
    struct remote to;
    struct stat st;
    int rc = read_remote(c, text, &to, err);
    if (rc < 0)
        return rc;
    if (strcmp(from, "-") == 0) {
        _cleanup_(free) char *path = make_path(to.id, "/tar", to.path, "");
        return put(c, path, STDIN_FILENO, err);
    }
    if (stat(from, &st) < 0)
        return err_sys(err, "%s", from);
    if (S_ISDIR(st.st_mode))
        return put_folder(c, from, &to, err);
    return put_file(c, from, st.st_mode, &to, err);
}

/* --- out --- */

static int on_file(void *ctx, const char *data, size_t len, struct err *err) {
    const int *fd = ctx;
    return fd_write_all(*fd, data, len) == 0 ? 0 : err_sys(err, "write");
}

static int on_archive(void *ctx, const char *data, size_t len, struct err *err) {
    return untar_feed(ctx, data, len, err);
}

static int get(struct sandbox_cli *c, const char *path,
               int (*on_data)(void *ctx, const char *data, size_t len, struct err *err), void *ctx,
               struct err *err) {
    return client_call(
        &c->client,
        &(struct client_call){.path = path, .accept = "*/*", .on_data = on_data, .ctx = ctx}, NULL,
        err);
}

static int get_file(struct sandbox_cli *c, const struct remote *from, const char *to,
                    struct err *err) {
    struct stat st;
    bool into = (stat(to, &st) == 0 && S_ISDIR(st.st_mode)) || (*to && to[strlen(to) - 1] == '/');
    const char *name = base_of(from->path);
    if (into && !path_is_plain_name(name, strlen(name)))
        return err_set(err, ERR_BAD_REQUEST, "say under which name to keep %s", from->path);
    _cleanup_(free) char *target = into ? path_join(to, name) : xstrdup(to);
    /* Beside it first: what breaks off leaves nothing half. */
    _cleanup_(free) char *part = xasprintf("%s.part-%d", target, (int)getpid());
    _cleanup_(close) int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return err_sys(err, "%s", target);
    _cleanup_(free) char *path = make_path(from->id, "/files", from->path, "");
    int rc = get(c, path, on_file, &fd, err);
    if (rc == 0 && rename(part, target) < 0)
        rc = err_sys(err, "%s", target);
    if (rc < 0)
        (void)unlink(part);
    return rc;
}

static int get_folder(struct sandbox_cli *c, const struct remote *from, const char *to,
                      struct err *err) {
    struct stat st;
    struct untar t;
    const char *name = base_of(from->path);
    /* Into a folder that is there, under its own name; else it becomes that folder. */
    bool into = stat(to, &st) == 0 && path_is_plain_name(name, strlen(name));
    _cleanup_(free) char *target = into ? path_join(to, name) : xstrdup(to);
    int rc = path_mkdirs(target, 0777, err);
    if (rc < 0)
        return rc;
    _cleanup_(close) int dir = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(err, "%s", target);
    _cleanup_(free) char *path = make_path(from->id, "/tar", from->path, "");
    untar_init(&t, dir);
    rc = get(c, path, on_archive, &t, err);
    if (rc == 0)
        rc = untar_end(&t, err);
    if (rc == 0 && t.skipped > 0)
        (void)fprintf(stderr,
                      "cay: %zu entries were left out: only files, folders and links that "
                      "stay inside are copied\n",
                      t.skipped);
    untar_finish(&t);
    return rc;
}

static int copy_out(struct sandbox_cli *c, const char *text, const char *to, struct err *err) {
    struct remote from;
    char kind[16];
    int out = STDOUT_FILENO;
    int rc = read_remote(c, text, &from, err);
    if (rc < 0)
        return rc;
    if (strcmp(to, "-") == 0) {
        _cleanup_(free) char *path = make_path(from.id, "/tar", from.path, "");
        return get(c, path, on_file, &out, err);
    }
    rc = remote_kind(c, &from, kind, err);
    if (rc < 0)
        return rc;
    return strcmp(kind, "dir") == 0 ? get_folder(c, &from, to, err) : get_file(c, &from, to, err);
}

int sandbox_cp(struct sandbox_cli *c, struct err *err) {
    const char *from = c->args.rest[0];
    const char *to = c->args.rest[1];
    bool is_out = remote_path(from) != NULL;
    if (is_out == (remote_path(to) != NULL))
        return err_set(err, ERR_BAD_REQUEST,
                       "one of both is SANDBOX:PATH, such as `cay sandbox cp ./src box:/work`");
    return is_out ? copy_out(c, from, to, err) : copy_in(c, from, to, err);
}
