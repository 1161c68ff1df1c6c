#include "front/code/definition.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/json_table.h"
#include "base/mem.h"
#include "base/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES = 256 << 10, DEFS_MAX = 64, VALUES_MAX = 128, FILLED_BYTES = 1 << 20 };

static const char *const dialects[CODER_DIALECT_COUNT] = {
    [CODER_DIALECT_ANTHROPIC] = "anthropic", [CODER_DIALECT_OPENAI] = "openai"};

const char *coder_dialect_name(enum coder_dialect dialect) {
    return dialects[dialect];
}

/* --- placeholders --- */

static const char *const places[] = {
    "dir",       "spec",       "model",         "dialect",
    "max_steps", "timeout_ms", "system_prompt", "append_system_prompt"};

static const char *const options[CODER_OPTION_COUNT] = {
    [CODER_OPTION_WORK] = "work",
    [CODER_OPTION_PLAN] = "plan",
    [CODER_OPTION_SYSTEM_PROMPT] = "system_prompt",
    [CODER_OPTION_APPEND_PROMPT] = "append_system_prompt",
};

static char *value_of(const struct coder_fill *f, size_t place) {
    switch (place) {
    case 0:
        return xstrdup(f->dir);
    case 1:
        return xstrdup(f->spec);
    case 2:
        return xstrdup(f->model);
    case 3:
        return xstrdup(coder_dialect_name(f->dialect));
    case 4:
        return xasprintf("%lld", (long long)f->max_steps);
    case 5:
        return xasprintf("%lld", (long long)f->timeout_ms);
    case 6:
        return xstrdup(f->system_prompt ? f->system_prompt : "");
    default:
        return xstrdup(f->append_system_prompt ? f->append_system_prompt : "");
    }
}

/* The number of the placeholder that "${NAME}" is, and its length; ARRAY_LEN(places): none. */
static size_t code_definition_find_place(const char *text, size_t *ret_len) {
    size_t i = 0;
    for (; i < ARRAY_LEN(places); i++) {
        size_t n = strlen(places[i]);
        if (strncmp(text + 2, places[i], n) == 0 && text[2 + n] == '}') {
            *ret_len = n + 3;
            break;
        }
    }
    return i;
}

static int check_places(const char *text, struct err *err) {
    size_t n;
    while ((text = strstr(text, "${"))) {
        if (code_definition_find_place(text, &n) == ARRAY_LEN(places))
            return err_set(err, ERR_BAD_REQUEST,
                           "\"%.40s\" is no placeholder; there are ${dir}, ${spec}, ${model}, "
                           "${dialect}, ${max_steps}, ${timeout_ms}, ${system_prompt} and "
                           "${append_system_prompt}",
                           text);
        text += n;
    }
    return 0;
}

/* What a value holds is never looked at again, and never split. */
static char *fill_in(const char *text, const struct coder_fill *f) {
    struct buf b;
    size_t n = 0;
    buf_init(&b, FILLED_BYTES);
    for (const char *at; (at = strstr(text, "${")); text = at + n) {
        _cleanup_(free) char *value = value_of(f, code_definition_find_place(at, &n));
        (void)buf_add(&b, text, (size_t)(at - text));
        (void)buf_add_str(&b, value);
    }
    (void)buf_add_str(&b, text);
    char *filled = buf_steal(&b, NULL);
    return filled ? filled : xstrdup("");
}

static void add_arguments(struct exec_request *r, const json_t *list,
                          const struct coder_fill *fill) {
    size_t i;
    const json_t *v;
    json_array_foreach(list, i, v) {
        _cleanup_(free) char *text = fill_in(json_string_value(v), fill);
        sandbox_strv_add(&r->argv, text);
    }
}

bool coder_def_has_option(const struct coder_def *d, enum coder_option option) {
    return json_object_get(d->options, options[option]) != NULL;
}

