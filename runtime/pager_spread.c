/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager_spread.c - pages that are in memory, between DDR and slower memory that is used in place (CXL as NUMA nodes).
 *
 * Runs on the shard's thread before it blocks. A page moves while it is mapped, by move_pages: whoever touches it
 * meanwhile waits in the kernel, and the protocol, pins and the rest of the pager see nothing of it. Which pages move
 * is tiers/spread.c's; here they are sampled: unmapped into limbo, until a touch comes or the watch is over.
 *
 * Always holds: a frame's note names its entry in the ring, if it is sampled; an entry that its frame does not name, or
 * whose frame has another page, is stale and is passed over.
 */
#include "runtime/pager_internal.h"
#include "tiers/spread.h"

#include <errno.h>
#include <string.h>

#define SAMPLES_MAX  2048u /* under watch at a time */
#define SAMPLES_STEP 16u   /* begun in one tick: a soft fault each, if they are in use, */
#define SAMPLES_MOST 32u   /* and so many while few are */
#define MOVE_BATCH   PAGER_BATCH
#define NEAR_ROUNDS  4 /* batches that make room in one go */
#define FRESH_STEP   4 /* private extents that come under management in one go */
#define TICK_NS      UINT64_C(10000000)
#define TICK_NS_IDLE UINT64_C(80000000)    /* when nothing that was sampled has been touched */
#define IDLE_NS      UINT64_C(10000000000) /* for so long */
#define WATCH_NS     UINT64_C(100000000)   /* before anything is known */
#define WATCH_NS_MIN UINT64_C(20000000)
#define WATCH_NS_MAX UINT64_C(2000000000)
#define SWEEP_NS     UINT64_C(10000000000) /* over all pages, as far as that is up to the time they are watched */
#define SHUT_NS      UINT64_C(10000000000) /* far memory that refused is tried again */

struct sample {
    struct frame_id frame;
    struct page_id page;
    uint64_t start_ns;
};

struct pager_spread {
    struct spread *spread;
    const struct numa_ops *numa;
    struct sample samples[SAMPLES_MAX]; /* a ring, oldest first */
    unsigned samples_first, samples_count;
    uint64_t tick_at_ns, tick_ns;
    uint64_t touched_at_ns;
    unsigned touched;    /* a sample, since the last tick */
    uint64_t shut_at_ns; /* 0: far memory is open */
    bool is_gone;        /* and while it is shut: there is no such node */
    bool was_told;       /* the sentence is said once */
    bool is_hurried;     /* the next round is wanted at once */
    unsigned far_hand;
};

/* Pages that move together. */
struct movers {
    struct frame_id frames[MOVE_BATCH];
    void *addresses[MOVE_BATCH];
    int nodes[MOVE_BATCH]; /* first where to, then where they are */
    unsigned count;
};

/* ---- set-up ---------------------------------------------------------------------------------------------------- */

int pager_spread_create(struct pager *pager)
{
    struct pager_spread *spread;
    void *memory;
    int error;

    if (pager->config.far.bytes == 0)
        return 0;
    ASSERT(pager->config.far.nodes_count > 0);
    error = os_pages_map(sizeof(*spread), &memory);
    if (error != 0)
        return error;
    spread = memory;
    error = os_pages_map(spread_bytes(pager->table_frames), &memory);
    if (error != 0) {
        os_pages_unmap(spread, sizeof(*spread));
        return error;
    }
    spread->spread = memory;
    spread->numa = pager->config.far.numa != NULL ? pager->config.far.numa : &numa_kernel;
    spread->tick_ns = TICK_NS;
    spread->touched_at_ns = os_now_ns();
    spread_init(spread->spread, pager->table_frames);
    pager->spread = spread;
    return 0;
}

void pager_spread_destroy(struct pager *pager)
{
    if (pager->spread == NULL)
        return;
    os_pages_unmap(pager->spread->spread, spread_bytes(pager->table_frames));
    os_pages_unmap(pager->spread, sizeof(*pager->spread));
}

