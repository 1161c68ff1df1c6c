#include "front/common/share.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static struct share **share_find(struct shares *s, const char *owner) {
    struct share **at = &s->list;
    while (*at && strcmp((*at)->owner, owner) != 0)
        at = &(*at)->next;
    return at;
}

void shares_finish(struct shares *s) {
    while (s->list) {
        struct share *h = s->list;
        s->list = h->next;
        free(h);
    }
}

size_t shares_held(const struct shares *s, const char *owner) {
    for (const struct share *h = s->list; h; h = h->next)
        if (strcmp(h->owner, owner) == 0)
            return h->held;
    return 0;
}

void shares_hold(struct shares *s, const char *owner, size_t n) {
    if (n == 0)
        return;
    struct share **at = share_find(s, owner);
    if (!*at) {
        size_t len = strlen(owner) + 1;
        *at = xcalloc(1, sizeof(**at) + len);
        memcpy((*at)->owner, owner, len);
    }
    (*at)->held += n;
}

void shares_release(struct shares *s, const char *owner, size_t n) {
    struct share **at = share_find(s, owner);
    struct share *h = *at;
    if (!h)
        return;
    h->held -= MIN(n, h->held);
    if (h->held > 0)
        return;
    *at = h->next;
    free(h);
}

void shares_add(struct shares *s, const char *owner) {
    shares_hold(s, owner, 1);
}

void shares_remove(struct shares *s, const char *owner) {
    shares_release(s, owner, 1);
}

const char *shares_greatest(const struct shares *s) {
    const struct share *most = s->list;
    for (const struct share *h = s->list; h; h = h->next)
        if (h->held > most->held)
            most = h;
    return most ? most->owner : NULL;
}

size_t share_of(const char *owner, size_t total) {
    if (*owner == 0 || total < 2)
        return total;
    return total - MAX(total / 4, 1);
}

const char *share_name(const char *project, const char *key) {
    return *project ? project : key;
}