void coder_def_command(const struct coder_def *d, const struct coder_fill *fill,
                       struct exec_request *ret) {
    const char *name;
    json_t *v;
    _cleanup_(free) char *program = xasprintf("%s/%s", d->mount, d->program);
    *ret = (struct exec_request){0};
    sandbox_strv_add(&ret->argv, program);
    add_arguments(ret, d->arguments, fill);
    for (unsigned i = 0; i < CODER_OPTION_COUNT; i++)
        if (fill->options & 1U << i)
            add_arguments(ret, json_object_get(d->options, options[i]), fill);
    json_object_foreach(d->environment, name, v) {
        _cleanup_(free) char *text = fill_in(json_string_value(v), fill);
        exec_request_add_env(ret, name, text);
    }
    if (d->spec_is_input) {
        ret->in.text = fill->spec;
        ret->in.len = strlen(fill->spec);
    }
}

/* --- a file --- */

static bool code_definition_is_plain(const json_t *v) {
    const char *s = json_string_value(v);
    return s && strlen(s) == json_string_length(v);
}

static int check_arguments(const json_t *list, const char *what, struct err *err) {
    size_t i;
    const json_t *v;
    int rc = 0;
    if (!json_is_array(list) || json_array_size(list) > VALUES_MAX)
        return err_set(err, ERR_BAD_REQUEST, "\"%s\" must be a list of at most %d strings", what,
                       VALUES_MAX);
    json_array_foreach(list, i, v) {
        if (rc == 0)
            rc = code_definition_is_plain(v)
                     ? check_places(json_string_value(v), err)
                     : err_set(err, ERR_BAD_REQUEST, "%s[%zu] is no string", what, i);
    }
    return rc;
}

static int code_definition_read_options(struct coder_def *d, const json_t *given, struct err *err) {
    const char *known[CODER_OPTION_COUNT + 1] = {NULL};
    const char *name;
    json_t *list;
    memcpy((void *)known, (const void *)options, sizeof(options));
    int rc = given ? json_check_keys(given, "\"options\"", known, err) : 0;
    json_object_foreach((json_t *)(uintptr_t)given, name, list) {
        if (rc == 0)
            rc = check_arguments(list, name, err);
    }
    d->options = given ? json_incref((json_t *)(uintptr_t)given) : json_object();
    return rc;
}

static int code_definition_read_texts(struct coder_def *d, const json_t *arguments,
                                      const json_t *environment, struct err *err) {
    const char *name;
    json_t *v;
    int rc = check_arguments(arguments, "arguments", err);
    if (rc < 0)
        return rc;
    if (json_object_size(environment) > VALUES_MAX)
        return err_set(err, ERR_BAD_REQUEST,
                       "\"environment\" must be an object of at most %d strings", VALUES_MAX);
    json_object_foreach((json_t *)(uintptr_t)environment, name, v) {
        if (rc == 0)
            rc = *name && !strchr(name, '=') && code_definition_is_plain(v)
                     ? check_places(json_string_value(v), err)
                     : err_set(err, ERR_BAD_REQUEST, "\"environment\": %.60s is no string", name);
    }
    d->arguments = json_incref((json_t *)(uintptr_t)arguments);
    d->environment = environment ? json_incref((json_t *)(uintptr_t)environment) : json_object();
    return rc;
}

static int read_dialects(struct coder_def *d, const json_t *list, struct err *err) {
    size_t i;
    const json_t *v;
    json_array_foreach(list, i, v) {
        const char *text = code_definition_is_plain(v) ? json_string_value(v) : "";
        for (unsigned k = 0; k < CODER_DIALECT_COUNT; k++)
            if (strcmp(text, dialects[k]) == 0)
                d->dialects |= 1U << k;
    }
    if (!json_is_array(list) || (size_t)__builtin_popcount(d->dialects) != json_array_size(list) ||
        d->dialects == 0)
        return err_set(err, ERR_BAD_REQUEST,
                       "\"dialects\" must be a list of \"anthropic\" and \"openai\"");
    return 0;
}

