#include "front/agent/agent.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/text.h"
#include "base/utf8.h"
#include "front/agent/history_queue.h"
#include "front/agent/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    IDLE_MS = 60000, /* then an instance that nobody uses is forgotten */
    REST_MS = 2000,  /* then what can be read again is let go */
    SWEEP_MS = 1000,
    NAME_MAX_BYTES = 128,
    FOLDER_MAX_BYTES = 255,
    NAMES_MAX = 1000,
    TITLE_BYTES = 80,
};

/* --- names --- */

/* A name as a folder: letters, digits, "-", "_", "." and what is not ASCII stay, the rest is
 * escaped. */
static char *folder_name(const char *name) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, 4 * NAME_MAX_BYTES);
    for (const char *p = name; *p; p++) {
        unsigned char c = (unsigned char)*p;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '_' || c >= 0x80 || (c == '.' && p != name);
        if (plain)
            (void)buf_add_char(&b, (char)c);
        else
            (void)buf_addf(&b, "%%%02x", c);
    }
    return buf_steal(&b, NULL);
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static json_t *name_of_folder(const char *folder) {
    char name[FOLDER_MAX_BYTES + 1];
    size_t n = 0;
    for (const char *p = folder; *p && n < FOLDER_MAX_BYTES; p++) {
        int hi = *p == '%' ? hex_digit(p[1]) : -1;
        int lo = hi >= 0 ? hex_digit(p[2]) : -1;
        name[n++] = lo >= 0 ? (char)(hi * 16 + lo) : *p;
        p += lo >= 0 ? 2 : 0;
    }
    return json_stringn(name, n);
}

static char *type_dir(const struct agents *all, const char *owner, const char *type) {
    return *owner ? xasprintf("%s/keys/%s/agents/%s", all->opt.data_dir, owner, type)
                  : xasprintf("%s/agents/%s", all->opt.data_dir, type);
}

/* Checks the name; ret_dir is where its instance is kept. */
static int agent_check_name(const struct agents *all, const char *owner, const char *type,
                            const char *name, const struct agent_def **ret_def, char **ret_dir,
                            struct err *err) {
    const struct agent_def *def = agent_defs_find(all->opt.defs, type);
    size_t n = strlen(name);
    if (!def)
        return err_set(err, ERR_NOT_FOUND, "there is no agent \"%.60s\"", type);
    if (n == 0 || n > NAME_MAX_BYTES)
        return err_set(err, ERR_BAD_REQUEST, "an agent's name has 1 to %d bytes", NAME_MAX_BYTES);
    bool ok = utf8_is_valid(name, n);
    for (size_t i = 0; i < n; i++)
        ok = ok && (unsigned char)name[i] >= ' ' && name[i] != 0x7f;
    if (!ok)
        return err_set(err, ERR_BAD_REQUEST,
                       "an agent's name is UTF-8 text without control characters");
    _cleanup_(free) char *folder = folder_name(name);
    if (strlen(folder) > FOLDER_MAX_BYTES)
        return err_set(err, ERR_BAD_REQUEST, "the agent's name has too many special characters");
    _cleanup_(free) char *parent = type_dir(all, owner, type);
    *ret_dir = path_join(parent, folder);
    *ret_def = def;
    return 0;
}

/* In the folder of an instance that somebody looked at and asked nothing of. */
static const char fresh_mark[] = ".fresh";

static bool is_fresh(int parent, const char *folder) {
    _cleanup_(free) char *mark = path_join(folder, fresh_mark);
    return faccessat(parent, mark, F_OK, 0) == 0;
}

json_t *agents_names(struct agents *all, const char *owner, const char *type) {
    json_t *out = json_array();
    _cleanup_(free) char *dir = type_dir(all, owner, type);
    DIR *d = opendir(dir);
    const struct dirent *e;
    while (d && (e = readdir(d)) && json_array_size(out) < NAMES_MAX) {
        bool shown = e->d_name[0] != '.' && !is_fresh(dirfd(d), e->d_name);
        json_t *name = shown ? name_of_folder(e->d_name) : NULL;
        if (name)
            (void)json_array_append_new(out, name);
    }
    if (d)
        (void)closedir(d);
    return out;
}

