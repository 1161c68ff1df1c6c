#pragma once
/* How much of the disk the data folder takes, by what it is for. It is counted by looking at every
 * file, so not by the loop's thread: the caretaker does it once a minute, `cay doctor` when asked.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum disk_part {
    DISK_STORE,
    DISK_LEDGER,
    DISK_ARTIFACTS,
    DISK_AGENTS, /* their histories and databases */
    DISK_FACETS, /* of programs */
    DISK_SANDBOXES,
    DISK_SNAPSHOTS,
    DISK_OTHER,
    DISK_PARTS
};
const char *disk_part_name(enum disk_part part);

struct disk_usage {
    int64_t bytes[DISK_PARTS]; /* that are taken, not the length of files */
    int64_t free_bytes;        /* of the file system, for an ordinary user */
    bool is_whole;             /* false: there are more files than were looked at */
    bool is_known;
};

/* Whether there is so little room that writes are likely to fail; one system call. */
bool disk_is_full(const char *data_dir);
/* over may be NULL; set from another thread it ends the count. What cannot be read is not counted.
 */
void disk_measure(const char *data_dir, const atomic_bool *over, struct disk_usage *ret);
