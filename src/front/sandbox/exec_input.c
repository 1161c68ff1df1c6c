#include "base/mem.h"
#include "front/sandbox/internal_exec.h"
#include "loop/later.h"

#include <stdlib.h>

enum {
    HIGH_BYTES = 256 * 1024,
    LOW_BYTES = 16 * 1024, /* while commands have much that they do not read */
};

struct exec_input {
    struct exec *exec;
    struct exec_input_callbacks callbacks;
    void *ctx;
    bool full;
    struct err err; /* why it takes no more */
    struct later later;
};

static void exec_input_end(void *ctx) {
    struct exec_input *i = ctx;
    struct exec_input_callbacks callbacks = i->callbacks;
    struct err err = i->err;
    void *user = i->ctx;
    exec_input_close(i, false);
    callbacks.on_end(user, &err);
}

static void exec_input_fail(struct exec_input *i) {
    later_post(sandboxes_later(i->exec->all), &i->later, exec_input_end, i);
}

void exec_input_wake(struct exec_input *i) {
    if (i->err.code)
        return;
    if (!i->exec->command) {
        (void)err_set(&i->err, ERR_CONFLICT, "the command ended before it read all");
        exec_input_fail(i);
    } else if (i->full && sandbox_command_input_queued(i->exec->command) < HIGH_BYTES) {
        i->full = false;
        i->callbacks.on_room(i->ctx);
    }
}

int exec_input_open(struct exec *e, const struct exec_input_callbacks *callbacks, void *ctx,
                    struct exec_input **ret, struct err *err) {
    int rc = exec_check_running(e, err);
    if (rc < 0)
        return rc;
    if (!e->wants_input && !sandbox_command_is_terminal(e->command))
        return err_set(err, ERR_CONFLICT,
                       "the command was started without an input: start it with \"stdin\": true");
    if (e->input)
        return err_set(err, ERR_CONFLICT, "another request is writing to this input");
    struct exec_input *i = xcalloc(1, sizeof(*i));
    *i = (struct exec_input){.exec = e, .callbacks = *callbacks, .ctx = ctx};
    e->refs++;
    e->input = i;
    *ret = i;
    return 0;
}

bool exec_input_write(struct exec_input *i, const char *data, size_t len) {
    struct exec *e = i->exec;
    if (!e->command || i->err.code)
        return true; /* on_end comes */
    if (!sandbox_command_write(e->command, data, len)) {
        (void)err_set(&i->err, ERR_LIMIT, "the command does not read its input");
        exec_input_fail(i);
        return true;
    }
    size_t most = sandboxes_take_input(e->all, e->owner) ? HIGH_BYTES : LOW_BYTES;
    i->full = sandbox_command_input_queued(e->command) >= most;
    return !i->full;
}

bool exec_input_is_open(const struct exec_input *i) {
    return !i->err.code;
}

void exec_input_close(struct exec_input *i, bool eof) {
    if (!i)
        return;
    later_cancel(&i->later);
    if (eof && i->exec->command)
        sandbox_command_end_input(i->exec->command);
    i->exec->input = NULL;
    exec_unref(i->exec);
    free(i);
}
