#include "front/sandbox/advice.h"

#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h> /* MIN */

void sandbox_advise_limits(const struct sandbox_features *f, struct feature *ret) {
    static const char *const versions[] = {"", "cgroups v1", "cgroups v2"};
    bool memory = f->controllers & SANDBOX_HAS_MEMORY;
    bool cpu = f->controllers & SANDBOX_HAS_CPU;
    if (memory) {
        ret->status = cpu ? FEATURE_OK : FEATURE_DEGRADED;
        (void)text_print(ret->detail, sizeof(ret->detail), "%s enforced by %s%s%s%s",
                         cpu ? "memory, processes and CPU are" : "memory and processes are",
                         versions[MIN(f->cgroup, 2U)], cpu ? "" : "; CPU is not limited",
                         *f->detail ? "; " : "", f->detail);
        return;
    }
    (void)text_print(ret->detail, sizeof(ret->detail), "%s%s", f->detail,
                     cpu ? "" : "; CPU is not limited");
    (void)snprintf(ret->advice, sizeof(ret->advice),
                   "a guest can pass its limit for a moment, or hide some: for guests that you do "
                   "not trust %s",
                   f->root ? "start cay by systemd, in a unit with Delegate=yes"
                           : "start as root, or let systemd run for your user (cgroups v2)");
}

void sandbox_advise_refusal(const struct err *err, struct feature *ret) {
    (void)text_print(ret->detail, sizeof(ret->detail), "%s", err->message);
    const char *advice =
        "see \"Running it\" in docs/sandboxes.md: what a machine must have for them";
    if (strstr(err->message, strerror(ENOSPC)))
        advice = "no user namespace is left: sysctl user.max_user_namespaces";
    else if (strstr(err->message, strerror(EPERM)) || strstr(err->message, strerror(EACCES)))
        advice = "start as root, or allow user namespaces: sysctl "
                 "kernel.unprivileged_userns_clone=1 (under AppArmor, "
                 "kernel.apparmor_restrict_unprivileged_userns=0)";
    (void)snprintf(ret->advice, sizeof(ret->advice), "%s", advice);
}
