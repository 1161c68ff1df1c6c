/* Sandboxes side by side: a plain process, ours, bubblewrap and crun take turns in one run, so that
 * all meet the same machine. Run as root for crun; prints medians and 90th percentiles.
 *
 *   build/bench/bench-sandbox build/cay-sandbox [rounds] */

#include "client.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DATA = 65536, ROUNDS_MAX = 2000, BURST = 100, IDLE = 200 };

extern char **environ;

static char data[DATA];
static char bundle[64];
static const char *const script = "cat > f && wc -c f && cat f";

static _Noreturn void die(const char *what, const struct err *err) {
    (void)fprintf(stderr, "bench: %s: %s\n", what, err ? err->message : strerror(errno));
    exit(1);
}

static char crun_name[64];
static char *crun_argv[] = {"/usr/bin/crun",
                            "--cgroup-manager=disabled",
                            "run",
                            "--bundle",
                            bundle,
                            "--config",
                            NULL,
                            crun_name,
                            NULL};
static char crun_true_config[96], crun_data_config[96];

/* crun refuses a machine that has both cgroup versions: it gets a mount namespace with one. */
static int crun_ns = -1;

static void make_crun_ns(void) {
    pid_t pid = fork();
    int status;
    if (pid < 0)
        die("fork", NULL);
    if (pid == 0) {
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
            _exit(1);
        (void)umount2("/sys/fs/cgroup", MNT_DETACH);
        if (mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, NULL) < 0)
            _exit(1);
        (void)raise(SIGSTOP);
        _exit(0);
    }
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
    if (waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status))
        crun_ns = open(path, O_RDONLY | O_CLOEXEC);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

/* ---- others: fork, exec, feed, drain, wait ---- */

static void run_process(char *const *argv, bool with_data) {
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    if (with_data && (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0))
        die("pipe", NULL);
    if (with_data)
        (void)fcntl(in[1], F_SETPIPE_SZ, DATA);
    pid_t pid = fork();
    if (pid < 0)
        die("fork", NULL);
    if (pid == 0) {
        if (with_data) {
            dup2(in[0], 0);
            dup2(out[1], 1);
        }
        if (argv == crun_argv && crun_ns >= 0 && setns(crun_ns, CLONE_NEWNS) < 0)
            _exit(126);
        execv(argv[0], argv);
        _exit(127);
    }
    size_t got = 0;
    if (with_data) {
        close(in[0]);
        close(out[1]);
        if (fd_write_all(in[1], data, DATA) < 0)
            die("feed", NULL);
        close(in[1]);
        char chunk[DATA];
        for (ssize_t n; (n = read(out[0], chunk, sizeof(chunk))) > 0;)
            got += (size_t)n;
        close(out[0]);
    }
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            die("wait", NULL);
    if (status != 0 || (with_data && got < DATA)) {
        (void)fprintf(stderr, "bench: %s: status %d, %zu bytes\n", argv[0], status, got);
        exit(1);
    }
}

#define BWRAP_ARGS                                                                                 \
    "/usr/bin/bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--ro-bind",      \
        "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",            \
        "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", \
        "--tmpfs", "/work", "--chdir", "/work", "--clearenv", "--setenv", "PATH", "/usr/bin"

