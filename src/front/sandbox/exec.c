#include "front/sandbox/exec.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sm.h"
#include "base/utf8.h"
#include "front/sandbox/internal_exec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CHUNK = 32768,
    SMALL_STDIN_BYTES = 16 << 10,
    HELD_BYTES = 4096,                 /* of a stream, in the record */
    HERE_MAX = SANDBOX_EXECS_MAX - 16, /* of one sandbox; init's other places are for files */
};

static const struct sm_state states[] = {
    [EXEC_STARTING] = {"running", SM_TO(EXEC_RUNNING) | SM_TO(EXEC_EXITED) | SM_TO(EXEC_FAILED)},
    [EXEC_RUNNING] = {"running", SM_TO(EXEC_EXITED) | SM_TO(EXEC_INTERRUPTED)},
    [EXEC_EXITED] = {"exited", 0},
    [EXEC_FAILED] = {"failed", 0},
    [EXEC_INTERRUPTED] = {"interrupted", 0},
};
static const struct sm exec_sm = {"command", states, ARRAY_LEN(states)};

static const char *const suffixes[] = {NULL, "stdout", "stderr"};

static void exec_move(struct exec *e, enum exec_state to) {
    e->state = (enum exec_state)sm_next(&exec_sm, e->state, to);
}

bool exec_has_ended(const struct exec *e) {
    return e->state > EXEC_RUNNING;
}

enum exec_state exec_record_state(const struct store_record *r) {
    unsigned i = 0;
    while (i < EXEC_INTERRUPTED && strcmp(states[i].name, r->status) != 0)
        i++;
    return (enum exec_state)i;
}

/* --- output --- */

/* Of a stream in the record. */
static const char *const held_keys[] = {NULL, "kept_stdout", "kept_stderr"};

