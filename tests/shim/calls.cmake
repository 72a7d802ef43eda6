# SPDX-License-Identifier: Apache-2.0
# The trap programs, each natively and under the library.
file(GLOB traps CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/trap_*.c)
foreach(source ${traps})
    get_filename_component(trap ${source} NAME_WE)
    tiermesh_test(NAME ${trap}_native SOURCES ${source} USES PkgConfig::URING LABELS shim)
    tiermesh_test(NAME ${trap}_plain COMMAND ${trap}_native LABELS shim
        ENVIRONMENT DSM_PRELOAD=1 LD_PRELOAD=$<TARGET_FILE:tiermesh-preload-plain>)
endforeach()
