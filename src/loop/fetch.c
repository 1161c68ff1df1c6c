#include "loop/fetch.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/sm.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HEAD_MAX_BYTES = 64 * 1024, CONNECT_TIMEOUT_MS = 10000, CACHED_CONNECTIONS = 64 };
enum { DETACHED_MAX_BYTES = 65536, DETACHED_IDLE_MS = 1000 };

struct fetch_pool {
    uv_loop_t *loop;
    CURLM *multi;
    uv_timer_t timer; /* curl's clock */
    uv_timer_t later; /* what may not be done where it was asked for */
    struct fetch *first;
    unsigned depth; /* inside curl, which may not be entered again */
    unsigned handles;
    bool dirty; /* some fetch waits for fetch_settle() */
    bool close_later;
    bool closing;
    void (*on_closed)(void *ctx);
    void *ctx;
};

enum fetch_state {
    FETCH_STATE_WAITING,   /* curl may not be entered now: it is begun by fetch_settle() */
    FETCH_STATE_ASKING,    /* curl has it */
    FETCH_STATE_ANSWERING, /* the head was told */
    FETCH_STATE_ENDED,     /* so was the end */
    FETCH_STATE_CANCELLED, /* nothing is told any more */
    FETCH_STATE_GONE,      /* curl has it no more; the memory follows */
};

static const struct sm_state states[] = {
    [FETCH_STATE_WAITING] = {"waiting", SM_TO(FETCH_STATE_ASKING) | SM_TO(FETCH_STATE_ENDED) |
                                            SM_TO(FETCH_STATE_CANCELLED)},
    [FETCH_STATE_ASKING] = {"asking", SM_TO(FETCH_STATE_ANSWERING) | SM_TO(FETCH_STATE_ENDED) |
                                          SM_TO(FETCH_STATE_CANCELLED)},
    [FETCH_STATE_ANSWERING] = {"answering",
                               SM_TO(FETCH_STATE_ENDED) | SM_TO(FETCH_STATE_CANCELLED)},
    [FETCH_STATE_ENDED] = {"ended", SM_TO(FETCH_STATE_GONE)},
    [FETCH_STATE_CANCELLED] = {"cancelled", SM_TO(FETCH_STATE_GONE)},
    [FETCH_STATE_GONE] = {"gone", 0},
};
static const struct sm fetch_sm = {"fetch", states, ARRAY_LEN(states)};

struct fetch {
    enum fetch_state state;
    struct fetch_pool *pool;
    struct fetch *next;
    struct fetch **link;
    CURL *easy;
    struct curl_slist *headers;
    char *body;
    struct fetch_options opt;
    uv_timer_t idle;
    int64_t active_ms; /* when the last byte came */
    struct buf head;   /* "name\0value\0" for each field of the latest answer */
    int status;
    size_t received;
    struct err err; /* why we ended it ourselves, if we did */
    bool refused;   /* an address was */
    bool paused;
    bool body_waits; /* for fetch_body_ready() */
    bool go_on;      /* one of the two is over: curl is to be told */
    char message[CURL_ERROR_SIZE];
};

struct fetch_watch {
    uv_poll_t poll;
    struct fetch_pool *pool;
    curl_socket_t fd;
};

static void fetch_settle(struct fetch_pool *p);

static void fetch_move(struct fetch *f, enum fetch_state to) {
    f->state = (enum fetch_state)sm_next(&fetch_sm, f->state, to);
}

/* Something may still be told. */
static bool fetch_is_live(const struct fetch *f) {
    return f->state <= FETCH_STATE_ANSWERING;
}

static void fetch_silence(struct fetch *f) {
    if (fetch_is_live(f))
        fetch_move(f, FETCH_STATE_CANCELLED);
}

/* --- one fetch: its end --- */

static void fetch_on_closed(uv_handle_t *h) {
    struct fetch *f = h->data;
    buf_finish(&f->head);
    free(f);
}

