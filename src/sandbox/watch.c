#include "sandbox/watch.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

enum {
    LOOK_MS = 10,          /* for what takes long, in each look */
    SHARES_MS = 100,       /* of processor time for finding out what forks share, when it matters */
    MAPS_MAX = 512 * 1024, /* bytes of a process's list of mappings that are read */
    FDS_MAX = 8192,        /* of its descriptors */
    OBJECTS = 1 << 13,     /* shared objects that are told apart */
    DYING_LOOKS = 20,      /* a process that was killed is given this long to be gone */
    MESSAGE_OVERHEAD = 128, /* of one in a System V queue */
    CHUNK = 32 * 1024,
    SOCKET_BYTES = 128 * 1024, /* that a socket may have by force: a packet each way */
};

/* A process as it was last seen. */
struct process {
    pid_t pid;
    uint64_t own;     /* bytes that it alone has, or would if it had not forked */
    uint32_t sockets; /* among its descriptors */
    uint32_t looks;   /* since it was killed; 0: it was not */
    uint64_t shared;  /* objects that it was seen to hold last */
    uint64_t charge;  /* all of it, with its part of what sockets hold */
};

/* Memory that belongs to no process: a memfd, or an anonymous mapping that is shared. */
struct object {
    ino_t inode; /* 0 is a free place */
    uint32_t pass;
    uint32_t exact; /* the pass in which its true size was seen */
    uint64_t bytes;
    pid_t holder;
};

struct watch {
    struct watch_options o;
    dev_t shm; /* what such objects are on, also as a list of mappings shows it */
    char shm_text[32];
    struct process *processes;
    size_t nprocesses;
    uint64_t own;
    /* The round over all processes, which may take several looks. */
    uint32_t pass;
    pid_t scanned; /* the last process that was looked into */
    struct object *objects;
    uint64_t nameless; /* bytes of objects that found no place, in this pass */
    uint64_t shared;   /* bytes of all objects at the end of the last pass */
    /* The round over all sockets. */
    size_t dump;
    bool dumping;
    uint64_t sockets_so_far, sockets;
    /* What forks share, when it was last found out. */
    uint64_t fair, fair_own;
    int64_t fair_until_ms;
};

/* ---- the disk, System V ---- */

