#include "coder/reply.h"

#include "base/cleanup.h"

#include <string.h>

enum { VALUES_MAX = 20000, TOOL_NAME_MAX = 64 };

static int coder_reply_malformed(struct err *err, const char *what) {
    return err_set(err, ERR_BAD_REQUEST, "%s", what);
}

static int read_done(struct coder_reply *r, struct err *err) {
    static const char *const keys[] = {"done", "summary", "thought", NULL};
    int rc = json_check_keys(r->json, "the reply", keys, err);
    if (rc < 0)
        return rc;
    if (!json_is_true(json_object_get(r->json, "done")))
        return coder_reply_malformed(err, "\"done\" must be true; to go on, reply with a tool");
    r->done = true;
    r->summary = json_object_get(r->json, "summary");
    if (!json_is_string(r->summary))
        return coder_reply_malformed(err, "\"summary\" must be a string");
    return 0;
}

static int coder_reply_read_tool(struct coder_reply *r, struct err *err) {
    static const char *const keys[] = {"tool", "args", "thought", NULL};
    int rc = json_check_keys(r->json, "the reply", keys, err);
    if (rc < 0)
        return rc;
    r->tool = json_object_get(r->json, "tool");
    r->args = json_object_get(r->json, "args");
    if (!json_is_string(r->tool) || json_string_length(r->tool) == 0 ||
        json_string_length(r->tool) > TOOL_NAME_MAX ||
        strlen(json_string_value(r->tool)) != json_string_length(r->tool))
        return coder_reply_malformed(err, "\"tool\" must be the name of a tool");
    if (!json_is_object(r->args))
        return coder_reply_malformed(err, "\"args\" must be a JSON object");
    return 0;
}

static int read_reply(const char *text, size_t len, struct coder_reply *r, struct err *err) {
    if (len == 0)
        return coder_reply_malformed(err, "the reply is empty");
    if (len >= 3 && memcmp(text, "```", 3) == 0)
        return coder_reply_malformed(
            err, "the reply is fenced in Markdown; it must be the bare JSON object");
    if (text[0] != '{')
        return coder_reply_malformed(
            err, "the reply does not begin with \"{\"; it must be one JSON object and "
                 "nothing else");
    if (json_has_more_values(text, len, VALUES_MAX))
        return err_set(err, ERR_BAD_REQUEST, "the reply has more than %d values", VALUES_MAX);
    int rc = json_parse(text, len, "the reply", &r->json, err);
    if (rc < 0)
        return rc;
    if (!json_is_valid(text, len)) /* which has a smaller limit of depth */
        return coder_reply_malformed(err, "the reply is nested too deep");
    r->thought = json_object_get(r->json, "thought");
    if (r->thought && !json_is_string(r->thought))
        return coder_reply_malformed(err, "\"thought\" must be a string");
    bool done = json_object_get(r->json, "done") != NULL;
    if (!done && !json_object_get(r->json, "tool"))
        return coder_reply_malformed(err, "the reply has neither \"tool\" nor \"done\"");
    return done ? read_done(r, err) : coder_reply_read_tool(r, err);
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

int coder_reply_parse(const char *text, size_t len, struct coder_reply *ret, struct err *err) {
    struct coder_reply r = {0};
    while (len > 0 && is_space(text[0])) {
        text++;
        len--;
    }
    while (len > 0 && is_space(text[len - 1]))
        len--;
    int rc = read_reply(text, len, &r, err);
    if (rc < 0) {
        coder_reply_finish(&r);
        return rc;
    }
    *ret = r;
    return 0;
}

void coder_reply_finish(struct coder_reply *r) {
    json_decref(r->json);
    *r = (struct coder_reply){0};
}
