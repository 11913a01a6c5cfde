/* fixture.h -- reader of tests/fixtures/NAME.txt: named cases of settings and tensors.
 *
 * tests/fixtures/make_fixtures.py describes the format. A file that cannot be read, or is
 * invalid, fails the running test. */
#ifndef FR_TEST_SUPPORT_FIXTURE_H
#define FR_TEST_SUPPORT_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FIXTURE_MAX_DIMS 5
#define FIXTURE_MAX_SETTINGS 12
#define FIXTURE_MAX_TENSORS 20
#define FIXTURE_MAX_NUMBERS 8

typedef struct fixture_tensor {
    char name[24];
    bool is_int;
    int n_dims;
    int64_t dim[FIXTURE_MAX_DIMS]; /* batch first */
    size_t count;
    float *f;   /* (dim...), NULL if is_int */
    int32_t *i; /* (dim...), NULL unless is_int */
} fixture_tensor;

typedef struct fixture_setting {
    char key[24];
    int n;
    double v[FIXTURE_MAX_NUMBERS];
} fixture_setting;

typedef struct fixture_case {
    char name[40];
    int n_settings, n_tensors;
    fixture_setting settings[FIXTURE_MAX_SETTINGS];
    fixture_tensor tensors[FIXTURE_MAX_TENSORS];
} fixture_case;

typedef struct fixture {
    int n_cases;
    fixture_case *cases;
} fixture;

void fixture_load(fixture *f, const char *name);
void fixture_free(fixture *f);
const fixture_tensor *fixture_find(const fixture_case *c, const char *name); /* NULL: none */
const fixture_tensor *fixture_need(const fixture_case *c, const char *name); /* fails the test */
/* First number of a setting, or `otherwise` if the case has none. */
double fixture_number(const fixture_case *c, const char *key, double otherwise);

#endif
