/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_zmem.c - the compressed tier: every kind of page comes back as it was, by either codec; the budget holds; what
 * was changed behind its back is refused.
 */
#include "base/error.h"
#include "tests/unit/tiers/check.h"
#include "tiers/slabs.h"
#include "tiers/tier.h"

#include <errno.h>

static const char *const codecs[] = {"lz4", "zstd"};

/* ---- pages ----------------------------------------------------------------------------------------------------- */

/* `chance` bytes of 4096 are random, in short runs between zeroes: any compressed length can be had. */
static void page_mix(void *page, uint64_t number, uint32_t chance)
{
    struct random random = {number};
    uint8_t *bytes = page;

    memset(bytes, 0, PAGE_BYTES);
    for (size_t i = 0; i < PAGE_BYTES; i += 64)
        for (size_t k = 0; k < chance / 64 + (i / 64 < chance % 64); k++)
            bytes[i + k] = (uint8_t)random_next(&random);
}

static void page_repeat(void *page, uint64_t word)
{
    for (size_t i = 0; i < PAGE_BYTES / sizeof(word); i++)
        ((uint64_t *)page)[i] = word;
}

/* Kinds of pages, by number. */
static void page_make(void *page, uint64_t number)
{
    if (number % 5 == 0)
        page_repeat(page, number % 10 == 0 ? 0 : number * 0x9e3779b97f4a7c15U);
    else if (number % 7 == 0)
        page_fill(page, number); /* does not compress */
    else
        page_mix(page, number, (uint32_t)(number * 37 % 3000));
}

static bool page_is_same(struct tier *tier, struct tier_slot slot, uint64_t number)
{
    _Alignas(8) char bounce[PAGE_BYTES];
    _Alignas(8) char page[PAGE_BYTES];
    const void *bytes = tier_view(tier, slot, bounce);

    page_make(page, number);
    return bytes == bounce && memcmp(bytes, page, PAGE_BYTES) == 0;
}

static struct tier *tier_new(uint64_t size_bytes, const char *codec)
{
    struct tier *tier = NULL;

    assert_int_equal(tier_zmem_open(size_bytes, codec, &tier), 0);
    return tier;
}

static int page_store(struct tier *tier, uint64_t number, struct tier_slot *ret_slot)
{
    _Alignas(8) char page[PAGE_BYTES];

    page_make(page, number);
    return tier_store(tier, page_of(number), page, ret_slot);
}

static struct tier_counters counters_of(const struct tier *tier)
{
    struct tier_counters counters;

    tier_counters_get(tier, &counters);
    return counters;
}

/* ---- what comes back ------------------------------------------------------------------------------------------- */

static void every_length_comes_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(codecs); i++) {
        struct tier *tier = tier_new(16 << 20, codecs[i]);
        struct tier_slot slots[4097];
        _Alignas(8) char page[PAGE_BYTES];
        _Alignas(8) char bounce[PAGE_BYTES];
        unsigned refused = 0;

        for (uint32_t chance = 0; chance <= PAGE_BYTES; chance++) {
            int result;

            page_mix(page, chance, chance);
            result = tier_store(tier, page_of(chance), page, &slots[chance]);
            if (result == -E2BIG) {
                refused++;
                slots[chance] = TIER_SLOT_NONE;
                assert_true(chance > 2000);
                continue;
            }
            assert_int_equal(result, 0);
            assert_true(chance < 3000);
        }
        assert_true(refused >= 1096);
        for (uint32_t chance = 0; chance <= PAGE_BYTES; chance++) {
            size_t size_bytes;

            if (slots[chance].index == TIER_SLOT_NONE.index)
                continue;
            page_mix(page, chance, chance);
            assert_ptr_equal(tier_view(tier, slots[chance], bounce), bounce);
            assert_memory_equal(page, bounce, PAGE_BYTES);
            if (chance % 256 == 0)
                assert_non_null(tier_zmem_object(tier, slots[chance], &size_bytes));
            tier_put(tier, slots[chance]);
        }
        assert_int_equal(counters_of(tier).pages_stored, 0);
        assert_int_equal(counters_of(tier).pages_refused, refused);
        assert_int_equal(counters_of(tier).slots_used, 0);
        tier_close(tier);
    }
}

