/* What SQL of a holder must not be able to do. Each test fails when its guard is taken away. */

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/mem.h"
#include "client.h"
#include "facet/db.h"
#include "facet/lock.h"

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
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define SCHEMA                                                                                     \
    "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, a, b);"                                  \
    "INSERT INTO t(a, b) VALUES (1, 2), (3, 4);"
#define COUNT_TO(n) "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT " #n ") "
#define ENDLESS                                                                                    \
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT max(i) AS m FROM n"

static struct client c;
static struct holder h;

static struct facet_method METHODS[] = {
    {(char *)"all", (char *)"SELECT id, a FROM t", FACET_KIND_QUERY},
    {(char *)"add", (char *)"INSERT INTO t(a) VALUES (?)", FACET_KIND_EXECUTE},
};

static void open_with(struct facet_limits limits) {
    struct facet_open o = {.file = (char *)"test.db",
                           .schema = (char *)SCHEMA,
                           .limits = limits,
                           .methods = METHODS,
                           .nmethods = 2};
    if (client_open(&c, &o) < 0 || client_grant(&c, NULL, 0, &h) < 0)
        fail_msg("open: %s", c.err.message);
}

static int setup(void **state) {
    (void)state;
    client_init(&c);
    h = (struct holder){.fd = -1};
    return 0;
}

static int setup_open(void **state) {
    (void)setup(state);
    open_with((struct facet_limits){0});
    return 0;
}

static int teardown(void **state) {
    (void)state;
    holder_finish(&h);
    client_finish(&c);
    return 0;
}

static void assert_code(const char *sql, const char *json, const char *code) {
    char want[80];
    (void)snprintf(want, sizeof(want), "\"code\":\"%s\"}", code);
    size_t n = strlen(json);
    if (n < strlen(want) || strcmp(json + n - strlen(want), want) != 0)
        fail_msg("%.200s\nexpected %s: %.400s", sql, code, json);
}

static void refused(const char *sql, const char *code) {
    assert_code(sql, holder_execute(&h, sql), code);
}

static void query_refused(const char *sql, const char *code) {
    assert_code(sql, holder_query(&h, sql), code);
}

static void fine(const char *sql) {
    if (!holder_execute(&h, sql) || !h.ok)
        fail_msg("%.200s\n%.400s", sql, h.json);
}

static void query_fine(const char *sql) {
    if (!holder_query(&h, sql) || !h.ok)
        fail_msg("%.200s\n%.400s", sql, h.json);
}

static void assert_contains(const char *part) {
    if (!strstr(h.json, part))
        fail_msg("expected %s in: %.400s", part, h.json);
}

/* The tables are as they were and the facet works. */
static void assert_unharmed(void) {
    assert_string_equal(holder_query(&h, "SELECT * FROM main.t"),
                        "{\"columns\":[\"id\",\"a\",\"b\"],\"rows\":[[1,1,2],[2,3,4]]}");
}

/* --- What SQL may name ----------------------------------------------------------------------- */

static void other_files_are_out_of_reach(void **state) {
    (void)state;
    refused("ATTACH 'other.db' AS x", "SQLITE_AUTH");
    refused("ATTACH ':memory:' AS x", "SQLITE_AUTH");
    refused("DETACH main", "SQLITE_AUTH");
    refused("VACUUM", "SQLITE_AUTH");
    refused("VACUUM INTO 'other.db'", "SQLITE_AUTH");
    query_refused("VACUUM INTO 'other.db'", "READ_ONLY");
    query_refused("SELECT load_extension('x')", "SQLITE_AUTH");
    assert_contains("not authorized: function load_extension");
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/other.db", c.folder);
    struct stat st;
    assert_true(stat(path, &st) < 0);
    assert_unharmed();
}

static void pragmas_only_read(void **state) {
    (void)state;
    static const char *const NO[] = {
        "PRAGMA journal_mode",
        "PRAGMA journal_mode=DELETE",
        "PRAGMA writable_schema=1",
        "PRAGMA max_page_count=1000000",
        "PRAGMA hard_heap_limit=0",
        "PRAGMA soft_heap_limit=0",
        "PRAGMA synchronous=OFF",
        "PRAGMA locking_mode=NORMAL",
        "PRAGMA trusted_schema=1",
        "PRAGMA user_version=3",
        "PRAGMA foreign_keys=0",
        "PRAGMA temp_store=1",
        "PRAGMA temp_store_directory='/'",
        "PRAGMA cache_size=1000000",
        "PRAGMA mmap_size=1000000000",
        "PRAGMA wal_checkpoint",
        "PRAGMA wal_autocheckpoint=0",
        "PRAGMA journal_size_limit=-1",
        "PRAGMA database_list",
        "PRAGMA compile_options",
        "PRAGMA function_list",
        "PRAGMA module_list",
        "PRAGMA integrity_check",
        "PRAGMA optimize",
        "PRAGMA incremental_vacuum",
        "PRAGMA page_size=512",
        "PRAGMA query_only=1",
        "PRAGMA case_sensitive_like=1",
        "PRAGMA recursive_triggers=1",
        "PRAGMA data_store_directory='/'",
    };
    for (size_t i = 0; i < ARRAY_LEN(NO); i++) {
        refused(NO[i], "SQLITE_AUTH");
        query_refused(NO[i], "SQLITE_AUTH");
    }
    query_refused("SELECT * FROM pragma_database_list", "SQLITE_AUTH");
    query_refused("SELECT * FROM pragma_compile_options", "SQLITE_AUTH");
    query_fine("PRAGMA user_version");
    query_fine("PRAGMA table_info(t)");
    query_fine("PRAGMA table_list");
    query_fine("PRAGMA index_list('t')");
    query_fine("PRAGMA foreign_key_list(t)");
    query_fine("SELECT name FROM pragma_table_info('t')");
    assert_contains("[[\"id\"],[\"a\"],[\"b\"]]");
    query_fine("SELECT m.name, p.name FROM sqlite_schema m, pragma_table_info(m.name) p");
}

