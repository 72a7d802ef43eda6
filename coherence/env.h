/* SPDX-License-Identifier: Apache-2.0 */
/*
 * env.h - everything the coherence protocol needs from outside, and the per-page state it keeps there.
 *
 * The protocol (PURE) calls only through this table. runtime/env.c implements it over fabric, mmu and tiers;
 * tests/sim/ over a simulated world. No call may re-enter the protocol: results come back later as events
 * (coherence.h). None blocks.
 */
#ifndef TIERMESH_COHERENCE_ENV_H
#define TIERMESH_COHERENCE_ENV_H

#include "base/types.h"

struct message;

/* This node's half of a page's protocol state. Zeroes: PAGE_INVALID, never seen. Lives in the runtime's page table. */
struct coherence_page {
    uint32_t sequence;  /* the home's sequence number of the last transaction this node took part in */
    uint8_t state;      /* enum page_state */
    uint8_t flags;      /* PAGE_ASKED */
    uint16_t pending;   /* index + 1 of this node's errand: a request, a deferred recall, or both; 0: none */
};

/* The home's directory entry of a page. Zeroes: nobody has it and it reads as zeroes. 16 bytes. */
struct coherence_home {
    uint64_t sharers;   /* bit i: node i may read */
    uint32_t sequence;  /* grows with every transaction on the page */
    uint8_t owner;      /* index + 1 of the node that may write; 0: none */
    uint8_t flags;      /* HOME_* */
    uint16_t busy;      /* index + 1 of the transaction in service; 0: idle */
};

#define HOME_WRITTEN 1u  /* somebody could write since the page was made: it may differ from zeroes */
#define HOME_POISONED 2u /* its bytes are lost; everybody who asks gets -EIO */
#define HOME_READ 4u     /* a read (coherence_read) covers it: no other node may become owner */

struct coherence_env {
    void *context;

    /*
     * State. Entries keep their address as long as the page's extent is allocated. `page` makes the entry when absent
     * and returns NULL only for a page outside every extent; `home` likewise, and is asked only for pages whose home
     * this node is. home_of: NODE_NONE for a page outside every extent.
     */
    struct coherence_page *(*page)(void *context, struct page_id page);
    struct coherence_home *(*home)(void *context, struct page_id page);
    struct node_id (*home_of)(void *context, struct page_id page);

    /* Queue a message without page bytes. To this node itself too: it arrives later as any other. */
    void (*send)(void *context, struct node_id to, const struct message *message);

    /*
     * Queue a message with the bytes of message->page as this node's store holds them now. The bytes may have to be
     * read from a lower tier first; the protocol guarantees that nobody changes them before the receiver confirms or
     * leaves the view. When they cannot be read, the message goes out with MESSAGE_POISONED set and without bytes.
     */
    void (*send_page)(void *context, struct node_id to, const struct message *message);

    /*
     * Lower what this node's threads may do with the page to `access`. 0: done, no thread can do more any more.
     * -EINPROGRESS: the page is pinned; coherence_protected() follows. Until then install() may come for the page (the
     * caller of an eviction was told -EBUSY and goes on); the lowering is completed all the same, and undone by another
     * install().
     */
    int (*protect)(void *context, struct page_id page, enum access access);

    /*
     * Raise the rights to `access` and wake the threads that wait for the page.
     * bytes: PAGE_BYTES that become the page's contents; NULL: the store's own bytes stay (zeroes if it never had any).
     */
    void (*install)(void *context, struct page_id page, enum access access, const void *bytes);

    /* Home: `bytes` become the store's contents; rights do not change (none or read). NULL: contents are zeroes. */
    void (*store)(void *context, struct page_id page, const void *bytes);

    /* The store's bytes are not needed here any more (rights are none). Takes effect after sends in flight. */
    void (*drop)(void *context, struct page_id page);

    /* The page is lost: every touch is SIGBUS from now on. `why` is a static sentence. */
    void (*poison)(void *context, struct page_id page, const char *why);

    /*
     * One 64-bit operation on the store's bytes of a page that this node owns exclusively (it is the home and no other
     * node has the page). 0 and the old value; -EINPROGRESS: bytes are being fetched, coherence_atomic_ready() follows
     * and the protocol asks again; -EIO: the page is lost.
     */
    int (*atomic)(void *context, struct page_id page, const struct message *operation, uint64_t *ret_old);

    /*
     * A request made through coherence_*() with this token is finished. `value`: an atomic's old value, a lock's
     * number; else 0. May be called before the coherence_*() call that made the request returns.
     */
    void (*done)(void *context, uint64_t token, int result, uint64_t value);

    /*
     * This node's cached lock is wanted elsewhere. true: a thread holds it now; call coherence_lock_release() as soon
     * as none does. false: nobody holds it and the caller has forgotten it; the protocol gives it up at once.
     */
    bool (*lock_wanted)(void *context, uint32_t lock);
};

#endif
