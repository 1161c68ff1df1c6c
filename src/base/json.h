#pragma once
/* JSON. Reading is jansson's (strict: no NaN, no bad UTF-8, no lossy integers), with our error
 * contract and readers that name the offending key. Writing goes straight into a struct buf without
 * building a tree, because rows and events are written often. */

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

static inline void cleanup_json(json_t **j) {
    json_decref(*j);
}

/* There is one rule for all JSON that is read, here and in json_read(): any value, no key twice,
 * and a NUL may stand in a string. So what was accepted and stored can be read again. Nothing else
 * in the tree calls jansson's own readers (tools/lint-banned). Names, tags and metadata may not
 * hold a NUL: json_get_str() and json_check_no_nul() refuse it. */
enum { JSON_DEPTH_MAX = 256 };

/* Parses one JSON value that somebody else wrote. `what` names the text in errors ("request body",
 * "cay.json"). At most JSON_DEPTH_MAX levels, so that it can be stored inside something else. */
int json_parse(const char *text, size_t len, const char *what, json_t **ret_json, struct err *err);
/* The same for a text that may hold secrets: the error says where, and quotes nothing of it. */
int json_parse_private(const char *text, size_t len, const char *what, json_t **ret_json,
                       struct err *err);
/* The same for text that was checked before, or whose loss is shown in another way. NULL: it cannot
 * be read, or is NULL itself. Records of the store have store_record_doc(). */
json_t *json_read(const char *text, size_t len);
json_t *json_read_str(const char *text);
/* Fails with ERR_BAD_REQUEST, naming the place, if a string in the tree holds a NUL. `what` names
 * the tree; NULL: its members stand for themselves. A missing tree is fine. */
int json_check_no_nul(const json_t *v, const char *what, struct err *err);
/* True if the text, if it is JSON, has more values than that: a tree takes some forty bytes and a
 * quarter of a microsecond for each, whatever the text's own length. */
bool json_has_more_values(const char *text, size_t len, size_t max);
/* True if the text is one JSON value (RFC 8259, valid UTF-8, at most 200 levels deep). Builds no
 * tree: for text from a guest that is passed on as it is. */
bool json_is_valid(const char *text, size_t len);
/* Where the value of a member of the object stands in its text, without making a tree of it. The
 * text must be valid; the key is compared as it is written there, with its quotes. NULL: it has
 * none. */
const char *json_find_member(const char *text, size_t len, const char *key, size_t *ret_len);
/* Fails with ERR_BAD_REQUEST unless every key of obj is in the NULL-terminated list. */
int json_check_keys(const json_t *obj, const char *what, const char *const *allowed,
                    struct err *err);
/* Each leaves *ret unchanged if the key is missing or null, and fails if it has another type. */
int json_get_str(const json_t *obj, const char *key, const char **ret, struct err *err);
int json_get_int(const json_t *obj, const char *key, int64_t min, int64_t max, int64_t *ret,
                 struct err *err);
int json_get_bool(const json_t *obj, const char *key, bool *ret, struct err *err);
/* A text whose bytes may be anything, as a JSON string: what is not UTF-8 becomes U+FFFD. Never
 * NULL. */
json_t *json_text(const char *text);
/* The tree as compact text, appended to out. False when the buffer is full. */
bool json_dump(const json_t *j, struct buf *out);
/* The same as a text that the caller frees; NULL if it has more than max bytes. */
char *json_dump_text(const json_t *j, size_t max, size_t *ret_len);

struct json_writer {
    struct buf *out;
    bool comma; /* a comma is due before the next value */
};

void json_writer_init(struct json_writer *w, struct buf *out);
void json_writer_object_begin(struct json_writer *w);
void json_writer_object_end(struct json_writer *w);
void json_writer_array_begin(struct json_writer *w);
void json_writer_array_end(struct json_writer *w);
void json_writer_key(struct json_writer *w, const char *key);
void json_writer_str(struct json_writer *w, const char *s); /* NULL writes null */
void json_writer_text(struct json_writer *w, const char *s, size_t len);
void json_writer_int(struct json_writer *w, int64_t v);
void json_writer_num(struct json_writer *w, double v); /* NaN and infinities write null */
void json_writer_bool(struct json_writer *w, bool v);
void json_writer_null(struct json_writer *w);
void json_writer_raw(struct json_writer *w, const char *json, size_t len);
void json_writer_tree(struct json_writer *w, const json_t *j);

/* A member of an object: the key and its value. */
void json_put_str(struct json_writer *w, const char *key, const char *s); /* NULL writes null */
void json_put_text(struct json_writer *w, const char *key, const char *s, size_t len);
void json_put_int(struct json_writer *w, const char *key, int64_t v);
void json_put_num(struct json_writer *w, const char *key, double v);
void json_put_bool(struct json_writer *w, const char *key, bool v);
void json_put_null(struct json_writer *w, const char *key);
/* As RFC 3339; 0 writes null. */
void json_put_time(struct json_writer *w, const char *key, int64_t wall_ms);
void json_put_raw(struct json_writer *w, const char *key, const char *json, size_t len);
void json_put_raw_str(struct json_writer *w, const char *key, const char *json); /* NULL: null */
void json_put_tree(struct json_writer *w, const char *key, const json_t *j);
/* Ended by json_writer_object_end() and json_writer_array_end(). */
void json_put_object_begin(struct json_writer *w, const char *key);
void json_put_array_begin(struct json_writer *w, const char *key);

/* How many bytes a text has between the quotes of a JSON string, about. */
size_t json_quoted_bytes(const char *s, size_t len);
/* One JSON string with quotes. Bytes that are not UTF-8 become U+FFFD. */
void json_write_str(struct buf *out, const char *s, size_t len);
