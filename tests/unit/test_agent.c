#include "base/cleanup.h"
#include "front/agent/agent.h"
#include "front/agent/chunks.h"
#include "unit/unit.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Instances with the demo model and no child programs: what a call sets off is told from the loop,
 * and nothing of the caller's has moved when the call returns. */

static char dir[64];
static char data_dir[100];
static uv_loop_t loop;
static struct store *store;
static struct jobs *jobs;
static struct models *models;
static struct secrets secrets;
static struct runner runner;
static struct agent_def *defs;
static struct agents *agents;
static struct intake *intake;
static struct agent *agent;
static struct err e;

static int inside; /* functions of agent.h that are being called */

struct ear {
    struct agent_listener listener;
    unsigned chunks, fails, ends, messages, states, clears, gone, answers, ready;
    size_t last_messages;
    char outcome[16];
    bool leaves; /* when a turn ends */
};
static struct ear ears[2];

static unsigned heard(const struct ear *x) {
    return x->chunks + x->fails + x->ends + x->messages + x->states + x->clears + x->gone +
           x->answers + x->ready;
}

static void on_chunk(void *ctx, const char *turn, size_t seq, const char *json, size_t len) {
    (void)turn;
    (void)seq;
    (void)json;
    (void)len;
    assert_int_equal(inside, 0);
    ((struct ear *)ctx)->chunks++;
}

static void on_fail(void *ctx, const char *turn, const char *text, const json_t *user_ids) {
    (void)turn;
    (void)text;
    (void)user_ids;
    assert_int_equal(inside, 0);
    ((struct ear *)ctx)->fails++;
}

static void on_end(void *ctx, const struct agent_turn_end *end) {
    struct ear *x = ctx;
    assert_int_equal(inside, 0);
    (void)snprintf(x->outcome, sizeof(x->outcome), "%s", end->outcome ? end->outcome : "whole");
    x->ends++;
    if (x->leaves)
        agent_unlisten(&x->listener);
}

static size_t count_messages(const char *json, size_t len) {
    json_t *list = json_loadb(json, len, 0, NULL);
    assert_true(json_is_array(list));
    size_t n = json_array_size(list);
    json_decref(list);
    return n;
}

static void on_messages(void *ctx, json_t *text) {
    struct ear *x = ctx;
    assert_int_equal(inside, 0);
    x->last_messages = count_messages(json_string_value(text), json_string_length(text));
    x->messages++;
}

static void on_state(void *ctx, json_t *text) {
    assert_int_equal(*json_string_value(text), '{');
    assert_int_equal(inside, 0);
    ((struct ear *)ctx)->states++;
}

static void on_clear(void *ctx) {
    assert_int_equal(inside, 0);
    ((struct ear *)ctx)->clears++;
}

static void on_gone(void *ctx) {
    struct ear *x = ctx;
    assert_int_equal(inside, 0);
    assert_null(x->listener.agent);
    x->gone++;
}

static void on_ready(void *ctx) {
    assert_int_equal(inside, 0);
    ((struct ear *)ctx)->ready++;
}

static void on_answer(void *ctx, const char *result, size_t len, const json_t *error) {
    (void)result;
    (void)len;
    assert_int_equal(inside, 0);
    assert_non_null(error);
    ((struct ear *)ctx)->answers++;
}

static const struct agent_events events = {.on_chunk = on_chunk,
                                           .on_fail = on_fail,
                                           .on_end = on_end,
                                           .on_messages = on_messages,
                                           .on_state = on_state,
                                           .on_clear = on_clear,
                                           .on_gone = on_gone};

/* Calls it and sees that nobody was called back meanwhile. */
#define CALL(call)                                                                                 \
    do {                                                                                           \
        unsigned before_ = heard(&ears[0]) + heard(&ears[1]);                                      \
        inside++;                                                                                  \
        call;                                                                                      \
        inside--;                                                                                  \
        assert_int_equal(heard(&ears[0]) + heard(&ears[1]), before_);                              \
    } while (0)

