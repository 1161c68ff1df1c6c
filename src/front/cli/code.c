#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "base/mem.h"
#include "front/cli/apply.h"
#include "front/cli/cli.h"
#include "front/cli/client.h"
#include "front/cli/gather.h"
#include "front/cli/options.h"
#include "front/cli/own.h"
#include "front/cli/steps.h"
#include "front/cli/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    "      --include-secrets  copy files that look like secrets, too (.env, keys, private ones),\n"
    "                       and let --apply write .env and cay.json\n"
    "      --include-ignored  copy what .gitignore names, too\n"
    "      --apply          write the changed files to DIR: shows what it will write, and asks\n"
    "  -y, --yes            do not ask\n"
    "      --overwrite      write over files that were changed in DIR meanwhile, too\n"
    "      --undo           take back what was last written to DIR; needs no SPEC\n"
    "      --keep           leave the sandbox running (needs a server)\n"
    "      --json           print one JSON object when it has ended, instead of the steps\n"
    "      --url URL        use this server (default: CAY_URL, else one is started for it)\n"
    "      --config FILE    settings of the server that is started (default /etc/cay/cay.json);\n"
    "                       ./cay.json and ./.env are not read\n\n"
    "With no ANTHROPIC_API_KEY or OPENAI_API_KEY a demo answers, a script that knows a few specs:\n"
    "  cay code \"Create a hello world Python script and run it\"\n\n"
    "What the agent gets is a copy, without .git, links, what .gitignore names and what looks "
    "like\n"
    "a secret; what was left out is told. --apply writes files, and runs nothing: no git, no diff\n"
    "of the agent's. A file that is not as the agent got it is a conflict, and nothing is written\n"
    "then. Nothing is written to .git, through a link, or outside DIR; files named .env or "
    "cay.json,\n"
    "which servers read settings from, only with --include-secrets.\n\n"
    "The exit status is 0 if the agent says that it is done, 1 if it does not, 3 if it is done "
    "but\n"
    "not all that it changed could be shown or written, 75 if there is a conflict.\n";

enum { EVENT_BYTES = 33 << 20 };

struct code_cli {
    const char *dir;
    json_t *ask;
    struct gather gather; /* the copy of the folder */
    bool json;
    bool apply;
    bool yes;
    bool overwrite;
    bool undo;
    struct own_server server;
    struct steps steps;
    json_t *end; /* the run, when it has ended */
};

/* --- the folder --- */

static int add_folder(struct code_cli *c, struct err *err) {
    if (!c->dir)
        return 0;
    int rc = gather_folder(&c->gather, c->dir, err);
    if (rc < 0)
        return rc;
    gather_show(&c->gather, stderr);
    (void)json_object_set(c->ask, "files", c->gather.files);
    if (!c->gather.ignored)
        (void)json_object_set_new(c->ask, "gitignore", json_true());
    if (c->apply)
        (void)json_object_set_new(c->ask, "changed_files", json_true());
    return 0;
}

/* --- what is shown --- */

static bool cli_code_on_event(void *ctx, const char *event, const char *data, size_t len) {
    struct code_cli *c = ctx;
    _cleanup_(json) json_t *j = json_read(data, len);
    if (event && strcmp(event, "end") == 0)
        c->end = json_incref(j);
    else if (event && j && !c->json)
        steps_show(&c->steps, event, j);
    return true;
}

static int cli_code_on_changes(void *ctx, const char *data, size_t len, struct err *err) {
    return apply_feed(ctx, data, len, err);
}

static bool ask_user(const struct apply *a) {
    char answer[16] = "";
    (void)fprintf(stderr, "Write %zu files to ", a->todo);
    terminal_print(stderr, a->dir, strlen(a->dir));
    (void)fputs("? [y/N] ", stderr);
    if (!fgets(answer, sizeof(answer), stdin))
        return false;
    return strcmp(answer, "y\n") == 0 || strcmp(answer, "yes\n") == 0;
}

