/* Memory that a stranger shares: between what the two sides do, the input writes to it what it
 * likes and where it likes, as a facet or a holder can that was taken over. Whatever is there, a
 * side takes no more than a place can hold, and writes nowhere but into its place. */

#include "base/cleanup.h"
#include "wire/tray.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct tray *tray;
static struct wire_reader in[2];

static void open_once(void) {
    struct err err;
    int fd;
    if (tray)
        return;
    if (tray_create(&tray, &fd, &err) < 0)
        abort();
    close(fd);
    for (size_t i = 0; i < ARRAY_LEN(in); i++)
        wire_reader_init(&in[i], TRAY_SIZE);
}

static void read_frames(struct wire_reader *r) {
    struct wire_frame f;
    struct err err;
    int rc;
    while ((rc = wire_next(r, &f, &err)) == 1) {
        volatile uint8_t sum = 0;
        for (size_t i = 0; i < f.len; i++)
            sum = (uint8_t)(sum + f.data[i]);
        wire_frame_finish(&f);
    }
    if (rc < 0) { /* the side would hang up */
        wire_reader_finish(r);
        wire_reader_init(r, TRAY_SIZE);
    }
}

static void take(enum tray_side side, bool last) {
    struct err err;
    struct wire_reader *r = &in[side];
    size_t before = r->in.len - r->used;
    int rc = tray_take(tray, side, last, r, &err);
    size_t max = side == TRAY_CALL ? TRAY_CALL_MAX : TRAY_ANSWER_MAX;
    if (rc > 0 && r->in.len - r->used > before + max)
        abort();
    if (rc < 0) {
        wire_reader_finish(r);
        wire_reader_init(r, TRAY_SIZE);
    }
    read_frames(r);
}

/* The place of the other side is as it was. */
static void put(enum tray_side side, const uint8_t *data, size_t len) {
    static struct tray before;
    before = *tray;
    struct wire_piece frame[] = {{data, len}, {data, len}};
    (void)tray_put(tray, side, frame, 2);
    size_t at = side == TRAY_CALL ? offsetof(struct tray, answer) : 0;
    size_t n = side == TRAY_CALL ? sizeof(*tray) - at : offsetof(struct tray, answer);
    if (memcmp((const char *)&before + at, (const char *)tray + at, n) != 0)
        abort();
}

/* A write of the stranger's: where in the memory, and what. */
static size_t scribble(const uint8_t *data, size_t size) {
    static const size_t words[] = {offsetof(struct tray, call), offsetof(struct tray, call) + 4,
                                   offsetof(struct tray, answer),
                                   offsetof(struct tray, answer) + 4};
    if (size < 4)
        return size;
    size_t at = data[0] < 128 ? words[data[0] % 4] : ((size_t)data[1] << 8 | data[2]);
    size_t n = MIN((size_t)data[3] % 32, size - 4);
    at %= sizeof(*tray) - 32;
    memcpy((char *)tray + at, data + 4, n);
    return 4 + n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    open_once();
    memset(tray, 0, sizeof(*tray));
    for (size_t at = 0; at < size;) {
        uint8_t op = data[at++];
        enum tray_side side = op & 1 ? TRAY_CALL : TRAY_ANSWER;
        size_t n = MIN((size_t)(op >> 4) * 1024, size - at);
        switch (op >> 1 & 7) {
        case 0:
            tray_watch(tray, side);
            break;
        case 1:
            (void)(op >> 4 & 1 ? tray_sleep(tray, side, 1) : tray_wait(tray, side, 0));
            break;
        case 2:
        case 3:
            take(side, op >> 1 & 1);
            break;
        case 4:
            put(side, data + at, n);
            break;
        case 5:
            tray_set_where(tray, op >> 4);
            (void)tray_where(tray);
            break;
        default:
            at += scribble(data + at, size - at);
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(in); i++) {
        wire_reader_finish(&in[i]);
        wire_reader_init(&in[i], TRAY_SIZE);
    }
    return 0;
}
