#pragma once
/* Where a request comes from: the address of its peer, or, if that is a proxy the operator has
 * named, the one it tells in X-Forwarded-For. What anybody else writes there is not looked at. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum { CALLER_NAME_SIZE = 17 };
#define CALLER_UNKNOWN "?"

/* "10.0.0.0/8", "2001:db8::/32" or an address. */
int caller_net_check(const char *text, struct err *err);
bool caller_is_in(const char *address, char *const *nets, size_t n);
/* The last address of the field that is not one of the proxies' own, which each of them puts behind
 * what it was told; peer itself if that is no proxy, or tells nothing; CALLER_UNKNOWN if what it
 * tells is no address: that is nobody on this machine. Written to out. */
void caller_address(const char *peer, const char *forwarded, char *const *proxies, size_t n,
                    char *out, size_t size);
/* Callers that are one by their address: of IPv6 the 64 bits that a customer gets at the least.
 * Returns how many bytes the name has; 0: it is no address. */
size_t caller_name(const char *address, unsigned char out[CALLER_NAME_SIZE]);
/* Loopback, or none: a Unix socket. */
bool caller_is_local(const char *address);
