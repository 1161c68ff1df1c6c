#include "base/cleanup.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/cli/cli.h"
#include "front/cli/client.h"
#include "front/cli/options.h"
#include "front/cli/terminal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* `cay db`: the databases of a running server. SQL is not looked at here, but for where a statement
 * of the shell ends. */

static const char usage[] =
    "usage: cay db ls                          list your databases\n"
    "       cay db show NAME                   its tables, rows, limits and migrations\n"
    "       cay db create NAME [LIMITS]        create it, if it is not there\n"
    "       cay db query NAME SQL [PARAM...]   run a statement and print its rows\n"
    "       cay db shell NAME                  type statements, or pipe them in\n"
    "       cay db export NAME [FILE]          save it as a SQLite file (default NAME.db)\n"
    "       cay db import NAME FILE            put a SQLite file in its place\n"
    "       cay db copy NAME TO                copy it under another name\n"
    "       cay db rm NAME...                  remove it, with all it holds\n"
    "       cay db limits NAME [LIMITS]        show its limits, or set them\n"
    "       cay db migrate NAME PATH...        apply NUMBER_NAME.sql files, or folders of them\n\n"
    "A PARAM is a number, null, true or false, or else a text. SQL and FILE may be \"-\".\n\n"
    "  --readonly          query, shell: nothing can be written\n"
    "  --csv               query: rows as CSV\n"
    "  -y, --yes           do not ask; needed to remove or replace without a terminal\n"
    "  --rows N            LIMITS: rows of one result\n"
    "  --result SIZE       bytes of one result\n"
    "  --time TIME         time of one call\n"
    "  --disk SIZE         size of the database\n"
    "  --memory SIZE       memory of its process\n"
    "  --calls N           calls a second of each holder\n"
    "  --reset             no limits but the server's\n"
    "  -n, --limit N       ls: at most so many\n"
    "  --json              answers as JSON\n"
    "  --url URL           the server (default: CAY_URL, else http://127.0.0.1:8787)\n\n"
    "`cay db limits` sets the limits that are named; the others become the server's again.\n";

enum { SQL_BYTES = 4 << 20, MIGRATIONS = 1000, COLUMN_MAX = 60, PAGE = 100 };

struct db_args {
    const char *url;
    int64_t rows, result_bytes, time_ms, disk_bytes, memory_bytes, calls_per_s;
    int64_t limit;
    bool reset;
    bool readonly;
    bool csv;
    bool yes;
    bool json;
    char **rest;
    int nrest;
};

struct db_cli {
    struct client client;
    struct db_args args;
};

/* "/v1/facets/NAME" + rest; the caller frees. */
static char *cli_db_path(const char *name, const char *rest) {
    struct buf b;
    buf_init(&b, 4096);
    (void)buf_add_str(&b, "/v1/facets/");
    client_encode_name(&b, name);
    (void)buf_add_str(&b, rest);
    return buf_steal(&b, NULL);
}

static int cli_db_call(struct db_cli *c, const char *method, const char *name, const char *rest,
                       const json_t *body, json_t **ret_json, struct err *err) {
    _cleanup_(free) char *path = cli_db_path(name, rest);
    return client_call(&c->client,
                       &(struct client_call){.method = method, .path = path, .json = body},
                       ret_json, err);
}

static int64_t cli_db_number(const json_t *j, const char *key) {
    return json_integer_value(json_object_get(j, key));
}

/* True: go on. A script says --yes. */
static int cli_db_confirm(const struct db_cli *c, const char *question, const char *name,
                          struct err *err) {
    char answer[16] = "";
    if (c->args.yes)
        return 0;
    if (!isatty(STDIN_FILENO))
        return err_set(err, ERR_BAD_REQUEST, "%s \"%s\"? Say --yes if so", question, name);
    (void)fprintf(stderr, "%s \"%s\"? [y/N] ", question, name);
    if (!fgets(answer, sizeof(answer), stdin) || (answer[0] != 'y' && answer[0] != 'Y'))
        return err_set(err, ERR_CANCELLED, "nothing was changed");
    return 0;
}

/* --- ls, show --- */

