/* The front's side of sandboxes on a loop, against the real program:
 *
 *   test-host CAY-SANDBOX [uid] */

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/sandbox/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { DEADLINE_MS = 60000 };

static int program;
static uv_loop_t loop;
static struct sandbox_launcher *host;

struct seen {
    bool ready, failed, exited, stopped;
    int listener;
    struct err err;
    bool has_err;
};

struct command {
    struct sandbox_command *command;
    bool started, ended, has_exit;
    struct sandbox_exit exit;
    struct err err;
    struct buf out[3];
    size_t bytes[3];
    int drained;
};

struct answer {
    bool came, failed;
    uint64_t value;
    struct sandbox_stat stat;
    struct sandbox_stats used;
    int fd;
    size_t entries;
    struct err err;
};

static void on_hang(uv_timer_t *t) {
    (void)t; /* wakes the loop up, so that the deadline is looked at */
}

static void until(const bool *flag) {
    int64_t end = clock_mono_ms() + DEADLINE_MS;
    uv_timer_t tick;
    (void)uv_timer_init(&loop, &tick);
    while (!*flag) {
        if (clock_mono_ms() > end)
            fail_msg("it did not happen");
        (void)uv_timer_start(&tick, on_hang, DEADLINE_MS, 0);
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&tick, NULL);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
}

static void on_ready(void *ctx, int listener) {
    struct seen *s = ctx;
    s->ready = true;
    s->listener = listener;
}

static void on_failed(void *ctx, const struct err *err) {
    struct seen *s = ctx;
    s->failed = s->exited = true;
    s->err = *err;
    s->has_err = true;
}

static void on_exited(void *ctx, const struct sandbox_stats *stats, const struct err *err) {
    struct seen *s = ctx;
    (void)stats;
    s->exited = true;
    s->has_err = err != NULL;
    if (err)
        s->err = *err;
}

static const struct sandbox_box_callbacks box_callbacks = {
    .on_ready = on_ready, .on_failed = on_failed, .on_exited = on_exited};

static struct sandbox_box *ask(struct seen *s, struct sandbox_spec spec) {
    struct err err;
    *s = (struct seen){.listener = -1};
    if (!spec.id)
        spec.id = "box";
    struct sandbox_box *b = sandbox_box_create(host, &spec, NULL, &box_callbacks, s, &err);
    if (!b)
        fail_msg("%s", err.message);
    return b;
}

static struct sandbox_box *make(struct seen *s) {
    struct sandbox_box *b = ask(s, (struct sandbox_spec){0});
    int64_t end = clock_mono_ms() + DEADLINE_MS;
    while (!s->ready && !s->failed && clock_mono_ms() < end)
        (void)uv_run(&loop, UV_RUN_ONCE);
    if (!s->ready)
        fail_msg("no sandbox: %s", s->err.message);
    return b;
}

static void unmake(struct sandbox_box *b, struct seen *s) {
    sandbox_box_destroy(b);
    until(&s->exited);
}

static void on_started(void *ctx) {
    ((struct command *)ctx)->started = true;
}

static void on_output(void *ctx, int stream, const char *data, size_t len) {
    struct command *c = ctx;
    c->bytes[stream] += len;
    (void)buf_add(&c->out[stream], data, len);
}

static void on_drained(void *ctx) {
    ((struct command *)ctx)->drained++;
}

static void on_end(void *ctx, const struct sandbox_exit *status, const struct err *err) {
    struct command *c = ctx;
    c->ended = true;
    c->has_exit = status != NULL;
    if (status)
        c->exit = *status;
    if (err)
        c->err = *err;
    c->command = NULL;
}

static void begin(struct sandbox_box *b, struct command *c, const char *text, bool tty,
                  bool input) {
    struct err err;
    *c = (struct command){0};
    buf_init(&c->out[1], 1 << 20);
    buf_init(&c->out[2], 1 << 20);
    char *argv[] = {"sh", "-c", (char *)(uintptr_t)text, NULL};
    struct sandbox_exec e = {.argv = {argv, 3}, .tty = tty, .cols = 100, .rows = 30};
    c->command = sandbox_command_start(
        b,
        &(struct sandbox_command_options){.exec = &e,
                                          .input = input,
                                          .callbacks = {on_started, on_output, on_drained, on_end},
                                          .ctx = c},
        &err);
    if (!c->command)
        fail_msg("%s", err.message);
}

static void end(struct command *c) {
    buf_finish(&c->out[1]);
    buf_finish(&c->out[2]);
}

