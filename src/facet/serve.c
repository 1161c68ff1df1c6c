#include "facet/serve.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "wire/frame.h"
#include "wire/tray.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    TURN_CALLS = 16, /* calls of one holder before the others have their turn */
    AUDIT_CALLS = 64,
    AUDIT_MS = 100,
    AUDIT_BYTES = (AUDIT_CALLS + 2) * (FACET_AUDIT_SQL + FACET_NAME_MAX + 128),
    KEEP_BYTES = 256 * 1024, /* a larger buffer is given back when it is empty */
    BUDGET_CALLS = 8,        /* all holders together: this many of the largest calls... */
    BUDGET_RESULTS = 4,      /* ...and of the largest results that nobody has read */
    WAITING_MAX = 4,         /* requests of the front that wait for the end of a call */
    INSPECT_BYTES = 4 << 20,
    WATCH_GRACE_MS = 2000,
    MOVE_NS = 250000, /* between two moves to other processors */
    TRAY_WAIT_NS = 50000,
    LOOKS = 8,           /* between two looks at the clock */
    QUIET_MAX = 8,       /* sleeps without a call of one who talked */
    CROWD_NS = 10000000, /* since another called */
    CROWD_WAIT_NS = 20000,
    SPARED_MAX = 32,
    SHARE_NS = 4000000,
    CALL_NS = 2000, /* what a call takes beside its own time, about */
    BUSY_NOW = 8,   /* its calls took this part of the time, */
    BUSY_STILL = 10,
    LOOK_NS = 2000000, /* between two looks whether processors are short, */
    CROWD_LOOK_NS = 20000000,
    HELD_UP_NS = 200000, /* by what is usual */
    SHORT_MIN_MS = 100,
    SHORT_MAX_MS = 10000,
};

struct grant {
    uint64_t id;
    int fd;
    char label[FACET_NAME_MAX + 1];
    bool passive;
    bool readonly;
    uint64_t methods; /* a bit for each method */
    uint64_t max_calls;
    uint64_t calls;
    double tokens;
    int64_t tokens_ns;
    int64_t rowid;
    struct wire_reader in;
    struct buf out; /* what the holder has not read */
    size_t out_sent;
    int64_t stalled_ms; /* since when it neither reads nor finishes its frame; 0: it does */
    bool ready;         /* a whole frame may be waiting */
    struct tray *tray;  /* NULL: it was not asked for */
    bool asked_tray;
    bool talks;         /* its tray is watched while the facet is awake */
    bool watched;       /* now */
    unsigned quiet;     /* times that the facet went to sleep since it asked */
    const char *doomed; /* the reason why it is cut off at the end of this turn */
};
_Static_assert(FACET_METHODS_MAX + DB_METHOD_NAMED <= 64, "a method is a bit");

/* Where it may run, and how long it had to wait for that; before the filter is loaded. */
static cpu_set_t all_processors;
static int schedstat_fd = -1;

struct server {
    uint64_t near;             /* what it was asked by FACET_NEAR, 0: nothing */
    const struct grant *whose; /* who called it there */
    int64_t moved_ns;
    struct db *db;
    int epoll;
    int control;
    struct wire_reader in;
    struct buf reply;
    struct grant *grants[FACET_GRANTS_MAX];
    size_t ngrants;
    bool awake; /* it waits awake for one who talks, or has a processor to serve several from */
    bool busy;  /* its calls took a good share of the time */
    unsigned spared, to_spare; /* waits for several, since one was in vain */
    const struct grant *caller;
    int64_t crowd_ns; /* when another called than before */
    int64_t share_ns; /* since when its work is added up, */
    int64_t work_ns;  /* to this */
    int64_t short_ms; /* so long processors were thought to be short, the last time */
    int64_t short_until_ns;
    int64_t held_up_ns;    /* as it was */
    int64_t looked_ns;     /* then */
    struct grant *current; /* whose call runs */
    struct db_call call;
    unsigned call_method;
    bool interrupt;
    uint64_t call_id;
    int64_t call_ns;
    int64_t call_wall_ms;
    struct buf audit;
    unsigned naudit;
    int64_t audit_ms; /* when the first record came */
    int64_t active_ms;
    bool idle_told;
    uint64_t idle_ms;
    uint64_t calls;
    uint64_t failed;
    struct {
        uint16_t type;
        uint64_t id;
        int fd;
        struct buf payload;
    } waiting[WAITING_MAX];
    size_t nwaiting;
};

/* --- The watch ------------------------------------------------------------------------------- */

/* The only globals: a signal handler has no other way to its data. */
static struct {
    volatile sig_atomic_t running;
    volatile int64_t fires_ns; /* when the timer goes off, 0: it is not set */
    volatile int64_t kill_ns;  /* when the running call has had its time */
    struct server *server;     /* once it is there, to report */
} watch;

static void facet_serve_arm(int64_t ns) {
    watch.fires_ns = clock_mono_ns() + ns;
    struct itimerval t = {.it_value = {.tv_sec = (time_t)(ns / 1000000000),
                                       .tv_usec = (suseconds_t)(ns / 1000 % 1000000 + 1)}};
    (void)setitimer(ITIMER_REAL, &t, NULL);
}

static void report_death(struct server *s);

