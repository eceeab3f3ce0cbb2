/* The batched interface of the Galley parallel file system over slabfs: the structure and the calls of N. Nieuwejaar
 * and D. Kotz, "The Galley parallel file system", 1996, for programs that were written for it. See gfs_compat(3); new
 * programs should use slabfs.h.
 *
 * A Galley file corresponds to a container, and its forks to the objects in it. slabfs_gfs_fork makes an open object a
 * fork; offsets are in bytes, in canonical order.
 *
 * A relative offset counts from the offset of the preceding element in its vector; that of the first element of a
 * vector counts from the position of the current repetition of the parent.
 *
 * `vector` has `quant` elements. It may also be passed by value, as in the paper; then `quant` must be 1.
 *
 * A handle is a number chosen by the program. After a nonblocking call with a handle, gfs_wait must be called before
 * the handle is used in another one. Until then the buffer, from the first to the last byte of the request, must not
 * be used (for a write: not be changed).
 *
 * The calls return 0, or a negative code of slabfs.h with details in slabfs_error(); gfs_test returns 1 when all the
 * data has been transferred, otherwise 0. Written data counts as transferred when the data servers have it and it is
 * visible to other clients.
 */
#ifndef GFS_COMPAT_H
#define GFS_COMPAT_H

#include <slabfs.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int gfs_handle;

struct gfs_batch {
    int32_t f_off;      /* initial offset in the file */
    int32_t m_off;      /* in memory */
    char f_absolute;    /* not 0: f_off counts from the start of the fork */
    char m_absolute;    /* not 0: m_off counts from `buf` */
    char sub_vector;    /* not 0: sub.subvec is repeated, else sub.size bytes */
    int32_t quant;      /* number of repetitions */
    int32_t f_stride;   /* between repetitions, in the file */
    int32_t m_stride;   /* in memory */
    int32_t subvec_len; /* elements of sub.subvec */
    union {
        int32_t size;
        struct gfs_batch *subvec;
    } sub;
};

/* Makes an open object a fork, until slabfs_gfs_close; the caller closes the object's handle, before or after. */
int slabfs_gfs_fork(struct slabfs_object object, int *fork_id);
int slabfs_gfs_close(int fork_id);

int gfs_read_batched(int fork_id, char *buf, const struct gfs_batch *vector, int quant);
int gfs_nb_read_batched(gfs_handle handle, int fork_id, char *buf, const struct gfs_batch *vector, int quant);
int gfs_write_batched(int fork_id, char *buf, const struct gfs_batch *vector, int quant);
int gfs_nb_write_batched(gfs_handle handle, int fork_id, char *buf, const struct gfs_batch *vector, int quant);
int gfs_test(gfs_handle handle);
int gfs_wait(gfs_handle handle);

#ifdef __cplusplus
}
#endif

/* The same calls with one element by value. */
static inline int gfs__read(int fork_id, char *buf, struct gfs_batch one, int quant)
{
    return gfs_read_batched(fork_id, buf, quant == 1 ? &one : NULL, quant);
}

static inline int gfs__nb_read(gfs_handle handle, int fork_id, char *buf, struct gfs_batch one, int quant)
{
    return gfs_nb_read_batched(handle, fork_id, buf, quant == 1 ? &one : NULL, quant);
}

static inline int gfs__write(int fork_id, char *buf, struct gfs_batch one, int quant)
{
    return gfs_write_batched(fork_id, buf, quant == 1 ? &one : NULL, quant);
}

static inline int gfs__nb_write(gfs_handle handle, int fork_id, char *buf, struct gfs_batch one, int quant)
{
    return gfs_nb_write_batched(handle, fork_id, buf, quant == 1 ? &one : NULL, quant);
}

#ifdef __cplusplus

static inline int gfs_read_batched(int fork_id, char *buf, struct gfs_batch one, int quant)
{
    return gfs__read(fork_id, buf, one, quant);
}

static inline int gfs_nb_read_batched(gfs_handle handle, int fork_id, char *buf, struct gfs_batch one, int quant)
{
    return gfs__nb_read(handle, fork_id, buf, one, quant);
}

static inline int gfs_write_batched(int fork_id, char *buf, struct gfs_batch one, int quant)
{
    return gfs__write(fork_id, buf, one, quant);
}

static inline int gfs_nb_write_batched(gfs_handle handle, int fork_id, char *buf, struct gfs_batch one, int quant)
{
    return gfs__nb_write(handle, fork_id, buf, one, quant);
}

#elif defined __STDC_VERSION__ && __STDC_VERSION__ >= 201112L

#define gfs_read_batched(fork_id, buf, vector, quant) \
    _Generic((vector), struct gfs_batch: gfs__read, default: gfs_read_batched)(fork_id, buf, vector, quant)
#define gfs_nb_read_batched(handle, fork_id, buf, vector, quant) \
    _Generic((vector), struct gfs_batch: gfs__nb_read, default: gfs_nb_read_batched)(handle, fork_id, buf, vector, quant)
#define gfs_write_batched(fork_id, buf, vector, quant) \
    _Generic((vector), struct gfs_batch: gfs__write, default: gfs_write_batched)(fork_id, buf, vector, quant)
#define gfs_nb_write_batched(handle, fork_id, buf, vector, quant) \
    _Generic((vector), struct gfs_batch: gfs__nb_write, default: gfs_nb_write_batched)(handle, fork_id, buf, vector, quant)

#endif

#endif
