#include "lock/filter.h"

#include "base/cleanup.h"
#include "base/mem.h"

#include <errno.h>
#include <seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct filter {
    scmp_filter_ctx rules;
    int rc; /* -errno of the first that failed */
};

struct filter *filter_create(enum filter_verdict otherwise) {
    static const uint32_t actions[] = {[FILTER_ALLOW] = SCMP_ACT_ALLOW,
                                       [FILTER_KILL] = SCMP_ACT_KILL_PROCESS,
                                       [FILTER_EPERM] = SCMP_ACT_ERRNO(EPERM)};
    struct filter *f = xcalloc(1, sizeof(*f));
    f->rules = seccomp_init(actions[otherwise]);
    f->rc = f->rules ? seccomp_attr_set(f->rules, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS)
                     : -ENOMEM;
    /* A tree instead of a chain, where this libseccomp can. */
    if (f->rc == 0)
        (void)seccomp_attr_set(f->rules, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    return f;
}

static void filter_add(struct filter *f, uint32_t action, int call, const struct scmp_arg_cmp *args,
                       unsigned n) {
    if (f->rc == 0)
        f->rc = seccomp_rule_add_array(f->rules, action, call, n, args);
}

void filter_allow(struct filter *f, const int *calls, size_t n) {
    for (size_t i = 0; i < n; i++)
        filter_add(f, SCMP_ACT_ALLOW, calls[i], NULL, 0);
}

void filter_allow_if(struct filter *f, int call, const struct scmp_arg_cmp *args, unsigned n) {
    filter_add(f, SCMP_ACT_ALLOW, call, args, n);
}

void filter_allow_memory(struct filter *f) {
    const int maps[] = {SCMP_SYS(mmap), SCMP_SYS(mprotect)};
    for (size_t i = 0; i < ARRAY_LEN(maps); i++)
        filter_allow_if(f, maps[i], FILTER_ARGS(SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0)));
}

void filter_refuse(struct filter *f, int call, int error, const struct scmp_arg_cmp *args,
                   unsigned n) {
    filter_add(f, SCMP_ACT_ERRNO((uint16_t)error), call, args, n);
}

static int filter_end(struct filter *f, int rc, struct err *err) {
    if (f->rules)
        seccomp_release(f->rules);
    free(f);
    return rc == 0 ? 0 : err_set(err, ERR_INTERNAL, "system-call filter: %s", strerror(-rc));
}

int filter_load(struct filter *f, bool threads, struct err *err) {
    int rc = f->rc;
    if (rc == 0 && threads)
        rc = seccomp_attr_set(f->rules, SCMP_FLTATR_CTL_TSYNC, 1);
    if (rc == 0)
        rc = seccomp_load(f->rules);
    return filter_end(f, rc, err);
}

static int filter_read_program(int fd, struct sock_fprog *ret) {
    off_t size = lseek(fd, 0, SEEK_END);
    if (size <= 0)
        return -EIO;
    struct sock_filter *code = xmalloc((size_t)size);
    if (pread(fd, code, (size_t)size, 0) != size) {
        free(code);
        return -EIO;
    }
    *ret =
        (struct sock_fprog){.len = (unsigned short)((size_t)size / sizeof(*code)), .filter = code};
    return 0;
}

int filter_export(struct filter *f, struct sock_fprog *ret, struct err *err) {
    int rc = f->rc;
    _cleanup_(close) int fd = rc == 0 ? memfd_create("filter", MFD_CLOEXEC) : -1;
    if (rc == 0 && fd < 0)
        rc = -errno;
    if (rc == 0)
        rc = seccomp_export_bpf(f->rules, fd);
    if (rc == 0)
        rc = filter_read_program(fd, ret);
    return filter_end(f, rc, err);
}
