#pragma once
/* Header fields between a client and what guests make: workers, and servers in sandboxes. Guests
 * see their own cookies and credentials and none of ours, and reach nobody else's origin. */

#include <stdbool.h>

/* The list ends with NULL; in any case. */
bool field_in_list(const char *name, const char *const *list);
/* Of an answer: ours to send, or reaching over the guest's own origin. */
bool field_is_ours(const char *name);
/* The value of a Cookie field without our cookies; NULL if nothing is left. The caller frees. */
char *field_guest_cookies(const char *value);
/* Of a Set-Cookie field: it is for its own host, and has none of our names. */
bool field_cookie_is_fine(const char *value);
/* The key in an Authorization field, or NULL: however much space a client puts before it. A client
 * that wants a token of three parts (docs/vercel.md) has the key as the last of them. */
const char *field_bearer(const char *authorization);
/* True for an Authorization field that holds one of our keys: never for a guest to see. */
bool field_is_our_key(const char *authorization);
