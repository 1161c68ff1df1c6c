/* What a cold isolate costs. Plays the front: starts cay-isolate, keeps a pool of ready isolates
 * and runs code that no isolate has seen: two modules, one binding call, a console line, a timer, a
 * JSON result. Variants (sets of levers) take turns, so that a slow minute hits all of them.
 *
 * usage: isolate-core CAY-ISOLATE PROGRAM.json [-n runs] [-r rounds] [-c concurrency] [-p pool]
 *                     [-g gap_us] [-R] LEVERS...
 * LEVERS is a number (see enum isolate_lever), or "all" or "none". -R reuses isolates that put their memory back. PROGRAM.json is a linked program in which every __N__ becomes a number. */

#include "front.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/mem.h"
#include "wire/pack.h"

#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { VARIANTS_MAX = 8, SLOTS_MAX = 64, READY_MAX = 128 };

static const char rows[] =
    "{\"columns\":[\"id\",\"name\",\"tier\"],\"rows\":[[1,\"alice chen\",\"Gold\"],[2,\"bob "
    "martinez\",\"Silver\"],[3,\"carol johnson\",\"Bronze\"],[4,\"dave kim\",\"Gold\"]]}";
static const char spec[] = "{\"env\":{\"db\":{\"fd\":0,\"kind\":\"facet\",\"methods\":[\"query\","
                           "\"execute\",\"getAllCustomers\"]}}}";

struct options {
    const char *program;
    int runs, rounds, concurrency, pool, gap_us;
    bool reset;
    char *template;
};

struct slot {
    struct front_isolate isolate;
    int facet;
    struct wire_reader facet_reader;
    int64_t begin_ns;
    bool busy, answered, done;
};

struct variant {
    char name[32];
    uint32_t levers;
    struct front front;
    struct front_isolate ready[READY_MAX];
    size_t nready;
    int pending; /* wanted and not here yet */
    struct slot slots[SLOTS_MAX];
    double *latency_us;
    size_t ndone, nfailed, nexits;
    uint64_t isolate_cpu_us, isolate_faults, zygote_cpu_us;
    uint64_t run_faults, run_samples;
    double again_us; /* until a reset isolate was ready again, in all */
    int64_t busy_ns; /* time this variant was running */
};

static uint64_t counter = 100000;

static void die(const char *what) {
    fprintf(stderr, "isolate-core: %s\n", what);
    exit(1);
}

static char *replace(const char *text, uint64_t n) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, ISOLATE_FRAME_MAX);
    for (const char *p = text; *p;) {
        const char *hit = strstr(p, "__N__");
        if (!hit) {
            (void)buf_add_str(&b, p);
            break;
        }
        (void)buf_add(&b, p, (size_t)(hit - p));
        (void)buf_addf(&b, "%llu", (unsigned long long)n);
        p = hit + 5;
    }
    return buf_steal(&b, NULL);
}

static uint64_t process_cpu_us(pid_t pid) {
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
    _cleanup_(buf) struct buf b;
    buf_init(&b, 4096);
    struct err err;
    if (fd_read_file(AT_FDCWD, path, &b, &err) < 0)
        return 0;
    return strtoull(b.data, NULL, 10) / 1000;
}

static uint64_t process_faults(pid_t pid) {
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    _cleanup_(buf) struct buf b;
    buf_init(&b, 4096);
    struct err err;
    if (fd_read_file(AT_FDCWD, path, &b, &err) < 0)
        return 0;
    char *p = strrchr(b.data, ')');
    for (int field = 2; p && field < 10; field++)
        p = strchr(p + 1, ' ');
    return p ? strtoull(p + 1, NULL, 10) : 0;
}

static long smaps_kib(pid_t pid, const char *key) {
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
    _cleanup_(buf) struct buf b;
    buf_init(&b, 65536);
    struct err err;
    if (fd_read_file(AT_FDCWD, path, &b, &err) < 0)
        return -1;
    char *p = strstr(b.data, key);
    return p ? strtol(p + strlen(key), NULL, 10) : -1;
}

