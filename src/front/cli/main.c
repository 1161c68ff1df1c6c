#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/text.h"
#include "front/cli/cli.h"
#include "front/cli/options.h"
#include "front/cli/terminal.h"
#include "front/config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int cli_main_help(int argc, char **argv);
static int cli_main_version(int argc, char **argv);

static const struct verb verbs[] = {
    {"serve", "start the server", cli_serve},
    {"run", "run a JavaScript or TypeScript module in an isolate", cli_run},
    {"exec", "run a command in a Linux sandbox of its own", cli_exec},
    {"code", "have an agent write code in a sandbox of its own", cli_code},
    {"execute", "have an agent do a task, or a model answer with web tools", cli_execute},
    {"sandbox", "make and use the sandboxes of a running server", cli_sandbox},
    {"vercel", "have programs written for @vercel/sandbox use a running server", cli_vercel},
    {"task", "queue tasks at a running server, follow and cancel them", cli_task},
    {"db", "query, copy, save and change the databases of a running server", cli_db},
    {"usage", "show what the tasks of each key used, by day", cli_usage_table},
    {"chat", "talk to an agent of a running server", cli_chat},
    {"doctor", "say what this machine offers and what to do about the rest", cli_doctor},
    {"config", "check, show and reload the settings", cli_config},
    {"prune", "delete old records, beyond what is to be kept", cli_prune},
    {"key", "create, list, rotate and revoke API keys", cli_key},
    {"project", "create, list and change projects, which own data", cli_project},
    {"version", "print the version", cli_main_version},
    {"help", "print this, or the help of a command", cli_main_help},
};

static void cli_main_print_help(FILE *out) {
    (void)fprintf(out, "cay " CAY_VERSION
                       " - runs the code that AI agents write, and lets nothing in or "
                       "out but what you hand it\n\nusage: cay COMMAND [OPTIONS]\n\n");
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
        (void)fprintf(out, "  %-10s %s\n", verbs[i].name, verbs[i].summary);
    (void)fprintf(out, "\n`cay COMMAND --help` tells more; `man cay` tells all.\n");
}

/* Says what may have been meant where there is none of this name. */
static const struct verb *cli_main_find(const char *name) {
    const char *names[ARRAY_LEN(verbs) + 1] = {NULL};
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        names[i] = verbs[i].name;
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    }
    const char *meant = text_nearest(name, names);
    (void)fprintf(stderr, "cay: there is no command \"%s\"; ", name);
    if (meant)
        (void)fprintf(stderr, "did you mean \"%s\"? ", meant);
    (void)fputs("`cay help` lists them\n", stderr);
    return NULL;
}

static int cli_main_help(int argc, char **argv) {
    const struct verb *v = argc > 1 ? cli_main_find(argv[1]) : NULL;
    if (argc > 1 && !v)
        return 2;
    if (v && v->run != cli_main_help && v->run != cli_main_version) {
        char *again[] = {argv[1], (char *)"--help", NULL};
        return v->run(2, again);
    }
    cli_main_print_help(stdout);
    return 0;
}

static int cli_main_version(int argc, char **argv) {
    static const char usage[] = "usage: cay version [--json]\n\nPrints the version.\n";
    struct {
        bool json;
    } a = {false};
    const struct cli_option options[] = {OPTIONS_JSON(__typeof__(a), json)};
    int status = cli_options(
        &(struct cli_command){
            .name = "version", .usage = usage, .options = options, .noptions = ARRAY_LEN(options)},
        &argc, argv, &a);
    if (status >= 0)
        return status;
    (void)printf(a.json ? "{\"version\":\"%s\"}\n" : "cay %s\n", CAY_VERSION);
    return 0;
}

static void cli_main_print_error(const struct err *err) {
    _cleanup_(json) json_t *j =
        json_pack("{s:{s:s,s:s}}", "error", "code", err_name(err->code), "message", err->message);
    _cleanup_(free) char *text = json_dumps(j, JSON_COMPACT);
    terminal_line(stderr, text);
}

int cli_fail(const struct err *err) {
    if (cli_wants_json())
        cli_main_print_error(err);
    else /* a server's words may be a guest's */
        terminal_say(stderr, "cay: ", err->message);
    return err_exit_status(err->code);
}

int cli_usage_with(const char *verb, const char *synopsis, const char *message) {
    struct err err;
    (void)err_set(&err, ERR_BAD_REQUEST, "cay %s: %s", verb, message);
    if (cli_wants_json()) {
        cli_main_print_error(&err);
        return 2;
    }
    terminal_line(stderr, err.message);
    if (synopsis)
        (void)fprintf(stderr, "usage: cay %s %s\n", verb, synopsis);
    else
        (void)fprintf(stderr, "`cay %s --help` shows how it is used.\n", verb);
    return 2;
}

