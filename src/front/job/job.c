#include "front/job/job.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sm.h"
#include "front/common/share.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 64, KIND_SIZE = 24 };

/* An event of a kind that does not store them. */
struct kept {
    struct kept *next;
    int64_t seq;
    int64_t time_ms;
    const char *type; /* behind the text */
    size_t len;
    char json[];
};

/* Those of a job, for it and for those who follow it. */
struct keeping {
    size_t refs;
    int64_t next_seq;
    struct kept *first;
    struct kept **last;
    size_t bytes;
};

struct job {
    struct job *next;
    struct job **at;
    struct jobs *jobs;
    char id[ID_SIZE];
    char owner[ID_SIZE];
    char key[ID_SIZE];
    char kind[KIND_SIZE];
    bool inner;
    int64_t begun_ms; /* monotonic */
    void (*cancel)(void *ctx);
    void *ctx;
    struct keeping *keeping; /* NULL: they are stored */
    int64_t events;          /* of those that are */
    int64_t event_bytes;
    uint64_t dropped;
};

enum follow_state {
    FOLLOW_IDLE,
    FOLLOW_WAITING, /* on_more comes when what is queued has been written */
    FOLLOW_AGAIN,   /* and once more for what was queued since */
};

static const struct sm_state follow_states[] = {
    [FOLLOW_IDLE] = {"idle", SM_TO(FOLLOW_WAITING)},
    [FOLLOW_WAITING] = {"waiting", SM_TO(FOLLOW_AGAIN) | SM_TO(FOLLOW_IDLE)},
    [FOLLOW_AGAIN] = {"again", SM_TO(FOLLOW_WAITING)},
};
static const struct sm follow_sm = {"follow", follow_states, ARRAY_LEN(follow_states)};

struct job_follow {
    struct job_follow *next;
    struct job_follow **at;
    struct jobs *jobs;
    enum follow_state state; /* of its wait for the store */
    struct job *job;         /* NULL: it is over */
    struct keeping *keeping;
    char id[ID_SIZE];
    int64_t after;
    int64_t end_ticket; /* when the job is over: what must be written until then */
    void (*on_more)(void *ctx);
    void *ctx;
    struct later more;
    struct store_wait written;
};

struct job_watch {
    struct job_watch *next;
    struct jobs *jobs;
    struct job *job; /* NULL: it is over, and is being told */
    void (*on_end)(void *ctx, const struct store_run_end *end);
    void *ctx;
    struct store_wait written;
    struct store_run_end end; /* whose texts are ours */
};

struct jobs {
    struct job_watch *watches;
    struct store *store;
    struct job *list;
    struct job_follow *follows;
    struct later_queue later;
    struct shares of_keys; /* jobs of each key, and of each project */
    struct shares of_projects;
    void (*on_end)(void *ctx, const struct job_ended *ended);
    void *end_ctx;
    struct jobs_max (*max_jobs)(void *ctx, const char *key);
    void *max_ctx;
};

struct jobs *jobs_create(uv_loop_t *loop, struct store *store) {
    struct jobs *all = xcalloc(1, sizeof(*all));
    all->store = store;
    later_queue_init(&all->later, loop);
    return all;
}

void jobs_on_end(struct jobs *all, void (*on_end)(void *ctx, const struct job_ended *ended),
                 void *ctx) {
    all->on_end = on_end;
    all->end_ctx = ctx;
}

void jobs_set_limit(struct jobs *all, struct jobs_max (*max_jobs)(void *ctx, const char *key),
                    void *ctx) {
    all->max_jobs = max_jobs;
    all->max_ctx = ctx;
}

static void job_on_later_closed(uv_handle_t *h) {
    struct jobs *all = h->data;
    shares_finish(&all->of_keys);
    shares_finish(&all->of_projects);
    free(all);
}

void jobs_destroy(struct jobs *all) {
    if (!all)
        return;
    later_queue_close(&all->later, job_on_later_closed, all);
}

static struct keeping *keeping_create(void) {
    struct keeping *k = xcalloc(1, sizeof(*k));
    k->refs = 1;
    k->last = &k->first;
    return k;
}

static void keeping_unref(struct keeping *k) {
    if (!k || --k->refs > 0)
        return;
    while (k->first) {
        struct kept *e = k->first;
        k->first = e->next;
        free(e);
    }
    free(k);
}

/* --- the one who does the work --- */

