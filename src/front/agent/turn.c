#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sm.h"
#include "base/utf8.h"
#include "front/agent/chunks.h"
#include "front/agent/excerpt.h"
#include "front/agent/internal.h"
#include "front/agent/uimessage.h"
#include "front/common/share.h"
#include "front/model/ask.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Turns: from the user's message to the end of the assistant's. They wait for each other; the first
 * one has a dialog, whose chunks are its stream, a record, and a place in the history. */

enum { TITLE_BYTES = 80, READ_AT_ONCE_BYTES = 32 << 10 };

enum turn_state {
    TURN_WAITING, /* behind another */
    TURN_BEGUN,   /* recorded, with what it answers and its place in the history */
    TURN_RUNNING, /* its dialog does */
    TURN_HELD,    /* the same; what it tells waits for the state that a program has led to */
    TURN_ENDED,   /* the same, and its dialog has ended */
    TURN_OVER,
};

static const struct sm_state states[] = {
    [TURN_WAITING] = {"waiting", SM_TO(TURN_BEGUN) | SM_TO(TURN_OVER)},
    [TURN_BEGUN] = {"begun", SM_TO(TURN_RUNNING) | SM_TO(TURN_OVER)},
    [TURN_RUNNING] = {"running", SM_TO(TURN_HELD) | SM_TO(TURN_OVER)},
    [TURN_HELD] = {"held", SM_TO(TURN_RUNNING) | SM_TO(TURN_ENDED) | SM_TO(TURN_OVER)},
    [TURN_ENDED] = {"ended", SM_TO(TURN_RUNNING) | SM_TO(TURN_OVER)},
    [TURN_OVER] = {"over", 0},
};
static const struct sm machine = {"turn", states, ARRAY_LEN(states)};

struct turn {
    struct turn *next;
    struct agent *agent;
    enum turn_state state;
    char *id;
    struct job *job;                   /* NULL: it could not be recorded, or has ended */
    const struct agent_listener *from; /* NULL when it is gone */
    json_t *user_ids;                  /* of the messages that it answers */
    struct excerpt_reading *reading;   /* makes the next, if there is much to read */
    json_t *conversation;              /* what the model will read; then the dialog's */
    size_t bytes;                      /* of it: a thread frees many */
    int64_t place;                     /* of the assistant's message in the history */
    struct model_info model; /* without a name while it is the agent's, and the turn waits */
    struct chunks *chunks;   /* NULL while it waits */
    struct dialog *dialog;   /* NULL until it runs */
    char *said;              /* what it answers, the beginning of it */
    char key[ID_SIZE];       /* who asked for it */
    int64_t begun_ms;
    bool waited;
    struct history_wait written; /* until what it answers is */
    enum err_code refusal;       /* or this, if it cannot be */
    bool ended;                  /* its dialog has, while what it told is held back... */
    struct dialog_end end;       /* ...in this way */
};

/* The conversation of a turn, read by a thread. */
struct excerpt_reading {
    struct turn *turn; /* NULL: it is over */
    struct intake_item *item;
    struct excerpt *excerpt;
    json_t *conversation;
};

static void start_first(void *ctx);

static void turn_move(struct turn *t, enum turn_state to) {
    t->state = sm_next(&machine, t->state, to);
}

static void turn_free_tree(void *tree) {
    json_decref(tree);
}

static void turn_free(struct turn *t) {
    if (t->reading) {
        t->reading->turn = NULL;
        intake_cancel(t->reading->item);
    }
    history_wait_cancel(&t->written);
    dialog_destroy(t->dialog);
    chunks_destroy(t->chunks);
    json_decref(t->user_ids);
    if (t->bytes > READ_AT_ONCE_BYTES)
        intake_dispose(t->agent->agents->opt.intake, turn_free_tree, t->conversation);
    else
        json_decref(t->conversation);
    free(t->said);
    free(t->id);
    free(t);
}

/* --- the stream, for those who join --- */

const char *agent_turn(const struct agent *a) {
    return a->turns && a->turns->state >= TURN_RUNNING ? a->turns->id : NULL;
}

