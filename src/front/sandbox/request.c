#include "base/base64.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "front/sandbox/parts.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* What is asked for, against the settings and the key's grants. */

/* No key of grants that anybody may write. */
#define ALL_BUT_MODELS "all but models"

enum {
    NAME_BYTES = 100,
    METADATA_BYTES = 16384,
    ENV_BYTES = 65536,
};

json_t *sandbox_grants(const struct identity *who) {
    if (who && *who->grants)
        return json_loads(who->grants, 0, NULL);
    bool limited = who && (who->tokens_per_day > 0 || who->nusd_per_day > 0);
    return limited ? json_pack("{s:b}", ALL_BUT_MODELS, true) : NULL;
}

bool sandbox_may_spend(const json_t *grants) {
    return !json_is_true(json_object_get(grants, ALL_BUT_MODELS));
}

bool sandbox_is_granted(const json_t *grants, const char *kind, const char *name) {
    if (!grants || !json_is_object(grants) || !sandbox_may_spend(grants))
        return true;
    size_t i;
    const json_t *v;
    json_array_foreach(json_object_get(grants, kind), i, v) {
        if (json_is_string(v) && strcmp(json_string_value(v), name) == 0)
            return true;
    }
    return false;
}

/* Control characters, and those that break a line or turn its direction: U+0080 to U+009F, U+2028
 * to U+202E, U+2066 to U+2069. */
static bool forges(const char *s) {
    const unsigned char *u = (const unsigned char *)s;
    return *u < 0x20 || *u == 0x7f || (u[0] == 0xc2 && u[1] < 0xa0) ||
           (u[0] == 0xe2 && u[1] == 0x80 && u[2] >= 0xa8 && u[2] <= 0xae) ||
           (u[0] == 0xe2 && u[1] == 0x81 && u[2] >= 0xa6 && u[2] <= 0xa9);
}

int sandbox_check_name(const char *name, struct err *err) {
    if (strlen(name) > NAME_BYTES)
        return err_set(err, ERR_BAD_REQUEST, "\"name\" has at most %d bytes", NAME_BYTES);
    for (; *name; name++)
        if (forges(name))
            return err_set(err, ERR_BAD_REQUEST, "\"name\" is one line without control characters");
    return 0;
}

/* One that cannot be decoded is refused for it, and need not be looked at again. */
static void decode_file(json_t *f) {
    const json_t *b64 = json_object_get(f, "content_base64");
    size_t len = json_string_length(b64);
    if (!json_is_string(b64) || json_object_get(f, "content"))
        return;
    _cleanup_(free) char *out = xmalloc(len + 1);
    if (!base64_decode(out, json_string_value(b64), len, &len)) {
        (void)json_object_set_new(f, "content_base64", json_string("?"));
        return;
    }
    (void)json_object_del(f, "content_base64");
    (void)json_object_set_new(f, "content", json_stringn_nocheck(out, len));
}

void sandbox_decode_files(json_t *body) {
    json_t *files = json_object_get(body, "files");
    size_t i;
    json_t *f;
    if (json_array_size(files) > SANDBOX_FILES_MAX)
        return;
    json_array_foreach(files, i, f) {
        decode_file(f);
    }
}

static int read_files(const json_t *files, struct err *err) {
    static const char *const keys[] = {"path", "content", "content_base64", "mode", NULL};
    size_t i;
    const json_t *f;
    if (files && (!json_is_array(files) || json_array_size(files) > SANDBOX_FILES_MAX))
        return err_set(err, ERR_BAD_REQUEST, "\"files\" must be a list of at most %d files",
                       SANDBOX_FILES_MAX);
    json_array_foreach(files, i, f) {
        const char *path = NULL;
        const char *text = NULL;
        const char *b64 = NULL;
        int64_t mode = 0;
        int rc = json_check_keys(f, "a file", keys, err);
        if (rc == 0)
            rc = json_get_str(f, "path", &path, err);
        if (rc == 0 && (!path || !*path || strlen(path) >= SANDBOX_PATH_MAX))
            rc = err_set(err, ERR_BAD_REQUEST, "a file needs a \"path\" of less than %d bytes",
                         SANDBOX_PATH_MAX);
        const json_t *content = json_object_get(f, "content");
        if (rc == 0 && content && !json_is_string(content))
            rc = err_set(err, ERR_BAD_REQUEST, "\"content\" must be a string");
        text = json_string_value(content);
        if (rc == 0)
            rc = json_get_str(f, "content_base64", &b64, err);
        if (rc == 0 && !text == !b64)
            rc = err_set(err, ERR_BAD_REQUEST,
                         "a file has either \"content\" or \"content_base64\"");
        if (rc == 0)
            rc = json_get_int(f, "mode", 0, 0777, &mode, err);
        if (rc == 0 && b64) {
            size_t len = 0;
            _cleanup_(free) char *out = xmalloc(strlen(b64) + 1);
            if (!base64_decode(out, b64, strlen(b64), &len))
                rc = err_set(err, ERR_BAD_REQUEST, "\"content_base64\" is no base64");
        }
        if (rc < 0)
            return err_wrap(err, "files[%zu]", i);
    }
    return 0;
}

