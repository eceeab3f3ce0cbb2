/* Nested batches: one request for a nested strided pattern.
 *
 * The structure of Galley's `struct gfs_batch` (N. Nieuwejaar and D. Kotz, "The Galley parallel file
 * system", 1996) in 64 bits. Offsets, strides and sizes count bytes of the object in canonical order
 * (row-major, little-endian), or elements where the call that takes the batch says so.
 *
 * A relative offset counts from where the element before it in its vector begins; that of the first
 * element of a vector counts from where this repetition of the parent lies (from 0 at the top).
 * Elements are taken in turn, of each its repetitions in turn.
 */
#ifndef SLABFS_BATCH_H
#define SLABFS_BATCH_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* At most so many elements, those of all vectors together, and so many vectors below each other. */
#define SLABFS_BATCH_MAX_NODES 65536
#define SLABFS_BATCH_MAX_DEPTH 64

struct slabfs_batch {
    int64_t f_off;      /* offset in the object */
    int64_t m_off;      /* offset in memory */
    uint8_t f_absolute; /* not 0: f_off counts from the start of the object */
    uint8_t m_absolute; /* not 0: m_off counts from the start of the buffer */
    uint8_t sub_vector; /* not 0: sub.subvec is repeated, else sub.size bytes or elements */
    uint64_t quant;     /* how often; 0 is nothing */
    int64_t f_stride;   /* from one repetition to the next, in the object */
    int64_t m_stride;   /* the same in memory */
    uint64_t subvec_len; /* elements of sub.subvec; 0 without */
    union {
        uint64_t size;
        struct slabfs_batch *subvec;
    } sub;
};

#ifdef __cplusplus
}
#endif

#endif
