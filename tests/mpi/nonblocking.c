/*
 * Nonblocking reads and writes: independent ones, several at a time, split collective ones (begin and end),
 * and collective ones.
 *
 *   nonblocking all|independent ROWS COLUMNS FILE...
 *
 * Open MPI's ROMIO has no nonblocking collective calls (it ends with SIGSEGV; open-mpi/ompi issue 9432).
 */
#include "array.h"

#define AT_ONCE 7

/* Contiguous pieces, AT_ONCE requests of each rank. */
static void pieces(const char *path, long all, unsigned *wanted, int round)
{
    snprintf(doing, sizeof doing, "%s, iwrite and iread", path);
    for (long i = 0; i < all; i++) wanted[i] = value(i, round);
    MPI_File file = opened(path, MPI_MODE_CREATE | MPI_MODE_RDWR, NULL);
    MPI_Request requests[AT_ONCE];
    MPI_Status status;
    OK(MPI_File_set_view(file, 0, MPI_UNSIGNED, MPI_UNSIGNED, "native", MPI_INFO_NULL));
    long from[RANKS * AT_ONCE + 1];
    for (int n = 0; n <= RANKS * AT_ONCE; n++) from[n] = all * n / (RANKS * AT_ONCE);
    for (int n = 0; n < AT_ONCE; n++) {
        int piece = n * RANKS + rank;
        const unsigned *bytes = wanted + from[piece];
        int count = from[piece + 1] - from[piece];
        if (n % 2) {
            OK(MPI_File_iwrite_at(file, from[piece], bytes, count, MPI_UNSIGNED, &requests[n]));
        } else {
            OK(MPI_File_seek(file, from[piece], MPI_SEEK_SET));
            OK(MPI_File_iwrite(file, bytes, count, MPI_UNSIGNED, &requests[n]));
        }
    }
    for (int n = 0; n < AT_ONCE; n++) {
        int piece = n * RANKS + rank;
        OK(MPI_Wait(&requests[n], &status));
        transferred(&status, from[piece + 1] - from[piece]);
    }
    handed_over(file);
    unsigned *seen = room(4 * all);
    int who = (rank + 1) % RANKS;
    for (int n = 0; n < AT_ONCE; n++) {
        int piece = n * RANKS + who;
        int count = from[piece + 1] - from[piece];
        if (n % 2) {
            OK(MPI_File_iread_at(file, from[piece], seen + from[piece], count, MPI_UNSIGNED, &requests[n]));
        } else {
            OK(MPI_File_seek(file, from[piece], MPI_SEEK_SET));
            OK(MPI_File_iread(file, seen + from[piece], count, MPI_UNSIGNED, &requests[n]));
        }
    }
    MPI_Status statuses[AT_ONCE];
    OK(MPI_Waitall(AT_ONCE, requests, statuses));
    for (int n = 0; n < AT_ONCE; n++) {
        int piece = n * RANKS + who;
        same("a piece", seen + from[piece], wanted + from[piece], from[piece + 1] - from[piece]);
    }
    free(seen);
    OK(MPI_File_close(&file));
    compare_file(path, wanted, all);
}

enum how { INDEPENDENT, BEGIN_AND_END, COLLECTIVE, COLLECTIVE_AT };
static const char *const HOW[] = {"iwrite", "write_all_begin", "iwrite_all", "iwrite_at_all"};

/* Boxes through views. */
static void boxes(const char *path, const int dims[2], unsigned *wanted, const struct hints *hints, enum how how,
                  int round)
{
    snprintf(doing, sizeof doing, "%s, %s of boxes, %s", path, HOW[how], hints->name);
    struct box box[RANKS];
    for (int who = 0; who < RANKS; who++) {
        box[who] = box_of(who, dims);
        paint(wanted, dims, &box[who], round);
    }
    MPI_File file = opened(path, MPI_MODE_CREATE | MPI_MODE_RDWR, hints);
    MPI_Request request;
    MPI_Status status;
    int count = volume(&box[rank]);
    unsigned *mine = packed(wanted, dims, &box[rank]);
    view(file, dims, &box[rank]);
    switch (how) {
    case INDEPENDENT: OK(MPI_File_iwrite(file, mine, count, MPI_UNSIGNED, &request)); break;
    case COLLECTIVE: OK(MPI_File_iwrite_all(file, mine, count, MPI_UNSIGNED, &request)); break;
    case COLLECTIVE_AT: OK(MPI_File_iwrite_at_all(file, 0, mine, count, MPI_UNSIGNED, &request)); break;
    case BEGIN_AND_END: OK(MPI_File_write_all_begin(file, mine, count, MPI_UNSIGNED)); break;
    }
    if (how == BEGIN_AND_END)
        OK(MPI_File_write_all_end(file, mine, &status));
    else
        OK(MPI_Wait(&request, &status));
    transferred(&status, count);
    free(mine);

    handed_over(file);
    const struct box *other = &box[(rank + 3) % RANKS];
    count = volume(other);
    mine = packed(wanted, dims, other);
    unsigned *seen = room(4 * (long)count);
    view(file, dims, other);
    switch (how) {
    case INDEPENDENT: OK(MPI_File_iread(file, seen, count, MPI_UNSIGNED, &request)); break;
    case COLLECTIVE: OK(MPI_File_iread_all(file, seen, count, MPI_UNSIGNED, &request)); break;
    case COLLECTIVE_AT: OK(MPI_File_iread_at_all(file, 0, seen, count, MPI_UNSIGNED, &request)); break;
    case BEGIN_AND_END: OK(MPI_File_read_all_begin(file, seen, count, MPI_UNSIGNED)); break;
    }
    if (how == BEGIN_AND_END)
        OK(MPI_File_read_all_end(file, seen, &status));
    else
        OK(MPI_Wait(&request, &status));
    transferred(&status, count);
    same("another's box", seen, mine, count);
    free(mine);
    free(seen);
    OK(MPI_File_close(&file));
    compare_file(path, wanted, (long)dims[0] * dims[1]);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    WANT(argc > 4);
    int last = strcmp(argv[1], "all") ? BEGIN_AND_END : COLLECTIVE_AT, dims[2] = {atoi(argv[2]), atoi(argv[3])};
    for (int i = 4; i < argc; i++) {
        unsigned *wanted = room((size_t)4 * dims[0] * dims[1]);
        int round = 0;
        pieces(argv[i], (long)dims[0] * dims[1], wanted, round++);
        for (int how = INDEPENDENT; how <= last; how++)
            for (int set = 0; set < HINT_SETS; set++)
                if (matters(set, how != INDEPENDENT))
                    boxes(argv[i], dims, wanted, &HINTS[set], (enum how)how, round++);
        free(wanted);
    }
    return MPI_Finalize();
}
