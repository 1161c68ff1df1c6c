#pragma once
/* The contract of cay-sandbox. Two channels of framed messages (wire/frame.h):
 *
 *   control  front <-> launcher   descriptor 3 of cay-sandbox: configure, create, destroy, observe
 *   init     front <-> init       one per sandbox, handed over by SANDBOX_CREATED: exec, files,
 *                                 ports. No hop through the launcher.
 *
 * The front chooses the frame id of a request; every reply carries it. The front trusts the
 * launcher. It must not trust init more than the guest it guards: bounds are checked on what comes
 * back, a passed descriptor is checked (fstat) before it is used, and is never mapped. */

#include "base/buf.h"
#include "base/err.h"
#include "lock/usage.h"
#include "wire/pack.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SANDBOX_ID_MAX      64
#define SANDBOX_PATH_MAX    4096
#define SANDBOX_BINDS_MAX   7             /* and one more descriptor fits into a frame */
#define SANDBOX_CONTROL_MAX (1024 * 1024) /* payload of a control frame */
#define SANDBOX_INIT_MAX    (1024 * 1024) /* payload of an init frame */
#define SANDBOX_INLINE_MAX  (256 * 1024)  /* file bytes that travel inside a frame */
#define SANDBOX_LIST_MAX    1000          /* entries in one answer to INIT_FILE_LIST */
#define SANDBOX_EXECS_MAX   256           /* commands and file workers at once in a sandbox */
#define SANDBOX_EGRESS_PORT 3128
#define SANDBOX_GUEST_UID   1000

enum sandbox_msg {
    /* front -> launcher */
    SANDBOX_CONFIG = 1, /* struct sandbox_config; first, once; answered by FEATURES or FAILED */
    SANDBOX_CREATE,     /* struct sandbox_spec, one descriptor of a directory for each bind */
    SANDBOX_DESTROY,    /* str id; answered by DONE when every process is gone, after EXITED */
    SANDBOX_PAUSE,      /* str id; DONE or FAILED */
    SANDBOX_RESUME,     /* str id; DONE or FAILED */
    SANDBOX_STATS,      /* str id; STATS_ARE or FAILED */
    /* launcher -> front */
    SANDBOX_FEATURES = 32, /* struct sandbox_features */
    SANDBOX_CREATED,       /* str id; fds: init channel, pidfd of init. The front may send on the
                              channel at once; INIT_READY or INIT_FAILED is the first that comes */
    SANDBOX_DONE,
    SANDBOX_FAILED,    /* u32 err_code, u32 errno, str message */
    SANDBOX_STATS_ARE, /* struct sandbox_stats */
    SANDBOX_EXITED,    /* id 0: str id, u32 wait status of init, struct sandbox_stats. Sent once for
                          each created sandbox, however it ended */
};

