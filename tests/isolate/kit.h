#pragma once
/* What the isolate tests share: one zygote per test program, a fresh isolate per run. */

#include "front.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

/* Needs those above it. */
#include <cmocka.h>

struct kit_run {
    const char *code;   /* the body of a module: the text of a function that returns its exports */
    const char *linked; /* in place of code: what the compiler linked */
    const char *spec;   /* NULL: env.db is a facet with query, execute, fail, hang and odd */
    struct isolate_run_limits limits;
    uint32_t flags;
    int timeout_ms;
    /* In place of kit_answer(). */
    uint16_t (*answer)(void *arg, size_t i, const char *method, const char *args, uint64_t id,
                       const char **ret_json);
};

struct kit_result {
    struct front_outcome out;
    struct front_exit exit;
    int signal;  /* that ended the isolate before the kit did, else 0 */
    size_t held; /* capabilities that a reset isolate still held */
    int status;  /* exit status, -1 if it was the kit that ended it */
};

void kit_start(const char *env_name, uint32_t flags);
void kit_stop(void);
struct front *kit_front(void);
/* Runs code in a fresh isolate. Valid until the next run. */
const struct kit_result *kit_run(const struct kit_run *run);
/* Runs code in one isolate that resets; each call is a round of it. A new one begins when the last
 * ended. Waits for RESET_READY; out.reset_ready tells whether it came. */
const struct kit_result *kit_round(const struct kit_run *run);
void kit_round_end(void);
pid_t kit_round_pid(void);
/* Shorthand: the code is the body of `async function main(env) {...}`, the default export. */
const struct kit_result *kit_main(const char *body);
/* The same with a file of tests/isolate/js. */
const struct kit_result *kit_file(const char *name);
const char *kit_logs(void);
/* This side's end of capability i, while a run lasts. */
int kit_facet(size_t i);

void kit_expect_result(const char *json);
void kit_expect_error(const char *part);
void kit_expect_log(const char *part);
/* A run in another isolate still works: what died, died alone. */
void kit_expect_alive(void);
uint16_t kit_answer(void *arg, size_t i, const char *method, const char *args, uint64_t id,
                    const char **ret_json);
#define KIT_ENV                                                                                    \
    "\"env\":{\"db\":{\"fd\":0,\"kind\":\"facet\",\"methods\":[\"query\",\"execute\",\"fail\","    \
    "\"hang\",\"odd\",\"big\",\"echo\"]},\"peer\":{\"fd\":1,\"kind\":\"worker\"},"                 \
    "\"WORD\":{\"json\":{\"a\":[1,\"two\"]}}}"
