#include "front.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/mem.h"
#include "wire/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(cond, what)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "front: %s (%s)\n", what, strerror(errno));                            \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* What does not come by then never does. */
enum { START_MS = 60000 };

static void on_frame(struct front *f, struct wire_frame *m) {
    struct unpack u;
    unpack_init(&u, m->data, m->len);
    if (m->type == ISOLATE_EXITED) {
        struct front_exit e = {.number = unpack_u32(&u), .status = (int)unpack_u32(&u)};
        e.cpu_us = unpack_u64(&u);
        e.cpu_us += unpack_u64(&u);
        e.max_rss_kib = unpack_u64(&u);
        e.minor_faults = unpack_u64(&u);
        e.base_rss_kib = unpack_u64(&u);
        e.shared_kib = unpack_u64(&u);
        NEED(unpack_ok(&u), "malformed EXITED");
        f->exits[f->nexits++ % ARRAY_LEN(f->exits)] = e;
    } else if (m->type == ISOLATE_FEATURES) {
        free(f->features);
        f->features = xstrndup((const char *)m->data, m->len);
    } else if (m->type == ISOLATE_PLAN) {
        NEED(buf_add(&f->plan, m->data, m->len), "a plan that is too long");
    }
}

static bool wait_readable(int fd, int ms) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, ms) > 0;
}

/* The next frame of that type; others are noted. False at the end of the stream. */
static bool next_frame(struct front *f, uint16_t type, struct wire_frame *ret, int64_t until_ms) {
    struct err err;
    for (;;) {
        int rc;
        while ((rc = wire_next(&f->reader, ret, &err)) == 1) {
            if (ret->type == type)
                return true;
            on_frame(f, ret);
            wire_frame_finish(ret);
        }
        int64_t left = until_ms - clock_mono_ms();
        if (left < 0 || !wait_readable(f->control, (int)left))
            return false;
        rc = wire_recv(&f->reader, f->control, &err);
        if (rc < 0)
            return false;
    }
}

void front_start(struct front *f, const char *path, uint32_t flags, uint32_t levers) {
    struct buf none;
    buf_init(&none, 0);
    front_start_planned(f, path, flags, levers, &none);
}

void front_start_planned(struct front *f, const char *path, uint32_t flags, uint32_t levers,
                         const struct buf *plan) {
    front_start_with(f, path, flags, levers, 120, plan);
}

void front_start_with(struct front *f, const char *path, uint32_t flags, uint32_t levers,
                      uint32_t cpu_max_s, const struct buf *plan) {
    *f = (struct front){0};
    buf_init(&f->plan, 1 << 16);
    struct err err;
    int ends[2];
    NEED(fd_pair(ends, &err) == 0, "socketpair");
    f->pid = fork();
    NEED(f->pid >= 0, "fork");
    if (f->pid == 0) {
        if (ends[1] != ISOLATE_CONTROL_FD)
            (void)dup2(ends[1], ISOLATE_CONTROL_FD);
        else
            (void)fd_set_cloexec(ISOLATE_CONTROL_FD, false);
        char *argv[] = {(char *)(uintptr_t)path, NULL};
        char *envp[] = {NULL};
        execve(path, argv, envp);
        _exit(127);
    }
    close(ends[1]);
    f->control = ends[0];
    wire_reader_init(&f->reader, 1 << 20);
    _cleanup_(buf) struct buf b;
    buf_init(&b, 256 + plan->len);
    pack_u32(&b, ISOLATE_VERSION);
    pack_u32(&b, flags);
    pack_u32(&b, levers);
    pack_u64(&b, (uint64_t)2 << 30);
    pack_u32(&b, cpu_max_s);
    pack_bytes(&b, plan->data, plan->len);
    struct wire_out out = {.type = ISOLATE_CONFIG, .pieces = {{b.data, b.len}}};
    NEED(wire_send(f->control, &out) == 0, "send CONFIG");
    struct wire_frame m;
    NEED(next_frame(f, ISOLATE_FEATURES, &m, clock_mono_ms() + START_MS), "no FEATURES");
    on_frame(f, &m);
}

