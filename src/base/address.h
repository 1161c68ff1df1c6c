#pragma once
/* The one guard of addresses: everything in cay that connects outward for somebody else asks it
 * about the very address it is about to connect to, not about a name, which may resolve to another
 * address the next time. Only addresses that belong to the public Internet pass; endpoints the
 * operator has configured are exempted by the caller. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/* NULL for a public address, else what it is ("loopback", "private", ...). */
const char *address_refusal(const struct sockaddr *address);

static inline bool address_is_public(const struct sockaddr *address) {
    return address_refusal(address) == NULL;
}