static int cli_db_ls(struct db_cli *c, struct err *err) {
    _cleanup_(json) json_t *all = json_array();
    _cleanup_(free) char *cursor = NULL;
    size_t limit = c->args.limit > 0 ? (size_t)c->args.limit : SIZE_MAX;
    do {
        _cleanup_(json) json_t *page = NULL;
        _cleanup_(free) char *path =
            xasprintf("/v1/facets?limit=%zu%s%s", MIN(limit - json_array_size(all), (size_t)PAGE),
                      cursor ? "&cursor=" : "", cursor ? cursor : "");
        int rc = client_call(&c->client, &(struct client_call){.path = path}, &page, err);
        if (rc < 0)
            return rc;
        (void)json_array_extend(all, json_object_get(page, "facets"));
        free(cursor);
        cursor =
            *client_text(page, "next_cursor") ? xstrdup(client_text(page, "next_cursor")) : NULL;
    } while (cursor && json_array_size(all) < limit);
    size_t i;
    const json_t *e;
    if (c->args.json) {
        terminal_json(all);
        return 0;
    }
    (void)printf("%-24s  %12s  %-19s  %-19s  %s\n", "NAME", "BYTES", "CREATED", "MODIFIED", "OPEN");
    json_array_foreach(all, i, e) {
        (void)printf("%-24s  %12lld  %-19.19s  %-19.19s  %s\n", client_text(e, "name"),
                     (long long)cli_db_number(e, "bytes"), client_text(e, "created_at"),
                     client_text(e, "modified_at"),
                     json_is_true(json_object_get(e, "open")) ? "yes" : "no");
    }
    return 0;
}

static void cli_db_print_limits(const json_t *limits) {
    const char *key;
    const json_t *v;
    (void)printf("%-14s  %s\n", "LIMIT", "VALUE");
    json_object_foreach((json_t *)(uintptr_t)limits, key, v) {
        (void)printf("%-14s  %lld\n", key, (long long)json_integer_value(v));
    }
}

static void cli_db_print(const json_t *d) {
    size_t i;
    const json_t *v;
    (void)printf("name          %s\nbytes         %lld\nuser_version  %lld\n\n",
                 client_text(d, "name"), (long long)cli_db_number(d, "bytes"),
                 (long long)cli_db_number(d, "user_version"));
    cli_db_print_limits(json_object_get(d, "limits"));
    if (json_array_size(json_object_get(d, "migrations")) > 0)
        (void)printf("\n%-9s  %-20s  %s\n", "MIGRATION", "APPLIED", "NAME");
    json_array_foreach(json_object_get(d, "migrations"), i, v) {
        (void)printf("%-9lld  %-20s  ", (long long)cli_db_number(v, "number"),
                     client_text(v, "applied_at"));
        terminal_line(stdout, client_text(v, "name"));
    }
    (void)printf("\n%-5s  %12s  %s\n", "TYPE", "ROWS", "SQL");
    json_array_foreach(json_object_get(d, "tables"), i, v) {
        const json_t *rows = json_object_get(v, "rows");
        char text[24] = "-";
        if (json_is_integer(rows))
            (void)snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(rows));
        (void)printf("%-5s  %12s  ", client_text(v, "type"), text);
        terminal_line(stdout, client_text(v, "sql"));
    }
}

static int cli_db_show(struct db_cli *c, struct err *err) {
    _cleanup_(json) json_t *d = NULL;
    int rc = cli_db_call(c, NULL, c->args.rest[0], "", NULL, &d, err);
    if (rc == 0 && c->args.json)
        terminal_json(d);
    else if (rc == 0)
        cli_db_print(d);
    return rc;
}

/* --- create, limits --- */

static json_t *cli_db_limits_of(const struct db_args *a) {
    const struct {
        const char *key;
        int64_t value;
    } list[] = {{"rows", a->rows},
                {"result_bytes", a->result_bytes},
                {"time_ms", a->time_ms},
                {"disk_bytes", a->disk_bytes},
                {"memory_bytes", a->memory_bytes},
                {"calls_per_s", a->calls_per_s}};
    json_t *limits = json_object();
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        if (list[i].value > 0)
            (void)json_object_set_new(limits, list[i].key, json_integer(list[i].value));
    return limits;
}

static int cli_db_put(struct db_cli *c, const json_t *body, json_t **ret, struct err *err) {
    return cli_db_call(c, "PUT", c->args.rest[0], "", body, ret, err);
}

