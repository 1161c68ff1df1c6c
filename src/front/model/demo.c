/* The built-in model that needs no key: it plays the agent's demo.json (script.h) and says so. The
 * same conversation always gets the same answer, in small pieces with a short pause between them,
 * so that everything a real model makes a page do can be tried offline. */

#include "base/cleanup.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"
#include "front/model/internal.h"
#include "front/model/messages.h"
#include "front/model/script.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 12, USER_MAX_BYTES = 2000, TEXT_MAX_BYTES = 1 << 20 };

static const char preface[] = "*This is the built-in demo: a fixed script, not a language model.* ";
static const char fallback[] =
    "You wrote:\n\n{{user|fence}}\n\nThe script has no answer to that. It understands these, and "
    "plays them for real:\n\n{{examples}}\nFor a real model, set `ANTHROPIC_API_KEY` or "
    "`OPENAI_API_KEY` and start cay again.";
static const char no_scripts[] =
    "You wrote:\n\n{{user|fence}}\n\nThis agent has no script for the demo (a `demo.json` in its "
    "folder), so that is all it can say. For a real model, set `ANTHROPIC_API_KEY` or "
    "`OPENAI_API_KEY` and start cay again.";
static const char at_end[] = "The script ends here.";

struct part {
    enum reply_type type;
    char *name; /* of a tool */
    char *text;
    size_t len;
};

struct demo {
    struct part *parts;
    size_t count;
    size_t part; /* the one being told */
    size_t at;   /* in its text */
    struct err fail;
    bool fails;
};

static void add_part(struct demo *d, enum reply_type type, const char *name, struct buf *text) {
    d->parts = xrealloc(d->parts, (d->count + 1) * sizeof(*d->parts));
    struct part *p = &d->parts[d->count++];
    *p = (struct part){.type = type, .name = name ? xstrdup(name) : NULL};
    p->text = buf_steal(text, &p->len);
}

void demo_destroy(struct demo *d) {
    if (!d)
        return;
    for (size_t i = 0; i < d->count; i++) {
        free(d->parts[i].name);
        free(d->parts[i].text);
    }
    free(d->parts);
    free(d);
}

/* --- what to say --- */

static bool has_tool(const json_t *tools, const char *name) {
    size_t i;
    const json_t *t;
    json_array_foreach(tools, i, t) {
        if (strcmp(messages_str(t, "name"), name) == 0)
            return true;
    }
    return false;
}

static void demo_add_call(struct demo *d, const struct script_scope *scope, const json_t *call) {
    const char *tool = messages_str(call, "tool");
    struct buf text;
    buf_init(&text, TEXT_MAX_BYTES);
    if (!has_tool(scope->tools, tool)) {
        (void)buf_addf(&text, "(Here the script calls the tool `%s`, which this agent has not.)",
                       tool);
        add_part(d, REPLY_TEXT, NULL, &text);
        return;
    }
    _cleanup_(json) json_t *input = script_render_json(scope, json_object_get(call, "input"));
    if (input)
        (void)json_dump(input, &text);
    add_part(d, REPLY_TOOL, tool, &text);
}

static void add_step(struct demo *d, struct script_scope *scope, const json_t *step, bool first) {
    struct buf text;
    const char *think = messages_str(step, "think");
    /* Whoever wrote the script: each turn begins by saying that it is one. */
    const char *own = messages_str(scope->script, "preface");
    const char *before = !first ? "" : *own ? own : preface;
    bool thought = strcmp(messages_str(scope->script, "preface_as"), "think") == 0;
    const char *say = messages_str(step, "say");
    const char *fail = messages_str(step, "fail");
    const json_t *repeat = json_object_get(step, "repeat");
    const json_t *call = json_object_get(step, "call");
    buf_init(&text, TEXT_MAX_BYTES);
    if (*think || (thought && *before)) {
        (void)buf_add_str(&text, thought ? before : "");
        script_render(scope, think, &text);
        add_part(d, REPLY_REASONING, NULL, &text);
    }
    (void)buf_add_str(&text, thought ? "" : before);
    for (int64_t i = 0; *say && i < (repeat ? json_integer_value(repeat) : 1); i++) {
        scope->n = (unsigned)i + 1;
        script_render(scope, say, &text);
    }
    if (text.len > 0)
        add_part(d, REPLY_TEXT, NULL, &text);
    for (size_t i = 0; json_is_array(call) && i < json_array_size(call); i++)
        demo_add_call(d, scope, json_array_get(call, i));
    if (json_is_object(call))
        demo_add_call(d, scope, call);
    if (*fail) {
        script_render(scope, fail, &text);
        d->fails = true;
        (void)err_set(&d->fail, ERR_UPSTREAM, "%.400s", text.data ? text.data : "");
    }
    buf_finish(&text);
}

