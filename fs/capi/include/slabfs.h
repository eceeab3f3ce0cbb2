/* slabfs.h: the C library of slabfs, a filesystem of N-dimensional arrays.
 *
 * Every call returns SLABFS_OK, which is 0, or a negative code; slabfs_error() returns the error message of the calling
 * thread's last call, with the remedy. Handles are numbers that may be used from any thread. Strings are
 * NUL-terminated; paths are relative to the root of the filesystem. Elements are stored in memory in the byte order of
 * the object's dtype. See slabfs(3).
 *
 * This file is generated from the library's sources: change those. */

#ifndef SLABFS_H
#define SLABFS_H

#include <stddef.h>
#include <stdint.h>
#include "slabfs_batch.h"

/*
 Offsets, strides and sizes of a batch are in bytes of the object in canonical order.
 */
#define SLABFS_BYTES 0

/*
 Offsets, strides and sizes of a batch are in elements of the object.
 */
#define SLABFS_ELEMENTS 1

/*
 Each read returns the data of the last write by any client.
 */
#define SLABFS_STRICT 0

/*
 Written data becomes visible to other clients after a sync or a close, when they next open the object.
 */
#define SLABFS_COMMIT 1

/*
 Success.
 */
#define SLABFS_OK 0

/*
 No entry with that name exists.
 */
#define SLABFS_ENOTFOUND -1

/*
 The name exists already.
 */
#define SLABFS_EEXISTS -2

/*
 The operation requires a container.
 */
#define SLABFS_ENOTCONTAINER -3

/*
 The operation does not accept a container.
 */
#define SLABFS_EISCONTAINER -4

/*
 The container is not empty.
 */
#define SLABFS_ENOTEMPTY -5

/*
 The user lacks permission.
 */
#define SLABFS_EDENIED -6

/*
 The session is read-only, or the object was not opened for writing.
 */
#define SLABFS_EREADONLY -7

/*
 The request is invalid; the message gives the reason and the remedy.
 */
#define SLABFS_EINVALID -8

/*
 A name, a size or a number exceeds its limit.
 */
#define SLABFS_ETOOLARGE -9

/*
 A disk is full, or an object has the maximum number of tags.
 */
#define SLABFS_ENOSPACE -10

/*
 The filesystem does not support the operation.
 */
#define SLABFS_ENOTSUPPORTED -11

/*
 Another client is using it; a later retry may succeed.
 */
#define SLABFS_EBUSY -12

/*
 The object was removed or replaced since it was opened.
 */
#define SLABFS_ESTALE -13

/*
 A server could not be reached in time; a later retry may succeed.
 */
#define SLABFS_EUNAVAILABLE -14

/*
 The session is lost; data that was not flushed may be lost.
 */
#define SLABFS_ELOST -15

/*
 Stored data is damaged: its checksum does not match.
 */
#define SLABFS_EDAMAGED -16

/*
 A disk or a protocol failed.
 */
#define SLABFS_EIO -17

/*
 The session was closed.
 */
#define SLABFS_ECLOSED -18

/*
 The handle does not exist or was closed.
 */
#define SLABFS_EHANDLE -19

/*
 Internal error: a bug of the library, described by the message.
 */
#define SLABFS_EINTERNAL -20

/*
 The operation was cancelled before any part of it was done.
 */
#define SLABFS_ECANCELLED -21

/*
 A container: a directory.
 */
#define SLABFS_CONTAINER 1

/*
 An object: an array, or plain bytes.
 */
#define SLABFS_OBJECT 2

/*
 A symbolic link, a pipe or another node of a mount.
 */
#define SLABFS_OTHER 3

/*
 An existing entry with the new name is replaced.
 */
#define SLABFS_REPLACE 0

/*
 The new name must not exist.
 */
#define SLABFS_NOREPLACE 1

/*
 The two entries are exchanged.
 */
#define SLABFS_EXCHANGE 2

/*
 An unlimited axis, in `max_dims`.
 */
#define SLABFS_UNLIMITED UINT64_MAX

/*
 For reading.
 */
#define SLABFS_READ 1