static void facet_serve_on_alarm(int signo) {
    (void)signo;
    int saved = errno;
    int64_t left = watch.kill_ns - clock_mono_ns();
    if (!watch.running) {
        watch.fires_ns = 0;
    } else if (left > 0) {
        facet_serve_arm(left);
    } else {
        if (watch.server && watch.server->current)
            report_death(watch.server);
        _exit(FACET_EXIT_TIME);
    }
    errno = saved;
}

void serve_watch_install(void) {
    struct sigaction sa = {.sa_handler = facet_serve_on_alarm, .sa_flags = SA_RESTART};
    sigemptyset(&sa.sa_mask);
    (void)sigaction(SIGALRM, &sa, NULL);
}

/* The timer is not set for each call but runs on over many: when it fires it looks at the call of
 * that moment. So the watch costs no system call on the way of a query. */
void serve_watch_begin(uint64_t time_ms) {
    int64_t span = (int64_t)(time_ms + WATCH_GRACE_MS) * 1000000;
    watch.kill_ns = clock_mono_ns() + span;
    watch.running = 1;
    if (watch.fires_ns == 0 || watch.fires_ns > watch.kill_ns)
        facet_serve_arm(span);
}

void serve_watch_end(void) {
    watch.running = 0;
}

/* --- Control out ----------------------------------------------------------------------------- */

_Noreturn static void facet_serve_leave(struct server *s, int status) {
    if (status == FACET_EXIT_OK && !s->current)
        db_settle(s->db);
    _exit(status);
}

/* Waits until the front takes it: no call goes on that cannot be reported. */
static void facet_serve_tell(struct server *s, uint16_t type, uint64_t id,
                             const struct buf *payload, const int *fds, size_t nfds) {
    struct wire_out out = {.type = type, .id = id, .fds = fds, .nfds = nfds};
    if (payload)
        out.pieces[0] = (struct wire_piece){payload->data, payload->len};
    if (wire_send(s->control, &out) < 0)
        facet_serve_leave(s, FACET_EXIT_OK);
}

static struct buf *facet_serve_reply(struct server *s) {
    buf_clear(&s->reply);
    return &s->reply;
}

static void facet_serve_tell_error(struct server *s, uint64_t id, const struct err *err) {
    struct buf *b = facet_serve_reply(s);
    facet_error_encode(b, err);
    facet_serve_tell(s, FACET_ERROR, id, b, NULL, 0);
}

static void facet_audit_flush(struct server *s) {
    if (s->naudit == 0)
        return;
    facet_serve_tell(s, FACET_AUDIT, 0, &s->audit, NULL, 0);
    buf_clear(&s->audit);
    s->naudit = 0;
}

/* Returns the nanoseconds that the call took. Also called by the signal handler: allocates nothing,
 * because the buffer has its full size. */
static int64_t audit_put(struct server *s, const struct grant *g, const char *method,
                         size_t method_len, const char *code) {
    const struct db_call *c = &s->call;
    int64_t ns = clock_mono_ns() - s->call_ns;
    struct facet_audit a = {.grant = g->id,
                            .wall_ms = s->call_wall_ms,
                            .duration_us = (uint32_t)MIN(ns / 1000, (int64_t)UINT32_MAX),
                            .rows = c->rows,
                            .changes = c->changes,
                            .method = method,
                            .method_len = MIN(method_len, (size_t)FACET_NAME_MAX),
                            .code = code,
                            .code_len = strlen(code),
                            .sql = c->sql ? c->sql : "",
                            .sql_len =
                                utf8_floor(c->sql ? c->sql : "", c->sql_len, FACET_AUDIT_SQL)};
    facet_audit_encode(&s->audit, &a);
    if (s->naudit++ == 0)
        s->audit_ms = clock_mono_ms();
    return ns;
}

static void report_death(struct server *s) {
    struct grant *g = s->current;
    char json[128];
    /* snprintf() of integers and texts allocates nothing. */
    int n = snprintf(json, sizeof(json),
                     "{\"name\":\"LimitError\",\"message\":\"time limit of %" PRIu64
                     " ms exceeded\",\"code\":\"LIMIT_TIME\"}",
                     s->db->limits.time_ms);
    struct wire_out fail = {.type = FACET_FAIL, .id = s->call_id, .pieces = {{json, (size_t)n}}};
    (void)wire_try_send(g->fd, &fail);
    const char *method = db_method_name(s->db, s->call_method);
    (void)audit_put(s, g, method, strlen(method), "LIMIT_TIME");
    struct wire_out audit = {.type = FACET_AUDIT, .pieces = {{s->audit.data, s->audit.len}}};
    (void)wire_try_send(s->control, &audit);
}

/* --- Grants ---------------------------------------------------------------------------------- */

static void facet_serve_doom(struct grant *g, const char *reason) {
    if (!g->doomed)
        g->doomed = reason;
}

static void grant_destroy(struct grant *g) {
    if (!g)
        return;
    tray_close(g->tray);
    fd_close(&g->fd); /* epoll forgets it: there is no second descriptor of this end */
    wire_reader_finish(&g->in);
    buf_finish(&g->out);
    free(g);
}

/* Frees those that were cut off in this turn: their events may have been waiting until now. */
static void come_home(struct server *s) {
    s->near = 0;
    s->whose = NULL;
    (void)sched_setaffinity(0, sizeof(all_processors), &all_processors);
}

