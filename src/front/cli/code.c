#include "base/base64.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/sse.h"
#include "base/utf8.h"
#include "front/cli/cli.h"
#include "front/cli/client.h"
#include "front/cli/own.h"
#include "front/cli/steps.h"
#include "front/cli/terminal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* An agent that writes code in a sandbox, on a copy of a folder. With no server named it starts one
 * for itself, on a socket that only this user can reach, and ends it afterwards. */

static const char usage[] =
    "usage: cay code [OPTIONS] SPEC\n\n"
    "Has an agent do what SPEC says, in a sandbox that is made for it: it sees a copy of a "
    "folder,\n"
    "the programs of this machine and its model, and nothing else. Every step is shown as it\n"
    "happens; at the end what it changed is shown as a diff. SPEC \"-\" is read from the input.\n\n"
    "  -d, --dir DIR        work on a copy of this folder (default: an empty one)\n"
    "  -m, --model MODEL    which model (default: the server's)\n"
    "      --agent AGENT    which agent (default: coder; `cay doctor` lists them)\n"
    "      --repo URL       work on this repository, cloned inside the sandbox, instead of a "
    "folder\n"
    "      --ref REF        its branch, tag or commit (default: the one that it names)\n"
    "      --credential R   the configured route that has the repository's credential\n"
    "      --sandbox ID     go on in this one, which an earlier run has kept\n"
    "      --max-steps N    how many steps it may take (default 5)\n"
    "      --timeout TIME   how long it may take: 90s, 5m (default 5m)\n"
    "      --apply          write the changes back to DIR, unless what they touch has changed "
    "there\n"
    "      --keep           leave the sandbox running (needs a server)\n"
    "  -o, --output json    print one JSON object when it has ended, instead of the steps\n"
    "      --url URL        use this server (default: CAY_URL, else one is started for it)\n\n"
    "With no ANTHROPIC_API_KEY or OPENAI_API_KEY a demo answers, a script that knows a few specs:\n"
    "  cay code \"Create a hello world Python script and run it\"\n\n"
    "The exit status is 0 if the agent says that it is done, 1 if it does not.\n";

enum { FILES_BYTES = 12 << 20, FILES_MAX = 1000, EVENT_BYTES = 33 << 20 };

struct code_cli {
    const char *dir;
    const char *url;
    json_t *ask;
    json_t *stamps; /* {path: when it was changed last} of the folder, as it was read */
    bool json;
    bool apply;
    struct own_server server;
    struct sse sse;
    struct steps steps;
    json_t *end; /* the run, when it has ended */
};

/* --- the folder --- */

struct gather {
    json_t *files;
    json_t *stamps;
    size_t bytes;
};

/* What tells whether a file was changed. */
static json_t *stamp_of(const struct stat *st) {
    return json_sprintf("%lld %lld.%09ld %llu", (long long)st->st_size,
                        (long long)st->st_ctim.tv_sec, st->st_ctim.tv_nsec,
                        (unsigned long long)st->st_ino);
}

static int gather_file(struct gather *g, int dir, const char *name, const char *path,
                       const struct stat *st, struct err *err) {
    _cleanup_(close) int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_sys(err, "open %s", path);
    g->bytes += (size_t)st->st_size;
    if (g->bytes > FILES_BYTES || json_array_size(g->files) >= FILES_MAX)
        return err_set(err, ERR_TOO_LARGE,
                       "the folder has more than %d MiB or %d files: name a smaller one, or make "
                       "a sandbox with `cay sandbox cp`",
                       FILES_BYTES >> 20, FILES_MAX);
    _cleanup_(free) char *data = xmalloc((size_t)st->st_size + 1);
    ssize_t n = 0;
    ssize_t k;
    while (n < st->st_size && (k = read(fd, data + n, (size_t)(st->st_size - n))) > 0)
        n += k;
    json_t *f = json_pack("{s:s,s:i}", "path", path, "mode", (int)(st->st_mode & 0755));
    if (!f)
        return err_set(err, ERR_BAD_REQUEST, "a file name in the folder is no text: %s", path);
    if (utf8_is_valid(data, (size_t)n) && !memchr(data, 0, (size_t)n)) {
        (void)json_object_set_new(f, "content", json_stringn(data, (size_t)n));
    } else {
        _cleanup_(free) char *text = xcalloc(1, BASE64_SIZE((size_t)n) + 1);
        base64_encode(text, data, (size_t)n);
        (void)json_object_set_new(f, "content_base64", json_string(text));
    }
    (void)json_array_append_new(g->files, f);
    (void)json_object_set_new(g->stamps, path, stamp_of(st));
    return 0;
}

