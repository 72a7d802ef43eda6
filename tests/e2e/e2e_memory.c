/* SPDX-License-Identifier: Apache-2.0 */
/*
 * e2e_memory.c - the dsm_malloc() family, loads and stores, names, and what must be refused, on one node and on three.
 */
#include "tests/support/node_test.h"

#define MANY 300

static bool is_last(void)
{
    return dsm_node_id() == dsm_node_count() - 1;
}

/* ---- one address space ----------------------------------------------------------------------------------------------
 */

static void run_same_pointer(void)
{
    int nodes = dsm_node_count();
    uint64_t *words = node_share("words", 64 * DSM_PAGE_BYTES);
    uint64_t *self;

    CHECK_IS((uintptr_t)words % DSM_PAGE_BYTES, 0);
    if (dsm_node_id() == 0)
        words[1] = (uint64_t)(uintptr_t)words; /* a pointer in shared memory */
    CHECK_OK(dsm_barrier());
    self = (uint64_t *)(uintptr_t)words[1];
    CHECK(self == words);
    self[16 + dsm_node_id()] = 100 + (uint64_t)dsm_node_id(); /* all nodes write one page */
    CHECK_OK(dsm_barrier());
    for (int i = 0; i < nodes; i++)
        CHECK_IS(words[16 + i], 100 + i);
    CHECK_OK(dsm_barrier());
    for (int page = dsm_node_id(); page < 64; page += nodes)
        page_fill((char *)words + page * DSM_PAGE_BYTES, (uint64_t)page, 1);
    CHECK_OK(dsm_barrier());
    for (int page = 0; page < 64; page++)
        CHECK(page_is_filled((char *)words + page * DSM_PAGE_BYTES, (uint64_t)page, 1));
}

static void run_zeroes(void)
{
    const size_t size = 3 << 20;
    char *memory = node_share("zeroes", size);

    for (size_t at = (size_t)dsm_node_id() * 512; at < size; at += DSM_PAGE_BYTES / 2)
        CHECK_IS(memory[at], 0);
}

/* Memory that was used, freed and given out again reads as zeroes on every node. */
static void run_zeroes_again(void)
{
    for (int round = 0; round < 4; round++) {
        char name[16];
        char *memory;

        snprintf(name, sizeof(name), "round%d", round);
        memory = node_share(name, 5 << 20);
        for (size_t at = 0; at < 5 << 20; at += 64 * 1024)
            CHECK_IS(memory[at + (size_t)dsm_node_id() * DSM_PAGE_BYTES], 0);
        CHECK_OK(dsm_barrier());
        memset(memory + (size_t)dsm_node_id() * (1 << 20), 0xa5, 1 << 20);
        CHECK_OK(dsm_barrier());
        for (size_t at = 0; at < (size_t)dsm_node_count() << 20; at += DSM_PAGE_BYTES)
            if ((unsigned char)memory[at] != 0xa5)
                check_failed(__FILE__, __LINE__, "round %d: byte %zu of %p is %d", round, at, (void *)memory,
                             memory[at]);
        CHECK_OK(dsm_barrier());
        if (is_last())
            CHECK_OK(dsm_free(memory));
        CHECK_OK(dsm_barrier());
    }
}

/* ---- sizes and kinds
 * --------------------------------------------------------------------------------------------------- */

static void run_sizes(void)
{
    static const size_t sizes[] = {
        1, 8, 15, 16, 17, 100, 4095, 4096, 4097, 65536, 1 << 20, (2 << 20) - 16, 2 << 20, (2 << 20) + 1, 7 << 20};
    static const enum dsm_kind kinds[] = {DSM_SHARED, DSM_PRIVATE};

    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            struct dsm_attributes attributes = {.kind = kinds[k]};
            size_t usable = 0;
            char *memory;

            CHECK_OK(dsm_malloc_with(sizes[i], &attributes, (void **)&memory));
            CHECK_IS((uintptr_t)memory % (sizes[i] >= DSM_PAGE_BYTES ? DSM_PAGE_BYTES : 16), 0);
            CHECK_OK(dsm_usable_size(memory, &usable));
            CHECK(usable >= sizes[i]);
            for (size_t at = 0; at < sizes[i]; at += 997)
                CHECK_IS(memory[at], 0);
            memset(memory, 0x5a, sizes[i]);
            CHECK_IS(memory[sizes[i] - 1], 0x5a);
            CHECK_OK(dsm_free(memory));
        }
}

