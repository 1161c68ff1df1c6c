#include "front/web/charset.h"

#include "base/cleanup.h"
#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <iconv.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { META_BYTES = 1024, LABEL_SIZE = 32, PIECE = 4096 };

/* Labels as pages write them, and what the C library calls it. Its converters are not all equally
 * sound, so no others are asked for. */
static const struct {
    const char *label;
    const char *name;
} known[] = {
    {"utf-8", "UTF-8"},
    {"utf8", "UTF-8"},
    {"us-ascii", "CP1252"},
    {"ascii", "CP1252"},
    {"iso-8859-1", "CP1252"},
    {"latin1", "CP1252"},
    {"windows-1252", "CP1252"},
    {"cp1252", "CP1252"},
    {"iso-8859-2", "ISO-8859-2"},
    {"iso-8859-3", "ISO-8859-3"},
    {"iso-8859-4", "ISO-8859-4"},
    {"iso-8859-5", "ISO-8859-5"},
    {"iso-8859-6", "ISO-8859-6"},
    {"iso-8859-7", "ISO-8859-7"},
    {"iso-8859-8", "ISO-8859-8"},
    {"iso-8859-9", "CP1254"},
    {"iso-8859-10", "ISO-8859-10"},
    {"iso-8859-13", "ISO-8859-13"},
    {"iso-8859-14", "ISO-8859-14"},
    {"iso-8859-15", "ISO-8859-15"},
    {"iso-8859-16", "ISO-8859-16"},
    {"windows-1250", "CP1250"},
    {"windows-1251", "CP1251"},
    {"windows-1253", "CP1253"},
    {"windows-1254", "CP1254"},
    {"windows-1255", "CP1255"},
    {"windows-1256", "CP1256"},
    {"windows-1257", "CP1257"},
    {"windows-1258", "CP1258"},
    {"koi8-r", "KOI8-R"},
    {"koi8-u", "KOI8-U"},
    {"macintosh", "MACINTOSH"},
    {"shift_jis", "CP932"},
    {"shift-jis", "CP932"},
    {"sjis", "CP932"},
    {"windows-31j", "CP932"},
    {"euc-jp", "EUC-JP"},
    {"gb2312", "GB18030"},
    {"gbk", "GB18030"},
    {"gb18030", "GB18030"},
    {"big5", "BIG5-HKSCS"},
    {"euc-kr", "CP949"},
    {"ks_c_5601-1987", "CP949"},
    {"utf-16le", "UTF-16LE"},
    {"utf-16be", "UTF-16BE"},
    {"utf-16", "UTF-16LE"},
};

/* Converters are code that the C library loads when it is first asked for one, which a locked
 * server cannot: these are open from the start, for good. */
static iconv_t prepared[ARRAY_LEN(known)];

void charset_prepare(void) {
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (!prepared[i])
            prepared[i] = iconv_open("UTF-8", known[i].name);
}

static iconv_t charset_converter(const char *name) {
    charset_prepare(); /* in tests nobody did */
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(known[i].name, name) == 0)
            return prepared[i];
    return (iconv_t)-1; /* NOLINT: its own way to say so */
}

static const char *name_of(const char *label) {
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcasecmp(known[i].label, label) == 0)
            return known[i].name;
    return NULL;
}

/* What follows "charset=" in text, as the library's name; NULL if there is none that is known. */
static const char *find_label(const char *text, size_t len) {
    static const char key[] = "charset";
    for (size_t i = 0; i + sizeof(key) < len; i++) {
        char label[LABEL_SIZE];
        size_t n = 0;
        size_t at = i + sizeof(key) - 1;
        if (strncasecmp(text + i, key, sizeof(key) - 1) != 0)
            continue;
        while (at < len && strchr(" \t", text[at]) && text[at])
            at++;
        if (at == len || text[at++] != '=')
            continue;
        while (at < len && text[at] && strchr(" \t\"'", text[at]))
            at++;
        while (at < len && n + 1 < sizeof(label) &&
               (isalnum((unsigned char)text[at]) || strchr("-_", text[at])) && text[at])
            label[n++] = text[at++];
        label[n] = 0;
        const char *name = name_of(label);
        if (name)
            return name;
    }
    return NULL;
}

static const char *by_mark(const char *data, size_t len, size_t *ret_skip) {
    static const struct {
        const char *mark;
        size_t n;
        const char *name;
    } marks[] = {
        {"\xef\xbb\xbf", 3, "UTF-8"}, {"\xff\xfe", 2, "UTF-16LE"}, {"\xfe\xff", 2, "UTF-16BE"}};
    for (size_t i = 0; i < ARRAY_LEN(marks); i++)
        if (len >= marks[i].n && memcmp(data, marks[i].mark, marks[i].n) == 0) {
            *ret_skip = marks[i].n;
            return marks[i].name;
        }
    return NULL;
}

/* Until out is full; the C library takes sequences for UTF-8 that are none any more. */
static bool add_utf8(struct buf *out, const char *s, size_t len) {
    for (size_t i = 0; i < len;) {
        size_t n = utf8_sequence(s + i, len - i);
        if (!buf_add(out, n > 0 ? s + i : "\xef\xbf\xbd", n > 0 ? n : 3))
            return false;
        i += n > 0 ? n : 1;
    }
    return true;
}

static void charset_convert(const char *name, const char *data, size_t len, struct buf *out) {
    iconv_t cd = charset_converter(name);
    char *in = (char *)(uintptr_t)data;
    char piece[PIECE];
    if (cd == (iconv_t)-1) /* NOLINT: its own way to say so */
        return;
    (void)iconv(cd, NULL, NULL, NULL, NULL); /* as new */
    while (len > 0) {
        char *to = piece;
        size_t room = sizeof(piece);
        size_t rc = iconv(cd, &in, &len, &to, &room);
        bool bad = rc == (size_t)-1 && errno != E2BIG;
        if (!add_utf8(out, piece, sizeof(piece) - room) || (bad && !add_utf8(out, "\xff", 1)))
            break;
        in += bad;
        len -= bad;
    }
}

void charset_to_utf8(const char *type, const char *data, size_t len, struct buf *out) {
    size_t skip = 0;
    const char *mark = by_mark(data, len, &skip);
    const char *name = type ? find_label(type, strlen(type)) : NULL;
    if (!name)
        name = mark;
    if (!name)
        name = find_label(data, MIN(len, META_BYTES));
    /* A page that says UTF-16 in letters of one byte each is not. */
    if (name && !mark && strncmp(name, "UTF-16", 6) == 0 && len > 1 && data[0] && data[1])
        name = "UTF-8";
    if (!name)
        name = utf8_is_valid(data, utf8_floor(data, len, len)) ? "UTF-8" : "CP1252";
    if (strcmp(name, "UTF-8") == 0)
        (void)add_utf8(out, data + skip, len - skip);
    else
        charset_convert(name, data + skip, len - skip, out);
}
