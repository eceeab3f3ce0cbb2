/* Children of fork: the parent's handles are invalid in them, whatever locks its other threads hold at the fork; the
 * parent is not affected. Argument: an address to connect to. */

#include "check.h"
#include <gfs_compat.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 20, WIDTH = 64, ROW = WIDTH * 4 };

static struct slabfs_session session;
static struct slabfs_object object;
static atomic_int over;

/* Keeps the library's locks in use while the parent forks. */
static void *busy(void *unused)
{
    (void)unused;
    while (!atomic_load(&over)) {
        struct slabfs_spec spec;
        struct slabfs_object other;
        OK(slabfs_spec_new(&spec));
        OK(slabfs_spec_free(spec));
        OK(slabfs_open(session, "rows", SLABFS_READ, &other));
        OK(slabfs_object_close(other));
    }
    return NULL;
}

#define FOREIGN(call)                               \
    do {                                            \
        FAILS(SLABFS_EHANDLE, call);                \
        CHECK(strstr(slabfs_error(), "process"));   \
    } while (0)

static void child(const char *place, struct slabfs_transfer transfer, struct slabfs_spec spec, int fork_id)
{
    const uint64_t dims[] = {2, 2};
    int row[WIDTH];
    struct slabfs_object own;
    struct slabfs_session mine;

    /* Ends the child if a lock is held for ever. */
    alarm(120);
    memset(row, 0xee, sizeof row);
    FOREIGN(slabfs_write_text(object, "[0]", row, ROW));
    FOREIGN(slabfs_read_text(object, "[0]", row, ROW));
    FOREIGN(slabfs_set_dims(object, 2, dims));
    FOREIGN(slabfs_flush(object));
    FOREIGN(slabfs_object_sync(object));
    FOREIGN(slabfs_transfer_start(transfer));
    FOREIGN(slabfs_transfer_wait(transfer));
    FOREIGN(slabfs_transfer_free(transfer));
    FOREIGN(slabfs_spec_free(spec));
    FAILS(SLABFS_EHANDLE, slabfs_gfs_close(fork_id));
    FOREIGN(slabfs_sync(session));
    FOREIGN(slabfs_remove(session, "rows"));
    FOREIGN(slabfs_open(session, "rows", SLABFS_READ, &own));
    FOREIGN(slabfs_object_close(object));
    FOREIGN(slabfs_close(session));
    /* The library's global locks belong to the parent, too. */
    FAILS(SLABFS_ENOTSUPPORTED, slabfs_connect(place, NULL, &mine));
    exit(0);
}

int main(int argc, char **argv)
{
    const uint64_t dims[] = {CHILDREN + 1, WIDTH}, offset[] = {CHILDREN, 0}, shape[] = {1, WIDTH};
    const struct slabfs_slab slab = {.rank = 2, .start = offset, .count = shape};
    int row[WIDTH], last[WIDTH], fork_id;
    struct slabfs_spec spec;
    struct slabfs_transfer transfer;
    pthread_t thread;
    char text[16];

    CHECK(argc == 2);
    OK(slabfs_connect(argv[1], NULL, &session));
    OK(slabfs_spec_new(&spec));
    OK(slabfs_spec_dims(spec, 2, dims));
    OK(slabfs_spec_set(spec, "dtype", "i4"));
    OK(slabfs_spec_set(spec, "layout", "grid:4,64"));
    OK(slabfs_create(session, "rows", spec, &object));
    OK(slabfs_gfs_fork(object, &fork_id));
    for (int i = 0; i < WIDTH; i++)
        last[i] = -2;
    OK(slabfs_transfer_write(object, &slab, last, sizeof last, NULL, &transfer));
    CHECK(!pthread_create(&thread, NULL, busy, NULL));
    for (int number = 0; number < CHILDREN; number++) {
        int status;
        pid_t pid;
        for (int i = 0; i < WIDTH; i++)
            row[i] = number * WIDTH + i;
        snprintf(text, sizeof text, "[%d]", number);
        OK(slabfs_write_text(object, text, row, ROW));
        fflush(stdout);
        CHECK((pid = fork()) >= 0);
        if (pid == 0)
            child(argv[1], transfer, spec, fork_id);
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        if (number % 3 == 0)
            OK(slabfs_flush(object));
    }
    atomic_store(&over, 1);
    CHECK(!pthread_join(thread, NULL));
    OK(slabfs_transfer_wait(transfer));
    OK(slabfs_transfer_free(transfer));
    OK(slabfs_gfs_close(fork_id));
    OK(slabfs_object_close(object));
    OK(slabfs_open(session, "rows", SLABFS_READ, &object));
    for (int number = 0; number < CHILDREN + 1; number++) {
        snprintf(text, sizeof text, "[%d]", number);
        OK(slabfs_read_text(object, text, row, ROW));
        for (int i = 0; i < WIDTH; i++)
            CHECK(row[i] == (number < CHILDREN ? number * WIDTH + i : -2));
    }
    OK(slabfs_object_close(object));
    OK(slabfs_spec_free(spec));
    OK(slabfs_close(session));
    return 0;
}
