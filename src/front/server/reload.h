#pragma once
/* Settings that change while the server runs: cay.json read again (SIGHUP, `cay config reload`),
 * and those that a service hands out (CONFIG_SERVICE_URL). A mistake changes nothing.
 *
 * The service says a JSON object of the shape of cay.json, of which it may set what can change
 * while the server runs, and nothing else: a limit, but no folder, user or address. The file wins
 * over it. It is asked at the start and every minute, with the ETag of what it said before; what it
 * said last and was right is kept in the data folder, for when it is down. */

#include "front/server/front.h"

struct reload;

struct reload_options {
    struct front *front;
    struct config *config;   /* as the front has it; changed here */
    bool level_given;        /* --log-level was: the file does not change it */
    bool time_given;         /* so was MAX_EXECUTION_TIME */
    const char *service_url; /* NULL: none */
    const char *service_token;
};

int reload_create(const struct reload_options *options, struct reload **ret_reload,
                  struct err *err);
void reload_close(struct reload *r);

/* Reads the file again, and asks the service. ret_report may be NULL; otherwise:
 * {"file","applied":[{"key","from","to"}],"needs_restart":[the same],"service":"asked"|null}. */
int reload_now(struct reload *r, json_t **ret_report, struct err *err);
