#include "base/base64.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "front/code/internal.h"
#include "front/code/tree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- what it spent --- */

static uint64_t beyond(uint64_t now, uint64_t before) {
    return now > before ? now - before : 0;
}

static void take_spent(struct code_job *c, struct network_spent now) {
    c->spent.tokens_in = MAX(c->spent.tokens_in, beyond(now.tokens_in, c->before.tokens_in));
    c->spent.tokens_out = MAX(c->spent.tokens_out, beyond(now.tokens_out, c->before.tokens_out));
    c->spent.cost_nusd = MAX(c->spent.cost_nusd, beyond(now.cost_nusd, c->before.cost_nusd));
}

void code_record_spent(struct code_job *c) {
    const struct sandbox *s = code_place(c);
    if (s && s->line)
        take_spent(c, network_line_spent(s->line));
}

/* The last count of a sandbox that has ended is in its record. */
static void take_last_spent(struct code_job *c) {
    struct store_record r;
    struct err ignored;
    code_record_spent(c);
    if (code_place(c) || !*c->sandbox_id ||
        store_record_get(sandboxes_store(c->all->opt.sandboxes), "sandbox", c->sandbox_id, NULL,
                         (struct store_scope){.all = true}, &r, &ignored) < 0)
        return;
    _cleanup_(json) json_t *doc = json_loads(r.doc, 0, NULL);
    const json_t *u = json_object_get(json_object_get(doc, "usage"), "network");
    double usd = json_number_value(json_object_get(u, "cost_usd"));
    take_spent(c, (struct network_spent){
                      .tokens_in = (uint64_t)json_integer_value(json_object_get(u, "tokens_in")),
                      .tokens_out = (uint64_t)json_integer_value(json_object_get(u, "tokens_out")),
                      .cost_nusd = (uint64_t)llround(usd * 1e9)});
    store_record_finish(&r);
}

static void settle(struct code_job *c) {
    struct model_usage used = {.input_tokens = (int64_t)c->spent.tokens_in,
                               .output_tokens = (int64_t)c->spent.tokens_out};
    if (c->hold)
        account_settle_as(steal_ptr(&c->hold), &used, (int64_t)c->spent.cost_nusd);
}

static struct store_run_usage usage_of(const struct code_job *c) {
    bool any = c->spent.tokens_in > 0 || c->spent.tokens_out > 0;
    bool known = c->ask.model.price.known;
    return (struct store_run_usage){.input_tokens = (int64_t)c->spent.tokens_in,
                                    .output_tokens = (int64_t)c->spent.tokens_out,
                                    .cost_nusd = known ? (int64_t)c->spent.cost_nusd : 0,
                                    .unpriced = any && !known};
}

/* --- what is remembered --- */

/* The bytes of a diff may be no text: then they are told as they are, too. */
static void add_diff(const struct code_job *c, json_t *d, bool kept) {
    const char *diff = c->said.data && c->collected ? c->said.data : "";
    size_t n = c->collected ? MIN(c->said.len, (size_t)CODE_DIFF_BYTES) : 0;
    bool whole = c->collected && c->said.len <= CODE_DIFF_BYTES;
    if (!whole)
        n = utf8_floor(diff, n, n);
    if (utf8_is_valid(diff, n) && !memchr(diff, 0, n)) {
        (void)json_object_set_new(d, "diff", json_stringn(diff, n));
    } else {
        _cleanup_(free) char *plain = xstrndup(diff, n);
        _cleanup_(free) char *coded = xcalloc(1, BASE64_SIZE(n) + 1);
        base64_encode(coded, diff, n);
        (void)json_object_set_new(d, "diff", json_text(plain));
        (void)json_object_set_new(d, "diff_base64", json_string(coded));
    }
    (void)json_object_set_new(d, "diff_is_whole", json_boolean(whole));
    if (!whole)
        (void)json_object_set_new(
            d, "diff_note",
            c->collected ? json_sprintf("the diff is longer than %d bytes, of which it has the "
                                        "first: %s",
                                        CODE_DIFF_BYTES,
                                        kept ? "the artifact \"" CODE_DIFF_NAME "\" is all of it"
                                             : "keep the sandbox to get the files themselves")
                         : json_string("what was changed could not be read"));
}

/* A diff that has something becomes an artifact of the job. */
static bool keep_diff(struct code_job *c) {
    struct artifact_writer *w = steal_ptr(&c->diff);
    struct err err;
    if (!w || !c->collected || c->said.len == 0) {
        artifact_cancel(w);
        return false;
    }
    if (artifact_commit(w, &err) == 0)
        return true;
    log_warn("code.diff", "error", err.message);
    return false;
}

static json_t *make_detail(struct code_job *c) {
    const struct code_request *r = &c->ask;
    json_t *d = json_pack("{s:s*,s:s,s:s,s:s,s:I,s:s*,s:s*}", "spec", r->spec, "agent",
                          r->command ? "command" : r->def->name, "model", r->model.id, "sandbox",
                          c->sandbox_id, "max_steps", (json_int_t)r->max_steps, "repo", r->repo,
                          "ref", r->ref);
    if (!d)
        d = json_object();
    if (c->terms.options)
        (void)json_object_set(d, "options", c->terms.options);
    if (json_array_size(json_object_get(r->body, "files")) > 0)
        (void)json_object_set_new(
            d, "files",
            json_integer((json_int_t)json_array_size(json_object_get(r->body, "files"))));
    if (c->last)
        (void)json_object_set(d, "result", c->last);
    if (c->terms.include_diff)
        add_diff(c, d, keep_diff(c));
    (void)json_object_set_new(d, "kept", json_boolean(r->keep && code_place(c)));
    return d;
}

static void end_job(struct code_job *c) {
    const char *type = json_string_value(json_object_get(c->last, "type"));
    const char *reason = json_string_value(json_object_get(c->last, "reason"));
    const char *message = json_string_value(json_object_get(c->last, "message"));
    bool done = type && strcmp(type, "done") == 0;
    _cleanup_(json) json_t *detail = make_detail(c);
    _cleanup_(free) char *text = json_dumps(detail, JSON_COMPACT);
    struct store_run_end end = {.status = c->cancelled           ? "cancelled"
                                          : done && !c->err.code ? "done"
                                                                 : "failed",
                                .usage = usage_of(c),
                                .detail = text,
                                .detail_len = text ? strlen(text) : 0};
    if (c->err.code) {
        end.error_code = err_name(c->err.code);
        end.error_message = c->err.message;
        end.fault = !c->cancelled && err_is_fault(c->err.code);
    } else if (!done && !c->cancelled) {
        /* In the words of cay-egress, by which it was held. */
        bool capped = c->terms.max_usd > 0 || c->max_tokens > 0;
        bool spent = capped && message && strstr(message, "used up its budget");
        const char *which = c->on_account ? err_name(ERR_QUOTA) : "max_budget_usd";
        end.error_code = spent ? which : reason ? reason : "error";
        end.error_message = message ? message : "the agent did not finish";
    }
    job_end(steal_ptr(&c->job), &end);
}

void code_record_end(struct code_job *c) {
    take_last_spent(c);
    settle(c);
    end_job(c);
}
