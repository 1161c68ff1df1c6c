#pragma once
/* The operator's settings: cay.json, then the command line over it. Unknown keys are errors that
 * name the file and the key, so that a misspelt limit is not silently the default. */

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "front/agent/limits.h"
#include "front/common/setting.h"
#include "front/execute/settings.h"
#include "front/http/server.h"
#include "front/run/runner.h"
#include "front/sandbox/settings.h"
#include "front/store/settings.h"
#include "front/task/settings.h"

#include <stdbool.h>
#include <stddef.h>

struct config {
    char **listen; /* "HOST:PORT" or "unix:PATH" */
    size_t nlisten;
    char *data_dir;
    char *web_dir;
    char *agents_dir;
    char *coders_dir;  /* further kinds of coding agents, or NULL */
    json_t *coders;    /* {NAME: where its program is}, or NULL */
    char *models_file; /* NULL: the built-in list */
    char *model;       /* the default model; NULL: by the keys there are */
    char *user;
    char *file;   /* the file that was read, or NULL */
    json_t *tree; /* what it says */
    char **hosts; /* further host names that this server answers for */
    size_t nhosts;
    char **origins; /* pages of other origins that may call the API */
    size_t norigins;
    char **proxies; /* whose X-Forwarded-For is believed: addresses and ranges */
    size_t nproxies;
    char **tail_origins; /* where traces of runs may go */
    size_t ntail_origins;
    bool require_key;
    bool call_filter; /* the front makes only the system calls that it needs */
    enum log_level log_level;
    struct http_limits http;
    struct runner_config runner;
    struct agent_limits agents;
    struct sandbox_settings sandboxes;
    struct store_settings store;
    struct task_settings tasks;
    struct execute_settings execute;
    unsigned drain_timeout_ms;
    int64_t keys;               /* that the API may make */
    int64_t address_per_minute; /* requests of a caller without a key; 0: no limit */
    int64_t coder_max_steps;    /* of a coding job that does not say */
    int64_t key_per_minute;     /* of a key that has no rate of its own; 0: no limit */
};

void config_init(struct config *c);
void config_finish(struct config *c);
/* The file that is read when none is named: ./cay.json, then /etc/cay/cay.json, or NULL. */
const char *config_usual_file(void);
/* Without the one of this folder: /etc/cay/cay.json, or NULL. */
const char *config_machine_file(void);
/* path NULL: the usual one, if there is any. */
int config_load(struct config *c, const char *path, struct err *err);
/* The text of the file, with every comment (from // or # to the end of its line, outside of
 * strings) made blank, so that places in it stay right. It is never NULL. */
int config_read_text(const char *path, struct buf *ret_text, struct err *err);
/* What an object says, over what is set already. */
int config_read_tree(struct config *c, const json_t *root, struct err *err);
/* The names of all settings; the numbers in sections are below. */
extern const char *const config_keys[];
/* The sections that have numbers, from 0 on: the name and the table, until the name is NULL. */
size_t config_table(struct config *c, size_t section, const char **ret_name,
                    struct setting out[SETTINGS_MAX]);
/* Adds "HOST:PORT" or "unix:PATH"; the first call of the command line replaces the file's list. */
int config_add_listen(struct config *c, const char *address, struct err *err);
/* Fills what nothing has set. */
void config_defaults(struct config *c);
/* What may be shown of a setting: a copy without the values of header fields, but for references
 * such as "Bearer ${NAME}", and without user and query of a URL. NULL for NULL. */
json_t *config_hide_secrets(const json_t *value);
/* Takes over from `next`, which has been read since, what can change while the server runs, and
 * tells of everything that differs: applied, or not before a restart. */
void config_take_over(struct config *now, struct config *next,
                      void (*on_change)(void *ctx, const char *key, const char *from,
                                        const char *to, bool applied),
                      void *ctx);

/* Splits "HOST:PORT" ("[::1]:80"); the host is written to ret_host without brackets. */
int config_parse_address(const char *address, char *ret_host, size_t size, unsigned *ret_port,
                         struct err *err);
