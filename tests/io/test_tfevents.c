/* test_tfevents.c -- TensorBoard's event files, read back by a reader that shares nothing with the
 * writer: frames and CRCs bit by bit, protobuf by its wire format. (tests/cli/tensorboard.sh also
 * reads them by protoc.) */
#include "support/test.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "io/tfevents.h"

/* --- the reader ------------------------------------------------------------------------------ */

/* The polynomial, one bit after the other. */
static uint32_t crc_by_bits(const unsigned char *data, size_t n)
{
    uint32_t crc = 0xFFFFFFFF;
    for (size_t i = 0; i < 8 * n; i++) {
        uint32_t bit = (data[i / 8] >> i % 8 & 1) ^ (crc & 1);
        crc >>= 1;
        if (bit) crc ^= 0x82F63B78;
    }
    return crc ^ 0xFFFFFFFF;
}

static uint64_t little(const unsigned char *at, size_t n)
{
    return n == 0 ? 0 : at[0] | little(at + 1, n - 1) << 8;
}

static void assert_crc(const unsigned char *data, size_t n, const unsigned char *stored)
{
    uint32_t rotated = (uint32_t)little(stored, 4) - 0xA282EAD8u;
    assert_int_equal(rotated >> 17 | rotated << 15, crc_by_bits(data, n));
}

typedef struct span {
    const unsigned char *at, *end;
} span;

typedef struct item {
    unsigned number, wire;
    uint64_t value; /* of a number */
    span bytes;     /* of a text or message */
} item;

static uint64_t varint(span *s)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        assert_true(s->at < s->end && shift < 64);
        value |= (uint64_t)(*s->at & 0x7F) << shift;
        if (!(*s->at++ & 0x80)) return value;
    }
}

/* False at the end of the message. */
static bool next_item(span *s, item *out)
{
    if (s->at == s->end) return false;
    uint64_t key = varint(s);
    out->number = (unsigned)(key >> 3), out->wire = key & 7;
    size_t n = out->wire == 1 ? 8 : out->wire == 5 ? 4 : 0;
    if (out->wire == 0) {
        out->value = varint(s);
    } else if (out->wire == 2) {
        n = (size_t)varint(s);
    } else {
        assert_true(n > 0);
    }
    assert_true((size_t)(s->end - s->at) >= n);
    if (out->wire == 1 || out->wire == 5) out->value = little(s->at, n);
    out->bytes = (span){s->at, s->at + n};
    s->at += n;
    return true;
}

/* An event as a line of text: "step what". */
static void describe(span event, double *wall_time, char *text, size_t room)
{
    long long step = 0;
    char rest[2048] = "";
    for (item i; next_item(&event, &i);) {
        size_t n = strlen(rest);
        if (i.number == 1) memcpy(wall_time, &i.value, 8);
        if (i.number == 2) step = (long long)i.value;
        if (i.number == 3)
            snprintf(rest + n, sizeof rest - n, " %.*s", (int)(i.bytes.end - i.bytes.at),
                     (const char *)i.bytes.at);
        if (i.number == 7) {
            item status;
            assert_true(next_item(&i.bytes, &status));
            snprintf(rest + n, sizeof rest - n, " session %d", (int)status.value);
        }
        for (item v; i.number == 5 && next_item(&i.bytes, &v);) {
            float value = 0;
            span tag = {0};
            for (item part; next_item(&v.bytes, &part);) {
                if (part.number == 1) tag = part.bytes;
                uint32_t bits = (uint32_t)part.value;
                if (part.number == 2) memcpy(&value, &bits, 4);
            }
            n = strlen(rest);
            snprintf(rest + n, sizeof rest - n, " %.*s=%.9g", (int)(tag.end - tag.at),
                     (const char *)tag.at, (double)value);
        }
    }
    snprintf(text, room, "%lld%s\n", step, rest);
}

/* The whole file as lines of text; frames and times are checked on the way. */
static void read_events(const char *path, char *text, size_t room)
{
    static unsigned char data[1 << 16];
    double now = (double)time(NULL);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(data, 1, sizeof data, f);
    fclose(f);
    text[0] = '\0';
    for (size_t at = 0; at < n;) {
        assert_true(n - at >= 16);
        uint64_t length = little(data + at, 8);
        assert_crc(data + at, 8, data + at + 8);
        assert_true(length <= n - at - 16);
        const unsigned char *event = data + at + 12;
        assert_crc(event, (size_t)length, event + length);
        double wall_time = 0;
        size_t used = strlen(text);
        describe((span){event, event + length}, &wall_time, text + used, room - used);
        assert_true(wall_time > now - 100 && wall_time < now + 100);
        at += 16 + (size_t)length;
    }
}

