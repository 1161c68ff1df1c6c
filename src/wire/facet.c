#include "wire/facet.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static int facet_wire_malformed(struct err *err, const char *what) {
    return err_set(err, ERR_PROTOCOL, "malformed %s message", what);
}

/* The order of the fields on the wire; both directions walk it. */
#define LIMIT_FIELDS(l)                                                                            \
    {                                                                                              \
        &(l)->rows, &(l)->result_bytes, &(l)->time_ms, &(l)->sql_bytes, &(l)->value_bytes,         \
            &(l)->call_bytes, &(l)->disk_bytes, &(l)->memory_bytes, &(l)->stall_ms,                \
            &(l)->calls_per_s                                                                      \
    }
#define STATS_FIELDS(s)                                                                            \
    {                                                                                              \
        &(s)->calls, &(s)->failed, &(s)->grants, &(s)->db_bytes, &(s)->wal_bytes,                  \
            &(s)->memory_bytes, &(s)->memory_peak_bytes, &(s)->cache_hits, &(s)->cache_misses      \
    }
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

void facet_open_encode(struct buf *out, const struct facet_open *m) {
    pack_str(out, m->file);
    pack_str(out, m->schema);
    pack_str(out, m->seed);
    pack_str(out, m->seed_table);
    pack_u8(out, m->full);
    pack_u8(out, m->check);
    pack_u64(out, m->idle_ms);
    const uint64_t *const limits[] = LIMIT_FIELDS(&m->limits);
    for (size_t i = 0; i < COUNT(limits); i++)
        pack_u64(out, *limits[i]);
    pack_u32(out, (uint32_t)m->nmethods);
    for (size_t i = 0; i < m->nmethods; i++) {
        pack_str(out, m->methods[i].name);
        pack_str(out, m->methods[i].sql);
        pack_u8(out, (uint8_t)m->methods[i].kind);
    }
}

int facet_open_decode(const void *data, size_t len, struct facet_open *ret, struct err *err) {
    struct unpack u;
    unpack_init(&u, data, len);
    struct facet_open m = {.file = unpack_strdup(&u)};
    m.schema = unpack_strdup(&u);
    m.seed = unpack_strdup(&u);
    m.seed_table = unpack_strdup(&u);
    m.full = unpack_u8(&u) != 0;
    m.check = unpack_u8(&u) != 0;
    m.idle_ms = unpack_u64(&u);
    uint64_t *const limits[] = LIMIT_FIELDS(&m.limits);
    for (size_t i = 0; i < COUNT(limits); i++)
        *limits[i] = unpack_u64(&u);
    size_t n = unpack_u32(&u);
    if (n > FACET_METHODS_MAX)
        u.bad = true;
    m.methods = xcalloc(FACET_METHODS_MAX, sizeof(*m.methods));
    for (size_t i = 0; i < n && !u.bad; i++) {
        m.methods[i].name = unpack_strdup(&u);
        m.methods[i].sql = unpack_strdup(&u);
        uint8_t kind = unpack_u8(&u);
        if (kind > FACET_KIND_EXECUTE)
            u.bad = true;
        m.methods[i].kind = kind;
        m.nmethods++;
    }
    if (!unpack_ok(&u)) {
        facet_open_finish(&m);
        return facet_wire_malformed(err, "OPEN");
    }
    *ret = m;
    return 0;
}

void facet_open_finish(struct facet_open *m) {
    if (!m)
        return;
    for (size_t i = 0; i < m->nmethods; i++) {
        free(m->methods[i].name);
        free(m->methods[i].sql);
    }
    free(m->methods);
    free(m->file);
    free(m->schema);
    free(m->seed);
    free(m->seed_table);
    *m = (struct facet_open){0};
}

void facet_opened_encode(struct buf *out, const struct facet_opened *m) {
    pack_u8(out, m->fresh);
    pack_u32(out, m->landlock);
    pack_str(out, m->warnings);
}

int facet_opened_decode(const void *data, size_t len, struct facet_opened *ret, struct err *err) {
    struct unpack u;
    unpack_init(&u, data, len);
    struct facet_opened m = {.fresh = unpack_u8(&u) != 0};
    m.landlock = unpack_u32(&u);
    m.warnings = unpack_strdup(&u);
    if (!unpack_ok(&u)) {
        facet_opened_finish(&m);
        return facet_wire_malformed(err, "OPENED");
    }
    *ret = m;
    return 0;
}

void facet_opened_finish(struct facet_opened *m) {
    if (!m)
        return;
    free(m->warnings);
    *m = (struct facet_opened){0};
}

void facet_grant_encode(struct buf *out, const struct facet_grant *m) {
    pack_u64(out, m->grant);
    pack_str(out, m->label);
    pack_u64(out, m->max_calls);
    pack_u8(out, m->all);
    pack_u8(out, m->passive);
    pack_u8(out, m->readonly);
    pack_u32(out, (uint32_t)m->nmethods);
    for (size_t i = 0; i < m->nmethods; i++)
        pack_str(out, m->methods[i]);
}

int facet_grant_decode(const void *data, size_t len, struct facet_grant *ret, struct err *err) {
    enum { NAMES_MAX = FACET_METHODS_MAX + 3 };
    struct unpack u;
    unpack_init(&u, data, len);
    struct facet_grant m = {.grant = unpack_u64(&u)};
    m.label = unpack_strdup(&u);
    m.max_calls = unpack_u64(&u);
    m.all = unpack_u8(&u) != 0;
    m.passive = unpack_u8(&u) != 0;
    m.readonly = unpack_u8(&u) != 0;
    size_t n = unpack_u32(&u);
    if (n > NAMES_MAX)
        u.bad = true;
    m.methods = xcalloc(NAMES_MAX, sizeof(*m.methods));
    while (m.nmethods < n && !u.bad)
        m.methods[m.nmethods++] = unpack_strdup(&u);
    if (!unpack_ok(&u)) {
        facet_grant_finish(&m);
        return facet_wire_malformed(err, "GRANT");
    }
    *ret = m;
    return 0;
}

