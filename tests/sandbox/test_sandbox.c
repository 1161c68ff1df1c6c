/* What a front can rely on, against the real program:
 *
 *   test-sandbox CAY-SANDBOX CAY-SANDBOX-WITHOUT-WALLS PROBE [uid] */

#include "client.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "until.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char *program, *weak_program;
static struct buf probe;
static uid_t uid;
static struct client client;
static struct err err;

#define MIB (1024ULL * 1024)
#define OK(call)                                                                                   \
    do {                                                                                           \
        err.message[0] = 0;                                                                        \
        if ((call) < 0)                                                                            \
            fail_msg("%s: %s", #call, err.message);                                                \
    } while (0)

static void start_client(struct client *c, struct client_options o) {
    if (!o.program)
        o.program = program;
    o.uid = uid;
    OK(client_start(c, &o, &err));
}

static int setup(void **state) {
    (void)state;
    start_client(&client, (struct client_options){0});
    return 0;
}

static int teardown(void **state) {
    (void)state;
    client_stop(&client);
    return 0;
}

static struct guest make(struct sandbox_spec spec) {
    struct guest g;
    if (!spec.id)
        spec.id = "g";
    OK(client_create(&client, &spec, NULL, &g, &err));
    OK(guest_wait_ready(&g, &err));
    return g;
}

static void give_probe(struct guest *g) {
    OK(guest_write(g, "/work/probe", probe.data, probe.len, 0755, &err));
}

/* Runs a shell command; its output without the last newline in a static buffer. */
static const char *sh(struct guest *g, const char *command, int *ret_status) {
    static char out[65536];
    struct run r;
    OK(guest_runv(g, &r, &err, "/bin/sh", "-c", command, NULL));
    (void)snprintf(out, sizeof(out), "%.*s", (int)r.out.len, r.out.data ? r.out.data : "");
    size_t n = strlen(out);
    if (n > 0 && out[n - 1] == '\n')
        out[n - 1] = 0;
    if (ret_status)
        *ret_status = run_status(&r);
    else if (run_status(&r) != 0)
        fail_msg("%s: status %d: %s", command, run_status(&r), out);
    run_finish(&r);
    return out;
}

/* The number that a shell command says, whatever its status. */
static int counted(struct guest *g, const char *command) {
    int status;
    return (int)strtol(sh(g, command, &status), NULL, 10);
}

static long number_after(const char *text, const char *key) {
    const char *p = strstr(text, key);
    return p ? strtol(p + strlen(key), NULL, 10) : -1;
}

static void done(struct guest *g) {
    OK(client_destroy(&client, g, &err));
}

/* ---- commands ---- */

static void exec_passes_the_exit_status_through(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){0});
    int status;
    assert_string_equal(sh(&g, "echo out; echo err >&2; exit 42", &status), "out\nerr");
    assert_int_equal(status, 42);
    struct run r;
    OK(guest_runv(&g, &r, &err, "/bin/sh", "-c", "kill -SEGV $$", NULL));
    assert_true(r.exit.signaled);
    assert_int_equal(r.exit.code, SIGSEGV);
    run_finish(&r);
    done(&g);
}

static void a_command_that_cannot_start_is_an_error_not_an_exit(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){0});
    struct run r;
    OK(guest_runv(&g, &r, &err, "no-such-program", NULL));
    assert_false(r.started);
    assert_int_equal(r.err.sys, ENOENT);
    assert_int_equal(r.err.code, ERR_NOT_FOUND);
    run_finish(&r);
    OK(guest_runv(&g, &r, &err, "/etc/passwd", NULL));
    assert_false(r.started);
    assert_int_equal(r.err.sys, EACCES);
    run_finish(&r);
    struct sandbox_exec e = {.cwd = "/nowhere"};
    sandbox_strv_add(&e.argv, "true");
    OK(guest_run(&g, &e, &r, &err));
    assert_false(r.started);
    assert_int_equal(r.err.sys, ENOENT);
    sandbox_strv_finish(&e.argv);
    run_finish(&r);
    done(&g);
}

/* Each borrows init's memory for a while: none may see the words, or the failure, of another. */
static void commands_that_begin_at_once_do_not_mix(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){.pids = 200});
    enum { MANY = 90, FIRST = 1000 };
    int out[MANY][2];
    for (int i = 0; i < MANY; i++) {
        char word[32], folder[32];
        (void)snprintf(word, sizeof(word), "word-%d", i);
        (void)snprintf(folder, sizeof(folder), "/nowhere-%d", i);
        struct sandbox_exec e = {.out = SANDBOX_STREAM_FD, .cwd = i % 3 == 1 ? folder : "/"};
        sandbox_strv_add(&e.argv, i % 3 == 2 ? word : "echo");
        sandbox_strv_add(&e.argv, word);
        struct buf b;
        buf_init(&b, 4096);
        pack_sandbox_exec(&b, &e);
        assert_int_equal(pipe2(out[i], O_CLOEXEC), 0);
        assert_int_equal(guest_send(&g, INIT_EXEC, FIRST + (uint64_t)i, &b, &out[i][1], 1), 0);
        close(out[i][1]);
        buf_finish(&b);
        sandbox_strv_finish(&e.argv);
    }
    for (int ended = 0; ended < MANY;) {
        struct wire_frame f;
        struct unpack u;
        struct err why = {0};
        OK(guest_read(&g, &f, &err));
        int i = (int)f.id - FIRST;
        char want[64], text[64] = "";
        unpack_init(&u, f.data, f.len);
        if (f.type == INIT_ERROR) {
            (void)unpack_sandbox_error(&u, &why);
            (void)snprintf(want, sizeof(want), i % 3 == 1 ? "/nowhere-%d: " : "word-%d: ", i);
            assert_int_not_equal(i % 3, 0);
            assert_int_equal(why.sys, ENOENT);
            assert_memory_equal(why.message, want, strlen(want));
        } else if (f.type == INIT_EXITED) {
            (void)snprintf(want, sizeof(want), "word-%d\n", i);
            assert_int_equal(i % 3, 0);
            (void)fd_read_all(out[i][0], text, sizeof(text) - 1);
            assert_string_equal(text, want);
        }
        ended += f.type != INIT_STARTED;
        wire_frame_finish(&f);
    }
    for (int i = 0; i < MANY; i++)
        close(out[i][0]);
    done(&g);
}

static void a_final_command_takes_the_sandbox_with_it(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){0});
    struct sandbox_exec e = {.final = true};
    sandbox_strv_add(&e.argv, "sh");
    sandbox_strv_add(&e.argv, "-c");
    sandbox_strv_add(&e.argv, "setsid sleep 1000 >/dev/null 2>&1 & echo last; exit 9");
    struct run r;
    OK(guest_run(&g, &e, &r, &err));
    assert_int_equal(run_status(&r), 9);
    assert_string_equal(r.out.data, "last\n");
    OK(client_wait_exited(&client, "g", &err));
    run_finish(&r);
    sandbox_strv_finish(&e.argv);
    guest_close(&g);
}

static void environment_and_directory_are_what_was_asked_for(void **state) {
    (void)state;
    struct sandbox_spec spec = {.id = "g", .hostname = "beach"};
    sandbox_strv_add(&spec.env, "A=from the spec");
    sandbox_strv_add(&spec.env, "B=spec");
    struct guest g = make(spec);
    sandbox_strv_finish(&spec.env);
    struct sandbox_exec e = {.cwd = "/tmp"};
    sandbox_strv_add(&e.argv, "sh");
    sandbox_strv_add(&e.argv, "-c");
    sandbox_strv_add(&e.argv, "echo $A $B $HOME; pwd; uname -n; id -u");
    sandbox_strv_add(&e.env, "B=command");
    struct run r;
    OK(guest_run(&g, &e, &r, &err));
    assert_string_equal(r.out.data, "from the spec command /home/cay\n/tmp\nbeach\n1000\n");
    run_finish(&r);
    sandbox_strv_finish(&e.argv);
    sandbox_strv_finish(&e.env);
    assert_string_equal(sh(&g, "cat /proc/self/cgroup | cut -d: -f3 | sort -u", NULL), "/");
    done(&g);
}

static void an_account_and_a_work_folder_of_another_name(void **state) {
    (void)state;
    struct sandbox_spec spec = {.id = "g", .user = "vercel-sandbox", .work = "/vercel/sandbox"};
    struct guest g = make(spec);
    assert_string_equal(
        sh(&g, "id -un; id -gn; id -u; getent passwd | wc -l; ls -d ~vercel-sandbox", NULL),
        "vercel-sandbox\nvercel-sandbox\n1000\n4\n/home/vercel-sandbox");
    assert_string_equal(sh(&g,
                           "cd /vercel/sandbox && pwd -P && echo x >a && cat /work/a; "
                           "touch ~vercel-sandbox/h && echo home",
                           NULL),
                        "/vercel/sandbox\nx\nhome");
    assert_string_equal(
        sh(&g,
           "exec 2>&1; for f in /etc/passwd /etc/group /vercel/x /run/account; do "
           "test -w $f && echo $f; touch $f && echo $f; done; grep -c . /etc/group; ls /run",
           NULL),
        "touch: cannot touch '/etc/passwd': Read-only file system\n"
        "touch: cannot touch '/etc/group': Read-only file system\n"
        "touch: cannot touch '/vercel/x': Read-only file system\n"
        "touch: cannot touch '/run/account': Read-only file system\n5");
    done(&g);
    struct sandbox_spec bad = {.id = "b", .user = "x:0:0"};
    OK(client_create(&client, &bad, NULL, &g, &err));
    assert_int_equal(guest_wait_ready(&g, &err), -ERR_BAD_REQUEST);
    guest_close(&g);
}

static void standard_input_reaches_the_command(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){0});
    int in[2], out[2];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    struct sandbox_exec e = {.in = SANDBOX_STREAM_FD, .out = SANDBOX_STREAM_FD};
    sandbox_strv_add(&e.argv, "/usr/bin/rev");
    struct buf b;
    buf_init(&b, 4096);
    pack_sandbox_exec(&b, &e);
    int fds[2] = {in[0], out[1]};
    assert_int_equal(guest_send(&g, INIT_EXEC, 9, &b, fds, 2), 0);
    buf_finish(&b);
    sandbox_strv_finish(&e.argv);
    close(in[0]);
    close(out[1]);
    assert_int_equal(fd_write_all(in[1], "sand\n", 5), 0);
    close(in[1]);
    char text[16] = "";
    assert_int_equal(fd_read_all(out[0], text, sizeof(text)), 5);
    assert_string_equal(text, "dnas\n");
    close(out[0]);
    done(&g);
}

/* The messages about a command, of which only the end matters: its start is told when it takes a
 * while, and never after its end. */
static void a_brief_command_is_told_of_at_its_end(void **state) {
    (void)state;
    static const struct {
        const char *program, *argument;
        uint16_t types[2];
    } cases[] = {
        {"true", "", {INIT_EXITED}},
        {"sleep", "0.3", {INIT_STARTED, INIT_EXITED}},
        {"/nowhere", "", {INIT_ERROR}},
    };
    struct guest g = make((struct sandbox_spec){0});
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct sandbox_exec e = {.brief = true};
        sandbox_strv_add(&e.argv, cases[i].program);
        sandbox_strv_add(&e.argv, cases[i].argument);
        struct buf b;
        buf_init(&b, 4096);
        pack_sandbox_exec(&b, &e);
        assert_int_equal(guest_send(&g, INIT_EXEC, 100 + i, &b, NULL, 0), 0);
        buf_clear(&b);
        uint16_t seen[2] = {0};
        size_t n = 0;
        for (struct wire_frame f; n == 0 || seen[n - 1] == INIT_STARTED; n++) {
            OK(guest_read(&g, &f, &err));
            assert_int_equal(f.id, 100 + i);
            assert_true(n < ARRAY_LEN(seen));
            seen[n] = f.type;
            wire_frame_finish(&f);
        }
        /* A machine that is busy may take a while for the shortest one. */
        size_t skip = i == 0 && n == 2 && seen[0] == INIT_STARTED;
        assert_int_equal(seen[skip], cases[i].types[0]);
        assert_int_equal(skip ? 0 : seen[1], cases[i].types[1]);
        sandbox_strv_finish(&e.argv);
        buf_finish(&b);
    }
    done(&g);
}

static void a_signal_reaches_the_whole_group(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){0});
    struct sandbox_exec e = {0};
    sandbox_strv_add(&e.argv, "sh");
    sandbox_strv_add(&e.argv, "-c");
    sandbox_strv_add(&e.argv, "sleep 1000 & sleep 1000 & wait");
    struct buf b;
    buf_init(&b, 4096);
    pack_sandbox_exec(&b, &e);
    assert_int_equal(guest_send(&g, INIT_EXEC, 77, &b, NULL, 0), 0);
    sandbox_strv_finish(&e.argv);
    struct wire_frame f;
    OK(guest_read(&g, &f, &err));
    assert_int_equal(f.type, INIT_STARTED);
    assert_true(UNTIL(counted(&g, "pgrep -c sleep") == 2)); /* both children are there */
    buf_clear(&b);
    pack_u64(&b, 77);
    pack_u32(&b, SIGTERM);
    pack_u8(&b, 1);
    assert_int_equal(guest_send(&g, INIT_SIGNAL, 78, &b, NULL, 0), 0);
    bool exited = false, answered = false;
    while (!exited || !answered) {
        OK(guest_read(&g, &f, &err));
        if (f.id == 78)
            answered = true;
        if (f.id == 77) {
            struct sandbox_exit x;
            struct unpack u;
            unpack_init(&u, f.data, f.len);
            unpack_sandbox_exit(&u, &x);
            assert_true(x.signaled);
            assert_int_equal(x.code, SIGTERM);
            exited = true;
        }
    }
    assert_true(UNTIL(counted(&g, "pgrep -c sleep") == 0));
    assert_true(guest_call(&g, INIT_SIGNAL, &b, NULL, 0, &f, &err) < 0); /* it has ended */
    assert_int_equal(err.code, ERR_NOT_FOUND);
    buf_finish(&b);
    done(&g);
}