/* Takes it out of curl and of the pool. Outside curl only. */
static void fetch_release(struct fetch *f) {
    if (f->state == FETCH_STATE_GONE)
        return;
    fetch_move(f, FETCH_STATE_GONE);
    (void)curl_multi_remove_handle(f->pool->multi, f->easy); /* no effect if it was not added */
    curl_easy_cleanup(f->easy);
    for (struct curl_slist *h = f->headers; h; h = h->next)
        mem_wipe(h->data, strlen(h->data));
    curl_slist_free_all(f->headers);
    free(f->body);
    *f->link = f->next;
    if (f->next)
        f->next->link = f->link;
    uv_close((uv_handle_t *)&f->idle, fetch_on_closed);
}

static void fetch_fail(struct fetch *f, enum err_code code, const char *text) {
    if (!f->err.code)
        (void)err_set(&f->err, code, "%s", text);
}

static enum err_code fetch_code_of(CURLcode rc) {
    switch (rc) {
    case CURLE_URL_MALFORMAT:
    case CURLE_LOGIN_DENIED:
        return ERR_BAD_REQUEST;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        return ERR_UNAVAILABLE;
    case CURLE_OPERATION_TIMEDOUT:
        return ERR_TIMEOUT;
    default:
        return ERR_UPSTREAM;
    }
}

static void fetch_tell_head(struct fetch *f) {
    if (f->state != FETCH_STATE_ASKING)
        return;
    fetch_move(f, FETCH_STATE_ANSWERING);
    if (f->opt.on_head)
        f->opt.on_head(f->opt.ctx, f, f->status);
}

static void fetch_end(struct fetch *f, CURLcode rc) {
    if (rc == CURLE_OK && !f->err.code)
        fetch_tell_head(f);
    if (!fetch_is_live(f))
        return;
    struct err err = f->err;
    bool whole = rc == CURLE_OK && !f->err.code;
    if (!whole && f->refused && !f->err.code)
        (void)err_set(&err, ERR_FORBIDDEN, "the address of this server is not allowed");
    else if (!whole && !f->err.code)
        (void)err_set(&err, fetch_code_of(rc), "%s",
                      *f->message ? f->message : curl_easy_strerror(rc));
    fetch_move(f, FETCH_STATE_ENDED);
    f->opt.on_end(f->opt.ctx, whole ? NULL : &err);
}

/* --- what curl asks of us --- */

static size_t fetch_on_write(char *data, size_t size, size_t n, void *ctx) {
    struct fetch *f = ctx;
    n *= size;
    if (!fetch_is_live(f) || f->err.code)
        return 0;
    if (f->paused)
        return CURL_WRITEFUNC_PAUSE;
    f->active_ms = clock_mono_ms();
    fetch_tell_head(f);
    if (!fetch_is_live(f))
        return 0;
    /* on_head may have paused it: curl offers the same bytes again. */
    if (f->paused)
        return CURL_WRITEFUNC_PAUSE;
    f->received += n;
    if (f->opt.max_body_bytes > 0 && f->received > f->opt.max_body_bytes) {
        (void)err_set(&f->err, ERR_LIMIT, "the answer exceeds %zu bytes", f->opt.max_body_bytes);
        return 0;
    }
    f->opt.on_data(f->opt.ctx, data, n);
    return fetch_is_live(f) ? n : 0;
}