static char plain_dir[64];
static char *plain_true[] = {"/usr/bin/true", NULL};
static char *plain_data[] = {"/bin/sh", "-c", NULL, NULL};
static char *bwrap_true[] = {BWRAP_ARGS, "/usr/bin/true", NULL};
static char *bwrap_data[] = {BWRAP_ARGS, "/bin/sh", "-c", NULL, NULL};
static void write_config(const char *path, const char *args) {
    FILE *f = fopen(path, "we");
    if (!f)
        die(path, NULL);
    (void)fprintf(
        f,
        "{\"ociVersion\":\"1.0.0\",\"process\":{\"terminal\":false,\"user\":{\"uid\":1000,\"gid\":"
        "1000},\"args\":%s,\"env\":[\"PATH=/usr/bin\"],\"cwd\":\"/work\",\"noNewPrivileges\":true,"
        "\"capabilities\":{}},\"root\":{\"path\":\"rootfs\",\"readonly\":true},\"hostname\":\"c\","
        "\"mounts\":[{\"destination\":\"/proc\",\"type\":\"proc\",\"source\":\"proc\"},"
        "{\"destination\":\"/dev\",\"type\":\"tmpfs\",\"source\":\"tmpfs\",\"options\":[\"nosuid\","
        "\"mode=755\",\"size=65536k\"]},{\"destination\":\"/usr\",\"type\":\"bind\",\"source\":"
        "\"/usr\",\"options\":[\"rbind\",\"ro\"]},{\"destination\":\"/tmp\",\"type\":\"tmpfs\","
        "\"source\":\"tmpfs\",\"options\":[\"mode=1777\"]},{\"destination\":\"/work\",\"type\":"
        "\"tmpfs\",\"source\":\"tmpfs\",\"options\":[\"mode=1777\"]}],\"linux\":{\"namespaces\":[{"
        "\"type\":\"pid\"},{\"type\":\"network\"},{\"type\":\"ipc\"},{\"type\":\"uts\"},{\"type\":"
        "\"mount\"},{\"type\":\"cgroup\"}]}}",
        args);
    (void)fclose(f);
}

static bool make_bundle(void) {
    struct stat st;
    if (stat("/usr/bin/crun", &st) < 0 || geteuid() != 0)
        return false;
    (void)snprintf(bundle, sizeof(bundle), "/tmp/cay-bench-XXXXXX");
    if (!mkdtemp(bundle))
        die("mkdtemp", NULL);
    char path[128];
    static const char *const dirs[] = {"rootfs",      "rootfs/usr", "rootfs/proc", "rootfs/dev",
                                       "rootfs/work", "rootfs/tmp", "rootfs/sys"};
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", bundle, dirs[i]);
        (void)mkdir(path, 0755);
    }
    static const char *const links[][2] = {
        {"usr/bin", "bin"}, {"usr/lib", "lib"}, {"usr/lib64", "lib64"}};
    for (size_t i = 0; i < ARRAY_LEN(links); i++) {
        (void)snprintf(path, sizeof(path), "%s/rootfs/%s", bundle, links[i][1]);
        if (symlink(links[i][0], path) < 0)
            die(path, NULL);
    }
    (void)snprintf(crun_true_config, sizeof(crun_true_config), "%s/true.json", bundle);
    (void)snprintf(crun_data_config, sizeof(crun_data_config), "%s/data.json", bundle);
    make_crun_ns();
    write_config(crun_true_config, "[\"/usr/bin/true\"]");
    char args[128];
    (void)snprintf(args, sizeof(args), "[\"/bin/sh\",\"-c\",\"%s\"]", script);
    write_config(crun_data_config, args);
    return true;
}

static void run_crun(bool with_data) {
    static unsigned n;
    (void)snprintf(crun_name, sizeof(crun_name), "cay-bench-%d-%u", (int)getpid(), n++);
    crun_argv[6] = with_data ? crun_data_config : crun_true_config;
    run_process(crun_argv, with_data);
}

/* ---- ours ---- */

static void start_exec(struct guest *g, bool with_data, bool final, int in, int out) {
    struct sandbox_exec e = {.final = final};
    sandbox_strv_add(&e.argv, with_data ? "/bin/sh" : "/usr/bin/true");
    if (with_data) {
        sandbox_strv_add(&e.argv, "-c");
        sandbox_strv_add(&e.argv, script);
        e.in = e.out = SANDBOX_STREAM_FD;
    }
    struct buf b;
    buf_init(&b, 65536);
    pack_sandbox_exec(&b, &e);
    int fds[2] = {in, out};
    if (guest_send(g, INIT_EXEC, 1, &b, fds, with_data ? 2 : 0) < 0)
        die("exec", NULL);
    buf_finish(&b);
    sandbox_exec_finish(&e);
}

