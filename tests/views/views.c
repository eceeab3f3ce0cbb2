/* Compares views on a file handle with a naive interpreter: the patterns of Galley's batched interface, and random
 * trees. Usage: views FILE SEED ROUNDS. The file has data already; reads and writes through views are compared
 * with the definition, byte by byte.
 *
 * views --set OFFSET SIZE sets a view of those bytes on its standard input, and exits. */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "slabfs_ioctl.h"

#define MOST 60000 /* the most bytes of a tested view */

static int raw, viewed;
static off_t size;
static unsigned char *model;

static uint64_t state;
static uint64_t number(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? (state >> 11) % below : 0;
}

/* The offset of each byte, by the definition. */
struct bytes {
    int64_t at[MOST];
    size_t n;
    int low, many;
};

static void expand(const struct slabfs_batch *batch, uint64_t n, int64_t base, struct bytes *out)
{
    int64_t before = base;
    for (uint64_t i = 0; i < n && !out->many; i++) {
        int64_t first = (batch[i].f_absolute ? 0 : before) + batch[i].f_off;
        before = first;
        for (uint64_t q = 0; q < batch[i].quant && !out->many; q++) {
            int64_t at = first + (int64_t)q * batch[i].f_stride;
            if (batch[i].sub_vector) {
                expand(batch[i].sub.subvec, batch[i].subvec_len, at, out);
                continue;
            }
            for (uint64_t b = 0; b < batch[i].sub.size; b++) {
                if (out->n == MOST) {
                    out->many = 1;
                    return;
                }
                out->low |= at + (int64_t)b < 0;
                out->at[out->n++] = at + (int64_t)b;
            }
        }
    }
}

static void same(const struct slabfs_batch *one, const struct slabfs_batch *other, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (one[i].f_off != other[i].f_off || one[i].f_stride != other[i].f_stride ||
            one[i].quant != other[i].quant || !one[i].f_absolute != !other[i].f_absolute ||
            !one[i].sub_vector != !other[i].sub_vector)
            errx(1, "element %llu came back as another one", (unsigned long long)i);
        if (!one[i].sub_vector) {
            if (one[i].sub.size != other[i].sub.size)
                errx(1, "a size came back as another one");
        } else {
            if (one[i].subvec_len != other[i].subvec_len)
                errx(1, "a vector came back with another length");
            same(one[i].sub.subvec, other[i].sub.subvec, one[i].subvec_len);
        }
    }
}

static void compare(const unsigned char *got, size_t from, size_t len, const struct bytes *bytes)
{
    for (size_t i = 0; i < len; i++)
        if (got[i] != model[bytes->at[from + i]])
            errx(1, "byte %zu of the view is %d, and byte %lld of the object %d", from + i, got[i],
                 (long long)bytes->at[from + i], model[bytes->at[from + i]]);
}

static void read_all(int fd, const struct bytes *bytes)
{
    static unsigned char got[MOST];
    size_t done = 0;
    if (lseek(fd, 0, SEEK_SET) != 0)
        err(1, "lseek");
    for (;;) {
        size_t want = 1 + number(bytes->n);
        ssize_t n = read(fd, got, want < sizeof got ? want : sizeof got);
        if (n < 0)
            err(1, "read at %zu of %zu", done, bytes->n);
        if (n == 0)
            break;
        if (done + (size_t)n > bytes->n)
            errx(1, "read beyond the end of the view");
        compare(got, done, (size_t)n, bytes);
        done += (size_t)n;
    }
    if (done != bytes->n)
        errx(1, "the view ended at %zu of %zu", done, bytes->n);
}

