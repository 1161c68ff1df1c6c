/* The functions that replace SQLite's own answer as those do: both are asked the same. */

#include "base/buf.h"
#include "base/cleanup.h"
#include "facet/funcs.h"

#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static sqlite3 *ours;
static sqlite3 *theirs;

static int setup(void **state) {
    (void)state;
    assert_int_equal(sqlite3_open(":memory:", &ours), SQLITE_OK);
    assert_int_equal(sqlite3_open(":memory:", &theirs), SQLITE_OK);
    (void)sqlite3_limit(ours, SQLITE_LIMIT_LENGTH, 1 << 20);
    (void)sqlite3_limit(theirs, SQLITE_LIMIT_LENGTH, 1 << 20);
    return funcs_install(ours);
}

static int teardown(void **state) {
    (void)state;
    sqlite3_close(ours);
    sqlite3_close(theirs);
    return 0;
}

/* "type:hex" of the first value, or "error". */
static void ask(sqlite3 *db, const char *sql, char *out, size_t size) {
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    if (sqlite3_step(s) == SQLITE_ROW) {
        int type = sqlite3_column_type(s, 0);
        const unsigned char *p = sqlite3_column_blob(s, 0);
        int n = sqlite3_column_bytes(s, 0);
        size_t at = (size_t)snprintf(out, size, "%d:", type);
        for (int i = 0; i < n && at + 3 < size; i++)
            at += (size_t)snprintf(out + at, size - at, "%02x", p[i]);
    } else {
        (void)snprintf(out, size, "error");
    }
    sqlite3_finalize(s);
}

static void same(const char *sql) {
    static char a[8192];
    static char b[8192];
    ask(ours, sql, a, sizeof(a));
    ask(theirs, sql, b, sizeof(b));
    /* Where SQLite runs out of memory over a precision of billions and says NULL, we refuse. */
    if (strcmp(a, "error") == 0 && strcmp(b, "5:") == 0)
        return;
    if (strcmp(a, b) != 0)
        fail_msg("%s\n  ours:   %s\n  theirs: %s", sql, a, b);
}

static uint64_t seed = 42;

static unsigned pick(unsigned n) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(seed >> 33) % n;
}

static const char *const VALUES[] = {
    "NULL",
    "''",
    "'a'",
    "'aab'",
    "'ä'",
    "'äöü€'",
    "'a b  '",
    "'  ab '",
    "'%'",
    "'it''s'",
    "'a\"b'",
    "x'00ff'",
    "x'6161'",
    "x''",
    "0",
    "-1",
    "42",
    "1234567",
    "3.14159",
    "-2.5e10",
    "1e300",
    "'aaaaab'",
    "'abab'",
    "9223372036854775807",
    "'x'||char(0)||'y'",
    "CAST(x'c3' AS TEXT)",
};

static const char *value(void) {
    return VALUES[pick(ARRAY_LEN(VALUES))];
}

static void search_and_trim_answer_as_before(void **state) {
    (void)state;
    static const char *const TWO[] = {"instr", "trim", "ltrim", "rtrim"};
    char sql[400];
    for (size_t f = 0; f < ARRAY_LEN(TWO); f++)
        for (size_t i = 0; i < ARRAY_LEN(VALUES); i++)
            for (size_t k = 0; k < ARRAY_LEN(VALUES); k++) {
                (void)snprintf(sql, sizeof(sql), "SELECT %s(%s, %s)", TWO[f], VALUES[i], VALUES[k]);
                same(sql);
            }
    for (size_t i = 0; i < ARRAY_LEN(VALUES); i++) {
        (void)snprintf(sql, sizeof(sql), "SELECT trim(%s)||'|'||ltrim(%s)||'|'||rtrim(%s)",
                       VALUES[i], VALUES[i], VALUES[i]);
        same(sql);
    }
    for (int i = 0; i < 5000; i++) {
        (void)snprintf(sql, sizeof(sql), "SELECT replace(%s, %s, %s)", value(), value(), value());
        same(sql);
    }
}

static void formats_answer_as_before(void **state) {
    (void)state;
    static const char *const FLAGS[] = {"",  "-", "+",  " ",  "0",  "#",
                                        "!", ",", "-+", "0,", "!#", "+0"};
    static const char *const WIDTHS[] = {"", "1", "5", "12", "*"};
    static const char *const PRECISIONS[] = {"", ".0", ".1", ".3", ".10", ".*"};
    static const char *const KINDS[] = {"d", "i",  "u",   "x", "X", "o", "f", "e",
                                        "E", "g",  "G",   "s", "q", "Q", "w", "c",
                                        "%", "ld", "lld", "z", "n", "k", ""};
    for (int i = 0; i < 20000; i++) {
        char sql[600];
        char fmt[200] = "";
        size_t at = 0;
        unsigned n = 1 + pick(3);
        for (unsigned k = 0; k < n; k++)
            at += (size_t)snprintf(fmt + at, sizeof(fmt) - at, "%s%%%s%s%s%s", k ? "|" : "<",
                                   FLAGS[pick(ARRAY_LEN(FLAGS))], WIDTHS[pick(ARRAY_LEN(WIDTHS))],
                                   PRECISIONS[pick(ARRAY_LEN(PRECISIONS))],
                                   KINDS[pick(ARRAY_LEN(KINDS))]);
        (void)snprintf(sql, sizeof(sql), "SELECT %s('%s>', %d, %s, %s, %s, %s)",
                       pick(2) ? "printf" : "format", fmt, (int)pick(20) - 5, value(), value(),
                       value(), value());
        same(sql);
    }
    same("SELECT printf()");
    same("SELECT printf(NULL)");
    same("SELECT printf('')");
    same("SELECT printf('no args %d %s %f %c.')");
    same("SELECT printf('%.20s', 'short')");
    same("SELECT printf('%*s|%-*s|', 5, 'a', 5, 'b')");
}

static void bombs_end_at_once(void **state) {
    (void)state;
    static const char *const BOMBS[] = {
        "SELECT printf('%.*c', 900000000, 'x')", "SELECT format('%.900000000c', 'x')",
        "SELECT printf('%*c', -900000000, 'x')", "SELECT printf('%.*f', 900000000, 1.5)",
        "SELECT printf('%.*d', 900000000, 1)",   "SELECT printf('%900000000s', 1)",
    };
    char out[64];
    for (size_t i = 0; i < ARRAY_LEN(BOMBS); i++) {
        ask(ours, BOMBS[i], out, sizeof(out));
        assert_string_equal(out, "error");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(search_and_trim_answer_as_before),
        cmocka_unit_test(formats_answer_as_before),
        cmocka_unit_test(bombs_end_at_once),
    };
    return cmocka_run_group_tests_name("facet funcs", tests, setup, teardown);
}