static void a_terminal_is_a_terminal(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){0});
    struct sandbox_exec e = {.tty = true, .cols = 99, .rows = 33};
    sandbox_strv_add(&e.argv, "sh");
    sandbox_strv_add(&e.argv, "-c");
    sandbox_strv_add(&e.argv, "tty; stty size; read x; stty size; echo got $x");
    struct buf b;
    buf_init(&b, 4096);
    pack_sandbox_exec(&b, &e);
    assert_int_equal(guest_send(&g, INIT_EXEC, 5, &b, NULL, 0), 0);
    buf_finish(&b);
    sandbox_strv_finish(&e.argv);
    struct wire_frame f;
    OK(guest_read(&g, &f, &err));
    assert_int_equal(f.type, INIT_STARTED);
    assert_int_equal(f.nfds, 1);
    int master = wire_frame_take_fd(&f, 0);
    char text[4096] = "";
    size_t n = 0;
    struct pollfd p = {.fd = master, .events = POLLIN};
    while (!strstr(text, "33 99") && poll(&p, 1, UNTIL_MS) == 1) {
        ssize_t k = read(master, text + n, sizeof(text) - 1 - n);
        assert_true(k > 0);
        n += (size_t)k;
    }
    assert_non_null(strstr(text, "/dev/pts/0"));
    struct winsize w = {.ws_row = 44, .ws_col = 120};
    assert_int_equal(ioctl(master, TIOCSWINSZ, &w), 0);
    assert_int_equal(fd_write_all(master, "hello\n", 6), 0);
    while (!strstr(text, "got hello") && poll(&p, 1, UNTIL_MS) == 1) {
        ssize_t k = read(master, text + n, sizeof(text) - 1 - n);
        assert_true(k > 0);
        n += (size_t)k;
    }
    assert_non_null(strstr(text, "44 120"));
    assert_non_null(strstr(text, "got hello"));
    close(master);
    done(&g);
}

static void limits_of_a_command_only_go_down(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){.files = 100});
    struct sandbox_exec e = {.rlimits = {{RLIMIT_NOFILE, 50}, {RLIMIT_CORE, 1 << 20}},
                             .nrlimits = 2};
    sandbox_strv_add(&e.argv, "sh");
    sandbox_strv_add(&e.argv, "-c");
    sandbox_strv_add(&e.argv, "ulimit -n; ulimit -c");
    struct run r;
    OK(guest_run(&g, &e, &r, &err));
    assert_string_equal(r.out.data, "50\n0\n");
    run_finish(&r);
    sandbox_strv_finish(&e.argv);
    assert_string_equal(sh(&g, "ulimit -n", NULL), "100");
    done(&g);
}

static void orphans_are_reaped(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){0});
    (void)sh(&g, "for i in 1 2 3 4 5; do (sh -c 'exit 3' & ) ; done; true", NULL);
    assert_true(UNTIL(counted(&g, "ps -eo stat | grep -c Z") == 0));
    done(&g);
}

/* ---- files ---- */

static int call_path(struct guest *g, uint16_t type, const char *path, const char *fields,
                     struct wire_frame *f, ...) {
    struct buf b;
    buf_init(&b, 65536);
    pack_str(&b, path);
    va_list ap;
    va_start(ap, f);
    for (const char *p = fields; *p; p++)
        if (*p == 's')
            pack_str(&b, va_arg(ap, const char *));
        else if (*p == 'q')
            pack_u64(&b, va_arg(ap, uint64_t));
        else if (*p == 'u')
            pack_u32(&b, va_arg(ap, unsigned));
        else
            pack_u8(&b, (uint8_t)va_arg(ap, int));
    va_end(ap);
    int rc = guest_call(g, type, &b, NULL, 0, f, &err);
    buf_finish(&b);
    return rc;
}

static void files_go_in_and_out(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){0});
    static char big[3 << 20];
    for (size_t i = 0; i < sizeof(big); i++)
        big[i] = (char)(i * 7);
    OK(guest_write(&g, "/work/a/b/small", "hi", 2, 0640, &err));
    OK(guest_write(&g, "big", big, sizeof(big), 0755, &err));
    assert_string_equal(sh(&g, "cat a/b/small; stat -c '%a %U' a/b/small big", NULL),
                        "hi640 cay\n755 cay");
    struct buf out;
    buf_init(&out, 4 << 20);
    OK(guest_read_file(&g, "/work/big", &out, &err));
    assert_int_equal(out.len, sizeof(big));
    assert_memory_equal(out.data, big, sizeof(big));
    buf_finish(&out);
    struct wire_frame f;
    OK(call_path(&g, INIT_FILE_MKDIR, "/work/d", "ub", &f, 0755U, 0));
    OK(call_path(&g, INIT_FILE_MOVE, "/work/big", "s", &f, "/work/d/big2"));
    OK(call_path(&g, INIT_FILE_STAT, "/work/d/big2", "b", &f, 1));
    struct unpack u;
    struct sandbox_stat st;
    unpack_init(&u, f.data, f.len);
    unpack_sandbox_stat(&u, &st);
    assert_int_equal(st.kind, SANDBOX_FILE);
    assert_int_equal(st.size, sizeof(big));
    OK(call_path(&g, INIT_FILE_LIST, "/work", "q", &f, (uint64_t)0));
    unpack_init(&u, f.data, f.len);
    assert_int_equal(unpack_u32(&u), 2);
    OK(call_path(&g, INIT_FILE_DELETE, "/work/d", "b", &f, 1));
    assert_int_equal(f.type, INIT_OK);
    unpack_init(&u, f.data, f.len);
    assert_int_equal(unpack_u64(&u), 2);
    assert_true(call_path(&g, INIT_FILE_STAT, "/work/d", "b", &f, 1) < 0);
    assert_int_equal(err.sys, ENOENT);
    assert_true(call_path(&g, INIT_FILE_DELETE, "/work/a", "b", &f, 0) < 0);
    assert_int_equal(err.sys, ENOTEMPTY);
    assert_true(guest_write(&g, "/usr/x", "", 0, 0644, &err) < 0);
    done(&g);
}

static void long_lists_come_in_pages(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){0});
    (void)sh(&g, "mkdir m; cd m; seq 1 2500 | xargs touch", NULL);
    uint64_t seen = 0;
    for (int page = 0; page < 4; page++) {
        struct wire_frame f;
        struct unpack u;
        OK(call_path(&g, INIT_FILE_LIST, "/work/m", "q", &f, seen));
        unpack_init(&u, f.data, f.len);
        uint32_t n = unpack_u32(&u);
        for (uint32_t i = 0; i < n; i++) {
            size_t len;
            struct sandbox_stat st;
            (void)unpack_bytes(&u, &len);
            unpack_sandbox_stat(&u, &st);
        }
        bool more = unpack_u8(&u) != 0;
        assert_true(unpack_ok(&u));
        seen += n;
        if (!more)
            break;
    }
    assert_int_equal(seen, 2500);
    done(&g);
}

/* Trap: a link in the guest must never lead the file interface to what init or the host can see. */
static void links_lead_nowhere_but_into_the_guest(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){0});
    (void)sh(&g,
             "ln -s /etc/shadow shadow; ln -s /proc/1/environ env; ln -s /proc/self/mem mem; "
             "ln -s /proc/1/root/etc/passwd root; ln -s /proc/self/fd/3 fd; ln -s /etc/passwd pw; "
             "ln -s ../../../../../../etc/shadow up; mkfifo fifo; ln -s /dev/zero zero",
             NULL);
    static const struct {
        const char *path;
        int a, b;
    } refused[] = {{"/work/shadow", ENOENT, 0},
                   {"/work/env", EACCES, ELOOP},
                   {"/work/mem", EACCES, ELOOP},
                   {"/work/root", EACCES, ELOOP},
                   {"/work/fd", ELOOP, ENOENT},
                   {"/work/up", ENOENT, 0},
                   {"/work/fifo", EINVAL, 0},
                   {"/work/zero", EINVAL, 0},
                   {"/proc/1/environ", EACCES, 0},
                   {"/proc/self/maps", EACCES, 0},
                   {"/proc/1/root/etc/passwd", ELOOP, 0},
                   {"../../etc/shadow", ENOENT, 0},
                   {"/work", EISDIR, 0}};
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct buf out;
        buf_init(&out, 1 << 20);
        err = (struct err){0};
        int rc = guest_read_file(&g, refused[i].path, &out, &err);
        if (rc == 0 || (err.sys != refused[i].a && err.sys != refused[i].b))
            fail_msg("%s: rc %d errno %d", refused[i].path, rc, err.sys);
        buf_finish(&out);
    }
    struct buf out;
    buf_init(&out, 1 << 20);
    OK(guest_read_file(&g, "/work/pw", &out, &err)); /* the guest's own, as the guest sees it */
    assert_non_null(strstr(out.data, "cay guest"));
    buf_finish(&out);
    assert_true(guest_write(&g, "/proc/1/oom_score_adj", "0", 1, 0644, &err) < 0);
    assert_true(guest_write(&g, "/work/fifo", "0", 1, 0644, &err) < 0);
    struct wire_frame f;
    assert_true(call_path(&g, INIT_FILE_LIST, "/proc/1/fd", "q", &f, (uint64_t)0) < 0);
    done(&g);
}

/* The guest swaps a folder for a link while it is deleted: what the link names must stay. */
static void a_race_with_delete_loses_nothing_else(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){0});
    (void)sh(&g,
             "mkdir /home/cay/keep; touch /home/cay/keep/file; "
             "(i=0; while [ $i -lt 3000 ]; do mkdir -p d/x; touch d/x/1 d/x/2; mv d/x d/y; "
             "ln -s /home/cay/keep d/x; rm -rf d/y d/x; i=$((i+1)); done) >/dev/null 2>&1 &",
             NULL);
    for (int i = 0; i < 200; i++) {
        struct wire_frame f;
        (void)call_path(&g, INIT_FILE_DELETE, "/work/d", "b", &f, 1);
    }
    assert_string_equal(sh(&g, "ls /home/cay/keep", NULL), "file");
    done(&g);
}

static int tar_call(struct guest *g, uint16_t type, const struct buf *payload, int fd) {
    uint64_t id = ++g->next_id;
    assert_int_equal(guest_send(g, type, id, payload, &fd, 1), 0);
    close(fd);
    return (int)id;
}

static int tar_status(struct guest *g) {
    for (;;) {
        struct wire_frame f;
        OK(guest_read(g, &f, &err));
        struct unpack u;
        unpack_init(&u, f.data, f.len);
        if (f.type == INIT_ERROR)
            return unpack_sandbox_error(&u, &err);
        if (f.type == INIT_EXITED) {
            struct sandbox_exit x;
            unpack_sandbox_exit(&u, &x);
            return (int)x.code + (x.signaled ? 128 : 0);
        }
    }
}

static void archives_and_snapshots_round_trip(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){0});
    (void)sh(&g,
             "mkdir -p p/q; echo one > p/q/1; echo two > p/2; chmod 700 p/2; ln -s 2 p/l; "
             "echo dot > /home/cay/.rc; echo t > /tmp/t; truncate -s 400M hole; echo no > p/0; "
             "chmod 0 p/0; mkdir -p fs/home/.disk; echo own > fs/home/.disk/f",
             NULL);
    int file = memfd_create("snapshot", MFD_CLOEXEC);
    (void)tar_call(&g, INIT_SNAPSHOT, NULL, dup(file));
    assert_int_equal(tar_status(&g), 0);
    done(&g);
    struct stat st;
    assert_int_equal(fstat(file, &st), 0);
    assert_true(st.st_size > 1024 && st.st_size < 1 << 20); /* a hole takes no room */

    g = make((struct sandbox_spec){.id = "again"});
    assert_int_equal(lseek(file, 0, SEEK_SET), 0);
    struct buf b;
    buf_init(&b, 4096);
    pack_str(&b, "/");
    (void)tar_call(&g, INIT_TAR_IN, &b, dup(file));
    assert_int_equal(tar_status(&g), 0);
    assert_string_equal(
        sh(&g,
           "cat p/q/1 p/l /home/cay/.rc /tmp/t fs/home/.disk/f; stat -c %a p/2 /tmp /work; "
           "stat -c %s hole; ls p/0 2>&1 | tail -c 10",
           NULL),
        "one\ntwo\ndot\nt\nown\n700\n1777\n755\n419430400\ndirectory");
    buf_clear(&b);
    pack_str(&b, "/work/p");
    pack_u32(&b, 1);
    pack_str(&b, "q");
    assert_int_equal(ftruncate(file, 0), 0);
    assert_int_equal(lseek(file, 0, SEEK_SET), 0);
    (void)tar_call(&g, INIT_TAR_OUT, &b, dup(file));
    assert_int_equal(tar_status(&g), 0);
    char head[16] = "";
    assert_true(pread(file, head, 8, 0) == 8);
    assert_string_equal(head, "q/");
    buf_finish(&b);
    close(file);
    done(&g);
}

