#include "front/task/settings.h"

#include "base/cleanup.h"
#include "base/limits.h"

#include <string.h>

struct task_settings task_settings_default(void) {
    return (struct task_settings){.slots = LIMIT_TASK_SLOTS,
                                  .per_key = LIMIT_TASK_PER_KEY,
                                  .waiting_per_key = LIMIT_TASK_WAITING_PER_KEY,
                                  .waiting_mb_per_key = LIMIT_TASK_WAITING_MB_PER_KEY,
                                  .keep_s = LIMIT_TASK_KEEP_S,
                                  .keep_tasks = LIMIT_TASK_KEEP_TASKS,
                                  .keep_mb = LIMIT_TASK_KEEP_MB};
}

void task_settings_finish(struct task_settings *s) {
    json_decref(s->private_webhooks);
    s->private_webhooks = NULL;
}

static int read_private(struct task_settings *s, const json_t *list, struct err *err) {
    size_t i;
    const json_t *v;
    if (!list)
        return 0;
    if (!json_is_array(list))
        return err_set(err, ERR_BAD_REQUEST,
                       "\"private_webhooks\" must be a list of \"host:port\"");
    json_array_foreach(list, i, v) if (!json_is_string(v)) return err_set(
        err, ERR_BAD_REQUEST, "\"private_webhooks\" must be a list of \"host:port\"");
    s->private_webhooks = json_deep_copy(list);
    return 0;
}

/* What the desk was made with stays until the next start. */
size_t task_settings_table(struct task_settings *s, struct setting out[SETTINGS_MAX]) {
    const struct setting table[] = {
        SETTING_FIXED("slots", s->slots, 0, 1024),
        SETTING_FIXED("per_key", s->per_key, 1, 1024),
        SETTING("waiting_per_key", s->waiting_per_key, 1, 10000000),
        SETTING("waiting_mb_per_key", s->waiting_mb_per_key, 1, 1048576),
        SETTING_FIXED("keep_s", s->keep_s, 60, 3153600000),
        SETTING_FIXED("keep_tasks", s->keep_tasks, 1, 1000000000),
        SETTING_FIXED("keep_mb", s->keep_mb, 1, 1048576),
    };
    memcpy(out, table, sizeof(table));
    return ARRAY_LEN(table);
}

int task_settings_read(struct task_settings *s, const json_t *json, struct err *err) {
    static const char *const others[] = {"private_webhooks", NULL};
    struct setting table[SETTINGS_MAX];
    size_t n = task_settings_table(s, table);
    if (!json)
        return 0;
    int rc = settings_check_keys(table, n, others, json, "\"tasks\"", err);
    if (rc == 0)
        rc = settings_read(table, n, json, err);
    return rc < 0 ? rc : read_private(s, json_object_get(json, "private_webhooks"), err);
}