static void run_alignment(void)
{
    for (size_t alignment = 16; alignment <= 2 << 20; alignment *= 2) {
        struct dsm_attributes attributes = {.kind = DSM_SHARED, .alignment_bytes = alignment};
        char *small;
        char *large;

        CHECK_OK(dsm_malloc_with(24, &attributes, (void **)&small));
        CHECK_OK(dsm_malloc_with(3 * 4096 + 5, &attributes, (void **)&large));
        CHECK_IS((uintptr_t)small % alignment, 0);
        CHECK_IS((uintptr_t)large % alignment, 0);
        small[23] = large[3 * 4096 + 4] = 1;
        CHECK_OK(dsm_free(large));
        CHECK_OK(dsm_free(small));
    }
}

/* No two live allocations overlap, small and large, from all nodes at once. */
static void run_disjoint(void)
{
    static unsigned char *blocks[MANY];
    static size_t sizes[MANY];
    struct random random = {.state = 77 + (uint64_t)dsm_node_id()};

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) {
            if (blocks[i] != NULL && random_below(&random, 2) == 0)
                continue;
            if (blocks[i] != NULL)
                CHECK_OK(dsm_free(blocks[i]));
            sizes[i] = 1 + random_below(&random, random_below(&random, 8) == 0 ? 40000 : 300);
            CHECK_OK(dsm_malloc(sizes[i], (void **)&blocks[i]));
            memset(blocks[i], i & 0xff, sizes[i]);
        }
        for (int i = 0; i < MANY; i++)
            for (size_t at = 0; at < sizes[i]; at++)
                CHECK_IS(blocks[i][at], i & 0xff);
    }
    CHECK_OK(dsm_barrier());
    for (int i = 0; i < MANY; i++)
        CHECK_OK(dsm_free(blocks[i]));
}

static void run_placement(void)
{
    for (int home = 0; home < dsm_node_count(); home++) {
        struct dsm_attributes attributes = {.placement = DSM_PLACE_NODE, .node = home};
        char name[16];
        uint64_t *words;

        snprintf(name, sizeof(name), "home%d", home);
        words = node_share_with(name, 4 << 20, &attributes);
        words[dsm_node_id() * 512] = (uint64_t)dsm_node_id() + 7;
        CHECK_OK(dsm_barrier());
        for (int i = 0; i < dsm_node_count(); i++)
            CHECK_IS(words[i * 512], i + 7);
    }
    {
        struct dsm_attributes attributes = {.placement = DSM_PLACE_INTERLEAVE};
        char *memory = node_share_with("turns", 12 << 20, &attributes);

        for (size_t i = (size_t)dsm_node_id(); i < 12 << 8; i += (size_t)dsm_node_count())
            page_fill(memory + i * DSM_PAGE_BYTES, i, 3);
        CHECK_OK(dsm_barrier());
        for (size_t i = 0; i < 12 << 8; i += 7)
            CHECK(page_is_filled(memory + i * DSM_PAGE_BYTES, i, 3));
    }
}

static void run_realloc(void)
{
    static const enum dsm_kind kinds[] = {DSM_SHARED, DSM_PRIVATE};

    for (size_t k = 0; k < 2; k++) {
        struct dsm_attributes attributes = {.kind = kinds[k]};
        unsigned char *memory;
        void *untouched = (void *)0x1;

        CHECK_OK(dsm_malloc_with(100, &attributes, (void **)&memory));
        for (int i = 0; i < 100; i++)
            memory[i] = (unsigned char)i;
        for (size_t size = 100; size < 3 << 20; size = size * 3 + 1) {
            CHECK_OK(dsm_realloc(memory, size, (void **)&memory));
            for (int i = 0; i < 100; i++)
                CHECK_IS(memory[i], i);
            memory[size - 1] = 1;
            memory[size - 1] = size - 1 < 100 ? (unsigned char)(size - 1) : 1;
        }
        CHECK_OK(dsm_realloc(memory, 50, (void **)&memory));
        for (int i = 0; i < 50; i++)
            CHECK_IS(memory[i], i);
        CHECK_ERROR(dsm_realloc(memory, SIZE_MAX, &untouched), -EOVERFLOW);
        CHECK_ERROR(dsm_realloc(memory, 0, &untouched), -EINVAL);
        CHECK(untouched == (void *)0x1);
        CHECK_ERROR(dsm_realloc(memory, 5000, NULL), -EINVAL);
        for (int i = 0; i < 50; i++)
            CHECK_IS(memory[i], i);
        CHECK_OK(dsm_free(memory));
    }
}

