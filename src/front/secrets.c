#include "front/secrets.h"

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

static int find(const char *name, size_t len) {
    for (int i = 0; i < SECRET_COUNT; i++)
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
            return i;
    return -1;
}

/* One line: NAME=value, NAME="value", optionally after "export "; "#" begins a comment line. */
static int read_line(struct secrets *s, const char *file, unsigned number, char *line,
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
    int which = find(line, (size_t)(eq - line));
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
        log_warn("env_file.unknown", "file", file, "name", line);
    } else if (!s->values[which] && *value) {
        s->values[which] = xstrdup(value);
    }
    return 0;
}

static int read_file(struct secrets *s, const char *file, struct err *err) {
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
        rc = read_line(s, file, ++number, line, err);
        line = lf ? lf + 1 : NULL;
    }
    if (text.data)
        mem_wipe(text.data, text.cap);
    buf_finish(&text);
    return rc;
}

int secrets_load(struct secrets *s, const char *env_file, struct err *err) {
    *s = (struct secrets){0};
    for (int i = 0; i < SECRET_COUNT; i++) {
        const char *v = getenv(names[i]);
        if (v && *v)
            s->values[i] = xstrdup(v);
        /* The text itself goes too, of every entry of that name: it is what /proc/PID/environ
         * shows. */
        size_t n = strlen(names[i]);
        for (char **e = environ; e && *e; e++)
            if (strncmp(*e, names[i], n) == 0 && (*e)[n] == '=')
                mem_wipe(*e + n + 1, strlen(*e + n + 1));
        (void)unsetenv(names[i]);
    }
    return env_file ? read_file(s, env_file, err) : 0;
}

void secrets_finish(struct secrets *s) {
    for (int i = 0; i < SECRET_COUNT; i++) {
        if (s->values[i])
            mem_wipe(s->values[i], strlen(s->values[i]));
        free(s->values[i]);
        s->values[i] = NULL;
    }
}

void secrets_protect_process(void) {
    struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}
