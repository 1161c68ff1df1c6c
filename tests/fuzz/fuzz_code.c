/* What clients and guests send to coding jobs: a conversation with the demo, whatever it holds; the
 * address of a repository and a name in it, which become arguments of git. */

#include "base/buf.h"
#include "base/json.h"
#include "base/utf8.h"
#include "front/code/play.h"
#include "front/code/route.h"
#include "front/code/tree.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

extern const char coder_demo_json[];
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ANSWER_BYTES = 1 << 20 };

static void play(const char *text, size_t size) {
    static json_t *script;
    if (!script)
        script = json_loads(coder_demo_json, 0, NULL);
    json_t *messages = NULL;
    struct err err;
    struct buf out;
    if (json_parse(text, size, "body", &messages, &err) < 0)
        return;
    buf_init(&out, ANSWER_BYTES);
    play_answer(script, messages, &out);
    if (!utf8_is_valid(out.data ? out.data : "", out.len) || out.len > ANSWER_BYTES)
        abort();
    buf_finish(&out);
    json_decref(messages);
}

static void check_repo(const char *text) {
    char *url = NULL;
    struct err err;
    if (code_repo_check(text, &url, &err) < 0)
        return;
    if (strncasecmp(url, "http", 4) != 0 || strpbrk(url, " @?#'\"\\$`\n\t") || strstr(url, "/..") ||
        url[strlen(url) - 1] == '/')
        abort();
    struct egress_route route = {0};
    if (code_route_repo("clone-x", url, NULL, &route, &err) < 0)
        abort();
    egress_route_finish(&route);
    free(url);
}

static void check_ref(const char *text) {
    if (code_tree_is_ref(text) && (text[0] == '-' || strpbrk(text, " :~^?*[\\\n\"'$`;&|<>()")))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    char *text = malloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    if (data[0] % 3 == 0)
        play(text, size - 1);
    else if (data[0] % 3 == 1)
        check_repo(text);
    else
        check_ref(text);
    free(text);
    return 0;
}
