#include "base/log.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"

#include <string.h>
#include <unistd.h>

static const char *level_names[] = {"debug", "info", "warn", "error", "off"};

static struct {
    enum log_level level;
    bool terminal;
    const char *program;
} state = {.level = LOG_LEVEL_INFO, .program = "cay"};

void log_init(const char *program, enum log_level level) {
    state.program = program;
    state.level = level;
    state.terminal = isatty(STDERR_FILENO) == 1;
}

bool log_level_parse(const char *text, enum log_level *ret_level) {
    for (size_t i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++)
        if (strcmp(text, level_names[i]) == 0) {
            *ret_level = (enum log_level)i;
            return true;
        }
    return false;
}

bool log_enabled(enum log_level level) {
    return level >= state.level;
}

static void add_json(struct buf *b, enum log_level level, const char *event, const char *time,
                     const struct log_field *fields, size_t n) {
    struct json_writer w;
    json_writer_init(&w, b);
    json_writer_object_begin(&w);
    json_put_str(&w, "time", time);
    json_put_str(&w, "level", level_names[level]);
    json_put_str(&w, "program", state.program);
    json_put_str(&w, "event", event);
    for (size_t i = 0; i < n; i++) {
        json_writer_key(&w, fields[i].key);
        if (fields[i].type == LOG_FIELD_TEXT)
            json_writer_str(&w, fields[i].text);
        else if (fields[i].type == LOG_FIELD_BOOL)
            json_writer_bool(&w, fields[i].number != 0);
        else
            json_writer_int(&w, fields[i].number);
    }
    json_writer_object_end(&w);
}

/* Text is shown as a JSON string whenever it holds anything but plain characters, so that control
 * characters in a guest's text cannot drive the operator's terminal. Names count as text too: a
 * child's record brings its own. */
static void add_word(struct buf *b, const char *text) {
    bool plain = text[0] != 0;
    for (const char *p = text; *p && plain; p++)
        plain = *p > ' ' && *p < 127 && *p != '"' && *p != '=';
    if (plain)
        (void)buf_add_str(b, text);
    else
        json_write_str(b, text, strlen(text));
}

static void log_add_text(struct buf *b, enum log_level level, const char *event, const char *time,
                         const struct log_field *fields, size_t n) {
    (void)buf_addf(b, "%.12s %-5s ", time + 11, level_names[level]);
    add_word(b, event);
    for (size_t i = 0; i < n; i++) {
        (void)buf_add_char(b, ' ');
        add_word(b, fields[i].key);
        (void)buf_add_char(b, '=');
        if (fields[i].type == LOG_FIELD_TEXT) {
            add_word(b, fields[i].text);
        } else if (fields[i].type == LOG_FIELD_BOOL) {
            (void)buf_add_str(b, fields[i].number ? "true" : "false");
        } else {
            (void)buf_addf(b, "%lld", (long long)fields[i].number);
        }
    }
}

void log_write(enum log_level level, const char *event, const struct log_field *fields, size_t n) {
    if (!log_enabled(level))
        return;
    struct buf b;
    buf_init(&b, 65536);
    char time[CLOCK_RFC3339_SIZE];
    clock_rfc3339(clock_wall_ms(), time);
    if (state.terminal)
        log_add_text(&b, level, event, time, fields, n);
    else
        add_json(&b, level, event, time, fields, n);
    (void)buf_add_char(&b, '\n');
    (void)fd_write_all(STDERR_FILENO, b.data, b.len);
    buf_finish(&b);
}
