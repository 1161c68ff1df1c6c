#include "base/cleanup.h"
#include "base/json_table.h"
#include "base/mem.h"
#include "front/vercel/internal.h"

#include <stdlib.h>
#include <string.h>

/* The configuration of a sandbox: what the SDK asks for when it makes, forks or updates one. The
 * table checks it; what has passed is kept as it came, under the same keys. */

enum {
    PORTS_MAX = 15,
    TAGS_MAX = 5,
    TAG_BYTES = 256,
    VCPUS_MAX = 1024,
    TEXT_BYTES = 256,
    PART_BYTES = 64 << 10, /* it is kept as long as the name is */
    SNAPSHOTS_MAX = 10,
};

struct config_wire {
    const char *text, *network;
    const json_t *tree, *mounts, *keep;
    int64_t number, vcpus;
    bool persistent;
    struct sandbox_strv env;
    struct policy_wire policy;
    struct keep_wire {
        int64_t count, expiration; /* 0, -1: none */
        bool delete;
    } kept;
};

static int vercel_config_read_ports(const json_t *ports, void *member, struct err *err) {
    (void)member;
    size_t i;
    const json_t *p;
    if (!json_is_null(ports) && (!json_is_array(ports) || json_array_size(ports) > PORTS_MAX))
        return err_set(err, ERR_BAD_REQUEST, "\"ports\" must be a list of at most %d ports",
                       PORTS_MAX);
    json_array_foreach(ports, i, p) {
        if (!json_is_integer(p) || json_integer_value(p) < 1 || json_integer_value(p) > 65535)
            return err_set(err, ERR_BAD_REQUEST, "\"ports\": a port is a number from 1 to 65535");
    }
    return 0;
}

static int vercel_config_read_tags(const json_t *tags, void *member, struct err *err) {
    (void)member;
    const char *key;
    json_t *v;
    if (!json_is_null(tags) && (!json_is_object(tags) || json_object_size(tags) > TAGS_MAX))
        return err_set(err, ERR_BAD_REQUEST, "\"tags\" must be an object of at most %d strings",
                       TAGS_MAX);
    json_object_foreach((json_t *)(uintptr_t)tags, key, v) {
        if (!json_is_string(v) || strlen(key) + json_string_length(v) > TAG_BYTES)
            return err_set(err, ERR_BAD_REQUEST,
                           "\"tags\": a tag is a string, with its key at most %d bytes", TAG_BYTES);
    }
    return 0;
}

static int check_part(const json_t *body, const char *key, struct err *err) {
    _cleanup_(free) char *text = json_dumps(json_object_get(body, key), JSON_COMPACT);
    if (text && strlen(text) > PART_BYTES)
        return err_set(err, ERR_TOO_LARGE, "\"%s\" exceeds %d bytes", key, PART_BYTES);
    return 0;
}

/* A sandbox whose policy cannot be read could not be resumed. What the operator allows is asked
 * when a session begins. */
static int check_policy(const struct policy_wire *w, struct err *err) {
    struct policy p = {0};
    int rc = vercel_policy_make(w, NULL, &p, err);
    vercel_policy_finish(&p);
    return rc;
}

static const struct json_field resource_fields[] = {
    JSON_INT("vcpus", struct config_wire, vcpus, 1, VCPUS_MAX),
};

static const struct json_field keep_fields[] = {
    JSON_INT("count", struct keep_wire, count, 1, SNAPSHOTS_MAX),
    JSON_INT("expiration", struct keep_wire, expiration, 0, VERCEL_TIME_MAX_MS),
    JSON_BOOL("deleteEvicted", struct keep_wire, delete),
};

/* Those that are kept as they are come first. */
static const struct json_field config_fields[] = {
    JSON_TEXT_MAX("runtime", struct config_wire, text, TEXT_BYTES),
    JSON_TEXT_MAX("image", struct config_wire, text, TEXT_BYTES),
    JSON_INT("timeout", struct config_wire, number, 1, VERCEL_TIME_MAX_MS),
    JSON_INT("snapshotExpiration", struct config_wire, number, 0, VERCEL_TIME_MAX_MS),
    JSON_BOOL("persistent", struct config_wire, persistent),
    JSON_READ("ports", struct config_wire, tree, vercel_config_read_ports, "array"),
    JSON_READ("tags", struct config_wire, tree, vercel_config_read_tags, "object"),
    JSON_READ("env", struct config_wire, env, sandbox_env_read, "object"),
    JSON_OBJECT("networkPolicy", struct config_wire, policy, vercel_policy_fields),
    JSON_OBJECT_HERE("resources", resource_fields),
    JSON_MAP("keepLastSnapshots", struct config_wire, keep),
    JSON_OBJECT("keepLastSnapshots", struct config_wire, kept, keep_fields),
    JSON_TEXT("networkId", struct config_wire, network),
    JSON_MAP("mounts", struct config_wire, mounts),
};
enum { KEPT_AS_THEY_ARE = 9 };
JSON_SHAPE("POST /api/v2/sandboxes", config_fields);
JSON_SHAPE("POST /api/v2/sandboxes/{name}/fork", config_fields);
JSON_SHAPE("PATCH /api/v2/sandboxes/{name}", config_fields);

/* What this server does not have is refused, unless it makes no difference to a program. */
static int vercel_config_refuse(const struct config_wire *w, struct err *err) {
    if (w->network)
        return err_set(err, ERR_BAD_REQUEST, "\"networkId\": there are no private networks here");
    if (json_object_size(w->mounts) > 0)
        return err_set(
            err, ERR_BAD_REQUEST,
            "\"mounts\": there are no drives here; use snapshots, or a bind of cay.json");
    if (w->keep && !w->kept.count)
        return err_set(err, ERR_BAD_REQUEST, "keepLastSnapshots.count is needed: 1 to %d",
                       SNAPSHOTS_MAX);
    return 0;
}

int vercel_config_read(const json_t *body, json_t *config, struct err *err) {
    struct config_wire w = {.policy = {.mode = POLICY_LISTED},
                            .kept = {.expiration = -1, .delete = true}};
    int rc = json_table_read(config_fields, ARRAY_LEN(config_fields), body, NULL, &w, err);
    sandbox_strv_finish(&w.env);
    if (rc == 0)
        rc = vercel_config_refuse(&w, err);
    if (rc == 0)
        rc = check_policy(&w.policy, err);
    if (rc == 0)
        rc = check_part(body, "networkPolicy", err);
    if (rc == 0)
        rc = check_part(body, "env", err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < KEPT_AS_THEY_ARE; i++) {
        json_t *v = json_object_get(body, config_fields[i].key);
        if (v && !json_is_null(v))
            (void)json_object_set(config, config_fields[i].key, v);
    }
    if (w.vcpus)
        (void)json_object_set_new(config, "vcpus", json_integer(w.vcpus));
    if (!w.keep)
        return 0;
    json_t *keep =
        json_pack("{s:I,s:b}", "count", (json_int_t)w.kept.count, "deleteEvicted", w.kept.delete);
    if (w.kept.expiration >= 0)
        (void)json_object_set_new(keep, "expiration", json_integer(w.kept.expiration));
    (void)json_object_set_new(config, "keepLastSnapshots", keep);
    return 0;
}
