/* test_cbc.c -- the solver is loaded on demand, and errors give a remedy. */
#include "plan/cbc.h"

#include "support/test.h"

#include <math.h>
#include <string.h>

#ifdef FR_HAVE_CBC

/* minimise x + y, x + y >= 1.5, both integers */
static void solves(void **unused)
{
    (void)unused;
    fr_ctx *ctx = fr_ctx_create();
    fr__cbc c;
    const int cols[] = {0, 1};
    const double coefs[] = {1, 1};
    assert_int_equal(fr__cbc_open(ctx, NULL, &c), FR_OK);
    Cbc_Model *m = c.newModel();
    c.setLogLevel(m, 0);
    for (int i = 0; i < 2; i++) c.addCol(m, "", 0, 5, 1, 1, 0, NULL, NULL);
    c.addRow(m, "", 2, cols, coefs, 'G', 1.5);
    c.setObjSense(m, 1);
    c.solve(m);
    assert_true(c.isProvenOptimal(m));
    assert_true(fabs(c.getObjValue(m) - 2) < 1e-6);
    c.deleteModel(m);
    fr__cbc_close(&c);
    assert_null(c.library);
    fr_ctx_free(ctx);
}

static void refused(const char *const *files, const char *text, const char *remedy)
{
    fr_ctx *ctx = fr_ctx_create();
    fr__cbc c;
    assert_int_equal(fr__cbc_open(ctx, files, &c), FR_UNSUPPORTED);
    if (!strstr(fr_ctx_error(ctx), text) || !strstr(fr_ctx_error(ctx), remedy))
        fail_msg("%s", fr_ctx_error(ctx));
    assert_null(c.library);
    fr_ctx_free(ctx);
}

static void missing_is_told(void **unused)
{
    (void)unused;
    refused((const char *const[]){"libNoSolver.so.3", "/nowhere/libNoSolver.so.3", NULL},
            "libNoSolver.so.3", "another planner");
}

/* A library that exists but is not CBC: the first name that can be loaded decides. */
static void another_library_is_told(void **unused)
{
    (void)unused;
    refused((const char *const[]){"libNoSolver.so.3", "libm.so.6", NULL}, "libm.so.6",
            "Cbc_newModel");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(solves),
        cmocka_unit_test(missing_is_told),
        cmocka_unit_test(another_library_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void no_solver(void **unused)
{
    (void)unused;
    skip_because("integer programs", "this build has no CBC");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_solver)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
