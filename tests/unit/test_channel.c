#include "base/fd.h"
#include "loop/channel.h"
#include "unit/fds.h"
#include "unit/unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static uv_loop_t loop;
static struct channel *channel;
static int peer;
static size_t before;

static struct {
    int frames;
    int ends;
    enum err_code end;
    uint64_t last_id;
    bool close_at_first;
} seen;

static void on_frame(void *ctx, struct wire_frame *f) {
    (void)ctx;
    seen.frames++;
    assert_true(f->id > seen.last_id);
    seen.last_id = f->id;
    if (seen.close_at_first) {
        channel_close(channel);
        channel = NULL;
    }
}

static void on_end(void *ctx, const struct err *err) {
    (void)ctx;
    seen.ends++;
    seen.end = err->code;
}

static void turn(int n) {
    for (int i = 0; i < n; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
}

static int setup(void **state) {
    (void)state;
    before = fds_open();
    memset(&seen, 0, sizeof(seen));
    (void)uv_loop_init(&loop);
    int pair[2];
    (void)fd_pair(pair, NULL);
    peer = pair[1];
    struct channel_options o = {.max_frame_bytes = 1 << 20,
                                .max_queue_bytes = 1 << 20,
                                .on_frame = on_frame,
                                .on_end = on_end};
    struct err e;
    return channel_create(&loop, pair[0], &o, &channel, &e);
}

static int teardown(void **state) {
    (void)state;
    channel_close(channel);
    fd_close(&peer);
    turn(5);
    return uv_loop_close(&loop) == 0 && fds_open() == before ? 0 : -1;
}

static void send_many(int n) {
    /* All in one write, so that they come in one read. */
    uint8_t *all = malloc((size_t)n * WIRE_HEAD_SIZE);
    for (int i = 0; i < n; i++)
        wire_head_encode(all + i * WIRE_HEAD_SIZE, 1, (uint64_t)i + 1, 0, 0);
    assert_int_equal(fd_write_all(peer, all, (size_t)n * WIRE_HEAD_SIZE), 0);
    free(all);
}

static void test_frames_that_came_in_one_piece_all_arrive(void **state) {
    (void)state;
    send_many(250);
    turn(20);
    assert_int_equal(seen.frames, 250);
}

static void test_closing_in_a_callback_ends_it_there(void **state) {
    (void)state;
    seen.close_at_first = true;
    send_many(5);
    turn(10);
    assert_int_equal(seen.frames, 1);
    assert_int_equal(seen.ends, 0);
}

static void test_the_end_comes_once_after_what_was_sent(void **state) {
    (void)state;
    send_many(3);
    fd_close(&peer);
    turn(10);
    assert_int_equal(seen.frames, 3);
    assert_int_equal(seen.ends, 1);
    assert_int_equal(seen.end, ERR_CANCELLED);
    assert_false(channel_send(channel, &(struct wire_out){.type = 1}));
}

static void test_a_broken_contract_ends_it(void **state) {
    (void)state;
    uint8_t head[WIRE_HEAD_SIZE];
    wire_head_encode(head, 1, 1, 2 << 20, 0);
    assert_int_equal(fd_write_all(peer, head, sizeof(head)), 0);
    turn(10);
    assert_int_equal(seen.ends, 1);
    assert_int_equal(seen.end, ERR_PROTOCOL);
}

static void test_the_queue_has_a_bound_and_keeps_order(void **state) {
    (void)state;
    static char data[50000];
    int sent = 0;
    int files = 0;
    struct stat null;
    while (sent < 1000) {
        /* Every fifth carries a descriptor, which has to wait with its frame. */
        int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        assert_int_equal(fstat(fd, &null), 0);
        struct wire_out out = {.type = 1,
                               .id = (uint64_t)sent,
                               .pieces = {{data, sizeof(data)}},
                               .fds = &fd,
                               .nfds = sent % 5 == 0};
        bool ok = channel_send(channel, &out);
        close(fd);
        if (!ok)
            break;
        files += sent % 5 == 0;
        sent++;
    }
    assert_true(sent > 20 && sent < 40);
    struct wire_reader r;
    struct err e;
    wire_reader_init(&r, 1 << 20);
    (void)fd_set_nonblock(peer, true);
    int got = 0;
    int got_files = 0;
    for (int i = 0; i < 10000 && got < sent; i++) {
        struct wire_frame f;
        int rc = wire_next(&r, &f, &e);
        if (rc == 0) {
            turn(1);
            assert_true(wire_recv(&r, peer, &e) >= 0);
            continue;
        }
        assert_int_equal(rc, 1);
        assert_int_equal(f.id, got);
        assert_int_equal(f.nfds, got % 5 == 0);
        if (f.nfds) {
            struct stat st;
            assert_int_equal(fstat(f.fds[0], &st), 0);
            assert_int_equal(st.st_rdev, null.st_rdev);
            got_files++;
        }
        wire_frame_finish(&f);
        got++;
    }
    assert_int_equal(got, sent);
    assert_int_equal(got_files, files);
    wire_reader_finish(&r);
}

static void test_queued_descriptors_are_closed_with_the_channel(void **state) {
    (void)state;
    static char data[300000];
    for (int i = 0; i < 4; i++) {
        int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        (void)channel_send(
            channel, &(struct wire_out){.pieces = {{data, sizeof(data)}}, .fds = &fd, .nfds = 1});
        close(fd);
    }
    /* teardown() counts */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_frames_that_came_in_one_piece_all_arrive),
        UNIT(test_closing_in_a_callback_ends_it_there),
        UNIT(test_the_end_comes_once_after_what_was_sent),
        UNIT(test_a_broken_contract_ends_it),
        UNIT(test_the_queue_has_a_bound_and_keeps_order),
        UNIT(test_queued_descriptors_are_closed_with_the_channel),
    };
    /* The first loop of a process opens descriptors that stay. */
    (void)uv_loop_init(&loop);
    (void)uv_loop_close(&loop);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
