#include "wire/pack.h"

#include "base/mem.h"

#include <endian.h>
#include <string.h>

void pack_u8(struct buf *b, uint8_t v) {
    (void)buf_add(b, &v, sizeof(v));
}

void pack_u32(struct buf *b, uint32_t v) {
    v = htole32(v);
    (void)buf_add(b, &v, sizeof(v));
}

void pack_u64(struct buf *b, uint64_t v) {
    v = htole64(v);
    (void)buf_add(b, &v, sizeof(v));
}

void pack_f64(struct buf *b, double v) {
    uint64_t u;
    memcpy(&u, &v, sizeof(u));
    pack_u64(b, u);
}

void pack_bytes(struct buf *b, const void *data, size_t len) {
    if (len > UINT32_MAX) {
        b->full = true;
        return;
    }
    pack_u32(b, (uint32_t)len);
    (void)buf_add(b, data, len);
}

void pack_str(struct buf *b, const char *s) {
    pack_bytes(b, s, s ? strlen(s) : 0);
}

void unpack_init(struct unpack *u, const void *data, size_t len) {
    *u = (struct unpack){.at = data, .end = (const uint8_t *)data + len};
}

static const uint8_t *pack_take(struct unpack *u, size_t n) {
    if (u->bad || (size_t)(u->end - u->at) < n) {
        u->bad = true;
        return NULL;
    }
    const uint8_t *p = u->at;
    u->at += n;
    return p;
}

uint8_t unpack_u8(struct unpack *u) {
    const uint8_t *p = pack_take(u, 1);
    return p ? *p : 0;
}

uint32_t unpack_u32(struct unpack *u) {
    uint32_t v = 0;
    const uint8_t *p = pack_take(u, sizeof(v));
    if (p)
        memcpy(&v, p, sizeof(v));
    return le32toh(v);
}

uint64_t unpack_u64(struct unpack *u) {
    uint64_t v = 0;
    const uint8_t *p = pack_take(u, sizeof(v));
    if (p)
        memcpy(&v, p, sizeof(v));
    return le64toh(v);
}

double unpack_f64(struct unpack *u) {
    uint64_t bits = unpack_u64(u);
    double v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

const char *unpack_bytes(struct unpack *u, size_t *ret_len) {
    size_t len = unpack_u32(u);
    const uint8_t *p = pack_take(u, len);
    *ret_len = p ? len : 0;
    return p ? (const char *)p : "";
}

char *unpack_strdup(struct unpack *u) {
    size_t len;
    const char *p = unpack_bytes(u, &len);
    if (memchr(p, 0, len)) {
        u->bad = true;
        len = 0;
    }
    return xstrndup(p, len);
}

bool unpack_ok(const struct unpack *u) {
    return !u->bad && u->at == u->end;
}
