#include "front/code/play.h"

#include "base/cleanup.h"
#include "front/model/script.h"

#include <string.h>

enum { TEXT_BYTES = 8 << 20 };

/* The text of a message: a string, or the text blocks of a list. */
static void play_add_text(const json_t *content, struct buf *out) {
    size_t i;
    const json_t *block;
    if (json_is_string(content))
        (void)buf_add(out, json_string_value(content), json_string_length(content));
    json_array_foreach(content, i, block) {
        const json_t *text = json_object_get(block, "text");
        if (json_is_string(text))
            (void)buf_add(out, json_string_value(text), json_string_length(text));
    }
}

static bool has_role(const json_t *message, const char *role) {
    const char *own = json_string_value(json_object_get(message, "role"));
    return own && strcmp(own, role) == 0;
}

/* A result is an object where it is one, else a text. */
static json_t *play_result_of(const struct buf *text) {
    json_t *j = NULL;
    const char *data = text->data ? text->data : "";
    if (json_parse(data, text->len, "result", &j, NULL) == 0 && json_is_object(j))
        return j;
    json_decref(j);
    j = json_stringn(data, text->len);
    return j ? j : json_string("");
}

void play_answer(const json_t *script, const json_t *messages, struct buf *out) {
    _cleanup_(json) json_t *results = json_array();
    _cleanup_(buf) struct buf first;
    buf_init(&first, TEXT_BYTES);
    size_t answers = 0;
    size_t i;
    const json_t *m;
    json_array_foreach(messages, i, m) {
        _cleanup_(buf) struct buf text;
        buf_init(&text, TEXT_BYTES);
        play_add_text(json_object_get(m, "content"), &text);
        answers += has_role(m, "assistant");
        if (has_role(m, "user") && first.len == 0)
            (void)buf_add(&first, text.data, text.len);
        else if (has_role(m, "user"))
            (void)json_array_append_new(results, play_result_of(&text));
    }
    struct script_scope scope = {
        .script = script, .user = first.data ? first.data : "", .results = results};
    bool matched = false;
    const json_t *step = script_step(&scope, answers, &matched);
    const char *say = json_string_value(json_object_get(step, "say"));
    if (!say)
        say = json_string_value(json_object_get(script, matched ? "end" : "fallback"));
    script_render(&scope, say ? say : "", out);
}
