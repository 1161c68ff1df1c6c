#include "front/agent/draft.h"
#include "front/agent/excerpt.h"
#include "front/agent/uimessage.h"
#include "unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct err e;

/* JSON with ' for ", which C would want escaped. */
static json_t *parse(const char *text) {
    json_error_t why;
    char *copy = strdup(text);
    for (char *p = copy; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    json_t *j = json_loads(copy, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (!j)
        fail_msg("%s: %s", why.text, text);
    free(copy);
    return j;
}

static void assert_json(json_t *actual, const char *expected) {
    json_t *want = parse(expected);
    char *a = json_dumps(actual, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!json_equal(actual, want))
        fail_msg("%s\nis not\n%s", a, expected);
    free(a);
    json_decref(want);
    json_decref(actual);
}

static json_t *to_model(const char *list, size_t max) {
    json_t *j = parse(list);
    struct excerpt *c = excerpt_create(max);
    bool fits = true;
    for (size_t i = json_array_size(j); i-- > 0 && fits;) {
        char *text = json_dumps(json_array_get(j, i), JSON_COMPACT | JSON_ENCODE_ANY);
        fits = excerpt_add(c, text, strlen(text));
        free(text);
    }
    json_t *out = excerpt_read(c);
    excerpt_destroy(c);
    json_decref(j);
    return out;
}

static void a_history_becomes_messages_step_by_step(void **state) {
    (void)state;
    assert_json(
        to_model(
            "[{'id':'u','role':'user','parts':[{'type':'text','text':'hi'},{'type':'file'}]},"
            "{'id':'a','role':'assistant','parts':[{'type':'step-start'},"
            "{'type':'reasoning','text':'hm','providerMetadata':{'cay':{'provider':'p','raw':{'s':"
            "1}}}},{'type':'text','text':''},{'type':'text','text':'look'},"
            "{'type':'tool-q','toolCallId':'c','state':'output-available','input':{'sql':'x'},"
            "'output':{'rowCount':0}},"
            "{'type':'dynamic-tool','toolName':'d','toolCallId':'d','state':'output-error','input':"
            "{},'errorText':'no'},"
            "{'type':'tool-q','toolCallId':'e','state':'input-available','input':{}},"
            "{'type':'step-start'},{'type':'text','text':'done'}]},"
            "{'id':'s','role':'system','parts':[{'type':'text','text':'obey'}]}]" /* not from
                                                                                     clients */
            ,
            100000),
        "[{'role':'user','content':[{'type':'text','text':'hi'},{'type':'text','text':'[a file "
        "that "
        "cannot be shown]'}]},"
        "{'role':'assistant','content':[{'type':'reasoning','text':'hm','provider':'p','raw':{'s':"
        "1}"
        "},{'type':'text','text':'look'},"
        "{'type':'tool_call','id':'c','name':'q','input':{'sql':'x'}},"
        "{'type':'tool_call','id':'d','name':'d','input':{}},"
        "{'type':'tool_call','id':'e','name':'q','input':{}}]},"
        "{'role':'tool','content':[{'type':'tool_result','id':'c','name':'q','output':{'rowCount':"
        "0}"
        ",'is_error':false},"
        "{'type':'tool_result','id':'d','name':'d','output':'no','is_error':true}]},"
        "{'role':'assistant','content':[{'type':'text','text':'done'}]}]");
}

static void the_oldest_messages_are_left_out_and_the_last_never(void **state) {
    (void)state;
    static const char list[] =
        "[{'id':'1','role':'user','parts':[{'type':'text','text':'one'}]},"
        "{'id':'2','role':'assistant','parts':[{'type':'text','text':'two'}]},"
        "{'id':'3','role':'user','parts':[{'type':'text','text':'three'}]}]";
    json_t *all = to_model(list, 1000);
    assert_int_equal(json_array_size(all), 3);
    json_decref(all);
    assert_json(
        to_model(list, 140),
        "[{'role':'user','content':'(The conversation is long: its earlier messages are left "
        "out.)'},"
        "{'role':'assistant','content':[{'type':'text','text':'two'}]},"
        "{'role':'user','content':[{'type':'text','text':'three'}]}]");
    assert_json(
        to_model(list, 1),
        "[{'role':'user','content':'(The conversation is long: its earlier messages are left "
        "out.)'},{'role':'user','content':[{'type':'text','text':'three'}]}]");
    assert_json(to_model("[]", 1), "[]");
}

static void odd_shapes_are_passed_over(void **state) {
    (void)state;
    static const char *const values[] = {"null", "1", "'x'", "[]", "{}", "true", "['a',{}]"};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        char text[1024];
        const char *v = values[i];
        (void)snprintf(
            text, sizeof(text),
            "[%s,{'role':%s,'parts':%s},{'role':'user','parts':[%s,{'type':%s},{'type':"
            "'text','text':%s}]},{'role':'assistant','parts':[%s,{'type':'tool-x',"
            "'toolCallId':%s,'input':%s,'state':'output-available','output':%s},{'type':"
            "'dynamic-tool','toolCallId':'c','toolName':%s,'input':{},'state':'output-"
            "error','errorText':%s},{'type':'reasoning','text':%s,'providerMetadata':%s}]"
            "}]",
            v, v, v, v, v, v, v, v, v, v, v, v, v, v);
        json_t *out = to_model(text, 100000);
        assert_true(json_is_array(out));
        json_decref(out);
    }
}

static void a_client_s_message_is_checked(void **state) {
    (void)state;
    static const struct {
        const char *message;
        const char *why;
    } cases[] = {
        {"{'id':'x','role':'user','parts':[]}", NULL},
        {"{'id':'x','role':'assistant','parts':[],'more':1}", NULL},
        {"{'role':'user','parts':[]}", "\"id\""},
        {"{'id':'','role':'user','parts':[]}", "\"id\""},
        {"{'id':7,'role':'user','parts':[]}", "\"id\""},
        {"{'id':'x','role':'tool','parts':[]}", "\"role\""},
        {"{'id':'x','parts':[]}", "\"role\""},
        {"{'id':'x','role':'user'}", "\"parts\""},
        {"{'id':'x','role':'user','parts':{}}", "\"parts\""},
        {"{'id':'x','role':'user','parts':['a']}", "\"type\""},
        {"[]", "\"id\""},
        {"null", "\"id\""},
        {"{'id':'x','role':'user','parts':[{'type':'0123456789012345678901234567890123456789'}]}",
         "exceeds 64 bytes (limit agent_message_bytes)"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *m = json_array();
        (void)json_array_append_new(m, parse(cases[i].message));
        struct uimessages *read = uimessages_read(m);
        int rc = uimessages_check(read, 1, 64, &e);
        uimessages_free(read);
        if (cases[i].why) {
            assert_true(rc < 0);
            assert_non_null(strstr(e.message, cases[i].why));
        } else {
            assert_int_equal(rc, 0);
        }
        json_decref(m);
    }
}

/* Which the model's server would be sent in any case. */
static void a_long_output_becomes_text(void **state) {
    (void)state;
    static char list[6000] = "[{'id':'a','role':'assistant','parts':[{'type':'tool-q','toolCallId':"
                             "'c','state':'output-available','input':{},'output':['";
    size_t n = strlen(list);
    memset(list + n, 'x', 5000);
    (void)snprintf(list + n + 5000, sizeof(list) - n - 5000, "']}]}]");
    json_t *out = to_model(list, 100000);
    const json_t *result = json_array_get(json_object_get(json_array_get(out, 1), "content"), 0);
    const json_t *output = json_object_get(result, "output");
    assert_int_equal(json_string_length(output), 5004);
    assert_memory_equal(json_string_value(output), "[\"xx", 4);
    json_decref(out);
}

static void a_list_is_read_as_it_will_be_stored(void **state) {
    (void)state;
    json_t *list = parse("[{'id':'u1','role':'user','parts':[{'type':'text','text':'one'}]},"
                         "{'id':'a1','role':'assistant','parts':[]},"
                         "{'id':'u2','role':'user','parts':[{'type':'file'},{'type':'text',"
                         "'text':'two'}]},{'id':'u3','role':'user','parts':[]}]");
    struct uimessages *m = uimessages_read(list);
    assert_int_equal(uimessages_check(m, 4, 1000, &e), 0);
    assert_int_equal(uimessages_check(m, 3, 1000, &e), -ERR_LIMIT);
    assert_non_null(strstr(e.message, "agent_messages"));
    assert_int_equal(m->count, 4);
    assert_string_equal(m->list[1].id, "a1");
    assert_string_equal(m->list[1].json, "{\"id\":\"a1\",\"role\":\"assistant\",\"parts\":[]}");
    assert_int_equal(m->list[1].len, strlen(m->list[1].json));
    assert_true(m->list[0].user && !m->list[1].user);
    assert_json(json_incref(m->user_ids), "['u2','u3']");
    assert_null(m->said); /* the last one has no text */
    uimessages_free(m);
    (void)json_array_remove(list, 3);
    m = uimessages_read(list);
    assert_string_equal(m->said, "two");
    uimessages_free(m);
    (void)json_array_insert_new(list, 1, json_null());
    m = uimessages_read(list);
    assert_int_equal(uimessages_check(m, 4, 1000, &e), -ERR_BAD_REQUEST);
    assert_int_equal(m->count, 1);
    assert_int_equal(uimessages_check(m, 4, 10, &e), -ERR_TOO_LARGE); /* in the order they came */
    uimessages_free(m);
    json_decref(list);
    m = uimessages_read(NULL);
    assert_int_equal(uimessages_check(m, 4, 1000, &e), -ERR_BAD_REQUEST);
    uimessages_free(m);
}

static void assert_draft(const struct draft *d, const char *expected) {
    struct buf b;
    buf_init(&b, 1 << 20);
    draft_write(d, &b);
    json_t *m = json_loadb(b.data, b.len, 0, NULL);
    assert_non_null(m);
    assert_json(m, expected);
    buf_finish(&b);
}

static void a_message_is_built_and_settled(void **state) {
    (void)state;
    struct draft *d = draft_create("a1");
    draft_step(d);
    assert_true(draft_is_empty(d));
    json_t *content = parse(
        "[{'type':'reasoning','text':'hm','provider':'p','raw':{}},{'type':'text','text':'t'},"
        "{'type':'tool_call','id':'c1','name':'q','input':{}},"
        "{'type':'tool_call','id':'c2','name':'q','input':{}},"
        "{'type':'tool_call','id':'c3','name':'q'}]");
    draft_take_answer(d, content);
    json_decref(content);
    assert_false(draft_is_empty(d));
    draft_set_output(d, "c1", "{\"rowCount\":1}", 14, false);
    draft_settle(d, "stopped");
    draft_settle(d, "again");
    draft_add_metadata(d, parse("{'a':1}"));
    draft_add_metadata(d, parse("{'b':2}"));
    assert_draft(
        d, "{'id':'a1','role':'assistant','parts':[{'type':'step-start'},"
           "{'type':'reasoning','text':'hm','state':'done','providerMetadata':{'cay':{'provider'"
           ":'p','raw':{}}}},{'type':'text','text':'t','state':'done'},"
           "{'type':'tool-q','toolCallId':'c1','toolName':'q','state':'output-available',"
           "'input':{},'output':{'rowCount':1}},"
           "{'type':'tool-q','toolCallId':'c2','toolName':'q','state':'output-error','input':{},"
           "'errorText':'stopped'},"
           "{'type':'tool-q','toolCallId':'c3','toolName':'q','state':'output-error','input':"
           "null,'errorText':'stopped'}],'metadata':{'a':1,'b':2}}");
    draft_destroy(d);
}

/* Calls end in another order than they begin in, and reasoning has more in the end than was told.
 */
static void what_was_said_takes_the_answer_s_order(void **state) {
    (void)state;
    struct draft *d = draft_create("a1");
    draft_step(d);
    draft_begin_text(d, true);
    draft_add_text(d, "h\\n", 3);
    draft_add_text(d, "m", 1);
    draft_begin_text(d, false);
    draft_add_text(d, "first", 5);
    draft_add_call(d, "c2", "q", "{\"n\":2}", 7);
    draft_begin_text(d, false);
    draft_add_text(d, "second", 6);
    draft_add_call(d, "c1", "q", "{\"n\":1}", 7);
    draft_begin_text(d, false);
    draft_add_text(d, "taken back", 10);
    json_t *content =
        parse("[{'type':'reasoning','text':'h\\nm','provider':'p','raw':{'s':1}},"
              "{'type':'text','text':'first'},{'type':'tool_call','id':'c1','name':'q','input':{}},"
              "{'type':'server','raw':{}},"
              "{'type':'tool_call','id':'c2','name':'q','input':{}},"
              "{'type':'tool_call','id':'c3','name':'q','input':{}},"
              "{'type':'text','text':'second'}]");
    draft_take_answer(d, content);
    json_decref(content);
    draft_step(d);
    draft_begin_text(d, false);
    draft_add_text(d, "next", 4);
    assert_draft(d, "{'id':'a1','role':'assistant','parts':[{'type':'step-start'},"
                    "{'type':'reasoning','text':'h\\nm','state':'done','providerMetadata':{'cay':{"
                    "'provider':'p','raw':{'s':1}}}},{'type':'text','text':'first','state':'done'},"
                    "{'type':'tool-q','toolCallId':'c1','toolName':'q','state':'input-available',"
                    "'input':{'n':1}},"
                    "{'type':'tool-q','toolCallId':'c2','toolName':'q','state':'input-available',"
                    "'input':{'n':2}},"
                    "{'type':'tool-q','toolCallId':'c3','toolName':'q','state':'input-available',"
                    "'input':{}},"
                    "{'type':'text','text':'second','state':'done'},{'type':'step-start'},"
                    "{'type':'text','text':'next','state':'done'}]}");
    draft_destroy(d);
}

static void a_message_that_was_cut_off_is_settled(void **state) {
    (void)state;
    json_t *m = parse("{'id':'a1','role':'assistant','parts':[{'type':'tool-q','toolCallId':'c1',"
                      "'toolName':'q','state':'input-available','input':{}}]}");
    uimessage_settle(m, "stopped");
    uimessage_settle(m, "again");
    uimessage_add_note(m, "note");
    assert_json(m, "{'id':'a1','role':'assistant','parts':[{'type':'tool-q','toolCallId':'c1',"
                   "'toolName':'q','state':'output-error','input':{},'errorText':'stopped'},"
                   "{'type':'text','text':'note','state':'done'}]}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(a_history_becomes_messages_step_by_step),
        PLAIN(the_oldest_messages_are_left_out_and_the_last_never),
        PLAIN(odd_shapes_are_passed_over),
        PLAIN(a_client_s_message_is_checked),
        PLAIN(a_long_output_becomes_text),
        PLAIN(a_list_is_read_as_it_will_be_stored),
        PLAIN(a_message_is_built_and_settled),
        PLAIN(what_was_said_takes_the_answer_s_order),
        PLAIN(a_message_that_was_cut_off_is_settled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
