/*
 * Parallel HDF5: datasets in one piece, in chunks, in compressed chunks, and one that grows.
 *
 *   hdf5 write|read ROWS COLUMNS FILE...
 *
 * The uneven boxes of the ranks share chunks, so that ranks exchange parts of chunks that are to be compressed.
 * `write` creates each file for several hints and compares it; `read` compares the files of an earlier run:
 * through MPI, and with plain reads as a serial program does.
 */
#include "array.h"

#include <hdf5.h>

#define STEPS 3
#define UNWRITTEN 0xdeadbeefu

#define H5(call)                                                                                   \
    ({                                                                                             \
        __typeof__(call) got_ = (call);                                                            \
        if (got_ < 0) {                                                                            \
            H5Eprint2(H5E_DEFAULT, stderr);                                                        \
            FAIL("%s", #call);                                                                     \
        }                                                                                          \
        got_;                                                                                      \
    })

/* `shared`: for collective transfers, which writing datasets with filters requires. */
struct kind {
    const char *name;
    int chunked, filtered, axes, shared;
};

static const struct kind KINDS[] = {
    {"one piece", 0, 0, 2, 0},
    {"one piece, collective", 0, 0, 2, 1},
    {"chunks", 1, 0, 2, 0},
    {"chunks, collective", 1, 0, 2, 1},
    {"compressed chunks", 1, 1, 2, 1},
    {"steps", 1, 0, 3, 1},
    {"compressed steps", 1, 1, 3, 1},
};
#define KIND_COUNT ((int)(sizeof KINDS / sizeof KINDS[0]))

/* The box of `who` in the second round: without its last row and column. */
static struct box smaller(int who, const int dims[2])
{
    struct box box = box_of(who, dims);
    box.shape[0]--, box.shape[1]--;
    return box;
}

/* The final contents of a dataset; step 0 is written in two rounds, each further one in one that leaves gaps. */
static unsigned *expected(const struct kind *kind, const int dims[2])
{
    long all = (long)dims[0] * dims[1];
    int steps = kind->axes == 3 ? STEPS : 1;
    unsigned *array = room(4 * all * steps);
    for (int step = 0; step < steps; step++)
        for (int who = 0; who < RANKS; who++) {
            struct box full = box_of(who, dims), part = smaller(who, dims);
            if (step == 0) paint(array, dims, &full, 0);
            paint(array + all * step, dims, &part, step + 1);
        }
    for (long i = all; i < all * steps; i++)
        if (!array[i]) array[i] = UNWRITTEN;
    return array;
}

static hid_t transfer(int collective)
{
    hid_t list = H5(H5Pcreate(H5P_DATASET_XFER));
    H5(H5Pset_dxpl_mpio(list, collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT));
    return list;
}

/* Writes or reads one box of one step: all ranks call it, each with its own box. */
static void box_io(hid_t set, const struct kind *kind, int step, const struct box *box, unsigned *elements, int writes,
                   int collective)
{
    hsize_t offset[3] = {step, box->offset[0], box->offset[1]}, shape[3] = {1, box->shape[0], box->shape[1]};
    int first = 3 - kind->axes;
    hid_t file_space = H5(H5Dget_space(set)), memory = H5(H5Screate_simple(kind->axes, shape + first, NULL));
    H5(H5Sselect_hyperslab(file_space, H5S_SELECT_SET, offset + first, NULL, shape + first, NULL));
    hid_t list = transfer(collective);
    if (writes)
        H5(H5Dwrite(set, H5T_NATIVE_UINT, memory, file_space, list, elements));
    else
        H5(H5Dread(set, H5T_NATIVE_UINT, memory, file_space, list, elements));
    H5(H5Pclose(list));
    H5(H5Sclose(memory));
    H5(H5Sclose(file_space));
}

static hid_t created(hid_t group, const struct kind *kind, const int dims[2])
{
    hsize_t shape[3] = {1, dims[0], dims[1]}, max[3] = {H5S_UNLIMITED, dims[0], dims[1]}, chunk[3] = {1, 13, 17};
    int first = 3 - kind->axes;
    unsigned unwritten = UNWRITTEN;
    hid_t list = H5(H5Pcreate(H5P_DATASET_CREATE));
    H5(H5Pset_fill_value(list, H5T_NATIVE_UINT, &unwritten));
    if (kind->chunked) H5(H5Pset_chunk(list, kind->axes, chunk + first));
    if (kind->filtered) {
        H5(H5Pset_shuffle(list));
        H5(H5Pset_deflate(list, 1));
        H5(H5Pset_fletcher32(list));
    }
    hid_t space = H5(H5Screate_simple(kind->axes, shape + first, kind->axes == 3 ? max : NULL));
    hid_t set = H5(H5Dcreate2(group, kind->name, H5T_STD_U32LE, space, H5P_DEFAULT, list, H5P_DEFAULT));
    H5(H5Sclose(space));
    H5(H5Pclose(list));
    return set;
}

static void write_set(hid_t file, hid_t group, const struct kind *kind, const int dims[2])
{
    hid_t set = created(group, kind, dims);
    unsigned *wanted = expected(kind, dims);
    unsigned *all_first = room((size_t)4 * dims[0] * dims[1]);
    struct box full = box_of(rank, dims), part = smaller(rank, dims);
    paint(all_first, dims, &full, 0);
    unsigned *mine = packed(all_first, dims, &full);
    box_io(set, kind, 0, &full, mine, 1, kind->shared);
    free(mine);
    free(all_first);
    for (int step = 0; step < (kind->axes == 3 ? STEPS : 1); step++) {
        hsize_t grown[3] = {step + 1, dims[0], dims[1]};
        if (step) H5(H5Dset_extent(set, grown));
        /* Another rank's earlier write to the same chunk has to be stored before this one. */
        H5(H5Fflush(file, H5F_SCOPE_GLOBAL));
        barrier();
        mine = packed(wanted + (long)step * dims[0] * dims[1], dims, &part);
        box_io(set, kind, step, &part, mine, 1, kind->shared);
        free(mine);
    }
    H5(H5Fflush(file, H5F_SCOPE_GLOBAL));
    barrier();
    H5(H5Fflush(file, H5F_SCOPE_GLOBAL));
    struct box other = box_of((rank + 1) % RANKS, dims);
    unsigned *seen = room(4 * volume(&other));
    mine = packed(wanted, dims, &other);
    box_io(set, kind, 0, &other, seen, 0, !kind->shared);
    same("the neighbour's box", seen, mine, volume(&other));
    free(mine);
    free(seen);
    free(wanted);
    H5(H5Dclose(set));
}

/* `plainly`: each rank separately, with read(2). */
static void compare(const char *path, const int dims[2], int plainly)
{
    hid_t access = H5(H5Pcreate(H5P_FILE_ACCESS));
    if (!plainly) H5(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
    hid_t file = H5(H5Fopen(path, H5F_ACC_RDONLY, access));
    H5(H5Pclose(access));
    int round = -1;
    hid_t attribute = H5(H5Aopen_by_name(file, "/a/group", "rows", H5P_DEFAULT, H5P_DEFAULT));
    H5(H5Aread(attribute, H5T_NATIVE_INT, &round));
    H5(H5Aclose(attribute));
    WANT(round == dims[0]);
    for (int i = 0; i < KIND_COUNT; i++) {
        snprintf(doing, sizeof doing, "%s, %s, reading %s", path, KINDS[i].name, plainly ? "plainly" : "through MPI");
        char name[100];
        snprintf(name, sizeof name, "/a/group/%s", KINDS[i].name);
        long count = (long)dims[0] * dims[1] * (KINDS[i].axes == 3 ? STEPS : 1);
        unsigned *wanted = expected(&KINDS[i], dims), *seen = room(4 * count);
        hid_t set = H5(H5Dopen2(file, name, H5P_DEFAULT)), list = plainly ? H5P_DEFAULT : transfer(i % 2);
        hid_t space = H5(H5Dget_space(set));
        WANT(H5Sget_simple_extent_npoints(space) == count);
        H5(H5Sclose(space));
        H5(H5Dread(set, H5T_NATIVE_UINT, H5S_ALL, H5S_ALL, list, seen));
        same("the dataset", seen, wanted, count);
        if (!plainly) H5(H5Pclose(list));
        H5(H5Dclose(set));
        free(seen);
        free(wanted);
    }
    H5(H5Fclose(file));
    barrier();
}

static void make(const char *path, const int dims[2], const struct hints *hints)
{
    MPI_Info info;
    OK(MPI_Info_create(&info));
    for (int i = 0; hints->pairs[i]; i += 2) OK(MPI_Info_set(info, hints->pairs[i], hints->pairs[i + 1]));
    hid_t access = H5(H5Pcreate(H5P_FILE_ACCESS));
    H5(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, info));
    hid_t file = H5(H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access));
    H5(H5Pclose(access));
    OK(MPI_Info_free(&info));
    hid_t outer = H5(H5Gcreate2(file, "a", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    hid_t group = H5(H5Gcreate2(outer, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    hid_t scalar = H5(H5Screate(H5S_SCALAR));
    hid_t attribute = H5(H5Acreate2(group, "rows", H5T_STD_I32BE, scalar, H5P_DEFAULT, H5P_DEFAULT));
    H5(H5Awrite(attribute, H5T_NATIVE_INT, &dims[0]));
    H5(H5Aclose(attribute));
    H5(H5Sclose(scalar));
    for (int i = 0; i < KIND_COUNT; i++) {
        snprintf(doing, sizeof doing, "%s, %s, %s", path, KINDS[i].name, hints->name);
        write_set(file, group, &KINDS[i], dims);
    }
    H5(H5Gclose(group));
    H5(H5Gclose(outer));
    H5(H5Fclose(file));
    barrier();
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    WANT(argc > 4);
    int writes = !strcmp(argv[1], "write"), dims[2] = {atoi(argv[2]), atoi(argv[3])};
    WANT(writes || !strcmp(argv[1], "read"));
    for (int i = 4; i < argc; i++)
        for (int set = 0; set < (writes ? HINT_SETS : 1); set++) {
            if (!matters(set, 1)) continue;
            if (writes) make(argv[i], dims, &HINTS[set]);
            compare(argv[i], dims, 0);
            compare(argv[i], dims, 1);
        }
    return MPI_Finalize();
}
