#include "front/config/config.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/common/caller.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONFIG_MAX_BYTES = 1 << 20 };

void config_init(struct config *c) {
    *c = (struct config){.log_level = LOG_LEVEL_INFO,
                         .call_filter = true,
                         .http = http_limits_default(),
                         .agents = agent_limits_default(),
                         .runner = runner_config_default(),
                         .sandboxes = sandbox_settings_default(),
                         .store = store_settings_default(),
                         .tasks = task_settings_default(),
                         .execute = execute_settings_default(),
                         .drain_timeout_ms = LIMIT_DRAIN_TIMEOUT_MS,
                         .coder_max_steps = LIMIT_CODER_MAX_STEPS,
                         .address_per_minute = LIMIT_ADDRESS_PER_MINUTE,
                         .keys = LIMIT_KEYS};
}

static void free_list(char **list, size_t n) {
    for (size_t i = 0; i < n; i++)
        free(list[i]);
    free(list);
}

void config_finish(struct config *c) {
    free_list(c->listen, c->nlisten);
    free_list(c->hosts, c->nhosts);
    free_list(c->origins, c->norigins);
    free_list(c->proxies, c->nproxies);
    free_list(c->tail_origins, c->ntail_origins);
    task_settings_finish(&c->tasks);
    free(c->data_dir);
    free(c->web_dir);
    free(c->agents_dir);
    free(c->coders_dir);
    json_decref(c->coders);
    free(c->models_file);
    free(c->model);
    free(c->user);
    free(c->file);
    json_decref(c->tree);
    sandbox_settings_finish(&c->sandboxes);
    execute_settings_finish(&c->execute);
    *c = (struct config){0};
}

static void config_add(char ***list, size_t *n, const char *text) {
    *list = xrealloc(*list, (*n + 1) * sizeof(**list));
    (*list)[(*n)++] = xstrdup(text);
}

int config_parse_address(const char *address, char *ret_host, size_t size, unsigned *ret_port,
                         struct err *err) {
    const char *colon = strrchr(address, ':');
    char *end = NULL;
    bool digit = colon && colon[1] >= '0' && colon[1] <= '9'; /* no sign, no space */
    unsigned long port = digit ? strtoul(colon + 1, &end, 10) : 65536;
    size_t n = colon ? (size_t)(colon - address) : 0;
    if (n == 0 || port > 65535 || *end)
        return err_set(err, ERR_BAD_REQUEST,
                       "\"%.200s\" is no address: write HOST:PORT (127.0.0.1:8787, [::1]:8787) or "
                       "unix:PATH",
                       address);
    if (address[0] == '[' && address[n - 1] == ']') {
        address++;
        n -= 2;
    }
    if (n == 0 || n >= size)
        return err_set(err, ERR_BAD_REQUEST, "\"%.200s\" is no address", address);
    memcpy(ret_host, address, n);
    ret_host[n] = 0;
    *ret_port = (unsigned)port;
    return 0;
}

static int check_address(const char *address, struct err *err) {
    char host[256];
    unsigned port;
    if (strncmp(address, "unix:", 5) != 0)
        return config_parse_address(address, host, sizeof(host), &port, err);
    if (address[5] == 0)
        return err_set(err, ERR_BAD_REQUEST, "\"unix:\" needs a path after it");
    return 0;
}

int config_add_listen(struct config *c, const char *address, struct err *err) {
    int rc = check_address(address, err);
    if (rc < 0)
        return rc;
    config_add(&c->listen, &c->nlisten, address);
    return 0;
}

static int read_strings(const json_t *root, const char *key, char ***list, size_t *n,
                        struct err *err) {
    const json_t *v = json_object_get(root, key);
    if (!v)
        return 0;
    size_t count = json_is_array(v) ? json_array_size(v) : 1;
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_is_array(v) ? json_array_get(v, i) : v;
        const char *text = json_string_value(item);
        if (!text || strlen(text) != json_string_length(item))
            return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be a list of strings", key);
        config_add(list, n, text);
    }
    return 0;
}

