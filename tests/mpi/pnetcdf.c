/*
 * PnetCDF: variables written collectively, independently, and with requests that are waited for together;
 * record variables, and a header that grows and moves all data after it.
 *
 *   pnetcdf write|read ROWS COLUMNS FILE...
 *
 * `write` creates each file in every format and for several hints and compares it; `read` compares the files of
 * an earlier run.
 */
#include "array.h"

#include <pnetcdf.h>

#define STEPS 3

#define NC(call)                                                                                   \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        if (code_ != NC_NOERR) FAIL("%s: %s", #call, ncmpi_strerror(code_));                       \
    } while (0)

enum { COLLECTIVE, INDEPENDENT, REQUESTS, RECORDS, OTHER_RECORDS, LATE, VARIABLES };
static const char *const NAMES[VARIABLES] = {"collective", "independent", "requests", "records", "other records",
                                             "late"};

static int records(int variable) { return variable == RECORDS || variable == OTHER_RECORDS; }

/* The final contents of a variable. */
static int *expected(int variable, const int dims[2])
{
    long all = (long)dims[0] * dims[1] * (records(variable) ? STEPS : 1);
    int *array = room(4 * all);
    for (long i = 0; i < all; i++) array[i] = (int)value(i, variable);
    return array;
}

static void same_ints(const char *what, const int *found, const int *wanted, long count)
{
    same(what, (const unsigned *)found, (const unsigned *)wanted, count);
}

/* The box of `who` at a step, in PnetCDF's form. */
static struct box place(int who, const int dims[2], int step, MPI_Offset start[3], MPI_Offset count[3])
{
    struct box box = box_of(who, dims);
    start[0] = step, count[0] = 1;
    for (int axis = 0; axis < 2; axis++) start[axis + 1] = box.offset[axis], count[axis + 1] = box.shape[axis];
    return box;
}

static int *part(const int *array, const int dims[2], const struct box *box)
{
    return (int *)packed((const unsigned *)array, dims, box);
}

static void define(int file, int variable, const int ids[3])
{
    int first = records(variable) ? 0 : 1, id;
    NC(ncmpi_def_var(file, NAMES[variable], NC_INT, 3 - first, ids + first, &id));
    WANT(id == variable);
}

static void write_simple(int file, int variable, const int dims[2])
{
    int *all = expected(variable, dims), first = records(variable) ? 0 : 1;
    for (int step = 0; step < (first ? 1 : STEPS); step++) {
        MPI_Offset start[3], count[3];
        struct box box = place(rank, dims, step, start, count);
        int *mine = part(all + (long)step * dims[0] * dims[1], dims, &box);
        NC((variable == INDEPENDENT ? ncmpi_put_vara_int : ncmpi_put_vara_int_all)(file, variable, start + first,
                                                                                 count + first, mine));
        free(mine);
    }
    free(all);
}

/* Every row of the rank's box is a request. */
static void write_requests(int file, const int dims[2])
{
    int *all = expected(REQUESTS, dims), *requests = room(sizeof(int) * dims[0]),
        *statuses = room(sizeof(int) * dims[0]);
    MPI_Offset start[3], count[3];
    struct box box = place(rank, dims, 0, start, count);
    int *mine = part(all, dims, &box);
    count[1] = 1;
    for (int row = 0; row < box.shape[0]; row++, start[1]++)
        NC(ncmpi_iput_vara_int(file, REQUESTS, start + 1, count + 1, mine + (long)row * box.shape[1], &requests[row]));
    NC(ncmpi_wait_all(file, box.shape[0], requests, statuses));
    for (int row = 0; row < box.shape[0]; row++) NC(statuses[row]);
    free(mine);
    free(statuses);
    free(requests);
    free(all);
}

/* The neighbour's box while the file is open, and all of each variable after it was opened again. */
static void compare_box(int file, int variable, const int dims[2])
{
    int *all = expected(variable, dims), first = records(variable) ? 0 : 1, step = first ? 0 : STEPS - 1;
    MPI_Offset start[3], count[3];
    struct box box = place((rank + 1) % RANKS, dims, step, start, count);
    int *wanted = part(all + (long)step * dims[0] * dims[1], dims, &box), *seen = room(4 * volume(&box));
    NC(ncmpi_get_vara_int_all(file, variable, start + first, count + first, seen));
    same_ints("the neighbour's box", seen, wanted, volume(&box));
    free(wanted);
    free(seen);
    free(all);
}