static uint64_t disk_bytes(const struct watch *w) {
    struct statfs fs;
    if (w->o.disk < 0 || fstatfs(w->o.disk, &fs) < 0)
        return 0;
    return (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
}

/* Both count for the sandbox's ipc namespace, attached and read or not. */
static uint64_t ipc_bytes(void) {
    struct shm_info shm = {0};
    struct msginfo msg = {0};
    uint64_t total = 0;
    if (shmctl(0, SHM_INFO, (struct shmid_ds *)(void *)&shm) >= 0)
        total += (uint64_t)(shm.shm_rss + shm.shm_swp) * (uint64_t)sysconf(_SC_PAGESIZE);
    if (msgctl(0, MSG_INFO, (struct msqid_ds *)(void *)&msg) >= 0)
        total += (uint64_t)msg.msgtql + (uint64_t)msg.msgmap * MESSAGE_OVERHEAD;
    return total;
}

/* What no process holds any more would stay for ever: nobody is left to be killed for it. */
static void drop_ipc(void) {
    struct shm_info info;
    struct msginfo queues;
    int last = shmctl(0, SHM_INFO, (struct shmid_ds *)(void *)&info);
    for (int i = 0; i <= last; i++) {
        struct shmid_ds one;
        int id = shmctl(i, SHM_STAT, &one);
        if (id >= 0 && one.shm_nattch == 0)
            (void)shmctl(id, IPC_RMID, NULL);
    }
    last = msgctl(0, MSG_INFO, (struct msqid_ds *)(void *)&queues);
    for (int i = 0; i <= last; i++) {
        struct msqid_ds one;
        int id = msgctl(i, MSG_STAT, &one);
        if (id >= 0)
            (void)msgctl(id, IPC_RMID, NULL);
    }
}

/* ---- sockets ---- */

static const struct {
    uint8_t family, protocol;
} dumps[] = {{AF_UNIX, 0},
             {AF_INET, IPPROTO_TCP},
             {AF_INET6, IPPROTO_TCP},
             {AF_INET, IPPROTO_UDP},
             {AF_INET6, IPPROTO_UDP}};

enum { TCP_FIRST = 1, TCP_END = 3 };

int watch_diag(void) {
    return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
}

static bool ask_for_sockets(const struct watch *w, size_t which) {
    struct {
        struct nlmsghdr head;
        union {
            struct unix_diag_req local;
            struct inet_diag_req_v2 inet;
        };
    } m = {.head = {.nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP}};
    if (dumps[which].family == AF_UNIX) {
        m.local = (struct unix_diag_req){.sdiag_family = AF_UNIX,
                                         .udiag_states = ~0U,
                                         .udiag_show = UDIAG_SHOW_MEMINFO | UDIAG_SHOW_RQLEN |
                                                       UDIAG_SHOW_PEER};
        m.head.nlmsg_len = NLMSG_LENGTH(sizeof(m.local));
    } else {
        m.inet = (struct inet_diag_req_v2){.sdiag_family = dumps[which].family,
                                           .sdiag_protocol = dumps[which].protocol,
                                           .idiag_ext = 1 << (INET_DIAG_SKMEMINFO - 1),
                                           .idiag_states = ~0U};
        m.head.nlmsg_len = NLMSG_LENGTH(sizeof(m.inet));
    }
    return send(w->o.diag, &m, m.head.nlmsg_len, MSG_NOSIGNAL) > 0;
}

static uint64_t meminfo_bytes(const uint32_t *v) {
    return (uint64_t)v[SK_MEMINFO_RMEM_ALLOC] + v[SK_MEMINFO_WMEM_ALLOC] +
           v[SK_MEMINFO_WMEM_QUEUED] + v[SK_MEMINFO_FWD_ALLOC] + v[SK_MEMINFO_BACKLOG];
}

static uint64_t socket_bytes(const struct nlmsghdr *h, bool local) {
    const uint32_t *memory = NULL;
    bool peer = false;
    uint64_t queued = 0;
    size_t head = local ? sizeof(struct unix_diag_msg) : sizeof(struct inet_diag_msg);
    const char *p = (const char *)NLMSG_DATA(h) + NLMSG_ALIGN(head);
    const char *end = (const char *)h + h->nlmsg_len;
    while (end - p >= (ptrdiff_t)sizeof(struct nlattr)) {
        struct nlattr a;
        memcpy(&a, p, sizeof(a));
        if (a.nla_len < sizeof(a) || a.nla_len > end - p)
            break;
        const void *value = p + NLA_HDRLEN;
        size_t len = a.nla_len - NLA_HDRLEN;
        if (a.nla_type == (local ? UNIX_DIAG_MEMINFO : INET_DIAG_SKMEMINFO) &&
            len > SK_MEMINFO_BACKLOG * sizeof(uint32_t))
            memory = value;
        if (local && a.nla_type == UNIX_DIAG_PEER && len >= sizeof(uint32_t))
            peer = *(const uint32_t *)value != 0; /* the number of one that is closed is 0 */
        if (local && a.nla_type == UNIX_DIAG_RQLEN && len >= sizeof(uint32_t))
            queued = *(const uint32_t *)value;
        p += NLA_ALIGN(a.nla_len);
    }
    if (!memory)
        return 0;
    /* What is in a local socket's queue counts for the sender. When that is gone nobody tells: it
     * is taken for as much as a sender may have had on the way. */
    uint64_t orphans = local && !peer && queued > 0 ? MAX(queued, memory[SK_MEMINFO_SNDBUF]) : 0;
    return meminfo_bytes(memory) + orphans;
}

/* One message; false when this dump has ended. */
static bool read_sockets(struct watch *w) {
    static _Alignas(struct nlmsghdr) char chunk[CHUNK];
    ssize_t n = recv(w->o.diag, chunk, sizeof(chunk), MSG_DONTWAIT);
    if (n <= 0)
        return false;
    size_t left = (size_t)n;
    for (const struct nlmsghdr *h = (const void *)chunk; NLMSG_OK(h, left);
         h = NLMSG_NEXT(h, left)) {
        if (h->nlmsg_type != SOCK_DIAG_BY_FAMILY)
            return false; /* the end, or this kernel cannot tell */
        w->sockets_so_far += socket_bytes(h, dumps[w->dump].family == AF_UNIX);
    }
    return true;
}

static void look_at_sockets(struct watch *w, int64_t until_ms) {
    bool first = true;
    while (w->o.diag >= 0 && (first || clock_mono_ms() < until_ms)) {
        first = false;
        if (w->o.sockets_only && w->dump < TCP_FIRST)
            w->dump = TCP_FIRST;
        if (!w->dumping)
            w->dumping = ask_for_sockets(w, w->dump);
        if (w->dumping && read_sockets(w))
            continue;
        w->dumping = false;
        if (++w->dump < (w->o.sockets_only ? TCP_END : ARRAY_LEN(dumps)))
            continue;
        w->dump = 0;
        w->sockets = w->sockets_so_far;
        w->sockets_so_far = 0;
        return;
    }
}

/* How many TCP sockets the sandbox has: a look at each walks the tables of the whole machine. */
static uint64_t count_tcp(void) {
    static const char *const files[] = {"/proc/self/net/sockstat", "/proc/self/net/sockstat6"};
    uint64_t total = 0;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char text[1024];
        unsigned long long n = 0;
        _cleanup_(close) int fd = open(files[i], O_RDONLY | O_CLOEXEC);
        ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        if (got < 0 && i == 0)
            return UINT64_MAX; /* there is no /proc */
        text[MAX(got, 0)] = 0;
        const char *p = strstr(text, i == 0 ? "TCP: inuse " : "TCP6: inuse ");
        if (p && sscanf(p, "%*s inuse %llu", &n) == 1)
            total += n;
    }
    return total;
}

