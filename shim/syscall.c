/* SPDX-License-Identifier: Apache-2.0 */
/*
 * syscall.c - the program's syscall(): calls that concern managed memory, processes or descriptors take the same way as
 * the functions of these names; all others go to the kernel as they are.
 *
 * The door itself is in assembly: six arguments whatever the caller gave, and no frame of ours on the stack, since the
 * child of a clone that shares the memory returns from here onto the same stack, or another one.
 */
#include "shim/calls.h"

#include <stdarg.h>

#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#ifndef SYS_mseal
#define SYS_mseal 462
#endif

/* What the door does with a number. */
enum way {
    WAY_KERNEL = 0,
    WAY_OURS = 1,
    WAY_CLONE = 2,  /* ours without CLONE_VM in the first argument */
    WAY_CLONE3 = 3, /* ours without CLONE_VM in the first word that the first argument points to */
};

#define WAYS 512

__attribute__((used, visibility("hidden"))) const unsigned char shim_ways[WAYS] = {
    [SYS_mmap] = WAY_OURS,
    [SYS_munmap] = WAY_OURS,
    [SYS_mremap] = WAY_OURS,
    [SYS_mprotect] = WAY_OURS,
    [SYS_pkey_mprotect] = WAY_OURS,
    [SYS_madvise] = WAY_OURS,
    [SYS_process_madvise] = WAY_OURS,
    [SYS_mincore] = WAY_OURS,
    [SYS_msync] = WAY_OURS,
    [SYS_mseal] = WAY_OURS,
    [SYS_mlock] = WAY_OURS,
    [SYS_mlock2] = WAY_OURS,
    [SYS_mlockall] = WAY_OURS,
    [SYS_ioctl] = WAY_OURS,
    [SYS_futex] = WAY_OURS,
    [SYS_set_tid_address] = WAY_OURS,
    [SYS_set_robust_list] = WAY_OURS,
#ifdef SYS_fork
    [SYS_fork] = WAY_OURS,
    [SYS_vfork] = WAY_OURS,
#endif
    [SYS_clone] = WAY_CLONE,
    [SYS_clone3] = WAY_CLONE3,
    [SYS_sched_getaffinity] = WAY_OURS,
    [SYS_sched_setaffinity] = WAY_OURS,
    [SYS_execve] = WAY_OURS,
    [SYS_execveat] = WAY_OURS,
    [SYS_seccomp] = WAY_OURS,
    [SYS_prctl] = WAY_OURS,
    [SYS_setrlimit] = WAY_OURS,
    [SYS_prlimit64] = WAY_OURS,
    [SYS_close] = WAY_OURS,
#ifdef SYS_dup2
    [SYS_dup2] = WAY_OURS,
#endif
    [SYS_dup3] = WAY_OURS,
    [SYS_close_range] = WAY_OURS,
};

static long call_memory(long number, const long a[6])
{
    switch (number) {
    case SYS_mmap:
        return call_mmap((void *)a[0], (size_t)a[1], (int)a[2], (int)a[3], (int)a[4], a[5]);
    case SYS_munmap:
        return call_munmap((void *)a[0], (size_t)a[1]);
    case SYS_mremap:
        return call_mremap((void *)a[0], (size_t)a[1], (size_t)a[2], (int)a[3], (void *)a[4]);
    case SYS_mprotect:
        return call_mprotect((void *)a[0], (size_t)a[1], (int)a[2], -1);
    case SYS_pkey_mprotect:
        return call_mprotect((void *)a[0], (size_t)a[1], (int)a[2], (int)a[3]);
    case SYS_madvise:
        return call_madvise((void *)a[0], (size_t)a[1], (int)a[2]);
    case SYS_process_madvise:
        return call_process_madvise((int)a[0], (void *)a[1], (size_t)a[2], (int)a[3], (unsigned)a[4]);
    case SYS_mincore:
        return call_mincore((void *)a[0], (size_t)a[1], (unsigned char *)a[2]);
    case SYS_msync:
        return call_msync((void *)a[0], (size_t)a[1], (int)a[2]);
    case SYS_mseal:
        return call_mseal((void *)a[0], (size_t)a[1], (unsigned long)a[2]);
    case SYS_mlock:
        return call_mlock(SYS_mlock, (void *)a[0], (size_t)a[1], 0);
    case SYS_mlock2:
        return call_mlock(SYS_mlock2, (void *)a[0], (size_t)a[1], (int)a[2]);
    case SYS_mlockall:
        return call_mlockall((int)a[0]);
    case SYS_ioctl:
        return call_ioctl((int)a[0], (unsigned long)a[1], (void *)a[2]);
    case SYS_futex:
        return call_futex(a);
    case SYS_set_tid_address:
        keep_bytes((void *)a[0], sizeof(int));
        return raw_call(number, a[0]);
    case SYS_set_robust_list:
        keep_bytes((void *)a[0], (size_t)a[1]);
        return raw_call(number, a[0], a[1]);
    default:
        return -ENOSYS;
    }
}

