#pragma once
/* The command line: one file per verb. A verb gets its own arguments (argv[0] is its name) and
 * returns the exit status. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct verb {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
};

int cli_serve(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_key(int argc, char **argv);
int cli_project(int argc, char **argv);
int cli_config(int argc, char **argv);
int cli_prune(int argc, char **argv);
int cli_run(int argc, char **argv);
int cli_chat(int argc, char **argv);
int cli_exec(int argc, char **argv);
int cli_code(int argc, char **argv);
int cli_execute(int argc, char **argv);
int cli_sandbox(int argc, char **argv);
int cli_vercel(int argc, char **argv);
int cli_task(int argc, char **argv);
int cli_db(int argc, char **argv);
int cli_usage_table(int argc, char **argv);

/* Writes "cay: message" to standard error, or with --json {"error":{"code","message"}}, and returns
 * the exit status of the error. */
int cli_fail(const struct err *err);
/* The same for wrong usage: adds where help is. */
int cli_usage(const char *verb, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same with what is right, instead of where help is: NULL is allowed. */
int cli_usage_with(const char *verb, const char *synopsis, const char *message);
/* Which of the names (the last is NULL) the word is; -1: it was said that it is none of them. */
int cli_choose(const char *verb, const char *word, const char *const *names);
/* Files that root makes in the data folder would be closed to the server: acts as its owner. */
int cli_become_owner(const char *dir, struct err *err);
/* The settings of a command. ./cay.json is not among them unless --config names it: the folder may
 * be one that was downloaded, or that an agent wrote. The default is /etc/cay/cay.json; if there is
 * a ./cay.json, that is said on stderr; a command that would write where it says is refused. */
struct config;
enum cli_settings { CLI_SETTINGS_READ, CLI_SETTINGS_WRITE };
int cli_config_load(struct config *c, const char *verb, const char *named, enum cli_settings use,
                    struct err *err);
/* The note on stderr, if there is such a file in this folder. */
void cli_note_unread(const char *verb, const char *name);
/* Where the sibling programs are: beside cay, or ../libexec/cay. The caller frees. */
char *cli_sibling_dir(void);
/* Opens one of them to be started; a descriptor, or below 0. */
int cli_open_sibling(const char *name, struct err *err);
/* A text of the command line, or of the standard input if it is "-"; what names it in errors. */
struct buf;
int cli_read_text(const char *text, struct buf *out, const char *what, struct err *err);
/* "500ms", "10s", "2m", "1h"; a bare number is seconds. */
bool cli_parse_time(const char *text, int64_t *ret_ms);
/* "64m", "1g", "4096"; powers of 1024. */
bool cli_parse_size(const char *text, int64_t *ret_bytes);
