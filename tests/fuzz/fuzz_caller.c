/* Where a request comes from: the peer, the field that proxies add to, and the list of the proxies,
 * a line each. Whatever they say, the answer is an address or none, is not one of the proxies' own
 * where the field names another, and who wrote nonsense is not on this machine. */

#include "base/cleanup.h"
#include "front/common/caller.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NETS_MAX = 8, ADDRESS_SIZE = 64 };

/* Cuts a line off; NULL: there is none. */
static char *next_line(char **text) {
    return *text ? strsep(text, "\n") : NULL;
}

static void check(const char *peer, const char *field, char *const *nets, size_t n) {
    char out[ADDRESS_SIZE];
    unsigned char name[CALLER_NAME_SIZE];
    caller_address(peer, field, nets, n, out, sizeof(out));
    bool believed = field && caller_is_in(peer, nets, n);
    if (!believed) {
        if (strncmp(out, peer, sizeof(out) - 1) != 0)
            abort();
        return;
    }
    size_t len = caller_name(out, name);
    if (len == 0 && (strcmp(out, CALLER_UNKNOWN) != 0 || caller_is_local(out)))
        abort();
    if (len > sizeof(name))
        abort();
    /* One more hop that is no proxy is the answer, whatever is before it. */
    char longer[4096];
    if (caller_is_in("203.0.113.9", nets, n) || strlen(field) > sizeof(longer) - 32)
        return;
    (void)snprintf(longer, sizeof(longer), "%s, 203.0.113.9", field);
    caller_address(peer, longer, nets, n, out, sizeof(out));
    if (strcmp(out, "203.0.113.9") != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    char *at = text;
    char *nets[NETS_MAX];
    size_t n = 0;
    struct err err;
    memcpy(text, data, size);
    text[size] = 0;
    const char *peer = next_line(&at);
    const char *field = next_line(&at);
    for (char *net = next_line(&at); net && n < NETS_MAX; net = next_line(&at))
        if (caller_net_check(net, &err) == 0) /* as the settings do */
            nets[n++] = net;
    check(peer, field, nets, n);
    free(text);
    return 0;
}
