#include "isolate/warm.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "isolate/embed.h"
#include "wire/isolate.h"
#include "wire/pack.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

/* As the front writes them: the first is what most runs have. What none of these makes the prelude
 * do each isolate would compile anew, and write to pages that are not ready. */
static const char *const specs[] = {
    "{\"env\":{\"db\":{\"fd\":0,\"kind\":\"facet\"}},\"verify\":true}",
    "{\"env\":{\"db\":{\"fd\":0,\"kind\":\"facet\",\"methods\":[\"query\",\"execute\"]},"
    "\"WORD\":{\"json\":\"warm\"}},\"verify\":true,\"method\":\"run\",\"args\":[],\"props\":{}}",
};
static const char rows[] = "{\"columns\":[\"id\",\"name\"],\"rows\":[[1,\"one\"],[2,\"two\"]]}";

enum { STEPS_MAX = 10000, FRAME_MAX = 1 << 20 };

struct driver {
    int channel;
    int facet;
    struct wire_reader from_isolate;
    struct wire_reader from_facet;
    bool done;
    bool failed;
};

static int send_run(int channel, int facet_end, const char *program, const char *spec,
                    struct err *err) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, FRAME_MAX);
    pack_u32(&b, 0);
    pack_u32(&b, 0);
    pack_u64(&b, 0);
    pack_u32(&b, 0);
    pack_u32(&b, ISOLATE_DEFAULT_BINDING_CALLS);
    pack_u32(&b, 0);
    pack_u32(&b, 0);
    pack_str(&b, program);
    pack_str(&b, spec);
    struct wire_out out = {
        .type = ISOLATE_RUN, .id = 1, .pieces = {{b.data, b.len}}, .fds = &facet_end, .nfds = 1};
    return wire_send(channel, &out) < 0 ? err_sys(err, "warm-up: send") : 0;
}

static int warm_answer(struct driver *d, struct err *err) {
    int rc = wire_recv(&d->from_facet, d->facet, err);
    struct wire_frame f;
    while (rc >= 0 && (rc = wire_next(&d->from_facet, &f, err)) == 1) {
        struct wire_out out = {
            .type = ISOLATE_BINDING_RESULT, .id = f.id, .pieces = {{rows, sizeof(rows) - 1}}};
        if (wire_send(d->facet, &out) < 0)
            return err_sys(err, "warm-up: answer");
    }
    if (rc != -ERR_CANCELLED)
        return rc;
    d->facet = -1; /* it is closed: nothing more comes, and poll() is not to say so all the time */
    return 0;
}

static int listen_to(struct driver *d, struct err *err) {
    int rc = wire_recv(&d->from_isolate, d->channel, err);
    struct wire_frame f;
    while (rc >= 0 && (rc = wire_next(&d->from_isolate, &f, err)) == 1) {
        /* An isolate of its own says hello first. */
        if (f.type == ISOLATE_ERROR)
            rc = err_set(err, ERR_INTERNAL, "warm-up: %.*s", (int)MIN(f.len, (size_t)400),
                         (const char *)f.data);
        d->done = d->done || f.type == ISOLATE_DONE;
    }
    return rc;
}

/* One exchange: waits at most wait_ms for the isolate or its facet calls. */
static int isolate_warm_drive(struct driver *d, int wait_ms, struct err *err) {
    struct pollfd p[2] = {{.fd = d->channel, .events = POLLIN}, {.fd = d->facet, .events = POLLIN}};
    if (poll(p, 2, wait_ms) < 0 && errno != EINTR)
        return err_sys(err, "warm-up: poll");
    int rc = p[1].revents & POLLIN ? warm_answer(d, err) : 0;
    if (rc >= 0 && p[0].revents)
        rc = listen_to(d, err);
    return rc;
}

static void driver_init(struct driver *d, int channel, int facet) {
    *d = (struct driver){.channel = channel, .facet = facet};
    wire_reader_init(&d->from_isolate, FRAME_MAX);
    wire_reader_init(&d->from_facet, FRAME_MAX);
}

static void driver_finish(struct driver *d) {
    wire_reader_finish(&d->from_isolate);
    wire_reader_finish(&d->from_facet);
}

int warm_drive(int channel, const char *program, struct err *err) {
    int facet[2];
    int rc = fd_pair(facet, err);
    if (rc < 0)
        return rc;
    struct driver d;
    driver_init(&d, channel, facet[0]);
    rc = send_run(channel, facet[1], program, specs[0], err);
    close(facet[1]);
    for (int i = 0; i < STEPS_MAX && rc >= 0 && !d.done; i++)
        rc = isolate_warm_drive(&d, 1000, err);
    driver_finish(&d);
    close(facet[0]);
    if (rc >= 0 && !d.done)
        return err_set(err, ERR_TIMEOUT, "warm-up: the isolate does not answer");
    return rc < 0 ? rc : 0;
}

static int run_once(struct isolate *iso, const char *program, const char *spec, struct err *err) {
    int channel[2];
    int facet[2];
    int rc = fd_pair(channel, err);
    if (rc < 0)
        return rc;
    if ((rc = fd_pair(facet, err)) < 0) {
        close(channel[0]);
        close(channel[1]);
        return rc;
    }
    struct driver d;
    driver_init(&d, channel[0], facet[0]);
    isolate_open(iso, channel[1], &(struct memory_start){.statm_fd = -1, .pages_fd = -1});
    rc = send_run(channel[0], facet[1], program, spec, err);
    for (int i = 0; i < STEPS_MAX && rc >= 0 && !d.done; i++) {
        (void)isolate_step(iso, 1);
        rc = isolate_warm_drive(&d, 0, err);
    }
    isolate_close(iso);
    driver_finish(&d);
    close(facet[0]);
    close(facet[1]);
    close(channel[0]);
    close(channel[1]);
    if (rc >= 0 && !d.done)
        return err_set(err, ERR_TIMEOUT, "warm-up: the engine does not answer");
    return rc < 0 ? rc : 0;
}

int warm_up(struct isolate *iso, const char *program, int runs, struct err *err) {
    for (int i = 0; i < runs; i++) {
        int rc = run_once(iso, program, specs[(size_t)i % ARRAY_LEN(specs)], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}
