#include "front/code/tree.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "wire/sandbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REF_BYTES = 250, GIT_S = 30, SAID_BYTES = 300 };

/* The memory of what was there lies outside the work folder. */
#define HOME_OF_BASE "/home/cay/.cay"
#define BASE         HOME_OF_BASE "/base"

/* Nothing but what stands here: no settings of the machine or of the guest's home, no hooks, no
 * helpers, no filters. Comparing a file line by line takes some twenty times its length: long ones
 * are compared as bytes. */
#define GIT                                                                                        \
    "command -v git >/dev/null || { echo 'there is no git in this sandbox' >&2; exit 69; }\n"      \
    "export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 "              \
    "GIT_ASKPASS=/bin/false LC_ALL=C\n"                                                            \
    "g() { git -c core.hooksPath=/dev/null -c core.autocrlf=false -c core.fsmonitor=false "        \
    "-c core.attributesFile=/dev/null -c core.excludesFile=/dev/null -c gc.auto=0 "                \
    "-c maintenance.auto=false -c core.bigFileThreshold=4m -c core.compression=1 -c "              \
    "advice.addEmbeddedRepo=false -c "                                                             \
    "user.name=cay "                                                                               \
    "-c user.email=cay@localhost \"$@\"; }\n"

/* Files are what the repository holds, byte by byte: what its attributes ask for (other ends of
 * lines, other encodings, filters) would make a diff that does not apply elsewhere. */
#define RAW_FILES                                                                                  \
    "mkdir -p \"$GIT_DIR/info\" && "                                                               \
    "echo '* -text -filter -ident -working-tree-encoding !diff' >\"$GIT_DIR/info/attributes\"\n"

/* What was there, as a tree. Nobody asked for it where the folder was empty: git knows the name of
 * the empty tree. */
#define TREE  BASE "/cay-tree"
#define EMPTY "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

#define OPEN                                                                                       \
    "export GIT_DIR=" BASE " GIT_WORK_TREE=" CODE_DIR "\n"                                         \
    "mkdir -p " HOME_OF_BASE "; [ -d " BASE " ] || g init -q --template= || exit\n" RAW_FILES

/* Of a repository what it ignores is left out. */
#define ADD "force=-f; [ -e " BASE "/is-repo ] && force=; g add -A $force . || exit\n"

static json_t *command(const char *script, const struct code_tree *t, int64_t timeout_s) {
    json_t *env = json_object();
    if (t->repo) {
        (void)json_object_set_new(env, "REPO", json_string(t->repo));
        (void)json_object_set_new(env, "REF", json_string(t->ref ? t->ref : "HEAD"));
        (void)json_object_set_new(
            env, "FROM", json_sprintf("http://127.0.0.1:%d/_/%s", SANDBOX_EGRESS_PORT, t->route));
    }
    return json_pack("{s:s,s:s,s:o,s:I}", "command", script, "cwd", CODE_DIR, "env", env,
                     "timeout_s", (json_int_t)timeout_s);
}

bool code_tree_is_ref(const char *ref) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-+#@";
    size_t n = strlen(ref);
    return n > 0 && n <= REF_BYTES && strspn(ref, letters) == n && ref[0] != '-' && ref[0] != '/' &&
           ref[0] != '+' && ref[n - 1] != '/' && !strstr(ref, "..") && !strstr(ref, "@{") &&
           !strstr(ref, "//");
}

/* A fetch of one tip. Submodules are left alone, and redirects are not followed: the route leads to
 * this repository and nowhere else. The last line is the commit. */
json_t *code_tree_clone(const struct code_tree *t, int64_t timeout_s) {
    static const char script[] =
        GIT "export GIT_DIR=" CODE_DIR "/.git GIT_WORK_TREE=" CODE_DIR "\n"
            "g -c init.defaultBranch=main init -q --template= || exit\n" RAW_FILES
            "g -c protocol.allow=never -c protocol.http.allow=always -c http.followRedirects=false "
            "-c credential.helper= -c http.proxy= -c fetch.recurseSubmodules=false "
            "-c transfer.bundleURI=false fetch -q --no-tags --no-recurse-submodules --depth=1 "
            "\"$FROM\" \"$REF\" || exit\n"
            "g config remote.origin.url \"$REPO\"\n"
            "g -c submodule.recurse=false checkout -q -B main FETCH_HEAD -- || exit\n"
            "rm -f .git/FETCH_HEAD\n"
            "mkdir -p " HOME_OF_BASE " && cp -r .git " BASE " && : >" BASE
            "/is-repo && g rev-parse HEAD^{tree} >" TREE " || exit\n"
            "g rev-parse HEAD\n";
    return command(script, t, timeout_s);
}

