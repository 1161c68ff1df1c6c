#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/cli/cli.h"
#include "front/cli/folder.h"
#include "front/cli/sandbox.h"
#include "front/cli/terminal.h"
#include "front/cli/totar.h"
#include "front/cli/untar.h"
#include "wire/changes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

static ssize_t sandbox_copy_on_body(void *ctx, char *out, size_t size) {
    const int *fd = ctx;
    ssize_t n;
    do
        n = read(*fd, out, size);
    while (n < 0 && errno == EINTR);
    return n;
}

static int sandbox_copy_put(struct sandbox_cli *c, const char *path, int fd, struct err *err) {
    return client_call(
        &c->client,
        &(struct client_call){
            .method = "PUT", .path = path, .on_body = sandbox_copy_on_body, .ctx = &fd},
        NULL, err);
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
    return sandbox_copy_put(c, path, fd, err);
}

/* The folder is packed by a thread, because the client's loop takes the bytes. */
struct packer {
    struct totar tar;
    int dir;
    int out; /* its own end */
    int rc;
    struct err err;
};

static void packer_run(void *ctx) {
    struct packer *k = ctx;
    k->rc = totar_write(&k->tar, k->dir, &k->err);
    fd_close(&k->out); /* which is the archive's end */
}

/* A folder as an archive, packed while it is sent. With a trailing "/." only what is in it. */
static int put_folder(struct sandbox_cli *c, const char *from, const struct remote *to,
                      struct err *err) {
    char kind[16];
    int fds[2];
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
    rc = fd_pair(fds, err);
    if (rc < 0)
        return rc;
    _cleanup_(close) int in = fds[0];
    _cleanup_(close) int dir = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct packer k = {.dir = dir, .out = fds[1]};
    uv_thread_t thread;
    totar_init(&k.tar, k.out);
    if (dir < 0 || uv_thread_create(&thread, packer_run, &k) != 0) {
        fd_close(&k.out);
        totar_finish(&k.tar);
        return err_sys(err, "%s", from);
    }
    _cleanup_(free) char *path = make_path(to->id, "/tar", target, "");
    rc = sandbox_copy_put(c, path, in, err);
    (void)shutdown(in, SHUT_RDWR); /* so that the packer ends if the server did not take it */
    (void)uv_thread_join(&thread);
    if (rc == 0 && k.rc < 0) {
        *err = k.err;
        rc = k.rc;
    }
    if (rc == 0 && k.tar.left > 0) {
        (void)fprintf(stderr, "cay: %zu entries of the folder were left out:\n", k.tar.left);
        terminal_print(stderr, k.tar.names.data, k.tar.names.len);
        rc = EXIT_STATUS_NOT_ALL;
    }
    totar_finish(&k.tar);
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
        return sandbox_copy_put(c, path, STDIN_FILENO, err);
    }
    if (stat(from, &st) < 0)
        return err_sys(err, "%s", from);
    if (S_ISDIR(st.st_mode))
        return put_folder(c, from, &to, err);
    return put_file(c, from, st.st_mode, &to, err);
}

/* --- out --- */

static int sandbox_copy_on_file(void *ctx, const char *data, size_t len, struct err *err) {
    const int *fd = ctx;
    return fd_write_all(*fd, data, len) == 0 ? 0 : err_sys(err, "write");
}

static int sandbox_copy_on_archive(void *ctx, const char *data, size_t len, struct err *err) {
    return untar_feed(ctx, data, len, err);
}

static int sandbox_copy_get(struct sandbox_cli *c, const char *path,
                            int (*on_data)(void *ctx, const char *data, size_t len,
                                           struct err *err),
                            void *ctx, struct err *err) {
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
    const char *last = base_of(target);
    _cleanup_(free) char *above = xstrndup(target, (size_t)(last - target));
    _cleanup_(close) int dir = open(*above ? above : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(err, "%s", target);
    struct folder_file file;
    int rc = folder_begin(dir, last, 0666, &file, err);
    if (rc < 0)
        return rc;
    _cleanup_(free) char *path = make_path(from->id, "/files", from->path, "");
    rc = sandbox_copy_get(c, path, sandbox_copy_on_file, &file.fd, err);
    if (rc == 0)
        rc = folder_commit(&file, true, err);
    else
        folder_cancel(&file);
    return rc;
}

static int get_folder(struct sandbox_cli *c, const struct remote *from, const char *to,
                      struct err *err) {
    struct stat st;
    struct untar t;
    const char *name = base_of(from->path);
    /* Into a folder that is there, under its own name; else it becomes that folder. */
    bool into = stat(to, &st) == 0 && path_is_plain_name(name, strlen(name));
    if (into && changes_is_git(name, strlen(name)))
        return err_set(err, ERR_FORBIDDEN,
                       "%s is not copied into a folder, because git runs what is written there: "
                       "copy it as an archive (to \"-\"), or under another name",
                       from->path);
    _cleanup_(free) char *target = into ? path_join(to, name) : xstrdup(to);
    int rc = path_mkdirs(target, 0777, err);
    if (rc < 0)
        return rc;
    _cleanup_(close) int dir = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(err, "%s", target);
    _cleanup_(free) char *path = make_path(from->id, "/tar", from->path, "");
    untar_init(&t, dir);
    rc = sandbox_copy_get(c, path, sandbox_copy_on_archive, &t, err);
    if (rc == 0)
        rc = untar_end(&t, err);
    if (rc == 0 && t.skipped > 0) {
        (void)fprintf(stderr,
                      "cay: %zu entries were left out (`cay sandbox cp SANDBOX:PATH -` copies all "
                      "as an archive):\n",
                      t.skipped);
        terminal_print(stderr, t.left_out.data, t.left_out.len);
        rc = EXIT_STATUS_NOT_ALL;
    }
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
        return sandbox_copy_get(c, path, sandbox_copy_on_file, &out, err);
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
