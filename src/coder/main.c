/* cay-coder: a coding agent that loops inside its sandbox. It is one static file that needs nothing
 * else there. What it does is told on standard output (wire/coder.h); errors in how it was called
 * are told on standard error. */

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "coder/agent.h"
#include "coder/changes.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

extern const char coder_prompt[];

enum { EXIT_USAGE = 2 };

struct options {
    const char *dir;
    const char *spec;
    const char *spec_file;
    const char *model;
    const char *dialect;
    const char *base_url;
    const char *prompt_file;
    const char *instructions;
    const char *tools;
    int64_t max_steps;
    int64_t timeout_ms;
    int64_t command_timeout_ms;
    int64_t model_timeout_ms;
    int64_t max_tokens;
    int64_t context_bytes;
    int64_t retries;
    int64_t retry_wait_ms;
};

static const char usage_text[] =
    "usage: cay-coder --model NAME (--spec TEXT | --spec-file FILE) [OPTION...]\n"
    "\n"
    "  --dir DIR                 where it works (.)\n"
    "  --spec TEXT               the task\n"
    "  --spec-file FILE          a file with the task; - is standard input\n"
    "  --model NAME              the model's name\n"
    "  --dialect NAME            anthropic or openai (anthropic)\n"
    "  --base-url URL            http://ADDRESS:PORT[/PATH] of the model's route; else what\n"
    "                            ANTHROPIC_BASE_URL or OPENAI_BASE_URL says\n"
    "  --max-steps N             actions, before it must be done (5)\n"
    "  --timeout-ms N            for all of it (300000)\n"
    "  --command-timeout-ms N    for one command (60000)\n"
    "  --model-timeout-ms N      for one answer of the model (240000)\n"
    "  --max-tokens N            of one answer (16000)\n"
    "  --context-bytes N         of the conversation (262144)\n"
    "  --retries N               of a model that is busy or away (5)\n"
    "  --retry-wait-ms N         before the first of them; then twice as long each time (500)\n"
    "  --prompt-file FILE        instead of the built-in prompt\n"
    "  --instructions TEXT       put behind the prompt\n"
    "  --tools all|read          read: those that change nothing (all)\n"
    "  --version, --help\n"
    "\n"
    "ANTHROPIC_API_KEY or OPENAI_API_KEY is sent along if it is there. Tells what it does as JSON\n"
    "lines. Exit status: 0 done, 1 failed, 2 called wrongly, 124 out of time, 130 cancelled.\n";

struct text_option {
    const char *name;
    size_t at;
};

struct number_option {
    const char *name;
    size_t at;
    int64_t min;
    int64_t max;
};

static const struct text_option texts[] = {
    {"dir", offsetof(struct options, dir)},
    {"spec", offsetof(struct options, spec)},
    {"spec-file", offsetof(struct options, spec_file)},
    {"model", offsetof(struct options, model)},
    {"dialect", offsetof(struct options, dialect)},
    {"base-url", offsetof(struct options, base_url)},
    {"prompt-file", offsetof(struct options, prompt_file)},
    {"instructions", offsetof(struct options, instructions)},
    {"tools", offsetof(struct options, tools)},
};

static const struct number_option numbers[] = {
    {"max-steps", offsetof(struct options, max_steps), 1, 1000},
    {"timeout-ms", offsetof(struct options, timeout_ms), 1, 86400000},
    {"command-timeout-ms", offsetof(struct options, command_timeout_ms), 1, 86400000},
    {"model-timeout-ms", offsetof(struct options, model_timeout_ms), 1, 86400000},
    {"max-tokens", offsetof(struct options, max_tokens), 1, 1000000},
    {"context-bytes", offsetof(struct options, context_bytes), 16384, 4194304},
    {"retries", offsetof(struct options, retries), 0, 20},
    {"retry-wait-ms", offsetof(struct options, retry_wait_ms), 0, LIMIT_CODER_RETRY_MAX_MS},
};

enum { FIRST_NUMBER = ARRAY_LEN(texts), OPTION_COUNT = ARRAY_LEN(texts) + ARRAY_LEN(numbers) };

/* --- the command line --- */

static int coder_main_set_number(struct options *o, const struct number_option *n, const char *text,
                                 struct err *err) {
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || end == text || *end || v < n->min || v > n->max)
        return err_set(err, ERR_BAD_REQUEST, "--%s must be a number from %lld to %lld", n->name,
                       (long long)n->min, (long long)n->max);
    *(int64_t *)(void *)((char *)o + n->at) = v;
    return 0;
}

