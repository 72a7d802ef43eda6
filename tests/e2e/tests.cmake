# SPDX-License-Identifier: Apache-2.0
# Whole programs. Each subject registers its tests in a fragment of its own beside this one.
file(GLOB e2e_fragments CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cmake)
list(REMOVE_ITEM e2e_fragments ${CMAKE_CURRENT_LIST_FILE})
foreach(e2e_fragment ${e2e_fragments})
    include(${e2e_fragment})
endforeach()
