#include "egress/model.h"

#include "base/cleanup.h"
#include "base/json.h"
#include "base/mem.h"
#include "egress/content.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum {
    VALUES_MAX = 200000, /* in a body: each takes some 50 bytes as a tree, however short it is */
    BODY_MAX = 256 * 1024 * 1024,
    DEFAULT_OUTPUT = 4096, /* reserved for a request that does not say how long it may get */
    OUTPUT_MAX = 1 << 30,
    LEAST_OUTPUT = 256, /* an answer of fewer tokens is of no use */
    CHOICES_MAX = 128,
};

/* --- what a request may hold --- */

/* The keys of a body that have the model read and write text, and nothing else. A key that is not
 * here may make the server reach out, keep something or cost more. */
static const char *const anthropic_fields[] = {"model",
                                               "messages",
                                               "system",
                                               "max_tokens",
                                               "stream",
                                               "tools",
                                               "tool_choice",
                                               "temperature",
                                               "top_p",
                                               "top_k",
                                               "thinking",
                                               "metadata",
                                               "stop_sequences",
                                               "output_config",
                                               "output_format",
                                               "betas",
                                               "cache_control",
                                               "context_management",
                                               NULL};

static const char *const openai_fields[] = {"model",
                                            "messages",
                                            "max_tokens",
                                            "max_completion_tokens",
                                            "stream",
                                            "stream_options",
                                            "tools",
                                            "tool_choice",
                                            "temperature",
                                            "top_p",
                                            "n",
                                            "stop",
                                            "presence_penalty",
                                            "frequency_penalty",
                                            "logit_bias",
                                            "logprobs",
                                            "top_logprobs",
                                            "response_format",
                                            "seed",
                                            "user",
                                            "safety_identifier",
                                            "parallel_tool_calls",
                                            "reasoning_effort",
                                            "verbosity",
                                            "metadata",
                                            "functions",
                                            "function_call",
                                            "prediction",
                                            "modalities",
                                            "prompt_cache_key",
                                            NULL};

static int egress_model_check_fields(const struct egress_route *r, const json_t *body,
                                     struct err *err) {
    const char *const *known = r->api == EGRESS_API_ANTHROPIC ? anthropic_fields : openai_fields;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)body, key, value) {
        size_t i = 0;
        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i] && !json_is_null(value) && !decide_list_has(&r->fields, key))
            return err_set(err, ERR_FORBIDDEN,
                           "the field \"%.100s\" is not granted: the operator would add it to "
                           "\"fields\" of the route \"%s\"",
                           key, r->name);
    }
    return 0;
}

/* A tool that the server runs by itself reaches out without passing here. */
static int egress_model_check_tools(const struct egress_route *r, const json_t *body,
                                    struct err *err) {
    const json_t *tools = json_object_get(body, "tools");
    const json_t *tool;
    size_t i;
    if (tools && !json_is_null(tools) && !json_is_array(tools))
        return err_set(err, ERR_BAD_REQUEST, "tools must be a list");
    json_array_foreach(tools, i, tool) {
        const json_t *type = json_object_get(tool, "type");
        const char *name = type ? json_string_value(type) : "custom";
        if (!json_is_object(tool) || !name || (type && strlen(name) != json_string_length(type)))
            return err_set(err, ERR_BAD_REQUEST, "tools[%zu] is malformed", i);
        bool own = strcmp(name, "custom") == 0 ||
                   (r->api == EGRESS_API_OPENAI && strcmp(name, "function") == 0);
        if (!own && !decide_list_has(&r->server_tools, name))
            return err_set(err, ERR_FORBIDDEN,
                           "the tool type \"%.100s\" is not granted: the operator would add it to "
                           "\"server_tools\" of the route \"%s\"",
                           name, r->name);
    }
    return 0;
}

/* --- caps --- */

static const struct egress_price *find_price(const struct egress_policy *p, const char *model) {
    for (size_t i = 0; i < p->nprices; i++)
        if (strcmp(p->prices[i].model, model) == 0)
            return &p->prices[i];
    return NULL;
}

uint64_t model_cost(const struct egress_price *price, const struct model_tokens *t) {
    if (!price)
        return 0;
    return t->input * price->input + t->output * price->output + t->cache_read * price->cache_read +
           t->cache_write * price->cache_write +
           t->cache_write_1h * MAX(price->cache_write_1h, price->cache_write);
}

