#include "front/job/answer.h"

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
    if (!r->has_usage) {
        json_put_null(w, "usage");
        return;
    }
    json_put_object_begin(w, "usage");
    json_put_int(w, "input_tokens", u->input_tokens);
    json_put_int(w, "output_tokens", u->output_tokens);
    json_put_int(w, "cache_read_tokens", u->cache_read_tokens);
    json_put_int(w, "cache_write_tokens", u->cache_write_tokens);
    (void)snprintf(cost, sizeof(cost), "%.9f", (double)u->cost_nusd / 1e9);
    json_put_raw_str(w, "cost_usd", cost);
    json_put_bool(w, "price_known", !u->unpriced);
    json_writer_object_end(w);
}

void job_answer_run(struct json_writer *w, const struct store_run *r) {
    char uuid[UUID_SIZE];
    json_put_str(w, "id", is_told_by_uuid(r->kind) ? id_to_uuid(r->id, uuid) : r->id);
    json_put_str(w, "kind", r->kind);
    json_put_str(w, "status", job_status_name(r->status));
    json_put_str(w, "title", r->title);
    json_put_str(w, "key", r->key);
    json_put_str(w, "project", *r->owner ? r->owner : "default");
    json_put_time(w, "created_at", r->created_ms);
    json_put_time(w, "finished_at", r->finished_ms);
    if (r->finished_ms)
        json_put_int(w, "duration_ms", r->finished_ms - r->created_ms);
    else
        json_put_null(w, "duration_ms");
    job_answer_write_usage(w, r);
    job_answer_error(w, r->error_code, r->error_message);
}

static void job_answer_on_event(void *ctx, const struct store_event *e) {
    struct json_writer *w = ctx;
    json_writer_object_begin(w);
    json_put_int(w, "seq", e->seq);
    json_put_time(w, "time", e->time_ms);
    json_put_str(w, "type", e->type);
    json_put_raw_str(w, "data", e->json);
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
    json_put_raw_str(&w, "detail", r.detail);
    json_put_array_begin(&w, "events");
    rc = store_event_list(s, id, 0, EVENTS_MAX, job_answer_on_event, &w, err);
    json_writer_array_end(&w);
    json_writer_object_end(&w);
    store_run_finish(&r);
    return rc;
}

void job_answer_head(struct json_writer *w, bool success, const char *uuid, int64_t time_ms) {
    json_put_bool(w, "success", success);
    json_put_str(w, "request_id", uuid);
    json_put_time(w, "timestamp", time_ms);
}

void job_answer_error(struct json_writer *w, const char *code, const char *message) {
    if (!code) {
        json_put_null(w, "error");
        return;
    }
    json_put_object_begin(w, "error");
    json_put_str(w, "code", code);
    json_put_str(w, "message", message);
    json_writer_object_end(w);
}
