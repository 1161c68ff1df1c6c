#pragma once
/* The contract of cay-egress, the only way out of a sandbox: one channel of framed messages
 * (wire/frame.h) at its descriptor 3, one process for all sandboxes.
 *
 * The front keeps a duplicate of each sandbox's listener and its policy. When cay-egress ends and
 * is started again, the front sends CONFIG and an OPEN for each sandbox, with the usage that it
 * heard of last, so that caps hold across a restart; connections that were open are gone.
 *
 * The front chooses the frame id of a request, which DONE or FAILED carries back. EVENT and USAGE
 * come by themselves with id 0. Credentials travel in routes: wipe the buffer that was packed. */

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "wire/pack.h"
#include "wire/sandbox.h" /* struct sandbox_strv */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EGRESS_FRAME_MAX   (1024 * 1024) /* payload, both ways */
#define EGRESS_ALLOW_MAX   256           /* entries in a policy */
#define EGRESS_ROUTES_MAX  32
#define EGRESS_LIST_MAX    256 /* strings in a list of a route */
#define EGRESS_HEADERS_MAX 16  /* injected by a route */
#define EGRESS_PRICES_MAX  256
#define EGRESS_HOST_MAX    253
#define EGRESS_NAME_MAX    64   /* of a route: [a-z0-9_-] */
#define EGRESS_TEXT_MAX    2048 /* of a path or a reason in an event: longer ones are cut */

enum egress_msg {
    /* front -> egress */
    EGRESS_CONFIG = 1, /* struct egress_config; first; may come again. DONE or FAILED */
    EGRESS_OPEN,       /* str sandbox id, struct egress_policy, struct egress_usage to begin with;
                          fd: a listening TCP socket. DONE or FAILED */
    EGRESS_POLICY,     /* str id, struct egress_policy: replaces the former; what it does not allow
                          any more is cut. DONE or FAILED */
    EGRESS_CLOSE,      /* str id: cuts everything, forgets its credentials. USAGE, then DONE, also
                          if it is not open */
    EGRESS_GRANT,      /* struct egress_grant: the answer to an ASK, with its frame id. No answer */
    /* egress -> front */
    EGRESS_DONE = 32,
    EGRESS_FAILED, /* u32 err_code, u32 errno, str message (unpack_sandbox_error) */
    EGRESS_EVENT,  /* struct egress_event */
    EGRESS_ASK,    /* struct egress_ask, frame id the request's number: a call of a model waits for
                      its GRANT. Of a policy that asks */
    EGRESS_SPENT,  /* struct egress_spent, the same frame id: what that call used, once; also if it
                      was not granted yet, and is not wanted any more */
    EGRESS_USAGE,  /* struct egress_usage: totals; after each model answer, else once a second while
                      something changes */
};

/* 0 is the default, here and below. */
struct egress_config {
    char *ca_file; /* certificates that upstreams are checked by; "" the system's */
    /* "host:port" of upstreams whose address may be a private one, for what a policy lets reach
     * private endpoints; and those that only routes lead to. */
    struct sandbox_strv private;
    struct sandbox_strv private_routes;
    uint32_t sandboxes;          /* open at once; 4096 */
    uint32_t connections;        /* of guests, for each sandbox; 128 */
    uint32_t tunnels;            /* of these; 64 */
    uint32_t head_bytes;         /* of a request; 32 KiB */
    uint32_t headers;            /* fields in it; 100 */
    uint64_t body_bytes;         /* of a request to a model, which is read as a whole; 32 MiB */
    uint64_t held_bytes;         /* bodies in memory, for each sandbox; 64 MiB */
    uint64_t held_all_bytes;     /* and for all of them; 256 MiB */
    uint32_t head_timeout_ms;    /* for a whole head, and for a TLS hello; 10 s */
    uint32_t body_timeout_ms;    /* without a byte of the body; 30 s */
    uint32_t idle_timeout_ms;    /* a connection between requests, a tunnel with no byte either way,
                                    an answer that does not go on; 300 s */
    uint32_t connect_timeout_ms; /* to upstreams, resolving included; 10 s */
    uint32_t events_per_second;  /* of what was let out, told one by one for each sandbox, and a
                                    fifth of it of refusals; the rest is told in sums; 50 */
};

/* "host" or "host:port" in len bytes, made lower case; an IPv6 literal stands in brackets. Without
 * a port it is `port`; 0 makes it mandatory. False for anything that is not plainly one host: user
 * names, trailing dots, numbers that a resolver would take for an address ("0x7f.1"). */
bool egress_authority_parse(const char *text, size_t len, uint32_t port,
                            char ret_host[EGRESS_HOST_MAX + 1], uint32_t *ret_port,
                            bool *ret_literal);

/* One host that CONNECT (and, at port 80, a plain http:// request) may reach. */
struct egress_allow {
    char *host; /* lower case; an address literal in its usual form ("::1" without brackets) */
    uint32_t port;
    bool subdomains; /* "*.host": names below it, not itself */
    bool plain;      /* no TLS is asked for inside the tunnel */
    bool private;    /* private endpoints too */
};

