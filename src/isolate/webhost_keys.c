/* Asymmetric keys for crypto.subtle. A key crosses the boundary as DER (PKCS #8 or
 * SubjectPublicKeyInfo) and is parsed for each operation: no native object outlives a call. Null
 * means that a key or an operation is not valid. */

#include "isolate/webhost_priv.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>

enum key_kind { KIND_P256, KIND_P384, KIND_P521, KIND_ED25519, KIND_X25519, KIND_RSA, KIND_COUNT };
enum scheme { SCHEME_ECDSA, SCHEME_EDDSA, SCHEME_PKCS1, SCHEME_PSS, SCHEME_COUNT };
enum { EC_COUNT = 3, RSA_BITS_MAX = 8192, RSA_PARTS = 8, CURVE_BYTES_MAX = 66, RAW_KEY_BYTES = 32 };

static const char *const kind_names[KIND_COUNT] = {"EC", "EC", "EC", "ED25519", "X25519", "RSA"};
static const char *const group_names[EC_COUNT] = {"prime256v1", "secp384r1", "secp521r1"};
static const size_t curve_bytes[EC_COUNT] = {32, 48, 66};
static const char *const hash_names[] = {"SHA1", "SHA256", "SHA384", "SHA512"};
enum { HASH_COUNT = 4 };

static JSValueRef webhost_keys_failed(JSContextRef ctx) {
    ERR_clear_error();
    return JSValueMakeNull(ctx);
}

static bool is_ec(enum key_kind kind) {
    return kind <= KIND_P521;
}

static bool is_kind(EVP_PKEY *key, enum key_kind kind) {
    if (!EVP_PKEY_is_a(key, kind_names[kind]))
        return false;
    if (kind == KIND_RSA)
        return EVP_PKEY_get_bits(key) <= RSA_BITS_MAX;
    if (!is_ec(kind))
        return true;
    char group[32] = "";
    size_t n = 0;
    return EVP_PKEY_get_utf8_string_param(key, OSSL_PKEY_PARAM_GROUP_NAME, group, sizeof group,
                                          &n) &&
           strcmp(group, group_names[kind]) == 0;
}

static EVP_PKEY *parse_key(enum key_kind kind, bool private, struct bytes der) {
    const unsigned char *p = der.data;
    EVP_PKEY *key = NULL;
    if (private) {
        PKCS8_PRIV_KEY_INFO *info = d2i_PKCS8_PRIV_KEY_INFO(NULL, &p, (long)der.len);
        key = info ? EVP_PKCS82PKEY(info) : NULL;
        PKCS8_PRIV_KEY_INFO_free(info);
    } else {
        key = d2i_PUBKEY(NULL, &p, (long)der.len);
    }
    /* Trailing bytes and keys of another kind are refused. */
    if (key && (p != der.data + der.len || !is_kind(key, kind))) {
        EVP_PKEY_free(key);
        return NULL;
    }
    return key;
}

/* The key as DER; takes ownership of it. */
static JSValueRef der_of(JSContextRef ctx, EVP_PKEY *key, bool private, JSValueRef *exc) {
    unsigned char *der = NULL;
    int n = 0;
    if (key && private) {
        PKCS8_PRIV_KEY_INFO *info = EVP_PKEY2PKCS8(key);
        n = info ? i2d_PKCS8_PRIV_KEY_INFO(info, &der) : 0;
        PKCS8_PRIV_KEY_INFO_free(info);
    } else if (key) {
        n = i2d_PUBKEY(key, &der);
    }
    EVP_PKEY_free(key);
    if (n <= 0)
        return webhost_keys_failed(ctx);
    JSValueRef v = webhost_copy(ctx, der, (size_t)n, exc);
    OPENSSL_free(der);
    return v;
}

static bool kind_arg(JSContextRef ctx, size_t argc, const JSValueRef argv[],
                     enum key_kind *ret_kind, JSValueRef *exc) {
    size_t n;
    if (!webhost_size(ctx, argc, argv, 0, KIND_COUNT - 1, &n, exc))
        return false;
    *ret_kind = (enum key_kind)n;
    return true;
}

