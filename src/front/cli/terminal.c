#include "front/cli/terminal.h"

#include <stdbool.h>
#include <unistd.h>

void terminal_print(FILE *out, const char *text, size_t len) {
    if (!text)
        return;
    bool careful = isatty(fileno(out)) == 1;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        /* U+0080 to U+009F are control characters too: C2 80 to C2 9F in UTF-8. */
        bool c1 = c == 0xc2 && i + 1 < len && (unsigned char)text[i + 1] < 0xa0;
        if (!careful || (c >= 0x20 && c != 0x7f && !c1) || c == '\n' || c == '\t') {
            (void)fputc(c, out);
        } else if (c1) {
            (void)fprintf(out, "\\u%04x", (unsigned char)text[++i]);
        } else {
            (void)fprintf(out, "\\x%02x", c);
        }
    }
}
