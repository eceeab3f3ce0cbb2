/*
 * Round after round of writes by all ranks, each synced and then read by the neighbour, until a file requests the
 * end: faults of servers and links meanwhile must have no effect.
 *
 *   rounds PROGRESS ROWS COLUMNS FILE...
 *
 * PROGRESS is a directory that all ranks see and that is on no mount: `round` in it has the number of completed
 * rounds; a file `enough` ends the program after the current round.
 */
#include "array.h"

static char progress[400];

static void note(int round)
{
    char path[420], moved[420];
    snprintf(path, sizeof path, "%s/next", progress);
    snprintf(moved, sizeof moved, "%s/round", progress);
    FILE *file = fopen(path, "w");
    if (!file || fprintf(file, "%d\n", round) < 0 || fclose(file) || rename(path, moved))
        FAIL("%s: %s", path, strerror(errno));
}

/* Whether the completed round is the last one; rank 0 decides. */
static int enough(void)
{
    char path[420];
    int over = 0;
    snprintf(path, sizeof path, "%s/enough", progress);
    if (rank == 0) over = access(path, F_OK) == 0;
    OK(MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD));
    return over;
}

/* Each rank writes its uneven box in an even round, every fourth piece of 37 elements in an odd one. */
static void one_round(MPI_File file, const int dims[2], unsigned *wanted, int round)
{
    long elements = (long)dims[0] * dims[1], piece = 37;
    if (round % 2 == 0) {
        for (int who = 0; who < RANKS; who++) {
            struct box box = box_of(who, dims);
            paint(wanted, dims, &box, round);
        }
        struct box own = box_of(rank, dims);
        unsigned *bytes = packed(wanted, dims, &own);
        view(file, dims, &own);
        OK(MPI_File_write_all(file, bytes, volume(&own), MPI_UNSIGNED, MPI_STATUS_IGNORE));
        free(bytes);
    } else {
        long cycles = elements / (piece * RANKS);
        for (long i = 0; i < cycles * piece * RANKS; i++) wanted[i] = value(i, round);
        OK(MPI_File_set_view(file, 0, MPI_UNSIGNED, MPI_UNSIGNED, "native", MPI_INFO_NULL));
        for (long cycle = 0; cycle < cycles; cycle++) {
            long at = (cycle * RANKS + rank) * piece;
            OK(MPI_File_write_at(file, at, wanted + at, piece, MPI_UNSIGNED, MPI_STATUS_IGNORE));
        }
    }
    handed_over(file);
    OK(MPI_File_set_view(file, 0, MPI_UNSIGNED, MPI_UNSIGNED, "native", MPI_INFO_NULL));
    unsigned *seen = room(4 * elements);
    MPI_Status status;
    OK(MPI_File_read_at(file, 0, seen, elements, MPI_UNSIGNED, &status));
    transferred(&status, elements);
    same("the synced data of all", seen, wanted, elements);
    free(seen);
    barrier();
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    WANT(argc > 4);
    snprintf(progress, sizeof progress, "%s", argv[1]);
    int dims[2] = {atoi(argv[2]), atoi(argv[3])}, files = argc - 4, round = 0;
    long elements = (long)dims[0] * dims[1];
    MPI_File *file = room(files * sizeof *file);
    unsigned **wanted = room(files * sizeof *wanted);
    for (int i = 0; i < files; i++) {
        snprintf(doing, sizeof doing, "%s, all of it first", argv[4 + i]);
        wanted[i] = room(4 * elements);
        for (long at = 0; at < elements; at++) wanted[i][at] = value(at, -1);
        file[i] = opened(argv[4 + i], MPI_MODE_CREATE | MPI_MODE_RDWR, NULL);
        if (rank == 0) OK(MPI_File_write_at(file[i], 0, wanted[i], elements, MPI_UNSIGNED, MPI_STATUS_IGNORE));
        handed_over(file[i]);
    }
    do {
        for (int i = 0; i < files; i++) {
            snprintf(doing, sizeof doing, "%s, round %d", argv[4 + i], round);
            one_round(file[i], dims, wanted[i], round);
        }
        round++;
        if (rank == 0) note(round);
    } while (!enough());
    for (int i = 0; i < files; i++) {
        snprintf(doing, sizeof doing, "%s, in the end", argv[4 + i]);
        OK(MPI_File_close(&file[i]));
        compare_file(argv[4 + i], wanted[i], elements);
    }
    return MPI_Finalize();
}
