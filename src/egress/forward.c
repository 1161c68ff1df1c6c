/* A request that goes out in another's name: to a route, with its credentials in place of the
 * guest's, or to an allowed host over plain http. The answer is passed on as it comes; redirects
 * are not followed, the guest may ask for what they name. */

#include "base/address.h"
#include "base/cleanup.h"
#include "base/mem.h"
#include "base/sm.h"
#include "base/text.h"
#include "egress/internal.h"
#include "egress/model.h"
#include "egress/scrub.h"
#include "http1/field.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    HEAD_MAX = 128 * 1024,
    OUT_FIELDS_MAX = HTTP1_FIELDS_MAX + EGRESS_HEADERS_MAX,
    PARSE_HERE_BYTES = 128 * 1024, /* a larger body would make other guests wait */
    ASKS_PER_SECOND = 10,
    ASKS_AT_ONCE = 30,
};

/* A body that is taken apart in another thread. */
struct parsing {
    uv_work_t req;
    struct egress_conn *conn;
    struct forward *forward; /* only compared: it may be gone */
    struct buf body;
    uint64_t held_bytes; /* of the sandbox's account */
    struct model_body parsed;
    struct err err;
    int rc;
};

enum forward_state {
    FORWARD_JUDGING,   /* the request is looked at */
    FORWARD_ASKING,    /* it is on its way */
    FORWARD_ANSWERING, /* the head of the answer has come */
    FORWARD_HALTED,    /* so has too much of it for a guest that reads slowly */
    FORWARD_WHOLE,     /* the answer came to its end */
    FORWARD_BROKEN,    /* there is no answer, or no more of it */
};

static const struct sm_state states[] = {
    [FORWARD_JUDGING] = {"judging", SM_TO(FORWARD_ASKING)},
    [FORWARD_ASKING] = {"asking", SM_TO(FORWARD_ANSWERING) | SM_TO(FORWARD_BROKEN)},
    [FORWARD_ANSWERING] = {"answering",
                           SM_TO(FORWARD_HALTED) | SM_TO(FORWARD_WHOLE) | SM_TO(FORWARD_BROKEN)},
    [FORWARD_HALTED] = {"halted",
                        SM_TO(FORWARD_ANSWERING) | SM_TO(FORWARD_WHOLE) | SM_TO(FORWARD_BROKEN)},
    [FORWARD_WHOLE] = {"whole", 0},
    [FORWARD_BROKEN] = {"broken", 0},
};
static const struct sm forward_sm = {"forward", states, ARRAY_LEN(states)};

/* How the guest is told where the body of the answer ends. */
enum framing {
    FRAMING_CLOSE, /* with the connection */
    FRAMING_LENGTH,
    FRAMING_CHUNKED,
    FRAMING_NONE, /* there is no body */
};

struct forward {
    enum forward_state state;
    enum framing framing;
    struct egress_conn *conn;
    struct upstream *upstream; /* whose connections it uses */
    struct fetch *fetch;
    const char *refusal; /* of the address */
    bool credentials;    /* a route: the guest's own are taken off, ours put on */
    bool held;           /* what it may use is set aside */
    bool asked;          /* the front, whether it may */
    uint64_t number;     /* by which it was asked; a refusal gives the event another */
    bool waits;          /* for what the front says */
    bool sent;           /* some of the request has gone out */
    int status;          /* that the server gave; 0 if it has not */
    bool priced;
    struct egress_price price;
    struct model_ask ask;
    struct spend_meter meter;
    struct scrub scrub;
};

static void forward_move(struct forward *f, enum forward_state to) {
    f->state = (enum forward_state)sm_next(&forward_sm, f->state, to);
}

/* A field of this connection, or one that frames the message: what goes on has its own. */
static bool stays_here(const char *name, const char *connection) {
    return egress_header_is_framing(name) || http1_is_hop_by_hop(name, connection);
}

/* --- the request --- */

