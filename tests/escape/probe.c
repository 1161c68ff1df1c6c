/* Runs inside a sandbox and tries to get out. `probe NAME [ARG]` makes one attempt and prints
 * "NAME=ERRNO" (0: it worked), or what it counted. Static, so that it needs nothing of the guest.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/if_packet.h>
#include <linux/io_uring.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/reboot.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static const char *arg = "";
static int pairs;
static long most_mib; /* that somebody is to notice; 0: nobody looks */

static int result(long rc) {
    return rc < 0 ? errno : 0;
}

static void ignore(int signo) {
    struct sigaction a = {.sa_handler = SIG_IGN};
    sigaction(signo, &a, NULL);
}

/* Holds what it has until it is killed. */
static int stay(void) {
    printf("ready\n");
    fflush(stdout);
    for (;;)
        pause();
    return 0;
}

/* ---- system calls ---- */

static int p_mount(void) {
    return result(mount("none", "/tmp", "tmpfs", 0, NULL));
}
static int p_remount(void) {
    return result(mount(NULL, "/usr", NULL, MS_REMOUNT | MS_BIND, NULL));
}
static int p_umount(void) {
    return result(umount2("/proc", MNT_DETACH));
}
static int p_pivot_root(void) {
    return result(syscall(SYS_pivot_root, "/tmp", "/tmp"));
}
static int p_chroot(void) {
    return result(chroot("/tmp"));
}
static int p_fsopen(void) {
    return result(syscall(SYS_fsopen, "tmpfs", 0));
}
static int p_open_tree(void) {
    return result(syscall(SYS_open_tree, AT_FDCWD, "/", 1));
}
static int p_move_mount(void) {
    return result(syscall(SYS_move_mount, AT_FDCWD, "/tmp", AT_FDCWD, "/work", 0));
}
static int p_mount_setattr(void) {
    char attr[32] = {0};
    return result(syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, attr, sizeof(attr)));
}
static int p_unshare_user(void) {
    return result(unshare(CLONE_NEWUSER));
}
static int p_unshare_net(void) {
    return result(unshare(CLONE_NEWNET));
}
static int p_clone_newuser(void) {
    long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    return result(pid);
}
static int p_clone3(void) {
    uint64_t args[8] = {0};
    args[4] = SIGCHLD;
    long pid = syscall(SYS_clone3, args, sizeof(args));
    if (pid == 0)
        _exit(0);
    return result(pid);
}
static int p_setns(void) {
    int fd = open("/proc/self/ns/mnt", O_RDONLY);
    return result(syscall(SYS_setns, fd, 0));
}
static int p_ptrace(void) {
    pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    int rc = result(ptrace(PTRACE_ATTACH, pid, 0, 0));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return rc;
}
static int p_ptrace_init(void) {
    return result(ptrace(PTRACE_SEIZE, 1, 0, 0));
}
static int vm(long nr) {
    char a[8], b[8];
    struct iovec l = {a, 8}, r = {b, 8};
    return result(syscall(nr, getpid(), &l, 1, &r, 1, 0));
}
static int p_vm_readv(void) {
    return vm(SYS_process_vm_readv);
}
static int p_vm_writev(void) {
    return vm(SYS_process_vm_writev);
}
static int p_keyctl(void) {
    return result(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 1));
}
static int p_add_key(void) {
    return result(syscall(SYS_add_key, "user", "x", "y", 1, KEY_SPEC_PROCESS_KEYRING));
}
static int p_bpf(void) {
    union bpf_attr attr;
    memset(&attr, 0, sizeof(attr));
    attr.map_type = BPF_MAP_TYPE_ARRAY;
    attr.key_size = 4;
    attr.value_size = 4;
    attr.max_entries = 1;
    return result(syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr)));
}
static int p_userfaultfd(void) {
    return result(syscall(SYS_userfaultfd, 1 /* UFFD_USER_MODE_ONLY */));
}
static int p_io_uring(void) {
    struct io_uring_params p;
    memset(&p, 0, sizeof(p));
    return result(syscall(SYS_io_uring_setup, 4, &p));
}
static int p_perf(void) {
    struct perf_event_attr a;
    memset(&a, 0, sizeof(a));
    a.type = PERF_TYPE_SOFTWARE;
    a.size = sizeof(a);
    a.config = PERF_COUNT_SW_DUMMY;
    a.exclude_kernel = 1;
    return result(syscall(SYS_perf_event_open, &a, 0, -1, -1, 0));
}
static int p_handle(void) {
    char h[64] = {0};
    return result(syscall(SYS_open_by_handle_at, AT_FDCWD, h, O_RDONLY));
}
static int p_name_to_handle(void) {
    struct {
        unsigned bytes;
        int type;
        char f[128];
    } h = {.bytes = 128};
    int id;
    return result(syscall(SYS_name_to_handle_at, AT_FDCWD, "/tmp", &h, &id, 0));
}
static int p_init_module(void) {
    return result(syscall(SYS_init_module, "", 0, ""));
}
static int p_finit_module(void) {
    return result(syscall(SYS_finit_module, 0, "", 0));
}
static int p_delete_module(void) {
    return result(syscall(SYS_delete_module, "loop", O_NONBLOCK));
}
static int p_kexec(void) {
    return result(syscall(SYS_kexec_load, 0, 0, NULL, 0));
}
static int p_reboot(void) {
    return result(
        syscall(SYS_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_CMD_CAD_OFF, 0));
}
static int p_settimeofday(void) {
    struct timeval tv = {1, 0};
    return result(syscall(SYS_settimeofday, &tv, NULL));
}
static int p_clock_settime(void) {
    struct timespec ts = {1, 0};
    return result(clock_settime(CLOCK_REALTIME, &ts));
}
static int p_sethostname(void) {
    return result(sethostname("x", 1));
}
static int p_mknod(void) {
    return result(mknod("/work/kmem", S_IFCHR | 0600, makedev(1, 2)));
}
static int p_mknod_fifo(void) {
    return result(mknod("/work/fifo", S_IFIFO | 0600, 0));
}
static int p_iopl(void) {
    return result(syscall(SYS_iopl, 3));
}
static int p_ioperm(void) {
    return result(syscall(SYS_ioperm, 0x80, 1, 1));
}
static int p_setuid0(void) {
    return result(syscall(SYS_setuid, 0));
}
static int p_setuid_init(void) {
    return result(syscall(SYS_setuid, 1));
}
static int p_personality(void) {
    return result(personality(0x0040000));
}
static int p_pidfd_getfd(void) {
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    return result(syscall(SYS_pidfd_getfd, fd, 0, 0));
}
static int p_kcmp(void) {
    return result(syscall(SYS_kcmp, getpid(), getpid(), 0, 0, 0));
}
static int p_prlimit_init(void) {
    struct rlimit r = {0, 0};
    return result(syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, NULL, &r));
}
static int p_syslog(void) {
    return result(syscall(SYS_syslog, 10, NULL, 0));
}
static int p_swapon(void) {
    return result(syscall(SYS_swapon, "/work/x", 0));
}
static int p_acct(void) {
    return result(syscall(SYS_acct, NULL));
}
static int p_fanotify(void) {
    return result(syscall(SYS_fanotify_init, 0x200 /* FAN_REPORT_FID: no capability is asked for */,
                          O_RDONLY));
}
static int p_mbind(void) {
    void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return result(syscall(SYS_mbind, p, 4096, 0, NULL, 0, 0));
}
static int p_syncfs(void) {
    return result(syncfs(open("/usr", O_RDONLY)));
}
static int p_raise_caps(void) {
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2] = {{.effective = 1 << 21, .permitted = 1 << 21}};
    return result(syscall(SYS_capset, &h, d));
}
static int p_no_new_privs(void) {
    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? EPERM : 0;
}
static int p_bounding(void) {
    for (int i = 0; i < 40; i++)
        if (prctl(PR_CAPBSET_READ, i, 0, 0, 0) > 0)
            return 0;
    return EPERM;
}
static int p_x32(void) {
    pid_t pid = fork();
    if (pid == 0) {
        syscall(0x40000000 + 39);
        _exit(0);
    }
    int st;
    waitpid(pid, &st, 0);
    return WIFSIGNALED(st) ? WTERMSIG(st) : 0;
}
static int p_int80(void) {
#ifdef __x86_64__
    pid_t pid = fork();
    if (pid == 0) {
        long r;
        __asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory");
        _exit(r > 0 ? 0 : 1);
    }
    int st;
    waitpid(pid, &st, 0);
    return WIFSIGNALED(st) ? WTERMSIG(st) : 0;
#else
    return SIGSYS;
#endif
}

