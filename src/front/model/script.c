#include "front/model/script.h"

#include "base/cleanup.h"
#include "base/json_table.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum {
    RENDER_MAX_BYTES = 256 * 1024,
    TABLE_ROWS = 50,
    TABLE_COLUMNS = 20,
    REPEAT_MAX = 1000,
    HEAD_BYTES = 600
};

/* --- checking --- */

static int check_call(const json_t *call, struct err *err) {
    struct script_call {
        const char *tool;
        const json_t *input;
    } w = {0};
    static const struct json_field table[] = {JSON_TEXT("tool", struct script_call, tool),
                                              JSON_MAP("input", struct script_call, input)};
    int rc = json_table_read(table, ARRAY_LEN(table), call, "\"call\"", &w, err);
    if (rc == 0 && !w.tool)
        rc = err_set(err, ERR_BAD_REQUEST, "\"call\" needs \"tool\"");
    if (rc == 0 && !w.input)
        rc = err_set(err, ERR_BAD_REQUEST, "\"call\" needs \"input\", an object");
    return rc;
}

static int check_choice(const json_t *step, struct err *err) {
    struct script_step {
        const char *text;
        int64_t repeat;
        const json_t *call;
    } w = {0};
    static const struct json_field table[] = {
        JSON_TEXT("if", struct script_step, text),
        JSON_TEXT("think", struct script_step, text),
        JSON_TEXT("say", struct script_step, text),
        JSON_INT("repeat", struct script_step, repeat, 1, REPEAT_MAX),
        JSON_TEXT("fail", struct script_step, text),
        JSON_TREE("call", struct script_step, call),
    };
    int rc = json_table_read(table, ARRAY_LEN(table), step, "a step", &w, err);
    if (rc == 0 && w.call && !json_is_array(w.call))
        return check_call(w.call, err);
    for (size_t i = 0; rc == 0 && i < json_array_size(w.call); i++)
        rc = check_call(json_array_get(w.call, i), err);
    return rc;
}

static int check_step(const json_t *step, struct err *err) {
    if (!json_is_array(step))
        return check_choice(step, err);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(step); i++)
        rc = check_choice(json_array_get(step, i), err);
    return rc;
}

static int check_script(const json_t *s, struct err *err) {
    struct script_wire {
        const char *when, *example;
        const json_t *steps;
    } w = {0};
    static const struct json_field table[] = {
        JSON_TEXT("when", struct script_wire, when),
        JSON_TEXT("example", struct script_wire, example),
        JSON_LIST("steps", struct script_wire, steps),
    };
    int rc = json_table_read(table, ARRAY_LEN(table), s, "a script", &w, err);
    if (rc < 0)
        return rc;
    regex_t re;
    int bad = w.when ? regcomp(&re, w.when, REG_EXTENDED | REG_ICASE) : REG_BADPAT;
    if (bad) {
        char why[100] = "is missing";
        if (w.when)
            (void)regerror(bad, &re, why, sizeof(why));
        return err_set(err, ERR_BAD_REQUEST, "\"when\": %s", why);
    }
    regfree(&re);
    if (json_array_size(w.steps) == 0)
        return err_set(err, ERR_BAD_REQUEST, "\"steps\" must be a list of at least one step");
    for (size_t i = 0; i < json_array_size(w.steps); i++) {
        rc = check_step(json_array_get(w.steps, i), err);
        if (rc < 0)
            return err_wrap(err, "steps[%zu]", i);
    }
    return 0;
}

int script_check(const json_t *script, struct err *err) {
    static const char *const ways[] = {"say", "think"};
    struct script_file {
        const char *text;
        unsigned preface_as;
        const json_t *scripts, *note;
    } w = {0};
    static const struct json_field table[] = {
        JSON_TEXT("preface", struct script_file, text),
        JSON_ENUM("preface_as", struct script_file, preface_as, ways),
        JSON_TEXT("fallback", struct script_file, text),
        JSON_LIST("scripts", struct script_file, scripts),
        JSON_TREE("note", struct script_file, note),
    };
    int rc = json_table_read(table, ARRAY_LEN(table), script, "the file", &w, err);
    for (size_t i = 0; rc == 0 && i < json_array_size(w.scripts); i++) {
        rc = check_script(json_array_get(w.scripts, i), err);
        if (rc < 0)
            return err_wrap(err, "scripts[%zu]", i);
    }
    return rc;
}

