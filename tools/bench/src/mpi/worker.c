/*
 * The program that `slabfs-bench mpi` measures: four ranks write, or read, a pattern by MPI-IO.
 *
 *   slabfs-bench-mpi write|read box|strided|own ROWS COLUMNS collective|independent sieving|exact SEED FILE...
 *
 * The array has ROWS x COLUMNS elements of 4 bytes. The ranks are spread evenly over the given names, which all refer
 * to the same file; with `own` each rank appends its number. Rank 0 prints the seconds from before the open until
 * after the close, of the slowest rank; a write has been synced by then. Every byte that was read is compared,
 * not included in the time. The program is independent of the filesystem.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 4
/* Elements of a piece of the strided pattern: 4 KiB. */
#define PIECE 1024

static int rank;

#define FAIL(...)                                                                                                      \
    do {                                                                                                               \
        fprintf(stderr, "rank %d: ", rank);                                                                            \
        fprintf(stderr, __VA_ARGS__);                                                                                  \
        fputc('\n', stderr);                                                                                           \
        MPI_Abort(MPI_COMM_WORLD, 1);                                                                                  \
    } while (0)

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        int code_ = (call);                                                                                            \
        if (code_ != MPI_SUCCESS) {                                                                                    \
            char text_[MPI_MAX_ERROR_STRING];                                                                          \
            int len_ = 0;                                                                                              \
            MPI_Error_string(code_, text_, &len_);                                                                     \
            FAIL("%s: %s", #call, text_);                                                                              \
        }                                                                                                              \
    } while (0)

/* A rank's part of the array. */
struct part {
    MPI_Datatype view;
    MPI_Offset displacement;
    int count;
};

/* Four uneven boxes whose edges are aligned neither with pages nor with the edges of their neighbours. */
static void box(const int dims[2], int offset[2], int shape[2])
{
    int column = dims[1] * 9 / 16 + 37, left = dims[0] * 10 / 16 + 5, right = dims[0] * 7 / 16 + 3;
    int boxes[RANKS][4] = {
        {0, 0, left, column},
        {0, column, right, dims[1] - column},
        {left, 0, dims[0] - left, column},
        {right, column, dims[0] - right, dims[1] - column},
    };
    for (int axis = 0; axis < 2; axis++) {
        offset[axis] = boxes[rank][axis];
        shape[axis] = boxes[rank][axis + 2];
    }
}

static struct part part_of(const char *pattern, const int dims[2])
{
    struct part part = {MPI_UNSIGNED, 0, (int)((long)dims[0] * dims[1] / RANKS)};
    if (!strcmp(pattern, "box")) {
        int offset[2], shape[2];
        box(dims, offset, shape);
        part.count = shape[0] * shape[1];
        OK(MPI_Type_create_subarray(2, dims, shape, offset, MPI_ORDER_C, MPI_UNSIGNED, &part.view));
        OK(MPI_Type_commit(&part.view));
    } else if (!strcmp(pattern, "strided")) {
        MPI_Datatype piece;
        OK(MPI_Type_contiguous(PIECE, MPI_UNSIGNED, &piece));
        OK(MPI_Type_create_resized(piece, 0, RANKS * PIECE * 4, &part.view));
        OK(MPI_Type_commit(&part.view));
        OK(MPI_Type_free(&piece));
        part.displacement = (MPI_Offset)rank * PIECE * 4;
    } else if (strcmp(pattern, "own")) {
        FAIL("%s is no pattern", pattern);
    }
    return part;
}

/* An element encodes its index, its rank and its run. */
static unsigned value(long i, unsigned seed) { return ((unsigned)i * RANKS + (unsigned)rank) * 2654435761u + seed; }

static MPI_Info hints(int sieving)
{
    MPI_Info info;
    OK(MPI_Info_create(&info));
    if (!sieving) {
        OK(MPI_Info_set(info, "romio_ds_write", "disable"));
        OK(MPI_Info_set(info, "romio_ds_read", "disable"));
    }
    return info;
}

static double timed(int writing, int collective, const char *pattern, const char *path, const struct part *part,
                    MPI_Info info, unsigned *elements)
{
    MPI_File file;
    MPI_Status status;
    MPI_Comm comm = strcmp(pattern, "own") ? MPI_COMM_WORLD : MPI_COMM_SELF;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    double from = MPI_Wtime();
    OK(MPI_File_open(comm, path, writing ? MPI_MODE_CREATE | MPI_MODE_WRONLY : MPI_MODE_RDONLY, info, &file));
    if (part->view != MPI_UNSIGNED)
        OK(MPI_File_set_view(file, part->displacement, MPI_UNSIGNED, part->view, "native", info));
    if (writing) {
        OK((collective ? MPI_File_write_at_all : MPI_File_write_at)(file, 0, elements, part->count, MPI_UNSIGNED,
                                                                    &status));
        OK(MPI_File_sync(file));
    } else {
        OK((collective ? MPI_File_read_at_all : MPI_File_read_at)(file, 0, elements, part->count, MPI_UNSIGNED,
                                                                  &status));
    }
    OK(MPI_File_close(&file));
    double took = MPI_Wtime() - from, slowest;
    int moved = -1;
    OK(MPI_Get_count(&status, MPI_UNSIGNED, &moved));
    if (moved != part->count) FAIL("%d elements were transferred and not %d", moved, part->count);
    /* No rank starts to compare while others are still timed: that would take the processor from them. */
    OK(MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    return slowest;
}

int main(int argc, char **argv)
{
    int ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 9 || ranks != RANKS) FAIL("wrong arguments, or %d ranks", ranks);
    int writing = !strcmp(argv[1], "write"), dims[2] = {atoi(argv[3]), atoi(argv[4])};
    int collective = !strcmp(argv[5], "collective"), sieving = !strcmp(argv[6], "sieving");
    unsigned seed = (unsigned)atol(argv[7]);
    const char *pattern = argv[2];
    char path[4096];
    const char *named = argv[8 + rank * (argc - 8) / RANKS];
    if (strcmp(pattern, "own")) snprintf(path, sizeof path, "%s", named);
    else snprintf(path, sizeof path, "%s.%d", named, rank);

    struct part part = part_of(pattern, dims);
    unsigned *elements = malloc(4 * (size_t)part.count);
    if (!elements) FAIL("no memory");
    for (long i = 0; i < part.count; i++) elements[i] = writing ? value(i, seed) : ~value(i, seed);
    MPI_Info info = hints(sieving);
    double slowest = timed(writing, collective, pattern, path, &part, info, elements);
    OK(MPI_Info_free(&info));
    if (!writing)
        for (long i = 0; i < part.count; i++)
            if (elements[i] != value(i, seed))
                FAIL("%s: element %ld is %08x and should be %08x", path, i, elements[i], value(i, seed));
    if (rank == 0) printf("%.6f\n", slowest);
    if (part.view != MPI_UNSIGNED) OK(MPI_Type_free(&part.view));
    free(elements);
    return MPI_Finalize();
}