void facet_grant_finish(struct facet_grant *m) {
    if (!m)
        return;
    for (size_t i = 0; i < m->nmethods; i++)
        free(m->methods[i]);
    free(m->methods);
    free(m->label);
    *m = (struct facet_grant){0};
}

void facet_migration_encode(struct buf *out, const struct facet_migration *m) {
    pack_u64(out, m->number);
    pack_bytes(out, m->name, m->name_len);
    pack_bytes(out, m->sql, m->sql_len);
}

int facet_migration_next(struct unpack *u, struct facet_migration *ret, struct err *err) {
    if (u->at == u->end)
        return 0;
    struct facet_migration m = {.number = unpack_u64(u)};
    m.name = unpack_bytes(u, &m.name_len);
    m.sql = unpack_bytes(u, &m.sql_len);
    if (u->bad)
        return facet_wire_malformed(err, "MIGRATE");
    *ret = m;
    return 1;
}

void facet_stats_encode(struct buf *out, const struct facet_stats *m) {
    const uint64_t *const fields[] = STATS_FIELDS(m);
    for (size_t i = 0; i < COUNT(fields); i++)
        pack_u64(out, *fields[i]);
}

int facet_stats_decode(const void *data, size_t len, struct facet_stats *ret, struct err *err) {
    struct unpack u;
    unpack_init(&u, data, len);
    struct facet_stats m = {0};
    uint64_t *const fields[] = STATS_FIELDS(&m);
    for (size_t i = 0; i < COUNT(fields); i++)
        *fields[i] = unpack_u64(&u);
    if (!unpack_ok(&u))
        return facet_wire_malformed(err, "STATS");
    *ret = m;
    return 0;
}

void facet_audit_encode(struct buf *out, const struct facet_audit *m) {
    pack_u64(out, m->grant);
    pack_u64(out, (uint64_t)m->wall_ms);
    pack_u32(out, m->duration_us);
    pack_u32(out, m->rows);
    pack_u64(out, m->changes);
    pack_bytes(out, m->method, m->method_len);
    pack_bytes(out, m->code, m->code_len);
    pack_bytes(out, m->sql, m->sql_len);
}

int facet_audit_next(struct unpack *u, struct facet_audit *ret, struct err *err) {
    if (u->at == u->end)
        return 0;
    struct facet_audit m = {.grant = unpack_u64(u)};
    m.wall_ms = (int64_t)unpack_u64(u);
    m.duration_us = unpack_u32(u);
    m.rows = unpack_u32(u);
    m.changes = unpack_u64(u);
    m.method = unpack_bytes(u, &m.method_len);
    m.code = unpack_bytes(u, &m.code_len);
    m.sql = unpack_bytes(u, &m.sql_len);
    if (u->bad)
        return facet_wire_malformed(err, "AUDIT");
    *ret = m;
    return 1;
}

void facet_closed_encode(struct buf *out, uint64_t grant, uint64_t calls, const char *reason) {
    pack_u64(out, grant);
    pack_u64(out, calls);
    pack_str(out, reason);
}

int facet_closed_decode(const void *data, size_t len, uint64_t *ret_grant, uint64_t *ret_calls,
                        const char **ret_reason, size_t *ret_reason_len, struct err *err) {
    struct unpack u;
    unpack_init(&u, data, len);
    uint64_t grant = unpack_u64(&u);
    uint64_t calls = unpack_u64(&u);
    size_t n;
    const char *reason = unpack_bytes(&u, &n);
    if (!unpack_ok(&u))
        return facet_wire_malformed(err, "CLOSED");
    *ret_grant = grant;
    *ret_calls = calls;
    *ret_reason = reason;
    *ret_reason_len = n;
    return 0;
}

void facet_error_encode(struct buf *out, const struct err *e) {
    pack_u32(out, (uint32_t)e->code);
    pack_str(out, e->message);
}

int facet_error_decode(const void *data, size_t len, struct err *err) {
    struct unpack u;
    unpack_init(&u, data, len);
    uint32_t code = unpack_u32(&u);
    size_t n;
    const char *message = unpack_bytes(&u, &n);
    if (!unpack_ok(&u) || code == 0 || code >= ERR_CODE_COUNT)
        return facet_wire_malformed(err, "ERROR");
    return err_set(err, (enum err_code)code, "%.*s", (int)(n > 500 ? 500 : n), message);
}

void facet_call_encode(struct buf *out, const char *method, const char *args, size_t args_len) {
    pack_str(out, method);
    (void)buf_add(out, args, args_len);
}

int facet_call_decode(const void *data, size_t len, const char **ret_method, size_t *ret_method_len,
                      const char **ret_args, size_t *ret_args_len, struct err *err) {
    struct unpack u;
    unpack_init(&u, data, len);
    size_t n;
    const char *method = unpack_bytes(&u, &n);
    if (u.bad)
        return facet_wire_malformed(err, "CALL");
    *ret_method = method;
    *ret_method_len = n;
    *ret_args = (const char *)u.at;
    *ret_args_len = (size_t)(u.end - u.at);
    return 0;
}