/* --- paths --- */

static json_t *tool_names(const json_t *tools) {
    struct buf b;
    buf_init(&b, RENDER_MAX_BYTES);
    size_t i;
    const json_t *t;
    json_array_foreach(tools, i, t) {
        const char *name = json_string_value(json_object_get(t, "name"));
        (void)buf_addf(&b, "%s%s", i ? ", " : "", name ? name : "");
    }
    json_t *j = json_string(b.data ? b.data : "");
    buf_finish(&b);
    return j;
}

static json_t *example_list(const json_t *script) {
    struct buf b;
    buf_init(&b, RENDER_MAX_BYTES);
    size_t i;
    const json_t *s;
    json_array_foreach(json_object_get(script, "scripts"), i, s) {
        const char *example = json_string_value(json_object_get(s, "example"));
        if (example)
            (void)buf_addf(&b, "- %s\n", example);
    }
    json_t *j = json_string(b.data ? b.data : "");
    buf_finish(&b);
    return j;
}

static json_t *model_script_group(const struct script_scope *scope, size_t i) {
    regmatch_t m = scope->groups[i];
    if (m.rm_so < 0 || m.rm_eo < m.rm_so)
        return NULL;
    return json_stringn(scope->user + m.rm_so, (size_t)(m.rm_eo - m.rm_so));
}

/* The first word of a path. */
static json_t *root_of(const struct script_scope *scope, const char *word) {
    if (isdigit((unsigned char)word[0]) && !word[1])
        return model_script_group(scope, (size_t)(word[0] - '0'));
    if (strcmp(word, "user") == 0)
        return json_string(scope->user);
    if (strcmp(word, "n") == 0)
        return json_integer(scope->n);
    if (strcmp(word, "results") == 0)
        return json_incref((json_t *)scope->results);
    if (strcmp(word, "result") == 0 && json_array_size(scope->results) > 0)
        return json_incref(json_array_get(scope->results, json_array_size(scope->results) - 1));
    if (strcmp(word, "tools") == 0)
        return tool_names(scope->tools);
    if (strcmp(word, "examples") == 0)
        return example_list(scope->script);
    return NULL;
}

/* A step down. A text that is JSON itself is looked into: some tools answer so. */
static json_t *child_of(json_t *from, const char *word) {
    json_t *parsed = NULL;
    struct err ignored;
    if (json_is_string(from) &&
        json_parse(json_string_value(from), json_string_length(from), "", &parsed, &ignored) == 0)
        from = parsed;
    json_t *to = json_is_array(from) ? json_array_get(from, strtoul(word, NULL, 10))
                                     : json_object_get(from, word);
    json_incref(to);
    json_decref(parsed);
    return to;
}

/* The value at "a.b.c", or NULL. The caller's. */
static json_t *value_at(const struct script_scope *scope, const char *path, size_t len) {
    char words[128];
    if (len == 0 || len >= sizeof(words))
        return NULL;
    memcpy(words, path, len);
    words[len] = 0;
    char *rest = words;
    char *word = strsep(&rest, ".");
    json_t *at = root_of(scope, word);
    while (at && (word = strsep(&rest, "."))) {
        json_t *next = child_of(at, word);
        json_decref(at);
        at = next;
    }
    return at;
}

static bool model_script_holds(const struct script_scope *scope, const char *path) {
    _cleanup_(json) json_t *v = value_at(scope, path, strlen(path));
    if (!v || json_is_null(v) || json_is_false(v))
        return false;
    if (json_is_string(v))
        return json_string_length(v) > 0;
    if (json_is_number(v))
        return json_number_value(v) != 0;
    return json_is_true(v) || json_array_size(v) > 0 || json_object_size(v) > 0;
}

/* --- rendering --- */

