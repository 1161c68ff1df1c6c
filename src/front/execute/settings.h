#pragma once
/* The operator's settings of the executor: "execute" in cay.json. */

#include "base/err.h"
#include "base/json.h"
#include "front/common/setting.h"

#include <stdint.h>

struct execute_settings {
    int64_t max;              /* calls of /execute/sdk at once, of all keys together */
    int64_t timeout_ms;       /* of each; MAX_EXECUTION_TIME is put over it */
    int64_t fetch_timeout_ms; /* of a page that WebFetch reads, with its redirects */
    char *search_url;         /* of a SearXNG-compatible server, for WebSearch; or NULL */
};

struct execute_settings execute_settings_default(void);
/* Its numbers; returns how many there are. */
size_t execute_settings_table(struct execute_settings *s, struct setting out[SETTINGS_MAX]);
/* json may be NULL. */
int execute_settings_read(struct execute_settings *s, const json_t *json, struct err *err);
/* What MAX_EXECUTION_TIME says, in milliseconds; text may be NULL. */
int execute_settings_time(struct execute_settings *s, const char *text, struct err *err);
void execute_settings_finish(struct execute_settings *s);