/* Parses "host", "host:port", "*.host[:port]", "[v6]:port"; "tcp://host:port" is one in whose
 * tunnel anything may be spoken. The port is 443 if there is none. The message of an error is for
 * the person who wrote the entry. */
int egress_allow_parse(const char *text, struct egress_allow *ret, struct err *err);
void egress_allow_finish(struct egress_allow *a);
/* "host:port" as it was written, for lists and messages. */
char *egress_allow_text(const struct egress_allow *a);
/* The same of any host: an IPv6 literal stands in brackets. */
#define EGRESS_AUTHORITY_SIZE (EGRESS_HOST_MAX + sizeof("[]:65535"))
const char *egress_authority_text(const char *host, uint32_t port, char out[EGRESS_AUTHORITY_SIZE]);
/* The value of NO_PROXY for a sandbox: the names of its own machine, but for one that is allowed
 * and so means the machine outside. The caller frees. */
char *egress_no_proxy(const struct egress_allow *allow, size_t n);
/* True if this rule covers the host (lower case) and port. */
bool egress_allow_covers(const struct egress_allow *a, const char *host, uint32_t port);

struct egress_policy;

struct egress_header {
    char *name;
    char *value; /* a credential: wiped */
};

/* True if the field says where a message ends, which connection it belongs to or whom it is for:
 * nobody but the sender of the bytes may write it. In every spelling that some server takes for the
 * same ("Content_Length"). */
bool egress_header_is_framing(const char *name);
/* What a route may put on: a field that is none of those, with a value on one line. The message of
 * an error is for the person who wrote it. */
int egress_header_check(const char *name, const char *value, struct err *err);
/* The same for all fields of a policy. */
int egress_policy_check(const struct egress_policy *p, struct err *err);

enum egress_api { EGRESS_API_NONE, EGRESS_API_ANTHROPIC, EGRESS_API_OPENAI, EGRESS_APIS };

enum egress_endpoint {
    EGRESS_MESSAGES = 1,     /* POST /v1/messages */
    EGRESS_COUNT_TOKENS = 2, /* POST /v1/messages/count_tokens */
    EGRESS_CHAT = 4,         /* POST /v1/chat/completions */
    EGRESS_MODELS = 8,       /* GET /v1/models, /v1/models/ID */
};

/* What http://127.0.0.1:3128/_/NAME/... leads to. A route with an api is also reached at the
 * origin itself, by the api's own paths. */
struct egress_route {
    char *name;
    char *url; /* "https://host[:port][/prefix]"; the guest's path is put behind it */
    struct egress_header headers[EGRESS_HEADERS_MAX]; /* over the guest's own */
    size_t nheaders;
    bool private;                /* it may lead to a private endpoint */
    struct sandbox_strv methods; /* none: GET and HEAD */
    struct sandbox_strv paths;   /* none: all. "*" is a part of one segment, "**" at the end the
                                    rest */
    /* For a route with an api: */
    uint32_t api;                     /* enum egress_api */
    uint32_t endpoints;               /* enum egress_endpoint bits; 0: all of the api's */
    struct sandbox_strv models;       /* names; a "*" at the end is the rest. None: no model */
    struct sandbox_strv server_tools; /* types of tools besides "custom" and "function", likewise */
    struct sandbox_strv fields;       /* keys of a request's body besides the ordinary ones */
    bool urls;                        /* sources that the api fetches by itself, or has stored */
};

/* Billionths of a dollar for one token. */
struct egress_price {
    char *model;
    uint64_t input, output, cache_read, cache_write;
    uint64_t cache_write_1h; /* what stays in the cache for an hour; 0: not known */
};

/* For the whole life of the sandbox; 0 is no cap. */
struct egress_caps {
    uint64_t requests;
    uint64_t requests_per_minute;
    uint64_t bytes;     /* both ways */
    uint64_t tokens;    /* of models, all kinds together */
    uint64_t cost_nusd; /* a model that has no price is refused then */
};

/* All zero: nothing at all. */
struct egress_policy {
    struct egress_allow *allow;
    size_t nallow;
    struct egress_route *routes;
    size_t nroutes;
    struct egress_price *prices; /* of the models that are granted */
    size_t nprices;
    struct egress_caps caps;
    bool asks; /* each call of a model waits until the front has set aside what it may cost */
};

/* A route as cay.json has it:
 *   {"url": "https://api.example.com/v2", "headers": {"authorization": "Bearer ${TOKEN}"},
 *    "methods": ["GET", "POST"], "paths": ["/items"],
 *    "api": "anthropic" | "openai", "endpoints": ["messages", "count_tokens", "chat", "models"],
 *    "models": ["claude-*"], "server_tools": ["web_search_*"], "fields": ["service_tier"],
 *    "urls": false}
 * "${NAME}" in a header's value is what secret() gives; NULL from it is an error that names it. */