/* ---- network ---- */

static void a_port_inside_can_be_reached_from_the_front(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){0});
    struct sandbox_exec e = {0};
    static const char server[] =
        "import http.server,sys\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "  def do_GET(s):\n"
        "    s.send_response(200); s.end_headers(); s.wfile.write(b'from inside')\n"
        "http.server.HTTPServer(('127.0.0.1',8080),H).serve_forever()\n";
    sandbox_strv_add(&e.argv, "/usr/bin/python3");
    sandbox_strv_add(&e.argv, "-c");
    sandbox_strv_add(&e.argv, server);
    struct buf b;
    buf_init(&b, 8192);
    pack_sandbox_exec(&b, &e);
    assert_int_equal(guest_send(&g, INIT_EXEC, 500, &b, NULL, 0), 0);
    sandbox_strv_finish(&e.argv);
    buf_clear(&b);
    pack_u32(&b, 8080);
    struct wire_frame f;
    if (!UNTIL(guest_call(&g, INIT_CONNECT_PORT, &b, NULL, 0, &f, &err) == 0))
        fail_msg("the port is not reached: %s", err.message);
    int s = wire_frame_take_fd(&f, 0);
    (void)fd_set_nonblock(s, false);
    assert_int_equal(fd_write_all(s, "GET / HTTP/1.0\r\n\r\n", 18), 0);
    char text[1024] = "";
    (void)fd_read_all(s, text, sizeof(text) - 1);
    assert_non_null(strstr(text, "from inside"));
    close(s);
    buf_clear(&b);
    pack_u32(&b, 9);
    assert_true(guest_call(&g, INIT_CONNECT_PORT, &b, NULL, 0, &f, &err) < 0);
    assert_int_equal(err.sys, ECONNREFUSED);
    buf_finish(&b);
    done(&g);
}

static void the_egress_listener_is_the_only_way_out(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){.egress = true});
    assert_true(g.listener >= 0);
    struct sandbox_exec e = {.out = SANDBOX_STREAM_NULL};
    sandbox_strv_add(&e.argv, "bash");
    sandbox_strv_add(&e.argv, "-c");
    sandbox_strv_add(&e.argv, "exec 3<>/dev/tcp/127.0.0.1/3128; echo hello >&3; cat <&3 >answer");
    struct buf b;
    buf_init(&b, 8192);
    pack_sandbox_exec(&b, &e);
    assert_int_equal(guest_send(&g, INIT_EXEC, 1000, &b, NULL, 0), 0);
    sandbox_strv_finish(&e.argv);
    buf_finish(&b);
    struct pollfd p = {.fd = g.listener, .events = POLLIN};
    assert_int_equal(poll(&p, 1, UNTIL_MS), 1);
    int s = accept4(g.listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(s >= 0);
    char text[16] = "";
    assert_int_equal(read(s, text, sizeof(text) - 1), 6);
    assert_string_equal(text, "hello\n");
    assert_int_equal(fd_write_all(s, "proxied", 7), 0);
    close(s);
    assert_true(UNTIL(strcmp(sh(&g, "cat answer; true", NULL), "proxied") == 0));
    done(&g);
    g = make((struct sandbox_spec){0});
    assert_int_equal(g.listener, -1);
    int status;
    (void)sh(&g, "bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128' 2>/dev/null", &status);
    assert_int_not_equal(status, 0);
    done(&g);
}

/* ---- roots and binds ---- */

static char *temp_dir(uid_t owner) {
    char *dir = xstrdup("/tmp/cay-test-XXXXXX");
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chmod(dir, 0755), 0);
    if (geteuid() == 0)
        assert_int_equal(chown(dir, owner, owner), 0);
    return dir;
}

static void put(const char *dir, const char *name, const char *text) {
    _cleanup_(free) char *path = xasprintf("%s/%s", dir, name);
    _cleanup_(close) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

static void remove_tree(char *dir) {
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/rm", "rm", "-rf", dir, (char *)NULL);
        _exit(127);
    }
    (void)waitpid(pid, NULL, 0);
    free(dir);
}

static void binds_are_read_only_unless_asked(void **state) {
    (void)state;
    uid_t owner = uid ? uid : geteuid() == 0 ? 4321 : geteuid();
    char *ro = temp_dir(owner), *rw = temp_dir(owner);
    put(ro, "in", "read me");
    int fds[2] = {open(ro, O_PATH | O_DIRECTORY | O_CLOEXEC),
                  open(rw, O_PATH | O_DIRECTORY | O_CLOEXEC)};
    struct sandbox_spec spec = {
        .id = "g",
        .binds = {{"/mnt/ro", SANDBOX_BIND_RO}, {"/work/deep/rw", SANDBOX_BIND_RW}},
        .nbinds = 2};
    struct guest g;
    OK(client_create(&client, &spec, fds, &g, &err));
    OK(guest_wait_ready(&g, &err));
    int status;
    assert_string_equal(sh(&g, "cat /mnt/ro/in", NULL), "read me");
    (void)sh(&g, "echo x > /mnt/ro/out", &status);
    assert_int_not_equal(status, 0);
    (void)sh(&g, "echo written > /work/deep/rw/out; mkdir /work/deep/rw/d", NULL);
    _cleanup_(free) char *out = xasprintf("%s/out", rw);
    struct stat st;
    assert_int_equal(stat(out, &st), 0);
    assert_int_equal(st.st_uid, owner); /* and not some uid of the sandbox's range */
    /* A setuid program must not be left behind on the host. */
    give_probe(&g);
    assert_int_equal(number_after(sh(&g, "./probe suid /work/deep/rw", NULL), "suid="), EPERM);
    assert_int_equal(number_after(sh(&g, "./probe suid_open /work/deep/rw", NULL), "suid_open="),
                     EPERM);
    assert_int_equal(number_after(sh(&g, "./probe suid_temp /work/deep/rw", NULL), "suid_temp="),
                     EPERM);
    /* Out of a bind leads nowhere. */
    assert_string_equal(sh(&g, "ls /work/deep/rw/../..", NULL), "deep\nprobe");
    done(&g);
    close(fds[0]);
    close(fds[1]);
    remove_tree(ro);
    remove_tree(rw);
}

static void without_the_wall_a_setuid_file_could_be_left(void **state) {
    (void)state;
    struct client c;
    start_client(&c, (struct client_options){.program = weak_program, .without = "suid"});
    uid_t owner = uid ? uid : geteuid() == 0 ? 4321 : geteuid();
    char *rw = temp_dir(owner);
    int fd = open(rw, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct sandbox_spec spec = {.id = "g", .binds = {{"/work/rw", SANDBOX_BIND_RW}}, .nbinds = 1};
    struct guest g;
    OK(client_create(&c, &spec, &fd, &g, &err));
    give_probe(&g);
    assert_int_equal(number_after(sh(&g, "./probe suid /work/rw", NULL), "suid="), 0);
    assert_int_equal(number_after(sh(&g, "./probe suid_temp /work/rw", NULL), "suid_temp="), 0);
    guest_close(&g);
    close(fd);
    client_stop(&c);
    remove_tree(rw);
}

static void a_bind_of_roots_folder_is_not_writable(void **state) {
    (void)state;
    if (geteuid() != 0) {
        print_message("only root has what this looks at\n");
        skip();
    }
    char *dir = temp_dir(0);
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct sandbox_spec spec = {.id = "g", .binds = {{"/work/rw", SANDBOX_BIND_RW}}, .nbinds = 1};
    struct guest g;
    int rc = client_create(&client, &spec, &fd, &g, &err);
    if (!uid) {
        assert_int_equal(rc, -ERR_FORBIDDEN);
    } else { /* the kernel itself refuses another user */
        OK(rc);
        int status;
        (void)sh(&g, "echo > /work/rw/x", &status);
        assert_int_not_equal(status, 0);
        done(&g);
    }
    close(fd);
    remove_tree(dir);
    spec.binds[0].path = "/usr/nowhere/deep";
    fd = open("/usr", O_PATH | O_DIRECTORY | O_CLOEXEC);
    spec.binds[0].mode = SANDBOX_BIND_RO;
    OK(client_create(&client, &spec, &fd, &g, &err));
    assert_true(guest_wait_ready(&g, &err) < 0);
    assert_non_null(strstr(err.message, "/usr/nowhere/deep"));
    OK(client_wait_exited(&client, "g", &err));
    guest_close(&g);
    close(fd);
}

static int bind_one(const char *host, const char *path, uint32_t mode, struct guest *ret) {
    int fd = open(host, O_PATH | O_CLOEXEC);
    assert_true(fd >= 0);
    struct sandbox_spec spec = {.id = "g", .binds = {{(char *)(uintptr_t)path, mode}}, .nbinds = 1};
    int rc = client_create(&client, &spec, &fd, ret, &err);
    close(fd);
    if (rc < 0)
        return rc;
    rc = guest_wait_ready(ret, &err);
    if (rc < 0) {
        struct err other;
        (void)client_wait_exited(&client, "g", &other);
        guest_close(ret);
    }
    return rc;
}

static void binds_go_anywhere_that_is_not_the_systems(void **state) {
    (void)state;
    uid_t owner = uid ? uid : geteuid() == 0 ? 4321 : geteuid();
    char *dir = temp_dir(owner);
    put(dir, "in", "read me");
    static const char *const good[] = {"/opt/x",      "/mnt/x",       "/data", "/srv/a/b/c",
                                       "/var/lib/x",  "/run/x",       "/work", "/home/cay/x",
                                       "/tmp/deep/x", "/var/tmp/x/y", "/mnt",  "/srv/slash/"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        for (uint32_t mode = SANDBOX_BIND_RO; mode <= SANDBOX_BIND_RW; mode++) {
            struct guest g;
            if (bind_one(dir, good[i], mode, &g) < 0)
                fail_msg("%s: %s", good[i], err.message);
            _cleanup_(free) char *command = xasprintf(
                "cat %s/in && (echo x > %s/out) 2>/dev/null; echo $?; "
                "cat /etc/passwd | wc -l; ls /usr/bin/true /bin/sh; mkdir %s/../no 2>/dev/null; "
                "ls -d /proc/self /dev/null /dev/pts/ptmx; echo t > /var/tmp/t && cat /var/tmp/t; "
                "(echo > /etc/x) 2>/dev/null || (echo > /x) 2>/dev/null || echo closed",
                good[i], good[i], good[i]);
            _cleanup_(free) char *want = xasprintf(
                "read me%d\n4\n/bin/sh\n/usr/bin/true\n/dev/null\n/dev/pts/ptmx\n/proc/self\nt\n"
                "closed",
                mode == SANDBOX_BIND_RW ? 0 : 2);
            assert_string_equal(sh(&g, command, NULL), want);
            done(&g);
        }
    static const char *const bad[] = {
        "/",        "//",        "/.",     "/work/../x", "/usr/x", "/etc/x",    "work/x",
        "/work//x", "/work/./x", "/bin/x", "/proc/new",  "/dev/x", "",          "/etc",
        "/usr/bin", "/proc",     "/dev",   "/sys",       "/lib64", "/proc/self"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct guest g;
        int rc = bind_one(dir, bad[i], SANDBOX_BIND_RO, &g);
        if (rc == 0 || (rc != -ERR_BAD_REQUEST && !strstr(err.message, "bind")))
            fail_msg("'%s': %d %s", bad[i], rc, err.message);
    }
    remove_tree(dir);
}

static void a_bind_can_be_a_single_file(void **state) {
    (void)state;
    uid_t owner = uid ? uid : geteuid() == 0 ? 4321 : geteuid();
    char *dir = temp_dir(owner);
    put(dir, "in", "read me");
    _cleanup_(free) char *path = xasprintf("%s/in", dir);
    if (geteuid() == 0)
        assert_int_equal(chown(path, owner, owner), 0);
    static const char *const places[] = {"/work/in", "/opt/conf/in", "/etc/hosts"};
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        struct guest g;
        OK(bind_one(path, places[i], SANDBOX_BIND_RO, &g));
        _cleanup_(free) char *command =
            xasprintf("cat %s; (echo x >> %s) 2>/dev/null || echo closed", places[i], places[i]);
        assert_string_equal(sh(&g, command, NULL), "read meclosed");
        done(&g);
    }
    struct guest g;
    OK(bind_one(path, "/opt/in", SANDBOX_BIND_RW, &g));
    (void)sh(&g, "echo ' and me' >> /opt/in", NULL);
    give_probe(&g);
    assert_int_not_equal(number_after(sh(&g, "./probe chmod_suid /opt/in", NULL), "chmod_suid="),
                         0);
    done(&g);
    struct buf b;
    buf_init(&b, 4096);
    assert_int_equal(fd_read_file(AT_FDCWD, path, &b, &err), 0);
    assert_string_equal(b.data, "read me and me\n");
    buf_finish(&b);
    /* What is neither a folder nor a file is not shown to anybody. */
    assert_int_equal(bind_one("/dev/null", "/work/n", SANDBOX_BIND_RO, &g), -ERR_BAD_REQUEST);
    remove_tree(dir);
}

/* As root files of the folder's owner are the guest's; those of its group only if the owner is in
 * that group. */
static void a_bind_gives_no_more_than_its_owner_has(void **state) {
    (void)state;
    if (geteuid() != 0 || uid) {
        print_message("only root maps owners\n");
        skip();
    }
    char *dir = temp_dir(4321);
    static const gid_t groups[] = {0, 4 /* adm */, 6 /* disk */};
    for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
        put(dir, "secret", "hidden");
        _cleanup_(free) char *path = xasprintf("%s/secret", dir);
        assert_int_equal(chown(path, 0, groups[i]), 0);
        assert_int_equal(chmod(path, 0660), 0);
        assert_int_equal(chown(dir, 4321, groups[i]), 0);
        for (uint32_t mode = SANDBOX_BIND_RO; mode <= SANDBOX_BIND_RW; mode++) {
            struct guest g;
            int status;
            OK(bind_one(dir, "/work/b", mode, &g));
            const char *out = sh(&g, "cat b/secret 2>&1; echo x > b/secret", &status);
            if (strstr(out, "hidden"))
                fail_msg("a file of group %u is read", groups[i]);
            if (mode == SANDBOX_BIND_RW) {
                (void)sh(&g, "echo mine > b/mine", NULL);
                struct stat st;
                _cleanup_(free) char *mine = xasprintf("%s/mine", dir);
                assert_int_equal(stat(mine, &st), 0);
                assert_int_equal(st.st_uid, 4321);
                assert_int_not_equal(st.st_gid, groups[i]);
                assert_int_equal(unlink(mine), 0);
            }
            done(&g);
        }
    }
    remove_tree(dir);
}

