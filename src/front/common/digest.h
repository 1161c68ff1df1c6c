#pragma once
/* SHA-256, for what every request may need. OpenSSL's SHA256() looks the algorithm up by its name
 * each time, which takes longer than to hash some hundred bytes. */

#include <stddef.h>

enum { DIGEST_SIZE = 32 };

void digest_sha256(const void *data, size_t len, unsigned char ret_hash[DIGEST_SIZE]);
