#include "front/sandbox/settings.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/mem.h"
#include "wire/egress.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum { ROOTS_MAX = 64, BINDS_MAX = 64, NAME_MAX_BYTES = 64 };

static uint32_t settings_share_of(uint32_t all) {
    uint32_t share = (uint32_t)((uint64_t)all * LIMIT_SANDBOX_SHARE_PERCENT / 100);
    return share > 0 ? share : 1;
}

struct sandbox_settings sandbox_settings_default(void) {
    return (struct sandbox_settings){.pool = LIMIT_SANDBOX_POOL,
                                     .max = LIMIT_SANDBOXES,
                                     .max_per_key = LIMIT_SANDBOXES_PER_KEY,
                                     .timeout_s = LIMIT_SANDBOX_TIMEOUT_S,
                                     .max_timeout_s = LIMIT_SANDBOX_MAX_TIMEOUT_S,
                                     .memory_mb = LIMIT_SANDBOX_MEMORY_MB,
                                     .disk_mb = LIMIT_SANDBOX_DISK_MB,
                                     .pids = LIMIT_SANDBOX_PIDS,
                                     .output_mb = LIMIT_SANDBOX_OUTPUT_MB,
                                     .outputs_mb = LIMIT_SANDBOX_OUTPUTS_MB,
                                     .execs = LIMIT_SANDBOX_EXECS,
                                     .commands = LIMIT_SANDBOX_COMMANDS,
                                     .commands_per_key = settings_share_of(LIMIT_SANDBOX_COMMANDS),
                                     .keep = LIMIT_SANDBOX_KEEP,
                                     .keep_s = LIMIT_SANDBOX_KEEP_S,
                                     .upload_mb = LIMIT_SANDBOX_UPLOAD_MB,
                                     .snapshot_mb = LIMIT_SANDBOX_SNAPSHOT_MB,
                                     .snapshots_mb = LIMIT_SANDBOX_SNAPSHOTS_MB,
                                     .snapshots_mb_per_key =
                                         settings_share_of(LIMIT_SANDBOX_SNAPSHOTS_MB),
                                     .snapshot_s = LIMIT_SANDBOX_SNAPSHOT_S,
                                     .connections = LIMIT_SANDBOX_CONNECTIONS,
                                     .answer_s = LIMIT_SANDBOX_ANSWER_S,
                                     .events = LIMIT_SANDBOX_EVENTS,
                                     .events_total = LIMIT_SANDBOX_EVENTS_TOTAL,
                                     .uid_base = 200000,
                                     .uid_count = 65536};
}

static bool sandbox_settings_is_name(const char *text) {
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return n > 0 && n <= NAME_MAX_BYTES && text[n] == 0;
}

static int sandbox_settings_check_name(const char *key, const char *name, struct err *err) {
    if (sandbox_settings_is_name(name))
        return 0;
    return err_set(err, ERR_BAD_REQUEST,
                   "\"%s\": the name \"%.80s\" must be 1 to %d letters, digits, \".\", \"_\" or "
                   "\"-\"",
                   key, name, NAME_MAX_BYTES);
}

static int check_path(const char *key, const char *name, const char *path, struct err *err) {
    if (path && path[0] == '/')
        return 0;
    return err_set(err, ERR_BAD_REQUEST, "\"%s\": \"%.80s\" needs an absolute path", key, name);
}

static int read_roots(struct sandbox_settings *s, const json_t *json, struct err *err) {
    const char *name;
    json_t *v;
    if (json && (!json_is_object(json) || json_object_size(json) > ROOTS_MAX))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"roots\" must be an object of at most %d names with a path each",
                       ROOTS_MAX);
    json_object_foreach((json_t *)(uintptr_t)json, name, v) {
        int rc = sandbox_settings_check_name("roots", name, err);
        if (rc == 0)
            rc = check_path("roots", name, json_string_value(v), err);
        if (rc < 0)
            return rc;
        s->roots = xrealloc(s->roots, (s->nroots + 1) * sizeof(*s->roots));
        s->roots[s->nroots++] =
            (struct sandbox_root){.name = xstrdup(name), .path = xstrdup(json_string_value(v))};
    }
    return 0;
}

static int sandbox_settings_read_binds(struct sandbox_settings *s, const json_t *json,
                                       struct err *err) {
    static const char *const keys[] = {"path", "mode", NULL};
    const char *name;
    json_t *v;
    if (json && (!json_is_object(json) || json_object_size(json) > BINDS_MAX))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"binds\" must be an object of at most %d names with {\"path\",\"mode\"}",
                       BINDS_MAX);
    json_object_foreach((json_t *)(uintptr_t)json, name, v) {
        const char *path = NULL;
        const char *mode = "ro";
        int rc = sandbox_settings_check_name("binds", name, err);
        if (rc == 0)
            rc = json_check_keys(v, "a bind", keys, err);
        if (rc == 0)
            rc = json_get_str(v, "path", &path, err);
        if (rc == 0)
            rc = json_get_str(v, "mode", &mode, err);
        if (rc == 0)
            rc = check_path("binds", name, path, err);
        if (rc == 0 && strcmp(mode, "ro") != 0 && strcmp(mode, "rw") != 0)
            rc = err_set(err, ERR_BAD_REQUEST, "\"binds\": \"mode\" is \"ro\" or \"rw\"");
        if (rc < 0)
            return rc;
        s->binds = xrealloc(s->binds, (s->nbinds + 1) * sizeof(*s->binds));
        s->binds[s->nbinds++] = (struct sandbox_bind_setting){
            .name = xstrdup(name), .path = xstrdup(path), .write = mode[1] == 'w', .fd = -1};
    }
    return 0;
}