/* Takes what control has: new isolates, exits. */
static void read_control(struct variant *v) {
    struct err err;
    struct wire_frame f;
    if (wire_recv(&v->front.reader, v->front.control, &err) < 0)
        die("the zygote is gone");
    while (wire_next(&v->front.reader, &f, &err) == 1) {
        struct unpack u;
        unpack_init(&u, f.data, f.len);
        if (f.type == ISOLATE_READY) {
            struct front_isolate *i = &v->ready[v->nready++];
            *i = (struct front_isolate){.number = unpack_u32(&u), .pid = (pid_t)unpack_u32(&u)};
            i->channel = wire_frame_take_fd(&f, 0);
            i->pidfd = wire_frame_take_fd(&f, 1);
            wire_reader_init(&i->reader, ISOLATE_FRAME_MAX);
            v->pending--;
        } else if (f.type == ISOLATE_EXITED) {
            (void)unpack_u32(&u);
            (void)unpack_u32(&u);
            v->isolate_cpu_us += unpack_u64(&u);
            v->isolate_cpu_us += unpack_u64(&u);
            (void)unpack_u64(&u);
            v->isolate_faults += unpack_u64(&u);
            v->nexits++;
        }
        wire_frame_finish(&f);
    }
}

static void begin(struct variant *v, struct slot *s, const struct options *o) {
    if (!s->isolate.pidfd)
        s->isolate = v->ready[--v->nready];
    int ends[2];
    struct err err;
    if (fd_pair(ends, &err) < 0)
        die(err.message);
    s->facet = ends[0];
    wire_reader_init(&s->facet_reader, 1 << 20);
    _cleanup_(free) char *program = replace(o->template, counter++);
    struct front_run run = {.flags = o->reset ? ISOLATE_RUN_RESET : 0,
                            .program = program,
                            .spec = spec,
                            .fds = {ends[1]},
                            .nfds = 1};
    if (o->concurrency == 1)
        v->run_faults -= process_faults(s->isolate.pid);
    if (o->reset)
        v->isolate_cpu_us -= process_cpu_us(s->isolate.pid);
    s->begin_ns = clock_mono_ns();
    front_send_run(&s->isolate, 1, &run);
    close(ends[1]);
    s->busy = true;
    s->answered = s->done = false;
}

static void finish(struct variant *v, struct slot *s, const struct options *o, bool ok) {
    if (!s->answered)
        v->latency_us[v->ndone] = (double)(clock_mono_ns() - s->begin_ns) / 1e3;
    v->ndone++;
    v->nfailed += !ok;
    if (o->concurrency == 1) {
        v->run_faults += process_faults(s->isolate.pid);
        v->run_samples++;
    }
    if (o->reset) {
        v->isolate_cpu_us += process_cpu_us(s->isolate.pid);
        v->again_us += (double)(clock_mono_ns() - s->begin_ns) / 1e3;
        v->nexits++;
    }
    close(s->facet);
    wire_reader_finish(&s->facet_reader);
    s->busy = false;
    if (o->reset && ok)
        return;
    front_drop(&s->isolate);
    s->isolate.pidfd = 0;
}

static void read_isolate(struct variant *v, struct slot *s, const struct options *o) {
    struct err err;
    struct wire_frame f;
    if (wire_recv(&s->isolate.reader, s->isolate.channel, &err) < 0) {
        fprintf(stderr, "isolate ended\n");
        finish(v, s, o, false);
        return;
    }
    bool ok = false;
    bool end = false;
    while (wire_next(&s->isolate.reader, &f, &err) == 1) {
        if (f.type == ISOLATE_RESULT) {
            v->latency_us[v->ndone] = (double)(clock_mono_ns() - s->begin_ns) / 1e3;
            s->answered = true;
            ok = f.len > 50;
            end = end || !o->reset;
        } else if (f.type == ISOLATE_ERROR) {
            fprintf(stderr, "%.*s\n", (int)f.len, (const char *)f.data);
            end = true;
        } else if (f.type == ISOLATE_RESET_READY) {
            ok = s->answered;
            end = true;
        }
    }
    if (end)
        finish(v, s, o, ok);
}

