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

static uint64_t code_record_beyond(uint64_t now, uint64_t before) {
    return now > before ? now - before : 0;
}

static void take_spent(struct code_job *c, struct network_spent now) {
    c->spent.tokens_in =
        MAX(c->spent.tokens_in, code_record_beyond(now.tokens_in, c->before.tokens_in));
    c->spent.tokens_out =
        MAX(c->spent.tokens_out, code_record_beyond(now.tokens_out, c->before.tokens_out));
    c->spent.cost_nusd =
        MAX(c->spent.cost_nusd, code_record_beyond(now.cost_nusd, c->before.cost_nusd));
}

void code_record_ended(struct code_job *c) {
    const struct sandbox *s = code_place(c);
    if (s && s->line)
        take_spent(c, network_line_ended(s->line));
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
    _cleanup_(json) json_t *doc = store_record_doc(&r);
    const json_t *u = json_object_get(json_object_get(doc, "usage"), "network");
    double usd = json_number_value(json_object_get(u, "cost_usd"));
    take_spent(c, (struct network_spent){
                      .tokens_in = (uint64_t)json_integer_value(json_object_get(u, "tokens_in")),
                      .tokens_out = (uint64_t)json_integer_value(json_object_get(u, "tokens_out")),
                      .cost_nusd = (uint64_t)llround(usd * 1e9)});
    store_record_finish(&r);
}

/* Its calls are settled one by one. */
static void code_record_settle(struct code_job *c) {
    if (c->hold)
        account_settle(steal_ptr(&c->hold), NULL);
    code_purse_leave(steal_ptr(&c->purse));
}

/* Why the agent could not go on, if it was for money. */
static const char *money_error(const struct code_job *c, const char *message, bool *ret_fault) {
    enum err_code refusal = code_purse_refusal(c->purse);
    *ret_fault = refusal == ERR_RATE;
    if (refusal == ERR_QUOTA || refusal == ERR_RATE)
        return err_name(refusal);
    /* In the words of cay-egress, by which it was held. */
    bool spent = c->ask.max_usd > 0 && message && strstr(message, "used up its budget");
    return spent ? "max_budget_usd" : NULL;
}

static struct store_run_usage usage_of(const struct code_job *c) {
    bool any = c->spent.tokens_in > 0 || c->spent.tokens_out > 0;
    bool known = c->resolved.model.price.known;
    return (struct store_run_usage){.input_tokens = (int64_t)c->spent.tokens_in,
                                    .output_tokens = (int64_t)c->spent.tokens_out,
                                    .cost_nusd = known ? (int64_t)c->spent.cost_nusd : 0,
                                    .unpriced = any && !known};
}

/* --- what is remembered --- */

/* Why the diff is not all that was changed, for people. */
static json_t *make_note(const struct code_job *c, bool kept) {
    enum { NAMED = 10 };
    _cleanup_(buf) struct buf b;
    buf_init(&b, 8192);
    if (!c->collected)
        return json_string(c->base_is_lost
                               ? "what was there before the agent began could not be read, so that "
                                 "nobody knows what it changed (the sandbox must be one that a "
                                 "coding job made)"
                               : "what was changed could not be read");
    if (c->said.len > CODE_DIFF_BYTES || c->end.cut)
        (void)buf_addf(&b, "the diff is longer than %d bytes, of which it has the first: %s",
                       CODE_DIFF_BYTES,
                       kept ? "the artifact \"" CODE_DIFF_NAME "\" is all of it"
                            : "keep the sandbox to get the files themselves");
    size_t i;
    const json_t *v;
    if (c->end.left > 0)
        (void)buf_addf(&b, "%s%llu paths are not in the diff: ", b.len ? "; " : "",
                       (unsigned long long)c->end.left);
    json_array_foreach(c->left_out, i, v) {
        if (i == NAMED)
            break;
        (void)buf_addf(&b, "%s%.200s (%s)", i ? ", " : "",
                       json_string_value(json_object_get(v, "path")),
                       json_string_value(json_object_get(v, "why")));
    }
    if (c->end.left > NAMED)
        (void)buf_add_str(&b, ", ...");
    return json_text(b.data ? b.data : "");
}

