#pragma once
/* What a coding job does with git in its sandbox, as commands of that: the repository is fetched,
 * what is there before the agent begins is remembered, and what it changed is told as a diff. All
 * of it is the guest's: no file, setting or credential of this machine has a part in it. */

#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

#define CODE_DIR "/work"

enum { CODE_DIFF_BYTES = 4 << 20, CODE_KEPT_BYTES = 32 << 20 };

struct code_tree {
    const char *repo;  /* its address, for people; NULL: there is none */
    const char *route; /* by which it is fetched */
    const char *ref;   /* NULL: the one that the repository names */
};

/* Each is a body of exec_start(). */
json_t *code_tree_clone(const struct code_tree *t, int64_t timeout_s);
/* Why a clone failed, by the end of what git said, or by CODE_TREE_OOM where it was killed before
 * it could say so. */
#define CODE_TREE_OOM "out of memory"
int code_tree_failure(const char *repo, const char *said, struct err *err);
/* Not needed where nothing is there. */
json_t *code_tree_remember(void);
json_t *code_tree_diff(void);
/* A name of a branch, a tag or a commit, and nothing that git takes for more. */
bool code_tree_is_ref(const char *ref);
