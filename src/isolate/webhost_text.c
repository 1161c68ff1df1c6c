/* UTF-8, UTF-16 and windows-1252 as the Encoding standard has them, forgiving base64, and the
 * domain names of URLs (UTS 46, through ICU). JSC's own UTF-8 conversion is not used: it stops at
 * the first lone surrogate, where the standard wants U+FFFD. */

#include "isolate/webhost_priv.h"

#include <stdlib.h>
#include <string.h>
#include <unicode/uidna.h>

static UIDNA *idna;

/* A string argument as UTF-16. Only strings are taken: converting anything else could run the
 * program's code in the middle of a native call. */
static bool text_arg(JSContextRef ctx, size_t argc, const JSValueRef argv[], size_t i,
                     JSStringRef *ret_s, JSValueRef *exc) {
    if (i >= argc || !JSValueIsString(ctx, argv[i])) {
        webhost_throw(ctx, exc, "webhost: a string is needed");
        return false;
    }
    JSStringRef s = JSValueToStringCopy(ctx, argv[i], exc);
    if (!s)
        return false;
    if (JSStringGetLength(s) > WEBHOST_MAX_BYTES) {
        JSStringRelease(s);
        webhost_throw(ctx, exc, "the string is too long");
        return false;
    }
    *ret_s = s;
    return true;
}

static JSValueRef text_value(JSContextRef ctx, const JSChar *chars, size_t len) {
    JSStringRef s = JSStringCreateWithCharacters(chars, len);
    JSValueRef v = JSValueMakeString(ctx, s);
    JSStringRelease(s);
    return v;
}

/* The code point at chars[*i], moving *i past it; a lone surrogate is U+FFFD. */
static uint32_t next_scalar(const JSChar *chars, size_t len, size_t *i) {
    uint32_t c = chars[(*i)++];
    if (c < 0xD800 || c > 0xDFFF)
        return c;
    if (c <= 0xDBFF && *i < len && chars[*i] >= 0xDC00 && chars[*i] <= 0xDFFF)
        return 0x10000 + ((c - 0xD800) << 10) + (chars[(*i)++] - 0xDC00u);
    return 0xFFFD;
}

static size_t scalar_size(uint32_t c) {
    return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
}

