// A program in C++ that includes all headers. Argument: an address to connect to.

#include <cstdio>
#include <gfs_compat.h>
#include <slabfs.h>
#include <slabfs_batch.h>
#include <slabfs_ioctl.h>
#include <vector>

int main(int argc, char **argv)
{
    slabfs_session session{};
    slabfs_spec spec{};
    slabfs_object object{};
    slabfs_transfer transfer{};
    const uint64_t dims[] = {3, 4};
    std::vector<double> values(12, 1.5), back(12), columns(6), same(6);
    const size_t bytes = values.size() * sizeof(double);

    // The first two of each row.
    slabfs_batch pairs{};
    pairs.quant = 3;
    pairs.f_stride = 4;
    pairs.m_stride = 2;
    pairs.sub.size = 2;
    gfs_batch galley{};
    galley.quant = 3;
    galley.f_stride = 4 * sizeof(double);
    galley.m_stride = 2 * sizeof(double);
    galley.sub.size = 2 * sizeof(double);
    int fork_id = 0;
    char *buf = reinterpret_cast<char *>(same.data());

    if (argc != 2 || slabfs_connect(argv[1], nullptr, &session) != SLABFS_OK
        || slabfs_spec_new(&spec) != SLABFS_OK || slabfs_spec_dims(spec, 2, dims) != SLABFS_OK
        || slabfs_spec_set(spec, "dtype", "f8") != SLABFS_OK
        || slabfs_create(session, "plusplus", spec, &object) != SLABFS_OK
        || slabfs_transfer_write(object, nullptr, values.data(), bytes, nullptr, &transfer) != SLABFS_OK
        || slabfs_transfer_wait(transfer) != SLABFS_OK || slabfs_transfer_free(transfer) != SLABFS_OK
        || slabfs_read_text(object, "[...]", back.data(), bytes) != SLABFS_OK
        || slabfs_read_batch(object, &pairs, 1, SLABFS_ELEMENTS, columns.data(), bytes / 2) != SLABFS_OK
        || slabfs_gfs_fork(object, &fork_id) != SLABFS_OK
        || gfs_read_batched(fork_id, buf, galley, 1) != SLABFS_OK
        || gfs_read_batched(fork_id, buf, &galley, 1) != SLABFS_OK
        || slabfs_gfs_close(fork_id) != SLABFS_OK
        || slabfs_object_close(object) != SLABFS_OK || slabfs_spec_free(spec) != SLABFS_OK
        || slabfs_close(session) != SLABFS_OK || values != back || columns != same || columns[5] != 1.5) {
        std::fprintf(stderr, "%s\n", slabfs_error());
        return 1;
    }
    // Descriptors without a view, or of other filesystems, get an error.
    if (slabfs_clear_view(-1) == 0) {
        std::fprintf(stderr, "a view of nothing\n");
        return 1;
    }
    std::printf("done\n");
    return 0;
}