static void transactions_are_ours(void **state) {
    (void)state;
    static const char *const NO[] = {"BEGIN",
                                     "BEGIN IMMEDIATE",
                                     "COMMIT",
                                     "END",
                                     "ROLLBACK",
                                     "SAVEPOINT s",
                                     "RELEASE s",
                                     "ROLLBACK TO s",
                                     "BEGIN; DELETE FROM t",
                                     "DELETE FROM t; COMMIT; SELECT 1",
                                     "DELETE FROM t; ROLLBACK"};
    for (size_t i = 0; i < ARRAY_LEN(NO); i++)
        refused(NO[i], "SQLITE_AUTH");
    query_refused("BEGIN", "SQLITE_AUTH");
    assert_unharmed();
    /* A transaction that is thrown away inside must not let the rest run outside of it. */
    fine("CREATE TRIGGER g BEFORE INSERT ON t WHEN new.a = 'boom' BEGIN SELECT "
         "RAISE(ROLLBACK, 'gone'); END");
    assert_code("batch",
                holder_call(&h, "batch",
                            "[[[\"DELETE FROM t WHERE id = 1\"],[\"INSERT INTO t(a) VALUES "
                            "('boom')\"],[\"DELETE FROM t\"]]]"),
                "SQLITE_CONSTRAINT_TRIGGER");
    refused("DELETE FROM t WHERE id = 1; INSERT INTO t(a) VALUES ('boom'); DELETE FROM t",
            "SQLITE_CONSTRAINT_TRIGGER");
    assert_code("batch",
                holder_call(&h, "batch",
                            "[[[\"DELETE FROM t WHERE id = 1\"],[\"INSERT OR ROLLBACK INTO t(id) "
                            "VALUES (2)\"],[\"DELETE FROM t\"]]]"),
                "SQLITE_CONSTRAINT_PRIMARYKEY");
    assert_unharmed();
}

static void queries_only_read(void **state) {
    (void)state;
    static const char *const NO[] = {
        "INSERT INTO t(a) VALUES (9)",
        "WITH x AS (SELECT 1) INSERT INTO t(a) SELECT * FROM x",
        "UPDATE t SET a = 9",
        "DELETE FROM t",
        "REPLACE INTO t(id) VALUES (1)",
        "CREATE TABLE x(a)",
        "CREATE INDEX i ON t(a)",
        "CREATE VIEW v AS SELECT 1",
        "DROP TABLE t",
        "ALTER TABLE t ADD COLUMN z",
        "ANALYZE",
        "REINDEX",
        "CREATE VIRTUAL TABLE f USING fts5(a)",
    };
    fine("CREATE INDEX j ON t(a)");
    for (size_t i = 0; i < ARRAY_LEN(NO); i++)
        query_refused(NO[i], "READ_ONLY");
    /* Compiled for one purpose is not compiled for the other. */
    fine("UPDATE t SET a = a");
    query_refused("UPDATE t SET a = a", "READ_ONLY");
    assert_unharmed();
}