size_t agent_chunk_count(const struct agent *a) {
    return agent_turn(a) ? chunks_count(a->turns->chunks) : 0;
}

const char *agent_chunk(const struct agent *a, size_t i, size_t *ret_seq, size_t *ret_len) {
    return chunks_get(a->turns->chunks, i, ret_seq, ret_len);
}

/* --- the record --- */

static void end_turn(struct turn *t, const char *outcome, const char *error);

/* By the id of its record, as every job is cancelled. */
static void turn_on_cancel(void *ctx) {
    end_turn(ctx, "aborted", NULL);
}

/* People tell turns apart by what was asked; whose it was is in the detail. */
static char *turn_make_title(const struct turn *t) {
    const char *said = t->said ? t->said + strspn(t->said, " \t\r\n") : "";
    return *said ? xstrndup(said, utf8_floor(said, strcspn(said, "\r\n"), TITLE_BYTES))
                 : agent_title(t->agent);
}

/* One that cannot be recorded goes on; one too many for its key does not. */
static int turn_record_begin(struct turn *t, struct err *err) {
    struct agent *a = t->agent;
    _cleanup_(free) char *title = turn_make_title(t);
    t->begun_ms = clock_mono_ms();
    _cleanup_(free) char *text =
        xasprintf("%lld %s", (long long)t->place, chunks_message_id(t->chunks));
    int rc = job_begin(a->agents->opt.jobs,
                       &(struct job_spec){.kind = "chat",
                                          .owner = a->owner,
                                          .key = t->key,
                                          .title = title,
                                          .cancel = turn_on_cancel,
                                          .ctx = t},
                       &t->job, err);
    if (rc == -ERR_RATE)
        return rc;
    if (rc < 0 || history_set(a->history, "turn", text, err) < 0)
        log_error("agent.record", "error", err->message);
    return 0;
}

static json_t *record_detail(const struct turn *t) {
    static const struct model_meter none;
    const struct model_meter *m = t->dialog ? dialog_meter(t->dialog) : &none;
    const struct model_usage *u = &m->usage;
    return json_pack(
        "{s:s,s:s,s:o,s:s,s:s,s:I,s:{s:I,s:I,s:I,s:I},s:f}", "agent", t->agent->def->type, "name",
        t->agent->name, "said", t->said ? json_text(t->said) : json_null(), "message",
        chunks_message_id(t->chunks), "model", t->model.id, "steps",
        (json_int_t)(t->dialog ? dialog_steps(t->dialog) : 0), "tokens", "input",
        (json_int_t)u->input_tokens, "output", (json_int_t)u->output_tokens, "cache_read",
        (json_int_t)u->cache_read_tokens, "cache_write", (json_int_t)u->cache_write_tokens,
        "cost_usd", (double)m->cost_nusd / NANO_USD_PER_USD);
}

/* What the message tells of its turn, for whoever shows it. */
static json_t *turn_on_metadata(void *ctx) {
    const struct turn *t = ctx;
    static const char *const keys[] = {"model", "tokens", "cost_usd"};
    char now[CLOCK_RFC3339_SIZE];
    _cleanup_(json) json_t *detail = record_detail(t);
    json_t *m = json_pack("{s:s,s:I}", "at", clock_rfc3339(clock_wall_ms(), now), "ms",
                          (json_int_t)(clock_mono_ms() - t->begun_ms));
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        (void)json_object_set(m, keys[i], json_object_get(detail, keys[i]));
    if (t->job)
        (void)json_object_set_new(m, "run", json_string(job_id(t->job)));
    return m;
}

/* Why it was not let go on; 0: it was. */
static enum err_code turn_refusal(const struct turn *t) {
    return t->refusal                       ? t->refusal
           : t->end.error.code == ERR_QUOTA ? ERR_QUOTA
           : t->end.held_up                 ? ERR_RATE
                                            : 0;
}

