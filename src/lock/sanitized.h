#pragma once
/* True in a build with a sanitizer: its own memory and system calls do not fit under limits and
 * filters, which are left out then. */

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif
