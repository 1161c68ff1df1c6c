#pragma once
/* A coding job, as the files of this folder see it: code.c takes it from state to state, place.c
 * has the sandbox it works in and what that may reach, record.c what it spent and what is kept of
 * it. */

#include "base/buf.h"
#include "front/account/account.h"
#include "front/code/code.h"
#include "front/code/purse.h"
#include "front/code/request.h"
#include "front/sandbox/exec.h"
#include "front/store/artifacts.h"
#include "wire/changes.h"
#include "wire/coder.h"

enum { CODE_CLONE_S = 180 };

#define CODE_DIFF_NAME  "changes.diff"
#define CODE_FILES_NAME "changes.files"

enum code_state {
    CODE_HOLDING,    /* what it may cost is being set aside */
    CODE_MAKING,     /* the sandbox is being made */
    CODE_CLONING,    /* the repository is being fetched */
    CODE_OPENING,    /* the network becomes what the agent may have */
    CODE_PREPARING,  /* what is there before is remembered */
    CODE_WORKING,    /* the agent runs */
    CODE_COLLECTING, /* what it changed is read */
    CODE_ENDING,     /* the sandbox ends */
};

/* A change of the network that is under way, and may outlive the job that asked for it. */
struct opening {
    struct code_job *code; /* NULL: nobody waits any more */
};

struct code_job {
    struct code_job *next;
    struct codes *all;
    enum code_state state;
    struct job *job;
    struct code_request ask;
    struct code_resolved resolved;
    json_t *grants;
    char owner[ID_SIZE];
    char key[ID_SIZE];
    bool sees_all;
    struct account_hold *hold;
    struct code_purse *purse;    /* for the calls of its model; NULL: it makes none (yet) */
    struct network_spent before; /* what the sandbox had used when it began */
    struct network_spent spent;  /* what this job has, once the agent has ended */
    char sandbox_id[ID_SIZE];    /* "": there is none */
    char *clone_route;           /* the name of the one to the repository; or NULL */
    struct opening *opening;
    bool opened;       /* the sandbox has, or may have, the way to the model */
    uv_timer_t timer;  /* for one that was asked to end */
    struct exec *exec; /* the one that runs */
    struct exec_follower follower;
    uint64_t offset;
    struct later more; /* there is more to read than one turn takes */
    size_t told;       /* events of this turn */
    int64_t cloning_ms;
    struct coder_reader *reader;
    json_t *last;                  /* the agent's last event */
    struct buf said;               /* the commit; then the diff */
    struct artifact_writer *diff;  /* all of it; NULL: it is not kept */
    struct artifact_writer *files; /* the changed files, if they were asked for */
    struct exec *base;             /* whose output is what was there before; or NULL */
    struct exec_input *feed;       /* hands that to what collects the changes */
    uint64_t fed;
    bool base_is_lost; /* it could not be read */
    struct changes_reader changes;
    struct changes_end end; /* once the last record has come */
    json_t *left_out;       /* [{path, why}...]: what is not in the changes; or NULL */
    bool collected;
    bool borrowed;  /* the sandbox was there before, and stays */
    struct err err; /* why it ended early; code 0: it did not */
    bool held_up;   /* other calls of its key hold what it needs: it has not begun */
    bool cancelled;
};

struct codes {
    struct codes_options opt;
    struct code_job *list;
    struct later_queue later;
    bool closing;
};

/* --- place.c --- */

/* NULL: there is none, or it has ended. */
struct sandbox *code_place(const struct code_job *c);
/* Makes a new one, or takes the one that the request names. */
int code_place_make(struct code_job *c, sandbox_made on_made, struct err *err);
int code_place_use(struct code_job *c, struct err *err);
/* The job's key pays for what the sandbox asks a model from now on. */
void code_place_pay(struct code_job *c);
/* What the sandbox may reach while the agent works, and when the job is over. */
int code_place_policy(const struct code_job *c, bool working, struct egress_policy *ret,
                      struct err *err);

/* --- record.c --- */

/* Counts the calls of models that have ended. The end of the last one may not have been told yet:
 * what it may cost at most is not counted before that is sure. */
void code_record_ended(struct code_job *c);
/* Counts what the sandbox has used, with calls that are under way at the worst. */
void code_record_spent(struct code_job *c);
/* Settles the account and ends the job: the last that is done with it. */
void code_record_end(struct code_job *c);
