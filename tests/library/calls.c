/* Every call of the library at least once: its function, and the arguments it refuses.
 * Argument: an address to connect to. */

#include "check.h"

static struct slabfs_session session;

static struct slabfs_spec spec_of(const char *dims, const char *dtype)
{
    struct slabfs_spec spec;
    OK(slabfs_spec_new(&spec));
    OK(slabfs_spec_set(spec, "dims", dims));
    OK(slabfs_spec_set(spec, "dtype", dtype));
    return spec;
}

static void names(void)
{
    struct slabfs_entries entries;
    struct slabfs_entry entry;
    struct slabfs_stat stat;
    size_t count;

    OK(slabfs_container_create(session, "names"));
    FAILS(SLABFS_EEXISTS, slabfs_container_create(session, "names"));
    FAILS(SLABFS_ENOTFOUND, slabfs_container_create(session, "none/names"));
    OK(slabfs_container_create(session, "names/a"));
    OK(slabfs_container_create(session, "/names/b"));
    OK(slabfs_rename(session, "names/a", "names/c", SLABFS_NOREPLACE));
    FAILS(SLABFS_EEXISTS, slabfs_rename(session, "names/b", "names/c", SLABFS_NOREPLACE));
    FAILS(SLABFS_EINVALID, slabfs_rename(session, "names/b", "names/d", 99));
    OK(slabfs_list(session, "names", &entries));
    OK(slabfs_entries_count(entries, &count));
    CHECK(count == 2);
    for (size_t i = 0; i < count; i++) {
        OK(slabfs_entries_get(entries, i, &entry));
        CHECK(entry.kind == SLABFS_CONTAINER && entry.path_len == 1);
        CHECK(!strcmp(entry.path, "b") || !strcmp(entry.path, "c"));
    }
    FAILS(SLABFS_EINVALID, slabfs_entries_get(entries, count, &entry));
    OK(slabfs_entries_free(entries));
    FAILS(SLABFS_EHANDLE, slabfs_entries_free(entries));
    FAILS(SLABFS_ENOTEMPTY, slabfs_remove(session, "names"));
    OK(slabfs_remove(session, "names/b"));
    FAILS(SLABFS_ENOTFOUND, slabfs_remove(session, "names/b"));
    OK(slabfs_stat_path(session, "names/c", &stat));
    CHECK(stat.kind == SLABFS_CONTAINER && stat.rank == 0);
    OK(slabfs_stat_path(session, "", &stat));
    FAILS(SLABFS_ENOTFOUND, slabfs_stat_path(session, "names/none", &stat));
}

static void objects(void)
{
    struct slabfs_spec spec = spec_of("2,8", "f4"), like;
    struct slabfs_object object, other;
    struct slabfs_stat stat;
    const uint64_t grown[] = {5, 8}, wide[] = {5, 9};

    OK(slabfs_spec_set(spec, "max_dims", "unlimited,8"));
    FAILS(SLABFS_EINVALID, slabfs_spec_set(spec, "dims", "x"));
    OK(slabfs_spec_mode(spec, 0640));
    OK(slabfs_create(session, "array", spec, &object));
    FAILS(SLABFS_EEXISTS, slabfs_create(session, "array", spec, &other));
    OK(slabfs_set_dims(object, 2, grown));
    FAILS(SLABFS_EINVALID, slabfs_set_dims(object, 2, wide));
    FAILS(SLABFS_EINVALID, slabfs_set_dims(object, 1, grown));
    OK(slabfs_object_stat(object, &stat));
    CHECK(stat.rank == 2 && stat.dims[0] == 5 && stat.dims[1] == 8 && stat.size == 160);
    CHECK(stat.max_dims[0] == SLABFS_UNLIMITED && stat.max_dims[1] == 8);
    CHECK(!strcmp(stat.dtype, "f4") && stat.element_bytes == 4 && stat.declared);
    CHECK((stat.mode & 0777) == 0640);

    OK(slabfs_spec_new(&like));
    OK(slabfs_spec_like(like, session, "array"));
    OK(slabfs_create(session, "like", like, &other));
    OK(slabfs_object_stat(other, &stat));
    CHECK(stat.dims[0] == 5 && !strcmp(stat.dtype, "f4"));
    OK(slabfs_object_close(other));
    OK(slabfs_object_close(object));
    FAILS(SLABFS_EHANDLE, slabfs_object_close(object));

    const char *paths[] = {"m0", "m1", "array"};
    struct slabfs_spec specs[] = {spec, like, spec};
    FAILS(SLABFS_EEXISTS, slabfs_create_many(session, 3, paths, specs));
    CHECK(slabfs_error_index() == 2);
    FAILS(SLABFS_ENOTFOUND, slabfs_stat_path(session, "m0", &stat));
    OK(slabfs_create_many(session, 2, paths, specs));
    OK(slabfs_stat_path(session, "m1", &stat));
    FAILS(SLABFS_ENOTFOUND, slabfs_open(session, "none", SLABFS_READ, &other));
    FAILS(SLABFS_EINVALID, slabfs_open(session, "m0", 0, &other));
    OK(slabfs_container_create(session, "dir"));
    FAILS(SLABFS_EISCONTAINER, slabfs_open(session, "dir", SLABFS_READ, &other));
    OK(slabfs_spec_free(like));
    OK(slabfs_spec_free(spec));
}