static void filled_pages_take_no_room(void **state)
{
    struct tier *tier = tier_new(1 << 20, "lz4");
    struct tier_slot slots[2000];
    _Alignas(8) char page[PAGE_BYTES];
    _Alignas(8) char bounce[PAGE_BYTES];

    (void)state;
    for (unsigned i = 0; i < 2000; i++) {
        page_repeat(page, i * 0x0101010101010101U);
        assert_int_equal(tier_store(tier, page_of(i), page, &slots[i]), 0);
    }
    assert_int_equal(counters_of(tier).physical_bytes, 0);
    assert_int_equal(counters_of(tier).pages_filled, 2000);
    assert_int_equal(tier_slots_free(tier), 256);
    for (unsigned i = 0; i < 2000; i++) {
        page_repeat(page, i * 0x0101010101010101U);
        assert_ptr_equal(tier_view(tier, slots[i], bounce), bounce);
        assert_memory_equal(page, bounce, PAGE_BYTES);
        tier_put(tier, slots[i]);
    }
    assert_int_equal(counters_of(tier).pages_filled, 0);
    /* One word that differs makes it a page like others, wherever it is. */
    for (size_t word = 0; word < 512; word += 73) {
        page_repeat(page, 3);
        ((uint64_t *)(void *)page)[word] = 4;
        assert_int_equal(tier_store(tier, page_of(word), page, &slots[0]), 0);
        assert_int_equal(counters_of(tier).pages_filled, 0);
        assert_ptr_equal(tier_view(tier, slots[0], bounce), bounce);
        assert_memory_equal(page, bounce, PAGE_BYTES);
        tier_put(tier, slots[0]);
    }
    tier_close(tier);
}

/* ---- what does not fit ----------------------------------------------------------------------------------------- */

static void a_full_tier_says_so(void **state)
{
    struct tier *tier = tier_new(1 << 20, "lz4");
    struct tier_slot slots[2000];
    struct tier_slot slot = {7};
    _Alignas(8) char page[PAGE_BYTES];
    unsigned count = 0;

    (void)state;
    assert_int_equal(tier_slots_free(tier), 256);
    for (; count < 2000; count++) {
        page_mix(page, count, 1500);
        if (tier_store(tier, page_of(count), page, &slots[count]) != 0)
            break;
    }
    assert_true(count > 450 && count < 700); /* 256 pages of room; 1500 bytes and a little for each */
    assert_int_equal(tier_store(tier, page_of(1), page, &slot), -ENOSPC);
    assert_int_equal(slot.index, 7);
    assert_int_equal(tier_slots_free(tier), 0);
    assert_true(counters_of(tier).physical_bytes <= 1 << 20);
    page_fill(page, 5);
    assert_int_equal(tier_store(tier, page_of(1), page, &slot), -E2BIG);
    page_repeat(page, 5);
    assert_int_equal(tier_store(tier, page_of(1), page, &slot), 0); /* costs no room */
    while (count > 0)
        tier_put(tier, slots[--count]);
    assert_int_equal(tier_slots_free(tier), 256);
    tier_close(tier);
}

static void wrong_sizes_and_names_are_refused(void **state)
{
    struct tier *tier = NULL;

    (void)state;
    assert_int_equal(tier_zmem_open((1 << 20) - 1, "lz4", &tier), -EINVAL);
    assert_non_null(strstr(error_text(), "1 MiB"));
    assert_int_equal(tier_zmem_open((uint64_t)1 << 60, "lz4", &tier), -EINVAL);
    assert_int_equal(tier_zmem_open(1 << 20, "lzma", &tier), -EINVAL);
    assert_non_null(strstr(error_text(), "'lzma'"));
    assert_null(tier);
}