static void a_root_file_system_can_be_a_folder_or_an_archive(void **state) {
    (void)state;
    char *dir = temp_dir(uid), *keep = temp_dir(uid);
    _cleanup_(free) char *bin = xasprintf("%s/bin", dir);
    _cleanup_(free) char *etc = xasprintf("%s/etc", dir);
    _cleanup_(free) char *tool = xasprintf("%s/bin/probe", dir);
    _cleanup_(free) char *tar = xasprintf("%s/root.tar", keep);
    assert_int_equal(mkdir(bin, 0755), 0);
    assert_int_equal(mkdir(etc, 0755), 0);
    put(etc, "marker", "mine");
    int fd = open(tool, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    assert_int_equal(fd_write_all(fd, probe.data, probe.len), 0);
    close(fd);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/usr/bin/tar", "tar", "-cf", tar, "-C", dir, ".", (char *)NULL);
        _exit(127);
    }
    (void)waitpid(pid, NULL, 0);
    struct sandbox_root roots[] = {{"folder", dir}, {"archive", tar}};
    struct client c;
    start_client(&c, (struct client_options){.roots = roots, .nroots = 2, .state_dir = keep});
    for (int i = 0; i < 2; i++) {
        struct sandbox_spec spec = {.id = "g", .root = roots[i].name};
        struct guest g;
        OK(client_create(&c, &spec, NULL, &g, &err));
        struct run r;
        OK(guest_runv(&g, &r, &err, "/bin/probe", "read", "/etc/marker", NULL));
        assert_string_equal(r.out.data, "read=0\n");
        run_finish(&r);
        OK(guest_runv(&g, &r, &err, "/bin/probe", "create", "/etc/x", NULL));
        assert_string_not_equal(r.out.data, "create=0\n");
        run_finish(&r);
        OK(guest_runv(&g, &r, &err, "/bin/probe", "read", "/usr",
                      NULL)); /* the host's is not there */
        assert_int_equal(number_after(r.out.data, "read="), ENOENT);
        run_finish(&r);
        OK(client_destroy(&c, &g, &err));
    }
    struct sandbox_spec bad = {.id = "g", .root = "other"};
    struct guest g;
    assert_int_equal(client_create(&c, &bad, NULL, &g, &err), -ERR_NOT_FOUND);
    client_stop(&c);
    remove_tree(dir);
    remove_tree(keep);
}

/* ---- the pool, pausing, counting ---- */

static void a_pool_gives_the_same_sandbox_sooner(void **state) {
    (void)state;
    struct client c;
    start_client(&c, (struct client_options){.pool = 3, .max = 8});
    (void)poll(NULL, 0, 100);
    for (int i = 0; i < 12; i++) {
        struct sandbox_spec spec = {.id = "g", .memory_bytes = 200 * MIB, .files = 77};
        sandbox_strv_add(&spec.env, "ROUND=x");
        struct guest g;
        OK(client_create(&c, &spec, NULL, &g, &err));
        sandbox_strv_finish(&spec.env);
        assert_string_equal(
            sh(&g, "ls /work | wc -l; ulimit -n; echo $ROUND; touch /work/left", NULL), "0\n77\nx");
        OK(client_destroy(&c, &g, &err));
    }
    struct sandbox_spec big = {.id = "big", .disk_bytes = 3 * MIB};
    struct guest g;
    OK(client_create(&c, &big, NULL, &g, &err)); /* not from the pool: another disk */
    assert_string_equal(sh(&g, "df --output=size -BM /work | tail -1 | tr -d ' '", NULL), "3M");
    OK(client_destroy(&c, &g, &err));
    client_stop(&c);
}

static void too_many_sandboxes_are_refused_by_name(void **state) {
    (void)state;
    struct client c;
    start_client(&c, (struct client_options){.max = 2});
    struct guest g[3];
    struct sandbox_spec spec = {.id = "a"};
    OK(client_create(&c, &spec, NULL, &g[0], &err));
    assert_int_equal(client_create(&c, &spec, NULL, &g[2], &err), -ERR_CONFLICT);
    spec.id = "b";
    OK(client_create(&c, &spec, NULL, &g[1], &err));
    spec.id = "c";
    assert_int_equal(client_create(&c, &spec, NULL, &g[2], &err), -ERR_LIMIT);
    assert_non_null(strstr(err.message, "2 sandboxes"));
    OK(client_destroy(&c, &g[0], &err));
    OK(client_create(&c, &spec, NULL, &g[2], &err));
    guest_close(&g[1]); /* closing the channel ends a sandbox */
    OK(client_wait_exited(&c, "b", &err));
    guest_close(&g[2]);
    client_stop(&c);
}

enum { BLANKS = 2 };

/* The boxes of a launcher: those of its children that are the first of a pid namespace. */
static size_t boxes_of(pid_t launcher, pid_t *out, size_t max) {
    char path[64], text[4096];
    size_t n = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)launcher, (int)launcher);
    _cleanup_(buf) struct buf list;
    buf_init(&list, 65536);
    if (fd_read_file(AT_FDCWD, path, &list, NULL) < 0 || !buf_add_char(&list, 0))
        return 0;
    for (char *p = list.data, *end; *p && n < max; p = *end == ' ' ? end + 1 : end) {
        long pid = strtol(p, &end, 10);
        (void)snprintf(path, sizeof(path), "/proc/%ld/status", pid);
        _cleanup_(close) int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t k = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        text[k > 0 ? k : 0] = 0;
        int outer = 0, inner = 0;
        const char *ns = strstr(text, "NSpid:");
        if (ns && sscanf(ns, "NSpid: %d %d", &outer, &inner) == 2 && inner == 1)
            out[n++] = (pid_t)pid;
    }
    return n;
}

static void boxes_are(pid_t launcher, size_t want, pid_t *out, size_t max) {
    size_t n;
    if (!UNTIL((n = boxes_of(launcher, out, max)) == want))
        fail_msg("%zu boxes, not %zu", n, want);
}

static bool box_is_there(pid_t launcher, pid_t box) {
    pid_t boxes[16];
    size_t n = boxes_of(launcher, boxes, ARRAY_LEN(boxes));
    for (size_t i = 0; i < n; i++)
        if (boxes[i] == box)
            return true;
    return false;
}

static pid_t pid_of(const struct guest *g) {
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", g->pidfd);
    _cleanup_(buf) struct buf b;
    buf_init(&b, 4096);
    OK(fd_read_file(AT_FDCWD, path, &b, &err));
    assert_true(buf_add_char(&b, 0));
    return (pid_t)number_after(b.data, "\nPid:");
}

static void a_blank_box_takes_any_spec_and_no_place(void **state) {
    (void)state;
    struct client c;
    start_client(&c, (struct client_options){.max = 2});
    struct guest g[3];
    pid_t blanks[8];
    boxes_are(c.pid, BLANKS, blanks, 8);
    struct sandbox_spec spec = {.id = "a", .hostname = "other", .disk_bytes = 3 * MIB};
    OK(client_create(&c, &spec, NULL, &g[0], &err));
    assert_true(pid_of(&g[0]) == blanks[0] || pid_of(&g[0]) == blanks[1]);
    assert_string_equal(
        sh(&g[0], "hostname; df --output=size -BM /work | tail -1 | tr -d ' '", NULL), "other\n3M");
    spec.id = "b";
    OK(client_create(&c, &spec, NULL, &g[1], &err));
    boxes_are(c.pid, 2 + BLANKS, blanks, 8);
    spec.id = "c";
    assert_int_equal(client_create(&c, &spec, NULL, &g[2], &err), -ERR_LIMIT);
    assert_non_null(strstr(err.message, "2 sandboxes"));
    OK(client_destroy(&c, &g[0], &err));
    OK(client_create(&c, &spec, NULL, &g[2], &err));
    boxes_are(c.pid, 2 + BLANKS, blanks, 8);
    pid_t blank = 0;
    for (size_t i = 0; i < 2 + BLANKS; i++)
        if (blanks[i] != pid_of(&g[1]) && blanks[i] != pid_of(&g[2]))
            blank = blanks[i];
    assert_true(blank > 0);
    assert_int_equal(kill(blank, SIGKILL), 0);
    assert_true(UNTIL(!box_is_there(c.pid, blank)));
    boxes_are(c.pid, 2 + BLANKS, blanks, 8); /* another was made */
    assert_string_equal(sh(&g[1], "echo well", NULL), "well");
    guest_close(&g[1]);
    guest_close(&g[2]);
    client_stop(&c);
}

/* Whether the children of a process have all been stopped by a signal, and there are some. One that
 * began another (vfork) and was stopped with it is in no state to be, but does not go on either. */
static bool children_are_stopped(pid_t parent) {
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)parent, (int)parent);
    _cleanup_(buf) struct buf list;
    buf_init(&list, 4096);
    if (fd_read_file(AT_FDCWD, path, &list, NULL) < 0 || !buf_add_char(&list, 0))
        return false;
    bool stopped = *list.data != 0;
    for (char *p = list.data, *end; *p && stopped; p = *end == ' ' ? end + 1 : end) {
        char text[512] = "";
        pid_t pid = (pid_t)strtol(p, &end, 10);
        (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        _cleanup_(close) int fd = open(path, O_RDONLY | O_CLOEXEC);
        (void)!read(fd, text, sizeof(text) - 1);
        const char *name_end = strrchr(text, ')');
        char is = name_end && name_end[1] ? name_end[2] : 0;
        stopped = is == 'T' || (is == 'D' && children_are_stopped(pid));
    }
    return stopped;
}

static void a_paused_sandbox_stands_still(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){0});
    (void)sh(&g,
             "(i=0; while [ $i -lt 100000 ]; do i=$((i+1)); echo $i > n; sleep 0.005; done) "
             ">/dev/null 2>&1 &",
             NULL);
    struct buf a, b;
    buf_init(&a, 4096);
    buf_init(&b, 4096);
    assert_true(UNTIL(guest_read_file(&g, "/work/n", &a, &err) == 0 && a.len > 0));
    OK(client_request(&client, SANDBOX_PAUSE, "g", NULL, &err));
    if (client.features.controllers & SANDBOX_HAS_FREEZER) {
        /* init itself is frozen: nothing answers until it is resumed. */
        struct pollfd p = {.fd = g.channel, .events = POLLIN};
        assert_int_equal(guest_send(&g, INIT_SYNC, 4000, NULL, NULL, 0), 0);
        assert_int_equal(poll(&p, 1, 100), 0);
    } else {
        struct wire_frame f;
        struct unpack u;
        struct sandbox_stat s1, s2;
        /* The launcher has asked init, which does it when its turn comes. */
        assert_true(UNTIL(children_are_stopped(pid_of(&g))));
        OK(call_path(&g, INIT_FILE_STAT, "/work/n", "b", &f, 1));
        unpack_init(&u, f.data, f.len);
        unpack_sandbox_stat(&u, &s1);
        (void)poll(NULL, 0, 100);
        OK(call_path(&g, INIT_FILE_STAT, "/work/n", "b", &f, 1));
        unpack_init(&u, f.data, f.len);
        unpack_sandbox_stat(&u, &s2);
        assert_int_equal(s1.mtime_ms, s2.mtime_ms);
    }
    OK(client_request(&client, SANDBOX_RESUME, "g", NULL, &err));
    buf_clear(&a);
    assert_true(UNTIL(guest_read_file(&g, "/work/n", &a, &err) == 0 && a.len > 0));
    assert_true(UNTIL((buf_clear(&b), guest_read_file(&g, "/work/n", &b, &err)) == 0 && b.len > 0 &&
                      (a.len != b.len || memcmp(a.data, b.data, a.len) != 0)));
    OK(client_request(&client, SANDBOX_PAUSE, "g", NULL, &err));
    done(&g); /* a paused one can be destroyed */
    buf_finish(&a);
    buf_finish(&b);
}

static void what_a_sandbox_used_is_told(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){0});
    (void)sh(&g, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done", NULL);
    struct sandbox_stats st = {0};
    OK(client_request(&client, SANDBOX_STATS, "g", &st, &err));
    if (client.features.controllers & SANDBOX_HAS_MEMORY) {
        assert_true(st.memory_bytes > 0 && st.memory_bytes < 64 * MIB);
        assert_true(st.cpu_us > 10000);
        assert_int_equal(st.pids, 1);
        assert_int_equal(st.oom_kills, 0);
    }
    assert_int_equal(client_request(&client, SANDBOX_STATS, "nobody", &st, &err), -ERR_NOT_FOUND);
    done(&g);
    if (client.features.controllers & SANDBOX_HAS_MEMORY)
        assert_true(client.last_stats.cpu_us > 10000);
}

