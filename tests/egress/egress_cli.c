/* A front for tests: keeps the real cay-egress running as the server does, with listeners on the
 * loopback in place of sandboxes'. Commands are lines of JSON on standard input, what comes back
 * are lines of JSON on standard output.
 *
 *   {"cmd":"config","n":1,"ca_file":"...","private":["127.0.0.1:443"],"body_bytes":1000,...}
 *   {"cmd":"open","n":2,"id":"a","policy":{"allow":[...],"routes":{...},"prices":{...},
 *    "caps":{...}},"secrets":{...}}
 *   {"cmd":"policy",...}  {"cmd":"close","n":4,"id":"a"}  {"cmd":"kill"} */

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "loop/keeper.h"
#include "wire/egress.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 16 * 1024 * 1024, BOXES_MAX = 64 };

struct box {
    char *id;
    int fd;
    json_t *open; /* the command, to say it again to the next life */
    json_t *usage;
};

static struct {
    uv_loop_t *loop;
    struct keeper *keeper;
    struct channel *channel; /* the keeper calls on_start() before it is made */
    uv_pipe_t in;
    struct buf line;
    json_t *config;
    struct box boxes[BOXES_MAX];
    size_t nboxes;
} front;

static void say(json_t *j) {
    char *text = json_dumps(j, JSON_COMPACT);
    (void)printf("%s\n", text);
    (void)fflush(stdout);
    free(text);
    json_decref(j);
}

static const char *secret_of(void *ctx, const char *name) {
    return json_string_value(json_object_get(ctx, name));
}

static uint64_t number(const json_t *j, const char *key) {
    return (uint64_t)json_integer_value(json_object_get(j, key));
}

static void post(uint16_t type, uint64_t id, struct buf *b, int fd) {
    struct wire_out out = {.type = type, .id = id, .pieces = {{b->data, b->len}}};
    if (fd >= 0) {
        out.fds = &fd;
        out.nfds = 1;
    }
    if (!front.channel || !channel_send(front.channel, &out))
        say(json_pack("{s:s,s:I}", "type", "unsent", "n", (json_int_t)id));
    mem_wipe(b->data, b->len);
    buf_finish(b);
}

static void send_config(const json_t *j) {
    struct buf b;
    size_t i;
    const json_t *v;
    struct egress_config c = {
        .ca_file = (char *)(uintptr_t)json_string_value(json_object_get(j, "ca_file")),
        .sandboxes = (uint32_t)number(j, "sandboxes"),
        .connections = (uint32_t)number(j, "connections"),
        .tunnels = (uint32_t)number(j, "tunnels"),
        .head_bytes = (uint32_t)number(j, "head_bytes"),
        .headers = (uint32_t)number(j, "headers"),
        .body_bytes = number(j, "body_bytes"),
        .held_bytes = number(j, "held_bytes"),
        .held_all_bytes = number(j, "held_all_bytes"),
        .head_timeout_ms = (uint32_t)number(j, "head_timeout_ms"),
        .body_timeout_ms = (uint32_t)number(j, "body_timeout_ms"),
        .idle_timeout_ms = (uint32_t)number(j, "idle_timeout_ms"),
        .connect_timeout_ms = (uint32_t)number(j, "connect_timeout_ms"),
        .events_per_second = (uint32_t)number(j, "events_per_second"),
    };
    json_array_foreach(json_object_get(j, "private"), i, v)
        sandbox_strv_add(&c.private, json_string_value(v));
    json_array_foreach(json_object_get(j, "private_routes"), i, v)
        sandbox_strv_add(&c.private_routes, json_string_value(v));
    buf_init(&b, EGRESS_FRAME_MAX);
    pack_egress_config(&b, &c);
    sandbox_strv_finish(&c.private);
    sandbox_strv_finish(&c.private_routes);
    post(EGRESS_CONFIG, number(j, "n"), &b, -1);
}

