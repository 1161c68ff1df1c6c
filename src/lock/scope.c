#include "lock/scope.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { ANSWER_MS = 2000, ANSWER_MAX = 65536, METHOD_RETURN = 2 };
/* Fields of a head. */
enum { FIELD_PATH = 1, FIELD_INTERFACE, FIELD_MEMBER, FIELD_SIGNATURE = 8 };

/* ---- D-Bus, little endian ---- */

static void scope_pad(struct buf *b, size_t to) {
    static const char zeros[8];
    (void)buf_add(b, zeros, (to - b->len % to) % to);
}

static void put_u32(struct buf *b, uint32_t v) {
    const uint8_t bytes[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16),
                              (uint8_t)(v >> 24)};
    scope_pad(b, 4);
    (void)buf_add(b, bytes, sizeof(bytes));
}

static void scope_put_text(struct buf *b, const char *text) {
    put_u32(b, (uint32_t)strlen(text));
    (void)buf_add(b, text, strlen(text) + 1);
}

static void put_signature(struct buf *b, const char *text) {
    uint8_t n = (uint8_t)strlen(text);
    (void)buf_add(b, &n, 1);
    (void)buf_add(b, text, (size_t)n + 1);
}

/* An array's length is known at its end. What is padding before the first element does not count.
 */
static size_t open_array(struct buf *b, size_t align) {
    put_u32(b, 0);
    scope_pad(b, align);
    return b->len;
}

static void close_array(struct buf *b, size_t start, size_t length_at) {
    uint32_t n = (uint32_t)(b->len - start);
    for (int i = 0; i < 4; i++)
        b->data[length_at + (size_t)i] = (char)(uint8_t)(n >> (8 * i));
}

static void put_field(struct buf *b, uint8_t code, const char *signature, const char *value) {
    scope_pad(b, 8);
    (void)buf_add(b, &code, 1);
    put_signature(b, signature);
    if (*signature == 'g')
        put_signature(b, value);
    else
        scope_put_text(b, value);
}

/* StartTransientUnit(name, mode, properties, auxiliary units) */
static void put_body(struct buf *b, const char *name, pid_t pid) {
    scope_put_text(b, name);
    scope_put_text(b, "fail");
    scope_pad(b, 4);
    size_t length_at = b->len;
    size_t start = open_array(b, 8);
    scope_put_text(b, "PIDs");
    put_signature(b, "au");
    put_u32(b, sizeof(uint32_t));
    put_u32(b, (uint32_t)pid);
    scope_pad(b, 8);
    scope_put_text(b, "Delegate");
    put_signature(b, "b");
    put_u32(b, 1);
    scope_pad(b, 8);
    scope_put_text(b, "Description");
    put_signature(b, "s");
    scope_put_text(b, "Sandboxes of cay");
    close_array(b, start, length_at);
    (void)open_array(b, 8);
}

static void scope_put_call(struct buf *b, const struct buf *body) {
    static const char head[4] = {'l', 1, 0, 1}; /* little endian, a call, no flags, version 1 */
    (void)buf_add(b, head, sizeof(head));
    put_u32(b, (uint32_t)body->len);
    put_u32(b, 1); /* serial */
    size_t length_at = b->len;
    size_t start = open_array(b, 8);
    put_field(b, FIELD_PATH, "o", "/org/freedesktop/systemd1");
    put_field(b, FIELD_INTERFACE, "s", "org.freedesktop.systemd1.Manager");
    put_field(b, FIELD_MEMBER, "s", "StartTransientUnit");
    put_field(b, FIELD_SIGNATURE, "g", "ssa(sv)a(sa(sv))");
    close_array(b, start, length_at);
    scope_pad(b, 8);
    (void)buf_add(b, body->data, body->len);
}

/* ---- the conversation ---- */

