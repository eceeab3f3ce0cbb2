/* slabfs.h: the C library of slabfs, a filesystem of N-dimensional arrays.
 *
 * Every call returns SLABFS_OK, which is 0, or a negative code; slabfs_error() says in words what was wrong with the
 * last call of the calling thread, and what to do. Handles are numbers that may be used from any thread. Strings end
 * with a zero; paths count from the root of the filesystem. Elements lie in memory as bytes, in the byte order of the
 * object's dtype. See slabfs(3).
 *
 * This file is made of the library's sources: change those. */

#ifndef SLABFS_H
#define SLABFS_H

#include <stddef.h>
#include <stdint.h>
#include "slabfs_batch.h"

/*
 Offsets, strides and sizes of a batch count bytes of the object in canonical order.
 */
#define SLABFS_BYTES 0

/*
 They count elements of the object.
 */
#define SLABFS_ELEMENTS 1

/*
 Each read returns what the last write of anybody put there.
 */
#define SLABFS_STRICT 0

/*
 Others see what was written after a sync or a close, from their next opening on.
 */
#define SLABFS_COMMIT 1

/*
 It was done.
 */
#define SLABFS_OK 0

/*
 There is nothing of that name.
 */
#define SLABFS_ENOTFOUND -1

/*
 The name exists already.
 */
#define SLABFS_EEXISTS -2

/*
 A container was needed.
 */
#define SLABFS_ENOTCONTAINER -3

/*
 A container was not allowed.
 */
#define SLABFS_EISCONTAINER -4

/*
 The container has something in it.
 */
#define SLABFS_ENOTEMPTY -5

/*
 The user may not.
 */
#define SLABFS_EDENIED -6

/*
 The session, or the object as it was opened, does not allow changes.
 */
#define SLABFS_EREADONLY -7

/*
 The request makes no sense; the message says what would.
 */
#define SLABFS_EINVALID -8

/*
 A name, a size or a number beyond its limit.
 */
#define SLABFS_ETOOLARGE -9

/*
 A disk is full, or an object has as many tags as it may have.
 */
#define SLABFS_ENOSPACE -10

/*
 This filesystem does not do that.
 */
#define SLABFS_ENOTSUPPORTED -11

/*
 Somebody else is at it; later it may work.
 */
#define SLABFS_EBUSY -12

/*
 The object is gone or another one than when it was opened.
 */
#define SLABFS_ESTALE -13

/*
 A server could not be reached in time; later it may work.
 */
#define SLABFS_EUNAVAILABLE -14

/*
 The session is lost: what it had not flushed may be lost.
 */
#define SLABFS_ELOST -15

/*
 Stored data is not what was written.
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
 No such handle, or not any more.
 */
#define SLABFS_EHANDLE -19

/*
 The library failed within; a fault of it, which its message names.
 */
#define SLABFS_EINTERNAL -20

/*
 It was cancelled before anything of it was done.
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
 What has the new name is replaced.
 */
#define SLABFS_REPLACE 0

/*
 The new name must be free.
 */
#define SLABFS_NOREPLACE 1

/*
 The two change their names.
 */
#define SLABFS_EXCHANGE 2

/*
 An axis without a limit, in `max_dims`.
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
 For both.
 */
#define SLABFS_READWRITE 3

/*
 Text or bytes as an extended attribute has them: nobody said what they are.
 */
#define SLABFS_TAG_AUTO 0

/*
 A whole number: `integer`.
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
 To be removed; removing what is not there is no error.
 */
#define SLABFS_TAG_REMOVE 6

/*
 An open object, from `slabfs_open` or `slabfs_create` to `slabfs_object_close`.
 */
typedef struct slabfs_object {
  /*
   Its number; 0 is never one.
   */
  uint64_t id;
} slabfs_object;

/*
 A transfer, from `slabfs_transfer_read` and its like to `slabfs_transfer_free`.
 */
typedef struct slabfs_transfer {
  /*
   Its number; 0 is never one.
   */
  uint64_t id;
} slabfs_transfer;

/*
 A strided hyperslab, as HDF5 has it: on each axis `count` blocks of `block` elements, `stride` elements from the
 start of one to the next, slowest axis first.
 */
