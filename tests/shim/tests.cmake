# SPDX-License-Identifier: Apache-2.0
# The preload library in front of programs. Each part of shim/ registers its own in a fragment beside this one.
if(NOT TARGET tiermesh-preload)
    return()
endif()

# The library over nothing but the kernel.
tiermesh_preload(tiermesh-preload-plain ${CMAKE_SOURCE_DIR}/tests/support/hooks_plain.c)
set_target_properties(tiermesh-preload-plain PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)

file(GLOB shim_fragments CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cmake)
list(REMOVE_ITEM shim_fragments ${CMAKE_CURRENT_LIST_DIR}/tests.cmake)
foreach(shim_fragment ${shim_fragments})
    include(${shim_fragment})
endforeach()
