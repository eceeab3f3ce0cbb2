/* Transfers and batches: started, tested, waited for, cancelled and freed, alone and many at once, and invalid ones.
 * Argument: an address to connect to. */

#include "check.h"
#include <pthread.h>

enum { ROWS = 32, WIDTH = 64 };

static struct slabfs_session session;

static struct slabfs_object object_of(const char *name, const char *dims, const char *dtype)
{
    struct slabfs_spec spec;
    struct slabfs_object object;
    OK(slabfs_spec_new(&spec));
    OK(slabfs_spec_set(spec, "dims", dims));
    OK(slabfs_spec_set(spec, "dtype", dtype));
    OK(slabfs_create(session, name, spec, &object));
    OK(slabfs_spec_free(spec));
    return object;
}

static void free_all(int count, struct slabfs_transfer *transfers)
{
    for (int i = 0; i < count; i++)
        OK(slabfs_transfer_free(transfers[i]));
}

static void many_as_one(void)
{
    struct slabfs_object object = object_of("many", "32,64", "i4");
    struct slabfs_transfer transfers[2 * ROWS];
    static int32_t rows[ROWS][WIDTH], back[ROWS][WIDTH];
    int32_t ended = 0;

    for (int i = 0; i < ROWS; i++) {
        const uint64_t start[] = {i, 0}, count[] = {1, WIDTH};
        const struct slabfs_slab row = {2, start, NULL, count, NULL};
        for (int j = 0; j < WIDTH; j++)
            rows[i][j] = i * 1000 + j;
        OK(slabfs_transfer_write(object, &row, rows[i], sizeof rows[i], NULL, &transfers[i]));
        OK(slabfs_transfer_read(object, &row, back[i], sizeof back[i], NULL, &transfers[ROWS + i]));
    }
    OK(slabfs_transfer_start_all(2 * ROWS, transfers));
    while (!ended)
        OK(slabfs_transfer_test(transfers[2 * ROWS - 1], &ended));
    OK(slabfs_transfer_wait_all(2 * ROWS, transfers));
    OK(slabfs_transfer_wait(transfers[0]));
    /* Writes are executed first. */
    CHECK(!memcmp(rows, back, sizeof rows));
    free_all(2 * ROWS, transfers);
    FAILS(SLABFS_EHANDLE, slabfs_transfer_wait(transfers[0]));
    OK(slabfs_object_close(object));
}

/* A block of a larger array of doubles, in an object of short integers. */
static void memory_of_another_form(void)
{
    struct slabfs_object object = object_of("form", "4,4", "i2");
    struct slabfs_transfer transfer;
    const uint64_t start[] = {1, 1}, count[] = {2, 3}, shape[] = {2, 3};
    const struct slabfs_slab box = {2, start, NULL, count, NULL};
    double large[4][5] = {{0}};
    const uint64_t strides[] = {sizeof large[0], sizeof large[0][0]};
    struct slabfs_memory inner = {.offset = sizeof large[0] + sizeof(double), .rank = 2,
                                  .shape = shape, .strides = strides, .dtype = "f8"};
    int16_t two[2][3];

    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            large[1 + i][1 + j] = 10 * i + j;
    OK(slabfs_transfer_write(object, &box, large, sizeof large, &inner, &transfer));
    OK(slabfs_transfer_wait(transfer));
    OK(slabfs_transfer_free(transfer));
    OK(slabfs_read_box(object, 2, start, shape, two, sizeof two, NULL));
    CHECK(two[0][2] == 2 && two[1][0] == 10 && two[1][2] == 12);

    large[2][1] = 1e6;
    OK(slabfs_transfer_write(object, &box, large, sizeof large, &inner, &transfer));
    FAILS(SLABFS_EINVALID, slabfs_transfer_wait_all(1, &transfer));
    CHECK(slabfs_error_index() == 0 && strstr(slabfs_error(), "element 3"));
    FAILS(SLABFS_EINVALID, slabfs_transfer_wait(transfer));
    OK(slabfs_transfer_free(transfer));

    inner.offset = sizeof large;
    FAILS(SLABFS_EINVALID, slabfs_transfer_read(object, &box, large, sizeof large, &inner, &transfer));
    inner.dtype = "nothing";
    FAILS(SLABFS_EINVALID, slabfs_transfer_read(object, &box, large, sizeof large, &inner, &transfer));
    FAILS(SLABFS_EINVALID, slabfs_transfer_read(object, &box, NULL, 12, NULL, &transfer));
    FAILS(SLABFS_EINVALID, slabfs_transfer_read(object, &box, large, 11, NULL, &transfer));
    FAILS(SLABFS_EINVALID, slabfs_transfer_read(object, &box, large, 12, NULL, NULL));
    OK(slabfs_object_close(object));
}

static void *wait_for(void *argument)
{
    const int32_t code = slabfs_transfer_wait(*(struct slabfs_transfer *)argument);
    CHECK(code == SLABFS_OK || code == SLABFS_ECANCELLED || code == SLABFS_EHANDLE);
    return NULL;
}

