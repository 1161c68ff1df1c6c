#include "base/id.h"

#include "base/rand.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";

enum { ID_DIGITS = 26 };

static char *write_id(const char *prefix, const unsigned char raw[16], char out[ID_SIZE]) {
    int at = snprintf(out, ID_SIZE, "%.12s_", prefix);
    /* 128 bits in 26 digits of 5 bits: the first digit carries 3 bits. */
    unsigned acc = 0;
    int bits = 2;
    size_t k = (size_t)at;
    for (size_t i = 0; i < 16; i++) {
        acc = (acc << 8) | raw[i];
        bits += 8;
        while (bits >= 5) {
            bits -= 5;
            out[k++] = digits[(acc >> bits) & 31];
        }
        acc &= (1U << bits) - 1;
    }
    out[k] = 0;
    return out;
}

/* The time in 4096ths of a millisecond. Each call of this process gets a later one, so that what
 * was made later sorts later; unless the clock was set back by more than a little: it is followed.
 */
static uint64_t next_tick(void) {
    enum { A_LITTLE = 10000 << 12 };
    static _Atomic uint64_t last;
    struct timespec ts;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    uint64_t ns = (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
    uint64_t now = ns / 1000000 << 12 | (ns % 1000000 << 12) / 1000000;
    uint64_t before = atomic_load(&last);
    uint64_t tick;
    do
        tick = before >= now && before - now < A_LITTLE ? before + 1 : now;
    while (!atomic_compare_exchange_weak(&last, &before, tick));
    return tick;
}

static void id_write_time(unsigned char raw[16], int64_t time_ms) {
    uint64_t ms = (uint64_t)time_ms;
    for (int i = 0; i < 6; i++)
        raw[i] = (unsigned char)(ms >> (8 * (5 - i)));
}

static void write_version(unsigned char raw[16], unsigned version) {
    raw[6] = (unsigned char)((raw[6] & 0x0f) | version << 4);
    raw[8] = (unsigned char)((raw[8] & 0x3f) | 0x80);
}

char *id_new(const char *prefix, char out[ID_SIZE]) {
    unsigned char raw[16];
    uint64_t tick = next_tick();
    rand_bytes(raw, sizeof(raw));
    id_write_time(raw, (int64_t)(tick >> 12));
    raw[6] = (unsigned char)(tick >> 8 & 0x0f);
    raw[7] = (unsigned char)tick;
    write_version(raw, 7);
    return write_id(prefix, raw, out);
}

char *id_floor(const char *prefix, int64_t time_ms, char out[ID_SIZE]) {
    unsigned char raw[16] = {0};
    id_write_time(raw, time_ms > 0 ? time_ms : 0);
    return write_id(prefix, raw, out);
}

bool id_is_valid(const char *prefix, const char *text, size_t len) {
    size_t n = strlen(prefix);
    if (len != n + 1 + ID_DIGITS || memcmp(text, prefix, n) != 0 || text[n] != '_')
        return false;
    for (size_t i = n + 1; i < len; i++)
        if (!text[i] || !strchr(digits, text[i]))
            return false;
    return true;
}

static char *write_uuid(const unsigned char r[16], char out[UUID_SIZE]) {
    (void)snprintf(out, UUID_SIZE,
                   "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", r[0],
                   r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13],
                   r[14], r[15]);
    return out;
}

char *id_uuid(char out[UUID_SIZE]) {
    unsigned char r[16];
    rand_bytes(r, sizeof(r));
    write_version(r, 4);
    return write_uuid(r, out);
}

char *id_to_uuid(const char *id, char out[UUID_SIZE]) {
    const char *text = strchr(id, '_') + 1;
    unsigned char raw[16] = {0};
    unsigned acc = 0;
    int bits = -2; /* the first digit has two that are not used */
    size_t k = 0;
    for (size_t i = 0; i < ID_DIGITS; i++) {
        acc = (acc << 5 | (unsigned)(strchr(digits, text[i]) - digits)) & 0xfff;
        bits += 5;
        if (bits >= 8) {
            bits -= 8;
            raw[k++] = (unsigned char)(acc >> bits);
        }
    }
    return write_uuid(raw, out);
}

bool id_from_uuid(const char *prefix, const char *text, char out[ID_SIZE]) {
    static const char hex[] = "0123456789abcdef0123456789ABCDEF";
    unsigned char raw[16] = {0};
    size_t n = 0;
    for (size_t i = 0; i < UUID_SIZE - 1; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        const char *at = text[i] ? strchr(hex, text[i]) : NULL;
        if (dash ? text[i] != '-' : !at)
            return false;
        if (!dash) {
            raw[n / 2] = (unsigned char)(raw[n / 2] << 4 | ((at - hex) & 15));
            n++;
        }
    }
    if (text[UUID_SIZE - 1])
        return false;
    (void)write_id(prefix, raw, out);
    return true;
}
