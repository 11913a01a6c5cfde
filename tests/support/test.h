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

/* A check that this machine or this build cannot make, and why: `make test` counts and lists these
 * lines (scripts/list-skipped.sh). The second one ends the test with it. */
#define NO_DATA "FR_DATA_DIR does not name a folder that has it"
#define note_skipped(what, ...)                 \
    do {                                        \
        print_message("SKIPPED: %s: ", (what)); \
        print_message(__VA_ARGS__);             \
        print_message("\n");                    \
    } while (0)
#define skip_because(what, ...)          \
    do {                                 \
        note_skipped(what, __VA_ARGS__); \
        skip();                          \
    } while (0)

#endif
