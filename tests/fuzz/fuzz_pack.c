/* Fields of a payload, read in an order that the input chooses; what is good is packed again and
 * must give the same bytes. */

#include "base/buf.h"
#include "wire/pack.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 8)
        return 0;
    struct unpack u;
    struct buf again;
    unpack_init(&u, data + 8, size - 8);
    buf_init(&again, size + 64);
    for (int i = 0; i < 8; i++) {
        size_t n;
        switch (data[i] % 7) {
        case 0:
            pack_u8(&again, unpack_u8(&u));
            break;
        case 1:
            pack_u32(&again, unpack_u32(&u));
            break;
        case 2:
            pack_u64(&again, unpack_u64(&u));
            break;
        case 3: {
            uint64_t bits;
            double v = unpack_f64(&u);
            memcpy(&bits, &v, sizeof(bits));
            pack_u64(&again, bits);
            break;
        }
        case 4: {
            const char *p = unpack_bytes(&u, &n);
            pack_bytes(&again, p, n);
            break;
        }
        case 5: {
            char *s = unpack_strdup(&u);
            pack_str(&again, s);
            free(s);
            break;
        }
        default:
            break;
        }
    }
    if (unpack_ok(&u) &&
        (again.len != size - 8 || (again.len && memcmp(again.data, data + 8, again.len) != 0)))
        abort();
    buf_finish(&again);
    return 0;
}
