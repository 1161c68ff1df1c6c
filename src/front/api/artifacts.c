#include "front/store/artifacts.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/mem.h"
#include "front/api/api.h"
#include "front/http/follower.h"
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
    json_writer_object_begin(w);
    json_put_str(w, "name", a->name);
    json_put_str(w, "type", a->type);
    json_put_int(w, "bytes", a->bytes);
    json_put_str(w, "sha256", a->hash);
    json_put_time(w, "created_at", a->created_ms);
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
    json_put_array_begin(&w, "artifacts");
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
    struct http_follower out;
    struct mirror *mirror;
    struct artifact_reader *reader;
    struct mirror_recall *recall; /* its file is being got back; the answer has not begun */
};

static void api_artifacts_finish(void *ctx) {
    struct sending *s = ctx;
    mirror_recall_cancel(s->recall);
    artifact_close(s->reader);
    free(s);
}

static enum http_next api_artifacts_next(void *ctx) {
    struct sending *s = ctx;
    char data[CHUNK_BYTES];
    struct err err;
    ssize_t n = artifact_read(s->reader, data, sizeof(data), &err);
    if (n > 0)
        (void)http_follower_write(&s->out, data, (size_t)n);
    if (n >= 0)
        return n > 0 ? HTTP_NEXT_MORE : HTTP_NEXT_END;
    log_error("artifact.damaged", "error", err.message);
    if (mirror_has(s->mirror, artifact_of(s->reader)->hash))
        artifact_drop_file(s->reader);
    return HTTP_NEXT_BREAK;
}

static void api_artifacts_begin(struct sending *s) {
    const struct artifact *a = artifact_of(s->reader);
    _cleanup_(free) char *name = xasprintf("attachment; filename=\"%s\"", a->name);
    http_res_header(s->out.req, "Content-Disposition", name);
    http_stream_length(s->out.req, (uint64_t)a->bytes);
    http_follower_begin(&s->out, a->type);
    http_follower_more(&s->out);
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
        http_follower_fail(&s->out, err);
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
    static const struct http_follower_type type = {.next = api_artifacts_next,
                                                   .free = api_artifacts_finish};
    struct sending *s = xcalloc(1, sizeof(*s));
    *s = (struct sending){.mirror = f->mirror, .reader = reader};
    http_follower_init(&s->out, req, &type, s);
    if (artifact_find_file(reader))
        api_artifacts_begin(s);
    else if (api_artifacts_recall(s, &err) < 0)
        http_follower_fail(&s->out, &err);
}

void api_artifacts_routes(struct front *f) {
#define ARTIFACTS "/v1/runs/{id}/artifacts"
    const struct http_route routes[] = {
        {"GET", ARTIFACTS, api_artifacts_list, f, FRONT_ROUTE_READ, 0},
        {"GET", ARTIFACTS "/{name}", api_artifacts_get, f, FRONT_ROUTE_READ, 0},
    };
    http_server_routes(f->http, routes, ARRAY_LEN(routes));
}
