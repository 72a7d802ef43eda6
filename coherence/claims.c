/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claims.c - the home's lock holders, waiters and condition waiters: one treap a space, ordered by first unit, each
 * node knowing the largest end below it, so that finding what overlaps a range costs a walk down the tree.
 *
 * Priorities are a hash of the reference: no chance, and the same pool makes the same tree.
 */
#include "coherence/internal.h"

void claims_init(struct coherence *c)
{
    for (uint32_t i = c->limits.home_locks_max; i > 0; i--) {
        claim_at(c, i)->next = c->claim_free;
        c->claim_free = i;
    }
}

uint32_t claim_take(struct coherence *c)
{
    uint32_t ref = c->claim_free;

    if (ref != 0) {
        c->claim_free = claim_at(c, ref)->next;
        *claim_at(c, ref) = (struct claim){.arrival = ++c->arrival};
    }
    return ref;
}

static uint64_t claim_end(const struct claim *claim)
{
    return claim->first + claim->count;
}

static void tree_update(struct coherence *c, uint32_t ref)
{
    struct claim *claim = claim_at(c, ref);

    claim->end_max = claim_end(claim);
    if (claim->left != 0 && claim_at(c, claim->left)->end_max > claim->end_max)
        claim->end_max = claim_at(c, claim->left)->end_max;
    if (claim->right != 0 && claim_at(c, claim->right)->end_max > claim->end_max)
        claim->end_max = claim_at(c, claim->right)->end_max;
}

/* Order of the tree: by first unit, then by reference. */
static bool is_before(const struct coherence *c, uint32_t a, uint32_t b)
{
    uint64_t first_a = claim_at(c, a)->first, first_b = claim_at(c, b)->first;

    return first_a != first_b ? first_a < first_b : a < b;
}

static void tree_split(struct coherence *c, uint32_t root, uint32_t key, uint32_t *ret_before, uint32_t *ret_after)
{
    if (root == 0) {
        *ret_before = *ret_after = 0;
    } else if (is_before(c, root, key)) {
        tree_split(c, claim_at(c, root)->right, key, &claim_at(c, root)->right, ret_after);
        *ret_before = root;
        tree_update(c, root);
    } else {
        tree_split(c, claim_at(c, root)->left, key, ret_before, &claim_at(c, root)->left);
        *ret_after = root;
        tree_update(c, root);
    }
}

static uint32_t tree_merge(struct coherence *c, uint32_t before, uint32_t after)
{
    if (before == 0 || after == 0)
        return before != 0 ? before : after;
    if (claim_at(c, before)->priority > claim_at(c, after)->priority) {
        claim_at(c, before)->right = tree_merge(c, claim_at(c, before)->right, after);
        tree_update(c, before);
        return before;
    }
    claim_at(c, after)->left = tree_merge(c, before, claim_at(c, after)->left);
    tree_update(c, after);
    return after;
}

void claim_insert(struct coherence *c, uint32_t ref)
{
    struct claim *claim = claim_at(c, ref);
    uint32_t *root = &c->claim_root[claim->space];
    uint64_t mixed = ref * UINT64_C(0x9e3779b97f4a7c15);
    uint32_t before, after;

    claim->priority = (mixed ^ mixed >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    claim->left = claim->right = 0;
    tree_update(c, ref);
    tree_split(c, *root, ref, &before, &after);
    *root = tree_merge(c, tree_merge(c, before, ref), after);
}

static uint32_t tree_remove(struct coherence *c, uint32_t root, uint32_t ref)
{
    ASSERT(root != 0);
    if (root == ref)
        return tree_merge(c, claim_at(c, ref)->left, claim_at(c, ref)->right);
    if (is_before(c, ref, root))
        claim_at(c, root)->left = tree_remove(c, claim_at(c, root)->left, ref);
    else
        claim_at(c, root)->right = tree_remove(c, claim_at(c, root)->right, ref);
    tree_update(c, root);
    return root;
}

/* Out of the tree and back to the pool. */
void claim_remove(struct coherence *c, uint32_t ref)
{
    struct claim *claim = claim_at(c, ref);

    c->claim_root[claim->space] = tree_remove(c, c->claim_root[claim->space], ref);
    *claim = (struct claim){.next = c->claim_free};
    c->claim_free = ref;
}

static uint32_t tree_overlapping(const struct coherence *c, uint32_t root, uint64_t first, uint64_t end, uint32_t after)
{
    const struct claim *claim;
    uint32_t found;

    if (root == 0 || claim_at(c, root)->end_max <= first)
        return 0;
    claim = claim_at(c, root);
    if (after == 0 || is_before(c, after, root)) {
        found = tree_overlapping(c, claim->left, first, end, after);
        if (found != 0)
            return found;
        if (claim->first < end && claim_end(claim) > first)
            return root;
    }
    return claim->first >= end ? 0 : tree_overlapping(c, claim->right, first, end, after);
}

uint32_t claim_overlapping(const struct coherence *c, uint8_t space, uint64_t first, uint64_t count, uint32_t after)
{
    return tree_overlapping(c, c->claim_root[space], first, first + count, after);
}

uint32_t claim_find(const struct coherence *c, uint8_t space, uint64_t first, uint64_t count, struct node_id node,
                    uint32_t request, uint64_t serial)
{
    uint32_t ref = claim_overlapping(c, space, first, count, 0);

    for (; ref != 0; ref = claim_overlapping(c, space, first, count, ref)) {
        const struct claim *claim = claim_at(c, ref);

        if (claim->first == first && claim->count == count && node_is(claim->node, node) && claim->request == request &&
            claim->serial == serial && claim->state != CLAIM_ORPHAN)
            return ref;
    }
    return 0;
}
