#pragma once
/* The other job of this program: telling what is in a work folder, and later what has changed
 * there. It runs as a command of the sandbox, before the agent and after it; what was there before
 * is kept outside by the server, so that no agent can change it. Nothing in the folder is run,
 * followed or believed: no git, no settings, no links. */

/* `cay-coder remember DIR` and `cay-coder changes DIR [--ignore] [--contents] [--new]`; the exit
 * status. */
int changes_main(int argc, char **argv);