int code_tree_failure(const char *repo, const char *said, struct err *err) {
    static const char does_not_fit[] =
        "the repository does not fit into the sandbox (setting sandboxes.disk_mb)";
    static const char too_much_memory[] =
        "it needs more memory than the sandbox has (setting sandboxes.memory_mb)";
    static const struct {
        const char *sign;
        enum err_code code;
        const char *text;
    } causes[] = {
        {"could not read Username", ERR_FORBIDDEN,
         "the repository asks for credentials, or is not there: \"credential\" names a configured "
         "route that has them"},
        {"Authentication failed", ERR_FORBIDDEN, "the repository does not take the credential"},
        {"The requested URL returned error: 403", ERR_FORBIDDEN,
         "it is not open to us, or at an address that sandboxes may not reach (setting "
         "sandboxes.private)"},
        {"The requested URL returned error: 502", ERR_UPSTREAM, "its server cannot be reached"},
        {"not found", ERR_NOT_FOUND, "there is no such repository"},
        {"couldn't find remote ref HEAD", ERR_NOT_FOUND, "it is empty, or no repository"},
        {"couldn't find remote ref", ERR_NOT_FOUND, "the repository has no such \"ref\""},
        {"No space left", ERR_LIMIT, does_not_fit},
        {"File size limit exceeded", ERR_LIMIT, does_not_fit},
        {CODE_TREE_OOM, ERR_LIMIT, too_much_memory},
        {"Killed", ERR_LIMIT, too_much_memory},
        {"died of signal 9", ERR_LIMIT, too_much_memory},
        {"unable to update url base from redirection", ERR_BAD_REQUEST,
         "the repository is at another address"},
        {"The requested URL returned error: 301", ERR_BAD_REQUEST,
         "the repository is at another address"},
        {"The requested URL returned error: 302", ERR_BAD_REQUEST,
         "the repository is at another address"},
    };
    for (size_t i = 0; i < ARRAY_LEN(causes); i++) {
        if (!strstr(said, causes[i].sign))
            continue;
        return err_set(err, causes[i].code, "%s: %s", repo, causes[i].text);
    }
    size_t n = strlen(said);
    const char *tail = n > SAID_BYTES ? said + n - SAID_BYTES : said;
    while (*tail && ((unsigned char)*tail & 0xc0) == 0x80)
        tail++;
    return err_set(err, ERR_UPSTREAM, "%s cannot be cloned: %s", repo, tail);
}

json_t *code_tree_remember(void) {
    static const char script[] =
        GIT OPEN "echo none >" TREE "\n" ADD "t=$(g write-tree) && echo \"$t\" >" TREE "\n";
    return command(script, &(struct code_tree){0}, GIT_S);
}

/* Renames, new and deleted files, modes and binary ones: what `git apply` takes. One byte more
 * than is kept says that there is more. */
json_t *code_tree_diff(void) {
    static const char script[] =
        GIT OPEN "t=$(cat " TREE " 2>/dev/null) || t=" EMPTY "\n"
                 "[ \"$t\" != none ] && g cat-file -e \"$t\" || exit\n" ADD
                 "g diff --cached --binary --no-color --no-ext-diff --no-textconv "
                 "--src-prefix=a/ --dst-prefix=b/ -M \"$t\" | head -c $MOST\n";
    json_t *body = command(script, &(struct code_tree){0}, GIT_S);
    (void)json_object_set_new(json_object_get(body, "env"), "MOST",
                              json_sprintf("%d", CODE_KEPT_BYTES + 1));
    return body;
}
