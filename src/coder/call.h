#pragma once
/* One question to the model, over plain HTTP to an address (the sandbox's model route): sent,
 * waited for, and asked again where that may help. */

#include "base/err.h"
#include "coder/dialect.h"
#include "coder/events.h"
#include "coder/life.h"

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

struct model_route {
    struct sockaddr_storage address;
    socklen_t address_len;
    char *host; /* of the Host field */
    char *path; /* of the dialect's endpoint */
    const char *key;
    enum dialect dialect;
    int64_t timeout_ms; /* of one try */
    int64_t retries;
    int64_t retry_wait_ms;
};

/* Reads http://ADDRESS[:PORT][/PATH]. Names are not looked up, but for "localhost". */
int route_init(struct model_route *r, const char *base_url, enum dialect dialect, struct err *err);
void route_finish(struct model_route *r);

struct model_call {
    int64_t number;
    const char *body;
    size_t len;
};

struct call_result {
    struct answer answer;
    int64_t attempts;
};

/* ERR_CANCELLED and ERR_TIMEOUT for the run's own end; any other failure is the model's. `attempts`
 * is written in any case. */
int call_model(const struct model_route *r, const struct model_call *c, struct life *life,
               struct events *events, struct call_result *ret, struct err *err);