static void turn_record_end(struct turn *t, const char *outcome, const char *error) {
    _cleanup_(json) json_t *detail = record_detail(t);
    _cleanup_(free) char *text = json_dumps(detail, JSON_COMPACT);
    struct store_run_end end = {.status = error     ? JOB_FAILED
                                          : outcome ? JOB_CANCELLED
                                                    : JOB_DONE,
                                .error_code = !error            ? NULL
                                              : turn_refusal(t) ? err_name(turn_refusal(t))
                                                                : "model_error",
                                .error_message = error,
                                .detail = text,
                                .detail_len = text ? strlen(text) : 0};
    if (t->dialog)
        end.usage = dialog_usage(t->dialog);
    if (t->job)
        job_end(steal_ptr(&t->job), &end);
}

static void forget_turn(struct agent *a) {
    struct err err;
    if (history_set(a->history, "turn", NULL, &err) < 0)
        log_error("agent.record", "error", err.message);
}

void turn_mark_cut(struct agent *a) {
    struct err err;
    _cleanup_(free) char *turn = NULL;
    _cleanup_(free) char *text = NULL;
    char *id = NULL;
    if (history_get(a->history, "turn", &turn, &err) < 0 || !turn)
        return;
    int64_t place = strtoll(turn, &id, 10);
    id += *id == ' ';
    agent_state_spoil(a); /* its last execution may not be in the state */
    if (history_find(a->history, id, &text, &err) < 0)
        return;
    _cleanup_(json) json_t *message = text ? json_read_str(text) : NULL;
    if (!message)
        message = uimessage_new(id);
    chunks_settle(message);
    uimessage_add_note(message, "(This turn was cut off: the server ended while it was running.)");
    (void)json_object_set_new(message, "metadata", json_pack("{s:b}", "interrupted", 1));
    size_t len = 0;
    _cleanup_(free) char *cut = json_dump_text(message, INT_MAX, &len);
    struct history_message m = {.id = id, .json = cut, .len = len};
    if (history_put_at(a->history, place, &m, &err) < 0 ||
        history_set(a->history, "turn", NULL, &err) < 0)
        log_error("agent.cut", "error", err.message);
}

/* --- the end --- */

static void unlink_turn(struct turn *t) {
    struct turn **at = &t->agent->turns;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
}

/* The message and that nothing runs any more are written together. */
static void close_turn(struct turn *t, const char *outcome, const json_t *error) {
    struct agent *a = t->agent;
    struct err err;
    if (t->dialog)
        dialog_cancel(t->dialog); /* all that it has used is known then */
    bool whole = history_begin(a->history, &err) == 0;
    chunks_close(t->chunks, error, outcome != NULL);
    forget_turn(a);
    history_make_durable(a->history);
    if (executions_write(a, &err) < 0)
        log_error("agent.execution", "error", err.message);
    executions_forget(a);
    if (whole && history_end(a->history, true, &err) < 0)
        log_error("agent.message", "error", err.message);
    turn_record_end(t, outcome, json_string_value(error));
}

/* outcome NULL: whole. error: for people. The work is stopped and the message closed when this
 * returns; who listens is told from the loop, and the next turn begins from there. */
static void end_turn(struct turn *t, const char *outcome, const char *error) {
    struct agent *a = t->agent;
    bool begun = t->state != TURN_WAITING;
    bool held = t->state == TURN_HELD || t->state == TURN_ENDED;
    _cleanup_(json) json_t *text = error ? json_text(error) : NULL;
    unlink_turn(t);
    turn_move(t, TURN_OVER);
    /* Who asked has not heard what was held back. */
    const struct agent_listener *knows = held ? NULL : t->from;
    if (begun) {
        close_turn(t, outcome, text);
        sync_forget_turn(&a->sync);
    }
    if (text)
        agent_tell_fail(a, t->id, text, t->user_ids);
    agent_tell_messages(a, knows);
    agent_tell_end(a,
                   &(struct agent_turn_end){.turn = t->id,
                                            .outcome = outcome,
                                            .user_ids = t->user_ids,
                                            .retry_after_s = t->end.retry_after_s,
                                            .refusal = turn_refusal(t),
                                            .message = begun ? chunks_message(t->chunks) : NULL},
                   begun);
    a->used_ms = clock_mono_ms();
    turn_free(t);
    if (a->turns && !a->closing)
        later_post(&a->agents->later, &a->next_turn, start_first, a);
}

