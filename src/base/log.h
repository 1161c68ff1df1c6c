#pragma once
/* One event per line, at the boundary that handles it: log_info("run.finished", "run", id, "ms",
 * ms). After the event come pairs of a key and a value; the value's type is taken from the C
 * expression (text, integer, boolean). Text is always a field, never a format. Written to standard
 * error as JSON when that is no terminal, else as text a person can read. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR, LOG_LEVEL_OFF };

struct log_field {
    const char *key;
    enum { LOG_FIELD_TEXT, LOG_FIELD_INT, LOG_FIELD_BOOL } type;
    const char *text;
    int64_t number;
};

void log_init(const char *program, enum log_level level);
bool log_level_parse(const char *text, enum log_level *ret_level);
bool log_enabled(enum log_level level);
void log_write(enum log_level level, const char *event, const struct log_field *fields, size_t n);

static inline struct log_field log_field_text(const char *key, const char *v) {
    return (struct log_field){.key = key, .type = LOG_FIELD_TEXT, .text = v ? v : ""};
}

static inline struct log_field log_field_int(const char *key, int64_t v) {
    return (struct log_field){.key = key, .type = LOG_FIELD_INT, .number = v};
}

static inline struct log_field log_field_bool(const char *key, bool v) {
    return (struct log_field){.key = key, .type = LOG_FIELD_BOOL, .number = v};
}

#define LOG_FIELD_(k, v)                                                                           \
    _Generic((v), char *                                                                           \
             : log_field_text, const char *                                                        \
             : log_field_text, bool                                                                \
             : log_field_bool, default                                                             \
             : log_field_int)(k, v)
#define LOG_PAIRS_2(k, v)                                                                 LOG_FIELD_(k, v)
#define LOG_PAIRS_4(k, v, ...)                                                            LOG_FIELD_(k, v), LOG_PAIRS_2(__VA_ARGS__)
#define LOG_PAIRS_6(k, v, ...)                                                            LOG_FIELD_(k, v), LOG_PAIRS_4(__VA_ARGS__)
#define LOG_PAIRS_8(k, v, ...)                                                            LOG_FIELD_(k, v), LOG_PAIRS_6(__VA_ARGS__)
#define LOG_PAIRS_10(k, v, ...)                                                           LOG_FIELD_(k, v), LOG_PAIRS_8(__VA_ARGS__)
#define LOG_PAIRS_12(k, v, ...)                                                           LOG_FIELD_(k, v), LOG_PAIRS_10(__VA_ARGS__)
#define LOG_PAIRS_14(k, v, ...)                                                           LOG_FIELD_(k, v), LOG_PAIRS_12(__VA_ARGS__)
#define LOG_PICK_(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, _14, name, ...) name
#define LOG_PAIRS_(...)                                                                            \
    LOG_PICK_(__VA_ARGS__, LOG_PAIRS_14, odd, LOG_PAIRS_12, odd, LOG_PAIRS_10, odd, LOG_PAIRS_8,   \
              odd, LOG_PAIRS_6, odd, LOG_PAIRS_4, odd, LOG_PAIRS_2, odd)                           \
    (__VA_ARGS__)
#define LOG_(level, event, ...)                                                                    \
    do {                                                                                           \
        if (log_enabled(level)) {                                                                  \
            const struct log_field fields_[] = {LOG_PAIRS_(__VA_ARGS__)};                          \
            log_write(level, event, fields_, sizeof(fields_) / sizeof(fields_[0]));                \
        }                                                                                          \
    } while (0)
/* Each takes the event and at least one pair. */
#define log_debug(event, ...) LOG_(LOG_LEVEL_DEBUG, event, __VA_ARGS__)
#define log_info(event, ...)  LOG_(LOG_LEVEL_INFO, event, __VA_ARGS__)
#define log_warn(event, ...)  LOG_(LOG_LEVEL_WARN, event, __VA_ARGS__)
#define log_error(event, ...) LOG_(LOG_LEVEL_ERROR, event, __VA_ARGS__)