static int cli_db_create(struct db_cli *c, struct err *err) {
    _cleanup_(json) json_t *limits = cli_db_limits_of(&c->args);
    _cleanup_(json) json_t *body = json_object();
    _cleanup_(json) json_t *d = NULL;
    if (json_object_size(limits) > 0 || c->args.reset)
        (void)json_object_set(body, "limits", limits);
    int rc = cli_db_put(c, body, &d, err);
    if (rc == 0 && c->args.json)
        terminal_json(d);
    else if (rc == 0)
        (void)printf("%s\n", client_text(d, "name"));
    return rc;
}

static int cli_db_limits(struct db_cli *c, struct err *err) {
    _cleanup_(json) json_t *limits = cli_db_limits_of(&c->args);
    _cleanup_(json) json_t *d = NULL;
    bool sets = json_object_size(limits) > 0 || c->args.reset;
    /* It must be there: setting limits of a name with a typing error would make a database. */
    int rc = cli_db_call(c, NULL, c->args.rest[0], "", NULL, &d, err);
    if (rc == 0 && sets) {
        _cleanup_(json) json_t *body = json_pack("{s:O}", "limits", limits);
        json_decref(d);
        d = NULL;
        rc = cli_db_put(c, body, &d, err);
    }
    if (rc < 0)
        return rc;
    if (c->args.json)
        terminal_json(json_object_get(d, "limits"));
    else
        cli_db_print_limits(json_object_get(d, "limits"));
    if (json_is_true(json_object_get(d, "limits_pending")))
        (void)fputs("The database is in use: the new limits hold when it is opened again.\n",
                    stderr);
    return 0;
}

/* --- rows --- */

/* A value as text. The caller frees. */
static char *cli_db_value(const json_t *v, bool csv) {
    const char *tag = json_string_value(json_array_get(v, 0));
    const char *text = json_string_value(json_array_get(v, 1));
    if (tag && text && *tag == 'b' && !csv)
        return xasprintf("blob of %zu bytes",
                         strlen(text) / 4 * 3 -
                             (strchr(text, '=') ? strlen(strchr(text, '=')) : 0));
    if (tag && text)
        return xstrdup(text);
    if (json_is_string(v))
        return xstrdup(json_string_value(v));
    if (json_is_null(v) || !v)
        return xstrdup(csv ? "" : "NULL");
    return json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
}

static void cli_db_csv_field(const char *text, bool first) {
    if (!first)
        (void)fputc(',', stdout);
    if (!text[strcspn(text, ",\"\r\n")] && *text) {
        (void)fputs(text, stdout);
        return;
    }
    (void)fputc('"', stdout);
    for (const char *p = text; *p; p++) {
        if (*p == '"')
            (void)fputc('"', stdout);
        (void)fputc(*p, stdout);
    }
    (void)fputc('"', stdout);
}

/* An empty field is NULL, "" is an empty text. */
static void cli_db_print_csv(const json_t *columns, const json_t *rows) {
    size_t i;
    size_t k;
    const json_t *row;
    const json_t *v;
    json_array_foreach(columns, k, v) {
        cli_db_csv_field(json_string_value(v), k == 0);
    }
    (void)fputs("\r\n", stdout);
    json_array_foreach(rows, i, row) {
        json_array_foreach(row, k, v) {
            _cleanup_(free) char *text = cli_db_value(v, true);
            if (json_is_null(v))
                (void)fputs(k == 0 ? "" : ",", stdout);
            else
                cli_db_csv_field(text, k == 0);
        }
        (void)fputs("\r\n", stdout);
    }
}

static size_t cli_db_width(const char *text) {
    size_t n = 0;
    for (const char *p = text; *p; p++)
        n += ((unsigned char)*p & 0xC0) != 0x80;
    return n;
}

static void cli_db_cell(const char *text, size_t width, bool last) {
    size_t n = cli_db_width(text);
    _cleanup_(free) char *line = xstrdup(text);
    for (char *p = line; *p; p++)
        if (*p == '\n' || *p == '\r' || *p == '\t')
            *p = ' ';
    terminal_print(stdout, line, strlen(line));
    if (last)
        (void)fputc('\n', stdout);
    else
        (void)printf("%*s", (int)(n < width ? width - n + 2 : 2), "");
}

