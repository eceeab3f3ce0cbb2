/* Threads that share a session and an object: each writes its rows and reads them back, while others open, close and
 * fail concurrently. A thread sees only its own error messages. Argument: an address to connect to. */

#include "check.h"
#include <pthread.h>

enum { THREADS = 8, ROUNDS = 20, WIDTH = 64 };

static struct slabfs_session session;
static struct slabfs_object object;

static void *work(void *number)
{
    const uint64_t me = (uint64_t)(uintptr_t)number;
    unsigned char row[WIDTH], back[WIDTH];
    char none[16];

    snprintf(none, sizeof none, "none%d", (int)me);
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t offset[] = {me, 0}, shape[] = {1, WIDTH};
        struct slabfs_object own;
        memset(row, (int)(me * ROUNDS) + round, sizeof row);
        OK(slabfs_write_box(object, 2, offset, shape, row, sizeof row, NULL));
        FAILS(SLABFS_ENOTFOUND, slabfs_open(session, none, SLABFS_READ, &own));
        CHECK(strstr(slabfs_error(), none));
        OK(slabfs_open(session, "rows", SLABFS_READ, &own));
        OK(slabfs_read_box(own, 2, offset, shape, back, sizeof back, NULL));
        CHECK(!memcmp(row, back, sizeof row));
        OK(slabfs_object_close(own));
    }
    return NULL;
}

/* Reads until another thread closes the handle. */
static void *read_on(void *unused)
{
    unsigned char row[WIDTH];
    int32_t code;

    (void)unused;
    do
        code = slabfs_read_text(object, "[0]", row, sizeof row);
    while (code == SLABFS_OK);
    CHECK(code == SLABFS_EHANDLE);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS], reader;
    struct slabfs_spec spec;
    const uint64_t dims[] = {THREADS, WIDTH};

    CHECK(argc == 2);
    OK(slabfs_connect(argv[1], NULL, &session));
    OK(slabfs_spec_new(&spec));
    OK(slabfs_spec_dims(spec, 2, dims));
    OK(slabfs_spec_set(spec, "dtype", "u1"));
    OK(slabfs_create(session, "rows", spec, &object));
    OK(slabfs_spec_free(spec));
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, work, (void *)i));
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
    CHECK(!pthread_create(&reader, NULL, read_on, NULL));
    OK(slabfs_object_close(object));
    CHECK(!pthread_join(reader, NULL));
    OK(slabfs_close(session));
    printf("done\n");
    return 0;
}