static bool is_tidy(const char *path) {
    return !strstr(path, "//") && !strstr(path, "/./") && !strstr(path, "..") &&
           path[strlen(path) - 1] != '/';
}

/* What a definition must have, as its file has it. */
struct coder_def_wire {
    const char *title, *description, *program, *mount, *lines;
    enum { CODER_DEF_NO, CODER_DEF_YES, CODER_DEF_UNSET } own, spec_is_input;
    const json_t *arguments, *environment, *dialects, *options;
    int64_t memory_mb;
    bool demo;
};

static int code_definition_check(const struct coder_def_wire *w, struct err *err) {
    const struct {
        const char *key, *text;
    } needed[] = {{"title", w->title},
                  {"description", w->description},
                  {"program", w->program},
                  {"mount", w->mount},
                  {"find", w->own == CODER_DEF_UNSET ? NULL : "set"},
                  {"stdin", w->spec_is_input == CODER_DEF_UNSET ? NULL : "set"}};
    for (size_t i = 0; i < ARRAY_LEN(needed); i++)
        if (!needed[i].text || !*needed[i].text)
            return err_set(err, ERR_BAD_REQUEST, "\"%s\" is missing", needed[i].key);
    if (*w->program == '/' || !is_tidy(w->program))
        return err_set(err, ERR_BAD_REQUEST, "\"program\" must be a path below its folder");
    if (*w->mount != '/' || !is_tidy(w->mount))
        return err_set(err, ERR_BAD_REQUEST, "\"mount\" must be an absolute path");
    if (coder_lines_find(w->lines) == CODER_LINES_COUNT)
        return err_set(err, ERR_BAD_REQUEST,
                       "\"lines\" must be \"cay\", \"claude-stream-json\" or \"text\"");
    return 0;
}

static int code_definition_read_def(struct coder_def *d, const json_t *root, struct err *err) {
    static const char *const finds[] = {"setting", "own"};
    static const char *const inputs[] = {"none", "spec"};
    static const struct json_field table[] = {
        JSON_TEXT("title", struct coder_def_wire, title),
        JSON_TEXT("description", struct coder_def_wire, description),
        JSON_TEXT("program", struct coder_def_wire, program),
        JSON_ENUM("find", struct coder_def_wire, own, finds),
        JSON_TEXT("mount", struct coder_def_wire, mount),
        JSON_LIST("arguments", struct coder_def_wire, arguments),
        JSON_MAP("environment", struct coder_def_wire, environment),
        JSON_ENUM("stdin", struct coder_def_wire, spec_is_input, inputs),
        JSON_LIST("dialects", struct coder_def_wire, dialects),
        JSON_TEXT("lines", struct coder_def_wire, lines),
        JSON_INT("memory_mb", struct coder_def_wire, memory_mb, 1, 1 << 20),
        JSON_BOOL("demo", struct coder_def_wire, demo),
        JSON_MAP("options", struct coder_def_wire, options),
    };
    struct coder_def_wire w = {
        .lines = "", .own = CODER_DEF_UNSET, .spec_is_input = CODER_DEF_UNSET};
    int rc = json_table_read(table, ARRAY_LEN(table), root, "the definition", &w, err);
    if (rc == 0)
        rc = code_definition_check(&w, err);
    if (rc < 0)
        return rc;
    d->title = xstrdup(w.title);
    d->description = xstrdup(w.description);
    d->program = xstrdup(w.program);
    d->mount = xstrdup(w.mount);
    d->own = w.own == CODER_DEF_YES;
    d->spec_is_input = w.spec_is_input == CODER_DEF_YES;
    d->lines = coder_lines_find(w.lines);
    d->memory_mb = w.memory_mb;
    d->demo = w.demo;
    rc = code_definition_read_texts(d, w.arguments, w.environment, err);
    if (rc == 0)
        rc = code_definition_read_options(d, w.options, err);
    return rc == 0 ? read_dialects(d, w.dialects, err) : rc;
}