/* keyGenerate(kind, bits, exponent): PKCS #8; bits and exponent are RSA's */
WEBHOST_FN(fn_generate) {
    WEBHOST_UNUSED;
    enum key_kind kind;
    size_t bits, exponent;
    if (!kind_arg(ctx, argc, argv, &kind, exc) ||
        !webhost_size(ctx, argc, argv, 1, RSA_BITS_MAX, &bits, exc) ||
        !webhost_size(ctx, argc, argv, 2, INT32_MAX, &exponent, exc))
        return JSValueMakeUndefined(ctx);
    EVP_PKEY *key = NULL;
    if (kind == KIND_RSA) {
        EVP_PKEY_CTX *c = EVP_PKEY_CTX_new_from_name(NULL, "RSA", NULL);
        BIGNUM *e = BN_new();
        if (c && e && BN_set_word(e, exponent) && EVP_PKEY_keygen_init(c) > 0 &&
            EVP_PKEY_CTX_set_rsa_keygen_bits(c, (int)bits) > 0 &&
            EVP_PKEY_CTX_set1_rsa_keygen_pubexp(c, e) > 0)
            EVP_PKEY_generate(c, &key);
        BN_free(e);
        EVP_PKEY_CTX_free(c);
    } else if (is_ec(kind)) {
        key = EVP_PKEY_Q_keygen(NULL, NULL, "EC", group_names[kind]);
    } else {
        key = EVP_PKEY_Q_keygen(NULL, NULL, kind_names[kind]);
    }
    return der_of(ctx, key, true, exc);
}

/* keyImport(kind, private, der): the same key encoded anew, or null if it is not such a key */
WEBHOST_FN(fn_import) {
    WEBHOST_UNUSED;
    enum key_kind kind;
    size_t private;
    struct bytes der;
    if (!kind_arg(ctx, argc, argv, &kind, exc) ||
        !webhost_size(ctx, argc, argv, 1, 1, &private, exc) ||
        !webhost_bytes(ctx, argc, argv, 2, &der, exc))
        return JSValueMakeUndefined(ctx);
    return der_of(ctx, parse_key(kind, private, der), private, exc);
}

/* keyPublic(kind, pkcs8): the public half */
WEBHOST_FN(fn_public) {
    WEBHOST_UNUSED;
    enum key_kind kind;
    struct bytes der;
    if (!kind_arg(ctx, argc, argv, &kind, exc) || !webhost_bytes(ctx, argc, argv, 1, &der, exc))
        return JSValueMakeUndefined(ctx);
    return der_of(ctx, parse_key(kind, true, der), false, exc);
}

/* keyRaw(kind, spki): the point, the 32 bytes */
WEBHOST_FN(fn_raw) {
    WEBHOST_UNUSED;
    enum key_kind kind;
    struct bytes der;
    if (!kind_arg(ctx, argc, argv, &kind, exc) || !webhost_bytes(ctx, argc, argv, 1, &der, exc))
        return JSValueMakeUndefined(ctx);
    uint8_t raw[2 * CURVE_BYTES_MAX + 1];
    size_t n = sizeof raw;
    EVP_PKEY *key = parse_key(kind, false, der);
    bool ok = key && kind != KIND_RSA &&
              (is_ec(kind) ? EVP_PKEY_get_octet_string_param(key, OSSL_PKEY_PARAM_PUB_KEY, raw,
                                                             sizeof raw, &n)
                           : EVP_PKEY_get_raw_public_key(key, raw, &n));
    EVP_PKEY_free(key);
    return ok ? webhost_copy(ctx, raw, n, exc) : webhost_keys_failed(ctx);
}

static const char *const rsa_params[RSA_PARTS] = {
    OSSL_PKEY_PARAM_RSA_N,         OSSL_PKEY_PARAM_RSA_E,           OSSL_PKEY_PARAM_RSA_D,
    OSSL_PKEY_PARAM_RSA_FACTOR1,   OSSL_PKEY_PARAM_RSA_FACTOR2,     OSSL_PKEY_PARAM_RSA_EXPONENT1,
    OSSL_PKEY_PARAM_RSA_EXPONENT2, OSSL_PKEY_PARAM_RSA_COEFFICIENT1};