/* ---- free
 * ---------------------------------------------------------------------------------------------------------------- */

static void run_free_from_any_node(void)
{
    void **table = node_share("table", sizeof(void *) * MANY);
    int nodes = dsm_node_count();

    for (int i = dsm_node_id(); i < MANY; i += nodes)
        CHECK_OK(dsm_malloc(i % 5 == 0 ? 3 << 20 : 24 + (size_t)i, &table[i]));
    CHECK_OK(dsm_barrier());
    for (int i = (dsm_node_id() + 1) % nodes; i < MANY; i += nodes)
        CHECK_OK(dsm_free(table[i]));
    CHECK_OK(dsm_barrier());
    for (int i = dsm_node_id(); i < MANY; i += nodes) {
        int error = dsm_free(table[i]);

        CHECK(error == -EINVAL || error == -EFAULT); /* freed already, by another node */
    }
    CHECK_OK(dsm_barrier());
}

/* The window does not leak: many times its size is taken and given back. */
static void run_window_is_reused(void)
{
    for (int i = 0; i < 200; i++) {
        char *memory;

        CHECK_OK(dsm_malloc(16 << 20, (void **)&memory));
        memory[0] = memory[(16 << 20) - 1] = 1;
        CHECK_OK(dsm_free(memory));
    }
    for (int i = 0; i < 200; i++) {
        struct dsm_attributes attributes = {.kind = DSM_PRIVATE};
        char *memory;

        CHECK_OK(dsm_malloc_with(16 << 20, &attributes, (void **)&memory));
        memory[0] = memory[(16 << 20) - 1] = 1;
        CHECK_OK(dsm_free(memory));
    }
}

static void run_window_full(void)
{
    void *first;
    void *rest = NULL;
    int error = 0;

    CHECK_OK(dsm_malloc(1 << 20, &first));
    for (int i = 0; error == 0 && i < 64; i++)
        error = dsm_malloc(8 << 20, &rest);
    CHECK_ERROR(error, -ENOMEM);
    CHECK_ERROR(dsm_malloc((size_t)1 << 40, &rest), -ENOMEM);
    *(char *)first = 1;
    CHECK_OK(dsm_free(first));
}

/* ---- names
 * ------------------------------------------------------------------------------------------------------------------ */

static void run_roots(void)
{
    char longest[DSM_NAME_MAX + 2];
    char *memory;
    void *found = NULL;
    uint64_t start_ns;

    memset(longest, 'x', sizeof(longest));
    longest[DSM_NAME_MAX + 1] = '\0';
    CHECK_OK(dsm_malloc(100, (void **)&memory));
    CHECK_ERROR(dsm_root_set("", memory), -EINVAL);
    CHECK_ERROR(dsm_root_set(NULL, memory), -EINVAL);
    CHECK_ERROR(dsm_root_set(longest, memory), -EINVAL);
    CHECK_ERROR(dsm_root_set("stack", &found), -EFAULT);
    CHECK_ERROR(dsm_root_get("nobody", 0, &found), -ENOENT);
    start_ns = now_ns();
    CHECK_ERROR(dsm_root_get("nobody", 50 * MILLISECOND_NS, &found), -ETIMEDOUT);
    CHECK(now_ns() - start_ns >= 50 * MILLISECOND_NS && now_ns() - start_ns < 5 * SECOND_NS);
    CHECK_ERROR(dsm_root_get("nobody", 0, NULL), -EINVAL);
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() == 0) {
        longest[DSM_NAME_MAX] = '\0';
        sleep_ms(50); /* the others wait for it */
        CHECK_OK(dsm_root_set(longest, memory + 3));
    } else {
        longest[DSM_NAME_MAX] = '\0';
        CHECK_OK(dsm_root_get(longest, DSM_FOREVER, &found));
        CHECK_IS((uintptr_t)found % 16, 3);
    }
    CHECK_OK(dsm_barrier());
    if (is_last())
        CHECK_OK(dsm_root_set(longest, memory + 5)); /* replaced */
    CHECK_OK(dsm_barrier());
    CHECK_OK(dsm_root_get(longest, 0, &found));
    CHECK_IS((uintptr_t)found % 16, 5);
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() == 0)
        CHECK_OK(dsm_root_set(longest, NULL)); /* removed */
    CHECK_OK(dsm_barrier());
    CHECK_ERROR(dsm_root_get(longest, 0, &found), -ENOENT);
}