static void bytes(void)
{
    struct slabfs_spec spec = spec_of("4,6", "i4");
    struct slabfs_object object, reader;
    const uint64_t offset[] = {1, 0}, shape[] = {2, 3};
    int32_t row[6], block[2][3] = {{1, 2, 3}, {4, 5, 6}}, back[2][3], columns[3][2];

    OK(slabfs_spec_set(spec, "fill", "9"));
    OK(slabfs_create(session, "bytes", spec, &object));
    OK(slabfs_write_box(object, 2, offset, shape, block, sizeof block, NULL));
    OK(slabfs_read_box(object, 2, offset, shape, back, sizeof back, NULL));
    CHECK(!memcmp(block, back, sizeof block));
    /* The same with the first axis fastest, as in Fortran. */
    const uint64_t fortran[] = {4, 8};
    OK(slabfs_read_box(object, 2, offset, shape, columns, sizeof columns, fortran));
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            CHECK(columns[j][i] == block[i][j]);
    OK(slabfs_write_box(object, 2, offset, shape, columns, sizeof columns, fortran));
    OK(slabfs_read_text(object, "[1]", row, sizeof row));
    CHECK(row[0] == 1 && row[2] == 3 && row[3] == 9);

    /* Every second column, in pairs of rows: start, stride, count, block. */
    const uint64_t start[] = {0, 1}, stride[] = {2, 2}, count[] = {2, 3}, size[] = {1, 1};
    struct slabfs_slab slab = {2, start, stride, count, size};
    int32_t six[6] = {10, 11, 12, 13, 14, 15}, again[6];
    OK(slabfs_write_slab(object, &slab, six, sizeof six, NULL));
    slab.block = NULL;
    OK(slabfs_read_slab(object, &slab, again, sizeof again, NULL));
    CHECK(!memcmp(six, again, sizeof six));
    OK(slabfs_read_text(object, "[2]", row, sizeof row));
    CHECK(row[0] == 4 && row[1] == 13 && row[2] == 6 && row[3] == 14 && row[5] == 15);
    int32_t two[2] = {7, 8};
    OK(slabfs_write_text(object, "[3,:2]", two, sizeof two));

    FAILS(SLABFS_EINVALID, slabfs_read_text(object, "[4]", row, sizeof row));
    FAILS(SLABFS_EINVALID, slabfs_read_text(object, "0:2", row, sizeof row));
    FAILS(SLABFS_EINVALID, slabfs_read_box(object, 2, offset, shape, back, 7, NULL));
    FAILS(SLABFS_EINVALID, slabfs_read_box(object, 1, offset, shape, back, sizeof back, NULL));
    FAILS(SLABFS_EINVALID, slabfs_read_box(object, 2, offset, shape, NULL, sizeof back, NULL));
    FAILS(SLABFS_ETOOLARGE, slabfs_read_box(object, 33, offset, shape, back, sizeof back, NULL));
    const uint64_t over[] = {4, 4}, far[] = {UINT64_MAX, 1}, all[] = {UINT64_MAX, UINT64_MAX};
    FAILS(SLABFS_EINVALID, slabfs_read_box(object, 2, offset, shape, back, sizeof back, over));
    FAILS(SLABFS_EINVALID, slabfs_read_box(object, 2, offset, shape, back, sizeof back, all));
    FAILS(SLABFS_EINVALID, slabfs_read_box(object, 2, far, shape, back, sizeof back, NULL));
    FAILS(SLABFS_EINVALID, slabfs_write_box(object, 2, offset, all, back, sizeof back, NULL));
    FAILS(SLABFS_EINVALID, slabfs_read_slab(object, NULL, back, sizeof back, NULL));

    OK(slabfs_flush(object));
    OK(slabfs_object_sync(object));
    OK(slabfs_open(session, "bytes", SLABFS_READ, &reader));
    FAILS(SLABFS_EREADONLY, slabfs_write_text(reader, "[0,0]", two, 4));
    OK(slabfs_read_text(reader, "[3,0]", two, 4));
    CHECK(two[0] == 7);
    OK(slabfs_object_close(reader));
    OK(slabfs_object_close(object));
    OK(slabfs_spec_free(spec));
}

