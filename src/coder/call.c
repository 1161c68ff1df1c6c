#include "coder/call.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "coder/response.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- where it is --- */

static int read_port(const char *text, size_t len, uint16_t *ret) {
    unsigned long n = 0;
    if (len == 0 || len > 5)
        return -1;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        n = n * 10 + (unsigned)(text[i] - '0');
    }
    if (n == 0 || n > 65535)
        return -1;
    *ret = (uint16_t)n;
    return 0;
}

static int set_address(struct model_route *r, const char *host, uint16_t port) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&r->address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)&r->address;
    if (inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, &v4->sin_addr) ==
        1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        r->address_len = sizeof(*v4);
        return 0;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(port);
        r->address_len = sizeof(*v6);
        return 0;
    }
    return -1;
}

int route_init(struct model_route *r, const char *base_url, enum dialect dialect, struct err *err) {
    static const char scheme[] = "http://";
    *r = (struct model_route){.dialect = dialect};
    if (strncmp(base_url, scheme, strlen(scheme)) != 0)
        return err_set(
            err, ERR_BAD_REQUEST,
            "--base-url must begin with http://: this program speaks no TLS, the model's "
            "route on the loopback does that");
    const char *at = base_url + strlen(scheme);
    size_t n = strcspn(at, "/");
    size_t path_len = strlen(at + n);
    while (path_len > 0 && at[n + path_len - 1] == '/')
        path_len--;
    for (const char *c = at; *c; c++)
        if (*c <= ' ' || *c == 0x7f || *c == '?' || *c == '#' || *c == '@')
            return err_set(err, ERR_BAD_REQUEST, "--base-url holds a character it must not");
    bool bracket = at[0] == '[';
    size_t host_len = bracket ? strcspn(at, "]") : strcspn(at, ":/");
    _cleanup_(free) char *host = xstrndup(at + bracket, host_len - bracket);
    size_t rest = MIN(host_len + bracket, n);
    uint16_t port = 80;
    if (rest < n && (at[rest] != ':' || read_port(at + rest + 1, n - rest - 1, &port) < 0))
        return err_set(err, ERR_BAD_REQUEST, "--base-url has no port that makes sense");
    if ((bracket && host_len >= n) || set_address(r, host, port) < 0)
        return err_set(err, ERR_BAD_REQUEST,
                       "--base-url must name an address, such as http://127.0.0.1:3128");
    r->host = xstrndup(at, n);
    r->path = xasprintf("%.*s%s", (int)path_len, at + n, dialect_path(dialect));
    return 0;
}

void route_finish(struct model_route *r) {
    free(r->host);
    free(r->path);
    *r = (struct model_route){0};
}

/* --- one try --- */

static int coder_call_wait_for(struct life *life, int fd, short events, int64_t until_ms,
                               struct err *err) {
    struct pollfd p = {.fd = fd, .events = events};
    switch (life_wait(life, &p, 1, until_ms)) {
    case LIFE_READY:
        return 0;
    case LIFE_CANCELLED:
        return err_set(err, ERR_CANCELLED, "cancelled while the model was asked");
    case LIFE_TIMEOUT:
        return err_set(err, ERR_TIMEOUT, "the run's time was up while the model was asked");
    default:
        return err_set(err, ERR_UNAVAILABLE, "the model did not answer in time");
    }
}

static int open_connection(const struct model_route *r, struct life *life, int64_t until_ms,
                           int *ret_fd, struct err *err) {
    _cleanup_(close) int fd =
        socket(r->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, "socket");
    if (connect(fd, (const struct sockaddr *)&r->address, r->address_len) < 0) {
        int failed = errno;
        socklen_t len = sizeof(failed);
        if (failed == EINPROGRESS) {
            int rc = coder_call_wait_for(life, fd, POLLOUT, until_ms, err);
            if (rc < 0)
                return rc;
            (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len);
        }
        if (failed) {
            errno = failed;
            (void)err_sys(err, "connect to the model's route at %s", r->host);
            err->code = ERR_UNAVAILABLE;
            return -ERR_UNAVAILABLE;
        }
    }
    *ret_fd = steal_fd(&fd);
    return 0;
}