/* The same to a server that makes variables of fields, as CGI does: "X_Api.Key" is "x-api-key". */
static bool forward_is_alike(const char *a, const char *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int x = isalnum((unsigned char)a[i]) ? tolower((unsigned char)a[i]) : '-';
        int y = isalnum((unsigned char)b[i]) ? tolower((unsigned char)b[i]) : '-';
        if (!a[i] || !b[i] || x != y)
            return false;
    }
    return true;
}

static bool forward_is_name(const char *name, const char *other) {
    size_t n = strlen(other);
    return strlen(name) == n && forward_is_alike(name, other, n);
}

/* Whom the guest says it is, and what would change the meaning of a request behind the rules. */
static bool is_stripped(const char *name) {
    static const char *const names[] = {
        "authorization",
        "x-api-key",
        "api-key",
        "x-goog-api-key",
        "cookie",
        "cookie2",
        "x-auth-token",
        "private-token",
        "accept-encoding",
        "forwarded",
        "via",
        "x-real-ip",
        "x-original-url",
        "x-rewrite-url",
        "x-http-method",
        "x-method-override",
        "x-http-method-override",
        "x-csrf-token",
    };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (forward_is_name(name, names[i]))
            return true;
    return forward_is_alike(name, "x-forwarded-", 12) || forward_is_alike(name, "openai-", 7) ||
           forward_is_alike(name, "x-amz-", 6);
}

