#include "base/cleanup.h"
#include "base/mem.h"
#include "front/vercel/internal.h"

#include <stdlib.h>
#include <string.h>

/* The configuration of a sandbox: what the SDK asks for when it makes, forks or updates one. */

enum {
    PORTS_MAX = 15,
    TAGS_MAX = 5,
    TAG_BYTES = 256,
    VCPUS_MAX = 1024,
    TEXT_BYTES = 256,
    PART_BYTES = 64 << 10, /* it is kept as long as the name is */
};

static int read_ports(const json_t *body, json_t *config, struct err *err) {
    json_t *ports = json_object_get(body, "ports");
    size_t i;
    const json_t *p;
    if (!ports || json_is_null(ports))
        return 0;
    if (!json_is_array(ports) || json_array_size(ports) > PORTS_MAX)
        return err_set(err, ERR_BAD_REQUEST, "\"ports\" must be a list of at most %d ports",
                       PORTS_MAX);
    json_array_foreach(ports, i, p) {
        if (!json_is_integer(p) || json_integer_value(p) < 1 || json_integer_value(p) > 65535)
            return err_set(err, ERR_BAD_REQUEST, "a port is a number from 1 to 65535");
    }
    (void)json_object_set(config, "ports", ports);
    return 0;
}

static int read_tags(const json_t *body, json_t *config, struct err *err) {
    json_t *tags = json_object_get(body, "tags");
    const char *key;
    json_t *v;
    if (!tags || json_is_null(tags))
        return 0;
    if (!json_is_object(tags) || json_object_size(tags) > TAGS_MAX)
        return err_set(err, ERR_BAD_REQUEST, "\"tags\" must be an object of at most %d strings",
                       TAGS_MAX);
    json_object_foreach(tags, key, v) {
        if (!json_is_string(v) || strlen(key) + json_string_length(v) > TAG_BYTES)
            return err_set(err, ERR_BAD_REQUEST, "a tag is a string, with its key at most %d bytes",
                           TAG_BYTES);
    }
    (void)json_object_set(config, "tags", tags);
    return 0;
}

static int vercel_config_read_numbers(const json_t *body, json_t *config, struct err *err) {
    const json_t *resources = json_object_get(body, "resources");
    int64_t vcpus = 0;
    int64_t timeout = 0;
    int64_t expiration = -1;
    int rc = json_get_int(body, "timeout", 1, INT64_MAX / 1000, &timeout, err);
    if (rc == 0)
        rc = json_get_int(body, "snapshotExpiration", 0, INT64_MAX / 1000, &expiration, err);
    if (rc == 0 && json_is_object(resources))
        rc = json_get_int(resources, "vcpus", 1, VCPUS_MAX, &vcpus, err);
    if (rc < 0)
        return rc;
    if (timeout)
        (void)json_object_set_new(config, "timeout", json_integer(timeout));
    if (expiration >= 0)
        (void)json_object_set_new(config, "snapshotExpiration", json_integer(expiration));
    if (vcpus)
        (void)json_object_set_new(config, "vcpus", json_integer(vcpus));
    return 0;
}

static int read_keep(const json_t *body, json_t *config, struct err *err) {
    const json_t *keep = json_object_get(body, "keepLastSnapshots");
    int64_t count = 0;
    int64_t expiration = -1;
    bool delete = true;
    if (!keep || json_is_null(keep))
        return 0;
    int rc = json_is_object(keep) ? json_get_int(keep, "count", 1, 10, &count, err) : 0;
    if (rc == 0 && count == 0)
        rc = err_set(err, ERR_BAD_REQUEST, "keepLastSnapshots.count is 1 to 10");
    if (rc == 0)
        rc = json_get_int(keep, "expiration", 0, INT64_MAX / 1000, &expiration, err);
    if (rc == 0)
        rc = json_get_bool(keep, "deleteEvicted", &delete, err);
    if (rc < 0)
        return rc;
    json_t *own = json_pack("{s:I,s:b}", "count", (json_int_t)count, "deleteEvicted", delete);
    if (expiration >= 0)
        (void)json_object_set_new(own, "expiration", json_integer(expiration));
    (void)json_object_set_new(config, "keepLastSnapshots", own);
    return 0;
}

