/*
 * The table of the note on variable-size chunks: a 16 × 16 array, four selections that fit no regular
 * chunks, each written by its rank in one call; or such an array for every time step, one after the other.
 *
 *   table independent|collective STEPS FILE
 *
 * Collective: every rank is an aggregator. Data sieving is off: it writes the neighbours' bytes too.
 */
#include "array.h"

static const struct hints INDEPENDENT = {"independent", {"romio_ds_write", "disable", 0}};
static const struct hints COLLECTIVE = {
    "collective",
    {"romio_cb_write", "enable", "romio_ds_write", "disable", "cb_nodes", "4", "cb_config_list", "*:*", 0}};

int main(int argc, char **argv)
{
    start(&argc, &argv);
    WANT(argc == 4);
    int collective = !strcmp(argv[1], "collective"), steps = atoi(argv[2]), dims[2] = {16, 16};
    const struct hints *hints = collective ? &COLLECTIVE : &INDEPENDENT;
    long all = 16 * 16;
    unsigned *wanted = room(4 * all * steps);
    for (long i = 0; i < all * steps; i++) wanted[i] = value(i, 0);
    struct box box = box_of(rank, dims);
    MPI_Datatype type;
    OK(MPI_Type_create_subarray(2, dims, box.shape, box.offset, MPI_ORDER_C, MPI_UNSIGNED, &type));
    OK(MPI_Type_commit(&type));
    MPI_File file = opened(argv[3], MPI_MODE_WRONLY, hints);
    for (int step = 0; step < steps; step++) {
        snprintf(doing, sizeof doing, "%s, %s, step %d", argv[3], hints->name, step);
        MPI_Status status;
        unsigned *mine = packed(wanted + all * step, dims, &box);
        OK(MPI_File_set_view(file, 4 * all * step, MPI_UNSIGNED, type, "native", MPI_INFO_NULL));
        OK((collective ? MPI_File_write_all : MPI_File_write)(file, mine, volume(&box), MPI_UNSIGNED, &status));
        transferred(&status, volume(&box));
        free(mine);
    }
    OK(MPI_Type_free(&type));
    OK(MPI_File_close(&file));
    compare_file(argv[3], wanted, all * steps);
    free(wanted);
    return MPI_Finalize();
}
