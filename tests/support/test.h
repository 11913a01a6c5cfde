/* test.h -- cmocka and what it needs before it. */
#ifndef FR_TEST_SUPPORT_TEST_H
#define FR_TEST_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* cmocka 2 has the range of signed numbers under this name and deprecates the old one. Version 1
 * compares as unsigned: a negative number is out of every range that tests use. */
#ifndef assert_int_in_range
#define assert_int_in_range assert_in_range
#endif

#endif
