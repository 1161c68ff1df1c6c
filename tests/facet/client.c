#include "client.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

const char *client_program(void) {
    const char *p = getenv("CAY_FACET");
    return p ? p : "build/cay-facet";
}

void client_init(struct client *c) {
    *c = (struct client){.control = -1};
    (void)snprintf(c->folder, sizeof(c->folder), "/tmp/cay-facet-test.XXXXXX");
    if (!mkdtemp(c->folder))
        abort();
}

static void start(struct client *c) {
    int pair[2];
    struct err err;
    if (fd_pair(pair, &err) < 0)
        abort();
    int dir = open(c->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pid_t pid = fork();
    if (pid == 0) {
        /* Above what dup2() is going to close. */
        int control = fcntl(pair[1], F_DUPFD, 100);
        int folder = fcntl(dir, F_DUPFD, 101);
        (void)dup2(control, FACET_CONTROL_FD);
        (void)dup2(folder, FACET_FOLDER_FD);
        execl(client_program(), "cay-facet", (char *)NULL);
        _exit(127);
    }
    close(dir);
    close(pair[1]);
    c->pid = pid;
    c->control = pair[0];
    wire_reader_init(&c->in, FACET_OPEN_MAX);
}

int client_open(struct client *c, const struct facet_open *o) {
    start(c);
    struct buf b;
    buf_init(&b, FACET_OPEN_MAX);
    facet_open_encode(&b, o);
    struct wire_frame f;
    int rc = client_request(c, FACET_OPEN, &b, -1, &f);
    buf_finish(&b);
    if (rc < 0)
        return rc;
    facet_opened_finish(&c->opened);
    rc = facet_opened_decode(f.data, f.len, &c->opened, &c->err);
    return rc;
}

int client_open_schema(struct client *c, const char *schema) {
    struct facet_open o = {.file = (char *)"test.db", .schema = (char *)(uintptr_t)schema};
    return client_open(c, &o);
}

int client_wait(struct client *c, int ms) {
    int64_t until = clock_mono_ms() + ms;
    int status;
    while (waitpid(c->pid, &status, WNOHANG) == 0) {
        if (clock_mono_ms() >= until)
            return -1;
        (void)poll(NULL, 0, 1);
    }
    c->pid = 0;
    fd_close(&c->control);
    wire_reader_finish(&c->in);
    return status;
}

int client_stop(struct client *c, int signo) {
    if (c->pid <= 0)
        return -1;
    if (signo)
        (void)kill(c->pid, signo);
    else
        fd_close(&c->control);
    int status = client_wait(c, CLIENT_ANSWER_MS);
    if (status == -1) {
        (void)kill(c->pid, SIGKILL);
        (void)client_wait(c, CLIENT_ANSWER_MS);
    }
    return status;
}

void client_finish(struct client *c) {
    if (c->pid > 0)
        (void)client_stop(c, SIGKILL);
    facet_opened_finish(&c->opened);
    DIR *d = opendir(c->folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.')
            (void)unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    (void)rmdir(c->folder);
}

/* 1, 0 after the time, negative at the end. */
static int next_frame(struct wire_reader *r, int fd, int64_t until, struct wire_frame *ret,
                      struct err *err) {
    for (;;) {
        int rc = wire_next(r, ret, err);
        if (rc != 0)
            return rc;
        int64_t left = MAX(until - clock_mono_ms(), (int64_t)0);
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, (int)left) == 0)
            return 0;
        rc = wire_recv(r, fd, err);
        if (rc < 0)
            return rc;
    }
}

void client_send(struct client *c, uint16_t type, const struct buf *payload) {
    struct wire_out out = {.type = type, .id = ++c->next_id};
    if (payload)
        out.pieces[0] = (struct wire_piece){payload->data, payload->len};
    (void)wire_send(c->control, &out);
}

