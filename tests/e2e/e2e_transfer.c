/* SPDX-License-Identifier: Apache-2.0 */
/*
 * e2e_transfer.c - dsm_read() and dsm_write() of every alignment, transfers in flight, prefetch and pins.
 */
#include "tests/support/node_test.h"

#include <signal.h>

#define AREA ((size_t)64 * DSM_PAGE_BYTES)

static char *other(char *memory, size_t each)
{
    return memory + (size_t)((dsm_node_id() + 1) % dsm_node_count()) * each;
}

static char *own(char *memory, size_t each)
{
    return memory + (size_t)dsm_node_id() * each;
}

static void bytes_fill(unsigned char *bytes, size_t size, uint64_t seed)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)((seed + i) * 2654435761U >> 13);
}

static bool bytes_are(const unsigned char *bytes, size_t size, uint64_t seed)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != (unsigned char)((seed + i) * 2654435761U >> 13)) {
            fprintf(stderr, "node %d: byte %zu of %zu at %p is wrong\n", dsm_node_id(), i, size,
                    (const void *)(bytes + i));
            return false;
        }
    return true;
}

/* ---- blocking -------------------------------------------------------------------------------------------------------
 */

/* Each node writes its part at odd places with odd sizes, all others read it the same way; edges stay untouched. */
static void run_alignments(void)
{
    static const size_t sizes[] = {1, 3, 8, 13, 4095, 4096, 4097, 8192 + 5, 3 * 4096 - 1, 20 * 4096 + 77};
    static unsigned char buffer[AREA];
    unsigned char *memory = node_share("area", AREA * (size_t)dsm_node_count());

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
        for (size_t offset = 4096 - 9; offset < 4096 + 9; offset += 3) {
            unsigned char *mine = (unsigned char *)own((char *)memory, AREA);
            unsigned char *theirs = (unsigned char *)other((char *)memory, AREA);
            uint64_t seed = s * 100 + offset;

            mine[offset - 1] = mine[offset + sizes[s]] = 0xee;
            bytes_fill(buffer, sizes[s], seed);
            CHECK_OK(dsm_write(mine + offset, buffer, sizes[s], 0, NULL));
            CHECK(bytes_are(mine + offset, sizes[s], seed));
            CHECK_IS(mine[offset - 1], 0xee);
            CHECK_IS(mine[offset + sizes[s]], 0xee);
            CHECK_OK(dsm_barrier());
            memset(buffer, 0, sizes[s] + 8);
            CHECK_OK(dsm_read(buffer + 3, theirs + offset, sizes[s], 0, NULL));
            CHECK(bytes_are(buffer + 3, sizes[s], seed));
            CHECK(buffer[2] == 0 && buffer[3 + sizes[s]] == 0);
            CHECK_OK(dsm_barrier());
        }
}

/* Remote bytes are written without being read first, and read without being taken. */
static void run_remote_write(void)
{
    static unsigned char buffer[AREA];
    char *memory = node_share("area", AREA * (size_t)dsm_node_count());

    for (uint64_t round = 1; round < 8; round++) {
        size_t offset = round * 321;

        bytes_fill(buffer, AREA - 4000, round + (uint64_t)dsm_node_id());
        CHECK_OK(dsm_write(other(memory, AREA) + offset, buffer, AREA - 4000, 0, NULL));
        CHECK_OK(dsm_barrier());
        CHECK(bytes_are((unsigned char *)own(memory, AREA) + offset, AREA - 4000,
                        round + (uint64_t)((dsm_node_id() + dsm_node_count() - 1) % dsm_node_count())));
        CHECK_OK(dsm_barrier());
    }
}

