#include "front/store/settings.h"

#include "base/cleanup.h"
#include "base/limits.h"

#include <string.h>

struct store_settings store_settings_default(void) {
    return (struct store_settings){.keep_runs = LIMIT_STORE_KEEP_RUNS,
                                   .keep_s = LIMIT_STORE_KEEP_S,
                                   .keep_mb = LIMIT_STORE_KEEP_MB,
                                   .run_events = LIMIT_STORE_RUN_EVENTS,
                                   .run_events_mb = LIMIT_STORE_RUN_EVENTS_MB,
                                   .artifacts = LIMIT_STORE_ARTIFACTS,
                                   .artifact_mb = LIMIT_STORE_ARTIFACT_MB,
                                   .workers = LIMIT_STORE_WORKERS,
                                   .workers_mb = LIMIT_STORE_WORKERS_MB};
}

size_t store_settings_table(struct store_settings *s, struct setting out[SETTINGS_MAX]) {
    const struct setting table[] = {
        SETTING("keep_runs", s->keep_runs, 1, 1000000000),
        SETTING("keep_s", s->keep_s, 1, 3153600000),
        SETTING("keep_mb", s->keep_mb, 1, 1 << 24),
        SETTING("run_events", s->run_events, 1, 100000),
        SETTING("run_events_mb", s->run_events_mb, 1, 1024),
        SETTING("artifacts", s->artifacts, 0, 10000),
        SETTING("artifact_mb", s->artifact_mb, 1, 1 << 20),
        SETTING("workers", s->workers, 1, 100000),
        SETTING("workers_mb", s->workers_mb, 1, 1 << 20),
    };
    memcpy(out, table, sizeof(table));
    return ARRAY_LEN(table);
}

int store_settings_read(struct store_settings *s, const json_t *json, struct err *err) {
    struct setting table[SETTINGS_MAX];
    size_t n = store_settings_table(s, table);
    int rc = json ? settings_check_keys(table, n, NULL, json, "\"store\"", err) : 0;
    return rc < 0 ? rc : settings_read(table, n, json, err);
}
