/*
 * The naive 2-D array of the MPI-IO programs, and the four uneven boxes into which it is cut:
 * those of the note on variable-size chunks, scaled.
 *
 *        0        9/16      1
 *   0    +---------+--------+
 *        |    0    |    1   |
 *  7/16  |         +--------+
 * 10/16  +---------+        |
 *        |    2    |    3   |
 *   1    +---------+--------+
 */
#ifndef ARRAY_H
#define ARRAY_H

#include "check.h"

struct box {
    int offset[2], shape[2];
};

static inline struct box box_of(int who, const int dims[2])
{
    int column = dims[1] * 9 / 16, left = dims[0] * 10 / 16, right = dims[0] * 7 / 16;
    struct box boxes[RANKS] = {
        {{0, 0}, {left, column}},
        {{0, column}, {right, dims[1] - column}},
        {{left, 0}, {dims[0] - left, column}},
        {{right, column}, {dims[0] - right, dims[1] - column}},
    };
    return boxes[who];
}

static inline long volume(const struct box *box) { return (long)box->shape[0] * box->shape[1]; }

/* The box's elements of `array`, packed. */
static inline unsigned *packed(const unsigned *array, const int dims[2], const struct box *box)
{
    unsigned *elements = room(4 * volume(box)), *next = elements;
    for (int row = 0; row < box->shape[0]; row++)
        for (int column = 0; column < box->shape[1]; column++)
            *next++ = array[(long)(box->offset[0] + row) * dims[1] + box->offset[1] + column];
    return elements;
}

/* Sets the box's elements of `array` to those of `round`. */
static inline void paint(unsigned *array, const int dims[2], const struct box *box, int round)
{
    for (int row = box->offset[0]; row < box->offset[0] + box->shape[0]; row++)
        for (int column = box->offset[1]; column < box->offset[1] + box->shape[1]; column++) {
            long i = (long)row * dims[1] + column;
            array[i] = value(i, round);
        }
}

/* Sets the box as the file's view. */
static inline void view(MPI_File file, const int dims[2], const struct box *box)
{
    MPI_Datatype type;
    OK(MPI_Type_create_subarray(2, dims, box->shape, box->offset, MPI_ORDER_C, MPI_UNSIGNED, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_File_set_view(file, 0, MPI_UNSIGNED, type, "native", MPI_INFO_NULL));
    OK(MPI_Type_free(&type));
}

#endif
