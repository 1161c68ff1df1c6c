#include "front/run/ask.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "front/http/request.h"

#include <stdlib.h>
#include <string.h>

enum { TITLE_BYTES = 80, ASKED_MAX_BYTES = 64 << 10 };

/* Whether a line only opens the function that every program exports. */
static bool only_opens(const char *line, size_t n) {
    static const char word[] = "export default";
    while (n > 0 && strchr(" \t", line[n - 1]))
        n--;
    return n >= sizeof(word) && strncmp(line, word, sizeof(word) - 1) == 0 && line[n - 1] == '{';
}

/* What tells a program from others: its first line or, where that could be any program's, what
 * comes after it, as one line. */
static char *run_ask_make_title(const struct code *c) {
    static const char spaces[] = " \t\r\n";
    if (c->title)
        return xstrndup(c->title, utf8_floor(c->title, strlen(c->title), TITLE_BYTES));
    const char *p = c->main_code ? c->main_code : "";
    p += strspn(p, spaces);
    size_t n = strcspn(p, "\r\n");
    const char *body = p + n + strspn(p + n, spaces);
    if (!*body || !only_opens(p, n))
        return xstrndup(p, utf8_floor(p, n, TITLE_BYTES));
    char line[TITLE_BYTES + 1]; /* one more, by which it is seen where to cut */
    size_t len = 0;
    for (; *body && len < sizeof(line); body++)
        if (!strchr(spaces, *body))
            line[len++] = *body;
        else if (len > 0 && line[len - 1] != ' ')
            line[len++] = ' ';
    return xstrndup(line, utf8_floor(line, len, TITLE_BYTES));
}

/* What the record keeps of the request besides the code; NULL if there is nothing, or too much. */
static json_t *asked_with(const json_t *request) {
    static const char *const keys[] = {"language", "env", "limits"};
    json_t *out = json_object();
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (json_object_get(request, keys[i]))
            (void)json_object_set(out, keys[i], json_object_get(request, keys[i]));
    if (json_object_size(out) > 0 && json_dumpb(out, NULL, 0, JSON_COMPACT) <= ASKED_MAX_BYTES)
        return out;
    json_decref(out);
    return NULL;
}

int run_ask_check(const json_t *body, const struct run_limits *max, struct err *err) {
    struct code code;
    int rc = code_read(&code, body, max, err);
    if (rc == 0)
        code_finish(&code);
    return rc;
}

/* What may be large is in the code then, and goes where it was read. */
static void drop_taken(json_t *body) {
    static const char *const keys[] = {"code", "modules", "args", "props", "env"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        (void)json_object_del(body, keys[i]);
}

int run_ask_read(const char *text, size_t len, const struct run_limits *max,
                 struct run_asked **ret_asked, struct err *err) {
    struct run_asked a = {0};
    int rc = http_read_json(text, len, &a.body, err);
    if (rc == 0)
        rc = code_read(&a.code, a.body, max, err);
    if (rc < 0) {
        json_decref(a.body);
        return rc;
    }
    a.asked = asked_with(a.body);
    drop_taken(a.body);
    *ret_asked = xmalloc(sizeof(a));
    **ret_asked = a;
    return 0;
}

void run_asked_destroy(struct run_asked *a) {
    if (!a)
        return;
    code_finish(&a->code);
    json_decref(a->body);
    json_decref(a->asked);
    free(a);
}

static struct run *run_ask_begin(const struct run_ask *ask, struct code *code,
                                 const struct env *env, struct err *err) {
    _cleanup_(free) char *title = run_ask_make_title(code);
    _cleanup_(json) json_t *asked =
        ask->read ? json_incref(ask->read->asked) : asked_with(ask->body);
    _cleanup_(free) char *domain = code->reset ? code_domain(code, ask->owner) : NULL;
    struct run_request q = {.id = ask->id,
                            .owner = ask->owner,
                            .key = ask->key,
                            .kind = "run",
                            .title = title,
                            .source = code->source.data,
                            .source_len = code->source.len,
                            .source_hash = code->source_hash,
                            .code = code->main_code,
                            .asked = asked,
                            .spec = code->spec.data,
                            .spec_len = code->spec.len,
                            .own_spec = code->id ? NULL : &code->spec,
                            .env = env,
                            .domain = domain,
                            .limits = code->limits,
                            .stores_events = ask->stores_events,
                            .callbacks = ask->callbacks,
                            .ctx = ask->ctx};
    return code->id ? workers_run(ask->workers, code, &q, err)
                    : run_start(ask->runner, ask->jobs, &q, err);
}

static struct run *start_code(const struct run_ask *ask, struct code *code, struct err *err) {
    struct env env = {0};
    struct run *run = NULL;
    if (bindings_make(workers_bindings(ask->workers), ask->owner, ask->key, code, &env, err) == 0) {
        run = run_ask_begin(ask, code, &env, err);
        env_finish(&env);
    }
    return run;
}

struct run *run_ask_start(const struct run_ask *ask, struct err *err) {
    struct code code;
    if (ask->read)
        return start_code(ask, &ask->read->code, err);
    if (code_read(&code, ask->body, &ask->runner->config.limits, err) < 0)
        return NULL;
    struct run *run = start_code(ask, &code, err);
    code_finish(&code);
    return run;
}
