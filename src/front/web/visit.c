#include "front/web/visit.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* REASON_MS: the tunnel's end and what cay-egress tells of it come by different ways. */
enum { REASON_MS = 300, URL_BYTES = 4096, CONNECT_MS = 10000 };

struct visit {
    struct visit_options opt;
    char *url;
    int hops;
    int64_t deadline_ms;
    struct network_line *line;
    struct fetch *fetch;
    uv_timer_t
        timer; /* the next hop, or the end, which come from the loop; its closing frees all */
    int status;
    char *type;
    char *location;
    struct buf body;
    bool cut;
    char *reason; /* why cay-egress refused */
    struct err err;
};

static int visit_hop(struct visit *v, struct err *err);

static void visit_on_closed(uv_handle_t *h) {
    struct visit *v = h->data;
    buf_finish(&v->body);
    free(v->url);
    free(v->type);
    free(v->location);
    free(v->reason);
    free(v);
}

static void visit_leave(struct visit *v) {
    fetch_cancel(v->fetch);
    v->fetch = NULL;
    if (v->line)
        network_line_close(v->line);
    v->line = NULL;
}

void visit_cancel(struct visit *v) {
    if (!v)
        return;
    visit_leave(v);
    uv_close((uv_handle_t *)&v->timer, visit_on_closed);
}

/* --- the end --- */

static void visit_on_finish(uv_timer_t *t) {
    struct visit *v = t->data;
    struct visit_page page = {.url = v->url,
                              .status = v->status,
                              .type = v->type ? v->type : "",
                              .data = v->body.data ? v->body.data : "",
                              .len = v->body.len,
                              .cut = v->cut};
    if (v->err.code && v->reason)
        (void)err_set(&v->err, v->err.code, "%.400s", v->reason);
    visit_leave(v);
    v->opt.done(v->opt.ctx, v->err.code ? NULL : &page, v->err.code ? &v->err : NULL);
    uv_close((uv_handle_t *)&v->timer, visit_on_closed);
}

static void visit_finish(struct visit *v, const struct err *err, unsigned wait_ms) {
    if (err)
        v->err = *err;
    (void)uv_timer_start(&v->timer, visit_on_finish, wait_ms, 0);
}

static void visit_on_event(void *ctx, const struct egress_event *e) {
    struct visit *v = ctx;
    if (!*e->reason || v->reason)
        return;
    v->reason = xstrdup(e->reason);
    if (v->err.code)
        (void)uv_timer_start(&v->timer, visit_on_finish, 0, 0);
}

/* --- a hop --- */

static int too_late(const struct visit *v, struct err *err) {
    return err_set(err, ERR_TIMEOUT, "it took longer than %lld ms (setting fetch_timeout_ms)",
                   (long long)v->opt.timeout_ms);
}

static bool is_redirect(const struct visit *v) {
    return v->location && (v->status == 301 || v->status == 302 || v->status == 303 ||
                           v->status == 307 || v->status == 308);
}

static void visit_on_head(void *ctx, struct fetch *f, int status) {
    struct visit *v = ctx;
    const char *type = fetch_header(f, "content-type");
    const char *location = fetch_header(f, "location");
    v->status = status;
    v->type = type ? xstrdup(type) : NULL;
    v->location = location ? xstrdup(location) : NULL;
}

static void visit_on_data(void *ctx, const char *data, size_t len) {
    struct visit *v = ctx;
    if (is_redirect(v) || v->cut)
        return;
    size_t room = v->body.max - v->body.len;
    (void)buf_add(&v->body, data, MIN(len, room));
    if (len <= room)
        return;
    v->cut = true;
    fetch_cancel(v->fetch);
    v->fetch = NULL;
    visit_finish(v, NULL, 0);
}

static void visit_on_next(uv_timer_t *t) {
    struct visit *v = t->data;
    struct err err;
    if (visit_hop(v, &err) < 0)
        visit_finish(v, &err, 0);
}

static void visit_follow(struct visit *v) {
    struct err err;
    char *url = NULL;
    int rc = 0;
    if (++v->hops > LIMIT_WEB_REDIRECTS)
        rc = err_set(&err, ERR_LIMIT, "more than %d redirects", LIMIT_WEB_REDIRECTS);
    if (rc == 0 && (rc = fetch_join(v->url, v->location, &url, &err)) < 0)
        rc = err_wrap(&err, "the redirect");
    visit_leave(v);
    if (rc < 0) {
        visit_finish(v, &err, 0);
        return;
    }
    free(v->url);
    v->url = url;
    free(v->type);
    free(v->location);
    v->type = v->location = NULL;
    (void)uv_timer_start(&v->timer, visit_on_next, 0, 0);
}