typedef struct slabfs_slab {
  /*
   Axes; those of the object.
   */
  size_t rank;
  /*
   The first element.
   */
  const uint64_t *start;
  /*
   From block to block; NULL where blocks touch.
   */
  const uint64_t *stride;
  /*
   How many blocks.
   */
  const uint64_t *count;
  /*
   Elements a block; NULL: one.
   */
  const uint64_t *block;
} slabfs_slab;

/*
 How to connect; all zero is what is usual.
 */
typedef struct slabfs_options {
  /*
   The file with the key that all processes of the filesystem share; tcp: needs one. NULL: none.
   */
  const char *key_file;
  /*
   The name of this machine, by which placement `local` finds its data servers. NULL: the host's.
   */
  const char *host;
  /*
   How long a call waits for a server that is away, in milliseconds, 100 at least. 0: 30 seconds.
   */
  uint64_t io_timeout_ms;
  /*
   Bytes of written data that may wait in memory, 1048576 at least. 0: 256 MiB.
   */
  uint64_t dirty_limit;
  /*
   Bytes of read data to keep in memory. 0: 64 MiB.
   */
  uint64_t cache;
  /*
   SLABFS_STRICT or SLABFS_COMMIT.
   */
  uint32_t consistency;
  /*
   Not 0: nothing may be changed.
   */
  uint32_t read_only;
  /*
   Zero.
   */
  uint64_t reserved[8];
} slabfs_options;

/*
 A session with a filesystem, from `slabfs_connect` to `slabfs_close`.
 */
typedef struct slabfs_session {
  /*
   Its number; 0 is never one.
   */
  uint64_t id;
} slabfs_session;

/*
 A search; all but `text` may be zero.
 */
typedef struct slabfs_query {
  /*
   In the language of `slabfs find`: step >= 10 and project = climate.
   */
  const char *text;
  /*
   Only below this container. NULL: everywhere.
   */
  const char *below;
  /*
   The key of the order, least first: path, name, size, mtime, `dims[0]` or a tag's. NULL: no order.
   */
  const char *sort;
  /*
   At most so many hits. 0: all.
   */
  uint64_t limit;
  /*
   Only share `part`, from 0, of `parts`, for programs that search together. Both 0: all.
   */
  uint32_t part;
  /*
   How many shares there are.
   */
  uint32_t parts;
  /*
   Zero.
   */
  uint64_t reserved[4];
} slabfs_query;

/*
 A list of names, from `slabfs_list` or `slabfs_find` to `slabfs_entries_free`.
 */
typedef struct slabfs_entries {
  /*
   Its number; 0 is never one.
   */
  uint64_t id;
} slabfs_entries;

/*
 What something is.
 */
typedef struct slabfs_stat {
  /*
   Its number; never another's.
   */
  uint64_t ino;
  /*
   Bytes.
   */
  uint64_t size;
  /*
   Grows with every change of data or attributes.
   */
  uint64_t version;
  /*
   Last change of data, in seconds since 1970.
   */
  int64_t mtime;
  /*
   And nanoseconds.
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
   Of an object: how many axes.
   */
  uint32_t rank;
  /*
   Elements an axis, slowest first.
   */
  uint64_t dims[32];
  /*
   How far each axis may grow, or SLABFS_UNLIMITED.
   */
  uint64_t max_dims[32];
  /*
   Bytes of an element.
   */
  uint64_t element_bytes;
  /*
   Element type in NumPy's letters, with a zero at its end.
   */
  char dtype[32];
  /*
   Not 0: somebody made it an array; else it is plain bytes.
   */
  uint32_t declared;
  /*
   Zero.
   */
  uint32_t reserved[7];
} slabfs_stat;

/*
 An entry of a list of names. What it points to is there until the list is given back.
 */
typedef struct slabfs_entry {
  /*
   Of a container's list the name, of a search the path from the root; with a zero at its end.
   */
  const char *path;
  /*
   Its bytes without that.
   */
  size_t path_len;
  /*
   SLABFS_CONTAINER, SLABFS_OBJECT or SLABFS_OTHER.
   */
  uint32_t kind;
  /*
   Zero.
   */
  uint32_t reserved;
  /*
   Bytes, of what a search found; else 0.
   */
  uint64_t size;
  /*
   Last change of data in seconds since 1970, of what a search found; else 0.
   */
  int64_t mtime;
} slabfs_entry;

/*
 What an object is to be, from `slabfs_spec_new` to `slabfs_spec_free`.
 */