static size_t count_entries(const char *dir) {
    DIR *d = opendir(dir);
    const struct dirent *e;
    size_t n = 0;
    while (d && (e = readdir(d)))
        n += e->d_name[0] != '.';
    if (d)
        (void)closedir(d);
    return n;
}

/* --- instances --- */

/* The last of it: who listened is told, from the loop. */
static void agent_bury(void *ctx) {
    struct agent *a = ctx;
    agent_tell_now(a);
    while (a->listeners) {
        struct agent_listener *l = a->listeners;
        agent_unlisten(l);
        if (l->events->on_gone)
            l->events->on_gone(l->ctx);
    }
    free(a->owner);
    free(a->name);
    free(a->dir);
    free(a);
}

static void abort_facets(const struct agents *all, const struct agent_def *def, const char *dir) {
    for (size_t i = 0; i < def->nfacets; i++) {
        _cleanup_(free) char *facet = xasprintf("%s/facets/%s", dir, def->facets[i].name);
        facets_abort(all->opt.runner->facets, facet);
    }
}

static void agent_forget(const struct agent *a) {
    struct err err;
    abort_facets(a->agents, a->def, a->dir);
    if (path_remove_tree(a->dir, &err) < 0)
        log_error("agent.forget", "error", err.message);
}

/* Stops its work and closes its data at once. Nobody finds it any more. removed: its folder goes,
 * so nothing of it need be written. */
static void close_agent(struct agent *a, const char *why, bool removed) {
    a->closing = true;
    turns_end(a, why);
    agent_keep_messages(a);
    agent_tools_finish(a);
    agent_state_finish(a);
    history_wait_cancel(&a->tell_wait);
    if (removed || a->fresh)
        history_drop(a->history);
    else
        history_close(a->history);
    a->history = NULL;
    rpcs_end(a);
    if (a->fresh)
        agent_forget(a);
    later_post(&a->agents->later, &a->bury, agent_bury, a);
}

static void agent_on_sweep(uv_timer_t *t) {
    struct agents *all = t->data;
    int64_t now = clock_mono_ms();
    bool freed = false;
    for (struct agent **at = &all->list; *at;) {
        struct agent *a = *at;
        bool busy = a->turns || a->tool_env.left || !sync_is_idle(&a->sync) || a->ready ||
                    a->calls || a->notices || !history_is_settled(a->history) ||
                    now - a->used_ms < REST_MS;
        if (busy || a->listeners || now - a->used_ms < IDLE_MS) {
            if (!busy) {
                freed = history_rest(a->history) || freed;
                agent_state_rest(a);
                agent_tools_rest(a);
            }
            at = &a->next;
            continue;
        }
        *at = a->next;
        close_agent(a, NULL, false);
    }
    /* What the databases used lies between what stays: whole pages of it go back. */
    if (freed)
        (void)malloc_trim(0);
    if (!all->list)
        (void)uv_timer_stop(t);
}

struct agents *agents_create(const struct agents_options *options) {
    struct agents *all = xcalloc(1, sizeof(*all));
    all->opt = *options;
    all->histories = histories_create(options->loop);
    if (!all->histories) {
        free(all);
        return NULL;
    }
    later_queue_init(&all->later, options->loop);
    later_queue_init_last(&all->last, options->loop);
    later_queue_init_next(&all->next, options->loop);
    (void)uv_timer_init(options->loop, &all->timer);
    all->timer.data = all;
    uv_unref((uv_handle_t *)&all->timer);
    return all;
}

static void agent_on_timer_closed(uv_handle_t *h) {
    free(h->data);
}

static void agent_on_last_closed(uv_handle_t *h) {
    struct agents *all = h->data;
    uv_close((uv_handle_t *)&all->timer, agent_on_timer_closed);
}

static void agent_on_next_closed(uv_handle_t *h) {
    struct agents *all = h->data;
    later_queue_close(&all->last, agent_on_last_closed, all);
}

