/*
 * A 2-D array distributed over the ranks as in High Performance Fortran: blocks, cycles of one
 * element, cycles of blocks that do not divide the dims.
 *
 *   darray ROWS COLUMNS FILE...
 */
#include "array.h"

struct distribution {
    const char *name;
    int kinds[2], args[2], grid[2];
};

static const struct distribution DISTRIBUTIONS[] = {
    {"blocks", {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_BLOCK}, {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG}, {2, 2}},
    {"cycles of 3 by 5", {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_CYCLIC}, {3, 5}, {2, 2}},
    {"blocks by cycles of 1", {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC}, {MPI_DISTRIBUTE_DFLT_DARG, 1}, {2, 2}},
    {"cycles of rows", {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE}, {7, MPI_DISTRIBUTE_DFLT_DARG}, {4, 1}},
};

/* The position in the grid of processes that owns index `i` of an axis of length `dim`. */
static int owner(const struct distribution *by, int axis, int dim, int i)
{
    int places = by->grid[axis];
    if (by->kinds[axis] == MPI_DISTRIBUTE_NONE) return 0;
    int block = by->kinds[axis] == MPI_DISTRIBUTE_BLOCK ? (dim + places - 1) / places : by->args[axis];
    return i / block % places;
}

/* The elements of `who` in `array`, packed; `count` is set to their number. */
static unsigned *owned(const unsigned *array, const int dims[2], const struct distribution *by, int who, long *count)
{
    unsigned *elements = room((size_t)4 * dims[0] * dims[1]);
    *count = 0;
    for (int row = 0; row < dims[0]; row++)
        for (int column = 0; column < dims[1]; column++)
            if (owner(by, 0, dims[0], row) == who / by->grid[1] && owner(by, 1, dims[1], column) == who % by->grid[1])
                elements[(*count)++] = array[(long)row * dims[1] + column];
    return elements;
}

static void set_view(MPI_File file, const int dims[2], const struct distribution *by, int who)
{
    MPI_Datatype type;
    OK(MPI_Type_create_darray(RANKS, who, 2, dims, by->kinds, by->args, by->grid, MPI_ORDER_C, MPI_UNSIGNED, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_File_set_view(file, 0, MPI_UNSIGNED, type, "native", MPI_INFO_NULL));
    OK(MPI_Type_free(&type));
}

static void exercise(const char *path, const int dims[2], const struct distribution *by, const struct hints *hints,
                     int collective, int round)
{
    snprintf(doing, sizeof doing, "%s, %s, %s, %s", path, by->name, hints->name,
             collective ? "collective" : "independent");
    long all = (long)dims[0] * dims[1], count;
    unsigned *wanted = room(4 * all), *seen = room(4 * all);
    for (long i = 0; i < all; i++) wanted[i] = value(i, round);
    unsigned *mine = owned(wanted, dims, by, rank, &count);
    MPI_File file = opened(path, MPI_MODE_CREATE | MPI_MODE_RDWR, hints);
    MPI_Status status;
    set_view(file, dims, by, rank);
    OK((collective ? MPI_File_write_all : MPI_File_write)(file, mine, count, MPI_UNSIGNED, &status));
    transferred(&status, count);
    free(mine);

    handed_over(file);
    int other = (rank + 3) % RANKS;
    mine = owned(wanted, dims, by, other, &count);
    set_view(file, dims, by, other);
    OK((collective ? MPI_File_read_all : MPI_File_read)(file, seen, count, MPI_UNSIGNED, &status));
    transferred(&status, count);
    same("another's elements", seen, mine, count);
    free(mine);
    OK(MPI_File_close(&file));
    compare_file(path, wanted, all);
    free(wanted);
    free(seen);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    WANT(argc > 3);
    int dims[2] = {atoi(argv[1]), atoi(argv[2])}, round = 0;
    for (int i = 3; i < argc; i++)
        for (size_t by = 0; by < sizeof DISTRIBUTIONS / sizeof DISTRIBUTIONS[0]; by++)
            for (int set = 0; set < HINT_SETS; set++)
                for (int collective = 0; collective < 2; collective++)
                    if (matters(set, collective))
                        exercise(argv[i], dims, &DISTRIBUTIONS[by], &HINTS[set], collective, round++);
    return MPI_Finalize();
}