/* ---- terminals ---- */

static int sti(unsigned long nr) {
    int m = open("/dev/ptmx", O_RDWR | O_NOCTTY), unlock = 0;
    if (m < 0 || ioctl(m, TIOCSPTLCK, &unlock) < 0)
        return 1000;
    setsid();
    int s = ioctl(m, TIOCGPTPEER, O_RDWR);
    if (s < 0 || ioctl(s, TIOCSCTTY, 0) < 0)
        return 1001;
    return result(syscall(SYS_ioctl, s, nr, "x"));
}
static int p_tiocsti(void) {
    return sti(TIOCSTI);
}
static int p_tiocsti_high(void) {
    return sti(TIOCSTI | 1UL << 32);
}

/* ---- sockets ---- */

static int p_raw(void) {
    return result(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
}
static int p_packet(void) {
    return result(socket(AF_PACKET, SOCK_RAW, 0));
}
static int p_vsock(void) {
    return result(socket(40, SOCK_STREAM, 0));
}
static int p_alg(void) {
    return result(socket(38, SOCK_SEQPACKET, 0));
}
static int p_netlink_audit(void) {
    return result(socket(AF_NETLINK, SOCK_RAW, 9));
}
static int p_mptcp(void) {
    return result(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 262));
}
static int p_udplite(void) {
    return result(socket(AF_INET, SOCK_DGRAM, 136));
}
static int p_sctp(void) {
    return result(socket(AF_INET, SOCK_SEQPACKET, 0));
}
static int p_sockets(void) {
    static const int kinds[][3] = {{AF_INET, SOCK_STREAM, 0},
                                   {AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP},
                                   {AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, IPPROTO_UDP},
                                   {AF_INET6, SOCK_DGRAM, 0},
                                   {AF_UNIX, SOCK_SEQPACKET, 0},
                                   {AF_NETLINK, SOCK_RAW, 0}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (socket(kinds[i][0], kinds[i][1], kinds[i][2]) < 0)
            return errno;
    return 0;
}
static int p_pressure(void) {
    static const char trigger[] = "some 150000 1000000";
    int fd = open("/proc/pressure/memory", O_RDWR);
    return fd < 0 ? errno : result(write(fd, trigger, sizeof(trigger)));
}
static int p_abstract(void) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = strlen(arg);
    memcpy(a.sun_path + 1, arg, n);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    return result(connect(s, (struct sockaddr *)&a,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)));
}
static int connect_to(const char *ip, int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, ip, &a.sin_addr);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    return result(connect(s, (struct sockaddr *)&a, sizeof(a)));
}
static int p_loopback(void) {
    return connect_to("127.0.0.1", (int)strtol(arg, NULL, 10));
}
static int p_metadata(void) {
    return connect_to("169.254.169.254", 80);
}
static int p_scm_rights(void) {
    for (int fd = 0; fd < 3; fd++) {
        char space[CMSG_SPACE(sizeof(int))] = {0}, c = 'x';
        struct iovec v = {&c, 1};
        struct msghdr m = {
            .msg_iov = &v, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int));
        if (sendmsg(fd, &m, 0) >= 0)
            return 0;
    }
    return errno;
}

