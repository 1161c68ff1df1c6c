#include "front/agent/uimessage.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { ID_MAX_BYTES = 200, SAID_BYTES = 4096, TEXT_FROM_BYTES = 4096 };

static const char *uimessage_str(const json_t *obj, const char *key) {
    return json_string_value(json_object_get(obj, key));
}

static bool uimessage_is(const json_t *obj, const char *key, const char *value) {
    const char *v = uimessage_str(obj, key);
    return v && strcmp(v, value) == 0;
}

static bool is_tool_part(const json_t *part) {
    const char *type = uimessage_str(part, "type");
    return type && (strncmp(type, "tool-", 5) == 0 || strcmp(type, "dynamic-tool") == 0);
}

static const char *tool_name(const json_t *part) {
    const char *name = uimessage_str(part, "toolName");
    return name ? name : uimessage_str(part, "type") + 5;
}

/* --- what clients send --- */

static int uimessage_check(const json_t *message, struct err *err) {
    const char *id = NULL;
    const char *role = NULL;
    const json_t *parts = json_object_get(message, "parts");
    int rc = json_get_str(message, "id", &id, err);
    if (rc == 0)
        rc = json_get_str(message, "role", &role, err);
    if (rc < 0)
        return err_wrap(err, "a message");
    if (!id || !*id || strlen(id) > ID_MAX_BYTES)
        return err_set(err, ERR_BAD_REQUEST, "a message needs an \"id\" of at most %d bytes",
                       ID_MAX_BYTES);
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0 &&
                  strcmp(role, "system") != 0))
        return err_set(err, ERR_BAD_REQUEST, "a message's \"role\" is user, assistant or system");
    if (!json_is_array(parts))
        return err_set(err, ERR_BAD_REQUEST, "a message needs a list of \"parts\"");
    size_t i;
    const json_t *part;
    json_array_foreach(parts, i, part) {
        if (!uimessage_str(part, "type"))
            return err_set(err, ERR_BAD_REQUEST,
                           "each of a message's \"parts\" is an object with a \"type\"");
    }
    return 0;
}

/* What a person said with it, the beginning of it; NULL: nothing. */
static char *uimessage_said(const json_t *message) {
    size_t i;
    const json_t *part;
    json_array_foreach(json_object_get(message, "parts"), i, part) {
        const char *text = uimessage_is(part, "type", "text") ? uimessage_str(part, "text") : NULL;
        if (text && *text)
            return xstrndup(text, utf8_floor(text, strlen(text), SAID_BYTES));
    }
    return NULL;
}

struct uimessages *uimessages_read(const json_t *list) {
    struct uimessages *m = xcalloc(1, sizeof(*m));
    const json_t *last = NULL;
    size_t i;
    const json_t *one;
    m->user_ids = json_array();
    m->list = xcalloc(json_array_size(list) + 1, sizeof(*m->list));
    if (!json_is_array(list))
        (void)err_set(&m->err, ERR_BAD_REQUEST, "\"messages\" must be a list");
    json_array_foreach(list, i, one) {
        if (uimessage_check(one, &m->err) < 0)
            break;
        struct uimessage *to = &m->list[m->count++];
        *to = (struct uimessage){.id = xstrdup(uimessage_str(one, "id")),
                                 .user = uimessage_is(one, "role", "user")};
        to->json = json_dump_text(one, SIZE_MAX, &to->len);
        m->bytes += to->len;
        if (to->user)
            (void)json_array_append(m->user_ids, json_object_get(one, "id"));
        else
            (void)json_array_clear(m->user_ids);
        last = to->user ? one : last;
    }
    m->said = uimessage_said(last);
    return m;
}

void uimessages_free(struct uimessages *m) {
    if (!m)
        return;
    for (size_t i = 0; i < m->count; i++) {
        free(m->list[i].id);
        free(m->list[i].json);
    }
    free(m->list);
    json_decref(m->user_ids);
    free(m->said);
    free(m);
}

int uimessages_check(const struct uimessages *m, size_t max, size_t max_bytes, struct err *err) {
    for (size_t i = 0; i < m->count; i++)
        if (m->list[i].len > max_bytes)
            return err_set(err, ERR_TOO_LARGE,
                           "a message exceeds %zu bytes (limit agent_message_bytes)", max_bytes);
    if (m->err.code) {
        *err = m->err;
        return -(int)err->code;
    }
    if (m->count > max)
        return err_set(err, ERR_LIMIT,
                       "the conversation has %zu messages and may have %zu (limit "
                       "agent_messages): begin another",
                       m->count, max);
    return 0;
}

/* --- to the model --- */

static json_t *user_content(const json_t *parts) {
    json_t *out = json_array();
    size_t i;
    const json_t *p;
    json_array_foreach(parts, i, p) {
        const char *text = uimessage_str(p, "text");
        if (uimessage_is(p, "type", "text") && text)
            (void)json_array_append_new(
                out, json_pack("{s:s,s:O}", "type", "text", "text", json_object_get(p, "text")));
        else if (uimessage_is(p, "type", "file"))
            (void)json_array_append_new(out, json_pack("{s:s,s:s}", "type", "text", "text",
                                                       "[a file that cannot be shown]"));
    }
    return out;
}

