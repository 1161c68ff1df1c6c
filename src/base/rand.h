#pragma once
/* Randomness from the kernel. Never fails: a kernel without getrandom() is not supported. */

#include <stddef.h>
#include <stdint.h>

void rand_bytes(void *out, size_t n);
uint64_t rand_u64(void);