static void put(const char *name, const char *text) {
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/agents/plain/%s", dir, name);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    (void)fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static int make_folders(void) {
    char path[256];
    (void)snprintf(dir, sizeof(dir), "/tmp/cay-unit-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/agents", dir);
    (void)mkdir(path, 0700);
    (void)snprintf(path, sizeof(path), "%s/agents/plain", dir);
    (void)mkdir(path, 0700);
    put("agent.json", "{\"state\":{\"mode\":\"dark\",\"last\":{\"executions\":3}}}");
    put("demo.json", "{\"scripts\":[{\"when\":\"^long$\",\"steps\":[{\"say\":\"on and on \","
                     "\"repeat\":300}]},{\"when\":\".\",\"steps\":[{\"say\":\"ok\"}]}]}");
    return 0;
}

static int setup(void **state) {
    (void)state;
    char path[256];
    memset(ears, 0, sizeof(ears));
    int rc = make_folders();
    (void)snprintf(path, sizeof(path), "%s/cay.db", dir);
    if (rc == 0)
        rc = uv_loop_init(&loop);
    if (rc == 0)
        rc = store_open(path, &store, &e);
    if (rc == 0)
        rc = models_create(&loop, &(struct models_options){.secrets = &secrets, .demo_delay_ms = 1},
                           &models, &e);
    (void)snprintf(path, sizeof(path), "%s/agents", dir);
    if (rc == 0)
        rc = agent_defs_load(path, &defs, &e);
    if (rc < 0)
        return rc;
    (void)snprintf(data_dir, sizeof(data_dir), "%s/data", dir);
    jobs = jobs_create(&loop, store);
    intake = intake_create(&loop);
    agents = agents_create(&(struct agents_options){.loop = &loop,
                                                    .intake = intake,
                                                    .runner = &runner,
                                                    .jobs = jobs,
                                                    .models = models,
                                                    .defs = defs,
                                                    .data_dir = data_dir,
                                                    .limits = agent_limits_default()});
    rc = agents_get(agents, "", "plain", "x", &agent, &e);
    for (size_t i = 0; i < 2 && rc == 0; i++) {
        ears[i].listener = (struct agent_listener){.events = &events, .ctx = &ears[i]};
        agent_listen(agent, &ears[i].listener);
    }
    return rc;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static int teardown(void **state) {
    (void)state;
    agents_destroy(agents);
    intake_destroy(intake);
    jobs_destroy(jobs);
    models_close(models, NULL, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    agent_defs_free(defs);
    store_close(store);
    int rc = uv_loop_close(&loop);
    return nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS) == 0 ? rc : -1;
}

/* Until the count is there. */
static void until(const unsigned *count, unsigned n) {
    while (*count < n)
        (void)uv_run(&loop, UV_RUN_ONCE);
}

static void turns(int n) {
    for (int i = 0; i < n; i++)
        (void)uv_run(&loop, UV_RUN_NOWAIT);
}

static void chat(const char *turn, const char *text) {
    _cleanup_(json) json_t *messages = json_pack("[{s:s,s:s,s:[{s:s,s:s}]}]", "id", turn, "role",
                                                 "user", "parts", "type", "text", "text", text);
    struct uimessages *read = uimessages_read(messages);
    struct agent_chat c = {.turn = turn, .messages = read};
    CALL(assert_int_equal(agent_chat(agent, &ears[0].listener, &c, &e), 0));
    uimessages_free(read);
}

static size_t stored(struct agent *a) {
    struct buf b;
    buf_init(&b, 1 << 24);
    assert_int_equal(agent_messages(a, &b, &e), 0);
    size_t n = count_messages(b.data, b.len);
    buf_finish(&b);
    return n;
}

/* More than is read at once. */
static void fill(char *text, size_t size, const char *word) {
    memset(text, ' ', size - 1);
    text[size - 1] = 0;
    memcpy(text, word, strlen(word));
}

static void what_happens_is_told_from_the_loop(void **state) {
    (void)state;
    _cleanup_(json) json_t *none = json_array();
    _cleanup_(json) json_t *own = json_string("{\"mode\":\"light\"}");
    struct uimessages *messages = uimessages_read(none);
    CALL(agent_when_ready(agent, on_ready, &ears[0]));
    until(&ears[0].ready, 1);
    CALL(agent_when_ready(agent, on_ready, &ears[0])); /* the state is known already */
    CALL(agent_rpc(agent, "nosuch", "[]", on_answer, &ears[0]));
    until(&ears[0].ready, 2);
    until(&ears[0].answers, 1);
    CALL(assert_int_equal(agent_set_state(agent, &ears[0].listener, own, &e), 0));
    until(&ears[1].states, 1);
    CALL(assert_int_equal(agent_set_messages(agent, &ears[0].listener, messages, &e), 0));
    uimessages_free(messages);
    until(&ears[1].messages, 1);
    chat("t1", "hello");
    until(&ears[0].ends, 1);
    assert_string_equal(ears[0].outcome, "whole");
    assert_true(ears[0].chunks > 4);
    assert_int_equal(ears[1].chunks, ears[0].chunks);
    assert_int_equal(ears[0].messages, 0); /* its own doing */
    assert_int_equal(ears[1].last_messages, 2);
}

static void a_long_conversation_is_answered_in_its_order(void **state) {
    (void)state;
    static char large[300000];
    static const char *const ids[] = {"a", "b", "c", "d"};
    fill(large, sizeof(large), "hello");
    for (size_t i = 0; i < 4; i++)
        chat(ids[i], i == 2 ? "hello" : large);
    assert_null(agent_turn(agent)); /* it is being read */
    until(&ears[0].ends, 4);
    assert_string_equal(ears[0].outcome, "whole");
    assert_int_equal(stored(agent), 8);
}

static void a_turn_can_be_stopped_in_every_state(void **state) {
    (void)state;
    static const char *const ids[] = {"a", "b", "c", "d", "e", "f", "A", "B", "C", "D", "E", "F"};
    static char large[100000];
    fill(large, sizeof(large), "long");
    for (int n = 0; n < 12; n++) {
        unsigned ends = ears[0].ends;
        chat(ids[n], n < 6 ? "long" : large);
        chat("waits", "long");
        turns(n); /* begun, running, the model speaks */
        CALL(assert_true(agent_cancel(agent, "waits")));
        CALL(assert_false(agent_cancel(agent, "waits")));
        CALL(assert_true(agent_cancel(agent, ids[n])));
        CALL(assert_false(agent_cancel(agent, ids[n])));
        assert_null(agent_turn(agent));
        assert_int_equal(ears[0].ends, ends);
        until(&ears[0].ends, ends + 2);
        assert_string_equal(ears[0].outcome, "aborted");
        turns(4);
        assert_int_equal(ears[0].ends, ends + 2);
        assert_int_equal(ears[1].ends, ends + 2);
    }
}

/* What the listeners hear of the messages is what they were, not that they are gone. */
static void clearing_is_told_in_order(void **state) {
    (void)state;
    chat("t1", "long");
    until(&ears[0].chunks, 5);
    CALL(assert_int_equal(agent_clear(agent, &ears[0].listener, &e), 0));
    assert_int_equal(stored(agent), 0);
    until(&ears[1].clears, 1);
    assert_int_equal(ears[1].last_messages, 2);
    assert_int_equal(ears[0].clears, 0);
    assert_int_equal(ears[0].ends, 1);
}

static void an_instance_is_removed_at_once_and_told_of_later(void **state) {
    (void)state;
    for (int n = 0; n < 5; n++) {
        memset(&ears[0].chunks, 0, offsetof(struct ear, leaves) - offsetof(struct ear, chunks));
        ears[0].leaves = n == 4; /* one that leaves while it is told */
        CALL(agent_when_ready(agent, on_ready, &ears[0]));
        chat("t1", "long");
        turns(n);
        CALL(agent_rpc(agent, "nosuch", "[]", on_answer, &ears[0]));
        CALL(assert_int_equal(agents_remove(agents, "", "plain", "x", &e), 0));
        CALL(assert_int_equal(agents_remove(agents, "", "plain", "x", &e), -ERR_NOT_FOUND));
        assert_false(agent_is_open(ears[0].listener.agent));
        struct agent *next;
        CALL(assert_int_equal(agents_get(agents, "", "plain", "x", &next, &e), 0));
        until(&ears[1].gone, (unsigned)n + 1);
        assert_int_equal(ears[0].fails, 1);
        assert_int_equal(ears[0].ends, 1);
        assert_int_equal(ears[0].answers, 1);
        assert_int_equal(ears[0].gone, n != 4);
        assert_int_equal(stored(next), 0);
        agent = next;
        agent_listen(agent, &ears[0].listener);
        agent_listen(agent, &ears[1].listener);
    }
}

static void who_comes_later_does_not_hear_what_was_before(void **state) {
    (void)state;
    agent_unlisten(&ears[1].listener);
    chat("t1", "long");
    CALL(assert_true(agent_cancel(agent, "t1")));
    agent_listen(agent, &ears[1].listener);
    until(&ears[0].ends, 1);
    assert_int_equal(heard(&ears[1]), 0);
}

static void the_end_of_all_is_told_before_it_returns(void **state) {
    (void)state;
    chat("t1", "long");
    until(&ears[0].chunks, 3);
    agents_destroy(steal_ptr(&agents));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ears[i].fails, 1);
        assert_int_equal(ears[i].ends, 1);
        assert_int_equal(ears[i].gone, 1);
    }
}

