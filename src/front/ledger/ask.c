/* What is the same for all back ends: copies of asks, and what answers own. */
#include "front/ledger/ask.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Everything that an ask points to lies in one block: the same functions run twice, first to count
 * (there is no block yet, and nothing is copied), then to copy. */
struct copier {
    char *block;
    size_t used;
    char *own_text; /* that was taken */
};

static void *copier_bytes(struct copier *c, const void *from, size_t size) {
    enum { ALIGN = 16 };
    size_t at = c->used;
    c->used += (size + ALIGN - 1) / ALIGN * ALIGN;
    return c->block && size > 0 ? memcpy(c->block + at, from, size) : NULL;
}

static char *copier_text(struct copier *c, const char *text) {
    return text ? copier_bytes(c, text, strlen(text) + 1) : NULL;
}

/* The text itself, if it may be taken from its owner. */
static char *copier_take(struct copier *c, const char *text, char **own) {
    if (!own || !*own)
        return copier_text(c, text);
    if (c->block)
        c->own_text = steal_ptr(own);
    return c->own_text;
}

/* --- what an ask points to besides its texts --- */

static void copy_task_submit(struct copier *c, struct ledger_ask *a) {
    a->task_submit.body = copier_take(c, a->task_submit.body, a->task_submit.own_body);
    a->task_submit.own_body = NULL;
}

static void copy_task_renew(struct copier *c, struct ledger_ask *a) {
    struct ledger_task_renew *r = &a->task_renew;
    r->leases = copier_bytes(c, r->leases, r->n * sizeof(*r->leases));
}

static void copy_reserve_renew(struct copier *c, struct ledger_ask *a) {
    struct ledger_reserve_renew *r = &a->reserve_renew;
    const char **ids = copier_bytes(c, r->ids, r->n * sizeof(*r->ids));
    for (size_t i = 0; i < r->n; i++) {
        const char *id = copier_text(c, r->ids[i]);
        if (ids)
            ids[i] = id;
    }
    r->ids = ids;
}

static void copy_settle(struct copier *c, struct ledger_ask *a) {
    struct ledger_settle *s = &a->settle;
    struct ledger_used *used = copier_bytes(c, s->used, s->n * sizeof(*s->used));
    for (size_t i = 0; i < s->n; i++) {
        const char *kind = copier_text(c, s->used[i].kind);
        if (used)
            used[i].kind = kind;
    }
    s->used = used;
}

static const struct ledger_key *copier_key(struct copier *c, const struct ledger_key *from) {
    struct ledger_key k = *from;
    k.name = copier_text(c, k.name);
    k.scope = copier_text(c, k.scope);
    k.grants = copier_text(c, k.grants);
    return copier_bytes(c, &k, sizeof(k));
}

static void copy_key_add(struct copier *c, struct ledger_ask *a) {
    a->key_add.key = copier_key(c, a->key_add.key);
}

static void copy_key_edit(struct copier *c, struct ledger_ask *a) {
    a->key_edit.key = copier_key(c, a->key_edit.key);
}

static void copy_key_used(struct copier *c, struct ledger_ask *a) {
    struct ledger_key_used *u = &a->key_used;
    u->uses = copier_bytes(c, u->uses, u->n * sizeof(*u->uses));
}

static const struct ledger_project *copier_project(struct copier *c,
                                                   const struct ledger_project *from) {
    struct ledger_project p = *from;
    p.name = copier_text(c, p.name);
    return copier_bytes(c, &p, sizeof(p));
}

static void copy_project_add(struct copier *c, struct ledger_ask *a) {
    a->project_add.project = copier_project(c, a->project_add.project);
}

static void copy_project_edit(struct copier *c, struct ledger_ask *a) {
    a->project_edit.project = copier_project(c, a->project_edit.project);
}

