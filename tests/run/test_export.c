/* test_export.c -- weights in, no update, weights out: the same bytes under the same names. */
#include "base/alloc.h"
#include "io/tensor_set.h"
#include "support/run_fixture.h"

#define FIXTURES FR_SOURCE_DIR "/tests/fixtures/"
#define GPT "name: gpt, layers: 2, width: 8, heads: 2, context: 12, vocab: 256"

static void write_config(fixture *f, const char *model)
{
    char text[1024];
    snprintf(text, sizeof text,
             "model: {%s}\ndata: {name: synthetic, n: 8, n_eval: 8}\n"
             "train: {batch: 2, steps: 1, optimizer: {name: sgd, lr: 0.1}}\n"
             "parallel: {backend: ref, threads: 1}\nrun: {out: %s, predict: false}\n",
             model, f->out);
    write_text(f->config, text);
}

/* Exports into dir/NAME, whose path it returns. */
static fr_status export_to(fixture *f, const char *name, const char *format, const char *dtype,
                           const char *shard_size, fr_export_result *r)
{
    char out[128];
    fr_run_options o = {.size = sizeof o, .config = f->config, .dump_step = -1};
    snprintf(out, sizeof out, "%s/%s", f->dir, name);
    fr_export_options e = {.out = out, .format = format, .dtype = dtype, .shard_size = shard_size};
    return fr_export(f->ctx, &o, &e, r);
}

static fr__tensor_set *open_set(fixture *f, const char *path)
{
    fr__tensor_set *s;
    assert_done(f, fr__tensor_set_open(f->ctx, path, &s));
    return s;
}

/* The same names, types, shapes and bytes. */
static void same_tensors(fixture *f, const char *path, const char *name)
{
    char out[128];
    snprintf(out, sizeof out, "%s/%s", f->dir, name);
    fr__tensor_set *a = open_set(f, path), *b = open_set(f, out);
    assert_int_equal(fr__tensor_set_count(a), fr__tensor_set_count(b));
    for (int i = 0; i < fr__tensor_set_count(a); i++) {
        const fr_tensor_info *x = fr__tensor_set_at(a, i)->info;
        int at = fr__tensor_set_find(b, x->name);
        if (at < 0) fail_msg("%s is not in the export", x->name);
        const fr_tensor_info *y = fr__tensor_set_at(b, at)->info;
        assert_string_equal(x->dtype, y->dtype);
        assert_int_equal(x->n_dims, y->n_dims);
        assert_memory_equal(x->dim, y->dim, (size_t)x->n_dims * sizeof *x->dim);
        char *p = malloc(x->bytes + 1), *q = malloc(x->bytes + 1);
        assert_done(f, fr__tensor_set_read(a, i, 0, p, x->bytes));
        assert_done(f, fr__tensor_set_read(b, at, 0, q, x->bytes));
        if (memcmp(p, q, x->bytes) != 0) fail_msg("%s differs", x->name);
        free(p);
        free(q);
    }
    fr__tensor_set_close(a);
    fr__tensor_set_close(b);
}

static void gpt2_comes_back(void **state)
{
    fixture *f = *state;
    fr_export_result r;
    write_config(f, GPT ", tied: true, weights: " FIXTURES "gpt2");
    assert_done(f, export_to(f, "whole", NULL, NULL, NULL, &r));
    assert_int_equal(r.n_files, 1);
    assert_int_equal(r.n_tensors, 28);
    assert_string_equal(r.names, "gpt2");
    same_tensors(f, FIXTURES "gpt2", "whole");
    assert_done(f, export_to(f, "cut", "hf", "f32", "2 KB", &r));
    assert_true(r.n_files > 4);
    same_tensors(f, FIXTURES "gpt2", "cut");
    /* under Forerun's names and back */
    char model[512];
    assert_done(f, export_to(f, "own", "safetensors", NULL, NULL, &r));
    assert_string_equal(r.names, "Forerun");
    snprintf(model, sizeof model, GPT ", tied: true, weights: %s/own", f->dir);
    write_config(f, model);
    assert_done(f, export_to(f, "again", "hf", NULL, NULL, &r));
    same_tensors(f, FIXTURES "gpt2", "again");
}

