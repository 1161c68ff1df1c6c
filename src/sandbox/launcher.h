#pragma once
/* The launcher: answers the control channel, makes sandboxes, keeps a pool of ready ones, and tells
 * the front when one ends. It is small so that cloning it is cheap, runs no guest code and parses
 * nothing that a guest wrote. */

/* Serves the channel until its end; the exit status of the program. */
int launcher_run(int control);