/* Who may execute may also ask a writing statement for its rows; who may only query may not. */
static void a_query_writes_only_for_a_holder_that_may(void **state) {
    (void)state;
    static const char *const WRITES[] = {
        "INSERT INTO t(a) VALUES (9) RETURNING id",
        "UPDATE t SET a = a RETURNING id",
        "DELETE FROM t WHERE id < 0 RETURNING id",
        "WITH x AS (SELECT 1) INSERT INTO t(a) SELECT * FROM x RETURNING a",
    };
    struct holder reader;
    assert_int_equal(client_grant(&c, "query", 0, &reader), 0);
    for (size_t i = 0; i < ARRAY_LEN(WRITES); i++)
        assert_code(WRITES[i], holder_query(&reader, WRITES[i]), "READ_ONLY");
    holder_finish(&reader);
    assert_unharmed();
    fine("CREATE TABLE w(id INTEGER PRIMARY KEY, a)");
    query_fine("INSERT INTO w(a) VALUES ('x'), ('y') RETURNING id, a");
    assert_contains("{\"columns\":[\"id\",\"a\"],\"rows\":[[1,\"x\"],[2,\"y\"]]}");
    query_fine("UPDATE w SET a = a || 'z' WHERE id = 2 RETURNING a");
    assert_contains("[[\"yz\"]]");
    query_fine("DELETE FROM w WHERE id = 1 RETURNING id");
    query_fine("SELECT * FROM w");
    assert_contains("\"rows\":[[2,\"yz\"]]");
    /* All or nothing, also where the rows do not fit. */
    query_refused("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 20000) "
                  "INSERT INTO w(a) SELECT x FROM n RETURNING id",
                  "LIMIT_ROWS");
    query_refused("INSERT INTO w(id) VALUES (3), (2) RETURNING id", "SQLITE_CONSTRAINT_PRIMARYKEY");
    query_refused("INSERT INTO w(a) VALUES (1) RETURNING id; DELETE FROM w", "SQLITE_ERROR");
    query_fine("SELECT count(*) FROM w");
    assert_contains("\"rows\":[[1]]");
    fine("DROP TABLE w");
    assert_unharmed();
}

static void nothing_temporary_stays(void **state) {
    (void)state;
    static const char *const NO[] = {
        "CREATE TEMP TABLE t(x)",
        "CREATE TABLE temp.t(x)",
        "CREATE TEMP VIEW t AS SELECT 'fake' AS id",
        "CREATE VIEW temp.t AS SELECT 'fake' AS id",
        "CREATE TEMP TABLE t AS SELECT 1",
        "CREATE TEMP TRIGGER g AFTER INSERT ON t BEGIN DELETE FROM t; END",
        "CREATE TRIGGER temp.g AFTER INSERT ON t BEGIN DELETE FROM t; END",
        "CREATE VIRTUAL TABLE temp.f USING fts5(a)",
    };
    for (size_t i = 0; i < ARRAY_LEN(NO); i++)
        refused(NO[i], "SQLITE_AUTH");
    query_fine("SELECT count(*) AS n FROM sqlite_temp_schema");
    assert_contains("[[0]]");
    assert_unharmed();
}

static void the_schema_cannot_be_forged(void **state) {
    (void)state;
    refused("UPDATE sqlite_schema SET sql = 'CREATE TABLE t(x)'", "SQLITE_ERROR");
    refused("INSERT INTO sqlite_master VALUES ('table','x','x',2,'CREATE TABLE x(a)')",
            "SQLITE_ERROR");
    refused("DELETE FROM sqlite_master", "SQLITE_ERROR");
    refused("UPDATE sqlite_temp_master SET sql = 1", "SQLITE_ERROR");
    query_refused("SELECT fts3_tokenizer('simple')", "SQLITE_AUTH");
    query_refused("SELECT sqlite_log(1, 'x')", "SQLITE_AUTH");
    query_refused("SELECT sqlite_rename_table(1,2,3,4,5,6,7)", "SQLITE_ERROR");
    /* Shadow tables are where a crafted blob would meet a parser of FTS5's own: defensive mode. */
    fine("CREATE VIRTUAL TABLE f USING fts5(a)");
    fine("INSERT INTO f VALUES ('hello world')");
    refused("UPDATE f_data SET block = x'ffffffff'", "SQLITE_ERROR");
    refused("DELETE FROM f_config", "SQLITE_ERROR");
    query_fine("SELECT highlight(f, 0, '<', '>') AS x FROM f('hello') ORDER BY rank");
    assert_contains("<hello> world");
    assert_unharmed();
}

static void modules_are_few(void **state) {
    (void)state;
    query_refused("SELECT * FROM sqlite_stmt", "SQLITE_ERROR"); /* other holders' SQL */
    query_refused("SELECT * FROM dbstat", "SQLITE_ERROR");
    refused("CREATE VIRTUAL TABLE r USING rtree(a, b, c)", "SQLITE_AUTH");
    refused("CREATE VIRTUAL TABLE r USING fts4(a)", "SQLITE_AUTH");
    refused("CREATE VIRTUAL TABLE r USING fts5vocab(f, row)", "SQLITE_AUTH");
    query_fine("SELECT value FROM json_each('[1,2]')");
    assert_contains("[[1],[2]]");
    query_fine("SELECT count(*) AS n FROM json_tree('{\"a\":[1]}')");
}

