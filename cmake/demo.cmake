# SPDX-License-Identifier: Apache-2.0
# The demo: a program over <tiermesh/dsm.h> alone. tm_demo is its parts without main(), for the tests.
file(GLOB demo_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/demo/*.c)
list(REMOVE_ITEM demo_sources ${CMAKE_SOURCE_DIR}/demo/pkgrank.c)
add_library(tm_demo STATIC ${demo_sources})
target_include_directories(tm_demo PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
target_link_libraries(tm_demo PUBLIC m)

if(TARGET tiermesh)
    add_executable(pkgrank demo/pkgrank.c)
    target_link_libraries(pkgrank PRIVATE tm_demo tiermesh)
endif()
