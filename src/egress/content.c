#include "egress/content.h"

#include "base/cleanup.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

const char *content_text(const json_t *obj, const char *key) {
    const json_t *v = json_object_get(obj, key);
    const char *s = json_string_value(v);
    return s && strlen(s) == json_string_length(v) ? s : "";
}

static bool content_is_one_of(const char *s, const char *const *list) {
    while (*list && strcasecmp(*list, s) != 0)
        list++;
    return *list != NULL;
}

static bool content_ends_with(const char *s, const char *end) {
    size_t n = strlen(s);
    size_t k = strlen(end);
    return n >= k && strcasecmp(s + n - k, end) == 0;
}

static bool is_data_url(const char *s) {
    return strncmp(s, "data:", 5) == 0;
}

/* --- sources --- */

static int refuse_source(const struct egress_route *r, const char *what, struct err *err) {
    return err_set(err, ERR_FORBIDDEN,
                   "%s is not granted, since the model's server would fetch it: send the content "
                   "itself, or the operator sets \"urls\" of the route \"%s\"",
                   what, r->name);
}

/* True if it begins as an address does: "scheme://", or a file's. */
static bool looks_like_address(const char *s) {
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || (n > 0 && strchr("+-.", s[n]) && s[n]))
        n++;
    return n > 0 && (strncmp(s + n, "://", 3) == 0 || strncasecmp(s, "file:", 5) == 0);
}

/* Whether a key of this name may have the server fetch what it says. */
static bool names_a_source(const char *key) {
    static const char *const names[] = {"url",    "uri",   "image",     "images", "video",
                                        "videos", "audio", "file_data", "file",   NULL};
    return content_is_one_of(key, names) || content_ends_with(key, "_url") ||
           content_ends_with(key, "_uri");
}

/* The value of such a key: content itself or nothing; in an object, its own keys are looked at. */
static bool brings_itself(const char *key, const json_t *value) {
    const char *s = json_string_value(value);
    const json_t *item;
    size_t i;
    bool address = content_ends_with(key, "_url");
    if (json_is_object(value) && address)
        return is_data_url(content_text(value, "url"));
    if (s)
        return is_data_url(s) || (!address && !looks_like_address(s));
    if (address)
        return json_is_null(value);
    json_array_foreach(value, i, item) {
        if (!json_is_object(item) && !brings_itself(key, item))
            return false;
    }
    return true;
}

/* A "source", whose kind is said inside it. */
static bool is_inside(const json_t *o, const json_t *source) {
    static const char *const kinds[] = {"base64", "text", "content", NULL};
    if (json_is_object(source))
        return content_is_one_of(content_text(source, "type"), kinds);
    /* Only where it is a name. */
    return json_is_null(source) ||
           (json_is_string(source) && strcmp(content_text(o, "type"), "search_result") == 0);
}

/* One object of a message: no source but what it brings itself. */
static int check_source(const struct egress_route *r, const json_t *o, struct err *err) {
    const char *type = content_text(o, "type");
    /* What a search found before is not fetched again. */
    bool found = strncmp(type, "web_", 4) == 0;
    const char *key;
    json_t *value;
    if (strcmp(type, "container_upload") == 0)
        return refuse_source(r, "a stored file", err);
    json_object_foreach((json_t *)(uintptr_t)o, key, value) {
        if (strcasecmp(key, "file_id") == 0)
            return refuse_source(r, "a stored file", err);
        if (strcasecmp(key, "source") == 0 && !is_inside(o, value))
            return refuse_source(r, "a source that is not inside the request", err);
        if (names_a_source(key) && !(found && strcmp(key, "url") == 0) &&
            !brings_itself(key, value))
            return refuse_source(r, "a source by its address", err);
    }
    return 0;
}

/* Looks at every object, but not into what is the guest's own business (the input of tools) and
 * what only tells where something was from. */
