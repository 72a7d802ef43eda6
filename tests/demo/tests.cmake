# SPDX-License-Identifier: Apache-2.0
# The demo over the real library. Serial: it takes both processors, and its stores are looked for afterwards.
if(NOT TARGET pkgrank OR NOT TARGET dsmrun OR TIERMESH_SANITIZE)
    return()
endif()
set(demo ${CMAKE_CURRENT_LIST_DIR}/demo.sh)
tiermesh_test(NAME demo_whole COMMAND ${demo} ${CMAKE_BINARY_DIR} whole LABELS e2e TIMEOUT 240 SERIAL)
tiermesh_test(NAME demo_killed COMMAND ${demo} ${CMAKE_BINARY_DIR} killed LABELS e2e TIMEOUT 240 SERIAL)
tiermesh_test(NAME demo_refused COMMAND ${demo} ${CMAKE_BINARY_DIR} refused LABELS e2e TIMEOUT 60 SERIAL)
tiermesh_test(NAME demo_nodes COMMAND ${demo} ${CMAKE_BINARY_DIR} nodes LABELS e2e long TIMEOUT 600 SERIAL)
