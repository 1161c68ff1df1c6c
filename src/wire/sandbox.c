#include "wire/sandbox.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { STRV_MAX = 4096, ROOTS_MAX = 64 };

void sandbox_strv_finish(struct sandbox_strv *v) {
    for (size_t i = 0; i < v->n; i++)
        free(v->items[i]);
    free(v->items);
    *v = (struct sandbox_strv){0};
}

void sandbox_strv_add(struct sandbox_strv *v, const char *s) {
    v->items = xrealloc(v->items, (v->n + 2) * sizeof(char *));
    v->items[v->n++] = xstrdup(s);
    v->items[v->n] = NULL;
}

void pack_strv(struct buf *b, const struct sandbox_strv *v) {
    pack_u32(b, (uint32_t)v->n);
    for (size_t i = 0; i < v->n; i++)
        pack_str(b, v->items[i]);
}

void unpack_strv(struct unpack *u, size_t max, struct sandbox_strv *ret) {
    size_t n = unpack_u32(u);
    /* Each string takes at least its length's four bytes: a false count allocates nothing. */
    if (n > max || n > (size_t)(u->end - u->at) / 4) {
        u->bad = true;
        n = 0;
    }
    struct sandbox_strv v = {.items = xcalloc(n + 1, sizeof(char *)), .n = n};
    for (size_t i = 0; i < n; i++)
        v.items[i] = unpack_strdup(u);
    *ret = v;
}

void pack_sandbox_config(struct buf *b, const struct sandbox_config *c) {
    pack_u32(b, c->pool);
    pack_u32(b, c->max);
    pack_u32(b, c->uid_base);
    pack_u32(b, c->uid_count);
    pack_str(b, c->state_dir);
    pack_u32(b, (uint32_t)c->nroots);
    for (size_t i = 0; i < c->nroots; i++) {
        pack_str(b, c->roots[i].name);
        pack_str(b, c->roots[i].path);
    }
}

void unpack_sandbox_config(struct unpack *u, struct sandbox_config *ret) {
    struct sandbox_config c = {0};
    c.pool = unpack_u32(u);
    c.max = unpack_u32(u);
    c.uid_base = unpack_u32(u);
    c.uid_count = unpack_u32(u);
    c.state_dir = unpack_strdup(u);
    c.nroots = unpack_u32(u);
    if (c.nroots > ROOTS_MAX) {
        u->bad = true;
        c.nroots = 0;
    }
    c.roots = xcalloc(c.nroots, sizeof(*c.roots));
    for (size_t i = 0; i < c.nroots; i++) {
        c.roots[i].name = unpack_strdup(u);
        c.roots[i].path = unpack_strdup(u);
    }
    *ret = c;
}

void sandbox_config_finish(struct sandbox_config *c) {
    for (size_t i = 0; i < c->nroots; i++) {
        free(c->roots[i].name);
        free(c->roots[i].path);
    }
    free(c->roots);
    free(c->state_dir);
    *c = (struct sandbox_config){0};
}

void pack_sandbox_spec(struct buf *b, const struct sandbox_spec *s) {
    pack_str(b, s->id);
    pack_str(b, s->root);
    pack_str(b, s->hostname);
    pack_str(b, s->user);
    pack_str(b, s->work);
    pack_u64(b, s->memory_bytes);
    pack_u64(b, s->disk_bytes);
    pack_u64(b, s->disk_inodes);
    pack_u32(b, s->pids);
    pack_u32(b, s->files);
    pack_u32(b, s->cpu_milli);
    pack_u8(b, s->egress);
    pack_strv(b, &s->env);
    pack_u32(b, (uint32_t)s->nbinds);
    for (size_t i = 0; i < s->nbinds; i++) {
        pack_str(b, s->binds[i].path);
        pack_u32(b, s->binds[i].mode);
    }
}

enum {
    BESIDE_DISK_MIN = 12 << 20, /* a shell and what it starts, and init */
    BESIDE_DISK_PART = 4,       /* of the memory, if that is more */
    INODE_BYTES = 1024,         /* an inode of a tmpfs and its name */
    INODES_PART = 8,            /* of the memory */
    INODES_MIN = 1024,
};

uint64_t sandbox_disk_max(uint64_t memory_bytes) {
    uint64_t beside = MAX(memory_bytes / BESIDE_DISK_PART, (uint64_t)BESIDE_DISK_MIN);
    return memory_bytes > beside ? memory_bytes - beside : 0;
}