static void facet_serve_reap(struct server *s) {
    for (size_t i = 0; i < s->ngrants;) {
        struct grant *g = s->grants[i];
        if (!g->doomed) {
            i++;
            continue;
        }
        facet_audit_flush(s);
        if (strcmp(g->doomed, "revoked") != 0) { /* REVOKE was answered at once */
            struct buf *b = facet_serve_reply(s);
            facet_closed_encode(b, g->id, g->calls, g->doomed);
            facet_serve_tell(s, FACET_CLOSED, 0, b, NULL, 0);
        }
        if (strcmp(g->doomed, "closed") != 0 && strcmp(g->doomed, "revoked") != 0)
            log_warn("facet.cut", "grant", (int64_t)g->id, "label", g->label, "reason", g->doomed);
        s->grants[i] = s->grants[--s->ngrants];
        if (s->whose == g && s->near > 0)
            come_home(s);
        if (s->caller == g)
            s->caller = NULL;
        grant_destroy(g);
    }
}

static struct grant *grant_find(struct server *s, uint64_t id) {
    for (size_t i = 0; i < s->ngrants; i++)
        if (s->grants[i]->id == id && !s->grants[i]->doomed)
            return s->grants[i];
    return NULL;
}

static void watch_fd(struct server *s, struct grant *g, uint32_t events, int op) {
    struct epoll_event e = {.events = events, .data.ptr = g};
    if (epoll_ctl(s->epoll, op, g->fd, &e) < 0)
        facet_serve_doom(g, "epoll");
}

/* *fd: our end of the capability, or -1: both are made here, and *fd is the holder's. */
static int make_grant(struct server *s, const struct facet_grant *m, int *fd, struct err *err) {
    if (m->grant == 0 || grant_find(s, m->grant))
        return err_set(err, ERR_CONFLICT, "grant %" PRIu64 " is open already, or 0", m->grant);
    if (s->ngrants == FACET_GRANTS_MAX)
        return err_set(err, ERR_LIMIT, "the facet has %d open grants already", FACET_GRANTS_MAX);
    uint64_t methods = m->all ? UINT64_MAX : 0;
    for (size_t i = 0; i < m->nmethods; i++) {
        int k = db_method_find(s->db, m->methods[i], strlen(m->methods[i]));
        if (k < 0)
            return err_set(err, ERR_BAD_REQUEST, "the facet has no method '%.64s'", m->methods[i]);
        methods |= UINT64_C(1) << k;
    }
    int pair[2] = {*fd, -1};
    if (*fd < 0 && fd_pair(pair, err) < 0)
        return -(int)err->code;
    struct grant *g = xcalloc(1, sizeof(*g));
    *g = (struct grant){.id = m->grant,
                        .fd = pair[0],
                        .methods = methods,
                        .passive = m->passive,
                        .readonly = m->readonly,
                        .max_calls = m->max_calls,
                        .tokens = (double)s->db->limits.calls_per_s};
    (void)snprintf(g->label, sizeof(g->label), "%s", m->label);
    wire_reader_init(&g->in, s->db->limits.call_bytes);
    buf_init(&g->out, s->db->limits.result_bytes + 16384);
    (void)fd_set_nonblock(g->fd, true);
    watch_fd(s, g, EPOLLIN, EPOLL_CTL_ADD);
    s->grants[s->ngrants++] = g;
    *fd = pair[1];
    return 0;
}

/* --- Calls ----------------------------------------------------------------------------------- */

static uint64_t total_in(const struct server *s) {
    uint64_t n = 0;
    for (size_t i = 0; i < s->ngrants; i++)
        n += s->grants[i]->in.in.cap;
    return n;
}

static uint64_t total_out(const struct server *s) {
    uint64_t n = 0;
    for (size_t i = 0; i < s->ngrants; i++)
        n += s->grants[i]->out.len;
    return n;
}

/* Sends the answer that is in db->out; what does not go now waits in the holder's buffer. */
static void facet_serve_answer(struct server *s, struct grant *g, uint64_t id, bool ok) {
    const struct buf *json = &s->db->out;
    struct wire_out out = {
        .type = ok ? FACET_RESULT : FACET_FAIL, .id = id, .pieces = {{json->data, json->len}}};
    uint8_t head[WIRE_HEAD_SIZE];
    wire_head_encode(head, out.type, id, json->len, 0);
    struct wire_piece frame[] = {{head, sizeof(head)}, {json->data, json->len}};
    if (g->tray && tray_put(g->tray, TRAY_ANSWER, frame, ARRAY_LEN(frame)))
        return;
    ssize_t n = wire_try_send(g->fd, &out);
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
        facet_serve_doom(g, "closed");
        return;
    }
    size_t sent = n < 0 ? 0 : (size_t)n;
    if (sent == wire_out_size(&out))
        return;
    if (sent < sizeof(head))
        (void)buf_add(&g->out, head + sent, sizeof(head) - sent);
    size_t skip = sent > sizeof(head) ? sent - sizeof(head) : 0;
    (void)buf_add(&g->out, json->data + skip, json->len - skip);
    g->stalled_ms = clock_mono_ms();
    if (g->out.full || total_out(s) > BUDGET_RESULTS * s->db->limits.result_bytes)
        facet_serve_doom(g, "does not read its results");
    else
        watch_fd(s, g, EPOLLOUT, EPOLL_CTL_MOD);
}

