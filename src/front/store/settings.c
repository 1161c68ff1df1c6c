#include "front/store/settings.h"

#include "base/cleanup.h"
#include "base/limits.h"

#include <stdio.h>
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

/* What is signed must be written as the server reads it: nothing that has to be escaped. */
static bool is_bucket_url(const char *url) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
    size_t scheme = strncmp(url, "https://", 8) == 0 ? 8 : strncmp(url, "http://", 7) == 0 ? 7 : 0;
    const char *path = scheme ? strchr(url + scheme, '/') : NULL;
    size_t n = strlen(url);
    return path && path > url + scheme && n < STORE_BUCKET_URL_SIZE && path[1] &&
           url[n - 1] != '/' && strspn(path, plain) == strlen(path) && !strstr(path, "//") &&
           !strchr(url, '@') && !strstr(path, "/.");
}

static bool is_region(const char *name) {
    size_t n = strlen(name);
    return n > 0 && n < 64 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

static int read_bucket(struct store_settings *s, const json_t *json, struct err *err) {
    static const char *const keys[] = {"url", "region", NULL};
    const char *url = NULL;
    const char *region = "us-east-1";
    if (!json || json_is_null(json))
        return 0;
    int rc = json_check_keys(json, "\"bucket\"", keys, err);
    if (rc == 0)
        rc = json_get_str(json, "url", &url, err);
    if (rc == 0)
        rc = json_get_str(json, "region", &region, err);
    if (rc == 0 && (!url || !is_bucket_url(url)))
        rc = err_set(err, ERR_BAD_REQUEST,
                     "\"url\" of \"bucket\" is such as \"https://HOST/BUCKET\" or "
                     "\"https://HOST/BUCKET/FOLDER\", of letters, digits and \"-._~\"");
    if (rc == 0 && !is_region(region))
        rc = err_set(err, ERR_BAD_REQUEST, "\"region\" of \"bucket\" is such as \"us-east-1\"");
    if (rc < 0)
        return rc;
    (void)snprintf(s->bucket_url, sizeof(s->bucket_url), "%s", url);
    (void)snprintf(s->bucket_region, sizeof(s->bucket_region), "%s", region);
    return 0;
}

int store_settings_read(struct store_settings *s, const json_t *json, struct err *err) {
    static const char *const others[] = {"bucket", NULL};
    struct setting table[SETTINGS_MAX];
    size_t n = store_settings_table(s, table);
    int rc = json ? settings_check_keys(table, n, others, json, "\"store\"", err) : 0;
    if (rc == 0)
        rc = settings_read(table, n, json, err);
    return rc < 0 ? rc : read_bucket(s, json_object_get(json, "bucket"), err);
}
