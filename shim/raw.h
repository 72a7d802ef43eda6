/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw.h - system calls without libc in between: what the interposers and the runtime inside the preload library use.
 *
 * raw_call(number, ...) returns what the kernel returns: a result, or a negative errno. errno is not touched, nothing
 * is a cancellation point, and no other library's interposer is run. Six arguments at most.
 */
#ifndef TIERMESH_SHIM_RAW_H
#define TIERMESH_SHIM_RAW_H

#include <errno.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
static inline long raw_call_6(long number, long a, long b, long c, long d, long e, long f)
{
    register long fourth __asm__("r10") = d;
    register long fifth __asm__("r8") = e;
    register long sixth __asm__("r9") = f;
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
static inline long raw_call_6(long number, long a, long b, long c, long d, long e, long f)
{
    register long which __asm__("x8") = number;
    register long first __asm__("x0") = a;
    register long second __asm__("x1") = b;
    register long third __asm__("x2") = c;
    register long fourth __asm__("x3") = d;
    register long fifth __asm__("x4") = e;
    register long sixth __asm__("x5") = f;

    __asm__ volatile("svc 0"
                     : "+r"(first)
                     : "r"(which), "r"(second), "r"(third), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "memory", "cc");
    return first;
}
#else
#error "the preload library knows the system calls of x86_64 and aarch64"
#endif

/* Fills the arguments that are not given with zeroes. */
#define RAW_CALL_PADDED(number, a, b, c, d, e, f, ...)                                                                 \
    raw_call_6((long)(number), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define raw_call(...) RAW_CALL_PADDED(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

/* What libc would return: -1 with errno, or the result. */
static inline long raw_result(long result)
{
    if ((unsigned long)result < -4095UL)
        return result;
    errno = (int)-result;
    return -1;
}

#endif
