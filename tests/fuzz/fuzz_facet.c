/* What a holder can send: the bytes are read as frames, and each call runs on a real database. The
 * first byte says how the bytes are cut into pieces. */

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "facet/db.h"
#include "wire/frame.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct db db;

static void open_once(void) {
    static bool done;
    if (done)
        return;
    done = true;
    char folder[] = "/tmp/cay-fuzz-facet.XXXXXX";
    struct err err;
    struct buf warnings;
    bool fresh;
    struct facet_open o = {
        .file = (char *)"fuzz.db",
        .schema = (char *)"CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, a, b);"
                          "INSERT INTO t(a, b) VALUES (1, 'x'), (2, x'00ff')",
        .seed = (char *)"",
        .seed_table = (char *)"",
        .limits = {.time_ms = 200, .memory_bytes = 16 << 20, .rows = 100, .disk_bytes = 4 << 20},
        .methods = xcalloc(1, sizeof(struct facet_method)),
        .nmethods = 1,
    };
    o.methods[0] = (struct facet_method){
        .name = xstrdup("named"), .sql = xstrdup("SELECT ?, ? FROM t"), .kind = FACET_KIND_QUERY};
    buf_init(&warnings, 4096);
    int back = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!mkdtemp(folder) || chdir(folder) < 0 || db_global_init(&err) < 0)
        abort();
    db_init(&db, &o.limits);
    if (db_open(&db, &o, &fresh, &warnings, &err) < 0)
        abort();
    /* The files stay open and leave nothing behind. */
    (void)unlink("fuzz.db");
    (void)unlink("fuzz.db-wal");
    if (fchdir(back) < 0)
        abort();
    (void)close(back);
    (void)rmdir(folder);
}

static void on_frame(const struct wire_frame *f) {
    const char *method;
    size_t len;
    struct err err;
    struct db_call c = {0};
    if (facet_call_decode(f->data, f->len, &method, &len, &c.args, &c.args_len, &err) < 0)
        return;
    int m = db_method_find(&db, method, len);
    if (m < 0)
        return;
    c.method = (unsigned)m;
    db_call(&db, &c);
    json_t *j = json_loadb(db.out.data, db.out.len, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    if (!j)
        abort(); /* every answer is JSON */
    if (c.ok == (c.code[0] != 0))
        abort();
    json_decref(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    open_once();
    if (size < 1)
        return 0;
    struct wire_reader r;
    struct wire_frame f;
    struct err err;
    wire_reader_init(&r, 1 << 16);
    size_t step = (size_t)data[0] + 1;
    for (size_t at = 1; at < size; at += step) {
        size_t n = size - at < step ? size - at : step;
        if (wire_feed(&r, data + at, n, NULL, 0, &err) < 0)
            break;
        int rc;
        while ((rc = wire_next(&r, &f, &err)) == 1) {
            on_frame(&f);
            wire_frame_finish(&f);
        }
        if (rc < 0)
            break;
    }
    wire_reader_finish(&r);
    return 0;
}
