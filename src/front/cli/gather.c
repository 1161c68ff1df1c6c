#include "front/cli/gather.h"

#include "base/base64.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/ignore.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/utf8.h"
#include "front/cli/terminal.h"
#include "front/common/digest.h"
#include "wire/changes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 100, NAMED_MAX = 20, ABOVE_MAX = 40 };

static const struct {
    const char *key;
    const char *text;
} whys[GATHER_WHYS] = {
    [GATHER_IGNORED] = {"ignored", "ignored by .gitignore (--include-ignored copies them)"},
    [GATHER_SECRET] = {"secrets", "looks like a secret (--include-secrets copies them)"},
    [GATHER_LINK] = {"links", "a link"},
    [GATHER_SPECIAL] = {"special", "a pipe, socket or device"},
    [GATHER_NAME] = {"names", "its name is not UTF-8"},
    [GATHER_UNREADABLE] = {"unreadable", "cannot be read"},
    [GATHER_REPOSITORY] = {"repositories",
                           "a nested git repository, or a name that git may take for .git"},
};

void gather_init(struct gather *g) {
    *g = (struct gather){.files = json_array(), .sent = json_object()};
    for (int i = 0; i < GATHER_WHYS; i++)
        g->left_names[i] = json_array();
}

void gather_finish(struct gather *g) {
    json_decref(g->files);
    json_decref(g->sent);
    for (int i = 0; i < GATHER_WHYS; i++)
        json_decref(g->left_names[i]);
}

void gather_hash(const void *data, size_t len, char ret[GATHER_HASH_SIZE]) {
    unsigned char hash[DIGEST_SIZE];
    digest_sha256(data, len, hash);
    for (size_t i = 0; i < DIGEST_SIZE; i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", hash[i]);
}

static void gather_leave(struct gather *g, enum gather_why why, const char *path) {
    g->left[why]++;
    if (json_array_size(g->left_names[why]) < NAMED_MAX)
        (void)json_array_append_new(g->left_names[why], json_text(path));
}

json_t *gather_left(const struct gather *g) {
    json_t *o = json_object();
    for (int i = 0; i < GATHER_WHYS; i++)
        if (g->left[i] > 0)
            (void)json_object_set_new(
                o, whys[i].key,
                json_pack("{s:I,s:O}", "count", (json_int_t)g->left[i], "paths", g->left_names[i]));
    return o;
}

void gather_show(const struct gather *g, FILE *out) {
    for (int i = 0; i < GATHER_WHYS; i++) {
        size_t k;
        const json_t *name;
        if (g->left[i] == 0)
            continue;
        (void)fprintf(out, "not copied, %s: ", whys[i].text);
        json_array_foreach(g->left_names[i], k, name) {
            (void)fputs(k ? ", " : "", out);
            terminal_print(out, json_string_value(name), json_string_length(name));
        }
        size_t more = g->left[i] - json_array_size(g->left_names[i]);
        if (more > 0)
            (void)fprintf(out, " and %zu more", more);
        (void)fputc('\n', out);
    }
}

/* --- secrets --- */

static bool matches_one(const char *const *patterns, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++)
        if (fnmatch(patterns[i], name, FNM_CASEFOLD) == 0)
            return true;
    return false;
}

static bool is_secret_name(const char *name, bool is_dir) {
    static const char *const dirs[] = {".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker"};
    static const char *const files[] = {".env*",
                                        "..env*",
                                        "*.env",
                                        "*.pem",
                                        "*.key",
                                        "*.p12",
                                        "*.pfx",
                                        "*.jks",
                                        "*.keystore",
                                        "*.kdbx",
                                        "id_rsa*",
                                        "id_dsa*",
                                        "id_ecdsa*",
                                        "id_ed25519*",
                                        "id_xmss*",
                                        ".netrc",
                                        "_netrc",
                                        ".npmrc",
                                        ".pypirc",
                                        ".pgpass",
                                        ".my.cnf",
                                        ".git-credentials",
                                        ".htpasswd",
                                        "credentials",
                                        "credentials.json",
                                        "credentials.toml",
                                        "*.ppk",
                                        "*.tfvars",
                                        "*.tfstate",
                                        "*.tfstate.*",
                                        "kubeconfig",
                                        "*.kubeconfig",
                                        ".dockercfg",
                                        ".s3cfg",
                                        "secrets.yml",
                                        "secrets.yaml",
                                        "secrets.json",
                                        ".vault-token",
                                        "service-account*.json"};
    static const char *const harmless[] = {"*.pub", "*.example", "*.sample", "*.template",
                                           "*.dist"};
    if (is_dir)
        return matches_one(dirs, ARRAY_LEN(dirs), name);
    return matches_one(files, ARRAY_LEN(files), name) &&
           !matches_one(harmless, ARRAY_LEN(harmless), name);
}