void front_want(struct front *f, uint32_t n) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, 16);
    pack_u32(&b, n);
    struct wire_out out = {.type = ISOLATE_WANT, .pieces = {{b.data, b.len}}};
    NEED(wire_send(f->control, &out) == 0, "send WANT");
}

void front_allow(struct front *f, const struct front_isolate *i) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, 16);
    pack_u32(&b, i->number);
    pack_u32(&b, 1);
    struct wire_out out = {.type = ISOLATE_ALLOW, .pieces = {{b.data, b.len}}};
    NEED(wire_send(f->control, &out) == 0, "send ALLOW");
}

void front_take(struct front *f, struct front_isolate *ret) {
    struct wire_frame m;
    NEED(next_frame(f, ISOLATE_READY, &m, clock_mono_ms() + START_MS), "no READY");
    struct unpack u;
    unpack_init(&u, m.data, m.len);
    *ret = (struct front_isolate){.number = unpack_u32(&u), .pid = (pid_t)unpack_u32(&u)};
    ret->channel = wire_frame_take_fd(&m, 0);
    ret->pidfd = wire_frame_take_fd(&m, 1);
    NEED(unpack_ok(&u) && ret->channel >= 0 && ret->pidfd >= 0, "malformed READY");
    wire_reader_init(&ret->reader, ISOLATE_FRAME_MAX);
}

void front_drop(struct front_isolate *i) {
    (void)syscall(SYS_pidfd_send_signal, i->pidfd, SIGKILL, NULL, 0);
    fd_close(&i->channel);
    fd_close(&i->pidfd);
    wire_reader_finish(&i->reader);
}

void front_poll(struct front *f, int wait_ms) {
    struct wire_frame m;
    (void)next_frame(f, 0, &m, clock_mono_ms() + wait_ms);
}

struct front_exit front_wait_exit(struct front *f, uint32_t number) {
    int64_t until = clock_mono_ms() + START_MS;
    for (;;) {
        size_t have = MIN(f->nexits, ARRAY_LEN(f->exits));
        for (size_t i = 0; i < have; i++)
            if (f->exits[i].number == number)
                return f->exits[i];
        NEED(clock_mono_ms() < until, "no EXITED");
        front_poll(f, 5);
    }
}

void front_stop(struct front *f) {
    fd_close(&f->control);
    int status;
    for (int64_t until = clock_mono_ms() + START_MS; clock_mono_ms() < until;) {
        if (waitpid(f->pid, &status, WNOHANG) == f->pid) {
            f->pid = 0;
            break;
        }
        (void)poll(NULL, 0, 5);
    }
    if (f->pid > 0) {
        fprintf(stderr, "front: the zygote did not end with its control socket\n");
        (void)kill(f->pid, SIGKILL);
        (void)waitpid(f->pid, &status, 0);
        abort();
    }
    wire_reader_finish(&f->reader);
    free(f->features);
    f->features = NULL;
    buf_finish(&f->plan);
}

static uint32_t binding_calls(const struct isolate_run_limits *l) {
    if (l->no_binding_calls)
        return 0;
    return l->binding_calls > 0 ? l->binding_calls : (uint32_t)ISOLATE_DEFAULT_BINDING_CALLS;
}

