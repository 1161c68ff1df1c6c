#include "wire/changes.h"

#include "base/cleanup.h"
#include "base/path.h"
#include "wire/pack.h"

#include <endian.h>
#include <string.h>
#include <strings.h>

enum { HEAD = 5, RECORD_BYTES = CHANGES_PIECE_BYTES + 16 };

const char *changes_why_text(enum changes_why why) {
    static const char *const texts[] = {
        [CHANGES_WHY_SPECIAL] = "a pipe, socket or device",
        [CHANGES_WHY_REPOSITORY] = "the data of a git repository",
        [CHANGES_WHY_LARGE] = "larger than 16 MiB",
        [CHANGES_WHY_ROOM] = "the changed files have more than 24 MiB together",
        [CHANGES_WHY_UNREADABLE] = "cannot be read",
        [CHANGES_WHY_DEEP] = "its path is too long",
        [CHANGES_WHY_MANY] = "more than 20000 files changed",
    };
    return why > 0 && why < CHANGES_WHYS ? texts[why] : "unknown";
}

/* The bytes of a character at p that some file systems (HFS+, ext4 that folds cases) do not see in
 * a name; 0: it is none. */
static size_t unseen_bytes(const char *p, size_t len) {
    static const struct {
        const char *from, *to; /* in UTF-8, whose order is that of the characters */
    } ranges[] = {{"\xc2\xad", "\xc2\xad"},
                  {"\xcd\x8f", "\xcd\x8f"},
                  {"\xe1\x85\x9f", "\xe1\x85\xa0"},
                  {"\xe1\x9e\xb4", "\xe1\x9e\xb5"},
                  {"\xe1\xa0\x8b", "\xe1\xa0\x8f"},
                  {"\xe2\x80\x8b", "\xe2\x80\x8f"},
                  {"\xe2\x80\xaa", "\xe2\x80\xae"},
                  {"\xe2\x81\xa0", "\xe2\x81\xaf"},
                  {"\xe3\x85\xa4", "\xe3\x85\xa4"},
                  {"\xef\xb8\x80", "\xef\xb8\x8f"},
                  {"\xef\xbb\xbf", "\xef\xbb\xbf"},
                  {"\xef\xbe\xa0", "\xef\xbe\xa0"},
                  {"\xf3\xa0\x80\x80", "\xf3\xa0\xbf\xbf"}};
    for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++) {
        size_t n = strlen(ranges[i].from);
        if (len >= n && memcmp(p, ranges[i].from, n) >= 0 && memcmp(p, ranges[i].to, n) <= 0)
            return n;
    }
    return 0;
}

bool changes_is_git(const char *name, size_t len) {
    char seen[8];
    size_t n = 0;
    /* NTFS: what follows a colon names a part of the file, and a backslash ends the name. */
    for (size_t i = 0; i < len && name[i] != ':' && name[i] != '\\';) {
        size_t unseen = unseen_bytes(name + i, len - i);
        size_t rest = i;
        while (rest < len && (name[rest] == '.' || name[rest] == ' '))
            rest++;
        /* Nor does it see dots and spaces at the end. */
        if (rest > i && n > 0 && (rest == len || name[rest] == ':' || name[rest] == '\\'))
            break;
        if (unseen == 0) {
            if (n == sizeof(seen))
                return false;
            seen[n++] = name[i];
        }
        i += unseen ? unseen : 1;
    }
    return (n == 4 && strncasecmp(seen, ".git", 4) == 0) ||
           (n == 5 && strncasecmp(seen, "git~1", 5) == 0);
}

bool changes_path_is_sound(const char *path) {
    if (strlen(path) > CHANGES_PATH_MAX)
        return false;
    for (const char *p = path;; p++) {
        size_t n = strcspn(p, "/");
        if (!path_is_plain_name(p, n) || changes_is_git(p, n))
            return false;
        p += n;
        if (!*p)
            return true;
    }
}

int changes_compare(const char *a, const char *b) {
    while (*a && *a == *b) {
        a++;
        b++;
    }
    int x = *a == '/' ? 1 : (unsigned char)*a + (*a != 0);
    int y = *b == '/' ? 1 : (unsigned char)*b + (*b != 0);
    return x - y;
}

void changes_pack(struct buf *out, const struct changes_record *r) {
    size_t at = out->len;
    pack_u8(out, (uint8_t)r->kind);
    pack_u32(out, 0);
    switch (r->kind) {
    case CHANGES_ENTRY:
        pack_str(out, r->path);
        pack_u32(out, r->mode);
        pack_u64(out, r->size);
        (void)buf_add(out, r->hash, SHA1_SIZE);
        pack_u8(out, r->has_content);
        break;
    case CHANGES_CHANGE:
        pack_str(out, r->path);
        pack_u8(out, (uint8_t)r->op);
        pack_u32(out, r->old_mode);
        pack_u32(out, r->mode);
        pack_u64(out, r->size);
        pack_u8(out, r->has_content);
        break;
    case CHANGES_LEFT:
        pack_str(out, r->path);
        pack_u8(out, (uint8_t)r->why);
        break;
    case CHANGES_END:
        pack_u64(out, r->end.added);
        pack_u64(out, r->end.modified);
        pack_u64(out, r->end.removed);
        pack_u64(out, r->end.left);
        pack_u64(out, r->end.ignored);
        pack_u8(out, r->end.cut);
        break;
    default:
        (void)buf_add(out, r->data, r->len);
        break;
    }
    uint32_t n = htole32((uint32_t)(out->len - at - HEAD));
    if (!out->full)
        memcpy(out->data + at + 1, &n, sizeof(n));
}

