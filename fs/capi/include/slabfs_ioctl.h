/* Views on a file handle: read, write, pread, pwrite and lseek on an open file of a slabfs mount access only
 * the bytes that a batch selects, packed in the order of the batch. Needs no library: everything here uses
 * ioctl(2) directly.
 *
 *     int fd = open("mnt/run1/temp", O_RDONLY);
 *     struct slabfs_batch every = { .quant = 100, .f_stride = 4096, .sub.size = 64 };
 *     if (slabfs_set_view(fd, &every, 1) != 0)
 *         err(1, "mnt/run1/temp");
 *     read(fd, buffer, 6400);
 *
 * A view belongs to the open file description: duplicates of the descriptor share it, other handles of the
 * same file are not affected. Memory offsets and strides of the batch are ignored here. Setting a view does
 * not change the file offset; rewind with lseek(fd, 0, SEEK_SET).
 *
 * For read and write, the end of the view is the end of the file: reads there return 0, writes beyond it fail
 * with EFBIG. fstat(2), and lseek(2) with SEEK_END, are answered by the kernel and refer to the entire object;
 * slabfs_view_bytes and slabfs_lseek refer to the view. A mapping also shows the object. Programs that use the
 * size from fstat as the end (wc -c) need a pipe to read a view.
 *
 * Copies inside the kernel use the view: copy_file_range(2), sendfile(2), splice(2). The last two do because
 * setting a view sets O_DIRECT on the handle; without it they use the page cache, which holds the object.
 * O_DIRECT stays set when the view is cleared, and costs nothing: reads and writes of these files do not use
 * the page cache then. A file that was opened for reading only, without O_DIRECT, may use it for all reads (the
 * ioctl fails with EOPNOTSUPP then): such a file is opened again with O_DIRECT, as the same descriptor.
 * Duplicates of the descriptor from before, and its locks, belong to the old open file description. If a program issues the ioctl itself, or clears O_DIRECT, page cache accesses fail: sendfile
 * and splice with EIO (unless a mapping of the same file has brought the page in before: then they copy the
 * object's bytes), and a mapping with SIGBUS. A read or copy_file_range that includes pieces beyond the end of
 * the object fails entirely with EINVAL, because later pieces of the view may lie within the object; a write
 * there extends the object, if that is allowed.
 *
 * A handle that is open with O_APPEND cannot be written through a view (EINVAL). To a mount, pwritev2(2) with
 * RWF_APPEND looks like a write at the end of the object: it is written at that offset of the view, or fails
 * with EFBIG.
 *
 * All functions return -1 and set errno on failure: ENOTTY if the file is not on a slabfs mount, EINVAL for an
 * invalid batch (the mount logs the reason), ENOMEM if all views of the mount together would exceed 2^20
 * elements, or those of one user other than root 2^18, ENODATA if there is no view. Only one thread at a time
 * may set the view of a handle.
 */
#ifndef SLABFS_IOCTL_H
#define SLABFS_IOCTL_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/types.h>
#include <unistd.h>

#include "slabfs_batch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* glibc defines O_DIRECT only with _GNU_SOURCE. */
#if defined(O_DIRECT)
#define SLABFS__DIRECT O_DIRECT
#else
#define SLABFS__DIRECT __O_DIRECT
#endif

#define SLABFS_VIEW_BYTES 0u    /* offsets, strides and sizes in bytes */
#define SLABFS_VIEW_ELEMENTS 1u /* in elements of the object */

#define SLABFS_VIEW_ABSOLUTE 1u
#define SLABFS_VIEW_VECTOR 2u

/* One element of a batch as transmitted: depth first, each vector followed by its elements. */
struct slabfs_view_node {
    int64_t f_off;
    int64_t f_stride;
    uint64_t quant;
    uint64_t size;     /* 0 for a vector */
    uint32_t flags;    /* SLABFS_VIEW_ABSOLUTE, SLABFS_VIEW_VECTOR */
    uint32_t children; /* elements of a vector, else 0 */
};

#define SLABFS_VIEW_PART_NODES 200

/* A part of a view. The view takes effect when its last part has arrived. */
struct slabfs_view_part {
    uint32_t version; /* 1 */
    uint32_t unit;    /* SLABFS_VIEW_BYTES or SLABFS_VIEW_ELEMENTS */
    uint32_t total;   /* nodes of the view */
    uint32_t first;   /* number of the first node here; for GET_VIEW, the requested one */
    uint32_t count;   /* nodes here */
    uint32_t top;     /* from GET_VIEW: elements of the outermost vector */
    uint64_t bytes;   /* from GET_VIEW: packed bytes of the view */
    struct slabfs_view_node nodes[SLABFS_VIEW_PART_NODES];
};

