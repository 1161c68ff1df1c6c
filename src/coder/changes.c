#include "coder/changes.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/ignore.h"
#include "base/mem.h"
#include "coder/diff.h"
#include "wire/changes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Both lists, of what was there and of what is there, come in one order. So they are compared entry
 * by entry, like two sorted decks of cards, and no more of them is held than one file of each. */

enum { DEPTH_MAX = 100, OUT_BYTES = 256 << 10, NAMES_MAX = CHANGES_ENTRIES_MAX };

struct taker {
    bool remember;
    bool ignores;     /* .gitignore holds for what is new */
    bool contents;    /* the changed files themselves are wanted */
    struct buf out;   /* that has not been written yet */
    struct buf diff;  /* the same, of the diff of one file */
    bool broken;      /* nobody reads */
    uint64_t entries; /* seen */
    uint64_t changes;
    uint64_t carried_bytes;
    uint64_t diff_bytes;
    uint64_t base_bytes;
    uint64_t left_told;
    struct changes_end end;
    struct ignore ignore;
    unsigned ignored; /* folders above that are ignored */
    /* What was there; from standard input. */
    struct changes_reader reader;
    bool has_base;
    struct changes_record base; /* the entry that comes next */
    bool base_is_there;
    struct buf base_content;
    struct err err;
};

/* One file as it is. */
struct found {
    uint32_t mode;
    unsigned char hash[SHA1_SIZE];
    uint64_t size;
    char *data; /* NULL: it is too long to be carried */
};

/* --- telling --- */

static void coder_changes_flush(struct taker *t) {
    if (!t->broken && t->out.len > 0 && fd_write_all(STDOUT_FILENO, t->out.data, t->out.len) < 0)
        t->broken = true;
    buf_clear(&t->out);
}

static void coder_changes_tell(struct taker *t, const struct changes_record *r) {
    if (t->out.len + CHANGES_PIECE_BYTES + CHANGES_PATH_MAX + 64 > OUT_BYTES)
        coder_changes_flush(t);
    changes_pack(&t->out, r);
}

static void tell_bytes(struct taker *t, enum changes_kind kind, const char *data, size_t len) {
    for (size_t at = 0; at < len; at += CHANGES_PIECE_BYTES)
        coder_changes_tell(
            t, &(struct changes_record){.kind = kind,
                                        .data = data + at,
                                        .len = MIN(len - at, (size_t)CHANGES_PIECE_BYTES)});
}

static void set_path(struct changes_record *r, const char *path) {
    (void)snprintf(r->path, sizeof(r->path), "%s", path);
}

static void coder_changes_leave_out(struct taker *t, const char *path, enum changes_why why) {
    t->end.left++;
    if (t->remember || t->left_told++ >= CHANGES_LEFT_MAX)
        return;
    struct changes_record r = {.kind = CHANGES_LEFT, .why = why};
    set_path(&r, path);
    coder_changes_tell(t, &r);
}

/* --- what was there --- */

/* The next record; false: there is none. */
static bool base_read(struct taker *t, struct changes_record *ret) {
    static char data[65536];
    for (;;) {
        int rc = changes_reader_next(&t->reader, ret, &t->err);
        if (rc != 0)
            return rc > 0;
        ssize_t n = read(STDIN_FILENO, data, sizeof(data));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            (void)err_set(&t->err, ERR_PROTOCOL, "what was there before broke off");
            return false;
        }
        if (changes_reader_feed(&t->reader, data, (size_t)n, &t->err) < 0)
            return false;
    }
}

static void base_next(struct taker *t) {
    static struct changes_record r;
    t->base_is_there = false;
    buf_clear(&t->base_content);
    if (!t->has_base || t->err.code || !base_read(t, &t->base))
        return;
    if (t->base.kind != CHANGES_ENTRY) { /* END */
        t->has_base = false;
        return;
    }
    while (t->base.has_content && t->base_content.len < t->base.size) {
        if (!base_read(t, &r) || r.kind != CHANGES_CONTENT)
            return;
        (void)buf_add(&t->base_content, r.data, r.len);
    }
    t->base_is_there = true;
}

static struct diff_side base_side(const struct taker *t) {
    struct diff_side s = {.mode = t->base.mode, .len = t->base_content.len};
    memcpy(s.hash, t->base.hash, SHA1_SIZE);
    if (t->base.has_content)
        s.data = t->base_content.data ? t->base_content.data : "";
    return s;
}

