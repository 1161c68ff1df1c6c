#pragma once
/* The options of the commands, by tables: what each takes, where its value goes, and what is said
 * when it is wrong. Options may stand anywhere before "--"; `--name=value`, `-xvalue` and a
 * beginning of a long name that fits one only are understood. Every command has --help. */

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_kind {
    OPTION_FLAG,   /* bool */
    OPTION_TEXT,   /* const char * */
    OPTION_COUNT,  /* int64_t, not below min */
    OPTION_AMOUNT, /* double above 0; with a min of -1, 0 too */
    OPTION_TIME,   /* int64_t, milliseconds */
    OPTION_SIZE,   /* int64_t, bytes */
    OPTION_FORMAT, /* bool; the value is "json" */
    OPTION_CALL,   /* set() */
};

struct cli_option {
    const char *name;
    char letter; /* 0: it has no short form */
    enum option_kind kind;
    size_t at;         /* in the struct of the arguments */
    const char *key;   /* the value becomes this member of the json_t object that is there; NULL: it
                          goes there itself */
    int64_t min;       /* of COUNT, TIME, SIZE, AMOUNT */
    const char *wants; /* "a size: 256m, 4g", for the error; NULL: as the kind says */
    /* Of CALL. A wrong value is ERR_BAD_REQUEST. */
    int (*set)(void *args, const struct cli_option *o, const char *value, struct err *err);
};

/* OPTION(struct run_args, "timeout", 't', TIME, timeout_ms, .min = 1000) */
#define OPTION(args, text, short_form, what, field, ...)                                           \
    {                                                                                              \
        .name = text, .letter = (short_form), .kind = OPTION_##what, .at = offsetof(args, field),  \
        ##__VA_ARGS__                                                                              \
    }
/* --json, and -o json, which means the same. Errors are JSON too then. */
#define OPTIONS_JSON(args, field)                                                                  \
    OPTION(args, "json", 0, FLAG, field), OPTION(args, "output", 'o', FORMAT, field)

struct cli_command {
    const char *name;  /* "run", "sandbox ls" */
    const char *usage; /* the text of --help; NULL: help() prints it */
    void (*help)(const void *args);
    const char *synopsis; /* is shown when something is wrong; NULL: where help is */
    const struct cli_option *options;
    size_t noptions;
    /* A command to run follows: its first word, which is the one of this number, ends our options.
     * 0: there is none. */
    int command_word;
    int min_words;
    int max_words;       /* -1: any number */
    const char *missing; /* what is said below min_words */
    const char *unknown; /* what is added about an option that there is not; or NULL */
};

/* Reads the options into args. Returns -1 to go on, with the other words in argv[1] to
 * argv[*argc - 1]; else the exit status: help was printed, or what is wrong. */
int cli_options(const struct cli_command *c, int *argc, char **argv, void *args);
/* Whether --json was among them: errors are JSON then. */
bool cli_wants_json(void);
