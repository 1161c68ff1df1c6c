/* What clients of the Vercel wire send as JSON: network policies, sources, configurations. What is
 * taken is within its limits and names no secret; what is not has a reason. */

#include "front/vercel/internal.h"
#include "front/vercel/source.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int rc, const struct err *err) {
    if (rc < 0 && (!err->code || !err->message[0]))
        abort();
}

static void try_policy(const json_t *j, const json_t *all) {
    struct err err = {0};
    struct policy p = {0};
    int rc = vercel_policy_read(j, all, &p, &err);
    check(rc, &err);
    if (rc < 0)
        return;
    if (p.nroutes > EGRESS_ROUTES_MAX)
        abort();
    for (size_t i = 0; i < p.nroutes; i++)
        if (strncmp(p.routes[i].url, "https://", 8) != 0 ||
            strlen(p.routes[i].name) > EGRESS_NAME_MAX)
            abort();
    json_t *network = network_ask_show(&p.network);
    json_t *shown = vercel_policy_show(network);
    if (!shown)
        abort();
    json_decref(shown);
    json_decref(network);
    vercel_policy_finish(&p);
}

static void try_source(const json_t *j) {
    struct err err = {0};
    struct source_wire w = {0};
    struct source_plan plan = {0};
    const char *snapshot = NULL;
    int rc = json_table_read(vercel_source_fields, VERCEL_SOURCE_FIELDS, j, NULL, &w, &err);
    if (rc == 0)
        rc = vercel_source_plan(&w, &plan, &snapshot, &err);
    check(rc, &err);
    /* The script is ours; what was sent is an argument of it. */
    if (rc == 0 && plan.argv.n > 0 &&
        (strcmp(plan.argv.items[0], "sh") != 0 || strncmp(plan.argv.items[2], "set -e;", 7) != 0))
        abort();
    vercel_source_plan_finish(&plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err err = {0};
    json_t *j = NULL;
    if (json_parse((const char *)data, size, "input", &j, &err) < 0)
        return 0;
    json_t *all = json_pack("[s,s]", "example.com", "*.example.org");
    json_t *config = json_object();
    try_policy(j, all);
    try_policy(json_object_get(j, "networkPolicy"), NULL);
    try_source(j);
    try_source(json_object_get(j, "source"));
    if (json_is_object(j)) {
        int rc = vercel_config_read(j, config, &err);
        check(rc, &err);
        char *text = json_dumps(config, JSON_COMPACT);
        if (!text || strlen(text) > (256 << 10))
            abort();
        free(text);
    }
    json_decref(config);
    json_decref(all);
    json_decref(j);
    return 0;
}
