#include "front/config/check.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/mem.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* --- lines: the reader of JSON does not keep them --- */

static const char *config_check_skip_space(const char *p) {
    return p + strspn(p, " \t\r\n");
}

/* p is at a quotation mark; returns what is behind the closing one. */
static const char *config_check_skip_string(const char *p) {
    for (p++; *p && *p != '"'; p++)
        if (*p == '\\' && p[1])
            p++;
    return *p ? p + 1 : p;
}

static const char *skip_value(const char *p) {
    size_t depth = 0;
    do {
        if (*p == '"') {
            p = config_check_skip_string(p);
        } else {
            depth += *p == '{' || *p == '[';
            depth -= depth > 0 && (*p == '}' || *p == ']');
            p += *p != 0;
        }
    } while (*p && (depth > 0 || !strchr(",}]", *p)));
    return p;
}

/* p is at an object. The key's place, and that of its value. */
static const char *find_key(const char *p, const char *key, const char **ret_value) {
    size_t n = strlen(key);
    p = config_check_skip_space(p);
    if (*p != '{')
        return NULL;
    for (p = config_check_skip_space(p + 1); *p == '"';
         p = config_check_skip_space(p + (*p == ','))) {
        const char *name = p;
        p = config_check_skip_space(config_check_skip_string(p));
        *ret_value = config_check_skip_space(p + (*p == ':'));
        if (strncmp(name + 1, key, n) == 0 && name[n + 1] == '"')
            return name;
        p = config_check_skip_space(skip_value(*ret_value));
    }
    return NULL;
}

size_t config_line(const char *text, const char *section, const char *key) {
    const char *value = text;
    const char *at = text;
    if (section)
        at = find_key(text, section, &value);
    if (at && key)
        at = find_key(value, key, &value);
    size_t line = 1;
    for (const char *p = text; at && p < at; p++)
        line += *p == '\n';
    return at ? line : 0;
}

/* --- mistakes --- */

struct check {
    const char *text;
    int found;
    void (*on_mistake)(void *ctx, const struct config_mistake *m);
    void *ctx;
};

static void config_check_tell(struct check *c, const char *section, const char *key,
                              const char *message) {
    _cleanup_(free) char *name = section && key   ? xasprintf("%s.%s", section, key)
                                 : section || key ? xstrdup(section ? section : key)
                                                  : NULL;
    c->found++;
    c->on_mistake(c->ctx, &(struct config_mistake){.line = config_line(c->text, section, key),
                                                   .key = name,
                                                   .message = message});
}

/* section NULL: the settings as a whole. */
static bool is_right(const char *section, json_t *values, struct err *err) {
    struct config c;
    config_init(&c);
    _cleanup_(json) json_t *root =
        section ? json_pack("{s:O}", section, values) : json_incref(values);
    int rc = config_read_tree(&c, root, err);
    config_finish(&c);
    return rc == 0;
}

/* Without it, all would be right, or something else be wrong. */
static bool is_cause(const char *section, const json_t *values, const char *key,
                     const char *message) {
    struct err other;
    _cleanup_(json) json_t *rest = json_copy((json_t *)(uintptr_t)values);
    (void)json_object_del(rest, key);
    return is_right(section, rest, &other) || strcmp(other.message, message) != 0;
}

/* One mistake after the other is told and left out, so that every one is found. */
static void check_values(struct check *c, const char *section, const json_t *values) {
    struct err err;
    _cleanup_(json) json_t *left = json_copy((json_t *)(uintptr_t)values);
    while (!is_right(section, left, &err)) {
        const char *key = NULL;
        const char *cause = NULL;
        json_t *v;
        json_object_foreach(left, key, v) {
            if (!cause && is_cause(section, left, key, err.message))
                cause = key;
        }
        config_check_tell(c, section, cause, err.message);
        if (!cause)
            return;
        _cleanup_(free) char *name = xstrdup(cause);
        (void)json_object_del(left, name);
    }
}

static bool is_section(const char *name) {
    struct config c;
    struct setting table[SETTINGS_MAX];
    const char *section;
    bool found = false;
    config_init(&c);
    for (size_t i = 0; (void)config_table(&c, i, &section, table), section; i++)
        found = found || strcmp(section, name) == 0;
    config_finish(&c);
    return found;
}

static void check_tree(struct check *c, const json_t *root) {
    const char *key;
    json_t *v;
    _cleanup_(json) json_t *rest = json_copy((json_t *)(uintptr_t)root);
    json_object_foreach((json_t *)(uintptr_t)root, key, v) {
        if (json_is_object(v) && is_section(key)) {
            check_values(c, key, v);
            (void)json_object_del(rest, key);
        }
    }
    check_values(c, NULL, rest);
}

