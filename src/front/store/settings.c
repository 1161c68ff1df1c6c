#include "front/store/settings.h"

#include "base/cleanup.h"
#include "base/limits.h"

struct store_settings store_settings_default(void) {
    return (struct store_settings){.keep_runs = LIMIT_STORE_KEEP_RUNS,
                                   .keep_s = LIMIT_STORE_KEEP_S,
                                   .keep_mb = LIMIT_STORE_KEEP_MB,
                                   .run_events = LIMIT_STORE_RUN_EVENTS,
                                   .run_events_mb = LIMIT_STORE_RUN_EVENTS_MB,
                                   .workers = LIMIT_STORE_WORKERS,
                                   .workers_mb = LIMIT_STORE_WORKERS_MB};
}

int store_settings_read(struct store_settings *s, const json_t *json, struct err *err) {
    if (!json)
        return 0;
    const struct {
        const char *key;
        int64_t *at;
        int64_t max;
    } table[] = {
        {"keep_runs", &s->keep_runs, 1000000000},   {"keep_s", &s->keep_s, 3153600000},
        {"keep_mb", &s->keep_mb, 1 << 24},          {"run_events", &s->run_events, 100000},
        {"run_events_mb", &s->run_events_mb, 1024}, {"workers", &s->workers, 100000},
        {"workers_mb", &s->workers_mb, 1 << 20},
    };
    const char *keys[ARRAY_LEN(table) + 1] = {NULL};
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        keys[i] = table[i].key;
    int rc = json_check_keys(json, "\"store\"", keys, err);
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(table); i++)
        rc = json_get_int(json, table[i].key, 1, table[i].max, table[i].at, err);
    return rc;
}
