#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/text.h"
#include "front/cli/cli.h"
#include "front/cli/options.h"
#include "front/code/definition.h"
#include "front/common/features.h"
#include "front/config/config.h"
#include "front/sandbox/advice.h"
#include "front/sandbox/launcher.h"
#include "front/start/definitions.h"
#include "front/start/isolate_group.h"
#include "front/store/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: cay doctor [--json] [--config FILE]\n\n"
    "Tries what cay needs from this machine and prints one line per feature: ok, degraded (cay\n"
    "works, with a wall less) or missing, and what to do about it; absent is what it does "
    "without.\n"
    "Of each coding agent it says where its program was found, of the data folder how much it "
    "takes\n"
    "by what it is for. The exit status is 1 if something\n"
    "that cay cannot do without is missing.\n\n"
    "  --json          print a JSON list\n"
    "  --config FILE   settings (default ./cay.json, then /etc/cay/cay.json)\n";

/* --- sandboxes: the launcher itself is asked, which makes one to see --- */

enum {
    PROBE_MS = 10000,
    DISK_LOW_MB = 512,
    /* As in `cay exec`: host uids that nobody hands out. */
    PROBE_UID = 0x70000000,
};

struct sandbox_probe {
    uv_loop_t loop;
    uv_timer_t timer;
    struct sandbox_launcher *host;
    struct feature *result;
    bool over;
};

static void cli_doctor_on_probe_stopped(void *ctx) {
    struct sandbox_probe *p = ctx;
    uv_close((uv_handle_t *)&p->timer, NULL);
}

static void end_probe(struct sandbox_probe *p) {
    if (p->over)
        return;
    p->over = true;
    sandbox_launcher_stop(p->host, cli_doctor_on_probe_stopped, p);
}

static void cli_doctor_on_probe_late(uv_timer_t *t) {
    struct sandbox_probe *p = t->data;
    (void)snprintf(p->result->detail, sizeof(p->result->detail),
                   "the launcher did not answer within %d s", PROBE_MS / 1000);
    end_probe(p);
}

static void cli_doctor_on_probe_state(void *ctx) {
    struct sandbox_probe *p = ctx;
    const struct sandbox_features *f = sandbox_launcher_features(p->host);
    struct err err;
    if (f)
        sandbox_advise_limits(f, p->result);
    else if (sandbox_launcher_check(p->host, &err) < 0)
        sandbox_advise_refusal(&err, p->result);
    else
        return;
    end_probe(p);
}

/* As a server that is started from here would have it. This process alone is moved. */
static void probe_isolate_group(struct features *f) {
    struct isolate_group g = {0};
    isolate_group_settle(&g);
    isolate_group_open(&g, 0);
    features_limit(f, g.why);
    isolate_group_close(&g, true);
}

static void probe_sandboxes(struct features *f, const char *dir) {
    _cleanup_(free) char *path = path_join(dir, "cay-sandbox");
    _cleanup_(close) int program = open(path, O_PATH | O_CLOEXEC);
    if (program < 0 || f->n == FEATURES_MAX)
        return; /* said among the programs */
    struct sandbox_probe p = {.result = &f->items[f->n++]};
    *p.result = (struct feature){.name = "sandboxes", .status = FEATURE_DEGRADED};
    struct sandbox_config config = {
        .max = 1, .uid_base = PROBE_UID, .uid_count = 2, .state_dir = (char *)""};
    (void)uv_loop_init(&p.loop);
    (void)uv_timer_init(&p.loop, &p.timer);
    p.timer.data = &p;
    (void)uv_timer_start(&p.timer, cli_doctor_on_probe_late, PROBE_MS, 0);
    p.host = sandbox_launcher_create(
        &(struct sandbox_launcher_options){.loop = &p.loop,
                                           .exec_fd = program,
                                           .starter = -1,
                                           .config = &config,
                                           .on_state = cli_doctor_on_probe_state,
                                           .ctx = &p});
    (void)uv_run(&p.loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&p.loop);
}

/* --- the data folder --- */

static void add_size(char *out, size_t size, const char *name, int64_t bytes) {
    size_t n = strlen(out);
    if (bytes > 0)
        (void)snprintf(out + n, size - n, "%s%s %.1f", n ? ", " : "", name,
                       (double)bytes / (1 << 20));
}

