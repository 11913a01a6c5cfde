/* tfevents.c -- the writer of TensorBoard's event files.
 *
 * A file is a sequence of TFRecords, each an Event in protobuf's wire format:
 *
 *     length (8 bytes) | CRC of it (4) | Event | CRC of it (4)        little-endian, CRCs masked
 *
 * Only five fields of Event, Summary and SessionLog are needed, so the encoder is a few lines: a
 * message is built in a small buffer and appended to the enclosing one as length and bytes. The
 * first record names the version of the format. The second one, START of a session, makes readers
 * drop the records of earlier sessions from that step on, because a run that was killed after its
 * checkpoint repeats those steps. */
#include "io/tfevents.h"

#include "io/file.h"

#include <errno.h>
#include <string.h>
#include <time.h>

/* --- CRC-32C --------------------------------------------------------------------------------- */

/* Half a byte at a time: the table is small, and the speed suffices for 200 bytes per step. */
uint32_t fr__crc32c(const void *data, size_t bytes)
{
    static const uint32_t table[16] = {0x00000000, 0x105EC76F, 0x20BD8EDE, 0x30E349B1,
                                       0x417B1DBC, 0x5125DAD3, 0x61C69362, 0x7198540D,
                                       0x82F63B78, 0x92A8FC17, 0xA24BB5A6, 0xB21572C9,
                                       0xC38D26C4, 0xD3D3E1AB, 0xE330A81A, 0xF36E6F75};
    const unsigned char *at = data;
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

/* TFRecord masks its CRCs, so that the CRC of data that contain CRCs differs from theirs. */
static uint32_t masked_crc(const void *data, size_t bytes)
{
    uint32_t crc = fr__crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

/* --- protobuf -------------------------------------------------------------------------------- */

enum { MAX_TAG = 64, MAX_VALUE = MAX_TAG + 16, MAX_EVENT = FR_TF_SCALARS * (MAX_VALUE + 4) + 64 };
typedef enum wire { VARINT, FIXED64, BYTES, FIXED32 = 5 } wire;

/* The sizes above leave room for every message. */
typedef struct message {
    size_t n;
    unsigned char at[MAX_EVENT];
} message;

static void put_fixed(message *m, uint64_t value, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) m->at[m->n++] = (unsigned char)(value >> 8 * i);
}

static void put_varint(message *m, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) m->at[m->n++] = (unsigned char)(value | 0x80);
    m->at[m->n++] = (unsigned char)value;
}

static void put_key(message *m, unsigned field, wire type) { put_varint(m, field << 3 | type); }

static void put_bytes(message *m, unsigned field, const void *data, size_t bytes)
{
    put_key(m, field, BYTES);
    put_varint(m, bytes);
    memcpy(m->at + m->n, data, bytes);
    m->n += bytes;
}

static void put_float(message *m, unsigned field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(m, field, FIXED32);
    put_fixed(m, bits, 4);
}

/* Event { double wall_time = 1; int64 step = 2; ... } */
static void begin_event(message *m, int64_t step)
{
    struct timespec now;
    uint64_t bits;
    clock_gettime(CLOCK_REALTIME, &now);
    double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    memcpy(&bits, &seconds, sizeof bits);
    m->n = 0;
    put_key(m, 1, FIXED64);
    put_fixed(m, bits, 8);
    put_key(m, 2, VARINT);
    put_varint(m, (uint64_t)step);
}

/* Summary { repeated Value { string tag = 1; float simple_value = 2; } value = 1; } */
static void put_scalar(message *summary, const fr__tf_scalar *s)
{
    message value;
    value.n = 0;
    put_bytes(&value, 1, s->tag, strnlen(s->tag, MAX_TAG));
    put_float(&value, 2, (float)s->value);
    put_bytes(summary, 1, value.at, value.n);
}

/* --- the file -------------------------------------------------------------------------------- */

static fr_status write_record(fr__tfevents *t, const message *event)
{
    message head, tail;
    head.n = tail.n = 0;
    put_fixed(&head, event->n, 8);
    put_fixed(&head, masked_crc(head.at, 8), 4);
    put_fixed(&tail, masked_crc(event->at, event->n), 4);
    errno = 0;
    if (fwrite(head.at, 1, head.n, t->file) == head.n &&
        fwrite(event->at, 1, event->n, t->file) == event->n &&
        fwrite(tail.at, 1, tail.n, t->file) == tail.n)
        return FR_OK;
    return fr__io_fail(t->ctx, "write", t->path);
}

static fr_status write_head(fr__tfevents *t, int64_t step)
{
    static const char version[] = "brain.Event:2";
    enum { FILE_VERSION = 3, SESSION_LOG = 7, STATUS = 1, START = 1 }; /* fields, and a value */
    message event, log;
    begin_event(&event, 0);
    put_bytes(&event, FILE_VERSION, version, sizeof version - 1);
    FR_TRY(write_record(t, &event));
    log.n = 0;
    put_key(&log, STATUS, VARINT);
    put_varint(&log, START);
    begin_event(&event, step + 1); /* the first step that readers drop */
    put_bytes(&event, SESSION_LOG, log.at, log.n);
    FR_TRY(write_record(t, &event));
    return fr__tfevents_flush(t);
}

/* Readers process the files of a folder in the order of their names. Names contain the time in
 * microseconds, since one session may follow another within a second. */
fr_status fr__tfevents_open(fr_ctx *ctx, const char *folder, int64_t step, fr__tfevents *t)
{
    struct timespec now;
    memset(t, 0, sizeof *t);
    t->ctx = ctx;
    clock_gettime(CLOCK_REALTIME, &now);
    int n = snprintf(t->path, sizeof t->path, "%s/events.out.tfevents.%010lld.%06ld.forerun",
                     folder, (long long)now.tv_sec, now.tv_nsec / 1000);
    if (n < 0 || (size_t)n >= sizeof t->path)
        return fr_fail(ctx, FR_INVALID, "%.60s...: the path is too long for TensorBoard's file",
                       folder);
    t->file = fopen(t->path, "wx");
    if (!t->file) return fr__io_fail(ctx, "create", t->path);
    fr_status status = write_head(t, step);
    if (status != FR_OK) (void)fr__tfevents_close(t);
    return status;
}

fr_status fr__tfevents_write(fr__tfevents *t, int64_t step, int n, const fr__tf_scalar *scalars)
{
    enum { SUMMARY = 5 };
    message event, summary;
    if (n > FR_TF_SCALARS)
        return fr_fail(t->ctx, FR_INTERNAL, "%s: %d scalars in one step; the limit is %d", t->path,
                       n, FR_TF_SCALARS);
    summary.n = 0;
    for (int i = 0; i < n; i++) put_scalar(&summary, &scalars[i]);
    begin_event(&event, step);
    put_bytes(&event, SUMMARY, summary.at, summary.n);
    return write_record(t, &event);
}

fr_status fr__tfevents_flush(fr__tfevents *t)
{
    errno = 0;
    return fflush(t->file) == 0 ? FR_OK : fr__io_fail(t->ctx, "write", t->path);
}

fr_status fr__tfevents_close(fr__tfevents *t)
{
    errno = 0;
    bool failed = t->file && fclose(t->file) != 0;
    t->file = NULL;
    return failed ? fr__io_fail(t->ctx, "write", t->path) : FR_OK;
}