/* False if the grant does not allow the call now; the failure is in db->out. */
static bool facet_serve_admit(struct server *s, struct grant *g, const char *name, size_t len,
                              struct db_call *c) {
    struct db *db = s->db;
    int method = db_method_find(db, name, len);
    if (method < 0 || !(g->methods >> method & 1)) {
        /* The same answer for both: a holder learns nothing about methods it was not given. */
        db_fail(db, c, "TypeError", "NO_METHOD", "there is no method '%.*s' here",
                (int)utf8_floor(name, len, FACET_NAME_MAX), name);
        return false;
    }
    if (g->max_calls > 0 && g->calls > g->max_calls) {
        db_fail(db, c, "LimitError", "LIMIT_CALLS", "limit of %" PRIu64 " calls reached",
                g->max_calls);
        return false;
    }
    double rate = (double)db->limits.calls_per_s;
    if (rate > 0) {
        g->tokens = MIN(rate, g->tokens + rate * (double)(s->call_ns - g->tokens_ns) / 1e9);
        g->tokens_ns = s->call_ns;
        if (g->tokens < 1) {
            db_fail(db, c, "LimitError", "LIMIT_RATE",
                    "rate limit of %" PRIu64 " calls per second exceeded", db->limits.calls_per_s);
            return false;
        }
        g->tokens -= 1;
    }
    c->method = (unsigned)method;
    c->readonly = g->readonly;
    c->may_write = !g->readonly && g->methods >> DB_METHOD_EXECUTE & 1;
    return true;
}

static bool is_crowd(const struct server *s) {
    return s->call_ns - s->crowd_ns < CROWD_NS;
}

/* Comes to the processor where a holder waits, or leaves it to the holder alone, or is free again
 * when another asks. A holder that calls it here and there moves it four thousand times a
 * second at most. */
