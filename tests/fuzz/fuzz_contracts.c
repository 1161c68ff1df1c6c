/* The messages between our programs, each read from bytes of a peer that may lie: the first byte
 * says which. What is accepted is written again, read again, and is the same: so that nothing is
 * understood that could not have been said. */

#include "base/cleanup.h"
#include "wire/egress.h"
#include "wire/facet.h"
#include "wire/pack.h"
#include "wire/sandbox.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OUT_MAX = 1 << 22 };

/* Reads a message and, if it is one, writes it to `out`. */
typedef bool (*again_fn)(const void *data, size_t len, struct buf *out);

#define UNPACKED(name, finish)                                                                     \
    static bool again_##name(const void *data, size_t len, struct buf *out) {                      \
        struct name m;                                                                             \
        struct unpack u;                                                                           \
        unpack_init(&u, data, len);                                                                \
        unpack_##name(&u, &m);                                                                     \
        bool ok = unpack_ok(&u);                                                                   \
        if (ok)                                                                                    \
            pack_##name(out, &m);                                                                  \
        finish;                                                                                    \
        return ok;                                                                                 \
    }

UNPACKED(sandbox_config, sandbox_config_finish(&m))
UNPACKED(sandbox_spec, sandbox_spec_finish(&m))
UNPACKED(sandbox_features, free(m.detail))
UNPACKED(sandbox_stats, (void)0)
UNPACKED(sandbox_exec, sandbox_exec_finish(&m))
UNPACKED(sandbox_exit, (void)0)
UNPACKED(sandbox_stat, (void)0)
UNPACKED(egress_config, egress_config_finish(&m))
UNPACKED(egress_policy, egress_policy_finish(&m))
UNPACKED(egress_event, egress_event_finish(&m))
UNPACKED(egress_usage, egress_usage_finish(&m))
UNPACKED(egress_ask, free(m.sandbox))
UNPACKED(egress_grant, egress_grant_finish(&m))
UNPACKED(egress_spent, free(m.sandbox))

static bool again_error(const void *data, size_t len, struct buf *out) {
    struct err err;
    struct unpack u;
    unpack_init(&u, data, len);
    int rc = unpack_sandbox_error(&u, &err);
    if (rc >= 0 || rc != -(int)err.code ||
        strnlen(err.message, sizeof(err.message)) == sizeof(err.message))
        abort(); /* an error is an error, whatever the peer says */
    if (!unpack_ok(&u))
        return false;
    pack_sandbox_error(out, &err);
    return true;
}

#define DECODED(name, finish)                                                                      \
    static bool again_##name(const void *data, size_t len, struct buf *out) {                      \
        struct name m;                                                                             \
        struct err err;                                                                            \
        if (name##_decode(data, len, &m, &err) < 0)                                                \
            return false;                                                                          \
        name##_encode(out, &m);                                                                    \
        finish;                                                                                    \
        return true;                                                                               \
    }

DECODED(facet_open, facet_open_finish(&m))
DECODED(facet_opened, facet_opened_finish(&m))
DECODED(facet_grant, facet_grant_finish(&m))
DECODED(facet_stats, (void)0)

static bool again_facet_migrations(const void *data, size_t len, struct buf *out) {
    struct unpack u;
    struct facet_migration m;
    struct err err;
    int rc;
    unpack_init(&u, data, len);
    while ((rc = facet_migration_next(&u, &m, &err)) > 0)
        facet_migration_encode(out, &m);
    return rc == 0;
}

static const again_fn messages[] = {
    again_sandbox_config, again_sandbox_spec, again_sandbox_features, again_sandbox_stats,
    again_sandbox_exec,   again_sandbox_exit, again_sandbox_stat,     again_egress_config,
    again_egress_policy,  again_egress_event, again_egress_usage,     again_error,
    again_facet_open,     again_facet_opened, again_facet_grant,      again_facet_stats,
    again_egress_ask,     again_egress_grant, again_egress_spent,     again_facet_migrations,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    again_fn again = messages[data[0] % ARRAY_LEN(messages)];
    struct buf one;
    struct buf two;
    buf_init(&one, OUT_MAX);
    buf_init(&two, OUT_MAX);
    if (again(data + 1, size - 1, &one)) {
        if (!again(one.data, one.len, &two) || one.len != two.len ||
            (one.len > 0 && memcmp(one.data, two.data, one.len) != 0))
            abort();
    }
    buf_finish(&one);
    buf_finish(&two);
    return 0;
}
