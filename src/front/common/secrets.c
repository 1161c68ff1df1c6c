#include "front/common/secrets.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const names[SECRET_COUNT] = {
    [SECRET_ANTHROPIC_API_KEY] = "ANTHROPIC_API_KEY",
    [SECRET_ANTHROPIC_AUTH_TOKEN] = "ANTHROPIC_AUTH_TOKEN",
    [SECRET_ANTHROPIC_BASE_URL] = "ANTHROPIC_BASE_URL",
    [SECRET_OPENAI_API_KEY] = "OPENAI_API_KEY",
    [SECRET_OPENAI_BASE_URL] = "OPENAI_BASE_URL",
    [SECRET_OPENAI_ORG_ID] = "OPENAI_ORG_ID",
    [SECRET_OPENAI_PROJECT_ID] = "OPENAI_PROJECT_ID",
};

const char *secret_name(enum secret which) {
    return names[which];
}

static int secrets_find(const char *name, size_t len) {
    for (int i = 0; i < SECRET_COUNT; i++)
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
            return i;
    return -1;
}

static void add_extra(struct secrets *s, const char *name, const char *value) {
    s->extras = xrealloc(s->extras, (s->nextras + 1) * sizeof(*s->extras));
    s->extras[s->nextras++] = (struct secret_extra){.name = xstrdup(name), .value = xstrdup(value)};
}

/* One line: NAME=value, NAME="value", optionally after "export "; "#" begins a comment line. */
static int secrets_read_line(struct secrets *s, const char *file, unsigned number, char *line,
                             struct err *err) {
    while (*line == ' ' || *line == '\t')
        line++;
    if (*line == 0 || *line == '#')
        return 0;
    if (strncmp(line, "export ", 7) == 0)
        line += 7;
    char *eq = strchr(line, '=');
    if (!eq || eq == line)
        return err_set(err, ERR_BAD_REQUEST, "%s: line %u is not NAME=value", file, number);
    int which = secrets_find(line, (size_t)(eq - line));
    char *value = eq + 1;
    size_t n = strlen(value);
    while (n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\r' || value[n - 1] == '\t'))
        value[--n] = 0;
    if (n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n - 1] == value[0]) {
        value[n - 1] = 0;
        value++;
    }
    if (which < 0) {
        *eq = 0;
        add_extra(s, line, value);
    } else if (!s->values[which] && *value) {
        s->values[which] = xstrdup(value);
    }
    return 0;
}

static int secrets_read_file(struct secrets *s, const char *file, struct err *err) {
    struct stat st;
    if (stat(file, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : err_sys(err, "read %s", file);
    if (st.st_mode & 077)
        log_warn("env_file.open_to_others", "file", file, "advice", "chmod 600 it");
    struct buf text;
    buf_init(&text, 65536);
    int rc = fd_read_file(AT_FDCWD, file, &text, err);
    unsigned number = 0;
    for (char *line = text.data; rc == 0 && line;) {
        char *lf = strchr(line, '\n');
        if (lf)
            *lf = 0;
        rc = secrets_read_line(s, file, ++number, line, err);
        line = lf ? lf + 1 : NULL;
    }
    if (text.data)
        mem_wipe(text.data, text.cap);
    buf_finish(&text);
    return rc;
}

/* The text itself goes too, of every entry of that name: it is what /proc/PID/environ shows. */
static char *take_env(const char *name) {
    const char *v = getenv(name);
    char *copy = v && *v ? xstrdup(v) : NULL;
    size_t n = strlen(name);
    for (char **e = environ; e && *e; e++)
        if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
            mem_wipe(*e + n + 1, strlen(*e + n + 1));
    (void)unsetenv(name);
    return copy;
}

int secrets_load(struct secrets *s, const char *env_file, struct err *err) {
    *s = (struct secrets){0};
    for (int i = 0; i < SECRET_COUNT; i++)
        s->values[i] = take_env(names[i]);
    if (!env_file)
        return 0;
    s->file = xstrdup(env_file);
    return secrets_read_file(s, env_file, err);
}

const char *secrets_take(struct secrets *s, const char *name) {
    int which = secrets_find(name, strlen(name));
    if (which >= 0)
        return s->values[which];
    char *v = take_env(name);
    if (v) {
        add_extra(s, name, v); /* the last one of a name wins */
        mem_wipe(v, strlen(v));
        free(v);
    }
    const char *found = NULL;
    for (size_t i = 0; i < s->nextras; i++)
        if (strcmp(s->extras[i].name, name) == 0) {
            s->extras[i].used = true;
            found = s->extras[i].value;
        }
    return found;
}

void secrets_warn_unused(const struct secrets *s) {
    for (size_t i = 0; i < s->nextras; i++)
        if (!s->extras[i].used)
            log_warn("env_file.unknown", "file", s->file ? s->file : "", "name", s->extras[i].name);
}

void secrets_finish(struct secrets *s) {
    for (int i = 0; i < SECRET_COUNT; i++) {
        if (s->values[i])
            mem_wipe(s->values[i], strlen(s->values[i]));
        free(s->values[i]);
        s->values[i] = NULL;
    }
    for (size_t i = 0; i < s->nextras; i++) {
        mem_wipe(s->extras[i].value, strlen(s->extras[i].value));
        free(s->extras[i].value);
        free(s->extras[i].name);
    }
    free(s->extras);
    free(s->file);
    *s = (struct secrets){0};
}

void secrets_protect_process(void) {
    struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}