/* A model reads it as text in any case: much of it becomes one here, once, and in a thread. */
static json_t *output_of(const json_t *part) {
    json_t *output = json_object_get(part, "output");
    size_t len = 0;
    _cleanup_(free) char *text =
        json_is_string(output) ? NULL : json_dump_text(output, SIZE_MAX, &len);
    return len > TEXT_FROM_BYTES ? json_stringn_nocheck(text, len) : json_incref(output);
}

static json_t *uimessage_result_of(const json_t *part) {
    if (uimessage_is(part, "state", "output-available"))
        return json_pack("{s:s,s:O,s:s,s:o,s:b}", "type", "tool_result", "id",
                         json_object_get(part, "toolCallId"), "name", tool_name(part), "output",
                         output_of(part), "is_error", 0);
    if (uimessage_is(part, "state", "output-error"))
        return json_pack("{s:s,s:O,s:s,s:s,s:b}", "type", "tool_result", "id",
                         json_object_get(part, "toolCallId"), "name", tool_name(part), "output",
                         uimessage_str(part, "errorText") ? uimessage_str(part, "errorText")
                                                          : "error",
                         "is_error", 1);
    return NULL;
}

/* One step of an assistant's message: what it said, then what its tools answered. */
static void flush_step(json_t *out, json_t **content, json_t **results) {
    if (json_array_size(*content) > 0)
        (void)json_array_append_new(
            out, json_pack("{s:s,s:O}", "role", "assistant", "content", *content));
    if (json_array_size(*results) > 0)
        (void)json_array_append_new(out,
                                    json_pack("{s:s,s:O}", "role", "tool", "content", *results));
    json_decref(*content);
    json_decref(*results);
    *content = json_array();
    *results = json_array();
}

static void add_assistant(json_t *out, const json_t *parts) {
    json_t *content = json_array();
    json_t *results = json_array();
    size_t i;
    json_t *p;
    json_array_foreach(parts, i, p) {
        if (uimessage_is(p, "type", "step-start")) {
            flush_step(out, &content, &results);
        } else if (uimessage_is(p, "type", "text")) {
            if (json_string_length(json_object_get(p, "text")) > 0)
                (void)json_array_append_new(content, json_pack("{s:s,s:O}", "type", "text", "text",
                                                               json_object_get(p, "text")));
        } else if (uimessage_is(p, "type", "reasoning")) {
            const json_t *own = json_object_get(json_object_get(p, "providerMetadata"), "cay");
            json_t *r =
                json_pack("{s:s,s:O}", "type", "reasoning", "text", json_object_get(p, "text"));
            if (r && json_is_object(own))
                (void)json_object_update_missing(r, (json_t *)(uintptr_t)own);
            (void)json_array_append_new(content, r);
        } else if (is_tool_part(p) && uimessage_str(p, "toolCallId") &&
                   json_is_object(json_object_get(p, "input"))) {
            (void)json_array_append_new(content, json_pack("{s:s,s:O,s:s,s:O}", "type", "tool_call",
                                                           "id", json_object_get(p, "toolCallId"),
                                                           "name", tool_name(p), "input",
                                                           json_object_get(p, "input")));
            json_t *r = uimessage_result_of(p);
            if (r)
                (void)json_array_append_new(results, r);
        }
    }
    flush_step(out, &content, &results);
    json_decref(content);
    json_decref(results);
}

json_t *uimessage_to_model(const json_t *list, bool cut) {
    json_t *out = json_array();
    if (cut)
        (void)json_array_append_new(
            out, json_pack("{s:s,s:s}", "role", "user", "content",
                           "(The conversation is long: its earlier messages are left out.)"));
    size_t i;
    const json_t *m;
    json_array_foreach(list, i, m) {
        const json_t *parts = json_object_get(m, "parts");
        if (uimessage_is(m, "role", "user"))
            (void)json_array_append_new(
                out, json_pack("{s:s,s:o}", "role", "user", "content", user_content(parts)));
        else if (uimessage_is(m, "role", "assistant"))
            add_assistant(out, parts);
    }
    return out;
}

/* --- building --- */

json_t *uimessage_new(const char *id) {
    return json_pack("{s:s,s:s,s:[]}", "id", id, "role", "assistant", "parts");
}

static json_t *parts_of(json_t *message) {
    return json_object_get(message, "parts");
}

void uimessage_settle(json_t *message, const char *error) {
    _cleanup_(json) json_t *text = json_string(error);
    size_t i;
    json_t *p;
    json_array_foreach(parts_of(message), i, p) {
        if (!is_tool_part(p) || !uimessage_is(p, "state", "input-available"))
            continue;
        (void)json_object_set_new(p, "state", json_string("output-error"));
        (void)json_object_set(p, "errorText", text);
    }
}

void uimessage_add_note(json_t *message, const char *text) {
    (void)json_array_append_new(parts_of(message), json_pack("{s:s,s:s,s:s}", "type", "text",
                                                             "text", text, "state", "done"));
}
