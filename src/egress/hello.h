#pragma once
/* The first message of a TLS client: whom it asks for. Reads plain bytes, knows no sockets. */

#include <stddef.h>
#include <stdint.h>

enum hello_result {
    HELLO_MORE,    /* its end has not come */
    HELLO_OK,      /* a name was found */
    HELLO_NO_NAME, /* a whole hello without a name */
    HELLO_BAD,     /* not a TLS client */
};

enum { HELLO_MAX_BYTES = 64 * 1024, HELLO_NAME_MAX = 255 };

/* ret_name is written on HELLO_OK, in lower case. */
enum hello_result hello_parse(const uint8_t *data, size_t len, char ret_name[HELLO_NAME_MAX + 1]);