static long call_process(long number, const long a[6])
{
    switch (number) {
#ifdef SYS_fork
    case SYS_fork:
    case SYS_vfork: /* the child of a real one would return from here onto its parent's stack */
        return call_fork();
#endif
    case SYS_clone:
#if defined(__x86_64__)
        return call_clone((unsigned long)a[0], (void *)a[1], (void *)a[2], (void *)a[3], (void *)a[4]);
#else
        return call_clone((unsigned long)a[0], (void *)a[1], (void *)a[2], (void *)a[4], (void *)a[3]);
#endif
    case SYS_clone3:
        return call_clone3((void *)a[0], (size_t)a[1]);
    case SYS_sched_getaffinity:
    case SYS_sched_setaffinity:
    case SYS_execve:
    case SYS_execveat:
        hooks_settle_affinity();
        return raw_call(number, a[0], a[1], a[2], a[3], a[4]);
    case SYS_seccomp:
        return call_seccomp((unsigned)a[0], (unsigned)a[1], (void *)a[2]);
    case SYS_prctl:
        return call_prctl((int)a[0], (unsigned long)a[1], (unsigned long)a[2], (unsigned long)a[3],
                          (unsigned long)a[4]);
    case SYS_setrlimit:
        return call_prlimit(0, (unsigned)a[0], (void *)a[1], NULL);
    case SYS_prlimit64:
        return call_prlimit((pid_t)a[0], (unsigned)a[1], (void *)a[2], (void *)a[3]);
    case SYS_close:
        return call_close((int)a[0]);
#ifdef SYS_dup2
    case SYS_dup2:
        return call_dup2((int)a[0], (int)a[1]);
#endif
    case SYS_dup3:
        return call_dup3((int)a[0], (int)a[1], (int)a[2]);
    case SYS_close_range:
        return call_close_range((unsigned)a[0], (unsigned)a[1], (unsigned)a[2]);
    default:
        return call_memory(number, a);
    }
}

/* Called by the door: the calls that are ours. */
long shim_syscall(long number, long a, long b, long c, long d, long e, long f);

__attribute__((used, visibility("hidden"))) long shim_syscall(long number, long a, long b, long c, long d, long e,
                                                              long f)
{
    const long arguments[6] = {a, b, c, d, e, f};

    return raw_result(call_process(number, arguments));
}

/* Called by the door: the kernel refused. */
long shim_syscall_failed(long error);

__attribute__((used, visibility("hidden"))) long shim_syscall_failed(long error)
{
    return raw_result(error);
}

#if defined(__x86_64__)
/* syscall(number, six arguments): rdi, rsi rdx rcx r8 r9, the last one above the return address. */
__asm__(".text\n"
        ".p2align 4\n"
        ".globl syscall\n"
        ".type syscall, @function\n"
        "syscall:\n"
        ".cfi_startproc\n"
        "    cmpq $511, %rdi\n"
        "    ja 1f\n"
        "    leaq shim_ways(%rip), %rax\n"
        "    movzbl (%rax,%rdi), %eax\n"
        "    testl %eax, %eax\n"
        "    jz 1f\n"
        "    cmpl $2, %eax\n"
        "    jb shim_syscall\n"
        "    je 2f\n"
        "    testq %rsi, %rsi\n" /* clone3 */
        "    jz 1f\n"
        "    cmpq $64, %rdx\n"
        "    jb 1f\n"
        "    testl $0x100, (%rsi)\n"
        "    jz shim_syscall\n"
        "    jmp 1f\n"
        "2:  testl $0x100, %esi\n" /* clone */
        "    jz shim_syscall\n"
        "1:  movq %rdi, %rax\n"
        "    movq %rsi, %rdi\n"
        "    movq %rdx, %rsi\n"
        "    movq %rcx, %rdx\n"
        "    movq %r8, %r10\n"
        "    movq %r9, %r8\n"
        "    movq 8(%rsp), %r9\n"
        "    syscall\n"
        "    cmpq $-4095, %rax\n"
        "    jae 3f\n"
        "    ret\n"
        "3:  movq %rax, %rdi\n"
        "    jmp shim_syscall_failed\n"
        ".cfi_endproc\n"
        ".size syscall, .-syscall\n");
#else
/* Without the assembly a clone that shares memory and stack cannot be made through this door. */
SHIM_EXPORT long syscall(long number, ...)
{
    long a[6];
    va_list arguments;

    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (number >= 0 && number < WAYS && shim_ways[number] != WAY_KERNEL)
        return shim_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    return raw_result(raw_call(number, a[0], a[1], a[2], a[3], a[4], a[5]));
}
#endif
