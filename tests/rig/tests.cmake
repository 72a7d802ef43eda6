# SPDX-License-Identifier: Apache-2.0
# Tests in guests of bench/qemu, where it is built (make rig); skipped with the reason where it is not. Serial: a guest
# takes all processors. They have a label of their own and are no part of the plain dev run: scripts/check.sh runs them.
if(TIERMESH_SANITIZE)
    return()
endif()

tiermesh_test_program(rig_probe SOURCES ${CMAKE_CURRENT_LIST_DIR}/probe.c)

foreach(kind refuses killed statuses)
    tiermesh_test(NAME rig_${kind} LABELS rig TIMEOUT 400 SERIAL
        COMMAND ${CMAKE_CURRENT_LIST_DIR}/host.sh ${kind} ${CMAKE_BINARY_DIR})
endforeach()

# rig_guest(NAME OPTION...): guest/NAME.sh in guests with these options of bench/qemu/boot.sh.
function(rig_guest name)
    tiermesh_test(NAME rig_${name} LABELS rig TIMEOUT 400 SERIAL
        COMMAND ${CMAKE_CURRENT_LIST_DIR}/boot.sh ${CMAKE_BINARY_DIR} ${name} -t 200 ${ARGN})
endfunction()
rig_guest(unit --nvme 256)
rig_guest(preload --nvme 512)
rig_guest(demo -n 2 -c 1 --ssh --nvme 512)
rig_guest(cxl --cxl 512)
rig_guest(hmat --hmat 512)
rig_guest(nvme --nvme 512)
rig_guest(devdax --cxl-dax 512)
rig_guest(pool -n 2 -c 1 --pool 256)
rig_guest(pool_nodes -n 2 -c 1 --ssh --pool 256 --nvme 512)
rig_guest(rxe -n 2 -c 1 --rxe)
include(${CMAKE_CURRENT_LIST_DIR}/cxl.cmake)