static bool is_beneath(const char *path, const char *folder) {
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && path[n] == '/';
}

/* --- changes --- */

/* Pieces of a diff are short: they are gathered into one record. */
static void flush_diff(struct taker *t) {
    tell_bytes(t, CHANGES_DIFF, t->diff.data, t->diff.len);
    buf_clear(&t->diff);
}

static void coder_changes_on_diff(void *ctx, const char *data, size_t len) {
    struct taker *t = ctx;
    size_t room = CHANGES_DIFF_BYTES - (size_t)t->diff_bytes;
    t->end.cut = t->end.cut || len > room;
    if (t->end.cut)
        return;
    t->diff_bytes += len;
    if (t->diff.len + len > CHANGES_PIECE_BYTES)
        flush_diff(t);
    if (len >= CHANGES_PIECE_BYTES)
        tell_bytes(t, CHANGES_DIFF, data, len);
    else
        (void)buf_add(&t->diff, data, len);
}

static void write_diff(struct taker *t, const char *path, const struct diff_side *before,
                       const struct diff_side *after) {
    diff_write(path, before, after, coder_changes_on_diff, t);
    flush_diff(t);
}

/* False: it does not fit, which was said. */
static bool take_change(struct taker *t, const char *path) {
    if (t->changes++ < CHANGES_MAX)
        return true;
    coder_changes_leave_out(t, path, CHANGES_WHY_MANY);
    return false;
}

static void tell_removed(struct taker *t) {
    struct diff_side before = base_side(t);
    struct diff_side after = {.data = ""};
    if (!take_change(t, t->base.path))
        return;
    struct changes_record r = {
        .kind = CHANGES_CHANGE, .op = CHANGES_REMOVED, .old_mode = t->base.mode};
    set_path(&r, t->base.path);
    coder_changes_tell(t, &r);
    t->end.removed++;
    write_diff(t, t->base.path, &before, &after);
}

static void tell_found(struct taker *t, const char *path, const struct found *f, bool is_new) {
    struct diff_side before = is_new ? (struct diff_side){.data = ""} : base_side(t);
    struct diff_side after = {.mode = f->mode, .data = f->data, .len = (size_t)f->size};
    memcpy(after.hash, f->hash, SHA1_SIZE);
    if (!f->data) {
        coder_changes_leave_out(t, path, CHANGES_WHY_LARGE);
        return;
    }
    if (!take_change(t, path))
        return;
    bool fits = t->carried_bytes + f->size <= CHANGES_CONTENTS_BYTES;
    struct changes_record r = {.kind = CHANGES_CHANGE,
                               .op = is_new ? CHANGES_ADDED : CHANGES_MODIFIED,
                               .old_mode = before.mode,
                               .mode = f->mode,
                               .size = f->size,
                               .has_content = t->contents && fits};
    set_path(&r, path);
    coder_changes_tell(t, &r);
    if (r.has_content) {
        t->carried_bytes += f->size;
        tell_bytes(t, CHANGES_CONTENT, f->data, (size_t)f->size);
    }
    *(is_new ? &t->end.added : &t->end.modified) += 1;
    write_diff(t, path, &before, &after);
    if (t->contents && !fits)
        coder_changes_leave_out(t, path, CHANGES_WHY_ROOM);
}

static void coder_changes_compare(struct taker *t, const char *path, const struct found *f) {
    bool known = t->base_is_there && strcmp(t->base.path, path) == 0;
    if (!known && t->ignores && (t->ignored > 0 || ignore_matches(&t->ignore, path, false))) {
        t->end.ignored++;
        return;
    }
    if (!known || f->mode != t->base.mode || memcmp(f->hash, t->base.hash, SHA1_SIZE) != 0)
        tell_found(t, path, f, !known);
    if (known)
        base_next(t);
}

static void coder_changes_remember(struct taker *t, const char *path, const struct found *f) {
    struct changes_record r = {.kind = CHANGES_ENTRY, .mode = f->mode, .size = f->size};
    set_path(&r, path);
    memcpy(r.hash, f->hash, SHA1_SIZE);
    r.has_content = f->data && diff_is_text(f->data, (size_t)f->size) &&
                    t->base_bytes + f->size <= CHANGES_BASE_BYTES;
    coder_changes_tell(t, &r);
    if (r.has_content) {
        t->base_bytes += f->size;
        tell_bytes(t, CHANGES_CONTENT, f->data, (size_t)f->size);
    }
}

/* --- the walk --- */