/* Somebody closed it to others, where this user's files are open to them. */
static bool is_private(const struct stat *st) {
    mode_t mask = umask(0);
    (void)umask(mask);
    return (st->st_mode & 077) == 0 && (0666 & ~mask & 077) != 0;
}

static bool has_private_key(const char *data, size_t len) {
    static const char sign[] = "PRIVATE KEY-----";
    return memmem(data, MIN(len, (size_t)8192), sign, strlen(sign)) != NULL;
}

/* --- the walk --- */

struct gather_walk {
    struct gather *g;
    struct ignore ignore;
    char *prefix; /* of a path, as the rules above the folder know it: "" or "a/b/" */
};

static int add_file(struct gather *g, const char *path, mode_t mode, const char *data, size_t n,
                    struct err *err) {
    char hash[GATHER_HASH_SIZE];
    g->bytes += n;
    if (g->bytes > GATHER_BYTES || json_array_size(g->files) >= GATHER_FILES)
        return err_set(err, ERR_TOO_LARGE,
                       "the folder has more than %d MiB or %d files: name a smaller one, put what "
                       "the agent does not need into .gitignore, or make a sandbox with `cay "
                       "sandbox cp`",
                       GATHER_BYTES >> 20, GATHER_FILES);
    json_t *f = json_pack("{s:s,s:i}", "path", path, "mode", mode & 0100 ? 0755 : 0644);
    if (utf8_is_valid(data, n) && !memchr(data, 0, n)) {
        (void)json_object_set_new(f, "content", json_stringn(data, n));
    } else {
        _cleanup_(free) char *text = xcalloc(1, BASE64_SIZE(n) + 1);
        base64_encode(text, data, n);
        (void)json_object_set_new(f, "content_base64", json_string(text));
    }
    (void)json_array_append_new(g->files, f);
    gather_hash(data, n, hash);
    (void)json_object_set_new(g->sent, path, json_string(hash));
    return 0;
}

static int gather_file(struct gather *g, int dir, const char *name, const char *path,
                       struct err *err) {
    struct stat st;
    _cleanup_(close) int fd =
        openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        gather_leave(g, GATHER_UNREADABLE, path);
        return 0;
    }
    if (!g->secrets && is_private(&st)) {
        gather_leave(g, GATHER_SECRET, path);
        return 0;
    }
    if (st.st_size > GATHER_BYTES)
        return err_set(
            err, ERR_TOO_LARGE,
            "%.300s has more than %d MiB: put it into .gitignore, or make a sandbox with "
            "`cay sandbox cp`",
            path, GATHER_BYTES >> 20);
    _cleanup_(free) char *data = xmalloc((size_t)st.st_size + 1);
    ssize_t n = fd_read_all(fd, data, (size_t)st.st_size);
    if (n < 0) {
        gather_leave(g, GATHER_UNREADABLE, path);
        return 0;
    }
    if (!g->secrets && has_private_key(data, (size_t)n)) {
        gather_leave(g, GATHER_SECRET, path);
        return 0;
    }
    return add_file(g, path, st.st_mode, data, (size_t)n, err);
}

static int walk_folder(struct gather_walk *w, int dir, const char *path, int depth,
                       struct err *err);