/* What the input costs at the worst: it may be written to a cache. */
static uint64_t input_price(const struct egress_price *price, bool hour, enum model_input *ret) {
    uint64_t most = MAX(price->input, price->cache_write);
    *ret = price->cache_write > price->input ? MODEL_INPUT_CACHE : MODEL_INPUT_PLAIN;
    if (!hour || price->cache_write_1h <= most)
        return most;
    *ret = MODEL_INPUT_HOUR;
    return price->cache_write_1h;
}

/* True if some object has the key "ttl" with that of an hour. */
static bool asks_for_hour(const json_t *j, unsigned depth) {
    const char *key;
    json_t *value;
    size_t i;
    if (depth > DEPTH_MAX)
        return true; /* it is refused for that */
    json_array_foreach(j, i, value) {
        if (asks_for_hour(value, depth + 1))
            return true;
    }
    json_object_foreach((json_t *)(uintptr_t)j, key, value) {
        if ((strcmp(key, "ttl") == 0 && json_is_string(value) &&
             strcmp(json_string_value(value), "5m") != 0) ||
            asks_for_hour(value, depth + 1))
            return true;
    }
    return false;
}

static int refuse_cap(const char *what, struct err *err) {
    return err_set(err, ERR_LIMIT,
                   "this sandbox has used up its budget of %s for models, or this request would: "
                   "the operator would raise the sandbox's network caps",
                   what);
}

/* How many tokens the answer may have, by the caps; at most `wanted`. */
static int find_room(const struct egress_policy *p, const struct model_room *used,
                     const struct model_ask *a, uint64_t wanted, uint64_t *ret, struct err *err) {
    uint64_t room = wanted;
    if (p->caps.tokens > 0) {
        uint64_t least = used->tokens_in + used->tokens_out + a->reserved.tokens_in;
        if (least >= p->caps.tokens)
            return refuse_cap("tokens", err);
        room = MIN(room, p->caps.tokens - least);
    }
    if (p->caps.cost_nusd > 0) {
        if (!a->price)
            return err_set(err, ERR_FORBIDDEN,
                           "no price of \"%.100s\" is known, and this sandbox has a budget: the "
                           "operator would add it to the list of models",
                           a->model);
        uint64_t least = used->cost_nusd + a->reserved.cost_nusd;
        if (least >= p->caps.cost_nusd)
            return refuse_cap("money", err);
        if (a->price->output > 0)
            room = MIN(room, (p->caps.cost_nusd - least) / a->price->output);
        if (room == 0)
            return refuse_cap("money", err);
    }
    *ret = room;
    return 0;
}

/* --- how long an answer may get --- */

static const char *const limit_keys[] = {"max_tokens", "max_completion_tokens",
                                         "max_output_tokens"};

static bool is_limit_key(const char *key) {
    for (size_t i = 0; i < ARRAY_LEN(limit_keys); i++)
        if (strcmp(limit_keys[i], key) == 0)
            return true;
    return false;
}

/* True for what some server may read as the length of an answer, or how many of them: the letters
 * alone, since "maxTokens" and "max-tokens" are the same to some. */
static bool names_a_limit(const char *key) {
    static const char *const after_max[] = {"tok", "len", "out", "new", "gen", "compl"};
    char s[48];
    size_t n = 0;
    for (; *key && n < sizeof(s) - 1; key++)
        if (isalnum((unsigned char)*key))
            s[n++] = (char)tolower((unsigned char)*key);
    s[n] = 0;
    bool max = strstr(s, "max") || strstr(s, "budget") || strstr(s, "limit");
    for (size_t i = 0; max && i < ARRAY_LEN(after_max); i++)
        if (strstr(s, after_max[i]))
            return true;
    return strstr(s, "predict") == s + 1 || strstr(s, "numpredict") || strcmp(s, "bestof") == 0;
}

static int refuse_limit(const char *key, struct err *err) {
    return err_set(err, ERR_FORBIDDEN,
                   "\"%.100s\" may lengthen the answer, and this sandbox has a budget: say "
                   "\"max_tokens\", at the top of the request",
                   key);
}

/* Refuses limits inside a field: only those that are known are bounded. */
static int check_nested(const json_t *j, const char *allowed, unsigned depth, struct err *err) {
    const char *key;
    json_t *value;
    size_t i;
    int rc = 0;
    if (depth > DEPTH_MAX)
        return err_set(err, ERR_BAD_REQUEST, "the request is nested too deep");
    json_array_foreach(j, i, value) {
        if (rc == 0)
            rc = check_nested(value, NULL, depth + 1, err);
    }
    json_object_foreach((json_t *)(uintptr_t)j, key, value) {
        if (rc < 0 || (allowed && strcmp(key, allowed) == 0))
            continue;
        rc =
            names_a_limit(key) ? refuse_limit(key, err) : check_nested(value, NULL, depth + 1, err);
    }
    return rc;
}

