#include "base/buf.h"
#include "base/cleanup.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/cli/cli.h"
#include "front/cli/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static int help(int argc, char **argv);
static int version(int argc, char **argv);

static const struct verb verbs[] = {
    {"serve", "start the server", cli_serve},
    {"run", "run a JavaScript or TypeScript module in an isolate", cli_run},
    {"exec", "run a command in a Linux sandbox of its own", cli_exec},
    {"code", "have an agent write code in a sandbox of its own", cli_code},
    {"execute", "have an agent do a task, or a model answer with web tools", cli_execute},
    {"sandbox", "make and use the sandboxes of a running server", cli_sandbox},
    {"vercel", "have programs written for @vercel/sandbox use a running server", cli_vercel},
    {"task", "queue tasks at a running server, follow and cancel them", cli_task},
    {"usage", "show what the tasks of each key used, by day", cli_usage_table},
    {"chat", "talk to an agent of a running server", cli_chat},
    {"doctor", "say what this machine offers and what to do about the rest", cli_doctor},
    {"config", "check, show and reload the settings", cli_config},
    {"prune", "delete old records, beyond what is to be kept", cli_prune},
    {"key", "create, list and revoke API keys", cli_key},
    {"version", "print the version", version},
    {"help", "print this, or the help of a command", help},
};

static void print_help(FILE *out) {
    (void)fprintf(out, "cay " CAY_VERSION
                       " - runs the code that AI agents write, and lets nothing in or "
                       "out but what you hand it\n\nusage: cay COMMAND [OPTIONS]\n\n");
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
        (void)fprintf(out, "  %-10s %s\n", verbs[i].name, verbs[i].summary);
    (void)fprintf(out, "\n`cay COMMAND --help` tells more; `man cay` tells all.\n");
}

static const struct verb *find(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

static int help(int argc, char **argv) {
    const struct verb *v = argc > 1 ? find(argv[1]) : NULL;
    if (v && v->run != help && v->run != version) {
        char *again[] = {argv[1], (char *)"--help", NULL};
        return v->run(2, again);
    }
    print_help(stdout);
    return 0;
}

static int version(int argc, char **argv) {
    (void)argc;
    (void)argv;
    (void)printf("cay " CAY_VERSION "\n");
    return 0;
}

int cli_fail(const struct err *err) {
    /* A server's words may be a guest's. */
    (void)fputs("cay: ", stderr);
    terminal_print(stderr, err->message, strlen(err->message));
    (void)fputc('\n', stderr);
    return err_exit_status(err->code);
}

int cli_usage(const char *verb, const char *message) {
    (void)fprintf(stderr, "cay %s: %s\n`cay %s --help` shows how it is used.\n", verb, message,
                  verb);
    return 2;
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

static bool parse_unit(const char *text, const char *const *units, const int64_t *factors,
                       int64_t *ret) {
    char *end = NULL;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || errno || v < 0)
        return false;
    for (size_t i = 0; units[i]; i++)
        if (strcasecmp(end, units[i]) == 0 && v * (double)factors[i] < 9e15) {
            *ret = (int64_t)(v * (double)factors[i]);
            return *ret > 0;
        }
    return false;
}

bool cli_parse_time(const char *text, int64_t *ret_ms) {
    static const char *const units[] = {"", "ms", "s", "m", "h", NULL};
    static const int64_t factors[] = {1000, 1, 1000, 60000, 3600000};
    return parse_unit(text, units, factors, ret_ms) && *ret_ms <= 86400000;
}

bool cli_parse_size(const char *text, int64_t *ret_bytes) {
    static const char *const units[] = {"", "b", "k", "m", "g", "kib", "mib", "gib", NULL};
    static const int64_t factors[] = {1, 1, 1 << 10, 1 << 20, 1 << 30, 1 << 10, 1 << 20, 1 << 30};
    return parse_unit(text, units, factors, ret_bytes);
}

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
        return status ? status : 128 + SIGPIPE;
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
        print_help(stderr);
        return 2;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    const struct verb *v = find(name);
    if (!v) {
        (void)fprintf(stderr, "cay: there is no command \"%s\"; `cay help` lists them\n", name);
        return 2;
    }
    int status = v->run(argc - 1, argv + 1);
    /* What a server prints at its start is nothing that its end depends on. */
    return v->run == cli_serve ? status : check_output(status);
}