static void come_near(struct server *s, const struct grant *g, uint64_t hint) {
    bool stays = hint == s->near && (hint == 0 || g == s->whose);
    if (stays || s->call_ns - s->moved_ns < MOVE_NS)
        return;
    size_t cpu = (hint & ~(uint64_t)FACET_APART) - 1;
    s->moved_ns = s->call_ns;
    if (hint == 0) {
        come_home(s);
        return;
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (hint & FACET_APART)
        CPU_XOR(&set, &set, &all_processors);
    if (CPU_COUNT(&set) == 0 || sched_setaffinity(0, sizeof(set), &set) < 0)
        return;
    s->near = hint;
    s->whose = g;
}

/* Nanoseconds that it could have run and did not, because others had the processors; 0 if the
 * kernel does not say. */
static int64_t held_up_ns(void) {
    char text[80];
    ssize_t n = schedstat_fd >= 0 ? pread(schedstat_fd, text, sizeof(text) - 1, 0) : 0;
    text[MAX(n, (ssize_t)0)] = 0;
    const char *second = strchr(text, ' ');
    return second ? strtoll(second, NULL, 10) : 0;
}

static void begin_look(struct server *s) {
    s->looked_ns = clock_mono_ns();
    s->held_up_ns = held_up_ns();
}

/* Whether others had the processors for a good part of the time since it was looked last. Then it
 * waits awake for nobody for a time, and each time for longer: apart is for idle processors. */
static bool is_short(struct server *s) {
    int64_t since = s->looked_ns;
    int64_t held_up = s->held_up_ns;
    begin_look(s);
    held_up = s->held_up_ns - held_up;
    int64_t span = s->looked_ns - since;
    if (held_up <= MAX(span * 2 / 5, (int64_t)HELD_UP_NS)) {
        if (span > LOOK_NS)
            s->short_ms -= s->short_ms / 32;
        return false;
    }
    s->short_ms = MIN(MAX(2 * s->short_ms, (int64_t)SHORT_MIN_MS), (int64_t)SHORT_MAX_MS);
    s->short_until_ns = s->looked_ns + s->short_ms * 1000000;
    return true;
}

static void make_tray(struct grant *g) {
    _cleanup_(close) int fd = -1;
    struct err err;
    g->asked_tray = true;
    if (tray_create(&g->tray, &fd, &err) < 0)
        return; /* the socket does */
    struct wire_out out = {.type = FACET_TRAY, .fds = &fd, .nfds = 1};
    if (wire_try_send(g->fd, &out) == (ssize_t)wire_out_size(&out))
        return;
    /* Its socket is full of answers, or too many descriptors are on their way: another time. One
     * that is gone is found when it is answered; a head is never sent in parts. */
    tray_close(g->tray);
    g->tray = NULL;
    g->asked_tray = false;
}

/* Once: what is there already would be lost. */
static void watch_tray(struct grant *g) {
    if (!g->watched)
        tray_watch(g->tray, TRAY_CALL);
    g->watched = true;
}

/* One who talks is waited for awake, from another processor, unless processors are short. */
static void talk_with_one(struct server *s, struct grant *g, uint64_t hint) {
    bool can = s->call_ns >= s->short_until_ns;
    if (!can)
        hint &= ~(uint64_t)FACET_APART;
    come_near(s, g, hint);
    bool awake = g->tray && hint & FACET_APART && s->near == hint && s->whose == g;
    if (awake && !s->awake)
        begin_look(s);
    s->awake = awake;
    if (g->tray)
        tray_set_where(g->tray, can ? TRAY_ANYWHERE : TRAY_NOWHERE);
}

/* Several who talk run where the kernel wants them, and it does too. But if they do little else
 * than ask, it has a processor for itself: nobody is woken then, nor driven out by one who was. */
static void talk_with_many(struct server *s, struct grant *g) {
    uint32_t here = 1 + (uint32_t)sched_getcpu();
    bool alone = s->busy && s->call_ns >= s->short_until_ns;
    if (alone && !s->awake)
        begin_look(s);
    s->awake = alone;
    if (!alone || s->near == 0 || s->near & FACET_APART)
        come_near(s, g, alone ? here : 0);
    if (g->tray)
        tray_set_where(g->tray, TRAY_CROWD | (alone ? TRAY_KEEP_OFF : 0) | here);
}

static void add_work(struct server *s, int64_t ns) {
    s->work_ns += CALL_NS + ns;
    int64_t span = s->call_ns - s->share_ns;
    if (span < SHARE_NS)
        return;
    s->busy = s->work_ns > span / (s->busy ? BUSY_STILL : BUSY_NOW);
    s->share_ns = s->call_ns;
    s->work_ns = 0;
}

static bool is_place(uint64_t hint) {
    size_t cpu = (hint & ~(uint64_t)FACET_APART) - 1;
    return cpu < CPU_SETSIZE && CPU_ISSET(cpu, &all_processors) && CPU_COUNT(&all_processors) > 1;
}

static void go_where_asked(struct server *s, struct grant *g, uint64_t hint) {
    if (!is_place(hint))
        hint = 0;
    if (s->caller && s->caller != g)
        s->crowd_ns = s->call_ns;
    s->caller = g;
    if ((hint & FACET_APART || (hint && is_crowd(s))) && !g->asked_tray)
        make_tray(g);
    g->quiet = 0;
    g->talks = hint && g->tray;
    if (g->talks)
        watch_tray(g);
    if (is_crowd(s))
        talk_with_many(s, g);
    else
        talk_with_one(s, g, hint);
}

static void facet_serve_on_call(struct server *s, struct grant *g, const struct wire_frame *f) {
    const char *method;
    size_t method_len;
    struct err err;
    s->call = (struct db_call){.rowid = g->rowid};
    struct db_call *c = &s->call;
    if (f->type != FACET_CALL || f->nfds > 0 ||
        facet_call_decode(f->data, f->len, &method, &method_len, &c->args, &c->args_len, &err) <
            0) {
        db_fail(s->db, c, "ProtocolError", "BAD_FRAME", "a frame is not a call");
        facet_serve_answer(s, g, f->id, false);
        facet_serve_doom(g, "sent something that is not a call");
        return;
    }
    s->call_ns = clock_mono_ns();
    s->call_wall_ms = clock_wall_ms();
    go_where_asked(s, g, f->id >> FACET_NEAR_SHIFT);
    g->calls++;
    s->calls++;
    s->active_ms = s->call_ns / 1000000;
    s->idle_told = false;
    if (facet_serve_admit(s, g, method, method_len, c)) {
        s->call_method = c->method;
        s->call_id = f->id;
        s->interrupt = false;
        s->current = g;
        serve_watch_begin(s->db->limits.time_ms);
        db_call(s->db, c);
        serve_watch_end();
        s->current = NULL;
        g->rowid = c->rowid;
    }
    s->failed += !c->ok;
    add_work(s, audit_put(s, g, method, method_len, c->code));
    facet_serve_answer(s, g, f->id, c->ok);
    if (s->naudit >= AUDIT_CALLS)
        facet_audit_flush(s);
}

/* Runs what is waiting, until the holder's turn is over or it does not read its answers. */
static void run_calls(struct server *s, struct grant *g) {
    struct err err;
    g->ready = false;
    for (int n = 0; !g->doomed && g->out.len == 0; n++) {
        if (n == TURN_CALLS) {
            g->ready = true;
            return;
        }
        struct wire_frame f;
        int rc = wire_next(&g->in, &f, &err);
        if (rc < 0) {
            struct db_call none = {0};
            db_fail(s->db, &none, "ProtocolError", "LIMIT_CALL",
                    "call limit of %" PRIu64 " bytes exceeded", s->db->limits.call_bytes);
            facet_serve_answer(s, g, 0, false);
            facet_serve_doom(g, "sent a frame that is too large");
            return;
        }
        if (rc == 0)
            break;
        g->stalled_ms = 0; /* it goes on */
        facet_serve_on_call(s, g, &f);
        wire_frame_finish(&f);
    }
    if (g->doomed || g->out.len > 0)
        return;
    if (g->in.in.len > g->in.used) {
        if (g->stalled_ms == 0)
            g->stalled_ms = clock_mono_ms();
        return;
    }
    g->stalled_ms = 0;
    if (g->in.in.cap > KEEP_BYTES) {
        buf_finish(&g->in.in);
        g->in.used = 0;
    }
}

/* rc: what the socket or the tray brought. */
static void facet_serve_on_input(struct server *s, struct grant *g, int rc) {
    if (rc < 0) {
        facet_serve_doom(g, rc == -ERR_CANCELLED ? "closed" : "broke the protocol");
        return;
    }
    if (g->in.nfds > 0) {
        facet_serve_doom(g, "sent a descriptor");
        return;
    }
    if (g->in.in.cap > KEEP_BYTES && total_in(s) > BUDGET_CALLS * s->db->limits.call_bytes) {
        facet_serve_doom(g, "too many large calls at once");
        return;
    }
    if (rc > 0)
        run_calls(s, g);
}

static bool read_tray(struct server *s, struct grant *g, bool last) {
    struct err err;
    int rc = tray_take(g->tray, TRAY_CALL, last, &g->in, &err);
    g->watched = !last;
    facet_serve_on_input(s, g, rc);
    return rc != 0;
}

static void facet_serve_on_readable(struct server *s, struct grant *g) {
    struct err err;
    /* What is in the tray came before what the socket has, of which there may be a part. */
    if (g->watched && read_tray(s, g, false) && (g->doomed || g->out.len > 0))
        return;
    facet_serve_on_input(s, g, wire_recv(&g->in, g->fd, &err));
}

static void facet_serve_on_writable(struct server *s, struct grant *g) {
    while (g->out_sent < g->out.len) {
        ssize_t n = send(g->fd, g->out.data + g->out_sent, g->out.len - g->out_sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n < 0) {
            facet_serve_doom(g, "closed");
            return;
        }
        g->out_sent += (size_t)n;
        g->stalled_ms = clock_mono_ms();
    }
    buf_finish(&g->out);
    g->out_sent = 0;
    g->stalled_ms = 0;
    watch_fd(s, g, EPOLLIN, EPOLL_CTL_MOD);
    run_calls(s, g);
}

/* --- Control in ------------------------------------------------------------------------------ */

static void do_export(struct server *s, uint64_t id, int fd) {
    struct err err;
    uint64_t bytes;
    db_start_clock(s->db, s->db->limits.time_ms);
    int rc = db_export(s->db, fd, &bytes, &err);
    fd_close(&fd);
    if (rc < 0) {
        facet_serve_tell_error(s, id, &err);
        return;
    }
    struct buf *b = facet_serve_reply(s);
    pack_u64(b, bytes);
    facet_serve_tell(s, FACET_EXPORTED, id, b, NULL, 0);
}

static void do_inspect(struct server *s, uint64_t id) {
    struct err err;
    _cleanup_(buf) struct buf b;
    buf_init(&b, INSPECT_BYTES);
    serve_watch_begin(s->db->limits.time_ms);
    db_start_clock(s->db, s->db->limits.time_ms);
    int rc = db_inspect(s->db, &b, &err);
    serve_watch_end();
    if (rc < 0)
        facet_serve_tell_error(s, id, &err);
    else
        facet_serve_tell(s, FACET_INSPECTED, id, &b, NULL, 0);
}

static void do_migrate(struct server *s, uint64_t id, const void *data, size_t len) {
    struct err err;
    uint32_t applied = 0;
    serve_watch_begin(DB_OPEN_TIME_MS);
    int rc = db_migrate(s->db, data, len, &applied, &err);
    serve_watch_end();
    if (rc < 0) {
        facet_serve_tell_error(s, id, &err);
        return;
    }
    struct buf *b = facet_serve_reply(s);
    pack_u32(b, applied);
    facet_serve_tell(s, FACET_MIGRATED, id, b, NULL, 0);
}

/* What the front asks about the whole database runs between two calls. */
static void do_whole(struct server *s, uint16_t type, uint64_t id, int fd, const void *data,
                     size_t len) {
    if (type == FACET_EXPORT)
        do_export(s, id, fd);
    else if (type == FACET_INSPECT)
        do_inspect(s, id);
    else
        do_migrate(s, id, data, len);
}

static int facet_serve_on_grant(struct server *s, struct wire_frame *f, struct err *err) {
    struct facet_grant m;
    if (facet_grant_decode(f->data, f->len, &m, err) < 0)
        return -(int)err->code;
    _cleanup_(close) int fd = f->nfds > 0 ? wire_frame_take_fd(f, 0) : -1;
    int rc = make_grant(s, &m, &fd, err);
    if (rc == 0 && fd >= 0) {
        struct buf *b = facet_serve_reply(s);
        pack_u64(b, m.grant);
        facet_serve_tell(s, FACET_GRANTED, f->id, b, &fd, 1);
    }
    facet_grant_finish(&m);
    return rc;
}

static int facet_serve_on_revoke(struct server *s, uint64_t frame_id, uint64_t id,
                                 struct err *err) {
    struct grant *g = grant_find(s, id);
    if (!g)
        return err_set(err, ERR_NOT_FOUND, "no open grant %" PRIu64, id);
    facet_serve_doom(g, "revoked");
    /* From here on the holder reads the end, also while its call is being stopped. */
    (void)shutdown(g->fd, SHUT_RDWR);
    facet_audit_flush(s);
    struct buf *b = facet_serve_reply(s);
    facet_closed_encode(b, g->id, g->calls, "revoked");
    facet_serve_tell(s, FACET_CLOSED, frame_id, b, NULL, 0);
    return 0;
}

static int facet_serve_on_whole(struct server *s, struct wire_frame *f, struct err *err) {
    _cleanup_(close) int fd = f->nfds > 0 ? wire_frame_take_fd(f, 0) : -1;
    if (f->type == FACET_EXPORT && fd < 0)
        return err_set(err, ERR_BAD_REQUEST, "EXPORT needs a descriptor");
    if (!s->current) {
        do_whole(s, f->type, f->id, steal_fd(&fd), f->data, f->len);
        return 0;
    }
    if (s->nwaiting == WAITING_MAX)
        return err_set(err, ERR_LIMIT, "%d requests are waiting already", WAITING_MAX);
    size_t i = s->nwaiting++;
    s->waiting[i].type = f->type;
    s->waiting[i].id = f->id;
    s->waiting[i].fd = steal_fd(&fd);
    buf_init(&s->waiting[i].payload, FACET_OPEN_MAX);
    (void)buf_add(&s->waiting[i].payload, f->data, f->len);
    return 0;
}

static void facet_serve_on_stats(struct server *s, uint64_t id) {
    struct facet_stats st = {.calls = s->calls, .failed = s->failed, .grants = s->ngrants};
    db_stats(s->db, &st);
    struct buf *b = facet_serve_reply(s);
    facet_stats_encode(b, &st);
    facet_serve_tell(s, FACET_STATS, id, b, NULL, 0);
}

static int facet_serve_on_control(struct server *s, struct wire_frame *f, struct err *err) {
    struct unpack u;
    unpack_init(&u, f->data, f->len);
    switch (f->type) {
    case FACET_GRANT:
        return facet_serve_on_grant(s, f, err);
    case FACET_REVOKE: {
        uint64_t id = unpack_u64(&u);
        if (!unpack_ok(&u))
            break;
        return facet_serve_on_revoke(s, f->id, id, err);
    }
    case FACET_EXPORT:
    case FACET_INSPECT:
    case FACET_MIGRATE:
        return facet_serve_on_whole(s, f, err);
    case FACET_STATS:
        facet_serve_on_stats(s, f->id);
        return 0;
    case FACET_INTERRUPT: {
        uint64_t id = unpack_u64(&u);
        if (!unpack_ok(&u))
            break;
        s->interrupt = s->current && (id == 0 || id == s->current->id);
        return 0;
    }
    case FACET_OPEN:
        return err_set(err, ERR_CONFLICT, "the facet is open already");
    default:
        break;
    }
    return err_set(err, ERR_PROTOCOL, "unknown or malformed control message %u", f->type);
}

static void facet_serve_read_control(struct server *s) {
    struct err err;
    int rc = wire_recv(&s->in, s->control, &err);
    if (rc == -ERR_CANCELLED)
        facet_serve_leave(s, FACET_EXIT_OK);
    struct wire_frame f;
    while (rc >= 0 && (rc = wire_next(&s->in, &f, &err)) == 1) {
        if (facet_serve_on_control(s, &f, &err) < 0)
            facet_serve_tell_error(s, f.id, &err);
        wire_frame_finish(&f);
    }
    s->active_ms = clock_mono_ms();
    s->idle_told = false;
    if (rc < 0)
        facet_serve_leave(s, FACET_EXIT_PROTOCOL);
}

/* While a call runs: the front is served, so that one slow query does not keep it from granting,
 * revoking and interrupting; and a call whose holder is gone is stopped. */
static enum db_stop facet_serve_on_tick(void *ctx) {
    struct server *s = ctx;
    struct grant *g = s->current;
    if (!g)
        return DB_STOP_NONE;
    struct pollfd p[2] = {{.fd = s->control, .events = POLLIN}, {.fd = g->fd, .events = 0}};
    if (poll(p, 2, 0) <= 0)
        return DB_STOP_NONE;
    if (p[0].revents)
        facet_serve_read_control(s);
    if (g->doomed || (p[1].revents & (POLLHUP | POLLERR)))
        return DB_STOP_GONE;
    return s->interrupt ? DB_STOP_INTERRUPT : DB_STOP_NONE;
}

/* --- The loop -------------------------------------------------------------------------------- */

static int64_t facet_serve_sooner(int64_t a, int64_t b) {
    return a < 0 || b < a ? b : a;
}

/* Does what is due and returns the milliseconds until something else is, or -1. */
static int facet_serve_on_time(struct server *s) {
    int64_t now = clock_mono_ms();
    int64_t wait = -1;
    bool awake = false;
    if (s->naudit > 0 && now - s->audit_ms >= AUDIT_MS)
        facet_audit_flush(s);
    if (s->naudit > 0)
        wait = facet_serve_sooner(wait, s->audit_ms + AUDIT_MS - now);
    for (size_t i = 0; i < s->ngrants; i++) {
        struct grant *g = s->grants[i];
        awake |= !g->passive;
        if (g->ready)
            wait = 0;
        if (g->stalled_ms == 0)
            continue;
        int64_t left = g->stalled_ms + (int64_t)s->db->limits.stall_ms - now;
        if (left <= 0)
            facet_serve_doom(g, g->out.len > 0 ? "does not read its results"
                                               : "does not finish its call");
        wait = facet_serve_sooner(wait, MAX(left, 0));
    }
    if (awake) {
        s->active_ms = now;
        s->idle_told = false;
    } else if (s->idle_ms > 0 && !s->idle_told) {
        int64_t left = s->active_ms + (int64_t)s->idle_ms - now;
        if (left <= 0) {
            facet_audit_flush(s);
            db_settle(s->db);
            facet_serve_tell(s, FACET_IDLE, 0, NULL, NULL, 0);
            s->idle_told = true;
        } else {
            wait = facet_serve_sooner(wait, left);
        }
    }
    facet_serve_reap(s);
    return (int)MIN(wait, (int64_t)3600000);
}

static void end_talk(struct server *s) {
    if (!s->awake || is_crowd(s))
        return;
    s->awake = false;
    (void)is_short(s);
}

static bool can_run(const struct grant *g) {
    return !g->doomed && g->out.len == 0 && !g->ready;
}

/* Takes what is in the trays; before it sleeps for the last time. */
static unsigned facet_serve_read_trays(struct server *s, bool last) {
    unsigned came = 0;
    for (size_t i = 0; i < s->ngrants; i++) {
        struct grant *g = s->grants[i];
        if (g->watched && (last || can_run(g)))
            came += read_tray(s, g, last);
    }
    return came;
}

static unsigned look_for(struct server *s, int64_t ns) {
    unsigned came = 0;
    for (int64_t until = clock_mono_ns() + ns; came == 0 && clock_mono_ns() < until;)
        for (int i = 0; i < LOOKS && came == 0; i++) {
            came = facet_serve_read_trays(s, false);
            tray_rest();
        }
    return came;
}

static bool is_watching(const struct server *s) {
    for (size_t i = 0; i < s->ngrants; i++)
        if (s->grants[i]->watched)
            return true;
    return false;
}

/* For several it waits no longer than it takes to wake it, and not again where that was in vain. */
static unsigned wait_for_many(struct server *s) {
    if (!is_watching(s) || s->spared++ < s->to_spare)
        return 0;
    s->spared = 0;
    unsigned came = look_for(s, CROWD_WAIT_NS);
    s->to_spare = came ? 0 : MIN(2 * s->to_spare + 1, (unsigned)SPARED_MAX);
    return came;
}

static unsigned wait_awake(struct server *s) {
    bool crowd = is_crowd(s);
    int64_t due_ns = s->looked_ns + (crowd ? CROWD_LOOK_NS : LOOK_NS);
    if (s->awake && clock_mono_ns() > due_ns && is_short(s))
        return 0;
    if (crowd)
        return wait_for_many(s);
    return s->awake ? look_for(s, TRAY_WAIT_NS) : 0;
}

/* Serves those who talk, while they do. True if it should not sleep now. */
static bool facet_serve_talk(struct server *s) {
    for (unsigned n = 0; n < TURN_CALLS;) {
        unsigned came = facet_serve_read_trays(s, false);
        if (came == 0)
            came = wait_awake(s);
        if (came == 0) {
            end_talk(s);
            return facet_serve_read_trays(s, true) > 0;
        }
        n += came;
    }
    return true;
}

/* Again, after a sleep; not of those who have not asked for some time. */
static void watch_trays(struct server *s) {
    for (size_t i = 0; i < s->ngrants; i++) {
        struct grant *g = s->grants[i];
        if (!g->talks || g->watched)
            continue;
        g->talks = ++g->quiet < QUIET_MAX;
        if (g->talks)
            watch_tray(g);
    }
}

static void facet_serve_turn(struct server *s) {
    struct epoll_event events[32];
    bool awake = facet_serve_talk(s);
    int wait = facet_serve_on_time(s);
    int n = epoll_wait(s->epoll, events, ARRAY_LEN(events), awake ? 0 : wait);
    watch_trays(s);
    for (int i = 0; i < n; i++) {
        struct grant *g = events[i].data.ptr;
        if (!g)
            facet_serve_read_control(s);
        else if (g->doomed)
            continue;
        else if (g->out.len > 0)
            facet_serve_on_writable(s, g);
        else if (!g->ready)
            facet_serve_on_readable(s, g);
    }
    for (size_t i = 0; i < s->ngrants; i++)
        if (s->grants[i]->ready && !s->grants[i]->doomed)
            run_calls(s, s->grants[i]);
    for (size_t i = 0; i < s->nwaiting; i++) {
        struct buf *b = &s->waiting[i].payload;
        do_whole(s, s->waiting[i].type, s->waiting[i].id, s->waiting[i].fd, b->data, b->len);
        buf_finish(b);
    }
    s->nwaiting = 0;
    facet_serve_reap(s);
}

int serve_epoll(void) {
    (void)sched_getaffinity(0, sizeof(all_processors), &all_processors);
    schedstat_fd = open("/proc/self/schedstat", O_RDONLY | O_CLOEXEC);
    return epoll_create1(EPOLL_CLOEXEC);
}

int serve_run(struct db *db, int epoll, const struct serve_options *o) {
    struct server *s = xcalloc(1, sizeof(*s));
    *s = (struct server){.db = db,
                         .near = 0,
                         .epoll = epoll,
                         .control = o->control,
                         .idle_ms = o->idle_ms,
                         .active_ms = clock_mono_ms()};
    wire_reader_init(&s->in, FACET_OPEN_MAX);
    buf_init(&s->reply, 1 << 20);
    buf_init(&s->audit, AUDIT_BYTES);
    (void)buf_reserve(&s->audit, AUDIT_BYTES);
    db->on_tick = facet_serve_on_tick;
    db->tick_ctx = s;
    watch.server = s;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    (void)fd_set_nonblock(s->control, true);
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, s->control, &e) < 0)
        return FACET_EXIT_SETUP;
    struct buf *b = facet_serve_reply(s);
    facet_opened_encode(b, &o->opened);
    facet_serve_tell(s, FACET_OPENED, o->open_id, b, NULL, 0);
    for (;;)
        facet_serve_turn(s);
}
