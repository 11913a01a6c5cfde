/* test_images.c -- fashion-mnist, mnist and cifar10 from tiny files, and from the real ones. */
#include "scratch.h"

enum { IDX_PIXELS = 28 * 28, CIFAR_PIXELS = 3 * 32 * 32, CIFAR_RECORD = 1 + CIFAR_PIXELS };

/* Pixel p of image i; all values differ. */
static unsigned char pixel(int i, int p) { return (unsigned char)(i * 31 + p * 7 + p / 256); }

static void put_idx(const scratch *s, const char *images, const char *labels, int n,
                    const unsigned char *label)
{
    size_t bytes = 16 + (size_t)n * IDX_PIXELS;
    unsigned char *data = calloc(1, bytes), head[8 + 16] = {0, 0, 8, 1, 0, 0, 0, 0};
    assert_non_null(data);
    memcpy(data, (unsigned char[]){0, 0, 8, 3, 0, 0, 0, (unsigned char)n, 0, 0, 0, 28, 0, 0, 0, 28},
           16);
    for (int i = 0; i < n; i++)
        for (int p = 0; p < IDX_PIXELS; p++) data[16 + i * IDX_PIXELS + p] = pixel(i, p);
    put_file(s, images, data, bytes);
    head[7] = (unsigned char)n;
    for (int i = 0; i < n; i++) head[8 + i] = label[i];
    put_file(s, labels, head, 8 + (size_t)n);
    free(data);
}

static const unsigned char some_labels[16] = {3, 9, 0, 1, 2, 4, 5, 6, 7, 8, 3, 1, 4, 1, 5, 9};

static void put_good_idx(const scratch *s)
{
    put_idx(s, "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", 6, some_labels);
    put_idx(s, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 3, some_labels + 6);
}

static void idx_values(void **state)
{
    scratch *s = *state;
    static const struct {
        const char *yaml;
        float mean, std;
    } sets[] = {{"{name: fashion-mnist, path: '@'}", 0.2860f, 0.3530f},
                {"{name: mnist, path: '@'}", 0.1307f, 0.3081f}};
    float x[IDX_PIXELS];
    int32_t y;
    put_good_idx(s);
    for (int k = 0; k < 2; k++) {
        fr_dataset *d = open_good(s, NULL, sets[k].yaml);
        const fr_data_info *info = fr_dataset_info(d);
        assert_int_equal(info->n_train, 6);
        assert_int_equal(info->n_eval, 3);
        assert_int_equal(info->n_classes, 10);
        assert_int_equal(info->vocab, 0);
        assert_int_equal(info->target.n_dims, 0);
        assert_true(fr_shape_equal(&info->input, &FR_SHAPE(1, 28, 28)));
        assert_true(fr_dataset_bytes(d) >= 9 * (IDX_PIXELS + 1));
        for (int split = 0; split < 2; split++) {
            int n = split == FR_TRAIN ? 6 : 3;
            for (int i = 0; i < n; i++) {
                /* without augmentation, a draw number changes nothing */
                assert_int_equal(fr_dataset_read(d, (fr_split)split, i, 1, 99, x, &y, NULL), FR_OK);
                assert_int_equal(y, some_labels[split == FR_TRAIN ? i : 6 + i]);
                for (int p = 0; p < IDX_PIXELS; p++)
                    assert_float_equal(
                        x[p], ((float)pixel(i, p) / 255 - sets[k].mean) / sets[k].std, 1e-6);
            }
        }
        assert_int_equal(fr_dataset_read(d, FR_TRAIN, 6, 1, 0, x, &y, NULL), FR_INVALID);
        assert_int_equal(fr_dataset_read(d, FR_EVAL, -1, 1, 0, x, &y, NULL), FR_INVALID);
        size_t length;
        assert_null(fr_dataset_token_text(d, 0, &length));
        assert_int_equal(fr_dataset_encode(d, "a", 1, &y, 1), -1);
        fr_dataset_close(d);
    }
}

static void idx_limit(void **state)
{
    scratch *s = *state;
    put_good_idx(s);
    fr_dataset *d = open_good(s, NULL, "{name: mnist, path: '@', limit: 2}");
    assert_int_equal(fr_dataset_info(d)->n_train, 2);
    assert_int_equal(fr_dataset_info(d)->n_eval, 3);
    fr_dataset_close(d);
    d = open_good(s, NULL, "{name: mnist, path: '@', limit: 100}");
    assert_int_equal(fr_dataset_info(d)->n_train, 6);
    fr_dataset_close(d);
}