static void copy_worker_put(struct copier *c, struct ledger_ask *a) {
    struct ledger_worker w = *a->worker_put.worker;
    w.code = copier_take(c, w.code, a->worker_put.own_code);
    a->worker_put.worker = copier_bytes(c, &w, sizeof(w));
    a->worker_put.own_code = NULL;
}

/* --- what each answer owns --- */

static void finish_task_submitted(struct ledger_answer *a) {
    ledger_task_finish(&a->task_submitted.task);
}

static void finish_task_got(struct ledger_answer *a) {
    ledger_task_finish(&a->task_got.task);
}

static void finish_task_listed(struct ledger_answer *a) {
    ledger_tasks_free(a->task_listed.tasks, a->task_listed.n);
}

static void finish_task_cancelled(struct ledger_answer *a) {
    ledger_task_finish(&a->task_cancelled.task);
}

static void finish_task_claimed(struct ledger_answer *a) {
    ledger_tasks_free(a->task_claimed.tasks, a->task_claimed.n);
}

static void finish_task_renewed(struct ledger_answer *a) {
    free(a->task_renewed.leases);
}

static void finish_hook_claimed(struct ledger_answer *a) {
    ledger_hooks_free(a->hook_claimed.hooks, a->hook_claimed.n);
}

static void finish_usage_report(struct ledger_answer *a) {
    free(a->usage_report.tasks);
    free(a->usage_report.jobs);
    free(a->usage_report.today);
}

static void finish_key_added(struct ledger_answer *a) {
    ledger_key_finish(&a->key_added.key);
}

static void finish_key_listed(struct ledger_answer *a) {
    ledger_keys_free(a->key_listed.keys, a->key_listed.n);
}

static void finish_key_edited(struct ledger_answer *a) {
    ledger_key_finish(&a->key_edited.key);
}

static void finish_project_got(struct ledger_answer *a) {
    ledger_project_finish(&a->project_got.project);
}

static void finish_project_listed(struct ledger_answer *a) {
    ledger_projects_free(a->project_listed.projects, a->project_listed.n);
}

static void finish_worker_got(struct ledger_answer *a) {
    if (a->worker_got.worker)
        ledger_worker_finish(a->worker_got.worker);
    free(a->worker_got.worker);
}

/* --- operations --- */

/* Where a text is in an ask; a field of another type does not compile. */
#define TEXT(field)                                                                                \
    (offsetof(struct ledger_ask, field) +                                                          \
     0 * _Generic(((struct ledger_ask *)0)->field, const char * : 1))

