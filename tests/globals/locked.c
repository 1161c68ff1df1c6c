/* Runs scripts in a forked child under the isolate's system-call filter: locked <bundle.js>
 * <script>... The globals are touched for the first time behind the filter, which is the worst
 * case. A call that is not allowed kills the child, and the test fails. */

#include "engine.h"

#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const int allowed[] = {
    SCMP_SYS(read),           SCMP_SYS(write),     SCMP_SYS(futex),        SCMP_SYS(munmap),
    SCMP_SYS(madvise),        SCMP_SYS(pread64),   SCMP_SYS(brk),          SCMP_SYS(mremap),
    SCMP_SYS(clock_gettime),  SCMP_SYS(getrusage), SCMP_SYS(rt_sigreturn), SCMP_SYS(sched_yield),
    SCMP_SYS(poll),           SCMP_SYS(getrandom), SCMP_SYS(exit_group),   SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(timerfd_settime)};

static void lock_down(void) {
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_KILL_PROCESS);
    int rc = f ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < sizeof allowed / sizeof *allowed; i++)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, allowed[i], 0);
    if (rc == 0)
        rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(EINVAL), SCMP_SYS(prctl), 1,
                              SCMP_A0(SCMP_CMP_EQ, PR_SET_VMA));
    const int mapping[] = {SCMP_SYS(mmap), SCMP_SYS(mprotect)};
    for (size_t i = 0; rc == 0 && i < 2; i++)
        rc = seccomp_rule_add(f, SCMP_ACT_ALLOW, mapping[i], 1,
                              SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (rc == 0)
        rc = seccomp_load(f);
    if (rc != 0) {
        fprintf(stderr, "cannot load the filter\n");
        _exit(2);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: locked <bundle.js> <script.js>...\n");
        return 2;
    }
    engine_prepare();
    struct engine e = {0};
    engine_create(&e);
    engine_load(&e, argv[1]);
    char *text[16] = {NULL};
    for (int i = 2; i < argc && i < 16; i++)
        text[i] = engine_read(argv[i]);
    /* The first line is buffered by stdio, which asks fstat: not allowed later. */
    printf("locked\n");
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        lock_down();
        bool ok = true;
        for (int i = 2; ok && i < argc && i < 16; i++)
            ok = engine_eval(&e, text[i], argv[i]) != NULL;
        ok = ok && engine_pump(&e, 60000);
        JSValueRef failed = engine_eval(&e, "globalThis.testsFailed === true", "end");
        ok = ok && failed && !JSValueToBoolean(e.ctx, failed);
        fflush(stdout);
        _exit(ok ? 0 : 1);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return 2;
    if (WIFSIGNALED(status))
        fprintf(stderr, "the child was killed by signal %d\n", WTERMSIG(status));
    return status == 0 ? 0 : 1;
}
