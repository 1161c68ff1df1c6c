/* What cay adds to a model's answer: the time from the request to the first token, beside a client
 * that does nothing but write and read on a socket, and the processor time for each token. A server
 * in a thread answers at once with prepared bytes.
 * usage: bench_model_stream [ROUNDS] */

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "front/model/model.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TOKENS = 2000, ROUNDS = 300 };

struct server {
    int fd;
    unsigned port;
    struct buf one;     /* a whole answer of one token */
    struct buf many;    /* of TOKENS tokens */
    struct buf packets; /* one token, to be sent again and again */
    struct buf end;
};

static void add_chunk(struct buf *out, const char *text) {
    (void)buf_addf(out, "%zx\r\n%s\r\n", strlen(text), text);
}

static const char head[] =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
static const char begin[] =
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{"
    "\"input_tokens\":10,\"output_tokens\":1}}}\n\nevent: content_block_start\ndata: {\"type\":"
    "\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n";
static const char token[] =
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{"
    "\"type\":\"text_delta\",\"text\":\" token\"}}\n\n";
static const char finish[] =
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\nevent: "
    "message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},"
    "\"usage\":{\"output_tokens\":5}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}"
    "\n\n";

static void write_all(int fd, const char *data, size_t len) {
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n <= 0)
            return;
        data += n;
        len -= (size_t)n;
    }
}

/* max_tokens of the request picks the answer: 1, 2 (many at once), 3 (one packet each). */
static void answer(struct server *s, int fd, const char *request) {
    if (strstr(request, "\"max_tokens\":1,")) {
        write_all(fd, s->one.data, s->one.len);
        return;
    }
    if (strstr(request, "\"max_tokens\":2,")) {
        write_all(fd, s->many.data, s->many.len);
        return;
    }
    write_all(fd, s->one.data, strlen(head));
    struct buf b;
    buf_init(&b, 65536);
    add_chunk(&b, begin);
    write_all(fd, b.data, b.len);
    buf_finish(&b);
    for (int i = 0; i < TOKENS; i++) {
        write_all(fd, s->packets.data, s->packets.len);
        struct timespec pause = {0, 100000};
        nanosleep(&pause, NULL);
    }
    write_all(fd, s->end.data, s->end.len);
}

static void *serve_one(void *ctx) {
    struct server *s = ctx;
    char in[65536];
    for (;;) {
        int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC);
        int on = 1;
        size_t len = 0;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        for (ssize_t n; (n = read(fd, in + len, sizeof(in) - len - 1)) > 0;) {
            len += (size_t)n;
            in[len] = 0;
            const char *body = strstr(in, "\r\n\r\n");
            const char *length = strcasestr(in, "content-length: ");
            if (!body || !length || len < (size_t)(body + 4 - in) + strtoul(length + 16, NULL, 10))
                continue;
            answer(s, fd, in);
            len = 0;
        }
        close(fd);
    }
    return NULL;
}

static void start_server(struct server *s) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    pthread_t thread;
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(s->fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(s->fd, 16) < 0 ||
        getsockname(s->fd, (struct sockaddr *)&a, &len) < 0)
        abort();
    s->port = ntohs(a.sin_port);
    buf_init(&s->one, 1 << 24);
    buf_init(&s->many, 1 << 24);
    buf_init(&s->packets, 1 << 24);
    buf_init(&s->end, 1 << 24);
    add_chunk(&s->packets, token);
    add_chunk(&s->end, finish);
    (void)buf_add_str(&s->end, "0\r\n\r\n");
    (void)buf_add_str(&s->one, head);
    add_chunk(&s->one, begin);
    (void)buf_add(&s->many, s->one.data, s->one.len);
    (void)buf_add(&s->one, s->packets.data, s->packets.len);
    (void)buf_add(&s->one, s->end.data, s->end.len);
    for (int i = 0; i < TOKENS; i++)
        (void)buf_add(&s->many, s->packets.data, s->packets.len);
    (void)buf_add(&s->many, s->end.data, s->end.len);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&thread, NULL, serve_one, s) != 0)
            abort();
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print(const char *what, double *us, size_t n) {
    qsort(us, n, sizeof(*us), by_value);
    printf("%-44s median %8.1f us   p90 %8.1f us\n", what, us[n / 2], us[n * 9 / 10]);
}