static int read_env(const json_t *env, struct sandbox_strv *ret, struct err *err) {
    const char *name;
    json_t *v;
    size_t bytes = 0;
    if (env && !json_is_object(env))
        return err_set(err, ERR_BAD_REQUEST, "\"env\" must be an object of strings");
    json_object_foreach((json_t *)(uintptr_t)env, name, v) {
        const char *text = json_string_value(v);
        if (!*name || strchr(name, '=') || !text || strlen(text) != json_string_length(v))
            return err_set(err, ERR_BAD_REQUEST,
                           "\"env\": names have no \"=\", values are strings without NUL");
        bytes += strlen(name) + strlen(text) + 2;
        if (bytes > ENV_BYTES)
            return err_set(err, ERR_TOO_LARGE, "\"env\" exceeds %d bytes", ENV_BYTES);
        _cleanup_(free) char *entry = xasprintf("%s=%s", name, text);
        sandbox_strv_add(ret, entry);
    }
    return 0;
}

static int read_binds(const struct sandboxes *all, const struct sandbox_ask *ask,
                      struct sandbox_request *p, struct err *err) {
    static const char *const keys[] = {"name", "path", "mode", NULL};
    const json_t *list = json_object_get(ask->body, "binds");
    size_t i;
    const json_t *b;
    if (list && (!json_is_array(list) || json_array_size(list) > SANDBOX_BINDS_MAX))
        return err_set(err, ERR_BAD_REQUEST, "\"binds\" must be a list of at most %d binds",
                       SANDBOX_BINDS_MAX);
    json_array_foreach(list, i, b) {
        const char *name = NULL;
        const char *path = NULL;
        const char *mode = "ro";
        int rc = json_check_keys(b, "a bind", keys, err);
        if (rc == 0)
            rc = json_get_str(b, "name", &name, err);
        if (rc == 0)
            rc = json_get_str(b, "path", &path, err);
        if (rc == 0)
            rc = json_get_str(b, "mode", &mode, err);
        if (rc == 0 && (!name || !path))
            rc = err_set(err, ERR_BAD_REQUEST, "a bind needs a \"name\" and a \"path\"");
        bool write = rc == 0 && strcmp(mode, "rw") == 0;
        if (rc == 0 && !write && strcmp(mode, "ro") != 0)
            rc = err_set(err, ERR_BAD_REQUEST, "a bind's \"mode\" is \"ro\" or \"rw\"");
        const struct sandbox_bind_setting *set =
            rc == 0 ? sandbox_settings_bind(all->opt.settings, name) : NULL;
        if (rc < 0)
            return rc;
        if (!set || !sandbox_is_granted(ask->grants, "binds", name))
            return err_set(err, ERR_FORBIDDEN, "there is no bind \"%.64s\" for this key", name);
        if (write && !set->write)
            return err_set(err, ERR_FORBIDDEN, "the bind \"%.64s\" is read-only", name);
        p->bind_fds[p->spec.nbinds] = set->fd;
        p->spec.binds[p->spec.nbinds++] = (struct sandbox_bind){
            .path = xstrdup(path), .mode = write ? SANDBOX_BIND_RW : SANDBOX_BIND_RO};
    }
    return 0;
}

