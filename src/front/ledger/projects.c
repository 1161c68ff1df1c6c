#include "front/ledger/internal.h"

#include "base/mem.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Projects: whose the data is. Each key belongs to one. The default project has the id "" and is
 * always there; its row holds the limits over the keys that were made without naming a project. */

enum {
    PROJECT_ADD,
    PROJECT_EDIT,
    PROJECT_GET,
    PROJECT_BY_NAME,
    PROJECT_PAGE,
    PROJECT_COUNT,
    PROJECT_NAMED
};

#define PROJECT_SELECT                                                                             \
    "SELECT p.id, p.name, p.created_ms, p.rate_per_minute, p.max_jobs, p.tokens_per_day,"          \
    " p.nusd_per_day, (SELECT count(*) FROM keys WHERE project = p.id AND revoked_ms = 0)"         \
    " FROM projects p"

static const char *const sql[] = {
    [PROJECT_ADD] = "INSERT INTO projects (id, name, created_ms, rate_per_minute, max_jobs,"
                    " tokens_per_day, nusd_per_day) VALUES (?1,?2,?3,?4,?5,?6,?7)",
    [PROJECT_EDIT] = "UPDATE projects SET name = coalesce(?2, name),"
                     " rate_per_minute = iif(?7 & 16, ?3, rate_per_minute),"
                     " max_jobs = iif(?7 & 32, ?4, max_jobs),"
                     " tokens_per_day = iif(?7 & 64, ?5, tokens_per_day),"
                     " nusd_per_day = iif(?7 & 128, ?6, nusd_per_day) WHERE id = ?1",
    [PROJECT_GET] = PROJECT_SELECT " WHERE p.id = ?1",
    [PROJECT_BY_NAME] = PROJECT_SELECT " WHERE p.name = ?1",
    [PROJECT_PAGE] = PROJECT_SELECT " WHERE ?1 IS NULL OR p.id > ?1 ORDER BY p.id LIMIT ?2",
    [PROJECT_COUNT] = "SELECT count(*) FROM projects",
    [PROJECT_NAMED] = "SELECT 1 FROM projects WHERE name = ?2 AND id <> ?1",
};

const struct ledger_statements ledger_project_statements = {sql, ARRAY_LEN(sql)};

void ledger_project_finish(struct ledger_project *p) {
    if (!p)
        return;
    free(p->name);
    *p = (struct ledger_project){0};
}

void ledger_projects_free(struct ledger_project *projects, size_t n) {
    for (size_t i = 0; i < n; i++)
        ledger_project_finish(&projects[i]);
    free(projects);
}

void ledger_limits_bind(sqlite3_stmt *st, int first, const struct ledger_limits *limits) {
    store_bind_int(st, first, limits->rate_per_minute);
    store_bind_int(st, first + 1, limits->max_jobs);
    store_bind_int(st, first + 2, limits->tokens_per_day);
    store_bind_int(st, first + 3, limits->nusd_per_day);
}

struct ledger_limits ledger_limits_column(sqlite3_stmt *st, int first) {
    return (struct ledger_limits){.rate_per_minute = sqlite3_column_int64(st, first),
                                  .max_jobs = sqlite3_column_int64(st, first + 1),
                                  .tokens_per_day = sqlite3_column_int64(st, first + 2),
                                  .nusd_per_day = sqlite3_column_int64(st, first + 3)};
}

static void ledger_projects_read(sqlite3_stmt *st, struct ledger_project *p) {
    *p = (struct ledger_project){.name = store_column_dup(st, 1),
                                 .created_ms = sqlite3_column_int64(st, 2),
                                 .limits = ledger_limits_column(st, 3),
                                 .keys = sqlite3_column_int64(st, 7)};
    store_column_id(st, 0, p->id);
}

/* 1: there is one. */
static int ledger_projects_find(struct ledger_db *db, int which, const char *id,
                                struct ledger_project *ret, struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_PROJECTS, which);
    store_bind_str(st, 1, id);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        ledger_projects_read(st, ret);
    int found = rc == SQLITE_ROW    ? 1
                : rc == SQLITE_DONE ? 0
                                    : store_error(db->db, err, "read a project");
    (void)sqlite3_reset(st);
    return found;
}

static int ledger_projects_missing(const char *id, struct err *err) {
    return err_set(err, ERR_NOT_FOUND,
                   "there is no project \"%.60s\"; `cay project list` shows them", id);
}

/* By id; else by name. */
static int ledger_projects_look_up(struct ledger_db *db, const char *id, struct ledger_project *ret,
                                   struct err *err) {
    int found = ledger_projects_find(db, PROJECT_GET, id, ret, err);
    if (found == 0)
        found = ledger_projects_find(db, PROJECT_BY_NAME, id, ret, err);
    return found > 0 ? 0 : found < 0 ? found : ledger_projects_missing(id, err);
}

