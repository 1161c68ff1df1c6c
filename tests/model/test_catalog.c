#include "unit/unit.h"

#include "front/model/catalog.h"
#include "front/model/meter.h"

#include <stdlib.h>
#include <string.h>

static struct model_info find(const struct model_catalog *c, const char *name) {
    struct model_info info = {.id = ""};
    struct err err;
    assert_int_equal(model_catalog_find(c, name, MODEL_DEMO, &info, &err), 0);
    return info;
}

static void test_the_built_in_file_has_the_aliases(void **state) {
    (void)state;
    struct model_catalog *c;
    struct err err;
    assert_int_equal(model_catalog_load(NULL, &c, &err), 0);
    static const char *const aliases[] = {"opus", "sonnet", "haiku"};
    for (size_t i = 0; i < 3; i++) {
        struct model_info info = find(c, aliases[i]);
        assert_int_equal(info.provider, MODEL_ANTHROPIC);
        assert_non_null(strstr(info.id, aliases[i]));
        assert_true(info.price.known && info.price.output > info.price.input);
        assert_true(info.max_output_tokens > 0 && info.context_tokens > 0);
    }
    assert_int_equal(find(c, "gpt").provider, MODEL_OPENAI);
    assert_int_equal(find(c, NULL).provider, MODEL_DEMO);
    for (int p = 0; p < MODEL_PROVIDERS; p++) {
        struct model_info info;
        assert_int_equal(model_catalog_find(c, NULL, (enum model_provider)p, &info, &err), 0);
        assert_int_equal(info.provider, p);
    }
    model_catalog_destroy(c);
}

static void test_names_that_are_not_listed(void **state) {
    (void)state;
    struct model_catalog *c;
    struct err err;
    assert_int_equal(model_catalog_load(NULL, &c, &err), 0);
    assert_int_equal(find(c, "claude-of-tomorrow").provider, MODEL_ANTHROPIC);
    assert_int_equal(find(c, "llama3.2:1b").provider, MODEL_OPENAI);
    assert_string_equal(find(c, "openai/meta-llama/llama-3").id, "meta-llama/llama-3");
    assert_string_equal(find(c, "meta-llama/llama-3").id, "meta-llama/llama-3");
    assert_int_equal(find(c, "anthropic/gpt-5").provider, MODEL_ANTHROPIC);
    assert_string_equal(find(c, "anthropic/haiku").id, find(c, "haiku").id);
    assert_false(find(c, "llama3.2:1b").price.known);
    /* What one client has asked for with a provider's name changes nothing for the next. */
    assert_string_equal(find(c, "openai/claude-opus-5-5").id, "claude-opus-5-5");
    assert_int_equal(find(c, "claude-opus-5-5").provider, MODEL_ANTHROPIC);
    assert_int_equal(find(c, "anthropic/own").provider, MODEL_ANTHROPIC);
    assert_int_equal(find(c, "own").provider, MODEL_OPENAI);
    static const char *const listed[] = {"opus", "gpt-5.5", "openai/gpt",
                                         "@cf/moonshotai/kimi-k2.5", "demo"};
    static const char *const others[] = {"own", "anthropic/own", "openai/opus", "", "openai/"};
    for (size_t i = 0; i < 5; i++) {
        assert_true(model_catalog_lists(c, listed[i]));
        assert_false(model_catalog_lists(c, others[i]));
    }
    /* Names come from clients: however many one has asked for, the next is found. */
    for (int i = 0; i < 1000; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "m%d", i);
        assert_string_equal(find(c, name).id, name);
    }
    char longest[MODEL_ID_BYTES + 2];
    memset(longest, 'x', sizeof(longest));
    longest[MODEL_ID_BYTES] = '\0';
    assert_string_equal(find(c, longest).id, longest);
    longest[MODEL_ID_BYTES] = 'x';
    longest[MODEL_ID_BYTES + 1] = '\0';
    struct model_info info;
    assert_int_equal(model_catalog_find(c, longest, MODEL_DEMO, &info, &err), -ERR_BAD_REQUEST);
    model_catalog_destroy(c);
}

static void test_errors_name_the_place(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *expected;
    } cases[] = {
        {"{", "m.json"},
        {"[]", "must be a JSON object"},
        {"{}", "\"models\" must be a list"},
        {"{\"models\":[{}]}", "models[0]: \"id\""},
        {"{\"models\":[{\"id\":\"x\"}]}", "models[0]: \"provider\""},
        {"{\"models\":[{\"id\":\"x\",\"provider\":\"y\"}]}",
         "\"anthropic\", \"openai\" or \"demo\""},
        {"{\"models\":[{\"id\":\"x\",\"provider\":\"demo\",\"aliases\":[1]}]}", "\"aliases\""},
        {"{\"models\":[{\"id\":\"x\",\"provider\":\"demo\",\"price\":1}]}", "unknown key"},
        {"{\"models\":[{\"id\":\"x\",\"provider\":\"demo\",\"usd_per_million\":{\"input\":-1}}]}",
         "\"input\" must be a number"},
        {"{\"models\":[{\"id\":\"x\",\"provider\":\"demo\",\"context\":0}]}", "\"context\""},
        {"{\"models\":[],\"defaults\":{\"x\":\"y\"}}", "unknown key"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct model_catalog *c;
        struct err err;
        assert_true(model_catalog_parse(cases[i].text, strlen(cases[i].text), "m.json", &c, &err) <
                    0);
        if (!strstr(err.message, cases[i].expected))
            fail_msg("%s: %s", cases[i].text, err.message);
    }
}