static int check_limit(const struct jobs *all, const struct job_spec *spec, struct err *err) {
    if (spec->inner || !spec->key || !*spec->key || !all->max_jobs)
        return 0;
    struct jobs_max max = all->max_jobs(all->max_ctx, spec->key);
    bool key = max.key > 0 && (int64_t)shares_held(&all->of_keys, spec->key) >= max.key;
    bool project =
        max.project > 0 && (int64_t)shares_held(&all->of_projects, spec->owner) >= max.project;
    if (!key && !project)
        return 0;
    return err_set(err, ERR_RATE, "this %s may have %lld jobs at a time: wait for one to end",
                   key ? "key" : "project", (long long)(key ? max.key : max.project));
}

static void job_count(struct job *j) {
    shares_add(&j->jobs->of_keys, j->key);
    shares_add(&j->jobs->of_projects, j->owner);
}

static void end_count(struct job *j, const struct store_run_end *end) {
    struct jobs *all = j->jobs;
    if (!j->inner) {
        shares_remove(&all->of_keys, j->key);
        shares_remove(&all->of_projects, j->owner);
    }
    if (all->on_end)
        all->on_end(all->end_ctx, &(struct job_ended){.owner = j->owner,
                                                      .key = j->key,
                                                      .kind = j->kind,
                                                      .done = end->status == JOB_DONE,
                                                      .wall_ms = clock_mono_ms() - j->begun_ms});
}

int job_begin(struct jobs *all, const struct job_spec *spec, struct job **ret_job,
              struct err *err) {
    int limit = check_limit(all, spec, err);
    if (limit < 0)
        return limit;
    struct job *j = xcalloc(1, sizeof(*j));
    if (spec->id)
        (void)snprintf(j->id, sizeof(j->id), "%s", spec->id);
    else
        id_new("run", j->id);
    struct store_run record = {.kind = (char *)(uintptr_t)spec->kind,
                               .title = (char *)(uintptr_t)spec->title,
                               .detail = (char *)(uintptr_t)spec->detail,
                               .created_ms = clock_wall_ms()};
    memcpy(record.id, j->id, sizeof(record.id));
    (void)snprintf(record.owner, sizeof(record.owner), "%s", spec->owner);
    (void)snprintf(record.key, sizeof(record.key), "%s", spec->key ? spec->key : "");
    int rc = store_run_begin(all->store, &record, err);
    if (rc < 0) {
        free(j);
        return rc;
    }
    j->jobs = all;
    j->inner = spec->inner;
    j->begun_ms = clock_mono_ms();
    (void)snprintf(j->owner, sizeof(j->owner), "%s", spec->owner);
    (void)snprintf(j->key, sizeof(j->key), "%s", spec->key ? spec->key : "");
    (void)snprintf(j->kind, sizeof(j->kind), "%s", spec->kind);
    if (!j->inner)
        job_count(j);
    j->keeping = spec->stores_events ? NULL : keeping_create();
    j->cancel = spec->cancel;
    j->ctx = spec->ctx;
    j->next = all->list;
    j->at = &all->list;
    if (j->next)
        j->next->at = &j->next;
    all->list = j;
    *ret_job = j;
    return 0;
}

const char *job_id(const struct job *j) {
    return j->id;
}

static void job_on_more(void *ctx) {
    struct job_follow *f = ctx;
    f->on_more(f->ctx);
}

static void job_follow_move(struct job_follow *f, enum follow_state to) {
    f->state = (enum follow_state)sm_next(&follow_sm, f->state, to);
    assert((f->state == FOLLOW_IDLE) == !f->written.at);
}

static void job_follow_on_written(void *ctx);

static void job_follow_wait(struct job_follow *f) {
    store_after(f->jobs->store, &f->written, job_follow_on_written, f);
    job_follow_move(f, FOLLOW_WAITING);
}

static void job_follow_on_written(void *ctx) {
    struct job_follow *f = ctx;
    if (f->state == FOLLOW_AGAIN)
        job_follow_wait(f);
    else
        job_follow_move(f, FOLLOW_IDLE);
    f->on_more(f->ctx);
}

/* Stored events, and how a job ended, are read from the store: when they are written. */
static void job_follow_wake(struct job_follow *f) {
    if (f->keeping && f->job)
        later_post(&f->jobs->later, &f->more, job_on_more, f);
    else if (f->state == FOLLOW_IDLE)
        job_follow_wait(f);
    else if (f->state == FOLLOW_WAITING)
        job_follow_move(f, FOLLOW_AGAIN);
}

static void job_tell(const struct job *j) {
    for (struct job_follow *f = j->jobs->follows; f; f = f->next)
        if (f->job == j)
            job_follow_wake(f);
}

