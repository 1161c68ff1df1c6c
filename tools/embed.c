/* A build tool: writes the files named on the command line, joined by newlines, as one C array.
 * usage: embed NAME OUT IN... */

#include <stdio.h>
#include <stdlib.h>

static int copy(FILE *out, const char *path) {
    FILE *in = fopen(path, "rb");
    if (!in) {
        perror(path);
        return -1;
    }
    int c;
    for (int column = 0; (c = fgetc(in)) != EOF; column++)
        fprintf(out, "'\\%o',%s", (unsigned)c, column % 12 == 11 ? "\n" : "");
    fprintf(out, "'\\n',\n");
    fclose(in);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: embed NAME OUT IN...\n");
        return EXIT_FAILURE;
    }
    FILE *out = fopen(argv[2], "wb");
    if (!out) {
        perror(argv[2]);
        return EXIT_FAILURE;
    }
    fprintf(out, "extern const char %s[];\nconst char %s[] = {\n", argv[1], argv[1]);
    for (int i = 3; i < argc; i++)
        if (copy(out, argv[i]) < 0)
            return EXIT_FAILURE;
    fprintf(out, "0};\n");
    return fclose(out) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
