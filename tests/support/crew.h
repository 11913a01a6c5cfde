/* crew.h -- a test program that mpirun may start in several processes: then it is one test, and
 * each process runs its own members. */
#ifndef FR_TEST_SUPPORT_CREW_H
#define FR_TEST_SUPPORT_CREW_H

#include <forerun/transport.h>

/* In main, around all tests; crew_leave returns the exit code, bad if it is bad for any process. */
void crew_join(void);
int crew_leave(int n_failed);

fr_team *crew_team(void); /* NULL: alone */
/* Whether this transport can be tested here: some support only one process. */
bool crew_can_use(const fr_transport *t);
/* The least number of members from n on that processes share evenly. */
int crew_fit(int n);
bool crew_has(const fr_transport *t, const fr_group *g, int member);
/* A barrier of all processes; fails in all if `is_well` is false in any. */
void crew_meet(bool is_well);

#define FOR_EACH_TRANSPORT(t)                                                            \
    for (const fr_transport *const *list = fr_transport_list(), *t; (t = *list); list++) \
        if (crew_can_use(t))

#endif
