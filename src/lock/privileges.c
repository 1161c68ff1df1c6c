#include "lock/privileges.h"

#include "lock/raw.h"

#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>

int privileges_set_caps(uint64_t keep) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {
        {.effective = (uint32_t)keep, .permitted = (uint32_t)keep},
        {.effective = (uint32_t)(keep >> 32), .permitted = (uint32_t)(keep >> 32)}};
    return (int)raw(SYS_capset, (long)&head, (long)data, 0, 0);
}

int privileges_empty_bounding(struct err *err) {
    for (int cap = 0; cap <= 63; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
            if (errno == EINVAL && cap > CAP_AUDIT_READ)
                break; /* past the last one this kernel knows */
            return err_sys(err, "drop capability %d from the bounding set", cap);
        }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return err_sys(err, "clear ambient capabilities");
    return 0;
}

int privileges_leave(struct err *err) {
    const struct rlimit none = {0, 0};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, "prctl");
    (void)privileges_empty_bounding(NULL);
    int rc = privileges_set_caps(0);
    if (rc < 0) {
        errno = -rc;
        return err_sys(err, "capset");
    }
    return setrlimit(RLIMIT_CORE, &none) < 0 ? err_sys(err, "setrlimit") : 0;
}
