#pragma once
/* The contract of cay-facet: one SQLite database in one process. The front starts it with
 * descriptor 3, the control socket, and descriptor 4, the folder of the database. The front asks
 * for capabilities (GRANT): each is a socket for one holder, with the methods it may call.
 *
 * Every request on the control socket is answered with the same frame id: OPEN by OPENED, GRANT by
 * GRANTED, REVOKE by CLOSED, EXPORT by EXPORTED, STATS by STATS, INSPECT by INSPECTED, MIGRATE by
 * MIGRATED, each of them by ERROR when it fails. INTERRUPT has no answer. AUDIT, IDLE and CLOSED
 * (when a holder hangs up or is cut off) come with frame id 0. A facet waits for a front that does
 * not read: it must always be read.
 *
 * A holder's answers carry the ids of its calls and come in their order; a payload has at most
 * result_bytes, or 8192 if that is more. Encoders and decoders here do no I/O. */

#include "base/buf.h"
#include "base/err.h"
#include "wire/pack.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FACET_CONTROL_FD 3
#define FACET_FOLDER_FD  4

enum facet_msg {
    FACET_OPEN = 1,    /* struct facet_open; the first frame, once */
    FACET_GRANT,       /* struct facet_grant; the answer carries the capability's descriptor. With
                          one descriptor, the facet's end of it: no answer but ERROR */
    FACET_REVOKE,      /* u64 grant */
    FACET_EXPORT,      /* one descriptor: a regular file or memfd, which gets the whole database */
    FACET_STATS,       /* empty; the answer is struct facet_stats */
    FACET_INTERRUPT,   /* u64 grant: stops its running call; 0 stops whichever call runs */
    FACET_INSPECT,     /* empty; the answer is JSON: tables, sizes, limits, applied migrations */
    FACET_MIGRATE,     /* struct facet_migration, one after another until the end of the payload */
    FACET_OPENED = 32, /* struct facet_opened */
    FACET_GRANTED,     /* u64 grant, and one descriptor */
    FACET_CLOSED,      /* u64 grant, u64 calls, str reason: the capability is no more */
    FACET_EXPORTED,    /* u64 bytes */
    FACET_AUDIT,       /* struct facet_audit, one after another until the end of the payload */
    FACET_IDLE,        /* empty: only passive grants are open and nothing was asked for idle_ms */
    FACET_ERROR,       /* u32 enum err_code, str message */
    FACET_INSPECTED,   /* JSON */
    FACET_MIGRATED,    /* u32: how many were applied by this request */
    FACET_CALL = 64,   /* holder -> facet: str method, then JSON: the array of arguments. See
                          FACET_NEAR for the frame id */
    FACET_RESULT,      /* facet -> holder: JSON */
    FACET_FAIL,        /* facet -> holder: JSON {"name","message","code"} */
    FACET_TRAY,        /* facet -> holder that talks (FACET_NEAR_SHIFT), once: one descriptor, see
                          wire/tray.h */
};

/* What the front reads from the exit status. Death by SIGSYS means a forbidden system call. */
enum facet_exit {
    FACET_EXIT_OK = 0,        /* the control socket was closed */
    FACET_EXIT_SETUP = 40,    /* the process could not lock itself down */
    FACET_EXIT_PROTOCOL = 41, /* the control socket carried something that is not the contract */
    FACET_EXIT_TIME = 42, /* a call outlived its time limit and could not be stopped otherwise */
};

#define FACET_METHODS_MAX 48 /* named methods of one facet */
#define FACET_GRANTS_MAX  64 /* open capabilities of one facet */
#define FACET_NAME_MAX    64 /* bytes of a method's name or a label */
#define FACET_AUDIT_SQL   200
#define FACET_OPEN_MAX    (16 * 1024 * 1024) /* the largest control frame */
/* The limits of this one database, beside its file: JSON with members of struct facet_limits. They
 * can lower what OPEN says and never raise it. The front writes the file, the facet reads it. */
#define FACET_LIMITS_FILE "limits.json"

/* The upper bits of a call's frame id may say on which processor its holder waits (its number plus
 * one): the facet then comes there. The answer carries the same id. */
#define FACET_NEAR_SHIFT 48
/* With this bit: the facet runs elsewhere, stays awake for a while, and offers a tray. If several
 * say where they wait, each is offered one. */
#define FACET_APART 0x8000

enum facet_kind { FACET_KIND_QUERY = 0, FACET_KIND_EXECUTE = 1 };

struct facet_method {
    char *name; /* not "query", "execute" or "batch": those are always there */
    char *sql;  /* one statement; its parameters are the method's arguments */
    enum facet_kind kind;
};

