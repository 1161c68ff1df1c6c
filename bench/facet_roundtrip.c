/* facet_roundtrip [CALLS]: what a call of a capability costs. Starts the real cay-facet and prints
 * the median and the 99th percentile of a small query, an insert and a start, in microseconds. */

#include "base/clock.h"
#include "base/mem.h"
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void print(const char *what, int64_t *ns, size_t n) {
    qsort(ns, n, sizeof(*ns), by_value);
    printf("%-28s n=%zu  p50 %.1f us  p90 %.1f us  p99 %.1f us\n", what, n, (double)ns[n / 2] / 1e3,
           (double)ns[n * 9 / 10] / 1e3, (double)ns[n * 99 / 100] / 1e3);
}

/* A round trip without the client library's copies: what an isolate does. The facet waits for a
 * front that does not read its audit, so it is read now and then. */
static int64_t timed(struct client *c, struct holder *h, const char *method, const char *args) {
    struct wire_frame f;
    struct err err;
    if (h->id % 256 == 0)
        (void)client_expect(c, FACET_ERROR, 0, &f);
    int64_t t = clock_mono_ns();
    buf_clear(&h->out);
    facet_call_encode(&h->out, method, args, strlen(args));
    struct wire_out out = {
        .type = FACET_CALL, .id = ++h->id, .pieces = {{h->out.data, h->out.len}}};
    if (wire_send(h->fd, &out) < 0 || wire_read(&h->in, h->fd, &f, &err) != 1 ||
        f.type != FACET_RESULT) {
        (void)fprintf(stderr, "the call fails: %.*s\n", (int)f.len, (const char *)f.data);
        exit(1);
    }
    return clock_mono_ns() - t;
}

int main(int argc, char **argv) {
    static const char SCHEMA[] =
        "CREATE TABLE IF NOT EXISTS customers(id INTEGER PRIMARY KEY, name TEXT NOT NULL, email "
        "TEXT NOT NULL, tier TEXT NOT NULL DEFAULT 'Bronze', region TEXT NOT NULL DEFAULT "
        "'Unknown'); INSERT INTO customers(name, email, tier) VALUES ('Alice', 'a@example.com', "
        "'Gold'), ('Bob', 'b@example.com', 'Silver'), ('Eve', 'e@example.com', 'Gold');";
    size_t n = argc > 1 ? strtoul(argv[1], NULL, 10) : 20000;
    if (n < 100 || n > 10000000)
        return 2;
    int64_t *ns = xcalloc(n, sizeof(*ns));
    struct client c;
    struct holder h;
    client_init(&c);
    int64_t t = clock_mono_ns();
    if (client_open_schema(&c, SCHEMA) < 0) {
        (void)fprintf(stderr, "%s\n", c.err.message);
        return 1;
    }
    printf("%-28s %.2f ms\n", "start, new database", (double)(clock_mono_ns() - t) / 1e6);
    (void)client_stop(&c, 0);
    enum { STARTS = 20 };
    for (size_t i = 0; i < STARTS; i++) {
        t = clock_mono_ns();
        if (client_open_schema(&c, SCHEMA) < 0)
            return 1;
        ns[i] = clock_mono_ns() - t;
        if (i + 1 < STARTS)
            (void)client_stop(&c, 0);
    }
    print("start, existing database", ns, STARTS);
    if (client_grant(&c, NULL, 0, &h) < 0)
        return 1;
    for (size_t i = 0; i < n; i++)
        ns[i] = timed(&c, &h, "query", "[\"SELECT 1\"]");
    print("query SELECT 1", ns, n);
    for (size_t i = 0; i < n; i++)
        ns[i] = timed(&c, &h, "query", "[\"SELECT * FROM customers WHERE id = ?\",2]");
    print("query one row by key", ns, n);
    for (size_t i = 0; i < n; i++)
        ns[i] = timed(&c, &h, "query", "[\"SELECT * FROM customers WHERE tier = ?\",\"Gold\"]");
    print("query, 2 rows of 5 columns", ns, n);
    for (size_t i = 0; i < n; i++)
        ns[i] =
            timed(&c, &h, "execute",
                  "[\"INSERT INTO customers(name, email) VALUES (?, ?)\",\"Zara\",\"z@e.com\"]");
    print("execute INSERT", ns, n);
    holder_finish(&h);
    (void)client_stop(&c, 0);
    client_finish(&c);
    free(ns);
    return 0;
}