/* Boxes and hyperslabs beyond the end extend an object whose slowest axis is unlimited. */
static void growth(void)
{
    struct slabfs_spec spec = spec_of("0,4", "i4");
    struct slabfs_object object, reader;
    struct slabfs_stat stat;
    const uint64_t first[] = {2, 1}, shape[] = {1, 2}, next[] = {4, 0}, rows[] = {2, 4}, wide[] = {0, 3};
    const uint64_t far[] = {UINT64_MAX / 2, 0};
    const struct slabfs_slab slab = {.rank = 2, .start = next, .count = rows};
    const int32_t two[] = {1, 2}, eight[] = {3, 4, 5, 6, 7, 8, 9, 10};
    int32_t back[6][4], line[4];

    OK(slabfs_spec_set(spec, "max_dims", "unlimited,4"));
    OK(slabfs_spec_set(spec, "fill", "-1"));
    for (int grid = 0; grid < 2; grid++) {
        const char *name = grid ? "grows_grid" : "grows";
        if (grid)
            OK(slabfs_spec_set(spec, "layout", "grid:2,3"));
        OK(slabfs_create(session, name, spec, &object));
        OK(slabfs_write_box(object, 2, first, shape, two, sizeof two, NULL));
        OK(slabfs_read_text(object, "[2]", line, sizeof line));
        CHECK(line[0] == -1 && line[1] == 1 && line[2] == 2 && line[3] == -1);
        OK(slabfs_write_slab(object, &slab, eight, sizeof eight, NULL));
        OK(slabfs_object_stat(object, &stat));
        CHECK(stat.dims[0] == 6 && stat.dims[1] == 4);
        FAILS(SLABFS_EINVALID, slabfs_write_box(object, 2, wide, shape, two, sizeof two, NULL));
        CHECK(strstr(slabfs_error(), "6,4") && !strstr(slabfs_error(), "limit 4"));
        FAILS(SLABFS_ETOOLARGE, slabfs_write_box(object, 2, far, shape, two, sizeof two, NULL));
        OK(slabfs_object_close(object));
        OK(slabfs_open(session, name, SLABFS_READ, &reader));
        OK(slabfs_read_text(reader, "[:,:]", back, sizeof back));
        for (int row = 0; row < 6; row++)
            for (int column = 0; column < 4; column++) {
                int32_t is = -1;
                if (row == 2 && (column == 1 || column == 2))
                    is = two[column - 1];
                if (row >= 4)
                    is = eight[(row - 4) * 4 + column];
                CHECK(back[row][column] == is);
            }
        FAILS(SLABFS_EREADONLY, slabfs_set_dims(reader, 2, rows));
        OK(slabfs_object_close(reader));
    }
    OK(slabfs_spec_free(spec));
}

/* Every change through a read-only session fails with a clear message. */
static void readonly(void)
{
    struct slabfs_object object;
    struct slabfs_spec spec = spec_of("2", "f4");
    struct slabfs_tag tag = {.path = "bytes", .key = "k", .kind = SLABFS_TAG_INT, .integer = 1};
    const uint64_t dims[] = {2, 4};

    FAILS(SLABFS_EREADONLY, slabfs_open(session, "bytes", SLABFS_WRITE, &object));
    FAILS(SLABFS_EREADONLY, slabfs_create(session, "new", spec, &object));
    FAILS(SLABFS_EREADONLY, slabfs_container_create(session, "new"));
    FAILS(SLABFS_EREADONLY, slabfs_remove(session, "bytes"));
    FAILS(SLABFS_EREADONLY, slabfs_rename(session, "bytes", "new", SLABFS_NOREPLACE));
    FAILS(SLABFS_EREADONLY, slabfs_tag_put(session, 1, &tag));
    OK(slabfs_open(session, "bytes", SLABFS_READ, &object));
    FAILS(SLABFS_EREADONLY, slabfs_set_dims(object, 2, dims));
    CHECK(strstr(slabfs_error(), "session is read-only") && !strstr(slabfs_error(), "--read-only"));
    OK(slabfs_object_close(object));
    OK(slabfs_spec_free(spec));
}

static struct slabfs_tag text_tag(const char *path, const char *key, const char *text)
{
    struct slabfs_tag tag = {0};
    tag.path = path;
    tag.key = key;
    tag.kind = SLABFS_TAG_TEXT;
    tag.data = text;
    tag.len = strlen(text);
    return tag;
}