enum sandbox_init_msg {
    INIT_GO = 64, /* launcher -> init: the ids are mapped */
    INIT_SETUP,   /* launcher -> init: u8 memory_is_limited, struct sandbox_spec; fds: mounts */
    /* front -> init */
    INIT_EXEC,        /* struct sandbox_exec; fds for each stream that says SANDBOX_STREAM_FD */
    INIT_SIGNAL,      /* u64 exec id (0: every guest process), u32 signo, u8 whole group */
    INIT_FILE_READ,   /* str path -> FILE with a descriptor of a regular file, or ERROR */
    INIT_FILE_WRITE,  /* str path, u32 mode, u32 sandbox_write flags, bytes; fd: a pipe to read the
                         content from instead. -> OK with the number of bytes, or ERROR */
    INIT_FILE_STAT,   /* str path, u8 follow -> STAT */
    INIT_FILE_LIST,   /* str path, u64 skip -> ENTRIES */
    INIT_FILE_MKDIR,  /* str path, u32 mode, u8 parents -> OK */
    INIT_FILE_MOVE,   /* str from, str to -> OK */
    INIT_FILE_DELETE, /* str path, u8 recursive -> OK with the number of entries */
    INIT_TAR_IN,      /* str dir; fd: archive to read; here and below a second fd, which may be left
                         out: where tar's errors go. As an EXEC: STARTED, then EXITED */
    INIT_TAR_OUT,     /* str dir, u32 n, str path...; fd: where the archive goes. As an EXEC */
    INIT_SNAPSHOT,    /* fd: where the archive of the disk goes, without binds. As an EXEC;
                         restored by TAR_IN with dir "/". A file that cannot be read is left
                         out, and named among the errors */
    INIT_CONNECT_PORT, /* u32 port -> PORT with a non-blocking TCP socket to 127.0.0.1 or ::1, which
                          may still be connecting */
    INIT_SYNC,         /* -> OK: everything sent before has been handled */
    /* init -> front */
    INIT_READY = 96, /* fd: the listener 127.0.0.1:3128 of the sandbox's network, if asked for */
    INIT_FAILED,     /* u32 err_code, u32 errno, str message: the sandbox ends */
    INIT_STARTED,    /* u32 pid inside; fd: the pty's master, if asked for. The front resizes it by
                        TIOCSWINSZ */
    INIT_EXITED,     /* struct sandbox_exit: what wait4() said, never invented */
    INIT_OK,         /* u64 */
    INIT_ERROR,      /* u32 err_code, u32 errno, str message */
    INIT_FILE,       /* struct sandbox_stat; fd */
    INIT_STAT,       /* struct sandbox_stat */
    INIT_ENTRIES,    /* u32 n, n times (str name, struct sandbox_stat), u8 more */
    INIT_PORT,       /* fd */
};

struct sandbox_strv {
    char **items; /* n strings and a NULL */
    size_t n;
};
void sandbox_strv_finish(struct sandbox_strv *v);
void sandbox_strv_add(struct sandbox_strv *v, const char *s);
void pack_strv(struct buf *b, const struct sandbox_strv *v);
/* At most `max` strings, or the reader turns bad. */
void unpack_strv(struct unpack *u, size_t max, struct sandbox_strv *ret);

struct sandbox_root {
    char *name;
    char *path; /* a directory, or a tar archive */
};

struct sandbox_config {
    uint32_t pool;      /* ready sandboxes to hold */
    uint32_t max;       /* sandboxes at once, pool included */
    uint32_t uid_base;  /* as root: the first host uid and gid that sandboxes may use */
    uint32_t uid_count; /* two for each sandbox */
    char *state_dir;    /* where archives of roots are unpacked; "" if there are none */
    struct sandbox_root *roots;
    size_t nroots;
};

enum sandbox_bind_mode { SANDBOX_BIND_RO, SANDBOX_BIND_RW };

struct sandbox_bind {
    char *path; /* absolute, in the guest */
    uint32_t mode;
};

struct sandbox_spec {
    char *id;
    char *root; /* "" is the host's /usr */
    char *hostname;
    char *user;            /* name of the guest's account; "" is cay */
    char *work;            /* where the work folder is too, besides /work; "" is nowhere */
    uint64_t memory_bytes; /* 0 is the default, here and below */
    uint64_t disk_bytes;   /* its default, and that of the inodes, are what fits into the memory */
    uint64_t disk_inodes;
    uint32_t pids;
    uint32_t files;     /* open descriptors in each process */
    uint32_t cpu_milli; /* 1000 is one core; 0 is no quota */
    bool egress;        /* a listener for the proxy is wanted */
    struct sandbox_strv env;
    struct sandbox_bind binds[SANDBOX_BINDS_MAX];
    size_t nbinds;
};

#define SANDBOX_DEFAULT_MEMORY (1024ULL * 1024 * 1024)
#define SANDBOX_DEFAULT_DISK   (512ULL * 1024 * 1024)
#define SANDBOX_DEFAULT_INODES 65536
#define SANDBOX_DEFAULT_PIDS   256
#define SANDBOX_DEFAULT_FILES  4096

/* The disk is in memory, and so is what the kernel notes of each file. The rest must be enough to
 * run what clears a full disk: this is the most that a disk may have, and how many files. */