/* Limits of keys hold by it: nothing may make it 0. */
static void test_the_dearest_of_a_list_without_prices_is_the_built_in_one(void **state) {
    (void)state;
    static const char bare[] = "{\"models\":[{\"id\":\"x\",\"provider\":\"anthropic\"}]}";
    static const char cheap[] = "{\"models\":[{\"id\":\"x\",\"provider\":\"anthropic\","
                                "\"usd_per_million\":{\"input\":1,\"output\":2}}]}";
    struct err err;
    struct model_catalog *c;
    struct model_info demo;
    assert_int_equal(model_catalog_parse(cheap, strlen(cheap), "m", &c, &err), 0);
    assert_int_equal(model_catalog_dearest(c).output, 2000);
    model_catalog_destroy(c);
    assert_int_equal(model_catalog_parse(bare, strlen(bare), "m", &c, &err), 0);
    assert_true(model_catalog_dearest(c).output >= 10000);
    assert_true(model_catalog_dearest(c).input > 0);
    assert_int_equal(model_catalog_find(c, "demo", MODEL_DEMO, &demo, &err), 0);
    assert_true(demo.price.known && demo.price.output == 0);
    model_catalog_destroy(c);
}

static const struct model_price price = {
    .input = 3000, .output = 15000, .cache_read = 300, .cache_write = 3750, .known = true};

static void test_costs_are_exact(void **state) {
    (void)state;
    struct model_meter m = {.streams = 0};
    struct model_usage u = {
        .input_tokens = 1, .output_tokens = 1, .cache_read_tokens = 1, .cache_write_tokens = 1};
    for (int i = 0; i < 1000000; i++)
        model_meter_add(&m, &price, &u);
    assert_int_equal(m.cost_nusd, 22050LL * 1000000);
    assert_int_equal(model_usage_tokens(&m.usage), 4000000);
    assert_int_equal(m.streams, 1000000);
    assert_false(m.unpriced);
    model_meter_add(&m, &(struct model_price){.search = 10000000, .known = true},
                    &(struct model_usage){.searches = 3});
    assert_int_equal(m.cost_nusd, 22050LL * 1000000 + 30000000);
    m.cost_nusd -= 30000000;
    model_meter_add(&m, &(struct model_price){.known = false}, &u);
    assert_int_equal(m.cost_nusd, 22050LL * 1000000);
    assert_true(m.unpriced);
}

static void test_budgets(void **state) {
    (void)state;
    struct err err;
    struct model_meter m = {.streams = 0};
    struct model_budget none = {0};
    struct model_budget tokens = {.max_tokens = 100};
    struct model_budget cost = {.max_cost_nusd = 150000};
    assert_int_equal(model_meter_check(&m, &none, &err), 0);
    assert_int_equal(model_meter_check(&m, &tokens, &err), 0);
    assert_int_equal(model_meter_room(&m, &none, &price, 0), 0);
    assert_int_equal(model_meter_room(&m, &none, &price, 50), 50);
    assert_int_equal(model_meter_room(&m, &tokens, &price, 0), 100);
    assert_int_equal(model_meter_room(&m, &cost, &price, 0), 10);
    assert_int_equal(model_meter_room(&m, &cost, &price, 4), 4);
    struct model_usage u = {.output_tokens = 9};
    model_meter_add(&m, &price, &u);
    assert_int_equal(model_meter_check(&m, &cost, &err), 0);
    assert_int_equal(model_meter_room(&m, &cost, &price, 0), 1);
    model_meter_add(&m, &price, &(struct model_usage){.output_tokens = 1});
    assert_int_equal(model_meter_check(&m, &cost, &err), -(int)ERR_LIMIT);
    assert_string_equal(err.message, "this turn has cost $0.0001; its budget is $0.0001");
    model_meter_add(&m, &price, &(struct model_usage){.cache_read_tokens = 90});
    assert_int_equal(model_meter_check(&m, &tokens, &err), -(int)ERR_LIMIT);
    assert_non_null(strstr(err.message, "used 100 tokens; its budget is 100"));
    assert_int_equal(model_meter_room(&m, &tokens, &price, 0), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_built_in_file_has_the_aliases),
        cmocka_unit_test(test_names_that_are_not_listed),
        cmocka_unit_test(test_errors_name_the_place),
        cmocka_unit_test(test_the_dearest_of_a_list_without_prices_is_the_built_in_one),
        cmocka_unit_test(test_costs_are_exact),
        cmocka_unit_test(test_budgets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
