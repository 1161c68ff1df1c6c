#include "base/fd.h"
#include "unit/fds.h"
#include "unit/unit.h"
#include "wire/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static size_t before;
static int pair[2];

static int setup(void **state) {
    (void)state;
    before = fds_open();
    return fd_pair(pair, NULL);
}

static int teardown(void **state) {
    (void)state;
    fd_close(&pair[0]);
    fd_close(&pair[1]);
    return fds_open() == before ? 0 : -1;
}

static int null_fd(void) {
    return open("/dev/null", O_RDWR | O_CLOEXEC);
}

/* Frames of several sizes in one piece of memory. */
static size_t make_stream(uint8_t *out) {
    size_t n = 0;
    static const size_t sizes[] = {0, 1, 15, 16, 17, 100, 0, 3};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        wire_head_encode(out + n, (uint16_t)(i + 1), i * 1000000007ULL, sizes[i], 0);
        n += WIRE_HEAD_SIZE;
        memset(out + n, (int)('a' + i), sizes[i]);
        n += sizes[i];
    }
    return n;
}

static void test_any_fragments_give_the_same_frames(void **state) {
    (void)state;
    uint8_t stream[1000];
    size_t len = make_stream(stream);
    for (size_t step = 1; step <= len; step++) {
        struct wire_reader r;
        struct err e;
        wire_reader_init(&r, 100);
        unsigned seen = 0;
        for (size_t at = 0; at < len; at += step) {
            size_t n = len - at < step ? len - at : step;
            assert_int_equal(wire_feed(&r, stream + at, n, NULL, 0, &e), 0);
            struct wire_frame f;
            while (wire_next(&r, &f, &e) == 1) {
                seen++;
                assert_int_equal(f.type, seen);
                assert_true(f.id == (seen - 1) * 1000000007ULL);
                for (size_t i = 0; i < f.len; i++)
                    assert_int_equal(f.data[i], 'a' + (int)seen - 1);
            }
        }
        assert_int_equal(seen, 8);
        wire_reader_finish(&r);
    }
}

static void test_a_frame_over_the_limit_is_refused_by_its_head(void **state) {
    (void)state;
    struct wire_reader r;
    struct err e;
    struct wire_frame f;
    uint8_t head[WIRE_HEAD_SIZE];
    wire_reader_init(&r, 100);
    wire_head_encode(head, 1, 1, 101, 0);
    assert_int_equal(wire_feed(&r, head, sizeof(head), NULL, 0, &e), 0);
    assert_int_equal(wire_next(&r, &f, &e), -ERR_PROTOCOL);
    wire_reader_finish(&r);
    wire_reader_init(&r, 100);
    wire_head_encode(head, 1, 1, UINT32_MAX, 0);
    assert_int_equal(wire_feed(&r, head, sizeof(head), NULL, 0, &e), 0);
    assert_int_equal(wire_next(&r, &f, &e), -ERR_PROTOCOL);
    wire_reader_finish(&r);
    /* Nor can bytes pile up before anybody looks. */
    wire_reader_init(&r, 100);
    char junk[65536] = {0};
    int rc = 0;
    for (int i = 0; i < 10 && rc == 0; i++)
        rc = wire_feed(&r, junk, sizeof(junk), NULL, 0, &e);
    assert_int_equal(rc, -ERR_PROTOCOL);
    wire_reader_finish(&r);
}

