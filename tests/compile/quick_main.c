/* Programs through compile/quick.c: "<bytes>\n<request>" on standard input, and for each
 * "<bytes>\n<response>" on standard output, with no bytes for what is not plain. */

#include "base/cleanup.h"
#include "compile/quick.h"

#include <stdio.h>
#include <stdlib.h>

enum { REQUEST_MAX = 64 << 20 };

int main(void) {
    unsigned len;
    while (scanf("%u", &len) == 1 && len <= REQUEST_MAX && getchar() == '\n') {
        _cleanup_(free) char *request = malloc(len + 1U);
        size_t n = 0;
        if (!request || fread(request, 1, len, stdin) != len)
            return 1;
        _cleanup_(free) char *response = quick_compile(request, len, &n);
        (void)fprintf(stdout, "%zu\n", response ? n : 0);
        (void)fwrite(response, 1, response ? n : 0, stdout);
        (void)fflush(stdout);
    }
    return 0;
}
