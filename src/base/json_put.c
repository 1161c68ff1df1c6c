#include "base/clock.h"
#include "base/json.h"

#include <string.h>

void json_put_str(struct json_writer *w, const char *key, const char *s) {
    json_writer_key(w, key);
    json_writer_str(w, s);
}

void json_put_text(struct json_writer *w, const char *key, const char *s, size_t len) {
    json_writer_key(w, key);
    json_writer_text(w, s, len);
}

void json_put_int(struct json_writer *w, const char *key, int64_t v) {
    json_writer_key(w, key);
    json_writer_int(w, v);
}

void json_put_num(struct json_writer *w, const char *key, double v) {
    json_writer_key(w, key);
    json_writer_num(w, v);
}

void json_put_bool(struct json_writer *w, const char *key, bool v) {
    json_writer_key(w, key);
    json_writer_bool(w, v);
}

void json_put_null(struct json_writer *w, const char *key) {
    json_writer_key(w, key);
    json_writer_null(w);
}

void json_put_time(struct json_writer *w, const char *key, int64_t wall_ms) {
    char text[CLOCK_RFC3339_SIZE];
    json_put_str(w, key, wall_ms ? clock_rfc3339(wall_ms, text) : NULL);
}

void json_put_raw(struct json_writer *w, const char *key, const char *json, size_t len) {
    json_writer_key(w, key);
    json_writer_raw(w, json, len);
}

void json_put_raw_str(struct json_writer *w, const char *key, const char *json) {
    json_put_raw(w, key, json ? json : "null", strlen(json ? json : "null"));
}

void json_put_tree(struct json_writer *w, const char *key, const json_t *j) {
    json_writer_key(w, key);
    json_writer_tree(w, j);
}

void json_put_object_begin(struct json_writer *w, const char *key) {
    json_writer_key(w, key);
    json_writer_object_begin(w);
}

void json_put_array_begin(struct json_writer *w, const char *key) {
    json_writer_key(w, key);
    json_writer_array_begin(w);
}