/* The control group refuses what goes beyond its limit for sockets, but for a packet each. */
static size_t look_at_tcp(struct watch *w, pid_t ret_victims[WATCH_VICTIMS_MAX]) {
    if (!w->dumping && w->dump == 0 && count_tcp() < w->o.limit_bytes / SOCKET_BYTES) {
        w->sockets = 0;
        return 0;
    }
    look_at_sockets(w, clock_mono_ms() + LOOK_MS);
    if (MAX(w->sockets, w->sockets_so_far) <= w->o.limit_bytes)
        return 0;
    w->sockets = 0;
    ret_victims[0] = WATCH_EVERYBODY;
    return 1;
}

/* ---- processes ---- */

static ssize_t watch_read_file(const struct watch *w, pid_t pid, const char *name, char *out,
                               size_t size) {
    char path[64];
    (void)snprintf(path, sizeof(path), "%d/%s", (int)pid, name);
    _cleanup_(close) int fd = openat(w->o.proc, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, size - 1);
    if (n >= 0)
        out[n] = 0;
    return n;
}

/* Whether its descriptors may be looked at: a process can make itself opaque. */
static bool watch_is_open(const struct watch *w, pid_t pid) {
    char path[64];
    (void)snprintf(path, sizeof(path), "%d/fd", (int)pid);
    _cleanup_(close) int fd = openat(w->o.proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0;
}

static uint64_t shared_bytes(const struct watch *w, pid_t pid) {
    char text[4096];
    unsigned long long kib;
    const char *p = NULL;
    if (watch_read_file(w, pid, "status", text, sizeof(text)) > 0)
        p = strstr(text, "\nRssShmem:");
    return p && sscanf(p, "\nRssShmem: %llu", &kib) == 1 ? kib * 1024 : 0;
}

static uint64_t own_bytes(const struct watch *w, pid_t pid) {
    char text[128];
    unsigned long long size, resident, shared;
    if (watch_read_file(w, pid, "statm", text, sizeof(text)) <= 0 ||
        sscanf(text, "%llu %llu %llu", &size, &resident, &shared) != 3 || resident < shared)
        return 0;
    uint64_t own = (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
    /* Which memory an opaque one shares cannot be seen: it counts for all that it maps of it. */
    return shared > 0 && !watch_is_open(w, pid) ? own + shared_bytes(w, pid) : own;
}

static int by_pid(const void *a, const void *b) {
    const struct process *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

static bool is_dying(const struct process *p) {
    return p->looks > 0 && p->looks < DYING_LOOKS;
}

static void list_processes(struct watch *w) {
    struct process *old = w->processes;
    size_t nold = w->nprocesses, room = nold + 16, n = 0;
    struct process *all = xcalloc(room, sizeof(*all));
    int fd = openat(w->o.proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *e; d && (e = readdir(d));) {
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid <= 1)
            continue;
        if (n == room)
            all = xrealloc(all, (room *= 2) * sizeof(*all));
        struct process key = {.pid = pid};
        const struct process *was = nold ? bsearch(&key, old, nold, sizeof(key), by_pid) : NULL;
        all[n] = was ? *was : key;
        all[n].looks += all[n].looks > 0;
        all[n++].own = own_bytes(w, pid);
    }
    if (d)
        closedir(d);
    qsort(all, n, sizeof(*all), by_pid);
    free(old);
    w->processes = all;
    w->nprocesses = n;
    w->own = 0;
    for (size_t i = 0; i < n; i++) {
        if (is_dying(&all[i]))
            all[i].own = 0;
        w->own += all[i].own;
    }
}

/* ---- what they share ---- */

static struct object *find_object(struct watch *w, ino_t inode) {
    for (size_t i = 0; i < 64; i++) {
        struct object *o = &w->objects[(inode * 2654435761U + i) % OBJECTS];
        bool stale = o->inode != 0 && o->pass + 1 < w->pass;
        if (o->inode == 0 || stale)
            *o = (struct object){.inode = inode};
        if (o->inode == inode)
            return o;
    }
    return NULL;
}

static void note_object(struct watch *w, ino_t inode, uint64_t bytes, bool exact, pid_t holder) {
    struct object *o = find_object(w, inode);
    if (!o) {
        w->nameless += bytes;
        return;
    }
    if (exact || o->pass != w->pass)
        o->bytes = bytes;
    else if (o->exact != w->pass)
        o->bytes = MAX(o->bytes, bytes);
    if (exact)
        o->exact = w->pass;
    o->pass = w->pass;
    o->holder = holder;
}

static void look_at_descriptors(struct watch *w, struct process *p) {
    char path[64];
    (void)snprintf(path, sizeof(path), "%d/fd", (int)p->pid);
    int fd = openat(w->o.proc, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    int n = 0;
    p->sockets = 0;
    for (struct dirent *e; d && n < FDS_MAX && (e = readdir(d)); n++) {
        struct statx st;
        /* Never asks a server: what is on a network's disk is none of ours. */
        if (e->d_name[0] == '.' ||
            statx(fd, e->d_name, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_BASIC_STATS, &st) < 0)
            continue;
        p->sockets += S_ISSOCK(st.stx_mode);
        if (S_ISREG(st.stx_mode) && makedev(st.stx_dev_major, st.stx_dev_minor) == w->shm)
            note_object(w, st.stx_ino, st.stx_blocks * 512, true, p->pid);
    }
    if (d)
        closedir(d);
}

/* How much of an object that only a mapping holds is there, nobody tells: it may be all that is
 * mapped. System V's are counted elsewhere. */
static void look_at_mapping(struct watch *w, const char *line, pid_t pid) {
    unsigned long from, to, offset, inode;
    unsigned major, minor;
    char path[8] = "";
    if (sscanf(line, "%lx-%lx %*s %lx %x:%x %lu %7s", &from, &to, &offset, &major, &minor, &inode,
               path) < 6 ||
        inode == 0 || makedev(major, minor) != w->shm || strncmp(path, "/SYSV", 5) == 0)
        return;
    struct object *o = find_object(w, inode);
    if (o && o->pass == w->pass && o->exact == w->pass)
        return;
    note_object(w, inode, offset + (to - from), false, pid);
}

static void look_at_mappings(struct watch *w, const struct process *p) {
    static char text[CHUNK];
    char path[64];
    size_t have = 0, total = 0;
    (void)snprintf(path, sizeof(path), "%d/maps", (int)p->pid);
    _cleanup_(close) int fd = openat(w->o.proc, path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && total < MAPS_MAX) {
        ssize_t n = read(fd, text + have, sizeof(text) - 1 - have);
        if (n <= 0)
            return;
        total += (size_t)n;
        have += (size_t)n;
        text[have] = 0;
        char *at = text;
        for (char *end; (end = strchr(at, '\n')); at = end + 1) {
            *end = 0;
            if (strstr(at, w->shm_text))
                look_at_mapping(w, at, p->pid);
        }
        have -= (size_t)(at - text);
        memmove(text, at, have);
        if (have == sizeof(text) - 1)
            have = 0; /* no line of the kernel's is that long */
    }
}

static uint64_t objects_bytes(const struct watch *w) {
    uint64_t total = w->nameless;
    for (size_t i = 0; i < OBJECTS; i++)
        if (w->objects[i].inode != 0 && w->objects[i].pass == w->pass)
            total += w->objects[i].bytes;
    return total;
}

/* Goes on where the last look ended. */
static void look_into_processes(struct watch *w, int64_t until_ms) {
    size_t i = 0;
    while (i < w->nprocesses && w->processes[i].pid <= w->scanned)
        i++;
    for (bool first = true; i < w->nprocesses; i++, first = false) {
        if (!first && clock_mono_ms() >= until_ms)
            return;
        if (!is_dying(&w->processes[i])) {
            look_at_descriptors(w, &w->processes[i]);
            look_at_mappings(w, &w->processes[i]);
        }
        w->scanned = w->processes[i].pid;
    }
    w->shared = objects_bytes(w);
    w->nameless = 0;
    w->scanned = 0;
    w->pass++;
}

/* ---- what forks share ---- */

static bool fair_bytes(const struct watch *w, pid_t pid, uint64_t *ret) {
    char text[2048];
    unsigned long long kib;
    const char *p = NULL;
    if (watch_read_file(w, pid, "smaps_rollup", text, sizeof(text)) > 0)
        p = strstr(text, "\nPss_Anon:");
    if (!p || sscanf(p, "\nPss_Anon: %llu", &kib) != 1)
        return false;
    *ret = kib * 1024;
    return true;
}

static int by_own(const void *a, const void *b) {
    const struct process *x = a, *y = b;
    return (x->own < y->own) - (x->own > y->own);
}

/* Pages that a fork has not written to yet are one page. Finding that out takes a walk over all of
 * them, so it is done when it decides something, and not much more often than a tenth of the time.
 * On a busy machine it takes longer, but is no more work: nobody is killed for want of a look. */
static uint64_t fair_share(struct watch *w, uint64_t room) {
    int64_t now = clock_mono_ms();
    uint64_t guess = w->fair + (w->own > w->fair_own ? w->own - w->fair_own : 0);
    if (now < w->fair_until_ms && guess <= room)
        return guess;
    uint64_t before = w->own;
    int64_t end_cpu_ms = clock_cpu_ms() + SHARES_MS;
    qsort(w->processes, w->nprocesses, sizeof(*w->processes), by_own);
    for (size_t i = 0; i < w->nprocesses && clock_cpu_ms() < end_cpu_ms; i++) {
        struct process *p = &w->processes[i];
        uint64_t fair = p->own;
        if (p->own > 0 && fair_bytes(w, p->pid, &fair)) {
            w->own -= p->own;
            p->own = MIN(fair, p->own);
            w->own += p->own;
        }
    }
    qsort(w->processes, w->nprocesses, sizeof(*w->processes), by_pid);
    w->fair = w->own;
    w->fair_own = before;
    w->fair_until_ms = clock_mono_ms() + 10 * (clock_mono_ms() - now + 1);
    return w->own;
}

/* ---- the verdict ---- */

static void spread_charges(struct watch *w) {
    uint64_t sockets = 0;
    for (size_t i = 0; i < w->nprocesses; i++)
        sockets += w->processes[i].sockets;
    for (size_t i = 0; i < w->nprocesses; i++) {
        struct process *p = &w->processes[i];
        p->shared = 0;
        p->charge = p->own + (sockets ? w->sockets * p->sockets / sockets : 0);
    }
    for (size_t i = 0; i < OBJECTS; i++) {
        const struct object *o = &w->objects[i];
        struct process key = {.pid = o->holder};
        struct process *p = o->inode == 0 || o->pass + 1 < w->pass || w->nprocesses == 0
                                ? NULL
                                : bsearch(&key, w->processes, w->nprocesses, sizeof(key), by_pid);
        if (p) {
            p->shared += o->bytes;
            p->charge += o->bytes;
        }
    }
}

/* The largest, until what they hold is enough. */
static size_t watch_choose(struct watch *w, uint64_t over, pid_t ret_victims[WATCH_VICTIMS_MAX]) {
    size_t n = 0;
    for (uint64_t freed = 0; freed < over && n < WATCH_VICTIMS_MAX;) {
        struct process *most = NULL;
        for (size_t i = 0; i < w->nprocesses; i++) {
            struct process *p = &w->processes[i];
            if (!is_dying(p) && (!most || p->charge > most->charge))
                most = p;
        }
        if (!most)
            break;
        most->looks = 1;
        freed += most->charge;
        w->shared -= MIN(w->shared, most->shared);
        w->sockets -= MIN(w->sockets, most->charge - most->own - most->shared);
        ret_victims[n++] = most->pid;
        if (most->charge < over / 64)
            break; /* it is not theirs: one at a time */
    }
    return n;
}

struct watch *watch_create(const struct watch_options *options) {
    struct watch *w = xcalloc(1, sizeof(*w));
    struct stat st;
    w->o = *options;
    w->pass = 2;
    if (w->o.sockets_only)
        return w;
    w->objects = mmap(NULL, OBJECTS * sizeof(struct object), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    _cleanup_(close) int fd = memfd_create("watch", MFD_CLOEXEC);
    if (w->objects == MAP_FAILED || fd < 0 || fstat(fd, &st) < 0)
        _exit(1);
    w->shm = st.st_dev;
    (void)snprintf(w->shm_text, sizeof(w->shm_text), " %02x:%02x ", major(st.st_dev),
                   minor(st.st_dev));
    return w;
}

size_t watch_look(struct watch *w, pid_t ret_victims[WATCH_VICTIMS_MAX]) {
    if (w->o.sockets_only)
        return look_at_tcp(w, ret_victims);
    int64_t until_ms = clock_mono_ms() + LOOK_MS;
    list_processes(w);
    look_into_processes(w, until_ms);
    look_at_sockets(w, until_ms);
    uint64_t rest = disk_bytes(w) + ipc_bytes() + w->shared + MAX(w->sockets, w->sockets_so_far);
    uint64_t limit = w->o.limit_bytes;
    if (w->own + rest <= limit)
        return 0;
    uint64_t total = rest + fair_share(w, limit > rest ? limit - rest : 0);
    if (total <= limit)
        return 0;
    spread_charges(w);
    size_t n = watch_choose(w, total - limit, ret_victims);
    if (rest > limit)
        drop_ipc();
    return n;
}

bool watch_is_idle(const struct watch *w) {
    if (w->o.sockets_only)
        return kill(-1, 0) < 0;
    return w->nprocesses == 0;
}