int config_check(const char *path, void (*on_mistake)(void *ctx, const struct config_mistake *m),
                 void *ctx, struct err *err) {
    _cleanup_(buf) struct buf text;
    int rc = config_read_text(path, &text, err);
    if (rc < 0)
        return rc;
    struct check c = {.text = text.data ? text.data : "", .on_mistake = on_mistake, .ctx = ctx};
    _cleanup_(json) json_t *root = NULL;
    struct err wrong;
    if (json_parse(c.text, text.len, path, &root, &wrong) < 0) {
        on_mistake(ctx, &(struct config_mistake){.message = wrong.message});
        return 1;
    }
    if (!json_is_object(root)) {
        on_mistake(ctx, &(struct config_mistake){.line = 1,
                                                 .message = "the settings must be a JSON object"});
        return 1;
    }
    check_tree(&c, root);
    return c.found;
}

/* --- what is in force --- */

struct show {
    struct config *config;
    const char *text; /* of the file, or NULL */
    const char *file;
    void (*on_value)(void *ctx, const struct config_value *v);
    void *ctx;
};

static char *source_of(const struct show *s, const char *section, const char *key) {
    size_t line = s->text ? config_line(s->text, section, key) : 0;
    return line > 0 ? xasprintf("%s:%zu", s->file, line) : xstrdup("default");
}

static void show_number(const struct show *s, const char *section, const struct setting *n) {
    _cleanup_(free) char *key = xasprintf("%s.%s", section, n->key);
    _cleanup_(free) char *value = xasprintf("%lld", (long long)setting_get(n));
    _cleanup_(free) char *source = source_of(s, section, n->key);
    bool time = strcmp(key, "execute.timeout_ms") == 0 && getenv("MAX_EXECUTION_TIME");
    s->on_value(s->ctx, &(struct config_value){
                            .key = key,
                            .value = value,
                            .source = time ? "MAX_EXECUTION_TIME in the environment" : source});
}

static void show_other(const struct show *s, const char *section, const char *key,
                       const json_t *value) {
    _cleanup_(free) char *name = section ? xasprintf("%s.%s", section, key) : xstrdup(key);
    _cleanup_(free) char *source = source_of(s, section, key);
    _cleanup_(json) json_t *safe = config_hide_secrets(value);
    char *text = json_dumps(safe, JSON_COMPACT | JSON_ENCODE_ANY);
    s->on_value(s->ctx, &(struct config_value){.key = name, .value = text, .source = source});
    free(text);
}

static void show_section(const struct show *s, const char *section, const struct setting *table,
                         size_t n) {
    const char *key;
    json_t *v;
    for (size_t i = 0; i < n; i++)
        show_number(s, section, &table[i]);
    json_object_foreach(json_object_get(s->config->tree, section), key, v) {
        size_t i = 0;
        while (i < n && strcmp(table[i].key, key) != 0)
            i++;
        if (i == n)
            show_other(s, section, key, v);
    }
}

/* Of those that the file does not name, where the default is more than "none". */
static json_t *default_of(const struct config *c, const char *key) {
    if (strcmp(key, "listen") == 0)
        return json_pack("[s]", c->listen[0]);
    if (strcmp(key, "data_dir") == 0)
        return json_string(c->data_dir);
    if (strcmp(key, "log_level") == 0)
        return json_string("info");
    if (strcmp(key, "require_key") == 0)
        return json_false();
    if (strcmp(key, "user") == 0)
        return json_string("cay");
    return NULL;
}

int config_show(struct config *c, const char *path,
                void (*on_value)(void *ctx, const struct config_value *v), void *ctx,
                struct err *err) {
    _cleanup_(buf) struct buf text = {0};
    int rc = path ? config_read_text(path, &text, err) : 0;
    if (rc < 0)
        return rc;
    struct show s = {
        .config = c, .text = text.data, .file = path, .on_value = on_value, .ctx = ctx};
    for (size_t i = 0; config_keys[i]; i++) {
        json_t *v = json_object_get(c->tree, config_keys[i]);
        _cleanup_(json) json_t *value = v ? json_incref(v) : default_of(c, config_keys[i]);
        if (value && !is_section(config_keys[i]))
            show_other(&s, NULL, config_keys[i], value);
    }
    const char *section;
    struct setting table[SETTINGS_MAX];
    size_t n;
    for (size_t i = 0; n = config_table(c, i, &section, table), section; i++)
        show_section(&s, section, table, n);
    return 0;
}