static const struct {
    size_t texts[9]; /* up to the first 0, where the operation itself is */
    void (*copy)(struct copier *c, struct ledger_ask *a); /* of the rest; NULL: there is none */
    void (*finish)(struct ledger_answer *a);              /* NULL: it owns nothing */
} operations[LEDGER_OPS] = {
    [LEDGER_NODE_BEGIN] = {{TEXT(node_begin.node)}, NULL, NULL},
    [LEDGER_TASK_SUBMIT] = {{TEXT(task_submit.id), TEXT(task_submit.owner), TEXT(task_submit.key),
                             TEXT(task_submit.type), TEXT(task_submit.title),
                             TEXT(task_submit.idem), TEXT(task_submit.idem_hash),
                             TEXT(task_submit.webhook), TEXT(task_submit.secret)},
                            copy_task_submit,
                            finish_task_submitted},
    [LEDGER_TASK_GET] = {{TEXT(task_get.id), TEXT(task_get.owner)}, NULL, finish_task_got},
    [LEDGER_TASK_LIST] = {{TEXT(task_list.owner), TEXT(task_list.type), TEXT(task_list.before)},
                          NULL,
                          finish_task_listed},
    [LEDGER_TASK_CANCEL] = {{TEXT(task_cancel.id), TEXT(task_cancel.owner)},
                            NULL,
                            finish_task_cancelled},
    [LEDGER_TASK_CLAIM] = {{TEXT(task_claim.node)}, NULL, finish_task_claimed},
    [LEDGER_TASK_RENEW] = {{TEXT(task_renew.node)}, copy_task_renew, finish_task_renewed},
    [LEDGER_TASK_END] = {{TEXT(task_end.id), TEXT(task_end.error_code),
                          TEXT(task_end.error_message), TEXT(task_end.result)},
                         NULL,
                         NULL},
    [LEDGER_HOOK_CLAIM] = {{0}, NULL, finish_hook_claimed},
    [LEDGER_HOOK_END] = {{TEXT(hook_end.error)}, NULL, NULL},
    [LEDGER_USAGE] = {{TEXT(usage.owner), TEXT(usage.since)}, NULL, finish_usage_report},
    [LEDGER_RESERVE] = {{TEXT(reserve.id), TEXT(reserve.owner), TEXT(reserve.key),
                         TEXT(reserve.node)},
                        NULL,
                        NULL},
    [LEDGER_RESERVE_RENEW] = {{0}, copy_reserve_renew, NULL},
    [LEDGER_SETTLE] = {{TEXT(settle.node)}, copy_settle, NULL},
    [LEDGER_KEY_ADD] = {{TEXT(key_add.project)}, copy_key_add, finish_key_added},
    [LEDGER_KEY_REVOKE] = {{TEXT(key_revoke.id), TEXT(key_revoke.project)}, NULL, NULL},
    [LEDGER_KEY_LIST] = {{TEXT(key_list.before), TEXT(key_list.project), TEXT(key_list.named)},
                         NULL,
                         finish_key_listed},
    [LEDGER_KEY_EDIT] = {{TEXT(key_edit.project)}, copy_key_edit, finish_key_edited},
    [LEDGER_KEY_USED] = {{0}, copy_key_used, NULL},
    [LEDGER_PROJECT_ADD] = {{0}, copy_project_add, finish_project_got},
    [LEDGER_PROJECT_EDIT] = {{TEXT(project_edit.id)}, copy_project_edit, finish_project_got},
    [LEDGER_PROJECT_GET] = {{TEXT(project_get.id)}, NULL, finish_project_got},
    [LEDGER_PROJECT_LIST] = {{TEXT(project_list.after)}, NULL, finish_project_listed},
    [LEDGER_WORKER_PUT] = {{0}, copy_worker_put, NULL},
    [LEDGER_WORKER_GET] = {{TEXT(worker_get.owner), TEXT(worker_get.id)}, NULL, finish_worker_got},
    [LEDGER_WORKER_DELETE] = {{TEXT(worker_delete.owner), TEXT(worker_delete.id)}, NULL, NULL},
};

static struct ledger_ask ledger_ask_copy_all(struct copier *c, const struct ledger_ask *from) {
    struct ledger_ask a = *from;
    const size_t *texts = operations[a.op].texts;
    for (size_t i = 0; i < ARRAY_LEN(operations[0].texts) && texts[i]; i++) {
        const char **text = (const char **)((char *)&a + texts[i]);
        *text = copier_text(c, *text);
    }
    if (operations[a.op].copy)
        operations[a.op].copy(c, &a);
    return a;
}

void ledger_ask_copy(const struct ledger_ask *from, struct ledger_ask_copy *ret_copy) {
    struct copier c = {0};
    (void)ledger_ask_copy_all(&c, from);
    c = (struct copier){.block = xmalloc(MAX(c.used, 1))};
    struct ledger_ask copy = ledger_ask_copy_all(&c, from);
    *ret_copy = (struct ledger_ask_copy){.ask = copy, .block = c.block, .own_text = c.own_text};
}

void ledger_ask_copy_finish(struct ledger_ask_copy *copy) {
    free(copy->own_text);
    free(copy->block);
    *copy = (struct ledger_ask_copy){0};
}

void ledger_answer_finish(struct ledger_answer *a) {
    if (!a->err.code && operations[a->op].finish)
        operations[a->op].finish(a);
    *a = (struct ledger_answer){0};
}
