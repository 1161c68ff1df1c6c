#pragma once
/* What .gitignore files say, read and matched by ourselves: nobody runs git in a folder that others
 * may have written. The rules of gitignore(5): the last rule that matches wins, "!" takes back, a
 * rule with a "/" before its end holds below its own folder only, "**" stands for any folders.
 * A caller that walks a tree adds a folder's rules when it enters it, drops them when it leaves,
 * and does not enter a folder that is ignored. */

#include <stdbool.h>
#include <stddef.h>

struct ignore_rule;

struct ignore {
    struct ignore_rule *rules;
    size_t n;
    size_t room;
    bool full; /* there were more rules than IGNORE_RULES_MAX, or a file had IGNORE_FILE_BYTES */
};

enum { IGNORE_RULES_MAX = 20000, IGNORE_FILE_BYTES = 1 << 20 };

void ignore_finish(struct ignore *g);
/* The text of a .gitignore in the folder `dir` ("" or "a/b"). */
void ignore_add(struct ignore *g, const char *dir, const char *text, size_t len);
/* The file `name` of the folder behind the descriptor; nothing if there is none. Links are not
 * followed. */
void ignore_read(struct ignore *g, int fd, const char *name, const char *dir);
/* Forgets all rules but the first n. */
void ignore_drop(struct ignore *g, size_t n);
bool ignore_matches(const struct ignore *g, const char *path, bool is_dir);