static void test_descriptors_come_in_order(void **state) {
    (void)state;
    int files[WIRE_FDS_MAX];
    struct stat wanted[WIRE_FDS_MAX];
    for (int i = 0; i < WIRE_FDS_MAX; i++) {
        files[i] = memfd_create("f", MFD_CLOEXEC);
        assert_int_equal(fstat(files[i], &wanted[i]), 0);
    }
    assert_int_equal(wire_send(pair[0], &(struct wire_out){.type = 1, .fds = files, .nfds = 3}), 0);
    assert_int_equal(wire_send(pair[0], &(struct wire_out){.type = 2}), 0);
    assert_int_equal(
        wire_send(
            pair[0],
            &(struct wire_out){.type = 3, .pieces = {{"data", 4}}, .fds = files + 3, .nfds = 5}),
        0);
    for (int i = 0; i < WIRE_FDS_MAX; i++)
        close(files[i]);
    struct wire_reader r;
    struct err e;
    wire_reader_init(&r, 1000);
    int at = 0;
    for (int type = 1; type <= 3; type++) {
        struct wire_frame f;
        assert_int_equal(wire_read(&r, pair[1], &f, &e), 1);
        assert_int_equal(f.type, type);
        assert_int_equal(f.nfds, type == 1 ? 3 : type == 2 ? 0 : 5);
        for (size_t i = 0; i < f.nfds; i++, at++) {
            struct stat st;
            assert_int_equal(fstat(f.fds[i], &st), 0);
            assert_int_equal(st.st_ino, wanted[at].st_ino);
            assert_int_equal(fcntl(f.fds[i], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        }
        int taken = wire_frame_take_fd(&f, 0);
        assert_int_equal(wire_frame_take_fd(&f, f.nfds), -1);
        fd_close(&taken);
        wire_frame_finish(&f);
        wire_frame_finish(&f);
    }
    wire_reader_finish(&r);
}

/* Sends a head and descriptors that do not agree, and returns what the reader makes of it. */
static int odd(size_t promised, size_t sent, unsigned times) {
    int rc = 0;
    uint8_t head[WIRE_HEAD_SIZE];
    wire_head_encode(head, 1, 1, 0, promised);
    for (unsigned k = 0; k < times; k++) {
        int fds[300];
        union {
            struct cmsghdr align;
            char space[CMSG_SPACE(sizeof(fds))];
        } control;
        memset(&control, 0, sizeof(control));
        for (size_t i = 0; i < sent; i++)
            fds[i] = null_fd();
        struct iovec iov = {.iov_base = head, .iov_len = sizeof(head)};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
        if (sent > 0) {
            msg.msg_control = &control;
            msg.msg_controllen = CMSG_SPACE(sizeof(int) * sent);
            struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
            c->cmsg_level = SOL_SOCKET;
            c->cmsg_type = SCM_RIGHTS;
            c->cmsg_len = CMSG_LEN(sizeof(int) * sent);
            memcpy(CMSG_DATA(c), fds, sizeof(int) * sent);
        }
        assert_true(sendmsg(pair[0], &msg, 0) > 0);
        for (size_t i = 0; i < sent; i++)
            close(fds[i]);
    }
    (void)shutdown(pair[0], SHUT_WR);
    struct wire_reader r;
    struct err e;
    wire_reader_init(&r, 1000);
    for (unsigned k = 0; k <= times && rc >= 0; k++) {
        struct wire_frame f;
        rc = wire_read(&r, pair[1], &f, &e);
        if (rc == 1)
            wire_frame_finish(&f);
    }
    wire_reader_finish(&r);
    return rc;
}

static void test_fewer_descriptors_than_promised(void **state) {
    (void)state;
    assert_int_equal(odd(2, 1, 1), -ERR_PROTOCOL);
}

static void test_more_descriptors_than_promised(void **state) {
    (void)state;
    assert_int_equal(odd(1, 2, 1), -ERR_PROTOCOL);
}

static void test_descriptors_that_nobody_promised(void **state) {
    (void)state;
    assert_int_equal(odd(0, 3, 20), -ERR_PROTOCOL);
}

static void test_more_descriptors_than_a_frame_may_have(void **state) {
    (void)state;
    assert_int_equal(odd(9, 9, 1), -ERR_PROTOCOL);
}

static void test_very_many_descriptors(void **state) {
    (void)state;
    assert_int_equal(odd(8, 200, 1), -ERR_PROTOCOL);
}

static void test_as_promised_is_fine(void **state) {
    (void)state;
    assert_int_equal(odd(8, 8, 5), -ERR_CANCELLED); /* the end, after five good frames */
}

static void test_unread_descriptors_are_closed_with_the_reader(void **state) {
    (void)state;
    struct wire_reader r;
    struct err e;
    wire_reader_init(&r, 1000);
    int fds[20];
    for (int i = 0; i < 20; i++)
        fds[i] = null_fd();
    /* More than the queue takes: all are owned and closed all the same. */
    assert_int_equal(wire_feed(&r, "", 0, fds, 20, &e), -ERR_PROTOCOL);
    wire_reader_finish(&r);
    wire_reader_finish(NULL);
}

static void test_a_large_frame_goes_through_a_small_socket(void **state) {
    (void)state;
    size_t n = (size_t)3 << 20;
    pid_t pid = fork();
    if (pid == 0) {
        char *data = malloc(n);
        for (size_t i = 0; i < n; i++)
            data[i] = (char)(i * 7);
        (void)fd_set_nonblock(pair[0], true); /* it must cope with that as well */
        struct wire_out out = {
            .type = 5,
            .id = 6,
            .pieces = {{data, 1000}, {data + 1000, n - 2000}, {data + n - 1000, 1000}}};
        int rc = wire_send(pair[0], &out);
        free(data);
        _exit(rc == 0 ? 0 : 1);
    }
    struct wire_reader r;
    struct err e;
    struct wire_frame f;
    wire_reader_init(&r, n);
    assert_int_equal(wire_read(&r, pair[1], &f, &e), 1);
    assert_int_equal(f.len, n);
    for (size_t i = 0; i < n; i++)
        if (f.data[i] != (uint8_t)(i * 7))
            fail_msg("byte %zu differs", i);
    wire_reader_finish(&r);
    int st;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_int_equal(st, 0);
}

static void test_the_end_in_the_middle_of_a_frame(void **state) {
    (void)state;
    uint8_t head[WIRE_HEAD_SIZE];
    wire_head_encode(head, 1, 1, 50, 0);
    assert_int_equal(fd_write_all(pair[0], head, sizeof(head)), 0);
    assert_int_equal(fd_write_all(pair[0], "part", 4), 0);
    fd_close(&pair[0]);
    struct wire_reader r;
    struct err e;
    struct wire_frame f;
    wire_reader_init(&r, 100);
    assert_int_equal(wire_read(&r, pair[1], &f, &e), -ERR_CANCELLED);
    wire_reader_finish(&r);
}

static void test_what_cannot_be_sent_is_refused(void **state) {
    (void)state;
    int fds[9] = {0};
    assert_int_equal(wire_try_send(pair[0], &(struct wire_out){.fds = fds, .nfds = 9}), -1);
    assert_int_equal(errno, EMSGSIZE);
    fd_close(&pair[1]);
    assert_int_equal(wire_send(pair[0], &(struct wire_out){.type = 1}), -1); /* and no SIGPIPE */
    assert_int_equal(errno, EPIPE);
}

/* The kernel cuts off what finds no room, and says only that it did: that is no fault of the peer.
 */
static void test_no_free_descriptor_is_not_the_peers_fault(void **state) {
    (void)state;
    int fds[] = {null_fd(), null_fd()};
    struct wire_out out = {.type = 7, .fds = fds, .nfds = 2};
    assert_int_equal(wire_send(pair[0], &out), 0);
    struct rlimit saved;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &saved), 0);
    /* Room for one of the two. */
    struct rlimit few = {.rlim_cur = (rlim_t)null_fd() + 1, .rlim_max = saved.rlim_max};
    close((int)few.rlim_cur - 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    struct wire_reader r;
    struct err e;
    wire_reader_init(&r, 100);
    int rc = wire_recv(&r, pair[1], &e);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &saved), 0);
    assert_int_equal(rc, -ERR_LIMIT);
    assert_non_null(strstr(e.message, "open files"));
    wire_reader_finish(&r);
    close(fds[0]);
    close(fds[1]);
}

