#include "front/cli/steps.h"

#include "base/cleanup.h"
#include "front/cli/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *j, const char *key) {
    const char *s = json_string_value(json_object_get(j, key));
    return s ? s : "";
}

static void say(const char *before, const char *text) {
    (void)fputs(before, stdout);
    terminal_print(stdout, text, strlen(text));
    (void)fputc('\n', stdout);
}

static void show_step(const json_t *j) {
    _cleanup_(free) char *args = json_dumps(json_object_get(j, "args"), JSON_COMPACT);
    (void)printf("%2lld  ", (long long)json_integer_value(json_object_get(j, "step")));
    terminal_print(stdout, text_of(j, "tool"), strlen(text_of(j, "tool")));
    say("  ", args ? args : "");
}

void steps_show(const char *type, const json_t *j) {
    if (strcmp(type, "start") == 0)
        say("model  ", text_of(j, "model"));
    else if (strcmp(type, "thought") == 0 || strcmp(type, "text") == 0)
        say("    ", text_of(j, "text"));
    else if (strcmp(type, "step_begin") == 0)
        show_step(j);
    else if (strcmp(type, "output") == 0)
        terminal_print(stdout, text_of(j, "text"), strlen(text_of(j, "text")));
    else if (strcmp(type, "step_end") == 0)
        (void)printf("    %s, %lld ms\n", json_is_true(json_object_get(j, "ok")) ? "ok" : "failed",
                     (long long)json_integer_value(json_object_get(j, "ms")));
    else if (strcmp(type, "retry") == 0 || strcmp(type, "repair") == 0 ||
             strcmp(type, "error") == 0)
        say("    ", text_of(j, "message"));
    else if (strcmp(type, "done") == 0)
        say("done  ", text_of(j, "summary"));
    else if (strcmp(type, "failed") == 0)
        say("failed  ", text_of(j, "message"));
    (void)fflush(stdout);
}
