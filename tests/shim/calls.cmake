# SPDX-License-Identifier: Apache-2.0
# The trap programs, each natively and under the library over nothing but the kernel.
file(GLOB traps CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/trap_*.c)
foreach(source ${traps})
    get_filename_component(trap ${source} NAME_WE)
    tiermesh_test(NAME ${trap}_native SOURCES ${source} USES PkgConfig::URING LABELS shim)
    tiermesh_test(NAME ${trap}_plain COMMAND ${trap}_native LABELS shim
        ENVIRONMENT DSM_PRELOAD=1 LD_PRELOAD=$<TARGET_FILE:tiermesh-preload-plain>)
endforeach()

set(plain DSM_PRELOAD=1 LD_PRELOAD=$<TARGET_FILE:tiermesh-preload-plain>)
tiermesh_test(NAME calls_edges_native SOURCES calls_edges.c LABELS shim)
tiermesh_test(NAME calls_edges_plain COMMAND calls_edges_native LABELS shim
    ENVIRONMENT ${plain} HOOKS_PLAIN_BASE=0x200000000000)
tiermesh_test(NAME calls_refused SOURCES calls_refused.c LABELS shim ENVIRONMENT ${plain} HOOKS_PLAIN_REFUSE_FORK=1)
