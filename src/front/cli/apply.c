#include "front/cli/apply.h"

#include "base/base64.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/cli/folder.h"
#include "front/cli/gather.h"
#include "front/cli/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHOWN_MAX = 500, FILE_BYTES = 256 << 20, JOURNAL_BYTES = 64 << 20 };

/* --- what is in the folder --- */

/* The state of a path, as one text: "none", "file:HASH:x", "file:HASH:-", "link:TARGET", "other".
 */
static char *state_text(bool is_link, const char *data, size_t len, bool program) {
    char hash[GATHER_HASH_SIZE];
    gather_hash(data, len, hash);
    return xasprintf("%s:%s:%s", is_link ? "link" : "file", hash, program ? "x" : "-");
}

static int apply_read_whole(int parent, const char *name, const struct stat *st, struct buf *out,
                            struct err *err) {
    if (S_ISLNK(st->st_mode)) {
        char target[PATH_MAX];
        ssize_t n = readlinkat(parent, name, target, sizeof(target));
        if (n < 0)
            return err_sys(err, "read %s", name);
        (void)buf_add(out, target, (size_t)n);
        return 0;
    }
    struct stat now;
    _cleanup_(close) int fd =
        openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &now) < 0 || !S_ISREG(now.st_mode))
        return err_sys(err, "read %s", name);
    char data[65536];
    ssize_t n;
    while ((n = read(fd, data, sizeof(data))) > 0)
        if (!buf_add(out, data, (size_t)n))
            return err_set(err, ERR_TOO_LARGE, "%s has more than %d bytes", name, FILE_BYTES);
    return n < 0 ? err_sys(err, "read %s", name) : 0;
}

struct present {
    char *state;
    struct stat st; /* if it is not "none" */
    struct buf content;
};

static void present_finish(struct present *p) {
    free(p->state);
    buf_finish(&p->content);
}