static void ordinary_sql_works(void **state) {
    (void)state;
    fine("CREATE VIRTUAL TABLE f USING fts5(a)");
    fine("INSERT INTO f VALUES ('x')");
    holder_finish(&h);
    (void)client_stop(&c, 0);
    open_with((struct facet_limits){0});
    query_fine("SELECT * FROM f"); /* the first look at it, by a query */
    fine("DROP TABLE f");
    fine("ALTER TABLE t ADD COLUMN z DEFAULT 5");
    fine("ALTER TABLE t RENAME COLUMN z TO y");
    fine("ALTER TABLE t DROP COLUMN y");
    fine("ALTER TABLE t RENAME TO u");
    fine("ALTER TABLE u RENAME TO t");
    fine("CREATE INDEX i ON t(a)");
    fine("REINDEX");
    fine("ANALYZE");
    fine("DROP INDEX i");
    fine("CREATE VIEW v AS SELECT printf('%d', a) AS s FROM t");
    query_fine("SELECT s FROM v");
    fine("CREATE TABLE g(a, b AS (replace(a, 'x', 'y')), CHECK (instr(a, 'bad') = 0))");
    fine("CREATE INDEX gi ON g(trim(a))");
    fine("INSERT INTO g(a) VALUES ('xx')");
    query_fine("SELECT b FROM g");
    assert_contains("[[\"yy\"]]");
    fine("INSERT INTO t(id, a) VALUES (1, 9) ON CONFLICT (id) DO UPDATE SET b = excluded.b");
    query_fine("SELECT row_number() OVER (ORDER BY id) AS r, sum(a) OVER () AS s FROM t");
    query_fine("SELECT json_extract('{\"a\":[1,2]}', '$.a[1]') AS a, '{\"b\":3}' ->> 'b' AS b");
    assert_contains("[[2,3]]");
    query_fine("SELECT strftime('%Y', 'now') > '2000' AS y, date(0, 'unixepoch') AS d");
    query_fine("SELECT datetime('now', 'localtime') = datetime('now') AS l"); /* opens no file */
    assert_contains("[[1]]");
    query_fine("EXPLAIN QUERY PLAN SELECT * FROM t WHERE a LIKE 'x%'");
    query_fine("SELECT sqrt(16), pow(2, 10), round(2.567, 2), hex(randomblob(4)) <> '' AS r");
}

/* --- Time ------------------------------------------------------------------------------------ */

/* How much work the facet has done. */
static int64_t worked_ms(void) {
    clockid_t id;
    struct timespec t;
    assert_int_equal(clock_getcpuclockid(c.pid, &id), 0);
    assert_int_equal(clock_gettime(id, &t), 0);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void endless_queries_are_stopped(void **state) {
    (void)state;
    open_with((struct facet_limits){.time_ms = 100});
    query_refused(ENDLESS, "LIMIT_TIME");
    assert_contains("time limit of 100 ms exceeded");
    query_refused(COUNT_TO(100000) "SELECT count(*) FROM n a, n b, n c", "LIMIT_TIME");
    query_refused(COUNT_TO(1000000000) "SELECT group_concat('') FROM n", "LIMIT_TIME");
    /* A write that is stopped has not happened. */
    refused("INSERT INTO t(a) " COUNT_TO(100000000) "SELECT i FROM n", "LIMIT_TIME");
    refused("UPDATE t SET a = 0; INSERT INTO t(a) " COUNT_TO(100000000) "SELECT i FROM n",
            "LIMIT_TIME");
    assert_unharmed();
}

/* One function that runs long is not interrupted: none may. Each of these takes seconds to minutes
 * in SQLite itself. */
static void functions_cannot_be_bombs(void **state) {
    (void)state;
    /* A sanitizer makes our own functions many times slower. */
    int scale = facet_lock_is_relaxed() ? 20 : 1;
    open_with((struct facet_limits){.time_ms = CLIENT_ANSWER_MS});
    static const struct {
        const char *sql;
        const char *code; /* NULL: it succeeds */
    } BOMBS[] = {
        {"SELECT length(printf('%.*c', 900000000, 'x'))", "LIMIT_VALUE"},
        {"SELECT length(format('%.*c', 900000000, 'x'))", "LIMIT_VALUE"},
        {"SELECT length(printf('%*d', 900000000, 1))", "LIMIT_VALUE"},
        {"SELECT length(printf('%.*f', 900000000, 1.5))", "LIMIT_VALUE"},
        {"SELECT instr(hex(zeroblob(1000000)), hex(zeroblob(500000))||'1')", NULL},
        {"SELECT length(replace(hex(zeroblob(1000000)), hex(zeroblob(250000))||'1', ''))", NULL},
        {"SELECT length(trim(hex(zeroblob(1000000)), replace(hex(zeroblob(500000)), '0', 'a')"
         "||'0'))",
         NULL},
        {"SELECT length(trim('x', hex(zeroblob(10))||replace(hex(zeroblob(100)), '0', 'ä')))",
         "SQLITE_ERROR"},
        {"SELECT length(replace(hex(zeroblob(1000000)), '0', hex(zeroblob(400000))))",
         "LIMIT_VALUE"},
        {"SELECT length(zeroblob(1000000000))", "LIMIT_VALUE"},
        {"SELECT length(randomblob(1000000000))", "LIMIT_VALUE"},
        {"SELECT length(hex(zeroblob(1500000)))", "LIMIT_VALUE"},
        {"SELECT json_patch('{}', '{}')", "SQLITE_AUTH"},
        {"SELECT 'x' LIKE replace(hex(zeroblob(60)), '0', '%x')", "SQLITE_ERROR"},
        {"SELECT 'x' GLOB replace(hex(zeroblob(60)), '0', '*x')", "SQLITE_ERROR"},
        {"SELECT 1 FROM t WHERE a REGEXP '(a+)+$'", "SQLITE_ERROR"},
    };
    for (size_t i = 0; i < ARRAY_LEN(BOMBS); i++) {
        int64_t t = worked_ms();
        if (BOMBS[i].code)
            query_refused(BOMBS[i].sql, BOMBS[i].code);
        else
            query_fine(BOMBS[i].sql);
        t = worked_ms() - t;
        if (t > 3000 * scale)
            fail_msg("%s took %d ms of work", BOMBS[i].sql, (int)t);
    }
    assert_unharmed();
}

/* Where nothing else helps, the process ends itself, says why, and the next one goes on. */
static void a_call_that_cannot_be_stopped_ends_the_process(void **state) {
    (void)state;
    /* A value limit far above the default makes one function slow enough. */
    open_with(
        (struct facet_limits){.time_ms = 50, .value_bytes = 64 << 20, .memory_bytes = 512 << 20});
    fine("INSERT INTO t(a) VALUES (7)");
    int64_t t = clock_mono_ms();
    holder_send(&h, "query",
                "[\"SELECT hex(zeroblob(30000000)) GLOB "
                "'*[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]x'\"]");
    assert_true(holder_read(&h, CLIENT_ANSWER_MS));
    assert_string_equal(h.json, "{\"name\":\"LimitError\",\"message\":\"time limit of 50 ms "
                                "exceeded\",\"code\":\"LIMIT_TIME\"}");
    assert_in_range(clock_mono_ms() - t, 1000, CLIENT_ANSWER_MS);
    struct wire_frame f;
    struct facet_audit a = {0};
    struct err err;
    bool told = false;
    while (!told && client_expect(&c, FACET_AUDIT, CLIENT_ANSWER_MS, &f)) {
        struct unpack u;
        unpack_init(&u, f.data, f.len);
        while (facet_audit_next(&u, &a, &err) == 1)
            told |= a.code_len == 10 && memcmp(a.code, "LIMIT_TIME", 10) == 0;
    }
    assert_true(told);
    int status = client_wait(&c, CLIENT_ANSWER_MS);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), FACET_EXIT_TIME);
    holder_finish(&h);
    open_with((struct facet_limits){0});
    query_fine("SELECT a FROM t WHERE id = 3");
    assert_contains("[[7]]");
}