uint64_t sandbox_inodes_max(uint64_t memory_bytes) {
    return MAX(memory_bytes / INODES_PART / INODE_BYTES, (uint64_t)INODES_MIN);
}

int sandbox_spec_check(const struct sandbox_spec *s, struct err *err) {
    uint64_t most = sandbox_disk_max(s->memory_bytes);
    if (s->disk_bytes <= most)
        return 0;
    return err_set(
        err, ERR_BAD_REQUEST,
        "a disk of %llu MiB does not fit into %llu MiB of memory, where it is kept with "
        "room for processes: give at least %llu MiB of memory, or at most %llu of disk",
        (unsigned long long)(s->disk_bytes >> 20), (unsigned long long)(s->memory_bytes >> 20),
        (unsigned long long)(MAX(s->disk_bytes / (BESIDE_DISK_PART - 1) * BESIDE_DISK_PART,
                                 s->disk_bytes + BESIDE_DISK_MIN) +
                             (1 << 20) - 1) >>
            20,
        (unsigned long long)(most >> 20));
}

void unpack_sandbox_spec(struct unpack *u, struct sandbox_spec *ret) {
    struct sandbox_spec s = {0};
    s.id = unpack_strdup(u);
    s.root = unpack_strdup(u);
    s.hostname = unpack_strdup(u);
    s.user = unpack_strdup(u);
    s.work = unpack_strdup(u);
    s.memory_bytes = unpack_u64(u);
    s.disk_bytes = unpack_u64(u);
    s.disk_inodes = unpack_u64(u);
    s.pids = unpack_u32(u);
    s.files = unpack_u32(u);
    s.cpu_milli = unpack_u32(u);
    s.egress = unpack_u8(u) != 0;
    unpack_strv(u, STRV_MAX, &s.env);
    s.nbinds = unpack_u32(u);
    if (s.nbinds > SANDBOX_BINDS_MAX) {
        u->bad = true;
        s.nbinds = 0;
    }
    for (size_t i = 0; i < s.nbinds; i++) {
        s.binds[i].path = unpack_strdup(u);
        s.binds[i].mode = unpack_u32(u);
    }
    if (s.memory_bytes == 0)
        s.memory_bytes = SANDBOX_DEFAULT_MEMORY;
    if (s.disk_bytes == 0)
        s.disk_bytes = MIN(SANDBOX_DEFAULT_DISK, sandbox_disk_max(s.memory_bytes));
    if (s.disk_inodes == 0)
        s.disk_inodes = MIN((uint64_t)SANDBOX_DEFAULT_INODES, sandbox_inodes_max(s.memory_bytes));
    if (s.pids == 0)
        s.pids = SANDBOX_DEFAULT_PIDS;
    if (s.files == 0)
        s.files = SANDBOX_DEFAULT_FILES;
    *ret = s;
}

void sandbox_spec_finish(struct sandbox_spec *s) {
    free(s->id);
    free(s->root);
    free(s->hostname);
    free(s->user);
    free(s->work);
    /* The environment may hold what the guest alone should know. */
    for (size_t i = 0; i < s->env.n; i++)
        mem_wipe(s->env.items[i], strlen(s->env.items[i]));
    sandbox_strv_finish(&s->env);
    for (size_t i = 0; i < s->nbinds; i++)
        free(s->binds[i].path);
    *s = (struct sandbox_spec){0};
}

void pack_sandbox_features(struct buf *b, const struct sandbox_features *f) {
    pack_u8(b, f->root);
    pack_u32(b, f->cgroup);
    pack_u32(b, f->controllers);
    pack_u32(b, f->landlock);
    pack_u8(b, f->proc);
    pack_str(b, f->detail);
}

void unpack_sandbox_features(struct unpack *u, struct sandbox_features *ret) {
    struct sandbox_features f = {0};
    f.root = unpack_u8(u) != 0;
    f.cgroup = unpack_u32(u);
    f.controllers = unpack_u32(u);
    f.landlock = unpack_u32(u);
    f.proc = unpack_u8(u) != 0;
    f.detail = unpack_strdup(u);
    *ret = f;
}

void pack_sandbox_stats(struct buf *b, const struct sandbox_stats *s) {
    pack_u64(b, s->memory_bytes);
    pack_u64(b, s->memory_peak_bytes);
    pack_u64(b, s->cpu_us);
    pack_u32(b, s->pids);
    pack_u32(b, s->oom_kills);
}

