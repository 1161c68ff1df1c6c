#include "front/cli/steps.h"

#include "base/cleanup.h"
#include "front/cli/client.h"
#include "front/cli/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void show_step(const json_t *j) {
    _cleanup_(free) char *args = json_dumps(json_object_get(j, "args"), JSON_COMPACT);
    (void)printf("%2lld  ", (long long)json_integer_value(json_object_get(j, "step")));
    terminal_print(stdout, client_text(j, "tool"), strlen(client_text(j, "tool")));
    terminal_say(stdout, "  ", args ? args : "");
}

static void cli_steps_show_output(struct steps *s, const char *text) {
    size_t n = strlen(text);
    terminal_print(stdout, text, n);
    if (n > 0)
        s->open = text[n - 1] != '\n';
}

/* Output has its own lines; all else begins one. */
static void cli_steps_end_line(struct steps *s) {
    if (s->open)
        (void)fputc('\n', stdout);
    s->open = false;
}

static void show_step_end(const json_t *j) {
    const char *error = client_text(j, "error");
    (void)printf("    %s, %lld ms%s", json_is_true(json_object_get(j, "ok")) ? "ok" : "failed",
                 (long long)json_integer_value(json_object_get(j, "ms")), *error ? ": " : "");
    terminal_say(stdout, "", error);
}

void steps_show(struct steps *s, const char *type, const json_t *j) {
    static const struct {
        const char *type;
        const char *before;
        const char *key;
    } plain[] = {
        {"clone", "clone  ", "repo"},  {"cloned", "commit  ", "commit"},
        {"start", "model  ", "model"}, {"thought", "    ", "text"},
        {"text", "    ", "text"},      {"retry", "    ", "message"},
        {"repair", "    ", "message"}, {"error", "    ", "message"},
        {"done", "done  ", "summary"}, {"failed", "failed  ", "message"},
    };
    if (strcmp(type, "output") == 0)
        cli_steps_show_output(s, client_text(j, "text"));
    else
        cli_steps_end_line(s);
    if (strcmp(type, "step_begin") == 0)
        show_step(j);
    if (strcmp(type, "step_end") == 0)
        show_step_end(j);
    for (size_t i = 0; i < ARRAY_LEN(plain); i++)
        if (strcmp(type, plain[i].type) == 0)
            terminal_say(stdout, plain[i].before, client_text(j, plain[i].key));
    (void)fflush(stdout);
}
