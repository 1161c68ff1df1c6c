#pragma once
/* What host.c and command.c share; nobody else includes this. */

#include "front/sandbox/launcher.h"
#include "wire/frame.h"

/* host.c. False: the box takes nothing any more, or not now. */
bool box_send(struct sandbox_box *b, uint16_t type, uint64_t id, const struct buf *payload,
              const int *fds, size_t nfds);
uint64_t box_next_id(struct sandbox_box *b);
struct sandbox_command **box_commands(struct sandbox_box *b);
/* Those that ended, but whose pipes are still open. */
struct sandbox_command **box_left(struct sandbox_box *b);
uv_loop_t *box_loop(struct sandbox_box *b);
/* When an answer to a request that is made now is due, on the loop's clock. */
int64_t box_answer_by_ms(struct sandbox_box *b, bool works);

/* command.c */
uint64_t sandbox_command_id(const struct sandbox_command *c);
struct sandbox_command *command_next(const struct sandbox_command *c);
/* When it must have started; 0 if it has. */
int64_t command_start_by_ms(const struct sandbox_command *c);
void command_set_start_by_ms(struct sandbox_command *c, int64_t by_ms);
/* A frame with the command's id. Returns NULL, or what is wrong with it. */
const char *command_frame(struct sandbox_command *c, struct wire_frame *f);
/* The sandbox is gone: takes the command out of the box's list. */
void command_lost(struct sandbox_command *c, const struct err *err);
/* The box of an ended one is gone. */
void command_box_gone(struct sandbox_command *c);
