# SPDX-License-Identifier: Apache-2.0
# Warnings, sanitizers, and one static library a folder.

add_compile_definitions(_GNU_SOURCE)
add_compile_options($<$<COMPILE_LANGUAGE:C>:-Wall> $<$<COMPILE_LANGUAGE:C>:-Wextra> $<$<COMPILE_LANGUAGE:C>:-Wshadow>
    $<$<COMPILE_LANGUAGE:C>:-Wconversion> $<$<COMPILE_LANGUAGE:C>:-Wswitch-enum> $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
    $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes> $<$<COMPILE_LANGUAGE:C>:-Wvla> -fno-omit-frame-pointer -fno-strict-aliasing)
if(TIERMESH_WERROR)
    add_compile_options(-Werror)
endif()
if(TIERMESH_SANITIZE)
    add_compile_options(-fsanitize=${TIERMESH_SANITIZE} -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${TIERMESH_SANITIZE})
endif()

function(tiermesh_folder name)
    cmake_parse_arguments(FOLDER "" "" "USES" ${ARGN})
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${name}/*.c)
    if(NOT sources)
        return()
    endif()
    add_library(tm_${name} STATIC ${sources})
    target_include_directories(tm_${name} PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
    foreach(used ${FOLDER_USES})
        if(NOT used MATCHES "^tm_" OR TARGET ${used})
            target_link_libraries(tm_${name} PUBLIC ${used})
        endif()
    endforeach()
endfunction()
