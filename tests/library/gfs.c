/* The batched interface of Galley: each pattern in its document, written and read, compared with loops; vectors by
 * address and by value. Argument: an address to connect to. */

#include "check.h"
#include <gfs_compat.h>

enum { SIZE = 5000 };

_Static_assert(sizeof(struct slabfs_batch) == 64, "the structure of slabfs_batch.h");
_Static_assert(sizeof(struct gfs_batch) == 40, "the structure of gfs_compat.h");

static int fork_id;
static unsigned char naive[SIZE];

/* The definition, byte by byte: writes into the copy of the fork, or compares. */
static void interpret(const struct gfs_batch *vector, int quant, long f_base, long m_base, unsigned char *buf, int writes)
{
    long f_off = f_base, m_off = m_base;
    for (int i = 0; i < quant; i++) {
        const struct gfs_batch *one = &vector[i];
        f_off = (one->f_absolute ? 0 : f_off) + one->f_off;
        m_off = (one->m_absolute ? 0 : m_off) + one->m_off;
        for (int n = 0; n < one->quant; n++) {
            const long f = f_off + (long)n * one->f_stride, m = m_off + (long)n * one->m_stride;
            if (one->sub_vector) {
                interpret(one->sub.subvec, one->subvec_len, f, m, buf, writes);
                continue;
            }
            for (long byte = 0; byte < one->sub.size; byte++) {
                if (writes)
                    naive[f + byte] = buf[m + byte];
                else
                    CHECK(naive[f + byte] == buf[m + byte]);
            }
        }
    }
}

static void through(struct gfs_batch *vector, int quant)
{
    static unsigned char out[SIZE], in[SIZE];
    static int rounds;
    const gfs_handle handle = 7;

    for (int nonblocking = 0; nonblocking < 2; nonblocking++) {
        rounds++;
        for (int i = 0; i < SIZE; i++)
            out[i] = (unsigned char)(i * 13 + rounds * 5);
        memset(in, 0xee, sizeof in);
        interpret(vector, quant, 0, 0, out, 1);
        if (!nonblocking) {
            OK(gfs_write_batched(fork_id, (char *)out, vector, quant));
            OK(gfs_read_batched(fork_id, (char *)in, vector, quant));
        } else {
            OK(gfs_nb_write_batched(handle, fork_id, (char *)out, vector, quant));
            FAILS(SLABFS_EBUSY, gfs_nb_write_batched(handle, fork_id, (char *)out, vector, quant));
            OK(gfs_nb_read_batched(handle + 1, fork_id, (char *)in, vector, quant));
            while (gfs_test(handle + 1) == 0)
                continue;
            OK(gfs_wait(handle + 1));
            /* The write began earlier. */
            OK(gfs_wait(handle));
            FAILS(SLABFS_EHANDLE, gfs_wait(handle));
        }
        interpret(vector, quant, 0, 0, in, 0);
    }
}

