#pragma once
/* Where an isolate runs while it talks with a facet.
 *
 * A program that waits for each answer before it asks the next question takes turns with its facet.
 * On one processor a turn is a switch of tasks; on two it is an interrupt to a processor that went
 * to sleep, which takes ten times as long, unless both stay awake and use a tray (wire/tray.h), and
 * then it takes nothing. So while such a conversation lasts the isolate stays where it is and tells
 * the facet to come there; then it tries whether the two are quicker apart, and keeps to what its
 * clock says. Where processors are short, apart is slower, and is tried ever more seldom. Among
 * several who talk with one facet it does as the facet says: it runs anywhere, or keeps off the
 * processor from which the facet serves them all. A program
 * that computes instead runs wherever there is room: at the latest after two ticks without a turn.
 *
 * There is one per process. */

#include <stdbool.h>
#include <stdint.h>

void stay_init(void);
/* The signal handler of ITIMER_VIRTUAL. */
void stay_on_tick(int sig);
/* The upper bits of a call's id: where the isolate waits for its answer. */
uint64_t stay_hint(void);
/* It takes turns with its facet. */
bool stay_is_talking(void);
/* It talks by a tray, and waits awake. */
bool stay_is_apart(void);
/* The tray was of no use for a call, or for its answer. */
void stay_missed(void);
/* What the facet says, tray_where(). */
void stay_told(uint32_t where);
/* How long it waits awake for an answer in the tray; and that it did. */
int64_t stay_awake_ns(void);
void stay_waited(bool in_vain);
/* It is about to wait, for the answer to its only question or not. */
void stay_or_leave(bool for_answer);
/* It waits no longer. */
void stay_woke(void);
void stay_leave(void);