/* A file that is too long to be held: only its hash. */
static int hash_long(int fd, uint64_t size, unsigned char ret[SHA1_SIZE]) {
    static char data[65536];
    struct sha1 s;
    char head[32];
    int n = snprintf(head, sizeof(head), "blob %llu", (unsigned long long)size);
    sha1_init(&s);
    sha1_add(&s, head, (size_t)n + 1);
    for (uint64_t at = 0; at < size;) {
        ssize_t k = read(fd, data, (size_t)MIN((uint64_t)sizeof(data), size - at));
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return -1;
        sha1_add(&s, data, (size_t)k);
        at += (uint64_t)k;
    }
    sha1_end(&s, ret);
    return 0;
}

/* Whether a long file may be the one that was there: only then its hash is of use. */
static bool may_be_same(const struct taker *t, const char *path, uint64_t size) {
    return t->remember ||
           (t->base_is_there && t->base.size == size && strcmp(t->base.path, path) == 0);
}

static int coder_changes_read_file(const struct taker *t, int dir, const char *name,
                                   const char *path, struct found *ret) {
    struct stat st;
    _cleanup_(close) int fd =
        openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return -1;
    ret->mode = st.st_mode & 0100 ? CHANGES_MODE_PROGRAM : CHANGES_MODE_FILE;
    ret->size = (uint64_t)st.st_size;
    if (ret->size > CHANGES_FILE_BYTES)
        return may_be_same(t, path, ret->size) ? hash_long(fd, ret->size, ret->hash) : 0;
    char *data = xmalloc((size_t)ret->size + 1);
    ssize_t n = fd_read_all(fd, data, (size_t)ret->size);
    if (n < 0) {
        free(data);
        return -1;
    }
    ret->size = (uint64_t)n; /* it may have become shorter */
    ret->data = data;
    diff_hash(data, (size_t)n, ret->hash);
    return 0;
}

static int coder_changes_read_link(int dir, const char *name, struct found *ret) {
    char *target = xmalloc(PATH_MAX);
    ssize_t n = readlinkat(dir, name, target, PATH_MAX);
    if (n < 0 || n == PATH_MAX) {
        free(target);
        return -1;
    }
    *ret = (struct found){.mode = CHANGES_MODE_LINK, .size = (uint64_t)n, .data = target};
    diff_hash(target, (size_t)n, ret->hash);
    return 0;
}