static int code_definition_read_file(const char *dir, const char *file, struct coder_def *d,
                                     struct err *err) {
    _cleanup_(free) char *path = path_join(dir, file);
    _cleanup_(buf) struct buf text;
    _cleanup_(json) json_t *root = NULL;
    buf_init(&text, FILE_BYTES);
    int rc = fd_read_file(AT_FDCWD, path, &text, err);
    if (rc < 0)
        return rc;
    rc = json_parse(text.data ? text.data : "", text.len, path, &root, err);
    if (rc < 0)
        return rc;
    rc = code_definition_read_def(d, root, err);
    return rc < 0 ? err_wrap(err, "%s", path) : 0;
}

/* --- a folder of them --- */

static void code_definition_free_def(struct coder_def *d) {
    free(d->title);
    free(d->description);
    free(d->program);
    free(d->mount);
    json_decref(d->arguments);
    json_decref(d->environment);
    json_decref(d->options);
    free(d->found);
    fd_close(&d->fd);
    free(d);
}

void coder_defs_free(struct coder_def *list) {
    while (list) {
        struct coder_def *d = list;
        list = d->next;
        code_definition_free_def(d);
    }
}

const struct coder_def *coder_defs_find(const struct coder_def *list, const char *name) {
    while (list && strcmp(list->name, name) != 0)
        list = list->next;
    return list;
}

/* By name; a later one of the same name takes the place of the former. */
static void code_definition_insert(struct coder_def **list, struct coder_def *d) {
    while (*list && strcmp((*list)->name, d->name) < 0)
        list = &(*list)->next;
    struct coder_def *after = *list;
    if (after && strcmp(after->name, d->name) == 0) {
        *list = after->next;
        code_definition_free_def(after);
    }
    d->next = *list;
    *list = d;
}

static bool code_definition_read_name(const char *file, char ret_name[CODER_DEF_NAME_MAX + 1]) {
    size_t n = strspn(file, "abcdefghijklmnopqrstuvwxyz0123456789-");
    if (n == 0 || n > CODER_DEF_NAME_MAX || strcmp(file + n, ".json") != 0)
        return false;
    memcpy(ret_name, file, n);
    ret_name[n] = 0;
    return true;
}

static int load_file(const char *dir, const char *file, struct coder_def **list, struct err *err) {
    size_t n = strlen(file);
    if (n < 5 || strcmp(file + n - 5, ".json") != 0)
        return 0;
    struct coder_def *d = xcalloc(1, sizeof(*d));
    d->fd = -1;
    int rc = code_definition_read_name(file, d->name)
                 ? code_definition_read_file(dir, file, d, err)
                 : err_set(err, ERR_BAD_REQUEST,
                           "%s/%.80s: an agent's name has up to %d of a-z, 0-9 and \"-\"", dir,
                           file, CODER_DEF_NAME_MAX);
    if (rc < 0)
        code_definition_free_def(d);
    else
        code_definition_insert(list, d);
    return rc;
}

