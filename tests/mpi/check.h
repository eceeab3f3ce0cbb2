/*
 * Shared parts of the MPI-IO programs of the system tests.
 *
 * Every program works on the files named on its command line, with four ranks. Each rank has the expected
 * contents of the entire file in memory, and compares every byte: through MPI while the file is open, and
 * with plain read(2) after it was closed. The first difference ends all ranks.
 */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RANKS 4

static int rank;
/* The current operation, for messages. */
static char doing[512] = "starting";

#define FAIL(...)                                                                                  \
    do {                                                                                           \
        fprintf(stderr, "rank %d, %s:%d, %s: ", rank, __FILE__, __LINE__, doing);                  \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fputc('\n', stderr);                                                                       \
        MPI_Abort(MPI_COMM_WORLD, 1);                                                              \
    } while (0)

/* An MPI call that must succeed. */
#define OK(call)                                                                                   \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        if (code_ != MPI_SUCCESS) FAIL("%s: %s", #call, said(code_));                              \
    } while (0)

#define WANT(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) FAIL("%s does not hold", #condition);                                    \
    } while (0)

static inline const char *said(int code)
{
    static char text[MPI_MAX_ERROR_STRING];
    int len = 0;
    MPI_Error_string(code, text, &len);
    return text;
}

static inline void start(int *argc, char ***argv)
{
    int ranks;
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    WANT(ranks == RANKS);
    WANT(*argc > 1);
}

static inline void barrier(void) { OK(MPI_Barrier(MPI_COMM_WORLD)); }

static inline void *room(size_t len)
{
    void *bytes = calloc(len ? len : 1, 1);
    if (!bytes) FAIL("no memory for %zu bytes", len);
    return bytes;
}

/* Element `i` as written in round `round`; unique for both. */
static inline unsigned value(long i, int round) { return (unsigned)i * 2654435761u + (unsigned)round * 40503u + 1; }

/* Compares elements and names the first that differs. */
static inline void same(const char *what, const unsigned *found, const unsigned *wanted, long count)
{
    for (long i = 0; i < count; i++)
        if (found[i] != wanted[i])
            FAIL("%s: element %ld of %ld is %08x and should be %08x", what, i, count, found[i], wanted[i]);
}

/* Checks that a read or write transferred everything. */
static inline void transferred(MPI_Status *status, int wanted)
{
    int count = -1;
    OK(MPI_Get_count(status, MPI_UNSIGNED, &count));
    if (count != wanted) FAIL("%d elements were transferred and not %d", count, wanted);
}

/* The file's bytes as returned by plain read(2); `len` is set to their number. */
static inline unsigned char *plain(const char *path, long *len)
{
    struct stat is;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &is)) FAIL("%s: %s", path, strerror(errno));
    unsigned char *bytes = room(is.st_size);
    for (*len = 0; *len < is.st_size;) {
        ssize_t more = pread(fd, bytes + *len, is.st_size - *len, *len);
        if (more < 0) FAIL("reading %s: %s", path, strerror(errno));
        if (more == 0) FAIL("%s ends at %ld and not at %ld", path, *len, (long)is.st_size);
        *len += more;
    }
    close(fd);
    return bytes;
}

/* Compares the entire file, which no rank has open for writing. */
static inline void compare_file(const char *path, const unsigned *wanted, long count)
{
    barrier();
    long len;
    unsigned char *bytes = plain(path, &len);
    if (len != 4 * count) FAIL("the file has %ld bytes and not %ld", len, 4 * count);
    same("the file", (unsigned *)bytes, wanted, count);
    free(bytes);
    barrier();
}

/* Makes one rank's writes visible to others: MPI's sync-barrier-sync. */
static inline void handed_over(MPI_File file)
{
    OK(MPI_File_sync(file));
    barrier();
    OK(MPI_File_sync(file));
}

/* Sets of hints. An MPI ignores the hints that it does not know. */
struct hints {
    const char *name;
    const char *pairs[16];
};

static const struct hints HINTS[] = {
    {"no hints", {0}},
    {"no sieving, no aggregators",
     {"romio_ds_write", "disable", "romio_ds_read", "disable", "romio_cb_write", "disable",
      "romio_cb_read", "disable", 0}},
    {"sieving through small buffers",
     {"romio_ds_write", "enable", "romio_ds_read", "enable", "romio_cb_write", "disable",
      "romio_cb_read", "disable", "ind_wr_buffer_size", "1000", "ind_rd_buffer_size", "1000", 0}},
    {"two aggregators with small buffers",
     {"romio_cb_write", "enable", "romio_cb_read", "enable", "cb_nodes", "2", "cb_config_list", "*:*",
      "cb_buffer_size", "4096", 0}},
    {"an aggregator a rank, sieving",
     {"romio_cb_write", "enable", "romio_cb_read", "enable", "romio_ds_write", "enable", "cb_nodes", "4",
      "cb_config_list", "*:*", 0}},
};
#define HINT_SETS ((int)(sizeof HINTS / sizeof HINTS[0]))

/* Whether the set applies to such calls: aggregators are for collective ones. */
static inline int matters(int set, int collective) { return set == 0 || (set >= 3) == collective; }

static inline MPI_File opened(const char *path, int mode, const struct hints *hints)
{
    MPI_File file;
    MPI_Info info;
    OK(MPI_Info_create(&info));
    for (int i = 0; hints && hints->pairs[i]; i += 2)
        OK(MPI_Info_set(info, hints->pairs[i], hints->pairs[i + 1]));
    OK(MPI_File_open(MPI_COMM_WORLD, path, mode, info, &file));
    OK(MPI_Info_free(&info));
    return file;
}

#endif