/*
 For writing.
 */
#define SLABFS_WRITE 2

/*
 For reading and writing.
 */
#define SLABFS_READWRITE 3

/*
 Untyped text or bytes, like the value of an extended attribute.
 */
#define SLABFS_TAG_AUTO 0

/*
 An integer: `integer`.
 */
#define SLABFS_TAG_INT 1

/*
 A floating-point number: `real`.
 */
#define SLABFS_TAG_FLOAT 2

/*
 UTF-8: `data` and `len`.
 */
#define SLABFS_TAG_TEXT 3

/*
 Bytes: `data` and `len`.
 */
#define SLABFS_TAG_BYTES 4

/*
 A list, as JSON in `data` and `len`: `[1, 2.5, "a"]`.
 */
#define SLABFS_TAG_LIST 5

/*
 Removes the tag; a missing tag is no error.
 */
#define SLABFS_TAG_REMOVE 6

/*
 An open object, from `slabfs_open` or `slabfs_create` to `slabfs_object_close`.
 */
typedef struct slabfs_object {
  /*
   The handle's number; never 0.
   */
  uint64_t id;
} slabfs_object;

/*
 A transfer, from `slabfs_transfer_read` or a similar call to `slabfs_transfer_free`.
 */
typedef struct slabfs_transfer {
  /*
   The handle's number; never 0.
   */
  uint64_t id;
} slabfs_transfer;

/*
 A strided hyperslab as in HDF5: on each axis, slowest first, `count` blocks of `block` elements, whose starts
 are `stride` elements apart.
 */
typedef struct slabfs_slab {
  /*
   The rank of the object.
   */
  size_t rank;
  /*
   The first element.
   */
  const uint64_t *start;
  /*
   The distance between the starts of blocks; NULL: blocks are adjacent.
   */
  const uint64_t *stride;
  /*
   The number of blocks.
   */
  const uint64_t *count;
  /*
   Elements per block; NULL: one.
   */
  const uint64_t *block;
} slabfs_slab;

/*
 Options of a connection; zero members select the defaults.
 */
typedef struct slabfs_options {
  /*
   The file with the shared key of the filesystem; required for tcp. NULL: none.
   */
  const char *key_file;
  /*
   The name of this host, by which placement `local` selects data servers. NULL: the host name.
   */
  const char *host;
  /*
   How long a call waits for an unreachable server, in milliseconds, at least 100. 0: 30 seconds.
   */
  uint64_t io_timeout_ms;
  /*
   The maximum amount of dirty data in memory, in bytes, at least 1048576. 0: 256 MiB.
   */
  uint64_t dirty_limit;
  /*
   The size of the cache of read data, in bytes. 0: 64 MiB.
   */
  uint64_t cache;
  /*
   SLABFS_STRICT or SLABFS_COMMIT.
   */
  uint32_t consistency;
  /*
   Not 0: changes are refused.
   */
  uint32_t read_only;
  /*
   Must be zero.
   */
  uint64_t reserved[8];
} slabfs_options;

/*
 A session with a filesystem, from `slabfs_connect` to `slabfs_close`.
 */
typedef struct slabfs_session {
  /*
   The handle's number; never 0.
   */
  uint64_t id;
} slabfs_session;

/*
 A search; all members except `text` may be zero.
 */
typedef struct slabfs_query {
  /*
   The query in the language of `slabfs find`: step >= 10 and project = climate.
   */
  const char *text;
  /*
   Searches only below this container. NULL: everywhere.
   */
  const char *below;
  /*
   The sort key, ascending: path, name, size, mtime, `dims[0]` or the key of a tag. NULL: unsorted.
   */
  const char *sort;
  /*
   The maximum number of hits. 0: all.
   */
  uint64_t limit;
  /*
   Returns only share `part`, counted from 0, of `parts` disjoint shares, for parallel searches. Both 0: all.
   */
  uint32_t part;
  /*
   The number of shares.
   */
  uint32_t parts;
  /*
   Must be zero.
   */
  uint64_t reserved[4];
} slabfs_query;

/*
 A list of names, from `slabfs_list` or `slabfs_find` to `slabfs_entries_free`.
 */
