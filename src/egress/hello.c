#include "egress/hello.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* A view of bytes that turns bad when it runs out. */
struct view {
    const uint8_t *at;
    size_t len;
    bool bad;
};

static unsigned hello_number(struct view *v, size_t bytes) {
    unsigned n = 0;
    if (v->bad || v->len < bytes) {
        v->bad = true;
        return 0;
    }
    for (size_t i = 0; i < bytes; i++)
        n = n << 8 | v->at[i];
    v->at += bytes;
    v->len -= bytes;
    return n;
}

/* The next bytes, whose length stands before them. */
static struct view hello_part(struct view *v, size_t length_bytes) {
    size_t n = hello_number(v, length_bytes);
    if (v->bad || v->len < n) {
        v->bad = true;
        return (struct view){.at = (const uint8_t *)"", .bad = true};
    }
    struct view p = {.at = v->at, .len = n};
    v->at += n;
    v->len -= n;
    return p;
}

enum { RECORD_HEAD = 5, RECORD_MAX = 16384, HANDSHAKE = 22, CLIENT_HELLO = 1, SERVER_NAME = 0 };

static enum hello_result hello_read_name(struct view ext, char *ret_name) {
    struct view list = hello_part(&ext, 2);
    unsigned type = hello_number(&list, 1);
    struct view name = hello_part(&list, 2);
    /* One name, and it is a host's: two of them would be for two readers. */
    if (list.bad || ext.len > 0 || list.len > 0 || type != 0 || name.len == 0 ||
        name.len > HELLO_NAME_MAX || memchr(name.at, 0, name.len))
        return HELLO_BAD;
    for (size_t i = 0; i < name.len; i++)
        ret_name[i] = (char)tolower(name.at[i]);
    ret_name[name.len] = 0;
    return HELLO_OK;
}

static enum hello_result read_hello(struct view v, char *ret_name) {
    (void)hello_number(&v, 2);
    for (size_t i = 0; i < 8; i++)
        (void)hello_number(&v, 4); /* random */
    (void)hello_part(&v, 1);       /* session */
    (void)hello_part(&v, 2);       /* ciphers */
    (void)hello_part(&v, 1);       /* compression */
    if (v.bad)
        return HELLO_BAD;
    if (v.len == 0)
        return HELLO_NO_NAME;
    struct view exts = hello_part(&v, 2);
    enum hello_result result = HELLO_NO_NAME;
    if (v.bad || v.len > 0)
        return HELLO_BAD;
    while (exts.len > 0 && !exts.bad) {
        unsigned type = hello_number(&exts, 2);
        struct view ext = hello_part(&exts, 2);
        if (exts.bad)
            return HELLO_BAD;
        if (type != SERVER_NAME)
            continue;
        if (result != HELLO_NO_NAME)
            return HELLO_BAD;
        result = hello_read_name(ext, ret_name);
        if (result != HELLO_OK)
            return result;
    }
    return exts.bad ? HELLO_BAD : result;
}

enum hello_result hello_parse(const uint8_t *data, size_t len, char ret_name[HELLO_NAME_MAX + 1]) {
    uint8_t hello[HELLO_MAX_BYTES];
    size_t have = 0;
    size_t want = 4;
    /* The message may be cut into records anywhere. */
    while (have < want) {
        if (len > 0 && data[0] != HANDSHAKE)
            return HELLO_BAD;
        if (len > 1 && data[1] != 3)
            return HELLO_BAD;
        if (len < RECORD_HEAD)
            return HELLO_MORE;
        size_t n = (size_t)data[3] << 8 | data[4];
        if (n == 0 || n > RECORD_MAX)
            return HELLO_BAD;
        size_t here = len - RECORD_HEAD < n ? len - RECORD_HEAD : n;
        if (have + here > sizeof(hello))
            return HELLO_BAD;
        memcpy(hello + have, data + RECORD_HEAD, here);
        have += here;
        if (have > 0 && hello[0] != CLIENT_HELLO)
            return HELLO_BAD;
        if (have >= 4)
            want = 4 + ((size_t)hello[1] << 16 | (size_t)hello[2] << 8 | hello[3]);
        if (want > sizeof(hello))
            return HELLO_BAD;
        if (here < n && have < want)
            return HELLO_MORE;
        if (here < n)
            break;
        data += RECORD_HEAD + n;
        len -= RECORD_HEAD + n;
    }
    char name[HELLO_NAME_MAX + 1];
    struct view v = {.at = hello + 4, .len = want - 4};
    enum hello_result r = read_hello(v, name);
    if (r == HELLO_OK)
        memcpy(ret_name, name, strlen(name) + 1);
    return r;
}