static int coder_main_set_option(struct options *o, int index, const char *text, struct err *err) {
    if (index >= FIRST_NUMBER)
        return coder_main_set_number(o, &numbers[index - FIRST_NUMBER], text, err);
    *(const char **)(void *)((char *)o + texts[index].at) = text;
    return 0;
}

/* 0, 1 if all is said and done, negative. */
static int coder_main_read_options(struct options *o, int argc, char **argv, struct err *err) {
    struct option table[OPTION_COUNT + 3] = {{0}};
    for (int i = 0; i < OPTION_COUNT; i++)
        table[i] =
            (struct option){i < FIRST_NUMBER ? texts[i].name : numbers[i - FIRST_NUMBER].name,
                            required_argument, NULL, i + 1};
    table[OPTION_COUNT] = (struct option){"version", no_argument, NULL, 'v'};
    table[OPTION_COUNT + 1] = (struct option){"help", no_argument, NULL, 'h'};
    opterr = 0;
    int c;
    _Static_assert(OPTION_COUNT < 'h', "numbers of options are no letters");
    while ((c = getopt_long(argc, argv, ":", table, NULL)) != -1) {
        if (c == 'h' || c == 'v') {
            (void)fputs(c == 'h' ? usage_text : "cay-coder " CAY_VERSION "\n", stdout);
            return 1;
        }
        if (c == '?' || c == ':')
            return err_set(err, ERR_BAD_REQUEST, "%s: %s; see --help", argv[optind - 1],
                           c == '?' ? "no such option" : "a value is missing");
        int rc = coder_main_set_option(o, c - 1, optarg, err);
        if (rc < 0)
            return rc;
    }
    if (optind < argc)
        return err_set(err, ERR_BAD_REQUEST, "%.100s: not an option; see --help", argv[optind]);
    return 0;
}

static int coder_main_check_name(const char *what, const char *text, struct err *err) {
    size_t n = text ? strlen(text) : 0;
    if (n == 0 || n > CODER_NAME_MAX || !utf8_is_valid(text, n))
        return err_set(err, ERR_BAD_REQUEST, "--%s must be a text of up to %d bytes", what,
                       CODER_NAME_MAX);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return err_set(err, ERR_BAD_REQUEST, "--%s holds a control character", what);
    return 0;
}

/* --- what it is given --- */

/* Not by a name of it: a pipe of somebody else, or a socket, cannot be opened once more. */
static int coder_main_read_input(struct buf *out, struct err *err) {
    char chunk[16384];
    ssize_t n;
    while ((n = fd_read_all(STDIN_FILENO, chunk, sizeof(chunk))) > 0)
        if (!buf_add(out, chunk, (size_t)n))
            return -ERR_TOO_LARGE;
    return n < 0 ? err_sys(err, "read standard input") : 0;
}

static int coder_main_read_text(const char *path, const char *what, size_t max, struct buf *out,
                                struct err *err) {
    buf_init(out, max);
    int rc = strcmp(path, "-") == 0 ? coder_main_read_input(out, err)
                                    : fd_read_file(AT_FDCWD, path, out, err);
    if (rc == -ERR_TOO_LARGE)
        return err_set(err, ERR_TOO_LARGE, "%s is longer than %zu bytes", what, max);
    if (rc < 0)
        return err_wrap(err, "%s", what);
    if (out->len > 0 && (memchr(out->data, 0, out->len) || !utf8_is_valid(out->data, out->len)))
        return err_set(err, ERR_BAD_REQUEST, "%s is no text: it holds a NUL or bad UTF-8", what);
    return 0;
}

static int read_spec(const struct options *o, struct buf *out, struct err *err) {
    int rc = 0;
    if (o->spec_file) {
        rc = coder_main_read_text(o->spec_file, "the task", LIMIT_CODER_SPEC_BYTES, out, err);
    } else {
        size_t n = strlen(o->spec);
        buf_init(out, LIMIT_CODER_SPEC_BYTES);
        if (!utf8_is_valid(o->spec, n))
            rc = err_set(err, ERR_BAD_REQUEST, "the task is no text: it holds bad UTF-8");
        else if (!buf_add(out, o->spec, n))
            rc = err_set(err, ERR_TOO_LARGE, "the task is longer than %d bytes",
                         LIMIT_CODER_SPEC_BYTES);
    }
    if (rc == 0 && (out->len == 0 || strspn(out->data, " \t\r\n") == out->len))
        rc = err_set(err, ERR_BAD_REQUEST, "the task is empty");
    return rc;
}