typedef const char *egress_secret(void *ctx, const char *name);
int egress_route_parse(const char *name, const json_t *json, egress_secret *secret, void *ctx,
                       struct egress_route *ret, struct err *err);
/* Wipes the credentials. */
void egress_route_finish(struct egress_route *r);
void egress_route_copy(const struct egress_route *from, struct egress_route *ret);
/* Host in lower case without brackets, port, and where the path begins. */
int egress_url_parse(const char *url, bool *ret_tls, char **ret_host, uint32_t *ret_port,
                     const char **ret_path, struct err *err);

enum egress_kind {
    EGRESS_KIND_NONE,    /* it was not understood, or nothing of the kind exists */
    EGRESS_KIND_CONNECT, /* a tunnel */
    EGRESS_KIND_HTTP,    /* http://host/... */
    EGRESS_KIND_ROUTE,
    EGRESS_KIND_MODEL,
};
const char *egress_kind_name(uint32_t kind);

enum egress_state {
    EGRESS_REFUSED, /* nothing went out */
    EGRESS_BEGUN,   /* allowed; ENDED follows with the same number */
    EGRESS_ENDED,
};

struct egress_event {
    char *sandbox;
    uint64_t number; /* of the request, in this life of cay-egress; 0 of several */
    uint64_t count;  /* requests that this tells of: more than one where there were too many to
                        tell one by one. Numbers are their sums then, "*" stands for various */
    int64_t time_ms; /* wall clock */
    uint32_t state;  /* enum egress_state */
    uint32_t kind;   /* enum egress_kind */
    char *route;     /* "" if it is none */
    char *host;      /* that was asked for, or the route leads to */
    uint32_t port;
    char *method;
    char *path;                   /* without the query, which may hold secrets; "" for a tunnel */
    uint32_t status;              /* that the guest was answered with; 0 if none was */
    uint64_t bytes_in, bytes_out; /* seen from the guest; of ENDED */
    uint64_t ms;                  /* of ENDED */
    char *model;                  /* "" if it is none */
    uint64_t tokens_in, tokens_out, cost_nusd;
    bool cut;     /* we ended it, for what it did or a limit */
    char *reason; /* why it was refused or cut; "" if it went well */
};

struct egress_usage {
    char *sandbox;
    uint64_t requests; /* that were allowed */
    uint64_t refused;
    uint64_t bytes_in, bytes_out;
    uint64_t tokens_in, tokens_out; /* tokens_in with those of caches */
    uint64_t cost_nusd;
    uint64_t running_in, running_out; /* set aside for requests that run; in an OPEN they are */
    uint64_t running_nusd;            /* charged, since they have ended without being counted */
    uint64_t events_lost;             /* that were not told, because the front did not read */
    bool estimated; /* some tokens were not told by the model's server, but estimated */
};

/* What a call of a model may use at most. */
struct egress_ask {
    char *sandbox;
    uint64_t tokens_in, tokens_out;
    uint64_t cost_nusd;
    uint64_t least_nusd; /* with an answer that is just long enough to be of use */
};

struct egress_grant {
    char *sandbox;
    uint32_t code;      /* enum err_code; 0: granted */
    char *message;      /* of a refusal, for the guest */
    uint64_t tokens;    /* all that it may use; UINT64_MAX: no limit. The answer gets shorter */
    uint64_t cost_nusd; /* the same */
};

struct egress_spent {
    char *sandbox;
    uint64_t input, output, cache_read, cache_write; /* tokens */
    uint64_t cost_nusd;
    bool estimated;
};

void pack_egress_ask(struct buf *b, const struct egress_ask *a);
void unpack_egress_ask(struct unpack *u, struct egress_ask *ret);
void pack_egress_grant(struct buf *b, const struct egress_grant *g);
void unpack_egress_grant(struct unpack *u, struct egress_grant *ret);
void egress_grant_finish(struct egress_grant *g);
void pack_egress_spent(struct buf *b, const struct egress_spent *s);
void unpack_egress_spent(struct unpack *u, struct egress_spent *ret);

void pack_egress_config(struct buf *b, const struct egress_config *c);
void unpack_egress_config(struct unpack *u, struct egress_config *ret);
void egress_config_finish(struct egress_config *c);
void pack_egress_policy(struct buf *b, const struct egress_policy *p);
void unpack_egress_policy(struct unpack *u, struct egress_policy *ret);
/* Wipes the credentials. */
void egress_policy_finish(struct egress_policy *p);
void pack_egress_event(struct buf *b, const struct egress_event *e);
void unpack_egress_event(struct unpack *u, struct egress_event *ret);
void egress_event_finish(struct egress_event *e);
void pack_egress_usage(struct buf *b, const struct egress_usage *u);
void unpack_egress_usage(struct unpack *u, struct egress_usage *ret);
void egress_usage_finish(struct egress_usage *u);
/* EGRESS_FAILED is packed and read by pack_sandbox_error() and unpack_sandbox_error(). */
