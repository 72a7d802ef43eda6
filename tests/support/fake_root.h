/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_root.h - a directory that stands for the root of a machine: for tests of what reads /proc and /sys. cmocka is
 * included by it; assertions run on the main thread.
 */
#ifndef TIERMESH_TESTS_FAKE_ROOT_H
#define TIERMESH_TESTS_FAKE_ROOT_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct fake_root {
    char path[64];
};

static inline void fake_root_make(struct fake_root *root)
{
    snprintf(root->path, sizeof(root->path), "/tmp/tiermesh-root-XXXXXX");
    assert_non_null(mkdtemp(root->path));
}

static inline void fake_root_remove(const struct fake_root *root)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", root->path);
    assert_int_equal(system(command), 0);
}

/* The whole name, with the directories on its way made. */
static inline void fake_path(const struct fake_root *root, const char *name, char path[2048])
{
    snprintf(path, 2048, "%s%s", root->path, name);
    for (char *slash = path + strlen(root->path) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
}

/* A symbolic link to `target`, which need not be there. */
static inline void fake_link(const struct fake_root *root, const char *name, const char *target)
{
    char path[2048];

    fake_path(root, name, path);
    assert_int_equal(symlink(target, path), 0);
}

/* Writes the file, and the directories on its way. */
static inline void fake_file(const struct fake_root *root, const char *name, const char *text)
{
    char path[2048];
    FILE *file;

    fake_path(root, name, path);
    file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static inline void fake_files(const struct fake_root *root, const char *directory, const char *group, const char *name,
                              const char *text)
{
    char path[1024];

    snprintf(path, sizeof(path), "%s%s/%s", directory, group, name);
    fake_file(root, path, text);
}

#endif
