#include "front/store/artifacts.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/store/mirror.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_BYTES = 1 << 20, CHUNK_BYTES = 64 * 1024 };

/* Answers with an error if there is no such run for the caller. */
static bool find_run(const struct front *f, struct http_req *req, char id[ID_SIZE]) {
    struct store_run run;
    struct err err;
    if (store_run_look(f->store, api_run_id(req, id), front_scope(req), 0, &run, &err) < 0) {
        http_respond_err(req, &err);
        return false;
    }
    memcpy(id, run.id, ID_SIZE);
    store_run_finish(&run);
    return true;
}

static void api_artifacts_on_artifact(void *ctx, const struct artifact *a) {
    struct json_writer *w = ctx;
    char time[CLOCK_RFC3339_SIZE];
    json_writer_object_begin(w);
    json_writer_key(w, "name");
    json_writer_str(w, a->name);
    json_writer_key(w, "type");
    json_writer_str(w, a->type);
    json_writer_key(w, "bytes");
    json_writer_int(w, a->bytes);
    json_writer_key(w, "sha256");
    json_writer_str(w, a->hash);
    json_writer_key(w, "created_at");
    json_writer_str(w, clock_rfc3339(a->created_ms, time));
    json_writer_object_end(w);
}

static void api_artifacts_list(struct http_req *req, void *ctx) {
    const struct front *f = ctx;
    char id[ID_SIZE];
    struct err err;
    if (!find_run(f, req, id))
        return;
    struct buf b;
    buf_init(&b, LIST_BYTES);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_writer_object_begin(&w);
    json_writer_key(&w, "artifacts");
    json_writer_array_begin(&w);
    int rc = artifact_list(f->store, id, api_artifacts_on_artifact, &w, &err);
    json_writer_array_end(&w);
    json_writer_object_end(&w);
    if (rc == 0) {
        http_respond_buf(req, 200, "application/json", &b);
        return;
    }
    buf_finish(&b);
    http_respond_err(req, &err);
}

/* --- one of them --- */

struct sending {
    struct http_req *req;
    struct mirror *mirror;
    struct artifact_reader *reader;
    struct mirror_recall *recall; /* its file is being got back; the answer has not begun */
};

static void api_artifacts_finish(struct sending *s) {
    mirror_recall_cancel(s->recall);
    artifact_close(s->reader);
    free(s);
}

static void api_artifacts_on_gone(void *ctx) {
    struct sending *s = ctx;
    if (s->recall)
        http_respond_empty(s->req, 499);
    else
        http_stream_end(s->req);
    api_artifacts_finish(s);
}

/* As much as the client takes. */
static void send_more(void *ctx) {
    struct sending *s = ctx;
    char data[CHUNK_BYTES];
    struct err err;
    ssize_t n = 0;
    bool room = true;
    while (room && http_stream_has_body(s->req) &&
           (n = artifact_read(s->reader, data, sizeof(data), &err)) > 0)
        room = http_stream_write(s->req, data, (size_t)n);
    if (!room)
        return; /* it comes back, or the client is gone */
    http_req_on_gone(s->req, NULL, NULL);
    http_stream_on_drain(s->req, NULL, NULL);
    if (n < 0) {
        log_error("artifact.damaged", "error", err.message);
        if (mirror_has(s->mirror, artifact_of(s->reader)->hash))
            artifact_drop_file(s->reader);
        http_stream_break(s->req);
    } else {
        http_stream_end(s->req);
    }
    api_artifacts_finish(s);
}

static void api_artifacts_begin(struct sending *s) {
    const struct artifact *a = artifact_of(s->reader);
    _cleanup_(free) char *name = xasprintf("attachment; filename=\"%s\"", a->name);
    http_res_header(s->req, "Content-Disposition", name);
    http_stream_on_drain(s->req, send_more, s);
    http_stream_length(s->req, (uint64_t)a->bytes);
    http_stream_begin(s->req, 200, a->type);
    send_more(s);
}

static void api_artifacts_fail(struct sending *s, const struct err *err) {
    http_req_on_gone(s->req, NULL, NULL);
    http_respond_err(s->req, err);
    api_artifacts_finish(s);
}

static void api_artifacts_on_back(void *ctx, const struct err *err) {
    struct sending *s = ctx;
    struct err gone;
    s->recall = NULL;
    if (!err && !artifact_find_file(s->reader)) {
        (void)err_set(&gone, ERR_IO, "the file of the artifact is gone");
        err = &gone;
    }
    if (err)
        api_artifacts_fail(s, err);
    else
        api_artifacts_begin(s);
}

/* Its file is lost: it is got from the bucket, if there is one. */
static int api_artifacts_recall(struct sending *s, struct err *err) {
    const struct artifact *a = artifact_of(s->reader);
    if (!s->mirror)
        return err_set(err, ERR_IO, "the file of the artifact \"%s\" is gone", a->name);
    return mirror_recall(s->mirror, a->hash, a->bytes, api_artifacts_on_back, s, &s->recall, err);
}

static void api_artifacts_get(struct http_req *req, void *ctx) {
    const struct front *f = ctx;
    char id[ID_SIZE];
    struct err err;
    struct artifact_reader *reader;
    if (!find_run(f, req, id))
        return;
    if (artifact_open(f->store, id, http_req_param(req, "name"), &reader, &err) < 0) {
        http_respond_err(req, &err);
        return;
    }
    const struct artifact *a = artifact_of(reader);
    _cleanup_(free) char *tag = xasprintf("\"%s\"", a->hash);
    const char *known = http_req_header(req, "if-none-match");
    http_res_header(req, "ETag", tag);
    http_res_header(req, "Cache-Control", "no-store");
    if (known && strcmp(known, tag) == 0) {
        artifact_close(reader);
        http_respond_empty(req, 304);
        return;
    }
    struct sending *s = xcalloc(1, sizeof(*s));
    *s = (struct sending){.req = req, .mirror = f->mirror, .reader = reader};
    http_req_on_gone(req, api_artifacts_on_gone, s);
    if (artifact_find_file(reader))
        api_artifacts_begin(s);
    else if (api_artifacts_recall(s, &err) < 0)
        api_artifacts_fail(s, &err);
}

void api_artifacts_routes(struct front *f) {
    http_server_route(f->http, &(struct http_route){.methods = "GET",
                                                    .pattern = "/v1/runs/{id}/artifacts",
                                                    .handler = api_artifacts_list,
                                                    .ctx = f,
                                                    .flags = FRONT_ROUTE_READ});
    http_server_route(f->http, &(struct http_route){.methods = "GET",
                                                    .pattern = "/v1/runs/{id}/artifacts/{name}",
                                                    .handler = api_artifacts_get,
                                                    .ctx = f,
                                                    .flags = FRONT_ROUTE_READ});
}
