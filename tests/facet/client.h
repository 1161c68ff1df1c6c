#pragma once
/* A front and a holder for tests and benchmarks: starts the real cay-facet in a new folder and
 * talks to it with blocking calls. Every wait has an end. */

#include "base/buf.h"
#include "wire/facet.h"
#include "wire/frame.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What does not come by then never does. */
enum { CLIENT_ANSWER_MS = 60000 };

struct client {
    char folder[64];
    pid_t pid;
    int control;
    struct wire_reader in;
    uint64_t next_id;
    uint64_t next_grant;
    struct facet_opened opened;
    struct err err; /* of the last request that failed */
};

struct holder {
    int fd;
    uint64_t grant;
    struct wire_reader in;
    struct buf out;
    char *json; /* the last answer, NUL-terminated */
    bool ok;
    uint64_t id;
};

/* The program: $CAY_FACET, or cay-facet beside this one's build folder. */
const char *client_program(void);
/* Makes a folder. */
void client_init(struct client *c);
/* Starts the process and sends OPEN: 0, or the negative code of c->err. */
int client_open(struct client *c, const struct facet_open *o);
/* As client_open(), with `schema` and everything else at its default. */
int client_open_schema(struct client *c, const char *schema);
/* Ends the process with the given signal, or by closing the control socket if 0. Returns the wait
 * status. */
int client_stop(struct client *c, int signo);
/* Waits up to ms for the process to end by itself: its wait status, or -1. */
int client_wait(struct client *c, int ms);
/* Removes the folder. */
void client_finish(struct client *c);

/* Sends a control message and reads until the answer with its id comes; other frames go to *seen if
 * it is not NULL (each as its type). 1, or negative with c->err. The frame is borrowed. */
int client_request(struct client *c, uint16_t type, const struct buf *payload, int fd,
                   struct wire_frame *ret);
void client_send(struct client *c, uint16_t type, const struct buf *payload);
/* Reads control frames until one of this type comes, up to ms. 1, or 0. */
int client_expect(struct client *c, uint16_t type, int ms, struct wire_frame *ret);

/* methods: names with commas between, NULL for all. 0 or negative. */
int client_grant(struct client *c, const char *methods, uint64_t max_calls, struct holder *ret);
void holder_finish(struct holder *h);
void holder_send(struct holder *h, const char *method, const char *args);
/* Reads an answer: true if one came; false at the end of the stream or after ms. */
bool holder_read(struct holder *h, int ms);
/* Calls and waits: the JSON, or "" when the facet hung up. */
const char *holder_call(struct holder *h, const char *method, const char *args);
/* holder_call("query" or "execute", [sql]). */
const char *holder_query(struct holder *h, const char *sql);
const char *holder_execute(struct holder *h, const char *sql);