/* What asks for a part of an answer: of a credential in it only a part would be seen here. */
static bool is_range(const char *name) {
    static const char *const names[] = {"range", "if-range", "request-range", "x-range"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (forward_is_name(name, names[i]))
            return true;
    return false;
}

static bool is_injected(const struct egress_route *r, const char *name) {
    for (size_t i = 0; r && i < r->nheaders; i++)
        if (forward_is_name(name, r->headers[i].name))
            return true;
    return false;
}

static size_t collect_headers(const struct egress_conn *c, const struct egress_route *r,
                              struct fetch_header *out) {
    const char *connection = http1_head_value(&c->head, "connection");
    size_t n = 0;
    for (size_t i = 0; i < c->head.nfields; i++) {
        const struct http1_field *f = &c->head.fields[i];
        if (stays_here(f->name, connection) ||
            (r && (is_stripped(f->name) || is_injected(r, f->name) ||
                   (r->nheaders > 0 && is_range(f->name)))))
            continue;
        out[n++] = (struct fetch_header){.name = f->name, .value = f->value};
    }
    for (size_t i = 0; r && i < r->nheaders; i++)
        out[n++] = (struct fetch_header){
            .name = r->headers[i].name, .value = r->headers[i].value, .secret = true};
    return n;
}

static bool forward_on_address(void *ctx, const struct sockaddr *address) {
    struct forward *f = ctx;
    const struct egress_conn *c = f->conn;
    bool exempt = egress_is_exempt(c->line->egress, &c->decision);
    f->refusal = exempt ? NULL : address_refusal(address);
    return !f->refusal;
}

/* --- the answer --- */

struct head_out {
    struct forward *forward;
    struct buf *out;
    const char *connection;
};

static bool forward_is_clean(const char *text) {
    for (; *text; text++)
        if (((unsigned char)*text < 0x20 && *text != '\t') || *text == 0x7f)
            return false;
    return true;
}

static void forward_on_field(void *ctx, const char *name, const char *value) {
    struct head_out *h = ctx;
    struct forward *f = h->forward;
    if (stays_here(name, h->connection) || strcasecmp(name, "alt-svc") == 0 ||
        !forward_is_clean(name) || !forward_is_clean(value) || !*name)
        return;
    /* A session of the credential's owner is none of the guest's. */
    if (f->credentials &&
        (strncasecmp(name, "set-cookie", 10) == 0 || scrub_finds(&f->scrub, value)))
        return;
    (void)buf_addf(h->out, "%s: %s\r\n", name, value);
}

static bool forward_is_number(const char *text) {
    return *text && strlen(text) < 19 && strspn(text, "0123456789") == strlen(text);
}

struct lengths {
    const char *first;
    bool differ;
};

static void forward_on_length_field(void *ctx, const char *name, const char *value) {
    struct lengths *l = ctx;
    if (strcasecmp(name, "content-length") != 0)
        return;
    if (!l->first)
        l->first = value;
    else if (strcmp(l->first, value) != 0)
        l->differ = true;
}

/* Two lengths: which of them holds is a matter of taste, and so where the next answer begins. */
static bool has_two_lengths(const struct fetch *fetch) {
    struct lengths l = {0};
    fetch_each_header(fetch, forward_on_length_field, &l);
    return l.differ;
}

static void forward_on_head(void *ctx, struct fetch *fetch, int status) {
    struct forward *f = ctx;
    struct egress_conn *c = f->conn;
    if (has_two_lengths(fetch)) {
        struct err err;
        (void)err_set(&err, ERR_UPSTREAM, "the answer tells two lengths, so its end is not known");
        egress_conn_refuse(c, &err, NULL);
        return;
    }
    struct buf out;
    struct head_out h = {f, &out, fetch_header(fetch, "connection")};
    const char *length = fetch_header(fetch, "content-length");
    const char *type = fetch_header(fetch, "content-type");
    bool head = strcmp(c->head.method, "HEAD") == 0;
    buf_init(&out, HEAD_MAX);
    (void)buf_addf(&out, "HTTP/1.1 %d %s\r\n", status, http1_phrase(status));
    fetch_each_header(fetch, forward_on_field, &h);
    bool known = length && forward_is_number(length) && !fetch_header(fetch, "transfer-encoding");
    bool bodyless = head || status == 204 || status == 304 || status < 200;
    f->framing = bodyless         ? FRAMING_NONE
                 : known          ? FRAMING_LENGTH
                 : c->head.http10 ? FRAMING_CLOSE
                                  : FRAMING_CHUNKED;
    if (known && (head || !bodyless))
        (void)buf_addf(&out, "Content-Length: %s\r\n", length);
    if (f->framing == FRAMING_CHUNKED)
        (void)buf_add_str(&out, "Transfer-Encoding: chunked\r\n");
    if (f->framing == FRAMING_CLOSE || !c->head.keep_alive)
        (void)buf_add_str(&out, "Connection: close\r\n");
    (void)buf_add_str(&out, "\r\n");
    c->event.status = (uint32_t)status;
    f->status = status;
    forward_move(f, FORWARD_ANSWERING);
    if (f->ask.billed)
        spend_meter_init(&f->meter, c->decision.api,
                         type && strncasecmp(type, "text/event-stream", 17) == 0);
    if (out.full)
        egress_conn_cut(c, "the head of the answer is too large");
    else
        (void)egress_conn_write(c, out.data, out.len);
    buf_finish(&out);
}

static bool forward_write_piece(struct forward *f, const char *data, size_t len) {
    char size[24];
    if (len == 0)
        return true;
    if (f->framing != FRAMING_CHUNKED)
        return egress_conn_write(f->conn, data, len);
    /* In one write, so that it goes out as one packet. */
    int n = snprintf(size, sizeof(size), "%zx\r\n", len);
    struct buf b;
    buf_init(&b, len + sizeof(size) + 2);
    (void)buf_add(&b, size, (size_t)n);
    (void)buf_add(&b, data, len);
    (void)buf_add(&b, "\r\n", 2);
    bool ok = egress_conn_write(f->conn, b.data, b.len);
    buf_finish(&b);
    return ok;
}

static void forward_on_data(void *ctx, const char *data, size_t len) {
    struct forward *f = ctx;
    struct egress_conn *c = f->conn;
    if (f->framing == FRAMING_NONE)
        return;
    c->event.bytes_in += len;
    line_count(c->line, len, 0);
    if (f->ask.billed)
        spend_meter_feed(&f->meter, data, len);
    if (!line_bytes_left(c->line)) {
        egress_conn_deny(c, "the sandbox has moved all the bytes it may", NULL, 0);
        return;
    }
    if (f->credentials && !scrub_feed(&f->scrub, data, len, &data, &len)) {
        egress_conn_deny(c, "the answer held the route's credential, which the guest must not see",
                         NULL, 0);
        return;
    }
    if (forward_write_piece(f, data, len) && c->throttled && f->state == FORWARD_ANSWERING) {
        forward_move(f, FORWARD_HALTED);
        fetch_pause(f->fetch);
        egress_conn_set_deadline(c, c->line->egress->config.idle_timeout_ms);
    }
}

void forward_guest_drained(struct egress_conn *c) {
    struct forward *f = c->forward;
    egress_conn_set_deadline(
        c, c->state == EGRESS_CONN_SEND ? c->line->egress->config.body_timeout_ms : 0);
    if (f->state == FORWARD_HALTED) {
        forward_move(f, FORWARD_ANSWERING);
        fetch_resume(f->fetch);
    }
}

/* The guest is told as much as concerns it; the operator's event has the rest. */
static void forward_fail(struct forward *f, const struct err *cause) {
    struct egress_conn *c = f->conn;
    struct err err;
    char name[EGRESS_AUTHORITY_SIZE];
    if (c->event.status != 0) {
        egress_conn_cut(c, cause->message);
        return;
    }
    if (f->refusal)
        (void)err_set(&err, ERR_FORBIDDEN,
                      "%s leads to an address that is %s: the operator would list it as a "
                      "private endpoint",
                      egress_authority_text(c->decision.host, c->decision.port, name), f->refusal);
    else
        (void)err_set(&err, cause->code == ERR_TIMEOUT ? ERR_TIMEOUT : ERR_UPSTREAM,
                      "%s%s cannot be reached, or gave no answer",
                      f->credentials ? "the server of the route " : "",
                      f->credentials ? c->route : c->decision.host);
    egress_conn_refuse(c, &err, f->refusal ? NULL : cause->message);
}

static void forward_on_end(void *ctx, const struct err *err) {
    struct forward *f = ctx;
    struct egress_conn *c = f->conn;
    const char *rest;
    size_t len;
    f->sent = fetch_sent(f->fetch);
    f->fetch = NULL;
    forward_move(f, err ? FORWARD_BROKEN : FORWARD_WHOLE);
    if (err) {
        forward_fail(f, err);
        return;
    }
    if (f->credentials) {
        scrub_rest(&f->scrub, &rest, &len);
        if (!forward_write_piece(f, rest, len))
            return;
    }
    if (f->framing == FRAMING_CHUNKED && !egress_conn_write(c, "0\r\n\r\n", 5))
        return;
    egress_conn_answered(c, f->framing != FRAMING_CLOSE);
}

/* --- life --- */

/* Sets aside what the request may use. The front is told, so that it is not forgotten with us. */
static void forward_hold(struct forward *f) {
    struct egress_usage *u = &f->conn->line->usage;
    f->held = true;
    u->running_in += f->ask.reserved.tokens_in;
    u->running_out += f->ask.reserved.tokens_out;
    u->running_nusd += f->ask.reserved.cost_nusd;
}

static void forward_unhold(struct forward *f) {
    struct egress_usage *u = &f->conn->line->usage;
    f->held = false;
    u->running_in -= f->ask.reserved.tokens_in;
    u->running_out -= f->ask.reserved.tokens_out;
    u->running_nusd -= f->ask.reserved.cost_nusd;
}

/* Before anything goes out the front sets aside what it may cost, so that it is known wherever what
 * happens next is lost. */
static bool ask_front(struct forward *f) {
    const struct egress_conn *c = f->conn;
    struct egress_ask a = {.sandbox = c->line->id,
                           .tokens_in = f->ask.reserved.tokens_in,
                           .tokens_out = f->ask.reserved.tokens_out,
                           .cost_nusd = f->ask.reserved.cost_nusd,
                           .least_nusd = f->ask.least_nusd};
    struct buf out;
    buf_init(&out, EGRESS_FRAME_MAX);
    pack_egress_ask(&out, &a);
    f->number = c->event.number;
    f->asked = egress_send(c->line->egress, EGRESS_ASK, f->number, &out);
    buf_finish(&out);
    return f->asked;
}

static void tell_spent(const struct forward *f, const struct model_tokens *t, bool estimated) {
    const struct egress_conn *c = f->conn;
    struct egress_spent s = {.sandbox = c->line->id,
                             .input = t->input,
                             .output = t->output,
                             .cache_read = t->cache_read,
                             .cache_write = t->cache_write + t->cache_write_1h,
                             .cost_nusd = c->event.cost_nusd,
                             .estimated = estimated};
    struct buf out;
    buf_init(&out, EGRESS_FRAME_MAX);
    pack_egress_spent(&out, &s);
    (void)egress_send(c->line->egress, EGRESS_SPENT, f->number, &out);
    buf_finish(&out);
}

/* What the request has used. Once it has gone out it counts, whether its guest waits for the answer
 * or not: the server may have done the work. */
static void forward_settle(struct forward *f) {
    struct egress_conn *c = f->conn;
    struct egress_usage *u = &c->line->usage;
    struct model_tokens t = {0};
    bool told = true;
    if (!f->held && !f->asked)
        return;
    bool good = f->held && f->status >= 200 && f->status < 300;
    bool sent = f->held && f->status == 0 && f->sent;
    if (f->held)
        forward_unhold(f);
    if (good || sent) {
        told = spend_meter_end(&f->meter, &f->ask, f->state == FORWARD_WHOLE, &t);
        c->event.tokens_in = t.input + t.cache_read + t.cache_write + t.cache_write_1h;
        c->event.tokens_out = t.output;
        c->event.cost_nusd = model_cost(f->priced ? &f->price : NULL, &t);
        u->tokens_in += c->event.tokens_in;
        u->tokens_out += c->event.tokens_out;
        u->cost_nusd += c->event.cost_nusd;
        u->estimated = u->estimated || !told;
    }
    if (f->asked)
        tell_spent(f, &t, !told);
    line_tell_usage(c->line);
}

void forward_close(struct egress_conn *c) {
    struct forward *f = c->forward;
    if (!f)
        return;
    c->forward = NULL;
    if (f->fetch)
        f->sent = fetch_sent(f->fetch);
    fetch_cancel(f->fetch);
    upstream_release(f->upstream);
    forward_settle(f);
    spend_meter_finish(&f->meter);
    model_ask_finish(&f->ask);
    scrub_finish(&f->scrub);
    free(f);
}

static int judge_model(struct forward *f, const struct model_body *body, uint64_t max_output,
                       struct err *err) {
    struct egress_conn *c = f->conn;
    const struct egress_usage *u = &c->line->usage;
    struct model_room used = {.tokens_in = u->tokens_in + u->running_in,
                              .tokens_out = u->tokens_out + u->running_out,
                              .cost_nusd = u->cost_nusd + u->running_nusd};
    int rc = model_judge(&c->line->policy, &c->decision, &used, body, max_output, &f->ask, err);
    if (f->ask.model)
        (void)text_print(c->model, sizeof(c->model), "%s", f->ask.model);
    if (rc < 0)
        return rc;
    if (f->ask.price) {
        f->price = *f->ask.price;
        f->price.model = NULL;
        f->priced = true;
        f->ask.price = NULL; /* the policy may be replaced */
    }
    if (f->ask.billed)
        forward_hold(f);
    return 0;
}

static bool has_body(const struct egress_conn *c) {
    return c->body.len > 0 || strcmp(c->head.method, "POST") == 0 ||
           strcmp(c->head.method, "PUT") == 0 || strcmp(c->head.method, "PATCH") == 0;
}

/* The next bytes of a body that goes out as it comes. */
static ssize_t forward_on_body(void *ctx, char *out, size_t size) {
    struct forward *f = ctx;
    struct egress_conn *c = f->conn;
    size_t n = MIN(size, c->body.len);
    if (n == 0)
        return c->state == EGRESS_CONN_SEND ? FETCH_WAIT : 0;
    memcpy(out, c->body.data, n);
    c->event.bytes_out += n;
    line_count(c->line, 0, n);
    if (!line_bytes_left(c->line)) {
        egress_conn_deny(c, "the sandbox has moved all the bytes it may", NULL, 0);
        return -1;
    }
    egress_conn_body_taken(c, n);
    return (ssize_t)n;
}

static int egress_forward_start(struct forward *f, const struct egress_route *r, struct err *err) {
    struct egress_conn *c = f->conn;
    struct egress *e = c->line->egress;
    struct fetch_header *headers = xcalloc(OUT_FIELDS_MAX, sizeof(*headers));
    _cleanup_(free) char *url = decision_url(&c->decision, &c->line->policy);
    bool judged = f->ask.body.len > 0;
    bool streams = c->state == EGRESS_CONN_SEND;
    const struct fetch_options o = {
        .url = url,
        .method = c->head.method,
        .headers = headers,
        .nheaders = collect_headers(c, r, headers),
        .body = streams           ? NULL
                : judged          ? f->ask.body.data
                : c->body.len > 0 ? c->body.data
                : has_body(c)     ? ""
                                  : NULL,
        .body_len = streams  ? c->head.content_length
                    : judged ? f->ask.body.len
                             : c->body.len,
        .on_body = streams ? forward_on_body : NULL,
        .connect_timeout_ms = e->config.connect_timeout_ms,
        .idle_timeout_ms = e->config.idle_timeout_ms,
        .ca_file = *e->config.ca_file ? e->config.ca_file : NULL,
        .on_address = forward_on_address,
        .on_head = forward_on_head,
        .on_data = forward_on_data,
        .on_end = forward_on_end,
        .ctx = f,
    };
    forward_move(f, FORWARD_ASKING);
    int rc = upstream_take(c->line, r ? c->decision.route : UPSTREAM_PLAIN, &f->upstream, err);
    if (rc == 0)
        rc = fetch_start(upstream_pool(f->upstream), &o, &f->fetch, err);
    free(headers);
    if (rc < 0)
        forward_move(f, FORWARD_BROKEN);
    if (rc < 0)
        return rc;
    if (streams)
        return 0;
    c->event.bytes_out = o.body_len;
    line_count(c->line, 0, o.body_len);
    /* It has a copy; the account of what is held still counts it. */
    buf_finish(&c->body);
    buf_finish(&f->ask.body);
    return 0;
}

void forward_body_came(struct egress_conn *c) {
    if (c->forward && c->forward->fetch)
        fetch_body_ready(c->forward->fetch);
}

static const struct egress_route *route_of(const struct forward *f) {
    const struct egress_conn *c = f->conn;
    return f->credentials ? &c->line->policy.routes[c->decision.route] : NULL;
}

/* Sends it, or refuses it for what went wrong before. */
static void forward_send(struct forward *f, int rc, struct err *err) {
    struct egress_conn *c = f->conn;
    if (rc == 0)
        rc = egress_forward_start(f, route_of(f), err);
    if (rc < 0) {
        egress_conn_refuse(c, err, NULL);
        return;
    }
    c->line->usage.requests++;
    if (f->held)
        line_tell_usage(c->line);
    egress_conn_tell_begun(c);
}

/* The same, after the front was asked if the policy wants that. */
static void forward_go(struct forward *f, int rc, struct err *err) {
    struct line *b = f->conn->line;
    if (rc == 0 && f->held && b->policy.asks) {
        /* Each is a transaction of the ledger, which all keys share. */
        bool often = !bucket_take(&b->asks, ASKS_PER_SECOND, ASKS_AT_ONCE);
        f->waits = !often && ask_front(f);
        if (f->waits)
            return;
        rc = often ? err_set(err, ERR_RATE,
                             "this sandbox calls models more than %d times a second: wait a moment",
                             ASKS_PER_SECOND)
                   : err_set(err, ERR_UNAVAILABLE,
                             "the account of this key cannot be asked: try again");
    }
    forward_send(f, rc, err);
}

/* How long the answer may be, by what was granted. */
static uint64_t granted_output(const struct forward *f, const struct egress_grant *g) {
    const struct model_room *r = &f->ask.reserved;
    uint64_t most = r->tokens_out;
    uint64_t input_nusd = r->cost_nusd - MIN(r->cost_nusd, r->tokens_out * f->price.output);
    if (g->tokens < r->tokens_in + r->tokens_out)
        most = g->tokens > r->tokens_in ? g->tokens - r->tokens_in : 1;
    if (g->cost_nusd < r->cost_nusd && f->price.output > 0)
        most = MIN(most, g->cost_nusd > input_nusd
                             ? MAX((g->cost_nusd - input_nusd) / f->price.output, 1)
                             : 1);
    return most;
}

/* Less was granted than the request may use: its answer gets shorter. */
static int forward_shorten(struct forward *f, uint64_t most, struct err *err) {
    struct egress_conn *c = f->conn;
    struct model_body body = {0};
    forward_unhold(f);
    model_ask_finish(&f->ask);
    int rc = model_parse(c->body.data ? c->body.data : "", c->body.len, &body, err);
    if (rc == 0)
        rc = judge_model(f, &body, most, err);
    json_decref(body.tree);
    return rc;
}

void forward_granted(struct egress_conn *c, const struct egress_grant *g) {
    struct forward *f = c->forward;
    struct err err;
    int rc = 0;
    if (!f || !f->waits)
        return;
    f->waits = false;
    if (g->code) {
        f->asked = false; /* the front knows that nothing is spent */
        rc = err_set(&err, (enum err_code)g->code, "%s", g->message);
    } else {
        uint64_t most = granted_output(f, g);
        if (most < f->ask.reserved.tokens_out)
            rc = forward_shorten(f, most, &err);
    }
    forward_send(f, rc, &err);
}

bool forward_waits(const struct egress_conn *c) {
    return c->forward && !c->forward->fetch;
}

static void forward_parse(uv_work_t *req) {
    struct parsing *p = CONTAINER_OF(req, struct parsing, req);
    p->rc = model_parse(p->body.data, p->body.len, &p->parsed, &p->err);
}

static void forward_on_parsed(uv_work_t *req, int status) {
    struct parsing *p = CONTAINER_OF(req, struct parsing, req);
    struct egress_conn *c = p->conn;
    (void)status; /* it is never cancelled */
    if (c->forward && c->forward == p->forward) {
        c->body = p->body;
        c->held_bytes = p->held_bytes;
        p->body = (struct buf){0};
        p->held_bytes = 0;
        forward_go(c->forward,
                   p->rc < 0 ? p->rc : judge_model(c->forward, &p->parsed, UINT64_MAX, &p->err),
                   &p->err);
    }
    (void)line_hold(c->line, p->held_bytes, 0);
    json_decref(p->parsed.tree);
    buf_finish(&p->body);
    free(p);
    egress_conn_unref(c);
}

static void parse_elsewhere(struct forward *f) {
    struct egress_conn *c = f->conn;
    struct parsing *p = xcalloc(1, sizeof(*p));
    p->conn = c;
    p->forward = f;
    p->body = c->body;
    p->held_bytes = c->held_bytes;
    c->body = (struct buf){.max = c->body.max};
    c->held_bytes = 0;
    c->refs++;
    (void)uv_queue_work(c->line->egress->loop, &p->req, forward_parse, forward_on_parsed);
}

void forward_start(struct egress_conn *c) {
    struct forward *f = xcalloc(1, sizeof(*f));
    struct err err;
    f->conn = c;
    f->credentials = c->decision.kind != EGRESS_KIND_HTTP;
    scrub_init(&f->scrub);
    c->forward = f;
    const struct egress_route *r = route_of(f);
    for (size_t i = 0; r && i < r->nheaders; i++)
        scrub_add(&f->scrub, r->headers[i].value);
    if (c->decision.kind != EGRESS_KIND_MODEL || c->decision.endpoint == EGRESS_MODELS) {
        forward_go(f, 0, &err);
    } else if (c->body.len > PARSE_HERE_BYTES) {
        parse_elsewhere(f);
    } else {
        struct model_body body = {0};
        int rc = model_parse(c->body.data ? c->body.data : "", c->body.len, &body, &err);
        forward_go(f, rc < 0 ? rc : judge_model(f, &body, UINT64_MAX, &err), &err);
        json_decref(body.tree);
    }
}
