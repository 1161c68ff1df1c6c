#include "front/code/tree.h"

#include "base/cleanup.h"
#include "base/mem.h"
#include "wire/sandbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REF_BYTES = 250, CHANGES_S = 120, SAID_BYTES = 300 };

/* Nothing but what stands here: no settings of the machine or of the guest's home, no hooks, no
 * helpers, no filters. */
#define GIT                                                                                        \
    "command -v git >/dev/null || { echo 'there is no git in this sandbox' >&2; exit 69; }\n"      \
    "export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 "              \
    "GIT_ASKPASS=/bin/false LC_ALL=C\n"                                                            \
    "g() { git -c core.hooksPath=/dev/null -c core.autocrlf=false -c core.fsmonitor=false "        \
    "-c core.attributesFile=/dev/null -c core.excludesFile=/dev/null -c gc.auto=0 "                \
    "-c maintenance.auto=false -c user.name=cay -c user.email=cay@localhost \"$@\"; }\n"

/* Files are what the repository holds, byte by byte: what its attributes ask for (other ends of
 * lines, other encodings, filters) would make a diff that does not apply elsewhere. */
#define RAW_FILES                                                                                  \
    "mkdir -p \"$GIT_DIR/info\" && "                                                               \
    "echo '* -text -filter -ident -working-tree-encoding !diff' >\"$GIT_DIR/info/attributes\"\n"

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
void code_tree_clone(const struct code_tree *t, int64_t timeout_s, struct exec_request *ret) {
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
            "g rev-parse HEAD\n";
    *ret = (struct exec_request){.command = script, .cwd = CODE_DIR, .timeout_s = timeout_s};
    exec_request_add_env(ret, "REPO", t->repo);
    exec_request_add_env(ret, "REF", t->ref ? t->ref : "HEAD");
    _cleanup_(free) char *from =
        xasprintf("http://127.0.0.1:%d/_/%s", SANDBOX_EGRESS_PORT, t->route);
    exec_request_add_env(ret, "FROM", from);
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

static void code_tree_call_tool(const char *what, struct exec_request *ret) {
    *ret = (struct exec_request){.timeout_s = CHANGES_S};
    sandbox_strv_add(&ret->argv, CODE_TOOL);
    sandbox_strv_add(&ret->argv, what);
    sandbox_strv_add(&ret->argv, CODE_DIR);
}

void code_tree_remember(struct exec_request *ret) {
    code_tree_call_tool("remember", ret);
}

void code_tree_changes(const struct code_changes *what, struct exec_request *ret) {
    code_tree_call_tool("changes", ret);
    ret->in.open = !what->is_new;
    if (what->is_new)
        sandbox_strv_add(&ret->argv, "--new");
    if (what->ignore)
        sandbox_strv_add(&ret->argv, "--ignore");
    if (what->contents)
        sandbox_strv_add(&ret->argv, "--contents");
}
