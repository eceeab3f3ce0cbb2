// An ensemble filter: for each output step of a model it reads the height, PREFIX0001.nc and so on, as an observation, and
// moves an ensemble of states towards it. The ranks share the field in blocks of rows and columns, unlike the model. The
// mean of the ensemble is written to RESULT0001.nc and so on, with PnetCDF, which reads the input, too.
//
//     filter PREFIX RESULT STEPS

#include <mpi.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        int status = (call);                                                                       \
        if (status != NC_NOERR) {                                                                  \
            fprintf(stderr, "filter: %s: %s\n", #call, ncmpi_strerror(status));                    \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
        }                                                                                          \
    } while (0)

enum { MEMBERS = 5 };

static MPI_Offset from(MPI_Offset length, int part, int parts) { return length * part / parts; }

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 4) {
        fprintf(stderr, "usage: filter PREFIX RESULT STEPS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int grid[2] = {0, 0};
    MPI_Dims_create(ranks, 2, grid);
    long steps = atol(argv[3]);
    double *ensemble = NULL, *mean = NULL, *observed = NULL;
    MPI_Offset start[2], counts[2], lengths[2];
    for (long number = 1; number <= steps; number++) {
        char path[4096];
        snprintf(path, sizeof path, "%s%04ld.nc", argv[1], number);
        int file, variable, dims[2];
        CHECK(ncmpi_open(MPI_COMM_WORLD, path, NC_NOWRITE, MPI_INFO_NULL, &file));
        CHECK(ncmpi_inq_varid(file, "h", &variable));
        CHECK(ncmpi_inq_vardimid(file, variable, dims));
        for (int axis = 0; axis < 2; axis++) {
            CHECK(ncmpi_inq_dimlen(file, dims[axis], &lengths[axis]));
            int part = axis == 0 ? rank / grid[1] : rank % grid[1];
            start[axis] = from(lengths[axis], part, grid[axis]);
            counts[axis] = from(lengths[axis], part + 1, grid[axis]) - start[axis];
        }
        MPI_Offset cells = counts[0] * counts[1];
        if (ensemble == NULL) {
            ensemble = malloc(MEMBERS * cells * sizeof(double));
            mean = malloc(cells * sizeof(double));
            observed = malloc(cells * sizeof(double));
            for (MPI_Offset at = 0; at < MEMBERS * cells; at++)
                ensemble[at] = (at / cells) * 0.25 - 0.5;
        }
        CHECK(ncmpi_get_vara_double_all(file, variable, start, counts, observed));
        CHECK(ncmpi_close(file));
        for (MPI_Offset at = 0; at < cells; at++) {
            double sum = 0, square = 0;
            for (int member = 0; member < MEMBERS; member++)
                sum += ensemble[member * cells + at];
            sum /= MEMBERS;
            for (int member = 0; member < MEMBERS; member++) {
                double away = ensemble[member * cells + at] - sum;
                square += away * away;
            }
            double gain = square / (square + 0.1);
            mean[at] = 0;
            for (int member = 0; member < MEMBERS; member++) {
                double *state = &ensemble[member * cells + at];
                *state += gain * (observed[at] - *state);
                mean[at] += *state / MEMBERS;
            }
        }
        snprintf(path, sizeof path, "%s%04ld.nc", argv[2], number);
        CHECK(ncmpi_create(MPI_COMM_WORLD, path, NC_CLOBBER, MPI_INFO_NULL, &file));
        CHECK(ncmpi_def_dim(file, "y", lengths[0], &dims[0]));
        CHECK(ncmpi_def_dim(file, "x", lengths[1], &dims[1]));
        CHECK(ncmpi_def_var(file, "mean", NC_DOUBLE, 2, dims, &variable));
        CHECK(ncmpi_enddef(file));
        CHECK(ncmpi_put_vara_double_all(file, variable, start, counts, mean));
        CHECK(ncmpi_close(file));
    }
    free(ensemble);
    free(mean);
    free(observed);
    MPI_Finalize();
    return 0;
}
