#include "base/log.h"
#include "sandbox/launcher.h"
#include "sandbox/starter.h"
#include "sandbox/wall.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

enum { CONTROL = 3 };

int main(int argc, char **argv) {
    bool starter = argc == 2 && strcmp(argv[1], "--starter") == 0;
    enum log_level level = LOG_LEVEL_INFO;
    const char *wanted = getenv("CAY_LOG");
    if (wanted)
        (void)log_level_parse(wanted, &level);
    walls_init();
    /* Sandboxes are copies of this process: what the environment held must not be in their memory
     * nor in /proc/PID/environ. */
    if (wall_on(WALL_ENV)) {
        for (char **p = environ; *p; p++)
            explicit_bzero(*p, strlen(*p));
        static char *none[] = {NULL};
        environ = none;
    }
    log_init("cay-sandbox", level);
    struct stat st;
    if (fstat(CONTROL, &st) < 0 || !S_ISSOCK(st.st_mode)) {
        log_error("sandbox.start", "error", "descriptor 3 is no socket: cay starts this program");
        return 2;
    }
    return launcher_run(starter ? starter_run(CONTROL) : CONTROL);
}