static int gather_dir(struct gather *g, int dir, const char *prefix, struct err *err) {
    DIR *d = fdopendir(dir); /* takes it */
    const struct dirent *e;
    int rc = 0;
    if (!d)
        return err_sys(err, "read the folder");
    while (rc == 0 && (e = readdir(d))) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            strcmp(e->d_name, ".git") == 0)
            continue;
        _cleanup_(free) char *path = xasprintf("%s%s%s", prefix, *prefix ? "/" : "", e->d_name);
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            rc = err_sys(err, "look at %s", path);
        } else if (S_ISDIR(st.st_mode)) {
            int sub = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
            rc = sub < 0 ? err_sys(err, "open %s", path) : gather_dir(g, sub, path, err);
        } else if (S_ISREG(st.st_mode)) {
            rc = gather_file(g, dirfd(d), e->d_name, path, &st, err);
        }
    }
    (void)closedir(d);
    return rc;
}

static int add_folder(struct code_cli *c, struct err *err) {
    if (!c->dir)
        return 0;
    struct gather g = {.files = json_array(), .stamps = c->stamps};
    int dir = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = dir < 0 ? err_sys(err, "open %s", c->dir) : gather_dir(&g, dir, "", err);
    if (rc == 0)
        (void)json_object_set(c->ask, "files", g.files);
    json_decref(g.files);
    return rc;
}

/* --- writing back --- */

/* Runs git in the folder with the diff as its input; its output goes into out, if that is not NULL.
 * A repository above the folder is none of its business. */
static int run_git(const struct code_cli *c, const char *const *args, const char *diff,
                   struct buf *out, struct err *err) {
    _cleanup_(close) int in = memfd_create("diff", MFD_CLOEXEC);
    _cleanup_(close) int result = memfd_create("result", MFD_CLOEXEC);
    _cleanup_(free) char *parent = xasprintf("%s/..", c->dir);
    _cleanup_(free) char *above = realpath(parent, NULL);
    size_t n = strlen(diff);
    if (in < 0 || result < 0 || !above || write(in, diff, n) != (ssize_t)n ||
        lseek(in, 0, SEEK_SET))
        return err_sys(err, "hand the diff to git");
    _cleanup_(free) char *ceiling = xasprintf("GIT_CEILING_DIRECTORIES=%s", above);
    const char *path = getenv("PATH");
    _cleanup_(free) char *where = xasprintf("PATH=%s", path ? path : "/usr/bin:/bin");
    char *env[] = {ceiling, where, (char *)"GIT_CONFIG_NOSYSTEM=1",
                   (char *)"GIT_CONFIG_GLOBAL=/dev/null", NULL};
    posix_spawn_file_actions_t actions;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, in, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, result, 1);
    (void)posix_spawn_file_actions_addchdir_np(&actions, c->dir);
    pid_t pid;
    int status = 0;
    int e = posix_spawnp(&pid, "git", &actions, NULL, (char *const *)(uintptr_t)args, env);
    (void)posix_spawn_file_actions_destroy(&actions);
    if (e != 0)
        return err_set(err, ERR_UNSUPPORTED, "--apply needs git: %s", strerror(e));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(err, ERR_CONFLICT, "the diff does not apply to %s; nothing was written",
                       c->dir);
    char data[4096];
    ssize_t k;
    if (out && lseek(result, 0, SEEK_SET) == 0)
        while ((k = read(result, data, sizeof(data))) > 0)
            (void)buf_add(out, data, (size_t)k);
    return 0;
}

/* A file that the diff touches must be as it was read: there, or not there. */
static int check_unchanged(const struct code_cli *c, const char *path, struct err *err) {
    _cleanup_(free) char *full = path_join(c->dir, path);
    struct stat st;
    bool there = lstat(full, &st) == 0;
    _cleanup_(json) json_t *now = there ? stamp_of(&st) : NULL;
    const json_t *then = json_object_get(c->stamps, path);
    if (!now == !then && (!now || json_equal(now, then)))
        return 0;
    return err_set(err, ERR_CONFLICT, "%s was changed in the folder meanwhile; nothing was written",
                   path);
}

/* A name may have tabs of its own. */
static const char *after_tabs(const char *text, int n) {
    for (; n > 0 && *text; n--)
        text += strcspn(text, "\t") + (text[strcspn(text, "\t")] == '\t');
    return text;
}

