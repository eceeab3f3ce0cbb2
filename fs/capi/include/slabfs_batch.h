/* Nested batches: one request for a nested strided pattern.
 *
 * The structure of Galley's `struct gfs_batch` (N. Nieuwejaar and D. Kotz, "The Galley parallel file
 * system", 1996) in 64 bits. Offsets, strides and sizes are in bytes of the object in canonical order
 * (row-major, little-endian), or in elements if the call that takes the batch defines it so.
 *
 * A relative offset counts from the start of the preceding element in its vector; that of the first
 * element of a vector counts from the position of the current repetition of the parent (from 0 at the
 * top). Elements are processed in order, and the repetitions of each element in order.
 */
#ifndef SLABFS_BATCH_H
#define SLABFS_BATCH_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The maximum number of elements of all vectors together, and the maximum nesting depth. */
#define SLABFS_BATCH_MAX_NODES 65536
#define SLABFS_BATCH_MAX_DEPTH 64

struct slabfs_batch {
    int64_t f_off;      /* offset in the object */
    int64_t m_off;      /* offset in memory */
    uint8_t f_absolute; /* not 0: f_off counts from the start of the object */
    uint8_t m_absolute; /* not 0: m_off counts from the start of the buffer */
    uint8_t sub_vector; /* not 0: sub.subvec is repeated, else sub.size bytes or elements */
    uint64_t quant;     /* number of repetitions; 0 selects nothing */
    int64_t f_stride;   /* distance of repetitions in the object */
    int64_t m_stride;   /* distance of repetitions in memory */
    uint64_t subvec_len; /* elements of sub.subvec; otherwise 0 */
    union {
        uint64_t size;
        struct slabfs_batch *subvec;
    } sub;
};

#ifdef __cplusplus
}
#endif

#endif
