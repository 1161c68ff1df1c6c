#pragma once
/* Warms the engine up by running a program over the path that every program takes: frames in,
 * modules, a binding call, console, a timer, a result. What it leaves is undone. */

#include "isolate/isolate.h"

/* program: linked, as JSON. */
int warm_up(struct isolate *iso, const char *program, int runs, struct err *err);
/* The front's side of a warm-up, for a channel whose isolate is elsewhere (a training child):
 * sends RUN and answers until DONE. */
int warm_drive(int channel, const char *program, struct err *err);
