#pragma once
/* The files of the web page: embedded at build time, or read from a folder while one works on them.
 */

#include "front/http/request.h"

#include <stdbool.h>
#include <stddef.h>

struct asset {
    const char *path; /* "/index.html" */
    const char *type;
    const char *etag;
    const unsigned char *data;
    size_t len;
    const unsigned char *gzip; /* NULL if it would not be smaller */
    size_t gzip_len;
    bool hashed; /* the name changes with the content: cache it for good */
};

extern const struct asset assets[];
extern const size_t assets_count;

/* Answers a GET for a file of the page; paths without a dot are views of the page itself. dirfd >=
 * 0: from that folder instead. */
void asset_respond(struct http_req *req, int dirfd);
