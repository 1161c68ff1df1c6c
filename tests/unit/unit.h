#pragma once
/* What every unit test includes: cmocka with the headers that it wants before it. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A test between the file's own setup() and teardown(). */
#define UNIT(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
/* A test that needs neither. */
#define PLAIN(test) cmocka_unit_test(test)
