#pragma once
/* A WebSocket to the server, on the client's loop: binary messages and text messages both ways. */

#include "base/err.h"
#include "front/cli/client.h"

#include <stdbool.h>
#include <stddef.h>

struct client_socket;

struct socket_callbacks {
    void (*on_message)(void *ctx, bool text, const char *data, size_t len);
    /* Called once; the socket can only be destroyed then. err NULL: it was closed in good order. */
    void (*on_closed)(void *ctx, const struct err *err);
};

/* Waits until it is open. */
int socket_open(struct client *c, const char *path, const struct socket_callbacks *callbacks,
                void *ctx, struct client_socket **ret_socket, struct err *err);
/* False: it is closed, or too much waits to be sent. */
bool socket_send(struct client_socket *s, bool text, const void *data, size_t len);
size_t socket_queued(const struct client_socket *s);
/* While it is off nothing is received. */
void socket_read(struct client_socket *s, bool on);
/* No callback comes any more. NULL is allowed. */
void socket_destroy(struct client_socket *s);
