#include "front/server/reload.h"

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "front/agent/agent.h"
#include "loop/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SERVICE_MS = 60000, ANSWER_MS = 10000, ANSWER_BYTES = 1 << 20, ETAG_MAX = 256 };

struct config_service {
    char *url;
    char *auth; /* "Bearer ...", or NULL */
    char *etag;
    json_t *settings; /* what it said last and was right, or NULL */
    struct fetch_pool *pool;
    struct fetch *fetch;
    struct buf answer;
    int status;
    char *answer_etag;
    uv_timer_t timer;
    bool failing; /* it was said */
    bool again;   /* somebody asked while an answer was on its way, which may be old */
};

struct reload {
    struct reload_options opt;
    struct config_service service;
};

/* --- taking over --- */

struct report {
    json_t *applied;
    json_t *later;
};

static void reload_on_change(void *ctx, const char *key, const char *from, const char *to,
                             bool applied) {
    struct report *r = ctx;
    (void)json_array_append_new(applied ? r->applied : r->later,
                                json_pack("{s:s,s:s,s:s}", "key", key, "from", from, "to", to));
    log_info(applied ? "config.changed" : "config.needs_restart", "key", key, "from", from, "to",
             to);
}

/* Who has a copy. */
static void reload_hand_out(struct reload *r) {
    const struct config *c = r->opt.config;
    struct front *f = r->opt.front;
    http_server_set_limits(f->http, &c->http);
    agents_set_limits(f->agents, &c->agents);
    store_configure(f->store, &c->store);
    f->runner->config.limits = c->runner.limits;
    log_init("cay", c->log_level);
}

/* The service's settings with the file's over them. */
static int read_next(const struct reload *r, struct config *next, struct err *err) {
    const struct config *now = r->opt.config;
    struct config file;
    config_init(&file);
    int rc = now->file ? config_load(&file, now->file, err) : 0;
    _cleanup_(json) json_t *all =
        r->service.settings ? json_deep_copy(r->service.settings) : json_object();
    if (rc == 0 && file.tree)
        (void)json_object_update_recursive(all, file.tree);
    if (rc == 0)
        rc = config_read_tree(next, all, err);
    if (rc == 0) {
        next->tree = json_incref(all);
        if (r->opt.level_given)
            next->log_level = now->log_level;
        if (r->opt.time_given)
            next->execute.timeout_ms = now->execute.timeout_ms;
    }
    config_finish(&file);
    return rc;
}

static int reload_take_over(struct reload *r, struct report *report, struct err *err) {
    struct config next;
    config_init(&next);
    int rc = read_next(r, &next, err);
    if (rc == 0) {
        config_take_over(r->opt.config, &next, reload_on_change, report);
        reload_hand_out(r);
    }
    config_finish(&next);
    return rc;
}

/* --- what the service may set --- */

static bool may_set(const char *section, const char *key) {
    static const char *const keys[] = {"hosts", "origins", "log_level", "$schema"};
    struct config c;
    struct setting table[SETTINGS_MAX];
    const char *name;
    size_t n;
    bool may = false;
    for (size_t i = 0; !section && i < ARRAY_LEN(keys); i++)
        may = may || strcmp(keys[i], key) == 0;
    config_init(&c);
    for (size_t i = 0; section && (n = config_table(&c, i, &name, table), name); i++)
        for (size_t k = 0; k < n; k++)
            may = may ||
                  (strcmp(name, section) == 0 && strcmp(table[k].key, key) == 0 && !table[k].fixed);
    config_finish(&c);
    return may;
}

static int reload_refuse(const char *section, const char *key, struct err *err) {
    return err_set(err, ERR_BAD_REQUEST, "the service may not set \"%s%s%.80s\"",
                   section ? section : "", section ? "." : "", key);
}

static int check_service(json_t *settings, struct err *err) {
    if (!json_is_object(settings))
        return err_set(err, ERR_BAD_REQUEST, "the service did not say a JSON object");
    const char *section;
    json_t *v;
    json_object_foreach(settings, section, v) {
        const char *key;
        json_t *ignored;
        bool is_object = json_is_object(v);
        if (!is_object && !may_set(NULL, section))
            return reload_refuse(NULL, section, err);
        json_object_foreach(v, key, ignored) {
            if (!may_set(section, key))
                return reload_refuse(section, key, err);
        }
    }
    struct config c;
    config_init(&c);
    int rc = config_read_tree(&c, settings, err);
    config_finish(&c);
    return rc;
}