typedef struct slabfs_entries {
  /*
   The handle's number; never 0.
   */
  uint64_t id;
} slabfs_entries;

/*
 The attributes of an object or a container.
 */
typedef struct slabfs_stat {
  /*
   The inode number; never reused.
   */
  uint64_t ino;
  /*
   The size in bytes.
   */
  uint64_t size;
  /*
   Increases with every change of data or attributes.
   */
  uint64_t version;
  /*
   Last change of data, in seconds since 1970.
   */
  int64_t mtime;
  /*
   The nanoseconds of `mtime`.
   */
  uint32_t mtime_nsec;
  /*
   SLABFS_CONTAINER, SLABFS_OBJECT or SLABFS_OTHER.
   */
  uint32_t kind;
  /*
   Permission bits.
   */
  uint32_t mode;
  /*
   Owner.
   */
  uint32_t uid;
  /*
   Group.
   */
  uint32_t gid;
  /*
   The rank, for an object.
   */
  uint32_t rank;
  /*
   Elements per axis, slowest first.
   */
  uint64_t dims[32];
  /*
   The maximum of each axis, or SLABFS_UNLIMITED.
   */
  uint64_t max_dims[32];
  /*
   The element size in bytes.
   */
  uint64_t element_bytes;
  /*
   The element type in NumPy notation, NUL-terminated.
   */
  char dtype[32];
  /*
   Not 0: it was declared as an array; 0: it is a byte object.
   */
  uint32_t declared;
  /*
   Must be zero.
   */
  uint32_t reserved[7];
} slabfs_stat;

/*
 An entry of a list of names. Its pointers are valid until the list is freed.
 */
typedef struct slabfs_entry {
  /*
   The name in a container, or the path from the root in the result of a search; NUL-terminated.
   */
  const char *path;
  /*
   Its length in bytes, without the NUL.
   */
  size_t path_len;
  /*
   SLABFS_CONTAINER, SLABFS_OBJECT or SLABFS_OTHER.
   */
  uint32_t kind;
  /*
   Must be zero.
   */
  uint32_t reserved;
  /*
   The size in bytes, in the result of a search; otherwise 0.
   */
  uint64_t size;
  /*
   The last change of data in seconds since 1970, in the result of a search; otherwise 0.
   */
  int64_t mtime;
} slabfs_entry;

/*
 The properties of objects to create, from `slabfs_spec_new` to `slabfs_spec_free`.
 */
typedef struct slabfs_spec {
  /*
   The handle's number; never 0.
   */
  uint64_t id;
} slabfs_spec;

/*
 A tag of an object or a container, to set or remove, or as returned.
 */
typedef struct slabfs_tag {
  /*
   The path of the object or container from the root; NULL in returned tags.
   */
  const char *path;
  /*
   Its key.
   */
  const char *key;
  /*
   The type: SLABFS_TAG_INT etc.
   */
  uint32_t kind;
  /*
   Must be zero.
   */
  uint32_t reserved;
  /*
   The value of SLABFS_TAG_INT.
   */
  int64_t integer;
  /*
   The value of SLABFS_TAG_FLOAT.
   */
  double real;
  /*
   The bytes of the other types; in returned tags also numbers, as text.
   */
  const void *data;
  /*
   The length of `data`.
   */
  size_t len;
} slabfs_tag;

/*
 A list of tags, from `slabfs_tags_of` to `slabfs_tags_free`.
 */
typedef struct slabfs_tags {
  /*
   The handle's number; never 0.
   */
  uint64_t id;
} slabfs_tags;

/*
 The memory layout of a transfer's elements in its buffer; all zero means packed, with the object's dtype. The
 elements in memory correspond to those of the object's selection in row-major order of both; only their
 numbers must be equal.
 */
