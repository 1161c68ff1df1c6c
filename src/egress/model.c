#include "egress/model.h"

#include "base/cleanup.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEPTH_MAX = 64,
    BYTES_PER_TOKEN = 4,      /* of text, about */
    TOKENS_PER_MEDIUM = 2000, /* of an image or a document that is inside, about */
    DEFAULT_OUTPUT = 4096,    /* reserved for a request that does not say how long it may get */
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

static const char *text_of(const json_t *obj, const char *key) {
    const char *s = json_string_value(json_object_get(obj, key));
    return s ? s : "";
}

static int check_fields(const struct egress_route *r, const json_t *body, struct err *err) {
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
static int check_tools(const struct egress_route *r, const json_t *body, struct err *err) {
    const json_t *tools = json_object_get(body, "tools");
    const json_t *tool;
    size_t i;
    if (tools && !json_is_null(tools) && !json_is_array(tools))
        return err_set(err, ERR_BAD_REQUEST, "tools must be a list");
    json_array_foreach(tools, i, tool) {
        const json_t *type = json_object_get(tool, "type");
        const char *name = type ? json_string_value(type) : "custom";
        if (!json_is_object(tool) || !name)
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

static int refuse_source(const struct egress_route *r, const char *what, struct err *err) {
    return err_set(err, ERR_FORBIDDEN,
                   "%s is not granted, since the model's server would fetch it: send the content "
                   "itself, or the operator sets \"urls\" of the route \"%s\"",
                   what, r->name);
}

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s);
    size_t k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static bool is_data_url(const char *s) {
    return strncmp(s, "data:", 5) == 0;
}

/* One object of a message: no source but what it brings itself. */
static int check_source(const struct egress_route *r, const json_t *o, struct err *err) {
    const json_t *source = json_object_get(o, "source");
    const char *key;
    json_t *value;
    if (json_is_object(source)) {
        const char *type = text_of(source, "type");
        if (strcmp(type, "base64") != 0 && strcmp(type, "text") != 0 &&
            strcmp(type, "content") != 0)
            return refuse_source(r, "a source that is not inside the request", err);
    }
    if (strcmp(text_of(o, "type"), "container_upload") == 0 || json_object_get(o, "file_id"))
        return refuse_source(r, "a stored file", err);
    json_object_foreach((json_t *)(uintptr_t)o, key, value) {
        if (!ends_with(key, "_url"))
            continue;
        const char *url = json_is_object(value) ? text_of(value, "url") : json_string_value(value);
        if (url && !is_data_url(url))
            return refuse_source(r, "a source by its address", err);
    }
    return 0;
}

struct walk {
    const struct egress_route *route;
    uint64_t bytes; /* of text */
    uint64_t media; /* that are inside */
};

/* Looks at every object, but into the input of tools, which is the guest's own business. */
static int walk_content(struct walk *w, const json_t *j, unsigned depth, struct err *err) {
    const char *key;
    json_t *value;
    size_t i;
    int rc = 0;
    if (depth > DEPTH_MAX)
        return err_set(err, ERR_BAD_REQUEST, "the request is nested too deep");
    if (json_is_array(j)) {
        json_array_foreach(j, i, value) {
            rc = walk_content(w, value, depth + 1, err);
            if (rc < 0)
                return rc;
        }
    } else if (json_is_object(j)) {
        if (!w->route->urls)
            rc = check_source(w->route, j, err);
        bool call = strcmp(text_of(j, "type"), "tool_use") == 0;
        json_object_foreach((json_t *)(uintptr_t)j, key, value) {
            if (rc < 0)
                return rc;
            if (json_is_string(value) &&
                (strcmp(key, "data") == 0 || strcmp(key, "file_data") == 0))
                w->media++;
            else if (call && strcmp(key, "input") == 0)
                w->bytes += json_dumpb(value, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
            else
                rc = walk_content(w, value, depth + 1, err);
        }
    } else if (json_is_string(j)) {
        if (is_data_url(json_string_value(j)))
            w->media++;
        else
            w->bytes += json_string_length(j);
    }
    return rc;
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
           t->cache_write * price->cache_write;
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
        uint64_t least = used->tokens + a->input_estimate;
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
        uint64_t least = used->cost_nusd + a->input_estimate * a->price->input;
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

static uint64_t positive(const json_t *obj, const char *key) {
    json_int_t v = json_integer_value(json_object_get(obj, key));
    return v > 0 ? (uint64_t)v : 0;
}

/* Bounds the answer by what is left, so that requests at the same time cannot pass a cap either. */
static int apply_caps(const struct egress_policy *p, const struct decision *d,
                      const struct model_room *used, json_t *body, struct model_ask *a,
                      struct err *err) {
    bool capped = p->caps.tokens > 0 || p->caps.cost_nusd > 0;
    if (!capped || d->endpoint == EGRESS_COUNT_TOKENS)
        return 0;
    const char *key = d->api == EGRESS_API_OPENAI && !json_object_get(body, "max_tokens")
                          ? "max_completion_tokens"
                          : "max_tokens";
    uint64_t choices = d->api == EGRESS_API_OPENAI ? positive(body, "n") : 1;
    if (choices == 0)
        choices = 1;
    uint64_t asked = positive(body, key);
    uint64_t wanted = asked ? asked : DEFAULT_OUTPUT;
    uint64_t room = 0;
    if (choices > 128 || wanted > 1U << 30)
        return err_set(err, ERR_BAD_REQUEST, "n or %s is too large", key);
    int rc = find_room(p, used, a, wanted * choices, &room, err);
    if (rc < 0)
        return rc;
    if (room < choices)
        return refuse_cap("tokens", err);
    uint64_t each = room / choices;
    if (each != asked)
        (void)json_object_set_new(body, key, json_integer((json_int_t)each));
    a->reserved.tokens = a->input_estimate + each * choices;
    if (a->price)
        a->reserved.cost_nusd =
            a->input_estimate * a->price->input + each * choices * a->price->output;
    return 0;
}

/* A stream of chunks tells what it used only if it is asked to. */
static void ask_for_usage(json_t *body) {
    if (!json_is_true(json_object_get(body, "stream")))
        return;
    json_t *options = json_object_get(body, "stream_options");
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

int model_judge(const struct egress_policy *p, const struct decision *d,
                const struct model_room *used, const char *body, size_t len, struct model_ask *ret,
                struct err *err) {
    const struct egress_route *r = &p->routes[d->route];
    _cleanup_(json) json_t *j = NULL;
    struct model_ask a = {0};
    struct walk w = {.route = r};
    int rc = json_parse(body ? body : "", len, "the request", &j, err);
    if (rc == 0 && !json_is_object(j))
        rc = err_set(err, ERR_BAD_REQUEST, "the request must be a JSON object");
    if (rc == 0)
        rc = check_model(r, j, &a, err);
    if (rc == 0)
        rc = check_fields(r, j, err);
    if (rc == 0)
        rc = check_tools(r, j, err);
    if (rc == 0)
        rc = walk_content(&w, json_object_get(j, "system"), 0, err);
    if (rc == 0)
        rc = walk_content(&w, json_object_get(j, "messages"), 0, err);
    if (rc == 0) {
        w.bytes += json_dumpb(json_object_get(j, "tools"), NULL, 0, JSON_COMPACT);
        a.price = find_price(p, a.model);
        a.input_estimate = w.bytes / BYTES_PER_TOKEN + w.media * TOKENS_PER_MEDIUM + 1;
        rc = apply_caps(p, d, used, j, &a, err);
    }
    if (rc == 0) {
        if (d->api == EGRESS_API_OPENAI)
            ask_for_usage(j);
        buf_init(&a.body, 2 * len + 4096);
        if (!json_dump(j, &a.body))
            rc = err_set(err, ERR_TOO_LARGE, "the request is too large");
    }
    /* The model is told also of what was refused. */
    *ret = a;
    return rc;
}

void model_ask_finish(struct model_ask *a) {
    free(a->model);
    buf_finish(&a->body);
    *a = (struct model_ask){0};
}

/* --- the answer --- */

static void read_count(const json_t *usage, const char *key, uint64_t *ret) {
    const json_t *v = json_object_get(usage, key);
    if (json_is_integer(v) && json_integer_value(v) >= 0)
        *ret = (uint64_t)json_integer_value(v);
}

static void read_usage(struct model_meter *m, const json_t *usage, bool final) {
    struct model_tokens *t = &m->tokens;
    if (!json_is_object(usage))
        return;
    if (m->api == EGRESS_API_ANTHROPIC) {
        read_count(usage, "input_tokens", &t->input);
        read_count(usage, "output_tokens", &t->output);
        read_count(usage, "cache_read_input_tokens", &t->cache_read);
        read_count(usage, "cache_creation_input_tokens", &t->cache_write);
    } else {
        uint64_t cached = 0;
        read_count(usage, "prompt_tokens", &t->input);
        read_count(usage, "completion_tokens", &t->output);
        read_count(json_object_get(usage, "prompt_tokens_details"), "cached_tokens", &cached);
        t->cache_read = MIN(cached, t->input);
        t->input -= t->cache_read;
    }
    m->input_told = true;
    m->output_told = m->output_told || final;
}

static bool on_event(void *ctx, const char *event, const char *data, size_t len) {
    struct model_meter *m = ctx;
    (void)event;
    if (!memmem(data, len, "\"usage\"", 7))
        return true;
    _cleanup_(json) json_t *j = json_loadb(data, len, JSON_ALLOW_NUL, NULL);
    if (strcmp(text_of(j, "type"), "message_start") == 0)
        read_usage(m, json_object_get(json_object_get(j, "message"), "usage"), false);
    else
        read_usage(m, json_object_get(j, "usage"), true); /* message_delta, or a chunk */
    return true;
}

void model_meter_init(struct model_meter *m, enum egress_api api, bool events) {
    *m = (struct model_meter){.api = api, .events = events};
    sse_init(&m->sse, LIMIT_MODEL_EVENT_BYTES, on_event, m);
    buf_init(&m->whole, LIMIT_MODEL_REPLY_BYTES);
}

void model_meter_finish(struct model_meter *m) {
    if (m->api == EGRESS_API_NONE)
        return;
    sse_finish(&m->sse);
    buf_finish(&m->whole);
    *m = (struct model_meter){0};
}

void model_meter_feed(struct model_meter *m, const char *data, size_t len) {
    m->bytes += len;
    if (m->lost)
        return;
    if (m->events)
        m->lost = sse_feed(&m->sse, data, len, NULL) < 0;
    else
        m->lost = !buf_add(&m->whole, data, len);
}

bool model_meter_end(struct model_meter *m, uint64_t input_estimate) {
    if (!m->events && !m->lost && m->whole.len > 0) {
        _cleanup_(json) json_t *j = json_loadb(m->whole.data, m->whole.len, JSON_ALLOW_NUL, NULL);
        read_usage(m, json_object_get(j, "usage"), true);
    }
    if (!m->input_told)
        m->tokens.input = input_estimate;
    /* An answer that was left early, or does not say: by its bytes, most of which are the frame
     * around the text. */
    if (!m->output_told)
        m->tokens.output =
            MAX(m->tokens.output, m->bytes / (BYTES_PER_TOKEN * (m->events ? 8 : 1)));
    return m->input_told && m->output_told;
}
