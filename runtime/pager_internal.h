/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pager_internal.h - the state of the pager, shared by pager*.c only.
 */
#ifndef TIERMESH_RUNTIME_PAGER_INTERNAL_H
#define TIERMESH_RUNTIME_PAGER_INTERNAL_H

#include "runtime/pager.h"

#include "base/log.h"
#include "base/os.h"
#include "tiers/share.h"

#define PAGER_ATOMICS_MAX 4096 /* one a page in service at this home */
#define PAGER_FRESH_MAX (1U << 20) /* further private extents are registered at once */

/* Beside each frame: the slot on NVMe that still holds the same bytes, and the eviction that writes it now. */
struct frame_note {
    uint32_t clean_slot; /* UINT32_MAX: none */
    uint32_t limbo;      /* place there + 1, of a private page in limbo; 0: none */
    uint8_t eviction;    /* index + 1 while LEAVING */
    uint8_t ahead;       /* enum ahead */
    uint16_t sample;     /* entry + 1 of pager_spread.c, which unmapped the page and waits for a touch; 0: none */
    uint32_t entered;    /* limbo: how many had done so by then */
};

/* Of a page in memory: nobody has asked for it yet. */
enum ahead {
    AHEAD_NONE = 0,
    AHEAD_SEEN = 1, /* not mapped: its first touch will be seen */
    AHEAD_BLIND = 2 /* mapped at once, or unmapped since then */
};

/* One read of consecutive slots into a buffer. Pages that left FILLING meanwhile are marked cancelled. */
struct fill {
    struct tier_transfer transfer;
    struct pager *pager;
    struct page_id first;
    unsigned pages_count; /* 0: free */
    uint64_t start_ns;    /* of the fault that waits for the demanded page */
    struct page_id demanded; /* PAGE_NONE: nobody waits */
    struct page_id trigger;  /* of a predicted run: stays in the buffer until touched; PAGE_NONE: none */
    bool is_watched;  /* nobody's pages stay unmapped, so that their first touch is seen */
    unsigned spoken;  /* parked: pages that were mapped with it, for which the trigger speaks */
    bool is_write;
    bool keeps_slots; /* the pages are mapped read-only, as far as they are not expected to be written */
    bool is_parked; /* read, and only the trigger is left: its touch tells that the run was worth it */
    bool cancelled[PAGER_RUN_MAX];
    bool touched[PAGER_RUN_MAX]; /* of a watched fill: somebody waits */
};

/* One write of a batch of leaving pages. Pages that came back meanwhile are told by their frame's note. */
struct eviction {
    struct tier_transfer transfer;
    struct pager *pager;
    unsigned pages_count; /* 0: free */
    struct frame_id frames[PAGER_BATCH];
    struct page_id pages[PAGER_BATCH];
};

/* The pages that lie in a tier longest, with their slots. */
struct aged {
    uint32_t slots[PAGER_BATCH];
    struct page_id pages[PAGER_BATCH];
    unsigned count;
};

/* One write to NVMe of pages of CXL memory or zmem. Pages whose slot was put meanwhile are cancelled. */
struct demotion {
    struct tier_transfer transfer;
    struct pager *pager;
    enum tier_kind from;
    unsigned pages_count; /* 0: free */
    uint32_t slots[PAGER_BATCH];
    struct page_id pages[PAGER_BATCH];
    bool cancelled[PAGER_BATCH];
};

/* Consecutive places of limbo. */
struct places {
    uint32_t first, count;
};

/* A message that waits for bytes that are being read. */
struct pending_send {
    struct message message;
    struct node_id to;
    bool is_used;
};

struct stalled_fault {
    struct page_id page;
    uint64_t start_ns;
    uint64_t stalled_ns; /* since when it waits for room */
    uint32_t thread;
    bool is_write;
};

/* Of a region: pages mapped read-only because NVMe has them too, and those of them that were written. */
#define PAGER_GUESSES 64u
struct guess {
    uint8_t kept, written;
};

/* Pages that are wanted soon: those from `next` on were not asked for yet. */
struct need {
    uint64_t next, end;
};
#define PAGER_NEEDS_MAX 16

