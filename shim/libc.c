/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libc.c - where libc and the dynamic linker lie, and libc's own functions by name.
 *
 * dlsym() would find another preload library first, takes the linker's locks and may allocate; this reads the symbol
 * table of the mapped libc.so instead. Runs at any time, on any thread.
 */
#include "shim/libc.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

extern void *__libc_malloc(size_t size);

static const ElfW(Phdr) * program_headers(uintptr_t base)
{
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)base;

    return (const ElfW(Phdr) *)(base + header->e_phoff);
}

static unsigned program_header_count(uintptr_t base)
{
    return ((const ElfW(Ehdr) *)base)->e_phnum;
}

/* Both libraries are linked for address 0 and begin with their ELF header. */
static struct shim_text text_of(uintptr_t base)
{
    const ElfW(Phdr) *headers = program_headers(base);
    uintptr_t begin = UINTPTR_MAX;
    uintptr_t end = 0;

    for (unsigned i = 0; i < program_header_count(base); i++) {
        if (headers[i].p_type != PT_LOAD || (headers[i].p_flags & PF_X) == 0)
            continue;
        if (base + headers[i].p_vaddr < begin)
            begin = base + headers[i].p_vaddr;
        if (base + headers[i].p_vaddr + headers[i].p_memsz > end)
            end = base + headers[i].p_vaddr + headers[i].p_memsz;
    }
    return end == 0 ? (struct shim_text){0, 0} : (struct shim_text){begin, end - begin};
}

/* The list that the dynamic linker keeps for debuggers: readable without its locks while nothing is being loaded. */
static const struct link_map *libraries(void)
{
    return _r_debug.r_map;
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

bool libc_is_loaded(const char *file)
{
    size_t length = strlen(file);

    for (const struct link_map *map = libraries(); map != NULL; map = map->l_next)
        if (map->l_name != NULL && strncmp(file_name(map->l_name), file, length) == 0)
            return true;
    return false;
}

/* libc.so is the library that has our reference to its malloc. */
static const struct link_map *libc_map(void)
{
    for (const struct link_map *map = libraries(); map != NULL; map = map->l_next) {
        struct shim_text text;

        if (map->l_name == NULL || strncmp(file_name(map->l_name), "libc.so", 7) != 0)
            continue;
        text = text_of(map->l_addr);
        if ((uintptr_t)&__libc_malloc - text.begin < text.size_bytes)
            return map;
    }
    return NULL;
}

bool libc_find(struct shim_text *ret_libc, struct shim_text *ret_linker)
{
    const struct link_map *map = libc_map();
    uintptr_t linker = getauxval(AT_BASE);

    if (map == NULL)
        return false;
    *ret_libc = text_of(map->l_addr);
    if (linker == 0) /* the dynamic linker was started as the program: it is the one that has _r_debug */
        for (map = libraries(); map != NULL; map = map->l_next)
            if (map->l_name != NULL && strncmp(file_name(map->l_name), "ld-linux", 8) == 0)
                linker = map->l_addr;
    if (linker == 0)
        return false;
    *ret_linker = text_of(linker);
    return true;
}

struct symbols {
    const ElfW(Sym) * table;
    const char *names;
    const uint32_t *hash; /* DT_GNU_HASH */
    const uint16_t *versions;
};

/* The dynamic linker relocates these entries in place, but not for every library on every machine. */
static uintptr_t dynamic_address(const struct link_map *map, const ElfW(Dyn) * entry)
{
    return entry->d_un.d_ptr < map->l_addr ? map->l_addr + entry->d_un.d_ptr : entry->d_un.d_ptr;
}

static struct symbols symbols_of(const struct link_map *map)
{
    struct symbols symbols = {NULL, NULL, NULL, NULL};

    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        uintptr_t address = dynamic_address(map, entry);

        if (entry->d_tag == DT_SYMTAB)
            symbols.table = (const ElfW(Sym) *)address;
        else if (entry->d_tag == DT_STRTAB)
            symbols.names = (const char *)address;
        else if (entry->d_tag == DT_GNU_HASH)
            symbols.hash = (const uint32_t *)address;
        else if (entry->d_tag == DT_VERSYM)
            symbols.versions = (const uint16_t *)address;
    }
    return symbols;
}

static uint32_t gnu_hash(const char *name)
{
    uint32_t hash = 5381;

    for (; *name != '\0'; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

/* A function of that name in its default version; not one that has to be chosen at run time (IFUNC). */
static bool matches(const struct symbols *symbols, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &symbols->table[index];

    return symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
           (symbols->versions == NULL || (symbols->versions[index] & 0x8000) == 0) &&
           strcmp(symbols->names + symbol->st_name, name) == 0;
}

/* What a library defines by that name; NULL: nothing. A table of the old kind only (DT_HASH) is taken for empty. */
static void *symbol_of(const struct link_map *map, const char *name)
{
    struct symbols symbols = symbols_of(map);
    const uint32_t *buckets;
    const uint32_t *chain;
    uint32_t hash = gnu_hash(name);
    uint32_t first;

    if (symbols.table == NULL || symbols.names == NULL || symbols.hash == NULL)
        return NULL;
    /* Header: buckets, first symbol of the table, words of the bloom filter (64 bits each), shift. */
    first = symbols.hash[1];
    buckets = symbols.hash + 4 + 2 * (size_t)symbols.hash[2];
    chain = buckets + symbols.hash[0];
    for (uint32_t i = buckets[hash % symbols.hash[0]]; i >= first; i++) {
        if (((chain[i - first] ^ hash) >> 1) == 0 && matches(&symbols, i, name))
            return (void *)(map->l_addr + symbols.table[i].st_value);
        if (chain[i - first] & 1)
            break;
    }
    return NULL;
}

void *shim_libc_symbol(const char *name)
{
    const struct link_map *map = libc_map();

    return map != NULL ? symbol_of(map, name) : NULL;
}

void *libc_first_symbol(const char *name)
{
    for (const struct link_map *map = libraries(); map != NULL; map = map->l_next) {
        void *found = map->l_ld != NULL ? symbol_of(map, name) : NULL;

        if (found != NULL)
            return found;
    }
    return NULL;
}