/* ---- what the rest of the pager tells -------------------------------------------------------------------------- */

/* The kernel takes new pages from the processor's own node, while it has room there. */
void pager_spread_inserted(struct pager *pager, struct frame_id frame)
{
    if (pager->spread != NULL)
        spread_inserted(pager->spread->spread, frame, SPREAD_NEAR);
}

void pager_spread_forgotten(struct pager *pager, struct frame_id frame)
{
    if (pager->spread != NULL)
        spread_forgotten(pager->spread->spread, frame);
}

uint32_t pager_far_used(const struct pager *pager)
{
    return pager->spread != NULL ? spread_count(pager->spread->spread, SPREAD_FAR) : 0;
}

static struct sample *sample_at(struct pager_spread *spread, unsigned i)
{
    return &spread->samples[(spread->samples_first + i) % SAMPLES_MAX];
}

void pager_spread_touched(struct pager *pager, struct frame_id frame)
{
    struct pager_spread *spread = pager->spread;
    struct page_id page = frames_page(pager->frames, frame);

    const struct sample *sample = &spread->samples[pager->notes[frame.index].sample - 1];

    pager->notes[frame.index].sample = 0;
    spread->touched++;
    if (sample->frame.index == frame.index && page_is(sample->page, page))
        spread_sampled(spread->spread, frame, os_now_ns() - sample->start_ns, true);
}

/* ---- where pages are -------------------------------------------------------------------------------------------- */

static int near_of(const struct pager *pager, int node)
{
    for (unsigned i = 0; i < pager->config.far.nodes_count; i++)
        if (node == (int)pager->config.far.nodes[i].number)
            return (int)pager->config.far.nodes[i].near;
    return -1;
}

static enum spread_part part_of(const struct pager *pager, int node)
{
    return near_of(pager, node) >= 0 ? SPREAD_FAR : SPREAD_NEAR;
}

/* Where the page is mapped, in the application or in limbo. NULL: nowhere, so it cannot be moved now. */
static void *address_of(struct pager *pager, struct frame_id frame)
{
    struct page_id page = frames_page(pager->frames, frame);
    struct page_entry *entry = pager_entry(pager, page);
    uint32_t place;

    if (pager->shared_is_shut && pager_is_shared(pager, page))
        return NULL;
    if (page_where(entry) == WHERE_MAPPED)
        return mmu_page_address(pager->window, page);
    place = pager_is_shared(pager, page) ? PAGER_LIMBO_NONE : pager_limbo_place(pager, page);
    return place == PAGER_LIMBO_NONE ? NULL : pager_limbo_address(pager, place);
}

static void movers_gather(struct pager *pager, struct movers *movers, const struct frame_id *frames, unsigned count)
{
    movers->count = 0;
    for (unsigned i = 0; i < count; i++) {
        void *address = address_of(pager, frames[i]);

        if (address == NULL)
            continue;
        movers->frames[movers->count] = frames[i];
        movers->addresses[movers->count++] = address;
    }
}

/* The kernel may have moved pages, or found no room near: what it says holds. */
static bool movers_find(struct pager *pager, struct movers *movers)
{
    struct pager_spread *spread = pager->spread;

    if (movers->count == 0 || spread->numa->where(movers->addresses, movers->count, movers->nodes) != 0)
        return false;
    for (unsigned i = 0; i < movers->count; i++)
        if (movers->nodes[i] >= 0)
            spread_found(spread->spread, movers->frames[i], part_of(pager, movers->nodes[i]));
    return true;
}

/* ---- moving ----------------------------------------------------------------------------------------------------- */

/*
 * Far memory is gone or full: what is there may stay, no more comes, and the budget follows. Of a full node we keep the
 * room that we have; of one that is gone, pages turn out to be near as the kernel moves them.
 */