/* Every augmented image must be the plain one with an allowed shift, mirrored or not; many draws
 * must produce all of them. */
static void idx_augmentation(void **state)
{
    scratch *s = *state;
    enum { CROP = 1, PLACES = 2 * CROP + 1 };
    float plain[IDX_PIXELS], x[IDX_PIXELS], again[IDX_PIXELS], black = -0.1307f / 0.3081f;
    int seen[PLACES][PLACES][2] = {{{0}}}, n_seen = 0;
    int32_t y;
    put_good_idx(s);
    fr_dataset *d = open_good(s, NULL, "{name: mnist, path: '@', crop: 1, flip: true}");
    fr_dataset *off = open_good(s, NULL, "{name: mnist, path: '@'}");
    assert_int_equal(fr_dataset_read(off, FR_TRAIN, 4, 0, 0, plain, &y, NULL), FR_OK);
    for (uint64_t draw = 0; draw < 300; draw++) {
        int n_fits = 0;
        assert_int_equal(fr_dataset_read(d, FR_TRAIN, 4, 7, draw, x, &y, NULL), FR_OK);
        assert_int_equal(fr_dataset_read(d, FR_TRAIN, 4, 7, draw, again, &y, NULL), FR_OK);
        assert_memory_equal(x, again, sizeof x);
        for (int k = 0; k < PLACES * PLACES * 2; k++) {
            int down = k / 2 / PLACES - CROP, right = k / 2 % PLACES - CROP, mirror = k % 2;
            bool fits = true;
            for (int p = 0; fits && p < IDX_PIXELS; p++) {
                int row = p / 28 + down, column = (mirror ? 27 - p % 28 : p % 28) + right;
                bool inside = row >= 0 && row < 28 && column >= 0 && column < 28;
                float want = inside ? plain[row * 28 + column] : black;
                fits = x[p] > want - 1e-6f && x[p] < want + 1e-6f;
            }
            n_fits += fits;
            if (fits) n_seen += !seen[down + CROP][right + CROP][mirror]++;
        }
        assert_int_equal(n_fits, 1);
    }
    assert_int_equal(n_seen, PLACES * PLACES * 2);
    /* another seed draws other shifts; evaluation draws none */
    int n_differ = 0;
    for (uint64_t draw = 0; draw < 20; draw++) {
        assert_int_equal(fr_dataset_read(d, FR_TRAIN, 4, 7, draw, x, &y, NULL), FR_OK);
        assert_int_equal(fr_dataset_read(d, FR_TRAIN, 4, 8, draw, again, &y, NULL), FR_OK);
        n_differ += memcmp(x, again, sizeof x) != 0;
        assert_int_equal(fr_dataset_read(d, FR_EVAL, 2, 7, draw, x, &y, NULL), FR_OK);
        assert_int_equal(fr_dataset_read(off, FR_EVAL, 2, 0, 0, again, &y, NULL), FR_OK);
        assert_memory_equal(x, again, sizeof x);
    }
    assert_true(n_differ > 10);
    fr_dataset_close(d);
    fr_dataset_close(off);
}

static void idx_errors(void **state)
{
    scratch *s = *state;
    unsigned char bad[16], data[16] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28};
    open_bad(s, NULL, "{name: fashion-mnist, path: '@'}", "test.yaml:1", s->dir,
             "train-images-idx3-ubyte", "apt install dataset-fashion-mnist", NULL);
    open_bad(s, NULL, "{name: mnist, path: '@/nowhere'}", "train-images-idx3-ubyte", "path", NULL);
    open_bad(s, NULL, "{name: mnist}", "path", NULL);
    put_good_idx(s);
    drop_file(s, "t10k-labels-idx1-ubyte");
    open_bad(s, NULL, "{name: mnist, path: '@'}", "t10k-labels-idx1-ubyte", NULL);
    open_bad(s, NULL, "{name: mnist, path: '@', crop: -1}", "crop", NULL);
    open_bad(s, NULL, "{name: mnist, path: '@', flip: maybe}", "flip", NULL);
    /* a label that is not a class */
    memcpy(bad, some_labels, sizeof bad);
    bad[2] = 10;
    put_idx(s, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 3, bad);
    open_bad(s, NULL, "{name: mnist, path: '@'}", "t10k-labels-idx1-ubyte", "label 10", "image 2",
             NULL);
    /* labels and images must be equally many */
    put_idx(s, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 3, some_labels);
    put_idx(s, "other", "t10k-labels-idx1-ubyte", 4, some_labels);
    open_bad(s, NULL, "{name: mnist, path: '@'}", "4 labels", "3 images", NULL);
    /* files that are cut, packed and not, and one of another shape */
    put_idx(s, "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte", 3, some_labels);
    drop_file(s, "t10k-images-idx3-ubyte");
    char packed[128];
    snprintf(packed, sizeof packed, "%s/t10k-images-idx3-ubyte.gz", s->dir);
    assert_int_equal(truncate(packed, 100), 0);
    open_bad(s, NULL, "{name: mnist, path: '@'}", "t10k-images-idx3-ubyte.gz", NULL);
    put_file(s, "t10k-images-idx3-ubyte", data, sizeof data);
    open_bad(s, NULL, "{name: mnist, path: '@'}", "t10k-images-idx3-ubyte", NULL);
    memcpy(data, (unsigned char[]){0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4}, 16);
    put_file(s, "t10k-images-idx3-ubyte", data, sizeof data);
    open_bad(s, NULL, "{name: mnist, path: '@'}", "t10k-images-idx3-ubyte", "28 x 28", NULL);
}