static void start(struct guest *g, uint64_t id, const char *a, const char *b, const char *c,
                  int out) {
    struct sandbox_exec e = {.out = out >= 0 ? SANDBOX_STREAM_FD : SANDBOX_STREAM_NULL};
    const char *const words[] = {a, b, c};
    for (size_t i = 0; i < ARRAY_LEN(words) && words[i]; i++)
        sandbox_strv_add(&e.argv, words[i]);
    struct buf p;
    buf_init(&p, 4096);
    pack_sandbox_exec(&p, &e);
    assert_int_equal(guest_send(g, INIT_EXEC, id, &p, &out, out >= 0 ? 1 : 0), 0);
    buf_finish(&p);
    sandbox_strv_finish(&e.argv);
}

static void run_until_ready(struct guest *g, uint64_t id, const char *what, const char *path) {
    int out[2];
    char text[8] = "";
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    start(g, id, "/work/probe", what, path, out[1]);
    close(out[1]);
    assert_int_equal(fd_read_all(out[0], text, 6), 6);
    assert_string_equal(text, "ready\n");
    close(out[0]);
}

/* ---- commands that may not write ---- */

/* The ways by which a command changed something in the folder, by name. */
static const char *changes(struct guest *g, const char *folder, bool read_only) {
    static char out[4096];
    char *argv[] = {"/work/probe", "change", (char *)(uintptr_t)folder, NULL};
    struct sandbox_exec e = {.argv = {argv, 3}, .read_only = read_only};
    struct run r;
    OK(guest_run(g, &e, &r, &err));
    if (!r.started || !strstr(r.out.data, "change="))
        fail_msg("change %s: %s%s", folder, r.err.message, r.out.data ? r.out.data : "");
    (void)snprintf(out, sizeof(out), "%.*s", (int)strcspn(r.out.data, "\n"), r.out.data);
    run_finish(&r);
    return out;
}

/* A sandbox with every kind of folder that a command may change, and somebody in it who does. */
static void begin_changes(struct client *c, char *dirs[2], const char *second, struct guest *ret) {
    int fds[2] = {open(dirs[0], O_PATH | O_DIRECTORY | O_CLOEXEC),
                  open(dirs[1], O_PATH | O_DIRECTORY | O_CLOEXEC)};
    struct sandbox_spec spec = {
        .id = "g",
        .work = "/home/project",
        .binds = {{"/data", SANDBOX_BIND_RW}, {(char *)(uintptr_t)second, SANDBOX_BIND_RW}},
        .nbinds = 2};
    OK(client_create(c, &spec, fds, ret, &err));
    OK(guest_wait_ready(ret, &err));
    give_probe(ret);
    (void)sh(
        ret,
        "for i in /work /home/project /data /tmp/bound; do test -d $i/d || { mkdir -p $i/d; cd "
        "$i; echo kept > f; > gone; }; done",
        NULL);
    run_until_ready(ret, 700, "holder", NULL);
    close(fds[0]);
    close(fds[1]);
}

static void a_read_only_command_changes_nothing(void **state) {
    (void)state;
    static const char *const folders[] = {"/work", "/home/project", "/data", "/tmp/bound"};
    static const char look[] =
        "for i in /work /home/project /data /tmp/bound; do cd $i; cat f; stat -c '%a %Y %Z' f .; "
        "ls; done";
    uid_t owner = uid ? uid : geteuid() == 0 ? 4321 : geteuid();
    static const struct {
        const char *without, *second;
        size_t folders;
    } sets[] = {{"", "/tmp/bound", 4}, {"lean", "/tmp/bound", 4}, {"", "/work", 3}};
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
        char *dirs[2] = {temp_dir(owner), temp_dir(owner)};
        struct client c;
        struct guest g;
        struct client_options old = {.program = weak_program, .without = sets[i].without};
        start_client(&c, *sets[i].without ? old : (struct client_options){0});
        begin_changes(&c, dirs, sets[i].second, &g);
        _cleanup_(free) char *before = xstrdup(sh(&g, look, NULL));
        for (size_t k = 0; k < sets[i].folders; k++)
            assert_string_equal(changes(&g, folders[k], true), "");
        assert_string_equal(sh(&g, look, NULL), before);
        /* Its own places are as ever, and what may write still does. */
        char *argv[] = {"/bin/sh", "-c",
                        "cd /tmp && echo x > x && chmod 600 x && cd /home/cay && echo y > y && "
                        "cd /var/tmp && echo z > z && echo s > /dev/shm/s && cat /tmp/x && pwd && "
                        "grep -c ' /proc ' /proc/self/mountinfo && df /work | wc -l",
                        NULL};
        struct sandbox_exec e = {.argv = {argv, 3}, .read_only = true, .cwd = "/work"};
        struct run r;
        OK(guest_run(&g, &e, &r, &err));
        assert_string_equal(r.out.data, "x\n/var/tmp\n1\n2\n");
        run_finish(&r);
        assert_string_equal(sh(&g, "grep -c ' /proc ' /proc/self/mountinfo", NULL), "1");
        assert_non_null(strstr(changes(&g, "/data", false), "open truncate_open truncate create"));
        guest_close(&g);
        client_stop(&c);
        remove_tree(dirs[0]);
        remove_tree(dirs[1]);
    }
}

static void without_its_walls_a_read_only_command_changes_much(void **state) {
    (void)state;
    static const struct {
        const char *without, *folder, *works;
    } sets[] = {{"view", "/work", "chmod fchmod chmod_cwd chown times"},
                {"view", "/home/project", "open truncate_open truncate create"},
                {"view", "/tmp/bound", "open truncate_open truncate create"},
                /* All that a root does not hold. */
                {"landlock", "/work", "holder_root holder_fd"}};
    uid_t owner = uid ? uid : geteuid() == 0 ? 4321 : geteuid();
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
        char *dirs[2] = {temp_dir(owner), temp_dir(owner)};
        struct client c;
        struct guest g;
        start_client(&c,
                     (struct client_options){.program = weak_program, .without = sets[i].without});
        begin_changes(&c, dirs, "/tmp/bound", &g);
        const char *out = changes(&g, sets[i].folder, true);
        if (!strstr(out, sets[i].works))
            fail_msg("%s without %s: '%s'", sets[i].folder, sets[i].without, out);
        guest_close(&g);
        client_stop(&c);
        remove_tree(dirs[0]);
        remove_tree(dirs[1]);
    }
}

/* ---- bombs: bounded, and the neighbour does not notice ---- */

static struct guest neighbour;

static void neighbour_in(void) {
    struct sandbox_spec spec = {.id = "neighbour"};
    OK(client_create(&client, &spec, NULL, &neighbour, &err));
    OK(guest_wait_ready(&neighbour, &err));
}

static void neighbour_is_well(void) {
    assert_string_equal(sh(&neighbour, "echo well > f; cat f", NULL), "well");
    done(&neighbour);
}

static void a_fork_bomb_hits_its_limit(void **state) {
    (void)state;
    neighbour_in();
    struct guest g = make((struct sandbox_spec){.pids = 40});
    give_probe(&g);
    const char *out = sh(&g, "./probe forks", NULL);
    long forks = number_after(out, "forks=");
    assert_true(forks > 20 && forks <= 40);
    assert_int_equal(number_after(strstr(out, "\nforks="), "forks="), EAGAIN);
    done(&g);
    /* While one stands, init can still run a command, and destroy takes them all. */
    g = make((struct sandbox_spec){.pids = 40});
    give_probe(&g);
    struct sandbox_exec e = {0};
    sandbox_strv_add(&e.argv, "/work/probe");
    sandbox_strv_add(&e.argv, "forks");
    sandbox_strv_add(&e.argv, "stay");
    struct buf b;
    buf_init(&b, 4096);
    pack_sandbox_exec(&b, &e);
    assert_int_equal(guest_send(&g, INIT_EXEC, 900, &b, NULL, 0), 0);
    sandbox_strv_finish(&e.argv);
    struct wire_frame f;
    OK(guest_read(&g, &f, &err));
    (void)poll(NULL, 0, 200);
    struct run r;
    OK(guest_runv(&g, &r, &err, "/work/probe", "kill", "1", NULL));
    assert_true(r.started || r.err.sys == EAGAIN);
    run_finish(&r);
    buf_clear(&b);
    pack_u64(&b, 0);
    pack_u32(&b, SIGKILL);
    pack_u8(&b, 0);
    OK(guest_call(&g, INIT_SIGNAL, &b, NULL, 0, &f, &err));
    buf_finish(&b);
    OK(guest_runv(&g, &r, &err, "/usr/bin/true", NULL)); /* and all is well again */
    assert_int_equal(run_status(&r), 0);
    run_finish(&r);
    done(&g);
    neighbour_is_well();
}

static void a_memory_bomb_is_killed(void **state) {
    (void)state;
    neighbour_in();
    struct guest g = make((struct sandbox_spec){.memory_bytes = 64 * MIB, .disk_bytes = 16 * MIB});
    give_probe(&g);
    struct run r;
    OK(guest_runv(&g, &r, &err, "/work/probe", "memory", NULL));
    if (client.features.controllers & SANDBOX_HAS_MEMORY) {
        assert_int_equal(run_status(&r), 137);
        struct sandbox_stats st;
        OK(client_request(&client, SANDBOX_STATS, "g", &st, &err));
        assert_true(st.oom_kills >= 1);
    } else { /* RLIMIT_DATA refuses, or the watch kills */
        assert_true((run_status(&r) == 137 && r.exit.oom) ||
                    number_after(r.out.data, "memory=") == ENOMEM);
    }
    run_finish(&r);
    OK(guest_runv(&g, &r, &err, "/usr/bin/true", NULL));
    assert_int_equal(run_status(&r), 0);
    run_finish(&r);
    done(&g);
    neighbour_is_well();
}

static void many_small_memory_eaters_are_bounded_together(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){.memory_bytes = 128 * MIB, .disk_bytes = 16 * MIB});
    give_probe(&g);
    int status;
    const char *out = sh(&g, "./probe memory_many", &status); /* 16 times 32 MiB */
    assert_true(status == 137 || number_after(out, "killed=") >= 10);
    out = sh(&g, "./probe memory_many hidden", &status); /* not to be seen in the guest's /proc */
    assert_true(status == 137 || number_after(out, "killed=") >= 10);
    done(&g);
}

/* Wherever it is kept: what a sandbox holds counts, and somebody is killed for it. */
static void memory_counts_wherever_it_is_kept(void **state) {
    (void)state;
    static const char *const kinds[] = {"private", "memfd", "memfd_mapped", "shared",
                                        "shared_dropped",
                                        /* Under a cgroup the kernel may refuse these, end a child
                                         * for them, or init. */
                                        "shared_left", "shm", "sockets", "sockets_closed", "tcp"};
    bool counted = client.features.controllers & SANDBOX_HAS_MEMORY;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (counted && i > 4)
            break;
        struct guest g = make((struct sandbox_spec){.memory_bytes = 96 * MIB});
        give_probe(&g);
        struct run r;
        OK(guest_runv(&g, &r, &err, "/work/probe", "hold", kinds[i], NULL));
        /* RLIMIT_DATA refuses the one, which the probe does not look at. */
        bool refused = strcmp(kinds[i], "private") == 0 && run_status(&r) == 128 + SIGSEGV;
        struct sandbox_stats st = {0};
        if (counted)
            OK(client_request(&client, SANDBOX_STATS, "g", &st, &err));
        if (counted ? st.oom_kills == 0 : !refused && !(run_status(&r) == 137 && r.exit.oom))
            fail_msg("%s: status %d", kinds[i], run_status(&r));
        run_finish(&r);
        assert_string_equal(sh(&g, "echo well", NULL), "well");
        done(&g);
    }
}

/* What connected pairs hold whose both directions are full; -1: they were ended for it. */
static long held_by_pairs(struct client *c, const char *kind, const char *n, bool watched) {
    struct sandbox_spec spec = {.id = "g", .memory_bytes = 64 * MIB, .disk_bytes = 16 * MIB};
    struct guest g;
    struct run r;
    OK(client_create(c, &spec, NULL, &g, &err));
    give_probe(&g);
    int rc = guest_runv(&g, &r, &err, "/work/probe", "pairs", kind, n, watched ? "64" : "0", NULL);
    if (rc < 0 && c->features.cgroup == SANDBOX_CGROUP_V2) {
        /* What sockets hold is not freed with the one who had them: the kernel ends init too. */
        OK(client_wait_exited(c, "g", &err));
        assert_true(c->last_stats.oom_kills > 0);
        guest_close(&g);
        return -1;
    }
    OK(rc);
    long mib = run_status(&r) == 137 ? -1 : number_after(r.out.data, "mib=");
    if (mib < 0 && run_status(&r) != 137)
        fail_msg("%s: status %d: %s", kind, run_status(&r), r.out.data);
    run_finish(&r);
    OK(client_destroy(c, &g, &err));
    return mib;
}

/* The memory of sockets and the terminals are the machine's, so only one test may use them up at a
 * time: the same test runs beside this one as another user. A bound abstract socket is the lock;
 * the kernel releases it when its owner dies. */