typedef struct slabfs_memory {
  /*
   The offset of the first element in the buffer, in bytes.
   */
  uint64_t offset;
  /*
   The length of `shape` and `strides`.
   */
  size_t rank;
  /*
   Elements per axis, slowest first. NULL: the shape of the object's selection.
   */
  const uint64_t *shape;
  /*
   The stride of each axis in bytes. NULL: packed; `rank` and `shape` are ignored.
   */
  const uint64_t *strides;
  /*
   The type of the elements in memory, in NumPy notation. NULL: the object's.
   */
  const char *dtype;
  /*
   Must be zero.
   */
  uint64_t reserved[4];
} slabfs_memory;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Reads the pieces of `n` elements of `batch` into `len` bytes at `buffer`, with one request to each data
 server, however many pieces there are. `unit` is SLABFS_BYTES or SLABFS_ELEMENTS. Pieces must not overlap in
 the buffer.

 Every vector of the batch has the stated number of elements; `buffer` points to `len` bytes that no other
 thread uses.
 */
int32_t slabfs_read_batch(struct slabfs_object object,
                          const struct slabfs_batch *batch,
                          size_t n,
                          uint32_t unit,
                          void *buffer,
                          size_t len);

/*
 Writes the pieces of `n` elements of `batch` from `len` bytes at `buffer`; see `slabfs_read_batch`. Where
 pieces overlap in the object, the later one wins.

 As for `slabfs_read_batch`.
 */
int32_t slabfs_write_batch(struct slabfs_object object,
                           const struct slabfs_batch *batch,
                           size_t n,
                           uint32_t unit,
                           const void *buffer,
                           size_t len);

/*
 Creates a transfer that reads a batch like `slabfs_read_batch`. The batch is copied. From
 `slabfs_transfer_start` until the transfer has ended, the library owns the entire buffer.

 `buffer` points to `len` bytes until the transfer has ended or was freed; otherwise as for
 `slabfs_read_batch`.
 */
int32_t slabfs_transfer_read_batch(struct slabfs_object object,
                                   const struct slabfs_batch *batch,
                                   size_t n,
                                   uint32_t unit,
                                   void *buffer,
                                   size_t len,
                                   struct slabfs_transfer *transfer);

/*
 Creates a transfer that writes a batch like `slabfs_write_batch`. The batch is copied. From
 `slabfs_transfer_start` until the transfer has ended, the buffer must not be changed.

 As for `slabfs_transfer_read_batch`.
 */
int32_t slabfs_transfer_write_batch(struct slabfs_object object,
                                    const struct slabfs_batch *batch,
                                    size_t n,
                                    uint32_t unit,
                                    const void *buffer,
                                    size_t len,
                                    struct slabfs_transfer *transfer);

/*
 Reads a box into `len` bytes at `buffer`. `strides` gives the stride of each axis in bytes; NULL means packed
 in row-major order, and then `len` is the size of the box.

 `offset`, `shape` and `strides` point to `rank` numbers; `buffer` points to `len` bytes that no other thread
 uses.
 */
int32_t slabfs_read_box(struct slabfs_object object,
                        size_t rank,
                        const uint64_t *offset,
                        const uint64_t *shape,
                        void *buffer,
                        size_t len,
                        const uint64_t *strides);

/*
 Writes a box from `len` bytes at `buffer`; see `slabfs_read_box`. Along an unlimited slowest axis the object
 grows to contain the box.

 `offset`, `shape` and `strides` point to `rank` numbers; `buffer` points to `len` bytes.
 */
int32_t slabfs_write_box(struct slabfs_object object,
                         size_t rank,
                         const uint64_t *offset,
                         const uint64_t *shape,
                         const void *buffer,
                         size_t len,
                         const uint64_t *strides);

/*
 Reads a hyperslab; see `slabfs_read_box`.

 `hyperslab` points to valid data; otherwise as for `slabfs_read_box`.
 */
int32_t slabfs_read_slab(struct slabfs_object object,
                         const struct slabfs_slab *hyperslab,
                         void *buffer,
                         size_t len,
                         const uint64_t *strides);

/*
 Writes a hyperslab; see `slabfs_write_box`. The object grows likewise.

 As for `slabfs_read_slab`.
 */
int32_t slabfs_write_slab(struct slabfs_object object,
                          const struct slabfs_slab *hyperslab,
                          const void *buffer,
                          size_t len,
                          const uint64_t *strides);