/* How much of the DDR budget zmem may take, and what was seen since that was decided (pager_share.c). */
#define PAGER_LATE_MAX 4096u
struct share {
    uint32_t frames; /* 0: not decided yet */
    uint32_t applied_frames;
    uint32_t entered;
    uint64_t late_hits, cold_hits;
    uint64_t evicted_pages, evict_ns;
    uint64_t stored_pages, stored_frames; /* of zmem, when it last had some */
    struct share_mean {
        uint64_t count, sum_ns, mean_ns;
    } means[2];
    struct page_id late[PAGER_LATE_MAX]; /* a ring */
    unsigned late_first, late_count;
};

/* Rights that go down as soon as the page's pins end. */
struct revoke {
    struct page_id page;
    enum access access;
};

struct pager {
    struct pager_config config;
    struct mmu *mmu;
    const struct mmu_window *window;
    struct table *pages;

    struct frames *frames;
    struct placement *placement;
    struct frame_note *notes; /* by frame */
    uint32_t table_frames;
    uint32_t wanted_frames; /* the budget that was asked for; evictions go by it */
    uint32_t ceiling_frames;
    uint32_t placed_frames; /* of wanted_frames, those that the policy has; zmem has the others */
    uint32_t budget_frames; /* what faults go by: above wanted_frames while what is too much leaves (pager_limit.c) */
    struct placement_marks marks;
    bool is_shrinking, has_evicted; /* something left in the last pager_balance() */
    uint64_t fresh_pages;     /* private pages that the kernel may fill without us: charged whole */
    uint64_t kept_pages;      /* in memory, and not to be evicted */

    uint64_t tier_low[TIERS];   /* free slots below which the oldest pages of CXL memory and zmem move on */
    uint64_t tier_pages[TIERS]; /* pages whose bytes lie there; not of DDR */

    struct tier_buffers *buffers;
    struct fill fills[PAGER_FILLS_MAX];
    unsigned parked_count, parked_hand;
    struct eviction evictions[PAGER_EVICTIONS_MAX];
    struct demotion demotions[TIERS]; /* by the tier that pages leave */
    unsigned refused_share;           /* of the pages offered to zmem lately, in 256ths */
    struct pending_send sends[PAGER_SENDS_MAX];
    unsigned sends_count;

    bool is_starved; /* a read from NVMe could not start for want of a buffer */
    struct page_id atomics[PAGER_ATOMICS_MAX]; /* pages whose bytes an atomic waits for */
    unsigned atomics_count;

    struct stalled_fault stalls[PAGER_STALLS_MAX]; /* a ring */
    unsigned stalls_first, stalls_count;
    uint64_t left_count, left_seen, left_ns; /* pages that left their frames; when the last one was seen to */
    bool is_write_failing; /* the last write to the disk that ended was an error */
    struct revoke revokes[PAGER_REVOKES_MAX];
    unsigned revokes_count;

    _Alignas(64) char bounce[PAGE_BYTES]; /* a page out of zmem, for as long as it is copied on */
    void *staging; /* private pages on their way out: PAGER_BATCH pages */
    void *limbo; /* private pages that are not mapped: limbo_places pages; NULL: there is none */
    bool *limbo_taken;
    uint32_t limbo_places, limbo_cursor;
    struct places limbo_emptied; /* their pages have left, their memory goes with the next pager_limbo_flush() */
    struct page_id *fresh; /* a ring of PAGER_FRESH_MAX first pages of unregistered private extents */
    unsigned fresh_first, fresh_count;

    struct pager_spread *spread; /* NULL: all memory is alike */
    uint32_t far_frames;         /* of wanted_frames, those that may lie in far memory */
    uint32_t far_wish_frames;    /* what was asked for; far_frames is less while far memory takes no more */
    uint32_t far_max_frames;     /* what may be asked for */

    bool shared_is_shut;
    struct page_id leaving_copy; /* evicted, since others have it too; the protocol may drop it on the way */

    struct guess guesses[PAGER_GUESSES];
    struct prefetch *prefetch;
    struct prefetch_config prefetching; /* as it was created; the mmu may be closed before the pager */
    uint32_t unused_frames; /* of pages that were brought ahead and not touched, as far as touches are seen */
    struct share share;
    struct need needs[PAGER_NEEDS_MAX]; /* a ring */
    unsigned needs_first, needs_count;
    struct stats stats;
    struct record *record; /* NULL: nobody wants a trace */
};

