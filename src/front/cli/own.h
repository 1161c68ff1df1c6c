#pragma once
/* The server of a command that may have one of its own: the one that is named (--url, CAY_URL), or
 * else one that is started for it, on a socket that only this user can reach, with data that goes
 * with it. That one reads no settings from the current folder: it may have been downloaded, or an
 * agent wrote it, and settings say where credentials are sent. */

#include "base/err.h"
#include "front/cli/client.h"

#include <sys/types.h>

struct own_server {
    /* What the user named, or NULL. The settings of a server that is started are by default
     * /etc/cay/cay.json, if there is one; the file .env beside them is read, too. */
    const char *url;
    const char *config;
    struct client client; /* to it, when it is open */
    pid_t pid;
    char *home;
};

/* Where it is; NULL: it has to be started. */
const char *own_server_url(const struct own_server *s);
/* `verb` is the command, for a note on stderr about files that are not read. */
int own_server_open(struct own_server *s, const char *verb, struct err *err);
/* Memory that is zeroed but for what the user named is allowed. */
void own_server_close(struct own_server *s);