static EVP_PKEY *key_from_params(const char *type, bool private, OSSL_PARAM_BLD *bld) {
    OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(bld);
    EVP_PKEY_CTX *c = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    EVP_PKEY *key = NULL;
    if (!params || !c || EVP_PKEY_fromdata_init(c) <= 0 ||
        EVP_PKEY_fromdata(c, &key, private ? EVP_PKEY_KEYPAIR : EVP_PKEY_PUBLIC_KEY, params) <= 0)
        key = NULL;
    EVP_PKEY_CTX_free(c);
    OSSL_PARAM_free(params);
    /* Checks that the point is on the curve and that the halves belong together. */
    c = key ? EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL) : NULL;
    bool ok = c && (private ? EVP_PKEY_pairwise_check(c) : EVP_PKEY_public_check(c)) > 0;
    EVP_PKEY_CTX_free(c);
    if (!ok) {
        EVP_PKEY_free(key);
        return NULL;
    }
    return key;
}

/* part[0] is the public point, part[1] (if private) the scalar. */
static EVP_PKEY *ec_from_parts(enum key_kind kind, bool private, const struct bytes part[]) {
    OSSL_PARAM_BLD *bld = OSSL_PARAM_BLD_new();
    BIGNUM *d = private ? BN_bin2bn(part[1].data, (int)part[1].len, NULL) : NULL;
    EVP_PKEY *key = NULL;
    if (bld && (!private || d) &&
        OSSL_PARAM_BLD_push_utf8_string(bld, OSSL_PKEY_PARAM_GROUP_NAME, group_names[kind], 0) &&
        OSSL_PARAM_BLD_push_octet_string(bld, OSSL_PKEY_PARAM_PUB_KEY, part[0].data, part[0].len) &&
        (!private || OSSL_PARAM_BLD_push_BN(bld, OSSL_PKEY_PARAM_PRIV_KEY, d)))
        key = key_from_params("EC", private, bld);
    OSSL_PARAM_BLD_free(bld);
    BN_clear_free(d);
    return key;
}

static EVP_PKEY *rsa_from_parts(bool private, const struct bytes part[]) {
    OSSL_PARAM_BLD *bld = OSSL_PARAM_BLD_new();
    BIGNUM *bn[RSA_PARTS] = {NULL};
    bool ok = bld && part[0].len <= RSA_BITS_MAX / 8;
    for (size_t i = 0; ok && i < (private ? RSA_PARTS : 2u); i++) {
        bn[i] = BN_bin2bn(part[i].data, (int)part[i].len, NULL);
        ok = bn[i] && OSSL_PARAM_BLD_push_BN(bld, rsa_params[i], bn[i]);
    }
    EVP_PKEY *key = ok ? key_from_params("RSA", private, bld) : NULL;
    OSSL_PARAM_BLD_free(bld);
    for (size_t i = 0; i < RSA_PARTS; i++)
        BN_clear_free(bn[i]);
    return key;
}

/* keyFromParts(kind, private, ...parts): EC: point[, scalar]; OKP: the 32 bytes of this half;
 * RSA: n, e[, d, p, q, dp, dq, qi]. PKCS #8 if private, else SubjectPublicKeyInfo. */
WEBHOST_FN(fn_from_parts) {
    WEBHOST_UNUSED;
    enum key_kind kind;
    size_t private;
    struct bytes part[RSA_PARTS] = {{0}};
    if (!kind_arg(ctx, argc, argv, &kind, exc) ||
        !webhost_size(ctx, argc, argv, 1, 1, &private, exc))
        return JSValueMakeUndefined(ctx);
    size_t count = kind == KIND_RSA ? (private ? RSA_PARTS : 2) : is_ec(kind) ? 1 + private : 1;
    for (size_t i = 0; i < count; i++)
        if (!webhost_bytes(ctx, argc, argv, 2 + i, &part[i], exc))
            return JSValueMakeUndefined(ctx);
    for (size_t i = 0; i < count; i++)
        if (part[i].len == 0 || part[i].len > RSA_BITS_MAX / 8)
            return webhost_keys_failed(ctx);
    EVP_PKEY *key;
    if (kind == KIND_RSA)
        key = rsa_from_parts(private, part);
    else if (is_ec(kind))
        key = ec_from_parts(kind, private, part);
    else if (private)
        key = EVP_PKEY_new_raw_private_key_ex(NULL, kind_names[kind], NULL, part[0].data,
                                              part[0].len);
    else
        key =
            EVP_PKEY_new_raw_public_key_ex(NULL, kind_names[kind], NULL, part[0].data, part[0].len);
    return der_of(ctx, key, private, exc);
}