/*
 Reads a selection given as text, like `[0:10,::2]` after the `@` of a path; packed.

 The string is NUL-terminated; `buffer` points to `len` bytes that no other thread uses.
 */
int32_t slabfs_read_text(struct slabfs_object object,
                         const char *selection,
                         void *buffer,
                         size_t len);

/*
 Writes a selection given as text; see `slabfs_read_text`.

 The string is NUL-terminated; `buffer` points to `len` bytes.
 */
int32_t slabfs_write_text(struct slabfs_object object,
                          const char *selection,
                          const void *buffer,
                          size_t len);

/*
 Attaches to a running filesystem: at unix:PATH or tcp:HOST:PORT, where its metadata service listens, or at a
 path on a mount of it. `options` may be NULL. Any thread may use the session. After `fork`, a parent's handles
 are invalid in the child, which may connect only after `exec`, or if the parent had not connected before. Data
 that is not flushed is lost when a program exits without `slabfs_close`.

 Strings are NUL-terminated; `session` points to writable memory.
 */
int32_t slabfs_connect(const char *place,
                       const struct slabfs_options *options,
                       struct slabfs_session *session);

/*
 Writes back all dirty data of the session and makes it durable on the servers.
 */
int32_t slabfs_sync(struct slabfs_session session);

/*
 Ends the session: writes back all dirty data and makes it durable on the servers. From then on its objects can
 only be closed. The handle becomes invalid, whatever the call returns.
 */
int32_t slabfs_close(struct slabfs_session session);

/*
 The error message of the last call of this thread, with the remedy; empty if the call succeeded. The string is
 valid until the thread's next call.
 */
const char *slabfs_error(void);

/*
 The index, from 0, of the argument that the last error of this thread refers to, in a call with a list of
 arguments; otherwise -1.
 */
int64_t slabfs_error_index(void);

/*
 The position of the batch element that the last error of this thread refers to: its index in the top vector,
 then in the vector below, and so on. An error refers to one element, or to two that conflict: `which` is 0 or
 1. Returns the number of indices, 0 if there is no such element, and writes at most `room` of them to `path`.

 `path` points to `room` numbers, or is NULL with `room` 0.
 */
size_t slabfs_error_element(size_t which,
                            uint32_t *path,
                            size_t room);

/*
 The name of a code, like `SLABFS_ENOTFOUND`; `unknown` for other numbers.
 */
const char *slabfs_error_name(int32_t code);

/*
 The version of this library, like `0.1.0`.
 */
const char *slabfs_version(void);

/*
 Returns the hits of a query that this user may list.

 `search` points to valid data; `entries` points to writable memory.
 */
int32_t slabfs_find(struct slabfs_session session,
                    const struct slabfs_query *search,
                    struct slabfs_entries *entries);

/*
 Counts the hits of a query.

 `search` points to valid data; `count` points to writable memory.
 */
int32_t slabfs_count(struct slabfs_session session,
                     const struct slabfs_query *search,
                     uint64_t *count);

/*
 Creates a container; its parent must exist.

 Strings are NUL-terminated.
 */
int32_t slabfs_container_create(struct slabfs_session session, const char *container);

/*
 Removes an object's name, or an empty container. An object stays usable while it is open.

 Strings are NUL-terminated.
 */
int32_t slabfs_remove(struct slabfs_session session, const char *name);

/*
 Renames an object or a container; `how` is SLABFS_REPLACE, SLABFS_NOREPLACE or SLABFS_EXCHANGE.

 Strings are NUL-terminated.
 */
int32_t slabfs_rename(struct slabfs_session session,
                      const char *from,
                      const char *to,
                      uint32_t how);

/*
 Returns the attributes of a path; an empty path is the root.

 Strings are NUL-terminated; `stat` points to writable memory.
 */
int32_t slabfs_stat_path(struct slabfs_session session, const char *name, struct slabfs_stat *stat);

/*
 Lists a container; an empty path is the root.

 Strings are NUL-terminated; `entries` points to writable memory.
 */
int32_t slabfs_list(struct slabfs_session session,
                    const char *container,
                    struct slabfs_entries *entries);