/* BF16 in several files, without a prefix. */
static void bf16_comes_back(void **state)
{
    fixture *f = *state;
    fr_export_result r;
    write_config(f, GPT ", tied: true, weights: " FIXTURES "gpt2-bf16");
    assert_done(f, export_to(f, "half", NULL, "bf16", "3 KB", &r));
    assert_true(r.n_files > 1 && r.bytes == 7808);
    same_tensors(f, FIXTURES "gpt2-bf16", "half");
    assert_done(f, export_to(f, "f16", NULL, "f16", NULL, &r)); /* a bf16 of this size fits */
    assert_int_equal(r.bytes, 7808);
}

typedef struct more {
    const char *name, *dtype;
    int n;
} more;

/* A copy of an export with tensors added; `alias` names one whose values the first has. */
static void add_tensors(fixture *f, const char *from, const char *to, const more *tensors,
                        const char *alias)
{
    char in[128], out[128];
    fr_tensor_writer *w;
    static char bytes[1 << 20];
    snprintf(in, sizeof in, "%s/%s", f->dir, from);
    snprintf(out, sizeof out, "%s/%s", f->dir, to);
    fr__tensor_set *s = open_set(f, in);
    assert_done(f, fr_tensor_writer_create(f->ctx, out, &w));
    int64_t dims[8];
    for (const more *m = tensors; m->name; m++) {
        const fr_tensor_info *of =
            m->n ? NULL : fr__tensor_set_at(s, fr__tensor_set_find(s, alias))->info;
        dims[0] = m->n;
        assert_done(f, fr_tensor_writer_declare(w, m->name, m->dtype, of ? of->n_dims : 1,
                                                of ? of->dim : dims));
    }
    for (int i = 0; i < fr__tensor_set_count(s); i++) {
        const fr_tensor_info *t = fr__tensor_set_at(s, i)->info;
        assert_done(f, fr_tensor_writer_declare(w, t->name, t->dtype, t->n_dims, t->dim));
    }
    for (const more *m = tensors; m->name; m++) {
        int at = m->n ? -1 : fr__tensor_set_find(s, alias);
        size_t n = at < 0 ? 8 * (size_t)m->n : fr__tensor_set_at(s, at)->info->bytes;
        memset(bytes, 7, n);
        if (at >= 0) assert_done(f, fr__tensor_set_read(s, at, 0, bytes, n));
        assert_done(f, fr_tensor_writer_data(w, bytes, n));
    }
    for (int i = 0; i < fr__tensor_set_count(s); i++) {
        size_t n = fr__tensor_set_at(s, i)->info->bytes;
        assert_true(n <= sizeof bytes);
        assert_done(f, fr__tensor_set_read(s, i, 0, bytes, n));
        assert_done(f, fr_tensor_writer_data(w, bytes, n));
    }
    assert_done(f, fr_tensor_writer_finish(w));
    fr_tensor_writer_free(w);
    fr__tensor_set_close(s);
}

/* Trains one update from scratch, so that there are weights and running statistics. */
static void train(fixture *f)
{
    fr_run_options o = {.size = sizeof o, .config = f->config, .dump_step = -1};
    assert_done(f, fr_train(f->ctx, &o, NULL));
}

/* Tensors without a parameter come back too: counters of batch norm, and the second name of a
 * tied parameter. */