void turns_end(struct agent *a, const char *error) {
    while (a->turns) {
        struct turn *last = a->turns;
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): end_turn() has taken it out of the list
        while (last->next)
            last = last->next;
        end_turn(last, error ? "error" : "aborted", error);
    }
    later_cancel(&a->next_turn);
}

void turns_save(struct agent *a) {
    if (a->turns && a->turns->chunks)
        chunks_save(a->turns->chunks);
}

void turns_forget_listener(struct agent *a, const struct agent_listener *l) {
    for (struct turn *t = a->turns; t; t = t->next)
        if (t->from == l)
            t->from = NULL;
}

/* --- what its dialog tells --- */

static void turn_on_chunk(void *ctx, size_t seq, const char *json, size_t len) {
    const struct turn *t = ctx;
    agent_tell_chunk(t->agent, t->id, seq, json, len);
}

static void turn_on_save(void *ctx, const char *json, size_t len) {
    struct turn *t = ctx;
    struct err err;
    struct history_message m = {.id = chunks_message_id(t->chunks), .json = json, .len = len};
    if (history_put_at(t->agent->history, t->place, &m, &err) < 0)
        log_error("agent.message", "error", err.message);
    t->agent->saved = histories_submitted(t->agent->agents->histories);
}

static void turn_on_full(void *ctx) {
    struct turn *t = ctx;
    dialog_cancel(t->dialog);
}

static void turn_finish(struct turn *t, const struct dialog_end *end) {
    bool failed = end->outcome == DIALOG_FAILED || end->outcome == DIALOG_BUDGET;
    const char *error = failed ? end->error.message : chunks_failure(t->chunks);
    if (end->outcome == DIALOG_FAILED)
        log_warn("agent.model", "agent", t->agent->def->type, "error", error);
    end_turn(t, error ? "error" : NULL, error);
}

/* The state is told before the result of what may have changed it, as clients of the original see
 * it. The model does not wait for that. */
void turns_hold(struct agent *a) {
    struct turn *t = a->turns;
    if (!t || (t->state != TURN_RUNNING && t->state != TURN_HELD))
        return;
    if (t->state == TURN_RUNNING)
        turn_move(t, TURN_HELD);
    chunks_hold(t->chunks);
    agent_sync(a, true);
}

void turns_release(struct agent *a) {
    struct turn *t = a->turns;
    if (!t || (t->state != TURN_HELD && t->state != TURN_ENDED))
        return;
    bool ended = t->state == TURN_ENDED;
    turn_move(t, TURN_RUNNING);
    chunks_release(t->chunks);
    if (ended)
        turn_finish(t, &t->end);
}

static void turn_on_end(void *ctx, const struct dialog_end *end) {
    struct turn *t = ctx;
    t->end = *end;
    if (end->outcome == DIALOG_BUDGET) /* its time may be over */
        turns_release(t->agent);
    if (t->state == TURN_HELD)
        turn_move(t, TURN_ENDED);
    else
        turn_finish(t, &t->end);
}

static const struct chunks_events events = {
    .on_chunk = turn_on_chunk,
    .on_save = turn_on_save,
    .on_full = turn_on_full,
    .metadata = turn_on_metadata,
    .on_end = turn_on_end,
};

/* --- the beginning --- */

/* The messages of a turn that has waited were stored before the answer that it waited for. */
static int catch_up(struct turn *t, struct err *err) {
    size_t i;
    const json_t *id;
    int rc = 0;
    json_array_foreach(t->user_ids, i, id) {
        if (rc == 0 && t->waited)
            rc = history_move_last(t->agent->history, json_string_value(id), err);
    }
    return rc;
}

static void turn_free_reading(void *ctx) {
    struct excerpt_reading *r = ctx;
    if (r->turn)
        r->turn->reading = NULL;
    excerpt_destroy(r->excerpt);
    json_decref(r->conversation);
    free(r);
}