static int content_walk(const struct egress_route *r, const json_t *j, unsigned depth,
                        struct err *err) {
    static const char *const told[] = {"citations", "annotations", NULL};
    const char *key;
    json_t *value;
    size_t i;
    int rc = 0;
    if (depth > DEPTH_MAX)
        return err_set(err, ERR_BAD_REQUEST, "the request is nested too deep");
    json_array_foreach(j, i, value) {
        if (rc == 0)
            rc = content_walk(r, value, depth + 1, err);
    }
    if (!json_is_object(j))
        return rc;
    bool call = strcmp(content_text(j, "type"), "tool_use") == 0;
    rc = r->urls ? 0 : check_source(r, j, err);
    json_object_foreach((json_t *)(uintptr_t)j, key, value) {
        if (rc == 0 && !(call && strcmp(key, "input") == 0) && !content_is_one_of(key, told))
            rc = content_walk(r, value, depth + 1, err);
    }
    return rc;
}

int content_check(const struct egress_route *r, const json_t *messages, struct err *err) {
    return content_walk(r, messages, 0, err);
}

/* --- tokens --- */

enum {
    IMAGE_TOKENS = 2000,    /* about */
    DOCUMENT_TOKENS = 5000, /* at least, of one that is no text */
    DATA_BYTES = 16,        /* of it for a token, about */
};

/* In halves of a token: a text of letters has one for each two of them or fewer, signs, digits and
 * the bytes of rare letters may be one each. */
static uint64_t halves_of_text(const char *s, size_t len) {
    uint64_t n = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        bool letter = (unsigned char)((c | 0x20) - 'a') < 26 || c == ' ';
        n += letter ? 1 : 2;
    }
    return n;
}

static uint64_t halves_of_data(const char *type, size_t len) {
    uint64_t tokens = len / DATA_BYTES + 1;
    if (strncasecmp(type, "image/", 6) == 0)
        tokens = IMAGE_TOKENS;
    else if (*type)
        tokens = MAX(tokens, DOCUMENT_TOKENS);
    return 2 * tokens;
}

/* The string of a key in an object (or of a list, without them). */
static uint64_t halves_of_string(const json_t *o, const char *key, const json_t *value) {
    const char *s = json_string_value(value);
    size_t len = json_string_length(value);
    bool data = strcmp(key, "data") == 0 && strcmp(content_text(o, "type"), "text") != 0;
    if (data)
        return halves_of_data(content_text(o, "media_type"), len);
    if (names_a_source(key) && is_data_url(s))
        return halves_of_data(s + 5, len);
    return halves_of_text(s, len);
}

/* `keys`: it is the guest's own text, of which the keys are a part. */
static uint64_t content_halves(const json_t *j, bool keys) {
    const char *key;
    json_t *value;
    size_t i;
    uint64_t n = 0;
    bool call = strcmp(content_text(j, "type"), "tool_use") == 0;
    json_array_foreach(j, i, value) {
        n +=
            json_is_string(value) ? halves_of_string(NULL, "", value) : content_halves(value, keys);
    }
    json_object_foreach((json_t *)(uintptr_t)j, key, value) {
        n += keys ? halves_of_text(key, strlen(key)) : 0;
        n += json_is_string(value)
                 ? halves_of_string(j, key, value)
                 : content_halves(value, keys || (call && strcmp(key, "input") == 0));
    }
    if (json_is_number(j) && keys)
        n += 2 * json_dumpb(j, NULL, 0, JSON_ENCODE_ANY);
    return n;
}

uint64_t content_tokens(const json_t *body) {
    static const char *const messages[] = {"messages", "system", NULL};
    const char *key;
    json_t *value;
    uint64_t n = 0;
    json_object_foreach((json_t *)(uintptr_t)body, key, value) {
        if (json_is_string(value) && strcmp(key, "model") != 0)
            n += halves_of_string(NULL, key, value);
        else if (json_is_array(value) || json_is_object(value))
            n += content_halves(value, !content_is_one_of(key, messages));
    }
    return n / 2 + 1;
}
