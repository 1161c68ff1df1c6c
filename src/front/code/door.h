#pragma once
/* The demo model as a server: the two model APIs on a loopback port of its own, for programs in
 * sandboxes, which ask a model by HTTP. It plays a demo.json (front/model/script.h): the first
 * message of the user chooses the script, each further one is the result that its next step
 * answers. Whoever asks needs the token, which cay-egress puts on outside the sandbox. */

#include "base/err.h"
#include "base/json.h"

#include <uv.h>

struct door;
struct intake;

/* intake, script: borrowed while it is open. */
int door_open(uv_loop_t *loop, struct intake *intake, const json_t *script, struct door **ret_door,
              struct err *err);
/* "http://127.0.0.1:PORT" */
const char *door_url(const struct door *d);
/* "127.0.0.1:PORT" */
const char *door_authority(const struct door *d);
const char *door_token(const struct door *d);
/* NULL is allowed. */
void door_close(struct door *d);
