/*
 * Overlapping writes of all ranks, in atomic mode: the file must be as if they had been done one after the
 * other in some order, and a concurrent read sees each of them completely or not at all.
 *
 *   atomic contiguous|strided|concurrent ROWS COLUMNS FILE...
 *
 * Open MPI's own OMPIO takes no locks: its reads concurrent with writes, and its strided writes, are no more
 * atomic than read(2) and write(2) of the pieces.
 */
#include "array.h"

#define ROUNDS 6
/* The number of writes with concurrent reads. */
#define LAST 30

/* The part of the array that rank `who` writes, which overlaps with those of all others. */
static struct box part(int who, const int dims[2], int strided)
{
    if (strided) return (struct box){{who, who * dims[1] / 8}, {dims[0] - 2 * who, dims[1] / 2}};
    return (struct box){{who * dims[0] / 8, 0}, {dims[0] / 2, dims[1]}};
}

/* Whether writing the parts of `present` (one bit per rank) in some order results in `seen`. */
static int explained(const unsigned *seen, const unsigned *before, const int dims[2], int strided, int present, int round,
                     unsigned *scratch)
{
    long all = (long)dims[0] * dims[1];
    for (int order = 0; order < 256; order++) {
        int used = 0, whos[RANKS];
        for (int n = 0; n < RANKS; n++) {
            whos[n] = order >> 2 * n & 3;
            used |= 1 << whos[n];
        }
        if (used != (1 << RANKS) - 1) continue;
        memcpy(scratch, before, 4 * all);
        for (int n = 0; n < RANKS; n++) {
            struct box box = part(whos[n], dims, strided);
            if (present >> whos[n] & 1) paint(scratch, dims, &box, RANKS * round + whos[n]);
        }
        if (!memcmp(scratch, seen, 4 * all)) return 1;
    }
    return 0;
}

static void exercise(const char *path, const int dims[2], int strided, int collective)
{
    long all = (long)dims[0] * dims[1];
    unsigned *before = room(4 * all), *seen = room(4 * all), *scratch = room(4 * all);
    struct box mine = part(rank, dims, strided);
    snprintf(doing, sizeof doing, "%s, all of it first", path);
    MPI_File file = opened(path, MPI_MODE_CREATE | MPI_MODE_RDWR, NULL);
    if (rank == 0) OK(MPI_File_write(file, before, all, MPI_UNSIGNED, MPI_STATUS_IGNORE));
    OK(MPI_File_set_atomicity(file, 1));
    int atomic = 0;
    OK(MPI_File_get_atomicity(file, &atomic));
    WANT(atomic);
    for (int round = 1; round <= ROUNDS; round++) {
        snprintf(doing, sizeof doing, "%s, %s, %s, round %d", path, strided ? "strided" : "contiguous",
                 collective ? "collective" : "independent", round);
        unsigned *all_mine = room(4 * all);
        paint(all_mine, dims, &mine, RANKS * round + rank);
        unsigned *elements = packed(all_mine, dims, &mine);
        free(all_mine);
        OK(MPI_File_set_view(file, 0, MPI_UNSIGNED, MPI_UNSIGNED, "native", MPI_INFO_NULL));
        OK(MPI_File_read_at(file, 0, before, all, MPI_UNSIGNED, MPI_STATUS_IGNORE));
        view(file, dims, &mine);
        barrier();
        MPI_Status status;
        OK((collective ? MPI_File_write_at_all : MPI_File_write_at)(file, 0, elements, volume(&mine), MPI_UNSIGNED,
                                                                  &status));
        transferred(&status, volume(&mine));
        free(elements);
        OK(MPI_File_set_view(file, 0, MPI_UNSIGNED, MPI_UNSIGNED, "native", MPI_INFO_NULL));
        barrier();
        OK(MPI_File_read_at(file, 0, seen, all, MPI_UNSIGNED, MPI_STATUS_IGNORE));
        if (!explained(seen, before, dims, strided, 15, round, scratch))
            FAIL("no order of the four writes results in this file");
    }
    OK(MPI_File_close(&file));
    compare_file(path, seen, all);
    free(before);
    free(seen);
    free(scratch);
}

/* Rank 0 writes, the others read concurrently until they see its last write. */
static void concurrent(const char *path, const int dims[2])
{
    long all = (long)dims[0] * dims[1];
    unsigned *buffer = room(4 * all);
    snprintf(doing, sizeof doing, "%s, reads concurrent with writes", path);
    MPI_File file = opened(path, MPI_MODE_CREATE | MPI_MODE_RDWR, NULL);
    OK(MPI_File_set_atomicity(file, 1));
    if (rank == 0) OK(MPI_File_write_at(file, 0, buffer, all, MPI_UNSIGNED, MPI_STATUS_IGNORE));
    barrier();
    unsigned last = 0;
    for (unsigned round = 1; rank == 0 && round <= LAST; round++) {
        for (long i = 0; i < all; i++) buffer[i] = round;
        OK(MPI_File_write_at(file, 0, buffer, all, MPI_UNSIGNED, MPI_STATUS_IGNORE));
    }
    while (rank != 0 && last < LAST) {
        OK(MPI_File_read_at(file, 0, buffer, all, MPI_UNSIGNED, MPI_STATUS_IGNORE));
        for (long i = 1; i < all; i++)
            if (buffer[i] != buffer[0])
                FAIL("element %ld is of write %u, the first one of write %u", i, buffer[i], buffer[0]);
        if (buffer[0] < last) FAIL("write %u was seen before, and now write %u", last, buffer[0]);
        last = buffer[0];
    }
    OK(MPI_File_close(&file));
    free(buffer);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    WANT(argc > 4);
    int strided = !strcmp(argv[1], "strided"), dims[2] = {atoi(argv[2]), atoi(argv[3])};
    for (int i = 4; i < argc; i++) {
        if (!strcmp(argv[1], "concurrent")) {
            concurrent(argv[i], dims);
        } else {
            exercise(argv[i], dims, strided, 0);
            exercise(argv[i], dims, strided, 1);
        }
    }
    return MPI_Finalize();
}