/* Runs of pages of each state at their home: never touched, written there, written elsewhere. */
static void run_bulk_of_mixed_pages(void)
{
    const size_t size = (size_t)3 << 20;
    unsigned char *memory = node_share("bulk", size);
    unsigned char *copy = malloc(size);

    CHECK(copy != NULL);
    for (size_t page = 0; page < size / DSM_PAGE_BYTES; page++)
        if (page % 4 != 3 && page % (size_t)dsm_node_count() == (size_t)dsm_node_id())
            page_fill(memory + page * DSM_PAGE_BYTES, page, 5);
    CHECK_OK(dsm_barrier());
    CHECK_OK(dsm_read(copy, memory, size, 0, NULL));
    for (size_t page = 0; page < size / DSM_PAGE_BYTES; page++)
        if (page % 4 != 3)
            CHECK(page_is_filled(copy + page * DSM_PAGE_BYTES, page, 5));
        else
            CHECK(copy[page * DSM_PAGE_BYTES] == 0 && copy[page * DSM_PAGE_BYTES + 4095] == 0);
    CHECK_OK(dsm_barrier());
    free(copy);
}

#define BULK_BYTES              ((size_t)5 << 20)
#define BULK_ROUNDS             4
#define BULK_WORD(round, index) ((uint64_t)(round) << 32 | (uint64_t)(index))

static uint64_t *bulk_words;
static unsigned bulk_round;

/* Each thread another part, none on the border of a page; every word is that of the round. */
static void bulk_read_part(unsigned thread)
{
    const size_t first = 3 + (size_t)thread * 1000;
    const size_t count = BULK_BYTES / 8 - 5000;
    uint64_t *copy = malloc(count * 8);

    CHECK(copy != NULL);
    CHECK_OK(dsm_read(copy, bulk_words + first, count * 8, 0, NULL));
    for (size_t i = 0; i < count; i++)
        CHECK(copy[i] == BULK_WORD(bulk_round, first + i));
    free(copy);
}

/* Runs of several MiB, by more threads than slices; where RDMA is a must they go by it. */
static void run_bulk_by_threads(void)
{
    bulk_words = (uint64_t *)(void *)node_share("words", BULK_BYTES);
    for (bulk_round = 1; bulk_round <= BULK_ROUNDS; bulk_round++) {
        for (size_t i = 0; dsm_node_id() == 0 && i < BULK_BYTES / 8; i++)
            bulk_words[i] = BULK_WORD(bulk_round, i);
        CHECK_OK(dsm_barrier());
        if (dsm_node_id() == 1)
            threads_run(bulk_round % 2 == 0 ? 3 : 1, bulk_read_part);
        CHECK_OK(dsm_barrier());
    }
    if (dsm_node_id() == 1 && getenv("TIERMESH_TEST_NEEDS_VERBS") != NULL)
        CHECK(node_stats().one_sided_bytes >= BULK_BYTES);
    CHECK_OK(dsm_barrier());
}

/* The home dies in the middle of reads: those say so, and none brings anything but what was written. */
static void run_home_dies_while_read(void)
{
    uint64_t *copy = malloc(BULK_BYTES);
    unsigned reads_count = 0;
    int error;

    CHECK(copy != NULL);
    bulk_words = (uint64_t *)(void *)node_share("words", BULK_BYTES);
    for (size_t i = 0; dsm_node_id() == 0 && i < BULK_BYTES / 8; i++)
        bulk_words[i] = BULK_WORD(7, i);
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() == 0) {
        sleep_ms(300);
        raise(SIGKILL);
    }
    while ((error = dsm_read(copy, bulk_words, BULK_BYTES, 0, NULL)) == 0) {
        for (size_t i = 0; i < BULK_BYTES / 8; i++)
            CHECK(copy[i] == BULK_WORD(7, i));
        memset(copy, 0, BULK_BYTES);
        reads_count++;
    }
    printf("%u reads, then an error\n", reads_count);
    CHECK(error == -EIO || error == -EHOSTDOWN);
    free(copy);
}

static bool judge_home_dies(const struct node_outcome *outcome)
{
    return outcome->status == 128 + SIGKILL && strstr(outcome->text, "FAILED") == NULL &&
           outcome_says(outcome, "reads, then an error");
}