static void add_plain(const json_t *v, struct buf *out) {
    if (json_is_string(v))
        (void)buf_add(out, json_string_value(v), json_string_length(v));
    else if (v && !json_is_null(v))
        (void)json_dump(v, out);
}

static void add_cell(const json_t *v, struct buf *out) {
    struct buf text;
    buf_init(&text, RENDER_MAX_BYTES);
    add_plain(v, &text);
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c == '|')
            (void)buf_add_char(out, '\\');
        (void)buf_add_char(out, c == '\n' || c == '\r' ? ' ' : c);
    }
    buf_finish(&text);
}

static void add_table(const json_t *rows, struct buf *out) {
    const char *columns[TABLE_COLUMNS];
    size_t n = 0;
    const char *key;
    json_t *value;
    json_object_foreach(json_array_get(rows, 0), key, value) {
        if (n < TABLE_COLUMNS)
            columns[n++] = key;
    }
    if (n == 0) {
        (void)buf_add_str(out, "(no rows)\n");
        return;
    }
    for (size_t i = 0; i < n; i++)
        (void)buf_addf(out, "| %s ", columns[i]);
    (void)buf_add_str(out, "|\n");
    for (size_t i = 0; i < n; i++)
        (void)buf_add_str(out, "| --- ");
    (void)buf_add_str(out, "|\n");
    for (size_t r = 0; r < json_array_size(rows) && r < TABLE_ROWS; r++) {
        for (size_t i = 0; i < n; i++) {
            (void)buf_add_str(out, "| ");
            add_cell(json_object_get(json_array_get(rows, r), columns[i]), out);
            (void)buf_add_char(out, ' ');
        }
        (void)buf_add_str(out, "|\n");
    }
    if (json_array_size(rows) > TABLE_ROWS)
        (void)buf_addf(out, "\n(and %zu more)\n", json_array_size(rows) - TABLE_ROWS);
}

static void add_fence(const json_t *v, struct buf *out) {
    struct buf text;
    buf_init(&text, RENDER_MAX_BYTES);
    add_plain(v, &text);
    /* Longer than any run of backquotes inside, so that the text cannot end its block. */
    size_t longest = 2;
    size_t run = 0;
    for (size_t i = 0; i < text.len; i++) {
        run = text.data[i] == '`' ? run + 1 : 0;
        longest = MAX(longest, run);
    }
    for (size_t i = 0; i <= longest; i++)
        (void)buf_add_char(out, '`');
    (void)buf_addf(out, "\n%s\n", text.data ? text.data : "");
    for (size_t i = 0; i <= longest; i++)
        (void)buf_add_char(out, '`');
    buf_finish(&text);
}

static void add_head(const json_t *v, struct buf *out) {
    struct buf text;
    buf_init(&text, RENDER_MAX_BYTES);
    add_plain(v, &text);
    size_t n = utf8_floor(text.data ? text.data : "", text.len, MIN(text.len, (size_t)HEAD_BYTES));
    (void)buf_add(out, text.data, n);
    (void)buf_add_str(out, n < text.len ? " …" : "");
    buf_finish(&text);
}

/* "A + B" of two whole numbers. */
static void add_sum(const json_t *v, struct buf *out) {
    char *end = NULL;
    long long a = strtoll(json_is_string(v) ? json_string_value(v) : "", &end, 10);
    char op = *(end += strspn(end, " "));
    long long b = op ? strtoll(end + 1, NULL, 10) : 0;
    bool fits = llabs(a) < INT32_MAX && llabs(b) < INT32_MAX;
    if (!fits || (op == '/' && b == 0))
        (void)buf_add_str(out, "not a number");
    else if (op == '/')
        (void)buf_addf(out, "%g", (double)a / (double)b);
    else
        (void)buf_addf(out, "%lld", op == '+' ? a + b : op == '-' ? a - b : a * b);
}