/* keyPart(kind, private, der, index): for RSA the number of that index, for the others the secret.
 */
WEBHOST_FN(fn_part) {
    WEBHOST_UNUSED;
    enum key_kind kind;
    size_t private, index;
    struct bytes der;
    if (!kind_arg(ctx, argc, argv, &kind, exc) ||
        !webhost_size(ctx, argc, argv, 1, 1, &private, exc) ||
        !webhost_bytes(ctx, argc, argv, 2, &der, exc) ||
        !webhost_size(ctx, argc, argv, 3, RSA_PARTS - 1, &index, exc))
        return JSValueMakeUndefined(ctx);
    EVP_PKEY *key = parse_key(kind, private, der);
    uint8_t out[RSA_BITS_MAX / 8];
    size_t n = 0;
    if (key && (kind == KIND_ED25519 || kind == KIND_X25519)) {
        n = RAW_KEY_BYTES;
        if (!private || EVP_PKEY_get_raw_private_key(key, out, &n) <= 0)
            n = 0;
    } else if (key) {
        BIGNUM *bn = NULL;
        const char *name = kind == KIND_RSA ? rsa_params[index] : OSSL_PKEY_PARAM_PRIV_KEY;
        if (EVP_PKEY_get_bn_param(key, name, &bn)) {
            size_t size = kind == KIND_RSA ? (size_t)BN_num_bytes(bn) : curve_bytes[kind];
            if (size <= sizeof out && BN_bn2binpad(bn, out, (int)size) >= 0)
                n = size;
        }
        BN_clear_free(bn);
    }
    EVP_PKEY_free(key);
    return n ? webhost_copy(ctx, out, n, exc) : webhost_keys_failed(ctx);
}

/* ECDSA signatures are r || s on the web and a DER sequence in libcrypto. */
static bool ecdsa_to_raw(const uint8_t *der, size_t len, size_t half, uint8_t *out) {
    ECDSA_SIG *sig = d2i_ECDSA_SIG(NULL, &der, (long)len);
    bool ok = sig && BN_bn2binpad(ECDSA_SIG_get0_r(sig), out, (int)half) >= 0 &&
              BN_bn2binpad(ECDSA_SIG_get0_s(sig), out + half, (int)half) >= 0;
    ECDSA_SIG_free(sig);
    return ok;
}

static unsigned char *ecdsa_to_der(struct bytes raw, size_t half, size_t *ret_len) {
    ECDSA_SIG *sig = ECDSA_SIG_new();
    BIGNUM *r = BN_bin2bn(raw.data, (int)half, NULL);
    BIGNUM *s = BN_bin2bn(raw.data + half, (int)half, NULL);
    unsigned char *der = NULL;
    if (sig && r && s && ECDSA_SIG_set0(sig, r, s)) {
        int n = i2d_ECDSA_SIG(sig, &der);
        *ret_len = n > 0 ? (size_t)n : 0;
    } else {
        BN_free(r);
        BN_free(s);
    }
    ECDSA_SIG_free(sig);
    return der;
}

struct sign_job {
    enum key_kind kind;
    enum scheme scheme;
    size_t hash, salt_len;
    struct bytes key, data, signature;
};

static bool sign_args(JSContextRef ctx, size_t argc, const JSValueRef argv[], struct sign_job *j,
                      bool verify, JSValueRef *exc) {
    size_t scheme;
    if (!kind_arg(ctx, argc, argv, &j->kind, exc) ||
        !webhost_bytes(ctx, argc, argv, 1, &j->key, exc) ||
        !webhost_size(ctx, argc, argv, 2, SCHEME_COUNT - 1, &scheme, exc) ||
        !webhost_size(ctx, argc, argv, 3, HASH_COUNT - 1, &j->hash, exc) ||
        !webhost_size(ctx, argc, argv, 4, RSA_BITS_MAX, &j->salt_len, exc) ||
        !webhost_bytes(ctx, argc, argv, 5, &j->data, exc) ||
        (verify && !webhost_bytes(ctx, argc, argv, 6, &j->signature, exc)))
        return false;
    j->scheme = (enum scheme)scheme;
    return true;
}

