// A program in C++ that includes the header. Argument: a place to connect to.

#include <cstdio>
#include <slabfs.h>
#include <vector>

int main(int argc, char **argv)
{
    slabfs_session session{};
    slabfs_spec spec{};
    slabfs_object object{};
    const uint64_t dims[] = {3, 4};
    std::vector<double> values(12, 1.5), back(12);
    const size_t bytes = values.size() * sizeof(double);

    if (argc != 2 || slabfs_connect(argv[1], nullptr, &session) != SLABFS_OK
        || slabfs_spec_new(&spec) != SLABFS_OK || slabfs_spec_dims(spec, 2, dims) != SLABFS_OK
        || slabfs_spec_set(spec, "dtype", "f8") != SLABFS_OK
        || slabfs_create(session, "plusplus", spec, &object) != SLABFS_OK
        || slabfs_write_text(object, "[...]", values.data(), bytes) != SLABFS_OK
        || slabfs_read_text(object, "[...]", back.data(), bytes) != SLABFS_OK
        || slabfs_object_close(object) != SLABFS_OK || slabfs_spec_free(spec) != SLABFS_OK
        || slabfs_close(session) != SLABFS_OK || values != back) {
        std::fprintf(stderr, "%s\n", slabfs_error());
        return 1;
    }
    std::printf("done\n");
    return 0;
}