static int make_policy(const json_t *j, json_t *secrets, struct egress_policy *p, struct err *err) {
    const json_t *allow = json_object_get(j, "allow");
    json_t *routes = json_object_get(j, "routes");
    json_t *prices = json_object_get(j, "prices");
    const json_t *caps = json_object_get(j, "caps");
    bool public = json_is_true(json_object_get(j, "public")); /* no private endpoints */
    const char *name;
    json_t *v;
    size_t i;
    int rc = 0;
    p->allow = xcalloc(json_array_size(allow), sizeof(*p->allow));
    p->routes = xcalloc(json_object_size(routes), sizeof(*p->routes));
    p->prices = xcalloc(json_object_size(prices), sizeof(*p->prices));
    json_array_foreach(allow, i, v) {
        if (rc == 0)
            rc = egress_allow_parse(json_string_value(v), &p->allow[p->nallow], err);
        p->allow[p->nallow].private = !public;
        p->nallow += rc == 0 ? 1 : 0;
    }
    json_object_foreach(routes, name, v) {
        if (rc == 0)
            rc = egress_route_parse(name, v, secret_of, secrets, &p->routes[p->nroutes], err);
        p->routes[p->nroutes].private = !public;
        p->nroutes += rc == 0 ? 1 : 0;
    }
    /* Past the reader that the front has, as a front with a fault would send it. */
    for (size_t k = 0; k < p->nroutes; k++) {
        json_t *forced = json_object_get(json_object_get(j, "forced"), p->routes[k].name);
        json_object_foreach(forced, name, v) {
            p->routes[k].headers[p->routes[k].nheaders++] = (struct egress_header){
                .name = xstrdup(name), .value = xstrdup(json_string_value(v))};
        }
    }
    json_object_foreach(prices, name, v) {
        p->prices[p->nprices++] =
            (struct egress_price){.model = xstrdup(name),
                                  .input = number(v, "input"),
                                  .output = number(v, "output"),
                                  .cache_read = number(v, "cache_read"),
                                  .cache_write = number(v, "cache_write"),
                                  .cache_write_1h = number(v, "cache_write_1h")};
    }
    p->asks = json_is_true(json_object_get(j, "asks"));
    p->caps = (struct egress_caps){.requests = number(caps, "requests"),
                                   .requests_per_minute = number(caps, "requests_per_minute"),
                                   .bytes = number(caps, "bytes"),
                                   .tokens = number(caps, "tokens"),
                                   .cost_nusd = number(caps, "cost_nusd")};
    return rc;
}

static struct box *find_box(const char *id) {
    for (size_t i = 0; i < front.nboxes; i++)
        if (strcmp(front.boxes[i].id, id) == 0)
            return &front.boxes[i];
    return NULL;
}

static int listen_on_loopback(uint16_t *ret_port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 128) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &len) < 0)
        exit(3);
    *ret_port = ntohs(a.sin_port);
    return fd;
}

static void send_policy(uint16_t type, const json_t *j, struct box *b) {
    struct egress_policy p = {0};
    struct egress_usage u = {0};
    struct err err;
    struct buf out;
    json_t *usage = b ? b->usage : NULL;
    if (make_policy(json_object_get(j, "policy"), json_object_get(j, "secrets"), &p, &err) < 0) {
        say(json_pack("{s:s,s:I,s:s,s:s}", "type", "failed", "n", (json_int_t)number(j, "n"),
                      "code", err_name(err.code), "message", err.message));
        egress_policy_finish(&p);
        return;
    }
    u.requests = number(usage, "requests");
    u.refused = number(usage, "refused");
    u.bytes_in = number(usage, "bytes_in");
    u.bytes_out = number(usage, "bytes_out");
    u.tokens_in = number(usage, "tokens_in");
    u.tokens_out = number(usage, "tokens_out");
    u.cost_nusd = number(usage, "cost_nusd");
    u.running_in = number(usage, "running_in");
    u.running_out = number(usage, "running_out");
    u.running_nusd = number(usage, "running_nusd");
    buf_init(&out, EGRESS_FRAME_MAX);
    pack_str(&out, json_string_value(json_object_get(j, "id")));
    pack_egress_policy(&out, &p);
    if (type == EGRESS_OPEN)
        pack_egress_usage(&out, &u);
    egress_policy_finish(&p);
    post(type, number(j, "n"), &out, type == EGRESS_OPEN && b ? b->fd : -1);
}

static void open_box(json_t *j) {
    const char *id = json_string_value(json_object_get(j, "id"));
    uint16_t port = 0;
    struct box *b = find_box(id);
    if (!b && front.nboxes < BOXES_MAX) {
        b = &front.boxes[front.nboxes++];
        *b = (struct box){.id = xstrdup(id), .fd = listen_on_loopback(&port)};
        b->open = json_incref(j);
        b->usage = json_incref(json_object_get(j, "usage"));
        say(json_pack("{s:s,s:s,s:i}", "type", "listening", "id", id, "port", (int)port));
    }
    send_policy(EGRESS_OPEN, j, b);
}

static void close_box(const json_t *j) {
    struct buf out;
    buf_init(&out, 1024);
    pack_str(&out, json_string_value(json_object_get(j, "id")));
    post(EGRESS_CLOSE, number(j, "n"), &out, -1);
}

