#pragma once
/* Tries something that would change this process for good in a child of its own. */

/* Returns what fn returned (0 to 254), or 255 if the child did not end by itself. */
int probe_in_child(int (*fn)(void));
