/* The contract of cay-facet, against the real program. */

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "client.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SCHEMA                                                                                     \
    "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, a, b); -- the table\n"                   \
    "INSERT INTO t(a, b) VALUES ('one', 1), ('two', 2), ('three', 3);"
/* Runs until it is stopped. */
#define ENDLESS "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT max(i) FROM n"

static struct client c;
static struct holder h;

static struct facet_method METHODS[] = {
    {(char *)"byId", (char *)"SELECT a FROM t WHERE id = ?", FACET_KIND_QUERY},
    {(char *)"add", (char *)"INSERT INTO t(a, b) VALUES (?, ?)", FACET_KIND_EXECUTE},
};

static struct facet_open options(void) {
    return (struct facet_open){
        .file = (char *)"test.db", .schema = (char *)SCHEMA, .methods = METHODS, .nmethods = 2};
}

static void open_with(const struct facet_open *o) {
    if (client_open(&c, o) < 0)
        fail_msg("open: %s", c.err.message);
    if (client_grant(&c, NULL, 0, &h) < 0)
        fail_msg("grant: %s", c.err.message);
}

static void close_all(void) {
    holder_finish(&h);
    (void)client_stop(&c, 0);
}

static int setup(void **state) {
    (void)state;
    client_init(&c);
    h = (struct holder){.fd = -1};
    return 0;
}

static int setup_open(void **state) {
    (void)setup(state);
    struct facet_open o = options();
    open_with(&o);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    holder_finish(&h);
    client_finish(&c);
    return 0;
}

static void assert_code(const char *json, const char *code) {
    char want[80];
    (void)snprintf(want, sizeof(want), "\"code\":\"%s\"}", code);
    size_t n = strlen(json);
    if (n < strlen(want) || strcmp(json + n - strlen(want), want) != 0)
        fail_msg("expected %s: %s", code, json);
}

static void assert_contains(const char *text, const char *part) {
    if (!strstr(text, part))
        fail_msg("expected %s in: %s", part, text);
}

#define ASSERT_CALL(method, args, json) assert_string_equal(holder_call(&h, method, args), json)
#define ASSERT_QUERY(sql, json)         assert_string_equal(holder_query(&h, sql), json)

/* --- Values ---------------------------------------------------------------------------------- */

static void query_returns_columns_and_rows(void **state) {
    (void)state;
    ASSERT_CALL("query", "[\"SELECT id, a FROM t WHERE b > ? ORDER BY id\",1]",
                "{\"columns\":[\"id\",\"a\"],\"rows\":[[2,\"two\"],[3,\"three\"]]}");
    ASSERT_QUERY("SELECT a FROM t WHERE 0", "{\"columns\":[\"a\"],\"rows\":[]}");
    ASSERT_QUERY("SELECT 1 AS x, 2 AS x", "{\"columns\":[\"x\",\"x\"],\"rows\":[[1,2]]}");
}

static void values_come_back_as_they_are(void **state) {
    (void)state;
    ASSERT_QUERY("SELECT null, 1, -5, 0.5, 'q\"', x'00ff'",
                 "{\"columns\":[\"null\",\"1\",\"-5\",\"0.5\",\"'q\\\"'\",\"x'00ff'\"],"
                 "\"rows\":[[null,1,-5,0.5,\"q\\\"\",[\"b\",\"AP8=\"]]]}");
    ASSERT_QUERY("SELECT 9007199254740992 AS a, 9007199254740993 AS b, -9223372036854775808 AS c",
                 "{\"columns\":[\"a\",\"b\",\"c\"],\"rows\":[[9007199254740992,"
                 "[\"i\",\"9007199254740993\"],[\"i\",\"-9223372036854775808\"]]]}");
    /* Text that is no UTF-8, infinities, a NUL inside, an empty blob. */
    ASSERT_QUERY(
        "SELECT CAST(x'61ff62' AS TEXT) AS a, 9e999 AS b, 'x'||char(0)||'y' AS c, x'' AS d",
        "{\"columns\":[\"a\",\"b\",\"c\",\"d\"],\"rows\":[[\"a\xef\xbf\xbd"
        "b\",null,\"x\\u0000y\",[\"b\",\"\"]]]}");
}

static void arguments_are_bound_by_their_type(void **state) {
    (void)state;
    ASSERT_CALL("query",
                "[\"SELECT typeof(?1)||typeof(?2)||typeof(?3)||typeof(?4)||typeof(?5)||typeof(?6) "
                "AS t, ?3 AS b, ?6 AS i, hex(?7) AS s\",null,1.5,true,\"x\",[\"b\",\"AA==\"],"
                "[\"i\",\"9007199254740993\"],\"\\ud800\"]",
                "{\"columns\":[\"t\",\"b\",\"i\",\"s\"],\"rows\":[[\"nullrealintegertextblobinteger"
                "\",1,[\"i\",\"9007199254740993\"],\"EFBFBD\"]]}");
    assert_code(holder_call(&h, "query", "[\"SELECT ?\"]"), "SQLITE_RANGE");
    assert_code(holder_call(&h, "query", "[\"SELECT ?\",1,2]"), "SQLITE_RANGE");
    assert_contains(h.json, "the statement has 1 parameter, but 2 values were given");
    assert_code(holder_call(&h, "query", "[\"SELECT ?\",{}]"), "BAD_ARGUMENT");
    assert_code(holder_call(&h, "query", "[1]"), "BAD_ARGUMENT");
    assert_code(holder_call(&h, "query", "[]"), "BAD_ARGUMENT");
    assert_code(holder_call(&h, "query", "garbage"), "BAD_ARGUMENT");
    assert_code(holder_call(&h, "query", ""), "BAD_ARGUMENT");
    assert_code(holder_call(&h, "query", "[\"SELECT 1\\u0000\"]"), "BAD_ARGUMENT");
    assert_code(holder_call(&h, "query", "[\" -- nothing\"]"), "BAD_ARGUMENT");
    assert_code(holder_call(&h, "execute", "[\"DELETE FROM t\"] x"), "BAD_ARGUMENT");
    ASSERT_QUERY("SELECT count(*) AS n FROM t", "{\"columns\":[\"n\"],\"rows\":[[3]]}");
}

