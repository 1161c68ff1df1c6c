#pragma once
/* What a coding job has done in its sandbox around the agent, as commands of that: the repository
 * is fetched by git, what is there before the agent begins is told by a program of ours, and so is
 * what changed. What was there before is kept by the server, where no agent can change it. All of
 * it runs as the guest: no file, setting or credential of this machine has a part in it. */

#include "base/err.h"
#include "front/sandbox/exec.h"

#include <stdbool.h>
#include <stdint.h>

#define CODE_DIR "/work"

/* Where that program is bound, besides the agent's. */
#define CODE_TOOL "/opt/cay-changes/cay-coder"

enum { CODE_DIFF_BYTES = 4 << 20 };

struct code_tree {
    const char *repo;  /* its address, for people */
    const char *route; /* by which it is fetched */
    const char *ref;   /* NULL: the one that the repository names */
};

/* Each fills a request for exec_start(), which the caller finishes. */
void code_tree_clone(const struct code_tree *t, int64_t timeout_s, struct exec_request *ret);
/* Why a clone failed, by the end of what git said, or by CODE_TREE_OOM where it was killed before
 * it could say so. */
#define CODE_TREE_OOM "out of memory"
int code_tree_failure(const char *repo, const char *said, struct err *err);
/* Both tell records (wire/changes.h). The first is not needed where nothing is there. */
void code_tree_remember(struct exec_request *ret);
struct code_changes {
    bool is_new;   /* there was nothing: the other list is not read from the input */
    bool ignore;   /* what .gitignore names is left out, if it is new */
    bool contents; /* the changed files are wanted, not only the diff */
};
void code_tree_changes(const struct code_changes *what, struct exec_request *ret);
/* A name of a branch, a tag or a commit, and nothing that git takes for more. */
bool code_tree_is_ref(const char *ref);
