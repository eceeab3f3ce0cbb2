/*
 * The shared file pointer: the first rank to call writes and reads first, nothing twice and nothing left out; in
 * ordered mode by rank.
 *
 *   shared ELEMENTS FILE...
 */
#include "check.h"

#define RECORD 5
#define RECORDS 24

/* Element `i` of record `n` of rank `who`. */
static unsigned element(int who, int n, int i) { return 1 + (unsigned)((who * RECORDS + n) * RECORD + i); }

static void fill(unsigned *record, int who, int n)
{
    for (int i = 0; i < RECORD; i++) record[i] = element(who, n, i);
}

/* Counts the record in `times`, or fails if it is not one. */
static void note(const unsigned *record, int *times)
{
    int number = (int)(record[0] - 1) / RECORD;
    unsigned wanted[RECORD];
    if (number < 0 || number >= RANKS * RECORDS) FAIL("%08x begins no record", record[0]);
    fill(wanted, number / RECORDS, number % RECORDS);
    same("a record", record, wanted, RECORD);
    times[number]++;
}

static void each_once(const int *times)
{
    for (int n = 0; n < RANKS * RECORDS; n++)
        if (times[n] != 1) FAIL("record %d of rank %d is there %d times", n % RECORDS, n / RECORDS, times[n]);
}

/* Records of any rank, in the order of the calls. */
static void unordered(const char *path, long elements, unsigned *wanted)
{
    snprintf(doing, sizeof doing, "%s, shared", path);
    MPI_File file = opened(path, MPI_MODE_CREATE | MPI_MODE_RDWR, NULL);
    MPI_Status status;
    unsigned record[RECORD];
    OK(MPI_File_set_view(file, 0, MPI_UNSIGNED, MPI_UNSIGNED, "native", MPI_INFO_NULL));
    for (int n = 0; n < RECORDS; n++) {
        fill(record, rank, n);
        if (n % 3 == 2) {
            MPI_Request request;
            OK(MPI_File_iwrite_shared(file, record, RECORD, MPI_UNSIGNED, &request));
            OK(MPI_Wait(&request, &status));
        } else {
            OK(MPI_File_write_shared(file, record, RECORD, MPI_UNSIGNED, &status));
        }
        transferred(&status, RECORD);
    }
    handed_over(file);
    MPI_Offset at;
    OK(MPI_File_get_position_shared(file, &at));
    if (at != RANKS * RECORDS * RECORD) FAIL("the shared pointer is at %ld", (long)at);
    barrier();
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    int times[RANKS * RECORDS] = {0}, sum[RANKS * RECORDS];
    for (int n = 0; n < RECORDS; n++) {
        OK(MPI_File_read_shared(file, record, RECORD, MPI_UNSIGNED, &status));
        transferred(&status, RECORD);
        note(record, times);
    }
    OK(MPI_Allreduce(times, sum, RANKS * RECORDS, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    each_once(sum);
    OK(MPI_File_close(&file));

    barrier();
    long len;
    unsigned *bytes = (unsigned *)plain(path, &len);
    if (len != 4 * elements) FAIL("the file has %ld bytes and not %ld", len, 4 * elements);
    memset(times, 0, sizeof times);
    for (int n = 0; n < RANKS * RECORDS; n++) note(bytes + n * RECORD, times);
    each_once(times);
    same("what lies behind", bytes + RANKS * RECORDS * RECORD, wanted + RANKS * RECORDS * RECORD,
         elements - RANKS * RECORDS * RECORD);
    free(bytes);
    barrier();
}

/* By rank, each with a share of different length; rank 2 sometimes writes nothing. */
static void ordered(const char *path, long elements, unsigned *wanted)
{
    snprintf(doing, sizeof doing, "%s, ordered", path);
    MPI_File file = opened(path, MPI_MODE_CREATE | MPI_MODE_RDWR, NULL);
    MPI_Status status;
    OK(MPI_File_set_view(file, 0, MPI_UNSIGNED, MPI_UNSIGNED, "native", MPI_INFO_NULL));
    long at = 0, mine[2 * RECORDS], lens[2 * RECORDS];
    for (int cycle = 0; cycle < RECORDS; cycle++)
        for (int who = 0; who < RANKS; who++) {
            long len = who == 2 && cycle % 2 ? 0 : 1 + (cycle + 3 * who) % 4;
            if (who == rank) mine[cycle] = at, lens[cycle] = len;
            if (who == (rank + 1) % RANKS) mine[RECORDS + cycle] = at, lens[RECORDS + cycle] = len;
            for (; len > 0; len--, at++) wanted[at] = value(at, 9);
        }
    WANT(at <= elements);
    for (int cycle = 0; cycle < RECORDS; cycle++) {
        if (cycle % 4 == 3) {
            OK(MPI_File_write_ordered_begin(file, wanted + mine[cycle], lens[cycle], MPI_UNSIGNED));
            OK(MPI_File_write_ordered_end(file, wanted + mine[cycle], &status));
        } else {
            OK(MPI_File_write_ordered(file, wanted + mine[cycle], lens[cycle], MPI_UNSIGNED, &status));
        }
        if (lens[cycle]) transferred(&status, lens[cycle]);
    }
    handed_over(file);
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    for (int cycle = 0; cycle < RECORDS; cycle++) {
        unsigned seen[4];
        OK(MPI_File_read_ordered(file, seen, lens[cycle], MPI_UNSIGNED, &status));
        if (lens[cycle]) transferred(&status, lens[cycle]);
        same("the share of a cycle", seen, wanted + mine[cycle], lens[cycle]);
    }
    OK(MPI_File_close(&file));
    compare_file(path, wanted, elements);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    WANT(argc > 2);
    long elements = atol(argv[1]);
    WANT(elements >= RANKS * RECORDS * RECORD);
    for (int i = 2; i < argc; i++) {
        unsigned *wanted = room(4 * elements);
        snprintf(doing, sizeof doing, "%s, all of it first", argv[i]);
        for (long at = 0; at < elements; at++) wanted[at] = value(at, 0);
        MPI_File file = opened(argv[i], MPI_MODE_CREATE | MPI_MODE_WRONLY, NULL);
        if (rank == 0) OK(MPI_File_write(file, wanted, elements, MPI_UNSIGNED, MPI_STATUS_IGNORE));
        OK(MPI_File_close(&file));
        ordered(argv[i], elements, wanted);
        unordered(argv[i], elements, wanted);
        free(wanted);
    }
    return MPI_Finalize();
}