static void coder_main_replace(struct buf *out, const char *text, const char *dir, int64_t steps) {
    static const char dir_mark[] = "{{dir}}";
    static const char steps_mark[] = "{{max_steps}}";
    while (*text) {
        size_t n = strcspn(text, "{");
        (void)buf_add(out, text, n);
        text += n;
        if (strncmp(text, dir_mark, strlen(dir_mark)) == 0) {
            (void)buf_add_str(out, dir);
            text += strlen(dir_mark);
        } else if (strncmp(text, steps_mark, strlen(steps_mark)) == 0) {
            (void)buf_addf(out, "%lld", (long long)steps);
            text += strlen(steps_mark);
        } else if (*text) {
            (void)buf_add_char(out, *text++);
        }
    }
}

static bool reads_only(const struct options *o) {
    return o->tools && strcmp(o->tools, "read") == 0;
}

static const char read_only_prompt[] =
    "\n# Nothing can be changed\n\nOf the tools there are only read_file and list_files; the "
    "folder "
    "cannot be written to. Look at what is there, then reply with \"done\" and put your findings, "
    "or the plan that was asked for, into \"summary\".\n";

static int read_prompt(const struct options *o, struct buf *out, struct err *err) {
    _cleanup_(buf) struct buf own;
    buf_init(&own, 0);
    if (o->prompt_file) {
        int rc =
            coder_main_read_text(o->prompt_file, "the prompt", LIMIT_CODER_PROMPT_BYTES, &own, err);
        if (rc < 0)
            return rc;
    }
    coder_main_replace(out, o->prompt_file ? (own.data ? own.data : "") : coder_prompt, o->dir,
                       o->max_steps);
    if (reads_only(o))
        (void)buf_add_str(out, read_only_prompt);
    if (o->instructions && *o->instructions)
        (void)buf_addf(out, "\n# Instructions of the operator\n\n%s\n", o->instructions);
    return out->full ? err_set(err, ERR_TOO_LARGE, "the prompt is longer than %zu bytes", out->max)
                     : 0;
}

static const char *from_environment(enum dialect d, const char *what) {
    bool anthropic = d == DIALECT_ANTHROPIC;
    const char *value = strcmp(what, "url") == 0
                            ? getenv(anthropic ? "ANTHROPIC_BASE_URL" : "OPENAI_BASE_URL")
                            : getenv(anthropic ? "ANTHROPIC_API_KEY" : "OPENAI_API_KEY");
    return value && *value ? value : NULL;
}

/* A key goes into a header as it is. */
static bool coder_main_is_plain(const char *key) {
    for (; *key; key++)
        if (*key <= ' ' || *key >= 0x7f)
            return false;
    return true;
}

static int open_route(struct model_route *r, const struct options *o, enum dialect d,
                      struct err *err) {
    const char *url = o->base_url ? o->base_url : from_environment(d, "url");
    const char *key = from_environment(d, "key");
    if (!url)
        return err_set(err, ERR_BAD_REQUEST, "there is no --base-url and no %s_BASE_URL",
                       d == DIALECT_ANTHROPIC ? "ANTHROPIC" : "OPENAI");
    int rc = route_init(r, url, d, err);
    if (rc < 0)
        return rc;
    r->key = key && coder_main_is_plain(key) ? key : NULL;
    r->timeout_ms = o->model_timeout_ms;
    r->retries = o->retries;
    r->retry_wait_ms = o->retry_wait_ms;
    return 0;
}

/* What a command of the model could do to us: read our memory, write our lines. It cannot. Its
 * orphans are ours. */