typedef struct slabfs_spec {
  /*
   Its number; 0 is never one.
   */
  uint64_t id;
} slabfs_spec;

/*
 A tag of something: one that is set or removed, or one that was asked for.
 */
typedef struct slabfs_tag {
  /*
   Whose, from the root; NULL in an answer, where it is known.
   */
  const char *path;
  /*
   Its key.
   */
  const char *key;
  /*
   What it is: SLABFS_TAG_INT and so on.
   */
  uint32_t kind;
  /*
   Zero.
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
   The bytes of the other kinds; in an answer of numbers, too, as text.
   */
  const void *data;
  /*
   How many.
   */
  size_t len;
} slabfs_tag;

/*
 A list of tags, from `slabfs_tags_of` to `slabfs_tags_free`.
 */
typedef struct slabfs_tags {
  /*
   Its number; 0 is never one.
   */
  uint64_t id;
} slabfs_tags;

/*
 How the elements of a transfer lie in its buffer; all zero is packed, of the object's dtype. They pair up with those
 of the object's selection in row-major order of both, so that only their numbers have to agree.
 */
typedef struct slabfs_memory {
  /*
   Where the first element lies, in bytes from the start of the buffer.
   */
  uint64_t offset;
  /*
   Axes of `shape` and `strides`.
   */
  size_t rank;
  /*
   Elements an axis, slowest first. NULL: as the object's selection.
   */
  const uint64_t *shape;
  /*
   Bytes from an element to the next along each axis. NULL: packed, and `rank` and `shape` mean nothing.
   */
  const uint64_t *strides;
  /*
   The type of the elements in memory, in NumPy's letters. NULL: the object's.
   */
  const char *dtype;
  /*
   Zero.
   */
  uint64_t reserved[4];
} slabfs_memory;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Reads the pieces of `n` elements of `batch` into `len` bytes at `buffer`: one request to each data server, however
 many pieces. `unit` is SLABFS_BYTES or SLABFS_ELEMENTS. Pieces may not overlap in the buffer.

 Every vector of the batch points to as many elements as it says, `buffer` to `len` bytes that nobody else uses.
 */
int32_t slabfs_read_batch(struct slabfs_object object,
                          const struct slabfs_batch *batch,
                          size_t n,
                          uint32_t unit,
                          void *buffer,
                          size_t len);

/*
 Writes the pieces of `n` elements of `batch` from `len` bytes at `buffer`, as `slabfs_read_batch` reads them. Of pieces
 that overlap in the object the later one is there.

 As of `slabfs_read_batch`.
 */
int32_t slabfs_write_batch(struct slabfs_object object,
                           const struct slabfs_batch *batch,
                           size_t n,
                           uint32_t unit,
                           const void *buffer,
                           size_t len);

/*
 Makes a transfer of what `slabfs_read_batch` reads; the batch itself is not needed any more when this returns. From
 `slabfs_transfer_start` until it has ended the buffer is the library's, from its first byte to its last.

 `buffer` points to `len` bytes until the transfer has ended or was freed; the rest as of `slabfs_read_batch`.
 */
int32_t slabfs_transfer_read_batch(struct slabfs_object object,
                                   const struct slabfs_batch *batch,
                                   size_t n,
                                   uint32_t unit,
                                   void *buffer,
                                   size_t len,
                                   struct slabfs_transfer *transfer);

/*
 Makes a transfer of what `slabfs_write_batch` writes; the batch itself is not needed any more when this returns. From
 `slabfs_transfer_start` until it has ended nobody may change the buffer.

 As of `slabfs_transfer_read_batch`.
 */
int32_t slabfs_transfer_write_batch(struct slabfs_object object,
                                    const struct slabfs_batch *batch,
                                    size_t n,
                                    uint32_t unit,
                                    const void *buffer,
                                    size_t len,
                                    struct slabfs_transfer *transfer);

/*
 Reads a box into `len` bytes at `buffer`. `strides` has the bytes from an element to the next along each axis;
 NULL is packed in row-major order, and then `len` is that of the box.

 `offset`, `shape` and `strides` point to `rank` numbers, `buffer` to `len` bytes that nobody else uses.
 */
int32_t slabfs_read_box(struct slabfs_object object,
                        size_t rank,
                        const uint64_t *offset,
                        const uint64_t *shape,
                        void *buffer,
                        size_t len,
                        const uint64_t *strides);

