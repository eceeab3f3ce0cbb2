/*
 * The ROMIO program that `slabfs-bench transfer` measures: one rank reads a nested-strided pattern by data sieving.
 *
 *   slabfs-bench-sieve FILE ROWS INNER PIECE STRIDE ROW
 *
 * ROWS rows of ROW bytes, of each INNER pieces of PIECE bytes, STRIDE bytes apart, into one packed buffer. Prints the
 * seconds of the read alone; the file is open before, and the buffer's pages are there. First and last word of every
 * piece are compared, not included in the time.
 */
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAIL(...)                                                                                                      \
    do {                                                                                                               \
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

/* The object's value at an offset. */
static uint64_t word(uint64_t at) { return (at / 8 + 1) * UINT64_C(0x9e3779b97f4a7c15); }

static void check(const char *out, const long *shape)
{
    long rows = shape[0], inner = shape[1], piece = shape[2], stride = shape[3], row = shape[4];
    for (long r = 0; r < rows; r++)
        for (long n = 0; n < inner; n++) {
            const char *from = out + (r * inner + n) * piece;
            uint64_t at = (uint64_t)(r * row + n * stride), first, last;
            memcpy(&first, from, 8);
            memcpy(&last, from + piece - 8, 8);
            if (first != word(at) || last != word(at + (uint64_t)piece - 8))
                FAIL("the piece at %" PRIu64 " reads wrong", at);
        }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc != 7) FAIL("wrong arguments");
    long shape[5];
    for (int i = 0; i < 5; i++) shape[i] = atol(argv[2 + i]);
    long rows = shape[0], inner = shape[1], piece = shape[2], bytes = rows * inner * piece;
    char *out = malloc((size_t)bytes);
    if (!out) FAIL("no memory");
    memset(out, 1, (size_t)bytes);

    MPI_Datatype pieces, view;
    OK(MPI_Type_create_hvector((int)inner, (int)piece, shape[3], MPI_BYTE, &pieces));
    OK(MPI_Type_create_resized(pieces, 0, shape[4], &view));
    OK(MPI_Type_commit(&view));
    OK(MPI_Type_free(&pieces));
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "romio_ds_read", "enable"));
    MPI_File file;
    OK(MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_RDONLY, info, &file));
    OK(MPI_File_set_view(file, 0, MPI_BYTE, view, "native", info));
    MPI_Status status;
    double from = MPI_Wtime();
    OK(MPI_File_read_at(file, 0, out, (int)bytes, MPI_BYTE, &status));
    double took = MPI_Wtime() - from;
    int moved = -1;
    OK(MPI_Get_count(&status, MPI_BYTE, &moved));
    if (moved != bytes) FAIL("%d bytes were read and not %ld", moved, bytes);
    OK(MPI_File_close(&file));
    check(out, shape);
    printf("%.6f\n", took);
    free(out);
    OK(MPI_Info_free(&info));
    OK(MPI_Type_free(&view));
    MPI_Finalize();
    return 0;
}