static void cli_db_print_table(const json_t *columns, const json_t *rows) {
    size_t n = json_array_size(columns);
    size_t i;
    size_t k;
    const json_t *row;
    const json_t *v;
    _cleanup_(free) size_t *widths = xcalloc(n + 1, sizeof(*widths));
    json_array_foreach(columns, k, v) {
        widths[k] = MIN(cli_db_width(json_string_value(v)), (size_t)COLUMN_MAX);
    }
    json_array_foreach(rows, i, row) {
        json_array_foreach(row, k, v) {
            _cleanup_(free) char *text = cli_db_value(v, false);
            if (k < n)
                widths[k] = MAX(widths[k], MIN(cli_db_width(text), (size_t)COLUMN_MAX));
        }
    }
    json_array_foreach(columns, k, v) {
        cli_db_cell(json_string_value(v), widths[k], k + 1 == n);
    }
    json_array_foreach(rows, i, row) {
        json_array_foreach(row, k, v) {
            _cleanup_(free) char *text = cli_db_value(v, false);
            cli_db_cell(text, widths[k], k + 1 == n);
        }
    }
}

static void cli_db_print_result(const struct db_cli *c, const json_t *result) {
    const json_t *columns = json_object_get(result, "columns");
    const json_t *rows = json_object_get(result, "rows");
    if (c->args.json)
        terminal_json(result);
    else if (columns && c->args.csv)
        cli_db_print_csv(columns, rows);
    else if (columns)
        cli_db_print_table(columns, rows);
    else
        (void)fprintf(stderr, "%lld changed\n", (long long)cli_db_number(result, "changes"));
}

static int cli_db_run(struct db_cli *c, const char *sql, const json_t *params, struct err *err) {
    _cleanup_(json) json_t *result = NULL;
    _cleanup_(json) json_t *body = json_pack("{s:o,s:O,s:b}", "sql", json_text(sql), "params",
                                             params, "readonly", c->args.readonly);
    int rc = cli_db_call(c, "POST", c->args.rest[0], "/query", body, &result, err);
    if (rc == 0)
        cli_db_print_result(c, result);
    return rc;
}

static json_t *cli_db_param(const char *text) {
    json_t *v = json_read_str(text);
    if (json_is_number(v) || json_is_boolean(v) || (json_is_null(v) && strcmp(text, "null") == 0))
        return v;
    json_decref(v);
    return strcmp(text, "null") == 0 ? json_null() : json_text(text);
}

static int cli_db_query(struct db_cli *c, struct err *err) {
    _cleanup_(json) json_t *params = json_array();
    _cleanup_(buf) struct buf sql;
    buf_init(&sql, SQL_BYTES);
    int rc = cli_read_text(c->args.rest[1], &sql, "SQL", err);
    if (rc < 0)
        return rc;
    for (int i = 2; i < c->args.nrest; i++)
        (void)json_array_append_new(params, cli_db_param(c->args.rest[i]));
    return cli_db_run(c, sql.data ? sql.data : "", params, err);
}

/* --- the shell --- */

static int cli_db_dot(struct db_cli *c, const char *line, bool *ret_over) {
    struct err err;
    _cleanup_(json) json_t *none = json_array();
    size_t n = strcspn(line, "\r\n ");
    int rc = 0;
    if (strncmp(line, ".quit", n) == 0 || strncmp(line, ".exit", n) == 0)
        *ret_over = true;
    else if (strncmp(line, ".tables", n) == 0)
        rc = cli_db_run(c,
                        "SELECT type, name FROM sqlite_schema WHERE type IN ('table', 'view') "
                        "ORDER BY name",
                        none, &err);
    else if (strncmp(line, ".schema", n) == 0)
        rc = cli_db_run(c, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name",
                        none, &err);
    else
        (void)fputs(".tables, .schema and .quit are there; a statement ends with a semicolon\n",
                    stderr);
    return rc < 0 ? cli_fail(&err) : 0;
}

/* A statement that fails does not end it; the exit status tells of the last one that did. */
static int cli_db_shell(struct db_cli *c, struct err *err) {
    _cleanup_(buf) struct buf sql;
    buf_init(&sql, SQL_BYTES);
    _cleanup_(json) json_t *none = json_array();
    _cleanup_(free) char *line = NULL;
    size_t size = 0;
    bool talks = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    bool over = false;
    int status = 0;
    _cleanup_(json) json_t *there = NULL;
    int rc = cli_db_call(c, NULL, c->args.rest[0], "", NULL, &there, err);
    if (rc < 0)
        return rc;
    while (!over) {
        if (talks)
            (void)fprintf(stderr, "%s%s ", sql.len ? "  ..." : c->args.rest[0], sql.len ? "" : ">");
        ssize_t n = getline(&line, &size, stdin);
        over = n < 0;
        if (n > 0 && sql.len == 0 && line[0] == '.') {
            int failed = cli_db_dot(c, line, &over);
            status = failed ? failed : status;
            continue;
        }
        if (n > 0 && !buf_add(&sql, line, (size_t)n))
            return err_set(err, ERR_TOO_LARGE, "a statement has more than %d bytes", SQL_BYTES);
        bool blank = !sql.data || sql.data[strspn(sql.data, " \t\r\n;")] == 0;
        if (!blank && (over || sqlite3_complete(sql.data))) {
            if (cli_db_run(c, sql.data, none, err) < 0)
                status = cli_fail(err);
            (void)fflush(stdout);
        }
        if (blank || sqlite3_complete(sql.data))
            buf_clear(&sql);
    }
    return status;
}

