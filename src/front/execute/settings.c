#include "front/execute/settings.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MAX_MS = 86400000 };

struct execute_settings execute_settings_default(void) {
    return (struct execute_settings){.max = LIMIT_EXECUTE_MAX,
                                     .timeout_ms = LIMIT_EXECUTE_TIMEOUT_MS,
                                     .fetch_timeout_ms = LIMIT_EXECUTE_FETCH_TIMEOUT_MS};
}

size_t execute_settings_table(struct execute_settings *s, struct setting out[SETTINGS_MAX]) {
    const struct setting table[] = {
        SETTING("max", s->max, 1, 100000),
        SETTING("timeout_ms", s->timeout_ms, 1, TIMEOUT_MAX_MS),
        SETTING("fetch_timeout_ms", s->fetch_timeout_ms, 1, 600000),
    };
    memcpy(out, table, sizeof(table));
    return ARRAY_LEN(table);
}

int execute_settings_read(struct execute_settings *s, const json_t *json, struct err *err) {
    static const char *const others[] = {"search_url", NULL};
    const char *url = NULL;
    struct setting table[SETTINGS_MAX];
    size_t n = execute_settings_table(s, table);
    if (!json)
        return 0;
    int rc = settings_check_keys(table, n, others, json, "\"execute\"", err);
    if (rc == 0)
        rc = settings_read(table, n, json, err);
    if (rc == 0)
        rc = json_get_str(json, "search_url", &url, err);
    if (rc == 0 && url && strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        rc = err_set(err, ERR_BAD_REQUEST,
                     "\"search_url\" must be the address of a SearXNG-compatible server, such as "
                     "\"http://127.0.0.1:8080\"");
    if (rc == 0 && url) {
        free(s->search_url);
        s->search_url = xstrdup(url);
    }
    return rc;
}

int execute_settings_time(struct execute_settings *s, const char *text, struct err *err) {
    char *end = NULL;
    if (!text)
        return 0;
    bool digit = *text >= '0' && *text <= '9';
    long long v = digit ? strtoll(text, &end, 10) : 0;
    if (!digit || *end || v < 1 || v > TIMEOUT_MAX_MS)
        return err_set(err, ERR_BAD_REQUEST,
                       "MAX_EXECUTION_TIME must be a number of milliseconds from 1 to %d",
                       TIMEOUT_MAX_MS);
    s->timeout_ms = v;
    return 0;
}

void execute_settings_finish(struct execute_settings *s) {
    free(s->search_url);
    *s = (struct execute_settings){0};
}
