#include "coder/tools.h"

#include "base/cleanup.h"
#include "base/limits.h"

#include <string.h>

typedef int file_tool(struct tools *t, const json_t *args, struct coder_result *ret);

static const struct {
    const char *name;
    file_tool *run; /* NULL: run_command */
    bool reads;
} table[] = {
    {"write_file", tool_write_file, false}, {"read_file", tool_read_file, true},
    {"edit_file", tool_edit_file, false},   {"list_files", tool_list_files, true},
    {"run_command", NULL, false},
};

void tool_result_init(struct coder_result *r) {
    *r = (struct coder_result){.ok = false};
    buf_init(&r->output, LIMIT_CODER_OUTPUT_BYTES * 4);
}

void tool_result_finish(struct coder_result *r) {
    buf_finish(&r->output);
}

int tools_run(struct tools *t, int64_t step, const char *name, const json_t *args,
              struct coder_result *ret, struct err *err) {
    size_t i = 0;
    while (i < ARRAY_LEN(table) && strcmp(table[i].name, name) != 0)
        i++;
    if (i == ARRAY_LEN(table) || (t->reads_only && !table[i].reads)) {
        (void)err_set(&ret->error, ERR_NOT_FOUND, "there is no tool \"%.64s\"; there are %s", name,
                      t->reads_only ? "read_file and list_files"
                                    : "write_file, read_file, edit_file, list_files and "
                                      "run_command");
        return 0;
    }
    if (!table[i].run)
        return tool_run_command(t, step, args, ret, err);
    ret->ok = table[i].run(t, args, ret) == 0;
    return 0;
}
