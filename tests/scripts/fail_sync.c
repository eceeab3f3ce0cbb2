/* A library to preload: fdatasync of a metadata journal fails with EIO while the file named by SLABFS_FAIL_SYNC exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int fdatasync(int fd)
{
    char link[64], path[4096];
    const char *flag = getenv("SLABFS_FAIL_SYNC");
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    ssize_t length;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    if (flag && access(flag, F_OK) == 0 && strstr(path, "/journal-")) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}
