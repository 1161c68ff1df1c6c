#pragma once
/* A file of settings looked at closely: every mistake in it with its line, and where each value
 * comes from. */

#include "front/config/config.h"

struct config_mistake {
    size_t line;     /* 0: not known */
    const char *key; /* "limits.run_wall_ms"; NULL: the file as a whole */
    const char *message;
};

/* Calls on_mistake for each; returns how many there are, or negative if the file cannot be read. */
int config_check(const char *path, void (*on_mistake)(void *ctx, const struct config_mistake *m),
                 void *ctx, struct err *err);

/* One setting as it is in force. */
struct config_value {
    const char *key;
    const char *value;  /* JSON */
    const char *source; /* "cay.json:12", "MAX_EXECUTION_TIME", "default", ... */
};
/* c was loaded from that file (NULL: none), and is complete. */
int config_show(struct config *c, const char *path,
                void (*on_value)(void *ctx, const struct config_value *v), void *ctx,
                struct err *err);

/* The line (from 1 on) on which the text of a JSON object has the key, or section and key; 0 if it
 * has not. */
size_t config_line(const char *text, const char *section, const char *key);
