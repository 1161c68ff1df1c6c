/* cay.json: read from a file that is the input; what it says is within its limits. */

#include "base/fd.h"
#include "front/config/config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    int fd = memfd_create("cay.json", MFD_CLOEXEC);
    if (fd < 0 || fd_write_all(fd, data, size) < 0)
        abort();
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    struct config c;
    struct err err;
    config_init(&c);
    int rc = config_load(&c, path, &err);
    if (rc == 0) {
        config_defaults(&c);
        if (c.nlisten == 0 || !c.data_dir || c.http.head_bytes < 1024 || c.http.connections < 1)
            abort();
    } else if (strlen(err.message) == 0) {
        abort();
    }
    config_finish(&c);
    close(fd);
    char *address = strndup((const char *)data, size);
    char host[64];
    unsigned port;
    if (config_parse_address(address, host, sizeof(host), &port, &err) == 0 &&
        (port > 65535 || !*host))
        abort();
    free(address);
    return 0;
}