/* --- tests ----------------------------------------------------------------------------------- */

static void test_crc(void **state)
{
    (void)state;
    assert_int_equal(fr__crc32c("123456789", 9), 0xE3069283); /* the catalogue's check value */
    assert_int_equal(fr__crc32c("", 0), 0);
    unsigned char data[300];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * i * 7 + 1);
    for (size_t n = 0; n <= sizeof data; n++)
        assert_int_equal(fr__crc32c(data, n), crc_by_bits(data, n));
}

static void test_file(void **state)
{
    (void)state;
    char folder[] = "/tmp/forerun-test-XXXXXX", text[4096], first[4096];
    fr__tfevents t;
    fr_ctx *ctx = fr_ctx_create();
    assert_non_null(mkdtemp(folder));
    assert_int_equal(fr__tfevents_open(ctx, folder, 0, &t), FR_OK);
    fr__tf_scalar both[] = {{"loss/train", 0.25}, {"lr", 1e-3}};
    assert_int_equal(fr__tfevents_write(&t, 1, 2, both), FR_OK);
    assert_int_equal(fr__tfevents_write(&t, INT64_C(3) << 40, 1, both), FR_OK);
    assert_int_equal(fr__tfevents_flush(&t), FR_OK);
    read_events(t.path, text, sizeof text); /* while the writer continues */
    assert_string_equal(text, "0 brain.Event:2\n1 session 1\n1 loss/train=0.25 lr=0.00100000005\n"
                              "3298534883328 loss/train=0.25\n");
    fr__tf_scalar many[FR_TF_SCALARS + 1];
    for (int i = 0; i <= FR_TF_SCALARS; i++)
        many[i] = (fr__tf_scalar){"a/tag/of/the/greatest/length/that/counts/which/is/64/characters/"
                                  "and/no/more",
                                  -i};
    assert_int_equal(fr__tfevents_write(&t, 7, FR_TF_SCALARS, many), FR_OK);
    assert_int_equal(fr__tfevents_write(&t, 8, FR_TF_SCALARS + 1, many), FR_INTERNAL);
    strcpy(first, t.path);
    assert_int_equal(fr__tfevents_close(&t), FR_OK);
    read_events(first, text, sizeof text);
    assert_non_null(strstr(text, "\n7 a/tag/of/the/greatest/length/that/counts/which/is/64/"
                                 "characters/=0 a/tag"));
    assert_non_null(strstr(text, "/characters/=-15\n"));
    assert_null(strstr(text, "\n8 "));

    /* A resumed session: its name sorts after the first, and readers drop the steps after 5. */
    assert_int_equal(fr__tfevents_open(ctx, folder, 5, &t), FR_OK);
    assert_true(strcmp(t.path, first) > 0);
    assert_int_equal(fr__tfevents_close(&t), FR_OK);
    read_events(t.path, text, sizeof text);
    assert_string_equal(text, "0 brain.Event:2\n6 session 1\n");
    unlink(first), unlink(t.path), rmdir(folder);
    fr_ctx_free(ctx);
}

static void test_failures(void **state)
{
    (void)state;
    fr__tfevents t;
    fr_ctx *ctx = fr_ctx_create();
    assert_int_equal(fr__tfevents_open(ctx, "/nonexistent", 0, &t), FR_INVALID);
    assert_non_null(strstr(fr_ctx_error(ctx), "/nonexistent/events.out.tfevents."));
    fr_ctx_clear(ctx);
    t = (fr__tfevents){.ctx = ctx, .file = fopen("/dev/full", "w"), .path = "full"};
    if (t.file) {
        assert_int_equal(fr__tfevents_write(&t, 1, 1, &(fr__tf_scalar){"a", 1}), FR_OK);
        assert_int_equal(fr__tfevents_flush(&t), FR_IO);
        assert_non_null(strstr(fr_ctx_error(ctx), "full"));
        (void)fr__tfevents_close(&t);
    }
    fr_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
