/* Frames from a hostile peer: whatever comes in whatever pieces, the reader stays within its
 * bounds, hands out only whole frames, and owns every descriptor until it is handed out. */

#include "base/cleanup.h"
#include "wire/frame.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct wire_reader r;
    struct err err;
    wire_reader_init(&r, 4096);
    size_t at = 0;
    int rc = 0;
    while (rc >= 0 && at < size) {
        /* The first byte of a piece says how long it is and how many descriptors come with it. */
        size_t n = (size_t)(data[at] & 0x3f) + 1;
        size_t nfds = data[at] >> 6;
        at++;
        n = MIN(n, size - at);
        int fds[3];
        for (size_t i = 0; i < nfds; i++)
            fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        rc = wire_feed(&r, data + at, n, fds, nfds, &err);
        at += n;
        struct wire_frame f;
        while (rc >= 0 && (rc = wire_next(&r, &f, &err)) == 1) {
            if (f.len > 4096 || f.nfds > WIRE_FDS_MAX)
                abort();
            volatile uint8_t sum = 0;
            for (size_t i = 0; i < f.len; i++)
                sum = (uint8_t)(sum + f.data[i]);
            for (size_t i = 0; i < f.nfds; i++)
                if (fcntl(f.fds[i], F_GETFD) < 0)
                    abort(); /* not ours, or closed */
            int taken = wire_frame_take_fd(&f, 0);
            if (taken >= 0)
                close(taken);
            wire_frame_finish(&f);
        }
    }
    wire_reader_finish(&r);
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(next);
    if (next > 50)
        abort(); /* descriptors leak */
    return 0;
}
