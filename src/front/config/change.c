#include "base/cleanup.h"
#include "base/mem.h"
#include "front/config/config.h"

#include <stdlib.h>
#include <string.h>

struct taking {
    struct config *now;
    struct config *next;
    json_t *tree; /* what will be in force: of what needs a restart, as it was */
    void (*on_change)(void *ctx, const char *key, const char *from, const char *to, bool applied);
    void *ctx;
};

static void take_numbers(const struct taking *t, const char *section, const struct setting *now,
                         const struct setting *next, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int64_t from = setting_get(&now[i]);
        int64_t to = setting_get(&next[i]);
        if (from == to)
            continue;
        if (!now[i].fixed)
            setting_set(&now[i], to);
        _cleanup_(free) char *key = xasprintf("%s.%s", section, now[i].key);
        _cleanup_(free) char *before = xasprintf("%lld", (long long)from);
        _cleanup_(free) char *after = xasprintf("%lld", (long long)to);
        t->on_change(t->ctx, key, before, after, !now[i].fixed);
    }
}

static void swap_list(char ***a, size_t *na, char ***b, size_t *nb) {
    char **list = *a;
    size_t n = *na;
    *a = *b;
    *na = *nb;
    *b = list;
    *nb = n;
}

static bool take_key(const struct taking *t, const char *key) {
    struct config *now = t->now;
    struct config *next = t->next;
    if (strcmp(key, "hosts") == 0)
        swap_list(&now->hosts, &now->nhosts, &next->hosts, &next->nhosts);
    else if (strcmp(key, "origins") == 0)
        swap_list(&now->origins, &now->norigins, &next->origins, &next->norigins);
    else if (strcmp(key, "proxies") == 0)
        swap_list(&now->proxies, &now->nproxies, &next->proxies, &next->nproxies);
    else if (strcmp(key, "require_key") == 0)
        now->require_key = next->require_key;
    else if (strcmp(key, "log_level") == 0)
        now->log_level = next->log_level;
    else
        return false;
    return true;
}

static bool config_change_is_number(const struct setting *table, size_t n, const char *key) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(table[i].key, key) == 0)
            return true;
    return false;
}

#define HIDDEN "(hidden)"

/* "${NAME}", also after one word: it names a secret and holds none. */
static bool is_reference(const char *text) {
    size_t word = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
    const char *at = word > 0 && text[word] == ' ' ? text + word + 1 : text;
    const char *end = strncmp(at, "${", 2) == 0 ? strchr(at, '}') : NULL;
    return end && !end[1];
}

/* A URL without user and query; NULL: there is nothing to hide in the text. */
static char *hide_in_url(const char *text) {
    const char *host = strstr(text, "://");
    if (!host)
        return NULL;
    host += 3;
    size_t authority = strcspn(host, "/?#");
    const char *user = memrchr(host, '@', authority);
    const char *query = strchr(host, '?');
    if (!user && !query)
        return NULL;
    int scheme = (int)(host - text);
    const char *rest = user ? user : host;
    int len = (int)(query && query > rest ? (size_t)(query - rest) : strlen(rest));
    return xasprintf("%.*s%s%.*s%s", scheme, text, user ? HIDDEN : "", len, rest,
                     query ? "?" HIDDEN : "");
}

static json_t *hide_in(const json_t *v, bool headers) {
    size_t i;
    const char *key;
    json_t *item;
    if (json_is_string(v)) {
        const char *text = json_string_value(v);
        if (headers && !is_reference(text))
            return json_string(HIDDEN);
        _cleanup_(free) char *safe = hide_in_url(text);
        return json_text(safe ? safe : text);
    }
    if (!json_is_object(v) && !json_is_array(v))
        return json_incref((json_t *)(uintptr_t)v);
    json_t *copy = json_is_object(v) ? json_object() : json_array();
    json_array_foreach(v, i, item) {
        (void)json_array_append_new(copy, hide_in(item, headers));
    }
    json_object_foreach((json_t *)(uintptr_t)v, key, item) {
        (void)json_object_set_new(copy, key, hide_in(item, headers || strcmp(key, "headers") == 0));
    }
    return copy;
}

json_t *config_hide_secrets(const json_t *value) {
    return value ? hide_in(value, false) : NULL;
}

static char *config_change_shown(const json_t *v) {
    _cleanup_(json) json_t *safe = config_hide_secrets(v);
    char *text = safe ? json_dumps(safe, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    char *copy = xstrdup(text ? text : "its default");
    free(text);
    return copy;
}

static void keep_key(json_t *tree, const char *section, const char *key, const json_t *value) {
    if (section && !json_object_get(tree, section))
        (void)json_object_set_new(tree, section, json_object());
    json_t *at = section ? json_object_get(tree, section) : tree;
    if (value)
        (void)json_object_set(at, key, (json_t *)(uintptr_t)value);
    else
        (void)json_object_del(at, key);
}

/* What is no number: compared as it was written. prefix: the section, or NULL. */
static void take_key_if_changed(const struct taking *t, const char *prefix, const char *key,
                                const json_t *from, const json_t *to) {
    if (from == to || (from && to && json_equal(from, to)))
        return;
    bool applied = !prefix && take_key(t, key);
    if (!applied)
        keep_key(t->tree, prefix, key, from);
    _cleanup_(free) char *name = xasprintf("%s%s%s", prefix ? prefix : "", prefix ? "." : "", key);
    _cleanup_(free) char *before = config_change_shown(from);
    _cleanup_(free) char *after = config_change_shown(to);
    t->on_change(t->ctx, name, before, after, applied);
}

static void take_section(const struct taking *t, const char *section, const struct setting *table,
                         size_t n) {
    const json_t *from = json_object_get(t->now->tree, section);
    const json_t *to = json_object_get(t->next->tree, section);
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)from, key, v) {
        if (!config_change_is_number(table, n, key))
            take_key_if_changed(t, section, key, v, json_object_get(to, key));
    }
    json_object_foreach((json_t *)(uintptr_t)to, key, v) {
        if (!config_change_is_number(table, n, key) && !json_object_get(from, key))
            take_key_if_changed(t, section, key, NULL, v);
    }
}

void config_take_over(struct config *now, struct config *next,
                      void (*on_change)(void *ctx, const char *key, const char *from,
                                        const char *to, bool applied),
                      void *ctx) {
    struct taking t = {.now = now, .next = next, .on_change = on_change, .ctx = ctx};
    t.tree = next->tree ? json_deep_copy(next->tree) : json_object();
    const char *section;
    struct setting a[SETTINGS_MAX];
    struct setting b[SETTINGS_MAX];
    size_t n;
    for (size_t i = 0; n = config_table(now, i, &section, a), section; i++) {
        (void)config_table(next, i, &section, b);
        take_numbers(&t, section, a, b, n);
        take_section(&t, section, a, n);
    }
    for (size_t i = 0; config_keys[i]; i++) {
        const json_t *from = json_object_get(now->tree, config_keys[i]);
        const json_t *to = json_object_get(next->tree, config_keys[i]);
        bool is_section = false;
        for (size_t k = 0; (void)config_table(now, k, &section, a), section; k++)
            is_section = is_section || strcmp(section, config_keys[i]) == 0;
        if (!is_section)
            take_key_if_changed(&t, NULL, config_keys[i], from, to);
    }
    json_decref(now->tree);
    now->tree = t.tree;
}