/* --- Size ------------------------------------------------------------------------------------ */

static void memory_is_bounded(void **state) {
    (void)state;
    open_with((struct facet_limits){.memory_bytes = 8 << 20, .time_ms = 20000});
    query_refused(COUNT_TO(3000000) "SELECT i FROM n ORDER BY i % 7", "LIMIT_MEMORY");
    assert_contains("memory limit of 8388608 bytes exceeded");
    query_refused(COUNT_TO(1000) "SELECT count(*) FROM (SELECT DISTINCT randomblob(100000) FROM n)",
                  "LIMIT_MEMORY");
    refused(COUNT_TO(1000) "UPDATE t SET a = (SELECT json_group_array(hex(zeroblob(1000000))) FROM "
                           "n)",
            "LIMIT_MEMORY");
    assert_unharmed();
    struct wire_frame f;
    struct facet_stats s;
    assert_int_equal(client_request(&c, FACET_STATS, NULL, -1, &f), 1);
    assert_int_equal(facet_stats_decode(f.data, f.len, &s, &c.err), 0);
    assert_in_range(s.memory_peak_bytes, 1 << 20, 8 << 20);
    assert_in_range(s.memory_bytes, 1, 6 << 20);
}

static void results_are_bounded(void **state) {
    (void)state;
    open_with((struct facet_limits){.rows = 10, .result_bytes = 5000, .sql_bytes = 1000});
    query_fine(COUNT_TO(10) "SELECT i FROM n");
    query_refused(COUNT_TO(11) "SELECT i FROM n", "LIMIT_ROWS");
    assert_contains("row limit of 10 exceeded");
    query_fine("SELECT hex(zeroblob(2000)) AS x");
    query_refused("SELECT hex(zeroblob(3000)) AS x", "LIMIT_RESULT");
    assert_contains("result limit of 5000 bytes exceeded");
    query_refused("SELECT zeroblob(4000) AS x", "LIMIT_RESULT");
    char sql[1200];
    (void)snprintf(sql, sizeof(sql), "SELECT 1 -- %0985d", 0);
    query_fine(sql);
    (void)snprintf(sql, sizeof(sql), "SELECT 1 -- %0999d", 0);
    query_refused(sql, "LIMIT_SQL");
    assert_contains("SQL limit of 1000 bytes exceeded");
    /* What was written before the rows did not fit is undone. */
    refused("INSERT INTO t(a) " COUNT_TO(20) "SELECT i FROM n RETURNING id", "LIMIT_ROWS");
    refused("UPDATE t SET a = 5 RETURNING hex(zeroblob(3000))", "LIMIT_RESULT");
    assert_code(
        "batch",
        holder_call(&h, "batch", "[[[\"DELETE FROM t\"],[\"SELECT hex(zeroblob(3000)) AS x\"]]]"),
        "LIMIT_RESULT");
    assert_unharmed();
    holder_finish(&h);
    (void)client_stop(&c, 0);
    open_with((struct facet_limits){.value_bytes = 1000});
    query_refused("SELECT length(zeroblob(1001))", "LIMIT_VALUE");
    assert_contains("value limit of 1000 bytes exceeded");
    struct buf b;
    buf_init(&b, 8192);
    (void)buf_addf(&b, "[\"SELECT length(?) AS n\",\"%01001d\"]", 0);
    assert_code("bind", holder_call(&h, "query", b.data), "LIMIT_VALUE");
    buf_finish(&b);
}

