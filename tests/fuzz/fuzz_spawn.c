/* A request to cay-spawn, of whatever bytes, with whatever number of descriptors: what is accepted
 * lies within the message, and is what the front would have written. */

#include "base/cleanup.h"
#include "wire/spawn.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct spawn_request *q, size_t nfds) {
    char *argv[SPAWN_ARGS_MAX + 1];
    if (!spawn_request_read(q, nfds, argv))
        return;
    if (nfds > SPAWN_FDS_MAX || nfds < 2)
        abort();
    struct spawn_request again = {0};
    for (size_t i = 0; argv[i]; i++)
        if (argv[i] < q->text || argv[i] >= q->text + sizeof(q->text) ||
            !spawn_request_add_arg(&again, argv[i]))
            abort();
    if (again.nargs != q->nargs || again.text_len != q->text_len ||
        memcmp(again.text, q->text, q->text_len) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1 + offsetof(struct spawn_request, text))
        return 0;
    struct spawn_request *q = malloc(sizeof(*q)); /* its end is watched */
    if (!q)
        abort();
    memset(q, 'x', sizeof(*q));
    memcpy(q, data + 1, MIN(size - 1, sizeof(*q)));
    check(q, data[0]);
    free(q);
    return 0;
}
