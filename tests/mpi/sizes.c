/*
 * MPI-IO operations on entire files: size, preallocation, appending, deleting.
 *
 *   sizes bytes FILE             a file that grows; it is not there at first
 *   sizes array ELEMENTS FILE    a declared array, whose size is that of its dims
 */
#include "check.h"

static MPI_Offset size_of(MPI_File file)
{
    MPI_Offset size;
    OK(MPI_File_get_size(file, &size));
    barrier();
    return size;
}

/* Compares all of the file with `size` bytes. */
static void holds(const char *path, const unsigned char *wanted, long size)
{
    barrier();
    long len;
    unsigned char *bytes = plain(path, &len);
    if (len != size) FAIL("the file has %ld bytes and not %ld", len, size);
    for (long i = 0; i < size; i++)
        if (bytes[i] != wanted[i]) FAIL("byte %ld is %02x and should be %02x", i, bytes[i], wanted[i]);
    free(bytes);
    barrier();
}

/* Each rank writes 100 bytes from `at` on, one after the other. */
static void hundreds(MPI_File file, unsigned char *wanted, long at, int seed)
{
    for (long i = at; i < at + 100 * RANKS; i++) wanted[i] = (unsigned char)(value(i, seed) >> 8);
    at += 100 * rank;
    OK(MPI_File_write_at(file, at, wanted + at, 100, MPI_BYTE, MPI_STATUS_IGNORE));
    barrier();
}

static void bytes(const char *path)
{
    unsigned char wanted[200000] = {0};
    snprintf(doing, sizeof doing, "%s, a new file", path);
    MPI_File file = opened(path, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, NULL);
    WANT(size_of(file) == 0);
    hundreds(file, wanted, 50, 1);
    WANT(size_of(file) == 450);

    snprintf(doing, sizeof doing, "%s, set_size", path);
    OK(MPI_File_set_size(file, 5001));
    WANT(size_of(file) == 5001);
    OK(MPI_File_set_size(file, 333));
    WANT(size_of(file) == 333);
    OK(MPI_File_set_size(file, 700));
    WANT(size_of(file) == 700);
    memset(wanted + 333, 0, 117);
    handed_over(file);
    holds(path, wanted, 700);

    snprintf(doing, sizeof doing, "%s, preallocate", path);
    OK(MPI_File_preallocate(file, 150000));
    WANT(size_of(file) == 150000);
    OK(MPI_File_preallocate(file, 400));
    WANT(size_of(file) == 150000);
    /* Preallocated bytes are undefined until they are written. */
    for (long i = 700; i < 150000; i++) wanted[i] = (unsigned char)(i % 251);
    for (long i = 700 + 1000 * rank; i < 150000; i += 1000 * RANKS)
        OK(MPI_File_write_at(file, i, wanted + i, i + 1000 < 150000 ? 1000 : 150000 - i, MPI_BYTE, MPI_STATUS_IGNORE));
    OK(MPI_File_close(&file));
    holds(path, wanted, 150000);

    snprintf(doing, sizeof doing, "%s, append", path);
    file = opened(path, MPI_MODE_APPEND | MPI_MODE_WRONLY, NULL);
    MPI_Offset at;
    OK(MPI_File_get_position(file, &at));
    WANT(at == 150000);
    OK(MPI_File_get_position_shared(file, &at));
    WANT(at == 150000);
    barrier();
    for (int cycle = 0; cycle < 3; cycle++) {
        for (long i = 0; i < 10 * RANKS; i++) wanted[150000 + cycle * 10 * RANKS + i] = (unsigned char)(i + cycle + 1);
        OK(MPI_File_write_ordered(file, wanted + 150000 + (cycle * RANKS + rank) * 10, 10, MPI_BYTE,
                                  MPI_STATUS_IGNORE));
    }
    OK(MPI_File_close(&file));
    holds(path, wanted, 150000 + 3 * 10 * RANKS);

    snprintf(doing, sizeof doing, "%s, append at each rank's own pointer", path);
    file = opened(path, MPI_MODE_APPEND | MPI_MODE_RDWR, NULL);
    long end = 150000 + 3 * 10 * RANKS;
    OK(MPI_File_get_position(file, &at));
    WANT(at == end);
    if (rank == 3) OK(MPI_File_write(file, "behind", 6, MPI_BYTE, MPI_STATUS_IGNORE));
    memcpy(wanted + end, "behind", 6);
    OK(MPI_File_close(&file));
    holds(path, wanted, end + 6);
}