static void far_shut(struct pager *pager, int error)
{
    struct pager_spread *spread = pager->spread;

    if (spread->shut_at_ns != 0)
        return; /* once in a while: what leaves in between leaves room that is ours again */
    spread->shut_at_ns = os_now_ns();
    spread->is_gone = error == -ENODEV;
    if (!spread->was_told)
        log_warn("CXL memory in place takes no more pages (%s); %u MiB of %u MiB are there, and the budget follows",
                 error == -ENODEV ? "its node is gone" : "its node is full", pager_far_used(pager) >> 8,
                 pager->far_frames >> 8);
    spread->was_told = true;
    if (pager_far_used(pager) < pager->far_frames)
        pager_far_set(pager, pager_far_used(pager));
}

static void far_retry(struct pager *pager, uint64_t now_ns)
{
    struct pager_spread *spread = pager->spread;

    if (spread->shut_at_ns == 0)
        return;
    if (now_ns - spread->shut_at_ns >= SHUT_NS) {
        spread->shut_at_ns = 0;
        spread->is_gone = false;
        pager_far_set(pager, pager->far_wish_frames);
    } else if (spread->is_gone && pager_far_used(pager) < pager->far_frames) {
        pager_far_set(pager, pager_far_used(pager));
    }
}

/* movers->nodes says where to. Returns how many moved; *ret_error: what kept all of them, or 0. */
static unsigned movers_move(struct pager *pager, struct movers *movers, enum spread_part to, int *ret_error)
{
    struct pager_spread *spread = pager->spread;
    enum dsm_tier from = to == SPREAD_FAR ? DSM_TIER_DDR : DSM_TIER_CXL;
    int wanted[MOVE_BATCH];
    unsigned moved = 0;

    *ret_error = 0;
    memcpy(wanted, movers->nodes, sizeof(wanted));
    if (movers->count > 0)
        *ret_error = spread->numa->move(movers->addresses, wanted, movers->count, movers->nodes);
    for (unsigned i = 0; *ret_error == 0 && i < movers->count; i++) {
        if (movers->nodes[i] == wanted[i]) {
            spread_found(spread->spread, movers->frames[i], to);
            moved++;
        } else { /* pinned, shared by fork, no room: others first, as if it had just been used */
            spread_sampled(spread->spread, movers->frames[i], 0, true);
        }
    }
    pager->stats.moves[from][to == SPREAD_FAR ? DSM_TIER_CXL : DSM_TIER_DDR] += moved;
    if (*ret_error == 0 && moved == 0 && movers->count > 0 && movers->nodes[0] == -ENOMEM)
        *ret_error = -ENOMEM;
    return moved;
}

static unsigned send_far(struct pager *pager, unsigned wanted)
{
    struct pager_spread *spread = pager->spread;
    uint32_t far_room = pager->far_frames > pager_far_used(pager) ? pager->far_frames - pager_far_used(pager) : 0;
    struct frame_id frames[MOVE_BATCH];
    struct movers movers;
    unsigned count;
    unsigned moved;
    int error;

    wanted = wanted < MOVE_BATCH ? wanted : MOVE_BATCH;
    wanted = wanted < far_room ? wanted : far_room;
    if (wanted == 0 || spread->is_gone)
        return 0;
    count = spread_coldest(spread->spread, frames, wanted);
    movers_gather(pager, &movers, frames, count);
    for (unsigned i = 0; i < movers.count; i++)
        movers.nodes[i] = (int)pager->config.far.nodes[spread->far_hand % pager->config.far.nodes_count].number;
    spread->far_hand++;
    moved = movers_move(pager, &movers, SPREAD_FAR, &error);
    if (error == -ENODEV || error == -ENOMEM)
        far_shut(pager, error);
    return moved;
}

static uint32_t near_frames(const struct pager *pager)
{
    return pager->wanted_frames - pager->far_frames;
}

static uint32_t near_used(const struct pager *pager)
{
    return pager_frames_used(pager) - pager_far_used(pager);
}

/*
 * Private extents that the kernel fills by itself are charged whole, as near memory: those come under management first,
 * and no page goes far for what may be empty. true: more of them are left, and the next round is soon.
 */
static bool fresh_register(struct pager *pager)
{
    for (int i = 0; i < FRESH_STEP && pager->fresh_count > 0; i++)
        if (pager_private_register_some(pager) != 0)
            return false;
    return pager->fresh_count > 0;
}