/* Initialises a signing or verifying context; NULL if the key does not fit. */
static EVP_MD_CTX *sign_begin(const struct sign_job *j, EVP_PKEY *key, bool verify) {
    EVP_MD_CTX *c = key ? EVP_MD_CTX_new() : NULL;
    EVP_PKEY_CTX *pc = NULL;
    const char *hash = j->scheme == SCHEME_EDDSA ? NULL : hash_names[j->hash];
    bool ok = c && (verify ? EVP_DigestVerifyInit_ex(c, &pc, hash, NULL, NULL, key, NULL)
                           : EVP_DigestSignInit_ex(c, &pc, hash, NULL, NULL, key, NULL)) > 0;
    if (ok && j->scheme == SCHEME_PKCS1)
        ok = EVP_PKEY_CTX_set_rsa_padding(pc, RSA_PKCS1_PADDING) > 0;
    if (ok && j->scheme == SCHEME_PSS)
        ok = EVP_PKEY_CTX_set_rsa_padding(pc, RSA_PKCS1_PSS_PADDING) > 0 &&
             EVP_PKEY_CTX_set_rsa_pss_saltlen(pc, (int)j->salt_len) > 0;
    if (!ok) {
        EVP_MD_CTX_free(c);
        return NULL;
    }
    return c;
}

/* keySign(kind, pkcs8, scheme, hash, saltBytes, data) */
WEBHOST_FN(fn_sign) {
    WEBHOST_UNUSED;
    struct sign_job j = {0};
    if (!sign_args(ctx, argc, argv, &j, false, exc))
        return JSValueMakeUndefined(ctx);
    EVP_PKEY *key = parse_key(j.kind, true, j.key);
    EVP_MD_CTX *c = sign_begin(&j, key, false);
    uint8_t sig[RSA_BITS_MAX / 8];
    size_t n = sizeof sig;
    bool ok = c && EVP_DigestSign(c, sig, &n, j.data.data, j.data.len) > 0;
    EVP_MD_CTX_free(c);
    EVP_PKEY_free(key);
    if (!ok)
        return webhost_keys_failed(ctx);
    if (j.scheme != SCHEME_ECDSA)
        return webhost_copy(ctx, sig, n, exc);
    uint8_t raw[2 * CURVE_BYTES_MAX];
    size_t half = is_ec(j.kind) ? curve_bytes[j.kind] : 0;
    if (!half || !ecdsa_to_raw(sig, n, half, raw))
        return webhost_keys_failed(ctx);
    return webhost_copy(ctx, raw, 2 * half, exc);
}

/* keyVerify(kind, spki, scheme, hash, saltBytes, data, signature): boolean */
WEBHOST_FN(fn_verify) {
    WEBHOST_UNUSED;
    struct sign_job j = {0};
    if (!sign_args(ctx, argc, argv, &j, true, exc))
        return JSValueMakeUndefined(ctx);
    unsigned char *der = NULL;
    struct bytes sig = j.signature;
    if (j.scheme == SCHEME_ECDSA) {
        size_t half = is_ec(j.kind) ? curve_bytes[j.kind] : 0, n = 0;
        if (!half || sig.len != 2 * half || !(der = ecdsa_to_der(sig, half, &n)))
            return JSValueMakeBoolean(ctx, false);
        sig = (struct bytes){der, n};
    }
    EVP_PKEY *key = parse_key(j.kind, false, j.key);
    EVP_MD_CTX *c = sign_begin(&j, key, true);
    bool ok = c && EVP_DigestVerify(c, sig.data, sig.len, j.data.data, j.data.len) == 1;
    EVP_MD_CTX_free(c);
    EVP_PKEY_free(key);
    OPENSSL_free(der);
    ERR_clear_error();
    return JSValueMakeBoolean(ctx, ok);
}