static bool job_keep(struct keeping *k, const char *type, const char *json, size_t len) {
    size_t type_len = strlen(type) + 1;
    size_t size = sizeof(struct kept) + len + type_len;
    if (k->bytes + size > LIMIT_JOB_EVENTS_BYTES)
        return false;
    struct kept *e = xmalloc(size);
    *e = (struct kept){.seq = ++k->next_seq, .time_ms = clock_wall_ms(), .len = len};
    memcpy(e->json, json, len);
    memcpy(e->json + len, type, type_len);
    e->type = e->json + len;
    *k->last = e;
    k->last = &e->next;
    k->bytes += size;
    return true;
}

/* The store counts too, for those who add events by the run's id; it is told here, so that what is
 * left out can be counted. */
static bool job_store_event(struct job *j, const char *type, const char *json, size_t len) {
    struct err err;
    const struct store *s = j->jobs->store;
    if (!store_event_fits(s, j->events, j->event_bytes, len) ||
        store_event_add(j->jobs->store, j->id, type, json, len, &err) < 0)
        return false;
    j->events++;
    j->event_bytes += store_event_bytes(len);
    return true;
}

void job_event(struct job *j, const char *type, const char *json, size_t len) {
    bool ok =
        j->keeping ? job_keep(j->keeping, type, json, len) : job_store_event(j, type, json, len);
    if (ok)
        job_tell(j);
    else if (j->dropped++ == 0)
        log_warn("job.event", "job", j->id, "error",
                 "this job has as many events as are kept, or the disk is full: the rest is left "
                 "out");
}

/* --- who waits for the end --- */

static char *job_copy(const char *text) {
    return text ? xstrdup(text) : NULL;
}

static void job_free_watch(struct job_watch *w) {
    struct job_watch **at = &w->jobs->watches;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    free((char *)(uintptr_t)w->end.error_code);
    free((char *)(uintptr_t)w->end.error_message);
    free((char *)(uintptr_t)w->end.detail);
    free((char *)(uintptr_t)w->end.answer);
    free(w);
}

static void job_on_told(void *ctx) {
    struct job_watch *w = ctx;
    w->on_end(w->ctx, &w->end);
    job_free_watch(w);
}

static void job_tell_end(struct job *j, const struct store_run_end *end) {
    for (struct job_watch *w = j->jobs->watches; w; w = w->next) {
        if (w->job != j)
            continue;
        w->job = NULL;
        w->end = *end;
        w->end.error_code = job_copy(end->error_code);
        w->end.error_message = job_copy(end->error_message);
        w->end.detail = end->detail ? xstrndup(end->detail, end->detail_len) : NULL;
        w->end.answer = end->answer ? xstrndup(end->answer, end->answer_len) : NULL;
        store_after(j->jobs->store, &w->written, job_on_told, w); /* they may read its record */
    }
}

void job_unwatch(struct job_watch *w) {
    if (!w)
        return;
    store_wait_cancel(&w->written);
    job_free_watch(w);
}

void job_end(struct job *j, const struct store_run_end *end) {
    struct jobs *all = j->jobs;
    struct err err;
    if (j->dropped > 0 && !j->keeping) {
        char text[64];
        int n = snprintf(text, sizeof(text), "{\"dropped\":%llu}", (unsigned long long)j->dropped);
        (void)store_event_add(all->store, j->id, "dropped", text, (size_t)n, &err);
    }
    if (store_run_end(all->store, j->id, end, &err) < 0)
        log_error("job.end", "job", j->id, "error", err.message);
    end_count(j, end);
    job_tell_end(j, end);
    for (struct job_follow *f = all->follows; f; f = f->next)
        if (f->job == j) {
            f->job = NULL;
            f->end_ticket = store_submitted(all->store);
            job_follow_wake(f);
        }
    *j->at = j->next;
    if (j->next)
        j->next->at = j->at;
    keeping_unref(j->keeping);
    free(j);
}

/* --- everybody else --- */

static struct job *job_find(const struct jobs *all, const char *id) {
    struct job *j = all->list;
    while (j && strcmp(j->id, id) != 0)
        j = j->next;
    return j;
}

int job_watch(struct jobs *all, const char *id,
              void (*on_end)(void *ctx, const struct store_run_end *end), void *ctx,
              struct job_watch **ret_watch, struct err *err) {
    struct job *j = job_find(all, id);
    if (!j)
        return err_set(err, ERR_NOT_FOUND, "no job %.40s runs", id);
    struct job_watch *w = xcalloc(1, sizeof(*w));
    *w = (struct job_watch){
        .next = all->watches, .jobs = all, .job = j, .on_end = on_end, .ctx = ctx};
    all->watches = w;
    *ret_watch = w;
    return 0;
}

