/* test_trace.c -- the output of the trace writer, byte by byte, and its write errors. */
#include "io/file.h"
#include "io/trace.h"
#include "support/check.h"

static void write_sample(fr__trace *t)
{
    fr__trace_slice slice = {.pid = 1,
                             .tid = 2,
                             .name = "F\"1\"",
                             .category = "forward",
                             .colour = "good",
                             .start_ns = 1001,
                             .end_ns = 3500};
    fr__trace_process(t, 1, "run");
    fr__trace_thread(t, 1, 2, "worker 0");
    fr__trace_add(t, &slice, 2, (fr__trace_arg[]){{"stage", 3}, {"peer", -1}});
    fr__trace_flow(t, &slice, 2000, false, "value", 77);
    slice.tid = 3, slice.colour = NULL, slice.start_ns = 1500, slice.end_ns = 1500;
    fr__trace_add(t, &slice, 0, NULL);
    fr__trace_flow(t, &slice, 123456789012345, true, "value", 77);
    fr__trace_counter(t, 1, 1500, "version", "updates", 5);
}

static const char sample[] =
    "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n"
    "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 1, \"args\": {\"name\": \"run\"}}\n"
    ", {\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 1, \"tid\": 2, \"args\": {\"name\": "
    "\"worker 0\"}}\n"
    ", {\"ph\": \"M\", \"name\": \"thread_sort_index\", \"pid\": 1, \"tid\": 2, \"args\": "
    "{\"sort_index\": 2}}\n"
    ", {\"ph\": \"X\", \"name\": \"F\\\"1\\\"\", \"pid\": 1, \"tid\": 2, \"cat\": \"forward\", "
    "\"ts\": 0.001, \"dur\": 2.499, \"cname\": \"good\", \"args\": {\"stage\": 3, \"peer\": -1}}\n"
    ", {\"ph\": \"s\", \"name\": \"value\", \"pid\": 1, \"tid\": 2, \"cat\": \"flow\", \"id\": 77, "
    "\"ts\": 1}\n"
    ", {\"ph\": \"X\", \"name\": \"F\\\"1\\\"\", \"pid\": 1, \"tid\": 3, \"cat\": \"forward\", "
    "\"ts\": 0.5, \"dur\": 0}\n"
    ", {\"ph\": \"f\", \"name\": \"value\", \"pid\": 1, \"tid\": 3, \"cat\": \"flow\", \"id\": 77, "
    "\"ts\": 123456789011.345, \"bp\": \"e\"}\n"
    ", {\"ph\": \"C\", \"name\": \"version\", \"pid\": 1, \"ts\": 0.5, \"args\": {\"updates\": "
    "5}}]}\n";

static void bytes(void **state)
{
    fr_ctx *ctx = fr_ctx_create();
    fr__trace t;
    unsigned char *data;
    size_t n;
    const char *path = support_path(state, "trace.json");
    assert_ok(ctx, fr__trace_open(ctx, &t, path, 1000));
    uint64_t before = fr__alloc_count();
    write_sample(&t);
    assert_int_equal(fr__alloc_count(), before);
    assert_false(fr__file_exists(path)); /* until it is whole */
    assert_ok(ctx, fr__trace_close(&t));
    assert_ok(ctx, fr__file_read(ctx, path, 1 << 20, &data, &n));
    assert_string_equal((char *)data, sample);
    fr__free(data);
    fr_ctx_free(ctx);
}

static void failures(void **state)
{
    fr_ctx *ctx = fr_ctx_create();
    fr__trace t;
    assert_fails(ctx, fr__trace_open(ctx, &t, support_path(state, "no/trace.json"), 0), FR_INVALID,
                 "no/trace.json");
    assert_int_equal(symlink("/dev/full", support_path(state, "full.json.part")), 0);
    assert_ok(ctx, fr__trace_open(ctx, &t, support_path(state, "full.json"), 0));
    write_sample(&t);
    assert_fails(ctx, fr__trace_close(&t), FR_IO, "full.json");
    assert_false(fr__file_exists(support_path(state, "full.json")));
    assert_false(fr__file_exists(support_path(state, "full.json.part")));
    fr_ctx_free(ctx);
}

static fr_status open_and_close(fr_ctx *ctx, void *path)
{
    fr__trace t;
    FR_TRY(fr__trace_open(ctx, &t, path, 0));
    return fr__trace_close(&t);
}

static void running_out_of_memory(void **state)
{
    char path[256];
    snprintf(path, sizeof path, "%s", support_path(state, "small.json"));
    assert_true(support_walk_memory(open_and_close, path) >= 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes),
        cmocka_unit_test(failures),
        cmocka_unit_test(running_out_of_memory),
    };
    return cmocka_run_group_tests(tests, support_dir_make, support_dir_remove);
}