static void agent_on_later_closed(uv_handle_t *h) {
    struct agents *all = h->data;
    later_queue_close(&all->next, agent_on_next_closed, all);
}

bool agents_are_busy(const struct agents *all) {
    const struct agent *a = all->list;
    while (a && !a->turns && !a->notices)
        a = a->next;
    return a != NULL;
}

void agents_refuse(struct agents *all) {
    all->refusing = true;
}

int agents_check_open(const struct agents *all, struct err *err) {
    if (!all->refusing)
        return 0;
    return err_set(err, ERR_UNAVAILABLE, "the server is shutting down: try again in a second");
}

void agents_destroy(struct agents *all) {
    if (!all)
        return;
    while (all->list) {
        struct agent *a = all->list;
        all->list = a->next;
        close_agent(a, "the server is shutting down", false);
    }
    (void)uv_timer_stop(&all->timer);
    histories_close(all->histories); /* who listens hears of nothing that is not written */
    later_queue_close(&all->later, agent_on_later_closed, all);
}

void agents_set_limits(struct agents *a, const struct agent_limits *limits) {
    a->opt.limits = *limits;
}

void agents_when_written(struct agents *all, struct agent *a, struct history_wait *w,
                         void (*on_written)(void *ctx, const struct err *err), void *ctx) {
    histories_after(all->histories, w, a ? a->history : NULL, on_written, ctx);
}

const struct agent_def *agents_defs(const struct agents *a) {
    return a->opt.defs;
}

const struct agent_def *agent_def(const struct agent *a) {
    return a->def;
}

const char *agent_name(const struct agent *a) {
    return a->name;
}

struct facet_ref agent_facet_ref(const struct agent *a, const struct agent_facet *f, char **dir) {
    *dir = xasprintf("%s/facets/%s", a->dir, f->name);
    return (struct facet_ref){.dir = *dir, .owner = a->owner, .open = &f->open};
}

char *agent_title(const struct agent *a) {
    char title[TITLE_BYTES];
    (void)text_print(title, sizeof(title), "%s/%s", a->def->type, a->name);
    return xstrdup(title);
}

static struct agent *find_open(const struct agents *all, const char *dir) {
    struct agent *a = all->list;
    while (a && strcmp(a->dir, dir) != 0)
        a = a->next;
    if (a)
        a->used_ms = clock_mono_ms();
    return a;
}

static bool agent_exists(const char *path) {
    return faccessat(AT_FDCWD, path, F_OK, 0) == 0;
}

void agent_use(struct agent *a) {
    if (!a->fresh)
        return;
    _cleanup_(free) char *mark = path_join(a->dir, fresh_mark);
    a->fresh = false;
    if (unlink(mark) < 0)
        log_error("agent.mark", "error", strerror(errno));
}

static int make_folder(const char *dir, struct err *err) {
    _cleanup_(free) char *mark = path_join(dir, fresh_mark);
    int rc = path_mkdirs(dir, 0700, err);
    if (rc < 0)
        return rc;
    _cleanup_(close) int fd = open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    return fd < 0 ? err_sys(err, "make an agent's folder") : 0;
}

static int open_agent(struct agents *all, const char *owner, const struct agent_def *def,
                      const char *name, const char *dir, struct agent **ret_agent,
                      struct err *err) {
    _cleanup_(free) char *file = path_join(dir, "agent.db");
    if (!agent_exists(dir)) {
        _cleanup_(free) char *parent = type_dir(all, owner, def->type);
        if (count_entries(parent) >= all->opt.limits.instances)
            return err_set(err, ERR_LIMIT,
                           "there are %zu instances of this agent (limit agent_instances); remove "
                           "some with DELETE /v1/agents/%s/NAME",
                           all->opt.limits.instances, def->type);
    }
    struct history *history = NULL;
    int rc = agent_exists(dir) ? 0 : make_folder(dir, err);
    if (rc == 0)
        rc = history_open(all->histories, file, &history, err);
    if (rc < 0)
        return rc;
    struct agent *a = xcalloc(1, sizeof(*a));
    a->agents = all;
    a->def = def;
    a->owner = xstrdup(owner);
    a->name = xstrdup(name);
    a->dir = xstrdup(dir);
    a->history = history;
    a->used_ms = clock_mono_ms();
    a->fresh = is_fresh(AT_FDCWD, dir);
    a->next = all->list;
    all->list = a;
    if (!uv_is_active((uv_handle_t *)&all->timer))
        (void)uv_timer_start(&all->timer, agent_on_sweep, SWEEP_MS, SWEEP_MS);
    turn_mark_cut(a);
    agent_state_load(a);
    *ret_agent = a;
    return 0;
}