static void statements_are_bounded(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 20);
    (void)buf_add_str(&b, "SELECT 1");
    for (int i = 0; i < 300; i++)
        (void)buf_add_str(&b, "+1");
    query_refused(b.data, "SQLITE_ERROR");
    assert_contains("maximum depth 200");
    buf_clear(&b);
    (void)buf_add_str(&b, "SELECT 1");
    for (int i = 0; i < 150; i++)
        (void)buf_add_str(&b, " UNION ALL SELECT 1");
    query_refused(b.data, "SQLITE_ERROR");
    assert_contains("too many terms in compound SELECT");
    buf_clear(&b);
    (void)buf_add_str(&b, "CREATE TABLE w(c");
    for (int i = 0; i < 600; i++)
        (void)buf_addf(&b, ",c%d", i);
    (void)buf_add_str(&b, ")");
    refused(b.data, "SQLITE_ERROR");
    assert_contains("too many columns");
    buf_clear(&b);
    (void)buf_add_str(&b, "SELECT max(1");
    for (int i = 0; i < 70; i++)
        (void)buf_add_str(&b, ",1");
    (void)buf_add_str(&b, ")");
    query_refused(b.data, "SQLITE_ERROR");
    assert_contains("too many arguments");
    query_refused("SELECT ?1001", "SQLITE_ERROR");
    /* A long list is no bomb. */
    buf_clear(&b);
    (void)buf_add_str(&b, "SELECT 7 IN (0");
    for (int i = 1; i < 15000; i++)
        (void)buf_addf(&b, ",%d", i);
    (void)buf_add_str(&b, ") AS x");
    query_fine(b.data);
    buf_finish(&b);
}

static int64_t size_of(const char *name) {
    char path[160];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/%s", c.folder, name);
    return stat(path, &st) == 0 ? st.st_size : 0;
}

static void the_disk_is_bounded(void **state) {
    (void)state;
    enum { DISK = 8 << 20 };
    open_with((struct facet_limits){.disk_bytes = DISK, .time_ms = 60000});
    fine("CREATE TABLE big(x)");
    int n = 0;
    while (n < 100 && holder_execute(&h, "INSERT INTO big VALUES (randomblob(300000))") && h.ok)
        n++;
    assert_in_range(n, 20, 28);
    assert_code("insert", h.json, "LIMIT_DISK");
    assert_contains("disk limit of 8388608 bytes reached");
    assert_in_range(size_of("test.db"), 1, DISK);
    query_fine("SELECT count(*) FROM big");
    /* One transaction that writes everything again and again. */
    fine("DELETE FROM big WHERE rowid < 3");
    for (int i = 0; i < 5; i++)
        fine("UPDATE big SET x = randomblob(300000); UPDATE big SET x = randomblob(299999);"
             "UPDATE big SET x = randomblob(300000)");
    assert_in_range(size_of("test.db"), 1, DISK);
    assert_in_range(size_of("test.db-wal"), 1, DISK + DISK / 64 + (2 << 20));
    refused(COUNT_TO(100) "INSERT INTO big SELECT randomblob(300000) FROM n", "LIMIT_DISK");
    fine("DELETE FROM big");
    fine("INSERT INTO big VALUES (randomblob(300000))");
    fine("INSERT INTO big VALUES (randomblob(300000))");
    fine("DELETE FROM big WHERE rowid = 1");
    /* The log is cut back. */
    assert_in_range(size_of("test.db-wal"), 0, 3 << 20);
    assert_unharmed();
}

/* --- Views and triggers that a holder leaves for others -------------------------------------- */