/* --- what it said last --- */

static char *cache_path(const struct reload *r) {
    return path_join(r->opt.config->data_dir, "config-service.json");
}

/* What cannot be sent back, or kept, would be the last that is heard of the service. */
static bool is_etag(const char *text) {
    size_t n = 0;
    while (text[n] > ' ' && text[n] <= '~')
        n++;
    return n > 0 && n <= ETAG_MAX && !text[n];
}

static void load_cache(struct reload *r) {
    struct config_service *s = &r->service;
    struct err err;
    _cleanup_(free) char *path = cache_path(r);
    _cleanup_(buf) struct buf text;
    _cleanup_(json) json_t *kept = NULL;
    buf_init(&text, 2 * ANSWER_BYTES);
    if (fd_read_file(AT_FDCWD, path, &text, &err) < 0 || !text.data ||
        json_parse_private(text.data, text.len, path, &kept, &err) < 0)
        return;
    const char *url = json_string_value(json_object_get(kept, "url"));
    const char *etag = json_string_value(json_object_get(kept, "etag"));
    json_t *settings = json_object_get(kept, "settings");
    if (!url || strcmp(url, s->url) != 0 || check_service(settings, &err) < 0)
        return;
    s->settings = json_incref(settings);
    s->etag = etag && is_etag(etag) ? xstrdup(etag) : NULL;
}

/* Written beside and renamed: half of it is never read. */
static int save_cache(const struct reload *r, struct err *err) {
    const struct config_service *s = &r->service;
    _cleanup_(free) char *path = cache_path(r);
    _cleanup_(free) char *beside = xasprintf("%s.new", path);
    _cleanup_(json) json_t *kept =
        json_pack("{s:s,s:s?,s:O}", "url", s->url, "etag", s->etag, "settings", s->settings);
    _cleanup_(buf) struct buf text;
    buf_init(&text, 4 * ANSWER_BYTES);
    if (!json_dump(kept, &text))
        return err_set(err, ERR_TOO_LARGE, "the service's settings are too long to keep");
    _cleanup_(close) int fd =
        open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fd_write_all(fd, text.data, text.len) < 0 || fsync(fd) < 0 ||
        rename(beside, path) < 0)
        return err_sys(err, "%s", path);
    return 0;
}

/* --- asking it --- */

static void reload_failed(struct config_service *s, const char *message) {
    if (!s->failing)
        log_warn("config.service", "error", message, "kept",
                 s->settings ? "what it said before" : "nothing");
    s->failing = true;
}

static void take_answer(struct reload *r) {
    struct config_service *s = &r->service;
    struct err err;
    _cleanup_(json) json_t *settings = NULL;
    _cleanup_(json) json_t *before = s->settings;
    struct report report = {.applied = json_array(), .later = json_array()};
    int rc = json_parse_private(s->answer.data ? s->answer.data : "", s->answer.len, "the service",
                                &settings, &err);
    if (rc == 0)
        rc = check_service(settings, &err);
    s->settings = json_incref(rc == 0 ? settings : before);
    if (rc == 0)
        rc = reload_take_over(r, &report, &err);
    if (rc < 0) {
        json_decref(s->settings);
        s->settings = json_incref(before);
        reload_failed(s, err.message);
    } else {
        s->failing = false;
        free(s->etag);
        s->etag = steal_ptr(&s->answer_etag);
        if (save_cache(r, &err) < 0)
            log_warn("config.service", "error", err.message);
    }
    json_decref(report.applied);
    json_decref(report.later);
}

static void reload_on_head(void *ctx, struct fetch *f, int status) {
    struct reload *r = ctx;
    const char *etag = fetch_header(f, "etag");
    r->service.status = status;
    free(r->service.answer_etag);
    r->service.answer_etag = etag && is_etag(etag) ? xstrdup(etag) : NULL;
}

static void reload_on_data(void *ctx, const char *data, size_t len) {
    struct reload *r = ctx;
    (void)buf_add(&r->service.answer, data, len);
}

static void reload_ask(struct reload *r);