void front_send_run(struct front_isolate *i, uint64_t id, const struct front_run *run) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, ISOLATE_FRAME_MAX);
    pack_u32(&b, run->flags);
    pack_u32(&b, run->limits.cpu_ms);
    pack_u64(&b, run->limits.memory_bytes);
    pack_u32(&b, run->limits.output_bytes);
    pack_u32(&b, binding_calls(&run->limits));
    pack_u32(&b, run->limits.result_bytes);
    pack_u32(&b, run->limits.wait_until_ms);
    _cleanup_(buf) struct buf program;
    buf_init(&program, ISOLATE_FRAME_MAX);
    if (run->program[0] == '{') {
        (void)buf_add_str(&program, run->program);
    } else {
        _cleanup_(free) char *code = xasprintf(
            "(async function($x,$w){\"use strict\";const $m=await %s({\"cloudflare:workers\":"
            "{WorkerEntrypoint:$w}});$x([$m.default,$m.Admin])})",
            run->program);
        (void)buf_add_str(
            &program,
            "{\"main\":0,\"modules\":[{\"name\":\"user.js\",\"key\":\"user.js\",\"kind\":"
            "\"esm\",\"map\":null,\"args\":[6,0,0,0,1,0],\"flags\":1,\"deps\":[1],\"mutable\":"
            "null,\"exports\":[\"default\",0,0,\"Admin\",0,1],\"code\":");
        json_write_str(&program, code, strlen(code));
        (void)buf_add_str(&program,
                          "},{\"name\":\"cloudflare:workers\",\"key\":\"cloudflare:workers\","
                          "\"kind\":\"builtin\",\"names\":[\"WorkerEntrypoint\"]}]}");
    }
    pack_bytes(&b, program.data, program.len);
    pack_str(&b, run->spec ? run->spec : "{}");
    struct wire_out out = {.type = ISOLATE_RUN,
                           .id = id,
                           .pieces = {{b.data, b.len}},
                           .fds = run->fds,
                           .nfds = run->nfds};
    NEED(wire_send(i->channel, &out) == 0, "send RUN");
}

static void send_call(struct front_isolate *i, uint64_t id, const char *spec, const char *body,
                      const struct isolate_run_limits *limits) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, ISOLATE_FRAME_MAX);
    pack_u32(&b, limits->cpu_ms);
    pack_u32(&b, limits->output_bytes);
    pack_u32(&b, binding_calls(limits));
    pack_str(&b, spec);
    pack_str(&b, body);
    struct wire_out out = {.type = ISOLATE_CALL, .id = id, .pieces = {{b.data, b.len}}};
    NEED(wire_send(i->channel, &out) == 0, "send CALL");
}

void front_send_call(struct front_isolate *i, uint64_t id, const char *spec, const char *body) {
    send_call(i, id, spec, body, &(struct isolate_run_limits){0});
}

void front_send_call_limited(struct front_isolate *i, uint64_t id, const char *spec,
                             const struct isolate_run_limits *limits) {
    send_call(i, id, spec, "", limits);
}

static void on_log(struct front_outcome *o, struct unpack *u) {
    unsigned level = unpack_u8(u);
    (void)unpack_f64(u);
    (void)buf_addf(&o->logs, "%u ", level);
    (void)buf_add(&o->logs, u->at, (size_t)(u->end - u->at));
    (void)buf_add_char(&o->logs, '\n');
    o->nlogs++;
}

static void on_done(struct front_outcome *o, struct unpack *u) {
    o->cpu_us = unpack_u64(u);
    o->peak_bytes = unpack_u64(u);
    o->binding_calls = unpack_u32(u);
    o->output_bytes = unpack_u64(u);
    o->dropped_bytes = unpack_u64(u);
    NEED(unpack_ok(u), "malformed DONE");
    o->done = true;
}

static void on_message(struct front_outcome *o, uint64_t id, const struct wire_frame *m) {
    struct unpack u;
    unpack_init(&u, m->data, m->len);
    if (m->type == ISOLATE_ENDING) {
        o->ending = true;
    } else if (m->type == ISOLATE_RESET_READY) {
        o->reset_ready = true;
        o->reset_restored = unpack_u32(&u);
        o->reset_dropped = unpack_u32(&u);
        o->reset_known = unpack_u32(&u);
    } else if (m->id != id) {
        return;
    } else if (m->type == ISOLATE_LOG) {
        on_log(o, &u);
    } else if (m->type == ISOLATE_RESULT) {
        free(o->result);
        o->result = xstrndup((const char *)m->data, m->len);
    } else if (m->type == ISOLATE_ERROR) {
        free(o->error);
        o->error = xstrndup((const char *)m->data, m->len);
        o->nerrors++;
    } else if (m->type == ISOLATE_RESPONSE) {
        (void)buf_add(&o->response, m->data, m->len);
        (void)buf_add_char(&o->response, '\n');
    } else if (m->type == ISOLATE_BODY) {
        NEED(m->len >= 1 && !o->body_ended, "malformed BODY");
        (void)buf_add(&o->response, m->data + 1, m->len - 1);
        o->body_ended = m->data[0];
        o->npieces++;
    } else if (m->type == ISOLATE_DONE) {
        on_done(o, &u);
    }
}