static int check_part(const char *key, const json_t *v, struct err *err) {
    _cleanup_(free) char *text = json_is_object(v) ? json_dumps(v, JSON_COMPACT) : NULL;
    if (!text)
        return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be an object", key);
    if (strlen(text) > PART_BYTES)
        return err_set(err, ERR_TOO_LARGE, "\"%s\" exceeds %d bytes", key, PART_BYTES);
    return 0;
}

/* A sandbox whose policy cannot be read could not be resumed. What the operator allows is asked
 * when a session begins. */
static int check_policy(const json_t *v, struct err *err) {
    struct policy p = {0};
    int rc = vercel_policy_read(v, NULL, &p, err);
    vercel_policy_finish(&p);
    return rc;
}

static int check_env(const json_t *env, struct err *err) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)env, name, v) {
        if (!*name || strchr(name, '=') || !json_is_string(v) ||
            strlen(json_string_value(v)) != json_string_length(v))
            return err_set(err, ERR_BAD_REQUEST,
                           "\"env\": names have no \"=\", values are strings without NUL");
    }
    return 0;
}

static int read_parts(const json_t *body, json_t *config, struct err *err) {
    static const struct {
        const char *key;
        int (*check)(const json_t *v, struct err *err);
    } parts[] = {{"networkPolicy", check_policy}, {"env", check_env}};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        json_t *v = json_object_get(body, parts[i].key);
        if (!v || json_is_null(v))
            continue;
        int rc = check_part(parts[i].key, v, err);
        if (rc == 0)
            rc = parts[i].check(v, err);
        if (rc < 0)
            return rc;
        (void)json_object_set(config, parts[i].key, v);
    }
    return 0;
}

static int vercel_config_read_texts(const json_t *body, json_t *config, struct err *err) {
    static const char *const texts[] = {"runtime", "image"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const char *text = NULL;
        int rc = json_get_str(body, texts[i], &text, err);
        if (rc == 0 && text && strlen(text) > TEXT_BYTES)
            rc = err_set(err, ERR_BAD_REQUEST, "\"%s\" has at most %d bytes", texts[i], TEXT_BYTES);
        if (rc < 0)
            return rc;
        if (text)
            (void)json_object_set_new(config, texts[i], json_string(text));
    }
    return 0;
}

/* What this server does not have is refused, unless it makes no difference to a program. */
static int vercel_config_refuse(const json_t *body, struct err *err) {
    if (json_is_string(json_object_get(body, "networkId")))
        return err_set(err, ERR_BAD_REQUEST, "\"networkId\": there are no private networks here");
    if (json_object_size(json_object_get(body, "mounts")) > 0)
        return err_set(
            err, ERR_BAD_REQUEST,
            "\"mounts\": there are no drives here; use snapshots, or a bind of cay.json");
    return 0;
}

int vercel_config_read(const json_t *body, json_t *config, struct err *err) {
    bool persistent = json_is_true(json_object_get(config, "persistent"));
    int rc = vercel_config_refuse(body, err);
    if (rc == 0)
        rc = json_get_bool(body, "persistent", &persistent, err);
    if (rc == 0)
        rc = vercel_config_read_texts(body, config, err);
    if (rc == 0)
        rc = read_ports(body, config, err);
    if (rc == 0)
        rc = read_tags(body, config, err);
    if (rc == 0)
        rc = vercel_config_read_numbers(body, config, err);
    if (rc == 0)
        rc = read_keep(body, config, err);
    if (rc == 0)
        rc = read_parts(body, config, err);
    if (rc == 0)
        (void)json_object_set_new(config, "persistent", json_boolean(persistent));
    return rc;
}