int client_request(struct client *c, uint16_t type, const struct buf *payload, int fd,
                   struct wire_frame *ret) {
    struct wire_out out = {.type = type, .id = ++c->next_id, .fds = &fd, .nfds = fd >= 0};
    if (payload)
        out.pieces[0] = (struct wire_piece){payload->data, payload->len};
    if (wire_send(c->control, &out) < 0)
        return err_sys(&c->err, "send");
    int64_t until = clock_mono_ms() + CLIENT_ANSWER_MS;
    for (;;) {
        int rc = next_frame(&c->in, c->control, until, ret, &c->err);
        if (rc == 0)
            return err_set(&c->err, ERR_TIMEOUT, "no answer");
        if (rc < 0)
            return rc;
        if (ret->id == out.id)
            break;
        wire_frame_finish(ret);
    }
    return ret->type == FACET_ERROR ? facet_error_decode(ret->data, ret->len, &c->err) : 1;
}

int client_expect(struct client *c, uint16_t type, int ms, struct wire_frame *ret) {
    int64_t until = clock_mono_ms() + ms;
    while (next_frame(&c->in, c->control, until, ret, &c->err) == 1) {
        if (ret->type == type)
            return 1;
        wire_frame_finish(ret);
    }
    return 0;
}

int client_grant(struct client *c, const char *methods, uint64_t max_calls, struct holder *ret) {
    char *names[FACET_METHODS_MAX];
    struct facet_grant m = {.grant = ++c->next_grant,
                            .label = (char *)"test",
                            .max_calls = max_calls,
                            .all = !methods,
                            .methods = names};
    _cleanup_(free) char *copy = xstrdup(methods ? methods : "");
    for (char *rest = copy, *one; methods && (one = strsep(&rest, ",")) && *one;)
        names[m.nmethods++] = one;
    struct buf b;
    buf_init(&b, 1 << 16);
    facet_grant_encode(&b, &m);
    struct wire_frame f;
    int rc = client_request(c, FACET_GRANT, &b, -1, &f);
    buf_finish(&b);
    if (rc < 0)
        return rc;
    *ret = (struct holder){.fd = wire_frame_take_fd(&f, 0), .grant = m.grant};
    wire_frame_finish(&f);
    wire_reader_init(&ret->in, 64 << 20);
    buf_init(&ret->out, 64 << 20);
    return ret->fd >= 0 ? 0 : err_set(&c->err, ERR_PROTOCOL, "no descriptor came");
}

void holder_finish(struct holder *h) {
    fd_close(&h->fd);
    wire_reader_finish(&h->in);
    buf_finish(&h->out);
    free(steal_ptr(&h->json));
}

void holder_send(struct holder *h, const char *method, const char *args) {
    buf_clear(&h->out);
    facet_call_encode(&h->out, method, args, strlen(args));
    struct wire_out out = {
        .type = FACET_CALL, .id = ++h->id, .pieces = {{h->out.data, h->out.len}}};
    (void)wire_send(h->fd, &out);
}

bool holder_read(struct holder *h, int ms) {
    struct wire_frame f;
    struct err err;
    free(steal_ptr(&h->json));
    h->json = xstrdup("");
    h->ok = false;
    if (next_frame(&h->in, h->fd, clock_mono_ms() + ms, &f, &err) != 1)
        return false;
    free(h->json);
    h->json = xstrndup((const char *)f.data, f.len);
    h->ok = f.type == FACET_RESULT;
    wire_frame_finish(&f);
    return true;
}

const char *holder_call(struct holder *h, const char *method, const char *args) {
    holder_send(h, method, args);
    (void)holder_read(h, CLIENT_ANSWER_MS);
    return h->json;
}

static const char *call_sql(struct holder *h, const char *method, const char *sql) {
    struct buf b;
    buf_init(&b, 64 << 20);
    (void)buf_add_char(&b, '[');
    json_write_str(&b, sql, strlen(sql));
    (void)buf_add_char(&b, ']');
    const char *json = holder_call(h, method, b.data);
    buf_finish(&b);
    return json;
}

const char *holder_query(struct holder *h, const char *sql) {
    return call_sql(h, "query", sql);
}

const char *holder_execute(struct holder *h, const char *sql) {
    return call_sql(h, "execute", sql);
}
