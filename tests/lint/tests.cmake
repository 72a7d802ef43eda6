# SPDX-License-Identifier: Apache-2.0
# The lints, and beside each its planted violations. They look at the source tree or at what the build made, so one
# build is enough: sanitizers change what the objects call.
if(TIERMESH_SANITIZE)
    return()
endif()

set(lint ${CMAKE_CURRENT_LIST_DIR})
foreach(name layers length rules words)
    tiermesh_test(NAME lint_${name} COMMAND ${lint}/${name}.sh ${CMAKE_SOURCE_DIR} LABELS lint)
endforeach()
foreach(name layers length rules words pure symbols header preload verbs)
    tiermesh_test(NAME lint_planted_${name} COMMAND ${lint}/planted.sh ${name} LABELS lint
        ENVIRONMENT CC=${CMAKE_C_COMPILER} CXX=${CMAKE_CXX_COMPILER})
endforeach()
tiermesh_test(NAME lint_header LABELS lint
    COMMAND ${lint}/header.sh ${CMAKE_SOURCE_DIR}/include ${CMAKE_C_COMPILER} ${CMAKE_CXX_COMPILER})

set(pure)
foreach(folder coherence cluster prefetch)
    if(TARGET tm_${folder})
        list(APPEND pure $<TARGET_FILE:tm_${folder}>)
    endif()
endforeach()
set(pure_tiers)
foreach(name placement placement_fifo placement_arms arms ghosts frames classify spread)
    if(EXISTS ${CMAKE_SOURCE_DIR}/tiers/${name}.c)
        string(APPEND pure_tiers ":${name}.c.o")
    endif()
endforeach()
if(pure_tiers)
    list(APPEND pure $<TARGET_FILE:tm_tiers>${pure_tiers})
endif()
if(pure)
    tiermesh_test(NAME lint_pure COMMAND ${lint}/pure.sh ${pure} LABELS lint)
endif()
if(TARGET tiermesh)
    tiermesh_test(NAME lint_symbols LABELS lint
        COMMAND ${lint}/symbols.sh ${CMAKE_SOURCE_DIR}/include/tiermesh/dsm.h $<TARGET_FILE:tiermesh>)
endif()
if(TARGET tiermesh-preload)
    tiermesh_test(NAME lint_preload LABELS lint ENVIRONMENT CC=${CMAKE_C_COMPILER}
        COMMAND ${lint}/preload.sh $<TARGET_FILE:tiermesh-preload> ${CMAKE_SOURCE_DIR}/shim/libtiermesh-preload.map)
endif()
if(TARGET tiermesh AND TARGET fabric_without_verbs)
    set(found no)
    if(VERBS_FOUND)
        set(found yes)
    endif()
    tiermesh_test(NAME lint_verbs LABELS lint COMMAND ${lint}/verbs.sh ${CMAKE_SOURCE_DIR} $<TARGET_FILE:tiermesh>
        ${found} $<TARGET_FILE:fabric_without_verbs>)
endif()
tiermesh_test(NAME lint_config SOURCES config_doc.c USES tm_agent LABELS lint
    ARGS ${CMAKE_SOURCE_DIR}/docs/CONFIG.md)
