# SPDX-License-Identifier: Apache-2.0
# Decoders and what they feed. Each folder registers its programs in a fragment of its own beside this one.
file(GLOB fuzz_fragments CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cmake)
list(REMOVE_ITEM fuzz_fragments ${CMAKE_CURRENT_LIST_FILE})
foreach(fuzz_fragment ${fuzz_fragments})
    include(${fuzz_fragment})
endforeach()