/* Sends more descriptors than its limit before anybody reads; as a user whom the limit holds. */
static int send_many(int fd, int count) {
    struct rlimit r = {.rlim_cur = 16, .rlim_max = 16};
    if ((geteuid() == 0 && setresuid(54321, 54321, 54321) < 0) || setrlimit(RLIMIT_NOFILE, &r) < 0)
        return 2;
    for (int i = 0; i < count; i++)
        if (wire_send(fd, &(struct wire_out){.type = 7, .fds = &fd, .nfds = 1}) < 0)
            return 1;
    return 0;
}

static void test_descriptors_on_their_way_are_waited_for(void **state) {
    (void)state;
    enum { COUNT = 40 };
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(send_many(ends[1], COUNT));
    close(ends[1]);
    (void)usleep(100000);
    struct wire_reader reader;
    struct err err;
    wire_reader_init(&reader, 1024);
    int got = 0;
    struct wire_frame f;
    while (got < COUNT && wire_read(&reader, ends[0], &f, &err) > 0) {
        got++;
        wire_frame_finish(&f);
    }
    wire_reader_finish(&reader);
    close(ends[0]);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(got, COUNT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        UNIT(test_any_fragments_give_the_same_frames),
        UNIT(test_a_frame_over_the_limit_is_refused_by_its_head),
        UNIT(test_descriptors_come_in_order),
        UNIT(test_fewer_descriptors_than_promised),
        UNIT(test_more_descriptors_than_promised),
        UNIT(test_descriptors_that_nobody_promised),
        UNIT(test_more_descriptors_than_a_frame_may_have),
        UNIT(test_very_many_descriptors),
        UNIT(test_no_free_descriptor_is_not_the_peers_fault),
        UNIT(test_descriptors_on_their_way_are_waited_for),
        UNIT(test_as_promised_is_fine),
        UNIT(test_unread_descriptors_are_closed_with_the_reader),
        UNIT(test_a_large_frame_goes_through_a_small_socket),
        UNIT(test_the_end_in_the_middle_of_a_frame),
        UNIT(test_what_cannot_be_sent_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