/*
 The number of entries of a list.

 `count` points to writable memory.
 */
int32_t slabfs_entries_count(struct slabfs_entries entries, size_t *count);

/*
 The entry `index`, from 0, of a list.

 `entry` points to writable memory.
 */
int32_t slabfs_entries_get(struct slabfs_entries entries, size_t index, struct slabfs_entry *entry);

/*
 Frees a list, and the data that its entries point to.
 */
int32_t slabfs_entries_free(struct slabfs_entries entries);

/*
 Creates an object with this spec, under a name that must not exist, and opens it for reading and writing.

 Strings are NUL-terminated; `object` points to writable memory.
 */
int32_t slabfs_create(struct slabfs_session session,
                      const char *name,
                      struct slabfs_spec spec,
                      struct slabfs_object *object);

/*
 Creates `count` objects, in atomic requests of 1024 each. `specs` has one spec for each.

 `paths` and `specs` point to `count` elements each; strings are NUL-terminated.
 */
int32_t slabfs_create_many(struct slabfs_session session,
                           size_t count,
                           const char *const *paths,
                           const struct slabfs_spec *specs);

/*
 Opens an object; `access` is SLABFS_READ, SLABFS_WRITE or SLABFS_READWRITE.

 Strings are NUL-terminated; `object` points to writable memory.
 */
int32_t slabfs_open(struct slabfs_session session,
                    const char *name,
                    uint32_t access,
                    struct slabfs_object *object);

/*
 Closes an object: waits for its started transfers and flushes its dirty data to the servers. The handle
 becomes invalid, whatever the call returns.
 */
int32_t slabfs_object_close(struct slabfs_object object);

/*
 Returns the current attributes of an object.

 `stat` points to writable memory.
 */
int32_t slabfs_object_stat(struct slabfs_object object, struct slabfs_stat *stat);

/*
 Changes the dims of an object that is open for writing: each axis grows up to its max dim, or shrinks;
 elements outside are discarded.

 `dims` points to `rank` numbers.
 */
int32_t slabfs_set_dims(struct slabfs_object object,
                        size_t rank,
                        const uint64_t *dims);

/*
 Flushes data written through this handle to the servers.
 */
int32_t slabfs_flush(struct slabfs_object object);

/*
 Writes back all dirty data of an object and makes it durable on the servers.
 */
int32_t slabfs_object_sync(struct slabfs_object object);

/*
 Creates an empty spec: a byte object, unless the container has other defaults.

 `spec` points to writable memory.
 */
int32_t slabfs_spec_new(struct slabfs_spec *spec);

/*
 Frees a spec.
 */
int32_t slabfs_spec_free(struct slabfs_spec spec);

/*
 Sets a property by name and text, with the syntax of `slabfs create`: dims (16,16), dtype (f4), max_dims
 (unlimited,16), fill (nan), layout (aligned, canonical, grid:64,64), codec (shuffle+zstd:3), placement
 (dynamic, region, object, local, server:3).

 Strings are NUL-terminated.
 */
int32_t slabfs_spec_set(struct slabfs_spec spec,
                        const char *property,
                        const char *value);

/*
 Sets the dims, slowest axis first.

 `dims` points to `rank` numbers.
 */
int32_t slabfs_spec_dims(struct slabfs_spec spec, size_t rank, const uint64_t *dims);

/*
 Sets a tag; its `path` is ignored.

 The pointers in the tag are valid.
 */
int32_t slabfs_spec_tag(struct slabfs_spec spec, const struct slabfs_tag *tag);

/*
 Sets the permission bits; the default is 0666 less the umask.
 */
int32_t slabfs_spec_mode(struct slabfs_spec spec, uint32_t mode);

/*
 Takes all properties that are not set yet from another object, except its data and its tags. Properties that
 conflict with those already set are skipped.

 Strings are NUL-terminated.
 */
int32_t slabfs_spec_like(struct slabfs_spec spec,
                         struct slabfs_session session,
                         const char *other);