static void near_make_room(struct pager *pager)
{
    struct placement_marks marks = placement_marks_of(near_frames(pager));

    pager->spread->is_hurried = false;
    if (near_used(pager) + marks.low <= near_frames(pager))
        return;
    if (fresh_register(pager)) {
        pager->spread->is_hurried = true;
        return;
    }
    for (int round = 0; round < NEAR_ROUNDS && near_used(pager) + marks.high > near_frames(pager); round++)
        if (send_far(pager, near_used(pager) + marks.high - near_frames(pager)) == 0)
            return;
}

static void bring_near(struct pager *pager)
{
    struct pager_spread *spread = pager->spread;
    struct placement_marks marks = placement_marks_of(near_frames(pager));
    uint32_t used = near_used(pager) + marks.high;
    uint32_t room = used < near_frames(pager) ? near_frames(pager) - used : 0;
    struct frame_id frames[MOVE_BATCH];
    struct movers movers;
    unsigned kept = 0;
    int error;

    movers_gather(pager, &movers, frames, spread_hottest(spread->spread, room, frames, MOVE_BATCH / 2));
    if (!movers_find(pager, &movers))
        return;
    for (unsigned i = 0; i < movers.count; i++) {
        int near = near_of(pager, movers.nodes[i]);

        if (near < 0)
            continue;
        movers.frames[kept] = movers.frames[i];
        movers.addresses[kept] = movers.addresses[i];
        movers.nodes[kept++] = near;
    }
    movers.count = kept;
    (void)movers_move(pager, &movers, SPREAD_NEAR, &error);
}

/* ---- samples ----------------------------------------------------------------------------------------------------- */

static uint64_t watch_ns(const struct pager *pager)
{
    uint64_t time_ns = spread_watch_ns(pager->spread->spread);
    uint64_t most_ns = SAMPLES_MAX * SWEEP_NS / (pager_frames_used(pager) + 1);

    if (time_ns == 0)
        time_ns = WATCH_NS;
    if (time_ns > most_ns)
        time_ns = most_ns;
    if (time_ns < WATCH_NS_MIN)
        return WATCH_NS_MIN;
    return time_ns < WATCH_NS_MAX ? time_ns : WATCH_NS_MAX;
}

/* Mapped again, and first to leave: nobody wanted it. */
static void sample_put_back(struct pager *pager, struct frame_id frame, struct page_id page)
{
    struct page_entry *entry = pager_entry(pager, page);
    int error;

    if (page_where(entry) != WHERE_LIMBO || page_rights(entry) == ACCESS_NONE || page_has(entry, WORD_CLAIMED))
        return;
    if (pager_is_shared(pager, page)) {
        bool writable = pager_want_writable(pager, entry, false);

        if (pager->shared_is_shut)
            return;
        page_set_where(entry, WHERE_MAPPED, frame.index);
        page_word_change(entry, 0, writable ? WORD_WRITABLE : 0);
        error = mmu_continue(pager->mmu, page, 1, writable);
    } else {
        error = pager_limbo_restore(pager, page, entry, false);
    }
    if (error != 0)
        log_warn("map page %lu again: %s", page.index, strerror(-error)); /* its next touch will */
    else
        frames_push_head(pager->frames, frame, FRAME_MAPPED);
}

static void samples_end(struct pager *pager, uint64_t now_ns)
{
    struct pager_spread *spread = pager->spread;
    uint64_t time_ns = watch_ns(pager);

    while (spread->samples_count > 0) {
        struct sample sample = *sample_at(spread, 0);
        bool is_live = pager->notes[sample.frame.index].sample == spread->samples_first + 1 &&
                       page_is(frames_page(pager->frames, sample.frame), sample.page);

        if (is_live && now_ns - sample.start_ns < time_ns)
            return;
        spread->samples_first = (spread->samples_first + 1) % SAMPLES_MAX;
        spread->samples_count--;
        if (!is_live)
            continue;
        pager->notes[sample.frame.index].sample = 0;
        spread_sampled(spread->spread, sample.frame, now_ns - sample.start_ns, false);
        sample_put_back(pager, sample.frame, sample.page);
    }
}

