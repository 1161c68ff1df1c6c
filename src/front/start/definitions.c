#include "front/start/definitions.h"

#include "base/cleanup.h"
#include "base/log.h"
#include "base/path.h"
#include "front/agent/agent.h"
#include "front/code/definition.h"
#include "front/config/config.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* The folder of that name that came with cay, or NULL; the caller frees. */
static char *shipped_dir(const char *name) {
    static const char *const places[] = {"..", "../share/cay"};
    _cleanup_(free) char *self = path_self_dir();
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        _cleanup_(free) char *place = path_join(self, places[i]);
        _cleanup_(free) char *dir = path_join(place, name);
        if (faccessat(AT_FDCWD, dir, F_OK, 0) == 0)
            return steal_ptr(&dir);
    }
    return NULL;
}

int definitions_load_agents(const struct config *config, struct agent_def **ret_defs,
                            struct err *err) {
    if (config->agents_dir)
        return agent_defs_load(config->agents_dir, ret_defs, err);
    _cleanup_(free) char *shipped = shipped_dir("agents");
    if (shipped)
        return agent_defs_load(shipped, ret_defs, err);
    log_warn("agents.none", "advice", "name a folder with --agents-dir");
    *ret_defs = NULL;
    return 0;
}

int definitions_load_coders(const struct config *config, const char *programs_dir,
                            struct coder_def **ret_defs, struct err *err) {
    _cleanup_(free) char *shipped = shipped_dir("coders");
    _cleanup_(free) char *own = path_join(programs_dir, "coders");
    return coder_defs_load(&(struct coder_places){.shipped = shipped,
                                                  .added = config->coders_dir,
                                                  .own = own,
                                                  .programs = config->coders,
                                                  .path = getenv("PATH")},
                           ret_defs, err);
}