/* 0 takes the default of base/limits.h; calls_per_s 0 means no limit. */
struct facet_limits {
    uint64_t rows;         /* rows of one result */
    uint64_t result_bytes; /* JSON of one result */
    uint64_t time_ms;      /* one call */
    uint64_t sql_bytes;    /* the text of one statement */
    uint64_t value_bytes;  /* one text, blob or row */
    uint64_t call_bytes;   /* one CALL frame */
    uint64_t disk_bytes;   /* the database file */
    uint64_t memory_bytes; /* SQLite's heap */
    uint64_t stall_ms;     /* a holder that neither reads nor finishes its call is cut off after */
    uint64_t calls_per_s;  /* of one grant */
};

struct facet_open {
    char *file; /* a plain name inside the folder */
    /* Runs at every open, in one transaction. An INSERT in it runs only if its table was empty
     * before, so that one text can hold both the tables and their first rows. */
    char *schema;
    /* Runs after the schema: if seed_table is empty, or, without a seed_table, if the database was
     * made by this open. */
    char *seed;
    char *seed_table;
    bool full; /* durability: each commit is on the disk (synchronous=FULL) before its answer */
    /* The file came from elsewhere: it is not served before its header, its objects and all its
     * pages were checked. ERR_BAD_REQUEST says what is wrong with it. */
    bool check;
    uint64_t idle_ms; /* 0: no IDLE frames */
    struct facet_limits limits;
    struct facet_method *methods;
    size_t nmethods;
};

struct facet_opened {
    bool fresh;        /* the database was made by this open */
    uint32_t landlock; /* the kernel's Landlock version that holds the process, 0 if none */
    /* What failed without closing the facet: the schema on a database that a holder has changed,
     * or a method that does not fit it. One per line; empty is good. */
    char *warnings;
};

struct facet_grant {
    uint64_t grant;     /* chosen by the front; unique among open grants, not 0 */
    char *label;        /* for people */
    uint64_t max_calls; /* 0: no limit */
    bool all;           /* every method; else those listed */
    bool passive;       /* does not keep the facet from being idle: for the front's own calls */
    bool readonly;      /* whatever it calls, nothing is written */
    char **methods;
    size_t nmethods;
};

/* One step of a schema, applied once. Texts are borrowed from the payload and not NUL-terminated.
 */
struct facet_migration {
    uint64_t number; /* from 1 on; a later one has a higher number */
    const char *name, *sql;
    size_t name_len, sql_len;
};

struct facet_stats {
    uint64_t calls, failed, grants;
    uint64_t db_bytes, wal_bytes, memory_bytes, memory_peak_bytes;
    uint64_t cache_hits, cache_misses;
};

/* Texts are borrowed from the payload and not NUL-terminated. */
struct facet_audit {
    uint64_t grant;
    int64_t wall_ms; /* when the call began */
    uint32_t duration_us;
    uint32_t rows;
    uint64_t changes;
    const char *method, *code, *sql; /* code is empty for success; sql is cut at FACET_AUDIT_SQL */
    size_t method_len, code_len, sql_len;
};

void facet_open_encode(struct buf *out, const struct facet_open *m);
int facet_open_decode(const void *data, size_t len, struct facet_open *ret, struct err *err);
void facet_open_finish(struct facet_open *m);

void facet_opened_encode(struct buf *out, const struct facet_opened *m);
int facet_opened_decode(const void *data, size_t len, struct facet_opened *ret, struct err *err);
void facet_opened_finish(struct facet_opened *m);

void facet_grant_encode(struct buf *out, const struct facet_grant *m);
int facet_grant_decode(const void *data, size_t len, struct facet_grant *ret, struct err *err);
void facet_grant_finish(struct facet_grant *m);

void facet_migration_encode(struct buf *out, const struct facet_migration *m);
/* Takes the next one: 1, 0 at the end, or negative. */
int facet_migration_next(struct unpack *u, struct facet_migration *ret, struct err *err);

void facet_stats_encode(struct buf *out, const struct facet_stats *m);
int facet_stats_decode(const void *data, size_t len, struct facet_stats *ret, struct err *err);

void facet_audit_encode(struct buf *out, const struct facet_audit *m);
/* Takes the next record: 1, 0 at the end, or negative. */
int facet_audit_next(struct unpack *u, struct facet_audit *ret, struct err *err);

void facet_closed_encode(struct buf *out, uint64_t grant, uint64_t calls, const char *reason);
/* reason is borrowed from the payload. */
int facet_closed_decode(const void *data, size_t len, uint64_t *ret_grant, uint64_t *ret_calls,
                        const char **ret_reason, size_t *ret_reason_len, struct err *err);

void facet_error_encode(struct buf *out, const struct err *e);
/* Fills err with what the facet reported and returns -code. */
int facet_error_decode(const void *data, size_t len, struct err *err);

void facet_call_encode(struct buf *out, const char *method, const char *args, size_t args_len);
int facet_call_decode(const void *data, size_t len, const char **ret_method, size_t *ret_method_len,
                      const char **ret_args, size_t *ret_args_len, struct err *err);