static void put_cifar(const scratch *s, const char *name, int first, int n)
{
    unsigned char *data = calloc((size_t)n, CIFAR_RECORD);
    assert_non_null(data);
    for (int i = 0; i < n; i++) {
        data[i * CIFAR_RECORD] = (unsigned char)((first + i) % 10);
        for (int p = 0; p < CIFAR_PIXELS; p++) data[i * CIFAR_RECORD + 1 + p] = pixel(first + i, p);
    }
    put_file(s, name, data, (size_t)n * CIFAR_RECORD);
    free(data);
}

static void cifar_values(void **state)
{
    scratch *s = *state;
    static const float mean[3] = {0.4914f, 0.4822f, 0.4465f}, std[3] = {0.2470f, 0.2435f, 0.2616f};
    float x[CIFAR_PIXELS], plain[CIFAR_PIXELS];
    int32_t y;
    put_cifar(s, "data_batch_1.bin", 0, 3);
    put_cifar(s, "data_batch_2.bin.gz", 3, 2);
    put_cifar(s, "data_batch_2.bin", 3, 2); /* the packed file has the same content */
    put_cifar(s, "test_batch_part.bin.gz", 20, 2);
    put_file(s, "data_batch_3.txt", "x", 1);
    fr_dataset *d = open_good(s, NULL, "{name: cifar10, path: '@', crop: 0, flip: false}");
    fr_dataset *augmented = open_good(s, NULL, "{name: cifar10, path: '@'}");
    const fr_data_info *info = fr_dataset_info(d);
    assert_int_equal(info->n_train, 5);
    assert_int_equal(info->n_eval, 2);
    assert_int_equal(info->n_classes, 10);
    assert_true(fr_shape_equal(&info->input, &FR_SHAPE(3, 32, 32)));
    for (int i = 0; i < 7; i++) {
        int split = i < 5 ? FR_TRAIN : FR_EVAL, number = i < 5 ? i : 20 + i - 5;
        assert_int_equal(fr_dataset_read(d, (fr_split)split, i < 5 ? i : i - 5, 0, 3, x, &y, NULL),
                         FR_OK);
        assert_int_equal(y, number % 10);
        for (int p = 0; p < CIFAR_PIXELS; p++)
            assert_float_equal(
                x[p], ((float)pixel(number, p) / 255 - mean[p / 1024]) / std[p / 1024], 1e-6);
    }
    /* augmented by default in training, never in evaluation */
    int n_differ = 0;
    assert_int_equal(fr_dataset_read(d, FR_TRAIN, 1, 0, 0, plain, &y, NULL), FR_OK);
    for (uint64_t draw = 0; draw < 20; draw++) {
        assert_int_equal(fr_dataset_read(augmented, FR_TRAIN, 1, 0, draw, x, &y, NULL), FR_OK);
        n_differ += memcmp(x, plain, sizeof x) != 0;
    }
    assert_true(n_differ > 15);
    assert_int_equal(fr_dataset_read(d, FR_EVAL, 1, 0, 0, plain, &y, NULL), FR_OK);
    assert_int_equal(fr_dataset_read(augmented, FR_EVAL, 1, 0, 5, x, &y, NULL), FR_OK);
    assert_memory_equal(x, plain, sizeof x);
    fr_dataset_close(d);
    fr_dataset_close(augmented);
}