/* ---- files ---- */

/* What is covered by /dev/null opens, and is no such device. */
static int opened(int fd) {
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3))
        return ENODEV;
    return result(fd);
}
static int p_read(void) {
    return opened(open(arg, O_RDONLY));
}
static int p_write(void) {
    return opened(open(arg, O_WRONLY));
}
static int p_create(void) {
    return result(open(arg, O_WRONLY | O_CREAT, 0644));
}
static int p_suid(void) {
    char path[256];
    snprintf(path, sizeof(path), "%s/suid", arg);
    int fd = open(path, O_WRONLY | O_CREAT, 0755);
    if (fd < 0)
        return 1000 + errno;
    return result(fchmod(fd, 04755));
}
static int p_suid_open(void) {
    char path[256];
    snprintf(path, sizeof(path), "%s/suid2", arg);
    return result(open(path, O_WRONLY | O_CREAT, 04755));
}
static int p_suid_temp(void) {
    char path[256], from[64];
    int fd = open(arg, O_TMPFILE | O_WRONLY, 06755);
    if (fd < 0)
        return errno;
    snprintf(path, sizeof(path), "%s/suid3", arg);
    snprintf(from, sizeof(from), "/proc/self/fd/%d", fd);
    return result(linkat(AT_FDCWD, from, AT_FDCWD, path, AT_SYMLINK_FOLLOW));
}
static int p_chmod_suid(void) {
    return result(chmod(arg, 04755));
}
static int p_kill(void) {
    return result(kill((pid_t)strtol(arg, NULL, 10), 0));
}
static int p_kill_init(void) {
    (void)kill(1, SIGKILL);
    (void)kill(1, SIGSTOP);
    (void)kill(1, SIGTERM);
    (void)kill(1, SIGUSR1);
    (void)kill(1, SIGCHLD);
    return 0;
}
/* Stops whatever process is made next, for ever. */
static int p_stop_next(void) {
    for (;;) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        waitpid(pid, NULL, 0);
        for (int round = 0; round < 2000; round++)
            for (pid_t next = pid + 1; next < pid + 8; next++)
                (void)kill(next, SIGSTOP);
    }
    return 0;
}
/* Whoever opens or executes the file waits until the lease is given back, which it is not. */
static int p_lease(void) {
    int fd = open(arg, O_RDONLY);
    ignore(SIGIO);
    if (fd < 0 || fcntl(fd, F_SETLEASE, F_WRLCK) < 0)
        return errno;
    return stay();
}
/* Descriptors on their way, as many as one user may have. */
static int p_in_flight(void) {
    int n = 0, pair[2];
    while (n < 100000 && socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair) == 0) {
        int fds[250];
        for (int i = 0; i < 250; i++)
            fds[i] = pair[0];
        char space[CMSG_SPACE(sizeof(fds))] = {0}, c = 'x';
        struct iovec v = {&c, 1};
        struct msghdr m = {
            .msg_iov = &v, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space)};
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(fds));
        memcpy(CMSG_DATA(h), fds, sizeof(fds));
        if (sendmsg(pair[1], &m, 0) < 0)
            break;
        n += 250;
    }
    return stay();
}
static int p_fds(void) {
    int n = 0;
    struct stat st;
    for (int fd = 3; fd < 1024; fd++)
        if (fstat(fd, &st) == 0)
            n++;
    return n;
}

