/* Checks of the C test programs: a failed check prints its place, and ends the program. */

#ifndef CHECK_H
#define CHECK_H

#include <slabfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                         \
    do {                                                                                    \
        if (!(what)) {                                                                      \
            fprintf(stderr, "%s:%d: %s; %s\n", __FILE__, __LINE__, #what, slabfs_error()); \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

/* A call that has to succeed. */
#define OK(call) CHECK((call) == SLABFS_OK)

/* A call that has to fail with this code and a message. */
#define FAILS(code, call) CHECK((call) == (code) && slabfs_error()[0] != 0)

#endif