/* In the thread. */
static void turn_on_read(void *ctx) {
    struct excerpt_reading *r = ctx;
    r->conversation = excerpt_read(r->excerpt);
}

static void turn_on_read_done(void *ctx) {
    struct excerpt_reading *r = ctx;
    struct turn *t = r->turn;
    t->conversation = steal_ptr(&r->conversation);
    turn_free_reading(r);
    start_first(t->agent);
}

/* A model may read hundreds of kilobytes: such are read by a thread. Takes the excerpt. */
static void read_excerpt(struct turn *t, struct excerpt *c) {
    const struct agent *a = t->agent;
    t->bytes = excerpt_bytes(c);
    if (!a->agents->opt.intake || t->bytes <= READ_AT_ONCE_BYTES) {
        t->conversation = excerpt_read(c);
        excerpt_destroy(c);
        return;
    }
    struct excerpt_reading *r = xcalloc(1, sizeof(*r));
    *r = (struct excerpt_reading){.turn = t, .excerpt = c};
    t->reading = r;
    r->item = intake_start(a->agents->opt.intake,
                           &(struct intake_ask){.owner = share_name(a->owner, t->key),
                                                .bytes = t->bytes,
                                                .waits = true,
                                                .work = turn_on_read,
                                                .on_done = turn_on_read_done,
                                                .free = turn_free_reading,
                                                .ctx = r},
                           NULL);
}

static bool add_to_excerpt(void *ctx, const char *id, const char *json, size_t len) {
    (void)id;
    return excerpt_add(ctx, json, len);
}

/* What is in the history now, from there or as it was sent. */
static int fill_excerpt(const struct turn *t, struct uimessages *all, struct excerpt *c,
                        struct err *err) {
    if (!all)
        return history_each(t->agent->history, true, add_to_excerpt, c, err);
    size_t i = all->count;
    while (i > 0 && excerpt_take(c, &all->list[i - 1].json, all->list[i - 1].len))
        i--;
    return 0;
}

/* Nobody hears of a turn before the disk has what it answers. */
static void turn_on_written(void *ctx, const struct err *err) {
    struct turn *t = ctx;
    if (!err) {
        start_first(t->agent);
        return;
    }
    t->refusal = err->code;
    end_turn(t, "error", err->message);
}

/* What it answers is what is in the history now, not what comes while it waits for the loop. chat:
 * what is asked with it, to be stored first; or NULL. */
static int begin_turn(struct turn *t, const struct agent_chat *chat, struct err *err) {
    struct agent *a = t->agent;
    const struct agent_limits *limits = &a->agents->opt.limits;
    turn_move(t, TURN_BEGUN);
    t->chunks = chunks_create(
        &(struct chunks_options){.max_bytes = limits->stream_bytes, .events = &events, .ctx = t});
    int rc = history_begin(a->history, err);
    if (rc < 0)
        return rc;
    struct excerpt *excerpt = excerpt_create(limits->context_bytes);
    bool is_all = false;
    rc = chat ? agent_take_messages(a, chat, &is_all, err) : catch_up(t, err);
    if (rc == 0)
        rc = history_reserve(a->history, &t->place, err);
    if (rc == 0)
        rc = fill_excerpt(t, is_all ? chat->messages : NULL, excerpt, err);
    if (rc == 0)
        rc = turn_record_begin(t, err);
    int end = history_end(a->history, rc == 0, rc == 0 ? err : NULL);
    rc = rc < 0 ? rc : end;
    if (rc < 0) {
        excerpt_destroy(excerpt);
        return rc;
    }
    history_make_durable(a->history);
    histories_after(a->agents->histories, &t->written, a->history, turn_on_written, t);
    read_excerpt(t, excerpt);
    return 0;
}

