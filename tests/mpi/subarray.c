/*
 * Four uneven, misaligned boxes of a 2-D array through subarray views, each rank its own.
 *
 *   subarray ROWS COLUMNS FILE...
 *
 * Every other round omits the last row and column of each box: the data there must not change, also where data
 * sieving reads and writes it back.
 */
#include "array.h"

static void exercise(const char *path, const int dims[2], unsigned *wanted, const struct hints *hints, int collective,
                     int round)
{
    snprintf(doing, sizeof doing, "%s, %s, %s, round %d", path, hints->name, collective ? "collective" : "independent",
             round);
    struct box boxes[RANKS];
    for (int who = 0; who < RANKS; who++) {
        boxes[who] = box_of(who, dims);
        for (int axis = 0; round % 2 && axis < 2; axis++) boxes[who].shape[axis]--;
        paint(wanted, dims, &boxes[who], round);
    }
    long count = volume(&boxes[rank]);
    unsigned *mine = packed(wanted, dims, &boxes[rank]), *seen = room(4 * count);
    MPI_File file = opened(path, MPI_MODE_CREATE | MPI_MODE_RDWR, hints);
    MPI_Status status;
    view(file, dims, &boxes[rank]);
    OK((collective ? MPI_File_write_all : MPI_File_write)(file, mine, count, MPI_UNSIGNED, &status));
    transferred(&status, count);
    /* Open MPI returns from a collective write before the aggregators of other ranks have written. */
    if (collective) handed_over(file);
    OK((collective ? MPI_File_read_at_all : MPI_File_read_at)(file, 0, seen, count, MPI_UNSIGNED, &status));
    transferred(&status, count);
    same("the box just written", seen, mine, count);
    free(mine);
    free(seen);

    handed_over(file);
    const struct box *other = &boxes[(rank + 1) % RANKS];
    count = volume(other);
    mine = packed(wanted, dims, other);
    seen = room(4 * count);
    view(file, dims, other);
    OK((collective ? MPI_File_read_all : MPI_File_read)(file, seen, count, MPI_UNSIGNED, &status));
    transferred(&status, count);
    same("the neighbour's box", seen, mine, count);
    free(mine);
    free(seen);
    OK(MPI_File_close(&file));
    compare_file(path, wanted, (long)dims[0] * dims[1]);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    WANT(argc > 3);
    int dims[2] = {atoi(argv[1]), atoi(argv[2])};
    for (int i = 3; i < argc; i++) {
        unsigned *wanted = room((size_t)4 * dims[0] * dims[1]);
        int round = 0;
        for (int set = 0; set < HINT_SETS; set++)
            for (int collective = 0; collective < 2; collective++, round += 2) {
                if (!matters(set, collective)) continue;
                exercise(argv[i], dims, wanted, &HINTS[set], collective, round);
                exercise(argv[i], dims, wanted, &HINTS[set], collective, round + 1);
            }
        free(wanted);
    }
    return MPI_Finalize();
}