/* One line of the head; a new status line begins the head of a further answer. */
static size_t fetch_on_header(char *line, size_t size, size_t n, void *ctx) {
    struct fetch *f = ctx;
    n *= size;
    size_t len = n;
    f->active_ms = clock_mono_ms();
    while (len > 0 && strchr("\r\n \t", line[len - 1]))
        len--;
    if (len >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        long status = 0;
        (void)curl_easy_getinfo(f->easy, CURLINFO_RESPONSE_CODE, &status);
        f->status = (int)status;
        buf_clear(&f->head);
        return n;
    }
    /* The end of the head. Not told of an answer that others come after. */
    if (len == 0 && f->status >= 200 && f->opt.max_redirects == 0) {
        fetch_tell_head(f);
        /* A server that refuses wants no more of the body: who waits for some is to see that. */
        if (f->status >= 400 && f->body_waits && fetch_is_live(f))
            fetch_body_ready(f);
        return fetch_is_live(f) ? n : 0;
    }
    const char *colon = memchr(line, ':', len);
    if (!colon || memchr(line, 0, len))
        return n;
    const char *value = colon + 1;
    while (value < line + len && (*value == ' ' || *value == '\t'))
        value++;
    (void)buf_add(&f->head, line, (size_t)(colon - line));
    (void)buf_add_char(&f->head, 0);
    (void)buf_add(&f->head, value, (size_t)(line + len - value));
    (void)buf_add_char(&f->head, 0);
    if (!f->head.full)
        return n;
    fetch_fail(f, ERR_LIMIT, "the head of the answer exceeds 65536 bytes");
    return 0;
}

static curl_socket_t fetch_on_open_socket(void *ctx, curlsocktype purpose,
                                          struct curl_sockaddr *a) {
    struct fetch *f = ctx;
    if (purpose != CURLSOCKTYPE_IPCXN)
        return CURL_SOCKET_BAD;
    if (f->opt.on_address && !f->opt.on_address(f->opt.ctx, &a->addr)) {
        f->refused = true;
        return CURL_SOCKET_BAD;
    }
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

/* A connection that was made for somebody else did not pass this fetch's guard. */
/* NOLINTNEXTLINE(readability-non-const-parameter): curl's type has no const */
static int fetch_on_before_request(void *ctx, char *ip, char *local_ip, int port, int local_port) {
    struct fetch *f = ctx;
    (void)local_ip;
    (void)local_port;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a = {0};
    if (!f->opt.on_address)
        return CURL_PREREQFUNC_OK;
    if (inet_pton(AF_INET, ip, &a.v4.sin_addr) == 1) {
        a.v4.sin_family = AF_INET;
        a.v4.sin_port = htons((uint16_t)port);
    } else if (inet_pton(AF_INET6, ip, &a.v6.sin6_addr) == 1) {
        a.v6.sin6_family = AF_INET6;
        a.v6.sin6_port = htons((uint16_t)port);
    } else {
        f->refused = true;
        return CURL_PREREQFUNC_ABORT;
    }
    if (f->opt.on_address(f->opt.ctx, &a.any))
        return CURL_PREREQFUNC_OK;
    f->refused = true;
    return CURL_PREREQFUNC_ABORT;
}

static void fetch_act(struct fetch_pool *p, curl_socket_t fd, int events) {
    int running;
    p->depth++;
    (void)curl_multi_socket_action(p->multi, fd, events, &running);
    p->depth--;
    fetch_settle(p);
}

static void fetch_on_poll(uv_poll_t *h, int status, int events) {
    struct fetch_watch *w = CONTAINER_OF(h, struct fetch_watch, poll);
    int what = status < 0 ? CURL_CSELECT_ERR : 0;
    if (events & UV_READABLE)
        what |= CURL_CSELECT_IN;
    if (events & UV_WRITABLE)
        what |= CURL_CSELECT_OUT;
    fetch_act(w->pool, w->fd, what);
}

static void fetch_on_handle_closed(struct fetch_pool *p) {
    if (--p->handles > 0)
        return;
    if (p->on_closed)
        p->on_closed(p->ctx);
    curl_global_cleanup();
    free(p);
}

static void fetch_on_watch_closed(uv_handle_t *h) {
    struct fetch_watch *w = CONTAINER_OF(h, struct fetch_watch, poll);
    struct fetch_pool *p = w->pool;
    free(w);
    fetch_on_handle_closed(p);
}

static int fetch_on_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *socket_ctx) {
    struct fetch_pool *p = ctx;
    struct fetch_watch *w = socket_ctx;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (w) {
            (void)curl_multi_assign(p->multi, fd, NULL);
            (void)uv_poll_stop(&w->poll);
            uv_close((uv_handle_t *)&w->poll, fetch_on_watch_closed);
        }
        return 0;
    }
    if (!w) {
        w = xcalloc(1, sizeof(*w));
        w->pool = p;
        w->fd = fd;
        if (uv_poll_init_socket(p->loop, &w->poll, fd) < 0) {
            free(w);
            return -1;
        }
        p->handles++;
        (void)curl_multi_assign(p->multi, fd, w);
    }
    int events = (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0);
    return uv_poll_start(&w->poll, events, fetch_on_poll) < 0 ? -1 : 0;
}