static void read_facet(struct slot *s) {
    struct err err;
    struct wire_frame f;
    if (wire_recv(&s->facet_reader, s->facet, &err) < 0)
        return;
    while (wire_next(&s->facet_reader, &f, &err) == 1) {
        struct wire_out out = {.type = ISOLATE_BINDING_RESULT,
                               .id = f.id,
                               .pieces = {{rows, sizeof(rows) - 1}}};
        (void)wire_send(s->facet, &out);
    }
}

static void refill(struct variant *v, const struct options *o, size_t busy) {
    int want = o->reset ? o->concurrency - (int)busy : o->pool;
    for (int i = 0; i < SLOTS_MAX && o->reset; i++)
        want -= v->slots[i].isolate.pidfd && !v->slots[i].busy;
    int lack = want - (int)v->nready - v->pending;
    if (lack > 0) {
        front_want(&v->front, (uint32_t)lack);
        v->pending += lack;
    }
}

/* Waits until the pool is full, so that what is measured is the run, not the refill. */
static void settle(struct variant *v, const struct options *o) {
    refill(v, o, 0);
    while (v->pending > 0) {
        struct pollfd p = {.fd = v->front.control, .events = POLLIN};
        (void)poll(&p, 1, 1000);
        if (p.revents)
            read_control(v);
    }
}

