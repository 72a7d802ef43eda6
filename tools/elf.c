/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elf.c - reads the headers of a program file: elf(5).
 *
 * The file is anybody's: every offset and length in it is checked against what was read.
 */
#include "tools/elf.h"
#include "base/error.h"
#include "tools/program.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define INTERPRETERS_MAX 4 /* scripts that name scripts, as the kernel bounds them */
#define HEADERS_MAX      64
#define DYNAMIC_MAX      512
#define OUR_LIBRARY      "libtiermesh.so"

#if defined(__x86_64__)
#define OUR_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OUR_MACHINE EM_AARCH64
#elif defined(__riscv)
#define OUR_MACHINE EM_RISCV
#elif defined(__powerpc64__)
#define OUR_MACHINE EM_PPC64
#elif defined(__s390x__)
#define OUR_MACHINE EM_S390
#else
#error "which processor is this?"
#endif

#define OUR_ORDER (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB)

struct image {
    int fd;
    Elf64_Phdr headers[HEADERS_MAX];
    unsigned headers_count;
};

static bool read_at(int fd, void *memory, size_t size, uint64_t offset)
{
    return offset <= INT64_MAX && pread(fd, memory, size, (off_t)offset) == (ssize_t)size;
}

/* A text at that place of the file, cut off at `size`. */
static bool text_at(int fd, uint64_t offset, char *text, size_t size)
{
    ssize_t got = offset <= INT64_MAX ? pread(fd, text, size - 1, (off_t)offset) : -1;

    if (got <= 0)
        return false;
    text[got] = '\0';
    return true;
}

static const char *machine_name(unsigned machine, bool is_64)
{
    static const struct {
        unsigned machine;
        const char *name;
    } names[] = {
        {EM_X86_64, "x86-64"},  {EM_386, "32-bit x86"}, {EM_AARCH64, "aarch64"},
        {EM_ARM, "32-bit ARM"}, {EM_RISCV, "RISC-V"},   {EM_PPC64, "ppc64"},
        {EM_S390, "s390"},      {EM_MIPS, "MIPS"},      {EM_LOONGARCH, "LoongArch"},
    };

    if (machine == OUR_MACHINE && !is_64)
        return "32-bit programs";
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        if (names[i].machine == machine)
            return names[i].name;
    }
    return "another processor";
}

/* ---- the dynamic section ---------------------------------------------------------------------------------------- */

static const Elf64_Phdr *header_find(const struct image *image, uint32_t type)
{
    for (unsigned i = 0; i < image->headers_count; i++) {
        if (image->headers[i].p_type == type)
            return &image->headers[i];
    }
    return NULL;
}

static bool file_offset(const struct image *image, uint64_t address, uint64_t *ret_offset)
{
    for (unsigned i = 0; i < image->headers_count; i++) {
        const Elf64_Phdr *header = &image->headers[i];

        if (header->p_type == PT_LOAD && address >= header->p_vaddr && address - header->p_vaddr < header->p_filesz) {
            *ret_offset = address - header->p_vaddr + header->p_offset;
            return true;
        }
    }
    return false;
}

/* Does it ask for libtiermesh.so? */
static bool needs_us(const struct image *image)
{
    const Elf64_Phdr *header = header_find(image, PT_DYNAMIC);
    Elf64_Dyn entries[DYNAMIC_MAX];
    uint64_t texts = 0;
    size_t count;

    if (header == NULL)
        return false;
    count = header->p_filesz / sizeof(entries[0]);
    if (count > DYNAMIC_MAX)
        count = DYNAMIC_MAX;
    if (!read_at(image->fd, entries, count * sizeof(entries[0]), header->p_offset))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (entries[i].d_tag == DT_STRTAB && !file_offset(image, entries[i].d_un.d_ptr, &texts))
            return false;
    }
    for (size_t i = 0; texts != 0 && i < count && entries[i].d_tag != DT_NULL; i++) {
        char name[64];

        if (entries[i].d_tag == DT_NEEDED && entries[i].d_un.d_val < UINT32_MAX &&
            text_at(image->fd, texts + entries[i].d_un.d_val, name, sizeof(name)) &&
            strncmp(name, OUR_LIBRARY, strlen(OUR_LIBRARY)) == 0)
            return true;
    }
    return false;
}