static void fetch_on_timer(uv_timer_t *h) {
    struct fetch_pool *p = h->data;
    fetch_act(p, CURL_SOCKET_TIMEOUT, 0);
}

static int fetch_on_set_timer(CURLM *multi, long timeout_ms, void *ctx) {
    struct fetch_pool *p = ctx;
    (void)multi;
    if (p->closing)
        return 0;
    if (timeout_ms < 0) {
        (void)uv_timer_stop(&p->timer);
        return 0;
    }
    uv_update_time(p->loop);
    return uv_timer_start(&p->timer, fetch_on_timer, (uint64_t)timeout_ms, 0) < 0 ? -1 : 0;
}

/* --- between curl and the callers --- */

static CURLMcode fetch_ask(struct fetch *f) {
    fetch_move(f, FETCH_STATE_ASKING);
    return curl_multi_add_handle(f->pool->multi, f->easy);
}

static void fetch_add(struct fetch *f) {
    CURLMcode rc = fetch_ask(f);
    if (rc == CURLM_OK)
        return;
    fetch_fail(f, ERR_INTERNAL, curl_multi_strerror(rc));
    fetch_end(f, CURLE_FAILED_INIT);
    fetch_release(f);
}

static bool settle_one(struct fetch *f) {
    if (f->state == FETCH_STATE_CANCELLED) {
        fetch_release(f);
        return true;
    }
    if (f->state == FETCH_STATE_WAITING) {
        fetch_add(f);
        return true;
    }
    if (f->go_on) {
        f->go_on = false; /* what is still paused says so again */
        f->pool->depth++;
        (void)curl_easy_pause(f->easy, CURLPAUSE_CONT);
        f->pool->depth--;
        return true;
    }
    return false;
}

static void tell_ends(struct fetch_pool *p) {
    CURLMsg *m;
    int left;
    while (!p->closing && (m = curl_multi_info_read(p->multi, &left))) {
        if (m->msg != CURLMSG_DONE)
            continue;
        CURLcode rc = m->data.result;
        struct fetch *f = NULL;
        (void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&f);
        (void)curl_multi_remove_handle(p->multi, f->easy);
        fetch_end(f, rc);
        fetch_release(f);
    }
}

static void fetch_on_timer_closed(uv_handle_t *h) {
    fetch_on_handle_closed(h->data);
}

static void close_now(struct fetch_pool *p) {
    p->closing = true;
    while (p->first) {
        fetch_silence(p->first);
        fetch_release(p->first);
    }
    (void)curl_multi_cleanup(p->multi);
    uv_close((uv_handle_t *)&p->timer, fetch_on_timer_closed);
    uv_close((uv_handle_t *)&p->later, fetch_on_timer_closed);
}

/* After curl was entered: tells the ends, then does what could not be done inside. */
static void fetch_settle(struct fetch_pool *p) {
    if (p->depth > 0)
        return;
    if (!p->close_later)
        tell_ends(p);
    while (p->dirty && !p->closing) {
        if (p->close_later) {
            close_now(p);
            return;
        }
        p->dirty = false;
        /* A callback may change the list anywhere: begin again after each. */
        struct fetch *f = p->first;
        while (f && !settle_one(f))
            f = f->next;
        if (f)
            p->dirty = true;
        tell_ends(p);
    }
}

