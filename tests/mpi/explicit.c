/*
 * Contiguous reads and writes at explicit offsets and at each rank's own file pointer, from one element to
 * pieces so large that they are not buffered in the mount's memory.
 *
 *   explicit ELEMENTS FILE...
 */
#include "check.h"

static void exercise(const char *path, long elements, unsigned *wanted, long piece, int collective, int round)
{
    snprintf(doing, sizeof doing, "%s, pieces of %ld, %s", path, piece, collective ? "collective" : "independent");
    /* Piece n is of rank n % RANKS; the rest after the last complete cycle is not written. */
    long cycles = elements / (piece * RANKS);
    if (cycles > 12) cycles = 12;
    for (long i = 0; i < cycles * piece * RANKS; i++) wanted[i] = value(i, round);
    MPI_File file = opened(path, MPI_MODE_CREATE | MPI_MODE_RDWR, NULL);
    MPI_Status status;
    for (long cycle = 0; cycle < cycles; cycle++) {
        long at = (cycle * RANKS + rank) * piece;
        OK((collective ? MPI_File_write_at_all : MPI_File_write_at)(file, 4 * at, wanted + at, piece, MPI_UNSIGNED,
                                                                  &status));
        transferred(&status, piece);
    }
    handed_over(file);
    unsigned *seen = room(4 * piece);
    for (long cycle = 0; cycle < cycles; cycle++) {
        long at = (cycle * RANKS + (rank + 1) % RANKS) * piece;
        if (cycle % 2) {
            OK((collective ? MPI_File_read_at_all : MPI_File_read_at)(file, 4 * at, seen, piece, MPI_UNSIGNED,
                                                                    &status));
        } else {
            OK(MPI_File_seek(file, 4 * at, MPI_SEEK_SET));
            OK((collective ? MPI_File_read_all : MPI_File_read)(file, seen, piece, MPI_UNSIGNED, &status));
            MPI_Offset behind;
            OK(MPI_File_get_position(file, &behind));
            WANT(behind == 4 * (at + piece));
        }
        transferred(&status, piece);
        same("a piece of the neighbour", seen, wanted + at, piece);
    }
    /* Beyond the end nothing is read. */
    OK(MPI_File_read_at(file, 4 * elements, seen, piece, MPI_UNSIGNED, &status));
    transferred(&status, 0);
    if (piece > 1) {
        OK(MPI_File_read_at(file, 4 * (elements - 1), seen, piece, MPI_UNSIGNED, &status));
        transferred(&status, 1);
        same("the last element", seen, wanted + elements - 1, 1);
    }
    free(seen);
    OK(MPI_File_close(&file));
    compare_file(path, wanted, elements);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    WANT(argc > 2);
    long elements = atol(argv[1]);
    for (int i = 2; i < argc; i++) {
        unsigned *wanted = room(4 * elements);
        snprintf(doing, sizeof doing, "%s, all of it first", argv[i]);
        for (long at = 0; at < elements; at++) wanted[at] = value(at, 0);
        MPI_File file = opened(argv[i], MPI_MODE_CREATE | MPI_MODE_WRONLY, NULL);
        if (rank == 0) OK(MPI_File_write(file, wanted, elements, MPI_UNSIGNED, MPI_STATUS_IGNORE));
        OK(MPI_File_close(&file));
        compare_file(argv[i], wanted, elements);
        long pieces[] = {1, 37, 4096, elements / RANKS};
        for (int n = 0; n < 8; n++) exercise(argv[i], elements, wanted, pieces[n / 2], n % 2, n + 1);
        free(wanted);
    }
    return MPI_Finalize();
}