/* ---- bombs: print what was reached ---- */

static int p_forks(void) {
    int n = 0;
    setpgid(0, 0);
    for (; n < 5000; n++) {
        pid_t pid = fork();
        if (pid == 0) {
            pause();
            _exit(0);
        }
        if (pid < 0)
            break;
    }
    int sys = errno;
    printf("forks=%d\n", n);
    fflush(stdout);
    kill(0, SIGCONT);
    ignore(SIGTERM);
    if (strcmp(arg, "stay") == 0)
        for (;;)
            pause();
    kill(0, SIGTERM);
    return n == 5000 ? 0 : sys;
}
static int p_memory(void) {
    size_t total = 0;
    for (int i = 0; i < 4096; i++) {
        char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) {
            printf("mib=%zu\n", total >> 20);
            return errno;
        }
        memset(p, 1, 1 << 20);
        total += 1 << 20;
    }
    printf("mib=%zu\n", total >> 20);
    return 0;
}
/* Whoever holds too much is killed long before; if not, this is how long it takes to see that. */
enum { LONG_S = 50, MANY_KILLED = 10 };

/* Many processes with a little each: no limit of one process catches them. */
static int p_memory_many(void) {
    setpgid(0, 0);
    for (int i = 0; i < 16; i++)
        if (fork() == 0) {
            if (strcmp(arg, "hidden") == 0)
                prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
            char *p =
                mmap(NULL, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (p != MAP_FAILED)
                memset(p, 1, 32 << 20);
            sleep(LONG_S);
            _exit(0);
        }
    int killed = 0, st;
    while (killed < MANY_KILLED && wait(&st) > 0)
        killed += WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL;
    ignore(SIGTERM);
    kill(0, SIGTERM); /* those that are left */
    while (wait(&st) > 0)
        killed += WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL;
    printf("killed=%d\n", killed);
    return killed;
}
/* Memory that is in no process's own pages, 256 MiB of it, and then nothing for a while: "hold
 * KIND".
 */
enum { HELD = 256 << 20, PIECE = 1 << 20 };

static void hold_memfd(int mode) {
    int fd = memfd_create("hold", 0);
    static char piece[PIECE];
    memset(piece, 1, sizeof(piece));
    for (int i = 0; i < HELD / PIECE; i++)
        if (write(fd, piece, sizeof(piece)) < 0)
            _exit(9);
    if (mode == 1 && mmap(NULL, HELD, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED)
        close(fd); /* the mapping alone holds it, and was never touched */
}
static void hold_shm(void) {
    for (int i = 0; i < HELD / (16 << 20); i++) {
        char *p = shmat(shmget(IPC_PRIVATE, 16 << 20, 0600), NULL, 0);
        memset(p, 1, 16 << 20);
        shmdt(p); /* nobody has it mapped any more */
    }
}
static void hold_shared(int mode) {
    char *p = mmap(NULL, HELD, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (mode == 2 && fork() > 0) { /* a child fills it and goes */
        wait(NULL);
        return;
    }
    memset(p, 1, HELD);
    if (mode == 1)
        madvise(p, HELD, MADV_DONTNEED); /* out of the page tables, and still there */
    if (mode == 2)
        _exit(0);
}
static void hold_sockets(int mode) {
    static char piece[8192];
    long total = 0;
    for (int n = 0; n < 2000 && total < HELD; n++) {
        int pair[2], size = 4 << 20;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) < 0)
            break;
        setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
        for (ssize_t k; (k = write(pair[1], piece, sizeof(piece))) > 0;)
            total += k;
        if (mode == 1)
            close(pair[1]);
    }
}
static void hold_tcp(void) {
    static char piece[65536];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    int l = socket(AF_INET, SOCK_STREAM, 0);
    long total = 0;
    if (bind(l, (struct sockaddr *)&a, len) < 0 || listen(l, 1000) < 0 ||
        getsockname(l, (struct sockaddr *)&a, &len) < 0)
        _exit(9);
    for (int n = 0; n < 500 && total < HELD; n++) {
        int c = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(c, (struct sockaddr *)&a, sizeof(a)) < 0)
            break;
        fcntl(c, F_SETFL, O_NONBLOCK);
        for (ssize_t k; (k = write(c, piece, sizeof(piece))) > 0;)
            total += k;
    }
}
/* What the kernel holds for a socket, in both directions. */
static long held_by(int fd) {
    uint32_t v[16] = {0};
    socklen_t n = sizeof(v);
    if (getsockopt(fd, SOL_SOCKET, 55 /* SO_MEMINFO */, v, &n) < 0)
        return 0;
    return (long)v[0] + v[5]; /* received and not read, sent and not acknowledged */
}
static void fill_socket(int fd) {
    static char piece[60000];
    fcntl(fd, F_SETFL, O_NONBLOCK);
    /* A datagram that finds no room is dropped and not refused. */
    int most = strcmp(arg, "udp") == 0 ? 16 : 4096;
    for (int i = 0; i < most && write(fd, piece, sizeof(piece)) > 0; i++)
        ;
}
static int pair_of(int type, int pair[2]) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    int l = socket(AF_INET, type, 0);
    if (bind(l, (struct sockaddr *)&a, len) < 0 || getsockname(l, (struct sockaddr *)&a, &len) < 0)
        return -1;
    if (type == SOCK_STREAM && listen(l, 1) < 0)
        return -1;
    pair[0] = socket(AF_INET, type, 0);
    if (connect(pair[0], (struct sockaddr *)&a, len) < 0)
        return -1;
    if (type == SOCK_STREAM) {
        pair[1] = accept(l, NULL, NULL);
        close(l);
        return pair[1];
    }
    pair[1] = l;
    if (getsockname(pair[0], (struct sockaddr *)&a, &len) < 0)
        return -1;
    return connect(l, (struct sockaddr *)&a, len);
}
/* Connected pairs whose both directions are full, and how much that is. */
static int p_pairs(void) {
    bool udp = strcmp(arg, "udp") == 0;
    int n = pairs, pair[2], fds[4000], size = 1 << 20;
    long total = 0;
    for (int i = 0; i < n; i++) {
        if (pair_of(udp ? SOCK_DGRAM : SOCK_STREAM, pair) < 0)
            return errno;
        for (int k = 0; k < 2; k++) {
            if (udp)
                setsockopt(pair[k], SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
            fds[2 * i + k] = pair[k];
        }
        for (int k = 0; k < 2; k++)
            fill_socket(pair[k]);
    }
    for (int i = 0; i < 2 * n; i++)
        total += held_by(fds[i]);
    if (most_mib > 0 && total >> 20 >= most_mib)
        sleep(LONG_S); /* until it is noticed, however busy the machine is */
    printf("mib=%ld\n", total >> 20);
    return 0;
}
static int p_hold(void) {
    if (strcmp(arg, "memfd") == 0)
        hold_memfd(0);
    else if (strcmp(arg, "memfd_mapped") == 0)
        hold_memfd(1);
    else if (strcmp(arg, "shm") == 0)
        hold_shm();
    else if (strcmp(arg, "shared") == 0)
        hold_shared(0);
    else if (strcmp(arg, "shared_dropped") == 0)
        hold_shared(1);
    else if (strcmp(arg, "shared_left") == 0)
        hold_shared(2);
    else if (strcmp(arg, "sockets") == 0)
        hold_sockets(0);
    else if (strcmp(arg, "sockets_closed") == 0)
        hold_sockets(1);
    else if (strcmp(arg, "tcp") == 0)
        hold_tcp();
    else if (strcmp(arg, "private") == 0)
        memset(mmap(NULL, HELD / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1,
               HELD / 2);
    sleep(LONG_S);
    return 0;
}
/* Forks that have written to nothing: all of them together have 40 MiB. */
static int p_shares(void) {
    size_t size = 40 << 20;
    memset(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, size);
    for (int i = 0; i < 6; i++)
        if (fork() == 0) {
            sleep(1);
            _exit(0);
        }
    int killed = 0, st;
    while (wait(&st) > 0)
        killed += WIFSIGNALED(st);
    return killed;
}
static int p_disk(void) {
    static char chunk[1 << 20];
    memset(chunk, 'x', sizeof(chunk));
    size_t total = 0;
    ignore(SIGXFSZ);
    for (int f = 0; f < 64; f++) {
        char name[64];
        snprintf(name, sizeof(name), "%s/fill%d", f % 2 ? "/tmp" : "/work", f);
        int fd = open(name, O_WRONLY | O_CREAT, 0644);
        for (int i = 0; fd >= 0 && i < 16; i++) {
            ssize_t n = write(fd, chunk, sizeof(chunk));
            if (n < 0) {
                printf("mib=%zu\n", total >> 20);
                return errno;
            }
            total += (size_t)n;
        }
    }
    printf("mib=%zu\n", total >> 20);
    return 0;
}
static int p_inodes(void) {
    int n = 0;
    for (; n < 200000; n++) {
        char name[64];
        snprintf(name, sizeof(name), "/tmp/i%d", n);
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
        if (fd < 0)
            break;
        close(fd);
    }
    int sys = errno;
    printf("files=%d\n", n);
    return n == 200000 ? 0 : sys;
}
static int p_open_files(void) {
    int n = 0;
    while (n < 100000 && dup(0) >= 0)
        n++;
    int sys = errno;
    printf("fds=%d\n", n);
    return n == 100000 ? 0 : sys;
}
/* How many of these a user has is for all his processes. */
static int p_inotify(void) {
    int n = 0;
    while (n < 4000 && inotify_init() >= 0)
        n++;
    int sys = errno;
    if (strcmp(arg, "stay") == 0)
        return stay();
    printf("instances=%d\n", n);
    return n == 4000 ? 0 : sys;
}
/* How many the whole machine has is for everybody. */
static int p_terminals(void) {
    enum { MANY = 1500 }; /* half of what there is for sandboxes: others have some meanwhile */
    int n = 0;
    while (n < MANY && open("/dev/ptmx", O_RDWR | O_NOCTTY) >= 0)
        n++;
    int sys = errno;
    if (strcmp(arg, "stay") == 0)
        return stay();
    printf("terminals=%d\n", n);
    return n == MANY ? 0 : sys;
}
/* 1 and not 0: a handler of the host that is fed by a pipe is started at 0. */
static int p_core(void) {
    struct rlimit none = {0, 0}, have;
    setrlimit(RLIMIT_CORE, &none);
    syscall(SYS_setrlimit, RLIMIT_CORE, &none);
    syscall(SYS_setrlimit, RLIMIT_CORE | 1UL << 32, &none);
    syscall(SYS_prlimit64, 0, RLIMIT_CORE, &none, NULL);
    syscall(SYS_prlimit64, getpid(), RLIMIT_CORE, &none, NULL);
    syscall(SYS_prlimit64, 0, RLIMIT_CORE | 1UL << 32, &none, &have);
    if (getrlimit(RLIMIT_CORE, &have) < 0)
        return errno;
    none.rlim_max = 7;
    if (setrlimit(RLIMIT_NICE, &none) == 0 && getrlimit(RLIMIT_AS, &none) < 0)
        return 1000;
    return (int)have.rlim_cur * 10 + (int)have.rlim_max;
}
static int p_sparse(void) {
    ignore(SIGXFSZ);
    int fd = open("/work/sparse", O_WRONLY | O_CREAT, 0644);
    return result(ftruncate(fd, 1LL << 40));
}
static int p_flood(void) {
    static char chunk[65536];
    memset(chunk, 'x', sizeof(chunk));
    for (long i = 0; i < 16384; i++) /* 1 GiB */
        if (write(1, chunk, sizeof(chunk)) < 0)
            return errno;
    return 0;
}

/* ---- changing what may only be read ---- */

/* Somebody beside it who may write: holds a file of the work folder open, and is there. */
static int p_holder(void) {
    char pid[16];
    int fd = open("/work/f", O_RDWR);
    if (fd < 0 || dup2(fd, 9) < 0 || chdir("/work") < 0)
        return errno;
    int to = open("/tmp/holder", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    if (write(to, pid, strlen(pid)) < 0)
        return errno;
    return stay();
}
static const char *in_arg(const char *name) {
    static char paths[8][512];
    static unsigned next;
    char *p = paths[next++ % 8];
    snprintf(p, 512, "%s/%s", arg, name);
    return p;
}
/* A path of the holder's in /proc. */
static const char *of_holder(const char *rest) {
    static char path[256];
    char pid[16] = "";
    int fd = open("/tmp/holder", O_RDONLY);
    if (fd < 0 || read(fd, pid, sizeof(pid) - 1) <= 0)
        return "/nowhere";
    close(fd);
    snprintf(path, sizeof(path), "/proc/%s/%s", pid, rest);
    return path;
}
static const char *own_fd(int fd) {
    static char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return path;
}
static bool opens(const char *path, int flags) {
    int fd = open(path, flags, 0644);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}
static bool w_open(void) {
    return opens(in_arg("f"), O_WRONLY) || opens(in_arg("f"), O_RDWR | O_APPEND);
}
static bool w_truncate_open(void) {
    return opens(in_arg("f"), O_RDONLY | O_TRUNC);
}
static bool w_truncate(void) {
    return truncate(in_arg("f"), 1) == 0;
}
static bool w_create(void) {
    return opens(in_arg("new"), O_WRONLY | O_CREAT) || opens(arg, O_RDWR | O_TMPFILE);
}
static bool w_chmod(void) {
    return chmod(in_arg("f"), 0600) == 0 || chmod(arg, 0700) == 0;
}
static bool w_fchmod(void) {
    int fd = open(in_arg("f"), O_RDONLY), dir = open(arg, O_RDONLY);
    return fchmod(fd, 0640) == 0 || fchmod(dir, 0711) == 0 || chmod(own_fd(fd), 0600) == 0;
}
static bool w_chmod_cwd(void) {
    return chdir(arg) == 0 && (chmod("/proc/self/cwd/f", 0600) == 0 || chmod("f", 0600) == 0);
}
static bool w_chown(void) {
    return chown(in_arg("f"), (uid_t)-1, getgid()) == 0;
}
static bool w_times(void) {
    struct timespec t[2] = {{1, 0}, {1, 0}};
    int fd = open(in_arg("f"), O_RDONLY);
    return utimensat(AT_FDCWD, in_arg("f"), t, 0) == 0 || futimens(fd, t) == 0 ||
           utimensat(AT_FDCWD, in_arg("f"), NULL, 0) == 0;
}
static bool w_xattr(void) {
    int fd = open(in_arg("f"), O_RDONLY);
    if (setxattr(in_arg("f"), "user.x", "1", 1, 0) == 0 || fsetxattr(fd, "user.x", "1", 1, 0) == 0)
        return true;
    return errno != EROFS && errno != ENOTSUP && errno != EACCES && errno != EPERM;
}
static bool w_flags(void) {
    int fd = open(in_arg("f"), O_RDONLY), flags = 0;
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
        return false;
    flags |= FS_NODUMP_FL;
    return ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0;
}
static bool w_unlink(void) {
    return unlink(in_arg("gone")) == 0 || rmdir(in_arg("d")) == 0;
}
static bool w_rename(void) {
    return rename(in_arg("f"), in_arg("g")) == 0 || rename(in_arg("f"), "/tmp/taken") == 0;
}
static bool w_put(void) {
    close(open("/tmp/put", O_WRONLY | O_CREAT, 0644));
    return rename("/tmp/put", in_arg("put")) == 0 || link("/tmp/put", in_arg("put")) == 0;
}
static bool w_link(void) {
    return link(in_arg("f"), in_arg("l")) == 0 || link(in_arg("f"), "/tmp/l") == 0 ||
           linkat(open(in_arg("f"), O_RDONLY), "", AT_FDCWD, "/tmp/l", AT_EMPTY_PATH) == 0 ||
           symlink("x", in_arg("s")) == 0;
}
static bool w_mkdir(void) {
    return mkdir(in_arg("e"), 0755) == 0 || mknod(in_arg("p"), S_IFIFO | 0644, 0) == 0;
}
static bool w_bind(void) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/sock", arg);
    return bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&a, sizeof(a)) == 0;
}
static bool w_own_fd(void) {
    int fd = open(in_arg("f"), O_RDONLY), path = open(in_arg("f"), O_PATH);
    return opens(own_fd(fd), O_RDWR) || opens(own_fd(path), O_WRONLY) ||
           opens(own_fd(fd), O_RDONLY | O_TRUNC);
}
static bool w_map(void) {
    int fd = open(in_arg("f"), O_RDONLY);
    if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED)
        return true;
    void *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    return p != MAP_FAILED && mprotect(p, 4096, PROT_READ | PROT_WRITE) == 0;
}
static bool w_allocate(void) {
    int fd = open(in_arg("f"), O_RDONLY), from = open("/proc/self/exe", O_RDONLY);
    return fallocate(fd, 0, 0, 4096) == 0 || ftruncate(fd, 0) == 0 ||
           syscall(SYS_copy_file_range, from, NULL, fd, NULL, 16, 0) > 0 ||
           sendfile(fd, from, NULL, 16) > 0;
}
static bool w_holder_root(void) {
    return opens(of_holder("root/work/f"), O_RDWR) || opens(of_holder("cwd/f"), O_RDWR) ||
           chmod(of_holder("root/work/f"), 0600) == 0 || chmod(of_holder("cwd/f"), 0600) == 0 ||
           truncate(of_holder("root/work/f"), 0) == 0 ||
           (chdir(of_holder("cwd")) == 0 && chmod("f", 0600) == 0);
}
static bool w_holder_fd(void) {
    return opens(of_holder("fd/9"), O_RDWR) || opens(of_holder("fd/9"), O_RDONLY | O_TRUNC) ||
           chmod(of_holder("fd/9"), 0600) == 0;
}
static bool w_holder_memory(void) {
    char pid[16] = "";
    int fd = open("/tmp/holder", O_RDONLY);
    ssize_t n = read(fd, pid, sizeof(pid) - 1);
    pid_t holder = n > 0 ? (pid_t)strtol(pid, NULL, 10) : -1;
    long pidfd = syscall(SYS_pidfd_open, holder, 0);
    return opens(of_holder("mem"), O_RDWR) || ptrace(PTRACE_ATTACH, holder, 0, 0) == 0 ||
           syscall(SYS_pidfd_getfd, pidfd, 9, 0) >= 0;
}
static bool w_namespace(void) {
    int fd = open(of_holder("ns/mnt"), O_RDONLY);
    return syscall(SYS_setns, fd, 0) == 0 || unshare(CLONE_NEWNS) == 0 ||
           unshare(CLONE_NEWUSER) == 0;
}
static bool w_mount(void) {
    char attr[32] = {0};
    attr[8] = 1; /* clear MOUNT_ATTR_RDONLY */
    return mount(NULL, arg, NULL, MS_REMOUNT | MS_BIND, NULL) == 0 ||
           umount2(arg, MNT_DETACH) == 0 || mount("/tmp", arg, NULL, MS_BIND, NULL) == 0 ||
           syscall(SYS_mount_setattr, AT_FDCWD, arg, 0, attr, sizeof(attr)) == 0 ||
           syscall(SYS_open_tree, AT_FDCWD, arg, 1) >= 0;
}
static bool w_root(void) {
    char path[512];
    snprintf(path, sizeof(path), "/../../..%s/f", arg);
    return chroot("/tmp") == 0 || opens(path, O_WRONLY) || chmod(path, 0600) == 0 ||
           (chdir("/..") == 0 && chmod(in_arg("f") + 1, 0600) == 0) ||
           opens("/m/work/f", O_WRONLY) || opens("/proc/1/root/work/f", O_WRONLY);
}