static void add_counts(const struct code_job *c, json_t *d) {
    (void)json_object_set_new(
        d, "changes",
        json_pack("{s:I,s:I,s:I,s:I,s:I}", "added", (json_int_t)c->end.added, "modified",
                  (json_int_t)c->end.modified, "removed", (json_int_t)c->end.removed, "ignored",
                  (json_int_t)c->end.ignored, "left_out", (json_int_t)c->end.left));
    if (c->left_out)
        (void)json_object_set(d, "left_out", c->left_out);
}

/* The bytes of a diff may be no text: then they are told as they are, too. */
static void add_diff(const struct code_job *c, json_t *d, bool kept) {
    const char *diff = c->said.data && c->collected ? c->said.data : "";
    size_t n = c->collected ? MIN(c->said.len, (size_t)CODE_DIFF_BYTES) : 0;
    bool whole = c->collected && c->said.len <= CODE_DIFF_BYTES && !c->end.cut && c->end.left == 0;
    if (n < c->said.len)
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
        (void)json_object_set_new(d, "diff_note", make_note(c, kept));
    if (c->collected)
        add_counts(c, d);
}

static bool keep_artifact(struct artifact_writer *w, bool wanted) {
    struct err err;
    if (!w || !wanted) {
        artifact_cancel(w);
        return false;
    }
    if (artifact_commit(w, &err) == 0)
        return true;
    log_warn("code.diff", "error", err.message);
    return false;
}

/* A diff that has something becomes an artifact of the job; so do the files, if they were asked
 * for. */
static bool keep_diff(struct code_job *c) {
    (void)keep_artifact(steal_ptr(&c->files), c->collected);
    return keep_artifact(steal_ptr(&c->diff), c->collected && c->said.len > 0 && !c->end.cut);
}

static json_t *make_detail(struct code_job *c) {
    const struct code_request *r = &c->ask;
    json_t *d = json_pack("{s:s*,s:s,s:s,s:s,s:I,s:s*,s:s*}", "spec", r->spec, "agent",
                          r->command ? "command" : c->resolved.def->name, "model",
                          c->resolved.model.id, "sandbox", c->sandbox_id, "max_steps",
                          (json_int_t)r->max_steps, "repo", c->resolved.repo, "ref", r->ref);
    if (!d)
        d = json_object();
    if (c->ask.options)
        (void)json_object_set(d, "options", (json_t *)(uintptr_t)c->ask.options);
    if (json_array_size(r->files) > 0)
        (void)json_object_set_new(d, "files", json_integer((json_int_t)json_array_size(r->files)));
    if (c->last)
        (void)json_object_set(d, "result", c->last);
    if (c->ask.include_diff)
        add_diff(c, d, keep_diff(c));
    (void)json_object_set_new(d, "kept", json_boolean(r->keep && code_place(c)));
    return d;
}

static void code_record_end_job(struct code_job *c) {
    const char *type = json_string_value(json_object_get(c->last, "type"));
    const char *reason = json_string_value(json_object_get(c->last, "reason"));
    const char *message = json_string_value(json_object_get(c->last, "message"));
    bool done = type && strcmp(type, "done") == 0;
    _cleanup_(json) json_t *detail = make_detail(c);
    _cleanup_(free) char *text = json_dumps(detail, JSON_COMPACT);
    struct store_run_end end = {.status = c->cancelled           ? JOB_CANCELLED
                                          : done && !c->err.code ? JOB_DONE
                                                                 : JOB_FAILED,
                                .usage = usage_of(c),
                                .detail = text,
                                .detail_len = text ? strlen(text) : 0};
    if (c->err.code) {
        end.error_code = err_name(c->err.code);
        end.error_message = c->err.message;
        end.fault = !c->cancelled && err_is_fault(c->err.code);
        end.unbegun = c->held_up;
    } else if (!done && !c->cancelled) {
        const char *money = money_error(c, message, &end.fault);
        end.unbegun = end.fault;
        end.error_code = money ? money : reason ? reason : "error";
        end.error_message = end.fault ? "other calls of this key hold the money or tokens that a "
                                        "call of its model needs: try again later"
                            : message ? message
                                      : "the agent did not finish";
    }
    job_end(steal_ptr(&c->job), &end);
}

void code_record_end(struct code_job *c) {
    take_last_spent(c);
    code_record_end_job(c);
    code_record_settle(c);
}
