// A small shallow-water model: the linear equations on a staggered grid in a channel, explicit in time. The ranks share
// the rows unevenly. Each output step is a file of its own, PREFIX0001.nc and so on, with the height and both
// velocities, written with PnetCDF.
//
//     shallow PREFIX ROWS COLUMNS STEPS

#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        int status = (call);                                                                       \
        if (status != NC_NOERR) {                                                                  \
            fprintf(stderr, "shallow: %s: %s\n", #call, ncmpi_strerror(status));                   \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
        }                                                                                          \
    } while (0)

enum { SUBSTEPS = 4 };

static const double DEPTH = 10, GRAVITY = 9.81, TIME_STEP = 0.01, CELL = 1;

static int rank, ranks;

// The rows of a rank: rank r has a share of r + 1.
static void rows_of(int r, long rows, long *first, long *count) {
    long shares = (long)ranks * (ranks + 1) / 2;
    long from = rows * ((long)r * (r + 1) / 2) / shares;
    long to = rows * ((long)(r + 1) * (r + 2) / 2) / shares;
    *first = from;
    *count = to - from;
}

// Sends rows of a field to the neighbours and gets theirs, into the row in front and behind.
static void exchange(double *field, long count, long columns) {
    int up = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    int down = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(field + columns, columns, MPI_DOUBLE, up, 0, field + (count + 1) * columns, columns,
                 MPI_DOUBLE, down, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(field + count * columns, columns, MPI_DOUBLE, down, 1, field, columns, MPI_DOUBLE,
                 up, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void step(double *h, double *u, double *v, long first, long count, long rows, long columns) {
    exchange(h, count, columns);
    for (long i = 1; i <= count; i++)
        for (long j = 0; j < columns; j++) {
            long at = i * columns + j, right = i * columns + (j + 1) % columns;
            u[at] -= GRAVITY * TIME_STEP / CELL * (h[right] - h[at]);
            if (first + i < rows)
                v[at] -= GRAVITY * TIME_STEP / CELL * (h[at + columns] - h[at]);
        }
    exchange(v, count, columns);
    for (long i = 1; i <= count; i++)
        for (long j = 0; j < columns; j++) {
            long at = i * columns + j, left = i * columns + (j + columns - 1) % columns;
            double above = first + i > 1 ? v[at - columns] : 0;
            h[at] -= DEPTH * TIME_STEP / CELL * (u[at] - u[left] + v[at] - above);
        }
}

static void put(const char *prefix, long number, double *const fields[3], long first, long count,
                long rows, long columns) {
    static const char *const names[3] = {"h", "u", "v"};
    char path[4096];
    snprintf(path, sizeof path, "%s%04ld.nc", prefix, number);
    int file, dims[2], variables[3];
    CHECK(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &file));
    CHECK(ncmpi_def_dim(file, "y", rows, &dims[0]));
    CHECK(ncmpi_def_dim(file, "x", columns, &dims[1]));
    for (int i = 0; i < 3; i++)
        CHECK(ncmpi_def_var(file, names[i], NC_DOUBLE, 2, dims, &variables[i]));
    double seconds = number * SUBSTEPS * TIME_STEP;
    CHECK(ncmpi_put_att_double(file, NC_GLOBAL, "seconds", NC_DOUBLE, 1, &seconds));
    CHECK(ncmpi_enddef(file));
    MPI_Offset start[2] = {first, 0}, counts[2] = {count, columns};
    for (int i = 0; i < 3; i++)
        CHECK(ncmpi_put_vara_double_all(file, variables[i], start, counts, fields[i] + columns));
    CHECK(ncmpi_close(file));
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 5) {
        fprintf(stderr, "usage: shallow PREFIX ROWS COLUMNS STEPS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    long rows = atol(argv[2]), columns = atol(argv[3]), steps = atol(argv[4]);
    long first, count;
    rows_of(rank, rows, &first, &count);
    double *fields[3];
    for (int i = 0; i < 3; i++)
        fields[i] = calloc((count + 2) * columns, sizeof(double));
    for (long i = 1; i <= count; i++)
        for (long j = 0; j < columns; j++) {
            double y = (first + i - 1 - rows / 3.0) / rows, x = (j - columns / 2.0) / columns;
            fields[0][i * columns + j] = 1 / (1 + 50 * (x * x + y * y));
        }
    for (long number = 1; number <= steps; number++) {
        for (int i = 0; i < SUBSTEPS; i++)
            step(fields[0], fields[1], fields[2], first, count, rows, columns);
        put(argv[1], number, fields, first, count, rows, columns);
    }
    for (int i = 0; i < 3; i++)
        free(fields[i]);
    MPI_Finalize();
    return 0;
}