/* The exit status, or a negative error. */
static int write_back(struct code_cli *c, const char *run, struct err *err) {
    _cleanup_(free) char *path = xasprintf("/v1/runs/%s/artifacts/changes.files", run);
    struct apply a;
    int rc = apply_init(&a, c->dir, c->gather.sent, c->overwrite, err);
    a.settings = c->gather.secrets;
    if (rc == 0) {
        rc = client_call(
            &c->server.client,
            &(struct client_call){
                .path = path, .accept = "*/*", .on_data = cli_code_on_changes, .ctx = &a},
            NULL, err);
        if (rc < 0)
            (void)err_wrap(err, "the changed files could not be read, and nothing was written");
    }
    if (rc == 0)
        rc = apply_plan(&a, err);
    bool wanted = false;
    if (rc == 0) {
        apply_show(&a, stderr);
        wanted = a.todo > 0 && (c->yes || (a.conflicts > 0 && !a.overwrite) || ask_user(&a));
    }
    if (rc == 0 && wanted)
        rc = apply_write(&a, stderr, err);
    if (rc == 0 && wanted && !c->json) {
        (void)printf("%zu files written to ", a.written);
        terminal_line(stdout, c->dir);
        (void)printf("`cay code --undo --dir ");
        terminal_print(stdout, c->dir, strlen(c->dir));
        (void)printf("` takes them back\n");
    }
    if (rc == 0 && a.todo > 0 && !wanted)
        (void)fputs("nothing was written\n", stderr);
    if (rc == 0 && a.left + a.refused > 0) {
        (void)fprintf(stderr, "cay: %zu files that changed were not written\n", a.left + a.refused);
        rc = EXIT_STATUS_NOT_ALL;
    }
    apply_finish(&a);
    return rc;
}

static void show_run(const struct code_cli *c, json_t *run, const json_t *detail) {
    if (c->json) {
        (void)json_object_del(run, "events");
        if (c->dir)
            (void)json_object_set_new(run, "not_copied", gather_left(&c->gather));
        terminal_json(run);
        return;
    }
    const char *diff = client_text(detail, "diff");
    if (*diff)
        (void)fputc('\n', stdout);
    terminal_print(stdout, diff, strlen(diff));
    const char *message = client_text(json_object_get(c->end, "error"), "message");
    if (strcmp(client_text(c->end, "status"), "done") != 0 && *message)
        terminal_say(stdout, "cay: ", message);
    if (json_is_true(json_object_get(detail, "kept")))
        terminal_say(stdout, "sandbox  ", client_text(detail, "sandbox"));
    (void)fflush(stdout);
}

static int cli_code_show_end(struct code_cli *c, struct err *err) {
    _cleanup_(free) char *path = xasprintf("/v1/runs/%s", client_text(c->end, "id"));
    _cleanup_(json) json_t *run = NULL;
    int rc = client_call(&c->server.client, &(struct client_call){.path = path}, &run, err);
    if (rc < 0)
        return rc;
    const json_t *detail = json_object_get(run, "detail");
    show_run(c, run, detail);
    bool whole = json_is_true(json_object_get(detail, "diff_is_whole"));
    if (!whole)
        terminal_say(stderr,
                     "cay: the diff is not all that changed: ", client_text(detail, "diff_note"));
    if (strcmp(client_text(c->end, "status"), "done") != 0)
        return 1;
    if (!c->apply)
        return whole ? 0 : EXIT_STATUS_NOT_ALL;
    return write_back(c, client_text(c->end, "id"), err);
}

static int cli_code_carry_out(struct code_cli *c, struct err *err) {
    int rc = client_call(&c->server.client,
                         &(struct client_call){.path = "/v1/code",
                                               .json = c->ask,
                                               .on_event = cli_code_on_event,
                                               .max_event_bytes = EVENT_BYTES,
                                               .ctx = c},
                         NULL, err);
    if (rc == 0 && !c->end)
        rc = err_set(err, ERR_UPSTREAM, "the server broke off");
    return rc < 0 ? rc : cli_code_show_end(c, err);
}

/* --- the command --- */