static uint64_t number_or(const json_t *j, const char *key, uint64_t fallback) {
    return json_object_get(j, key) ? number(j, key) : fallback;
}

static void send_grant(const json_t *j) {
    const char *code = json_string_value(json_object_get(j, "code"));
    struct egress_grant g = {
        .sandbox = (char *)(uintptr_t)json_string_value(json_object_get(j, "id")),
        .message = (char *)(uintptr_t)json_string_value(json_object_get(j, "message")),
        .tokens = number_or(j, "tokens", UINT64_MAX),
        .cost_nusd = number_or(j, "cost_nusd", UINT64_MAX)};
    struct buf out;
    for (uint32_t i = 1; code && i < ERR_CODE_COUNT; i++)
        if (strcmp(err_name((enum err_code)i), code) == 0)
            g.code = i;
    buf_init(&out, EGRESS_FRAME_MAX);
    pack_egress_grant(&out, &g);
    post(EGRESS_GRANT, number(j, "number"), &out, -1);
}

static void on_command(const char *line, size_t len) {
    _cleanup_(json) json_t *j = json_loadb(line, len, JSON_ALLOW_NUL, NULL);
    const char *cmd = json_string_value(json_object_get(j, "cmd"));
    if (!cmd)
        exit(2);
    if (strcmp(cmd, "config") == 0) {
        json_decref(front.config);
        front.config = json_incref(j);
        if (front.channel)
            send_config(j);
    } else if (strcmp(cmd, "open") == 0) {
        open_box(j);
    } else if (strcmp(cmd, "policy") == 0) {
        send_policy(EGRESS_POLICY, j, NULL);
    } else if (strcmp(cmd, "close") == 0) {
        close_box(j);
    } else if (strcmp(cmd, "grant") == 0) {
        send_grant(j);
    } else if (strcmp(cmd, "pid") == 0) {
        say(json_pack("{s:s,s:i}", "type", "pid", "pid", (int)keeper_info(front.keeper).pid));
    } else if (strcmp(cmd, "kill") == 0) {
        (void)kill(keeper_info(front.keeper).pid, SIGKILL);
    }
}

static void on_usage(struct unpack *u) {
    struct egress_usage v;
    unpack_egress_usage(u, &v);
    if (!unpack_ok(u))
        exit(4);
    json_t *j = json_pack(
        "{s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b}", "type", "usage", "sandbox",
        v.sandbox, "requests", (json_int_t)v.requests, "refused", (json_int_t)v.refused, "bytes_in",
        (json_int_t)v.bytes_in, "bytes_out", (json_int_t)v.bytes_out, "tokens_in",
        (json_int_t)v.tokens_in, "tokens_out", (json_int_t)v.tokens_out, "cost_nusd",
        (json_int_t)v.cost_nusd, "running_in", (json_int_t)v.running_in, "running_out",
        (json_int_t)v.running_out, "running_nusd", (json_int_t)v.running_nusd, "events_lost",
        (json_int_t)v.events_lost, "estimated", (int)v.estimated);
    struct box *b = find_box(v.sandbox);
    if (b) {
        json_decref(b->usage);
        b->usage = json_incref(j);
    }
    say(j);
    egress_usage_finish(&v);
}

static void on_event(struct unpack *u) {
    static const char *const states[] = {"refused", "begun", "ended"};
    struct egress_event e;
    unpack_egress_event(u, &e);
    if (!unpack_ok(u) || e.state > 2)
        exit(4);
    say(json_pack(
        "{s:s,s:s,s:I,s:I,s:s,s:s,s:s,s:s,s:i,s:s,s:s,s:i,s:I,s:I,s:s,s:I,s:I,s:I,s:b,s:s}", "type",
        "event", "sandbox", e.sandbox, "number", (json_int_t)e.number, "count", (json_int_t)e.count,
        "state", states[e.state], "kind", egress_kind_name(e.kind), "route", e.route, "host",
        e.host, "port", (int)e.port, "method", e.method, "path", e.path, "status", (int)e.status,
        "bytes_in", (json_int_t)e.bytes_in, "bytes_out", (json_int_t)e.bytes_out, "model", e.model,
        "tokens_in", (json_int_t)e.tokens_in, "tokens_out", (json_int_t)e.tokens_out, "cost_nusd",
        (json_int_t)e.cost_nusd, "cut", (int)e.cut, "reason", e.reason));
    egress_event_finish(&e);
}

