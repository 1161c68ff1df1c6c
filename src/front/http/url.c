#include "front/http/url.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

static int url_hex(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

char *url_decode(const char *text, size_t len, bool plus) {
    char *out = xmalloc(len + 1);
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '%') {
            int hi = len - i > 2 ? url_hex(text[i + 1]) : -1;
            int lo = len - i > 2 ? url_hex(text[i + 2]) : -1;
            if (hi < 0 || lo < 0 || (hi == 0 && lo == 0)) {
                free(out);
                return NULL;
            }
            out[n++] = (char)(hi * 16 + lo);
            i += 2;
        } else {
            out[n++] = plus && text[i] == '+' ? ' ' : text[i];
        }
    }
    out[n] = 0;
    if (!utf8_is_valid(out, n)) {
        free(out);
        return NULL;
    }
    return out;
}

int url_query_check(const char *query, const char *const *allowed, struct err *err) {
    for (const char *p = query; *p;) {
        size_t len = strcspn(p, "&");
        _cleanup_(free) char *name = url_decode(p, strcspn(p, "=&"), true);
        const char *const *a = allowed;
        while (name && *a && strcmp(*a, name) != 0)
            a++;
        if (len > 0 && (!name || !*a)) {
            _cleanup_(buf) struct buf known;
            buf_init(&known, 1024);
            for (a = allowed; *a; a++)
                (void)buf_addf(&known, "%s%s", known.len > 0 ? ", " : "", *a);
            return err_set(err, ERR_BAD_REQUEST, "unknown query parameter \"%.60s\"; there are: %s",
                           name ? name : "", known.data ? known.data : "none");
        }
        p += len;
        if (*p == '&')
            p++;
    }
    return 0;
}

int url_query_get(const char *query, const char *name, char **ret_value, struct err *err) {
    for (const char *p = query; *p;) {
        size_t len = strcspn(p, "&");
        size_t key = strcspn(p, "=&");
        char *k = url_decode(p, key, true);
        bool match = k && strcmp(k, name) == 0;
        free(k);
        if (match) {
            char *v = key < len ? url_decode(p + key + 1, len - key - 1, true) : xstrdup("");
            if (!v)
                return err_set(err, ERR_BAD_REQUEST, "query parameter \"%s\" is malformed", name);
            *ret_value = v;
            return 1;
        }
        p += len;
        if (*p == '&')
            p++;
    }
    return 0;
}