/* A private range works too, and a managed buffer on either side. */
static void run_private_and_managed(void)
{
    struct dsm_attributes attributes = {.kind = DSM_PRIVATE};
    unsigned char *shared = node_share("area", AREA * (size_t)dsm_node_count());
    unsigned char *mine = (unsigned char *)own((char *)shared, AREA);
    unsigned char *private;

    CHECK_OK(dsm_malloc_with(AREA, &attributes, (void **)&private));
    bytes_fill(private, AREA, 9);
    CHECK_OK(dsm_write(mine, private, AREA, 0, NULL));
    CHECK(bytes_are(mine, AREA, 9));
    memset(private, 0, AREA);
    CHECK_OK(dsm_read(private + 11, mine, AREA - 11, 0, NULL));
    CHECK(bytes_are(private + 11, AREA - 11, 9));
    CHECK_OK(dsm_write(private + 5, mine, 10000, 0, NULL));
    CHECK(bytes_are(private + 5, 10000, 9));
    CHECK_OK(dsm_barrier());
}

/*
 * Every node copies from the next one's part straight into its own part, which its neighbour reads meanwhile: a pin
 * that was held across a fault of the buffer would stop all of them.
 */
static unsigned char *crosswise;

static void copy_crosswise(unsigned thread)
{
    for (int i = 0; i < 40; i++) {
        size_t offset = ((size_t)i * 7 % 24 + thread * 32) * DSM_PAGE_BYTES + (size_t)i;
        size_t size = 3 * DSM_PAGE_BYTES;
        unsigned char *mine = (unsigned char *)own((char *)crosswise, AREA) + offset;
        unsigned char *theirs = (unsigned char *)other((char *)crosswise, AREA) + offset;

        if (i % 2 == 0)
            CHECK_OK(dsm_read(mine, theirs, size, 0, NULL));
        else
            CHECK_OK(dsm_write(theirs, mine, size, 0, NULL));
    }
}

static void run_crosswise(void)
{
    crosswise = node_share("cross", AREA * (size_t)dsm_node_count());
    memset(own((char *)crosswise, AREA), 0x77, AREA);
    CHECK_OK(dsm_barrier());
    threads_run(2, copy_crosswise);
    CHECK_OK(dsm_barrier());
    for (size_t i = 0; i < AREA * (size_t)dsm_node_count(); i += 511)
        CHECK_IS(crosswise[i], 0x77);
    CHECK_OK(dsm_barrier());
}

/* ---- in flight
 * ------------------------------------------------------------------------------------------------------------ */

static void transfer_end(struct dsm_transfer *transfer, int how)
{
    int result;

    if (how == 0) {
        CHECK_OK(dsm_wait(transfer, DSM_FOREVER));
    } else if (how == 1) {
        CHECK_OK(dsm_wait(transfer, 5 * SECOND_NS));
    } else {
        while ((result = dsm_test(transfer)) == -EAGAIN)
            ;
        CHECK_OK(result);
    }
    CHECK_ERROR(dsm_wait(transfer, 0), -EINVAL);
}

static void run_nowait(void)
{
    enum { COUNT = 12 };
    static unsigned char buffers[COUNT][5 * DSM_PAGE_BYTES];
    struct dsm_transfer transfers[COUNT] = {{{0}}};
    unsigned char *memory = node_share("area", AREA * (size_t)dsm_node_count());
    unsigned char *mine = (unsigned char *)own((char *)memory, AREA);
    unsigned char *theirs = (unsigned char *)other((char *)memory, AREA);

    for (int i = 0; i < COUNT; i++) {
        bytes_fill(buffers[i], sizeof(buffers[i]), (uint64_t)i);
        CHECK_OK(dsm_write(mine + (size_t)i * sizeof(buffers[i]) + 3, buffers[i], sizeof(buffers[i]), DSM_NOWAIT,
                           &transfers[i]));
    }
    CHECK_ERROR(dsm_write(mine, buffers[0], 8, DSM_NOWAIT, &transfers[0]), -EINVAL);
    for (int i = 0; i < COUNT; i++)
        transfer_end(&transfers[i], i % 3);
    CHECK_OK(dsm_barrier());
    for (int i = COUNT; i-- > 0;) {
        memset(buffers[i], 0, sizeof(buffers[i]));
        CHECK_OK(dsm_read(buffers[i], theirs + (size_t)i * sizeof(buffers[i]) + 3, sizeof(buffers[i]), DSM_NOWAIT,
                          &transfers[i]));
    }
    for (int i = 0; i < COUNT; i++) {
        transfer_end(&transfers[i], (i + 1) % 3);
        CHECK(bytes_are(buffers[i], sizeof(buffers[i]), (uint64_t)i));
    }
    CHECK_OK(dsm_barrier());
}

