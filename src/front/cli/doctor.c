#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "front/cli/cli.h"
#include "front/features.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char usage[] =
    "usage: cay doctor [--json]\n\n"
    "Tries what cay needs from this machine and prints one line per feature: ok, degraded (cay\n"
    "works, with a wall less) or missing, and what to do about it. The exit status is 1 if\n"
    "something that cay cannot do without is missing.\n\n"
    "  --json   print a JSON list\n";

static void print_json(const struct features *f) {
    _cleanup_(buf) struct buf b;
    buf_init(&b, 65536);
    struct json_writer w;
    json_writer_init(&w, &b);
    json_writer_array_begin(&w);
    for (size_t i = 0; i < f->n; i++) {
        json_writer_object_begin(&w);
        json_writer_key(&w, "name");
        json_writer_str(&w, f->items[i].name);
        json_writer_key(&w, "status");
        json_writer_str(&w, feature_status_name(f->items[i].status));
        json_writer_key(&w, "detail");
        json_writer_str(&w, f->items[i].detail);
        json_writer_key(&w, "advice");
        json_writer_str(&w, f->items[i].advice);
        json_writer_object_end(&w);
    }
    json_writer_array_end(&w);
    (void)printf("%s\n", b.data);
}

int cli_doctor(int argc, char **argv) {
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
    bool json = false;
    int c;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (c == 'j') {
            json = true;
        } else if (c == 'h') {
            (void)fputs(usage, stdout);
            return 0;
        } else {
            return cli_usage("doctor", "unknown option");
        }
    }
    if (optind < argc)
        return cli_usage("doctor", "it takes no further words");
    struct features f;
    _cleanup_(free) char *dir = cli_sibling_dir();
    features_probe(&f, dir, true);
    bool missing = false;
    for (size_t i = 0; i < f.n; i++)
        missing = missing || f.items[i].status == FEATURE_MISSING;
    if (json) {
        print_json(&f);
        return missing;
    }
    bool color = isatty(STDOUT_FILENO) == 1;
    static const char *const colors[] = {"\033[32m", "\033[33m", "\033[31m"};
    for (size_t i = 0; i < f.n; i++) {
        const struct feature *x = &f.items[i];
        (void)printf("%s%-8s%s  %-16s %s\n", color ? colors[x->status] : "",
                     feature_status_name(x->status), color ? "\033[0m" : "", x->name, x->detail);
        if (x->advice[0])
            (void)printf("                            -> %s\n", x->advice);
    }
    return missing;
}
