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
int cli_usage_table(int argc, char **argv);

/* Writes "cay: message" to standard error and returns the exit status of the error. */
int cli_fail(const struct err *err);
/* The same for wrong usage: adds where help is. */
int cli_usage(const char *verb, const char *message);
/* Files that root makes in the data folder would be closed to the server: acts as its owner. */
int cli_become_owner(const char *dir, struct err *err);
/* Where the sibling programs are: beside cay, or ../libexec/cay. The caller frees. */
char *cli_sibling_dir(void);
/* A text of the command line, or of the standard input if it is "-"; what names it in errors. */
struct buf;
int cli_read_text(const char *text, struct buf *out, const char *what, struct err *err);
/* "500ms", "10s", "2m", "1h"; a bare number is seconds. */
bool cli_parse_time(const char *text, int64_t *ret_ms);
/* "64m", "1g", "4096"; powers of 1024. */
bool cli_parse_size(const char *text, int64_t *ret_bytes);
