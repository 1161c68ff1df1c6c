#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "loop/keeper.h"
#include "unit/fds.h"
#include "unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static uv_loop_t loop;
static int helper;
static size_t before;
static struct keeper *keeper;
static int starts;
static int64_t started[8];
static int frames;
static int ends;
static int stopped;
static bool hurry;

static int setup(void **state) {
    (void)state;
    log_init("test", LOG_LEVEL_OFF);
    before = fds_open();
    starts = frames = ends = stopped = 0;
    hurry = false;
    const char *path = getenv("LOOP_HELPER");
    helper = open(path ? path : "", O_PATH | O_CLOEXEC);
    return helper < 0 ? -1 : uv_loop_init(&loop);
}

static void on_stopped(void *ctx) {
    (void)ctx;
    stopped++;
}

static int teardown(void **state) {
    (void)state;
    keeper_stop(keeper, on_stopped, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    fd_close(&helper);
    return stopped == 1 && uv_loop_close(&loop) == 0 && fds_open() == before ? 0 : -1;
}

static void on_start(void *ctx, struct channel *channel) {
    (void)ctx;
    (void)channel;
    if (starts < 8)
        started[starts] = clock_mono_ms();
    starts++;
}

static void on_frame(void *ctx, struct wire_frame *f) {
    (void)ctx;
    (void)f;
    frames++;
}

static void on_end(void *ctx) {
    (void)ctx;
    ends++;
    if (hurry)
        keeper_hurry(keeper);
}

static void keep(const char *what) {
    static const char *args[3];
    args[0] = what;
    keeper = keeper_create(&loop, &(struct keeper_options){.name = "helper",
                                                           .exec_fd = helper,
                                                           .args = args,
                                                           .max_frame_bytes = 4096,
                                                           .max_queue_bytes = 4096,
                                                           .on_start = on_start,
                                                           .on_frame = on_frame,
                                                           .on_end = on_end});
}

static void turn_until(const int *count, int wanted) {
    int64_t end = clock_mono_ms() + 60000;
    while (*count < wanted && clock_mono_ms() < end) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        (void)usleep(1000);
    }
    assert_true(*count >= wanted);
}

static void test_a_program_that_ends_is_started_again_with_growing_pauses(void **state) {
    (void)state;
    keep("exit");
    turn_until(&starts, 4);
    assert_true(started[1] - started[0] >= 99);
    assert_true(started[2] - started[1] >= 199);
    assert_true(started[3] - started[2] >= 399);
    /* The fourth life may be over in the same turn of the loop. */
    assert_in_range(ends, 3, 4);
    assert_int_equal(keeper_info(keeper).restarts, ends);
}

static void test_after_an_end_of_known_cause_there_is_no_pause(void **state) {
    (void)state;
    hurry = true;
    keep("serve");
    for (int i = 1; i <= 6; i++) {
        turn_until(&frames, i);
        keeper_kill(keeper);
        turn_until(&ends, i);
        assert_string_equal(keeper_info(keeper).ended, "signal 9 (Killed)");
        (void)uv_run(&loop, UV_RUN_NOWAIT); /* the next turn begins another life, if none has */
        assert_int_equal(starts, i + 1);
    }
    turn_until(&frames, 7);
    /* And it is not remembered. */
    hurry = false;
    int64_t killed = clock_mono_ms();
    keeper_kill(keeper);
    turn_until(&frames, 8);
    assert_true(started[7] - killed >= 99);
}

static void test_a_killed_program_comes_back(void **state) {
    (void)state;
    keep("serve");
    turn_until(&frames, 1);
    struct keeper_info info = keeper_info(keeper);
    assert_int_equal(info.state, KEEPER_RUNNING);
    assert_non_null(keeper_channel(keeper));
    (void)kill(info.pid, SIGKILL);
    turn_until(&ends, 1);
    assert_null(keeper_channel(keeper));
    assert_string_equal(keeper_state_name(keeper_info(keeper).state), "backoff");
    assert_int_equal(keeper_info(keeper).pid, 0);
    turn_until(&frames, 2);
    assert_int_not_equal(keeper_info(keeper).pid, info.pid);
}

static void test_stopping_closes_the_channel_which_ends_the_program(void **state) {
    (void)state;
    keep("serve");
    turn_until(&frames, 1);
    pid_t pid = keeper_info(keeper).pid;
    keeper_stop(keeper, on_stopped, NULL);
    (void)uv_run(&loop, UV_RUN_NOWAIT); /* its end is the last thing in this turn */
    siginfo_t end = {0};                /* by itself: the loop, which would kill it, stands still */
    assert_int_equal(waitid(P_PID, (id_t)pid, &end, WEXITED | WNOWAIT), 0);
    assert_int_equal(end.si_code, CLD_EXITED);
    turn_until(&stopped, 1);
    assert_int_equal(ends, 0);
    assert_int_equal(kill(pid, 0), -1);
    stopped = 0;
    keep("exit"); /* teardown() stops one in its pause */
    turn_until(&ends, 1);
}

static void test_a_stubborn_program_is_killed(void **state) {
    (void)state;
    keep("stubborn");
    turn_until(&frames, 1);
    /* teardown() waits for it to go */
}

static int take_fd(int socket) {
    char byte;
    char space[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
    assert_int_equal(recvmsg(socket, &msg, MSG_CMSG_CLOEXEC), 1);
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
    return fd;
}

/* This test is the starter and its programs. */
static void test_a_starter_is_asked_for_each_life(void **state) {
    (void)state;
    struct err err;
    int pair[2];
    assert_int_equal(fd_pair(pair, &err), 0);
    keeper = keeper_create(&loop, &(struct keeper_options){.name = "started",
                                                           .exec_fd = -1,
                                                           .starter = pair[0],
                                                           .max_frame_bytes = 4096,
                                                           .max_queue_bytes = 4096,
                                                           .on_start = on_start,
                                                           .on_frame = on_frame,
                                                           .on_end = on_end});
    assert_int_equal(starts, 1);
    int first = take_fd(pair[1]);
    assert_int_equal(wire_send(first, &(struct wire_out){.type = 1}), 0);
    turn_until(&frames, 1);
    close(first); /* it ends, whatever it was */
    turn_until(&ends, 1);
    turn_until(&starts, 2);
    int second = take_fd(pair[1]);
    assert_int_equal(wire_send(second, &(struct wire_out){.type = 1}), 0);
    turn_until(&frames, 2);
    assert_int_equal(keeper_info(keeper).restarts, 1);
    /* Without the starter it tries again and again, and says that it does not run. */
    close(pair[1]);
    close(second);
    turn_until(&ends, 2);
    (void)uv_run(&loop, UV_RUN_ONCE);
    assert_null(keeper_channel(keeper));
    assert_int_equal(keeper_info(keeper).state, KEEPER_BACKOFF);
    for (int i = 0; i < 10 && !keeper_info(keeper).lost; i++)
        (void)uv_run(&loop, UV_RUN_ONCE);
    assert_true(keeper_info(keeper).lost);
    close(pair[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_a_program_that_ends_is_started_again_with_growing_pauses),
        UNIT(test_after_an_end_of_known_cause_there_is_no_pause),
        UNIT(test_a_killed_program_comes_back),
        UNIT(test_stopping_closes_the_channel_which_ends_the_program),
        UNIT(test_a_stubborn_program_is_killed),
        UNIT(test_a_starter_is_asked_for_each_life),
    };
    /* The first loop of a process opens descriptors that stay. */
    (void)uv_loop_init(&loop);
    (void)uv_loop_close(&loop);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