static void ends(void)
{
    struct slabfs_object object = object_of("ends", "65536", "u1");
    struct slabfs_transfer transfer;
    pthread_t thread;

    for (int round = 0; round < 20; round++) {
        unsigned char *buffer = malloc(65536);
        memset(buffer, round, 65536);
        OK(slabfs_transfer_write(object, NULL, buffer, 65536, NULL, &transfer));
        CHECK(!pthread_create(&thread, NULL, wait_for, &transfer));
        if (round % 3 == 0)
            OK(slabfs_transfer_cancel(transfer));
        if (round % 3 == 1)
            OK(slabfs_transfer_start(transfer));
        OK(slabfs_transfer_free(transfer));
        /* The library does not access it any more. */
        free(buffer);
        CHECK(!pthread_join(thread, NULL));
    }
    FAILS(SLABFS_EINVALID, slabfs_transfer_read(object, NULL, NULL, 0, NULL, &transfer));
    OK(slabfs_object_close(object));
}

/* Of every second row: the first two of each four elements, packed. */
static void batches(void)
{
    struct slabfs_object object = object_of("batches", "16,16", "i4");
    struct slabfs_batch pairs = {.quant = 4, .f_stride = 4, .m_stride = 2, .sub.size = 2};
    struct slabfs_batch rows = {.quant = 8, .f_stride = 32, .m_stride = 8,
                                .sub_vector = 1, .subvec_len = 1, .sub.subvec = &pairs};
    struct slabfs_transfer both[2];
    int32_t packed[64], back[64], all[16][16];

    for (int i = 0; i < 64; i++)
        packed[i] = 100 + i;
    OK(slabfs_write_batch(object, &rows, 1, SLABFS_ELEMENTS, packed, sizeof packed));
    OK(slabfs_read_text(object, "[...]", all, sizeof all));
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++)
            CHECK(all[i][j] == (i % 2 || j % 4 > 1 ? 0 : 100 + i / 2 * 8 + j / 4 * 2 + j % 4));
    OK(slabfs_read_batch(object, &rows, 1, SLABFS_ELEMENTS, back, sizeof back));
    CHECK(!memcmp(packed, back, sizeof packed));

    /* The same as transfers; the batch is not accessed after they are made. */
    for (int i = 0; i < 64; i++)
        packed[i] = 200 + i;
    OK(slabfs_transfer_write_batch(object, &rows, 1, SLABFS_ELEMENTS, packed, sizeof packed, &both[0]));
    OK(slabfs_transfer_read_batch(object, &rows, 1, SLABFS_ELEMENTS, back, sizeof back, &both[1]));
    memset(&pairs, 0xff, sizeof pairs);
    OK(slabfs_transfer_start_all(2, both));
    OK(slabfs_transfer_wait_all(2, both));
    CHECK(!memcmp(packed, back, sizeof packed));
    free_all(2, both);

    /* Invalid batches: one nested in itself, overlapping memory, missing parts. */
    rows.sub.subvec = &rows;
    FAILS(SLABFS_ETOOLARGE, slabfs_read_batch(object, &rows, 1, SLABFS_BYTES, back, sizeof back));
    rows.sub.subvec = NULL;
    FAILS(SLABFS_EINVALID, slabfs_read_batch(object, &rows, 1, SLABFS_BYTES, back, sizeof back));
    struct slabfs_batch over[] = {{.quant = 1, .sub.size = 8}, {.quant = 1, .m_off = 4, .sub.size = 8}};
    FAILS(SLABFS_EINVALID, slabfs_read_batch(object, over, 2, SLABFS_BYTES, back, sizeof back));
    CHECK(strstr(slabfs_error(), "elements 0 and 1"));
    OK(slabfs_write_batch(object, over, 2, SLABFS_BYTES, back, sizeof back));
    over[1].f_off = -1;
    FAILS(SLABFS_EINVALID, slabfs_write_batch(object, over, 2, SLABFS_BYTES, back, sizeof back));
    over[1].f_off = 1020;
    FAILS(SLABFS_ETOOLARGE, slabfs_write_batch(object, over, 2, SLABFS_BYTES, back, sizeof back));
    FAILS(SLABFS_EINVALID, slabfs_read_batch(object, over, 2, 9, back, sizeof back));
    FAILS(SLABFS_EINVALID, slabfs_read_batch(object, over, 2, SLABFS_BYTES, back, 4));
    OK(slabfs_object_close(object));
}

int main(int argc, char **argv)
{
    struct slabfs_transfer never = {0};
    CHECK(argc == 2);
    OK(slabfs_connect(argv[1], NULL, &session));
    many_as_one();
    memory_of_another_form();
    ends();
    batches();
    FAILS(SLABFS_EHANDLE, slabfs_transfer_start(never));
    FAILS(SLABFS_EHANDLE, slabfs_transfer_free(never));
    /* One that is not freed when the session ends. */
    struct slabfs_object object;
    struct slabfs_transfer left;
    int32_t row[WIDTH];
    const uint64_t start[] = {0, 0}, count[] = {1, WIDTH};
    const struct slabfs_slab first = {2, start, NULL, count, NULL};
    OK(slabfs_open(session, "many", SLABFS_READ, &object));
    FAILS(SLABFS_EREADONLY, slabfs_transfer_write(object, &first, row, sizeof row, NULL, &left));
    OK(slabfs_transfer_read(object, &first, row, sizeof row, NULL, &left));
    OK(slabfs_transfer_start(left));
    OK(slabfs_close(session));
    OK(slabfs_transfer_wait(left));
    CHECK(row[5] == 5);
    OK(slabfs_transfer_free(left));
    OK(slabfs_object_close(object));
    printf("done\n");
    return 0;
}