/* pager.c */
void pager_rescue(struct pager *pager, struct page_entry *entry);
struct page_entry *pager_entry(struct pager *pager, struct page_id page);
bool pager_is_shared(const struct pager *pager, struct page_id page);
void pager_fail(struct pager *pager, struct page_id page, const char *why);
struct frame_note *pager_note(struct pager *pager, const struct page_entry *entry);
bool pager_want_writable(struct pager *pager, const struct page_entry *entry, bool is_write);
void pager_frame_put(struct pager *pager, struct page_entry *entry);  /* the page is freed, or another node's now */
void pager_frame_left(struct pager *pager, struct page_entry *entry); /* its bytes are elsewhere */
void pager_release_bytes(struct pager *pager, struct page_id page, struct page_entry *entry);

/* pager_slots.c */
bool pager_where_is_near(enum page_where where);
enum tier_kind pager_tier_of(enum page_where where);
void pager_slot_set(struct pager *pager, struct page_entry *entry, enum tier_kind tier, uint32_t slot);
void pager_slot_put(struct pager *pager, enum tier_kind tier, uint32_t slot);
const char *pager_damage_text(enum tier_kind tier);
void pager_forget_clean_slot(struct pager *pager, struct page_entry *entry);
bool pager_keeps_slots(const struct pager *pager);
void pager_room(const struct pager *pager, struct placement_question *question);
void pager_tier_low_set(struct pager *pager, enum tier_kind tier);

/* pager_fill.c */
bool pager_frame_take(struct pager *pager, struct page_id page, struct frame_id *ret_frame);
void pager_frame_attach(struct pager *pager, struct page_entry *entry, struct frame_id frame, enum page_where where,
                        bool prefetched);
void pager_fill_start(struct pager *pager, struct page_id page, const struct stalled_fault *fault);
void pager_unpark(struct pager *pager, struct fill *fill, const struct stalled_fault *fault);
bool pager_bring(struct pager *pager, struct page_id page, const struct stalled_fault *fault);
uint32_t pager_frames_used(const struct pager *pager);
/* false: no fill or buffer is free now. run: what it is a part of; NULL: of nothing that was predicted. */
bool pager_fill_run(struct pager *pager, struct page_id first, unsigned pages_count, const struct stalled_fault *fault,
                    const struct prefetch_run *run);
/* How many pages from `first` on lie in consecutive NVMe slots, `limit` at most. */
unsigned pager_run_length(struct pager *pager, struct page_id first, unsigned limit);
/* For whom a page comes. */
enum placing {
    PLACE_READ,
    PLACE_WRITE,
    PLACE_BLIND, /* nobody yet: mapped, */
    PLACE_SEEN,  /* or unmapped, so that its first touch is seen */
};
int pager_near_serve(struct pager *pager, struct page_id page, struct page_entry *entry, enum placing placing);
int pager_private_register_some(struct pager *pager);

/* pager_ahead.c */
unsigned pager_prefetch_room(const struct pager *pager); /* frames; the rest is for demand and replies */
uint32_t pager_run_start(struct pager *pager, const struct prefetch_run *run); /* how much of it is here or comes */
void pager_prefetch_start(struct pager *pager, const struct prefetch_plan *plan);
void pager_plan_cut(struct pager *pager, const struct prefetch_plan *plan, uint32_t from);
/* The first touch of a page that was brought ahead. */
void pager_predicted_touch(struct pager *pager, const struct stalled_fault *fault, bool is_late);

void pager_ahead_placed(struct pager *pager, struct frame_id frame, enum ahead ahead);
bool pager_ahead_is_seen(struct pager *pager, const struct page_entry *entry); /* this touch is the first */
/* A touch of a page in limbo, the page left for a lower tier, or it is not this node's any more. */
void pager_soft_hit(struct pager *pager, struct frame_id frame);
void pager_ahead_left(struct pager *pager, struct frame_id frame);
void pager_ahead_forgotten(struct pager *pager, struct frame_id frame);

/* pager_advise.c */
void pager_needs_follow(struct pager *pager);

/* pager_stall.c */
void pager_stall(struct pager *pager, const struct stalled_fault *fault);
void pager_stalls_answer(struct pager *pager);
uint64_t pager_stall_deadline_ns(const struct pager *pager);

/* pager_new.c */
unsigned pager_new_run(struct pager *pager, struct page_id page);
int pager_new_pages(struct pager *pager, struct page_id first, unsigned count);

/* pager_guess.c */
void pager_guess_kept(struct pager *pager, struct page_id page);
void pager_guess_written(struct pager *pager, struct page_id page);
bool pager_guess_writes(struct pager *pager, struct page_id page); /* pages brought ahead are best mapped writable */

