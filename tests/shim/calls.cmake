# SPDX-License-Identifier: Apache-2.0
# The trap programs, each natively, under the library over nothing but the kernel, and over the runtime with a budget
# that they outgrow many times: by MOVE into CXL memory, by copying as on older kernels, and by NVMe.
set(trap_budget DSM_PRELOAD=1 DSM_DDR=4M DSM_CXL=256M TRAP_PRESSURE=10 TRAP_EVICTS=1)
file(GLOB traps CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/trap_*.c)
foreach(source ${traps})
    get_filename_component(trap ${source} NAME_WE)
    tiermesh_test(NAME ${trap}_native SOURCES ${source} USES PkgConfig::URING LABELS shim)
    # trap_shared kills who may hold the lock of the plain hooks, which nobody would then let go.
    if(NOT trap STREQUAL trap_shared)
        tiermesh_test(NAME ${trap}_plain COMMAND ${trap}_native LABELS shim
            ENVIRONMENT DSM_PRELOAD=1 LD_PRELOAD=$<TARGET_FILE:tiermesh-preload-plain>)
    endif()
    tiermesh_test(NAME ${trap}_evicting COMMAND ${trap}_native LABELS shim TIMEOUT 300
        ENVIRONMENT ${trap_budget} LD_PRELOAD=$<TARGET_FILE:tiermesh-preload>)
    # Without MOVE the kernel does not say that a page is pinned, so those are left out (docs/PRELOAD.md, T25).
    if(NOT trap STREQUAL trap_pin)
        tiermesh_test(NAME ${trap}_copying COMMAND ${trap}_native LABELS shim long TIMEOUT 300
            ENVIRONMENT ${trap_budget} DSM_UFFD_MOVE=off LD_PRELOAD=$<TARGET_FILE:tiermesh-preload>)
    endif()
    if(trap MATCHES "trap_(map|remap|fork)")
        tiermesh_test(NAME ${trap}_arms COMMAND ${trap}_native LABELS shim TIMEOUT 300
            ENVIRONMENT ${trap_budget} DSM_POLICY=arms LD_PRELOAD=$<TARGET_FILE:tiermesh-preload>)
    endif()
    tiermesh_test(NAME ${trap}_nvme LABELS shim long TIMEOUT 300
        COMMAND dsmrun --ddr 4M --nvme 512M:${CMAKE_BINARY_DIR} --summary off -- $<TARGET_FILE:${trap}_native>
        ENVIRONMENT TRAP_PRESSURE=10 TRAP_EVICTS=1)
endforeach()

set(plain DSM_PRELOAD=1 LD_PRELOAD=$<TARGET_FILE:tiermesh-preload-plain>)
tiermesh_test(NAME calls_edges_native SOURCES calls_edges.c LABELS shim)
tiermesh_test(NAME calls_edges_plain COMMAND calls_edges_native LABELS shim
    ENVIRONMENT ${plain} HOOKS_PLAIN_BASE=0x200000000000)
tiermesh_test(NAME calls_refused SOURCES calls_refused.c LABELS shim ENVIRONMENT ${plain} HOOKS_PLAIN_REFUSE_FORK=1)

# The shard of who needs little is started by a task that only shares its memory, and must not be.
# What it fills compresses to nothing, so that the peak is what the pager let be.
tiermesh_test(NAME trap_map_at_once COMMAND trap_map_native filled_at_once LABELS shim
    ENVIRONMENT DSM_PRELOAD=1 DSM_DDR=16M DSM_ZMEM=16M TRAP_PEAK=64 LD_PRELOAD=$<TARGET_FILE:tiermesh-preload>)

tiermesh_test(NAME trap_shared_begun COMMAND trap_shared_native begun_by_one_that_ends LABELS shim
    ENVIRONMENT DSM_PRELOAD=1 DSM_DDR=32M DSM_CXL=256M LD_PRELOAD=$<TARGET_FILE:tiermesh-preload>)

# Memory that is a huge page when the shard starts. The kernel that this was about is in the rig (rig_preload).
tiermesh_test(NAME trap_pin_huge COMMAND trap_pin_native in_a_huge_page LABELS shim
    ENVIRONMENT DSM_PRELOAD=1 DSM_DDR=32M DSM_CXL=256M TRAP_PRESSURE=60 TRAP_EVICTS=1
    LD_PRELOAD=$<TARGET_FILE:tiermesh-preload>)

# A start that fails when most is open, alone and with a broker: nothing is left of it.
tiermesh_test(NAME refused SOURCES refused.c LABELS shim
    ENVIRONMENT DSM_PRELOAD=1 DSM_DDR=8M DSM_CXL=1G DSM_NVME=64M:${CMAKE_BINARY_DIR}
    LD_PRELOAD=$<TARGET_FILE:tiermesh-preload>)
tiermesh_test(NAME refused_job LABELS shim
    COMMAND dsmrun --ddr 8M --cxl 1G --summary off -- env DSM_NVME=64M:${CMAKE_BINARY_DIR} $<TARGET_FILE:refused>)

tiermesh_test(NAME tight LABELS shim
    COMMAND ${CMAKE_CURRENT_LIST_DIR}/tight.sh $<TARGET_FILE:tiermesh-preload>)

tiermesh_test(NAME tight_forks_native SOURCES tight_forks.c LABELS shim)
foreach(limit as data nproc)
    tiermesh_test(NAME tight_forks_${limit} LABELS shim ENVIRONMENT TRAP_EVICTS=1
        COMMAND dsmrun --ddr 8M --nvme 64M:${CMAKE_BINARY_DIR} --summary off --
            $<TARGET_FILE:tight_forks_native> ${limit})
endforeach()
