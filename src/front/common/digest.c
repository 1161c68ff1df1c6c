#include "front/common/digest.h"

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdatomic.h>

/* Looked up once, by whichever thread is the first, and kept as long as the process. */
static const EVP_MD *digest_algorithm(void) {
    static _Atomic(EVP_MD *) found;
    EVP_MD *md = atomic_load_explicit(&found, memory_order_acquire);
    if (md)
        return md;
    EVP_MD *none = NULL;
    md = EVP_MD_fetch(NULL, "SHA256", NULL);
    if (md && !atomic_compare_exchange_strong(&found, &none, md)) {
        EVP_MD_free(md);
        md = none;
    }
    return md;
}

void digest_sha256(const void *data, size_t len, unsigned char ret_hash[DIGEST_SIZE]) {
    const EVP_MD *md = digest_algorithm();
    if (!md || !EVP_Digest(data, len, ret_hash, NULL, md, NULL))
        (void)SHA256(data, len, ret_hash);
}
