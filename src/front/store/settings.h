#pragma once
/* How much the store keeps: "store" in cay.json. */

#include "base/err.h"
#include "base/json.h"
#include "front/common/setting.h"

#include <stdint.h>

enum { STORE_BUCKET_URL_SIZE = 512 };

struct store_settings {
    int64_t keep_runs; /* that have ended, of all keys together */
    int64_t keep_s;
    int64_t keep_mb;
    int64_t run_events; /* of one run */
    int64_t run_events_mb;
    int64_t artifacts; /* of one run */
    int64_t artifact_mb;
    int64_t workers; /* of one key */
    int64_t workers_mb;
    char bucket_url[STORE_BUCKET_URL_SIZE]; /* where copies of artifacts go; "": nowhere */
    char bucket_region[64];
};

struct store_settings store_settings_default(void);
/* Returns how many there are. */
size_t store_settings_table(struct store_settings *s, struct setting out[SETTINGS_MAX]);
/* json may be NULL. */
int store_settings_read(struct store_settings *s, const json_t *json, struct err *err);
