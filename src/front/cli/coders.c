#include "base/cleanup.h"
#include "base/path.h"
#include "front/cli/cli.h"
#include "front/code/definition.h"
#include "front/config/config.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int cli_load_coders(const struct config *config, const char *sibling_dir,
                    struct coder_def **ret_defs, struct err *err) {
    static const char *const places[] = {"../coders", "../share/cay/coders"};
    _cleanup_(free) char *self = path_self_dir();
    _cleanup_(free) char *own = path_join(sibling_dir, "coders");
    char *shipped = NULL;
    for (size_t i = 0; !shipped && i < ARRAY_LEN(places); i++) {
        _cleanup_(free) char *dir = path_join(self, places[i]);
        if (faccessat(AT_FDCWD, dir, F_OK, 0) == 0)
            shipped = steal_ptr(&dir);
    }
    int rc = coder_defs_load(&(struct coder_places){.shipped = shipped,
                                                    .added = config->coders_dir,
                                                    .own = own,
                                                    .programs = config->coders,
                                                    .path = getenv("PATH")},
                             ret_defs, err);
    free(shipped);
    return rc;
}
