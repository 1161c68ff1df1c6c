#include "front/cli/terminal.h"

#include "base/cleanup.h"
#include "base/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint32_t code_point(const unsigned char *p, size_t n) {
    uint32_t v = n == 1 ? p[0] : p[0] & (0x7f >> n);
    for (size_t i = 1; i < n; i++)
        v = v << 6 | (p[i] & 0x3f);
    return v;
}

/* True of what a terminal obeys, or what makes a text look like another one. */
static bool is_unsafe(uint32_t c) {
    static const struct {
        uint32_t from, to;
    } ranges[] = {
        {0x00, 0x08},     {0x0b, 0x1f},     {0x7f, 0x9f}, /* controls, C0 and C1 */
        {0xad, 0xad},                                     /* soft hyphen */
        {0x61c, 0x61c},   {0x200e, 0x200f},               /* marks of direction */
        {0x200b, 0x200b}, {0x2060, 0x2064},               /* nothing to see */
        {0x2028, 0x202e},                                 /* ends of lines; embedding, override */
        {0x2066, 0x206f},                                 /* isolates */
        {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe0fff}, /* tags */
    };
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
        if (c >= ranges[i].from && c <= ranges[i].to)
            return true;
    return false;
}

/* The length of what is at text, and whether it can be shown as it is. Bytes that are no UTF-8 are
 * taken one by one: a terminal might read them as something else. */
static size_t look_at(const char *text, size_t len, uint32_t *ret_code, bool *ret_safe) {
    size_t n = utf8_sequence(text, len);
    *ret_code = n ? code_point((const unsigned char *)text, n) : (unsigned char)*text;
    *ret_safe = n > 0 && !is_unsafe(*ret_code);
    return n ? n : 1;
}

static const char *escape_of(uint32_t code, size_t n, char out[16]) {
    (void)snprintf(out, 16, n == 1 ? "\\x%02x" : code > 0xffff ? "\\U%08x" : "\\u%04x", code);
    return out;
}

void terminal_clean(struct buf *out, const char *text, size_t len) {
    for (size_t i = 0, n; i < len; i += n) {
        uint32_t code;
        bool safe;
        char escape[16];
        n = look_at(text + i, len - i, &code, &safe);
        if (safe)
            (void)buf_add(out, text + i, n);
        else
            (void)buf_add_str(out, escape_of(code, n, escape));
    }
}

void terminal_print(FILE *out, const char *text, size_t len) {
    bool careful = isatty(fileno(out)) == 1;
    if (!text)
        return;
    if (!careful) {
        (void)fwrite(text, 1, len, out);
        return;
    }
    for (size_t at = 0; at < len;) {
        _cleanup_(buf) struct buf clean;
        size_t n = utf8_floor(text + at, len - at, 4096);
        buf_init(&clean, (size_t)16 * 4096);
        terminal_clean(&clean, text + at, n);
        (void)fwrite(clean.data, 1, clean.len, out);
        at += n;
    }
}

void terminal_line(FILE *out, const char *text) {
    terminal_print(out, text, text ? strlen(text) : 0);
    (void)fputc('\n', out);
}

void terminal_say(FILE *out, const char *before, const char *text) {
    (void)fputs(before, out);
    terminal_line(out, text);
}

void terminal_json(const json_t *j) {
    _cleanup_(free) char *text = j ? json_dumps(j, JSON_INDENT(2) | JSON_ENCODE_ANY) : NULL;
    terminal_line(stdout, text ? text : "null");
}
