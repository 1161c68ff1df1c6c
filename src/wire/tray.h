#pragma once
/* Memory that a facet shares with one holder: a place for one call and a place for one answer. A
 * frame may be put into a place only while the other side watches it: awake, so that it costs no
 * system call and no switch of tasks, or asleep, for a short while, and is woken. In every other
 * case, and for every larger frame, there is the socket.
 *
 * The facet makes it, sealed so that it can never shrink under the other. Neither side believes
 * what it finds: a frame is copied once, within its bound, and read from the copy. What a side
 * writes wrongly spoils its own call. */

#include "base/err.h"
#include "wire/frame.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TRAY_SIZE = 32768,
    TRAY_CALL_MAX = 8128, /* a frame with its head */
    TRAY_ANSWER_MAX = 24512,
};

struct tray_place {
    _Alignas(64) _Atomic uint32_t state; /* enum tray_state */
    _Atomic uint32_t len;
    _Atomic uint32_t where; /* of the call's place alone */
};

struct tray {
    struct tray_place call;
    char call_frame[TRAY_CALL_MAX - 64];
    struct tray_place answer;
    char answer_frame[TRAY_ANSWER_MAX - 64];
};

enum tray_side { TRAY_CALL, TRAY_ANSWER };

/* Maps a new one; its descriptor is for the holder. */
int tray_create(struct tray **ret_tray, int *ret_fd, struct err *err);
/* Maps the one that came, if it is sealed and as large as it must be. */
int tray_open(struct tray **ret_tray, int fd, struct err *err);
void tray_close(struct tray *t);

/* Reader. From here on the other may put a frame there. */
void tray_watch(struct tray *t, enum tray_side side);
/* Between two looks at a place. */
void tray_rest(void);
/* Reader. Waits awake for a frame, at most so long: true if one is there. */
bool tray_wait(struct tray *t, enum tray_side side, int64_t ns);
/* Reader. The same asleep: who puts a frame there wakes it. It may wake before. */
bool tray_sleep(struct tray *t, enum tray_side side, int64_t ns);
/* Reader. Takes the frame that is there, if one is: 1, 0 or negative as wire_recv(). With `last` it
 * watches no longer. */
int tray_take(struct tray *t, enum tray_side side, bool last, struct wire_reader *r,
              struct err *err);
/* The facet's word to one who talks alone: whether it is awake, or has no processor for that; to
 * one of several: on which it runs (its number plus one), and whether it needs that for itself. */
#define TRAY_ANYWHERE 0u
#define TRAY_NOWHERE  0xffffu
#define TRAY_CROWD    0x10000u
#define TRAY_KEEP_OFF 0x20000u
void tray_set_where(struct tray *t, uint32_t where);
uint32_t tray_where(struct tray *t);
/* Writer. Puts a frame there; false if nobody watches, or it is too large. */
bool tray_put(struct tray *t, enum tray_side side, const struct wire_piece *pieces, size_t n);