static void finish_exec(struct guest *g) {
    struct err err = {0};
    for (;;) {
        struct wire_frame f;
        if (guest_read(g, &f, &err) < 0)
            die("exec", &err);
        struct unpack u;
        unpack_init(&u, f.data, f.len);
        if (f.type == INIT_ERROR) {
            (void)unpack_sandbox_error(&u, &err);
            die("exec", &err);
        }
        bool ended = f.type == INIT_EXITED;
        struct sandbox_exit e = {0};
        if (ended)
            unpack_sandbox_exit(&u, &e);
        wire_frame_finish(&f);
        if (ended && (e.signaled || e.code != 0)) {
            (void)fprintf(stderr, "bench: exit %u\n", e.code);
            exit(1);
        }
        if (ended)
            return;
    }
}

static void exec_in(struct guest *g, bool with_data, bool final) {
    if (!with_data) {
        start_exec(g, false, final, -1, -1);
        finish_exec(g);
        return;
    }
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
        die("pipe", NULL);
    (void)fcntl(in[1], F_SETPIPE_SZ, DATA);
    start_exec(g, true, final, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    if (fd_write_all(in[1], data, DATA) < 0)
        die("feed", NULL);
    close(in[1]);
    char chunk[DATA];
    size_t got = 0;
    for (ssize_t n; (n = read(out[0], chunk, sizeof(chunk))) > 0;)
        got += (size_t)n;
    close(out[0]);
    finish_exec(g);
    if (got < DATA)
        die("short", NULL);
}

static void create(struct client *c, struct guest *g, const char *id) {
    struct err err;
    struct sandbox_spec spec = {.id = (char *)(uintptr_t)id};
    if (client_create(c, &spec, NULL, g, &err) < 0)
        die("create", &err);
}

static void destroy(struct client *c, struct guest *g) {
    struct err err;
    if (client_destroy(c, g, &err) < 0)
        die("destroy", &err);
}

/* A sandbox whose command was its last: waits until every process is gone. */
static void gone(struct client *c, struct guest *g) {
    struct err err;
    if (client_wait_exited(c, g->id, &err) < 0)
        die("end", &err);
    guest_close(g);
}

/* ---- the table ---- */

enum { PLAIN, EXEC, POOLED, FULL, COLD, BWRAP, CRUN, KINDS };
static const char *const names[KINDS] = {"plain fork+exec",
                                         "exec in a running sandbox",
                                         "pooled: create + first command",
                                         "full: create + run + destroy",
                                         "the same, no box made ahead",
                                         "bubblewrap (no seccomp, no limits)",
                                         "crun (no seccomp, no limits)"};
static int64_t times[KINDS][ROUNDS_MAX];

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

struct launchers {
    struct client pooled; /* has locked boxes */
    struct client full;   /* only blank ones, as always */
    struct client cold;   /* none */
};

static void live_in(struct client *c, bool with_data) {
    struct guest g;
    create(c, &g, "full");
    exec_in(&g, with_data, true);
    gone(c, &g);
}

static void table(struct launchers *l, int rounds, bool with_data, bool crun) {
    struct guest live, g;
    create(&l->cold, &live, "live");
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < KINDS; k++) {
            if (k == CRUN && !crun)
                continue;
            if (k >= POOLED)
                (void)poll(NULL, 0, 12); /* what is made ahead is made in nobody's time */
            int64_t t = clock_mono_ns();
            switch (k) {
            case PLAIN:
                run_process(with_data ? plain_data : plain_true, with_data);
                break;
            case EXEC:
                exec_in(&live, with_data, false);
                break;
            case POOLED:
                create(&l->pooled, &g, "pooled");
                exec_in(&g, with_data, false);
                break;
            case FULL:
                live_in(&l->full, with_data);
                break;
            case COLD:
                live_in(&l->cold, with_data);
                break;
            case BWRAP:
                run_process(with_data ? bwrap_data : bwrap_true, with_data);
                break;
            default:
                run_crun(with_data);
            }
            times[k][i] = clock_mono_ns() - t;
            if (k == POOLED)
                destroy(&l->pooled, &g);
        }
    }
    destroy(&l->cold, &live);
    /* p10 is what the code costs; the others tell what a busy machine makes of it. */
    (void)printf("\n%-38s %8s %8s %8s %8s %8s\n", with_data ? "sh: write 64 KiB, wc, cat" : "true",
                 "p10 ms", "p50 ms", "p90 ms", "x plain", "at p10");
    double base = 0, bwrap = 0, full = 0, base10 = 0, bwrap10 = 0, full10 = 0;
    for (int k = 0; k < KINDS; k++) {
        if (k == CRUN && !crun)
            continue;
        qsort(times[k], (size_t)rounds, sizeof(int64_t), by_value);
        double p10 = (double)times[k][rounds / 10] / 1e6, p50 = (double)times[k][rounds / 2] / 1e6;
        double p90 = (double)times[k][rounds * 9 / 10] / 1e6;
        if (k == PLAIN) {
            base = p50;
            base10 = p10;
        }
        if (k == FULL) {
            full = p50;
            full10 = p10;
        }
        if (k == BWRAP) {
            bwrap = p50;
            bwrap10 = p10;
        }
        (void)printf("%-38s %8.3f %8.3f %8.3f %8.2f %8.2f\n", names[k], p10, p50, p90, p50 / base,
                     p10 / base10);
    }
    (void)printf("bubblewrap / full = %.2f at p50, %.2f at p10\n", bwrap / full, bwrap10 / full10);
}

