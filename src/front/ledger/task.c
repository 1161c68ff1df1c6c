#include "front/ledger/ledger.h"

#include "base/cleanup.h"

#include <stdlib.h>
#include <string.h>

/* What asks and answers are made of. */

static const char *const state_names[TASK_STATES] = {
    [TASK_QUEUED] = "queued", [TASK_RUNNING] = "running",     [TASK_DONE] = "done",
    [TASK_FAILED] = "failed", [TASK_CANCELLED] = "cancelled", [TASK_INTERRUPTED] = "interrupted"};

const char *task_state_name(enum task_state state) {
    return state_names[state];
}

bool task_state_parse(const char *name, enum task_state *ret_state) {
    for (int i = 0; i < TASK_STATES; i++)
        if (strcmp(name, state_names[i]) == 0) {
            *ret_state = (enum task_state)i;
            return true;
        }
    return false;
}

/* Up to so much, as digits alone; 0: it is none. */
static int64_t ledger_task_read_number(const char **p, int64_t max) {
    int64_t n = 0;
    for (; **p >= '0' && **p <= '9' && n <= max; (*p)++)
        n = n * 10 + (**p - '0');
    return n <= max ? n : 0;
}

bool task_event_parse(const char *text, int64_t *ret_attempt, int64_t *ret_number) {
    enum { ATTEMPTS_MAX = 1000000, NUMBER_MAX = 1000000000 };
    const char *p = text;
    int64_t attempt = ledger_task_read_number(&p, ATTEMPTS_MAX);
    if (*p++ != '.')
        return false;
    int64_t number = ledger_task_read_number(&p, NUMBER_MAX);
    if (attempt == 0 || number == 0 || *p)
        return false;
    *ret_attempt = attempt;
    *ret_number = number;
    return true;
}

void ledger_task_finish(struct ledger_task *t) {
    char *texts[] = {t->type,          t->title,   t->body,     t->idem,
                     t->idem_hash,     t->webhook, t->secret,   t->error_code,
                     t->error_message, t->result,  t->attempts, t->hook};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        free(texts[i]);
    *t = (struct ledger_task){0};
}

void ledger_tasks_free(struct ledger_task *tasks, size_t n) {
    for (size_t i = 0; i < n; i++)
        ledger_task_finish(&tasks[i]);
    free(tasks);
}

void ledger_hook_finish(struct ledger_hook *h) {
    free(h->url);
    free(h->secret);
    free(h->body);
    *h = (struct ledger_hook){0};
}

void ledger_hooks_free(struct ledger_hook *hooks, size_t n) {
    for (size_t i = 0; i < n; i++)
        ledger_hook_finish(&hooks[i]);
    free(hooks);
}