static int gather_walk_entry(struct gather_walk *w, int dir, const char *name, const char *path,
                             int depth, struct err *err) {
    struct gather *g = w->g;
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        gather_leave(g, GATHER_UNREADABLE, path);
        return 0;
    }
    if (changes_is_git(name, strlen(name))) {
        if (depth > 0 || strcmp(name, ".git") != 0)
            gather_leave(g, GATHER_REPOSITORY, path);
        return 0;
    }
    _cleanup_(free) char *known = xasprintf("%s%s", w->prefix, path);
    enum gather_why why = GATHER_WHYS;
    if (!g->ignored && ignore_matches(&w->ignore, known, S_ISDIR(st.st_mode)))
        why = GATHER_IGNORED;
    else if (!g->secrets && is_secret_name(name, S_ISDIR(st.st_mode)))
        why = GATHER_SECRET;
    else if (!utf8_is_valid(name, strlen(name)))
        why = GATHER_NAME;
    else if (S_ISLNK(st.st_mode))
        why = GATHER_LINK;
    else if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
        why = GATHER_SPECIAL;
    if (why < GATHER_WHYS) {
        gather_leave(g, why, path);
        return 0;
    }
    if (S_ISREG(st.st_mode))
        return gather_file(g, dir, name, path, err);
    int sub = depth >= DEPTH_MAX
                  ? -1
                  : openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (sub < 0) {
        gather_leave(g, GATHER_UNREADABLE, path);
        return 0;
    }
    return walk_folder(w, sub, path, depth + 1, err);
}

/* Takes the descriptor. */
// NOLINTNEXTLINE(misc-no-recursion): bounded by DEPTH_MAX
static int walk_folder(struct gather_walk *w, int dir, const char *path, int depth,
                       struct err *err) {
    DIR *d = fdopendir(dir);
    const struct dirent *e;
    size_t rules = w->ignore.n;
    int rc = 0;
    if (!d) {
        close(dir);
        return err_sys(err, "read the folder");
    }
    _cleanup_(free) char *known = xasprintf("%s%s", w->prefix, path);
    size_t n = strlen(known);
    if (n > 0 && known[n - 1] == '/')
        known[n - 1] = 0;
    ignore_read(&w->ignore, dirfd(d), ".gitignore", known);
    while (rc == 0 && (e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        _cleanup_(free) char *below = xasprintf("%s%s%s", path, *path ? "/" : "", e->d_name);
        rc = gather_walk_entry(w, dirfd(d), e->d_name, below, depth, err);
    }
    ignore_drop(&w->ignore, rules);
    (void)closedir(d);
    return rc;
}

/* Rules of the repository that the folder lies in: those of the folders above it, up to the one
 * that has .git. Sets the walk's prefix. */
static void read_above(struct gather_walk *w, const char *path) {
    _cleanup_(free) char *real = realpath(path, NULL);
    _cleanup_(free) char *top = real ? xstrdup(real) : NULL;
    w->prefix = xstrdup("");
    for (int i = 0; top && i < ABOVE_MAX; i++) {
        _cleanup_(free) char *git = path_join(top, ".git");
        struct stat st;
        if (lstat(git, &st) == 0)
            break;
        char *slash = strrchr(top, '/');
        if (!slash || slash == top)
            return; /* there is none */
        *slash = 0;
    }
    if (!top)
        return;
    _cleanup_(close) int at = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return;
    ignore_read(&w->ignore, at, ".git/info/exclude", "");
    size_t n = strlen(top);
    const char *rest = real + n + (real[n] == '/');
    if (!*rest)
        return;
    free(w->prefix);
    w->prefix = xasprintf("%s/", rest);
    /* "", then "a", then "a/b": all but the last, which is the folder itself. */
    for (size_t k = 0;;) {
        _cleanup_(free) char *dir = xstrndup(rest, k);
        _cleanup_(free) char *file = xasprintf("%s%s.gitignore", dir, *dir ? "/" : "");
        ignore_read(&w->ignore, at, file, dir);
        size_t next = k + (k > 0);
        next += strcspn(rest + next, "/");
        if (!rest[next])
            return;
        k = next;
    }
}

int gather_folder(struct gather *g, const char *path, struct err *err) {
    struct gather_walk w = {.g = g};
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(err, "open %s", path);
    if (g->ignored)
        w.prefix = xstrdup("");
    else
        read_above(&w, path);
    int rc = walk_folder(&w, dir, "", 0, err);
    if (rc == 0 && w.ignore.full)
        rc = err_set(err, ERR_TOO_LARGE,
                     "the .gitignore files have more than %d rules, or one of them has %d bytes: "
                     "what they name would be copied; shorten them, or say --include-ignored",
                     IGNORE_RULES_MAX, IGNORE_FILE_BYTES);
    ignore_finish(&w.ignore);
    free(w.prefix);
    return rc;
}
