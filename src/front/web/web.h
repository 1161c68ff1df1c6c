#pragma once
/* What tools need to read the Web: a way out, a reader of pages, and where searches go. */

#include <stdint.h>
#include <uv.h>

struct network;
struct fetch_pool;
struct reader;

struct web {
    uv_loop_t *loop;
    struct network *network;
    struct fetch_pool *pool;
    struct reader *reader;
    int64_t timeout_ms;     /* of a page, with its redirects */
    const char *search_url; /* of a SearXNG-compatible server; or NULL */
};
