#pragma once
/* A system-call filter while it is made: rules are added, then it is loaded or turned into a
 * program for the kernel. The first rule that libseccomp refuses is remembered and told at the end,
 * so that a list of rules reads as a list. A program says which calls it may make; nothing here
 * does. */

#include "base/err.h"

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>

struct scmp_arg_cmp;
struct filter;

/* What a call gets that no rule is about. Calls of another architecture kill in any case. */
enum filter_verdict { FILTER_ALLOW, FILTER_KILL, FILTER_EPERM };

struct filter *filter_create(enum filter_verdict otherwise);
void filter_allow(struct filter *f, const int *calls, size_t n);
/* If all of these hold for its arguments. */
void filter_allow_if(struct filter *f, int call, const struct scmp_arg_cmp *args, unsigned n);
/* Memory, but never executable. */
void filter_allow_memory(struct filter *f);
/* Fails with this errno, if all of these hold for its arguments. */
void filter_refuse(struct filter *f, int call, int error, const struct scmp_arg_cmp *args,
                   unsigned n);
/* Both end the filter. Loading is for all threads of the process if `threads`. */
int filter_load(struct filter *f, bool threads, struct err *err);
/* The caller frees ret->filter. */
int filter_export(struct filter *f, struct sock_fprog *ret, struct err *err);

/* The arguments that follow a call, as SCMP_A0(...) and its like make them. */
#define FILTER_ARGS(...)                                                                           \
    (const struct scmp_arg_cmp[]){__VA_ARGS__},                                                    \
        (unsigned)(sizeof((const struct scmp_arg_cmp[]){__VA_ARGS__}) /                            \
                   sizeof(struct scmp_arg_cmp))