static void fetch_on_later(uv_timer_t *h) {
    fetch_settle(h->data);
}

static void do_later(struct fetch_pool *p) {
    p->dirty = true;
    if (p->depth == 0 && !p->closing)
        (void)uv_timer_start(&p->later, fetch_on_later, 0, 0);
}

static void fetch_on_idle(uv_timer_t *h) {
    struct fetch *f = h->data;
    int64_t idle_ms = clock_mono_ms() - f->active_ms;
    if (f->opt.idle_timeout_ms == 0 || !fetch_is_live(f))
        return;
    if (f->paused || f->body_waits)
        f->active_ms = clock_mono_ms();
    else if (idle_ms >= f->opt.idle_timeout_ms) {
        (void)err_set(&f->err, ERR_TIMEOUT, "nothing came for %u ms", f->opt.idle_timeout_ms);
        fetch_end(f, CURLE_OPERATION_TIMEDOUT);
        fetch_release(f);
        return;
    }
    int64_t rest = f->opt.idle_timeout_ms - (f->paused || f->body_waits ? 0 : idle_ms);
    (void)uv_timer_start(&f->idle, fetch_on_idle, (uint64_t)MAX(rest, 1), 0);
}

void fetch_set_idle_timeout(struct fetch *f, unsigned idle_timeout_ms) {
    f->opt.idle_timeout_ms = idle_timeout_ms;
    f->active_ms = clock_mono_ms();
    uv_update_time(f->pool->loop);
    if (idle_timeout_ms > 0)
        (void)uv_timer_start(&f->idle, fetch_on_idle, idle_timeout_ms, 0);
}

/* --- addresses --- */

int fetch_join(const char *base, const char *reference, char **ret_url, struct err *err) {
    CURLU *u = curl_url();
    char *url = NULL;
    CURLUcode rc = u ? curl_url_set(u, CURLUPART_URL, base, 0) : CURLUE_OUT_OF_MEMORY;
    if (rc == CURLUE_OK)
        rc = curl_url_set(u, CURLUPART_URL, reference, CURLU_DISALLOW_USER);
    if (rc == CURLUE_OK)
        rc = curl_url_set(u, CURLUPART_FRAGMENT, NULL, 0);
    if (rc == CURLUE_OK)
        rc = curl_url_get(u, CURLUPART_URL, &url, 0);
    curl_url_cleanup(u);
    bool http = url && (strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0);
    if (http)
        *ret_url = xstrdup(url);
    curl_free(url);
    if (!http)
        return err_set(err, ERR_BAD_REQUEST, "it is no http or https address%s%s",
                       rc != CURLUE_OK ? ": " : "", rc != CURLUE_OK ? curl_url_strerror(rc) : "");
    return 0;
}

/* --- the pool --- */

int fetch_prepare(struct err *err) {
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return err_set(err, ERR_INTERNAL, "libcurl does not start");
    return 0;
}

int fetch_pool_create(uv_loop_t *loop, unsigned max_connections, struct fetch_pool **ret_pool,
                      struct err *err) {
    int rc = fetch_prepare(err);
    if (rc < 0)
        return rc;
    struct fetch_pool *p = xcalloc(1, sizeof(*p));
    p->loop = loop;
    p->handles = 2;
    p->multi = curl_multi_init();
    if (!p->multi) {
        curl_global_cleanup();
        free(p);
        return err_set(err, ERR_INTERNAL, "libcurl does not start");
    }
    (void)uv_timer_init(loop, &p->timer);
    (void)uv_timer_init(loop, &p->later);
    p->timer.data = p;
    p->later.data = p;
    (void)curl_multi_setopt(p->multi, CURLMOPT_SOCKETFUNCTION, fetch_on_socket);
    (void)curl_multi_setopt(p->multi, CURLMOPT_SOCKETDATA, p);
    (void)curl_multi_setopt(p->multi, CURLMOPT_TIMERFUNCTION, fetch_on_set_timer);
    (void)curl_multi_setopt(p->multi, CURLMOPT_TIMERDATA, p);
    (void)curl_multi_setopt(p->multi, CURLMOPT_MAXCONNECTS, (long)CACHED_CONNECTIONS);
    (void)curl_multi_setopt(p->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)max_connections);
    *ret_pool = p;
    return 0;
}