static uint8_t *put_scalar(uint8_t *out, uint32_t c) {
    if (c < 0x80) {
        *out++ = (uint8_t)c;
    } else if (c < 0x800) {
        *out++ = (uint8_t)(0xC0 | c >> 6);
        *out++ = (uint8_t)(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        *out++ = (uint8_t)(0xE0 | c >> 12);
        *out++ = (uint8_t)(0x80 | (c >> 6 & 0x3F));
        *out++ = (uint8_t)(0x80 | (c & 0x3F));
    } else {
        *out++ = (uint8_t)(0xF0 | c >> 18);
        *out++ = (uint8_t)(0x80 | (c >> 12 & 0x3F));
        *out++ = (uint8_t)(0x80 | (c >> 6 & 0x3F));
        *out++ = (uint8_t)(0x80 | (c & 0x3F));
    }
    return out;
}

/* How much of the beginning is ASCII, to the last whole block: most text is, and the compiler can
 * do these loops many units at a time. */
static size_t ascii_prefix(const JSChar *chars, size_t len) {
    enum { BLOCK = 64 };
    size_t n = 0;
    for (; n + BLOCK <= len; n += BLOCK) {
        JSChar any = 0;
        for (size_t i = 0; i < BLOCK; i++)
            any |= chars[n + i];
        if (any >= 0x80)
            break;
    }
    return n;
}

/* utf8Encode(string): Uint8Array */
WEBHOST_FN(fn_utf8_encode) {
    WEBHOST_UNUSED;
    JSStringRef s;
    if (!text_arg(ctx, argc, argv, 0, &s, exc))
        return JSValueMakeUndefined(ctx);
    const JSChar *chars = JSStringGetCharactersPtr(s);
    size_t len = JSStringGetLength(s), ascii = ascii_prefix(chars, len), size = ascii;
    for (size_t i = ascii; i < len;)
        size += scalar_size(next_scalar(chars, len, &i));
    uint8_t *data = size <= WEBHOST_MAX_BYTES ? malloc(size ? size : 1) : NULL;
    for (size_t i = 0; data && i < ascii; i++)
        data[i] = (uint8_t)chars[i];
    uint8_t *out = data ? data + ascii : NULL;
    for (size_t i = ascii; data && i < len;)
        out = put_scalar(out, next_scalar(chars, len, &i));
    JSStringRelease(s);
    return webhost_take(ctx, data, size, exc);
}

/* utf8EncodeInto(string, Uint8Array, counts): fills the array; counts is the 16 bytes of a
 * Float64Array that receives what was read (in UTF-16 units) and written (in bytes). */
WEBHOST_FN(fn_utf8_encode_into) {
    WEBHOST_UNUSED;
    JSStringRef s;
    struct bytes dest, counts;
    if (!webhost_bytes(ctx, argc, argv, 1, &dest, exc) ||
        !webhost_bytes(ctx, argc, argv, 2, &counts, exc) || !text_arg(ctx, argc, argv, 0, &s, exc))
        return JSValueMakeUndefined(ctx);
    const JSChar *chars = JSStringGetCharactersPtr(s);
    size_t len = JSStringGetLength(s), read = 0, written = 0;
    while (read < len) {
        size_t i = read;
        uint32_t c = next_scalar(chars, len, &i);
        if (scalar_size(c) > dest.len - written)
            break;
        written = (size_t)(put_scalar(dest.data + written, c) - dest.data);
        read = i;
    }
    JSStringRelease(s);
    double result[2] = {(double)read, (double)written};
    if (counts.len == sizeof result)
        memcpy(counts.data, result, sizeof result);
    return JSValueMakeUndefined(ctx);
}

/* The largest prefix of a malformed or truncated sequence at s that one U+FFFD stands for, or the
 * length of the whole sequence with its code point. `cut` tells that the input ended inside. */
static size_t utf8_step(const uint8_t *s, size_t len, uint32_t *ret_c, bool *ret_cut) {
    *ret_cut = false;
    *ret_c = s[0];
    if (s[0] < 0x80)
        return 1;
    *ret_c = 0xFFFD;
    size_t need = s[0] >= 0xC2 && s[0] <= 0xDF   ? 1
                  : s[0] >= 0xE0 && s[0] <= 0xEF ? 2
                  : s[0] >= 0xF0 && s[0] <= 0xF4 ? 3
                                                 : 0;
    if (need == 0)
        return 1;
    uint8_t lower = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
    uint8_t upper = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    uint32_t c = s[0] & (0x3Fu >> need);
    for (size_t i = 1; i <= need; i++) {
        if (i == len) {
            *ret_cut = true;
            return i;
        }
        if (s[i] < lower || s[i] > upper)
            return i;
        c = c << 6 | (s[i] & 0x3F);
        lower = 0x80;
        upper = 0xBF;
    }
    /* U+FFFD itself is told from an error by its length: 3 bytes that all matched. */
    *ret_c = c == 0xFFFD ? 0x80000000u | c : c;
    return need + 1;
}

/* utf8Tail(Uint8Array): how many bytes at the end begin a sequence that may yet be completed. */
WEBHOST_FN(fn_utf8_tail) {
    WEBHOST_UNUSED;
    struct bytes b;
    if (!webhost_bytes(ctx, argc, argv, 0, &b, exc))
        return JSValueMakeUndefined(ctx);
    for (size_t back = 1; back <= 3 && back <= b.len; back++) {
        uint32_t c;
        bool cut;
        const uint8_t *s = b.data + b.len - back;
        if (*s >= 0x80 && *s < 0xC0)
            continue;
        utf8_step(s, back, &c, &cut);
        return JSValueMakeNumber(ctx, cut ? (double)back : 0);
    }
    return JSValueMakeNumber(ctx, 0);
}

static bool is_plain_ascii(const uint8_t *s, size_t len) {
    uint8_t any = 0, zero = 0;
    for (size_t i = 0; i < len; i++) {
        any |= s[i];
        zero |= s[i] == 0;
    }
    return any < 0x80 && !zero;
}

/* ASCII makes an 8-bit string in JSC, half the size of any other. */
static JSValueRef ascii_value(JSContextRef ctx, const uint8_t *s, size_t len, JSValueRef *exc) {
    char *z = malloc(len + 1);
    if (!z)
        return webhost_throw(ctx, exc, "out of memory");
    memcpy(z, s, len);
    z[len] = 0;
    JSStringRef str = JSStringCreateWithUTF8CString(z);
    free(z);
    JSValueRef v = JSValueMakeString(ctx, str);
    JSStringRelease(str);
    return v;
}

/* utf8Decode(Uint8Array, fatal): string, or null if fatal and malformed */
WEBHOST_FN(fn_utf8_decode) {
    WEBHOST_UNUSED;
    struct bytes b;
    size_t fatal;
    if (!webhost_bytes(ctx, argc, argv, 0, &b, exc) ||
        !webhost_size(ctx, argc, argv, 1, 1, &fatal, exc))
        return JSValueMakeUndefined(ctx);
    if (is_plain_ascii(b.data, b.len))
        return ascii_value(ctx, b.data, b.len, exc);
    JSChar *out = malloc(b.len * sizeof *out);
    if (!out)
        return webhost_throw(ctx, exc, "out of memory");
    size_t n = 0;
    for (size_t i = 0; i < b.len;) {
        uint32_t c;
        bool cut;
        i += utf8_step(b.data + i, b.len - i, &c, &cut);
        if (c == 0xFFFD && fatal) {
            free(out);
            return JSValueMakeNull(ctx);
        }
        c &= 0x7FFFFFFF;
        if (c >= 0x10000) {
            out[n++] = (JSChar)(0xD800 + ((c - 0x10000) >> 10));
            out[n++] = (JSChar)(0xDC00 + ((c - 0x10000) & 0x3FF));
        } else {
            out[n++] = (JSChar)c;
        }
    }
    JSValueRef v = text_value(ctx, out, n);
    free(out);
    return v;
}

/* utf16Decode(Uint8Array, fatal, bigEndian): string, or null if fatal and malformed */
WEBHOST_FN(fn_utf16_decode) {
    WEBHOST_UNUSED;
    struct bytes b;
    size_t fatal, big;
    if (!webhost_bytes(ctx, argc, argv, 0, &b, exc) ||
        !webhost_size(ctx, argc, argv, 1, 1, &fatal, exc) ||
        !webhost_size(ctx, argc, argv, 2, 1, &big, exc))
        return JSValueMakeUndefined(ctx);
    size_t units = b.len / 2, n = 0;
    JSChar *out = malloc((units + 1) * sizeof *out);
    if (!out)
        return webhost_throw(ctx, exc, "out of memory");
    bool bad = b.len % 2 != 0;
    for (size_t i = 0; i < units; i++) {
        const uint8_t *p = b.data + 2 * i;
        out[n++] = (JSChar)(big ? p[0] << 8 | p[1] : p[1] << 8 | p[0]);
    }
    for (size_t i = 0; i < n;) {
        size_t at = i;
        if (next_scalar(out, n, &i) == 0xFFFD && out[at] != 0xFFFD) {
            out[at] = 0xFFFD;
            bad = true;
        }
    }
    /* Half a unit at the end: with a lone lead surrogate before it, the two are one error. */
    if (b.len % 2 && !(n && out[n - 1] == 0xFFFD && units &&
                       ((big ? b.data[2 * units - 2] : b.data[2 * units - 1]) & 0xFC) == 0xD8))
        out[n++] = 0xFFFD;
    JSValueRef v = bad && fatal ? JSValueMakeNull(ctx) : text_value(ctx, out, n);
    free(out);
    return v;
}

static const JSChar windows_1252[32] = {
    0x20AC, 0x81,   0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160,
    0x2039, 0x0152, 0x8D,   0x017D, 0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0x9D,   0x017E, 0x0178};

/* latin1Decode(Uint8Array, windows): string; bytes 0x80 to 0x9F are windows-1252's if windows */
WEBHOST_FN(fn_latin1_decode) {
    WEBHOST_UNUSED;
    struct bytes b;
    size_t windows;
    if (!webhost_bytes(ctx, argc, argv, 0, &b, exc) ||
        !webhost_size(ctx, argc, argv, 1, 1, &windows, exc))
        return JSValueMakeUndefined(ctx);
    if (is_plain_ascii(b.data, b.len))
        return ascii_value(ctx, b.data, b.len, exc);
    JSChar *out = malloc(b.len * sizeof *out);
    if (!out)
        return webhost_throw(ctx, exc, "out of memory");
    for (size_t i = 0; i < b.len; i++) {
        uint8_t c = b.data[i];
        out[i] = windows && c >= 0x80 && c < 0xA0 ? windows_1252[c - 0x80] : c;
    }
    JSValueRef v = text_value(ctx, out, b.len);
    free(out);
    return v;
}

static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* btoa(string): string, or null if a character is beyond U+00FF */
WEBHOST_FN(fn_btoa) {
    WEBHOST_UNUSED;
    JSStringRef s;
    if (!text_arg(ctx, argc, argv, 0, &s, exc))
        return JSValueMakeUndefined(ctx);
    const JSChar *in = JSStringGetCharactersPtr(s);
    size_t len = JSStringGetLength(s), n = 0;
    bool wide = false;
    for (size_t i = 0; i < len; i++)
        wide |= in[i] > 0xFF;
    uint8_t *out = wide ? NULL : malloc((len + 2) / 3 * 4 + 1);
    for (size_t i = 0; out && i < len; i += 3) {
        uint32_t b1 = i + 1 < len ? in[i + 1] : 0, b2 = i + 2 < len ? in[i + 2] : 0;
        uint32_t v = (uint32_t)in[i] << 16 | b1 << 8 | b2;
        out[n++] = (uint8_t)base64_digits[v >> 18];
        out[n++] = (uint8_t)base64_digits[v >> 12 & 63];
        out[n++] = i + 1 < len ? (uint8_t)base64_digits[v >> 6 & 63] : '=';
        out[n++] = i + 2 < len ? (uint8_t)base64_digits[v & 63] : '=';
    }
    JSStringRelease(s);
    if (wide)
        return JSValueMakeNull(ctx);
    if (!out)
        return webhost_throw(ctx, exc, "out of memory");
    JSValueRef v = ascii_value(ctx, out, n, exc);
    free(out);
    return v;
}

static int base64_value(JSChar c) {
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* The forgiving-base64 decode of the Infra standard; false if it fails. */
static bool webhost_base64_decode(const JSChar *in, size_t len, uint8_t *out, size_t *ret_n) {
    size_t digits = 0, pads = 0, n = 0;
    uint32_t acc = 0;
    for (size_t i = 0; i < len; i++) {
        JSChar c = in[i];
        if (c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r')
            continue;
        if (c == '=') {
            pads++;
            continue;
        }
        int v = base64_value(c);
        if (v < 0 || pads)
            return false;
        acc = acc << 6 | (uint32_t)v;
        if (++digits % 4 == 0) {
            out[n++] = (uint8_t)(acc >> 16);
            out[n++] = (uint8_t)(acc >> 8);
            out[n++] = (uint8_t)acc;
            acc = 0;
        }
    }
    if (digits % 4 == 1 || pads > 2 || (pads && (digits + pads) % 4))
        return false;
    if (digits % 4 == 2) {
        out[n++] = (uint8_t)(acc >> 4);
    } else if (digits % 4 == 3) {
        out[n++] = (uint8_t)(acc >> 10);
        out[n++] = (uint8_t)(acc >> 2);
    }
    *ret_n = n;
    return true;
}

/* atob(string): Uint8Array, or null if it is not base64 */
WEBHOST_FN(fn_atob) {
    WEBHOST_UNUSED;
    JSStringRef s;
    if (!text_arg(ctx, argc, argv, 0, &s, exc))
        return JSValueMakeUndefined(ctx);
    size_t len = JSStringGetLength(s), n = 0;
    uint8_t *out = malloc(len / 4 * 3 + 3);
    bool ok = out && webhost_base64_decode(JSStringGetCharactersPtr(s), len, out, &n);
    JSStringRelease(s);
    if (out && !ok) {
        free(out);
        return JSValueMakeNull(ctx);
    }
    return webhost_take(ctx, out, n, exc);
}

/* domainToAscii(string): string, or null if the domain is not valid (UTS 46, not strict) */
WEBHOST_FN(fn_domain_to_ascii) {
    WEBHOST_UNUSED;
    JSStringRef s;
    if (!text_arg(ctx, argc, argv, 0, &s, exc))
        return JSValueMakeUndefined(ctx);
    size_t len = JSStringGetLength(s);
    /* A mapped code point takes at most 18 units (U+FDFA), and Punycode fewer than 6 for each. A
     * domain that does not fit in this is not a domain. Punycode's time grows with the square. */
    enum { CAP = 65536 };
    UChar *out = len <= 16384 ? malloc(CAP * sizeof *out) : NULL;
    UErrorCode status = U_ZERO_ERROR;
    UIDNAInfo info = UIDNA_INFO_INITIALIZER;
    int32_t n = out ? uidna_nameToASCII(idna, JSStringGetCharactersPtr(s), (int32_t)len, out, CAP,
                                        &info, &status)
                    : 0;
    JSStringRelease(s);
    const uint32_t allowed = UIDNA_ERROR_EMPTY_LABEL | UIDNA_ERROR_LABEL_TOO_LONG |
                             UIDNA_ERROR_DOMAIN_NAME_TOO_LONG | UIDNA_ERROR_LEADING_HYPHEN |
                             UIDNA_ERROR_TRAILING_HYPHEN | UIDNA_ERROR_HYPHEN_3_4;
    bool ok = out && U_SUCCESS(status) && n <= CAP && !(info.errors & ~allowed);
    JSValueRef v = ok ? text_value(ctx, out, (size_t)n) : JSValueMakeNull(ctx);
    free(out);
    return v;
}

void webhost_install_text(JSContextRef ctx, JSObjectRef host) {
    UErrorCode status = U_ZERO_ERROR;
    if (!idna)
        idna = uidna_openUTS46(
            UIDNA_CHECK_BIDI | UIDNA_CHECK_CONTEXTJ | UIDNA_NONTRANSITIONAL_TO_ASCII, &status);
    if (!idna)
        abort();
    webhost_define(ctx, host, "utf8Encode", fn_utf8_encode);
    webhost_define(ctx, host, "utf8EncodeInto", fn_utf8_encode_into);
    webhost_define(ctx, host, "utf8Tail", fn_utf8_tail);
    webhost_define(ctx, host, "utf8Decode", fn_utf8_decode);
    webhost_define(ctx, host, "utf16Decode", fn_utf16_decode);
    webhost_define(ctx, host, "latin1Decode", fn_latin1_decode);
    webhost_define(ctx, host, "btoa", fn_btoa);
    webhost_define(ctx, host, "atob", fn_atob);
    webhost_define(ctx, host, "domainToAscii", fn_domain_to_ascii);
}
