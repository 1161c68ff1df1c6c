/* What comes with tasks as text: a time, and the id of an event. What is taken means what it says.
 */

#include "base/clock.h"
#include "front/ledger/ledger.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_time(const char *text) {
    char again[CLOCK_RFC3339_SIZE];
    int64_t ms;
    int64_t back;
    if (!clock_parse_rfc3339(text, &ms))
        return;
    /* At the ends of the years that have four digits an offset leads beyond them. */
    if (ms < 0 || ms > INT64_C(253402300799999))
        return;
    if (!clock_parse_rfc3339(clock_rfc3339(ms, again), &back) || back != ms)
        abort();
}

static void try_event(const char *text) {
    char again[48];
    int64_t attempt;
    int64_t number;
    int64_t a2;
    int64_t n2;
    if (!task_event_parse(text, &attempt, &number))
        return;
    (void)snprintf(again, sizeof(again), "%" PRId64 ".%" PRId64, attempt, number);
    if (attempt < 1 || number < 1 || !task_event_parse(again, &a2, &n2) || a2 != attempt ||
        n2 != number)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = 0;
    try_time(text);
    try_event(text);
    free(text);
    return 0;
}