void fetch_pool_close(struct fetch_pool *p, void (*on_closed)(void *ctx), void *ctx) {
    if (!p || p->closing || p->close_later)
        return;
    p->on_closed = on_closed;
    p->ctx = ctx;
    if (p->depth == 0) {
        close_now(p);
        return;
    }
    p->close_later = true;
    p->dirty = true;
    for (struct fetch *f = p->first; f; f = f->next)
        fetch_silence(f);
}

/* --- starting --- */

static bool fetch_is_clean(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return false;
    return true;
}

static int fetch_check(const struct fetch_options *o, struct err *err) {
    if (strncasecmp(o->url, "http://", 7) != 0 && strncasecmp(o->url, "https://", 8) != 0)
        return err_set(err, ERR_BAD_REQUEST, "only http and https addresses can be fetched");
    if (!fetch_is_clean(o->url) || strchr(o->url, ' '))
        return err_set(err, ERR_BAD_REQUEST, "the address holds a space or a control character");
    for (size_t i = 0; i < o->nheaders; i++) {
        const struct fetch_header *h = &o->headers[i];
        if (!fetch_is_clean(h->name) || !fetch_is_clean(h->value) || !*h->name ||
            strpbrk(h->name, ": "))
            return err_set(err, ERR_BAD_REQUEST, "header field %zu holds a control character",
                           i + 1);
        if (h->secret && o->max_redirects > 0)
            return err_set(err, ERR_BAD_REQUEST,
                           "a request that carries a secret does not follow redirects");
    }
    return 0;
}

static void fetch_add_header(struct fetch *f, const char *name, const char *value) {
    /* curl's way to write a field without a value is a semicolon. */
    char *line = *value ? xasprintf("%s: %s", name, value) : xasprintf("%s;", name);
    struct curl_slist *list = curl_slist_append(f->headers, line);
    if (list)
        f->headers = list;
    mem_wipe(line, strlen(line));
    free(line);
}

static void set_safe(CURL *e) {
    (void)curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(e, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(e, CURLOPT_PROXY, "");
    (void)curl_easy_setopt(e, CURLOPT_NOPROXY, "*");
    (void)curl_easy_setopt(e, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    (void)curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, 1L);
    (void)curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, 2L);
    (void)curl_easy_setopt(e, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    (void)curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
    (void)curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    /* Without it, to cancel a fetch whose name is being resolved waits for the resolver. */
    (void)curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L);
    (void)curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    (void)curl_easy_setopt(e, CURLOPT_USERAGENT, "cay/" CAY_VERSION);
}

static void set_callbacks(struct fetch *f) {
    CURL *e = f->easy;
    (void)curl_easy_setopt(e, CURLOPT_PRIVATE, (char *)f);
    (void)curl_easy_setopt(e, CURLOPT_ERRORBUFFER, f->message);
    (void)curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, fetch_on_write);
    (void)curl_easy_setopt(e, CURLOPT_WRITEDATA, f);
    (void)curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, fetch_on_header);
    (void)curl_easy_setopt(e, CURLOPT_HEADERDATA, f);
    (void)curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, fetch_on_open_socket);
    (void)curl_easy_setopt(e, CURLOPT_OPENSOCKETDATA, f);
    (void)curl_easy_setopt(e, CURLOPT_PREREQFUNCTION, fetch_on_before_request);
    (void)curl_easy_setopt(e, CURLOPT_PREREQDATA, f);
}