static void on_ask(struct unpack *u, uint64_t id) {
    struct egress_ask a;
    unpack_egress_ask(u, &a);
    if (!unpack_ok(u))
        exit(4);
    say(json_pack("{s:s,s:I,s:s,s:I,s:I,s:I,s:I}", "type", "ask", "number", (json_int_t)id, "id",
                  a.sandbox, "tokens_in", (json_int_t)a.tokens_in, "tokens_out",
                  (json_int_t)a.tokens_out, "cost_nusd", (json_int_t)a.cost_nusd, "least_nusd",
                  (json_int_t)a.least_nusd));
    free(a.sandbox);
}

static void on_spent(struct unpack *u, uint64_t id) {
    struct egress_spent s;
    unpack_egress_spent(u, &s);
    if (!unpack_ok(u))
        exit(4);
    say(json_pack("{s:s,s:I,s:s,s:I,s:I,s:I,s:I,s:I,s:b}", "type", "spent", "number",
                  (json_int_t)id, "id", s.sandbox, "input", (json_int_t)s.input, "output",
                  (json_int_t)s.output, "cache_read", (json_int_t)s.cache_read, "cache_write",
                  (json_int_t)s.cache_write, "cost_nusd", (json_int_t)s.cost_nusd, "estimated",
                  (int)s.estimated));
    free(s.sandbox);
}

static void on_frame(void *ctx, struct wire_frame *f) {
    struct unpack u;
    struct err err;
    (void)ctx;
    unpack_init(&u, f->data, f->len);
    switch (f->type) {
    case EGRESS_DONE:
        say(json_pack("{s:s,s:I}", "type", "done", "n", (json_int_t)f->id));
        break;
    case EGRESS_FAILED:
        (void)unpack_sandbox_error(&u, &err);
        say(json_pack("{s:s,s:I,s:s,s:s}", "type", "failed", "n", (json_int_t)f->id, "code",
                      err_name(err.code), "message", err.message));
        break;
    case EGRESS_USAGE:
        on_usage(&u);
        break;
    case EGRESS_EVENT:
        on_event(&u);
        break;
    case EGRESS_ASK:
        on_ask(&u, f->id);
        break;
    case EGRESS_SPENT:
        on_spent(&u, f->id);
        break;
    default:
        exit(4);
    }
}

/* A new life knows nothing. */
static void on_start(void *ctx, struct channel *channel) {
    (void)ctx;
    front.channel = channel;
    if (front.config)
        send_config(front.config);
    for (size_t i = 0; i < front.nboxes; i++)
        send_policy(EGRESS_OPEN, front.boxes[i].open, &front.boxes[i]);
    say(json_pack("{s:s}", "type", "started"));
}

static void on_life_ended(void *ctx) {
    (void)ctx;
    front.channel = NULL;
    say(json_pack("{s:s}", "type", "ended"));
}

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *out) {
    static char space[65536];
    (void)h;
    (void)hint;
    *out = uv_buf_init(space, sizeof(space));
}

static void on_stopped(void *ctx) {
    (void)ctx;
    exit(0);
}

static void on_input(uv_stream_t *s, ssize_t n, const uv_buf_t *b) {
    if (n < 0) {
        (void)uv_read_stop(s);
        keeper_stop(front.keeper, on_stopped, NULL);
        return;
    }
    if (!buf_add(&front.line, b->base, (size_t)n))
        exit(2);
    const char *end;
    while (front.line.len > 0 && (end = memchr(front.line.data, '\n', front.line.len))) {
        size_t len = (size_t)(end - front.line.data);
        on_command(front.line.data, len);
        buf_consume(&front.line, len + 1);
    }
}

int main(void) {
    const char *program = getenv("CAY_EGRESS");
    /* What a sanitizer says in the child is seen by the test. */
    log_init("egress-cli", LOG_LEVEL_INFO);
    buf_init(&front.line, LINE_MAX_BYTES);
    front.loop = uv_default_loop();
    int exec_fd = program ? open(program, O_PATH | O_CLOEXEC) : -1;
    if (exec_fd < 0)
        return 2;
    struct keeper_options o = {.name = "egress",
                               .exec_fd = exec_fd,
                               .max_frame_bytes = EGRESS_FRAME_MAX,
                               .max_queue_bytes = 4 * 1024 * 1024,
                               .on_start = on_start,
                               .on_frame = on_frame,
                               .on_end = on_life_ended};
    front.keeper = keeper_create(front.loop, &o);
    (void)uv_pipe_init(front.loop, &front.in, 0);
    (void)uv_pipe_open(&front.in, 0);
    (void)uv_read_start((uv_stream_t *)&front.in, on_alloc, on_input);
    (void)uv_run(front.loop, UV_RUN_DEFAULT);
    return 1;
}
