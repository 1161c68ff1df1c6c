#pragma once
/* Tasks on this server: the desk on the loop. It begins the jobs of what it has claimed, tells the
 * desk how they ended, and tells whoever listens that something about a task has changed. */

#include "front/ledger/keyring.h"
#include "front/ledger/ledger.h"
#include "front/task/settings.h"
#include "front/task/types.h"

struct tasks;

struct tasks_options {
    uv_loop_t *loop;
    struct ledger *ledger;
    struct keyring *keys;
    const struct task_settings *settings; /* borrowed */
    struct task_rooms rooms;
    struct intake *intake; /* where large bodies are read; ended before these. NULL: on the loop */
};

struct tasks *tasks_create(const struct tasks_options *options);
/* Whether a body is one of its type, and may take that long; 0 becomes how long it may. */
int tasks_check(const struct tasks *t, const struct task_type *type, const json_t *body,
                int64_t *timeout_ms, struct err *err);
/* Nothing new is begun; what ends from now on because it is stopped is tried again later. */
void tasks_stop(struct tasks *t);
/* Whether any is at work here, or its end is not in the ledger yet. */
bool tasks_are_busy(const struct tasks *t);
/* After that: cancels the jobs that still run. */
void tasks_end_jobs(struct tasks *t);
/* Every job has ended, and the ledger is closed: whatever it was asked is answered. */
void tasks_destroy(struct tasks *t);

/* Something was queued, or asked to end. */
void tasks_hint(struct tasks *t, const char *cancelled);

/* Part of its owner. */
struct task_listener {
    struct task_listener *next;
    struct tasks *tasks;
    char task[ID_SIZE];
    void (*on_change)(void *ctx); /* from the loop */
    void *ctx;
};
void task_listen(struct tasks *t, struct task_listener *l);
/* One that does not listen is allowed. */
void task_unlisten(struct task_listener *l);
