# SPDX-License-Identifier: Apache-2.0
# libtiermesh-preload.so: the preload library. Everything it uses is inside it, with hidden symbols; what our own code
# calls mmap or malloc is bound to the raw system calls and to libc's own heap (shim/raw.c), never to the functions that
# the library puts in front of the program's.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/shim/*.c)
if(NOT sources OR TIERMESH_SANITIZE)
    return()
endif()

# Static archives only: a shared liburing would bring its own dependencies into every program.
set(archives)
foreach(name uring xxhash lz4 zstd jemalloc_pic)
    find_library(TIERMESH_STATIC_${name} lib${name}.a)
    if(NOT TIERMESH_STATIC_${name})
        message(FATAL_ERROR "lib${name}.a is missing; scripts/setup.sh installs it")
    endif()
    if(NOT name STREQUAL jemalloc_pic)
        list(APPEND archives ${TIERMESH_STATIC_${name}})
    endif()
endforeach()

# jemalloc under names of its own: without the C++ operators and without its constructor (it starts at its first call,
# which a process that is not managed never makes), and with some references turned elsewhere (shim/heap_jemalloc.c).
set(rename)
foreach(name aligned_alloc calloc dallocx free mallctl mallctlbymib mallctlnametomib malloc malloc_conf
        malloc_conf_2_conf_harder malloc_message malloc_stats_print malloc_usable_size mallocx memalign nallocx
        posix_memalign rallocx realloc sallocx sdallocx valloc xallocx)
    list(APPEND rename --redefine-sym ${name}=je_${name})
endforeach()
foreach(name secure_getenv readlink dlsym exp log round _Unwind_Backtrace _Unwind_GetIP)
    list(APPEND rename --redefine-sym ${name}=heap_no_${name})
endforeach()
list(APPEND rename --redefine-sym pthread_atfork=heap_jemalloc_atfork)

set(jemalloc ${CMAKE_BINARY_DIR}/libtiermesh-jemalloc.a)
add_custom_command(OUTPUT ${jemalloc} VERBATIM
    COMMAND ${CMAKE_COMMAND} -E copy ${TIERMESH_STATIC_jemalloc_pic} ${jemalloc}.tmp
    COMMAND ${CMAKE_AR} d ${jemalloc}.tmp jemalloc_cpp.pic.o
    COMMAND ${CMAKE_OBJCOPY} ${rename} --remove-section .init_array ${jemalloc}.tmp
    COMMAND ${CMAKE_COMMAND} -E rename ${jemalloc}.tmp ${jemalloc}
    DEPENDS ${TIERMESH_STATIC_jemalloc_pic} ${CMAKE_CURRENT_LIST_FILE})
add_custom_target(tiermesh-jemalloc DEPENDS ${jemalloc})

# References to these from inside the library go to __wrap_NAME.
set(wrapped
    mmap mmap64 mremap munmap mprotect madvise mlock munlock mincore process_madvise process_vm_readv sbrk
    open openat fcntl ioctl close dup dup3 read write writev pread pwrite lseek fsync ftruncate fallocate fstat stat
    lstat mkdir rmdir unlink rename statfs sendfile memfd_create
    socket socketpair bind listen accept4 connect shutdown getsockname getsockopt setsockopt send recv sendmsg recvmsg
    poll epoll_create1 epoll_ctl epoll_wait epoll_pwait2 eventfd timerfd_create timerfd_settime nanosleep
    syscall setsid chdir getpid geteuid getrandom getrlimit setrlimit sched_yield sched_getaffinity sched_setaffinity
    pthread_create strerror strerror_r
    malloc calloc realloc free memalign aligned_alloc posix_memalign strdup strndup)
list(TRANSFORM wrapped PREPEND --wrap=)
list(JOIN wrapped "," wrapped)

# tiermesh_preload(name what-implements-runtime/hooks.h...)
function(tiermesh_preload name)
    set(map ${CMAKE_SOURCE_DIR}/shim/libtiermesh-preload.map)
    add_library(${name} SHARED ${sources} ${ARGN})
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
    # No builtins: the compiler would make calloc out of malloc and memset, inside calloc. Semantic interposition: clang
    # would take a call of malloc for one of ours, where another's may be in front.
    target_compile_options(${name} PRIVATE -fno-builtin -fsemantic-interposition -ftls-model=initial-exec)
    set_target_properties(${name} PROPERTIES LINKER_LANGUAGE C LINK_DEPENDS "${map};${jemalloc}")
    add_dependencies(${name} tiermesh-jemalloc)
    target_link_options(${name} PRIVATE -static-libgcc LINKER:--version-script=${map} LINKER:${wrapped}
        LINKER:-z,defs,-z,relro,-z,now,-z,nodelete,-z,initfirst,--exclude-libs,ALL)
    target_link_libraries(${name} PRIVATE ${jemalloc} ${archives})
endfunction()

# Behind it the runtime; in tests/shim also nothing but the kernel.
tiermesh_preload(tiermesh-preload)
target_link_libraries(tiermesh-preload PRIVATE $<TARGET_FILE:tm_runtime> $<TARGET_FILE:tm_prefetch>
    $<TARGET_FILE:tm_tiers> $<TARGET_FILE:tm_mmu> $<TARGET_FILE:tm_base> ${archives})
add_dependencies(tiermesh-preload tm_runtime tm_prefetch tm_tiers tm_mmu tm_base)
install(TARGETS tiermesh-preload LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