static bool send_text(int fd, const char *text, size_t n) {
    return send(fd, text, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static int scope_authenticate(int fd, struct err *err) {
    char line[64], hex[32] = "", id[16];
    (void)snprintf(id, sizeof(id), "%u", (unsigned)geteuid());
    for (size_t i = 0; id[i]; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", (unsigned char)id[i]);
    int n = snprintf(line, sizeof(line), "%cAUTH EXTERNAL %s\r\n", 0, hex);
    char answer[256] = "";
    size_t have = 0;
    if (!send_text(fd, line, (size_t)n))
        return err_sys(err, "greet systemd");
    while (have == 0 || answer[have - 1] != '\n') {
        ssize_t k = recv(fd, answer + have, 1, 0);
        if (k <= 0 || ++have == sizeof(answer))
            return err_set(err, ERR_UNAVAILABLE, "systemd does not answer");
    }
    if (strncmp(answer, "OK ", 3) != 0)
        return err_set(err, ERR_UNAVAILABLE, "systemd refuses");
    return send_text(fd, "BEGIN\r\n", 7) ? 0 : err_sys(err, "greet systemd");
}

static uint32_t get_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* The first message that is an answer: signals may come before it. */
static int scope_read_answer(int fd, struct err *err) {
    static uint8_t rest[ANSWER_MAX];
    for (int i = 0; i < 64; i++) {
        uint8_t head[16];
        if (fd_read_all(fd, head, sizeof(head)) != sizeof(head) || head[0] != 'l')
            break;
        uint64_t n = (uint64_t)get_u32(head + 4) + ((get_u32(head + 12) + 7ULL) & ~7ULL);
        if (n > sizeof(rest) || fd_read_all(fd, rest, (size_t)n) != (ssize_t)n)
            break;
        if (head[1] == METHOD_RETURN)
            return 0;
        if (head[1] == METHOD_RETURN + 1)
            return err_set(err, ERR_UNAVAILABLE, "systemd gives no scope");
    }
    return err_set(err, ERR_UNAVAILABLE, "systemd does not answer");
}

/* The answer comes when the move was begun. */
static int await_move(const char *sysroot, const char *name, struct err *err) {
    int64_t end = clock_mono_ms() + ANSWER_MS;
    _cleanup_(free) char *file = xasprintf("%s/proc/self/cgroup", sysroot);
    do {
        _cleanup_(buf) struct buf b;
        buf_init(&b, 65536);
        if (fd_read_file(AT_FDCWD, file, &b, NULL) == 0 && b.data && strstr(b.data, name))
            return 0;
        (void)poll(NULL, 0, 2);
    } while (clock_mono_ms() < end);
    return err_set(err, ERR_TIMEOUT, "systemd did not move this process");
}

void scope_socket(const char *sysroot, uid_t uid, char *out, size_t size) {
    if (uid == 0)
        (void)snprintf(out, size, "%s/run/systemd/private", sysroot);
    else
        (void)snprintf(out, size, "%s/run/user/%u/systemd/private", sysroot, (unsigned)uid);
}

int scope_enter(const char *sysroot, const char *path, struct err *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = ANSWER_MS / 1000};
    char name[64];
    (void)snprintf(name, sizeof(name), "cay-%d-%lld.scope", (int)getpid(),
                   (long long)clock_mono_ms());
    if (strlen(path) >= sizeof(a.sun_path))
        return err_set(err, ERR_BAD_REQUEST, "the path of systemd's socket is too long");
    memcpy(a.sun_path, path, strlen(path) + 1);
    _cleanup_(close) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0 ||
        connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        return err_sys(err, "no systemd answers %s", geteuid() == 0 ? "here" : "this user");
    int rc = scope_authenticate(fd, err);
    if (rc < 0)
        return rc;
    _cleanup_(buf) struct buf body;
    _cleanup_(buf) struct buf call;
    buf_init(&body, 1024);
    buf_init(&call, 2048);
    put_body(&body, name, getpid());
    scope_put_call(&call, &body);
    if (!send_text(fd, call.data, call.len))
        return err_sys(err, "ask systemd");
    rc = scope_read_answer(fd, err);
    return rc < 0 ? rc : await_move(sysroot, name, err);
}
