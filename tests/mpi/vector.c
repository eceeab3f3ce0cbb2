/*
 * Very small pieces of the ranks in round-robin order: through vector views, from memory that is strided too.
 *
 *   vector ELEMENTS FILE...
 *
 * A rank omits every third of its pieces; the data there must not change.
 */
#include "check.h"

#define PIECE 3

/* The rank of element `i`, or -1. */
static int owner(long i) { return i / (RANKS * PIECE) % 3 == 2 ? -1 : (int)(i / PIECE % RANKS); }

/* Three cycles of the ranks, of which the third is omitted. */
static void set_view(MPI_File file, int who)
{
    MPI_Datatype two, cycles;
    OK(MPI_Type_vector(2, PIECE, RANKS * PIECE, MPI_UNSIGNED, &two));
    OK(MPI_Type_create_resized(two, 0, 3 * RANKS * PIECE * 4, &cycles));
    OK(MPI_Type_commit(&cycles));
    OK(MPI_File_set_view(file, (MPI_Offset)who * PIECE * 4, MPI_UNSIGNED, cycles, "native", MPI_INFO_NULL));
    OK(MPI_Type_free(&two));
    OK(MPI_Type_free(&cycles));
}

/* The elements of `who`, each followed by an unused one. */
static unsigned *owned(const unsigned *array, long elements, int who, int *count)
{
    unsigned *spread = room(8 * elements);
    *count = 0;
    for (long i = 0; i < elements; i++)
        if (owner(i) == who) {
            spread[2 * *count] = array[i];
            spread[2 * (*count)++ + 1] = 0xabababab;
        }
    return spread;
}

static void exercise(const char *path, long elements, unsigned *wanted, const struct hints *hints, int collective,
                     int round)
{
    snprintf(doing, sizeof doing, "%s, %s, %s", path, hints->name, collective ? "collective" : "independent");
    for (long i = 0; i < elements; i++)
        if (owner(i) >= 0) wanted[i] = value(i, round);
    int count;
    unsigned *mine = owned(wanted, elements, rank, &count);
    MPI_Datatype spread;
    OK(MPI_Type_create_resized(MPI_UNSIGNED, 0, 8, &spread));
    OK(MPI_Type_commit(&spread));
    MPI_File file = opened(path, MPI_MODE_CREATE | MPI_MODE_RDWR, hints);
    MPI_Status status;
    set_view(file, rank);
    OK((collective ? MPI_File_write_at_all : MPI_File_write_at)(file, 0, mine, count, spread, &status));
    transferred(&status, count);
    free(mine);

    handed_over(file);
    mine = owned(wanted, elements, (rank + 2) % RANKS, &count);
    unsigned *seen = room(8 * elements);
    for (int i = 0; i < 2 * count; i++) seen[i] = 0xabababab;
    set_view(file, (rank + 2) % RANKS);
    OK((collective ? MPI_File_read_at_all : MPI_File_read_at)(file, 0, seen, count, spread, &status));
    transferred(&status, count);
    same("another's elements", seen, mine, 2 * count);
    free(mine);
    free(seen);
    OK(MPI_Type_free(&spread));
    OK(MPI_File_close(&file));
    compare_file(path, wanted, elements);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    WANT(argc > 2);
    long elements = atol(argv[1]);
    WANT(elements % (3 * RANKS * PIECE) == 0);
    for (int i = 2; i < argc; i++) {
        unsigned *wanted = room(4 * elements);
        int round = 0;
        snprintf(doing, sizeof doing, "%s, all of it first", argv[i]);
        for (long at = 0; at < elements; at++) wanted[at] = value(at, round);
        MPI_File file = opened(argv[i], MPI_MODE_CREATE | MPI_MODE_RDWR, NULL);
        long part = elements / RANKS;
        OK(MPI_File_write_at(file, 4 * part * rank, wanted + part * rank, part, MPI_UNSIGNED, MPI_STATUS_IGNORE));
        OK(MPI_File_close(&file));
        for (int set = 0; set < HINT_SETS; set++)
            for (int collective = 0; collective < 2; collective++)
                if (matters(set, collective))
                    exercise(argv[i], elements, wanted, &HINTS[set], collective, ++round);
        free(wanted);
    }
    return MPI_Finalize();
}
