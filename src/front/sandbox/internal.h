#pragma once
/* What host.c and job.c share; nobody else includes this. */

#include "front/sandbox/host.h"
#include "wire/frame.h"

/* host.c. False: the box takes nothing any more, or not now. */
bool box_send(struct sandbox_box *b, uint16_t type, uint64_t id, const struct buf *payload,
              const int *fds, size_t nfds);
uint64_t box_next_id(struct sandbox_box *b);
struct sandbox_job **box_jobs(struct sandbox_box *b);
/* Those that ended, but whose pipes are still open. */
struct sandbox_job **box_left(struct sandbox_box *b);
uv_loop_t *box_loop(struct sandbox_box *b);
/* When an answer to a request that is made now is due, on the loop's clock. */
int64_t box_answer_by_ms(struct sandbox_box *b, bool works);

/* job.c */
uint64_t sandbox_job_id(const struct sandbox_job *j);
struct sandbox_job *job_next(const struct sandbox_job *j);
/* When it must have started; 0 if it has. */
int64_t job_start_by_ms(const struct sandbox_job *j);
void job_set_start_by_ms(struct sandbox_job *j, int64_t by_ms);
/* A frame with the job's id. Returns NULL, or what is wrong with it. */
const char *job_frame(struct sandbox_job *j, struct wire_frame *f);
/* The sandbox is gone: takes the job out of the box's list. */
void job_lost(struct sandbox_job *j, const struct err *err);
/* The box of an ended one is gone. */
void job_box_gone(struct sandbox_job *j);
/* No callback comes any more. */
void job_mute(struct sandbox_job *j);