/* Whether there is such a job for them to see. */
static int job_look(const struct jobs *all, const char *id, struct store_scope scope,
                    struct err *err) {
    struct store_run r;
    const struct job *j = job_find(all, id);
    if (j && (scope.all || strcmp(j->owner, scope.owner) == 0))
        return 0; /* its record may not be written yet */
    int rc = store_run_look(all->store, id, scope, 0, &r, err);
    if (rc == 0)
        store_run_finish(&r);
    return rc;
}

int job_cancel(struct jobs *all, const char *id, struct store_scope scope, struct err *err) {
    int rc = job_look(all, id, scope, err);
    struct job *j = rc == 0 ? job_find(all, id) : NULL;
    if (rc < 0)
        return rc;
    if (!j)
        return err_set(err, ERR_CONFLICT, "it has ended already");
    if (!j->cancel)
        return err_set(err, ERR_UNSUPPORTED, "this kind cannot be cancelled");
    j->cancel(j->ctx);
    return 0;
}

int job_follow(struct jobs *all, const char *id, struct store_scope scope, int64_t after,
               void (*more)(void *ctx), void *ctx, struct job_follow **ret_follow,
               struct err *err) {
    int rc = job_look(all, id, scope, err);
    if (rc == 0)
        *ret_follow = job_follow_known(all, id, after, more, ctx);
    return rc;
}

size_t jobs_running(const struct jobs *all) {
    size_t n = 0;
    for (const struct job *j = all->list; j; j = j->next)
        n++;
    return n;
}

bool job_is_running(const struct jobs *all, const char *id) {
    return job_find(all, id) != NULL;
}

struct job_follow *job_follow_known(struct jobs *all, const char *id, int64_t after,
                                    void (*more)(void *ctx), void *ctx) {
    struct job_follow *f = xcalloc(1, sizeof(*f));
    f->jobs = all;
    f->job = job_find(all, id);
    f->keeping = f->job ? f->job->keeping : NULL;
    if (f->keeping)
        f->keeping->refs++;
    (void)snprintf(f->id, sizeof(f->id), "%s", id);
    f->after = after;
    f->on_more = more;
    f->ctx = ctx;
    f->next = all->follows;
    f->at = &all->follows;
    if (f->next)
        f->next->at = &f->next;
    all->follows = f;
    job_follow_wake(f);
    return f;
}

const char *job_followed(const struct job_follow *f) {
    return f->id;
}

void job_unfollow(struct job_follow *f) {
    if (!f)
        return;
    later_cancel(&f->more);
    store_wait_cancel(&f->written);
    *f->at = f->next;
    if (f->next)
        f->next->at = f->at;
    keeping_unref(f->keeping);
    free(f);
}

struct reading {
    struct job_follow *follow;
    bool (*on_event)(void *ctx, const struct job_event *event);
    void *ctx;
    size_t n;
    bool stopped;
};

static void job_hand_out(struct reading *r, const struct job_event *e) {
    r->n++;
    if (r->stopped)
        return;
    r->follow->after = e->seq;
    r->stopped = !r->on_event(r->ctx, e);
}

static void job_on_stored(void *ctx, const struct store_event *e) {
    job_hand_out(ctx, &(struct job_event){.seq = e->seq,
                                          .time_ms = e->time_ms,
                                          .type = e->type,
                                          .json = e->json,
                                          .len = strlen(e->json)});
}

static void read_kept(struct reading *r) {
    for (const struct kept *k = r->follow->keeping->first; k && !r->stopped; k = k->next)
        if (k->seq > r->follow->after)
            job_hand_out(r, &(struct job_event){.seq = k->seq,
                                                .time_ms = k->time_ms,
                                                .type = k->type,
                                                .json = k->json,
                                                .len = k->len});
}

bool job_read(struct job_follow *f, bool (*on_event)(void *ctx, const struct job_event *event),
              void *ctx) {
    struct reading r = {.follow = f, .on_event = on_event, .ctx = ctx};
    struct err err;
    /* Before reading: what is written until then is read now. */
    bool over = !f->job && store_has_written(f->jobs->store, f->end_ticket);
    if (f->keeping) {
        read_kept(&r);
        return r.stopped || !over;
    }
    do {
        r.n = 0;
        if (store_event_list(f->jobs->store, f->id, f->after, PAGE, job_on_stored, &r, &err) < 0)
            log_error("job.read", "job", f->id, "error", err.message);
    } while (!r.stopped && r.n == PAGE);
    return r.stopped || !over;
}