uint64_t sandbox_disk_max(uint64_t memory_bytes);
uint64_t sandbox_inodes_max(uint64_t memory_bytes);
int sandbox_spec_check(const struct sandbox_spec *s, struct err *err);

struct sandbox_features {
    bool root;            /* the launcher runs as root: distinct host uids for each sandbox */
    uint32_t cgroup;      /* enum sandbox_cgroup */
    uint32_t controllers; /* enum sandbox_controller bits that are enforced by cgroups */
    uint32_t landlock;    /* ABI, 0 is none */
    bool proc;            /* a /proc of its own can be mounted */
    char *detail;         /* a line for people: what is missing and why */
};

enum sandbox_stream { SANDBOX_STREAM_NULL, SANDBOX_STREAM_FD, SANDBOX_STREAM_STDOUT };

struct sandbox_rlimit {
    uint32_t resource; /* RLIMIT_*: lowers, never raises */
    uint64_t value;
};
#define SANDBOX_RLIMITS_MAX 8

struct sandbox_exec {
    struct sandbox_strv argv; /* argv[0] is looked up in PATH when it has no "/" */
    struct sandbox_strv env;  /* over the sandbox's own */
    char *cwd;                /* "" is /work */
    bool tty;                 /* all three streams are a new terminal */
    bool read_only; /* it cannot change what is in /work or bound, nor can what it starts */
    bool final;     /* the sandbox ends with this command: no DESTROY is needed */
    bool brief;     /* only its end is waited for: STARTED may come late, or not at all */
    uint32_t cols, rows;
    uint32_t in, out, err; /* enum sandbox_stream; STDOUT is for err only */
    struct sandbox_rlimit rlimits[SANDBOX_RLIMITS_MAX];
    size_t nrlimits;
};

struct sandbox_exit {
    bool signaled;
    uint32_t code; /* exit status or signal number */
    bool oom;      /* killed by init's own memory watch; cgroup kills show in sandbox_stats */
    uint64_t user_us, system_us, max_rss_bytes;
};

enum sandbox_write {
    SANDBOX_WRITE_APPEND = 1,
    SANDBOX_WRITE_EXCLUSIVE = 2,
    SANDBOX_WRITE_PARENTS = 4,
};

enum sandbox_kind { SANDBOX_FILE = 1, SANDBOX_DIR, SANDBOX_LINK, SANDBOX_OTHER };

struct sandbox_stat {
    uint32_t kind; /* enum sandbox_kind */
    uint32_t mode;
    uint64_t size;
    int64_t mtime_ms;
};

void pack_sandbox_config(struct buf *b, const struct sandbox_config *c);
void unpack_sandbox_config(struct unpack *u, struct sandbox_config *ret);
void sandbox_config_finish(struct sandbox_config *c);
void pack_sandbox_spec(struct buf *b, const struct sandbox_spec *s);
void unpack_sandbox_spec(struct unpack *u, struct sandbox_spec *ret);
void sandbox_spec_finish(struct sandbox_spec *s);
void pack_sandbox_features(struct buf *b, const struct sandbox_features *f);
void unpack_sandbox_features(struct unpack *u, struct sandbox_features *ret);
void pack_sandbox_stats(struct buf *b, const struct sandbox_stats *s);
void unpack_sandbox_stats(struct unpack *u, struct sandbox_stats *ret);
void pack_sandbox_exec(struct buf *b, const struct sandbox_exec *e);
void unpack_sandbox_exec(struct unpack *u, struct sandbox_exec *ret);
void sandbox_exec_finish(struct sandbox_exec *e);
void pack_sandbox_exit(struct buf *b, const struct sandbox_exit *e);
void unpack_sandbox_exit(struct unpack *u, struct sandbox_exit *ret);
void pack_sandbox_stat(struct buf *b, const struct sandbox_stat *s);
void unpack_sandbox_stat(struct unpack *u, struct sandbox_stat *ret);
void pack_sandbox_error(struct buf *b, const struct err *err);
/* Fills err with the peer's error and returns its negative code. */
int unpack_sandbox_error(struct unpack *u, struct err *err);