static int apply(const struct code_cli *c, const char *diff, struct err *err) {
    static const char *const list[] = {"git", "apply", "--numstat", "-z", "-", NULL};
    static const char *const check[] = {"git", "apply", "--check", "--whitespace=nowarn",
                                        "-",   NULL};
    static const char *const write_it[] = {"git", "apply", "--whitespace=nowarn", "-", NULL};
    _cleanup_(buf) struct buf out;
    buf_init(&out, 16 << 20);
    int rc = run_git(c, list, diff, &out, err);
    /* "ADDED\tREMOVED\tPATH\0"; of a rename PATH is empty, and "OLD\0NEW\0" follow. */
    int bare = 0;
    for (const char *p = out.data; rc == 0 && p && p < out.data + out.len; p += strlen(p) + 1) {
        const char *path = bare > 0 ? p : after_tabs(p, 2);
        bare = bare > 0 ? bare - 1 : *path ? 0 : 2;
        if (*path)
            rc = check_unchanged(c, path, err);
    }
    if (rc == 0)
        rc = run_git(c, check, diff, NULL, err);
    return rc < 0 ? rc : run_git(c, write_it, diff, NULL, err);
}

/* --- what is shown --- */

static const char *text_of(const json_t *j, const char *key) {
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}

static void say(const char *before, const char *text) {
    (void)fputs(before, stdout);
    terminal_print(stdout, text, strlen(text));
    (void)fputc('\n', stdout);
}

static bool on_event(void *ctx, const char *event, const char *data, size_t len) {
    struct code_cli *c = ctx;
    _cleanup_(json) json_t *j = json_loadb(data, len, 0, NULL);
    if (event && strcmp(event, "end") == 0)
        c->end = json_incref(j);
    else if (event && j && !c->json)
        steps_show(&c->steps, event, j);
    return true;
}

static int on_data(void *ctx, const char *data, size_t len, struct err *err) {
    struct code_cli *c = ctx;
    return sse_feed(&c->sse, data, len, err);
}

/* A diff that is no UTF-8 comes coded; git writes no NUL into one. */
static char *bytes_of(const char *coded) {
    size_t n = 0;
    char *bytes = xcalloc(1, strlen(coded) + 1);
    if (base64_decode(bytes, coded, strlen(coded), &n))
        bytes[n] = 0;
    return bytes;
}

static int show_end(const struct code_cli *c, struct client *client, struct err *err) {
    const char *status = text_of(c->end, "status");
    _cleanup_(free) char *path = xasprintf("/v1/runs/%s", text_of(c->end, "id"));
    _cleanup_(json) json_t *run = NULL;
    int rc = client_call(client, &(struct client_call){.path = path}, &run, err);
    if (rc < 0)
        return rc;
    const json_t *detail = json_object_get(run, "detail");
    if (c->json) {
        (void)json_object_del(run, "events");
        _cleanup_(free) char *text = json_dumps(run, JSON_INDENT(2));
        (void)printf("%s\n", text ? text : "{}");
    } else {
        const char *diff = text_of(detail, "diff");
        if (*diff)
            (void)fputc('\n', stdout);
        terminal_print(stdout, diff, strlen(diff));
        const char *message = text_of(json_object_get(c->end, "error"), "message");
        if (strcmp(status, "done") != 0 && *message)
            say("cay: ", message);
        if (json_is_true(json_object_get(detail, "kept")))
            say("sandbox  ", text_of(detail, "sandbox"));
    }
    if (strcmp(status, "done") != 0)
        return 1;
    const char *diff = text_of(detail, "diff");
    if (!c->apply || !*diff)
        return 0;
    if (!json_is_true(json_object_get(detail, "diff_is_whole")))
        return err_set(err, ERR_TOO_LARGE, "the diff is not whole, and was not applied");
    _cleanup_(free) char *bytes = bytes_of(text_of(detail, "diff_base64"));
    rc = apply(c, *bytes ? bytes : diff, err);
    if (rc == 0 && !c->json)
        say("applied to ", c->dir);
    return rc;
}

static int carry_out(struct code_cli *c, const char *url, struct err *err) {
    struct client client;
    int rc = client_init(&client, url, err);
    if (rc < 0)
        return rc;
    sse_init(&c->sse, EVENT_BYTES, on_event, c);
    rc = client_call(&client,
                     &(struct client_call){.path = "/v1/code",
                                           .accept = "text/event-stream",
                                           .json = c->ask,
                                           .on_data = on_data,
                                           .ctx = c},
                     NULL, err);
    sse_finish(&c->sse);
    if (rc == 0 && !c->end)
        rc = err_set(err, ERR_UPSTREAM, "the server broke off");
    if (rc == 0)
        rc = show_end(c, &client, err);
    client_finish(&client);
    return rc;
}

/* --- the command --- */

static bool read_number(struct code_cli *c, const char *key, const char *text) {
    char *end = NULL;
    long v = strtol(text, &end, 10);
    return *text && !*end && v > 0 && json_object_set_new(c->ask, key, json_integer(v)) == 0;
}