static void patterns(void)
{
    struct gfs_batch standard = {.f_off = 1003, .m_off = 5, .quant = 1, .sub.size = 700};
    struct gfs_batch strided = {.f_off = 100, .quant = 90, .f_stride = 48, .m_stride = 8, .sub.size = 8};
    struct gfs_batch row = {.quant = 8, .f_stride = 120, .m_stride = 8, .sub.size = 8};
    struct gfs_batch nested = {.f_off = 40, .quant = 4, .f_stride = 960, .m_stride = 64,
                               .sub_vector = 1, .subvec_len = 1, .sub.subvec = &row};
    struct gfs_batch back = {.f_off = 3000, .f_absolute = 1, .m_off = 2000, .m_absolute = 1, .quant = 6,
                             .f_stride = -300, .m_stride = 30, .sub.size = 5};
    through(&standard, 1);
    through(&strided, 1);
    through(&nested, 1);

    struct gfs_batch lists[40];
    for (int i = 0; i < 40; i++)
        lists[i] = (struct gfs_batch){.f_off = i ? 117 : 0, .m_off = i ? 20 : 0, .quant = 1, .sub.size = 20};
    through(lists, 40);
    struct gfs_batch strides[] = {strided, {.f_off = 1, .m_off = 1000, .quant = 80, .f_stride = 48, .m_stride = 1,
                                            .sub.size = 1}};
    through(strides, 2);
    struct gfs_batch nesteds[] = {nested, back};
    through(nesteds, 2);

    /* Three levels; the last element of the middle one is at a fixed place, with size 0. */
    struct gfs_batch leaves[] = {{.quant = 4, .f_stride = 24, .m_stride = 8, .sub.size = 8},
                                 {.f_off = 200, .m_off = 32, .quant = 1, .sub.size = 3}};
    struct gfs_batch middle[] = {{.quant = 1, .sub.size = 16},
                                 {.f_off = 96, .m_off = 16, .quant = 5, .f_stride = 240, .m_stride = 48,
                                  .sub_vector = 1, .subvec_len = 2, .sub.subvec = leaves}};
    struct gfs_batch deep[] = {{.f_off = 8, .f_absolute = 1, .quant = 3, .f_stride = 1500, .m_stride = 300,
                                .sub_vector = 1, .subvec_len = 2, .sub.subvec = middle},
                               {.f_off = -7, .m_off = 1000, .quant = 1, .sub.size = 1},
                               {.f_off = 4990, .f_absolute = 1, .m_off = 10, .quant = 1, .sub.size = 10}};
    through(deep, 3);
}

int main(int argc, char **argv)
{
    struct slabfs_session session;
    struct slabfs_object object;
    struct slabfs_spec spec;
    char buf[SIZE] = {0};
    struct gfs_batch one = {.f_off = 10, .quant = 2, .f_stride = 4, .m_stride = 2, .sub.size = 2};

    CHECK(argc == 2);
    OK(slabfs_connect(argv[1], NULL, &session));
    /* A fork is a byte object in a container. */
    OK(slabfs_container_create(session, "galley"));
    OK(slabfs_spec_new(&spec));
    OK(slabfs_create(session, "galley/fork", spec, &object));
    OK(slabfs_spec_free(spec));
    OK(slabfs_gfs_fork(object, &fork_id));
    struct gfs_batch all = {.quant = 1, .sub.size = SIZE};
    OK(gfs_write_batched(fork_id, buf, all, 1));
    patterns();

    OK(gfs_read_batched(fork_id, buf, one, 1));
    CHECK(!memcmp(buf, naive + 10, 2) && !memcmp(buf + 2, naive + 14, 2));
    OK(gfs_nb_read_batched(0, fork_id, buf + 4, one, 1));
    OK(gfs_wait(0));
    CHECK(!memcmp(buf, buf + 4, 4));
    OK(gfs_nb_write_batched(0, fork_id, buf + 4, one, 1));
    OK(gfs_wait(0));
    FAILS(SLABFS_EINVALID, gfs_read_batched(fork_id, buf, one, 2));
    one.quant = -1;
    FAILS(SLABFS_EINVALID, gfs_read_batched(fork_id, buf, &one, 1));
    FAILS(SLABFS_EHANDLE, gfs_read_batched(fork_id + 1, buf, &all, 1));
    CHECK(gfs_test(0) == SLABFS_EHANDLE);

    /* Another session sees the writes. */
    struct slabfs_session other;
    OK(slabfs_connect(argv[1], NULL, &other));
    struct slabfs_object seen;
    OK(slabfs_open(other, "galley/fork", SLABFS_READ, &seen));
    OK(slabfs_read_text(seen, "[...]", buf, sizeof buf));
    CHECK(!memcmp(buf, naive, SIZE));
    OK(slabfs_object_close(seen));
    OK(slabfs_close(other));

    OK(slabfs_gfs_close(fork_id));
    OK(slabfs_object_close(object));
    OK(slabfs_close(session));
    printf("done\n");
    return 0;
}