static int sandbox_settings_read_allow(json_t **ret, const json_t *json, const char *key,
                                       struct err *err) {
    const json_t *list = json_object_get(json, key);
    size_t i;
    const json_t *v;
    if (!list)
        return 0;
    if (!json_is_array(list) || json_array_size(list) > EGRESS_ALLOW_MAX)
        return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be a list of at most %d hosts", key,
                       EGRESS_ALLOW_MAX);
    json_array_foreach(list, i, v) {
        struct egress_allow a;
        const char *text = json_string_value(v);
        if (!text)
            return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be a list of hosts", key);
        int rc = egress_allow_parse(text, &a, err);
        if (rc < 0)
            return err_wrap(err, "\"%s\"", key);
        egress_allow_finish(&a);
    }
    *ret = json_incref((json_t *)(uintptr_t)list);
    return 0;
}

static int sandbox_settings_read_number(const json_t *json, const char *key, double max,
                                        double *ret, struct err *err) {
    const json_t *v = json_object_get(json, key);
    if (!v)
        return 0;
    if (!json_is_number(v) || json_number_value(v) < 0 || json_number_value(v) > max)
        return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be a number from 0 to %g", key, max);
    *ret = json_number_value(v);
    return 0;
}

static int read_caps(struct sandbox_settings *s, const json_t *json, struct err *err) {
    static const char *const keys[] = {"requests", "requests_per_minute", "bytes", "tokens", "usd",
                                       NULL};
    int64_t requests = 0;
    int64_t per_minute = 0;
    int64_t bytes = 0;
    int64_t tokens = 0;
    if (!json)
        return 0;
    int rc = json_check_keys(json, "\"caps\"", keys, err);
    if (rc == 0)
        rc = json_get_int(json, "requests", 0, INT64_MAX, &requests, err);
    if (rc == 0)
        rc = json_get_int(json, "requests_per_minute", 0, 1000000, &per_minute, err);
    if (rc == 0)
        rc = json_get_int(json, "bytes", 0, INT64_MAX, &bytes, err);
    if (rc == 0)
        rc = json_get_int(json, "tokens", 0, INT64_MAX, &tokens, err);
    if (rc == 0)
        rc = sandbox_settings_read_number(json, "usd", 1e6, &s->cap_usd, err);
    s->cap_requests = (uint64_t)requests;
    s->cap_requests_per_minute = (uint64_t)per_minute;
    s->cap_bytes = (uint64_t)bytes;
    s->cap_tokens = (uint64_t)tokens;
    return rc;
}

size_t sandbox_settings_table(struct sandbox_settings *s, struct setting out[SETTINGS_MAX]) {
    const struct setting table[] = {
        SETTING_FIXED("pool", s->pool, 0, 1024),
        SETTING("max", s->max, 1, 32768),
        SETTING("max_per_key", s->max_per_key, 1, 32768),
        SETTING("timeout_s", s->timeout_s, 1, 31536000),
        SETTING("max_timeout_s", s->max_timeout_s, 1, 31536000),
        SETTING("memory_mb", s->memory_mb, 16, 1 << 24),
        SETTING("disk_mb", s->disk_mb, 1, 1 << 24),
        SETTING("pids", s->pids, 1, 1 << 20),
        SETTING("output_mb", s->output_mb, 1, 1 << 20),
        SETTING("outputs_mb", s->outputs_mb, 1, 1 << 24),
        SETTING("execs", s->execs, 1, 100000),
        SETTING("commands", s->commands, 1, 100000),
        SETTING("commands_per_key", s->commands_per_key, 1, 100000),
        SETTING("keep", s->keep, 0, 1000000),
        SETTING("keep_s", s->keep_s, 0, 315360000),
        SETTING_FIXED("upload_mb", s->upload_mb, 1, 1 << 20),
        SETTING("snapshot_mb", s->snapshot_mb, 1, 1 << 24),
        SETTING("snapshots_mb", s->snapshots_mb, 1, 1 << 24),
        SETTING("snapshots_mb_per_key", s->snapshots_mb_per_key, 1, 1 << 24),
        SETTING("snapshot_s", s->snapshot_s, 1, 86400),
        SETTING("connections", s->connections, 1, 10000),
        SETTING("answer_s", s->answer_s, 1, 86400),
        SETTING("events", s->events, 1, 100000),
        SETTING_FIXED("events_total", s->events_total, 100, 10000000),
        SETTING_FIXED("uid_base", s->uid_base, 65536, 0xfffffff0LL),
        SETTING_FIXED("uid_count", s->uid_count, 2, 0x7fffffffLL),
    };
    memcpy(out, table, sizeof(table));
    return ARRAY_LEN(table);
}

