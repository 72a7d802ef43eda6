# SPDX-License-Identifier: Apache-2.0
# libtiermesh-preload.so: the preload library. Everything it uses is inside it, with hidden symbols; what our own code
# calls mmap or malloc is bound to the raw system calls and to the runtime's own heap (shim/raw.c), never to the
# functions that the library puts in front of the program's.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/shim/*.c)
if(NOT sources OR TIERMESH_SANITIZE)
    return()
endif()