static bool is_glibc_linker(const char *path)
{
    const char *name = strrchr(path, '/');

    name = name == NULL ? path : name + 1;
    return strncmp(name, "ld-linux", 8) == 0 || strncmp(name, "ld64.so.", 8) == 0;
}

static void look_at_headers(const struct image *image, struct elf_file *file)
{
    const Elf64_Phdr *interpreter = header_find(image, PT_INTERP);

    file->kind = ELF_STATIC;
    if (interpreter == NULL)
        return;
    if (!text_at(image->fd, interpreter->p_offset, file->detail, sizeof(file->detail))) {
        file->kind = ELF_UNKNOWN;
        return;
    }
    if (!is_glibc_linker(file->detail))
        file->kind = ELF_OTHER_LIBC;
    else
        file->kind = needs_us(image) ? ELF_DSM : ELF_DYNAMIC;
}

static void look_at_elf(int fd, const unsigned char *ident, struct elf_file *file)
{
    struct image image = {.fd = fd};
    Elf64_Ehdr header;
    uint16_t machine;
    bool is_64 = ident[EI_CLASS] == ELFCLASS64;

    file->kind = ELF_UNKNOWN;
    if (!read_at(fd, &machine, sizeof(machine), offsetof(Elf64_Ehdr, e_machine)))
        return;
    if (!is_64 || machine != OUR_MACHINE || ident[EI_DATA] != OUR_ORDER) {
        file->kind = ELF_OTHER_CPU;
        snprintf(file->detail, sizeof(file->detail), "%s", machine_name(machine, is_64));
        return;
    }
    if (!read_at(fd, &header, sizeof(header), 0) || header.e_phentsize != sizeof(Elf64_Phdr) ||
        header.e_phnum > HEADERS_MAX || (header.e_type != ET_EXEC && header.e_type != ET_DYN) ||
        !read_at(fd, image.headers, header.e_phnum * sizeof(Elf64_Phdr), header.e_phoff))
        return;
    image.headers_count = header.e_phnum;
    look_at_headers(&image, file);
}

/* ---- scripts ---------------------------------------------------------------------------------------------------- */

/* "#! /usr/bin/env -S python3 -u": what env will start. */
static bool env_program(char *words, char *path, size_t size)
{
    char *rest = words, *word;

    while ((word = strsep(&rest, " \t")) != NULL) {
        if (word[0] != '\0' && word[0] != '-' && strchr(word, '=') == NULL)
            return program_find(word, path, size) == 0;
    }
    return false;
}

/* The program behind the first line of a script; false: it names none. */
static bool script_interpreter(char *line, char *path, size_t size)
{
    char *name = line + strspn(line, " \t"), *rest;
    const char *base;

    name[strcspn(name, "\n")] = '\0';
    rest = name + strcspn(name, " \t");
    if (*rest != '\0')
        *rest++ = '\0';
    if (name[0] == '\0')
        return false;
    base = strrchr(name, '/');
    if (strcmp(base == NULL ? name : base + 1, "env") == 0 && env_program(rest, path, size))
        return true;
    return (size_t)snprintf(path, size, "%s", name) < size;
}

int elf_look(const char *path, struct elf_file *ret_file)
{
    struct elf_file *file = ret_file;

    memset(file, 0, sizeof(*file));
    snprintf(file->path, sizeof(file->path), "%s", path);
    for (int depth = 0; depth <= INTERPRETERS_MAX; depth++) {
        char line[256];
        int fd = open(file->path, O_RDONLY | O_CLOEXEC);
        bool has_bytes;

        if (fd < 0)
            return error_set(-errno, "look at %s: %m", file->path);
        has_bytes = text_at(fd, 0, line, sizeof(line));
        if (has_bytes && memcmp(line, ELFMAG, SELFMAG) == 0) {
            look_at_elf(fd, (const unsigned char *)line, file);
            close(fd);
            return 0;
        }
        close(fd);
        if (has_bytes && line[0] == '#' && line[1] == '!') {
            if (!script_interpreter(line + 2, file->path, sizeof(file->path)))
                break;
        } else {
            /* What the kernel does not know is a script of the shell: execvp(3). */
            snprintf(file->path, sizeof(file->path), "/bin/sh");
        }
    }
    file->kind = ELF_UNKNOWN;
    return 0;
}
