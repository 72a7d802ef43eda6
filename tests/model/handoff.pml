/* SPDX-License-Identifier: Apache-2.0 */
/*
 * handoff.pml - the hand-off between application threads and their shard: a request ring with a "the shard sleeps"
 * flag, and a futex word on which the thread waits for its answer.
 *
 *   run.sh                 checks the model and that each BUG variant fails
 *   by hand: spin -a handoff.pml && gcc -DSAFETY -o pan pan.c && ./pan        (add -DBUG=1 .. 5 to spin)
 *
 * Each side first stores, then loads what the other side stores. Processors delay stores, so every process has a store
 * buffer of one entry that drains at any moment; a fence drains it. Lost wake-ups show as invalid end states.
 *   BUG 1  the shard does not look at the ring again after it raised the flag
 *   BUG 2  the thread looks at the flag before it puts its request into the ring
 *   BUG 3  no fences: both loads may overtake both stores
 *   BUG 4  futex_wait does not compare the word
 *   BUG 5  the thread waits once, without looking at the word again
 */
#ifndef BUG
#define BUG 0
#endif
#define THREADS  2
#define REQUESTS 2 /* of each thread */

byte ring;              /* requests put and not taken, as memory has it */
bit shard_sleeps;       /* as memory has it */
bit shard_rung;         /* the descriptor that wakes the shard */
bit answered[THREADS];  /* the futex word */
bit wanted[THREADS];    /* whose request is in the ring */
bit asleep[THREADS];    /* in futex_wait */
byte finished;

/* Store buffers: what a process stored and memory does not show yet. */
bit ring_pending[THREADS];
bit flag_pending, flag_value;

inline ring_drain(me)
{
    d_step {
        if
        :: ring_pending[me] -> ring_pending[me] = 0; ring++; wanted[me] = 1
        :: else
        fi
    }
}

inline flag_drain()
{
    d_step {
        if
        :: flag_pending -> flag_pending = 0; shard_sleeps = flag_value
        :: else
        fi
    }
}

/* The processors drain their buffers whenever they like. */
active proctype memory()
{
end:
    do
    :: ring_pending[0] -> ring_drain(0)
    :: ring_pending[1] -> ring_drain(1)
    :: flag_pending -> flag_drain()
    od
}

inline ring_bell()
{
    if
    :: shard_sleeps -> shard_rung = 1
    :: else
    fi
}

active [THREADS] proctype thread()
{
    byte me = _pid - 1;
    byte left = REQUESTS;

    do
    :: left > 0 ->
        answered[me] = 0;
#if BUG == 2
        bit slept = shard_sleeps;
        ring_pending[me] = 1;
        ring_drain(me);
        if
        :: slept -> shard_rung = 1
        :: else
        fi;
#else
        ring_pending[me] = 1;
#if BUG != 3
        ring_drain(me); /* fence */
#endif
        ring_bell();
#endif
        /* futex_wait(word, 0) compares and sleeps in one step; a late wake-up of the request before may end it early */
again:
        if
        :: answered[me] == 0 ->
#if BUG == 4
            asleep[me] = 1;
#else
            atomic {
                if
                :: answered[me] == 0 -> asleep[me] = 1
                :: else
                fi
            };
#endif
            !asleep[me];
#if BUG != 5
            goto again
#endif
        :: answered[me] == 1 -> skip
        fi;
        assert(answered[me] == 1);
        left--
    :: left == 0 -> break
    od;
    finished++
}

inline serve(who)
{
    d_step { wanted[who] = 0; ring-- }
    answered[who] = 1;
    asleep[who] = 0 /* futex_wake */
}

active proctype shard()
{
end:
    do
    :: wanted[0] -> serve(0)
    :: wanted[1] -> serve(1)
    :: ring == 0 ->
        flag_value = 1;
        flag_pending = 1;
#if BUG != 3
        flag_drain(); /* fence */
#endif
        if
#if BUG != 1
        :: ring > 0 -> skip
#endif
#if BUG == 1
        :: true ->
#else
        :: ring == 0 ->
#endif
end_wait:   shard_rung;
            shard_rung = 0
        fi;
        flag_value = 0;
        flag_pending = 1;
        flag_drain()
    od
}

/* Everybody is served: the shard may sleep for ever only when all threads are done. */
active proctype monitor()
{
    finished == THREADS
}