/* A limit by its name in limits.h, in lower case. */
static size_t limits_table(struct config *c, struct setting out[SETTINGS_MAX]) {
    const struct setting table[] = {
        SETTING("head_bytes", c->http.head_bytes, 1024, 1 << 20),
        SETTING("body_bytes", c->http.body_bytes, 1024, (int64_t)1 << 32),
        SETTING_FIXED("connections", c->http.connections, 1, 1000000),
        SETTING("ws_message_bytes", c->http.ws_message_bytes, 1024, 1 << 30),
        SETTING("header_timeout_ms", c->http.header_timeout_ms, 100, 3600000),
        SETTING("body_pace_bytes", c->http.body_pace_bytes, 1, (int64_t)1 << 30),
        SETTING("held_bytes", c->http.held_bytes, 1 << 20, (int64_t)1 << 40),
        SETTING("body_timeout_ms", c->http.body_timeout_ms, 100, 3600000),
        SETTING("idle_timeout_ms", c->http.idle_timeout_ms, 100, 3600000),
        SETTING("write_timeout_ms", c->http.write_timeout_ms, 100, 3600000),
        SETTING("drain_timeout_ms", c->drain_timeout_ms, 0, 3600000),
        SETTING("address_per_minute", c->address_per_minute, 0, 1000000000),
        SETTING("keys", c->keys, 0, 100000),
        SETTING("key_per_minute", c->key_per_minute, 0, 1000000000),
        SETTING("coder_max_steps", c->coder_max_steps, 1, LIMIT_CODER_MAX_STEPS_MAX),
        SETTING("agent_turns", c->agents.turns, 1, 10000),
        SETTING("agent_messages", c->agents.messages, 1, 1000000),
        SETTING("agent_message_bytes", c->agents.message_bytes, 1024, 1 << 30),
        SETTING("agent_history_bytes", c->agents.history_bytes, 1024, 1 << 30),
        SETTING("agent_context_bytes", c->agents.context_bytes, 1024, 1 << 30),
        SETTING("agent_stream_bytes", c->agents.stream_bytes, 1024, 1 << 30),
        SETTING("agent_tool_bytes", c->agents.tool_bytes, 1024, 1 << 30),
        SETTING("agent_instances", c->agents.instances, 1, 10000000),
    };
    _Static_assert(ARRAY_LEN(table) + 32 <= SETTINGS_MAX, "room for those of the runner");
    memcpy(out, table, sizeof(table));
    return ARRAY_LEN(table) + runner_config_table(&c->runner, out + ARRAY_LEN(table));
}

static int config_read_limits(struct config *c, const json_t *obj, struct err *err) {
    struct setting table[SETTINGS_MAX];
    size_t n = limits_table(c, table);
    int rc = obj ? settings_check_keys(table, n, NULL, obj, "\"limits\"", err) : 0;
    return rc < 0 ? rc : settings_read(table, n, obj, err);
}

size_t config_table(struct config *c, size_t section, const char **ret_name,
                    struct setting out[SETTINGS_MAX]) {
    static const char *const names[] = {"limits", "sandboxes", "store", "execute", "tasks"};
    *ret_name = section < ARRAY_LEN(names) ? names[section] : NULL;
    switch (section) {
    case 0:
        return limits_table(c, out);
    case 1:
        return sandbox_settings_table(&c->sandboxes, out);
    case 2:
        return store_settings_table(&c->store, out);
    case 3:
        return execute_settings_table(&c->execute, out);
    case 4:
        return task_settings_table(&c->tasks, out);
    default:
        return 0;
    }
}

static int read_str(const json_t *root, const char *key, char **ret, struct err *err) {
    const char *v = NULL;
    int rc = json_get_str(root, key, &v, err);
    if (rc == 0 && v) {
        free(*ret);
        *ret = xstrdup(v);
    }
    return rc;
}

/* An origin is all up to the path: with one, a prefix would be meant. */
static int check_origin(const char *origin, struct err *err) {
    const char *host = strstr(origin, "://");
    bool http = strncmp(origin, "http://", 7) == 0 || strncmp(origin, "https://", 8) == 0;
    if (http && host[3] && !strpbrk(host + 3, "/?#@ "))
        return 0;
    return err_set(err, ERR_BAD_REQUEST,
                   "\"tail_origins\": \"%.200s\" is no origin such as \"https://example.org\" or "
                   "\"http://127.0.0.1:9000\"",
                   origin);
}

/* Their names are looked at when the agents are known. */
static int read_coders(struct config *c, json_t *coders, struct err *err) {
    if (coders && !json_is_object(coders))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"coders\" must be an object: {\"claude-code\": \"/path\"}");
    json_decref(c->coders);
    c->coders = json_incref(coders);
    return 0;
}

const char *const config_keys[] = {
    "listen",    "data_dir",  "web_dir",     "agents_dir",   "models_file", "model",
    "user",      "hosts",     "origins",     "tail_origins", "limits",      "require_key",
    "log_level", "sandboxes", "store",       "coders_dir",   "coders",      "execute",
    "tasks",     "$schema",   "call_filter", "proxies",      NULL};