/* keyDerive(kind, pkcs8, spki): the shared secret */
WEBHOST_FN(fn_derive) {
    WEBHOST_UNUSED;
    enum key_kind kind;
    struct bytes mine, theirs;
    if (!kind_arg(ctx, argc, argv, &kind, exc) || !webhost_bytes(ctx, argc, argv, 1, &mine, exc) ||
        !webhost_bytes(ctx, argc, argv, 2, &theirs, exc))
        return JSValueMakeUndefined(ctx);
    EVP_PKEY *key = parse_key(kind, true, mine), *peer = parse_key(kind, false, theirs);
    EVP_PKEY_CTX *c = key && peer ? EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL) : NULL;
    uint8_t out[CURVE_BYTES_MAX];
    size_t n = sizeof out;
    bool ok = c && EVP_PKEY_derive_init(c) > 0 && EVP_PKEY_derive_set_peer(c, peer) > 0 &&
              EVP_PKEY_derive(c, out, &n) > 0;
    EVP_PKEY_CTX_free(c);
    EVP_PKEY_free(peer);
    EVP_PKEY_free(key);
    return ok ? webhost_copy(ctx, out, n, exc) : webhost_keys_failed(ctx);
}

/* keyCrypt(encrypt, der, hash, label, data): RSA-OAEP */
WEBHOST_FN(fn_crypt) {
    WEBHOST_UNUSED;
    size_t encrypt, hash;
    struct bytes der, label, data;
    if (!webhost_size(ctx, argc, argv, 0, 1, &encrypt, exc) ||
        !webhost_bytes(ctx, argc, argv, 1, &der, exc) ||
        !webhost_size(ctx, argc, argv, 2, HASH_COUNT - 1, &hash, exc) ||
        !webhost_bytes(ctx, argc, argv, 3, &label, exc) ||
        !webhost_bytes(ctx, argc, argv, 4, &data, exc))
        return JSValueMakeUndefined(ctx);
    EVP_PKEY *key = parse_key(KIND_RSA, !encrypt, der);
    EVP_PKEY_CTX *c = key ? EVP_PKEY_CTX_new_from_pkey(NULL, key, NULL) : NULL;
    uint8_t out[RSA_BITS_MAX / 8];
    size_t n = sizeof out;
    bool ok = c && (encrypt ? EVP_PKEY_encrypt_init(c) : EVP_PKEY_decrypt_init(c)) > 0 &&
              EVP_PKEY_CTX_set_rsa_padding(c, RSA_PKCS1_OAEP_PADDING) > 0 &&
              EVP_PKEY_CTX_set_rsa_oaep_md_name(c, hash_names[hash], NULL) > 0 &&
              EVP_PKEY_CTX_set_rsa_mgf1_md_name(c, hash_names[hash], NULL) > 0;
    if (ok && label.len) {
        /* set0: libcrypto frees the copy. */
        void *copy = OPENSSL_memdup(label.data, label.len);
        ok = copy && EVP_PKEY_CTX_set0_rsa_oaep_label(c, copy, (int)label.len) > 0;
        if (copy && !ok)
            OPENSSL_free(copy);
    }
    ok = ok && (encrypt ? EVP_PKEY_encrypt(c, out, &n, data.data, data.len)
                        : EVP_PKEY_decrypt(c, out, &n, data.data, data.len)) > 0;
    EVP_PKEY_CTX_free(c);
    EVP_PKEY_free(key);
    return ok ? webhost_copy(ctx, out, n, exc) : webhost_keys_failed(ctx);
}

void webhost_install_keys(JSContextRef ctx, JSObjectRef host) {
    webhost_define(ctx, host, "keyGenerate", fn_generate);
    webhost_define(ctx, host, "keyImport", fn_import);
    webhost_define(ctx, host, "keyPublic", fn_public);
    webhost_define(ctx, host, "keyRaw", fn_raw);
    webhost_define(ctx, host, "keyFromParts", fn_from_parts);
    webhost_define(ctx, host, "keyPart", fn_part);
    webhost_define(ctx, host, "keySign", fn_sign);
    webhost_define(ctx, host, "keyVerify", fn_verify);
    webhost_define(ctx, host, "keyDerive", fn_derive);
    webhost_define(ctx, host, "keyCrypt", fn_crypt);
}
