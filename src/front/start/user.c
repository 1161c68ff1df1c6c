#include "front/start/user.h"

#include <grp.h>
#include <pwd.h>
#include <stddef.h>
#include <unistd.h>

/* Out of the range that systemd keeps for dynamic users. */
enum { FALLBACK_UID = 64737 };

void server_user_find(struct server_user *u, const char *name) {
    *u = (struct server_user){.uid = geteuid(), .gid = getegid(), .change = geteuid() == 0};
    if (!u->change)
        return;
    const struct passwd *pw = getpwnam(name ? name : "cay");
    u->uid = pw ? pw->pw_uid : FALLBACK_UID;
    u->gid = pw ? pw->pw_gid : FALLBACK_UID;
}

int server_user_become(const struct server_user *u, struct err *err) {
    if (u->change && (setgroups(0, NULL) < 0 || setresgid(u->gid, u->gid, u->gid) < 0 ||
                      setresuid(u->uid, u->uid, u->uid) < 0))
        return err_sys(err, "change to user %u", (unsigned)u->uid);
    return 0;
}
