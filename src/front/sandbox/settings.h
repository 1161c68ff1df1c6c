#pragma once
/* The operator's settings of sandboxes: "sandboxes" in cay.json. Roots, binds and routes are handed
 * out by name; no request ever names a path of this machine or holds a credential. */

#include "base/err.h"
#include "base/json.h"
#include "front/common/setting.h"
#include "wire/sandbox.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sandbox_bind_setting {
    char *name;
    char *path;
    bool write; /* may be bound writable */
    int fd;     /* opened while we may still see it, or -1 */
};

struct sandbox_settings {
    uint32_t pool;
    uint32_t max;
    uint32_t max_per_key;
    uint32_t timeout_s;
    uint32_t max_timeout_s;
    /* What a sandbox has unless it asks for less. */
    uint32_t memory_mb;
    uint32_t disk_mb;
    uint32_t pids;
    double cpus;         /* 0: no quota */
    uint32_t output_mb;  /* kept of each stream of a command */
    uint32_t outputs_mb; /* of all commands of one sandbox together */
    uint32_t execs;      /* ended commands that are remembered, for each sandbox */
    uint32_t commands;   /* that run, in all sandboxes together */
    uint32_t commands_per_key;
    uint32_t keep;         /* ended sandboxes that are remembered */
    uint32_t keep_s;       /* and for how long */
    uint32_t upload_mb;    /* body of one upload */
    uint32_t snapshot_mb;  /* one snapshot */
    uint32_t snapshots_mb; /* all snapshots together */
    uint32_t snapshots_mb_per_key;
    uint32_t snapshot_s;   /* one may take */
    uint32_t connections;  /* to the ports of one sandbox at a time */
    uint32_t answer_s;     /* that a server inside may take to begin its answer */
    uint32_t events;       /* of its network that are kept, let out and refused, for each sandbox */
    uint32_t events_total; /* of all of them */
    uint32_t uid_base;
    uint32_t uid_count;
    struct sandbox_root *roots;
    size_t nroots;
    struct sandbox_bind_setting *binds;
    size_t nbinds;
    json_t *routes;  /* {NAME: route}, or NULL */
    json_t *allow;   /* what a request may allow at most; NULL: any public host */
    json_t *private; /* "host:port" of upstreams with private addresses */
    char *ca_file;   /* certificates of upstreams; NULL: the system's */
    /* caps of one sandbox; 0: none */
    uint64_t cap_requests, cap_requests_per_minute, cap_bytes, cap_tokens;
    double cap_usd;
};

struct sandbox_settings sandbox_settings_default(void);
/* Its numbers; returns how many there are. */
size_t sandbox_settings_table(struct sandbox_settings *s, struct setting out[SETTINGS_MAX]);
int sandbox_settings_read(struct sandbox_settings *s, const json_t *json, struct err *err);
/* Opens the folders of binds, with the rights we have now. */
int sandbox_settings_open(struct sandbox_settings *s, struct err *err);
void sandbox_settings_finish(struct sandbox_settings *s);
/* NULL if there is none of that name. */
const struct sandbox_root *sandbox_settings_root(const struct sandbox_settings *s,
                                                 const char *name);
const struct sandbox_bind_setting *sandbox_settings_bind(const struct sandbox_settings *s,
                                                         const char *name);