static void run_roots_full(void)
{
    char name[32];
    void *memory;
    int error = 0;
    int count = 0;

    CHECK_OK(dsm_malloc(100, &memory));
    while (error == 0 && count < 2000) {
        snprintf(name, sizeof(name), "name %d", count++);
        error = dsm_root_set(name, memory);
    }
    CHECK_ERROR(error, -ENOSPC);
    CHECK_IS(count, 1025);
    CHECK_OK(dsm_root_set("name 7", NULL));
    CHECK_OK(dsm_root_set("one more", memory));
}

/* ---- refusals
 * ------------------------------------------------------------------------------------------------------------------ */

static void run_refused_before_init(void)
{
    struct dsm_stats stats;
    uint64_t word = 0;
    void *memory = NULL;

    CHECK_ERROR(dsm_node_id(), -ENOTCONN);
    CHECK_ERROR(dsm_node_count(), -ENOTCONN);
    CHECK_ERROR(dsm_malloc(1, &memory), -ENOTCONN);
    CHECK_ERROR(dsm_free(&word), -ENOTCONN);
    CHECK_ERROR(dsm_read(&word, &word, 8, 0, NULL), -ENOTCONN);
    CHECK_ERROR(dsm_write(&word, &word, 8, 0, NULL), -ENOTCONN);
    CHECK_ERROR(dsm_lock(&word, 8, DSM_LOCK_SHARED, 0), -ENOTCONN);
    CHECK_ERROR(dsm_unlock(&word, 8), -ENOTCONN);
    CHECK_ERROR(dsm_barrier(), -ENOTCONN);
    CHECK_ERROR(dsm_atomic_load(&word, &word), -ENOTCONN);
    CHECK_ERROR(dsm_prefetch(&word, 8), -ENOTCONN);
    CHECK_ERROR(dsm_advise(&word, 8, DSM_ADVISE_NORMAL), -ENOTCONN);
    CHECK_ERROR(dsm_pin(&word, 8, 1, 0), -ENOTCONN);
    CHECK_ERROR(dsm_root_set("a", &word), -ENOTCONN);
    CHECK_ERROR(dsm_stats(&stats, sizeof(stats)), -ENOTCONN);
    CHECK_ERROR(dsm_finalize(), -ENOTCONN);
}

static void run_refused_sizes(void)
{
    struct dsm_attributes attributes = {.kind = (enum dsm_kind)9};
    void *memory = (void *)0x1;

    CHECK_ERROR(dsm_malloc(0, &memory), -EINVAL);
    CHECK_ERROR(dsm_malloc(1, NULL), -EINVAL);
    CHECK_ERROR(dsm_malloc(SIZE_MAX, &memory), -EOVERFLOW);
    CHECK_ERROR(dsm_malloc((size_t)PTRDIFF_MAX + 1, &memory), -EOVERFLOW);
    CHECK_ERROR(dsm_calloc(SIZE_MAX / 2, 3, &memory), -EOVERFLOW);
    CHECK_ERROR(dsm_calloc((size_t)1 << 33, (size_t)1 << 33, &memory), -EOVERFLOW);
    CHECK_ERROR(dsm_calloc(0, 8, &memory), -EINVAL);
    CHECK_ERROR(dsm_malloc_with(8, &attributes, &memory), -EINVAL);
    attributes = (struct dsm_attributes){.placement = (enum dsm_placement)7};
    CHECK_ERROR(dsm_malloc_with(8, &attributes, &memory), -EINVAL);
    attributes = (struct dsm_attributes){.placement = DSM_PLACE_NODE, .node = dsm_node_count()};
    CHECK_ERROR(dsm_malloc_with(8, &attributes, &memory), -EINVAL);
    attributes.node = -1;
    CHECK_ERROR(dsm_malloc_with(8, &attributes, &memory), -EINVAL);
    attributes = (struct dsm_attributes){.alignment_bytes = 48};
    CHECK_ERROR(dsm_malloc_with(8, &attributes, &memory), -EINVAL);
    attributes.alignment_bytes = 4 << 20;
    CHECK_ERROR(dsm_malloc_with(8, &attributes, &memory), -EINVAL);
    CHECK(memory == (void *)0x1);
    CHECK_OK(dsm_calloc(10, 24, &memory));
    CHECK_OK(dsm_realloc(NULL, 24, &memory));
    CHECK_OK(dsm_free(NULL));
}

