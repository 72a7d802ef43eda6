# SPDX-License-Identifier: Apache-2.0
# Programs built against an installed copy of this build. A sanitizer would have to be in them too.
if(NOT TARGET tiermesh OR TIERMESH_SANITIZE)
    return()
endif()
foreach(kind pkg-config find-package readme)
    tiermesh_test(NAME consumer_${kind} LABELS e2e TIMEOUT 120 COMMAND ${CMAKE_CURRENT_LIST_DIR}/consumer.sh ${kind}
        ${CMAKE_BINARY_DIR} ${CMAKE_C_COMPILER} ${CMAKE_CXX_COMPILER})
endforeach()
