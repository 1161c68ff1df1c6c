#include "loop/init.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

struct loop_making {
    uv_loop_t *loop;
    int rc;
};

/* In a thread of its own, which a filter of its own ends with: no child inherits it. libuv has no
 * setting for this, but does without a ring where it cannot have one. */
static void loop_make(void *arg) {
    struct loop_making *m = arg;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        m->rc = UV_ENOSYS;
    else
        m->rc = uv_loop_init(m->loop);
}

int loop_init(uv_loop_t *loop) {
    struct loop_making m = {.loop = loop};
    uv_thread_t thread;
    int rc = uv_thread_create(&thread, loop_make, &m);
    if (rc < 0)
        return rc;
    (void)uv_thread_join(&thread);
    return m.rc;
}