static int add_bind(struct sandbox_request *p, const struct sandbox_extra *extra, struct err *err) {
    if (p->spec.nbinds == SANDBOX_BINDS_MAX)
        return err_set(err, ERR_BAD_REQUEST, "\"binds\": %d are too many here", SANDBOX_BINDS_MAX);
    p->bind_fds[p->spec.nbinds] = extra->bind_fd;
    p->spec.binds[p->spec.nbinds++] =
        (struct sandbox_bind){.path = xstrdup(extra->bind_path), .mode = SANDBOX_BIND_RO};
    return 0;
}

/* A limit that a request may lower. */
static int read_limit(const json_t *body, const char *key, int64_t min, int64_t max, int64_t *ret,
                      struct err *err) {
    int64_t v = max;
    int rc = json_get_int(body, key, 0, INT64_MAX, &v, err);
    if (rc == 0 && (v < min || v > max))
        return err_set(err, v > max ? ERR_LIMIT : ERR_BAD_REQUEST,
                       "\"%s\" must be from %lld to %lld (setting sandboxes.%s)", key,
                       (long long)min, (long long)max, key);
    *ret = v;
    return rc;
}

static int read_limits(const struct sandboxes *all, const json_t *body, struct sandbox_request *p,
                       struct err *err) {
    const struct sandbox_settings *set = all->opt.settings;
    int64_t memory = 0;
    int64_t disk = 0;
    int64_t pids = 0;
    double cpus = set->cpus;
    const json_t *v = json_object_get(body, "cpus");
    int rc = read_limit(body, "memory_mb", 16, set->memory_mb, &memory, err);
    if (rc == 0)
        rc = read_limit(body, "disk_mb", 1, set->disk_mb, &disk, err);
    if (rc == 0)
        rc = read_limit(body, "pids", 1, set->pids, &pids, err);
    if (rc == 0 && v && !json_is_null(v)) {
        cpus = json_is_number(v) ? json_number_value(v) : -1;
        if (!(cpus >= 0.01 && cpus <= 4096) || (set->cpus > 0 && cpus > set->cpus))
            rc = err_set(err, cpus > 0 ? ERR_LIMIT : ERR_BAD_REQUEST,
                         "\"cpus\" must be a number from 0.01 to %g (setting sandboxes.cpus)",
                         set->cpus > 0 ? set->cpus : 4096.0);
    }
    p->timeout_s = set->timeout_s;
    if (rc == 0)
        rc = json_get_int(body, "timeout_s", 1, INT64_MAX, &p->timeout_s, err);
    if (rc == 0 && p->timeout_s > set->max_timeout_s)
        rc = err_set(err, ERR_LIMIT, "\"timeout_s\" may be %u at most (setting max_timeout_s)",
                     set->max_timeout_s);
    if (rc < 0)
        return rc;
    /* What is the launcher's default comes from its pool of ready ones. */
    p->spec.memory_bytes = (uint64_t)memory << 20;
    p->spec.disk_bytes = (uint64_t)disk << 20;
    if (p->spec.disk_bytes == SANDBOX_DEFAULT_DISK)
        p->spec.disk_bytes = 0;
    p->spec.pids = (uint32_t)pids;
    p->spec.cpu_milli = (uint32_t)(cpus * 1000);
    (void)json_object_set_new(p->doc, "limits",
                              json_pack("{s:I,s:I,s:I,s:o,s:I}", "memory_mb", (json_int_t)memory,
                                        "disk_mb", (json_int_t)disk, "pids", (json_int_t)pids,
                                        "cpus", cpus > 0 ? json_real(cpus) : json_null(),
                                        "timeout_s", (json_int_t)p->timeout_s));
    return 0;
}

static int open_snapshot(const struct sandboxes *all, const struct sandbox_ask *ask, const char *id,
                         struct sandbox_request *p, struct err *err) {
    struct store_record r;
    char name[ID_SIZE + 8];
    int rc = store_record_get(all->opt.store, "snapshot", id, NULL, ask->scope, &r, err);
    if (rc < 0)
        return rc;
    (void)snprintf(name, sizeof(name), "%s.tar", r.id);
    store_record_finish(&r);
    p->snapshot = openat(all->snapshots, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return p->snapshot < 0 ? err_sys(err, "the snapshot %s", id) : 0;
}

/* What is asked for wins over these. */
static void name_guest(struct sandbox_request *p, const struct sandbox_extra *extra) {
    p->spec.work = extra->work ? xstrdup(extra->work) : NULL;
    if (!extra->user)
        return;
    static const char *const names[] = {"HOME=/home/", "USER=", "LOGNAME="};
    p->spec.user = xstrdup(extra->user);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        _cleanup_(free) char *entry = xasprintf("%s%s", names[i], extra->user);
        sandbox_strv_add(&p->spec.env, entry);
    }
}

