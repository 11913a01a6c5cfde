/* test_registry.c -- the list of transports: names, descriptions that are refused, and
 * groups set up without memory. */
#include <forerun/transport.h>

#include "support/check.h"

static fr_status set_up(fr_ctx *ctx, void *user)
{
    static char memory[64];
    const fr_transport *t = user;
    fr_channel_desc d = {0, 1, 8, 8, 8, memory, NULL, NULL};
    size_t sizes[] = {10000, 10000};
    int owner[] = {0, 1};
    fr_group *g;
    fr_channel *c;
    fr_board *b;
    FR_TRY(t->open(ctx, NULL, 2, &g));
    fr_status status = t->add_channel(g, &d, &c);
    if (status == FR_OK) status = t->add_board(g, 2, sizes, owner, &b);
    t->close(g);
    return status;
}

static void running_out_of_memory_is_told(void **state)
{
    (void)state;
    for (const fr_transport *const *list = fr_transport_list(), *t; (t = *list); list++) {
        fr_transport copy = *t;
        assert_true(support_walk_memory(set_up, &copy) >= 3);
        t->close(NULL);
    }
}

static void senseless_descriptions_are_refused(void **state)
{
    (void)state;
    static char memory[64];
    static const size_t part_bytes[] = {8, 8};
    static const int part_owner[] = {0, 2};
    static const struct {
        fr_channel_desc d;
        const char *says;
    } cases[] = {
        {{-1, 0, 1, 8, 8, memory, NULL, NULL}, "from worker -1"},
        {{0, 2, 1, 8, 8, memory, NULL, NULL}, "to worker 2"},
        {{0, 1, 0, 8, 8, memory, NULL, NULL}, "0 buffers"},
        {{0, 1, 2, 16, 8, memory, NULL, NULL}, "16 bytes, 8 apart"},
        {{0, 1, 1, 8, 8, NULL, NULL, NULL}, "give it memory"},
    };
    for (const fr_transport *const *list = fr_transport_list(), *t; (t = *list); list++) {
        fr_ctx *ctx = fr_ctx_create();
        fr_channel *c;
        fr_board *b;
        fr_group *g, *none;
        assert_non_null(ctx);
        assert_ok(ctx, t->open(ctx, NULL, 2, &g));
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            assert_fails(ctx, t->add_channel(g, &cases[i].d, &c), FR_INVALID, cases[i].says);
            assert_null(c);
        }
        assert_fails(ctx, t->add_board(g, 0, part_bytes, part_owner, &b), FR_INVALID, "0 parts");
        assert_fails(ctx, t->add_board(g, 2, part_bytes, part_owner, &b), FR_INVALID,
                     "part 1 of a board belongs to worker 2 in a group of 2");
        assert_fails(ctx, t->open(ctx, NULL, 0, &none), FR_INVALID, "group of 0");
        t->close(g);
        fr_ctx_free(ctx);
    }
}

static void the_list_is_searchable(void **state)
{
    (void)state;
    assert_non_null(fr_transport_list()[0]);
    for (const fr_transport *const *list = fr_transport_list(), *t; (t = *list); list++)
        assert_ptr_equal(fr_transport_find(t->name), t);
    assert_null(fr_transport_find("pigeons"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_is_searchable),
        cmocka_unit_test(senseless_descriptions_are_refused),
        cmocka_unit_test(running_out_of_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
