# SPDX-License-Identifier: Apache-2.0
# CXL tiers in guests: programs that run there, and the tests where the rig has a way to run them (rig_guest).
if(NOT TARGET tiermesh OR TIERMESH_SANITIZE)
    return()
endif()
tiermesh_test_program(hot_pages SOURCES ${CMAKE_CURRENT_LIST_DIR}/hot_pages.c)
tiermesh_test_program(devdax_pages SOURCES ${CMAKE_CURRENT_LIST_DIR}/devdax_pages.c USES tiermesh)
if(COMMAND rig_guest)
    rig_guest(tiers_node --cxl 512)
    rig_guest(tiers_vanish --cxl 512)
    rig_guest(tiers_device --cxl-dax 512)
endif()