static int open_file(const struct exec *e, int stream, int flags) {
    char name[ID_SIZE + 16];
    (void)snprintf(name, sizeof(name), "%s.%s", e->id, suffixes[stream]);
    return e->dir < 0 ? -1 : openat(e->dir, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* From here on the stream is kept in a file. */
static int exec_spill(struct exec *e, int stream) {
    struct buf *held = &e->held[stream];
    if (e->fds[stream] >= 0)
        return 0;
    if (e->dir < 0)
        e->dir = sandboxes_dir(e->all, e->sandbox_id, true);
    e->fds[stream] = open_file(e, stream, O_RDWR | O_CREAT | O_APPEND);
    int rc = e->fds[stream] < 0 || fd_write_all(e->fds[stream], held->data, held->len) < 0 ? -1 : 0;
    buf_finish(held);
    return rc;
}

/* To open a file takes as long as all else that is done about a short command. */
static int exec_keep(struct exec *e, int stream, const char *data, size_t len) {
    struct buf *held = &e->held[stream];
    if (e->fds[stream] < 0 && held->len + len <= HELD_BYTES &&
        !sandbox_command_is_terminal(e->command))
        return buf_add(held, data, len) ? 0 : -1;
    return exec_spill(e, stream) < 0 ? -1 : fd_write_all(e->fds[stream], data, len);
}

static void failed_to_keep(struct exec *e, int stream) {
    struct stat st;
    (void)err_sys(&e->err, "keep the output");
    log_error("sandbox.output", "sandbox", e->sandbox_id, "error", e->err.message);
    if (e->fds[stream] >= 0 && fstat(e->fds[stream], &st) == 0)
        e->sizes[stream] = e->first[stream] + (uint64_t)st.st_size;
    else
        e->sizes[stream] = e->first[stream];
    e->truncated = true;
}

/* What is held would be lost with the server: it is for a command that is about to end. */
static void spill_all(struct exec *e) {
    for (int i = 1; i < 3; i++)
        if (e->held[i].len > 0 && exec_spill(e, i) < 0)
            failed_to_keep(e, i);
}

static void exec_wake(struct exec *e) {
    struct exec_follower *next;
    e->refs++;
    for (struct exec_follower *f = e->followers; f; f = next) {
        next = f->next;
        f->on_change(f->ctx);
    }
    exec_unref(e);
}

/* A terminal lives on what it shows last: its file begins anew, where a command's is full. */
static void begin_anew(struct exec *e, int stream) {
    if (ftruncate(e->fds[stream], 0) < 0)
        return;
    uint64_t *kept = &e->sandbox->kept_bytes;
    *kept -= MIN(*kept, e->sizes[stream] - e->first[stream]);
    e->first[stream] = e->sizes[stream];
    e->truncated = true;
    (void)json_object_set_new(e->doc, stream == EXEC_STDOUT ? "stdout_first" : "stderr_first",
                              json_integer((json_int_t)e->first[stream]));
}

static void exec_on_output(void *ctx, int stream, const char *data, size_t len) {
    struct exec *e = ctx;
    const struct sandbox_settings *set = sandboxes_settings(e->all);
    uint64_t max = (uint64_t)set->output_mb << 20;
    uint64_t all = (uint64_t)set->outputs_mb << 20;
    bool tty = sandbox_command_is_terminal(e->command);
    if (tty && e->fds[stream] >= 0 &&
        (e->sizes[stream] - e->first[stream] + len > max || e->sandbox->kept_bytes + len > all))
        begin_anew(e, stream);
    uint64_t room = max - (e->sizes[stream] - e->first[stream]);
    uint64_t left = all - MIN(all, e->sandbox->kept_bytes);
    if (tty) /* its last words always have a place, whatever other commands have left behind */
        left = MAX(left, (uint64_t)len);
    const char *limit = left < room ? "outputs_mb" : "output_mb";
    size_t n = (size_t)MIN((uint64_t)len, MIN(room, left));
    e->bytes[stream] += len;
    e->sandbox->kept_bytes += n;
    if (n > 0 && exec_keep(e, stream, data, n) < 0) {
        failed_to_keep(e, stream);
        n = 0;
    }
    e->sizes[stream] += n;
    if (n < len) {
        if (!e->err.code)
            (void)err_set(&e->err, ERR_LIMIT,
                          "more than %u MiB of output: the rest was dropped (limit %s)",
                          left < room ? set->outputs_mb : set->output_mb, limit);
        e->truncated = true;
        sandbox_command_discard(e->command, stream);
    }
    if (n > 0)
        exec_wake(e);
}

ssize_t exec_read(struct exec *e, int stream, uint64_t offset, void *out, size_t len) {
    if (!exec_has_ended(e))
        spill_all(e); /* what somebody has seen stays */
    const struct buf *held = &e->held[stream];
    if (offset >= e->sizes[stream] || offset < e->first[stream])
        return 0;
    len = (size_t)MIN((uint64_t)len, e->sizes[stream] - offset);
    if (held->len >= offset + len) {
        memcpy(out, held->data + offset, len);
        return (ssize_t)len;
    }
    return e->fds[stream] < 0 ? 0
                              : pread(e->fds[stream], out, len, (off_t)(offset - e->first[stream]));
}

/* Of what was read, the bytes of whole characters; 0: not one is whole. */
static size_t whole_text(const char *data, size_t len) {
    for (size_t cut = 0; cut <= 3 && cut < len; cut++)
        if (utf8_is_valid(data, len - cut))
            return len - cut;
    return 0;
}

bool exec_next(struct exec *e, struct exec_cursor *c, struct exec_chunk *ret) {
    static char chunk[CHUNK];
    for (int tries = 0; tries < 2; tries++) {
        int stream = c->last = c->last == EXEC_STDOUT ? EXEC_STDERR : EXEC_STDOUT;
        uint64_t *offset = &c->offsets[stream];
        *offset = MAX(*offset, e->first[stream]);
        ssize_t n = exec_read(e, stream, *offset, chunk, sizeof(chunk));
        size_t text = n > 0 ? whole_text(chunk, (size_t)n) : 0;
        if (n <= 0 || (!text && n < 4 && !exec_has_ended(e)))
            continue;
        *ret = (struct exec_chunk){.stream = stream,
                                   .offset = *offset,
                                   .data = chunk,
                                   .len = text ? text : (size_t)n,
                                   .is_text = text > 0};
        *offset += ret->len;
        return true;
    }
    return false;
}

int exec_check_running(const struct exec *e, struct err *err) {
    if (e->command && e->sandbox && e->sandbox->state == SANDBOX_RUNNING)
        return 0;
    return err_set(err, ERR_CONFLICT, "%s",
                   e->command ? "the sandbox is paused or ending" : "the command has ended");
}

void exec_follow(struct exec *e, struct exec_follower *f) {
    f->next = e->followers;
    e->followers = f;
    e->refs++;
}

void exec_unfollow(struct exec *e, struct exec_follower *f) {
    struct exec_follower **at = &e->followers;
    while (*at && *at != f)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = f->next;
    exec_unref(e);
}

void exec_unref(struct exec *e) {
    if (!e || --e->refs > 0)
        return;
    for (int i = 0; i < 3; i++) {
        fd_close(&e->fds[i]);
        buf_finish(&e->held[i]);
    }
    fd_close(&e->dir);
    json_decref(e->doc);
    free(e);
}

/* --- what is shown and remembered --- */

static json_t *sandbox_exec_show(const char *id, const char *sandbox, enum exec_state state,
                                 int64_t created_ms, int64_t ended_ms, const json_t *doc) {
    char text[CLOCK_RFC3339_SIZE];
    json_t *o = json_object();
    (void)json_object_set_new(o, "id", json_string(id));
    (void)json_object_set_new(o, "sandbox", json_string(sandbox));
    (void)json_object_set_new(o, "status", json_string(states[state].name));
    (void)json_object_set_new(o, "exit_code", json_null());
    (void)json_object_set_new(o, "signal", json_null());
    (void)json_object_set_new(o, "oom", json_false());
    (void)json_object_set_new(o, "timed_out", json_false());
    (void)json_object_set_new(o, "stdout_bytes", json_integer(0));
    (void)json_object_set_new(o, "stderr_bytes", json_integer(0));
    (void)json_object_set_new(o, "truncated", json_false());
    (void)json_object_set_new(o, "started_at", json_string(clock_rfc3339(created_ms, text)));
    (void)json_object_set_new(o, "ended_at",
                              ended_ms ? json_string(clock_rfc3339(ended_ms, text)) : json_null());
    (void)json_object_set_new(o, "usage", json_null());
    (void)json_object_set_new(o, "error", json_null());
    (void)json_object_update(o, (json_t *)(uintptr_t)doc);
    for (int i = 1; i < 3; i++)
        (void)json_object_del(o, held_keys[i]);
    if (state == EXEC_INTERRUPTED && json_is_null(json_object_get(o, "error")))
        (void)json_object_set_new(o, "error",
                                  json_pack("{s:s,s:s}", "code", "interrupted", "message",
                                            "the server ended while this was running"));
    return o;
}

json_t *exec_show(struct exec *e) {
    if (!exec_has_ended(e))
        spill_all(e); /* as exec_read() does: who is told of bytes can come for them */
    json_t *o =
        sandbox_exec_show(e->id, e->sandbox_id, e->state, e->created_ms, e->ended_ms, e->doc);
    if (!e->command)
        return o;
    (void)json_object_set_new(o, "stdout_bytes", json_integer((json_int_t)e->bytes[1]));
    (void)json_object_set_new(o, "stderr_bytes", json_integer((json_int_t)e->bytes[2]));
    (void)json_object_set_new(o, "truncated", json_boolean(e->truncated));
    return o;
}

json_t *exec_show_record(const struct store_record *r) {
    _cleanup_(json) json_t *doc = store_record_doc(r);
    return sandbox_exec_show(r->id, r->parent, exec_record_state(r), r->created_ms, r->ended_ms,
                             doc);
}

static int exec_save(struct exec *e, struct err *err) {
    _cleanup_(free) char *doc = json_dumps(e->doc, JSON_COMPACT);
    struct store_record r = {.status = (char *)(uintptr_t)states[e->state].name,
                             .created_ms = e->created_ms,
                             .ended_ms = e->ended_ms,
                             .doc = doc};
    memcpy(r.id, e->id, sizeof(r.id));
    memcpy(r.owner, e->owner, sizeof(r.owner));
    memcpy(r.parent, e->sandbox_id, sizeof(r.parent));
    return store_record_put(sandboxes_store(e->all), "exec", &r, err);
}

static json_t *error_of(const struct err *err) {
    return json_pack("{s:s,s:s%}", "code", err_name(err->code), "message", err->message,
                     strlen(err->message));
}

/* Text from a sandbox may be anything: JSON takes UTF-8 only. */
static json_t *safe_error(const struct err *err) {
    json_t *j = error_of(err);
    return j ? j
             : json_pack("{s:s,s:s}", "code", err_name(err->code), "message",
                         "the sandbox gave a reason that is no text");
}

void exec_detach(struct exec *e) {
    if (!e->sandbox)
        return;
    struct exec **at = &e->sandbox->execs;
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    e->sandbox = NULL;
}

static void exec_on_input_drained(void *ctx) {
    struct exec *e = ctx;
    if (e->input)
        exec_input_wake(e->input);
}

/* Into the record, if it is text. */
static void put_held(struct exec *e) {
    for (int i = 1; i < 3; i++) {
        const struct buf *held = &e->held[i];
        if (held->len == 0)
            continue;
        if (utf8_is_valid(held->data, held->len) && !memchr(held->data, 0, held->len))
            (void)json_object_set_new(e->doc, held_keys[i], json_stringn(held->data, held->len));
        else if (exec_spill(e, i) < 0)
            failed_to_keep(e, i);
    }
}

/* An end that nobody has seen is not made up: its exit code stays null. */
static void exec_finish(struct exec *e, const struct err *why) {
    struct err err;
    json_t *d = e->doc;
    e->ended_ms = clock_wall_ms();
    put_held(e);
    exec_move(e, e->has_exit                ? EXEC_EXITED
                 : e->state == EXEC_RUNNING ? EXEC_INTERRUPTED
                                            : EXEC_FAILED);
    if (e->has_exit) {
        (void)json_object_set_new(d, e->exit.signaled ? "signal" : "exit_code",
                                  json_integer(e->exit.code));
        (void)json_object_set_new(d, "oom", json_boolean(e->exit.oom));
        (void)json_object_set_new(d, "usage",
                                  json_pack("{s:I,s:I,s:I}", "user_ms",
                                            (json_int_t)(e->exit.user_us / 1000), "system_ms",
                                            (json_int_t)(e->exit.system_us / 1000), "max_rss_bytes",
                                            (json_int_t)e->exit.max_rss_bytes));
    }
    (void)json_object_set_new(d, "timed_out", json_boolean(e->timed_out));
    (void)json_object_set_new(d, "stdout_bytes", json_integer((json_int_t)e->bytes[1]));
    (void)json_object_set_new(d, "stderr_bytes", json_integer((json_int_t)e->bytes[2]));
    (void)json_object_set_new(d, "truncated", json_boolean(e->truncated));
    if (why)
        e->err = *why;
    if (e->err.code)
        (void)json_object_set_new(d, "error", safe_error(&e->err));
    if (exec_save(e, &err) < 0)
        log_error("sandbox.record", "sandbox", e->sandbox_id, "error", err.message);
    exec_detach(e);
    exec_on_input_drained(e);
    exec_wake(e);
    exec_unref(e);
}

/* The kernel's killer says nothing to the one who waits for the process, and may have taken one of
 * its children: the counter tells. */
static void exec_on_stats(void *ctx, struct sandbox_reply *reply, const struct err *err) {
    struct exec *e = ctx;
    if (!err && e->sandbox) {
        e->exit.oom = reply->used.oom_kills > e->sandbox->stats.oom_kills;
        e->sandbox->stats = reply->used;
    }
    exec_finish(e, NULL);
}

static void exec_on_exited(void *ctx, const struct sandbox_exit *exit, const struct err *err) {
    struct exec *e = ctx;
    for (int i = 1; i < 3; i++)
        e->bytes[i] += sandbox_command_discarded(e->command, i);
    e->command = NULL;
    if (exit) {
        e->has_exit = true;
        e->exit = *exit;
        bool well = !exit->signaled && exit->code == 0;
        if (!well && !exit->oom && !e->timed_out && e->sandbox && e->sandbox->box &&
            sandbox_box_stats(e->sandbox->box, exec_on_stats, e))
            return;
    }
    exec_finish(e, err);
}

static void exec_on_started(void *ctx) {
    struct exec *e = ctx;
    exec_move(e, EXEC_RUNNING);
    exec_wake(e);
}

/* --- starting --- */

/* A command holds descriptors here, which all keys share. */
static int exec_check_room(const struct sandbox *s, struct err *err) {
    const struct sandbox_settings *set = sandboxes_settings(s->all);
    struct sandboxes_running running = sandboxes_running(s->all, s->owner);
    size_t here = 0;
    for (const struct exec *e = s->execs; e; e = e->next)
        here++;
    if (here >= HERE_MAX)
        return err_set(err, ERR_RATE, "this sandbox runs %zu commands already: end one, or wait",
                       here);
    if (running.own >= set->commands_per_key)
        return err_set(err, ERR_RATE,
                       "this key runs %zu commands already: end one, or wait (setting "
                       "sandboxes.commands_per_key)",
                       running.own);
    if (running.all >= set->commands)
        return err_set(err, ERR_RATE,
                       "%zu commands run already: end one, or wait (setting sandboxes.commands)",
                       running.all);
    return 0;
}

static struct exec *new_exec(struct sandboxes *all, enum exec_state state) {
    struct exec *e = xcalloc(1, sizeof(*e));
    e->all = all;
    e->state = state;
    e->refs = 1;
    e->dir = -1;
    for (int i = 0; i < 3; i++) {
        e->fds[i] = -1;
        buf_init(&e->held[i], HELD_BYTES);
    }
    return e;
}

int exec_start(struct sandbox *s, const struct exec_request *r, struct exec **ret,
               struct err *err) {
    struct sandbox_exec resolved = {0};
    bool input = r->in.text || r->in.open;
    int rc = exec_request_resolve(r, s, &resolved, err);
    if (rc == 0)
        rc = exec_check_room(s, err);
    if (rc == 0 && r->in.len > SMALL_STDIN_BYTES && !sandboxes_take_input(s->all, s->owner))
        rc = err_set(err, ERR_RATE,
                     "commands have not read %d MiB of input that they were given: wait, or put "
                     "this one's into a file",
                     LIMIT_SANDBOX_INPUT_BYTES >> 20);
    if (rc < 0) {
        sandbox_exec_finish(&resolved);
        return rc;
    }
    struct exec *e = new_exec(s->all, EXEC_STARTING);
    e->sandbox = s;
    id_new("exec", e->id);
    memcpy(e->sandbox_id, s->id, sizeof(e->sandbox_id));
    memcpy(e->owner, s->owner, sizeof(e->owner));
    e->doc = exec_request_doc(r);
    e->created_ms = clock_wall_ms();
    e->deadline_ms = r->timeout_s ? clock_mono_ms() + r->timeout_s * 1000 : 0;
    e->wants_input = input;
    rc = exec_save(e, err); /* before it starts */
    if (rc == 0) {
        e->command = sandbox_command_start(
            s->box,
            &(struct sandbox_command_options){.exec = &resolved,
                                              .input = input,
                                              .brief = r->brief,
                                              .callbacks = {exec_on_started, exec_on_output,
                                                            exec_on_input_drained, exec_on_exited},
                                              .ctx = e},
            err);
        if (!e->command) {
            struct err ignored;
            rc = -(int)err->code;
            (void)store_record_delete(sandboxes_store(s->all), "exec", e->id, &ignored);
        }
    }
    if (rc == 0 && r->in.text) {
        (void)sandbox_command_write(e->command, r->in.text, r->in.len);
        sandbox_command_end_input(e->command);
    }
    sandbox_exec_finish(&resolved);
    if (rc < 0) {
        exec_unref(e);
        return rc;
    }
    e->next = s->execs;
    s->execs = e;
    s->recorded++;
    e->refs++; /* one is the command's */
    *ret = e;
    return 0;
}

/* --- those that are there --- */

int exec_open(struct sandboxes *all, const char *sandbox, const char *id, struct store_scope scope,
              struct exec **ret, struct err *err) {
    struct sandbox *s = sandboxes_find(all, sandbox);
    for (struct exec *e = s ? s->execs : NULL; e; e = e->next)
        if (strcmp(e->id, id) == 0 && (scope.all || strcmp(e->owner, scope.owner) == 0)) {
            e->refs++;
            *ret = e;
            return 0;
        }
    struct store_record r;
    int rc = store_record_get(sandboxes_store(all), "exec", id, sandbox, scope, &r, err);
    if (rc < 0)
        return rc;
    enum exec_state state = exec_record_state(&r);
    /* One that is not among those that run has no end that anybody saw. */
    struct exec *e = new_exec(all, state > EXEC_RUNNING ? state : EXEC_INTERRUPTED);
    memcpy(e->id, r.id, sizeof(e->id));
    memcpy(e->sandbox_id, r.parent, sizeof(e->sandbox_id));
    memcpy(e->owner, r.owner, sizeof(e->owner));
    e->doc = store_record_doc(&r);
    e->created_ms = r.created_ms;
    e->ended_ms = r.ended_ms;
    e->dir = sandboxes_dir(all, sandbox, false);
    for (int i = 1; i < 3; i++) {
        struct stat st;
        const json_t *held = json_object_get(e->doc, held_keys[i]);
        if (held && buf_add(&e->held[i], json_string_value(held), json_string_length(held))) {
            e->sizes[i] = e->bytes[i] = e->held[i].len;
            continue;
        }
        e->fds[i] = open_file(e, i, O_RDONLY);
        e->first[i] = (uint64_t)json_integer_value(
            json_object_get(e->doc, i == EXEC_STDOUT ? "stdout_first" : "stderr_first"));
        if (e->fds[i] >= 0 && fstat(e->fds[i], &st) == 0 && S_ISREG(st.st_mode))
            e->sizes[i] = e->bytes[i] = e->first[i] + (uint64_t)st.st_size;
    }
    /* Nobody counted what an interrupted one wrote: the files know. */
    if (e->state == EXEC_INTERRUPTED && !json_object_get(e->doc, "stdout_bytes")) {
        (void)json_object_set_new(e->doc, "stdout_bytes", json_integer((json_int_t)e->bytes[1]));
        (void)json_object_set_new(e->doc, "stderr_bytes", json_integer((json_int_t)e->bytes[2]));
        (void)json_object_del(e->doc, "started");
    }
    store_record_finish(&r);
    *ret = e;
    return 0;
}

void exec_kill(struct exec *e, int signo) {
    if (e->command && e->sandbox)
        (void)sandbox_box_signal(e->sandbox->box, e->command, signo, true, NULL, NULL);
}

void exec_limit(struct exec *e, int64_t timeout_ms) {
    e->deadline_ms = clock_mono_ms() + timeout_ms;
}

void exec_check_time(struct exec *e, int64_t now_ms) {
    spill_all(e);
    if (!e->deadline_ms || now_ms < e->deadline_ms)
        return;
    e->timed_out = true;
    e->deadline_ms = now_ms + 1000; /* once more, if somebody was faster than the first */
    exec_kill(e, SIGKILL);
}

void exec_forget_output(struct exec *e) {
    struct sandbox *s = sandboxes_find(e->all, e->sandbox_id);
    for (int i = 1; i < 3; i++) {
        char name[ID_SIZE + 16];
        (void)snprintf(name, sizeof(name), "%s.%s", e->id, suffixes[i]);
        if (e->fds[i] < 0 || unlinkat(e->dir, name, 0) < 0)
            continue;
        fd_close(&e->fds[i]);
        if (s)
            s->kept_bytes -= MIN(s->kept_bytes, e->sizes[i] - e->first[i]);
    }
}

struct prune {
    struct sandboxes *all;
    int dir;
    char (*ids)[ID_SIZE];
    size_t n;
    uint64_t held_bytes; /* that are in their records */
};

static void exec_on_old(void *ctx, const struct store_record *r) {
    struct prune *p = ctx;
    p->ids = xrealloc(p->ids, (p->n + 1) * sizeof(*p->ids));
    memcpy(p->ids[p->n++], r->id, ID_SIZE);
    _cleanup_(json) json_t *doc = store_record_doc(r);
    for (int i = 1; i < 3; i++)
        p->held_bytes += json_string_length(json_object_get(doc, held_keys[i]));
}

static void exec_on_prune(void *ctx) {
    struct sandbox *s = ctx;
    struct sandboxes *all = s->all;
    struct prune p = {.all = all, .dir = -1};
    struct err err;
    if (store_record_old(sandboxes_store(all), "exec", s->id, 0, sandboxes_settings(all)->execs,
                         exec_on_old, &p, &err) < 0)
        log_warn("sandbox.prune", "error", err.message);
    if (p.n > 0)
        p.dir = sandboxes_dir(all, s->id, false);
    for (size_t i = 0; i < p.n; i++) {
        for (int k = 1; k < 3; k++) {
            char name[ID_SIZE + 16];
            (void)snprintf(name, sizeof(name), "%s.%s", p.ids[i], suffixes[k]);
            struct stat st;
            if (p.dir < 0 || fstatat(p.dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                continue;
            (void)unlinkat(p.dir, name, 0);
            s->kept_bytes -= MIN(s->kept_bytes, (uint64_t)st.st_size);
        }
        (void)store_record_delete(sandboxes_store(all), "exec", p.ids[i], &err);
    }
    s->recorded -= MIN(s->recorded, p.n);
    s->kept_bytes -= MIN(s->kept_bytes, p.held_bytes);
    fd_close(&p.dir);
    free(p.ids);
}

/* When the records of all that began are written, so that none is missed. */
void exec_prune(struct sandbox *s) {
    if (s->recorded > sandboxes_settings(s->all)->execs && !s->prune.at)
        store_after(sandboxes_store(s->all), &s->prune, exec_on_prune, s);
}
