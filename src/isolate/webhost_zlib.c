/* CompressionStream and DecompressionStream: a zlib stream behind an opaque object. Output is
 * pulled in pieces of a fixed size, so what a small input expands to is never in memory at once. */

#include "isolate/webhost_priv.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { PIECE = 65536 };

struct squeezer {
    z_stream z;
    bool compress;
    bool finish; /* no more input will come */
    bool done;   /* the stream's own end was reached */
    uint8_t *input;
};

static void squeezer_destroy(struct squeezer *s) {
    if (!s)
        return;
    if (s->compress)
        deflateEnd(&s->z);
    else
        inflateEnd(&s->z);
    free(s->input);
    free(s);
}

static void webhost_zlib_on_finalize(JSObjectRef o) {
    squeezer_destroy(JSObjectGetPrivate(o));
}

static JSClassRef squeezer_class;

static struct squeezer *squeezer_arg(JSContextRef ctx, size_t argc, const JSValueRef argv[],
                                     JSValueRef *exc) {
    if (argc < 1 || !JSValueIsObjectOfClass(ctx, argv[0], squeezer_class)) {
        webhost_throw(ctx, exc, "webhost: a zlib stream is needed");
        return NULL;
    }
    return JSObjectGetPrivate((JSObjectRef)argv[0]);
}

/* zlibOpen(compress, format): 0 gzip, 1 deflate (zlib), 2 deflate-raw */
WEBHOST_FN(fn_open) {
    WEBHOST_UNUSED;
    static const int window_bits[] = {15 + 16, 15, -15};
    size_t compress, format;
    if (!webhost_size(ctx, argc, argv, 0, 1, &compress, exc) ||
        !webhost_size(ctx, argc, argv, 1, 2, &format, exc))
        return JSValueMakeUndefined(ctx);
    struct squeezer *s = calloc(1, sizeof *s);
    if (!s)
        return webhost_throw(ctx, exc, "out of memory");
    s->compress = compress != 0;
    int rc = compress ? deflateInit2(&s->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window_bits[format],
                                     8, Z_DEFAULT_STRATEGY)
                      : inflateInit2(&s->z, window_bits[format]);
    if (rc != Z_OK) {
        free(s);
        return webhost_throw(ctx, exc, "out of memory");
    }
    return JSObjectMake(ctx, squeezer_class, s);
}

/* zlibPush(stream, Uint8Array, last): the next input; what was pushed before must be used up */
WEBHOST_FN(fn_push) {
    WEBHOST_UNUSED;
    struct bytes data;
    size_t last;
    struct squeezer *s = squeezer_arg(ctx, argc, argv, exc);
    if (!s || !webhost_bytes(ctx, argc, argv, 1, &data, exc) ||
        !webhost_size(ctx, argc, argv, 2, 1, &last, exc))
        return JSValueMakeUndefined(ctx);
    if (s->z.avail_in)
        return webhost_throw(ctx, exc, "webhost: input is still pending");
    /* A copy of its own: zlib keeps the pointer between calls and the array may go away. */
    uint8_t *input = malloc(data.len ? data.len : 1);
    if (!input)
        return webhost_throw(ctx, exc, "out of memory");
    memcpy(input, data.data, data.len);
    free(s->input);
    s->input = input;
    s->z.next_in = input;
    s->z.avail_in = (uInt)data.len;
    s->finish = last != 0;
    return JSValueMakeUndefined(ctx);
}

/* zlibPull(stream): the next piece of output; null when more input is needed (or the end was
 * reached); false when the input is malformed, truncated or followed by anything. */
WEBHOST_FN(fn_pull) {
    WEBHOST_UNUSED;
    struct squeezer *s = squeezer_arg(ctx, argc, argv, exc);
    if (!s)
        return JSValueMakeUndefined(ctx);
    if (s->done)
        return s->z.avail_in ? JSValueMakeBoolean(ctx, false) : JSValueMakeNull(ctx);
    uint8_t *out = malloc(PIECE);
    if (!out)
        return webhost_throw(ctx, exc, "out of memory");
    s->z.next_out = out;
    s->z.avail_out = PIECE;
    int rc = s->compress ? deflate(&s->z, s->finish ? Z_FINISH : Z_NO_FLUSH)
                         : inflate(&s->z, Z_NO_FLUSH);
    s->done = rc == Z_STREAM_END;
    size_t n = PIECE - s->z.avail_out;
    bool bad = rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR;
    bool short_input = !s->compress && s->finish && !s->done && !s->z.avail_in && n == 0;
    if (bad || short_input || n == 0) {
        free(out);
        if (bad || short_input || (s->done && s->z.avail_in))
            return JSValueMakeBoolean(ctx, false);
        return JSValueMakeNull(ctx);
    }
    uint8_t *fit = n < PIECE ? realloc(out, n) : out;
    return webhost_take(ctx, fit ? fit : out, n, exc);
}

void webhost_install_zlib(JSContextRef ctx, JSObjectRef host) {
    if (!squeezer_class) {
        JSClassDefinition def = kJSClassDefinitionEmpty;
        def.className = "ZlibStream";
        def.finalize = webhost_zlib_on_finalize;
        def.attributes = kJSClassAttributeNoAutomaticPrototype;
        squeezer_class = JSClassCreate(&def);
    }
    webhost_define(ctx, host, "zlibOpen", fn_open);
    webhost_define(ctx, host, "zlibPush", fn_push);
    webhost_define(ctx, host, "zlibPull", fn_pull);
}
