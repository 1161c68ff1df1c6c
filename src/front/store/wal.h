#pragma once
/* How the front's databases write their log. SQLite writes each page of a transaction with two
 * system calls, one for the page and one for the 24 bytes before it; what is written one behind the
 * other goes to the file in one. Nothing else differs from SQLite's own files. */

/* The name for sqlite3_open_v2(); NULL (SQLite's own way) where there is no such thing. */
const char *store_wal_vfs(void);