int config_read_tree(struct config *c, const json_t *root, struct err *err) {
    int rc = json_check_keys(root, "the settings", config_keys, err);
    const char *level = NULL;
    if (rc == 0)
        rc = read_strings(root, "listen", &c->listen, &c->nlisten, err);
    if (rc == 0)
        rc = read_strings(root, "hosts", &c->hosts, &c->nhosts, err);
    if (rc == 0)
        rc = read_strings(root, "origins", &c->origins, &c->norigins, err);
    if (rc == 0)
        rc = read_strings(root, "proxies", &c->proxies, &c->nproxies, err);
    for (size_t i = 0; rc == 0 && i < c->nproxies; i++)
        if ((rc = caller_net_check(c->proxies[i], err)) < 0)
            rc = err_wrap(err, "\"proxies\"");
    if (rc == 0)
        rc = read_strings(root, "tail_origins", &c->tail_origins, &c->ntail_origins, err);
    for (size_t i = 0; rc == 0 && i < c->ntail_origins; i++)
        rc = check_origin(c->tail_origins[i], err);
    if (rc == 0)
        rc = read_str(root, "data_dir", &c->data_dir, err);
    if (rc == 0)
        rc = read_str(root, "web_dir", &c->web_dir, err);
    if (rc == 0)
        rc = read_str(root, "agents_dir", &c->agents_dir, err);
    if (rc == 0)
        rc = read_str(root, "coders_dir", &c->coders_dir, err);
    if (rc == 0)
        rc = read_coders(c, json_object_get(root, "coders"), err);
    if (rc == 0)
        rc = read_str(root, "models_file", &c->models_file, err);
    if (rc == 0)
        rc = read_str(root, "model", &c->model, err);
    if (rc == 0)
        rc = read_str(root, "user", &c->user, err);
    if (rc == 0)
        rc = json_get_bool(root, "require_key", &c->require_key, err);
    if (rc == 0)
        rc = json_get_bool(root, "call_filter", &c->call_filter, err);
    if (rc == 0)
        rc = json_get_str(root, "log_level", &level, err);
    if (rc == 0 && level && !log_level_parse(level, &c->log_level))
        rc = err_set(err, ERR_BAD_REQUEST, "\"log_level\" must be debug, info, warn, error or off");
    if (rc == 0)
        rc = config_read_limits(c, json_object_get(root, "limits"), err);
    if (rc == 0)
        rc = sandbox_settings_read(&c->sandboxes, json_object_get(root, "sandboxes"), err);
    if (rc == 0)
        rc = store_settings_read(&c->store, json_object_get(root, "store"), err);
    if (rc == 0)
        rc = task_settings_read(&c->tasks, json_object_get(root, "tasks"), err);
    if (rc == 0)
        rc = execute_settings_read(&c->execute, json_object_get(root, "execute"), err);
    for (size_t i = 0; rc == 0 && i < c->nlisten; i++)
        if ((rc = check_address(c->listen[i], err)) < 0)
            rc = err_wrap(err, "\"listen\"");
    return rc;
}

static const char *config_if_readable(const char *path) {
    return faccessat(AT_FDCWD, path, R_OK, 0) == 0 ? path : NULL;
}

const char *config_machine_file(void) {
    return config_if_readable("/etc/cay/cay.json");
}

const char *config_usual_file(void) {
    const char *here = config_if_readable("cay.json");
    return here ? here : config_machine_file();
}

/* Settings are explained where they are made; JSON has no way to do that. */
static void config_blank_comments(char *text, size_t len) {
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        if (in_string && text[i] == '\\') {
            i++;
        } else if (text[i] == '"') {
            in_string = !in_string;
        } else if (text[i] == '\n') {
            in_string = false; /* not closed: the parser says so, with its line */
        } else if (!in_string &&
                   (text[i] == '#' || (text[i] == '/' && i + 1 < len && text[i + 1] == '/'))) {
            while (i < len && text[i] != '\n')
                text[i++] = ' ';
        }
    }
}

int config_read_text(const char *path, struct buf *ret_text, struct err *err) {
    buf_init(ret_text, CONFIG_MAX_BYTES);
    int rc = fd_read_file(AT_FDCWD, path, ret_text, err);
    if (rc < 0)
        return rc;
    if (!ret_text->data)
        (void)buf_add(ret_text, "", 0);
    if (ret_text->data)
        config_blank_comments(ret_text->data, ret_text->len);
    return 0;
}

int config_load(struct config *c, const char *path, struct err *err) {
    if (!path)
        path = config_usual_file();
    if (!path)
        return 0;
    _cleanup_(buf) struct buf text;
    int rc = config_read_text(path, &text, err);
    if (rc < 0)
        return rc;
    _cleanup_(json) json_t *root = NULL;
    rc = json_parse_private(text.data, text.len, path, &root, err);
    if (rc == 0) {
        rc = config_read_tree(c, root, err);
        if (rc < 0)
            rc = err_wrap(err, "%s", path);
    }
    if (rc == 0) {
        c->file = xstrdup(path);
        c->tree = json_incref(root);
    }
    return rc;
}

void config_defaults(struct config *c) {
    if (c->nlisten == 0)
        config_add(&c->listen, &c->nlisten, "127.0.0.1:8787");
    if (c->data_dir)
        return;
    /* Root's own folders are closed to the user that the server changes to. */
    const char *xdg = getenv("XDG_DATA_HOME");
    const char *home = getenv("HOME");
    if (geteuid() == 0)
        c->data_dir = xstrdup("/var/lib/cay");
    else if (xdg && xdg[0] == '/')
        c->data_dir = path_join(xdg, "cay");
    else
        c->data_dir = path_join(home && *home ? home : "/tmp", ".local/share/cay");
}