/* Mapped, asked for, not pinned, and such that its touch will be seen. */
static bool can_sample(struct pager *pager, struct frame_id frame)
{
    struct page_id page = frames_page(pager->frames, frame);
    struct page_entry *entry = pager_entry(pager, page);
    enum frame_list list = frames_list(pager->frames, frame);

    if (page_where(entry) != WHERE_MAPPED || page_has(entry, WORD_PINS | WORD_REVOKING | WORD_CLAIMED))
        return false;
    if (pager_is_shared(pager, page) ? pager->shared_is_shut : pager->limbo == NULL)
        return false;
    return (list == FRAME_MAPPED || list == FRAME_TRIAL) && pager->notes[frame.index].ahead == AHEAD_NONE;
}

static void samples_note(struct pager *pager, const struct frame_id *frames, unsigned count, uint64_t now_ns)
{
    struct pager_spread *spread = pager->spread;

    for (unsigned i = 0; i < count; i++) {
        struct page_id page = frames_page(pager->frames, frames[i]);
        struct sample *sample;

        if (page_where(pager_entry(pager, page)) != WHERE_LIMBO)
            continue; /* could not be unmapped */
        sample = sample_at(spread, spread->samples_count++);
        *sample = (struct sample){frames[i], page, now_ns};
        pager->notes[frames[i].index].sample = (uint16_t)(sample - spread->samples + 1);
    }
}

static void samples_begin(struct pager *pager, uint64_t now_ns)
{
    struct pager_spread *spread = pager->spread;
    unsigned room = SAMPLES_MAX - spread->samples_count;
    unsigned step = spread->touched < SAMPLES_STEP / 2 ? SAMPLES_MOST : SAMPLES_STEP;
    struct frame_id frames[SAMPLES_MOST];
    struct movers movers;
    unsigned kept = 0;
    unsigned count = spread_next(spread->spread, frames, room < step ? room : step);

    for (unsigned i = 0; i < count; i++)
        if (can_sample(pager, frames[i]))
            frames[kept++] = frames[i];
    movers_gather(pager, &movers, frames, kept);
    (void)movers_find(pager, &movers);
    for (unsigned i = 0; i < kept;)
        i += pager_unmap_run(pager, &frames[i], kept - i);
    samples_note(pager, frames, kept, now_ns);
}

/* ---- one round --------------------------------------------------------------------------------------------------- */

/* While all fits into near memory there is nothing to decide. */
static bool is_at_work(const struct pager *pager)
{
    return pager_far_used(pager) > 0 || pager->spread->shut_at_ns != 0 || pager->spread->samples_count > 0;
}

static void tick(struct pager *pager, uint64_t now_ns)
{
    struct pager_spread *spread = pager->spread;

    far_retry(pager, now_ns);
    samples_end(pager, now_ns);
    if (pager_far_used(pager) > 0)
        samples_begin(pager, now_ns);
    bring_near(pager);
    if (spread->touched > 0)
        spread->touched_at_ns = now_ns;
    spread->tick_ns = now_ns - spread->touched_at_ns < IDLE_NS ? TICK_NS : TICK_NS_IDLE;
    spread->touched = 0;
    spread->tick_at_ns = now_ns + spread->tick_ns;
}

void pager_spread_some(struct pager *pager)
{
    if (pager->spread == NULL)
        return;
    near_make_room(pager);
    if (is_at_work(pager)) {
        uint64_t now_ns = os_now_ns();

        if (now_ns >= pager->spread->tick_at_ns)
            tick(pager, now_ns);
    }
}

uint64_t pager_spread_deadline_ns(const struct pager *pager)
{
    if (pager->spread == NULL)
        return UINT64_MAX;
    if (pager->spread->is_hurried)
        return 0;
    return is_at_work(pager) ? pager->spread->tick_at_ns : UINT64_MAX;
}