static void burst(struct client *c, const char *what) {
    static struct guest guests[BURST];
    char id[32];
    int64_t t = clock_mono_ns();
    for (int i = 0; i < BURST; i++) {
        (void)snprintf(id, sizeof(id), "b%d", i);
        create(c, &guests[i], id);
        start_exec(&guests[i], false, false, -1, -1);
    }
    for (int i = 0; i < BURST; i++)
        finish_exec(&guests[i]);
    double ran = (double)(clock_mono_ns() - t) / 1e6;
    for (int i = 0; i < BURST; i++)
        destroy(c, &guests[i]);
    (void)printf("%-38s %9.1f ms to the last exit, %.1f ms with destroy\n", what, ran,
                 (double)(clock_mono_ns() - t) / 1e6);
}

static void burst_others(void) {
    pid_t pids[BURST];
    int64_t t = clock_mono_ns();
    for (int i = 0; i < BURST; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            execv(bwrap_true[0], bwrap_true);
            _exit(127);
        }
    }
    for (int i = 0; i < BURST; i++)
        while (waitpid(pids[i], NULL, 0) < 0 && errno == EINTR)
            ;
    (void)printf("%-38s %9.1f ms to the last exit\n", "burst of 100, bubblewrap",
                 (double)(clock_mono_ns() - t) / 1e6);
}

/* Processor time of this process and everything it has waited for. */
static double cpu_ms(void) {
    struct rusage a, b;
    (void)getrusage(RUSAGE_SELF, &a);
    (void)getrusage(RUSAGE_CHILDREN, &b);
    const struct timeval *t[] = {&a.ru_utime, &a.ru_stime, &b.ru_utime, &b.ru_stime};
    double ms = 0;
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        ms += (double)t[i]->tv_sec * 1e3 + (double)t[i]->tv_usec / 1e3;
    return ms;
}

/* The same work in processor time, which a busy machine changes little. */
static void cpu_cost(const char *program, int rounds, bool crun) {
    struct err err;
    double cost[KINDS] = {0};
    for (int k = 0; k < KINDS; k++) {
        struct client c;
        struct guest g;
        if (k == POOLED || k == COLD || (k == CRUN && !crun))
            continue;
        struct client_options o = {.program = program, .max = 4};
        double zero = cpu_ms(), start = 0;
        for (int part = 0; part < 2; part++) { /* the first part is the start alone */
            double t = cpu_ms();
            if ((k == EXEC || k == FULL) && client_start(&c, &o, &err) < 0)
                die("start", &err);
            if (k == EXEC)
                create(&c, &g, "g");
            for (int i = 0; part == 1 && i < rounds; i++) {
                if (k == FULL)
                    create(&c, &g, "g");
                if (k == FULL || k == EXEC)
                    exec_in(&g, false, k == FULL);
                else if (k == CRUN)
                    run_crun(false);
                else
                    run_process(k == PLAIN ? plain_true : bwrap_true, false);
                if (k == FULL)
                    gone(&c, &g);
            }
            if (k == EXEC)
                destroy(&c, &g);
            if (k == EXEC || k == FULL)
                client_stop(&c);
            if (part == 0)
                start = cpu_ms() - t;
        }
        cost[k] = (cpu_ms() - zero - 2 * start) / rounds;
        (void)printf("%-38s %8.3f ms of processor time\n", names[k], cost[k]);
    }
    (void)printf("bubblewrap / full = %.2f in processor time\n\n", cost[BWRAP] / cost[FULL]);
}