static void compare(const char *path, const int dims[2])
{
    int file, count;
    NC(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, MPI_INFO_NULL, &file));
    NC(ncmpi_inq_nvars(file, &count));
    WANT(count == VARIABLES);
    for (int independent = 0; independent < 2; independent++) {
        if (independent) NC(ncmpi_begin_indep_data(file));
        for (int variable = 0; variable < VARIABLES; variable++) {
            snprintf(doing, sizeof doing, "%s, reading %s %s", path, NAMES[variable],
                     independent ? "alone" : "together");
            long all = (long)dims[0] * dims[1] * (records(variable) ? STEPS : 1);
            int *wanted = expected(variable, dims), *seen = room(4 * all);
            NC((independent ? ncmpi_get_var_int : ncmpi_get_var_int_all)(file, variable, seen));
            same_ints("the variable", seen, wanted, all);
            free(seen);
            free(wanted);
        }
        if (independent) NC(ncmpi_end_indep_data(file));
    }
    NC(ncmpi_close(file));
    barrier();
}

static void make(const char *path, const int dims[2], int format, const struct hints *hints)
{
    MPI_Info info;
    OK(MPI_Info_create(&info));
    for (int i = 0; hints->pairs[i]; i += 2) OK(MPI_Info_set(info, hints->pairs[i], hints->pairs[i + 1]));
    int file, ids[3];
    NC(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER | format, info, &file));
    OK(MPI_Info_free(&info));
    NC(ncmpi_def_dim(file, "step", NC_UNLIMITED, &ids[0]));
    NC(ncmpi_def_dim(file, "row", dims[0], &ids[1]));
    NC(ncmpi_def_dim(file, "column", dims[1], &ids[2]));
    for (int variable = 0; variable < LATE; variable++) define(file, variable, ids);
    NC(ncmpi_enddef(file));
    write_simple(file, COLLECTIVE, dims);
    NC(ncmpi_begin_indep_data(file));
    write_simple(file, INDEPENDENT, dims);
    NC(ncmpi_end_indep_data(file));
    write_requests(file, dims);
    write_simple(file, RECORDS, dims);
    write_simple(file, OTHER_RECORDS, dims);
    NC(ncmpi_sync(file));
    barrier();
    NC(ncmpi_sync(file));
    for (int variable = 0; variable < LATE; variable++) compare_box(file, variable, dims);
    /* A longer header: the ranks move all variables after it. */
    char text[5000];
    memset(text, 'x', sizeof text);
    NC(ncmpi_redef(file));
    NC(ncmpi_put_att_text(file, NC_GLOBAL, "history", sizeof text, text));
    define(file, LATE, ids);
    NC(ncmpi_enddef(file));
    write_simple(file, LATE, dims);
    NC(ncmpi_sync(file));
    barrier();
    NC(ncmpi_sync(file));
    for (int variable = 0; variable < VARIABLES; variable++) compare_box(file, variable, dims);
    NC(ncmpi_close(file));
    barrier();
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    WANT(argc > 4);
    int writes = !strcmp(argv[1], "write"), dims[2] = {atoi(argv[2]), atoi(argv[3])};
    WANT(writes || !strcmp(argv[1], "read"));
    static const int FORMATS[] = {0, NC_64BIT_OFFSET, NC_64BIT_DATA};
    for (int i = 4; i < argc; i++)
        for (int set = 0; set < (writes ? HINT_SETS : 1); set++) {
            if (!matters(set, 1)) continue;
            for (int format = 0; format < (writes ? 3 : 1); format++) {
                snprintf(doing, sizeof doing, "%s, format %d, %s", argv[i], format, HINTS[set].name);
                if (writes) make(argv[i], dims, FORMATS[format], &HINTS[set]);
                compare(argv[i], dims);
            }
        }
    return MPI_Finalize();
}