static void errors_are_sqlites_own(void **state) {
    (void)state;
    ASSERT_QUERY("SELEC 1", "{\"name\":\"SqliteError\",\"message\":\"near \\\"SELEC\\\": syntax "
                            "error\",\"code\":\"SQLITE_ERROR\"}");
    assert_false(h.ok);
    assert_code(holder_execute(&h, "INSERT INTO t(id) VALUES (1)"), "SQLITE_CONSTRAINT_PRIMARYKEY");
    assert_code(holder_query(&h, "SELECT * FROM nowhere"), "SQLITE_ERROR");
}

/* --- Methods --------------------------------------------------------------------------------- */

static void execute_reports_what_changed(void **state) {
    (void)state;
    ASSERT_CALL("execute", "[\"INSERT INTO t(a) VALUES (?), (?)\",\"x\",\"y\"]",
                "{\"success\":true,\"changes\":2,\"lastInsertRowid\":5}");
    ASSERT_CALL("execute", "[\"UPDATE t SET b = 0 WHERE id > 100\"]",
                "{\"success\":true,\"changes\":0,\"lastInsertRowid\":5}");
    ASSERT_CALL("execute", "[\"CREATE INDEX i ON t(a)\"]",
                "{\"success\":true,\"changes\":0,\"lastInsertRowid\":5}");
    ASSERT_CALL("execute", "[\"DELETE FROM t WHERE id > ? RETURNING id\",3]",
                "{\"success\":true,\"columns\":[\"id\"],\"rows\":[[4],[5]],\"changes\":2,"
                "\"lastInsertRowid\":5}");
    ASSERT_QUERY("SELECT count(*) AS n FROM t", "{\"columns\":[\"n\"],\"rows\":[[3]]}");
    ASSERT_QUERY("SELECT last_insert_rowid() AS n", "{\"columns\":[\"n\"],\"rows\":[[5]]}");
    /* Another holder has its own. */
    struct holder other;
    assert_int_equal(client_grant(&c, NULL, 0, &other), 0);
    assert_contains(holder_query(&other, "SELECT last_insert_rowid() AS n"), "[[0]]");
    holder_finish(&other);
}

static void execute_runs_several_statements_as_one(void **state) {
    (void)state;
    ASSERT_CALL("execute",
                "[\"INSERT INTO t(a) VALUES (1); /* and */ UPDATE t SET b = 9; SELECT 1; -- end\"]",
                "{\"success\":true,\"changes\":5,\"lastInsertRowid\":4}");
    assert_code(holder_execute(&h, "DELETE FROM t; INSERT INTO nowhere VALUES (1)"),
                "SQLITE_ERROR");
    ASSERT_QUERY("SELECT count(*) AS n FROM t", "{\"columns\":[\"n\"],\"rows\":[[4]]}");
    assert_code(holder_call(&h, "execute", "[\"DELETE FROM t WHERE id=?; SELECT 1\",1]"),
                "SQLITE_ERROR");
    ASSERT_QUERY("SELECT count(*) AS n FROM t", "{\"columns\":[\"n\"],\"rows\":[[4]]}");
}

static void query_takes_one_statement(void **state) {
    (void)state;
    assert_true(holder_query(&h, "SELECT 1; ; -- and no more\n/* really */ ") && h.ok);
    assert_code(holder_query(&h, "SELECT 1; SELECT 2"), "SQLITE_ERROR");
    assert_code(holder_query(&h, "SELECT 1; garbage"), "SQLITE_ERROR");
    assert_contains(h.json, "one statement is expected");
}

static void batch_is_all_or_nothing(void **state) {
    (void)state;
    ASSERT_CALL("batch",
                "[[[\"INSERT INTO t(a) VALUES (?)\",\"x\"],[\"SELECT count(*) AS n FROM t\"]]]",
                "[{\"success\":true,\"changes\":1,\"lastInsertRowid\":4},"
                "{\"columns\":[\"n\"],\"rows\":[[4]]}]");
    ASSERT_CALL("batch", "[[]]", "[]");
    assert_code(holder_call(&h, "batch",
                            "[[[\"DELETE FROM t\"],[\"INSERT INTO t(id) VALUES (1)\"],"
                            "[\"INSERT INTO t(id) VALUES (1)\"]]]"),
                "SQLITE_CONSTRAINT_PRIMARYKEY");
    assert_code(holder_call(&h, "batch", "[[[\"DELETE FROM t\"],[\"DELETE FROM t; SELECT 1\"]]]"),
                "SQLITE_ERROR");
    assert_code(holder_call(&h, "batch", "[[[\"DELETE FROM t\"]], 1]"), "BAD_ARGUMENT");
    assert_code(holder_call(&h, "batch", "[[[\"DELETE FROM t\"]]] x"), "BAD_ARGUMENT");
    assert_code(holder_call(&h, "batch", "[[\"DELETE FROM t\"]]"), "BAD_ARGUMENT");
    assert_code(holder_call(&h, "batch", "[\"DELETE FROM t\"]"), "BAD_ARGUMENT");
    ASSERT_QUERY("SELECT count(*) AS n FROM t", "{\"columns\":[\"n\"],\"rows\":[[4]]}");
    /* A foreign key that is checked at the end only. */
    assert_true(holder_execute(&h, "CREATE TABLE child(p REFERENCES t(id) DEFERRABLE INITIALLY "
                                   "DEFERRED)") &&
                h.ok);
    assert_code(holder_call(&h, "batch", "[[[\"INSERT INTO child VALUES (77)\"]]]"),
                "SQLITE_CONSTRAINT_FOREIGNKEY");
    ASSERT_QUERY("SELECT count(*) AS n FROM child", "{\"columns\":[\"n\"],\"rows\":[[0]]}");
}

static void batch_has_a_limit(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 20);
    (void)buf_add_str(&b, "[[");
    for (int i = 0; i < 1001; i++)
        (void)buf_add_str(&b, i ? ",[\"DELETE FROM t\"]" : "[\"DELETE FROM t\"]");
    (void)buf_add_str(&b, "]]");
    assert_code(holder_call(&h, "batch", b.data), "LIMIT_BATCH");
    assert_contains(h.json, "limit of 1000");
    buf_finish(&b);
    ASSERT_QUERY("SELECT count(*) AS n FROM t", "{\"columns\":[\"n\"],\"rows\":[[3]]}");
}