static void budgets_change(void **state)
{
    struct tier *tier = tier_new(4 << 20, "lz4");
    struct tier_slot slots[8192];
    struct tier_slot slot;
    _Alignas(8) char page[PAGE_BYTES];
    unsigned count = 0;
    unsigned put = 0;

    (void)state;
    assert_int_equal(tier_resize(tier, 17 << 20), -ENOMEM);
    assert_non_null(strstr(error_text(), "16 MiB"));
    assert_int_equal(tier_resize(tier, 1000), -EINVAL);
    assert_int_equal(tier_resize(tier, 16 << 20), 0);
    assert_int_equal(counters_of(tier).slots_max, 4096);
    for (; count < 8192; count++) {
        page_mix(page, count, 1000);
        assert_int_equal(tier_store(tier, page_of(count), page, &slots[count]), 0);
    }
    assert_int_equal(tier_resize(tier, 2 << 20), 0);
    assert_int_equal(tier_slots_free(tier), 0);
    assert_int_equal(tier_store(tier, page_of(0), page, &slot), -ENOSPC);
    while (tier_slots_free(tier) == 0)
        tier_put(tier, slots[put++]);
    assert_true(counters_of(tier).physical_bytes <= 2 << 20);
    assert_int_equal(tier_store(tier, page_of(0), page, &slot), 0);
    while (put < count) {
        _Alignas(8) char bounce[PAGE_BYTES];

        page_mix(page, put, 1000);
        assert_ptr_equal(tier_view(tier, slots[put], bounce), bounce);
        assert_memory_equal(page, bounce, PAGE_BYTES);
        put++;
    }
    tier_close(tier);
}

/* ---- damage ---------------------------------------------------------------------------------------------------- */

/* Each bit of the stored bytes, in turn: never handed on. */
static void flipped_bits_are_found(const char *codec, uint64_t number)
{
    struct tier *tier = tier_new(1 << 20, codec);
    _Alignas(8) char bounce[PAGE_BYTES];
    struct tier_slot slot;
    size_t size_bytes;
    uint8_t *bytes;
    unsigned found = 0;
    unsigned tried = 0;

    assert_int_equal(page_store(tier, number, &slot), 0);
    bytes = tier_zmem_object(tier, slot, &size_bytes);
    for (size_t bit = 0; bit < size_bytes * 8; bit += 1 + size_bytes / 16, tried++) {
        bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ 1u << bit % 8);
        if (tier_view(tier, slot, bounce) == NULL)
            found++;
        else
            assert_true(page_is_same(tier, slot, number)); /* e.g. another copy of the same zeroes: no harm */
        bytes[bit / 8] = (uint8_t)(bytes[bit / 8] ^ 1u << bit % 8);
    }
    assert_true(tried > 30 && found >= tried / 2);
    assert_int_equal(counters_of(tier).errors, found);
    assert_true(page_is_same(tier, slot, number));
    tier_close(tier);
}

static void changed_bytes_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(codecs); i++) {
        flipped_bits_are_found(codecs[i], 11); /* compresses */
        flipped_bits_are_found(codecs[i], 25); /* one word over and over */
        flipped_bits_are_found(codecs[i], 22);
    }
}

static void injected_errors_are_seen_once(void **state)
{
    struct tier *tier = tier_new(1 << 20, "lz4");
    _Alignas(8) char bounce[PAGE_BYTES];
    struct tier_slot slot;

    (void)state;
    assert_int_equal(page_store(tier, 11, &slot), 0);
    tier_inject_errors(tier, 1);
    assert_null(tier_view(tier, slot, bounce));
    assert_true(page_is_same(tier, slot, 11));
    tier_close(tier);
}

/* ---- order, and everything at once ----------------------------------------------------------------------------- */

static void oldest_pages_are_named(void **state)
{
    struct tier *tier = tier_new(1 << 20, "lz4");
    struct tier_slot slots[100];
    struct tier_slot first;
    struct page_id pages[32];
    _Alignas(8) char page[PAGE_BYTES];

    (void)state;
    for (uint64_t i = 0; i < 100; i++) {
        page_mix(page, i, 300);
        assert_int_equal(tier_store(tier, page_of(1000 + i), page, &slots[i]), 0);
    }
    assert_int_equal(tier_oldest(tier, 32, &first, pages), 32);
    assert_int_equal(first.index, slots[0].index);
    for (uint64_t i = 0; i < 32; i++)
        assert_int_equal(pages[i].index, 1000 + i);
    for (unsigned i = 32; i < 40; i++)
        tier_put(tier, slots[i]);
    assert_int_equal(tier_oldest(tier, 32, &first, pages), 32);
    assert_int_equal(pages[0].index, 1040);
    tier_close(tier);
}