/* --- files --- */

static int cli_db_on_export(void *ctx, const char *data, size_t len, struct err *err) {
    const int *fd = ctx;
    return fd_write_all(*fd, data, len) < 0 ? err_sys(err, "write the file") : 0;
}

static int cli_db_download(struct db_cli *c, int fd, struct err *err) {
    _cleanup_(free) char *path = cli_db_path(c->args.rest[0], "/export");
    return client_call(&c->client,
                       &(struct client_call){.path = path,
                                             .accept = "application/vnd.sqlite3",
                                             .on_data = cli_db_on_export,
                                             .ctx = &fd},
                       NULL, err);
}

/* All of it, or nothing: a file of that name is there when it is whole. */
static int cli_db_export(struct db_cli *c, struct err *err) {
    _cleanup_(free) char *usual = xasprintf("%s.db", c->args.rest[0]);
    const char *file = c->args.nrest > 1 ? c->args.rest[1] : usual;
    struct stat st;
    if (strcmp(file, "-") == 0)
        return cli_db_download(c, STDOUT_FILENO, err);
    if (stat(file, &st) == 0 && !c->args.yes)
        return err_set(err, ERR_CONFLICT, "%s is there already: --yes replaces it", file);
    _cleanup_(free) char *part = xasprintf("%s.XXXXXX", file); /* two at once do not meet */
    _cleanup_(close) int fd = mkostemp(part, O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "%s", file);
    int rc = cli_db_download(c, fd, err);
    if (rc == 0 && (fsync(fd) < 0 || fstat(fd, &st) < 0 || rename(part, file) < 0))
        rc = err_sys(err, "%s", file);
    if (rc < 0) {
        (void)unlink(part);
        return rc;
    }
    _cleanup_(json) json_t *shown =
        json_pack("{s:o,s:I}", "file", json_text(file), "bytes", (json_int_t)st.st_size);
    if (c->args.json)
        terminal_json(shown);
    else
        (void)printf("%s: %lld bytes\n", file, (long long)st.st_size);
    return 0;
}

static ssize_t cli_db_on_import(void *ctx, char *out, size_t size) {
    const int *fd = ctx;
    return read(*fd, out, size);
}

static bool cli_db_exists(struct db_cli *c) {
    struct err ignored;
    _cleanup_(json) json_t *d = NULL;
    return cli_db_call(c, NULL, c->args.rest[0], "", NULL, &d, &ignored) == 0;
}

static int cli_db_import(struct db_cli *c, struct err *err) {
    const char *file = c->args.rest[1];
    bool piped = strcmp(file, "-") == 0;
    _cleanup_(close) int fd =
        piped ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(file, O_RDONLY | O_CLOEXEC);
    struct stat st = {0};
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "%s", file);
    if (cli_db_exists(c)) {
        int rc = cli_db_confirm(c, "Replace all that is in the database", c->args.rest[0], err);
        if (rc < 0)
            return rc;
    }
    _cleanup_(free) char *path = cli_db_path(c->args.rest[0], "/import");
    _cleanup_(json) json_t *d = NULL;
    struct client_call call = {
        .method = "PUT", .path = path, .on_body = cli_db_on_import, .ctx = &fd};
    if (S_ISREG(st.st_mode))
        call.body_len = (size_t)st.st_size;
    int rc = client_call(&c->client, &call, &d, err);
    if (rc == 0 && c->args.json)
        terminal_json(d);
    else if (rc == 0)
        cli_db_print(d);
    return rc;
}

/* --- copy, rm --- */

