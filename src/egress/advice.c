#include "egress/advice.h"

#include "base/cleanup.h"

#include <stdlib.h>

enum { NAMED_MAX = 12 };

static void egress_advice_name(struct buf *out, size_t *named, const char *before,
                               const char *text) {
    if (*named < NAMED_MAX)
        (void)buf_addf(out, "%s%s%.*s", *named ? ", " : "", before, EGRESS_HOST_MAX + 8, text);
    else if (*named == NAMED_MAX)
        (void)buf_add_str(out, ", and more");
    (*named)++;
}

void advice_write(const struct egress_policy *p, struct buf *out) {
    size_t named = 0;
    (void)buf_add_str(out, ". This is the policy of the sandbox, not a fault: asking again, or in "
                           "another way, will not change it. It may reach: ");
    for (size_t i = 0; i < p->nallow; i++) {
        _cleanup_(free) char *text = egress_allow_text(&p->allow[i]);
        egress_advice_name(out, &named, "", text);
    }
    for (size_t i = 0; i < p->nroutes; i++) {
        const struct egress_route *r = &p->routes[i];
        if (r->api == EGRESS_API_NONE)
            egress_advice_name(out, &named, "http://127.0.0.1:3128/_/", r->name);
        for (size_t k = 0; r->api != EGRESS_API_NONE && k < r->models.n; k++)
            egress_advice_name(out, &named, "the model ", r->models.items[k]);
    }
    (void)buf_add_str(out, named ? "." : "nothing.");
}