/*
 Writes a box from `len` bytes at `buffer`, as `slabfs_read_box` reads one. Along an unlimited slowest axis the object
 grows as far as the box reaches.

 `offset`, `shape` and `strides` point to `rank` numbers, `buffer` to `len` bytes.
 */
int32_t slabfs_write_box(struct slabfs_object object,
                         size_t rank,
                         const uint64_t *offset,
                         const uint64_t *shape,
                         const void *buffer,
                         size_t len,
                         const uint64_t *strides);

/*
 Reads a hyperslab, as `slabfs_read_box` reads a box.

 What `hyperslab` points to is there; the rest as of `slabfs_read_box`.
 */
int32_t slabfs_read_slab(struct slabfs_object object,
                         const struct slabfs_slab *hyperslab,
                         void *buffer,
                         size_t len,
                         const uint64_t *strides);

/*
 Writes a hyperslab, as `slabfs_write_box` writes a box; the object grows as there.

 As `slabfs_read_slab`.
 */
int32_t slabfs_write_slab(struct slabfs_object object,
                          const struct slabfs_slab *hyperslab,
                          const void *buffer,
                          size_t len,
                          const uint64_t *strides);

/*
 Reads what a text selects, as `[0:10,::2]` behind the `@` of a path; packed.

 The string ends with a zero; `buffer` points to `len` bytes that nobody else uses.
 */
int32_t slabfs_read_text(struct slabfs_object object,
                         const char *selection,
                         void *buffer,
                         size_t len);

/*
 Writes what a text selects, as `slabfs_read_text` reads it.

 The string ends with a zero; `buffer` points to `len` bytes.
 */
int32_t slabfs_write_text(struct slabfs_object object,
                          const char *selection,
                          const void *buffer,
                          size_t len);

/*
 Attaches to a running filesystem: at unix:PATH or tcp:HOST:PORT, where its metadata service listens, or at a path
 on a mount of it. `options` may be NULL. The session is used by any thread; handles of a parent are none in a child of
 `fork`, which connects only after `exec`, or if the parent had not connected yet.
 What is written and not flushed is lost when a program exits without `slabfs_close`.

 Strings end with a zero; `session` is a place for one.
 */
int32_t slabfs_connect(const char *place,
                       const struct slabfs_options *options,
                       struct slabfs_session *session);

/*
 Brings everything the session has written onto the servers' disks.
 */
int32_t slabfs_sync(struct slabfs_session session);

/*
 Ends the session: what was written is brought onto the servers' disks. Its objects can only be closed from then
 on. The handle is none any more, whatever the call returns.
 */
int32_t slabfs_close(struct slabfs_session session);

/*
 What went wrong in the last call of this thread, in words, and what to do; empty where nothing did. It is there
 until the thread's next call.
 */
const char *slabfs_error(void);

/*
 Which of several things that the last call of this thread was for its error is about, from 0; -1 where that does
 not matter.
 */
int64_t slabfs_error_index(void);

/*
 Where in its batch an element is that the error of the last call of this thread is about: its index in the top vector,
 then in the vector below, and so on. An error names one element, or two that do not go together: `which` is 0 or 1.
 Returns how many indices that are, 0 where no element is named, and writes as many of them as there is `room` for.

 `path` points to `room` numbers, or is NULL and `room` 0.
 */
size_t slabfs_error_element(size_t which,
                            uint32_t *path,
                            size_t room);

/*
 The name of a code, as `SLABFS_ENOTFOUND`; of a number that is none, `unknown`.
 */
const char *slabfs_error_name(int32_t code);

/*
 The version of this library, as `0.1.0`.
 */
const char *slabfs_version(void);

/*
 Everything a query finds, of what this user may list.

 What `search` points to is there; `entries` is a place for one.
 */
int32_t slabfs_find(struct slabfs_session session,
                    const struct slabfs_query *search,
                    struct slabfs_entries *entries);

/*
 How many a query finds.

 What `search` points to is there; `count` is a place for one.
 */
int32_t slabfs_count(struct slabfs_session session,
                     const struct slabfs_query *search,
                     uint64_t *count);

/*
 Makes a container, in one that is there.

 Strings end with a zero.
 */
int32_t slabfs_container_create(struct slabfs_session session, const char *container);

/*
 Removes an object's name, or a container that is empty. An object lives on while somebody has it open.

 Strings end with a zero.
 */
