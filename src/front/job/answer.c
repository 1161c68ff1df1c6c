#include "front/job/answer.h"

#include "base/clock.h"
#include "base/id.h"

#include <stdio.h>
#include <string.h>

enum { EVENTS_MAX = 1000 };

/* Jobs that began by an interface of UUIDs are told by theirs. */
static bool is_told_by_uuid(const char *kind) {
    return strcmp(kind, "sdk") == 0 || strcmp(kind, "execute") == 0;
}

static void job_answer_write_usage(struct json_writer *w, const struct store_run *r) {
    const struct store_run_usage *u = &r->usage;
    char cost[40];
    json_writer_key(w, "usage");
    if (!r->has_usage) {
        json_writer_null(w);
        return;
    }
    json_writer_object_begin(w);
    json_writer_key(w, "input_tokens");
    json_writer_int(w, u->input_tokens);
    json_writer_key(w, "output_tokens");
    json_writer_int(w, u->output_tokens);
    json_writer_key(w, "cache_read_tokens");
    json_writer_int(w, u->cache_read_tokens);
    json_writer_key(w, "cache_write_tokens");
    json_writer_int(w, u->cache_write_tokens);
    json_writer_key(w, "cost_usd");
    int n = snprintf(cost, sizeof(cost), "%.9f", (double)u->cost_nusd / 1e9);
    json_writer_raw(w, cost, (size_t)n);
    json_writer_key(w, "price_known");
    json_writer_bool(w, !u->unpriced);
    json_writer_object_end(w);
}

void job_answer_run(struct json_writer *w, const struct store_run *r) {
    char text[CLOCK_RFC3339_SIZE];
    char uuid[UUID_SIZE];
    json_writer_key(w, "id");
    json_writer_str(w, is_told_by_uuid(r->kind) ? id_to_uuid(r->id, uuid) : r->id);
    json_writer_key(w, "kind");
    json_writer_str(w, r->kind);
    json_writer_key(w, "status");
    json_writer_str(w, r->status);
    json_writer_key(w, "title");
    json_writer_str(w, r->title);
    json_writer_key(w, "key");
    json_writer_str(w, r->key);
    json_writer_key(w, "project");
    json_writer_str(w, *r->owner ? r->owner : "default");
    json_writer_key(w, "created_at");
    json_writer_str(w, clock_rfc3339(r->created_ms, text));
    json_writer_key(w, "finished_at");
    json_writer_str(w, r->finished_ms ? clock_rfc3339(r->finished_ms, text) : NULL);
    json_writer_key(w, "duration_ms");
    if (r->finished_ms)
        json_writer_int(w, r->finished_ms - r->created_ms);
    else
        json_writer_null(w);
    job_answer_write_usage(w, r);
    json_writer_key(w, "error");
    if (r->error_code) {
        json_writer_object_begin(w);
        json_writer_key(w, "code");
        json_writer_str(w, r->error_code);
        json_writer_key(w, "message");
        json_writer_str(w, r->error_message);
        json_writer_object_end(w);
    } else {
        json_writer_null(w);
    }
}

static void job_answer_on_event(void *ctx, const struct store_event *e) {
    struct json_writer *w = ctx;
    char text[CLOCK_RFC3339_SIZE];
    json_writer_object_begin(w);
    json_writer_key(w, "seq");
    json_writer_int(w, e->seq);
    json_writer_key(w, "time");
    json_writer_str(w, clock_rfc3339(e->time_ms, text));
    json_writer_key(w, "type");
    json_writer_str(w, e->type);
    json_writer_key(w, "data");
    json_writer_raw(w, e->json, strlen(e->json));
    json_writer_object_end(w);
}

int job_answer(struct store *s, const char *id, struct store_scope scope, struct buf *out,
               struct err *err) {
    struct store_run r;
    struct json_writer w;
    int rc = store_run_get(s, id, scope, &r, err);
    if (rc < 0)
        return rc;
    json_writer_init(&w, out);
    json_writer_object_begin(&w);
    job_answer_run(&w, &r);
    json_writer_key(&w, "detail");
    if (r.detail)
        json_writer_raw(&w, r.detail, strlen(r.detail));
    else
        json_writer_null(&w);
    json_writer_key(&w, "events");
    json_writer_array_begin(&w);
    rc = store_event_list(s, id, 0, EVENTS_MAX, job_answer_on_event, &w, err);
    json_writer_array_end(&w);
    json_writer_object_end(&w);
    store_run_finish(&r);
    return rc;
}

void job_answer_head(struct json_writer *w, bool success, const char *uuid, int64_t time_ms) {
    char text[CLOCK_RFC3339_SIZE];
    json_writer_key(w, "success");
    json_writer_bool(w, success);
    json_writer_key(w, "request_id");
    json_writer_str(w, uuid);
    json_writer_key(w, "timestamp");
    json_writer_str(w, clock_rfc3339(time_ms, text));
}

void job_answer_error(struct json_writer *w, const char *code, const char *message) {
    json_writer_key(w, "error");
    json_writer_object_begin(w);
    json_writer_key(w, "code");
    json_writer_str(w, code);
    json_writer_key(w, "message");
    json_writer_str(w, message);
    json_writer_object_end(w);
}