static void on_answer(void *ctx, struct sandbox_reply *r, const struct err *err) {
    struct answer *a = ctx;
    a->came = true;
    a->failed = err != NULL;
    if (err)
        a->err = *err;
    if (!r)
        return;
    a->value = r->value;
    a->stat = r->stat;
    a->used = r->used;
    a->fd = steal_fd(&r->fd);
    a->entries = r->nentries;
}

static int setup(void **state) {
    (void)state;
    struct sandbox_config config = {
        .pool = 1, .max = 8, .uid_base = 100000 + (uint32_t)getpid() % 32768 * 64, .uid_count = 64};
    config.state_dir = "";
    (void)uv_loop_init(&loop);
    host = sandbox_launcher_create(&(struct sandbox_launcher_options){
        .loop = &loop, .exec_fd = program, .starter = -1, .config = &config});
    return 0;
}

static void on_stopped(void *ctx) {
    *(bool *)ctx = true;
}

static int teardown(void **state) {
    (void)state;
    bool stopped = false;
    sandbox_launcher_stop(host, on_stopped, &stopped);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return stopped && uv_loop_close(&loop) == 0 ? 0 : -1;
}

static void a_command_runs_and_its_streams_are_apart(void **state) {
    (void)state;
    struct seen s;
    struct command c;
    struct sandbox_box *b = make(&s);
    begin(b, &c, "echo out; echo err >&2; exit 7", false, false);
    until(&c.ended);
    assert_true(c.started && c.has_exit);
    assert_int_equal(c.exit.code, 7);
    assert_false(c.exit.signaled);
    assert_string_equal(c.out[1].data, "out\n");
    assert_string_equal(c.out[2].data, "err\n");
    end(&c);
    unmake(b, &s);
    assert_false(s.has_err);
}

/* Scripts write to /dev/stderr by name; a pipe belongs to whoever made it. */
static void streams_can_be_opened_by_their_names(void **state) {
    (void)state;
    struct seen s;
    struct command c;
    struct sandbox_box *b = make(&s);
    begin(b, &c, "cat /dev/stdin > /dev/stdout && echo err > /dev/stderr && echo fd >> /dev/fd/1",
          false, true);
    assert_true(sandbox_command_write(c.command, "in\n", 3));
    sandbox_command_end_input(c.command);
    until(&c.ended);
    assert_string_equal(c.out[2].data, "err\n");
    assert_string_equal(c.out[1].data, "in\nfd\n");
    assert_int_equal(c.exit.code, 0);
    end(&c);
    unmake(b, &s);
}

static void a_command_that_is_not_there_is_an_error(void **state) {
    (void)state;
    struct seen s;
    struct command c = {0};
    struct sandbox_box *b = make(&s);
    struct err err;
    char *argv[] = {"no-such-program", NULL};
    struct sandbox_exec e = {.argv = {argv, 1}};
    assert_non_null(sandbox_command_start(
        b,
        &(struct sandbox_command_options){
            .exec = &e, .callbacks = {on_started, on_output, NULL, on_end}, .ctx = &c},
        &err));
    until(&c.ended);
    assert_false(c.started || c.has_exit);
    assert_int_equal(c.err.code, ERR_NOT_FOUND);
    unmake(b, &s);
}

static void input_is_written_and_ended(void **state) {
    (void)state;
    struct seen s;
    struct command c;
    struct sandbox_box *b = make(&s);
    static char block[300 * 1024];
    memset(block, 'x', sizeof(block));
    begin(b, &c, "wc -c", false, true);
    assert_true(sandbox_command_write(c.command, block, sizeof(block)));
    assert_true(sandbox_command_write(c.command, block, sizeof(block)));
    assert_true(sandbox_command_write(c.command, block, sizeof(block)));
    assert_false(sandbox_command_write(c.command, block, sizeof(block))); /* SANDBOX_INPUT_MAX */
    sandbox_command_end_input(c.command);
    until(&c.ended);
    assert_string_equal(c.out[1].data, "921600\n");
    assert_true(c.drained > 0);
    end(&c);
    unmake(b, &s);
}

static void a_paused_reader_stops_the_writer(void **state) {
    (void)state;
    struct seen s;
    struct command c, mark;
    struct sandbox_box *b = make(&s);
    begin(b, &c, "head -c 4000000 /dev/zero; echo end >&2", false, false);
    sandbox_command_pause(c.command, true);
    until(&c.started);
    begin(b, &mark, "sleep 0.3", false, false);
    until(&mark.ended);
    assert_false(c.ended);
    assert_int_equal(c.bytes[1], 0);
    sandbox_command_pause(c.command, false);
    until(&c.ended);
    assert_int_equal(c.bytes[1], 4000000);
    assert_string_equal(c.out[2].data, "end\n");
    end(&c);
    end(&mark);
    unmake(b, &s);
}