int32_t slabfs_remove(struct slabfs_session session,
                      const char *name);

/*
 Renames an object or a container; `how` is SLABFS_REPLACE, SLABFS_NOREPLACE or SLABFS_EXCHANGE.

 Strings end with a zero.
 */
int32_t slabfs_rename(struct slabfs_session session,
                      const char *from,
                      const char *to,
                      uint32_t how);

/*
 Says what has a path; an empty one is the root.

 Strings end with a zero; `stat` is a place for one.
 */
int32_t slabfs_stat_path(struct slabfs_session session, const char *name, struct slabfs_stat *stat);

/*
 Lists a container; an empty path is the root.

 Strings end with a zero; `entries` is a place for one.
 */
int32_t slabfs_list(struct slabfs_session session,
                    const char *container,
                    struct slabfs_entries *entries);

/*
 How many entries a list has.

 `count` is a place for one.
 */
int32_t slabfs_entries_count(struct slabfs_entries entries, size_t *count);

/*
 The entry `index` of a list, from 0.

 `entry` is a place for one.
 */
int32_t slabfs_entries_get(struct slabfs_entries entries, size_t index, struct slabfs_entry *entry);

/*
 Gives a list back, with what its entries point to.
 */
int32_t slabfs_entries_free(struct slabfs_entries entries);

/*
 Makes an object of this spec, whose name must be free, and opens it for reading and writing.

 Strings end with a zero; `object` is a place for one.
 */
int32_t slabfs_create(struct slabfs_session session,
                      const char *name,
                      struct slabfs_spec spec,
                      struct slabfs_object *object);

/*
 Makes `count` objects, in requests of 1024, each of which is done wholly or not at all. `specs` has one for each.

 `paths` and `specs` point to `count` each; strings end with a zero.
 */
int32_t slabfs_create_many(struct slabfs_session session,
                           size_t count,
                           const char *const *paths,
                           const struct slabfs_spec *specs);

/*
 Opens an object; `access` is SLABFS_READ, SLABFS_WRITE or SLABFS_READWRITE.

 Strings end with a zero; `object` is a place for one.
 */
int32_t slabfs_open(struct slabfs_session session,
                    const char *name,
                    uint32_t access,
                    struct slabfs_object *object);

/*
 Closes an object: its transfers that were started end first, and what was written goes to the servers. The handle is none any more, whatever the call returns.
 */
int32_t slabfs_object_close(struct slabfs_object object);

/*
 Says what an object is now.

 `stat` is a place for one.
 */
int32_t slabfs_object_stat(struct slabfs_object object, struct slabfs_stat *stat);

/*
 Gives an object other dims: each axis grows up to its max dim, or shrinks, and what is outside then is gone. The object is open for writing.

 `dims` points to `rank` numbers.
 */
int32_t slabfs_set_dims(struct slabfs_object object,
                        size_t rank,
                        const uint64_t *dims);

/*
 Sends what was written through this handle to the servers.
 */
int32_t slabfs_flush(struct slabfs_object object);

/*
 Brings everything of an object onto the servers' disks.
 */
int32_t slabfs_object_sync(struct slabfs_object object);

/*
 A spec that says nothing yet: a byte object, unless the container's defaults say otherwise.

 `spec` is a place for one.
 */
int32_t slabfs_spec_new(struct slabfs_spec *spec);

/*
 Gives a spec back.
 */
int32_t slabfs_spec_free(struct slabfs_spec spec);

/*
 Says one property by its name and its text, as `slabfs create` takes them: dims (16,16), dtype (f4), max_dims
 (unlimited,16), fill (nan), layout (aligned, canonical, grid:64,64), codec (shuffle+zstd:3), placement (dynamic,
 region, object, local, server:3).

 Strings end with a zero.
 */
int32_t slabfs_spec_set(struct slabfs_spec spec,
                        const char *property,
                        const char *value);

/*
 Says the dims, slowest axis first.

 `dims` points to `rank` numbers.
 */
int32_t slabfs_spec_dims(struct slabfs_spec spec, size_t rank, const uint64_t *dims);

/*
 Says a tag; its `path` does not matter.

 What the tag points to is there.
 */
int32_t slabfs_spec_tag(struct slabfs_spec spec, const struct slabfs_tag *tag);

/*
 Says the permission bits; what the umask leaves of 0666 if nothing is said.
 */