/*
 Sets and removes tags of objects and containers in one atomic request. `slabfs_error_index` gives the index of
 the tag that caused an error.

 `tags` points to `count` tags, whose pointers are valid.
 */
int32_t slabfs_tag_put(struct slabfs_session session,
                       size_t count,
                       const struct slabfs_tag *tags);

/*
 Returns all tags of an object or a container, sorted by key.

 Strings are NUL-terminated; `tags` points to writable memory.
 */
int32_t slabfs_tags_of(struct slabfs_session session, const char *name, struct slabfs_tags *tags);

/*
 The number of tags of a list.

 `count` points to writable memory.
 */
int32_t slabfs_tags_count(struct slabfs_tags tags, size_t *count);

/*
 The tag `index`, from 0, of a list. Its pointers are valid until the list is freed; a NUL follows the bytes of
 its value.

 `tag` points to writable memory.
 */
int32_t slabfs_tags_get(struct slabfs_tags tags,
                        size_t index,
                        struct slabfs_tag *tag);

/*
 Frees a list, and the data that its tags point to.
 */
int32_t slabfs_tags_free(struct slabfs_tags tags);

/*
 Creates a transfer that reads a hyperslab of an object (NULL: all of it) into `len` bytes at `buffer`, with
 the layout `memory` (NULL: packed). From `slabfs_transfer_start` until the transfer has ended, the library
 owns the buffer: no other code may use it.

 `buffer` points to `len` bytes until the transfer has ended or was freed; the other pointers are valid during
 the call.
 */
int32_t slabfs_transfer_read(struct slabfs_object object,
                             const struct slabfs_slab *hyperslab,
                             void *buffer,
                             size_t len,
                             const struct slabfs_memory *memory,
                             struct slabfs_transfer *transfer);

/*
 Creates a transfer that writes `len` bytes at `buffer`, with the layout `memory` (NULL: packed), to a
 hyperslab of an object (NULL: all of it). From `slabfs_transfer_start` until the transfer has ended, the
 buffer must not be changed.

 As for `slabfs_transfer_read`.
 */
int32_t slabfs_transfer_write(struct slabfs_object object,
                              const struct slabfs_slab *hyperslab,
                              const void *buffer,
                              size_t len,
                              const struct slabfs_memory *memory,
                              struct slabfs_transfer *transfer);

/*
 Starts a transfer; a repeated start has no effect. Returns at once, unless the limit of data in flight is
 reached.
 */
int32_t slabfs_transfer_start(struct slabfs_transfer transfer);

/*
 Starts `count` transfers of one session together: their requests to a data server travel in one message (in
 several above 64 MiB), writes first. Each transfer ends with its own result.

 `transfers` points to `count` transfers.
 */
int32_t slabfs_transfer_start_all(size_t count,
                                  const struct slabfs_transfer *transfers);

/*
 Sets `ended` to 1 if a transfer has ended, so that `slabfs_transfer_wait` would not block; otherwise to 0.

 `ended` points to writable memory.
 */
int32_t slabfs_transfer_test(struct slabfs_transfer transfer,
                             int32_t *ended);

/*
 Waits for the end of a transfer, starting it if necessary, and returns its result. Then the caller owns the
 buffer again. Any number of threads may wait.
 */
int32_t slabfs_transfer_wait(struct slabfs_transfer transfer);

/*
 Waits for the end of `count` transfers, first starting together those that were not started. Returns the first
 error; `slabfs_error_index` gives the index of its transfer. All transfers have ended in any case.

 `transfers` points to `count` transfers.
 */
int32_t slabfs_transfer_wait_all(size_t count,
                                 const struct slabfs_transfer *transfers);

/*
 Cancels a transfer. It ends with SLABFS_ECANCELLED if no part of it was done yet, otherwise with its result,
 which `slabfs_transfer_wait` returns.
 */
int32_t slabfs_transfer_cancel(struct slabfs_transfer transfer);

/*
 Frees a transfer. A transfer that has not ended is cancelled first, and the call waits for its end; afterwards
 the caller owns the buffer again.
 */
int32_t slabfs_transfer_free(struct slabfs_transfer transfer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SLABFS_H */
