/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libraries.c - what libc and the dynamic linker do with memory on a program's behalf: loading and unloading with
 * thread storage, locales, patterns, conversions, directories, streams in memory. libraries MODULE.so
 */
#include "tests/shim/check.h"

#include <dirent.h>
#include <dlfcn.h>
#include <glob.h>
#include <iconv.h>
#include <locale.h>
#include <netdb.h>
#include <pthread.h>
#include <regex.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *module_path;

static void *load_often(void *unused)
{
    for (int i = 0; i < 50; i++) {
        void *module = dlopen(module_path, RTLD_NOW);
        char *(*touch)(int);
        char *text;

        CHECK(module != NULL);
        touch = (char *(*)(int))(uintptr_t)dlsym(module, "module_touch");
        CHECK(touch != NULL && dlsym(module, "no_such_name") == NULL && dlerror() != NULL);
        text = touch(i);
        CHECK(atoi(text) == i);
        CHECK_MANAGED(text); /* allocated by the module, freed by us */
        free(text);
        CHECK(dlclose(module) == 0);
    }
    return unused;
}

static void loading(void)
{
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, load_often, NULL) == 0);
    load_often(NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

static void patterns(void)
{
    regex_t regex;
    regmatch_t match;
    glob_t paths;
    char number[64];

    for (int i = 0; i < 200; i++) {
        snprintf(number, sizeof(number), "^a*b{%d}(c|d)+[e-z]$", i % 20 + 1);
        CHECK(regcomp(&regex, number, REG_EXTENDED) == 0);
        (void)regexec(&regex, "aaabbbcdz", 1, &match, 0);
        regfree(&regex);
    }
    CHECK(glob("/*", 0, NULL, &paths) == 0 && paths.gl_pathc > 0);
    globfree(&paths);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void directories(void)
{
    struct dirent **entries;
    int count = scandir("/", &entries, NULL, by_name);
    char *path;

    CHECK(count > 0);
    for (int i = 0; i < count; i++)
        free(entries[i]); /* libc's blocks, freed by the program */
    free(entries);
    path = realpath("/usr/../usr", NULL);
    CHECK(strcmp(path, "/usr") == 0);
    free(path);
    path = getcwd(NULL, 0);
    CHECK(path != NULL);
    free(path);
}

static void streams(void)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);

    for (int i = 0; i < 20000; i++)
        fprintf(stream, "%d,", i);
    fclose(stream);
    CHECK(strlen(text) == size && size > 100000);
    text = realloc(text, size * 2);
    CHECK(strncmp(text, "0,1,2,", 6) == 0);
    free(text);
}

static void conversions(void)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    iconv_t converter = iconv_open("UTF-16", "UTF-8");
    char from[] = "words";
    char to[64];
    char *in = from, *out = to;
    size_t in_left = sizeof(from), out_left = sizeof(to);

    if (converter != (iconv_t)-1) {
        CHECK(iconv(converter, &in, &in_left, &out, &out_left) != (size_t)-1);
        iconv_close(converter);
    }
    CHECK(getaddrinfo("127.0.0.1", "80", &hints, &found) == 0);
    freeaddrinfo(found);
    for (int i = 0; i < 50; i++) {
        CHECK(setlocale(LC_ALL, i % 2 ? "C.UTF-8" : "C") != NULL);
        CHECK(setenv("SOME_NAME", i % 2 ? "one" : "another value, a longer one", 1) == 0);
    }
}

static int descending(const void *a, const void *b)
{
    int left = *(const int *)a, right = *(const int *)b;

    free(malloc(10)); /* called back by libc, yet the program's */
    return (left < right) - (left > right);
}

static void sorting(void)
{
    int *numbers = malloc(100000 * sizeof(int));

    for (int i = 0; i < 100000; i++)
        numbers[i] = i * 7919 % 100003;
    qsort(numbers, 100000, sizeof(int), descending);
    for (int i = 1; i < 100000; i++)
        CHECK(numbers[i - 1] >= numbers[i]);
    free(numbers);
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    module_path = arguments[1];
    patterns();
    directories();
    streams();
    conversions();
    sorting();
    loading();
    return 0;
}
