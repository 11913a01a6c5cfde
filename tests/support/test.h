/* test.h -- cmocka and what it needs before it. */
#ifndef FR_TEST_SUPPORT_TEST_H
#define FR_TEST_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