static void run_refused_pointers(void)
{
    static const enum dsm_kind kinds[] = {DSM_SHARED, DSM_PRIVATE};
    size_t usable;
    int local;

    CHECK_ERROR(dsm_free(&local), -EFAULT);
    CHECK_ERROR(dsm_free((void *)16), -EFAULT);
    CHECK_ERROR(dsm_usable_size(&local, &usable), -EFAULT);
    CHECK_ERROR(dsm_realloc(&local, 10, (void *[]){NULL}), -EFAULT);
    for (size_t k = 0; k < 2; k++)
        for (size_t size = 24; size < 10 << 20; size *= 40) {
            struct dsm_attributes attributes = {.kind = kinds[k]};
            char *memory;
            int error;

            CHECK_OK(dsm_malloc_with(size, &attributes, (void **)&memory));
            CHECK_ERROR(dsm_free(memory + 1), -EINVAL);
            CHECK_ERROR(dsm_free(memory + 16), -EINVAL);
            CHECK_ERROR(dsm_usable_size(memory + 16, &usable), -EINVAL);
            memory[size - 1] = 1;
            CHECK_OK(dsm_free(memory));
            error = dsm_free(memory);
            CHECK(error == -EINVAL || error == -EFAULT);
            CHECK(dsm_errmsg()[0] != '\0');
            error = dsm_realloc(memory, 100, (void *[]){NULL});
            CHECK(error == -EINVAL || error == -EFAULT);
        }
}

static void run_refused_ranges(void)
{
    struct dsm_attributes attributes = {.kind = DSM_PRIVATE};
    char *shared;
    char *private;
    char local[64] = "";

    CHECK_OK(dsm_malloc(DSM_PAGE_BYTES, (void **)&shared));
    CHECK_OK(dsm_malloc_with(DSM_PAGE_BYTES, &attributes, (void **)&private));
    CHECK_ERROR(dsm_read(local, local, 8, 0, NULL), -EFAULT);
    CHECK_ERROR(dsm_read(local, shared, 0, 0, NULL), -EINVAL);
    CHECK_ERROR(dsm_read(NULL, shared, 8, 0, NULL), -EINVAL);
    CHECK_ERROR(dsm_read(local, shared, 8, 0x80, NULL), -EINVAL);
    CHECK_ERROR(dsm_read(local, shared, 8, DSM_NOWAIT, NULL), -EINVAL);
    CHECK_ERROR(dsm_read(local, shared, SIZE_MAX, 0, NULL), -EFAULT);
    CHECK_ERROR(dsm_write(local, shared, 8, 0, NULL), -EFAULT);
    CHECK_ERROR(dsm_write(shared, NULL, 8, 0, NULL), -EINVAL);
    CHECK_ERROR(dsm_lock(local, 8, DSM_LOCK_SHARED, 0), -EFAULT);
    CHECK_ERROR(dsm_lock(private, 8, DSM_LOCK_SHARED, 0), -EFAULT);
    CHECK_ERROR(dsm_lock(shared, 0, DSM_LOCK_SHARED, 0), -EINVAL);
    CHECK_ERROR(dsm_lock(shared, 8, (enum dsm_lock_mode)5, 0), -EINVAL);
    CHECK_ERROR(dsm_unlock(shared, 8), -EPERM);
    CHECK_ERROR(dsm_unlock(local, 8), -EPERM);
    CHECK_ERROR(dsm_atomic_fetch_add((uint64_t *)(void *)(shared + 4), 1, NULL), -EINVAL);
    CHECK_ERROR(dsm_atomic_fetch_add((uint64_t *)(void *)private, 1, NULL), -EFAULT);
    CHECK_ERROR(dsm_atomic_load((uint64_t *)(void *)shared, NULL), -EINVAL);
    CHECK_ERROR(dsm_mutex_lock((dsm_mutex *)(void *)private), -EFAULT);
    CHECK_ERROR(dsm_mutex_unlock((dsm_mutex *)(void *)shared), -EPERM);
    CHECK_ERROR(dsm_cond_wait((dsm_cond *)(void *)shared, (dsm_mutex *)(void *)(shared + 64), 0), -EPERM);
    CHECK_ERROR(dsm_cond_signal((dsm_cond *)(void *)local), -EFAULT);
    CHECK_ERROR(dsm_prefetch(local, 8), -EFAULT);
    CHECK_ERROR(dsm_advise(local, 8, DSM_ADVISE_COLD), -EFAULT);
    CHECK_ERROR(dsm_advise(shared, 0, DSM_ADVISE_COLD), -EINVAL);
    CHECK_ERROR(dsm_advise(shared, 8, (enum dsm_advice)6), -EINVAL);
    CHECK_ERROR(dsm_pin(local, 8, 1, 0), -EFAULT);
    CHECK_ERROR(dsm_pin(shared, 8, 1, 61 * SECOND_NS), -EINVAL);
    CHECK_ERROR(dsm_unpin(shared, 8), -EINVAL);
    CHECK_ERROR(dsm_wait(NULL, 0), -EINVAL);
    CHECK_ERROR(dsm_test(&(struct dsm_transfer){{0}}), -EINVAL);
    CHECK_ERROR(dsm_stats(NULL, 8), -EINVAL);
    CHECK_ERROR(dsm_init(NULL), -EALREADY);
}