static bool cli_folder_has(const char *name) {
    struct stat st;
    return fstatat(AT_FDCWD, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

void cli_note_unread(const char *verb, const char *name) {
    if (cli_folder_has(name))
        (void)fprintf(stderr,
                      "cay: ./%s is not read by `cay %s`, because others may have written it; "
                      "set variables in the environment, or name a settings file: --config\n",
                      name, verb);
}

int cli_config_load(struct config *c, const char *verb, const char *named, enum cli_settings use,
                    struct err *err) {
    if (named)
        return config_load(c, named, err);
    if (use == CLI_SETTINGS_WRITE && cli_folder_has("cay.json"))
        return err_set(err, ERR_BAD_REQUEST,
                       "there is a cay.json in this folder, which others may have written: say "
                       "which settings `cay %s` is to go by (--config ./cay.json, or "
                       "--data-dir FOLDER)",
                       verb);
    cli_note_unread(verb, "cay.json");
    const char *file = config_machine_file();
    return file ? config_load(c, file, err) : 0;
}

int cli_usage(const char *verb, const char *fmt, ...) {
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    (void)text_vprint(text, sizeof(text), fmt, ap);
    va_end(ap);
    return cli_usage_with(verb, NULL, text);
}

int cli_choose(const char *verb, const char *word, const char *const *names) {
    _cleanup_(buf) struct buf all;
    int n = 0;
    buf_init(&all, 1024);
    while (names[n] && strcmp(names[n], word) != 0)
        n++;
    if (names[n])
        return n;
    for (int i = 0; i < n; i++)
        (void)buf_addf(&all, "%s%s", i == 0 ? "" : i == n - 1 ? " or " : ", ", names[i]);
    const char *meant = text_nearest(word, names);
    if (!*word)
        (void)cli_usage(verb, "say %s", all.data);
    else if (meant)
        (void)cli_usage(verb, "there is no \"%s\": did you mean \"%s\"?", word, meant);
    else
        (void)cli_usage(verb, "there is no \"%s\": say %s", word, all.data);
    return -1;
}

int cli_become_owner(const char *dir, struct err *err) {
    struct stat st;
    if (geteuid() != 0)
        return 0;
    if (stat(dir, &st) < 0)
        return err_sys(err, "data folder %s", dir);
    if (st.st_uid != 0 &&
        (setgroups(0, NULL) < 0 || setresgid(st.st_gid, st.st_gid, st.st_gid) < 0 ||
         setresuid(st.st_uid, st.st_uid, st.st_uid) < 0))
        return err_sys(err, "become the owner of %s", dir);
    return 0;
}

int cli_read_text(const char *text, struct buf *out, const char *what, struct err *err) {
    char data[4096];
    ssize_t n;
    if (strcmp(text, "-") != 0) {
        (void)buf_add_str(out, text);
        return 0;
    }
    while ((n = read(0, data, sizeof(data))) > 0)
        if (!buf_add(out, data, (size_t)n))
            return err_set(err, ERR_TOO_LARGE, "%s is too long", what);
    return n < 0 ? err_sys(err, "read %s", what) : 0;
}

char *cli_sibling_dir(void) {
    char *dir = path_self_dir();
    _cleanup_(free) char *here = path_join(dir, "cay-isolate");
    if (faccessat(AT_FDCWD, here, F_OK, 0) == 0)
        return dir;
    _cleanup_(free) char *libexec = path_join(dir, "../libexec/cay");
    if (faccessat(AT_FDCWD, libexec, F_OK, 0) == 0) {
        free(dir);
        return steal_ptr(&libexec);
    }
    return dir;
}

int cli_open_sibling(const char *name, struct err *err) {
    _cleanup_(free) char *dir = cli_sibling_dir();
    _cleanup_(free) char *path = path_join(dir, name);
    int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) {
        (void)err_sys(err, "%s is missing beside cay (run `make`, or install it)", name);
        err->code = ERR_UNAVAILABLE;
    }
    return fd;
}

_Static_assert(EXIT_STATUS_PIPE == 128 + SIGPIPE, "as a shell shows it");

/* Output that was lost is a failure, whatever came of the work: a full disk must not look like a
 * program that had nothing to say. */
static int check_output(int status) {
    errno = 0;
    bool failed = fflush(stdout) != 0;
    int why = errno;
    if (!failed && !ferror(stdout))
        return status;
    struct pollfd reader = {.fd = STDOUT_FILENO};
    if (poll(&reader, 1, 0) == 1 && (reader.revents & POLLERR)) /* `| head` has seen enough */
        return status ? status : EXIT_STATUS_PIPE;
    (void)fprintf(stderr, "cay: standard output could not be written%s%s\n", why ? ": " : "",
                  why ? strerror(why) : "");
    return status ? status : 1;
}

/* A descriptor that is opened later must not be taken for a standard stream that was closed. Writes
 * to such a one fail, as they should. */
static void fill_standard_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)open("/dev/null", O_RDONLY); /* the lowest that is free: this one */
}

int main(int argc, char **argv) {
    fill_standard_streams();
    /* Whoever ignores SIGCHLD passes that on to us, and nobody could be waited for. */
    struct sigaction usual = {.sa_handler = SIG_DFL};
    (void)sigaction(SIGCHLD, &usual, NULL);
    if (argc < 2) {
        cli_main_print_help(stderr);
        return 2;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    const struct verb *v = cli_main_find(name);
    if (!v)
        return 2;
    int status = v->run(argc - 1, argv + 1);
    /* What a server prints at its start is nothing that its end depends on. */
    return v->run == cli_serve ? status : check_output(status);
}