static void tell_disk(struct features *f, const struct config *config) {
    struct disk_usage d;
    if (f->n == FEATURES_MAX)
        return;
    disk_measure(config->data_dir, NULL, &d);
    struct feature *x = &f->items[f->n++];
    *x = (struct feature){.name = "disk", .status = FEATURE_OK};
    if (!d.is_known) {
        (void)snprintf(x->detail, sizeof(x->detail), "there is no data folder yet");
        return;
    }
    char sizes[160] = "";
    for (unsigned i = 0; i < DISK_PARTS; i++)
        add_size(sizes, sizeof(sizes), disk_part_name(i), d.bytes[i]);
    (void)snprintf(x->detail, sizeof(x->detail), "MiB: %s; %.0f are free%s", sizes,
                   (double)d.free_bytes / (1 << 20), d.is_whole ? "" : "; there is more");
    if (d.free_bytes >= (int64_t)DISK_LOW_MB << 20)
        return;
    x->status = FEATURE_DEGRADED;
    (void)snprintf(x->advice, sizeof(x->advice),
                   "make room: `cay prune --keep-size SIZE`, or remove snapshots");
}

/* --- coding agents: where their programs are --- */

static const char *cli_doctor_way(const struct coder_def *d) {
    return strcmp(d->by, "own") == 0       ? "comes with cay"
           : strcmp(d->by, "setting") == 0 ? "by the setting \"coders\""
                                           : "in PATH";
}

static void tell_coder(struct features *f, const struct coder_def *d) {
    if (f->n == FEATURES_MAX)
        return;
    struct feature *x = &f->items[f->n++];
    bool usable = d->fd >= 0;
    *x = (struct feature){.name = d->name, .status = usable ? FEATURE_OK : FEATURE_ABSENT};
    if (usable)
        (void)text_print(x->detail, sizeof(x->detail), "coding agent: %.180s (%s)", d->found,
                         cli_doctor_way(d));
    else
        (void)snprintf(x->detail, sizeof(x->detail), "coding agent, cannot be used");
    if (!usable)
        (void)text_print(x->advice, sizeof(x->advice), "%s", d->why.message);
}

/* The names in f are those of the list. */
static int probe_coders(struct features *f, const char *dir, const char *file,
                        struct coder_def **ret_defs, struct err *err) {
    struct config config;
    config_init(&config);
    int rc = config_load(&config, file, err);
    if (rc == 0) {
        config_defaults(&config);
        tell_disk(f, &config);
        rc = definitions_load_coders(&config, dir, ret_defs, err);
    }
    for (const struct coder_def *d = rc == 0 ? *ret_defs : NULL; d; d = d->next)
        tell_coder(f, d);
    config_finish(&config);
    return rc;
}

static void cli_doctor_print_json(const struct features *f) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, 65536);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_writer_array_begin(&w);
    for (size_t i = 0; i < f->n; i++) {
        json_writer_object_begin(&w);
        json_put_str(&w, "name", f->items[i].name);
        json_put_str(&w, "status", feature_status_name(f->items[i].status));
        json_put_str(&w, "detail", f->items[i].detail);
        json_put_str(&w, "advice", f->items[i].advice);
        json_writer_object_end(&w);
    }
    json_writer_array_end(&w);
    (void)printf("%s\n", b.data);
}

struct doctor_args {
    const char *config;
    bool json;
};

int cli_doctor(int argc, char **argv) {
    static const struct cli_option options[] = {
        OPTION(struct doctor_args, "config", 0, TEXT, config),
        OPTIONS_JSON(struct doctor_args, json)};
    static const struct cli_command command = {
        .name = "doctor", .usage = usage, .options = options, .noptions = ARRAY_LEN(options)};
    struct doctor_args a = {0};
    struct coder_def *coders = NULL;
    struct err err;
    int status = cli_options(&command, &argc, argv, &a);
    if (status >= 0)
        return status;
    struct features f;
    _cleanup_(free) char *dir = cli_sibling_dir();
    log_init("cay", LOG_LEVEL_OFF);
    features_probe(&f, dir, true);
    probe_isolate_group(&f);
    probe_sandboxes(&f, dir);
    if (probe_coders(&f, dir, a.config, &coders, &err) < 0)
        return cli_fail(&err);
    bool missing = false;
    for (size_t i = 0; i < f.n; i++)
        missing = missing || f.items[i].status == FEATURE_MISSING;
    if (a.json) {
        cli_doctor_print_json(&f);
        coder_defs_free(coders);
        return missing;
    }
    bool color = isatty(STDOUT_FILENO) == 1;
    static const char *const colors[] = {"\033[32m", "\033[33m", "\033[31m", ""};
    for (size_t i = 0; i < f.n; i++) {
        const struct feature *x = &f.items[i];
        (void)printf("%s%-8s%s  %-16s %s\n", color ? colors[x->status] : "",
                     feature_status_name(x->status), color ? "\033[0m" : "", x->name, x->detail);
        if (x->advice[0])
            (void)printf("                            -> %s\n", x->advice);
    }
    coder_defs_free(coders);
    return missing;
}