/* A page that belongs to no allocation: SIGBUS, or SIGSEGV outside; afterwards the place can be used again. */
static void run_touch_after_free(void)
{
    char *memory;
    char *again;

    CHECK_OK(dsm_malloc(6 << 20, (void **)&memory));
    memory[0] = memory[(5 << 20) + 3] = 1;
    CHECK_OK(dsm_free(memory));
    CHECK(!touch_reads(memory + (4 << 20)));
    CHECK_OK(dsm_malloc(6 << 20, (void **)&again));
    for (size_t at = 0; at < 6 << 20; at += DSM_PAGE_BYTES) {
        CHECK_IS(again[at], 0);
        again[at] = 2;
    }
}

static void run_after_finalize(void)
{
    char *memory;
    void *other;

    CHECK_OK(dsm_malloc(DSM_PAGE_BYTES, (void **)&memory));
    memory[0] = 1;
    CHECK_OK(dsm_finalize());
    CHECK(!touch_reads(memory));
    CHECK_ERROR(dsm_malloc(8, &other), -ENOTCONN);
    CHECK_ERROR(dsm_finalize(), -ENOTCONN);
}

static void run_config(void)
{
    struct dsm_config *config = NULL;

    CHECK_ERROR(dsm_config_create(NULL), -EINVAL);
    CHECK_OK(dsm_config_create(&config));
    CHECK_ERROR(dsm_config_set(config, "ddrr", "8M"), -ENOENT);
    CHECK(strstr(dsm_errmsg(), "'ddr'") != NULL);
    CHECK_ERROR(dsm_config_set(config, "ddr", "8Q"), -EINVAL);
    CHECK_ERROR(dsm_config_set(config, "ddr", "-1"), -EINVAL);
    CHECK_ERROR(dsm_config_set(config, "ddr", "99999999999T"), -EINVAL);
    CHECK_ERROR(dsm_config_set(config, "nvme", "1G"), -EINVAL);
    CHECK_ERROR(dsm_config_set(config, "transport", "pigeon"), -EINVAL);
    CHECK_ERROR(dsm_config_set(config, "uffd.move", "maybe"), -EINVAL);
    CHECK_ERROR(dsm_config_set(config, NULL, "x"), -EINVAL);
    CHECK_OK(dsm_config_set(config, "ddr", "32M"));
    CHECK_OK(dsm_init(config));
    dsm_config_destroy(config);
    CHECK_IS(node_stats().tier_budget_pages[DSM_TIER_DDR], 32 << 8);
    CHECK_OK(dsm_finalize());
    setenv("DSM_CXL", "lots", 1);
    CHECK_ERROR(dsm_config_create(&config), -EINVAL);
    CHECK(strstr(dsm_errmsg(), "DSM_CXL") != NULL);
}