static size_t fetch_on_read(char *out, size_t size, size_t count, void *p) {
    struct fetch *f = p;
    if (f->state == FETCH_STATE_ANSWERING && f->status >= 400)
        return 0;
    ssize_t n = !fetch_is_live(f) ? -1 : f->opt.on_body(f->opt.ctx, out, size * count);
    f->body_waits = n == FETCH_WAIT;
    f->active_ms = clock_mono_ms();
    if (f->body_waits && fetch_is_live(f))
        return CURL_READFUNC_PAUSE;
    return n < 0 || !fetch_is_live(f) ? CURL_READFUNC_ABORT : (size_t)n;
}

static void set_request(struct fetch *f, const struct fetch_options *o) {
    CURL *e = f->easy;
    (void)curl_easy_setopt(e, CURLOPT_URL, o->url);
    if (o->unix_path)
        (void)curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, o->unix_path);
    if (o->decode)
        (void)curl_easy_setopt(e, CURLOPT_ACCEPT_ENCODING, "gzip, deflate");
    if (o->proxy) {
        (void)curl_easy_setopt(e, CURLOPT_NOPROXY, "");
        (void)curl_easy_setopt(e, CURLOPT_PROXY, o->proxy);
        (void)curl_easy_setopt(e, CURLOPT_HTTPPROXYTUNNEL, 1L);
        (void)curl_easy_setopt(e, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
        (void)curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    }
    /* A body that is read piece by piece may be left in its middle. */
    if (o->alone || o->proxy || o->on_body) {
        (void)curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, 1L);
        (void)curl_easy_setopt(e, CURLOPT_FORBID_REUSE, 1L);
    }
    if (o->body) {
        f->body = xmalloc(o->body_len + 1);
        memcpy(f->body, o->body, o->body_len);
        (void)curl_easy_setopt(e, CURLOPT_POST, 1L);
        (void)curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)o->body_len);
        (void)curl_easy_setopt(e, CURLOPT_POSTFIELDS, f->body);
    } else if (o->on_body) {
        (void)curl_easy_setopt(e, CURLOPT_UPLOAD, 1L);
        if (o->body_len > 0)
            (void)curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)o->body_len);
        (void)curl_easy_setopt(e, CURLOPT_READFUNCTION, fetch_on_read);
        (void)curl_easy_setopt(e, CURLOPT_READDATA, f);
    }
    if (o->method)
        (void)curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, o->method);
    if (o->method && strcmp(o->method, "HEAD") == 0)
        (void)curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
    for (size_t i = 0; i < o->nheaders; i++)
        fetch_add_header(f, o->headers[i].name, o->headers[i].value);
    /* A colon alone takes a field away: no round trip before a large body. But it would be signed.
     */
    struct curl_slist *list = o->sign ? NULL : curl_slist_append(f->headers, "Expect:");
    if (list)
        f->headers = list;
    (void)curl_easy_setopt(e, CURLOPT_HTTPHEADER, f->headers);
    (void)curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, o->max_redirects > 0 ? 1L : 0L);
    (void)curl_easy_setopt(e, CURLOPT_MAXREDIRS, (long)o->max_redirects);
    (void)curl_easy_setopt(
        e, CURLOPT_CONNECTTIMEOUT_MS,
        (long)(o->connect_timeout_ms ? o->connect_timeout_ms : CONNECT_TIMEOUT_MS));
    (void)curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)o->total_timeout_ms);
    if (o->ca_file)
        (void)curl_easy_setopt(e, CURLOPT_CAINFO, o->ca_file);
    if (o->sign) {
        (void)curl_easy_setopt(e, CURLOPT_AWS_SIGV4, o->sign);
        (void)curl_easy_setopt(e, CURLOPT_USERNAME, o->user);
        (void)curl_easy_setopt(e, CURLOPT_PASSWORD, o->password);
    }
}