static int read_option(struct code_cli *c, int option) {
    int64_t ms = 0;
    switch (option) {
    case 'd':
        c->dir = optarg;
        return 0;
    case 'm':
        (void)json_object_set_new(c->ask, "model", json_string(optarg));
        return 0;
    case 'A':
        (void)json_object_set_new(c->ask, "agent", json_string(optarg));
        return 0;
    case 'r':
        (void)json_object_set_new(c->ask, "repo", json_string(optarg));
        return 0;
    case 'R':
        (void)json_object_set_new(c->ask, "ref", json_string(optarg));
        return 0;
    case 'C':
        (void)json_object_set_new(c->ask, "credential", json_string(optarg));
        return 0;
    case 'S':
        (void)json_object_set_new(c->ask, "sandbox", json_string(optarg));
        return 0;
    case 's':
        return read_number(c, "max_steps", optarg)
                   ? 0
                   : cli_usage("code", "--max-steps is a number of steps");
    case 't':
        if (!cli_parse_time(optarg, &ms))
            return cli_usage("code", "--timeout is a time: 90s, 5m");
        (void)json_object_set_new(c->ask, "timeout_ms", json_integer(ms));
        return 0;
    case 'a':
        c->apply = true;
        return 0;
    case 'k':
        (void)json_object_set_new(c->ask, "keep", json_true());
        return 0;
    case 'o':
        c->json = strcmp(optarg, "json") == 0;
        return c->json ? 0 : cli_usage("code", "--output is json");
    case 'u':
        c->url = optarg;
        return 0;
    default:
        return 2;
    }
}

/* NULL: one is started for it, and ends with it. */
static const char *server_of(const struct code_cli *c) {
    const char *set = getenv("CAY_URL");
    return c->url ? c->url : set && *set ? set : NULL;
}

static int run_it(struct code_cli *c, const char *spec, struct err *err) {
    _cleanup_(buf) struct buf text;
    _cleanup_(free) char *own = NULL;
    buf_init(&text, 1 << 20);
    const char *url = server_of(c);
    int rc = cli_read_text(spec, &text, "the spec", err);
    if (rc == 0 && json_object_set_new(c->ask, "spec", json_string(text.data ? text.data : "")) < 0)
        rc = err_set(err, ERR_BAD_REQUEST, "the spec is no text");
    if (rc == 0)
        rc = add_folder(c, err);
    if (rc == 0 && !url)
        rc = own_server_start(&c->server, &own, err);
    if (rc == 0)
        rc = carry_out(c, url ? url : own, err);
    own_server_end(&c->server);
    return rc;
}

int cli_code(int argc, char **argv) {
    static const struct option options[] = {{"dir", required_argument, NULL, 'd'},
                                            {"model", required_argument, NULL, 'm'},
                                            {"agent", required_argument, NULL, 'A'},
                                            {"repo", required_argument, NULL, 'r'},
                                            {"ref", required_argument, NULL, 'R'},
                                            {"credential", required_argument, NULL, 'C'},
                                            {"sandbox", required_argument, NULL, 'S'},
                                            {"max-steps", required_argument, NULL, 's'},
                                            {"timeout", required_argument, NULL, 't'},
                                            {"apply", no_argument, NULL, 'a'},
                                            {"keep", no_argument, NULL, 'k'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"url", required_argument, NULL, 'u'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct code_cli c = {.ask = json_object(), .stamps = json_object()};
    struct err err;
    int option;
    int rc = 0;
    while (rc == 0 && (option = getopt_long(argc, argv, "d:m:o:h", options, NULL)) != -1) {
        if (option == 'h') {
            (void)fputs(usage, stdout);
            json_decref(c.ask);
            return 0;
        }
        rc = option == '?' ? cli_usage("code", "no such option") : read_option(&c, option);
    }
    if (rc == 0 && optind != argc - 1)
        rc = cli_usage("code", "say in one text what is to be done");
    if (rc == 0 && c.apply && !c.dir)
        rc = cli_usage("code", "--apply writes back to --dir, which is missing");
    if (rc == 0 && !server_of(&c) &&
        (json_object_get(c.ask, "keep") || json_object_get(c.ask, "sandbox")))
        rc = cli_usage("code", "--keep and --sandbox are of a server that goes on: name it by "
                               "--url or CAY_URL");
    if (rc == 0) {
        rc = run_it(&c, argv[optind], &err);
        if (rc < 0)
            rc = cli_fail(&err);
    }
    json_decref(c.ask);
    json_decref(c.stamps);
    json_decref(c.end);
    return rc;
}