static void run_stats(void)
{
    struct dsm_stats stats = node_stats();
    char *memory = node_share("stats", 1 << 20);
    uint64_t faults = 0;

    CHECK_IS(stats.members, ((uint64_t)1 << dsm_node_count()) - 1);
    CHECK(stats.epoch >= 1);
    CHECK_IS(stats.tier_budget_pages[DSM_TIER_DDR], 16 << 8);
    CHECK_IS(stats.tier_budget_pages[DSM_TIER_CXL], 4 << 8);
    CHECK_IS(stats.tier_is_emulated[DSM_TIER_CXL], 1);
    CHECK_IS(stats.tier_budget_pages[DSM_TIER_NVME], 0);
    CHECK(strcmp(dsm_tier_name(DSM_TIER_CXL), "cxl (emulated)") == 0);
    CHECK(strcmp(dsm_tier_name((enum dsm_tier)9), "?") == 0);
    CHECK(strcmp(dsm_source_name((enum dsm_source)9), "?") == 0);
    for (int i = dsm_node_id(); i < 256; i += dsm_node_count())
        memory[i * DSM_PAGE_BYTES] = 1;
    CHECK_OK(dsm_barrier());
    for (int i = 0; i < 256; i++)
        CHECK_IS(memory[i * DSM_PAGE_BYTES], 1);
    stats = node_stats();
    for (int i = 0; i < DSM_SOURCES; i++) {
        faults += stats.faults[i].count;
        CHECK(stats.faults[i].p50_ns <= stats.faults[i].p99_ns && stats.faults[i].p99_ns <= stats.faults[i].max_ns);
    }
    CHECK(faults > 0 && faults < 10000);
    CHECK(stats.tier_pages[DSM_TIER_DDR] >= 256 && stats.tier_pages[DSM_TIER_DDR] <= 4096);
    CHECK(stats.touched_pages >= 256 && stats.metadata_bytes > 0);
    CHECK((stats.messages_sent > 0) == (dsm_node_count() > 1) || dsm_node_count() == 1);
    if (dsm_node_count() > 1)
        CHECK(stats.faults[DSM_FROM_REMOTE].count > 0 && stats.bytes_received > 64 * DSM_PAGE_BYTES);
}

#define ON_ONE_AND_THREE(name, run)                                                                                    \
    {#name "_1", run, .nodes_count = 1},                                                                               \
    {                                                                                                                  \
#name "_3", run, .nodes_count = 3                                                                              \
    }

static const struct node_case cases[] = {
    ON_ONE_AND_THREE(same_pointer, run_same_pointer),
    {"zeroes", run_zeroes, .nodes_count = 3},
    ON_ONE_AND_THREE(zeroes_again, run_zeroes_again),
    {"sizes", run_sizes, .nodes_count = 2},
    {"alignment", run_alignment, .nodes_count = 2},
    ON_ONE_AND_THREE(disjoint, run_disjoint),
    {"placement", run_placement, .nodes_count = 3},
    {"realloc", run_realloc, .nodes_count = 2},
    ON_ONE_AND_THREE(free_from_any_node, run_free_from_any_node),
    {"window_is_reused", run_window_is_reused, .options = {"window.shared=64M", "window.private=64M"}},
    {"window_full", run_window_full, .options = {"window.shared=64M", "window.private=64M"}},
    ON_ONE_AND_THREE(roots, run_roots),
    {"roots_full", run_roots_full, .nodes_count = 1},
    {"refused_before_init", run_refused_before_init, .is_bare = true},
    {"refused_sizes", run_refused_sizes, .nodes_count = 2},
    {"refused_pointers", run_refused_pointers, .nodes_count = 1}, /* alone: a freed place may be another node's */
    {"refused_ranges", run_refused_ranges, .nodes_count = 2},
    {"touch_after_free", run_touch_after_free, .nodes_count = 1},
    {"after_finalize", run_after_finalize, .nodes_count = 1},
    {"config", run_config, .is_bare = true},
    {"stats_1", run_stats, .nodes_count = 1, .options = {"ddr=16M", "cxl=4M"}},
    {"stats_3", run_stats, .nodes_count = 3, .options = {"ddr=16M", "cxl=4M"}},
};

int main(int argc, char **argv)
{
    return node_test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
