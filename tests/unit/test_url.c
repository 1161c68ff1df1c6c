#include "front/http/url.h"
#include "unit/unit.h"

#include <stdlib.h>
#include <string.h>

static void decodes(const char *text, bool plus, const char *wanted) {
    char *v = url_decode(text, strlen(text), plus);
    if (!wanted)
        assert_null(v);
    else
        assert_string_equal(v, wanted);
    free(v);
}

static void test_escapes(void **state) {
    (void)state;
    decodes("", false, "");
    decodes("a%20b+c", false, "a b+c");
    decodes("a%20b+c", true, "a b c");
    decodes("%C3%a4", false, "\xc3\xa4");
    decodes("%2F%2e%2e", false, "/..");
    decodes("%", false, NULL);
    decodes("%2", false, NULL);
    decodes("a%2", false, NULL);
    decodes("%zz", false, NULL);
    decodes("%2g", false, NULL);
    decodes("%00", false, NULL);
    decodes("%ff", false, NULL);
    decodes("%c3", false, NULL);
    decodes("%ed%a0%80", false, NULL);
}

static void gets(const char *query, const char *name, int rc, const char *wanted) {
    char *v = NULL;
    struct err e;
    assert_int_equal(url_query_get(query, name, &v, &e), rc);
    if (rc == 1)
        assert_string_equal(v, wanted);
    free(v);
}

static void test_query_parameters(void **state) {
    (void)state;
    gets("", "a", 0, NULL);
    gets("a=1&b=2", "b", 1, "2");
    gets("a=1&a=2", "a", 1, "1");
    gets("ab=1", "a", 0, NULL);
    gets("a", "a", 1, "");
    gets("a=", "a", 1, "");
    gets("&&a=1&", "a", 1, "1");
    gets("a=b=c", "a", 1, "b=c");
    gets("%61=%31", "a", 1, "1");
    gets("a=%zz", "a", -ERR_BAD_REQUEST, NULL);
    gets("%zz=1&a=2", "a", 1, "2");
    gets("a=x+y%2B", "a", 1, "x y+");
}

int main(void) {
    const struct CMUnitTest tests[] = {PLAIN(test_escapes), PLAIN(test_query_parameters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