static void extras_come_back(void **state)
{
    fixture *f = *state;
    fr_export_result r;
    char model[512], given[128];
    static const char vgg[] =
        "name: vgg16, image: 32, classes: 4, width_factor: 0.03, batch_norm: true";
    static const more counters[] = {{"features.1.num_batches_tracked", "I64", 1}, {.name = NULL}};
    write_config(f, vgg);
    train(f);
    assert_done(f, export_to(f, "vgg", "hf", NULL, NULL, &r));
    add_tensors(f, "vgg", "vgg.safetensors", counters, NULL);
    snprintf(model, sizeof model, "%s, weights: %s/vgg.safetensors", vgg, f->dir);
    char other[128]; /* a run without checkpoints */
    snprintf(other, sizeof other, "%s", f->out);
    snprintf(f->out, sizeof f->out, "%s/none", f->dir);
    write_config(f, model);
    assert_done(f, export_to(f, "vgg-back", NULL, NULL, NULL, &r));
    snprintf(given, sizeof given, "%s/vgg.safetensors", f->dir);
    same_tensors(f, given, "vgg-back");
    assert_string_equal(r.names, "torchvision");
    static const more head[] = {{"lm_head.weight", "F32", 0}, {.name = NULL}};
    write_config(f, GPT ", tied: true, weights: " FIXTURES "gpt2");
    assert_done(f, export_to(f, "gpt", NULL, NULL, NULL, &r));
    add_tensors(f, "gpt", "gpt.safetensors", head, "transformer.wte.weight");
    snprintf(model, sizeof model, GPT ", tied: true, weights: %s/gpt.safetensors", f->dir);
    write_config(f, model);
    assert_done(f, export_to(f, "gpt-back", NULL, NULL, NULL, &r));
    snprintf(given, sizeof given, "%s/gpt.safetensors", f->dir);
    same_tensors(f, given, "gpt-back");
}

static void refusals(void **state)
{
    fixture *f = *state;
    char path[128];
    write_config(f, "name: mlp, inputs: 4, depth: 1, width: 4, classes: 2");
    assert_failed(f, export_to(f, "x", NULL, NULL, NULL, NULL), FR_INVALID, "no checkpoint there");
    train(f);
    assert_failed(f, export_to(f, "x", "hf", NULL, NULL, NULL), FR_UNSUPPORTED, "mlp",
                  "--format safetensors");
    assert_failed(f, export_to(f, "x", "onnx", NULL, NULL, NULL), FR_INVALID, "'onnx'", "hf");
    assert_failed(f, export_to(f, "x", NULL, "int8", NULL, NULL), FR_INVALID, "'int8'", "bf16");
    assert_failed(f, export_to(f, "x", NULL, NULL, "5 apples", NULL), FR_INVALID, "5 apples");
    assert_failed(f, export_to(f, "x", NULL, NULL, "-1", NULL), FR_INVALID, "--shard-size");
    assert_failed(f, export_to(f, "net.yaml", NULL, NULL, NULL, NULL), FR_INVALID, "is there");
    assert_done(f, export_to(f, "x", NULL, NULL, NULL, NULL));
    assert_failed(f, export_to(f, "x", NULL, NULL, NULL, NULL), FR_INVALID, "is there already");
    snprintf(path, sizeof path, "%s/empty", f->dir);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_done(f, export_to(f, "empty", NULL, NULL, NULL, NULL));
    /* a bias that GPT-2 does not have */
    snprintf(f->out, sizeof f->out, "%s/gpt", f->dir);
    write_config(f, GPT);
    train(f);
    assert_failed(f, export_to(f, "y", "hf", NULL, NULL, NULL), FR_UNSUPPORTED, "head.bias");
    snprintf(path, sizeof path, "%s/y", f->dir);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_done(f, export_to(f, "y", NULL, NULL, NULL, NULL));
}

/* Nothing is left of an export that fails. */
static void without_memory(void **state)
{
    fixture *f = *state;
    char name[32], path[128];
    write_config(f, GPT ", tied: true, weights: " FIXTURES "gpt2");
    fr_status status = FR_NO_MEMORY;
    int n_failed = 0;
    for (int n = 0; status != FR_OK; n++) {
        snprintf(name, sizeof name, "n-%d", n);
        fr__alloc_fail_after(n);
        status = export_to(f, name, NULL, NULL, "2 KB", NULL);
        fr__alloc_fail_after(-1);
        assert_true(status == FR_OK || status == FR_NO_MEMORY);
        snprintf(path, sizeof path, "%s/%s", f->dir, name);
        assert_int_equal(access(path, F_OK) == 0, status == FR_OK);
        n_failed += status != FR_OK;
    }
    assert_true(n_failed > 20);
    same_tensors(f, FIXTURES "gpt2", name);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {TEST(gpt2_comes_back), TEST(bf16_comes_back),
                                       TEST(extras_come_back), TEST(refusals),
                                       TEST(without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
