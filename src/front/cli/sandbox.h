#pragma once
/* What the files of `cay sandbox` share. */

#include "base/id.h"
#include "front/cli/client.h"

#include <stdbool.h>

struct subverb;

struct sandbox_args {
    const struct subverb *verb;
    const char *url;
    const char *name;
    const char *root;
    const char *snapshot;
    const char *workdir;
    int64_t memory_bytes;
    int64_t disk_bytes;
    int64_t timeout_ms;
    int64_t pids;
    double cpus;
    json_t *allow, *routes, *binds; /* arrays */
    json_t *env, *metadata;         /* objects */
    bool all;
    bool tty;
    bool detach;
    bool follow;
    bool quiet;
    bool json;
    char **rest; /* what is no option */
    int nrest;
};

struct sandbox_cli {
    struct client client;
    struct sandbox_args args;
};

/* The id for an id or a name. */
int sandbox_resolve(struct sandbox_cli *c, const char *text, char ret_id[ID_SIZE], struct err *err);
/* "/v1/sandboxes/ID" + rest; the caller frees. */
char *sandbox_path(const char *id, const char *rest);

/* Each returns an exit status, or a negative error code. */
int sandbox_exec(struct sandbox_cli *c, struct err *err);
int sandbox_sh(struct sandbox_cli *c, struct err *err);
int sandbox_logs(struct sandbox_cli *c, struct err *err);
int sandbox_cp(struct sandbox_cli *c, struct err *err);