/* The least that any client must do. */
static void floor_of(const struct server *s, double *us, size_t rounds) {
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                            .sin_port = htons((uint16_t)s->port)};
    static const char request[] = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 18\r\n\r\n"
                                  "{\"max_tokens\":1,  }";
    char in[65536];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        abort();
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    for (size_t i = 0; i < rounds; i++) {
        int64_t begun = clock_mono_ns();
        write_all(fd, request, sizeof(request) - 1);
        size_t len = 0;
        do {
            ssize_t n = read(fd, in + len, sizeof(in) - len - 1);
            if (n <= 0)
                abort();
            if (len == 0)
                us[i] = (double)(clock_mono_ns() - begun) / 1000;
            len += (size_t)n;
            in[len] = 0;
        } while (len < s->one.len);
    }
    close(fd);
}

struct bench {
    uv_loop_t loop;
    struct models *models;
    struct model_request request;
    int64_t first_ns;
    unsigned pieces;
    bool over;
};

static void on_text_delta(void *ctx, const char *text, size_t len) {
    struct bench *b = ctx;
    (void)text;
    (void)len;
    if (b->pieces++ == 0)
        b->first_ns = clock_mono_ns();
}

static void on_done(void *ctx, enum model_stop stop, json_t *message) {
    struct bench *b = ctx;
    (void)stop;
    (void)message;
    b->over = true;
}

static void on_error(void *ctx, const struct err *err, bool retryable, json_t *partial) {
    (void)ctx;
    (void)retryable;
    (void)partial;
    fprintf(stderr, "%s\n", err->message);
    exit(EXIT_FAILURE);
}

static double one(struct bench *b, int64_t max_tokens) {
    static const struct model_callbacks callbacks = {
        .on_text_delta = on_text_delta, .on_done = on_done, .on_error = on_error};
    struct model_stream *stream;
    struct err err;
    b->request.max_tokens = max_tokens;
    b->pieces = 0;
    b->over = false;
    int64_t begun = clock_mono_ns();
    if (model_stream(b->models, &b->request, &callbacks, b, &stream, &err) < 0)
        on_error(b, &err, false, NULL);
    while (!b->over)
        (void)uv_run(&b->loop, UV_RUN_ONCE);
    return (double)(b->first_ns - begun) / 1000;
}

static double cpu_us(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void per_token(struct bench *b, const char *what, int64_t kind, size_t rounds) {
    double us[16];
    for (size_t i = 0; i < rounds; i++) {
        double before = cpu_us();
        (void)one(b, kind);
        us[i] = (cpu_us() - before) / TOKENS;
    }
    print(what, us, rounds);
}

int main(int argc, char **argv) {
    size_t rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : ROUNDS;
    struct server server = {0};
    struct err err;
    rounds = rounds > 0 && rounds <= 100000 ? rounds : ROUNDS;
    double *us = xcalloc(rounds, sizeof(*us));
    start_server(&server);
    char *url = xasprintf("http://127.0.0.1:%u", server.port);
    struct secrets secrets = {
        {[SECRET_ANTHROPIC_API_KEY] = "k", [SECRET_ANTHROPIC_BASE_URL] = url}};
    struct bench b = {.request.temperature = -1};
    (void)uv_loop_init(&b.loop);
    if (models_create(&b.loop, &(struct models_options){.secrets = &secrets}, &b.models, &err) <
            0 ||
        models_find(b.models, "haiku", &b.request.model, &err) < 0)
        on_error(&b, &err, false, NULL);
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "Hello.");
    b.request.messages = messages;
    floor_of(&server, us, rounds);
    print("first token, plain socket", us, rounds);
    for (size_t i = 0; i < rounds; i++)
        us[i] = one(&b, 1);
    print("first token, model_stream()", us, rounds);
    per_token(&b, "processor time per token, all at once", 2, 16);
    per_token(&b, "processor time per token, a packet each", 3, 3);
    models_close(b.models, NULL, NULL);
    (void)uv_run(&b.loop, UV_RUN_DEFAULT);
    json_decref(messages);
    free(url);
    free(us);
    return EXIT_SUCCESS;
}