static int machine_lock(const char *what) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    (void)snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "cay-test-%s", what);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    bool is_ours = false;
    for (int i = 0; i < 10 && !is_ours; i++) /* as long as the other one may take */
        is_ours = UNTIL(bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0);
    assert_true(is_ours);
    return fd;
}

/* The kernel bounds it; where it does not count them, the watch ends whoever has them. */
static void memory_of_sockets_is_bounded(void **state) {
    (void)state;
    _cleanup_(close) int lock = machine_lock("socket-memory");
    static const char *const kinds[][2] = {{"tcp", "60"}, {"tcp", "1400"}, {"udp", "1900"}};
    static const struct {
        const char *without;
        bool bounded[3];
    } sets[] = {{"", {true, true, true}},
                {"sockets", {true, true, true}},
                {"sockets,watch", {false, false, false}},
                /* The kernel grants each TCP socket one packet, however many there are. */
                {"watch", {true, false, true}}};
    bool counted = client.features.controllers & SANDBOX_HAS_MEMORY;
    size_t n = !counted                                      ? ARRAY_LEN(sets) - 1
               : client.features.cgroup == SANDBOX_CGROUP_V2 ? 1 /* it is all one there */
                                                             : ARRAY_LEN(sets);
    for (size_t i = 0; i < n; i++) {
        struct client c;
        struct client_options o = {.program = weak_program, .without = sets[i].without};
        start_client(&c, i == 0 ? (struct client_options){0} : o);
        for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
            bool bounded = sets[i].bounded[k], watched = !strstr(sets[i].without, "watch");
            long mib = held_by_pairs(&c, kinds[k][0], kinds[k][1], watched);
            /* Without the guards it is 459 MiB, or less while other sockets of the machine hold
             * much: the kernel then grants each of them less. That passes: try again. */
            for (int tries = 0; !bounded && mib < 32 && tries < 10; tries++)
                mib = held_by_pairs(&c, kinds[k][0], kinds[k][1], watched);
            if (bounded ? mib >= 64 : mib < 32)
                fail_msg("%s %s without '%s': %ld MiB", kinds[k][0], kinds[k][1], sets[i].without,
                         mib);
        }
        client_stop(&c);
    }
}

static void what_a_command_left_behind_is_watched_too(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){.memory_bytes = 96 * MIB});
    give_probe(&g);
    (void)sh(&g, "(sleep 0.3; ./probe hold memfd; echo $? > end) >/dev/null 2>&1 &", NULL);
    struct buf out;
    buf_init(&out, 64);
    if (client.features.controllers & SANDBOX_HAS_MEMORY) {
        /* One that is slow to die has not given its file back when the kernel looks again: whoever
         * waits for it may be next. */
        struct sandbox_stats st = {0};
        assert_true(
            UNTIL(client_request(&client, SANDBOX_STATS, "g", &st, &err) == 0 && st.oom_kills > 0));
    } else {
        assert_true(UNTIL(guest_read_file(&g, "/work/end", &out, &err) == 0 && out.len > 0));
        assert_string_equal(out.data, "137\n");
    }
    buf_finish(&out);
    done(&g);
}

static void what_forks_share_counts_once(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){.memory_bytes = 128 * MIB});
    give_probe(&g);
    assert_string_equal(sh(&g, "./probe shares", NULL), "shares=0");
    done(&g);
}

static void what_a_user_has_only_so_many_of_is_shared(void **state) {
    (void)state;
    neighbour_in();
    struct guest g = make((struct sandbox_spec){0});
    give_probe(&g);
    give_probe(&neighbour);
    run_until_ready(&g, 700, "inotify", "stay");
    const char *out = sh(&neighbour, "./probe inotify", NULL);
    assert_true(number_after(out, "instances=") >= 16);
    assert_true(number_after(out, "instances=") <= 64);
    assert_int_equal(number_after(out, "inotify="), EMFILE);
    done(&g);
    neighbour_is_well();
}

/* A crash inside must not start what the host does with crashes of its own. */
/* Terminals are the machine's: a sandbox has its share, and is told when that is used up. */
static void a_sandbox_has_its_share_of_terminals(void **state) {
    (void)state;
    _cleanup_(close) int lock = machine_lock("terminals");
    neighbour_in();
    struct guest g = make((struct sandbox_spec){0});
    give_probe(&g);
    give_probe(&neighbour);
    run_until_ready(&g, 700, "terminals", "stay");
    char *argv[] = {"/usr/bin/true", NULL};
    struct sandbox_exec e = {.argv = {argv, 1}, .tty = true};
    struct run r;
    OK(guest_run(&g, &e, &r, &err));
    assert_false(r.started);
    assert_int_equal(r.err.code, ERR_LIMIT);
    assert_non_null(strstr(r.err.message, "terminal"));
    run_finish(&r);
    const char *out = sh(&neighbour, "./probe terminals", NULL);
    assert_in_range(number_after(out, "terminals="), 4, 64);
    assert_non_null(strstr(out, "terminals=28")); /* ENOSPC */
    done(&g);
    neighbour_is_well();
    struct client c;
    start_client(&c, (struct client_options){.program = weak_program, .without = "terminals"});
    struct sandbox_spec spec = {.id = "g"};
    OK(client_create(&c, &spec, NULL, &g, &err));
    give_probe(&g);
    assert_true(number_after(sh(&g, "./probe terminals", NULL), "terminals=") > 1000);
    guest_close(&g);
    client_stop(&c);
}

static void the_hosts_crash_handler_is_not_started(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){0});
    give_probe(&g);
    assert_int_equal(number_after(sh(&g, "./probe core", NULL), "core="), 11);
    assert_string_equal(sh(&g, "ulimit -c 0; ulimit -n 77; ulimit -n; ulimit -c", NULL), "77\n0");
    done(&g);
}

static void the_disk_has_an_end(void **state) {
    (void)state;
    neighbour_in();
    struct guest g = make((struct sandbox_spec){.disk_bytes = 24 * MIB, .disk_inodes = 500});
    give_probe(&g);
    const char *out = sh(&g, "./probe disk", NULL);
    assert_int_equal(number_after(out, "disk="), ENOSPC);
    assert_in_range(number_after(out, "mib="), 18, 24);
    (void)sh(&g, "rm -f /work/fill* /tmp/fill*", NULL);
    out = sh(&g, "./probe inodes", NULL);
    assert_int_equal(number_after(out, "inodes="), ENOSPC);
    assert_in_range(number_after(out, "files="), 400, 500);
    (void)sh(&g, "find /tmp -name 'i*' -delete", NULL);
    out = sh(&g, "./probe sparse", NULL);
    assert_int_equal(number_after(out, "sparse="), EFBIG);
    out = sh(&g, "./probe open_files", NULL);
    assert_int_equal(number_after(out, "open_files="), EMFILE);
    assert_in_range(number_after(out, "fds="), 4000, 4096);
    /* The file interface names the limit. */
    static char big[30 << 20];
    assert_true(guest_write(&g, "/work/big", big, sizeof(big), 0644, &err) < 0);
    assert_int_equal(err.code, ERR_LIMIT);
    /* An archive that is larger than the disk fails inside. */
    int tar = memfd_create("tar", MFD_CLOEXEC);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(tar, 1);
        execl("/bin/sh", "sh", "-c",
              "d=$(mktemp -d); head -c 40000000 /dev/zero > $d/zeros; tar -C $d -cf - zeros; rm -r "
              "$d",
              (char *)NULL);
        _exit(127);
    }
    (void)waitpid(pid, NULL, 0);
    (void)lseek(tar, 0, SEEK_SET);
    struct buf b;
    buf_init(&b, 4096);
    pack_str(&b, "/work");
    (void)tar_call(&g, INIT_TAR_IN, &b, tar);
    assert_int_not_equal(tar_status(&g), 0);
    buf_finish(&b);
    done(&g);
    neighbour_is_well();
}

/* The disk is in memory: full of bytes and of files it still leaves room to clear it. */
static void a_full_disk_leaves_room_to_run(void **state) {
    (void)state;
    static const uint64_t memory[] = {16 * MIB, 64 * MIB, 300 * MIB};
    for (size_t i = 0; i < ARRAY_LEN(memory); i++) {
        struct guest g = make((struct sandbox_spec){.memory_bytes = memory[i]});
        int status;
        (void)sh(&g, "cd /tmp; i=0; : > /work/big; while : > $i; do i=$((i+1)); done 2>/dev/null",
                 &status);
        (void)sh(&g, "cat /dev/zero > /work/big", &status);
        assert_string_equal(sh(&g, "(echo x > /work/more) 2>/dev/null || echo full", NULL), "full");
        assert_string_equal(sh(&g, "df -i /work | tail -1 | awk '{print $4}'", NULL), "0");
        assert_string_equal(sh(&g,
                               "cat /work/big | head -c 1 | wc -c; find /tmp -delete "
                               "2>/dev/null; rm /work/big; echo room > /work/x; cat /work/x",
                               NULL),
                            "1\nroom");
        done(&g);
    }
    struct sandbox_spec spec = {.id = "g", .memory_bytes = 64 * MIB, .disk_bytes = 64 * MIB};
    struct guest g;
    assert_int_equal(client_create(&client, &spec, NULL, &g, &err), -ERR_BAD_REQUEST);
    assert_string_equal(
        err.message, "a disk of 64 MiB does not fit into 64 MiB of memory, where it is kept with "
                     "room for processes: give at least 86 MiB of memory, or at most 48 of disk");
    spec.memory_bytes = 86 * MIB;
    OK(client_create(&client, &spec, NULL, &g, &err));
    done(&g);
}

static void without_its_wall_each_bomb_goes_further(void **state) {
    (void)state;
    static const struct {
        const char *without, *probe, *key;
        long at_least;
    } bombs[] = {{"disk,rlimit", "disk", "mib=", 200},
                 {"inodes", "inodes", "files=", 60000},
                 {"rlimit,cgroup", "forks", "forks=", 1000},
                 {"rlimit", "open_files", "fds=", 5000},
                 {"cgroup,rlimit,watch", "memory", "mib=", 300}};
    for (size_t i = 0; i < ARRAY_LEN(bombs); i++) {
        struct client c;
        start_client(&c,
                     (struct client_options){.program = weak_program, .without = bombs[i].without});
        struct sandbox_spec spec = {.id = "g",
                                    .memory_bytes = 256 * MIB,
                                    .disk_bytes = 24 * MIB,
                                    .disk_inodes = 500,
                                    .pids = 40};
        if (strcmp(bombs[i].probe, "disk") == 0)
            spec.memory_bytes = 2048 * MIB;
        struct guest g;
        OK(client_create(&c, &spec, NULL, &g, &err));
        give_probe(&g);
        _cleanup_(free) char *command = xasprintf("./probe %s", bombs[i].probe);
        int status;
        const char *out = sh(&g, command, &status);
        long reached = number_after(out, bombs[i].key);
        if (reached < bombs[i].at_least)
            fail_msg("%s without %s reached %ld only (status %d, %s)", bombs[i].probe,
                     bombs[i].without, reached, status, out);
        guest_close(&g);
        client_stop(&c);
    }
}

static void a_flood_of_output_waits_for_its_reader(void **state) {
    (void)state;
    neighbour_in();
    struct guest g = make((struct sandbox_spec){0});
    give_probe(&g);
    int out[2];
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    struct sandbox_exec e = {.out = SANDBOX_STREAM_FD};
    sandbox_strv_add(&e.argv, "/work/probe");
    sandbox_strv_add(&e.argv, "flood");
    struct buf b;
    buf_init(&b, 4096);
    pack_sandbox_exec(&b, &e);
    assert_int_equal(guest_send(&g, INIT_EXEC, 600, &b, &out[1], 1), 0);
    close(out[1]);
    sandbox_strv_finish(&e.argv);
    buf_finish(&b);
    struct wire_frame f;
    OK(guest_read(&g, &f, &err));
    (void)poll(NULL, 0, 100);
    int waiting = 0;
    assert_int_equal(ioctl(out[0], FIONREAD, &waiting), 0);
    assert_true(waiting <= 1 << 20); /* what the pipe holds, and no more anywhere */
    struct sandbox_stats st = {0};
    OK(client_request(&client, SANDBOX_STATS, "g", &st, &err));
    assert_true(st.memory_bytes < 32 * MIB);
    close(out[0]); /* the reader has enough */
    OK(guest_read(&g, &f, &err));
    struct sandbox_exit x;
    struct unpack u;
    unpack_init(&u, f.data, f.len);
    unpack_sandbox_exit(&u, &x);
    assert_true(x.signaled);
    assert_int_equal(x.code, SIGPIPE);
    done(&g);
    neighbour_is_well();
}

/* ---- nothing a guest does holds up init ---- */

static void signal_job(struct guest *g, uint64_t id, int signo) {
    struct buf p;
    buf_init(&p, 64);
    pack_u64(&p, id);
    pack_u32(&p, (uint32_t)signo);
    pack_u8(&p, 1);
    assert_int_equal(guest_send(g, INIT_SIGNAL, ++g->next_id, &p, NULL, 0), 0);
    buf_finish(&p);
}

/* Reads until the last word about the command: EXITED or ERROR. */
static uint16_t await_end(struct guest *g, uint64_t id, struct sandbox_exit *ret) {
    for (;;) {
        struct wire_frame f;
        struct unpack u;
        OK(guest_read(g, &f, &err));
        unpack_init(&u, f.data, f.len);
        uint16_t type = f.type;
        bool it = f.id == id && (type == INIT_EXITED || type == INIT_ERROR);
        if (it && type == INIT_EXITED)
            unpack_sandbox_exit(&u, ret);
        if (it && type == INIT_ERROR)
            (void)unpack_sandbox_error(&u, &err);
        wire_frame_finish(&f);
        if (it)
            return type;
    }
}