/* The last message of the user, and what has happened since. */
static size_t read_turn(const json_t *messages, json_t *results, char *user, size_t size) {
    size_t answers = 0;
    user[0] = 0;
    size_t i;
    const json_t *m;
    json_array_foreach(messages, i, m) {
        const char *role = messages_str(m, "role");
        size_t k;
        const json_t *b;
        if (strcmp(role, "assistant") == 0)
            answers++;
        if (strcmp(role, "user") == 0) {
            answers = 0;
            user[0] = 0;
            (void)json_array_clear(results);
        }
        json_array_foreach(json_object_get(m, "content"), k, b) {
            if (strcmp(role, "tool") == 0)
                (void)json_array_append(results, json_object_get(b, "output")
                                                     ? json_object_get(b, "output")
                                                     : json_null());
            else if (strcmp(role, "user") == 0) {
                size_t n = strlen(user);
                (void)text_print(user + n, size - n, "%s%.*s", n ? "\n" : "", (int)(size - n),
                                 messages_str(b, "text")); /* of which there may be megabytes */
            }
        }
    }
    return answers;
}

/* --- telling it --- */

static int tell_piece(struct model_stream *s, struct part *p, size_t len, struct err *err) {
    struct demo *d = s->demo;
    const char *text = p->text + d->at;
    if (p->type == REPLY_TEXT)
        return reply_text(&s->reply, text, len, err);
    if (p->type == REPLY_REASONING)
        return reply_reasoning(&s->reply, text, len, err);
    int64_t index = (int64_t)d->part;
    int rc = 0;
    if (d->at == 0) {
        char id[32];
        (void)snprintf(id, sizeof(id), "demo_%zu", json_object_size(s->ids) + d->part);
        rc = reply_tool_start(&s->reply, index, id, p->name, err);
    }
    return rc < 0 ? rc : reply_tool_delta(&s->reply, index, text, len, err);
}

static size_t piece_len(const struct part *p, size_t at) {
    size_t left = p->len - at;
    size_t n = utf8_floor(p->text + at, left, MIN(left, (size_t)PIECE_BYTES));
    return n > 0 ? n : left;
}

static void demo_on_tick(uv_timer_t *h);

static void wait_for_next(struct model_stream *s) {
    (void)uv_timer_start(&s->timer, demo_on_tick, (uint64_t)s->m->opt.demo_delay_ms, 0);
}

static void demo_on_tick(uv_timer_t *h) {
    struct model_stream *s = h->data;
    struct demo *d = s->demo;
    struct err err;
    stream_enter(s);
    if (d->part < d->count) {
        struct part *p = &d->parts[d->part];
        size_t len = piece_len(p, d->at);
        int rc = tell_piece(s, p, len, &err);
        d->at += len;
        if (rc == 0 && d->at >= p->len) {
            rc = p->type == REPLY_TOOL ? reply_tool_end(&s->reply, (int64_t)d->part, &err)
                                       : reply_close_text(&s->reply, &err);
            d->part++;
            d->at = 0;
        }
        if (rc < 0)
            stream_fail(s, &err, false);
        else
            wait_for_next(s);
    } else if (d->fails) {
        stream_fail(s, &d->fail, false);
    } else {
        s->stop = reply_has_tools(&s->reply) ? MODEL_STOP_TOOL_CALLS : MODEL_STOP_END;
        stream_done(s);
    }
    stream_leave(s);
}

int demo_start(struct model_stream *s, const struct model_request *r, const json_t *messages,
               struct err *err) {
    (void)err;
    char user[USER_MAX_BYTES];
    _cleanup_(json) json_t *results = json_array();
    struct script_scope scope = {
        .script = r->script, .tools = r->tools, .user = user, .results = results};
    struct demo *d = xcalloc(1, sizeof(*d));
    size_t answers = read_turn(messages, results, user, sizeof(user));
    bool matched;
    const json_t *step = script_step(&scope, answers, &matched);
    const char *own = messages_str(r->script, "fallback");
    s->demo = d;
    if (step) {
        add_step(d, &scope, step, answers == 0);
    } else {
        const json_t *any = json_array_get(json_object_get(r->script, "scripts"), 0);
        struct buf text;
        buf_init(&text, TEXT_MAX_BYTES);
        (void)buf_add_str(&text, preface);
        script_render(&scope, matched ? at_end : *own ? own : any ? fallback : no_scripts, &text);
        add_part(d, REPLY_TEXT, NULL, &text);
    }
    /* So that usage is shown; the price is nothing. */
    s->asked_bytes = r->bytes;
    if (r->bytes <= MODEL_AT_ONCE_BYTES)
        (void)json_dump(messages, &s->body);
    wait_for_next(s);
    return 0;
}