/* --- what a message says of itself --- */

struct seen {
    json_int_t asked;
    json_int_t streamed;
    json_int_t kept;
};

static json_int_t account_of(const json_t *j, const char *key) {
    return json_integer_value(json_object_get(json_object_get(j, key), "ms"));
}

static void see_chunk(void *ctx, size_t seq, const char *text, size_t len) {
    (void)seq;
    _cleanup_(json) json_t *j = json_loadb(text, len, 0, NULL);
    struct seen *s = ctx;
    if (json_object_get(j, "messageMetadata"))
        s->streamed = account_of(j, "messageMetadata");
}

static void see_message(void *ctx, const char *json, size_t len) {
    _cleanup_(json) json_t *message = json_loadb(json, len, 0, NULL);
    ((struct seen *)ctx)->kept = account_of(message, "metadata");
}

static json_t *later_each_time(void *ctx) {
    return json_pack("{s:I}", "ms", ++((struct seen *)ctx)->asked);
}

static void see_end(void *ctx, const struct dialog_end *end) {
    (void)ctx;
    (void)end;
}

/* Who watched and who comes later read the same time. */
static void the_stream_and_what_is_kept_tell_the_same(void **state) {
    (void)state;
    struct seen s = {0};
    struct chunks *c = chunks_create(
        &(struct chunks_options){.max_bytes = 1 << 20,
                                 .events = &(struct chunks_events){.on_chunk = see_chunk,
                                                                   .on_save = see_message,
                                                                   .metadata = later_each_time,
                                                                   .on_end = see_end},
                                 .ctx = &s});
    chunks_begin(c);
    chunks_view.on_text_start(c);
    chunks_view.on_text_delta(c, "hi", 2);
    chunks_view.on_text_end(c);
    chunks_view.on_end(c, &(struct dialog_end){.outcome = DIALOG_DONE});
    chunks_close(c, NULL, false);
    assert_int_equal(s.streamed, 1);
    assert_int_equal(s.kept, 1);
    chunks_destroy(c);
}

int main(void) {
    (void)setenv("CAY_STRICT", "1", 1);
    const struct CMUnitTest tests[] = {
        UNIT(what_happens_is_told_from_the_loop),
        UNIT(a_long_conversation_is_answered_in_its_order),
        UNIT(a_turn_can_be_stopped_in_every_state),
        UNIT(clearing_is_told_in_order),
        UNIT(an_instance_is_removed_at_once_and_told_of_later),
        UNIT(who_comes_later_does_not_hear_what_was_before),
        UNIT(the_end_of_all_is_told_before_it_returns),
        cmocka_unit_test(the_stream_and_what_is_kept_tell_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