static int send_all(struct life *life, int fd, const char *data, size_t len, int64_t until_ms,
                    struct err *err) {
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            int rc = coder_call_wait_for(life, fd, POLLOUT, until_ms, err);
            if (rc < 0)
                return rc;
        } else if (n < 0 && errno == EPIPE) {
            return 0; /* it may have answered before it read all: see what it said */
        } else if (n < 0 && errno != EINTR) {
            return err_set(err, ERR_UNAVAILABLE, "the model's server took no request");
        }
        n = MAX(n, (ssize_t)0);
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static int coder_call_receive(struct life *life, int fd, struct response *response,
                              int64_t until_ms, struct err *err) {
    char chunk[16384];
    while (response->state != RESPONSE_DONE) {
        ssize_t n = recv(fd, chunk, sizeof(chunk), 0);
        int rc = 0;
        if (n < 0 && errno == EAGAIN)
            rc = coder_call_wait_for(life, fd, POLLIN, until_ms, err);
        else if (n == 0 || (n < 0 && errno == ECONNRESET))
            rc = response_end(response, err);
        else if (n < 0 && errno != EINTR)
            rc = err_sys(err, "receive");
        else if (n > 0)
            rc = response_feed(response, chunk, (size_t)n, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static void coder_call_write_head(const struct model_route *r, size_t len, struct buf *out) {
    (void)buf_addf(out,
                   "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: cay-coder/" CAY_VERSION "\r\n"
                   "Accept: application/json\r\nContent-Type: application/json\r\n"
                   "Content-Length: %zu\r\nConnection: close\r\n",
                   r->path, r->host, len);
    if (r->dialect == DIALECT_ANTHROPIC)
        (void)buf_add_str(out, "anthropic-version: 2023-06-01\r\n");
    if (r->key)
        (void)buf_addf(out, "%s%s\r\n",
                       r->dialect == DIALECT_ANTHROPIC ? "x-api-key: " : "Authorization: Bearer ",
                       r->key);
    (void)buf_add_str(out, "\r\n");
}

static int try_once(const struct model_route *r, const struct model_call *c, struct life *life,
                    struct response *response, struct err *err) {
    _cleanup_(buf) struct buf head;
    _cleanup_(close) int fd = -1;
    int64_t until = clock_mono_ms() + r->timeout_ms;
    buf_init(&head, 16 * 1024);
    coder_call_write_head(r, c->len, &head);
    if (head.full)
        return err_set(err, ERR_BAD_REQUEST, "the base URL or the key is too long");
    int rc = open_connection(r, life, until, &fd, err);
    if (rc == 0)
        rc = send_all(life, fd, head.data, head.len, until, err);
    if (rc == 0)
        rc = send_all(life, fd, c->body, c->len, until, err);
    return rc < 0 ? rc : coder_call_receive(life, fd, response, until, err);
}

/* --- tries --- */

static int judge_status(const struct response *response, struct err *err) {
    char said[256];
    int status = response->status;
    if (status == 200)
        return 0;
    answer_error_text(response->body.data ? response->body.data : "", response->body.len, said,
                      sizeof(said));
    return err_set(err, status == 429 || status >= 500 ? ERR_UNAVAILABLE : ERR_UPSTREAM,
                   "the model's server answered %d%s%s", status, said[0] ? ": " : "", said);
}

/* A server that is busy, broken or gone may be back; one that refuses will refuse again. */
static bool may_try_again(const struct err *err, const struct response *response) {
    bool cut = err->code == ERR_UPSTREAM && response->state != RESPONSE_DONE;
    return (err->code == ERR_UNAVAILABLE || cut) && response->may_retry;
}

/* How long to wait; -1 if that is longer than anybody should. */
static int64_t wait_before(const struct model_route *r, const struct response *response,
                           int64_t attempt) {
    if (response->retry_after_ms >= 0)
        return response->retry_after_ms > LIMIT_CODER_RETRY_MAX_MS ? -1 : response->retry_after_ms;
    int64_t wait = r->retry_wait_ms;
    for (int64_t i = 1; i < attempt && wait < LIMIT_CODER_RETRY_MAX_MS; i++)
        wait *= 2;
    return MIN(wait, (int64_t)LIMIT_CODER_RETRY_MAX_MS);
}

static int wait_and_tell(const struct model_route *r, const struct model_call *c, int64_t attempt,
                         const struct response *response, struct life *life, struct events *events,
                         struct err *err) {
    int64_t wait = wait_before(r, response, attempt);
    if (wait < 0)
        return err_wrap(err, "it asks to wait for %d s, longer than %d s are not waited",
                        (int)(response->retry_after_ms / 1000), LIMIT_CODER_RETRY_MAX_MS / 1000);
    json_t *fields = json_pack("{s:I,s:I,s:I,s:o}", "call", (json_int_t)c->number, "attempt",
                               (json_int_t)attempt, "wait_ms", (json_int_t)wait, "message",
                               coder_shorten_text(err->message, strlen(err->message)));
    if (response->status)
        (void)json_object_set_new(fields, "status", json_integer(response->status));
    events_tell(events, CODER_RETRY, fields);
    int rc = coder_call_wait_for(life, -1, 0, clock_mono_ms() + wait, err);
    return rc == -ERR_UNAVAILABLE ? 0 : rc;
}

int call_model(const struct model_route *r, const struct model_call *c, struct life *life,
               struct events *events, struct call_result *ret, struct err *err) {
    for (int64_t attempt = 1;; attempt++) {
        struct response response;
        response_init(&response, LIMIT_CODER_ANSWER_BYTES);
        ret->attempts = attempt;
        int rc = try_once(r, c, life, &response, err);
        if (rc == 0)
            rc = judge_status(&response, err);
        if (rc == 0)
            rc = answer_parse(r->dialect, response.body.data ? response.body.data : "",
                              response.body.len, &ret->answer, err);
        bool again = rc < 0 && may_try_again(err, &response);
        if (again && attempt > r->retries) {
            rc = err_wrap(err, "after %d tries", (int)attempt);
            again = false;
        }
        if (again) {
            rc = wait_and_tell(r, c, attempt, &response, life, events, err);
            again = rc == 0;
        }
        response_finish(&response);
        if (!again)
            return rc;
    }
}