static void on_binding(const struct front_run *run, size_t i, struct wire_reader *r) {
    struct err err;
    struct wire_frame m;
    if (wire_recv(r, run->facets[i], &err) < 0)
        return;
    while (wire_next(r, &m, &err) == 1) {
        struct unpack u;
        unpack_init(&u, m.data, m.len);
        _cleanup_(free) char *method = unpack_strdup(&u);
        _cleanup_(free) char *args = xstrndup((const char *)u.at, (size_t)(u.end - u.at));
        const char *json = "null";
        uint16_t type = run->answer ? run->answer(run->arg, i, method, args, m.id, &json)
                                    : (uint16_t)ISOLATE_BINDING_RESULT;
        struct wire_out out = {.type = type, .id = m.id, .pieces = {{json, strlen(json)}}};
        if (type != 0)
            (void)wire_send(run->facets[i], &out);
    }
}

void front_finish_run(struct front_isolate *i, uint64_t id, const struct front_run *run,
                      struct front_outcome *ret) {
    *ret = (struct front_outcome){0};
    buf_init(&ret->logs, 8 << 20);
    buf_init(&ret->response, 8 << 20);
    struct wire_reader readers[WIRE_FDS_MAX];
    for (size_t k = 0; k < run->nfds; k++)
        wire_reader_init(&readers[k], ISOLATE_FRAME_MAX);
    int64_t until = clock_mono_ms() + (run->timeout_ms > 0 ? run->timeout_ms : START_MS);
    struct err err;
    while (!ret->done && !ret->closed) {
        struct wire_frame m;
        int rc;
        while (!ret->done && (rc = wire_next(&i->reader, &m, &err)) == 1) {
            NEED(m.nfds == 0, "an isolate sent descriptors");
            on_message(ret, id, &m);
        }
        if (ret->done)
            break;
        NEED(rc == 0, "the isolate broke the contract");
        struct pollfd p[1 + WIRE_FDS_MAX] = {{.fd = i->channel, .events = POLLIN}};
        for (size_t k = 0; k < run->nfds; k++)
            p[1 + k] = (struct pollfd){.fd = run->facets[k], .events = POLLIN};
        int64_t left = until - clock_mono_ms();
        if (left < 0 && !ret->timeout) {
            ret->timeout = true;
            (void)syscall(SYS_pidfd_send_signal, i->pidfd, SIGKILL, NULL, 0);
        }
        (void)poll(p, 1 + run->nfds, left < 0 ? 1000 : (int)left + 1);
        for (size_t k = 0; k < run->nfds; k++)
            if (p[1 + k].revents & POLLIN)
                on_binding(run, k, &readers[k]);
        if (p[0].revents && (rc = wire_recv(&i->reader, i->channel, &err)) < 0)
            ret->closed = true;
    }
    for (size_t k = 0; k < run->nfds; k++)
        wire_reader_finish(&readers[k]);
}

void front_wait_reset(struct front_isolate *i, struct front_outcome *o) {
    struct err err;
    struct wire_frame m;
    while (!o->reset_ready && !o->closed) {
        while (!o->reset_ready && wire_next(&i->reader, &m, &err) == 1)
            on_message(o, 0, &m);
        if (!o->reset_ready &&
            (!wait_readable(i->channel, START_MS) || wire_recv(&i->reader, i->channel, &err) < 0))
            o->closed = true;
    }
}

void front_outcome_finish(struct front_outcome *o) {
    buf_finish(&o->logs);
    buf_finish(&o->response);
    free(o->result);
    free(o->error);
    o->result = o->error = NULL;
}