/* The kernel takes a lease back after 45 s: an answer that comes sooner did not wait for that. */
static void not_held_up_since(int64_t start_ms) {
    enum { HELD_UP_MS = 30000 };
    if (clock_mono_ms() - start_ms > HELD_UP_MS)
        fail_msg("held up for %lld ms", (long long)(clock_mono_ms() - start_ms));
}

/* Every kind of request is answered. */
static void init_is_well(struct guest *g) {
    int64_t t = clock_mono_ms();
    struct wire_frame f;
    OK(guest_call(g, INIT_SYNC, NULL, NULL, 0, &f, &err));
    wire_frame_finish(&f);
    OK(call_path(g, INIT_FILE_STAT, "/work", "b", &f, 1));
    wire_frame_finish(&f);
    OK(guest_write(g, "/work/well", "x", 1, 0644, &err));
    not_held_up_since(t);
}

static void a_lease_on_a_program_holds_up_nobody_else(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){0});
    give_probe(&g);
    (void)sh(&g, "cp probe leased", NULL);
    run_until_ready(&g, 700, "lease", "/work/leased");
    start(&g, 701, "/work/leased", "fds", NULL, -1);
    init_is_well(&g);
    assert_string_equal(sh(&g, "echo well", NULL), "well");
    /* Whoever gives it a time limit gets it ended. */
    struct sandbox_exit x = {0};
    int64_t t = clock_mono_ms();
    signal_job(&g, 701, SIGKILL);
    assert_int_equal(await_end(&g, 701, &x), INIT_EXITED);
    assert_true(x.signaled && x.code == SIGKILL);
    not_held_up_since(t);
    /* The file interface does not wait for the lease either. */
    struct buf out;
    buf_init(&out, 16 << 20);
    t = clock_mono_ms();
    (void)guest_read_file(&g, "/work/leased", &out, &err);
    (void)guest_write(&g, "/work/leased", "x", 1, 0755, &err);
    not_held_up_since(t);
    buf_finish(&out);
    done(&g);
}

/* A user has so many descriptors on their way between processes, and then may send none. */
static void descriptors_on_their_way_hold_up_nobody_else(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){.files = 512});
    give_probe(&g);
    run_until_ready(&g, 700, "in_flight", NULL);
    int64_t t = clock_mono_ms();
    struct buf out;
    buf_init(&out, 16 << 20);
    OK(guest_read_file(&g, "/work/probe", &out, &err));
    buf_finish(&out);
    not_held_up_since(t);
    assert_string_equal(sh(&g, "ulimit -n", NULL), "512");
    done(&g);
}

static void a_program_that_does_not_begin_is_given_up(void **state) {
    (void)state;
    struct client c;
    start_client(&c, (struct client_options){.program = weak_program}); /* waits five seconds */
    struct sandbox_spec spec = {.id = "g"};
    struct guest g;
    OK(client_create(&c, &spec, NULL, &g, &err));
    give_probe(&g);
    (void)sh(&g, "cp probe leased", NULL);
    run_until_ready(&g, 700, "lease", "/work/leased");
    start(&g, 701, "/work/leased", "fds", NULL, -1);
    struct sandbox_exit x;
    assert_int_equal(await_end(&g, 701, &x), INIT_ERROR);
    assert_int_equal(err.code, ERR_TIMEOUT);
    assert_non_null(strstr(err.message, "did not begin"));
    init_is_well(&g);
    guest_close(&g);
    client_stop(&c);
}

static void stopping_every_new_process_holds_up_nobody_else(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){0});
    give_probe(&g);
    start(&g, 800, "/work/probe", "stop_next", NULL, -1);
    struct wire_frame f;
    OK(guest_read(&g, &f, &err));
    assert_int_equal(f.type, INIT_STARTED);
    for (uint64_t id = 801; id < 821; id++) {
        struct sandbox_exit x = {0};
        start(&g, id, "/usr/bin/sleep", "1000", NULL, -1);
        init_is_well(&g);
        signal_job(&g, id, SIGKILL);
        (void)await_end(&g, id, &x);
    }
    signal_job(&g, 800, SIGKILL);
    struct sandbox_exit x;
    (void)await_end(&g, 800, &x);
    assert_string_equal(sh(&g, "echo well", NULL), "well");
    done(&g);
}

/* ---- nothing is left behind ---- */

/* Host processes that run in sandboxes of our launcher: those whose command line is ours. */
static int count_processes(const char *marker) {
    int n = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[300], text[4096];
        if (e->d_name[0] < '0' || e->d_name[0] > '9')
            continue;
        (void)snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
        _cleanup_(close) int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t k = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        if (k > 0 && memmem(text, (size_t)k, marker, strlen(marker)))
            n++;
    }
    if (d)
        closedir(d);
    return n;
}

static int count_groups(pid_t launcher) {
    char name[64];
    (void)snprintf(name, sizeof(name), "cay.%d.", (int)launcher);
    struct buf b;
    buf_init(&b, 65536);
    int n = 0;
    if (fd_read_file(AT_FDCWD, "/proc/self/cgroup", &b, NULL) < 0)
        return 0;
    for (char *p = b.data; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        char controller[64], path[512], full[700];
        if (sscanf(p, "%*d:%63[^:]:%511s", controller, path) != 2)
            continue;
        (void)snprintf(full, sizeof(full), "/sys/fs/cgroup/%s%s", controller, path);
        DIR *d = opendir(full);
        for (struct dirent *e; d && (e = readdir(d));)
            n += strncmp(e->d_name, name, strlen(name)) == 0;
        if (d)
            closedir(d);
    }
    buf_finish(&b);
    return n;
}

static void start_sleepers(struct client *c, struct guest *g, int n, const char *marker) {
    for (int i = 0; i < n; i++) {
        char id[16];
        (void)snprintf(id, sizeof(id), "g%d", i);
        struct sandbox_spec spec = {.id = id};
        OK(client_create(c, &spec, NULL, &g[i], &err));
        struct sandbox_exec e = {0};
        sandbox_strv_add(&e.argv, "sh");
        sandbox_strv_add(&e.argv, "-c");
        _cleanup_(free) char *command = xasprintf("setsid sleep 1000 & : %s; wait", marker);
        sandbox_strv_add(&e.argv, command);
        struct buf b;
        buf_init(&b, 4096);
        pack_sandbox_exec(&b, &e);
        assert_int_equal(guest_send(&g[i], INIT_EXEC, 1, &b, NULL, 0), 0);
        buf_finish(&b);
        sandbox_strv_finish(&e.argv);
        struct wire_frame f;
        OK(guest_read(&g[i], &f, &err));
        assert_int_equal(f.type, INIT_STARTED);
    }
}

/* The kernel lets init go on a moment before the command line can be read. */
static void sleepers_are_there(const char *marker) {
    assert_true(UNTIL(count_processes(marker) >= 4));
}

static void all_gone_soon(pid_t launcher, const char *marker) {
    int processes = 0, groups = 0;
    if (!UNTIL((processes = count_processes(marker), groups = count_groups(launcher)) == 0 &&
               processes == 0))
        fail_msg("%d processes and %d groups are left", processes, groups);
}

static void killing_the_launcher_leaves_nothing(void **state) {
    (void)state;
    struct client c;
    struct guest g[4];
    char marker[64];
    (void)snprintf(marker, sizeof(marker), "cay-sleeper-%d-a", (int)getpid());
    start_client(&c, (struct client_options){.pool = 2, .max = 8});
    start_sleepers(&c, g, 4, marker);
    sleepers_are_there(marker);
    if (c.features.cgroup == SANDBOX_CGROUP_V1)
        assert_true(count_groups(c.pid) > 0);
    pid_t pid = c.pid;
    assert_int_equal(kill(pid, SIGKILL), 0);
    (void)waitpid(pid, NULL, 0);
    c.pid = 0;
    all_gone_soon(pid, marker);
    for (int i = 0; i < 4; i++)
        guest_close(&g[i]);
    client_stop(&c);
}

static void killing_the_front_leaves_nothing(void **state) {
    (void)state;
    char marker[64];
    (void)snprintf(marker, sizeof(marker), "cay-sleeper-%d-b", (int)getpid());
    int pair[2];
    assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
    pid_t front = fork();
    if (front == 0) {
        struct client c;
        struct guest g[4];
        start_client(&c, (struct client_options){.pool = 2, .max = 8});
        start_sleepers(&c, g, 4, marker);
        (void)!write(pair[1], &c.pid, sizeof(c.pid));
        for (;;)
            pause();
    }
    close(pair[1]);
    pid_t launcher = 0;
    assert_int_equal(read(pair[0], &launcher, sizeof(launcher)), sizeof(launcher));
    close(pair[0]);
    sleepers_are_there(marker);
    /* Who reaps it, and when, is not known here: its number may stay for a while, or be another's.
     */
    struct pollfd gone = {.fd = (int)syscall(SYS_pidfd_open, launcher, 0), .events = POLLIN};
    assert_true(gone.fd >= 0);
    assert_int_equal(kill(front, SIGKILL), 0);
    (void)waitpid(front, NULL, 0);
    all_gone_soon(launcher, marker);
    assert_int_equal(poll(&gone, 1, UNTIL_MS), 1);
    close(gone.fd);
}

/* Moves this process into the group. */
static void join_group(const char *group) {
    char procs[800], text[32];
    (void)snprintf(procs, sizeof(procs), "%s/cgroup.procs", group);
    (void)snprintf(text, sizeof(text), "%d", (int)getpid());
    _cleanup_(close) int fd = open(procs, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(write(fd, text, strlen(text)) > 0);
}

/* The leftovers lie in a group of this test alone: every launcher sweeps where it stands, and those
 * of other servers would take them away before they are whole. */
static void leftovers_of_a_dead_launcher_are_swept(void **state) {
    (void)state;
    if (client.features.cgroup != SANDBOX_CGROUP_V1 || uid) {
        print_message("leftovers are cgroups v1, which only root has here\n");
        skip();
    }
    struct buf b;
    char path[512] = "", home[600], own[640], full[700], slot[720];
    buf_init(&b, 65536);
    assert_int_equal(fd_read_file(AT_FDCWD, "/proc/self/cgroup", &b, NULL), 0);
    char *p = strstr(b.data, ":pids:");
    assert_non_null(p);
    (void)sscanf(p, ":pids:%511s", path);
    buf_finish(&b);
    (void)snprintf(home, sizeof(home), "/sys/fs/cgroup/pids%s", path);
    (void)snprintf(own, sizeof(own), "%s/cay-test-%d", home, (int)getpid());
    (void)snprintf(full, sizeof(full), "%s/cay.1.999999999", own);
    (void)snprintf(slot, sizeof(slot), "%s/s0", full);
    assert_int_equal(mkdir(own, 0755), 0);
    assert_int_equal(mkdir(full, 0755), 0);
    assert_int_equal(mkdir(slot, 0755), 0);
    join_group(slot);
    pid_t left = fork();
    if (left == 0)
        for (;;)
            pause();
    join_group(own);
    struct client c;
    /* What was left is a child of this test: it must be reaped for its group to go. */
    struct sigaction auto_reap = {.sa_handler = SIG_IGN, .sa_flags = SA_NOCLDWAIT}, old;
    (void)sigaction(SIGCHLD, &auto_reap, &old);
    start_client(&c, (struct client_options){0});
    (void)sigaction(SIGCHLD, &old, NULL);
    struct stat st;
    assert_true(stat(full, &st) < 0);
    assert_true(kill(left, 0) < 0);
    client_stop(&c);
    join_group(home);
    assert_int_equal(rmdir(own), 0);
}

static int count_entries(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* The descriptors of a launcher that has these boxes and does not make or clear away any: it has
 * answered since they were there. */
static int descriptors_of(struct client *c, size_t boxes) {
    char path[64];
    pid_t pids[16];
    struct sandbox_stats st;
    boxes_are(c->pid, boxes, pids, ARRAY_LEN(pids));
    assert_int_equal(client_request(c, SANDBOX_STATS, "nobody", &st, &err), -ERR_NOT_FOUND);
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)c->pid);
    return count_entries(path);
}

/* The namespaces that the launcher's helpers have open. */
static size_t namespaces_kept(pid_t launcher) {
    char path[64], link[64];
    size_t n = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)launcher, (int)launcher);
    _cleanup_(buf) struct buf list;
    buf_init(&list, 65536);
    OK(fd_read_file(AT_FDCWD, path, &list, &err));
    assert_true(buf_add_char(&list, 0));
    for (char *p = list.data, *end; *p; p = *end == ' ' ? end + 1 : end) {
        (void)snprintf(path, sizeof(path), "/proc/%ld/fd", strtol(p, &end, 10));
        DIR *dir = opendir(path);
        for (const struct dirent *e; dir && (e = readdir(dir));) {
            ssize_t k = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);
            link[k > 0 ? k : 0] = 0;
            n += strncmp(link, "net:[", 5) == 0 || strncmp(link, "mnt:[", 5) == 0;
        }
        if (dir)
            (void)closedir(dir);
    }
    return n;
}

