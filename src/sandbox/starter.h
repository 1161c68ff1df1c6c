#pragma once
/* Starts launchers for a front that has given up root: each byte on the socket comes with a
 * descriptor, the control channel of a new launcher. Before that it touches nothing, so that a
 * launcher is a copy of a process that has seen nothing. Returns only in launchers, with their
 * channel; the starter itself ends with its socket, after the last launcher. A launcher ends with
 * its channel and not with the starter, so that sandboxes go on when that one is killed. */

int starter_run(int socket);