#define SLABFS_IOC_SET_VIEW _IOW('s', 2, struct slabfs_view_part)
#define SLABFS_IOC_GET_VIEW _IOWR('s', 3, struct slabfs_view_part)
#define SLABFS_IOC_CLEAR_VIEW _IO('s', 4)

/* Counts the nodes of a vector of batches and all nested vectors; -1 if they exceed the limits. */
static inline int64_t slabfs__count(const struct slabfs_batch *batch, uint64_t n, int depth)
{
    int64_t all = 0;
    if (depth > SLABFS_BATCH_MAX_DEPTH || n > SLABFS_BATCH_MAX_NODES || (n > 0 && batch == NULL))
        return -1;
    for (uint64_t i = 0; i < n; i++) {
        all++;
        if (batch[i].sub_vector) {
            int64_t below = slabfs__count(batch[i].sub.subvec, batch[i].subvec_len, depth + 1);
            if (below < 0)
                return -1;
            all += below;
        }
        if (all > SLABFS_BATCH_MAX_NODES)
            return -1;
    }
    return all;
}

/* Sends a full part. */
static inline int slabfs__send(int fd, struct slabfs_view_part *part)
{
    if (ioctl(fd, SLABFS_IOC_SET_VIEW, part) != 0)
        return -1;
    part->first += part->count;
    part->count = 0;
    return 0;
}

static inline int slabfs__put(int fd, struct slabfs_view_part *part, const struct slabfs_batch *batch,
                              uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        struct slabfs_view_node *node;
        if (part->count == SLABFS_VIEW_PART_NODES && slabfs__send(fd, part) != 0)
            return -1;
        node = &part->nodes[part->count++];
        node->f_off = batch[i].f_off;
        node->f_stride = batch[i].f_stride;
        node->quant = batch[i].quant;
        node->flags = (batch[i].f_absolute ? SLABFS_VIEW_ABSOLUTE : 0u) |
                      (batch[i].sub_vector ? SLABFS_VIEW_VECTOR : 0u);
        node->size = batch[i].sub_vector ? 0 : batch[i].sub.size;
        node->children = batch[i].sub_vector ? (uint32_t)batch[i].subvec_len : 0;
        if (batch[i].sub_vector && slabfs__put(fd, part, batch[i].sub.subvec, batch[i].subvec_len) != 0)
            return -1;
    }
    return 0;
}

/* Opens the file of a descriptor again, with O_DIRECT, as the same descriptor. */
static inline int slabfs__open_again(int fd)
{
    char path[32];
    int again, error, flags = fcntl(fd, F_GETFL), own = fcntl(fd, F_GETFD);
    off_t at = lseek(fd, 0, SEEK_CUR);
    if (flags < 0 || own < 0 || at < 0)
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    again = open(path, flags | SLABFS__DIRECT | O_CLOEXEC);
    if (again < 0)
        return -1;
    if (lseek(again, at, SEEK_SET) < 0 || dup2(again, fd) < 0 || fcntl(fd, F_SETFD, own) != 0) {
        error = errno;
        close(again);
        errno = error;
        return -1;
    }
    close(again);
    return 0;
}

/* Sets the view of a handle, and O_DIRECT, in the unit SLABFS_VIEW_BYTES or SLABFS_VIEW_ELEMENTS. */
static inline int slabfs_set_view_in(int fd, const struct slabfs_batch *batch, uint64_t n, uint32_t unit)
{
    struct slabfs_view_part part;
    int flags;
    int64_t total = slabfs__count(batch, n, 1);
    if (total < 0) {
        errno = EINVAL;
        return -1;
    }
    memset(&part, 0, sizeof part);
    part.version = 1;
    part.unit = unit;
    part.total = (uint32_t)total;
    if (slabfs__put(fd, &part, batch, n) != 0 || ioctl(fd, SLABFS_IOC_SET_VIEW, &part) != 0) {
        if (errno != EOPNOTSUPP || slabfs__open_again(fd) != 0)
            return -1;
        part.first = part.count = 0;
        if (slabfs__put(fd, &part, batch, n) != 0 || ioctl(fd, SLABFS_IOC_SET_VIEW, &part) != 0)
            return -1;
    }
    flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | SLABFS__DIRECT) != 0 ? -1 : 0;
}

/* Sets the view of a handle: the bytes that `n` batches select, concatenated. */
static inline int slabfs_set_view(int fd, const struct slabfs_batch *batch, uint64_t n)
{
    return slabfs_set_view_in(fd, batch, n, SLABFS_VIEW_BYTES);
}

