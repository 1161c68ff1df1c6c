#include "front/model/messages.h"

#include "base/cleanup.h"
#include "base/limits.h"

#include <string.h>

static const char stopped[] = "No result: the turn was stopped before this tool had run.";

const char *messages_str(const json_t *obj, const char *key) {
    const char *s = json_string_value(json_object_get(obj, key));
    return s ? s : "";
}

struct normal {
    json_t *out;
    json_t *ids;
    json_t *pending; /* id -> name of the calls that wait for a result */
    json_t *results; /* content of the open tool message, borrowed from out; or NULL */
};

static void open_results(struct normal *n) {
    if (n->results)
        return;
    n->results = json_array();
    (void)json_array_append_new(n->out,
                                json_pack("{s:s, s:o}", "role", "tool", "content", n->results));
}

/* Before anything that is no result: what is still pending gets one. */
static void model_messages_settle(struct normal *n) {
    const char *id;
    json_t *name;
    json_object_foreach(n->pending, id, name) {
        open_results(n);
        (void)json_array_append_new(n->results, json_pack("{s:s, s:s, s:O, s:s, s:b}", "type",
                                                          "tool_result", "id", id, "name", name,
                                                          "output", stopped, "is_error", 1));
    }
    (void)json_object_clear(n->pending);
    n->results = NULL;
}

static void take_results(struct normal *n, const json_t *content) {
    size_t i;
    json_t *b;
    json_array_foreach(content, i, b) {
        const char *id = messages_str(b, "id");
        json_t *name = json_object_get(n->pending, id);
        if (strcmp(messages_str(b, "type"), "tool_result") != 0 || !name)
            continue;
        open_results(n);
        (void)json_array_append(n->results, b);
        (void)json_object_del(n->pending, id);
    }
}

static int model_messages_take_block(struct normal *n, json_t *content, const char *role, json_t *b,
                                     struct err *err) {
    const char *type = messages_str(b, "type");
    bool assistant = strcmp(role, "assistant") == 0;
    if (strcmp(type, "text") == 0) {
        if (!json_is_string(json_object_get(b, "text")))
            return err_set(err, ERR_BAD_REQUEST, "a text block needs \"text\"");
        if (json_string_length(json_object_get(b, "text")) > 0)
            (void)json_array_append(content, b);
    } else if (assistant && strcmp(type, "tool_call") == 0) {
        const char *id = messages_str(b, "id");
        const char *name = messages_str(b, "name");
        if (!*id || !*name)
            return err_set(err, ERR_BAD_REQUEST, "a tool call needs \"id\" and \"name\"");
        if (json_object_get(n->ids, id))
            return err_set(err, ERR_BAD_REQUEST, "two tool calls have the id \"%.80s\"", id);
        (void)json_object_set_new(n->ids, id, json_true());
        (void)json_object_set_new(n->pending, id, json_string(name));
        (void)json_array_append(content, b);
    } else if (assistant && strcmp(type, "reasoning") == 0) {
        (void)json_array_append(content, b);
    }
    return 0;
}

static int take_message(struct normal *n, const json_t *m, struct err *err) {
    const char *role = messages_str(m, "role");
    json_t *content = json_object_get(m, "content");
    bool tool = strcmp(role, "tool") == 0;
    if (!tool && strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0)
        return err_set(err, ERR_BAD_REQUEST, "\"role\" must be user, assistant or tool");
    if (!json_is_array(content) && (tool || !json_is_string(content)))
        return err_set(err, ERR_BAD_REQUEST, "\"content\" must be a list%s",
                       tool ? "" : " or a string");
    if (tool) {
        take_results(n, content);
        return 0;
    }
    model_messages_settle(n);
    _cleanup_(json) json_t *blocks = json_array();
    if (json_is_string(content)) {
        if (json_string_length(content) > 0)
            (void)json_array_append_new(blocks,
                                        json_pack("{s:s, s:O}", "type", "text", "text", content));
    } else {
        size_t i;
        json_t *b;
        json_array_foreach(content, i, b) {
            int rc = model_messages_take_block(n, blocks, role, b, err);
            if (rc < 0)
                return err_wrap(err, "content[%zu]", i);
        }
    }
    if (json_array_size(blocks) > 0)
        (void)json_array_append_new(n->out,
                                    json_pack("{s:s, s:O}", "role", role, "content", blocks));
    return 0;
}

int messages_normalise(const json_t *in, json_t **ret_messages, json_t **ret_ids, struct err *err) {
    if (!json_is_array(in))
        return err_set(err, ERR_BAD_REQUEST, "messages must be a list");
    struct normal n = {.out = json_array(), .ids = json_object(), .pending = json_object()};
    int rc = 0;
    size_t i;
    const json_t *m;
    json_array_foreach(in, i, m) {
        rc = take_message(&n, m, err);
        if (rc < 0) {
            rc = err_wrap(err, "messages[%zu]", i);
            break;
        }
    }
    if (rc == 0)
        model_messages_settle(&n);
    if (rc == 0 && json_array_size(n.out) == 0)
        rc = err_set(err, ERR_BAD_REQUEST, "there is no message to answer");
    json_decref(n.pending);
    if (rc < 0) {
        json_decref(n.out);
        json_decref(n.ids);
        return rc;
    }
    *ret_messages = n.out;
    *ret_ids = n.ids;
    return 0;
}

void messages_write_output(struct json_writer *w, const json_t *result) {
    const json_t *output = json_object_get(result, "output");
    if (json_is_string(output)) {
        json_writer_text(w, json_string_value(output), json_string_length(output));
        return;
    }
    _cleanup_(buf) struct buf text;
    buf_init(&text, LIMIT_MODEL_REQUEST_BYTES);
    if (output && !json_dump(output, &text))
        w->out->full = true;
    json_writer_text(w, text.data ? text.data : "", text.len);
}
