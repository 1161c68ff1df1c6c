#pragma once
/* Who pays for the calls of a model that a sandbox makes while a job works in it. Each call is held
 * by the account of the job's key before it goes out, and settled by what cay-egress counted: so
 * nothing is set aside for a job that does not call its model just now, and a crash charges what
 * was used and what was in flight.
 *
 * A purse lives as long as its line may still tell what was spent, also after the job. */

#include "front/account/account.h"
#include "front/sandbox/network.h"

struct code_purse;

struct code_purse_options {
    struct accounts *accounts;
    const char *owner; /* copied, as are the others */
    const char *key;
    const char *kind;
    const struct model_info *model;
};

/* Becomes the payer of the line. The caller has it until code_purse_leave(). */
struct code_purse *code_purse_open(struct network_line *line, const struct code_purse_options *o);
/* Why the last call got nothing from the account: it was refused, or (ERR_RATE) it waits for what
 * other calls hold, or did until it was given up. 0: it was granted, or there was none. */
enum err_code code_purse_refusal(const struct code_purse *p);
/* The job is over: the purse goes when its line does, or gets another payer. NULL is allowed. */
void code_purse_leave(struct code_purse *p);
