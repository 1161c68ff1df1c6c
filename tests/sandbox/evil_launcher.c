/* A launcher whose sandboxes have a hostile init: what it does is the id of the sandbox. For
 * test_contract.c. */

#include "base/cleanup.h"
#include "base/fd.h"
#include "wire/frame.h"
#include "wire/sandbox.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

static int control = 3;
static int init = -1;
static char mode[SANDBOX_ID_MAX];

static void say(int fd, uint16_t type, uint64_t id, const struct buf *b, int passed) {
    struct wire_out out = {.type = type,
                           .id = id,
                           .pieces = {{b ? b->data : NULL, b ? b->len : 0}},
                           .fds = &passed,
                           .nfds = passed >= 0 ? 1 : 0};
    (void)wire_send(fd, &out);
}

static bool is(const char *name) {
    return strcmp(mode, name) == 0;
}

static void greet(void) {
    _cleanup_(close) int file = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    struct buf b;
    buf_init(&b, 1024);
    pack_u64(&b, 1);
    if (is("mute"))
        ;
    else if (is("ready-with-file"))
        say(init, INIT_READY, 0, NULL, file);
    else if (is("ready-with-socket"))
        say(init, INIT_READY, 0, NULL, control);
    else if (is("no-greeting"))
        say(init, INIT_OK, 1, &b, -1);
    else if (is("junk"))
        (void)!write(init, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16);
    else
        say(init, INIT_READY, 0, NULL, -1);
    if (is("unasked"))
        say(init, INIT_OK, 99, &b, -1);
    buf_finish(&b);
}

static void tell_exited(void) {
    struct buf b;
    struct sandbox_stats none = {0};
    buf_init(&b, 512);
    pack_str(&b, mode);
    pack_u32(&b, 0);
    pack_sandbox_stats(&b, &none);
    say(control, SANDBOX_EXITED, 0, &b, -1);
    buf_finish(&b);
}

/* Init has said why and is gone, and the launcher says that it is, before anybody has listened. */
static void fail_at_once(void) {
    struct err err;
    struct buf b;
    buf_init(&b, 512);
    (void)err_set(&err, ERR_FORBIDDEN, "for a reason");
    pack_sandbox_error(&b, &err);
    say(init, INIT_FAILED, 0, &b, -1);
    buf_finish(&b);
    fd_close(&init);
    tell_exited();
}

static void on_create(struct wire_frame *f) {
    struct unpack u;
    struct sandbox_spec spec;
    int pair[2];
    struct err err;
    unpack_init(&u, f->data, f->len);
    unpack_sandbox_spec(&u, &spec);
    memcpy(mode, spec.id, strlen(spec.id) + 1);
    if (fd_pair(pair, &err) < 0)
        _exit(1);
    struct buf b;
    buf_init(&b, 256);
    pack_str(&b, spec.id);
    const int fds[2] = {pair[1], pair[1]};
    (void)wire_send(control, &(struct wire_out){.type = SANDBOX_CREATED,
                                                .id = f->id,
                                                .pieces = {{b.data, b.len}},
                                                .fds = fds,
                                                .nfds = 2});
    close(pair[1]);
    buf_finish(&b);
    sandbox_spec_finish(&spec);
    fd_close(&init);
    init = pair[0];
    if (is("fail-at-once"))
        fail_at_once();
    else
        greet();
}

static void on_destroy(const struct wire_frame *f) {
    fd_close(&init);
    tell_exited();
    say(control, SANDBOX_DONE, f->id, NULL, -1);
}

/* A terminal that nobody reads; once the front has made it non-blocking, that is undone. */
static void give_terminal(uint64_t id, const struct buf *started) {
    static int master;
    static int slave;
    struct termios t;
    master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0 || unlockpt(master) < 0)
        _exit(1);
    slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0 || tcgetattr(slave, &t) < 0)
        _exit(1);
    cfmakeraw(&t);
    (void)tcsetattr(slave, TCSANOW, &t);
    say(init, INIT_STARTED, id, started, master);
    for (int i = 0; i < 12000 && !(fcntl(master, F_GETFL) & O_NONBLOCK); i++)
        (void)poll(NULL, 0, 5);
    (void)fcntl(master, F_SETFL, 0);
}

/* What its command says is in the pipe when that ends, and is taken out of it later, by somebody
 * who has kept the other end. */
static int thief_fd = -1;

static void say_something(struct wire_frame *f) {
    thief_fd = wire_frame_take_fd(f, 0);
    if (write(thief_fd, "something", 9) != 9)
        _exit(1);
}