int32_t slabfs_spec_mode(struct slabfs_spec spec, uint32_t mode);

/*
 Says all that is not said yet as another object has it, but for its data and its tags. What does not go with what
 is said is left out.

 Strings end with a zero.
 */
int32_t slabfs_spec_like(struct slabfs_spec spec,
                         struct slabfs_session session,
                         const char *other);

/*
 Sets and removes tags of objects and containers in one request, all of it or nothing. `slabfs_error_index` says
 which one an error is about.

 `tags` points to `count` of them, and what they point to is there.
 */
int32_t slabfs_tag_put(struct slabfs_session session,
                       size_t count,
                       const struct slabfs_tag *tags);

/*
 All tags of an object or a container, by their keys.

 Strings end with a zero; `tags` is a place for one.
 */
int32_t slabfs_tags_of(struct slabfs_session session, const char *name, struct slabfs_tags *tags);

/*
 How many tags a list has.

 `count` is a place for one.
 */
int32_t slabfs_tags_count(struct slabfs_tags tags, size_t *count);

/*
 The tag `index` of a list, from 0. What it points to is there until the list is given back; behind the bytes
 of its value stands a zero.

 `tag` is a place for one.
 */
int32_t slabfs_tags_get(struct slabfs_tags tags,
                        size_t index,
                        struct slabfs_tag *tag);

/*
 Gives a list back, with what its tags point to.
 */
int32_t slabfs_tags_free(struct slabfs_tags tags);

/*
 Makes a transfer of a hyperslab of an object (NULL: all of it) into `len` bytes at `buffer`, which are as `memory`
 describes them (NULL: packed). From `slabfs_transfer_start` until it has ended the buffer is the library's: nobody
 else may use it.

 `buffer` points to `len` bytes until the transfer has ended or was freed; what the others point to is there during the
 call.
 */
int32_t slabfs_transfer_read(struct slabfs_object object,
                             const struct slabfs_slab *hyperslab,
                             void *buffer,
                             size_t len,
                             const struct slabfs_memory *memory,
                             struct slabfs_transfer *transfer);

/*
 Makes a transfer of `len` bytes at `buffer`, which are as `memory` describes them (NULL: packed), to a hyperslab of
 an object (NULL: all of it). From `slabfs_transfer_start` until it has ended nobody may change the buffer.

 As of `slabfs_transfer_read`.
 */
int32_t slabfs_transfer_write(struct slabfs_object object,
                              const struct slabfs_slab *hyperslab,
                              const void *buffer,
                              size_t len,
                              const struct slabfs_memory *memory,
                              struct slabfs_transfer *transfer);

/*
 Starts a transfer; once is enough. Returns at once, unless so much is under way that it has to wait for room.
 */
int32_t slabfs_transfer_start(struct slabfs_transfer transfer);

/*
 Starts `count` transfers of one session as one: all that they need of a data server travels in one message (in several
 above 64 MiB), writes first. Each ends with its own result.

 `transfers` points to `count` of them.
 */
int32_t slabfs_transfer_start_all(size_t count,
                                  const struct slabfs_transfer *transfers);

/*
 Says in `ended` whether a transfer has ended, so that `slabfs_transfer_wait` would not wait.

 `ended` is a place for one.
 */
int32_t slabfs_transfer_test(struct slabfs_transfer transfer, int32_t *ended);

/*
 Waits for the end of a transfer, after starting it if it was not, and returns its result; the buffer is the caller's
 again. Any number of threads may wait.
 */
int32_t slabfs_transfer_wait(struct slabfs_transfer transfer);

/*
 Waits for the end of `count` transfers; those that were not started are, as one. Returns the first result that is an
 error, and `slabfs_error_index` says whose; all have ended in any case.

 `transfers` points to `count` of them.
 */
int32_t slabfs_transfer_wait_all(size_t count,
                                 const struct slabfs_transfer *transfers);

/*
 Ends a transfer without doing anything if it has not begun. One under way ends with SLABFS_ECANCELLED if nothing of
 it was done, else with its result: `slabfs_transfer_wait` tells.
 */
int32_t slabfs_transfer_cancel(struct slabfs_transfer transfer);

/*
 Gives a transfer back. One that has not ended is cancelled, and its end waited for: the buffer is the caller's again
 when this returns.
 */
int32_t slabfs_transfer_free(struct slabfs_transfer transfer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SLABFS_H */