static uint64_t meminfo(const char *key) {
    struct buf b;
    buf_init(&b, 65536);
    uint64_t v = 0;
    if (fd_read_file(AT_FDCWD, "/proc/meminfo", &b, NULL) == 0) {
        char *p = strstr(b.data, key);
        v = p ? strtoull(p + strlen(key), NULL, 10) * 1024 : 0;
    }
    buf_finish(&b);
    return v;
}

static void idle(struct client *c) {
    static struct guest guests[IDLE];
    char id[32];
    struct err err;
    uint64_t before = meminfo("MemAvailable:");
    for (int i = 0; i < IDLE; i++) {
        (void)snprintf(id, sizeof(id), "i%d", i);
        create(c, &guests[i], id);
        if (guest_wait_ready(&guests[i], &err) < 0)
            die("ready", &err);
        exec_in(&guests[i], false, false);
    }
    uint64_t after = meminfo("MemAvailable:");
    double charged = 0;
    for (int i = 0; i < IDLE; i++) {
        struct sandbox_stats st = {0};
        if (client_request(c, SANDBOX_STATS, guests[i].id, &st, &err) < 0)
            die("stats", &err);
        charged += (double)st.memory_bytes;
    }
    for (int i = 0; i < IDLE; i++)
        destroy(c, &guests[i]);
    (void)printf("%-38s %9.2f MiB each of the machine's memory, %.2f MiB each charged to cgroups\n",
                 "200 idle sandboxes", (double)(int64_t)(before - after) / IDLE / 1048576,
                 charged / IDLE / 1048576);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        (void)fprintf(stderr, "usage: %s CAY-SANDBOX [ROUNDS]\n", argv[0]);
        return 2;
    }
    int rounds = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 200;
    if (rounds < 1 || rounds > ROUNDS_MAX)
        rounds = 200;
    memset(data, 'x', sizeof(data));
    (void)snprintf(plain_dir, sizeof(plain_dir), "/dev/shm/cay-bench-XXXXXX");
    if (!mkdtemp(plain_dir) || chdir(plain_dir) < 0)
        die("mkdtemp", NULL);
    plain_data[2] = bwrap_data[ARRAY_LEN(bwrap_data) - 2] = (char *)(uintptr_t)script;
    char *program = argv[1];
    struct err err = {0};
    static struct launchers l;
    struct client_options o = {.program = program, .pool = 4, .max = 128};
    if (client_start(&l.pooled, &o, &err) < 0)
        die("start", &err);
    o = (struct client_options){.program = program, .max = 256};
    if (client_start(&l.full, &o, &err) < 0)
        die("start", &err);
    o.uids = 2 * o.max;
    if (client_start(&l.cold, &o, &err) < 0)
        die("start", &err);
    (void)printf("as %s, cgroup v%u (controllers %u), Landlock ABI %u, %d rounds, interleaved\n",
                 l.cold.features.root ? "root" : "an ordinary user", l.cold.features.cgroup,
                 l.cold.features.controllers, l.cold.features.landlock, rounds);
    bool crun = make_bundle();
    (void)printf("\n");
    cpu_cost(program, rounds, crun);
    table(&l, rounds, false, crun);
    table(&l, rounds / 2 ? rounds / 2 : 1, true, crun);
    (void)printf("\n");
    for (int i = 0; i < 3; i++) {
        burst(&l.full, "burst of 100 without a pool");
        burst_others();
    }
    idle(&l.full);
    client_stop(&l.pooled);
    client_stop(&l.full);
    client_stop(&l.cold);
    char *remove_bundle[] = {"/bin/rm", "-rf", bundle, NULL};
    if (crun)
        run_process(remove_bundle, false);
    (void)unlink("f");
    (void)rmdir(plain_dir);
    return 0;
}