void unpack_sandbox_stats(struct unpack *u, struct sandbox_stats *ret) {
    ret->memory_bytes = unpack_u64(u);
    ret->memory_peak_bytes = unpack_u64(u);
    ret->cpu_us = unpack_u64(u);
    ret->pids = unpack_u32(u);
    ret->oom_kills = unpack_u32(u);
}

void pack_sandbox_exec(struct buf *b, const struct sandbox_exec *e) {
    pack_strv(b, &e->argv);
    pack_strv(b, &e->env);
    pack_str(b, e->cwd);
    pack_u8(b, e->tty);
    pack_u8(b, e->read_only);
    pack_u8(b, e->final);
    pack_u8(b, e->brief);
    pack_u32(b, e->cols);
    pack_u32(b, e->rows);
    pack_u32(b, e->in);
    pack_u32(b, e->out);
    pack_u32(b, e->err);
    pack_u32(b, (uint32_t)e->nrlimits);
    for (size_t i = 0; i < e->nrlimits; i++) {
        pack_u32(b, e->rlimits[i].resource);
        pack_u64(b, e->rlimits[i].value);
    }
}

void unpack_sandbox_exec(struct unpack *u, struct sandbox_exec *ret) {
    struct sandbox_exec e = {0};
    unpack_strv(u, STRV_MAX, &e.argv);
    unpack_strv(u, STRV_MAX, &e.env);
    e.cwd = unpack_strdup(u);
    e.tty = unpack_u8(u) != 0;
    e.read_only = unpack_u8(u) != 0;
    e.final = unpack_u8(u) != 0;
    e.brief = unpack_u8(u) != 0;
    e.cols = unpack_u32(u);
    e.rows = unpack_u32(u);
    e.in = unpack_u32(u);
    e.out = unpack_u32(u);
    e.err = unpack_u32(u);
    e.nrlimits = unpack_u32(u);
    if (e.nrlimits > SANDBOX_RLIMITS_MAX) {
        u->bad = true;
        e.nrlimits = 0;
    }
    for (size_t i = 0; i < e.nrlimits; i++) {
        e.rlimits[i].resource = unpack_u32(u);
        e.rlimits[i].value = unpack_u64(u);
    }
    if (e.argv.n == 0)
        u->bad = true;
    *ret = e;
}

void sandbox_exec_finish(struct sandbox_exec *e) {
    sandbox_strv_finish(&e->argv);
    sandbox_strv_finish(&e->env);
    free(e->cwd);
    e->cwd = NULL;
}

void pack_sandbox_exit(struct buf *b, const struct sandbox_exit *e) {
    pack_u8(b, e->signaled);
    pack_u32(b, e->code);
    pack_u8(b, e->oom);
    pack_u64(b, e->user_us);
    pack_u64(b, e->system_us);
    pack_u64(b, e->max_rss_bytes);
}

void unpack_sandbox_exit(struct unpack *u, struct sandbox_exit *ret) {
    ret->signaled = unpack_u8(u) != 0;
    ret->code = unpack_u32(u);
    ret->oom = unpack_u8(u) != 0;
    ret->user_us = unpack_u64(u);
    ret->system_us = unpack_u64(u);
    ret->max_rss_bytes = unpack_u64(u);
}

void pack_sandbox_stat(struct buf *b, const struct sandbox_stat *s) {
    pack_u32(b, s->kind);
    pack_u32(b, s->mode);
    pack_u64(b, s->size);
    pack_u64(b, (uint64_t)s->mtime_ms);
}

void unpack_sandbox_stat(struct unpack *u, struct sandbox_stat *ret) {
    ret->kind = unpack_u32(u);
    ret->mode = unpack_u32(u);
    ret->size = unpack_u64(u);
    ret->mtime_ms = (int64_t)unpack_u64(u);
}

void pack_sandbox_error(struct buf *b, const struct err *err) {
    pack_u32(b, (uint32_t)err->code);
    pack_u32(b, (uint32_t)err->sys);
    pack_str(b, err->message);
}

int unpack_sandbox_error(struct unpack *u, struct err *err) {
    uint32_t code = unpack_u32(u);
    uint32_t sys = unpack_u32(u);
    size_t len;
    const char *text = unpack_bytes(u, &len);
    if (!unpack_ok(u) || code == 0 || code >= ERR_CODE_COUNT)
        return err_set(err, ERR_PROTOCOL, "a peer sent a malformed error");
    (void)err_set(err, (enum err_code)code, "%.*s", (int)MIN(len, sizeof(err->message) - 1), text);
    if (err)
        err->sys = (int)(sys & 0xfff);
    return -(int)code;
}
