/* The primitives behind crypto.subtle, on libcrypto. Which algorithm a key may be used for and what
 * the errors are called is the bundle's business (js/web/crypto.js); here are only bytes in, bytes
 * out and null for "the operation failed". */

/* RAND_set_rand_method is deprecated but is the only way to keep libcrypto's own generator out:
 * that one asks getpid() at each use, which an isolate's filter answers with death. */
#define OPENSSL_SUPPRESS_DEPRECATED

#include "isolate/webhost_priv.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"

enum { HASH_COUNT = 4, AES_GCM_TAG_MAX = 16, AES_BLOCK = 16 };
/* How much longer than its input the output of a cipher may be: padding and a tag. */
enum { AES_ROOM = 2 * AES_BLOCK + AES_GCM_TAG_MAX };
static const char *const hash_names[HASH_COUNT] = {"SHA1", "SHA256", "SHA384", "SHA512"};
static EVP_MD *hashes[HASH_COUNT];

enum cipher { CIPHER_GCM, CIPHER_CBC, CIPHER_CTR, CIPHER_KW, CIPHER_COUNT };
static const char *const cipher_names[CIPHER_COUNT][3] = {
    {"AES-128-GCM", "AES-192-GCM", "AES-256-GCM"},
    {"AES-128-CBC", "AES-192-CBC", "AES-256-CBC"},
    {"AES-128-CTR", "AES-192-CTR", "AES-256-CTR"},
    {"AES-128-WRAP", "AES-192-WRAP", "AES-256-WRAP"},
};
static EVP_CIPHER *ciphers[CIPHER_COUNT][3];
static EVP_KDF *hkdf;

static int webhost_crypto_on_rand_bytes(unsigned char *out, int n) {
    if (n < 0)
        return 0;
    rand_bytes(out, (size_t)n);
    return 1;
}

static int webhost_crypto_on_rand_status(void) {
    return 1;
}

static JSValueRef webhost_crypto_failed(JSContextRef ctx) {
    ERR_clear_error();
    return JSValueMakeNull(ctx);
}