static struct dialog *start_dialog(struct turn *t) {
    struct agent *a = t->agent;
    const struct agent_def *d = a->def;
    struct dialog_options o = {
        .loop = a->agents->opt.loop,
        .later = &a->agents->later,
        .next = &a->agents->next,
        .models = a->agents->opt.models,
        .accounts = a->agents->opt.accounts,
        .owner = a->owner,
        .key = t->key,
        .kind = "chat",
        .model = &t->model,
        .system = d->prompt,
        .messages = steal_ptr(&t->conversation),
        .bytes = t->bytes,
        .tools = d->tools,
        .ntools = d->ntools,
        .tool_env = agent_tools(a, t->key),
        .script = d->demo,
        .max_steps = d->max_steps,
        .max_tokens = d->max_tokens,
        .budget = {.tokens = d->budget.tokens,
                   .cost_nusd = (int64_t)(d->budget.cost_usd * NANO_USD_PER_USD),
                   .wall_ms = d->budget.wall_ms},
        .view = &chunks_view,
        .ctx = t->chunks,
    };
    return dialog_start(&o);
}

static const char *usual_model(const struct agent *a) {
    return a->def->model ? a->def->model : a->agents->opt.model;
}

static void start_turn(struct turn *t) {
    const struct agent *a = t->agent;
    struct err err;
    int rc = t->state == TURN_WAITING ? begin_turn(t, NULL, &err) : 0;
    if (rc == 0 && (t->reading || t->written.at))
        return; /* comes back when it was read, and when it is written */
    if (rc == 0 && !*t->model.id)
        rc = models_find(a->agents->opt.models, usual_model(a), &t->model, &err);
    if (rc < 0) {
        end_turn(t, "error", err.message);
        return;
    }
    turn_move(t, TURN_RUNNING);
    t->dialog = start_dialog(t);
    chunks_begin(t->chunks);
}

static void start_first(void *ctx) {
    const struct agent *a = ctx;
    if (a->turns && a->turns->state < TURN_RUNNING)
        start_turn(a->turns);
}

int turns_check(const struct agent *a, const char *id, struct err *err) {
    size_t n = 0;
    size_t max = a->agents->opt.limits.turns;
    for (const struct turn *t = a->turns; t; t = t->next, n++)
        if (strcmp(t->id, id) == 0)
            return err_set(err, ERR_CONFLICT, "there is a turn with this id already");
    if (n >= max)
        return err_set(err, ERR_RATE, "%zu turns are waiting already (limit agent_turns)", max);
    return 0;
}

int turns_choose(const struct agent *a, const char *model, struct model_info *ret_info,
                 struct err *err) {
    return model_ask_choose(a->agents->opt.models, model, usual_model(a), ret_info, err);
}

/* One that waits has its messages in the history all the same. */
static int take_messages(struct agent *a, const struct agent_chat *chat, struct err *err) {
    int rc = history_begin(a->history, err);
    if (rc < 0)
        return rc;
    bool is_all;
    rc = agent_take_messages(a, chat, &is_all, err);
    history_make_durable(a->history);
    int end = history_end(a->history, rc == 0, rc == 0 ? err : NULL);
    return rc < 0 ? rc : end;
}

int turns_add(struct agent *a, const struct turn_ask *ask, struct err *err) {
    struct turn *t = xcalloc(1, sizeof(*t));
    t->agent = a;
    t->id = xstrdup(ask->id);
    t->from = ask->from;
    (void)snprintf(t->key, sizeof(t->key), "%s", ask->chat->key);
    t->model = ask->model;
    t->user_ids = json_incref(ask->user_ids);
    t->said = ask->chat->messages->said ? xstrdup(ask->chat->messages->said) : NULL;
    t->waited = a->turns != NULL;
    struct turn **at = &a->turns;
    while (*at)
        at = &(*at)->next;
    *at = t;
    int rc = t->waited ? take_messages(a, ask->chat, err) : begin_turn(t, ask->chat, err);
    if (rc < 0) {
        if (t->job)
            turn_record_end(t, "error", err->message);
        unlink_turn(t);
        turn_free(t);
        return rc;
    }
    return 0;
}

bool agent_cancel(struct agent *a, const char *turn) {
    struct turn *t = a->turns;
    while (t && strcmp(t->id, turn) != 0)
        t = t->next;
    if (t)
        end_turn(t, "aborted", NULL);
    return t != NULL;
}