static void no_descriptor_or_process_leaks_in_the_launcher(void **state) {
    (void)state;
    /* Eight that ended go together; the last one, one on its way and blanks may be there besides.
     */
    enum { PLACES = 4, LITTER = 2 * (8 + 2 + BLANKS) };
    struct client c;
    struct guest g[PLACES];
    start_client(&c, (struct client_options){.max = PLACES});
    /* A place that was used once keeps the descriptors of its groups: each is used. */
    for (size_t i = 0; i < PLACES; i++) {
        struct sandbox_spec spec = {.id = (char *[]){"a", "b", "c", "d"}[i]};
        OK(client_create(&c, &spec, NULL, &g[i], &err));
        OK(guest_wait_ready(&g[i], &err));
    }
    (void)descriptors_of(&c, PLACES + BLANKS);
    for (size_t i = 0; i < PLACES; i++)
        OK(client_destroy(&c, &g[i], &err));
    int first = descriptors_of(&c, BLANKS);
    assert_true(UNTIL(namespaces_kept(c.pid) <= 1)); /* the maker's own */
    size_t own = namespaces_kept(c.pid), most = 0;
    for (int i = 0; i < 80; i++) {
        struct sandbox_spec spec = {.id = "g", .egress = i % 2 == 0};
        OK(client_create(&c, &spec, NULL, &g[0], &err));
        (void)sh(&g[0], "true", NULL);
        OK(client_destroy(&c, &g[0], &err));
        most = MAX(most, namespaces_kept(c.pid));
    }
    assert_in_range(most, own, own + LITTER);
    assert_true(UNTIL(namespaces_kept(c.pid) == own));
    assert_int_equal(descriptors_of(&c, BLANKS), first);
    client_stop(&c);
}

/* A guest that lacks no right but those of the host climbs out of a root it was changed to: it is
 * where it was, on kernels of today and, without "lean", on those before 6.17. */
static void below_the_root_there_is_nothing(void **state) {
    (void)state;
    static const char climb[] =
        "python3 -c \"import os; os.mkdir('/tmp/x'); top = os.open('/', 0); os.chroot('/tmp/x'); "
        "os.fchdir(top); [os.chdir('..') for i in range(9)]; os.chroot('.'); "
        "print('usr' in os.listdir('.'), 't' in os.listdir('.'), os.listdir('/tmp'))\"";
    static const char *const without[] = {"caps,seccomp,landlock", "caps,seccomp,landlock,lean"};
    for (size_t i = 0; i < ARRAY_LEN(without); i++) {
        struct client c;
        start_client(&c, (struct client_options){.program = weak_program, .without = without[i]});
        struct sandbox_spec spec = {.id = "g"};
        struct guest g;
        OK(client_create(&c, &spec, NULL, &g, &err));
        assert_string_equal(sh(&g, climb, NULL), "True False ['x']");
        /* Its processes and no others, in a /proc of its own. */
        assert_string_equal(
            sh(&g, "cat /proc/$$/comm; grep -c ' /proc ' /proc/self/mountinfo", NULL), "sh\n1");
        assert_true(number_after(sh(&g, "echo n=$$", NULL), "n=") < 32);
        guest_close(&g);
        client_stop(&c);
    }
}

/* As in a container: the host's /proc is partly covered, so that no other may be mounted. */
static void a_masked_host_proc_means_no_proc_inside(void **state) {
    (void)state;
    if (geteuid() != 0) {
        print_message("only root has what this looks at\n");
        skip();
    }
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", "/proc/sys", "tmpfs", MS_RDONLY, NULL) < 0)
            _exit(2);
        struct client c;
        struct client_options o = {.program = program, .uid = uid};
        struct guest g;
        struct sandbox_spec spec = {.id = "g"};
        struct run r;
        if (client_start(&c, &o, &err) < 0 || c.features.proc ||
            !strstr(c.features.detail, "/proc") || client_create(&c, &spec, NULL, &g, &err) < 0 ||
            guest_runv(&g, &r, &err, "/bin/ls", "-A", "/proc", NULL) < 0 || run_status(&r) != 0 ||
            r.out.len != 0)
            _exit(3);
        client_stop(&c);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* What the guest of a launcher sees of a system folder and of a bind, in which the host mounts
 * something meanwhile, as "0" or "1" each; in a process of its own, whose mounts are shared as
 * systemd shares them. */
static int mounts_seen(const char *launcher, const char *without, char *dir) {
    struct client c;
    struct client_options o = {.program = launcher, .uid = uid, .without = without};
    struct guest g;
    struct sandbox_spec spec = {.id = "g", .binds = {{"/data", SANDBOX_BIND_RW}}, .nbinds = 1};
    _cleanup_(free) char *sub = xasprintf("%s/sub", dir);
    static const char look[] = "test -e /usr/share/seen && echo 1 || echo 0; "
                               "test -e /data/sub/seen && echo 1 || echo 0";
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL) < 0)
        return 100;
    if (client_start(&c, &o, &err) < 0 || client_create(&c, &spec, &fd, &g, &err) < 0 ||
        guest_wait_ready(&g, &err) < 0)
        return 101;
    if (mount("tmpfs", "/usr/share", "tmpfs", 0, NULL) < 0 ||
        mount("tmpfs", sub, "tmpfs", 0, NULL) < 0)
        return 102;
    put("/usr/share", "seen", "");
    put(sub, "seen", "");
    struct run r;
    if (guest_runv(&g, &r, &err, "/bin/sh", "-c", look, NULL) < 0 || r.out.len != 4)
        return 103;
    int seen = (r.out.data[0] - '0') * 10 + (r.out.data[2] - '0');
    /* What is mounted later can be bound all the same. */
    struct guest late;
    spec.id = "late";
    spec.binds[0].mode = SANDBOX_BIND_RO;
    fd = open(sub, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (client_create(&c, &spec, &fd, &late, &err) < 0 ||
        guest_runv(&late, &r, &err, "/bin/cat", "/data/seen", NULL) < 0 || run_status(&r) != 0)
        return 104;
    client_stop(&c);
    return seen;
}

static void mounts_of_the_host_do_not_come_in(void **state) {
    (void)state;
    if (geteuid() != 0) {
        print_message("only root mounts\n");
        skip();
    }
    static const struct {
        const char *without;
        int seen;
    } sets[] = {{NULL, 0}, {"private", 11}};
    for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
        char *dir = temp_dir(uid ? uid : 4321);
        _cleanup_(free) char *sub = xasprintf("%s/sub", dir);
        assert_int_equal(mkdir(sub, 0755), 0);
        pid_t pid = fork();
        if (pid == 0)
            _exit(mounts_seen(i == 0 ? program : weak_program, sets[i].without, dir));
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), sets[i].seen);
        remove_tree(dir);
    }
}

/* Not every file system can show files as another's. */
static void a_bind_that_cannot_be_mapped_says_so(void **state) {
    (void)state;
    if (geteuid() != 0 || uid) {
        print_message("only root maps owners\n");
        skip();
    }
    char *dir = temp_dir(0);
    pid_t pid = fork();
    if (pid == 0) {
        struct client c;
        struct client_options o = {.program = program};
        struct guest g;
        struct sandbox_spec spec = {.id = "g", .binds = {{"/data", SANDBOX_BIND_RW}}, .nbinds = 1};
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("ramfs", dir, "ramfs", 0, NULL) < 0 || chown(dir, 4321, 4321) < 0 ||
            client_start(&c, &o, &err) < 0)
            _exit(2);
        int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (client_create(&c, &spec, &fd, &g, &err) != -ERR_UNSUPPORTED ||
            !strstr(err.message, "ramfs") || !strstr(err.message, "read-only"))
            _exit(3);
        spec.binds[0].mode = SANDBOX_BIND_RO;
        if (client_create(&c, &spec, &fd, &g, &err) < 0)
            _exit(4);
        client_stop(&c);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    remove_tree(dir);
}

/* ---- the tools people use ---- */

static void the_usual_tools_work_inside(void **state) {
    (void)state;
    struct guest g = make((struct sandbox_spec){0});
    static const struct {
        const char *tool, *command, *want;
    } tools[] = {
        {"/usr/bin/python3",
         "python3 -c 'import os,subprocess,threading,json,ssl;t=threading.Thread(target=lambda:0);"
         "t.start();t.join();print(subprocess.check_output([\"echo\",\"py\"]).decode(),end=\"\")'",
         "py"},
        {"/usr/bin/node",
         "node -e 'require(\"fs\").writeFileSync(\"n\",\"x\");"
         "console.log(require(\"child_process\").execSync(\"echo node\").toString().trim(),"
         "require(\"os\").cpus().length>0)'",
         "node true"},
        {"/usr/bin/node",
         "node -e 'const{Worker}=require(\"worker_threads\");"
         "new Worker(\"console.log(40+2)\",{eval:true})'",
         "42"},
        {"/usr/bin/git",
         "git init -q r && cd r && echo 1 > f && git add f && git commit -qm first && "
         "git clone -q . ../r2 && git -C ../r2 log --format=%s",
         "first"},
        {"/usr/bin/gcc",
         "echo 'int main(void){return 7;}' > m.c && gcc -O2 -o m m.c && (./m; echo $?)", "7"},
        {"/usr/bin/npm",
         "mkdir np; cd np; npm init -y >/dev/null 2>&1; node -p "
         "'require(\"./package.json\").version'",
         "1.0.0"},
        {"/usr/bin/tar", "echo a > a1; tar -cf t.tar a1 && tar -tf t.tar", "a1"},
        {"/bin/bash",
         "bash -c 'coproc cat; echo hi >&${COPROC[1]}; read x <&${COPROC[0]}; echo $x'", "hi"},
    };
    for (size_t i = 0; i < ARRAY_LEN(tools); i++) {
        struct stat st;
        if (stat(tools[i].tool, &st) < 0)
            continue;
        assert_string_equal(sh(&g, tools[i].command, NULL), tools[i].want);
    }
    done(&g);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv) {
    if (argc < 4) {
        (void)fprintf(stderr, "usage: test-sandbox CAY-SANDBOX WEAK PROBE [UID] [ONE]\n");
        return 2;
    }
    program = argv[1];
    weak_program = argv[2];
    uid = argc > 4 ? (uid_t)strtoul(argv[4], NULL, 10) : 0;
    if (uid && geteuid() != 0)
        return 77;
    if (argc > 5)
        cmocka_set_test_filter(argv[5]);
    buf_init(&probe, 16 << 20);
    if (fd_read_file(AT_FDCWD, argv[3], &probe, &err) < 0)
        return 1;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    const struct CMUnitTest tests[] = {
        T(exec_passes_the_exit_status_through),
        T(a_command_that_cannot_start_is_an_error_not_an_exit),
        T(commands_that_begin_at_once_do_not_mix),
        T(a_final_command_takes_the_sandbox_with_it),
        T(environment_and_directory_are_what_was_asked_for),
        T(an_account_and_a_work_folder_of_another_name),
        T(standard_input_reaches_the_command),
        T(a_brief_command_is_told_of_at_its_end),
        T(a_signal_reaches_the_whole_group),
        T(a_terminal_is_a_terminal),
        T(limits_of_a_command_only_go_down),
        T(orphans_are_reaped),
        T(files_go_in_and_out),
        T(long_lists_come_in_pages),
        T(links_lead_nowhere_but_into_the_guest),
        T(a_race_with_delete_loses_nothing_else),
        T(archives_and_snapshots_round_trip),
        T(a_port_inside_can_be_reached_from_the_front),
        T(the_egress_listener_is_the_only_way_out),
        T(binds_are_read_only_unless_asked),
        T(without_the_wall_a_setuid_file_could_be_left),
        T(a_bind_of_roots_folder_is_not_writable),
        T(binds_go_anywhere_that_is_not_the_systems),
        T(a_bind_can_be_a_single_file),
        T(a_bind_gives_no_more_than_its_owner_has),
        T(a_root_file_system_can_be_a_folder_or_an_archive),
        T(a_pool_gives_the_same_sandbox_sooner),
        T(too_many_sandboxes_are_refused_by_name),
        T(a_blank_box_takes_any_spec_and_no_place),
        T(a_paused_sandbox_stands_still),
        T(what_a_sandbox_used_is_told),
        T(a_read_only_command_changes_nothing),
        T(without_its_walls_a_read_only_command_changes_much),
        T(a_fork_bomb_hits_its_limit),
        T(a_memory_bomb_is_killed),
        T(many_small_memory_eaters_are_bounded_together),
        T(memory_counts_wherever_it_is_kept),
        T(memory_of_sockets_is_bounded),
        T(what_a_command_left_behind_is_watched_too),
        T(what_forks_share_counts_once),
        T(what_a_user_has_only_so_many_of_is_shared),
        T(a_sandbox_has_its_share_of_terminals),
        T(the_hosts_crash_handler_is_not_started),
        T(the_disk_has_an_end),
        T(a_full_disk_leaves_room_to_run),
        T(without_its_wall_each_bomb_goes_further),
        T(a_flood_of_output_waits_for_its_reader),
        T(a_lease_on_a_program_holds_up_nobody_else),
        T(descriptors_on_their_way_hold_up_nobody_else),
        T(a_program_that_does_not_begin_is_given_up),
        T(stopping_every_new_process_holds_up_nobody_else),
        T(below_the_root_there_is_nothing),
        T(killing_the_launcher_leaves_nothing),
        T(killing_the_front_leaves_nothing),
        T(leftovers_of_a_dead_launcher_are_swept),
        T(no_descriptor_or_process_leaks_in_the_launcher),
        T(a_masked_host_proc_means_no_proc_inside),
        T(mounts_of_the_host_do_not_come_in),
        T(a_bind_that_cannot_be_mapped_says_so),
        T(the_usual_tools_work_inside),
    };
    return cmocka_run_group_tests_name("sandbox", tests, NULL, NULL);
}