static int cli_db_copy(struct db_cli *c, struct err *err) {
    _cleanup_(json) json_t *body = json_pack("{s:o}", "to", json_text(c->args.rest[1]));
    _cleanup_(json) json_t *d = NULL;
    int rc = cli_db_call(c, "POST", c->args.rest[0], "/copy", body, &d, err);
    if (rc == 0 && c->args.json)
        terminal_json(d);
    else if (rc == 0)
        (void)printf("%s: %lld bytes\n", client_text(d, "name"),
                     (long long)cli_db_number(d, "bytes"));
    return rc;
}

static int cli_db_rm(struct db_cli *c, struct err *err) {
    _cleanup_(json) json_t *all = json_array();
    for (int i = 0; i < c->args.nrest; i++) {
        json_t *d = NULL;
        int rc = cli_db_confirm(c, "Remove the database", c->args.rest[i], err);
        if (rc == 0)
            rc = cli_db_call(c, "DELETE", c->args.rest[i], "", NULL, &d, err);
        if (rc < 0)
            return rc;
        (void)json_array_append_new(all, d);
        const json_t *removed = json_object_get(d, "removed");
        if (!c->args.json)
            (void)printf("%s: removed %lld bytes in %lld files\n", client_text(d, "name"),
                         (long long)cli_db_number(removed, "bytes"),
                         (long long)cli_db_number(removed, "files"));
    }
    if (c->args.json)
        terminal_json(all);
    return 0;
}

/* --- migrate --- */

struct db_migration {
    uint64_t number;
    char *path;
    char name[201];
};

struct db_migrations {
    struct db_migration list[MIGRATIONS];
    size_t n;
};

/* "007_add_users.sql" is number 7, "add_users". */
static int cli_db_add_migration(struct db_migrations *all, const char *path, struct err *err) {
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    size_t digits = strspn(base, "0123456789");
    size_t len = strlen(base);
    if (digits == 0 || digits > 18 || len < 5 || strcmp(base + len - 4, ".sql") != 0)
        return err_set(err, ERR_BAD_REQUEST,
                       "%s: a migration is a file NUMBER_NAME.sql, such as 001_users.sql", path);
    if (all->n == MIGRATIONS)
        return err_set(err, ERR_TOO_LARGE, "there are more than %d migrations", MIGRATIONS);
    struct db_migration *m = &all->list[all->n++];
    const char *name = base + digits;
    name += *name == '_' || *name == '-';
    m->number = strtoull(base, NULL, 10);
    m->path = xstrdup(path);
    (void)snprintf(m->name, sizeof(m->name), "%.*s", (int)MAX((ptrdiff_t)0, base + len - 4 - name),
                   name);
    return 0;
}

static int cli_db_add_path(struct db_migrations *all, const char *path, struct err *err) {
    struct stat st;
    if (stat(path, &st) < 0)
        return err_sys(err, "%s", path);
    if (!S_ISDIR(st.st_mode))
        return cli_db_add_migration(all, path, err);
    DIR *d = opendir(path);
    int rc = d ? 0 : err_sys(err, "%s", path);
    for (const struct dirent *e = d ? readdir(d) : NULL; e && rc == 0; e = readdir(d)) {
        size_t len = strlen(e->d_name);
        _cleanup_(free) char *file = path_join(path, e->d_name);
        if (e->d_name[0] != '.' && len > 4 && strcmp(e->d_name + len - 4, ".sql") == 0)
            rc = cli_db_add_migration(all, file, err);
    }
    if (d)
        (void)closedir(d);
    return rc;
}