/* Parts of a batch beyond the limits of a view, or beyond the object, are refused. */
static int refused(const struct slabfs_batch *batch, uint64_t n, const struct bytes *bytes)
{
    unsigned char byte;
    int beyond = 0;
    if (bytes->many)
        return 1;
    if (bytes->low) {
        if (slabfs_set_view(viewed, batch, n) == 0 || errno != EINVAL)
            errx(1, "a view that begins before the object was set");
        return 1;
    }
    for (size_t i = 0; i < bytes->n; i++)
        beyond |= bytes->at[i] >= size;
    if (!beyond)
        return 0;
    if (slabfs_set_view(viewed, batch, n) != 0)
        err(1, "slabfs_set_view");
    for (size_t i = 0; i < bytes->n; i++)
        if (bytes->at[i] >= size && (pread(viewed, &byte, 1, (off_t)i) >= 0 || errno != EINVAL))
            errx(1, "byte %zu of a view beyond the end of the object was read", i);
    return 1;
}

static void pattern(const struct slabfs_batch *batch, uint64_t n)
{
    static struct bytes bytes;
    static struct slabfs_batch back[4096];
    static unsigned char data[MOST];
    uint32_t unit = 9;
    bytes.n = 0;
    bytes.low = bytes.many = 0;
    expand(batch, n, 0, &bytes);
    if (refused(batch, n, &bytes))
        return;
    if (slabfs_set_view(viewed, batch, n) != 0)
        err(1, "slabfs_set_view");
    if (slabfs_view_bytes(viewed) != (int64_t)bytes.n)
        errx(1, "a view of %zu bytes has %lld", bytes.n, (long long)slabfs_view_bytes(viewed));
    if (slabfs_get_view(viewed, back, 4096, &unit) != (int64_t)n || unit != SLABFS_VIEW_BYTES)
        err(1, "slabfs_get_view");
    same(batch, back, n);
    if (slabfs_lseek(viewed, 0, SEEK_END) != (off_t)bytes.n)
        err(1, "slabfs_lseek");
    read_all(viewed, &bytes);
    for (int i = 0; i < 4 && bytes.n > 0; i++) {
        size_t from = number(bytes.n), len = 1 + number(bytes.n - from);
        ssize_t got = pread(viewed, data, len, (off_t)from);
        if (got < 0 || (size_t)got != len)
            err(1, "pread of %zu at %zu gave %zd", len, from, got);
        compare(data, from, len, &bytes);
        from = number(bytes.n);
        len = 1 + number(bytes.n - from);
        for (size_t b = 0; b < len; b++)
            data[b] = (unsigned char)number(256);
        got = pwrite(viewed, data, len, (off_t)from);
        if (got < 0 || (size_t)got != len)
            err(1, "pwrite of %zu at %zu gave %zd", len, from, got);
        for (size_t b = 0; b < len; b++)
            model[bytes.at[from + b]] = data[b];
    }
    if (pwrite(viewed, data, 1, (off_t)bytes.n) >= 0 || errno != EFBIG)
        errx(1, "a write beyond the end of the view did not fail with EFBIG");
    if (slabfs_clear_view(viewed) != 0)
        err(1, "slabfs_clear_view");
    if (slabfs_view_bytes(viewed) >= 0 || errno != ENODATA)
        errx(1, "there is a view after it was removed");
    /* Without a view, and through another handle: all of the object. */
    for (int i = 0; i < 2; i++) {
        unsigned char *all = (unsigned char *)malloc((size_t)size);
        if (pread(i ? raw : viewed, all, (size_t)size, 0) != size)
            err(1, "pread of all");
        if (memcmp(all, model, (size_t)size) != 0)
            errx(1, "the object differs from the written data");
        free(all);
    }
}

static struct slabfs_batch leaf(int64_t off, uint64_t quant, int64_t stride, uint64_t bytes)
{
    struct slabfs_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.f_off = off;
    batch.quant = quant;
    batch.f_stride = stride;
    batch.sub.size = bytes;
    return batch;
}

static struct slabfs_batch tree(int64_t off, uint64_t quant, int64_t stride, struct slabfs_batch *below,
                                uint64_t n)
{
    struct slabfs_batch batch = leaf(off, quant, stride, 0);
    batch.sub_vector = 1;
    batch.subvec_len = n;
    batch.sub.subvec = below;
    return batch;
}

static struct slabfs_batch pool[1024];
static size_t pooled;