int ledger_project_find(struct ledger_db *db, const char *id, char ret_id[ID_SIZE],
                        struct err *err) {
    struct ledger_project p = {0};
    int rc = ledger_projects_look_up(db, id, &p, err);
    if (rc < 0)
        return rc;
    memcpy(ret_id, p.id, ID_SIZE);
    ledger_project_finish(&p);
    return 0;
}

static bool ledger_projects_is_taken(struct ledger_db *db, const struct ledger_project *p) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_PROJECTS, PROJECT_NAMED);
    store_bind_str(st, 1, p->id);
    store_bind_str(st, 2, p->name);
    bool taken = sqlite3_step(st) == SQLITE_ROW;
    (void)sqlite3_reset(st);
    return taken;
}

static int ledger_projects_check_name(struct ledger_db *db, const struct ledger_project *p,
                                      struct err *err) {
    if (!p->name || !ledger_projects_is_taken(db, p))
        return 0;
    return err_set(err, ERR_CONFLICT, "another project has the name \"%.60s\"", p->name);
}

static int ledger_projects_check_room(struct ledger_db *db, size_t limit, struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_PROJECTS, PROJECT_COUNT);
    int64_t n = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : INT64_MAX;
    (void)sqlite3_reset(st);
    if (n < (int64_t)limit)
        return 0;
    return err_set(err, ERR_CONFLICT, "there are %zu projects already (\"projects\")", limit);
}

static int ledger_projects_insert(struct ledger_db *db, const struct ledger_project *p,
                                  struct err *err) {
    sqlite3_stmt *st = ledger_ready(db, LEDGER_PROJECTS, PROJECT_ADD);
    store_bind_str(st, 1, p->id);
    store_bind_str(st, 2, p->name);
    store_bind_int(st, 3, p->created_ms);
    ledger_limits_bind(st, 4, &p->limits);
    return store_step(st, "add a project", NULL, err);
}

int ledger_do_project_add(struct ledger_db *db, const struct ledger_project_add *ask,
                          struct ledger_project_got *ret, struct err *err) {
    struct ledger_project stored = {0};
    int there = ledger_projects_find(db, PROJECT_GET, ask->project->id, &stored, err);
    int rc = there;
    if (rc == 0)
        rc = ledger_projects_check_name(db, ask->project, err);
    if (rc == 0)
        rc = ledger_projects_check_room(db, ask->projects_max, err);
    if (rc == 0)
        rc = ledger_projects_insert(db, ask->project, err);
    if (rc == 0)
        rc = ledger_projects_find(db, PROJECT_GET, ask->project->id, &stored, err);
    if (rc < 0)
        return rc;
    *ret = (struct ledger_project_got){.project = stored, .repeated = there > 0};
    return 0;
}

int ledger_do_project_edit(struct ledger_db *db, const struct ledger_project_edit *ask,
                           struct ledger_project_got *ret, struct err *err) {
    struct ledger_project p = *ask->project;
    struct ledger_project stored = {0};
    int rc = ledger_project_find(db, ask->id, p.id, err);
    if (rc == 0)
        rc = ledger_projects_check_name(db, &p, err);
    if (rc < 0)
        return rc;
    sqlite3_stmt *st = ledger_ready(db, LEDGER_PROJECTS, PROJECT_EDIT);
    store_bind_str(st, 1, p.id);
    store_bind_str(st, 2, p.name);
    ledger_limits_bind(st, 3, &p.limits);
    store_bind_int(st, 7, ask->fields);
    rc = store_step(st, "change a project", NULL, err);
    if (rc == 0)
        rc = ledger_projects_find(db, PROJECT_GET, p.id, &stored, err);
    if (rc < 0)
        return rc;
    *ret = (struct ledger_project_got){.project = stored};
    return 0;
}

int ledger_do_project_get(struct ledger_db *db, const struct ledger_project_get *ask,
                          struct ledger_project_got *ret, struct err *err) {
    struct ledger_project p = {0};
    int rc = ledger_projects_look_up(db, ask->id, &p, err);
    if (rc == 0)
        *ret = (struct ledger_project_got){.project = p};
    return rc;
}

int ledger_do_project_list(struct ledger_db *db, const struct ledger_project_list *ask,
                           struct ledger_project_listed *ret, struct err *err) {
    struct ledger_project_listed out = {0};
    sqlite3_stmt *st = ledger_ready(db, LEDGER_PROJECTS, PROJECT_PAGE);
    store_bind_str(st, 1, ask->after);
    store_bind_int(st, 2, (int64_t)ask->limit + 1); /* one more tells whether there is another */
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW && out.n < ask->limit) {
        out.projects = ledger_grow(out.projects, out.n, sizeof(*out.projects));
        ledger_projects_read(st, &out.projects[out.n++]);
    }
    out.more = rc == SQLITE_ROW;
    if (out.n > 0)
        memcpy(out.next, out.projects[out.n - 1].id, sizeof(out.next));
    int e = rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : store_error(db->db, err, "read projects");
    (void)sqlite3_reset(st);
    if (e < 0)
        ledger_projects_free(out.projects, out.n);
    else
        *ret = out;
    return e;
}