static void cifar_errors(void **state)
{
    scratch *s = *state;
    unsigned char *record = calloc(2, CIFAR_RECORD);
    assert_non_null(record);
    open_bad(s, NULL, "{name: cifar10, path: '@'}", "test.yaml:1", "data_batch_*.bin", NULL);
    open_bad(s, NULL, "{name: cifar10, path: '@/nowhere'}", "nowhere", NULL);
    put_cifar(s, "data_batch_1.bin", 0, 3);
    open_bad(s, NULL, "{name: cifar10, path: '@'}", "test_batch*.bin", NULL);
    put_file(s, "test_batch.bin", record, CIFAR_RECORD + 7);
    open_bad(s, NULL, "{name: cifar10, path: '@'}", "test_batch.bin", "3080 bytes", "record 1",
             NULL);
    put_file(s, "test_batch.bin", record, 0);
    open_bad(s, NULL, "{name: cifar10, path: '@'}", "test_batch.bin", "0 bytes", NULL);
    record[CIFAR_RECORD] = 77;
    put_file(s, "test_batch.bin", record, 2 * CIFAR_RECORD);
    open_bad(s, NULL, "{name: cifar10, path: '@'}", "test_batch.bin", "record 1", "label 77", NULL);
    free(record);
}

static void out_of_memory(void **state)
{
    scratch *s = *state;
    put_good_idx(s);
    put_cifar(s, "data_batch_1.bin", 0, 3);
    put_cifar(s, "data_batch_2.bin.gz", 3, 2);
    put_cifar(s, "test_batch.bin", 20, 2);
    walk_out_of_memory(s, NULL, "{name: mnist, path: '@'}");
    walk_out_of_memory(s, NULL, "{name: cifar10, path: '@'}");
}

/* --- the real sets ------------------------------------------------------------------------- */

/* Classes, mean and variance of the first training images: about even, 0 and 1. */
static void check_real(scratch *s, const char *yaml, int64_t n_train, int64_t n_eval)
{
    fr_dataset *d = open_good(s, NULL, yaml);
    const fr_data_info *info = fr_dataset_info(d);
    int64_t count = fr_shape_count(&info->input), n = 10000;
    float *x = malloc((size_t)count * sizeof *x);
    double sum = 0, squares = 0;
    int classes[10] = {0};
    assert_non_null(x);
    assert_int_equal(info->n_train, n_train);
    assert_int_equal(info->n_eval, n_eval);
    for (int64_t i = 0; i < n; i++) {
        int32_t y;
        assert_int_equal(fr_dataset_read(d, FR_TRAIN, i, 1, UINT64_MAX, x, &y, NULL), FR_OK);
        classes[y]++;
        for (int64_t p = 0; p < count; p++) sum += x[p], squares += (double)x[p] * x[p];
    }
    double mean = sum / (double)(n * count), variance = squares / (double)(n * count) - mean * mean;
    assert_true(mean > -0.02 && mean < 0.02);
    assert_true(variance > 0.97 && variance < 1.03);
    for (int k = 0; k < 10; k++) assert_true(classes[k] > 800 && classes[k] < 1200);
    free(x);
    fr_dataset_close(d);
}

static void real_sets(void **state)
{
    const char *root = getenv("FR_DATA_DIR");
    char yaml[1024];
    if (!root) skip_because("the real MNIST, Fashion-MNIST and CIFAR-10", NO_DATA);
    snprintf(yaml, sizeof yaml, "{name: mnist, path: '%s/mnist'}", root);
    check_real(*state, yaml, 60000, 10000);
    snprintf(yaml, sizeof yaml, "{name: fashion-mnist, path: '%s/fashion-mnist'}", root);
    check_real(*state, yaml, 60000, 10000);
    snprintf(yaml, sizeof yaml, "{name: cifar10, path: '%s/cifar-10'}", root);
    check_real(*state, yaml, 10000, 2000);
}

static void debian_fashion_mnist(void **state)
{
    if (access("/usr/share/datasets/fashion-mnist", R_OK) != 0)
        skip_because("Debian's Fashion-MNIST", "package dataset-fashion-mnist is not installed");
    check_real(*state, "{name: fashion-mnist}", 60000, 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, scratch_setup, scratch_teardown)
        T(idx_values),    T(idx_limit),    T(idx_augmentation),
        T(idx_errors),    T(cifar_values), T(cifar_errors),
        T(out_of_memory), T(real_sets),    T(debian_fashion_mnist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