#define NUMBERS 3000u

static void random_operations(const char *codec, uint64_t seed)
{
    struct random random = {seed};
    struct tier *tier = tier_new(3 << 20, codec);
    struct tier_slot slots[NUMBERS];
    uint64_t stored = 0;

    memset(slots, 0xff, sizeof(slots));
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t number = random_below(&random, NUMBERS);

        if (slots[number].index != TIER_SLOT_NONE.index) {
            assert_true(page_is_same(tier, slots[number], number));
            if (random_below(&random, 3) == 0)
                continue;
            tier_put(tier, slots[number]);
            slots[number] = TIER_SLOT_NONE;
            stored--;
        } else {
            int result = page_store(tier, number, &slots[number]);

            assert_true(result == 0 || result == -ENOSPC || result == -E2BIG);
            assert_true(result != -E2BIG || (number % 5 != 0 && (number % 7 == 0 || number * 37 % 3000 > 2000)));
            stored += result == 0;
        }
        if (i % 4000 == 3999)
            assert_int_equal(tier_resize(tier, (1 + random_below(&random, 6)) << 20), 0);
        assert_int_equal(counters_of(tier).pages_stored, stored);
    }
    for (uint64_t number = 0; number < NUMBERS; number++) {
        if (slots[number].index == TIER_SLOT_NONE.index)
            continue;
        assert_true(page_is_same(tier, slots[number], number));
        tier_put(tier, slots[number]);
    }
    assert_int_equal(counters_of(tier).pages_stored, 0);
    assert_true(counters_of(tier).physical_bytes <= 8 * SLAB_BYTES);
    tier_close(tier);
}

static void random_operations_match_the_model(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(codecs); i++)
        for (uint64_t seed = 1; seed <= 3; seed++)
            random_operations(codecs[i], seed);
}

/* What is kept of a page beside its bytes: 24 bytes and a little. */
static void tables_are_small(void **state)
{
    struct tier *tier = tier_new(8 << 20, "lz4");
    struct tier_slot slot;
    _Alignas(8) char page[PAGE_BYTES];
    unsigned count = 20000;

    (void)state;
    assert_true(counters_of(tier).metadata_bytes < 4096);
    for (unsigned i = 0; i < count; i++) {
        page_mix(page, 1, 30);
        assert_int_equal(tier_store(tier, page_of(i), page, &slot), 0);
    }
    assert_true(counters_of(tier).metadata_bytes < count * (uint64_t)50); /* the window is up to twice what is used */
    tier_close(tier);
}

static void view_free(void *argument)
{
    _Alignas(8) char bounce[PAGE_BYTES];
    struct tier_slot slot;

    if (page_store(argument, 11, &slot) == 0)
        tier_put(argument, slot);
    (void)tier_view(argument, slot, bounce);
}

static void take_slots(void *argument)
{
    struct tier_slot slot;

    (void)tier_take(argument, 1, &slot);
}

static void broken_contracts_are_bugs(void **state)
{
    struct tier *tier = tier_new(1 << 20, "lz4");

    (void)state;
    check_aborts(view_free, tier);
    check_aborts(take_slots, tier);
    tier_close(tier);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_comes_back),
        cmocka_unit_test(filled_pages_take_no_room),
        cmocka_unit_test(a_full_tier_says_so),
        cmocka_unit_test(wrong_sizes_and_names_are_refused),
        cmocka_unit_test(budgets_change),
        cmocka_unit_test(changed_bytes_are_refused),
        cmocka_unit_test(injected_errors_are_seen_once),
        cmocka_unit_test(oldest_pages_are_named),
        cmocka_unit_test(random_operations_match_the_model),
        cmocka_unit_test(tables_are_small),
        cmocka_unit_test(broken_contracts_are_bugs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