static void turn(struct variant *v, const struct options *o, int runs) {
    settle(v, o);
    int64_t begin_ns = clock_mono_ns();
    uint64_t cpu = process_cpu_us(v->front.pid);
    size_t until = v->ndone + (size_t)runs;
    int started = 0;
    while (v->ndone < until) {
        size_t busy = 0;
        for (int i = 0; i < o->concurrency; i++)
            busy += v->slots[i].busy;
        for (int i = 0; i < o->concurrency && started < runs; i++) {
            struct slot *s = &v->slots[i];
            if (s->busy || (!s->isolate.pidfd && v->nready == 0))
                continue;
            if (o->gap_us > 0) {
                settle(v, o);
                (void)usleep((useconds_t)o->gap_us);
            }
            begin(v, s, o);
            started++;
            busy++;
        }
        if (o->gap_us == 0)
            refill(v, o, busy);
        struct pollfd p[1 + 2 * SLOTS_MAX];
        struct slot *who[1 + 2 * SLOTS_MAX];
        nfds_t n = 0;
        p[n++] = (struct pollfd){.fd = v->front.control, .events = POLLIN};
        for (int i = 0; i < o->concurrency; i++)
            if (v->slots[i].busy) {
                who[n] = &v->slots[i];
                p[n++] = (struct pollfd){.fd = v->slots[i].facet, .events = POLLIN};
                who[n] = &v->slots[i];
                p[n++] = (struct pollfd){.fd = v->slots[i].isolate.channel, .events = POLLIN};
            }
        if (poll(p, n, 10000) == 0)
            die("nothing happens");
        for (nfds_t k = 1; k < n; k += 2) {
            if (p[k].revents & POLLIN)
                read_facet(who[k]);
            if (p[k + 1].revents)
                read_isolate(v, who[k], o);
        }
        if (p[0].revents)
            read_control(v);
    }
    v->busy_ns += clock_mono_ns() - begin_ns;
    v->zygote_cpu_us += process_cpu_us(v->front.pid) - cpu;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(struct variant *v, const struct options *o) {
    while (v->nexits < v->ndone && !o->reset) {
        struct pollfd p = {.fd = v->front.control, .events = POLLIN};
        if (poll(&p, 1, 2000) <= 0)
            break;
        read_control(v);
    }
    qsort(v->latency_us, v->ndone, sizeof(double), by_value);
    double n = (double)v->ndone;
    printf("%-10s c%-2d NEW%s n %zu: p50 %.2f p90 %.2f p99 %.2f ms | %.0f/s", v->name,
           o->concurrency, o->reset ? " reset" : "", v->ndone,
           v->latency_us[v->ndone / 2] / 1e3, v->latency_us[v->ndone * 9 / 10] / 1e3,
           v->latency_us[v->ndone * 99 / 100] / 1e3, n / ((double)v->busy_ns / 1e9));
    printf(" | cpu isolate %.2f + zygote %.2f ms/run | faults %.0f/isolate",
           v->nexits ? (double)v->isolate_cpu_us / (double)v->nexits / 1e3 : 0.0,
           (double)v->zygote_cpu_us / n / 1e3,
           v->nexits ? (double)v->isolate_faults / (double)v->nexits : 0.0);
    if (v->run_samples)
        printf(", %.0f while running", (double)v->run_faults / (double)v->run_samples);
    if (o->reset)
        printf(" | ready again after %.2f ms", v->again_us / n / 1e3);
    printf(" | failed %zu\n", v->nfailed);
}

static void report_memory(struct variant *v, const struct options *o) {
    struct options idle = *o;
    idle.pool = MAX(o->pool, 8);
    idle.reset = false;
    settle(v, &idle);
    long pss = 0;
    long dirty = 0;
    for (size_t i = 0; i < v->nready; i++) {
        pss += smaps_kib(v->ready[i].pid, "\nPss:");
        dirty += smaps_kib(v->ready[i].pid, "Private_Dirty:");
    }
    long n = (long)v->nready;
    printf("%-10s idle isolate (of %ld): PSS %ld KiB, private dirty %ld KiB; zygote RSS %ld KiB\n",
           v->name, n, pss / n, dirty / n, smaps_kib(v->front.pid, "Rss:"));
}

static struct options parse(int argc, char **argv) {
    struct options o = {.program = argc > 1 ? argv[1] : NULL,
                        .runs = 400,
                        .rounds = 5,
                        .concurrency = 1,
                        .pool = 4};
    if (argc < 3)
        die("usage: see the head of bench/isolate_core.c");
    struct buf text;
    struct err err;
    buf_init(&text, ISOLATE_FRAME_MAX);
    if (fd_read_file(AT_FDCWD, argv[2], &text, &err) < 0)
        die(err.message);
    o.template = buf_steal(&text, NULL);
    optind = 3;
    int c;
    while ((c = getopt(argc, argv, "n:r:c:p:g:R")) != -1)
        switch (c) {
        case 'n': o.runs = (int)strtol(optarg, NULL, 10); break;
        case 'r': o.rounds = (int)strtol(optarg, NULL, 10); break;
        case 'c': o.concurrency = (int)strtol(optarg, NULL, 10); break;
        case 'p': o.pool = (int)strtol(optarg, NULL, 10); break;
        case 'g': o.gap_us = (int)strtol(optarg, NULL, 10); break;
        case 'R': o.reset = true; break;
        default: die("unknown option");
        }
    if (o.runs < 1 || o.runs > 1000000 || o.rounds < 1 || o.concurrency < 1 ||
        o.concurrency > SLOTS_MAX || o.pool < 1 || o.pool > READY_MAX / 2)
        die("a number is out of range");
    return o;
}

int main(int argc, char **argv) {
    struct options o = parse(argc, argv);
    static struct variant variants[VARIANTS_MAX];
    size_t n = 0;
    for (int i = optind; i < argc && n < VARIANTS_MAX; i++) {
        struct variant *v = &variants[n++];
        (void)snprintf(v->name, sizeof(v->name), "%s", argv[i]);
        v->levers = strcmp(argv[i], "all") == 0    ? (uint32_t)ISOLATE_LEVER_ALL
                    : strcmp(argv[i], "none") == 0 ? 0
                                                   : (uint32_t)strtoul(argv[i], NULL, 0);
        v->latency_us = xcalloc((size_t)o.runs + 64, sizeof(double));
        front_start(&v->front, o.program, o.reset ? ISOLATE_CONFIG_RESET : 0, v->levers);
        printf("%-10s %s\n", v->name, v->front.features);
    }
    int each = MAX(1, o.runs / o.rounds);
    for (int r = 0; r < o.rounds; r++)
        for (size_t i = 0; i < n; i++)
            turn(&variants[i], &o, each);
    for (size_t i = 0; i < n; i++)
        report(&variants[i], &o);
    for (size_t i = 0; i < n; i++)
        report_memory(&variants[i], &o);
    for (size_t i = 0; i < n; i++)
        front_stop(&variants[i].front);
    return 0;
}
