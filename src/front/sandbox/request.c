#include "base/base64.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json_table.h"
#include "base/mem.h"
#include "front/sandbox/parts.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* What is asked for: first as a struct, read from the body of POST /v1/sandboxes by tables; then
 * resolved against the settings and the key's grants, whoever filled the struct. */

enum {
    NAME_BYTES = 100,
    METADATA_BYTES = 16384,
    ENV_BYTES = 65536,
};

static const char *const bind_modes[] = {[SANDBOX_BIND_RO] = "ro", [SANDBOX_BIND_RW] = "rw"};

/* Control characters, and those that break a line or turn its direction: U+0080 to U+009F, U+2028
 * to U+202E, U+2066 to U+2069. */
static bool sandbox_request_forges(const char *s) {
    const unsigned char *u = (const unsigned char *)s;
    return *u < 0x20 || *u == 0x7f || (u[0] == 0xc2 && u[1] < 0xa0) ||
           (u[0] == 0xe2 && u[1] == 0x80 && u[2] >= 0xa8 && u[2] <= 0xae) ||
           (u[0] == 0xe2 && u[1] == 0x81 && u[2] >= 0xa6 && u[2] <= 0xa9);
}

int sandbox_check_name(const char *name, struct err *err) {
    if (strlen(name) > NAME_BYTES)
        return err_set(err, ERR_BAD_REQUEST, "\"name\" has at most %d bytes", NAME_BYTES);
    for (; *name; name++)
        if (sandbox_request_forges(name))
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

/* --- reading --- */

/* A file as a request has it. */
struct file_wire {
    const char *path;
    const json_t *content; /* a string of any bytes */
    const char *base64;
    int64_t mode;
};

static int sandbox_request_read_content(const json_t *v, void *member, struct err *err) {
    if (!json_is_string(v))
        return err_set(err, ERR_BAD_REQUEST, "\"content\" must be a string");
    *(const json_t **)member = v;
    return 0;
}

static int sandbox_request_read_file(const json_t *f, const char *dir, struct sandbox_file *ret,
                                     struct err *err) {
    static const struct json_field table[] = {
        JSON_TEXT("path", struct file_wire, path),
        JSON_READ("content", struct file_wire, content, sandbox_request_read_content, "string"),
        JSON_TEXT("content_base64", struct file_wire, base64),
        JSON_INT("mode", struct file_wire, mode, 0, 0777),
    };
    JSON_SHAPE("SandboxFile", table);
    struct file_wire w = {.mode = 0644};
    int rc = json_table_read(table, ARRAY_LEN(table), f, "a file", &w, err);
    if (rc < 0)
        return rc;
    bool below = w.path && *w.path && *w.path != '/' && dir;
    _cleanup_(free) char *path =
        below ? xasprintf("%s/%s", dir, w.path) : xstrdup(w.path ? w.path : "");
    if (!*path || strlen(path) >= SANDBOX_PATH_MAX)
        return err_set(err, ERR_BAD_REQUEST, "a file needs a \"path\" of less than %d bytes",
                       SANDBOX_PATH_MAX);
    if (!w.content == !w.base64)
        return err_set(err, ERR_BAD_REQUEST, "a file has either \"content\" or \"content_base64\"");
    struct sandbox_file file = {.mode = (uint32_t)w.mode,
                                .content = json_string_value(w.content),
                                .len = json_string_length(w.content)};
    if (w.base64) {
        file.decoded = xmalloc(strlen(w.base64) + 1);
        file.content = file.decoded;
        if (!base64_decode(file.decoded, w.base64, strlen(w.base64), &file.len)) {
            free(file.decoded);
            return err_set(err, ERR_BAD_REQUEST, "\"content_base64\" is no base64");
        }
    }
    file.path = steal_ptr(&path);
    *ret = file;
    return 0;
}

int sandbox_files_read(const json_t *list, const char *dir, struct sandbox_files *ret,
                       struct err *err) {
    size_t i;
    const json_t *f;
    if (!json_is_array(list) || json_array_size(list) > SANDBOX_FILES_MAX)
        return err_set(err, ERR_BAD_REQUEST, "\"files\" must be a list of at most %d files",
                       SANDBOX_FILES_MAX);
    struct sandbox_files files = {.tree = json_incref((json_t *)(uintptr_t)list),
                                  .items =
                                      xcalloc(json_array_size(list) + 1, sizeof(*files.items))};
    json_array_foreach(list, i, f) {
        if (sandbox_request_read_file(f, dir, &files.items[i], err) < 0) {
            sandbox_files_finish(&files);
            return err_wrap(err, "files[%zu]", i);
        }
        files.n++;
    }
    *ret = files;
    return 0;
}

void sandbox_files_finish(struct sandbox_files *files) {
    for (size_t i = 0; i < files->n; i++) {
        free(files->items[i].path);
        free(files->items[i].decoded);
    }
    free(files->items);
    json_decref(files->tree);
    *files = (struct sandbox_files){0};
}

static int sandbox_request_read_files(const json_t *list, void *member, struct err *err) {
    return sandbox_files_read(list, NULL, member, err);
}

int sandbox_env_read(const json_t *env, void *strv, struct err *err) {
    const char *name;
    json_t *v;
    if (!json_is_object(env) && !json_is_null(env))
        return err_set(err, ERR_BAD_REQUEST, "\"env\" must be an object of strings");
    json_object_foreach((json_t *)(uintptr_t)env, name, v) {
        const char *text = json_string_value(v);
        if (!*name || strchr(name, '=') || !text || strlen(text) != json_string_length(v))
            return err_set(err, ERR_BAD_REQUEST,
                           "\"env\": names have no \"=\", values are strings without NUL");
        _cleanup_(free) char *entry = xasprintf("%s=%s", name, text);
        sandbox_strv_add(strv, entry);
    }
    return 0;
}

static int sandbox_request_read_binds(const json_t *list, void *member, struct err *err) {
    static const struct json_field table[] = {
        JSON_TEXT("name", struct sandbox_named_bind, name),
        JSON_TEXT("path", struct sandbox_named_bind, path),
        JSON_ENUM("mode", struct sandbox_named_bind, mode, bind_modes),
    };
    JSON_SHAPE("SandboxBind", table);
    struct sandbox_binds *binds = member;
    size_t i;
    const json_t *v;
    if (!json_is_array(list) || json_array_size(list) > SANDBOX_BINDS_MAX)
        return err_set(err, ERR_BAD_REQUEST, "\"binds\" must be a list of at most %d binds",
                       SANDBOX_BINDS_MAX);
    json_array_foreach(list, i, v) {
        struct sandbox_named_bind *b = &binds->items[binds->n++];
        int rc = json_table_read(table, ARRAY_LEN(table), v, "a bind", b, err);
        if (rc == 0 && (!b->name || !b->path))
            rc = err_set(err, ERR_BAD_REQUEST, "a bind needs a \"name\" and a \"path\"");
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Zero stands for the setting: one that was asked for becomes a number that is refused. */
static int sandbox_request_read_cpus(const json_t *v, void *member, struct err *err) {
    double n = json_is_number(v) ? json_number_value(v) : -1;
    (void)err;
    if (!json_is_null(v))
        *(double *)member = n > 0 ? n : -1;
    return 0;
}

int sandbox_request_read(const json_t *body, struct sandbox_request *r, struct err *err) {
    static const struct json_field table[] = {
        JSON_TEXT("name", struct sandbox_request, name),
        JSON_TEXT("root", struct sandbox_request, root),
        JSON_TEXT("snapshot", struct sandbox_request, snapshot),
        JSON_READ("files", struct sandbox_request, files, sandbox_request_read_files, "array"),
        JSON_READ("env", struct sandbox_request, env, sandbox_env_read, "object"),
        JSON_INT("memory_mb", struct sandbox_request, memory_mb, 1, INT64_MAX),
        JSON_INT("disk_mb", struct sandbox_request, disk_mb, 1, INT64_MAX),
        JSON_INT("pids", struct sandbox_request, pids, 1, INT64_MAX),
        JSON_READ("cpus", struct sandbox_request, cpus, sandbox_request_read_cpus, "number"),
        JSON_INT("timeout_s", struct sandbox_request, timeout_s, 1, INT64_MAX),
        JSON_READ("binds", struct sandbox_request, binds, sandbox_request_read_binds, "array"),
        JSON_MAP("metadata", struct sandbox_request, metadata),
        JSON_READ("network", struct sandbox_request, network, network_ask_read, "object"),
    };
    JSON_SHAPE("SandboxRequest", table);
    return json_table_read(table, ARRAY_LEN(table), body, "the request", r, err);
}

void sandbox_request_finish(struct sandbox_request *r) {
    sandbox_files_finish(&r->files);
    sandbox_strv_finish(&r->env);
    network_ask_finish(&r->network);
}

/* --- resolving --- */

static int sandbox_request_check_texts(const struct sandboxes *all, const struct sandbox_request *r,
                                       struct err *err) {
    const char *root = r->root ? r->root : "";
    size_t bytes = 0;
    for (size_t i = 0; i < r->env.n; i++)
        bytes += strlen(r->env.items[i]) + 1;
    int rc = r->name ? sandbox_check_name(r->name, err) : 0;
    if (rc == 0 && *root && !sandbox_settings_root(all->opt.settings, root))
        rc = err_set(err, ERR_BAD_REQUEST, "there is no root \"%.64s\" (setting sandboxes.roots)",
                     root);
    if (rc == 0 && bytes > ENV_BYTES)
        rc = err_set(err, ERR_TOO_LARGE, "\"env\" exceeds %d bytes", ENV_BYTES);
    if (rc < 0 || !r->metadata)
        return rc;
    _cleanup_(free) char *text = json_dumps(r->metadata, JSON_COMPACT);
    if (!json_is_object(r->metadata) || strlen(text) > METADATA_BYTES)
        return err_set(err, ERR_BAD_REQUEST, "\"metadata\" must be an object of at most %d bytes",
                       METADATA_BYTES);
    return json_check_no_nul(r->metadata, "metadata", err);
}

static int sandbox_request_find_binds(const struct sandboxes *all, const struct sandbox_request *r,
                                      struct sandbox_resolved *p, struct err *err) {
    for (size_t i = 0; i < r->binds.n; i++) {
        const struct sandbox_named_bind *b = &r->binds.items[i];
        const struct sandbox_bind_setting *set = sandbox_settings_bind(all->opt.settings, b->name);
        if (!set || !key_is_granted(r->grants, "binds", b->name))
            return err_set(err, ERR_FORBIDDEN, "there is no bind \"%.64s\" for this key", b->name);
        if (b->mode == SANDBOX_BIND_RW && !set->write)
            return err_set(err, ERR_FORBIDDEN, "the bind \"%.64s\" is read-only", b->name);
        p->bind_fds[p->spec.nbinds] = set->fd;
        p->spec.binds[p->spec.nbinds++] =
            (struct sandbox_bind){.path = xstrdup(b->path), .mode = b->mode};
    }
    return 0;
}

static int sandbox_request_add_bind(struct sandbox_resolved *p,
                                    const struct sandbox_extra_bind *bind, struct err *err) {
    if (p->spec.nbinds == SANDBOX_BINDS_MAX)
        return err_set(err, ERR_BAD_REQUEST, "\"binds\": %d are too many here", SANDBOX_BINDS_MAX);
    p->bind_fds[p->spec.nbinds] = bind->fd;
    p->spec.binds[p->spec.nbinds++] =
        (struct sandbox_bind){.path = xstrdup(bind->path), .mode = SANDBOX_BIND_RO};
    return 0;
}

/* A limit that a request may lower; 0: it does not. */
static int sandbox_request_limit(int64_t asked, const char *key, int64_t min, int64_t max,
                                 int64_t *ret, struct err *err) {
    if (asked && (asked < min || asked > max))
        return err_set(err, asked > max ? ERR_LIMIT : ERR_BAD_REQUEST,
                       "\"%s\" must be from %lld to %lld (setting sandboxes.%s)", key,
                       (long long)min, (long long)max, key);
    *ret = asked ? asked : max;
    return 0;
}

static int sandbox_request_find_limits(const struct sandboxes *all, const struct sandbox_request *r,
                                       struct sandbox_resolved *p, struct err *err) {
    const struct sandbox_settings *set = all->opt.settings;
    int64_t memory = 0;
    int64_t disk = 0;
    int64_t pids = 0;
    double cpus = r->cpus != 0 ? r->cpus : set->cpus;
    int rc = sandbox_request_limit(r->memory_mb, "memory_mb", 16, set->memory_mb, &memory, err);
    int64_t fits = (int64_t)(sandbox_disk_max((uint64_t)memory << 20) >> 20);
    if (rc == 0)
        rc = sandbox_request_limit(r->disk_mb, "disk_mb", 1, set->disk_mb, &disk, err);
    if (rc == 0 && !r->disk_mb)
        disk = MIN(disk, fits);
    if (rc == 0 && disk > fits)
        rc =
            err_set(err, ERR_BAD_REQUEST,
                    "\"disk_mb\" %lld does not fit into \"memory_mb\" %lld, where the disk is kept "
                    "with room for processes: ask for more \"memory_mb\", or for at most %lld of "
                    "\"disk_mb\"",
                    (long long)disk, (long long)memory, (long long)fits);
    if (rc == 0)
        rc = sandbox_request_limit(r->pids, "pids", 1, set->pids, &pids, err);
    if (rc == 0 && r->cpus != 0 &&
        (!(cpus >= 0.01 && cpus <= 4096) || (set->cpus > 0 && cpus > set->cpus)))
        rc = err_set(err, cpus > 0 ? ERR_LIMIT : ERR_BAD_REQUEST,
                     "\"cpus\" must be a number from 0.01 to %g (setting sandboxes.cpus)",
                     set->cpus > 0 ? set->cpus : 4096.0);
    p->timeout_s = r->timeout_s ? r->timeout_s : set->timeout_s;
    if (rc == 0 && r->timeout_s > set->max_timeout_s)
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

static int open_snapshot(const struct sandboxes *all, const struct sandbox_request *r,
                         struct sandbox_resolved *p, struct err *err) {
    struct store_record found;
    char name[ID_SIZE + 8];
    int rc = store_record_get(all->opt.store, "snapshot", r->snapshot, NULL, r->scope, &found, err);
    if (rc < 0)
        return rc;
    (void)snprintf(name, sizeof(name), "%s.tar", found.id);
    store_record_finish(&found);
    p->snapshot = openat(all->snapshots, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return p->snapshot < 0 ? err_sys(err, "the snapshot %s", r->snapshot) : 0;
}

/* What is asked for wins over these. */
static void sandbox_request_name_guest(struct sandbox_resolved *p,
                                       const struct sandbox_extra *extra) {
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

static int sandbox_request_find_network(const struct sandboxes *all,
                                        const struct sandbox_request *r, struct sandbox_resolved *p,
                                        struct err *err) {
    const struct sandbox_extra *extra = r->extra;
    int rc = network_resolve(all->network, &r->network, r->grants, &p->policy, err);
    if (rc < 0)
        return rc;
    json_t *shown = network_ask_show(&r->network);
    for (size_t i = 0; extra && i < extra->nroutes; i++)
        network_add_route(all->network, &p->policy, &extra->routes[i]);
    if (extra) {
        if (extra->price)
            network_add_price(all->network, &p->policy, extra->price);
        network_cap_cost(&p->policy, extra->max_usd);
        p->policy.asks = extra->asks;
    }
    if (extra && extra->injected)
        (void)json_object_set(shown, "injected", (json_t *)(uintptr_t)extra->injected);
    (void)json_object_set_new(p->doc, "network", shown);
    return 0;
}

static void sandbox_request_show(const struct sandbox_request *r, json_t *doc) {
    json_t *binds = json_array();
    for (size_t i = 0; i < r->binds.n; i++) {
        const struct sandbox_named_bind *b = &r->binds.items[i];
        (void)json_array_append_new(binds, json_pack("{s:s,s:s,s:s}", "name", b->name, "path",
                                                     b->path, "mode", bind_modes[b->mode]));
    }
    (void)json_object_set_new(doc, "binds", binds);
    (void)json_object_set_new(doc, "name", r->name ? json_string(r->name) : json_null());
    (void)json_object_set_new(doc, "root",
                              r->root && *r->root ? json_string(r->root) : json_null());
    (void)json_object_set_new(doc, "snapshot",
                              r->snapshot ? json_string(r->snapshot) : json_null());
    if (r->extra && r->extra->note)
        (void)json_object_set(doc, "note", r->extra->note);
    (void)json_object_set_new(doc, "metadata",
                              r->metadata ? json_incref((json_t *)(uintptr_t)r->metadata)
                                          : json_object());
}

int sandbox_request_resolve(struct sandboxes *all, const struct sandbox_request *r,
                            struct sandbox_resolved *p, struct err *err) {
    p->doc = json_object();
    int rc = sandbox_request_check_texts(all, r, err);
    if (rc == 0)
        rc = sandbox_request_find_limits(all, r, p, err);
    if (rc == 0)
        rc = sandbox_request_find_binds(all, r, p, err);
    for (size_t i = 0; rc == 0 && r->extra && i < r->extra->nbinds; i++)
        rc = sandbox_request_add_bind(p, &r->extra->binds[i], err);
    if (rc == 0)
        rc = sandbox_request_find_network(all, r, p, err);
    if (rc == 0 && r->snapshot)
        rc = open_snapshot(all, r, p, err);
    if (rc < 0)
        return rc;
    if (r->extra)
        sandbox_request_name_guest(p, r->extra);
    for (size_t i = 0; i < r->env.n; i++)
        sandbox_strv_add(&p->spec.env, r->env.items[i]);
    p->spec.root = xstrdup(r->root ? r->root : "");
    p->spec.egress = network_is_there(all->network);
    sandbox_request_show(r, p->doc);
    return 0;
}

void sandbox_resolved_finish(struct sandbox_resolved *p) {
    sandbox_spec_finish(&p->spec);
    egress_policy_finish(&p->policy);
    json_decref(p->doc);
    fd_close(&p->snapshot);
}