static int cli_db_by_number(const void *a, const void *b) {
    const struct db_migration *x = a;
    const struct db_migration *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int cli_db_read_migrations(struct db_migrations *all, json_t *out, struct err *err) {
    qsort(all->list, all->n, sizeof(all->list[0]), cli_db_by_number);
    for (size_t i = 0; i < all->n; i++) {
        const struct db_migration *m = &all->list[i];
        _cleanup_(buf) struct buf sql;
        buf_init(&sql, SQL_BYTES);
        int rc = fd_read_file(AT_FDCWD, m->path, &sql, err);
        if (rc < 0)
            return rc;
        if (i > 0 && m->number == all->list[i - 1].number)
            return err_set(err, ERR_BAD_REQUEST, "%s and %s have the same number",
                           all->list[i - 1].path, m->path);
        (void)json_array_append_new(out, json_pack("{s:I,s:o,s:o}", "number", (json_int_t)m->number,
                                                   "name", json_text(m->name), "sql",
                                                   json_text(sql.data ? sql.data : "")));
    }
    return all->n > 0 ? 0 : err_set(err, ERR_BAD_REQUEST, "there is no NUMBER_NAME.sql file there");
}

static int cli_db_migrate(struct db_cli *c, struct err *err) {
    struct db_migrations *all = xcalloc(1, sizeof(*all));
    _cleanup_(json) json_t *list = json_array();
    _cleanup_(json) json_t *d = NULL;
    int rc = 0;
    for (int i = 1; rc == 0 && i < c->args.nrest; i++)
        rc = cli_db_add_path(all, c->args.rest[i], err);
    if (rc == 0)
        rc = cli_db_read_migrations(all, list, err);
    for (size_t i = 0; i < all->n; i++)
        free(all->list[i].path);
    free(all);
    if (rc < 0)
        return rc;
    _cleanup_(json) json_t *body = json_pack("{s:O}", "migrations", list);
    rc = cli_db_put(c, body, &d, err);
    if (rc == 0 && c->args.json)
        terminal_json(d);
    else if (rc == 0)
        (void)printf("%s: %lld applied, %zu in all\n", client_text(d, "name"),
                     (long long)cli_db_number(d, "applied"),
                     json_array_size(json_object_get(d, "migrations")));
    return rc;
}

static const struct {
    const char *name;
    int (*run)(struct db_cli *c, struct err *err);
    int min;
    int max; /* words */
} verbs[] = {{"ls", cli_db_ls, 0, 0},
             {"show", cli_db_show, 1, 1},
             {"create", cli_db_create, 1, 1},
             {"query", cli_db_query, 2, 1000},
             {"shell", cli_db_shell, 1, 1},
             {"export", cli_db_export, 1, 2},
             {"import", cli_db_import, 2, 2},
             {"copy", cli_db_copy, 2, 2},
             {"rm", cli_db_rm, 1, 1000},
             {"limits", cli_db_limits, 1, 1},
             {"migrate", cli_db_migrate, 2, 1000}};

static const struct cli_option options[] = {
    OPTION(struct db_args, "readonly", 0, FLAG, readonly),
    OPTION(struct db_args, "csv", 0, FLAG, csv),
    OPTION(struct db_args, "yes", 'y', FLAG, yes),
    OPTION(struct db_args, "rows", 0, COUNT, rows, .min = 1),
    OPTION(struct db_args, "result", 0, SIZE, result_bytes, .min = 1),
    OPTION(struct db_args, "time", 0, TIME, time_ms, .min = 1),
    OPTION(struct db_args, "disk", 0, SIZE, disk_bytes, .min = 1),
    OPTION(struct db_args, "memory", 0, SIZE, memory_bytes, .min = 1),
    OPTION(struct db_args, "calls", 0, COUNT, calls_per_s, .min = 1),
    OPTION(struct db_args, "reset", 0, FLAG, reset),
    OPTION(struct db_args, "limit", 'n', COUNT, limit, .min = 1),
    OPTION(struct db_args, "url", 0, TEXT, url),
    OPTIONS_JSON(struct db_args, json)};

static const struct cli_command command = {.name = "db",
                                           .usage = usage,
                                           .options = options,
                                           .noptions = ARRAY_LEN(options),
                                           .max_words = -1};

int cli_db(int argc, char **argv) {
    struct db_cli c = {0};
    struct err err;
    const char *names[ARRAY_LEN(verbs) + 1] = {NULL};
    int done = cli_options(&command, &argc, argv, &c.args);
    if (done >= 0)
        return done;
    for (size_t k = 0; k < ARRAY_LEN(verbs); k++)
        names[k] = verbs[k].name;
    int i = cli_choose("db", argc > 1 ? argv[1] : "", names);
    if (i < 0)
        return 2;
    c.args.rest = argv + 2;
    c.args.nrest = argc - 2;
    if (c.args.nrest > verbs[i].max)
        return cli_usage("db", "unexpected argument \"%s\"", c.args.rest[verbs[i].max]);
    if (c.args.nrest < verbs[i].min)
        return cli_usage("db",
                         c.args.nrest == 0 ? "say which database" : "one more word is needed");
    int rc = client_init(&c.client, c.args.url, &err);
    if (rc < 0)
        return cli_fail(&err);
    rc = verbs[i].run(&c, &err);
    client_finish(&c.client);
    return rc < 0 ? cli_fail(&err) : rc;
}