static int coder_changes_by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static size_t coder_changes_read_names(struct taker *t, int dir, char ***ret) {
    char **names = NULL;
    size_t n = 0;
    size_t room = 0;
    int at = fcntl(dir, F_DUPFD_CLOEXEC, 0);
    DIR *d = at < 0 ? NULL : fdopendir(at);
    const struct dirent *e;
    while (d && (e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (t->entries++ >= NAMES_MAX) {
            (void)err_set(&t->err, ERR_TOO_LARGE, "there are more than %d files", NAMES_MAX);
            break;
        }
        if (n == room) {
            room = 2 * room + 64;
            names = xrealloc((void *)names, room * sizeof(*names));
        }
        names[n++] = xstrdup(e->d_name);
    }
    if (d)
        (void)closedir(d);
    if (n > 0)
        qsort((void *)names, n, sizeof(*names), coder_changes_by_name);
    *ret = names;
    return n;
}

static void coder_changes_walk(struct taker *t, int dir, const char *path, int depth);

/* What is here now cannot be told; what was here before is not said to be removed. */
static void pass_over(struct taker *t, const char *path, enum changes_why why) {
    coder_changes_leave_out(t, path, why);
    while (t->base_is_there && (strcmp(t->base.path, path) == 0 || is_beneath(t->base.path, path)))
        base_next(t);
}

static void walk_dir(struct taker *t, int dir, const char *name, const char *path, int depth) {
    bool ignored = t->ignores && (t->ignored > 0 || ignore_matches(&t->ignore, path, true));
    /* An ignored folder is entered for the sake of what was there before. */
    if (ignored && !(t->base_is_there && is_beneath(t->base.path, path))) {
        t->end.ignored++;
        return;
    }
    _cleanup_(close) int sub =
        depth >= DEPTH_MAX ? -1
                           : openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (sub < 0) {
        pass_over(t, path, depth >= DEPTH_MAX ? CHANGES_WHY_DEEP : CHANGES_WHY_UNREADABLE);
        return;
    }
    t->ignored += ignored;
    coder_changes_walk(t, sub, path, depth + 1);
    t->ignored -= ignored;
}

static void coder_changes_walk_entry(struct taker *t, int dir, const char *name, const char *path,
                                     int depth) {
    struct stat st;
    struct found f = {0};
    if (changes_is_git(name, strlen(name))) {
        /* The one at the top is the work folder's own: nobody expects it in a diff. Another name
           that only looks like it is a file or folder that somebody made. */
        if (depth > 0 || strcmp(name, ".git") != 0)
            coder_changes_leave_out(t, path, CHANGES_WHY_REPOSITORY);
        return;
    }
    if (strlen(path) > CHANGES_PATH_MAX - 1) {
        char part[CHANGES_PATH_MAX];
        (void)snprintf(part, sizeof(part), "%s", path);
        coder_changes_leave_out(t, part, CHANGES_WHY_DEEP);
        return;
    }
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return; /* gone since */
    /* Everything before this one has gone. */
    while (t->base_is_there && changes_compare(t->base.path, path) < 0) {
        tell_removed(t);
        base_next(t);
    }
    if (S_ISDIR(st.st_mode)) {
        if (t->base_is_there && strcmp(t->base.path, path) == 0) {
            tell_removed(t);
            base_next(t);
        }
        walk_dir(t, dir, name, path, depth);
        return;
    }
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode)) {
        pass_over(t, path, CHANGES_WHY_SPECIAL);
        return;
    }
    if ((S_ISLNK(st.st_mode) ? coder_changes_read_link(dir, name, &f)
                             : coder_changes_read_file(t, dir, name, path, &f)) < 0)
        pass_over(t, path, CHANGES_WHY_UNREADABLE);
    else if (t->remember)
        coder_changes_remember(t, path, &f);
    else
        coder_changes_compare(t, path, &f);
    free(f.data);
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by DEPTH_MAX
static void coder_changes_walk(struct taker *t, int dir, const char *path, int depth) {
    char **names = NULL;
    size_t rules = t->ignore.n;
    if (t->ignores)
        ignore_read(&t->ignore, dir, ".gitignore", path);
    size_t n = coder_changes_read_names(t, dir, &names);
    for (size_t i = 0; i < n; i++) {
        _cleanup_(free) char *below = xasprintf("%s%s%s", path, *path ? "/" : "", names[i]);
        if (!t->broken && !t->err.code)
            coder_changes_walk_entry(t, dir, names[i], below, depth);
        free(names[i]);
    }
    free((void *)names);
    ignore_drop(&t->ignore, rules);
}

static int coder_changes_take(struct taker *t, const char *path) {
    _cleanup_(close) int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return err_sys(&t->err, "%s", path);
    base_next(t);
    coder_changes_walk(t, dir, "", 0);
    while (t->base_is_there && !t->broken && !t->err.code) {
        tell_removed(t);
        base_next(t);
    }
    if (t->err.code)
        return -(int)t->err.code;
    coder_changes_tell(t, &(struct changes_record){.kind = CHANGES_END, .end = t->end});
    coder_changes_flush(t);
    return t->broken ? err_set(&t->err, ERR_IO, "nobody reads") : 0;
}

int changes_main(int argc, char **argv) {
    struct taker t = {.remember = strcmp(argv[1], "remember") == 0, .has_base = true};
    for (int i = 3; i < argc; i++) {
        t.ignores = t.ignores || strcmp(argv[i], "--ignore") == 0;
        t.contents = t.contents || strcmp(argv[i], "--contents") == 0;
        t.has_base = t.has_base && strcmp(argv[i], "--new") != 0;
    }
    if (argc < 3) {
        (void)fprintf(stderr, "cay-coder: the folder is missing\n");
        return EXIT_FAILURE;
    }
    t.has_base = t.has_base && !t.remember;
#ifndef CODER_TRACEABLE
    (void)prctl(PR_SET_DUMPABLE, 0); /* what the agent left running cannot write our records */
#endif
    buf_init(&t.out, OUT_BYTES);
    buf_init(&t.diff, CHANGES_PIECE_BYTES);
    buf_init(&t.base_content, CHANGES_TEXT_BYTES);
    changes_reader_init(&t.reader, true);
    int rc = coder_changes_take(&t, argv[2]);
    if (rc < 0)
        (void)fprintf(stderr, "cay-coder: %s\n", t.err.message);
    buf_finish(&t.out);
    buf_finish(&t.diff);
    buf_finish(&t.base_content);
    changes_reader_finish(&t.reader);
    ignore_finish(&t.ignore);
    return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