static int agent_get(struct agents *all, const char *owner, const char *type, const char *name,
                     bool make, struct agent **ret_agent, struct err *err) {
    _cleanup_(free) char *dir = NULL;
    const struct agent_def *def;
    int rc = agent_check_name(all, owner, type, name, &def, &dir, err);
    if (rc < 0)
        return rc;
    struct agent *a = find_open(all, dir);
    if (a || (!make && !agent_exists(dir))) {
        *ret_agent = a;
        return 0;
    }
    return open_agent(all, owner, def, name, dir, ret_agent, err);
}

int agents_get(struct agents *all, const char *owner, const char *type, const char *name,
               struct agent **ret_agent, struct err *err) {
    return agent_get(all, owner, type, name, true, ret_agent, err);
}

int agents_find(struct agents *all, const char *owner, const char *type, const char *name,
                struct agent **ret_agent, struct err *err) {
    return agent_get(all, owner, type, name, false, ret_agent, err);
}

/* The instance if it is open, and where it is kept; ERR_NOT_FOUND if it is not. */
static int find_kept(const struct agents *all, const char *owner, const char *type,
                     const char *name, struct agent **ret_agent, const struct agent_def **ret_def,
                     char **ret_dir, struct err *err) {
    _cleanup_(free) char *dir = NULL;
    int rc = agent_check_name(all, owner, type, name, ret_def, &dir, err);
    if (rc < 0)
        return rc;
    struct agent *a = find_open(all, dir);
    if (!a && !agent_exists(dir))
        return err_set(err, ERR_NOT_FOUND, "there is no instance \"%.60s\"", name);
    *ret_agent = a;
    *ret_dir = steal_ptr(&dir);
    return 0;
}

static void agent_take_out(struct agents *all, struct agent *a, const char *why, bool removed) {
    struct agent **at = &all->list;
    while (*at && *at != a)
        at = &(*at)->next;
    *at = a->next;
    close_agent(a, why, removed);
}

/* What the folder of instances has and has not is to be on the disk. */
static void agent_sync_names(struct agents *all, const char *owner, const char *type) {
    _cleanup_(free) char *parent = type_dir(all, owner, type);
    histories_sync_folder(all->histories, parent);
}

int agents_remove(struct agents *all, const char *owner, const char *type, const char *name,
                  struct err *err) {
    _cleanup_(free) char *dir = NULL;
    const struct agent_def *def;
    struct agent *a = NULL;
    int rc = find_kept(all, owner, type, name, &a, &def, &dir, err);
    if (rc < 0)
        return rc;
    if (a)
        a->fresh = false; /* below */
    if (a)
        agent_take_out(all, a, "the conversation was deleted", true);
    abort_facets(all, def, dir);
    rc = path_remove_tree(dir, err);
    if (rc == 0)
        agent_sync_names(all, owner, type);
    return rc;
}

int agents_reset(struct agents *all, const char *owner, const char *type, const char *name,
                 struct err *err) {
    _cleanup_(free) char *dir = NULL;
    const struct agent_def *def;
    struct agent *a = NULL;
    int rc = find_kept(all, owner, type, name, &a, &def, &dir, err);
    if (rc == 0 && !a)
        rc = agents_get(all, owner, type, name, &a, err);
    if (rc < 0)
        return rc;
    turns_end(a, NULL);
    agent_state_spoil(a);
    abort_facets(all, def, dir);
    _cleanup_(free) char *facets = path_join(dir, "facets");
    rc = agent_exists(facets) ? path_remove_tree(facets, err) : 0;
    if (rc == 0)
        agent_sync(a, false);
    return rc;
}