void changes_reader_init(struct changes_reader *r, bool base) {
    *r = (struct changes_reader){.base = base};
    buf_init(&r->in, 2 * (size_t)RECORD_BYTES);
}

void changes_reader_finish(struct changes_reader *r) {
    buf_finish(&r->in);
}

int changes_reader_feed(struct changes_reader *r, const void *data, size_t len, struct err *err) {
    buf_consume(&r->in, r->at);
    r->at = 0;
    return buf_add(&r->in, data, len)
               ? 0
               : err_set(err, ERR_PROTOCOL, "the list of changes has a record that is too long");
}

static bool mode_is_known(uint32_t mode, bool may_be_none) {
    return mode == CHANGES_MODE_FILE || mode == CHANGES_MODE_PROGRAM || mode == CHANGES_MODE_LINK ||
           (mode == 0 && may_be_none);
}

static void unpack_path(struct unpack *u, char ret[CHANGES_PATH_MAX + 1]) {
    size_t n;
    const char *p = unpack_bytes(u, &n);
    if (n > CHANGES_PATH_MAX || memchr(p, 0, n))
        u->bad = true;
    else
        memcpy(ret, p, n);
    ret[u->bad ? 0 : n] = 0;
}

/* A list of files: each later than the one before, with a content that was announced. */
static bool file_is_sound(struct changes_reader *r, const struct changes_record *c) {
    bool sound = changes_path_is_sound(c->path) && r->content_left == 0 &&
                 (r->entries == 0 || changes_compare(r->last, c->path) < 0) &&
                 c->size <= (c->has_content ? CHANGES_FILE_BYTES : INT64_MAX) &&
                 ++r->entries <= (r->base ? CHANGES_ENTRIES_MAX : CHANGES_MAX);
    if (sound) {
        memcpy(r->last, c->path, strlen(c->path) + 1);
        r->content_left = c->has_content ? c->size : 0;
    }
    return sound;
}

static bool read_entry(struct changes_reader *r, struct unpack *u, struct changes_record *ret) {
    unpack_path(u, ret->path);
    ret->mode = unpack_u32(u);
    ret->size = unpack_u64(u);
    for (int i = 0; i < SHA1_SIZE; i++)
        ret->hash[i] = unpack_u8(u);
    ret->has_content = unpack_u8(u);
    return unpack_ok(u) && r->base && mode_is_known(ret->mode, false) && file_is_sound(r, ret);
}

static bool read_change(struct changes_reader *r, struct unpack *u, struct changes_record *ret) {
    unpack_path(u, ret->path);
    ret->op = unpack_u8(u);
    ret->old_mode = unpack_u32(u);
    ret->mode = unpack_u32(u);
    ret->size = unpack_u64(u);
    ret->has_content = unpack_u8(u);
    return unpack_ok(u) && !r->base && ret->op > 0 && ret->op < CHANGES_OPS &&
           mode_is_known(ret->old_mode, ret->op == CHANGES_ADDED) &&
           mode_is_known(ret->mode, ret->op == CHANGES_REMOVED) && file_is_sound(r, ret);
}

static bool read_end(struct changes_reader *r, struct unpack *u, struct changes_record *ret) {
    ret->end.added = unpack_u64(u);
    ret->end.modified = unpack_u64(u);
    ret->end.removed = unpack_u64(u);
    ret->end.left = unpack_u64(u);
    ret->end.ignored = unpack_u64(u);
    ret->end.cut = unpack_u8(u);
    r->ended = true;
    return unpack_ok(u) && r->content_left == 0;
}

static bool changes_read_record(struct changes_reader *r, struct unpack *u,
                                struct changes_record *ret) {
    size_t len = (size_t)(u->end - u->at);
    uint64_t most = r->base ? CHANGES_BASE_BYTES : CHANGES_CONTENTS_BYTES + CHANGES_DIFF_BYTES;
    switch (ret->kind) {
    case CHANGES_ENTRY:
        return read_entry(r, u, ret);
    case CHANGES_CHANGE:
        return read_change(r, u, ret);
    case CHANGES_LEFT:
        unpack_path(u, ret->path);
        ret->why = unpack_u8(u);
        return unpack_ok(u) && *ret->path && ret->why > 0 && ret->why < CHANGES_WHYS;
    case CHANGES_END:
        return read_end(r, u, ret);
    case CHANGES_CONTENT:
    case CHANGES_DIFF:
        ret->data = (const char *)u->at;
        ret->len = len;
        r->bytes += len;
        if (len == 0 || r->bytes > most || (ret->kind == CHANGES_DIFF && r->content_left > 0))
            return false;
        if (ret->kind == CHANGES_DIFF)
            return !r->base;
        if (len > r->content_left)
            return false;
        r->content_left -= len;
        return true;
    default:
        return false;
    }
}

int changes_reader_next(struct changes_reader *r, struct changes_record *ret, struct err *err) {
    const char *head = r->in.data ? r->in.data + r->at : NULL;
    size_t have = r->in.len - r->at;
    uint32_t n = 0;
    struct unpack u;
    if (!head || have < HEAD)
        return 0;
    memcpy(&n, head + 1, sizeof(n));
    n = le32toh(n);
    if (n > RECORD_BYTES - HEAD)
        return err_set(err, ERR_PROTOCOL, "the list of changes has a record that is too long");
    if (have < HEAD + (size_t)n)
        return 0;
    *ret = (struct changes_record){.kind = (unsigned char)*head};
    unpack_init(&u, head + HEAD, n);
    r->at += HEAD + (size_t)n;
    if (r->ended || !changes_read_record(r, &u, ret))
        return err_set(err, ERR_PROTOCOL, "the list of changes is malformed");
    return 1;
}
