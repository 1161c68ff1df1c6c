#include "front/http/fields.h"

#include "base/buf.h"

#include <string.h>
#include <strings.h>

bool field_in_list(const char *name, const char *const *list) {
    for (; *list; list++)
        if (strcasecmp(name, *list) == 0)
            return true;
    return false;
}

bool field_is_ours(const char *name) {
    static const char *const names[] = {"content-length",
                                        "content-type",
                                        "date",
                                        "x-request-id",
                                        "x-content-type-options",
                                        "alt-svc",
                                        "strict-transport-security",
                                        NULL};
    return field_in_list(name, names);
}

char *field_guest_cookies(const char *value) {
    struct buf b;
    buf_init(&b, strlen(value) + 1);
    while (*value) {
        value += strspn(value, "; \t");
        size_t n = strcspn(value, ";");
        if (n > 0 && strncasecmp(value, "cay_", 4) != 0) {
            if (b.len > 0)
                (void)buf_add_str(&b, "; ");
            (void)buf_add(&b, value, n);
        }
        value += n;
    }
    return b.len > 0 ? buf_steal(&b, NULL) : (buf_finish(&b), NULL);
}

bool field_cookie_is_fine(const char *value) {
    /* "=cay_x=1" has no name, and comes back as "cay_x=1". */
    value += strspn(value, " \t=");
    if (strncasecmp(value, "cay_", 4) == 0)
        return false;
    for (const char *p = strchr(value, ';'); p; p = strchr(p + 1, ';')) {
        const char *attribute = p + 1 + strspn(p + 1, " \t");
        if (strncasecmp(attribute, "domain", 6) == 0)
            return false;
    }
    return true;
}

const char *field_bearer(const char *authorization) {
    if (strncasecmp(authorization, "bearer", 6) != 0)
        return NULL;
    size_t n = strspn(authorization + 6, " \t");
    if (n == 0)
        return NULL;
    const char *token = authorization + 6 + n;
    const char *dot = strncasecmp(token, "cay_", 4) == 0 ? NULL : strrchr(token, '.');
    return dot ? dot + 1 : token;
}

bool field_is_our_key(const char *authorization) {
    const char *key = field_bearer(authorization);
    return key && strncasecmp(key, "cay_", 4) == 0;
}