/* One that is larger than the DDR budget ends too. */
static void run_nowait_larger_than_ddr(void)
{
    const size_t size = (size_t)12 << 20;
    unsigned char *memory = node_share("large", size);
    unsigned char *buffer = calloc(1, size);
    struct dsm_transfer transfer = {{0}};

    CHECK(buffer != NULL);
    if (dsm_node_id() == 0) {
        bytes_fill(buffer, size, 4);
        CHECK_OK(dsm_write(memory, buffer, size, DSM_NOWAIT, &transfer));
        transfer_end(&transfer, 2);
    }
    CHECK_OK(dsm_barrier());
    memset(buffer, 0, size);
    CHECK_OK(dsm_read(buffer, memory, size, DSM_NOWAIT, &transfer));
    transfer_end(&transfer, 1);
    CHECK(bytes_are(buffer, size, 4));
    CHECK_OK(dsm_barrier());
    free(buffer);
}

/* ---- hints
 * --------------------------------------------------------------------------------------------------------------------
 */

static void run_prefetch(void)
{
    char *memory = node_share("area", AREA);
    uint64_t deadline_ns;

    if (dsm_node_id() == 0)
        for (size_t i = 0; i < 64; i++)
            page_fill(memory + i * DSM_PAGE_BYTES, i, 1);
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() == 1) {
        struct dsm_stats before;
        struct dsm_stats after;

        CHECK_OK(dsm_prefetch(memory + 100, 32 * DSM_PAGE_BYTES));
        deadline_ns = now_ns() + 5 * SECOND_NS;
        while (node_stats().tier_pages[DSM_TIER_DDR] < 32 && now_ns() < deadline_ns)
            sleep_ms(1);
        before = node_stats();
        for (size_t i = 0; i < 32; i++)
            CHECK(page_is_filled(memory + i * DSM_PAGE_BYTES, i, 1));
        after = node_stats();
        CHECK_IS(after.faults[DSM_FROM_REMOTE].count, before.faults[DSM_FROM_REMOTE].count); /* all were here */
    }
    CHECK_OK(dsm_barrier());
}

/* ---- pins
 * ---------------------------------------------------------------------------------------------------------------------
 */

static void run_pins(void)
{
    char *memory = node_share("area", AREA);

    if (dsm_node_id() == 0)
        memset(memory, 1, AREA);
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() == 1) {
        CHECK_OK(dsm_pin(memory + 100, 8 * DSM_PAGE_BYTES, 1, 0));
        CHECK_IS(node_stats().pinned_pages, 9);
        CHECK_ERROR(dsm_unpin(memory, 8 * DSM_PAGE_BYTES), -EINVAL);
        memset(memory + 100, 2, 8 * DSM_PAGE_BYTES);
    }
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() == 1) {
        sleep_ms(300);
        CHECK_IS(memory[DSM_PAGE_BYTES], 2); /* node 0 wants to store 3 since a while */
        CHECK_OK(dsm_unpin(memory + 100, 8 * DSM_PAGE_BYTES));
        CHECK_IS(node_stats().pinned_pages, 0);
    } else if (dsm_node_id() == 0) {
        uint64_t start_ns = now_ns();

        memory[DSM_PAGE_BYTES] = 3;
        CHECK(now_ns() - start_ns > 150 * MILLISECOND_NS);
    }
    CHECK_OK(dsm_barrier());
    CHECK_IS(memory[DSM_PAGE_BYTES], 3);
    CHECK_IS(memory[2 * DSM_PAGE_BYTES], 2);
    CHECK_OK(dsm_barrier());
}