int agents_rename(struct agents *all, const char *owner, const char *type, const char *name,
                  const char *to, struct err *err) {
    _cleanup_(free) char *dir = NULL;
    _cleanup_(free) char *to_dir = NULL;
    const struct agent_def *def;
    struct agent *a = NULL;
    int rc = find_kept(all, owner, type, name, &a, &def, &dir, err);
    if (rc == 0)
        rc = agent_check_name(all, owner, type, to, &def, &to_dir, err);
    if (rc < 0)
        return rc;
    if (a && a->turns)
        return err_set(err, ERR_CONFLICT, "it has a turn: wait for its end, or stop it");
    /* A rename adds nothing to what waits for the disk: the bound of that does not matter here. */
    if (a && history_writes(a->history)->blocked) {
        *err = history_writes(a->history)->why;
        return -(int)err->code;
    }
    if (a && !history_is_settled(a->history))
        return err_set(err, ERR_UNAVAILABLE,
                       "the conversation's messages are being written: try again");
    struct agent *other = find_open(all, to_dir);
    if (other && other->fresh && other != a)
        agent_take_out(all, other, "the conversation has made way", true);
    if (agent_exists(to_dir))
        return err_set(err, ERR_CONFLICT, "there is a conversation \"%.60s\" already", to);
    if (a)
        agent_use(a);
    if (a)
        agent_take_out(all, a, "the conversation has another name", false);
    abort_facets(all, def, dir);
    if (renameat2(AT_FDCWD, dir, AT_FDCWD, to_dir, RENAME_NOREPLACE) < 0)
        return err_sys(err, "rename the conversation");
    agent_sync_names(all, owner, type);
    return 0;
}

/* --- messages --- */

int agent_messages(struct agent *a, struct buf *out, struct err *err) {
    return history_text(a->history, out, err);
}

static int put_all(struct agent *a, const struct uimessages *messages, struct err *err) {
    _cleanup_(free) struct history_message *put = xcalloc(messages->count + 1, sizeof(*put));
    for (size_t i = 0; i < messages->count; i++) {
        const struct uimessage *m = &messages->list[i];
        put[i] = (struct history_message){m->id, m->json, m->len};
    }
    int rc = history_remove(a->history, NULL, err);
    return rc < 0 ? rc : history_put(a->history, put, messages->count, err);
}

int agent_set_messages(struct agent *a, const struct agent_listener *from,
                       const struct uimessages *messages, struct err *err) {
    const struct agent_limits *max = &a->agents->opt.limits;
    struct history_size size = {.bytes = messages->bytes, .messages = messages->count};
    int rc = uimessages_check(messages, max->messages, max->message_bytes, err);
    if (rc == 0)
        rc = agent_check_size(a, &size, err);
    if (rc == 0)
        rc = history_admit(a->history, err);
    if (rc < 0)
        return rc;
    agent_use(a);
    rc = history_begin(a->history, err);
    if (rc < 0)
        return rc;
    rc = put_all(a, messages, err);
    history_make_durable(a->history);
    int end = history_end(a->history, rc == 0, rc == 0 ? err : NULL);
    rc = rc < 0 ? rc : end;
    a->used_ms = clock_mono_ms();
    if (rc == 0)
        agent_tell_messages(a, from);
    return rc;
}

int agent_clear(struct agent *a, const struct agent_listener *from, struct err *err) {
    int rc = history_admit(a->history, err);
    if (rc < 0)
        return rc;
    turns_end(a, NULL);
    agent_keep_messages(a);
    rc = history_remove(a->history, NULL, err);
    history_make_durable(a->history);
    a->used_ms = clock_mono_ms();
    agent_tell_clear(a, from);
    return rc;
}