static int load_dir(const char *dir, struct coder_def **list, struct err *err) {
    DIR *d = opendir(dir);
    const struct dirent *e;
    int rc = 0;
    size_t n = 0;
    if (!d)
        return err_sys(err, "the folder of agents %s (setting coders_dir)", dir);
    while (rc == 0 && (e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        rc = n++ < DEFS_MAX ? load_file(dir, e->d_name, list, err)
                            : err_set(err, ERR_LIMIT, "%s has more than %d files", dir, DEFS_MAX);
    }
    (void)closedir(d);
    return rc;
}

/* --- their programs --- */

/* A program that stands alone: bound by itself, it finds nothing beside it. */
static int check_alone(const char *path, struct err *err) {
    _cleanup_(close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char head[4] = "";
    if (fd >= 0 && read(fd, head, sizeof(head)) == (ssize_t)sizeof(head) &&
        memcmp(head, "\177ELF", 4) != 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "%.200s is a script, which needs what lies beside it: name its folder in "
                       "the setting \"coders\"",
                       path);
    return 0;
}

/* Takes the path if it is a program, or a folder that has it. */
static int code_definition_take(struct coder_def *d, const char *path, const char *by,
                                struct err *err) {
    struct stat st;
    _cleanup_(close) int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "%.200s", path);
    bool folder = S_ISDIR(st.st_mode);
    if (folder ? faccessat(fd, d->program, X_OK, AT_EACCESS) < 0
               : !S_ISREG(st.st_mode) || (st.st_mode & 0111) == 0)
        return err_set(err, ERR_NOT_FOUND, "%.200s%s%.80s is no program that can be started", path,
                       folder ? "/" : "", folder ? d->program : "");
    int rc = folder || d->own ? 0 : check_alone(path, err);
    if (rc < 0)
        return rc;
    d->found = xstrdup(path);
    d->is_folder = folder;
    d->by = by;
    d->fd = steal_fd(&fd);
    return 0;
}

static int code_definition_search(struct coder_def *d, const char *path, struct err *err) {
    if (strchr(d->program, '/'))
        path = NULL;
    while (path && *path) {
        size_t n = strcspn(path, ":");
        _cleanup_(free) char *dir = xstrndup(path, n);
        _cleanup_(free) char *file = path_join(dir, d->program);
        _cleanup_(free) char *real = n > 0 && *dir == '/' ? realpath(file, NULL) : NULL;
        if (real && faccessat(AT_FDCWD, real, X_OK, AT_EACCESS) == 0)
            return code_definition_take(d, real, "PATH", err);
        path += n + (path[n] == ':');
    }
    return err_set(err, ERR_NOT_FOUND,
                   "its program \"%.60s\" is not in PATH: install it, or name it or its folder in "
                   "the setting \"coders\": {\"%s\": \"/path\"}",
                   d->program, d->name);
}

static void code_definition_find_program(struct coder_def *d, const struct coder_places *p) {
    const char *set = json_string_value(json_object_get(p->programs, d->name));
    int rc;
    if (set) {
        rc = code_definition_take(d, set, "setting", &d->why);
    } else if (d->own) {
        _cleanup_(free) char *path = path_join(p->own, d->program);
        rc = code_definition_take(d, path, "own", &d->why);
    } else {
        rc = code_definition_search(d, p->path, &d->why);
    }
    if (rc == 0)
        d->why = (struct err){0};
}

static int check_programs(const struct coder_def *list, const json_t *programs, struct err *err) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)programs, name, v) {
        if (!coder_defs_find(list, name))
            return err_set(err, ERR_BAD_REQUEST, "\"coders\": there is no agent \"%.60s\"", name);
        if (!code_definition_is_plain(v) || *json_string_value(v) != '/')
            return err_set(err, ERR_BAD_REQUEST, "\"coders\": \"%.60s\" must be an absolute path",
                           name);
    }
    return 0;
}

int coder_defs_load(const struct coder_places *p, struct coder_def **ret_list, struct err *err) {
    struct coder_def *list = NULL;
    int rc = p->shipped ? load_dir(p->shipped, &list, err) : 0;
    if (rc == 0 && p->added)
        rc = load_dir(p->added, &list, err);
    if (rc == 0)
        rc = check_programs(list, p->programs, err);
    if (rc < 0) {
        coder_defs_free(list);
        return rc;
    }
    for (struct coder_def *d = list; d; d = d->next)
        code_definition_find_program(d, p);
    *ret_list = list;
    return 0;
}

char *coder_def_bind_path(const struct coder_def *d) {
    return d->is_folder ? xstrdup(d->mount) : path_join(d->mount, d->program);
}