static void add_filtered(const json_t *v, const char *filter, size_t len, struct buf *out) {
    size_t at = out->len;
    bool sql = len == 3 && memcmp(filter, "sql", 3) == 0;
    if (len == 4 && memcmp(filter, "json", 4) == 0) {
        if (v)
            (void)json_dump(v, out);
        else
            (void)buf_add_str(out, "null");
    } else if (len == 5 && memcmp(filter, "table", 5) == 0) {
        add_table(v, out);
    } else if (len == 5 && memcmp(filter, "fence", 5) == 0) {
        add_fence(v, out);
    } else if (len == 5 && memcmp(filter, "count", 5) == 0) {
        (void)buf_addf(out, "%zu", json_array_size(v));
    } else if (len == 4 && memcmp(filter, "head", 4) == 0) {
        add_head(v, out);
    } else if (len == 4 && memcmp(filter, "calc", 4) == 0) {
        add_sum(v, out);
    } else if (sql) {
        for (const char *c = json_is_string(v) ? json_string_value(v) : ""; *c; c++) {
            if (*c == '\'')
                (void)buf_add_char(out, *c);
            (void)buf_add_char(out, *c);
        }
    } else {
        add_plain(v, out);
        if (len == 5 && memcmp(filter, "lower", 5) == 0)
            for (size_t i = at; i < out->len; i++)
                out->data[i] = (char)tolower((unsigned char)out->data[i]);
    }
}

void script_render(const struct script_scope *scope, const char *text, struct buf *out) {
    const char *open;
    while ((open = strstr(text, "{{"))) {
        const char *close = strstr(open, "}}");
        if (!close)
            break;
        (void)buf_add(out, text, (size_t)(open - text));
        const char *path = open + 2;
        const char *bar = memchr(path, '|', (size_t)(close - path));
        _cleanup_(json) json_t *v = value_at(scope, path, (size_t)((bar ? bar : close) - path));
        const char *filter = bar ? bar + 1 : close;
        add_filtered(v, filter, (size_t)(close - filter), out);
        text = close + 2;
    }
    (void)buf_add_str(out, text);
}

json_t *script_render_json(const struct script_scope *scope, const json_t *value) {
    if (json_is_string(value)) {
        struct buf b;
        buf_init(&b, RENDER_MAX_BYTES);
        script_render(scope, json_string_value(value), &b);
        json_t *j = b.full ? NULL : json_stringn(b.data ? b.data : "", b.len);
        buf_finish(&b);
        return j;
    }
    json_t *copy = json_is_object(value) || json_is_array(value) ? json_copy((json_t *)value)
                                                                 : json_deep_copy(value);
    const char *key;
    json_t *v;
    json_object_foreach(json_is_object(value) ? (json_t *)value : NULL, key, v) {
        (void)json_object_set_new(copy, key, script_render_json(scope, v));
    }
    for (size_t i = 0; json_is_array(value) && i < json_array_size(value); i++)
        (void)json_array_set_new(copy, i, script_render_json(scope, json_array_get(value, i)));
    return copy;
}

/* --- choosing --- */

static bool model_script_matches(struct script_scope *scope, const json_t *script) {
    const char *when = json_string_value(json_object_get(script, "when"));
    regex_t re;
    if (!when || regcomp(&re, when, REG_EXTENDED | REG_ICASE) != 0)
        return false;
    bool found = regexec(&re, scope->user, SCRIPT_GROUPS, scope->groups, 0) == 0;
    regfree(&re);
    return found;
}

const json_t *script_step(struct script_scope *scope, size_t answers, bool *ret_matched) {
    const json_t *found = NULL;
    size_t i;
    const json_t *s;
    json_array_foreach(json_object_get(scope->script, "scripts"), i, s) {
        if (!found && model_script_matches(scope, s))
            found = s;
    }
    if (!found)
        for (size_t g = 0; g < SCRIPT_GROUPS; g++)
            scope->groups[g] = (regmatch_t){-1, -1};
    *ret_matched = found != NULL;
    const json_t *step = json_array_get(json_object_get(found, "steps"), answers);
    if (!json_is_array(step))
        return step;
    const json_t *choice;
    json_array_foreach(step, i, choice) {
        const char *path = json_string_value(json_object_get(choice, "if"));
        if (!path || model_script_holds(scope, path))
            return choice;
    }
    return NULL;
}