static void dropped_output_is_counted(void **state) {
    (void)state;
    struct seen s;
    struct command c;
    struct sandbox_box *b = make(&s);
    begin(b, &c, "head -c 50000000 /dev/zero; echo $? >&2", false, false);
    sandbox_command_discard(c.command, 1);
    struct sandbox_command *j = c.command;
    uint64_t dropped = 0;
    while (!c.ended) {
        dropped = sandbox_command_discarded(j, 1);
        (void)uv_run(&loop, UV_RUN_ONCE);
    }
    assert_int_equal(c.bytes[1], 0);
    assert_true(dropped > 40000000 && dropped <= 50000000);
    assert_string_equal(c.out[2].data, "0\n");
    end(&c);
    unmake(b, &s);
}

/* Its pipes stay open with the process that was left, which must not hold up the end. */
static void what_a_command_leaves_behind_is_not_waited_for(void **state) {
    (void)state;
    struct seen s;
    struct command c, look;
    struct sandbox_box *b = make(&s);
    begin(b, &c, "echo done; (while sleep 0.02; do echo more || exit; done; ) & echo $! >/work/pid",
          false, false);
    until(&c.ended);
    assert_true(c.out[1].len >= 5 && memcmp(c.out[1].data, "done\n", 5) == 0);
    size_t len = c.bytes[1];
    begin(b, &look, "sleep 0.3; kill -0 $(cat /work/pid)", false, false);
    until(&look.ended);
    assert_int_equal(look.exit.code, 0); /* no broken pipe */
    assert_int_equal(c.bytes[1], len);
    end(&c);
    end(&look);
    unmake(b, &s);
}

static void a_terminal_has_a_size_and_line_editing(void **state) {
    (void)state;
    struct seen s;
    struct command c;
    struct sandbox_box *b = make(&s);
    begin(b, &c, "stty size; read x; echo got:$x; stty size", true, false);
    until(&c.started);
    assert_true(sandbox_command_is_terminal(c.command));
    int64_t stop = clock_mono_ms() + DEADLINE_MS;
    while (!(c.out[1].data && strstr(c.out[1].data, "30 100")) && clock_mono_ms() < stop)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_true(sandbox_command_resize(c.command, 120, 40));
    assert_true(sandbox_command_write(c.command,
                                      "abX\x7f"
                                      "c\r",
                                      6));
    until(&c.ended);
    assert_non_null(c.out[1].data);
    assert_non_null(strstr(c.out[1].data ? c.out[1].data : "", "got:abc"));
    assert_non_null(strstr(c.out[1].data, "40 120"));
    assert_int_equal(c.exit.code, 0);
    end(&c);
    unmake(b, &s);
}

static void signals_reach_a_command(void **state) {
    (void)state;
    struct seen s;
    struct command c;
    struct answer a = {0};
    struct sandbox_box *b = make(&s);
    begin(b, &c, "exec sleep 100", false, false);
    until(&c.started);
    assert_non_null(sandbox_box_signal(b, c.command, SIGTERM, false, on_answer, &a));
    until(&c.ended);
    assert_true(a.came && !a.failed);
    assert_true(c.exit.signaled);
    assert_int_equal(c.exit.code, SIGTERM);
    end(&c);
    unmake(b, &s);
}

static void files_go_in_and_out(void **state) {
    (void)state;
    struct seen s;
    struct answer a = {.fd = -1};
    struct sandbox_box *b = make(&s);
    assert_non_null(sandbox_box_write(b,
                                      &(struct sandbox_put){.path = "/work/a/b.txt",
                                                            .mode = 0644,
                                                            .flags = SANDBOX_WRITE_PARENTS,
                                                            .data = "hello",
                                                            .len = 5,
                                                            .fd = -1},
                                      on_answer, &a));
    until(&a.came);
    assert_false(a.failed);
    assert_int_equal(a.value, 5);
    a = (struct answer){.fd = -1};
    assert_non_null(sandbox_box_read(b, "/work/a/b.txt", on_answer, &a));
    until(&a.came);
    char text[16] = "";
    assert_int_equal(pread(a.fd, text, sizeof(text), 0), 5);
    assert_string_equal(text, "hello");
    close(a.fd);
    a = (struct answer){.fd = -1};
    assert_non_null(sandbox_box_list(b, "/work", 0, on_answer, &a));
    until(&a.came);
    assert_int_equal(a.entries, 1);
    a = (struct answer){.fd = -1};
    assert_non_null(sandbox_box_read(b, "/etc/shadow", on_answer, &a));
    until(&a.came);
    assert_true(a.failed);
    a = (struct answer){.fd = -1};
    assert_non_null(sandbox_box_stats(b, on_answer, &a));
    until(&a.came);
    assert_false(a.failed);
    unmake(b, &s);
}