/* Clears the view: the handle shows the entire object again. A missing view is no error. */
static inline int slabfs_clear_view(int fd)
{
    return ioctl(fd, SLABFS_IOC_CLEAR_VIEW) != 0 ? -1 : 0;
}

/* Returns the size of a handle's view in bytes. */
static inline int64_t slabfs_view_bytes(int fd)
{
    struct slabfs_view_part part;
    memset(&part, 0, sizeof part);
    part.version = 1;
    if (ioctl(fd, SLABFS_IOC_GET_VIEW, &part) != 0)
        return -1;
    return (int64_t)part.bytes;
}

/* Reads a view node by node. */
struct slabfs__reader {
    int fd;
    uint32_t at;
    struct slabfs_batch *nodes;
    uint64_t room;
    uint64_t taken;
    struct slabfs_view_part part;
};

static inline const struct slabfs_view_node *slabfs__next(struct slabfs__reader *reader)
{
    uint32_t at = reader->at++;
    if (at < reader->part.first || at >= reader->part.first + reader->part.count) {
        reader->part.version = 1;
        reader->part.first = at;
        if (ioctl(reader->fd, SLABFS_IOC_GET_VIEW, &reader->part) != 0)
            return NULL;
        if (reader->part.count == 0 || reader->part.first != at) {
            errno = EBUSY; /* another thread has set another view */
            return NULL;
        }
    }
    return &reader->part.nodes[at - reader->part.first];
}

static inline int slabfs__take(struct slabfs__reader *reader, uint64_t dest, uint64_t n, int depth)
{
    if (depth > SLABFS_BATCH_MAX_DEPTH) {
        errno = EBUSY;
        return -1;
    }
    for (uint64_t i = 0; i < n; i++) {
        struct slabfs_batch *batch = &reader->nodes[dest + i];
        const struct slabfs_view_node *node = slabfs__next(reader);
        if (node == NULL)
            return -1;
        memset(batch, 0, sizeof *batch);
        batch->f_off = node->f_off;
        batch->f_stride = node->f_stride;
        batch->quant = node->quant;
        batch->f_absolute = (node->flags & SLABFS_VIEW_ABSOLUTE) != 0;
        if (node->flags & SLABFS_VIEW_VECTOR) {
            uint64_t below = reader->taken, children = node->children;
            if (children > reader->room - below) {
                errno = ERANGE;
                return -1;
            }
            reader->taken += children;
            batch->sub_vector = 1;
            batch->subvec_len = children;
            batch->sub.subvec = reader->nodes + below;
            if (slabfs__take(reader, below, children, depth + 1) != 0)
                return -1;
        } else {
            batch->sub.size = node->size;
        }
    }
    return 0;
}

/* Gets the view of a handle: writes its outermost vector to the beginning of `nodes`, and nested vectors behind it;
 * `room` is the capacity of `nodes`. Returns the number of elements of the outermost vector, or -1, with ERANGE if
 * the capacity is too small (SLABFS_BATCH_MAX_NODES always suffices). If `unit` is not NULL, it is set to the unit. */
static inline int64_t slabfs_get_view(int fd, struct slabfs_batch *nodes, uint64_t room, uint32_t *unit)
{
    struct slabfs__reader reader;
    uint64_t top;
    memset(&reader, 0, sizeof reader);
    reader.fd = fd;
    reader.nodes = nodes;
    reader.room = room;
    reader.part.version = 1;
    if (ioctl(fd, SLABFS_IOC_GET_VIEW, &reader.part) != 0)
        return -1;
    top = reader.part.top;
    if (unit != NULL)
        *unit = reader.part.unit;
    if (top > room) {
        errno = ERANGE;
        return -1;
    }
    reader.taken = top;
    return slabfs__take(&reader, 0, top, 1) != 0 ? -1 : (int64_t)top;
}

/* Like lseek(2), but SEEK_END is the end of the view if the handle has one. */
static inline off_t slabfs_lseek(int fd, off_t offset, int whence)
{
    int64_t end;
    if (whence != SEEK_END)
        return lseek(fd, offset, whence);
    end = slabfs_view_bytes(fd);
    if (end < 0) {
        if (errno != ENODATA && errno != ENOTTY)
            return -1;
        return lseek(fd, offset, SEEK_END);
    }
    if ((offset > 0 && end > INT64_MAX - offset) || end + offset < 0) {
        errno = EINVAL;
        return -1;
    }
    return lseek(fd, (off_t)(end + offset), SEEK_SET);
}

#ifdef __cplusplus
}
#endif

#endif
