#pragma once
/* "tasks" in cay.json. */

#include "base/err.h"
#include "base/json.h"
#include "front/common/setting.h"

#include <stdint.h>

struct task_settings {
    int64_t slots;              /* that run at a time */
    int64_t per_key;            /* of them, of one key */
    int64_t waiting_per_key;    /* that wait, of one key */
    int64_t waiting_mb_per_key; /* what those of one key that have not ended may take */
    int64_t keep_s;             /* for so long after their end */
    int64_t keep_tasks;         /* so many that have ended */
    int64_t keep_mb;            /* so much of their results */
    json_t *private_webhooks;   /* "host:port" of receivers that need not be public; or NULL */
};

struct task_settings task_settings_default(void);
void task_settings_finish(struct task_settings *s);
/* Returns how many there are. */
size_t task_settings_table(struct task_settings *s, struct setting out[SETTINGS_MAX]);
/* json may be NULL. */
int task_settings_read(struct task_settings *s, const json_t *json, struct err *err);