static void guard_self(void) {
#ifndef CODER_TRACEABLE
    (void)prctl(PR_SET_DUMPABLE, 0);
#endif
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* --- the run --- */

static void tell_start(const struct coder *a, const struct options *o) {
    events_tell(a->events, CODER_START,
                json_pack("{s:i,s:s,s:s,s:s,s:s,s:I,s:s,s:I}", "v", CODER_VERSION, "agent",
                          "cay-coder", "version", CAY_VERSION, "model", o->model, "dir", o->dir,
                          "max_steps", (json_int_t)o->max_steps, "dialect",
                          dialect_name(a->request.dialect), "timeout_ms",
                          (json_int_t)o->timeout_ms));
}

static int coder_main_prepare(struct coder *a, const struct options *o, struct buf *spec,
                              struct buf *prompt, struct err *err) {
    a->tools = (struct tools){.dir = {.fd = -1, .path = o->dir},
                              .life = a->life,
                              .events = a->events,
                              .reads_only = reads_only(o),
                              .command_timeout_ms = o->command_timeout_ms};
    if (o->tools && !reads_only(o) && strcmp(o->tools, "all") != 0)
        return err_set(err, ERR_BAD_REQUEST, "--tools is all or read");
    int rc = read_spec(o, spec, err);
    if (rc == 0)
        rc = read_prompt(o, prompt, err);
    if (rc == 0)
        rc = open_route(&a->route, o, a->request.dialect, err);
    if (rc < 0)
        return rc;
    a->tools.dir.fd = open(o->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (a->tools.dir.fd < 0)
        return err_sys(err, "the work directory %.200s", o->dir);
    a->request.model = o->model;
    a->request.system = prompt->data ? prompt->data : "";
    a->request.max_tokens = o->max_tokens;
    a->max_steps = o->max_steps;
    context_init(&a->context, spec->data, (size_t)o->context_bytes + spec->len);
    return 0;
}

static enum coder_reason coder_main_run(const struct options *o, enum dialect dialect,
                                        struct life *life) {
    struct events events = {.fd = STDOUT_FILENO, .life = life};
    struct coder a = {.life = life, .events = &events, .request = {.dialect = dialect}};
    _cleanup_(buf) struct buf spec;
    _cleanup_(buf) struct buf prompt;
    struct err err;
    enum coder_reason reason = CODER_REASON_ERROR;
    buf_init(&spec, 0);
    buf_init(&prompt, (size_t)LIMIT_CODER_PROMPT_BYTES * 2);
    tell_start(&a, o);
    if (coder_main_prepare(&a, o, &spec, &prompt, &err) < 0)
        agent_fail(&a, reason, err.message, NULL, 0);
    else
        reason = agent_run(&a);
    context_finish(&a.context);
    route_finish(&a.route);
    fd_close(&a.tools.dir.fd);
    return reason;
}

static int exit_status(enum coder_reason reason) {
    switch (reason) {
    case CODER_REASON_DONE:
        return EXIT_SUCCESS;
    case CODER_REASON_TIMEOUT:
        return err_exit_status(ERR_TIMEOUT);
    case CODER_REASON_CANCELLED:
        return err_exit_status(ERR_CANCELLED);
    default:
        return EXIT_FAILURE;
    }
}

int main(int argc, char **argv) {
    struct options o = {
        .dir = ".",
        .dialect = "anthropic",
        .max_steps = LIMIT_CODER_MAX_STEPS,
        .timeout_ms = LIMIT_CODER_TIMEOUT_MS,
        .command_timeout_ms = LIMIT_CODER_COMMAND_TIMEOUT_MS,
        .model_timeout_ms = LIMIT_CODER_MODEL_TIMEOUT_MS,
        .max_tokens = LIMIT_CODER_MAX_TOKENS,
        .context_bytes = LIMIT_CODER_CONTEXT_BYTES,
        .retries = LIMIT_CODER_RETRIES,
        .retry_wait_ms = LIMIT_CODER_RETRY_WAIT_MS,
    };
    struct err err;
    struct life life;
    if (argc > 1 && (strcmp(argv[1], "remember") == 0 || strcmp(argv[1], "changes") == 0))
        return changes_main(argc, argv);
    int rc = coder_main_read_options(&o, argc, argv, &err);
    if (rc > 0)
        return EXIT_SUCCESS;
    enum dialect dialect = dialect_find(o.dialect);
    if (rc == 0)
        rc = coder_main_check_name("model", o.model, &err);
    if (rc == 0)
        rc = coder_main_check_name("dir", o.dir, &err);
    if (rc == 0 && dialect == DIALECT_COUNT)
        rc = err_set(&err, ERR_BAD_REQUEST, "--dialect is anthropic or openai");
    if (rc == 0 && !o.spec == !o.spec_file)
        rc = err_set(&err, ERR_BAD_REQUEST, "one of --spec and --spec-file is needed; see --help");
    if (rc == 0 && life_init(&life, o.timeout_ms) < 0)
        rc = err_sys(&err, "signals");
    if (rc < 0) {
        (void)fprintf(stderr, "cay-coder: %s\n", err.message);
        return EXIT_USAGE;
    }
    guard_self();
    enum coder_reason reason = coder_main_run(&o, dialect, &life);
    life_finish(&life);
    return exit_status(reason);
}