static const struct cli_option options[] = {
    OPTION(struct code_cli, "dir", 'd', TEXT, dir),
    OPTION(struct code_cli, "model", 'm', TEXT, ask, .key = "model"),
    OPTION(struct code_cli, "agent", 0, TEXT, ask, .key = "agent"),
    OPTION(struct code_cli, "repo", 0, TEXT, ask, .key = "repo"),
    OPTION(struct code_cli, "ref", 0, TEXT, ask, .key = "ref"),
    OPTION(struct code_cli, "credential", 0, TEXT, ask, .key = "credential"),
    OPTION(struct code_cli, "sandbox", 0, TEXT, ask, .key = "sandbox"),
    OPTION(struct code_cli, "max-steps", 0, COUNT, ask, .key = "max_steps", .min = 1,
           .wants = "a number of steps"),
    OPTION(struct code_cli, "timeout", 0, TIME, ask, .key = "timeout_ms"),
    OPTION(struct code_cli, "keep", 0, FLAG, ask, .key = "keep"),
    OPTION(struct code_cli, "apply", 0, FLAG, apply),
    OPTION(struct code_cli, "yes", 'y', FLAG, yes),
    OPTION(struct code_cli, "overwrite", 0, FLAG, overwrite),
    OPTION(struct code_cli, "undo", 0, FLAG, undo),
    OPTION(struct code_cli, "include-secrets", 0, FLAG, gather.secrets),
    OPTION(struct code_cli, "include-ignored", 0, FLAG, gather.ignored),
    OPTION(struct code_cli, "config", 0, TEXT, server.config),
    OPTION(struct code_cli, "url", 0, TEXT, server.url),
    OPTIONS_JSON(struct code_cli, json)};

static const struct cli_command command = {.name = "code",
                                           .usage = usage,
                                           .options = options,
                                           .noptions = ARRAY_LEN(options),
                                           .max_words = 1};

static int cli_code_run_it(struct code_cli *c, const char *spec, struct err *err) {
    _cleanup_(buf) struct buf text;
    buf_init(&text, 1 << 20);
    int rc = cli_read_text(spec, &text, "the spec", err);
    if (rc == 0 && json_object_set_new(c->ask, "spec", json_string(text.data ? text.data : "")) < 0)
        rc = err_set(err, ERR_BAD_REQUEST, "the spec is no text");
    if (rc == 0)
        rc = add_folder(c, err);
    if (rc == 0)
        rc = own_server_open(&c->server, "code", err);
    if (rc == 0)
        rc = cli_code_carry_out(c, err);
    own_server_close(&c->server);
    return rc;
}

/* -1: go on. */
static int check_usage(const struct code_cli *c, int words, const char *spec) {
    if (c->undo && (!c->dir || words != 0 || c->apply))
        return cli_usage("code", "--undo takes back what was written to --dir, and nothing else");
    if (c->undo)
        return -1;
    if (words != 1)
        return cli_usage("code", "say in one text what is to be done");
    if (c->apply && !c->dir)
        return cli_usage("code", "--apply writes back to --dir, which is missing");
    if (c->apply && !c->yes && (!isatty(STDIN_FILENO) || strcmp(spec, "-") == 0))
        return cli_usage("code", "--apply asks before it writes, and there is no terminal to ask "
                                 "at: add --yes");
    if (!own_server_url(&c->server) &&
        (json_object_get(c->ask, "keep") || json_object_get(c->ask, "sandbox")))
        return cli_usage("code", "--keep and --sandbox are of a server that goes on: name it by "
                                 "--url or CAY_URL");
    return -1;
}

int cli_code(int argc, char **argv) {
    struct code_cli c = {.ask = json_object()};
    gather_init(&c.gather);
    struct err err;
    int rc = cli_options(&command, &argc, argv, &c);
    if (rc < 0)
        rc = check_usage(&c, argc - 1, argv[1]);
    if (rc < 0) {
        rc = c.undo ? apply_undo(c.dir, stdout, &err) : cli_code_run_it(&c, argv[1], &err);
        if (rc < 0)
            rc = cli_fail(&err);
    }
    json_decref(c.ask);
    gather_finish(&c.gather);
    json_decref(c.end);
    return rc;
}
