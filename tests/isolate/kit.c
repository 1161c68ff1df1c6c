#include "kit.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct front front;
static struct kit_result last;
static int facets[WIRE_FDS_MAX];

void kit_start(const char *env_name, uint32_t flags) {
    const char *path = getenv(env_name);
    if (!path) {
        fprintf(stderr, "%s is not set: run by meson test\n", env_name);
        abort();
    }
    const char *levers = getenv("CAY_TEST_LEVERS");
    front_start(&front, path, flags,
                levers ? (uint32_t)strtoul(levers, NULL, 0) : (uint32_t)ISOLATE_LEVER_ALL);
}

void kit_stop(void) {
    front_outcome_finish(&last.out);
    front_stop(&front);
}

int kit_facet(size_t i) {
    return facets[i];
}

struct front *kit_front(void) {
    return &front;
}

uint16_t kit_answer(void *arg, size_t i, const char *method, const char *args, uint64_t id,
                    const char **ret_json) {
    (void)arg;
    (void)i;
    (void)id;
    static char *text;
    free(text);
    text = NULL;
    if (strcmp(method, "fail") == 0) {
        *ret_json = "{\"name\":\"SqliteError\",\"message\":\"no such table: nope\",\"code\":"
                    "\"SQLITE_ERROR\"}";
        return ISOLATE_BINDING_FAIL;
    }
    if (strcmp(method, "hang") == 0)
        return 0;
    if (strcmp(method, "odd") == 0) {
        *ret_json = "{\"columns\":[\"id\",\"__proto__\",\"blob\",\"big\"],\"rows\":[[1,2,[\"b\","
                    "\"AQID\"],[\"i\",\"9007199254740993\"]]]}";
        return ISOLATE_BINDING_RESULT;
    }
    if (strcmp(method, "query") == 0) {
        *ret_json = "{\"columns\":[\"id\",\"name\"],\"rows\":[[1,\"one\"],[2,null]]}";
        return ISOLATE_BINDING_RESULT;
    }
    if (strcmp(method, "raise") == 0) {
        *ret_json = "{\"$t\":\"error\",\"v\":{\"name\":\"RangeError\",\"message\":\"far\"}}";
        return ISOLATE_BINDING_FAIL;
    }
    if (strcmp(method, "first") == 0) { /* the first of the arguments, as it came */
        text = xstrndup(args + 1, strlen(args) - 2);
        *ret_json = text;
        return ISOLATE_BINDING_RESULT;
    }
    text = xstrdup(args);
    *ret_json = text;
    return ISOLATE_BINDING_RESULT;
}

static void settle_exit(struct front_isolate *iso) {
    /* Give an isolate that ends by itself, and said so, the time to do so. */
    struct pollfd p = {.fd = iso->pidfd, .events = POLLIN};
    bool ends = last.out.closed || last.out.ending;
    bool ended = ends && poll(&p, 1, 60000) > 0;
    front_drop(iso);
    last.exit = front_wait_exit(&front, iso->number);
    last.signal = WIFSIGNALED(last.exit.status) ? WTERMSIG(last.exit.status) : 0;
    last.status = WIFEXITED(last.exit.status) ? WEXITSTATUS(last.exit.status) : -1;
    if (!ended)
        last.signal = 0;
}

static void run_in(struct front_isolate *iso, const struct kit_run *run) {
    _cleanup_(free) char *program =
        run->linked ? xstrdup(run->linked)
                    : xasprintf("(async function (builtins) { %s\n})", run->code);
    struct front_run r = {.flags = run->flags,
                          .limits = run->limits,
                          .program = program,
                          .spec = run->spec ? run->spec : "{" KIT_ENV "}",
                          .nfds = 2,
                          .timeout_ms = run->timeout_ms,
                          .answer = run->answer ? run->answer : kit_answer};
    struct err err;
    for (size_t i = 0; i < r.nfds; i++) {
        int ends[2];
        if (fd_pair(ends, &err) < 0)
            abort();
        r.facets[i] = facets[i] = ends[0];
        r.fds[i] = ends[1];
    }
    front_send_run(iso, 1, &r);
    for (size_t i = 0; i < r.nfds; i++)
        close(r.fds[i]);
    front_finish_run(iso, 1, &r, &last.out);
    if (run->flags & ISOLATE_RUN_RESET) {
        front_wait_reset(iso, &last.out);
        /* The isolate let go of its capabilities. */
        char c;
        for (size_t i = 0; last.out.reset_ready && i < r.nfds; i++)
            if (recv(r.facets[i], &c, 1, MSG_DONTWAIT) != 0)
                last.held++;
    }
    for (size_t i = 0; i < r.nfds; i++)
        close(r.facets[i]);
}

const struct kit_result *kit_run(const struct kit_run *run) {
    front_outcome_finish(&last.out);
    struct front_isolate iso;
    front_want(&front, 1);
    front_take(&front, &iso);
    run_in(&iso, run);
    settle_exit(&iso);
    return &last;
}

static struct front_isolate round_isolate;
static bool round_open;

const struct kit_result *kit_round(const struct kit_run *run) {
    front_outcome_finish(&last.out);
    last.held = 0;
    last.signal = 0;
    last.status = -1;
    if (!round_open) {
        front_want(&front, 1);
        front_take(&front, &round_isolate);
        round_open = true;
    }
    struct kit_run r = *run;
    r.flags |= ISOLATE_RUN_RESET;
    run_in(&round_isolate, &r);
    if (!last.out.reset_ready) {
        settle_exit(&round_isolate);
        round_open = false;
    }
    return &last;
}

void kit_round_end(void) {
    if (round_open)
        front_drop(&round_isolate);
    round_open = false;
}

pid_t kit_round_pid(void) {
    return round_open ? round_isolate.pid : 0;
}

const struct kit_result *kit_main(const char *body) {
    _cleanup_(free) char *code =
        xasprintf("return { default: async function main(env) { %s\n} };", body);
    return kit_run(&(struct kit_run){.code = code});
}

const struct kit_result *kit_file(const char *name) {
    _cleanup_(free) char *path = xasprintf("%s/%s", getenv("CAY_TEST_JS"), name);
    _cleanup_(buf) struct buf text;
    buf_init(&text, 1 << 20);
    struct err err;
    if (fd_read_file(AT_FDCWD, path, &text, &err) < 0)
        fail_msg("%s", err.message);
    return kit_main(text.data);
}

const char *kit_logs(void) {
    return last.out.logs.data ? last.out.logs.data : "";
}

static void show(const char *what, const char *wanted) {
    fprintf(stderr, "expected %s: %s\nlogs: %.4000s\nresult: %.2000s\nerror: %.2000s\n", what,
            wanted, kit_logs(), last.out.result ? last.out.result : "(none)",
            last.out.error ? last.out.error : "(none)");
}

void kit_expect_result(const char *json) {
    if (!last.out.result || strcmp(last.out.result, json) != 0 || last.out.error) {
        show("result", json);
        fail();
    }
}

void kit_expect_error(const char *part) {
    if (!last.out.error || !strstr(last.out.error, part)) {
        show("error", part);
        fail();
    }
}

void kit_expect_log(const char *part) {
    if (!strstr(kit_logs(), part)) {
        show("log", part);
        fail();
    }
}

void kit_expect_alive(void) {
    (void)kit_main("return (await env.db.query('SELECT 1')).length;");
    kit_expect_result("2");
}