/* pager_limit.c */
uint32_t pager_compressed_frames(const struct pager *pager); /* of the DDR budget, that zmem has taken */
void pager_compressed_follow(struct pager *pager);
bool pager_compressed_must_leave(const struct pager *pager);
void pager_share_apply(struct pager *pager); /* zmem may take pager_share_frames() from now on */
void pager_budget_init(struct pager *pager);
void pager_budget_follow(struct pager *pager);
bool pager_is_moving(const struct pager *pager); /* something leaves, or is being written and will have left */
void pager_far_set(struct pager *pager, uint32_t frames); /* so many may lie in far memory from now on */
uint64_t pager_shrink_deadline_ns(const struct pager *pager);

/* pager_share.c: each does nothing where zmem is not inside DDR. */
#define PAGER_SHARE_MIN_FRAMES 256u /* the smallest zmem that can be opened */
uint32_t pager_share_frames(const struct pager *pager); /* what zmem may take now */
void pager_share_follow(struct pager *pager);
bool pager_share_is_open(const struct pager *pager); /* zmem has a part that is worth having */
bool pager_share_passes_by(const struct pager *pager); /* it has not */
/* The page has left for the disk; it was read from there because of a fault. */
void pager_share_left(struct pager *pager, struct page_id page, struct page_entry *entry);
void pager_share_read(struct pager *pager, struct page_entry *entry);
/* A mapped page came into limbo; it was touched there. */
void pager_share_entered(struct pager *pager, struct frame_id frame);
void pager_share_touched(struct pager *pager, struct frame_id frame);

/* pager_evict.c */
unsigned pager_evict_some(struct pager *pager, unsigned wanted);
/*
 * Pages in memory that are consecutive, or else the first of them, are unmapped onto FRAME_LIMBO; what cannot be goes
 * to the tail of its list. Returns how many were dealt with.
 */
unsigned pager_unmap_run(struct pager *pager, const struct frame_id *frames, unsigned count);
/* Private pages out of their places. Returns how many; the next one is pinned or shared by fork. */
unsigned pager_take_out(struct pager *pager, struct page_id first, unsigned count, void *staging);

/* pager_limbo.c */
#define PAGER_LIMBO_NONE UINT32_MAX /* 0 in a frame's note, less one */
int pager_limbo_create(struct pager *pager);
void pager_limbo_destroy(struct pager *pager);
/* Mapped private pages that are consecutive, onto FRAME_LIMBO. Returns how many were dealt with. */
unsigned pager_limbo_enter(struct pager *pager, const struct frame_id *frames, unsigned count);
int pager_limbo_rescue(struct pager *pager, struct page_id page, struct page_entry *entry, bool is_write);
/* The same, but nobody touched it: the policy is not told. The caller puts the frame on a list. */
int pager_limbo_restore(struct pager *pager, struct page_id page, struct page_entry *entry, bool is_write);
void *pager_limbo_address(const struct pager *pager, uint32_t place);
uint32_t pager_limbo_place(struct pager *pager, struct page_id page); /* shared pages have none */
/* Bytes of private pages into places; the caller makes the pages WHERE_LIMBO. Returns how many; 0: there is no room. */
unsigned pager_limbo_fill(struct pager *pager, const struct frame_id *frames, unsigned count, const void *bytes);
/*
 * Pages with consecutive places, whose bytes are not needed there any more: the caller gives them another `where`,
 * before anything else can look. The memory is given back by pager_limbo_flush(), before the shard goes on.
 */
void pager_limbo_clear(struct pager *pager, struct page_id first, unsigned count);
void pager_limbo_flush(struct pager *pager);

/* pager_spread.c: pages between near and far memory. Each does nothing where all memory is alike. */
int pager_spread_create(struct pager *pager);
void pager_spread_destroy(struct pager *pager);
void pager_spread_inserted(struct pager *pager, struct frame_id frame);
void pager_spread_forgotten(struct pager *pager, struct frame_id frame);
void pager_spread_touched(struct pager *pager, struct frame_id frame); /* of a frame that is sampled */
void pager_spread_some(struct pager *pager);
uint64_t pager_spread_deadline_ns(const struct pager *pager);
uint32_t pager_far_used(const struct pager *pager); /* frames that lie there now */

/* pager_demote.c */
void pager_demote_some(struct pager *pager);
void pager_demotion_cancel(struct pager *pager, enum tier_kind tier, uint32_t slot);

#endif