/* digest(hash, data) */
WEBHOST_FN(fn_digest) {
    WEBHOST_UNUSED;
    size_t hash;
    struct bytes data;
    if (!webhost_size(ctx, argc, argv, 0, HASH_COUNT - 1, &hash, exc) ||
        !webhost_bytes(ctx, argc, argv, 1, &data, exc))
        return JSValueMakeUndefined(ctx);
    uint8_t out[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (!EVP_Digest(data.data, data.len, out, &n, hashes[hash], NULL))
        return webhost_crypto_failed(ctx);
    return webhost_copy(ctx, out, n, exc);
}

/* hmac(hash, key, data) */
WEBHOST_FN(fn_hmac) {
    WEBHOST_UNUSED;
    size_t hash;
    struct bytes key, data;
    if (!webhost_size(ctx, argc, argv, 0, HASH_COUNT - 1, &hash, exc) ||
        !webhost_bytes(ctx, argc, argv, 1, &key, exc) ||
        !webhost_bytes(ctx, argc, argv, 2, &data, exc))
        return JSValueMakeUndefined(ctx);
    uint8_t out[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (!HMAC(hashes[hash], key.data, (int)key.len, data.data, data.len, out, &n))
        return webhost_crypto_failed(ctx);
    return webhost_copy(ctx, out, n, exc);
}

/* equal(a, b): compares in constant time */
WEBHOST_FN(fn_equal) {
    WEBHOST_UNUSED;
    struct bytes a, b;
    if (!webhost_bytes(ctx, argc, argv, 0, &a, exc) || !webhost_bytes(ctx, argc, argv, 1, &b, exc))
        return JSValueMakeUndefined(ctx);
    return JSValueMakeBoolean(ctx, a.len == b.len && CRYPTO_memcmp(a.data, b.data, a.len) == 0);
}

/* pbkdf2(hash, password, salt, iterations, bytes) */
WEBHOST_FN(fn_pbkdf2) {
    WEBHOST_UNUSED;
    size_t hash, iterations, n;
    struct bytes password, salt;
    if (!webhost_size(ctx, argc, argv, 0, HASH_COUNT - 1, &hash, exc) ||
        !webhost_bytes(ctx, argc, argv, 1, &password, exc) ||
        !webhost_bytes(ctx, argc, argv, 2, &salt, exc) ||
        !webhost_size(ctx, argc, argv, 3, INT32_MAX, &iterations, exc) ||
        !webhost_size(ctx, argc, argv, 4, WEBHOST_MAX_BYTES, &n, exc))
        return JSValueMakeUndefined(ctx);
    uint8_t *out = malloc(n ? n : 1);
    if (out && n &&
        !PKCS5_PBKDF2_HMAC((const char *)password.data, (int)password.len, salt.data, (int)salt.len,
                           (int)iterations, hashes[hash], (int)n, out)) {
        free(out);
        return webhost_crypto_failed(ctx);
    }
    return webhost_take(ctx, out, n, exc);
}

/* hkdf(hash, key, salt, info, bytes) */
WEBHOST_FN(fn_hkdf) {
    WEBHOST_UNUSED;
    size_t hash, n;
    struct bytes key, salt, info;
    if (!webhost_size(ctx, argc, argv, 0, HASH_COUNT - 1, &hash, exc) ||
        !webhost_bytes(ctx, argc, argv, 1, &key, exc) ||
        !webhost_bytes(ctx, argc, argv, 2, &salt, exc) ||
        !webhost_bytes(ctx, argc, argv, 3, &info, exc) ||
        !webhost_size(ctx, argc, argv, 4, (size_t)255 * EVP_MAX_MD_SIZE, &n, exc))
        return JSValueMakeUndefined(ctx);
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)hash_names[hash], 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, key.data, key.len),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt.data, salt.len),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data, info.len),
        OSSL_PARAM_construct_end(),
    };
    uint8_t *out = malloc(n ? n : 1);
    EVP_KDF_CTX *kdf = EVP_KDF_CTX_new(hkdf);
    bool ok = out && kdf && (n == 0 || EVP_KDF_derive(kdf, out, n, params) > 0);
    EVP_KDF_CTX_free(kdf);
    if (!ok) {
        free(out);
        return webhost_crypto_failed(ctx);
    }
    return webhost_take(ctx, out, n, exc);
}

struct aes_job {
    enum cipher cipher;
    bool encrypt;
    struct bytes key, iv, aad, data;
    size_t tag_len;
};

/* Runs one cipher over the data; out has room for data + block + tag. */
static bool aes_run(EVP_CIPHER_CTX *c, const struct aes_job *j, uint8_t *out, size_t *ret_n) {
    const EVP_CIPHER *cipher = ciphers[j->cipher][j->key.len / 8 - 2];
    bool gcm = j->cipher == CIPHER_GCM;
    size_t len = j->data.len;
    int n = 0, last = 0;
    if (gcm && !j->encrypt) {
        if (len < j->tag_len)
            return false;
        len -= j->tag_len;
    }
    if (j->cipher == CIPHER_KW)
        EVP_CIPHER_CTX_set_flags(c, EVP_CIPHER_CTX_FLAG_WRAP_ALLOW);
    if (!EVP_CipherInit_ex2(c, cipher, NULL, NULL, j->encrypt, NULL))
        return false;
    if (gcm && EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_SET_IVLEN, (int)j->iv.len, NULL) <= 0)
        return false;
    if (!EVP_CipherInit_ex2(c, NULL, j->key.data, j->cipher == CIPHER_KW ? NULL : j->iv.data,
                            j->encrypt, NULL))
        return false;
    if (gcm && !j->encrypt &&
        EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_SET_TAG, (int)j->tag_len, j->data.data + len) <= 0)
        return false;
    if (gcm && j->aad.len && !EVP_CipherUpdate(c, NULL, &n, j->aad.data, (int)j->aad.len))
        return false;
    n = 0;
    if (len && !EVP_CipherUpdate(c, out, &n, j->data.data, (int)len))
        return false;
    if (EVP_CipherFinal_ex(c, out + n, &last) <= 0)
        return false;
    *ret_n = (size_t)n + (size_t)last;
    if (gcm && j->encrypt) {
        if (EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_GET_TAG, (int)j->tag_len, out + *ret_n) <= 0)
            return false;
        *ret_n += j->tag_len;
    }
    return true;
}