static int sandbox_settings_read_numbers(struct sandbox_settings *s, const json_t *json,
                                         struct err *err) {
    struct setting table[SETTINGS_MAX];
    int rc = settings_read(table, sandbox_settings_table(s, table), json, err);
    if (!json_object_get(json, "max_per_key"))
        s->max_per_key = MIN((uint32_t)LIMIT_SANDBOXES_PER_KEY, settings_share_of(s->max));
    if (!json_object_get(json, "commands_per_key"))
        s->commands_per_key = settings_share_of(s->commands);
    if (!json_object_get(json, "snapshots_mb_per_key"))
        s->snapshots_mb_per_key = settings_share_of(s->snapshots_mb);
    return rc;
}

int sandbox_settings_read(struct sandbox_settings *s, const json_t *json, struct err *err) {
    static const char *const others[] = {"cpus",    "roots",   "binds", "routes", "allow",
                                         "private", "ca_file", "caps",  NULL};
    struct setting table[SETTINGS_MAX];
    size_t n = sandbox_settings_table(s, table);
    if (!json)
        return 0;
    int rc = settings_check_keys(table, n, others, json, "\"sandboxes\"", err);
    if (rc < 0)
        return rc;
    const char *ca_file = NULL;
    if (rc == 0)
        rc = sandbox_settings_read_numbers(s, json, err);
    if (rc == 0)
        rc = sandbox_settings_read_number(json, "cpus", 4096, &s->cpus, err);
    if (rc == 0)
        rc = read_roots(s, json_object_get(json, "roots"), err);
    if (rc == 0)
        rc = sandbox_settings_read_binds(s, json_object_get(json, "binds"), err);
    if (rc == 0)
        rc = sandbox_settings_read_allow(&s->allow, json, "allow", err);
    if (rc == 0)
        rc = sandbox_settings_read_allow(&s->private, json, "private", err);
    if (rc == 0)
        rc = read_caps(s, json_object_get(json, "caps"), err);
    if (rc == 0)
        rc = json_get_str(json, "ca_file", &ca_file, err);
    json_t *routes = json_object_get(json, "routes");
    if (rc == 0 && routes &&
        (!json_is_object(routes) || json_object_size(routes) > EGRESS_ROUTES_MAX))
        rc = err_set(err, ERR_BAD_REQUEST, "\"routes\" must be an object of at most %d routes",
                     EGRESS_ROUTES_MAX);
    if (rc == 0 && s->timeout_s > s->max_timeout_s)
        rc = err_set(err, ERR_BAD_REQUEST, "\"timeout_s\" must not exceed \"max_timeout_s\"");
    if (rc == 0 && s->pool > s->max)
        s->pool = s->max;
    if (rc == 0 && s->uid_count / 2 < s->max)
        rc = err_set(err, ERR_BAD_REQUEST,
                     "\"uid_count\" must be two for each of the %u sandboxes (\"max\")", s->max);
    if (rc == 0) {
        s->routes = json_incref(routes);
        s->ca_file = ca_file ? xstrdup(ca_file) : NULL;
        return 0;
    }
    return err_wrap(err, "\"sandboxes\"");
}

int sandbox_settings_open(struct sandbox_settings *s, struct err *err) {
    for (size_t i = 0; i < s->nbinds; i++) {
        s->binds[i].fd = open(s->binds[i].path, O_PATH | O_CLOEXEC);
        if (s->binds[i].fd < 0)
            return err_sys(err, "\"sandboxes\": bind \"%s\": %s", s->binds[i].name,
                           s->binds[i].path);
    }
    return 0;
}

void sandbox_settings_finish(struct sandbox_settings *s) {
    for (size_t i = 0; i < s->nroots; i++) {
        free(s->roots[i].name);
        free(s->roots[i].path);
    }
    free(s->roots);
    for (size_t i = 0; i < s->nbinds; i++) {
        free(s->binds[i].name);
        free(s->binds[i].path);
        fd_close(&s->binds[i].fd);
    }
    free(s->binds);
    json_decref(s->routes);
    json_decref(s->allow);
    json_decref(s->private);
    free(s->ca_file);
    *s = (struct sandbox_settings){0};
}

const struct sandbox_root *sandbox_settings_root(const struct sandbox_settings *s,
                                                 const char *name) {
    for (size_t i = 0; i < s->nroots; i++)
        if (strcmp(s->roots[i].name, name) == 0)
            return &s->roots[i];
    return NULL;
}

const struct sandbox_bind_setting *sandbox_settings_bind(const struct sandbox_settings *s,
                                                         const char *name) {
    for (size_t i = 0; i < s->nbinds; i++)
        if (strcmp(s->binds[i].name, name) == 0)
            return &s->binds[i];
    return NULL;
}
