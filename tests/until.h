#pragma once
/* Waits for what is true a moment later. How long the moment is depends on what else the machine
 * does; the limit is for what never comes. */

#include "base/clock.h"

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

enum { UNTIL_MS = 60000 };

#define UNTIL(condition)                                                                           \
    __extension__({                                                                                \
        int64_t until_end = clock_mono_ms() + UNTIL_MS;                                            \
        bool until_true = (condition);                                                             \
        while (!until_true && clock_mono_ms() < until_end) {                                       \
            (void)poll(NULL, 0, 5);                                                                \
            until_true = (condition);                                                              \
        }                                                                                          \
        until_true;                                                                                \
    })
