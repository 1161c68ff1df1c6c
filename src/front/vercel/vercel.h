#pragma once
/* The wire of `@vercel/sandbox`: the SDK's own calls, served by this server's sandboxes. What the
 * SDK calls a session is a sandbox here (its id too); what it calls a sandbox is a name that
 * outlives its sessions, with the configuration of the next one. docs/vercel.md. */

#include "front/server/front.h"

struct vercel;

/* Adds the routes. */
struct vercel *vercel_create(struct front *f);
/* When no request is left. */
void vercel_destroy(struct vercel *v);