static void visit_on_end(void *ctx, const struct err *err) {
    struct visit *v = ctx;
    struct err late;
    v->fetch = NULL;
    if (err && clock_mono_ms() >= v->deadline_ms) {
        (void)too_late(v, &late);
        visit_finish(v, &late, 0);
    } else if (err) {
        visit_finish(v, err, v->reason ? 0 : REASON_MS);
    } else if (is_redirect(v))
        visit_follow(v);
    else
        visit_finish(v, NULL, 0);
}

/* A way in for the tunnel, for this hop alone. */
static int visit_make_listener(int *ret_fd, unsigned *ret_port, struct err *err) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    _cleanup_(close) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) < 0 || listen(fd, 4) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) < 0)
        return err_sys(err, "open a way to cay-egress");
    *ret_port = ntohs(a.sin_port);
    *ret_fd = steal_fd(&fd);
    return 0;
}

static int open_line(struct visit *v, unsigned *ret_port, struct err *err) {
    bool tls = strncmp(v->url, "https://", 8) == 0;
    const char *authority = v->url + (tls ? 8 : 7);
    bool literal;
    uint32_t port = 0;
    char host[EGRESS_HOST_MAX + 1];
    char id[ID_SIZE];
    int fd = -1;
    if (!egress_authority_parse(authority, strcspn(authority, "/?#"), tls ? 443 : 80, host, &port,
                                &literal))
        return err_set(err, ERR_BAD_REQUEST, "the address has no plain host and port");
    int rc = visit_make_listener(&fd, ret_port, err);
    if (rc < 0)
        return rc;
    struct egress_policy policy = {.allow = xcalloc(1, sizeof(*policy.allow)), .nallow = 1};
    policy.allow[0] = (struct egress_allow){.host = xstrdup(host), .port = port, .plain = !tls};
    /* At port 80 plain HTTP is what a rule without "tcp://" means. */
    struct egress_allow asked = policy.allow[0];
    asked.plain = !tls && port != 80;
    policy.allow[0].private = network_names(v->opt.network, &asked);
    v->line = network_open(v->opt.network, id_new("web", id), fd, &policy);
    network_line_listen(v->line, visit_on_event, v);
    return 0;
}

static int visit_hop(struct visit *v, struct err *err) {
    static const struct fetch_header headers[] = {
        {"accept", "text/markdown, text/html, application/xhtml+xml, text/*;q=0.9, */*;q=0.5",
         false},
        {"accept-language", "en, *;q=0.5", false},
    };
    char proxy[48];
    unsigned port = 0;
    int64_t left = v->deadline_ms - clock_mono_ms();
    if (left <= 0)
        return too_late(v, err);
    int rc = open_line(v, &port, err);
    if (rc < 0)
        return rc;
    (void)snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%u", port);
    return fetch_start(v->opt.pool,
                       &(struct fetch_options){.url = v->url,
                                               .proxy = proxy,
                                               .decode = true,
                                               .headers = headers,
                                               .nheaders = ARRAY_LEN(headers),
                                               .connect_timeout_ms = CONNECT_MS,
                                               .total_timeout_ms = (unsigned)left,
                                               .on_head = visit_on_head,
                                               .on_data = visit_on_data,
                                               .on_end = visit_on_end,
                                               .ctx = v},
                       &v->fetch, err);
}

int visit_start(const struct visit_options *options, struct visit **ret_visit, struct err *err) {
    char *url = NULL;
    if (strlen(options->url) > URL_BYTES)
        return err_set(err, ERR_TOO_LARGE, "the address exceeds %d bytes", URL_BYTES);
    if (!network_is_there(options->network))
        return err_set(err, ERR_UNSUPPORTED, "the program cay-egress is missing beside cay");
    int rc = fetch_join(options->url, options->url, &url, err);
    if (rc < 0)
        return rc;
    struct visit *v = xcalloc(1, sizeof(*v));
    v->opt = *options;
    v->opt.url = NULL;
    v->url = url;
    v->deadline_ms = clock_mono_ms() + options->timeout_ms;
    buf_init(&v->body, LIMIT_WEB_BODY_BYTES);
    (void)uv_timer_init(options->loop, &v->timer);
    v->timer.data = v;
    rc = visit_hop(v, err);
    if (rc < 0) {
        visit_cancel(v);
        return rc;
    }
    *ret_visit = v;
    return 0;
}