static void triggers_can_do_no_more_than_their_caller(void **state) {
    (void)state;
    struct holder reader;
    struct holder adder;
    assert_int_equal(client_grant(&c, "all", 0, &reader), 0);
    assert_int_equal(client_grant(&c, "add", 0, &adder), 0);
    fine("CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT load_extension('x'); END");
    assert_code("add", holder_call(&adder, "add", "[1]"), "SQLITE_AUTH");
    fine("DROP TRIGGER g");
    fine("CREATE TRIGGER g AFTER INSERT ON t BEGIN INSERT INTO t(a) VALUES (new.a); END");
    (void)holder_call(&adder, "add", "[1]"); /* whatever it gives, it ends */
    assert_true(adder.json[0] == '{');
    fine("DROP TRIGGER g; DELETE FROM t WHERE id > 2");
    /* An endless one costs its caller the time limit, not the facet. */
    holder_finish(&h);
    holder_finish(&reader);
    holder_finish(&adder);
    (void)client_stop(&c, 0);
    open_with((struct facet_limits){.time_ms = 200});
    assert_int_equal(client_grant(&c, "all", 0, &reader), 0);
    assert_int_equal(client_grant(&c, "add", 0, &adder), 0);
    fine("CREATE TRIGGER g AFTER INSERT ON t BEGIN UPDATE t SET b = (" ENDLESS "); END");
    assert_code("add", holder_call(&adder, "add", "[1]"), "LIMIT_TIME");
    fine("DROP TRIGGER g");
    assert_unharmed();
    /* A view in the place of the table: reading it only reads. */
    fine("DROP TABLE t; CREATE TABLE u(a); CREATE VIEW t AS SELECT 1 AS id, (" ENDLESS ") AS a");
    assert_code("all", holder_call(&reader, "all", "[]"), "LIMIT_TIME");
    fine("DROP VIEW t; CREATE VIEW t AS SELECT 1 AS id, load_extension('x') AS a");
    assert_code("all", holder_call(&reader, "all", "[]"), "SQLITE_ERROR");
    assert_non_null(strstr(reader.json, "unsafe use of load_extension()")); /* trusted_schema */
    fine("DROP VIEW t; CREATE VIEW t AS SELECT rowid AS id, a FROM u;"
         "CREATE TRIGGER v INSTEAD OF INSERT ON t BEGIN INSERT INTO u VALUES (new.a); END");
    assert_code("insert", holder_query(&reader, "INSERT INTO t VALUES (1)"), "NO_METHOD");
    query_refused("INSERT INTO t(a) VALUES (1)", "READ_ONLY");
    assert_true(holder_call(&adder, "add", "[5]") && adder.ok);
    assert_true(holder_call(&reader, "all", "[]") && reader.ok);
    assert_non_null(strstr(reader.json, "[[1,5]]"));
    holder_finish(&reader);
    holder_finish(&adder);
    /* And the operator's schema at the next start, which writes, does not run it unguarded. */
    fine("DELETE FROM u; DROP TRIGGER v; CREATE TRIGGER v INSTEAD OF INSERT ON t BEGIN SELECT "
         "load_extension('x'); END");
    holder_finish(&h);
    (void)client_stop(&c, 0);
    open_with((struct facet_limits){0});
    assert_non_null(strstr(c.opened.warnings, "load_extension"));
}

static void triggers_nest_to_a_depth(void **state) {
    (void)state;
    fine("CREATE TABLE a0(x)");
    for (int i = 1; i <= 20; i++) {
        char sql[200];
        (void)snprintf(sql, sizeof(sql),
                       "CREATE TABLE a%d(x); CREATE TRIGGER g%d AFTER INSERT ON a%d BEGIN INSERT "
                       "INTO a%d VALUES (1); END",
                       i, i, i - 1, i);
        fine(sql);
    }
    refused("INSERT INTO a0 VALUES (1)", "SQLITE_ERROR");
    assert_contains("too many levels of trigger recursion");
    fine("INSERT INTO a10 VALUES (1)");
}

/* --- What the settings are, where no SQL shows it -------------------------------------------- */