/* The second time that a file is asked for. */
static void steal(void) {
    static int asked;
    if (asked++ == 0)
        return;
    char path[64];
    char out[64];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", thief_fd);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (read(fd, out, sizeof(out)) != 9)
        _exit(1);
    fd_close(&fd);
}

static void on_init(struct wire_frame *f) {
    struct buf b;
    struct sandbox_stat st = {.kind = SANDBOX_FILE, .size = 5};
    struct sandbox_exit ex = {.code = is("exit-code") ? 999 : 0};
    struct err err;
    int pair[2] = {-1, -1};
    int fd = -1;
    buf_init(&b, 65536);
    if (is("silent"))
        return;
    if (f->type == INIT_FILE_READ) {
        if (is("thief"))
            steal();
        if (is("kind"))
            st.kind = 77;
        pack_sandbox_stat(&b, &st);
        if (!is("file-none"))
            fd = open(is("file-proc")   ? "/proc/self/status"
                      : is("file-dir")  ? "/"
                      : is("file-null") ? "/dev/null"
                                        : "/etc/passwd",
                      O_RDONLY | O_CLOEXEC);
        if (is("error-code")) {
            buf_clear(&b);
            (void)err_set(&err, ERR_UNAUTHORIZED, "who are you");
            pack_sandbox_error(&b, &err);
            say(init, INIT_ERROR, f->id, &b, -1);
        } else {
            say(init, is("wrong-type") ? INIT_STAT : INIT_FILE, f->id, &b, fd);
        }
    } else if (f->type == INIT_CONNECT_PORT && fd_pair(pair, &err) == 0) {
        say(init, INIT_PORT, f->id, NULL, pair[0]);
        close(pair[0]);
        close(pair[1]);
    } else if (f->type == INIT_FILE_LIST) {
        uint32_t n = is("entries-many") ? SANDBOX_LIST_MAX + 1 : 1;
        pack_u32(&b, n);
        for (uint32_t i = 0; i < n; i++) {
            pack_str(&b, n > 1 ? "fine" : is("entries-up") ? ".." : "a/b");
            pack_sandbox_stat(&b, &st);
        }
        pack_u8(&b, 0);
        say(init, INIT_ENTRIES, f->id, &b, -1);
    } else if (f->type == INIT_EXEC) {
        pack_u32(&b, 5);
        if (is("tty-blocks")) {
            give_terminal(f->id, &b);
            buf_finish(&b);
            return;
        }
        if (is("thief"))
            say_something(f);
        if (is("tty-null"))
            fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (!is("exit-first"))
            say(init, INIT_STARTED, f->id, &b, fd);
        if (is("twice"))
            say(init, INIT_STARTED, f->id, &b, fd);
        buf_clear(&b);
        pack_sandbox_exit(&b, &ex);
        say(init, INIT_EXITED, f->id, &b, -1);
    }
    fd_close(&fd);
    buf_finish(&b);
}

static void on_control(struct wire_frame *f) {
    struct sandbox_features features = {.detail = (char *)"evil"};
    struct buf b;
    buf_init(&b, 256);
    if (f->type == SANDBOX_CONFIG) {
        pack_sandbox_features(&b, &features);
        say(control, SANDBOX_FEATURES, f->id, &b, -1);
    } else if (f->type == SANDBOX_CREATE) {
        on_create(f);
    } else if (f->type == SANDBOX_DESTROY) {
        on_destroy(f);
    } else if (f->type == SANDBOX_PAUSE || f->type == SANDBOX_RESUME) {
        say(control, SANDBOX_DONE, f->id, NULL, -1);
    }
    buf_finish(&b);
}

int main(void) {
    struct wire_reader readers[2];
    struct err err;
    struct wire_frame f;
    wire_reader_init(&readers[0], SANDBOX_CONTROL_MAX);
    wire_reader_init(&readers[1], SANDBOX_INIT_MAX);
    for (;;) {
        struct pollfd p[2] = {{.fd = control, .events = POLLIN}, {.fd = init, .events = POLLIN}};
        if (poll(p, 2, 60000) <= 0)
            return 1;
        for (int i = 0; i < 2; i++) {
            int fd = i ? init : control;
            if (!p[i].revents || fd < 0)
                continue;
            if (wire_recv(&readers[i], fd, &err) < 0) {
                if (i == 0)
                    return 0;
                fd_close(&init);
                continue;
            }
            while (wire_next(&readers[i], &f, &err) == 1) {
                if (i == 0)
                    on_control(&f);
                else
                    on_init(&f);
                wire_frame_finish(&f);
            }
        }
    }
}