int fetch_start(struct fetch_pool *p, const struct fetch_options *options, struct fetch **ret_fetch,
                struct err *err) {
    int rc = fetch_check(options, err);
    if (rc < 0)
        return rc;
    CURL *easy = p->closing || p->close_later ? NULL : curl_easy_init();
    if (!easy)
        return err_set(err, ERR_UNAVAILABLE, "no further requests are made");
    struct fetch *f = xcalloc(1, sizeof(*f));
    f->pool = p;
    f->easy = easy;
    f->opt = *options;
    buf_init(&f->head, HEAD_MAX_BYTES);
    set_safe(easy);
    set_callbacks(f);
    set_request(f, options);
    /* What the caller lent is not looked at again. */
    f->opt.url = f->opt.method = f->opt.ca_file = NULL;
    f->opt.headers = NULL;
    f->opt.body = NULL;
    (void)uv_timer_init(p->loop, &f->idle);
    f->idle.data = f;
    fetch_set_idle_timeout(f, options->idle_timeout_ms);
    f->next = p->first;
    f->link = &p->first;
    if (f->next)
        f->next->link = &f->next;
    p->first = f;
    *ret_fetch = f;
    if (p->depth == 0) {
        CURLMcode m = fetch_ask(f);
        if (m != CURLM_OK) {
            fetch_silence(f);
            fetch_release(f);
            return err_set(err, ERR_INTERNAL, "%s", curl_multi_strerror(m));
        }
    } else {
        p->dirty = true;
    }
    return 0;
}

const char *fetch_header(const struct fetch *f, const char *name) {
    const char *at = f->head.data;
    const char *stop = at ? at + f->head.len : NULL;
    while (at < stop) {
        const char *value = at + strlen(at) + 1;
        if (strcasecmp(at, name) == 0)
            return value;
        at = value + strlen(value) + 1;
    }
    return NULL;
}

void fetch_each_header(const struct fetch *f,
                       void (*on_field)(void *ctx, const char *name, const char *value),
                       void *ctx) {
    const char *at = f->head.data;
    const char *stop = at ? at + f->head.len : NULL;
    while (at < stop) {
        const char *value = at + strlen(at) + 1;
        on_field(ctx, at, value);
        at = value + strlen(value) + 1;
    }
}

bool fetch_sent(const struct fetch *f) {
    long bytes = 0;
    return curl_easy_getinfo(f->easy, CURLINFO_REQUEST_SIZE, &bytes) == CURLE_OK && bytes > 0;
}

void fetch_pause(struct fetch *f) {
    f->paused = true;
}

void fetch_resume(struct fetch *f) {
    if (!f->paused)
        return;
    f->paused = false;
    f->active_ms = clock_mono_ms();
    f->go_on = true;
    do_later(f->pool);
}

void fetch_body_ready(struct fetch *f) {
    if (!f->body_waits)
        return;
    f->body_waits = false;
    f->active_ms = clock_mono_ms();
    f->go_on = true;
    do_later(f->pool);
}

void fetch_cancel(struct fetch *f) {
    if (!f || !fetch_is_live(f))
        return;
    fetch_silence(f);
    if (f->pool->depth == 0)
        fetch_release(f);
    else
        f->pool->dirty = true;
}

static void fetch_ignore_data(void *ctx, const char *data, size_t len) {
    (void)ctx;
    (void)data;
    (void)len;
}

static bool refuse_address(void *ctx, const struct sockaddr *address) {
    (void)ctx;
    (void)address;
    return false;
}

static void ignore_end(void *ctx, const struct err *err) {
    (void)ctx;
    (void)err;
}

void fetch_detach(struct fetch *f) {
    if (!f || !fetch_is_live(f))
        return;
    f->opt.on_head = NULL;
    f->opt.on_data = fetch_ignore_data;
    f->opt.on_end = ignore_end;
    f->opt.on_address = refuse_address; /* it has its connection */
    f->opt.max_body_bytes = f->received + DETACHED_MAX_BYTES;
    fetch_set_idle_timeout(f, DETACHED_IDLE_MS);
    fetch_resume(f);
}