static int check_limits(const json_t *body, struct err *err) {
    /* Texts, and schemas whose keys are the guest's own. */
    static const char *const free_form[] = {"messages",      "system",      "tools",
                                            "functions",     "metadata",    "response_format",
                                            "output_format", "input_schema"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)body, key, value) {
        bool own = is_limit_key(key);
        for (size_t i = 0; !own && i < ARRAY_LEN(free_form); i++)
            own = strcmp(free_form[i], key) == 0;
        if (own)
            continue;
        if (names_a_limit(key) && !json_is_null(value))
            return refuse_limit(key, err);
        const char *allowed = strcmp(key, "thinking") == 0        ? "budget_tokens"
                              : strcmp(key, "output_config") == 0 ? "format"
                                                                  : NULL;
        int rc = check_nested(value, allowed, 0, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static uint64_t egress_model_positive(const json_t *v) {
    json_int_t n = json_integer_value(v);
    return n > 0 ? (uint64_t)n : 0;
}

/* What it asks for by any of the spellings, at most: servers differ in which of two they heed. */
static uint64_t wanted_output(const json_t *body) {
    uint64_t most = 0;
    for (size_t i = 0; i < ARRAY_LEN(limit_keys); i++)
        most = MAX(most, egress_model_positive(json_object_get(body, limit_keys[i])));
    return most ? MIN(most, OUTPUT_MAX) : DEFAULT_OUTPUT;
}

static void egress_model_lower(json_t *obj, const char *key, uint64_t most, bool *changed) {
    uint64_t asked = egress_model_positive(json_object_get(obj, key));
    if (asked > 0 && asked <= most)
        return;
    (void)json_object_set_new(obj, key, json_integer((json_int_t)most));
    *changed = true;
}

/* Every spelling that is there says no more than that; one of them is. */
static void bound_output(enum egress_api api, json_t *body, uint64_t most, bool *changed) {
    json_t *thinking = json_object_get(body, "thinking");
    bool said = false;
    for (size_t i = 0; i < ARRAY_LEN(limit_keys); i++) {
        if (!json_object_get(body, limit_keys[i]))
            continue;
        egress_model_lower(body, limit_keys[i], most, changed);
        said = true;
    }
    if (!said)
        egress_model_lower(body, api == EGRESS_API_OPENAI ? "max_completion_tokens" : "max_tokens",
                           most, changed);
    if (json_object_get(thinking, "budget_tokens"))
        egress_model_lower(thinking, "budget_tokens", most > 1 ? most - 1 : 1,
                           changed); /* less than all */
}

static int count_choices(const json_t *body, uint64_t *ret, struct err *err) {
    const json_t *n = json_object_get(body, "n");
    if (n && !json_is_null(n) &&
        (egress_model_positive(n) == 0 || egress_model_positive(n) > CHOICES_MAX))
        return err_set(err, ERR_BAD_REQUEST, "n must be a number of 1 to %d", CHOICES_MAX);
    *ret = MAX(egress_model_positive(n), 1);
    return 0;
}

/* Bounds the answer by what is left, so that requests at the same time cannot pass a cap either. */
static int apply_caps(const struct egress_policy *p, const struct decision *d,
                      const struct model_room *used, json_t *body, uint64_t max_output,
                      struct model_ask *a, bool *changed, struct err *err) {
    bool capped = p->caps.tokens > 0 || p->caps.cost_nusd > 0 || p->asks;
    uint64_t choices = 1;
    uint64_t room = 0;
    if (!capped || !a->billed)
        return 0;
    int rc = check_limits(body, err);
    if (rc == 0)
        rc = count_choices(body, &choices, err);
    if (rc == 0)
        rc = find_room(p, used, a, MIN(wanted_output(body) * choices, max_output), &room, err);
    if (rc == 0 && room < choices)
        rc = refuse_cap("tokens", err);
    if (rc < 0)
        return rc;
    uint64_t each = room / MAX(choices, 1);
    bound_output(d->api, body, each, changed);
    a->reserved.tokens_out = each * choices;
    if (a->price) {
        a->least_nusd = a->reserved.cost_nusd +
                        MIN(a->reserved.tokens_out, LEAST_OUTPUT * choices) * a->price->output;
        a->reserved.cost_nusd += a->reserved.tokens_out * a->price->output;
    }
    return 0;
}

/* A stream of chunks tells what it used only if it is asked to. */
static void ask_for_usage(json_t *body, bool *changed) {
    json_t *options = json_object_get(body, "stream_options");
    if (!json_is_true(json_object_get(body, "stream")) ||
        json_is_true(json_object_get(options, "include_usage")))
        return;
    *changed = true;
    if (!json_is_object(options)) {
        (void)json_object_set_new(body, "stream_options", json_object());
        options = json_object_get(body, "stream_options");
    }
    (void)json_object_set_new(options, "include_usage", json_true());
}

static int check_model(const struct egress_route *r, const json_t *body, struct model_ask *a,
                       struct err *err) {
    const json_t *model = json_object_get(body, "model");
    const char *name = json_string_value(model);
    if (!name || !*name || strlen(name) != json_string_length(model) || strlen(name) > 200)
        return err_set(err, ERR_BAD_REQUEST, "model must be a name");
    a->model = xstrdup(name);
    if (!decide_list_has(&r->models, name))
        return err_set(err, ERR_FORBIDDEN,
                       "the model \"%.100s\" is not granted: the operator would add it to "
                       "\"models\" of the route \"%s\"",
                       name, r->name);
    return 0;
}

/* Values outside of texts, about: what stands before each. */
static bool has_too_many_values(const char *text, size_t len) {
    size_t n = 0;
    bool inside = false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"')
            inside = !inside;
        else if (inside && text[i] == '\\')
            i++;
        else if (!inside && (text[i] == ',' || text[i] == '[' || text[i] == '{'))
            n++;
    }
    return n > VALUES_MAX;
}

int model_parse(const char *body, size_t len, struct model_body *ret, struct err *err) {
    json_t *j;
    if (has_too_many_values(body, len))
        return err_set(err, ERR_TOO_LARGE, "the request holds more than %d values", VALUES_MAX);
    int rc = json_parse(body, len, "the request", &j, err);
    if (rc < 0)
        return rc;
    if (!json_is_object(j)) {
        json_decref(j);
        return err_set(err, ERR_BAD_REQUEST, "the request must be a JSON object");
    }
    *ret = (struct model_body){.tree = j, .tokens = content_tokens(j), .hour = asks_for_hour(j, 0)};
    return 0;
}

/* What is granted at all. */
static int check_body(const struct egress_route *r, const json_t *body, struct model_ask *a,
                      struct err *err) {
    const json_t *stream = json_object_get(body, "stream");
    int rc = check_model(r, body, a, err);
    if (rc == 0)
        rc = egress_model_check_fields(r, body, err);
    if (rc == 0)
        rc = egress_model_check_tools(r, body, err);
    /* Some servers take others for true, and then the usage would not be asked for. */
    if (rc == 0 && stream && !json_is_boolean(stream) && !json_is_null(stream))
        rc = err_set(err, ERR_BAD_REQUEST, "stream must be true or false");
    if (rc == 0)
        rc = content_check(r, json_object_get(body, "system"), err);
    if (rc == 0)
        rc = content_check(r, json_object_get(body, "messages"), err);
    return rc;
}

int model_judge(const struct egress_policy *p, const struct decision *d,
                const struct model_room *used, const struct model_body *body, uint64_t max_output,
                struct model_ask *ret, struct err *err) {
    struct model_ask a = {.billed = (d->endpoint & (EGRESS_MESSAGES | EGRESS_CHAT)) != 0};
    bool changed = false;
    int rc = check_body(&p->routes[d->route], body->tree, &a, err);
    if (rc == 0) {
        a.price = find_price(p, a.model);
        if (a.billed)
            a.reserved = (struct model_room){
                .tokens_in = body->tokens,
                .cost_nusd =
                    a.price ? body->tokens * input_price(a.price, body->hour, &a.dearest) : 0};
        rc = apply_caps(p, d, used, body->tree, max_output, &a, &changed, err);
    }
    if (rc == 0 && d->api == EGRESS_API_OPENAI)
        ask_for_usage(body->tree, &changed);
    if (rc == 0 && changed) {
        buf_init(&a.body, BODY_MAX);
        if (!json_dump(body->tree, &a.body))
            rc = err_set(err, ERR_TOO_LARGE, "the request is too large");
    }
    *ret = a;
    return rc;
}

void model_ask_finish(struct model_ask *a) {
    free(a->model);
    buf_finish(&a->body);
    *a = (struct model_ask){0};
}
