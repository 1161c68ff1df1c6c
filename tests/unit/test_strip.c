#include "base/buf.h"
#include "base/cleanup.h"
#include "base/mem.h"
#include "front/web/charset.h"
#include "front/web/strip.h"
#include "unit/unit.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static void check(void (*strip)(const char *, size_t, struct buf *), const char *html,
                  const char *expected) {
    struct buf out;
    buf_init(&out, 1 << 20);
    strip(html, strlen(html), &out);
    assert_string_equal(out.data ? out.data : "", expected);
    buf_finish(&out);
}

static void test_what_nobody_sees_is_dropped(void **state) {
    (void)state;
    check(strip_unseen, "a<script>x</script>b", "ab");
    check(strip_unseen, "a<SCRIPT type=\"a>b\">x<p></ScRiPt >b", "ab");
    check(strip_unseen, "a<!-- <b> -->b<!-->c", "ab");
    check(strip_unseen, "a<style>never closed", "a");
    check(strip_unseen, "a<scripted>b", "a<scripted>b");
    check(strip_unseen, "</script>a<", "</script>a<");
    check(strip_unseen, "<svg><path/></svg><p>x", "<p>x");
}

static void test_tags_become_text(void **state) {
    (void)state;
    check(strip_tags, "<h1>One</h1><p>two\n three<br>four</p>", "One\n\ntwo three\nfour");
    check(strip_tags, "a &lt;b&gt; &amp;amp; &#65;&#x42; &nope; 1<2", "a <b> &amp; AB &nope; 1<2");
    check(strip_tags, "<a href=\"x>y\" title='>'>link</a>", "link");
    check(strip_tags, "x<td>1</td><td>2", "x 1 2");
    check(strip_tags, "  <p> ", "");
    check(strip_tags, "&#0;&#xd800;&#x110000;", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    check(strip_tags, "<p>open <b", "open");
}

static void test_time_grows_with_the_length_alone(void **state) {
    (void)state;
    static const char *const pieces[] = {"<div>", "<script>", "<!--", "&#", "<a =\"", "</"};
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        size_t n = strlen(pieces[i]);
        size_t len = n * 800000;
        char *html = xmalloc(len);
        for (size_t at = 0; at < len; at += n)
            memcpy(html + at, pieces[i], n);
        struct buf out;
        buf_init(&out, len);
        clock_t begun = clock();
        strip_unseen(html, len, &out);
        buf_clear(&out);
        strip_tags(html, len, &out);
        assert_true(clock() - begun < 5 * CLOCKS_PER_SEC);
        buf_finish(&out);
        free(html);
    }
}

static void test_a_full_buffer_ends_it(void **state) {
    (void)state;
    struct buf out;
    buf_init(&out, 5);
    strip_unseen("<p>1234567890", 13, &out);
    assert_int_equal(out.len, 5);
    buf_finish(&out);
    buf_init(&out, 5);
    charset_to_utf8("text/html; charset=latin1", "\xfc\xfc\xfc\xfc", 4, &out);
    assert_int_equal(out.len, 4); /* no half character */
    buf_finish(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PLAIN(test_what_nobody_sees_is_dropped),
        PLAIN(test_tags_become_text),
        PLAIN(test_time_grows_with_the_length_alone),
        PLAIN(test_a_full_buffer_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