/* What is at a path now. ERR_FORBIDDEN if nothing of ours may be there. */
static int apply_look(int dir, const char *path, struct present *ret, struct err *err) {
    char name[FOLDER_NAME_SIZE];
    _cleanup_(close) int parent = -1;
    *ret = (struct present){0};
    buf_init(&ret->content, FILE_BYTES);
    int rc = folder_parent(dir, path, false, name, &parent, err);
    if (rc == -ERR_NOT_FOUND ||
        (rc == 0 && fstatat(parent, name, &ret->st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)) {
        ret->state = xstrdup("none");
        return 0;
    }
    if (rc < 0)
        return rc;
    if (!S_ISREG(ret->st.st_mode) && !S_ISLNK(ret->st.st_mode)) {
        ret->state = xstrdup(S_ISDIR(ret->st.st_mode) ? "folder" : "other");
        return 0;
    }
    rc = apply_read_whole(parent, name, &ret->st, &ret->content, err);
    if (rc == 0)
        ret->state = state_text(S_ISLNK(ret->st.st_mode), ret->content.data, ret->content.len,
                                S_ISREG(ret->st.st_mode) && ret->st.st_mode & 0100);
    return rc;
}

/* --- reading the changes --- */

int apply_init(struct apply *a, const char *dir, const json_t *sent, bool overwrite,
               struct err *err) {
    *a = (struct apply){.dir = dir, .sent = sent, .overwrite = overwrite};
    changes_reader_init(&a->reader, false);
    a->fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return a->fd < 0 ? err_sys(err, "open %s", dir) : 0;
}

void apply_finish(struct apply *a) {
    while (a->list) {
        struct apply_change *c = a->list;
        a->list = c->next;
        free(c->path);
        free(c->data);
        free(c->refused);
        free(c->conflict);
        free(c);
    }
    changes_reader_finish(&a->reader);
    fd_close(&a->fd);
}

static void add_change(struct apply *a, const struct changes_record *r) {
    struct apply_change *c = xcalloc(1, sizeof(*c));
    c->path = xstrdup(r->path);
    c->op = r->op;
    c->mode = r->mode;
    c->has_content = r->has_content;
    c->len = r->has_content ? (size_t)r->size : 0;
    c->data = xcalloc(1, c->len + 1);
    if (a->last)
        a->last->next = c;
    else
        a->list = c;
    a->last = c;
    a->n++;
}

int apply_feed(struct apply *a, const char *data, size_t len, struct err *err) {
    static struct changes_record r;
    int rc = 0;
    while (len > 0 && rc == 0) {
        size_t n = MIN(len, (size_t)CHANGES_PIECE_BYTES);
        rc = changes_reader_feed(&a->reader, data, n, err);
        data += n;
        len -= n;
        while (rc == 0 && (rc = changes_reader_next(&a->reader, &r, err)) > 0) {
            rc = 0;
            if (r.kind == CHANGES_CHANGE) {
                add_change(a, &r);
            } else if (r.kind == CHANGES_CONTENT) { /* as many bytes as were announced */
                memcpy(a->last->data + a->last->have, r.data, r.len);
                a->last->have += r.len;
            } else if (r.kind == CHANGES_END) {
                a->left = (size_t)r.end.left;
            }
        }
    }
    return rc;
}

/* --- the plan --- */

/* Where the versions are kept that were replaced: one set for each folder. */
static char *undo_path(const char *dir, struct err *err) {
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    _cleanup_(free) char *real = realpath(dir, NULL);
    char hash[GATHER_HASH_SIZE];
    if (!real) {
        (void)err_sys(err, "%s", dir);
        return NULL;
    }
    bool has_state = state && *state == '/';
    if (!has_state && !(home && *home == '/')) {
        (void)err_set(err, ERR_UNAVAILABLE,
                      "there is no place for the versions that are replaced: set HOME or "
                      "XDG_STATE_HOME");
        return NULL;
    }
    gather_hash(real, strlen(real), hash);
    hash[32] = 0;
    return has_state ? xasprintf("%s/cay/undo/%s", state, hash)
                     : xasprintf("%s/.local/state/cay/undo/%s", home, hash);
}

static bool has_controls(const char *path) {
    for (; *path; path++)
        if ((unsigned char)*path < 0x20 || (unsigned char)*path == 0x7f)
            return true;
    return false;
}

static bool removes_beneath(const struct apply *a, const char *path) {
    size_t n = strlen(path);
    for (const struct apply_change *c = a->list; c; c = c->next)
        if (c->op == CHANGES_REMOVED && strncmp(c->path, path, n) == 0 && c->path[n] == '/')
            return true;
    return false;
}

/* One of the folders above is a file that goes. */
static bool removes_above(const struct apply *a, const char *path) {
    for (const struct apply_change *c = a->list; c; c = c->next) {
        size_t n = strlen(c->path);
        if (c->op == CHANGES_REMOVED && strncmp(c->path, path, n) == 0 && path[n] == '/')
            return true;
    }
    return false;
}

static char *state_after(const struct apply_change *c) {
    return c->op == CHANGES_REMOVED ? xstrdup("none")
                                    : state_text(c->mode == CHANGES_MODE_LINK, c->data, c->len,
                                                 c->mode == CHANGES_MODE_PROGRAM);
}

/* Whether the file is as the agent got it. Its permissions are not compared: of those only the
 * right to run it is the agent's. */
static bool is_as_sent(const struct apply *a, const struct apply_change *c, const char *state) {
    const char *hash = json_string_value(json_object_get(a->sent, c->path));
    if (c->op == CHANGES_ADDED)
        return !hash && strcmp(state, "none") == 0;
    return hash && strncmp(state, "file:", 5) == 0 && strncmp(state + 5, hash, strlen(hash)) == 0;
}

static char *why_conflict(const struct apply *a, const struct apply_change *c, const char *state) {
    bool sent = json_object_get(a->sent, c->path) != NULL;
    if (strcmp(state, "none") == 0)
        return xstrdup("it was removed in the folder meanwhile");
    if (strcmp(state, "folder") == 0)
        return xstrdup("there is a folder of this name");
    if (!sent)
        return xstrdup("it is in the folder, and the agent did not get it");
    return xstrdup("it was changed in the folder meanwhile");
}

/* The path stands before the reason, in both. */
static void apply_refuse(struct apply_change *c, const struct err *err) {
    size_t n = strlen(c->path);
    bool named = strncmp(err->message, c->path, n) == 0 && strncmp(err->message + n, ": ", 2) == 0;
    c->refused = xstrdup(named ? err->message + n + 2 : err->message);
}

/* Where a path leads, all links followed, also if the end of it is not there yet. */
static char *real_place(const char *path) {
    _cleanup_(free) char *above = xstrdup(path);
    for (char *slash; (slash = strrchr(above, '/'));) {
        _cleanup_(free) char *real = realpath(*above ? above : "/", NULL);
        if (real)
            return xasprintf("%s%s", strcmp(real, "/") == 0 ? "" : real, path + strlen(above));
        *slash = 0;
    }
    return xstrdup(path);
}

/* The folder may hold the place of the versions that were replaced: an agent must not shape those.
 */
static bool is_kept(const struct apply *a, const char *path) {
    struct err ignored;
    _cleanup_(free) char *real = realpath(a->dir, NULL);
    _cleanup_(free) char *named = undo_path(a->dir, &ignored);
    _cleanup_(free) char *kept = named ? real_place(named) : NULL;
    size_t n = real ? strlen(real) : 0;
    if (!kept || n == 0 || strncmp(kept, real, n) != 0 || kept[n] != '/')
        return false;
    *strrchr(kept, '/') = 0; /* of all folders */
    const char *top = kept + n + 1;
    n = strlen(top);
    return strncmp(path, top, n) == 0 && (path[n] == '/' || path[n] == 0);
}

/* `cay serve` reads these in the folder that it is started in: an agent that writes them would
 * choose where credentials are sent, and what of this machine sandboxes see. */
static bool is_settings(const char *path) {
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    return strcasecmp(name, ".env") == 0 || strcasecmp(name, "cay.json") == 0;
}

static int plan_change(struct apply *a, struct apply_change *c, struct err *err) {
    struct present now;
    if (is_kept(a, c->path))
        c->refused = xstrdup("cay keeps earlier versions there");
    else if (!a->settings && is_settings(c->path))
        c->refused = xstrdup("`cay serve` reads settings from a file of this name; "
                             "--include-secrets writes it");
    else if (has_controls(c->path))
        c->refused = xstrdup("its name has control characters");
    else if (c->op != CHANGES_REMOVED && !c->has_content)
        c->refused = xstrdup("it could not be carried");
    else if (c->mode == CHANGES_MODE_LINK && !folder_link_is_inside(c->path, c->data))
        c->refused = xstrdup("it is a link that leads out of the folder, or into .git");
    if (c->refused)
        return 0;
    int rc = apply_look(a->fd, c->path, &now, err);
    if (rc == -ERR_FORBIDDEN && c->op == CHANGES_ADDED && removes_above(a, c->path)) {
        present_finish(&now);
        return 0; /* what is in the way goes first */
    }
    if (rc < 0) {
        apply_refuse(c, err);
        present_finish(&now);
        return 0;
    }
    _cleanup_(free) char *after = state_after(c);
    if (strcmp(after, now.state) == 0)
        c->is_done = true;
    else if (!is_as_sent(a, c, now.state) &&
             !(strcmp(now.state, "folder") == 0 && removes_beneath(a, c->path)))
        c->conflict = why_conflict(a, c, now.state);
    present_finish(&now);
    return 0;
}

int apply_plan(struct apply *a, struct err *err) {
    if (!a->reader.ended)
        return err_set(err, ERR_PROTOCOL, "the list of changes broke off; nothing was written");
    for (struct apply_change *c = a->list; c; c = c->next) {
        int rc = plan_change(a, c, err);
        if (rc < 0)
            return rc;
        a->refused += c->refused != NULL;
        a->conflicts += c->conflict != NULL;
        a->todo += !c->refused && !c->is_done;
    }
    return 0;
}

static void show_line(FILE *out, const char *before, const char *path, const char *why) {
    (void)fprintf(out, "%s ", before);
    terminal_print(out, path, strlen(path));
    (void)fputs(why ? ": " : "", out);
    terminal_print(out, why, why ? strlen(why) : 0);
    (void)fputc('\n', out);
}

static void show_refused(const struct apply *a, FILE *out) {
    size_t shown = 0;
    for (struct apply_change *c = a->list; c; c = c->next) {
        if (!c->refused || c->is_shown)
            continue;
        c->is_shown = true;
        if (shown++ < SHOWN_MAX)
            show_line(out, "  not written", c->path, c->refused);
    }
    if (shown > SHOWN_MAX)
        (void)fprintf(out, "  and %zu more\n", shown - SHOWN_MAX);
}

void apply_show(const struct apply *a, FILE *out) {
    static const char *const ops[] = {NULL, "  add   ", "  change", "  remove"};
    size_t shown = 0;
    for (const struct apply_change *c = a->list; c; c = c->next)
        if (!c->refused && !c->is_done && !c->conflict && shown++ < SHOWN_MAX)
            show_line(out, ops[c->op], c->path, c->mode == CHANGES_MODE_LINK ? c->data : NULL);
    if (shown > SHOWN_MAX)
        (void)fprintf(out, "  and %zu more\n", shown - SHOWN_MAX);
    for (const struct apply_change *c = a->list; c; c = c->next)
        if (c->conflict)
            show_line(out, a->overwrite ? "  overwrite" : "  conflict", c->path, c->conflict);
    show_refused(a, out);
}

/* --- the way back --- */

static json_t *apply_coded(const char *data, size_t len) {
    _cleanup_(free) char *text = xcalloc(1, BASE64_SIZE(len) + 1);
    base64_encode(text, data, len);
    return json_string(text);
}

/* The bytes of a field with a NUL after them; the caller frees. */
static char *apply_decoded(const json_t *o, const char *key, size_t *ret_len) {
    const char *text = json_string_value(json_object_get(o, key));
    size_t n = text ? strlen(text) : 0;
    char *bytes = xcalloc(1, n + 1);
    if (!text || !base64_decode(bytes, text, n, ret_len))
        *ret_len = 0;
    bytes[*ret_len] = 0;
    return bytes;
}

static int save_bytes(int undo, const char *name, const char *data, size_t len, struct err *err) {
    _cleanup_(close) int fd = openat(undo, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || fd_write_all(fd, data, len) < 0)
        return err_sys(err, "keep a version");
    return 0;
}

/* One line of the journal: what is there, what will be, and in which file the content is kept. */
static int save_change(struct apply *a, struct apply_change *c, int undo, size_t number,
                       struct buf *journal, struct err *err) {
    struct present now;
    char name[32];
    int rc = apply_look(a->fd, c->path, &now, err);
    bool in_the_way = rc == -ERR_FORBIDDEN && removes_above(a, c->path);
    if (in_the_way)
        rc = 0;
    const char *was = now.state && strcmp(now.state, "folder") != 0 ? now.state : "none";
    (void)snprintf(name, sizeof(name), "%zu", number);
    if (rc == 0 && strcmp(was, "none") != 0)
        rc = save_bytes(undo, name, now.content.data, now.content.len, err);
    _cleanup_(free) char *after = state_after(c);
    _cleanup_(json) json_t *line = json_pack(
        "{s:o,s:s,s:s,s:s,s:i}", "path", apply_coded(c->path, strlen(c->path)), "was", was, "now",
        after, "kept", name, "mode", now.state ? (int)(now.st.st_mode & 0777) : 0);
    _cleanup_(free) char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    if (rc == 0 && (!text || !buf_add_str(journal, text) || !buf_add_char(journal, '\n')))
        rc = err_set(err, ERR_TOO_LARGE, "there are too many changes");
    present_finish(&now);
    return rc;
}

/* Everything that will be replaced, on disk before the first file is touched. */
static int save_all(struct apply *a, struct err *err) {
    _cleanup_(free) char *path = undo_path(a->dir, err);
    _cleanup_(buf) struct buf journal;
    struct err ignored;
    buf_init(&journal, JOURNAL_BYTES);
    if (!path)
        return -(int)err->code;
    int rc = path_remove_tree(path, err);
    if (rc == 0)
        rc = path_mkdirs(path, 0700, err);
    _cleanup_(close) int undo = rc < 0 ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (rc == 0 && undo < 0)
        rc = err_sys(err, "open %s", path);
    size_t number = 0;
    for (struct apply_change *c = a->list; c && rc == 0; c = c->next)
        if (!c->refused && !c->is_done)
            rc = save_change(a, c, undo, number++, &journal, err);
    if (rc == 0)
        rc = save_bytes(undo, "journal", journal.data, journal.len, err);
    if (rc == 0 && syncfs(undo) < 0)
        rc = err_sys(err, "keep the versions");
    if (rc < 0 && path)
        (void)path_remove_tree(path, &ignored);
    return rc;
}

/* --- writing --- */

/* The permissions that a file has stay its own, but for the right to run it. */
static unsigned mode_for(const struct apply *a, const struct apply_change *c) {
    struct present now;
    struct err ignored;
    bool program = c->mode == CHANGES_MODE_PROGRAM;
    unsigned mode = program ? 0777 : 0666;
    bool there =
        apply_look(a->fd, c->path, &now, &ignored) == 0 && strncmp(now.state, "file:", 5) == 0;
    if (there) {
        mode = now.st.st_mode & 0666;
        if (program)
            mode |= (mode & 0444) >> 2;
    }
    present_finish(&now);
    return mode;
}

static int write_bytes(int dir, const char *path, const char *data, size_t len, unsigned mode,
                       bool exact, bool replace, struct err *err) {
    struct folder_file f;
    int rc = folder_begin(dir, path, mode, &f, err);
    if (rc < 0)
        return rc;
    if (fd_write_all(f.fd, data, len) < 0 || (exact && fchmod(f.fd, mode & 0777) < 0)) {
        rc = err_sys(err, "write %.300s", path);
        folder_cancel(&f);
        return rc;
    }
    return folder_commit(&f, replace, err);
}

/* The folder may have changed since it was looked at. */
static int write_change(struct apply *a, struct apply_change *c, struct err *err) {
    struct present now;
    int rc = apply_look(a->fd, c->path, &now, err);
    bool fits = rc == 0 && (a->overwrite || is_as_sent(a, c, now.state));
    bool replace = rc == 0 && strcmp(now.state, "none") != 0;
    bool there = rc == 0 && strncmp(now.state, "file:", 5) == 0;
    present_finish(&now);
    if (rc < 0)
        return rc;
    if (!fits)
        return err_set(err, ERR_CONFLICT, "%.300s was changed in the folder meanwhile", c->path);
    if (c->op == CHANGES_REMOVED)
        rc = folder_remove(a->fd, c->path, err);
    else if (c->mode == CHANGES_MODE_LINK)
        rc = folder_link(a->fd, c->path, c->data, replace, err);
    else
        rc = write_bytes(a->fd, c->path, c->data, c->len, mode_for(a, c), there, replace, err);
    if (rc == 0 && c->op == CHANGES_REMOVED)
        folder_tidy(a->fd, c->path);
    return rc;
}

int apply_write(struct apply *a, FILE *out, struct err *err) {
    size_t done = 0;
    if (a->conflicts > 0 && !a->overwrite)
        return err_set(err, ERR_CONFLICT,
                       "%zu files are not as the agent got them; nothing was written "
                       "(--overwrite writes over them)",
                       a->conflicts);
    if (a->todo == 0)
        return 0;
    int rc = save_all(a, err);
    /* What goes makes room for what comes. */
    for (int round = 0; round < 2; round++)
        for (struct apply_change *c = a->list; c && rc == 0; c = c->next)
            if (!c->refused && !c->is_done && (c->op == CHANGES_REMOVED) == (round == 0)) {
                rc = write_change(a, c, err);
                done += rc == 0;
                /* What was written before it has made it one that may not be: HEAD beside objects
                 * and refs, say. */
                if (rc == -ERR_FORBIDDEN) {
                    apply_refuse(c, err);
                    a->refused++;
                    rc = 0;
                }
            }
    show_refused(a, out);
    a->written = done;
    if (rc < 0 && done > 0)
        (void)err_wrap(err,
                       "%zu of %zu files were written (`cay code --undo --dir DIR` takes them "
                       "back)",
                       done, a->todo);
    return rc;
}

/* --- undo --- */

struct undo {
    int dir;
    int kept;
    FILE *out;
    size_t back, stay;
};

/* 1: it was restored, or need not be; 0: it is not as it was written, and stays. */
static int undo_change(struct undo *u, const json_t *line, struct err *err) {
    const char *was = json_string_value(json_object_get(line, "was"));
    const char *written = json_string_value(json_object_get(line, "now"));
    const char *kept = json_string_value(json_object_get(line, "kept"));
    int mode = (int)json_integer_value(json_object_get(line, "mode"));
    size_t n = 0;
    _cleanup_(free) char *path = apply_decoded(line, "path", &n);
    _cleanup_(buf) struct buf content;
    struct present now;
    buf_init(&content, FILE_BYTES);
    if (!was || !written || !kept || !path_is_plain_name(kept, strlen(kept)) || n == 0)
        return err_set(err, ERR_IO, "the kept versions are damaged");
    int rc = apply_look(u->dir, path, &now, err);
    if (rc == -ERR_FORBIDDEN && strcmp(was, "none") == 0) {
        present_finish(&now);
        return 1; /* a file is above it again: it is gone */
    }
    /* A folder that is still there kept the file from being written. */
    bool is_same = rc == 0 && (strcmp(now.state, was) == 0 ||
                               (strcmp(was, "none") == 0 && strcmp(now.state, "folder") == 0));
    bool is_ours = rc == 0 && strcmp(now.state, written) == 0;
    present_finish(&now);
    if (is_same)
        return 1;
    if (!is_ours) {
        show_line(u->out, "stays", path, rc < 0 ? err->message : "it was changed since");
        return 0;
    }
    if (strcmp(was, "none") == 0) {
        rc = folder_remove(u->dir, path, err);
        if (rc == 0)
            folder_tidy(u->dir, path);
    } else {
        rc = fd_read_file(u->kept, kept, &content, err);
        const char *data = content.data ? content.data : "";
        if (rc == 0 && strncmp(was, "link:", 5) == 0)
            rc = folder_link_back(u->dir, path, data, true, err);
        else if (rc == 0)
            rc = write_bytes(u->dir, path, data, content.len, (unsigned)mode, true, true, err);
    }
    if (rc == 0)
        u->back++;
    return rc < 0 ? rc : 1;
}

static int undo_lines(struct undo *u, const json_t *lines, bool added, struct err *err) {
    size_t i;
    const json_t *line;
    json_array_foreach(lines, i, line) {
        const char *was = json_string_value(json_object_get(line, "was"));
        if ((was && strcmp(was, "none") == 0) != added)
            continue;
        int rc = undo_change(u, line, err);
        if (rc < 0)
            return rc;
        u->stay += rc == 0;
    }
    return 0;
}

static json_t *read_journal(int kept, struct err *err) {
    _cleanup_(buf) struct buf text;
    buf_init(&text, JOURNAL_BYTES);
    if (fd_read_file(kept, "journal", &text, err) < 0)
        return NULL;
    json_t *lines = json_array();
    for (char *p = text.data; p && *p;) {
        size_t n = strcspn(p, "\n");
        json_t *line = json_read(p, n);
        (void)json_array_append_new(lines, line ? line : json_null()); /* which is damage */
        p += n + (p[n] == '\n');
    }
    return lines;
}

int apply_undo(const char *dir, FILE *out, struct err *err) {
    _cleanup_(free) char *path = undo_path(dir, err);
    if (!path)
        return -(int)err->code;
    struct undo u = {.out = out};
    _cleanup_(close) int kept = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _cleanup_(json) json_t *lines = kept < 0 ? NULL : read_journal(kept, err);
    if (!lines)
        return err_set(err, ERR_NOT_FOUND, "nothing was written to %s that can be taken back", dir);
    _cleanup_(close) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "open %s", dir);
    u.dir = fd;
    u.kept = kept;
    /* The other way round: what came goes, then what went comes back. */
    int rc = undo_lines(&u, lines, true, err);
    if (rc == 0)
        rc = undo_lines(&u, lines, false, err);
    if (rc < 0)
        return rc;
    (void)fprintf(out, "%zu files of ", u.back);
    terminal_print(out, dir, strlen(dir));
    (void)fputs(" are as they were\n", out);
    if (u.stay > 0)
        return err_set(err, ERR_CONFLICT,
                       "%zu files were changed since, and stay; their earlier "
                       "versions are in %s",
                       u.stay, path);
    return path_remove_tree(path, err);
}
