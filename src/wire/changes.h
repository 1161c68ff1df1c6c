#pragma once
/* What a coding job changed, as a stream of records: told by cay-coder inside the sandbox, checked
 * by the front, kept as the artifact `changes.files`, and read again by `cay code --apply`. The
 * same records, of the kind ENTRY, remember what was there before the agent began; the front keeps
 * them, out of the agent's reach.
 *
 * A record is its kind (u8), the length of its payload (u32, little-endian) and the payload. Nobody
 * believes the other: a reader checks kinds, lengths, names, modes and the order, and a stream
 * without END is not whole. Paths are in order (changes_compare()). */

#include "base/buf.h"
#include "base/err.h"
#include "base/sha1.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CHANGES_FILE_BYTES = 16 << 20,     /* of a file that is carried; longer ones are named */
    CHANGES_TEXT_BYTES = 4 << 20,      /* of a file that is compared line by line */
    CHANGES_CONTENTS_BYTES = 24 << 20, /* of all files that are carried */
    CHANGES_DIFF_BYTES = 32 << 20,
    CHANGES_BASE_BYTES = 32 << 20, /* of contents that are remembered; of others only the name */
    CHANGES_MAX = 20000,           /* changed files */
    CHANGES_ENTRIES_MAX = 200000,  /* files in the folder */
    CHANGES_LEFT_MAX = 200,        /* that are named; more are counted */
    CHANGES_PATH_MAX = 4096,
    CHANGES_PIECE_BYTES = 64 << 10, /* of a record of bytes */
};

enum changes_kind {
    CHANGES_ENTRY = 1, /* str path, u32 mode, u64 size, hash, u8 has_content; then CONTENT */
    CHANGES_CHANGE,    /* str path, u8 op, u32 mode before, u32 mode, u64 size, u8 has_content; then
                          CONTENT. Where it has none, the file was left out and LEFT says why */
    CHANGES_CONTENT,   /* bytes of the file before */
    CHANGES_DIFF,      /* bytes of the diff, for people and for `git apply` */
    CHANGES_LEFT,      /* str path, u8 enum changes_why */
    CHANGES_END,       /* struct changes_end */
    CHANGES_KINDS,
};

enum changes_op { CHANGES_ADDED = 1, CHANGES_MODIFIED, CHANGES_REMOVED, CHANGES_OPS };

/* As git has them: nothing but these. */
enum { CHANGES_MODE_FILE = 0100644, CHANGES_MODE_PROGRAM = 0100755, CHANGES_MODE_LINK = 0120000 };

/* Why something is not in the changes. */
enum changes_why {
    CHANGES_WHY_SPECIAL = 1, /* a pipe, a socket, a device */
    CHANGES_WHY_REPOSITORY,  /* .git */
    CHANGES_WHY_LARGE,
    CHANGES_WHY_ROOM, /* all files together are too many bytes */
    CHANGES_WHY_UNREADABLE,
    CHANGES_WHY_DEEP,
    CHANGES_WHY_MANY,
    CHANGES_WHYS,
};
/* For people, without the path. */
const char *changes_why_text(enum changes_why why);

struct changes_end {
    uint64_t added, modified, removed;
    uint64_t left;    /* that are not in it, also those without a record */
    uint64_t ignored; /* new files and folders that .gitignore names: nothing is said of those */
    bool cut;         /* the diff is not whole */
};

struct changes_record {
    enum changes_kind kind;
    char path[CHANGES_PATH_MAX + 1]; /* ENTRY, CHANGE, LEFT */
    enum changes_op op;
    uint32_t old_mode, mode;
    uint64_t size;
    unsigned char hash[SHA1_SIZE]; /* ENTRY: git's name of the content */
    bool has_content;
    enum changes_why why;
    struct changes_end end;
    const char *data; /* CONTENT, DIFF; until the next call */
    size_t len;
};

void changes_pack(struct buf *out, const struct changes_record *r);

/* Bytes go in as they come, records come out. */
struct changes_reader {
    struct buf in;
    size_t at;             /* of it, what comes next */
    uint64_t content_left; /* of the file that was named last */
    uint64_t entries;
    uint64_t bytes; /* of contents and diff, all in all */
    bool base;      /* of ENTRY records; else of what changed */
    bool ended;
    char last[CHANGES_PATH_MAX + 1];
};

void changes_reader_init(struct changes_reader *r, bool base);
void changes_reader_finish(struct changes_reader *r);
/* ERR_PROTOCOL if more was fed than is read. */
int changes_reader_feed(struct changes_reader *r, const void *data, size_t len, struct err *err);
/* 1: a record; 0: more bytes are needed; negative: the stream is wrong. */
int changes_reader_next(struct changes_reader *r, struct changes_record *ret, struct err *err);

/* A relative path of plain names, none of them a repository's (see changes_is_git()). */
bool changes_path_is_sound(const char *path);
/* ".git" in any case, and what some file systems take for it. */
bool changes_is_git(const char *name, size_t len);
/* Part by part: what lies in a folder comes right after it. */
int changes_compare(const char *a, const char *b);