static void array(const char *path, long elements)
{
    unsigned char *wanted = room(4 * elements);
    long size = 4 * elements;
    snprintf(doing, sizeof doing, "%s, a declared array", path);
    MPI_File file = opened(path, MPI_MODE_CREATE | MPI_MODE_RDWR, NULL);
    WANT(size_of(file) == size);
    hundreds(file, wanted, 50, 1);
    hundreds(file, wanted, size - 100 * RANKS, 2);
    OK(MPI_File_set_size(file, size));
    WANT(size_of(file) == size);
    OK(MPI_File_preallocate(file, size));
    OK(MPI_File_preallocate(file, size / 2));
    WANT(size_of(file) == size);
    handed_over(file);
    holds(path, wanted, size);

    /* Its dims determine its size. */
    OK(MPI_File_set_errhandler(file, MPI_ERRORS_RETURN));
    WANT(MPI_File_set_size(file, size / 2) != MPI_SUCCESS);
    WANT(MPI_File_set_size(file, size + 4) != MPI_SUCCESS);
    WANT(size_of(file) == size);
    if (rank == 1) {
        /* OMPIO prints the error and returns success, with nothing transferred. */
        MPI_Status status;
        int count = 0, code = MPI_File_write_at(file, size, wanted, 4, MPI_BYTE, &status);
        if (code == MPI_SUCCESS) OK(MPI_Get_count(&status, MPI_BYTE, &count));
        WANT(count == 0);
    }
    WANT(size_of(file) == size);
    OK(MPI_File_close(&file));
    holds(path, wanted, size);

    snprintf(doing, sizeof doing, "%s, emptied and written again", path);
    file = opened(path, MPI_MODE_CREATE | MPI_MODE_RDWR, NULL);
    OK(MPI_File_set_size(file, 0));
    WANT(size_of(file) == size);
    memset(wanted, 0, size);
    hundreds(file, wanted, 777, 3);
    OK(MPI_File_close(&file));
    holds(path, wanted, size);
    free(wanted);
}

/* A file that is deleted when it is closed, and one that is deleted by its name. */
static void deleting(const char *path)
{
    snprintf(doing, sizeof doing, "%s, delete on close", path);
    unsigned char wanted[4 * 100 + 50] = {0}, seen[4 * 100 + 50];
    MPI_File file = opened(path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, NULL);
    hundreds(file, wanted, 50, 7);
    handed_over(file);
    OK(MPI_File_read_at(file, 50, seen + 50, 100 * RANKS, MPI_BYTE, MPI_STATUS_IGNORE));
    WANT(!memcmp(seen + 50, wanted + 50, 100 * RANKS));
    OK(MPI_File_close(&file));
    barrier();
    struct stat is;
    WANT(stat(path, &is) && errno == ENOENT);
    barrier();

    snprintf(doing, sizeof doing, "%s, deleted by name", path);
    file = opened(path, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_WRONLY, NULL);
    OK(MPI_File_close(&file));
    WANT(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_WRONLY, MPI_INFO_NULL, &file) !=
         MPI_SUCCESS);
    barrier();
    if (rank == 0) OK(MPI_File_delete(path, MPI_INFO_NULL));
    barrier();
    WANT(stat(path, &is) && errno == ENOENT);
    WANT(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file) != MPI_SUCCESS);
    barrier();
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    WANT(argc > 2);
    if (!strcmp(argv[1], "bytes"))
        bytes(argv[2]);
    else
        array(argv[argc - 1], atol(argv[2]));
    deleting(argv[argc - 1]);
    return MPI_Finalize();
}