static void named_methods_run_their_sql(void **state) {
    (void)state;
    ASSERT_CALL("byId", "[2]", "{\"columns\":[\"a\"],\"rows\":[[\"two\"]]}");
    ASSERT_CALL("add", "[\"x\",7]", "{\"success\":true,\"changes\":1,\"lastInsertRowid\":4}");
    assert_code(holder_call(&h, "byId", "[]"), "SQLITE_RANGE");
    assert_code(holder_call(&h, "nothing", "[]"), "NO_METHOD");
}

static void a_grant_holds_its_methods_only(void **state) {
    (void)state;
    struct holder few;
    assert_int_equal(client_grant(&c, "query,byId", 0, &few), 0);
    assert_true(holder_call(&few, "byId", "[1]") && few.ok);
    assert_true(holder_query(&few, "SELECT 1") && few.ok);
    assert_code(holder_execute(&few, "DELETE FROM t"), "NO_METHOD");
    assert_code(holder_call(&few, "batch", "[[[\"DELETE FROM t\"]]]"), "NO_METHOD");
    assert_code(holder_call(&few, "add", "[1,2]"), "NO_METHOD");
    ASSERT_QUERY("SELECT count(*) AS n FROM t", "{\"columns\":[\"n\"],\"rows\":[[3]]}");
    holder_finish(&few);
    assert_int_equal(client_grant(&c, "query,missing", 0, &few), -ERR_BAD_REQUEST);
    assert_int_equal(client_grant(&c, "", 0, &few), 0);
    assert_code(holder_query(&few, "SELECT 1"), "NO_METHOD");
    holder_finish(&few);
}

static void calls_are_counted_and_paced(void **state) {
    (void)state;
    struct holder two;
    assert_int_equal(client_grant(&c, NULL, 2, &two), 0);
    assert_true(holder_query(&two, "SELECT 1") && two.ok);
    assert_true(holder_query(&two, "SELECT 1") && two.ok);
    assert_code(holder_query(&two, "SELECT 1"), "LIMIT_CALLS");
    assert_contains(two.json, "limit of 2 calls");
    holder_finish(&two);
    close_all();
    struct facet_open o = options();
    o.limits.calls_per_s = 5;
    open_with(&o);
    int ok = 0;
    for (int i = 0; i < 20; i++)
        ok += holder_query(&h, "SELECT 1") && h.ok;
    assert_in_range(ok, 5, 8);
    assert_code(h.json, "LIMIT_RATE");
    assert_contains(h.json, "5 calls per second");
}

static void pipelined_calls_are_answered_in_order(void **state) {
    (void)state;
    char args[64];
    for (int i = 0; i < 200; i++) {
        (void)snprintf(args, sizeof(args), "[\"SELECT ? AS n\",%d]", i);
        holder_send(&h, "query", args);
    }
    for (int i = 0; i < 200; i++) {
        (void)snprintf(args, sizeof(args), "[[%d]]", i);
        assert_true(holder_read(&h, CLIENT_ANSWER_MS));
        assert_contains(h.json, args);
    }
}

/* --- Tables ---------------------------------------------------------------------------------- */

static void first_rows_come_once(void **state) {
    (void)state;
    struct facet_open o = options();
    open_with(&o);
    assert_true(c.opened.fresh);
    assert_string_equal(c.opened.warnings, "");
    assert_true(holder_execute(&h, "DELETE FROM t WHERE id = 1") && h.ok);
    close_all();
    open_with(&o);
    assert_false(c.opened.fresh);
    ASSERT_QUERY("SELECT count(*) AS n FROM t", "{\"columns\":[\"n\"],\"rows\":[[2]]}");
    assert_true(holder_execute(&h, "DELETE FROM t") && h.ok);
    close_all();
    open_with(&o);
    ASSERT_QUERY("SELECT count(*) AS n FROM t", "{\"columns\":[\"n\"],\"rows\":[[3]]}");
}

static void a_seed_runs_for_its_empty_table_or_a_new_database(void **state) {
    (void)state;
    struct facet_open o = options();
    o.schema = (char *)"CREATE TABLE IF NOT EXISTS t(a, id, b);";
    o.seed = (char *)"INSERT INTO t(a) VALUES (1); INSERT INTO t(a) VALUES (2)";
    o.seed_table = (char *)"t";
    open_with(&o);
    ASSERT_QUERY("SELECT count(*) AS n FROM t", "{\"columns\":[\"n\"],\"rows\":[[2]]}");
    close_all();
    open_with(&o);
    ASSERT_QUERY("SELECT count(*) AS n FROM t", "{\"columns\":[\"n\"],\"rows\":[[2]]}");
    assert_true(holder_execute(&h, "DELETE FROM t") && h.ok);
    close_all();
    o.seed_table = (char *)"";
    open_with(&o); /* not new */
    ASSERT_QUERY("SELECT count(*) AS n FROM t", "{\"columns\":[\"n\"],\"rows\":[[0]]}");
    close_all();
    o.seed_table = (char *)"t";
    open_with(&o); /* empty */
    ASSERT_QUERY("SELECT count(*) AS n FROM t", "{\"columns\":[\"n\"],\"rows\":[[2]]}");
    close_all();
    o.seed_table = (char *)"";
    o.file = (char *)"new.db";
    open_with(&o);
    ASSERT_QUERY("SELECT count(*) AS n FROM t", "{\"columns\":[\"n\"],\"rows\":[[2]]}");
}

static void a_wrong_schema_is_refused(void **state) {
    (void)state;
    assert_true(client_open_schema(&c, "CREATE TABLE t(a); CREATE GARBAGE") < 0);
    assert_contains(c.err.message, "schema: near \"GARBAGE\": syntax error");
    (void)client_wait(&c, CLIENT_ANSWER_MS);
    /* Nothing of it stayed. */
    assert_int_equal(client_open_schema(&c, "CREATE TABLE t(b)"), 0);
    assert_true(c.opened.fresh);
    (void)client_stop(&c, 0);
    static const char *const REFUSED[] = {"ATTACH 'x' AS y", "PRAGMA journal_mode=DELETE",
                                          "SELECT load_extension('x')"};
    for (size_t i = 0; i < ARRAY_LEN(REFUSED); i++) {
        struct facet_open o = {.file = (char *)"other.db", .schema = (char *)(uintptr_t)REFUSED[i]};
        assert_true(client_open(&c, &o) < 0);
        assert_contains(c.err.message, "not authorized");
        (void)client_wait(&c, CLIENT_ANSWER_MS);
    }
    assert_int_equal(client_open_schema(&c, "PRAGMA user_version=7"), 0);
}

