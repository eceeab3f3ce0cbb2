/*
 * The MPI program that `slabfs-bench mpi` and `slabfs-bench transfer` measure. It is independent of the filesystem.
 *
 *   slabfs-bench-mpi write|read box|strided|own ROWS COLUMNS collective|independent sieving|exact SEED FILE...
 *   slabfs-bench-mpi nested ROWS INNER PIECE STRIDE ROW FILE
 *
 * The first: four ranks write, or read, a pattern by MPI-IO. The array has ROWS x COLUMNS elements of 4 bytes. The
 * ranks are spread evenly over the given names, which all refer to the same file; with `own` each rank appends its
 * number. Rank 0 prints the seconds from before the open until after the close, of the slowest rank; a write has been
 * synced by then.
 *
 * The second: one rank reads a nested-strided pattern by data sieving: ROWS rows of ROW bytes, of each INNER pieces of
 * PIECE bytes, STRIDE bytes apart, into one packed buffer. It prints the seconds of the read alone; the file is open
 * before, and the buffer's pages are there.
 *
 * Data that was read is compared, not included in the time: every byte, or first and last word of every piece.
 */
#include <inttypes.h>
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

/* The nested object's value at an offset. */
static uint64_t word(uint64_t at) { return (at / 8 + 1) * UINT64_C(0x9e3779b97f4a7c15); }

static void check_pieces(const char *out, long rows, long inner, long piece, long stride, long row)
{
    for (long r = 0; r < rows; r++)
        for (long n = 0; n < inner; n++, out += piece) {
            uint64_t at = (uint64_t)(r * row + n * stride), first, last;
            memcpy(&first, out, 8);
            memcpy(&last, out + piece - 8, 8);
            if (first != word(at) || last != word(at + (uint64_t)piece - 8))
                FAIL("the piece at %" PRIu64 " reads wrong", at);
        }
}

static void nested(char **argv)
{
    long rows = atol(argv[0]), inner = atol(argv[1]), piece = atol(argv[2]), stride = atol(argv[3]);
    long row = atol(argv[4]), bytes = rows * inner * piece;
    char *out = malloc((size_t)bytes);
    if (!out) FAIL("no memory");
    memset(out, 1, (size_t)bytes);
    MPI_Datatype pieces, view;
    OK(MPI_Type_create_hvector((int)inner, (int)piece, stride, MPI_BYTE, &pieces));
    OK(MPI_Type_create_resized(pieces, 0, row, &view));
    OK(MPI_Type_commit(&view));
    OK(MPI_Type_free(&pieces));
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "romio_ds_read", "enable"));
    MPI_File file;
    OK(MPI_File_open(MPI_COMM_SELF, argv[5], MPI_MODE_RDONLY, info, &file));
    OK(MPI_File_set_view(file, 0, MPI_BYTE, view, "native", info));
    MPI_Status status;
    double from = MPI_Wtime();
    OK(MPI_File_read_at(file, 0, out, (int)bytes, MPI_BYTE, &status));
    double took = MPI_Wtime() - from;
    int moved = -1;
    OK(MPI_Get_count(&status, MPI_BYTE, &moved));
    if (moved != bytes) FAIL("%d bytes were read and not %ld", moved, bytes);
    OK(MPI_File_close(&file));
    check_pieces(out, rows, inner, piece, stride, row);
    printf("%.6f\n", took);
    free(out);
    OK(MPI_Info_free(&info));
    OK(MPI_Type_free(&view));
}

int main(int argc, char **argv)
{
    int ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc == 8 && ranks == 1 && !strcmp(argv[1], "nested")) {
        nested(argv + 2);
        return MPI_Finalize();
    }
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