static void the_end_of_a_sandbox_ends_its_commands_without_an_exit(void **state) {
    (void)state;
    struct seen s;
    struct command c;
    struct sandbox_box *b = make(&s);
    begin(b, &c, "echo first; sleep 100", false, false);
    until(&c.started);
    while (c.bytes[1] == 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    unmake(b, &s);
    assert_true(c.ended && !c.has_exit);
    assert_int_equal(c.err.code, ERR_CANCELLED);
    end(&c);
}

static void a_sandbox_that_ends_by_itself_says_so(void **state) {
    (void)state;
    struct seen s;
    struct command c = {0};
    struct err err;
    struct sandbox_box *b = make(&s);
    char *argv[] = {"true", NULL};
    struct sandbox_exec e = {.argv = {argv, 1}, .final = true};
    assert_non_null(sandbox_command_start(
        b,
        &(struct sandbox_command_options){
            .exec = &e, .callbacks = {on_started, on_output, NULL, on_end}, .ctx = &c},
        &err));
    until(&s.exited);
    assert_true(c.ended && c.has_exit);
    assert_true(s.has_err);
}

static void a_spec_that_cannot_be_is_a_failure(void **state) {
    (void)state;
    struct seen s;
    (void)ask(&s, (struct sandbox_spec){.root = "nowhere"});
    until(&s.failed);
    assert_false(s.ready);
}

/* A request that was sent before the refusal came is told the reason too. */
static void a_machine_that_can_make_none_is_named_as_the_reason(void **state) {
    (void)state;
    struct seen s;
    struct err err;
    struct sandbox_config config = {.max = 0, .state_dir = ""};
    assert_int_equal(teardown(NULL), 0);
    (void)uv_loop_init(&loop);
    host = sandbox_launcher_create(&(struct sandbox_launcher_options){
        .loop = &loop, .exec_fd = program, .starter = -1, .config = &config});
    (void)ask(&s, (struct sandbox_spec){0});
    until(&s.failed);
    assert_int_equal(s.err.code, ERR_UNAVAILABLE);
    assert_string_equal(s.err.message,
                        "sandboxes cannot be made on this machine: malformed configuration");
    assert_true(sandbox_launcher_check(host, &err) < 0);
    assert_string_equal(err.message, s.err.message);
}

static void when_the_launcher_dies_it_is_started_again(void **state) {
    (void)state;
    struct seen s;
    struct command c;
    struct sandbox_box *b = make(&s);
    begin(b, &c, "sleep 100", false, false);
    until(&c.started);
    assert_int_equal(kill(sandbox_launcher_info(host).pid, SIGKILL), 0);
    until(&s.exited);
    assert_true(c.ended && !c.has_exit);
    assert_int_equal(s.err.code, ERR_UNAVAILABLE);
    int64_t stop = clock_mono_ms() + DEADLINE_MS;
    struct err err;
    while (sandbox_launcher_check(host, &err) < 0 && clock_mono_ms() < stop)
        (void)uv_run(&loop, UV_RUN_ONCE);
    end(&c);
    b = make(&s);
    unmake(b, &s);
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    log_init("test", LOG_LEVEL_OFF);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignore, NULL);
    program = open(argv[1], O_PATH | O_CLOEXEC);
    if (program < 0)
        return 2;
    uid_t uid = argc > 2 ? (uid_t)strtoul(argv[2], NULL, 10) : 0;
    if (uid && geteuid() != 0)
        return 77; /* only root can become somebody else */
    if (uid &&
        (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0))
        return 2;
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_command_runs_and_its_streams_are_apart),
        T(streams_can_be_opened_by_their_names),
        T(a_command_that_is_not_there_is_an_error),
        T(input_is_written_and_ended),
        T(a_paused_reader_stops_the_writer),
        T(dropped_output_is_counted),
        T(what_a_command_leaves_behind_is_not_waited_for),
        T(a_terminal_has_a_size_and_line_editing),
        T(signals_reach_a_command),
        T(files_go_in_and_out),
        T(the_end_of_a_sandbox_ends_its_commands_without_an_exit),
        T(a_sandbox_that_ends_by_itself_says_so),
        T(a_spec_that_cannot_be_is_a_failure),
        T(a_machine_that_can_make_none_is_named_as_the_reason),
        T(when_the_launcher_dies_it_is_started_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