static struct slabfs_batch random_batch(int depth)
{
    int64_t off = (int64_t)number(200) - (number(8) == 0 ? 150 : 0);
    int64_t stride = (int64_t)number(300) - (number(5) == 0 ? 200 : 0);
    struct slabfs_batch batch = leaf(off, number(6), stride, number(40));
    batch.f_absolute = number(6) == 0;
    if (depth < 4 && number(2) && pooled + 4 < sizeof pool / sizeof *pool) {
        uint64_t n = number(4);
        struct slabfs_batch *below = pool + pooled;
        pooled += n;
        for (uint64_t i = 0; i < n; i++)
            below[i] = random_batch(depth + 1);
        batch.sub_vector = 1;
        batch.subvec_len = n;
        batch.sub.subvec = below;
    }
    return batch;
}

static void examples(void)
{
    struct slabfs_batch standard = leaf(100, 1, 0, 1000);
    struct slabfs_batch simple = leaf(8, 50, 64, 8);
    struct slabfs_batch inner = leaf(0, 10, 16, 4), nested = tree(32, 12, 500, &inner, 1);
    struct slabfs_batch list[3] = {leaf(10, 1, 0, 5), leaf(40, 1, 0, 7), leaf(-20, 1, 0, 3)};
    struct slabfs_batch strided[2] = {leaf(0, 20, 100, 10), leaf(50, 20, 100, 10)};
    struct slabfs_batch trees[2];
    struct slabfs_batch deep[3], middle, mixed[3];
    pattern(&standard, 1);
    pattern(&simple, 1);
    pattern(&nested, 1);
    pattern(list, 3);
    pattern(strided, 2);
    trees[0] = nested;
    trees[1] = tree(16, 5, 700, strided, 2);
    trees[1].f_absolute = 1;
    pattern(trees, 2);
    deep[0] = leaf(0, 4, 8, 2);
    deep[1] = leaf(40, 2, 12, 6);
    deep[2] = leaf(3, 1, 0, 1);
    middle = tree(5, 6, 120, deep, 3);
    nested = tree(0, 8, 1000, &middle, 1);
    pattern(&nested, 1);
    mixed[0] = leaf(5000, 3, -40, 9);
    mixed[1] = leaf(2, 2, 0, 4);
    mixed[1].f_absolute = 1;
    mixed[2] = tree(30, 3, 77, list, 3);
    pattern(mixed, 3);
    pattern(NULL, 0);
}

static int set(const char *offset, const char *bytes)
{
    struct slabfs_batch batch;
    memset(&batch, 0, sizeof batch);
    batch.quant = 1;
    batch.f_off = strtoll(offset, NULL, 10);
    batch.sub.size = strtoull(bytes, NULL, 10);
    if (slabfs_set_view(0, &batch, 1) != 0)
        err(1, "slabfs_set_view");
    return 0;
}

int main(int argc, char **argv)
{
    struct stat stat;
    if (argc != 4)
        errx(2, "usage: views FILE SEED ROUNDS, or views --set OFFSET SIZE");
    if (strcmp(argv[1], "--set") == 0)
        return set(argv[2], argv[3]);
    raw = open(argv[1], O_RDWR);
    viewed = open(argv[1], O_RDWR);
    if (raw < 0 || viewed < 0 || fstat(raw, &stat) != 0)
        err(1, "%s", argv[1]);
    size = stat.st_size;
    model = (unsigned char *)malloc((size_t)size);
    if (pread(raw, model, (size_t)size, 0) != size)
        err(1, "pread");
    state = strtoull(argv[2], NULL, 10) | 1;
    examples();
    for (long round = strtol(argv[3], NULL, 10); round > 0; round--) {
        struct slabfs_batch batches[4];
        uint64_t n = 1 + number(4);
        pooled = 0;
        for (uint64_t i = 0; i < n; i++)
            batches[i] = random_batch(0);
        batches[0].f_off += 300;
        pattern(batches, n);
    }
    printf("right\n");
    return 0;
}