static void tags(void)
{
    struct slabfs_tags list;
    struct slabfs_tag tag;
    struct slabfs_entries entries;
    struct slabfs_entry entry;
    size_t count;
    uint64_t found;

    OK(slabfs_container_create(session, "tags"));
    struct slabfs_spec spec = spec_of("4", "u1");
    struct slabfs_tag step = {.key = "step", .kind = SLABFS_TAG_INT, .integer = 3};
    OK(slabfs_spec_tag(spec, &step));
    const char *paths[] = {"tags/x", "tags/y"};
    struct slabfs_spec specs[] = {spec, spec};
    OK(slabfs_create_many(session, 2, paths, specs));
    struct slabfs_tag put[] = {
        {.path = "tags/x", .key = "height", .kind = SLABFS_TAG_FLOAT, .real = 2.5},
        {.path = "tags/x", .key = "step", .kind = SLABFS_TAG_REMOVE},
        text_tag("tags", "project", "climate"),
        {.path = "tags/y", .key = "raw", .kind = SLABFS_TAG_BYTES, .data = "\0\1", .len = 2},
        {.path = "tags/y", .key = "l", .kind = SLABFS_TAG_LIST, .data = "[1,\"a\"]", .len = 7},
    };
    OK(slabfs_tag_put(session, 5, put));
    OK(slabfs_tags_of(session, "tags/x", &list));
    OK(slabfs_tags_count(list, &count));
    CHECK(count == 1);
    OK(slabfs_tags_get(list, 0, &tag));
    CHECK(tag.kind == SLABFS_TAG_FLOAT && tag.real == 2.5 && !strcmp(tag.key, "height"));
    FAILS(SLABFS_EINVALID, slabfs_tags_get(list, 1, &tag));
    OK(slabfs_tags_free(list));
    OK(slabfs_tags_of(session, "tags/y", &list));
    OK(slabfs_tags_count(list, &count));
    CHECK(count == 3);
    OK(slabfs_tags_get(list, 1, &tag));
    CHECK(tag.kind == SLABFS_TAG_BYTES && tag.len == 2 && !memcmp(tag.data, "\0\1", 2));
    OK(slabfs_tags_free(list));

    put[3].path = "tags/none";
    FAILS(SLABFS_ENOTFOUND, slabfs_tag_put(session, 5, put));
    CHECK(slabfs_error_index() == 3);
    put[0].kind = 99;
    FAILS(SLABFS_EINVALID, slabfs_tag_put(session, 1, put));
    put[0].kind = SLABFS_TAG_TEXT;
    FAILS(SLABFS_EINVALID, (put[0].len = 4, slabfs_tag_put(session, 1, put)));
    FAILS(SLABFS_ETOOLARGE, slabfs_tag_put(session, SIZE_MAX, put));

    struct slabfs_query query = {.text = "has height or step = 3", .below = "tags", .sort = "name"};
    OK(slabfs_find(session, &query, &entries));
    OK(slabfs_entries_count(entries, &count));
    CHECK(count == 2);
    OK(slabfs_entries_get(entries, 1, &entry));
    CHECK(!strcmp(entry.path, "tags/y") && entry.kind == SLABFS_OBJECT && entry.size == 4);
    OK(slabfs_entries_free(entries));
    uint64_t sum = 0;
    for (query.parts = 3, query.part = 0; query.part < 3; query.part++) {
        OK(slabfs_count(session, &query, &found));
        sum += found;
    }
    CHECK(sum == 2);
    FAILS(SLABFS_EINVALID, slabfs_count(session, &query, &found));
    query = (struct slabfs_query){.text = "step >"};
    FAILS(SLABFS_EINVALID, slabfs_find(session, &query, &entries));
    query = (struct slabfs_query){.text = "has step", .reserved = {1}};
    FAILS(SLABFS_EINVALID, slabfs_count(session, &query, &found));
    FAILS(SLABFS_EINVALID, slabfs_find(session, NULL, &entries));
    OK(slabfs_spec_free(spec));
}

int main(int argc, char **argv)
{
    struct slabfs_options options = {.io_timeout_ms = 30000};
    CHECK(argc == 2);
    CHECK(!strcmp(slabfs_version(), "0.1.0"));
    OK(slabfs_connect(argv[1], &options, &session));
    names();
    objects();
    bytes();
    growth();
    tags();
    /* Handles that are open when the session ends can only be closed. */
    struct slabfs_object object;
    int32_t one;
    OK(slabfs_open(session, "bytes", SLABFS_READ, &object));
    OK(slabfs_sync(session));
    OK(slabfs_close(session));
    FAILS(SLABFS_EHANDLE, slabfs_close(session));
    FAILS(SLABFS_EHANDLE, slabfs_sync(session));
    FAILS(SLABFS_ECLOSED, slabfs_read_text(object, "[0,0]", &one, sizeof one));
    OK(slabfs_object_close(object));
    options.read_only = 1;
    options.consistency = SLABFS_COMMIT;
    OK(slabfs_connect(argv[1], &options, &session));
    readonly();
    OK(slabfs_close(session));
    printf("done\n");
    return 0;
}