#define W(name)                                                                                    \
    { #name, w_##name }
/* Every way to change something in the folder: the names of those that work. */
static int p_change(void) {
    static const struct {
        const char *name;
        bool (*works)(void);
    } ways[] = {
        W(open),      W(truncate_open), W(truncate),  W(create), W(chmod), W(fchmod),
        W(chmod_cwd), W(chown),         W(times),     W(xattr),  W(flags), W(unlink),
        W(rename),    W(put),           W(link),      W(mkdir),  W(bind),  W(own_fd),
        W(map),       W(allocate),      W(namespace), W(mount),  W(root),  W(holder_root),
        W(holder_fd), W(holder_memory),
    };
    int n = 0;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (ways[i].works()) {
            printf("%s ", ways[i].name);
            n++;
        }
    printf("\n");
    return n;
}

#define P(name)                                                                                    \
    { #name, p_##name }
static const struct {
    const char *name;
    int (*run)(void);
} probes[] = {
    P(mount),         P(remount),        P(umount),
    P(pivot_root),    P(chroot),         P(fsopen),
    P(open_tree),     P(move_mount),     P(mount_setattr),
    P(unshare_user),  P(unshare_net),    P(clone_newuser),
    P(clone3),        P(setns),          P(ptrace),
    P(ptrace_init),   P(vm_readv),       P(vm_writev),
    P(keyctl),        P(add_key),        P(bpf),
    P(userfaultfd),   P(io_uring),       P(perf),
    P(handle),        P(name_to_handle), P(init_module),
    P(finit_module),  P(delete_module),  P(kexec),
    P(reboot),        P(settimeofday),   P(clock_settime),
    P(sethostname),   P(mknod),          P(mknod_fifo),
    P(iopl),          P(ioperm),         P(setuid0),
    P(setuid_init),   P(personality),    P(pidfd_getfd),
    P(kcmp),          P(prlimit_init),   P(syslog),
    P(swapon),        P(acct),           P(fanotify),
    P(mbind),         P(syncfs),         P(raise_caps),
    P(no_new_privs),  P(bounding),       P(x32),
    P(int80),         P(tiocsti),        P(tiocsti_high),
    P(holder),        P(change),         P(mptcp),
    P(udplite),       P(sctp),           P(sockets),
    P(pressure),      P(terminals),      P(raw),
    P(packet),        P(vsock),          P(alg),
    P(netlink_audit), P(abstract),       P(loopback),
    P(metadata),      P(scm_rights),     P(read),
    P(write),         P(create),         P(suid),
    P(suid_open),     P(suid_temp),      P(chmod_suid),
    P(kill),          P(kill_init),      P(stop_next),
    P(lease),         P(in_flight),      P(fds),
    P(forks),         P(memory),         P(memory_many),
    P(hold),          P(pairs),          P(shares),
    P(disk),          P(inodes),         P(open_files),
    P(inotify),       P(core),           P(sparse),
    P(flood),
};

int main(int argc, char **argv) {
    if (argc > 3)
        pairs = (int)strtol(argv[3], NULL, 10);
    if (argc > 4)
        most_mib = strtol(argv[4], NULL, 10);
    if (argc > 2)
        arg = argv[2];
    for (size_t i = 0; argc > 1 && i < sizeof(probes) / sizeof(probes[0]); i++)
        if (strcmp(argv[1], probes[i].name) == 0) {
            int r = probes[i].run();
            printf("%s=%d\n", argv[1], r);
            return 0;
        }
    return 2;
}
