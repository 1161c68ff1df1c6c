#pragma once
/* Replacements for SQLite's own functions whose cost grows faster than their input, or with a
 * number in their arguments: the progress handler cannot stop SQLite inside one function, so each
 * must end soon by itself. They answer as the originals do. */

struct sqlite3;

/* 0, or SQLite's error code. */
int funcs_install(struct sqlite3 *db);