int sandbox_request_read(struct sandboxes *all, const struct sandbox_ask *ask,
                         struct sandbox_request *p, struct err *err) {
    static const char *const keys[] = {"name",    "root",      "snapshot",  "files",   "env",
                                       "network", "binds",     "memory_mb", "disk_mb", "pids",
                                       "cpus",    "timeout_s", "metadata",  NULL};
    const json_t *body = ask->body;
    const char *name = NULL;
    const char *root = "";
    const char *snapshot = NULL;
    json_t *metadata = json_object_get(body, "metadata");
    p->doc = json_object();
    int rc = json_check_keys(body, "the request", keys, err);
    if (rc == 0)
        rc = json_get_str(body, "name", &name, err);
    if (rc == 0 && name)
        rc = sandbox_check_name(name, err);
    if (rc == 0)
        rc = json_get_str(body, "root", &root, err);
    if (rc == 0 && *root && !sandbox_settings_root(all->opt.settings, root))
        rc = err_set(err, ERR_BAD_REQUEST, "there is no root \"%.64s\" (setting sandboxes.roots)",
                     root);
    if (rc == 0)
        rc = json_get_str(body, "snapshot", &snapshot, err);
    if (rc == 0)
        rc = read_files(json_object_get(body, "files"), err);
    if (rc == 0 && ask->extra)
        name_guest(p, ask->extra);
    if (rc == 0)
        rc = read_env(json_object_get(body, "env"), &p->spec.env, err);
    if (rc == 0)
        rc = read_limits(all, body, p, err);
    if (rc == 0)
        rc = read_binds(all, ask, p, err);
    if (rc == 0 && ask->extra && ask->extra->bind_fd >= 0)
        rc = add_bind(p, ask->extra, err);
    if (rc == 0 && metadata) {
        _cleanup_(free) char *text = json_dumps(metadata, JSON_COMPACT);
        if (!json_is_object(metadata) || strlen(text) > METADATA_BYTES)
            rc = err_set(err, ERR_BAD_REQUEST, "\"metadata\" must be an object of at most %d bytes",
                         METADATA_BYTES);
    }
    json_t *shown = NULL;
    if (rc == 0)
        rc = network_read(all->network, json_object_get(body, "network"), ask->grants, &p->policy,
                          &shown, err);
    for (size_t i = 0; rc == 0 && ask->extra && i < ask->extra->nroutes; i++)
        network_add_route(all->network, &p->policy, &ask->extra->routes[i]);
    if (rc == 0 && ask->extra) {
        if (ask->extra->price)
            network_add_price(all->network, &p->policy, ask->extra->price);
        network_cap_cost(&p->policy, ask->extra->max_usd);
        network_cap_tokens(&p->policy, ask->extra->max_tokens);
    }
    if (rc == 0 && snapshot)
        rc = open_snapshot(all, ask, snapshot, p, err);
    if (rc < 0)
        return rc;
    p->spec.root = xstrdup(root);
    p->spec.egress = network_is_there(all->network);
    (void)json_object_set_new(p->doc, "name", name ? json_string(name) : json_null());
    (void)json_object_set_new(p->doc, "root", *root ? json_string(root) : json_null());
    (void)json_object_set_new(p->doc, "snapshot", snapshot ? json_string(snapshot) : json_null());
    if (ask->extra && ask->extra->injected)
        (void)json_object_set(shown, "injected", (json_t *)(uintptr_t)ask->extra->injected);
    if (ask->extra && ask->extra->note)
        (void)json_object_set(p->doc, "note", ask->extra->note);
    (void)json_object_set_new(p->doc, "network", shown);
    json_t *binds = json_object_get(body, "binds");
    (void)json_object_set_new(p->doc, "binds", binds ? json_incref(binds) : json_array());
    (void)json_object_set_new(p->doc, "metadata", metadata ? json_incref(metadata) : json_object());
    return 0;
}

void sandbox_request_finish(struct sandbox_request *p) {
    sandbox_spec_finish(&p->spec);
    egress_policy_finish(&p->policy);
    json_decref(p->doc);
    fd_close(&p->snapshot);
}