/* aes(cipher, encrypt, key, iv, data, aad, tagBytes) */
WEBHOST_FN(fn_aes) {
    WEBHOST_UNUSED;
    size_t cipher, encrypt;
    struct aes_job j = {0};
    if (!webhost_size(ctx, argc, argv, 0, CIPHER_COUNT - 1, &cipher, exc) ||
        !webhost_size(ctx, argc, argv, 1, 1, &encrypt, exc) ||
        !webhost_bytes(ctx, argc, argv, 2, &j.key, exc) ||
        !webhost_bytes(ctx, argc, argv, 3, &j.iv, exc) ||
        !webhost_bytes(ctx, argc, argv, 4, &j.data, exc) ||
        !webhost_bytes(ctx, argc, argv, 5, &j.aad, exc) ||
        !webhost_size(ctx, argc, argv, 6, AES_GCM_TAG_MAX, &j.tag_len, exc))
        return JSValueMakeUndefined(ctx);
    j.cipher = (enum cipher)cipher;
    j.encrypt = encrypt != 0;
    bool key_ok = j.key.len == 16 || j.key.len == 24 || j.key.len == 32;
    /* libcrypto reads a whole block from the iv of CBC and CTR whatever its length is. */
    bool iv_ok = j.cipher == CIPHER_GCM  ? j.iv.len > 0 && j.iv.len <= 1 << 16
                 : j.cipher == CIPHER_KW ? true
                                         : j.iv.len == AES_BLOCK;
    if (!key_ok || !iv_ok)
        return webhost_crypto_failed(ctx);
    size_t n = 0;
    uint8_t *out = malloc(j.data.len + AES_ROOM);
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    bool ok = out && c && aes_run(c, &j, out, &n);
    EVP_CIPHER_CTX_free(c);
    if (!ok) {
        free(out);
        return webhost_crypto_failed(ctx);
    }
    return webhost_take(ctx, out, n, exc);
}

void webhost_install_crypto(JSContextRef ctx, JSObjectRef host) {
    static const RAND_METHOD method = {.bytes = webhost_crypto_on_rand_bytes,
                                       .pseudorand = webhost_crypto_on_rand_bytes,
                                       .status = webhost_crypto_on_rand_status};
    bool ok = OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, NULL) &&
              RAND_set_rand_method(&method);
    /* Fetched here: the first fetch of a name walks the provider, takes locks and allocates. */
    for (size_t i = 0; ok && i < HASH_COUNT; i++)
        ok = (hashes[i] = EVP_MD_fetch(NULL, hash_names[i], NULL)) != NULL;
    for (size_t i = 0; ok && i < CIPHER_COUNT; i++)
        for (size_t k = 0; ok && k < 3; k++)
            ok = (ciphers[i][k] = EVP_CIPHER_fetch(NULL, cipher_names[i][k], NULL)) != NULL;
    /* Keys of 2048 bits and more ask libcrypto's generator how strong it is, though ours makes the
     * numbers. It is made here, because that takes a system call which isolates do not have. */
    ok = ok && RAND_get0_private(NULL) && RAND_get0_public(NULL);
    ok = ok && (hkdf = EVP_KDF_fetch(NULL, "HKDF", NULL)) != NULL;
    if (!ok)
        abort();
    webhost_define(ctx, host, "digest", fn_digest);
    webhost_define(ctx, host, "hmac", fn_hmac);
    webhost_define(ctx, host, "equal", fn_equal);
    webhost_define(ctx, host, "pbkdf2", fn_pbkdf2);
    webhost_define(ctx, host, "hkdf", fn_hkdf);
    webhost_define(ctx, host, "aes", fn_aes);
}