/* A forgotten pin ends by itself, with a log line, and its owner is told. */
static void run_pin_timeout(void)
{
    char *memory = node_share("area", AREA);

    if (dsm_node_id() == 1)
        CHECK_OK(dsm_pin(memory, AREA, 1, 300 * MILLISECOND_NS));
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() == 0)
        memset(memory, 5, AREA);
    CHECK_OK(dsm_barrier());
    if (dsm_node_id() == 1) {
        CHECK_ERROR(dsm_unpin(memory, AREA), -ETIMEDOUT);
        CHECK_ERROR(dsm_unpin(memory, AREA), -EINVAL);
        CHECK_IS(node_stats().pinned_pages, 0);
    }
    CHECK_OK(dsm_barrier());
}

static bool judge_pin_timeout(const struct node_outcome *outcome)
{
    return outcome->status == 0 && outcome_says(outcome, "ended by its timeout");
}

static void run_pins_bounded(void)
{
    struct dsm_attributes attributes = {.kind = DSM_PRIVATE};
    char *memory = node_share("large", 16 << 20);
    char *private;

    CHECK_ERROR(dsm_pin(memory, 5 << 20, 1, 0), -ENOMEM);
    CHECK_OK(dsm_malloc_with(16 << 20, &attributes, (void **)&private));
    CHECK_ERROR(dsm_pin(private, 5 << 20, 1, 0), -ENOMEM);
    CHECK_OK(dsm_pin(private, 1 << 20, 1, 0));
    memset(private, 7, 16 << 20); /* the pinned pages stay while the others pass through DDR */
    CHECK_OK(dsm_unpin(private, 1 << 20));
    for (size_t i = 0; i < 16 << 20; i += 4000)
        CHECK_IS(private[i], 7);
    CHECK_IS(node_stats().pinned_pages, 0);
    CHECK_OK(dsm_barrier());
}

static const struct node_case cases[] = {
    {"alignments_1", run_alignments, .nodes_count = 1},
    {"alignments_3", run_alignments, .nodes_count = 3},
    {"remote_write", run_remote_write, .nodes_count = 3},
    {"bulk_of_mixed_pages", run_bulk_of_mixed_pages, .nodes_count = 3, .options = {"ddr=4M", "cxl=2M", "nvme=16M:%D"}},
    {"bulk_by_threads", run_bulk_by_threads, .nodes_count = 2, .timeout_s = 60},
    {"home_dies_while_read", run_home_dies_while_read, .nodes_count = 2, .judge = judge_home_dies, .timeout_s = 60},
    {"private_and_managed", run_private_and_managed, .nodes_count = 2},
    {"crosswise", run_crosswise, .nodes_count = 3},
    {"nowait_1", run_nowait, .nodes_count = 1},
    {"nowait_3", run_nowait, .nodes_count = 3},
    {"nowait_larger_than_ddr", run_nowait_larger_than_ddr, .nodes_count = 2,
     .options = {"ddr=4M", "cxl=4M", "nvme=32M:%D"}},
    {"prefetch", run_prefetch, .nodes_count = 2},
    {"pins", run_pins, .nodes_count = 2},
    {"pin_timeout", run_pin_timeout, .nodes_count = 2, .judge = judge_pin_timeout},
    {"pins_bounded", run_pins_bounded, .nodes_count = 2, .options = {"ddr=8M", "cxl=4M", "nvme=32M:%D"}},
};

int main(int argc, char **argv)
{
    return node_test_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