static void reload_on_end(void *ctx, const struct err *err) {
    struct reload *r = ctx;
    struct config_service *s = &r->service;
    s->fetch = NULL;
    if (err) {
        reload_failed(s, err->message);
    } else if (s->status == 304 && s->settings) {
        s->failing = false;
    } else if (s->status != 200) {
        char message[64];
        (void)snprintf(message, sizeof(message), "the service answered %d", s->status);
        reload_failed(s, message);
    } else {
        take_answer(r);
    }
    buf_finish(&s->answer);
    if (s->again)
        reload_ask(r);
}

static void reload_ask(struct reload *r) {
    struct config_service *s = &r->service;
    struct err err;
    struct fetch_header headers[3] = {{.name = "Accept", .value = "application/json"}};
    size_t n = 1;
    if (s->fetch) {
        s->again = true;
        return;
    }
    s->again = false;
    if (s->etag)
        headers[n++] = (struct fetch_header){.name = "If-None-Match", .value = s->etag};
    if (s->auth)
        headers[n++] =
            (struct fetch_header){.name = "Authorization", .value = s->auth, .secret = true};
    s->status = 0;
    int rc = fetch_start(s->pool,
                         &(struct fetch_options){.url = s->url,
                                                 .headers = headers,
                                                 .nheaders = n,
                                                 .total_timeout_ms = ANSWER_MS,
                                                 .max_body_bytes = ANSWER_BYTES,
                                                 .on_head = reload_on_head,
                                                 .on_data = reload_on_data,
                                                 .on_end = reload_on_end,
                                                 .ctx = r},
                         &s->fetch, &err);
    if (rc < 0)
        reload_failed(s, err.message);
}

static void reload_on_timer(uv_timer_t *t) {
    reload_ask(t->data);
}

static int open_service(struct reload *r, struct err *err) {
    struct config_service *s = &r->service;
    int rc = fetch_pool_create(r->opt.front->loop, 1, &s->pool, err);
    if (rc < 0)
        return rc;
    s->url = xstrdup(r->opt.service_url);
    s->auth = r->opt.service_token ? xasprintf("Bearer %s", r->opt.service_token) : NULL;
    buf_init(&s->answer, ANSWER_BYTES);
    load_cache(r);
    if (s->settings) {
        struct report report = {.applied = json_array(), .later = json_array()};
        struct err why;
        if (reload_take_over(r, &report, &why) < 0)
            reload_failed(s, why.message);
        json_decref(report.applied);
        json_decref(report.later);
    }
    (void)uv_timer_init(r->opt.front->loop, &s->timer);
    s->timer.data = r;
    (void)uv_timer_start(&s->timer, reload_on_timer, 0, SERVICE_MS);
    return 0;
}

/* --- all of it --- */

int reload_create(const struct reload_options *options, struct reload **ret_reload,
                  struct err *err) {
    struct reload *r = xcalloc(1, sizeof(*r));
    r->opt = *options;
    *ret_reload = r;
    return options->service_url ? open_service(r, err) : 0;
}

static void free_reload(struct reload *r) {
    struct config_service *s = &r->service;
    buf_finish(&s->answer);
    json_decref(s->settings);
    free(s->url);
    free(s->auth);
    free(s->etag);
    free(s->answer_etag);
    free(r);
}

static void reload_on_timer_closed(uv_handle_t *h) {
    free_reload(h->data);
}

void reload_close(struct reload *r) {
    if (!r)
        return;
    if (!r->service.pool) {
        free_reload(r);
        return;
    }
    fetch_cancel(r->service.fetch);
    fetch_pool_close(r->service.pool, NULL, NULL);
    uv_close((uv_handle_t *)&r->service.timer, reload_on_timer_closed);
}

int reload_now(struct reload *r, json_t **ret_report, struct err *err) {
    struct report report = {.applied = json_array(), .later = json_array()};
    int rc = reload_take_over(r, &report, err);
    if (r->service.url)
        reload_ask(r);
    if (rc == 0 && ret_report)
        *ret_report =
            json_pack("{s:s?,s:O,s:O,s:s?}", "file", r->opt.config->file, "applied", report.applied,
                      "needs_restart", report.later, "service", r->service.url ? "asked" : NULL);
    json_decref(report.applied);
    json_decref(report.later);
    return rc;
}