static void a_holder_cannot_close_the_facet_for_good(void **state) {
    (void)state;
    struct facet_open o = options();
    o.schema = (char *)"CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, a, b);"
                       "CREATE INDEX IF NOT EXISTS i ON t(a)";
    open_with(&o);
    assert_true(holder_execute(&h, "DROP TABLE t; CREATE TABLE t(x)") && h.ok);
    close_all();
    open_with(&o);
    assert_contains(c.opened.warnings, "schema: no such column: a");
    assert_contains(c.opened.warnings, "method 'byId': ");
    assert_code(holder_call(&h, "byId", "[1]"), "SQLITE_ERROR");
    assert_true(holder_execute(&h, "DROP TABLE t") && h.ok);
    close_all();
    open_with(&o);
    assert_string_equal(c.opened.warnings, "");
}

static void names_of_methods_are_checked(void **state) {
    (void)state;
    static const char *const BAD[] = {"query", "", "byId"};
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        struct facet_open o = options();
        struct facet_method m[2] = {METHODS[0], METHODS[1]};
        m[1].name = (char *)(uintptr_t)BAD[i];
        o.methods = m;
        assert_int_equal(client_open(&c, &o), -ERR_BAD_REQUEST);
        (void)client_wait(&c, CLIENT_ANSWER_MS);
    }
    static const char *const FILES[] = {"", "..", "a/b", "/etc/x"};
    for (size_t i = 0; i < ARRAY_LEN(FILES); i++) {
        struct facet_open o = {.file = (char *)(uintptr_t)FILES[i]};
        assert_int_equal(client_open(&c, &o), -ERR_BAD_REQUEST);
        (void)client_wait(&c, CLIENT_ANSWER_MS);
    }
    /* These are names of files here, not of anything else. */
    static const char *const PLAIN[] = {":memory:", "file:x.db?mode=memory"};
    for (size_t i = 0; i < ARRAY_LEN(PLAIN); i++) {
        struct facet_open o = {.file = (char *)(uintptr_t)PLAIN[i]};
        assert_int_equal(client_open(&c, &o), 0);
        (void)client_stop(&c, 0);
        char path[128];
        struct stat st;
        (void)snprintf(path, sizeof(path), "%s/%s", c.folder, PLAIN[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
}

static void a_database_has_one_process(void **state) {
    (void)state;
    struct client second = {.control = -1};
    (void)snprintf(second.folder, sizeof(second.folder), "%s", c.folder);
    assert_int_equal(client_open_schema(&second, SCHEMA), -ERR_CONFLICT);
    assert_contains(second.err.message, "another process");
    (void)client_wait(&second, CLIENT_ANSWER_MS);
    assert_true(holder_query(&h, "SELECT 1") && h.ok);
}

/* --- The front ------------------------------------------------------------------------------- */

static int read_audit(int ms, struct facet_audit *last, struct wire_frame *f) {
    struct err err;
    if (!client_expect(&c, FACET_AUDIT, ms, f))
        return 0;
    struct unpack u;
    unpack_init(&u, f->data, f->len);
    int n = 0;
    while (facet_audit_next(&u, last, &err) == 1)
        n++;
    return n;
}

static void every_call_is_reported(void **state) {
    (void)state;
    struct facet_audit a;
    struct wire_frame f;
    int64_t t = clock_mono_ms(); /* before: it may be reported at once when we come back here */
    assert_true(holder_execute(&h, "INSERT INTO t(a) VALUES (1), (2)") && h.ok);
    assert_int_equal(read_audit(CLIENT_ANSWER_MS, &a, &f), 1); /* after 100 ms */
    assert_in_range(clock_mono_ms() - t, 20, CLIENT_ANSWER_MS);
    assert_int_equal(a.grant, h.grant);
    assert_int_equal(a.changes, 2);
    assert_int_equal(a.code_len, 0);
    assert_int_equal(a.method_len, 7);
    assert_memory_equal(a.method, "execute", 7);
    assert_memory_equal(a.sql, "INSERT INTO t(a) VALUES (1), (2)", a.sql_len);
    assert_in_range(a.wall_ms, clock_wall_ms() - CLIENT_ANSWER_MS, clock_wall_ms());
    /* 64 calls go at once; refused calls are reported too. */
    char sql[400];
    (void)snprintf(sql, sizeof(sql), "SELECT %0300d", 1);
    for (int i = 0; i < 63; i++)
        assert_true(holder_query(&h, sql) && h.ok);
    assert_code(holder_call(&h, "missing", "[]"), "NO_METHOD");
    int n = read_audit(CLIENT_ANSWER_MS, &a, &f);
    while (n < 64)
        n += read_audit(CLIENT_ANSWER_MS, &a, &f);
    assert_int_equal(n, 64);
    assert_int_equal(a.code_len, 9);
    assert_memory_equal(a.code, "NO_METHOD", 9);
    assert_memory_equal(a.method, "missing", 7);
    assert_true(holder_query(&h, sql) && h.ok);
    holder_finish(&h); /* and when the grant is closed */
    assert_int_equal(read_audit(CLIENT_ANSWER_MS, &a, &f), 1);
    assert_int_equal(a.sql_len, FACET_AUDIT_SQL);
    assert_int_equal(a.rows, 1);
    uint64_t grant;
    uint64_t calls;
    const char *reason;
    size_t len;
    assert_int_equal(client_expect(&c, FACET_CLOSED, CLIENT_ANSWER_MS, &f), 1);
    assert_int_equal(facet_closed_decode(f.data, f.len, &grant, &calls, &reason, &len, &c.err), 0);
    assert_int_equal(calls, 66);
    assert_memory_equal(reason, "closed", len);
}

static void stats_are_told(void **state) {
    (void)state;
    struct wire_frame f;
    struct facet_stats s;
    assert_true(holder_query(&h, "SELECT 1") && h.ok);
    assert_true(holder_query(&h, "SELECT 1") && h.ok);
    (void)holder_query(&h, "garbage");
    assert_int_equal(client_request(&c, FACET_STATS, NULL, -1, &f), 1);
    assert_int_equal(facet_stats_decode(f.data, f.len, &s, &c.err), 0);
    assert_int_equal(s.calls, 3);
    assert_int_equal(s.failed, 1);
    assert_int_equal(s.grants, 1);
    assert_int_equal(s.cache_hits, 1);
    assert_true(s.db_bytes > 0 && s.wal_bytes > 0 && s.memory_bytes > 0);
}

static void export_is_the_whole_database(void **state) {
    (void)state;
    struct wire_frame f;
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/copy.db", c.folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(holder_execute(&h, "INSERT INTO t(a) SELECT zeroblob(100000) FROM t") && h.ok);
    assert_int_equal(client_request(&c, FACET_EXPORT, NULL, fd, &f), 1);
    close(fd);
    sqlite3 *db;
    sqlite3_stmt *s;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "SELECT (SELECT count(*) FROM t), integrity_check FROM "
                                        "pragma_integrity_check",
                                        -1, &s, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int(s, 0), 6);
    assert_string_equal((const char *)sqlite3_column_text(s, 1), "ok");
    sqlite3_finalize(s);
    sqlite3_close(db);
    /* A pipe could be made to wait for ever. */
    int p[2];
    assert_int_equal(pipe(p), 0);
    assert_int_equal(client_request(&c, FACET_EXPORT, NULL, p[1], &f), -ERR_BAD_REQUEST);
    assert_int_equal(client_request(&c, FACET_EXPORT, NULL, -1, &f), -ERR_BAD_REQUEST);
    close(p[0]);
    close(p[1]);
    assert_true(holder_query(&h, "SELECT 1") && h.ok);
}

static void idleness_is_told(void **state) {
    (void)state;
    struct wire_frame f;
    struct facet_open o = options();
    o.idle_ms = 50;
    open_with(&o);
    assert_int_equal(client_expect(&c, FACET_IDLE, 300, &f), 0); /* a grant is open */
    holder_finish(&h);
    assert_int_equal(client_expect(&c, FACET_IDLE, CLIENT_ANSWER_MS, &f), 1);
    assert_int_equal(client_expect(&c, FACET_IDLE, 300, &f), 0); /* once */
    struct stat st;
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/test.db-wal", c.folder);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 0);
    assert_int_equal(client_grant(&c, NULL, 0, &h), 0);
    holder_finish(&h);
    assert_int_equal(client_expect(&c, FACET_IDLE, CLIENT_ANSWER_MS, &f), 1);
    /* A passive grant does not keep it awake, but its calls do. */
    struct facet_grant g = {.grant = 99, .all = true, .passive = true};
    struct buf b;
    buf_init(&b, 4096);
    facet_grant_encode(&b, &g);
    assert_int_equal(client_request(&c, FACET_GRANT, &b, -1, &f), 1);
    buf_finish(&b);
    h = (struct holder){.fd = wire_frame_take_fd(&f, 0)};
    wire_reader_init(&h.in, 1 << 20);
    buf_init(&h.out, 1 << 20);
    assert_int_equal(client_expect(&c, FACET_IDLE, CLIENT_ANSWER_MS, &f), 1);
    assert_true(holder_query(&h, "SELECT 1") && h.ok);
    assert_int_equal(client_expect(&c, FACET_IDLE, CLIENT_ANSWER_MS, &f), 1);
}

/* Our end of a capability whose other end goes along with the GRANT. */
static struct holder bring(uint64_t grant) {
    int ends[2];
    assert_int_equal(fd_pair(ends, &c.err), 0);
    struct buf b;
    buf_init(&b, 4096);
    facet_grant_encode(&b, &(struct facet_grant){.grant = grant, .all = true});
    struct wire_out out = {
        .type = FACET_GRANT, .id = grant, .pieces = {{b.data, b.len}}, .fds = &ends[1], .nfds = 1};
    assert_int_equal(wire_send(c.control, &out), 0);
    buf_finish(&b);
    close(ends[1]);
    struct holder ours = {.fd = ends[0], .grant = grant};
    wire_reader_init(&ours.in, 1 << 20);
    buf_init(&ours.out, 1 << 20);
    return ours;
}

static void a_capability_that_is_brought_needs_no_answer(void **state) {
    (void)state;
    struct wire_frame f;
    struct holder ours = bring(77);
    assert_true(holder_query(&ours, "SELECT 1") && ours.ok); /* sent before it was heard of */
    struct holder again = bring(77);
    assert_string_equal(holder_query(&again, "SELECT 1"), ""); /* refused: it is let go */
    assert_int_equal(client_expect(&c, FACET_ERROR, CLIENT_ANSWER_MS, &f), 1);
    assert_int_equal(f.id, 77);
    wire_frame_finish(&f);
    assert_int_equal(client_expect(&c, FACET_GRANTED, 100, &f), 0);
    assert_true(holder_query(&ours, "SELECT 1") && ours.ok);
    holder_finish(&again);
    holder_finish(&ours);
}

static void a_revoked_capability_is_gone(void **state) {
    (void)state;
    struct wire_frame f;
    struct buf b;
    buf_init(&b, 64);
    pack_u64(&b, h.grant);
    assert_int_equal(client_request(&c, FACET_REVOKE, &b, -1, &f), 1);
    assert_int_equal(f.type, FACET_CLOSED);
    assert_string_equal(holder_query(&h, "SELECT 1"), "");
    assert_int_equal(client_request(&c, FACET_REVOKE, &b, -1, &f), -ERR_NOT_FOUND);
    buf_finish(&b);
}

/* While one holder's call runs for ever: the front is answered, and can stop it. */
static void a_running_call_can_be_stopped(void **state) {
    (void)state;
    struct wire_frame f;
    struct holder other;
    struct buf b;
    buf_init(&b, 64);
    close_all();
    struct facet_open o = options();
    o.limits.time_ms = UINT32_MAX;
    open_with(&o);
    holder_send(&h, "query", "[\"" ENDLESS "\"]");
    assert_false(holder_read(&h, 50));
    assert_int_equal(client_grant(&c, NULL, 0, &other), 0);
    assert_int_equal(client_request(&c, FACET_STATS, NULL, -1, &f), 1);
    pack_u64(&b, h.grant);
    client_send(&c, FACET_INTERRUPT, &b);
    assert_true(holder_read(&h, CLIENT_ANSWER_MS));
    assert_code(h.json, "INTERRUPTED");
    assert_true(holder_query(&other, "SELECT 1") && other.ok);
    /* An interrupt that comes late, or for another, does nothing. */
    client_send(&c, FACET_INTERRUPT, &b);
    holder_send(&other, "query", "[\"" ENDLESS "\"]");
    assert_false(holder_read(&other, 50));
    client_send(&c, FACET_INTERRUPT, &b);
    assert_false(holder_read(&other, 100));
    /* Revoked in the middle. */
    buf_clear(&b);
    pack_u64(&b, other.grant);
    assert_int_equal(client_request(&c, FACET_REVOKE, &b, -1, &f), 1);
    assert_true(holder_query(&h, "SELECT 1") && h.ok);
    holder_finish(&other);
    /* A holder that goes away does not leave its work behind. */
    assert_int_equal(client_grant(&c, NULL, 0, &other), 0);
    holder_send(&other, "query", "[\"" ENDLESS "\"]");
    assert_false(holder_read(&other, 50));
    holder_finish(&other);
    assert_true(holder_query(&h, "SELECT 1") && h.ok);
    /* Nor does the front. */
    holder_send(&h, "query", "[\"" ENDLESS "\"]");
    assert_false(holder_read(&h, 50));
    assert_int_equal(client_stop(&c, 0), 0);
    buf_finish(&b);
}

static void exports_wait_for_a_running_call(void **state) {
    (void)state;
    struct wire_frame f;
    int fd = memfd_create("copy", MFD_CLOEXEC);
    struct facet_open o = options();
    o.limits.time_ms = 300;
    close_all();
    open_with(&o);
    holder_send(&h, "query", "[\"" ENDLESS "\"]");
    assert_int_equal(client_request(&c, FACET_EXPORT, NULL, fd, &f), 1);
    assert_true(lseek(fd, 0, SEEK_END) > 4096);
    close(fd);
    assert_true(holder_read(&h, CLIENT_ANSWER_MS));
    assert_code(h.json, "LIMIT_TIME");
}

/* The same for what else is about the whole database, in the order it came. */
static void inspect_and_migrate_wait_for_a_running_call(void **state) {
    (void)state;
    struct wire_frame f;
    struct buf b;
    struct facet_open o = options();
    o.limits.time_ms = 300;
    close_all();
    open_with(&o);
    buf_init(&b, 4096);
    facet_migration_encode(&b, &(struct facet_migration){.number = 1,
                                                         .name = "one",
                                                         .name_len = 3,
                                                         .sql = "CREATE TABLE made(a)",
                                                         .sql_len = 20});
    holder_send(&h, "query", "[\"" ENDLESS "\"]");
    assert_int_equal(client_request(&c, FACET_MIGRATE, &b, -1, &f), 1);
    assert_int_equal(f.type, FACET_MIGRATED);
    holder_send(&h, "query", "[\"" ENDLESS "\"]");
    assert_int_equal(client_request(&c, FACET_INSPECT, NULL, -1, &f), 1);
    assert_int_equal(f.type, FACET_INSPECTED);
    assert_non_null(memmem(f.data, f.len, "CREATE TABLE made(a)", 20));
    for (int i = 0; i < 2; i++) {
        assert_true(holder_read(&h, CLIENT_ANSWER_MS));
        assert_code(h.json, "LIMIT_TIME");
    }
    /* A payload that is none changes nothing and ends nothing. */
    buf_clear(&b);
    pack_u64(&b, 2);
    assert_true(client_request(&c, FACET_MIGRATE, &b, -1, &f) < 0);
    assert_true(holder_query(&h, "SELECT a FROM made") && h.ok);
    buf_finish(&b);
}

static void it_dies_with_its_parent(void **state) {
    (void)state;
    /* The parent dies while somebody else keeps the control socket open. */
    int pair[2];
    int told[2];
    struct err err;
    assert_int_equal(fd_pair(pair, &err), 0);
    assert_int_equal(pipe(told), 0);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t parent = fork();
    if (parent == 0) {
        pid_t child = fork();
        if (child == 0) {
            int control = fcntl(pair[1], F_DUPFD, 100);
            int folder = open(c.folder, O_RDONLY | O_DIRECTORY);
            int dir = fcntl(folder, F_DUPFD, 101);
            (void)dup2(control, FACET_CONTROL_FD);
            (void)dup2(dir, FACET_FOLDER_FD);
            execl(client_program(), "cay-facet", (char *)NULL);
            _exit(127);
        }
        (void)!write(told[1], &child, sizeof(child));
        for (;;)
            pause();
    }
    close(pair[1]);
    pid_t child = 0;
    assert_int_equal(read(told[0], &child, sizeof(child)), sizeof(child));
    c.control = pair[0];
    wire_reader_init(&c.in, FACET_OPEN_MAX);
    struct facet_open o = options();
    struct buf b;
    struct wire_frame f;
    buf_init(&b, 1 << 16);
    facet_open_encode(&b, &o);
    assert_int_equal(client_request(&c, FACET_OPEN, &b, -1, &f), 1);
    buf_finish(&b);
    int status;
    (void)kill(parent, SIGKILL);
    assert_int_equal(waitpid(parent, &status, 0), parent);
    c.pid = child;
    status = client_wait(&c, CLIENT_ANSWER_MS);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(told[0]);
    close(told[1]);
}

static void control_messages_are_checked(void **state) {
    (void)state;
    struct wire_frame f;
    struct facet_open o = options();
    struct buf b;
    buf_init(&b, 1 << 16);
    facet_open_encode(&b, &o);
    assert_int_equal(client_request(&c, FACET_OPEN, &b, -1, &f), -ERR_CONFLICT);
    assert_int_equal(client_request(&c, 77, NULL, -1, &f), -ERR_PROTOCOL);
    assert_int_equal(client_request(&c, FACET_GRANT, NULL, -1, &f), -ERR_PROTOCOL);
    assert_int_equal(client_request(&c, FACET_REVOKE, NULL, -1, &f), -ERR_PROTOCOL);
    buf_finish(&b);
    assert_true(holder_query(&h, "SELECT 1") && h.ok);
    holder_finish(&h);
    assert_int_equal(client_stop(&c, 0), 0); /* the exit status too */
    struct holder many[FACET_GRANTS_MAX];
    open_with(&o);
    for (int i = 1; i < FACET_GRANTS_MAX; i++)
        assert_int_equal(client_grant(&c, NULL, 0, &many[i]), 0);
    assert_int_equal(client_grant(&c, NULL, 0, &many[0]), -ERR_LIMIT);
    for (int i = 1; i < FACET_GRANTS_MAX; i++) {
        assert_true(holder_query(&many[i], "SELECT 1") && many[i].ok);
        holder_finish(&many[i]);
    }
}

/* --- Holders that do not keep the contract --------------------------------------------------- */

static void send_raw(struct holder *x, uint16_t type, size_t claimed, const void *data,
                     size_t len) {
    uint8_t head[WIRE_HEAD_SIZE];
    wire_head_encode(head, type, 9, claimed, 0);
    (void)send(x->fd, head, sizeof(head), MSG_NOSIGNAL);
    (void)send(x->fd, data, len, MSG_NOSIGNAL);
}

static void assert_cut(struct holder *x, const char *reason) {
    struct wire_frame f;
    uint64_t grant;
    uint64_t calls;
    const char *got;
    size_t len;
    assert_int_equal(client_expect(&c, FACET_CLOSED, CLIENT_ANSWER_MS, &f), 1);
    assert_int_equal(facet_closed_decode(f.data, f.len, &grant, &calls, &got, &len, &c.err), 0);
    assert_int_equal(grant, x->grant);
    if (len != strlen(reason) || memcmp(got, reason, len) != 0)
        fail_msg("expected '%s', got '%.*s'", reason, (int)len, got);
    char byte;
    while (recv(x->fd, &byte, 1, 0) > 0)
        continue;
    holder_finish(x);
    assert_true(holder_query(&h, "SELECT 1") && h.ok); /* others are unharmed */
}

static void garbage_is_cut_off(void **state) {
    (void)state;
    struct holder x;
    assert_int_equal(client_grant(&c, NULL, 0, &x), 0);
    send_raw(&x, 12345, 0, "", 0);
    assert_true(holder_read(&x, CLIENT_ANSWER_MS));
    assert_code(x.json, "BAD_FRAME");
    assert_cut(&x, "sent something that is not a call");
    assert_int_equal(client_grant(&c, NULL, 0, &x), 0);
    send_raw(&x, FACET_CALL, 3, "abc", 3);
    assert_true(holder_read(&x, CLIENT_ANSWER_MS));
    assert_code(x.json, "BAD_FRAME");
    assert_cut(&x, "sent something that is not a call");
    assert_int_equal(client_grant(&c, NULL, 0, &x), 0);
    send_raw(&x, FACET_CALL, 1U << 31, "", 0);
    assert_true(holder_read(&x, CLIENT_ANSWER_MS));
    assert_code(x.json, "LIMIT_CALL");
    assert_contains(x.json, "4194304 bytes");
    assert_cut(&x, "sent a frame that is too large");
}

static void a_descriptor_from_a_holder_is_cut_off(void **state) {
    (void)state;
    struct holder x;
    assert_int_equal(client_grant(&c, NULL, 0, &x), 0);
    int fd = 0;
    struct wire_out out = {.type = FACET_CALL, .fds = &fd, .nfds = 1};
    assert_int_equal(wire_send(x.fd, &out), 0);
    assert_cut(&x, "sent a descriptor");
}

static void a_holder_that_does_not_go_on_is_cut_off(void **state) {
    (void)state;
    struct holder x;
    close_all();
    struct facet_open o = options();
    o.limits.stall_ms = 200;
    open_with(&o);
    /* Half a call. */
    assert_int_equal(client_grant(&c, NULL, 0, &x), 0);
    send_raw(&x, FACET_CALL, 100, "abc", 3);
    assert_cut(&x, "does not finish its call");
    /* Results that nobody reads: more than the socket holds. */
    assert_int_equal(client_grant(&c, NULL, 0, &x), 0);
    for (int i = 0; i < 3; i++)
        holder_send(&x, "query", "[\"SELECT hex(zeroblob(1000000)) AS x\"]");
    assert_cut(&x, "does not read its results");
    /* One that reads slowly but goes on gets everything. */
    close_all();
    o.limits.stall_ms = 2000;
    open_with(&o);
    assert_int_equal(client_grant(&c, NULL, 0, &x), 0);
    holder_send(&x, "query", "[\"SELECT hex(zeroblob(1000000)) AS x\"]");
    holder_send(&x, "query", "[\"SELECT 1 AS y\"]");
    size_t left = 2 * WIRE_HEAD_SIZE + strlen("{'columns':['x'],'rows':[['']]}") + 2000000 +
                  strlen("{'columns':['y'],'rows':[[1]]}");
    static char chunk[100000];
    while (left > 0) {
        (void)usleep(150000);
        ssize_t n = recv(x.fd, chunk, MIN(sizeof(chunk), left), 0);
        assert_true(n > 0);
        left -= (size_t)n;
    }
    holder_finish(&x);
}

/* Whole calls come all the time, but the beginning of the next is always there too. */
static void a_stream_of_calls_does_not_stall(void **state) {
    (void)state;
    close_all();
    struct facet_open o = options();
    o.limits.stall_ms = 2000;
    open_with(&o);
    struct buf b;
    buf_init(&b, 4096);
    uint8_t head[WIRE_HEAD_SIZE];
    static const char ARGS[] = "[\"SELECT 1\"]";
    wire_head_encode(head, FACET_CALL, 1, 4 + strlen("query") + strlen(ARGS), 0);
    for (int i = 0; i < 2; i++) {
        (void)buf_add(&b, head, sizeof(head));
        facet_call_encode(&b, "query", ARGS, strlen(ARGS));
    }
    size_t n = b.len / 2;
    enum { BEGINNING = 8 };
    assert_int_equal(send(h.fd, b.data, BEGINNING, 0), BEGINNING);
    for (int i = 0; i < 40; i++) {
        (void)send(h.fd, b.data + BEGINNING, n, MSG_NOSIGNAL);
        if (!holder_read(&h, CLIENT_ANSWER_MS))
            fail_msg("cut off after %d calls", i);
        (void)usleep(75000);
    }
    buf_finish(&b);
}

static void many_large_calls_at_once_are_bounded(void **state) {
    (void)state;
    enum { N = 12 };
    struct holder x[N];
    static char part[3 << 20];
    struct wire_frame f;
    memset(part, ' ', sizeof(part));
    for (int i = 0; i < N; i++) {
        assert_int_equal(client_grant(&c, NULL, 0, &x[i]), 0);
        send_raw(&x[i], FACET_CALL, 4 << 20, part, sizeof(part));
    }
    assert_int_equal(client_expect(&c, FACET_CLOSED, CLIENT_ANSWER_MS, &f), 1);
    assert_non_null(memmem(f.data, f.len, "too many large calls at once", 28));
    assert_true(holder_query(&h, "SELECT 1") && h.ok);
    for (int i = 0; i < N; i++)
        holder_finish(&x[i]);
}

/* How many calls of the one are reported before the first query of the other. */
static int calls_before(const struct holder *one, const struct holder *other) {
    int n = 0;
    struct wire_frame f;
    struct facet_audit a;
    struct err err;
    while (client_expect(&c, FACET_AUDIT, CLIENT_ANSWER_MS, &f)) {
        struct unpack u;
        unpack_init(&u, f.data, f.len);
        while (facet_audit_next(&u, &a, &err) == 1) {
            if (a.grant == other->grant && a.method_len == strlen("query"))
                return n;
            n += a.grant == one->grant;
        }
    }
    fail_msg("the query is not reported");
    return n;
}

static void one_busy_holder_does_not_starve_another(void **state) {
    (void)state;
    struct holder x;
    close_all();
    struct facet_open o = options();
    o.limits.time_ms = 50;
    open_with(&o);
    assert_true(holder_execute(&h, "CREATE VIEW e AS " ENDLESS) && h.ok);
    assert_int_equal(client_grant(&c, NULL, 0, &x), 0);
    /* All is there before it goes on. Short, so that about a hundred come with one read. */
    assert_int_equal(kill(c.pid, SIGSTOP), 0);
    for (int i = 0; i < 200; i++)
        holder_send(&x, "query", "[\"SELECT*FROM e\"]");
    holder_send(&h, "query", "[\"SELECT 1\"]");
    assert_int_equal(kill(c.pid, SIGCONT), 0);
    assert_true(holder_read(&h, CLIENT_ANSWER_MS) && h.ok);
    assert_in_range(calls_before(&x, &h), 0, 32); /* a turn is sixteen calls */
    holder_finish(&x);
}

/* test_facet_calls [PATTERN]: only the tests whose names fit. */
int main(int argc, char **argv) {
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(query_returns_columns_and_rows, setup_open, teardown),
        cmocka_unit_test_setup_teardown(values_come_back_as_they_are, setup_open, teardown),
        cmocka_unit_test_setup_teardown(arguments_are_bound_by_their_type, setup_open, teardown),
        cmocka_unit_test_setup_teardown(errors_are_sqlites_own, setup_open, teardown),
        cmocka_unit_test_setup_teardown(execute_reports_what_changed, setup_open, teardown),
        cmocka_unit_test_setup_teardown(execute_runs_several_statements_as_one, setup_open,
                                        teardown),
        cmocka_unit_test_setup_teardown(query_takes_one_statement, setup_open, teardown),
        cmocka_unit_test_setup_teardown(batch_is_all_or_nothing, setup_open, teardown),
        cmocka_unit_test_setup_teardown(batch_has_a_limit, setup_open, teardown),
        cmocka_unit_test_setup_teardown(named_methods_run_their_sql, setup_open, teardown),
        cmocka_unit_test_setup_teardown(a_grant_holds_its_methods_only, setup_open, teardown),
        cmocka_unit_test_setup_teardown(calls_are_counted_and_paced, setup_open, teardown),
        cmocka_unit_test_setup_teardown(pipelined_calls_are_answered_in_order, setup_open,
                                        teardown),
        cmocka_unit_test_setup_teardown(first_rows_come_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_seed_runs_for_its_empty_table_or_a_new_database, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_wrong_schema_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_holder_cannot_close_the_facet_for_good, setup, teardown),
        cmocka_unit_test_setup_teardown(names_of_methods_are_checked, setup, teardown),
        cmocka_unit_test_setup_teardown(a_database_has_one_process, setup_open, teardown),
        cmocka_unit_test_setup_teardown(every_call_is_reported, setup_open, teardown),
        cmocka_unit_test_setup_teardown(stats_are_told, setup_open, teardown),
        cmocka_unit_test_setup_teardown(export_is_the_whole_database, setup_open, teardown),
        cmocka_unit_test_setup_teardown(idleness_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(a_capability_that_is_brought_needs_no_answer, setup_open,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_revoked_capability_is_gone, setup_open, teardown),
        cmocka_unit_test_setup_teardown(a_running_call_can_be_stopped, setup_open, teardown),
        cmocka_unit_test_setup_teardown(exports_wait_for_a_running_call, setup_open, teardown),
        cmocka_unit_test_setup_teardown(inspect_and_migrate_wait_for_a_running_call, setup_open,
                                        teardown),
        cmocka_unit_test_setup_teardown(it_dies_with_its_parent, setup, teardown),
        cmocka_unit_test_setup_teardown(control_messages_are_checked, setup_open, teardown),
        cmocka_unit_test_setup_teardown(garbage_is_cut_off, setup_open, teardown),
        cmocka_unit_test_setup_teardown(a_descriptor_from_a_holder_is_cut_off, setup_open,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_holder_that_does_not_go_on_is_cut_off, setup_open,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_stream_of_calls_does_not_stall, setup_open, teardown),
        cmocka_unit_test_setup_teardown(many_large_calls_at_once_are_bounded, setup_open, teardown),
        cmocka_unit_test_setup_teardown(one_busy_holder_does_not_starve_another, setup_open,
                                        teardown),
    };
    return cmocka_run_group_tests_name("facet calls", tests, NULL, NULL);
}