static void the_connection_is_hardened(void **state) {
    (void)state;
    struct err err;
    struct facet_open o = {.file = (char *)"t.db",
                           .schema = (char *)"",
                           .seed = (char *)"",
                           .seed_table = (char *)"",
                           .methods = xcalloc(1, sizeof(struct facet_method))};
    struct db db;
    struct buf warnings;
    bool fresh;
    buf_init(&warnings, 1000);
    assert_int_equal(chdir(c.folder), 0);
    assert_int_equal(db_global_init(&err), 0);
    db_init(&db, &o.limits);
    assert_int_equal(db_open(&db, &o, &fresh, &warnings, &err), 0);
    static const struct {
        int option;
        int value;
    } WANT[] = {
        {SQLITE_DBCONFIG_DEFENSIVE, 1},
        {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
        {SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0},
        {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0},
        {SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, 0},
        {SQLITE_DBCONFIG_ENABLE_FKEY, 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(WANT); i++) {
        int now = -1;
        assert_int_equal(sqlite3_db_config(db.sqlite, WANT[i].option, -1, &now), SQLITE_OK);
        assert_int_equal(now, WANT[i].value);
    }
    assert_int_equal(sqlite3_hard_heap_limit64(-1), 64 << 20);
    assert_int_equal(sqlite3_limit(db.sqlite, SQLITE_LIMIT_ATTACHED, -1), 0);
    assert_int_equal(sqlite3_limit(db.sqlite, SQLITE_LIMIT_VDBE_OP, -1), 250000);
    assert_int_equal(sqlite3_limit(db.sqlite, SQLITE_LIMIT_WORKER_THREADS, -1), 0);
    static const struct {
        const char *sql;
        const char *value;
    } PRAGMAS[] = {{"PRAGMA journal_mode", "wal"},
                   {"PRAGMA synchronous", "1"},
                   {"PRAGMA temp_store", "2"},
                   {"PRAGMA locking_mode", "exclusive"},
                   {"PRAGMA cell_size_check", "1"},
                   {"PRAGMA foreign_keys", "1"},
                   {"PRAGMA mmap_size", "0"},
                   {"PRAGMA max_page_count", "65536"},
                   {"PRAGMA wal_autocheckpoint", "256"},
                   {"PRAGMA journal_size_limit", "1048576"}};
    for (size_t i = 0; i < ARRAY_LEN(PRAGMAS); i++) {
        sqlite3_stmt *s = NULL;
        db.mode = DB_MODE_INTERNAL;
        assert_int_equal(sqlite3_prepare_v2(db.sqlite, PRAGMAS[i].sql, -1, &s, NULL), SQLITE_OK);
        assert_int_equal(sqlite3_step(s), SQLITE_ROW);
        if (strcmp((const char *)sqlite3_column_text(s, 0), PRAGMAS[i].value) != 0)
            fail_msg("%s is %s", PRAGMAS[i].sql, sqlite3_column_text(s, 0));
        sqlite3_finalize(s);
    }
    /* A transaction that is somehow left open ends with the call. */
    assert_int_equal(db_begin(&db), SQLITE_OK);
    struct db_call call = {.method = DB_METHOD_EXECUTE,
                           .args = "[\"CREATE TABLE x(a)\"]",
                           .args_len = strlen("[\"CREATE TABLE x(a)\"]")};
    db_call(&db, &call);
    assert_true(sqlite3_get_autocommit(db.sqlite));
    db_finish(&db);
    o.full = true;
    o.methods = xcalloc(1, sizeof(struct facet_method));
    db_init(&db, &o.limits);
    assert_int_equal(db_open(&db, &o, &fresh, &warnings, &err), 0);
    sqlite3_stmt *s = NULL;
    db.mode = DB_MODE_INTERNAL;
    assert_int_equal(sqlite3_prepare_v2(db.sqlite, "PRAGMA synchronous", -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int(s, 0), 2);
    sqlite3_finalize(s);
    db_finish(&db);
    buf_finish(&warnings);
    assert_int_equal(chdir("/"), 0);
}

/* test_facet_guards [PATTERN]: only the tests whose names fit. */
int main(int argc, char **argv) {
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(other_files_are_out_of_reach, setup_open, teardown),
        cmocka_unit_test_setup_teardown(pragmas_only_read, setup_open, teardown),
        cmocka_unit_test_setup_teardown(transactions_are_ours, setup_open, teardown),
        cmocka_unit_test_setup_teardown(queries_only_read, setup_open, teardown),
        cmocka_unit_test_setup_teardown(a_query_writes_only_for_a_holder_that_may, setup_open,
                                        teardown),
        cmocka_unit_test_setup_teardown(nothing_temporary_stays, setup_open, teardown),
        cmocka_unit_test_setup_teardown(the_schema_cannot_be_forged, setup_open, teardown),
        cmocka_unit_test_setup_teardown(modules_are_few, setup_open, teardown),
        cmocka_unit_test_setup_teardown(ordinary_sql_works, setup_open, teardown),
        cmocka_unit_test_setup_teardown(endless_queries_are_stopped, setup, teardown),
        cmocka_unit_test_setup_teardown(functions_cannot_be_bombs, setup, teardown),
        cmocka_unit_test_setup_teardown(a_call_that_cannot_be_stopped_ends_the_process, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(memory_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(results_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(statements_are_bounded, setup_open, teardown),
        cmocka_unit_test_setup_teardown(the_disk_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(triggers_can_do_no_more_than_their_caller, setup_open,
                                        teardown),
        cmocka_unit_test_setup_teardown(triggers_nest_to_a_depth, setup_open, teardown),
        cmocka_unit_test_setup_teardown(the_connection_is_hardened, setup, teardown),
    };
    return cmocka_run_group_tests_name("facet guards", tests, NULL, NULL);
}
