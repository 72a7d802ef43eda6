# SPDX-License-Identifier: Apache-2.0
# Tests: unit programs are found by their names; every other kind registers itself in tests/<kind>/tests.cmake.
#
#   tiermesh_test(NAME x SOURCES a.c b.c [USES tm_base ...] [LABELS sim threads] [TIMEOUT 60] [ARGS ...]
#                 [ENVIRONMENT A=b ...] [DEFINITIONS X=1 ...] [SERIAL])
#   tiermesh_test(NAME x COMMAND program-or-target args... [LABELS ...] ...)   a script, or one more run of a program
#   tiermesh_fuzz(NAME x SOURCES a.c [USES ...] [CORPUS dir])                  a.c has LLVMFuzzerTestOneInput
#
# Relative sources are looked for beside the fragment. The kinds are labels: unit sim contract stress e2e lint fuzz.
# More labels: `threads` is run under TSan too; `long` is left out of the default check; `noasan` and `notsan` cannot
# run there. Exit code 77 is "skipped". SERIAL runs alone, for programs that measure or take both processors.
option(TIERMESH_FUZZ "link the fuzz programs with libFuzzer (clang)" OFF)

if(NOT BUILD_TESTING)
    return()
endif()

# A sanitizer makes a program several times slower; the bound is there against hangs, not to measure.
set(TIERMESH_TIMEOUT_FACTOR 1)
if(TIERMESH_SANITIZE)
    set(TIERMESH_TIMEOUT_FACTOR 4)
endif()

# The targets tests_LABEL build what the tests of a label run: a sanitizer build makes no more than it will test.
foreach(label unit sim contract fuzz threads)
    add_custom_target(tests_${label})
endforeach()

function(tiermesh_test_program name)
    cmake_parse_arguments(PROGRAM "" "" "SOURCES;USES;DEFINITIONS" ${ARGN})
    add_executable(${name} ${PROGRAM_SOURCES})
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
    target_compile_definitions(${name} PRIVATE ${PROGRAM_DEFINITIONS})
    target_link_libraries(${name} PRIVATE ${PROGRAM_USES} Threads::Threads)
    if(TARGET PkgConfig::CMOCKA)
        target_link_libraries(${name} PRIVATE PkgConfig::CMOCKA)
    endif()
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endfunction()

# Sets ret_missing to the first of our libraries that has no source file yet.
function(tiermesh_missing ret_missing)
    set(${ret_missing} "" PARENT_SCOPE)
    foreach(used ${ARGN})
        if((used MATCHES "^tm_" OR used STREQUAL "tiermesh") AND NOT TARGET ${used})
            set(${ret_missing} ${used} PARENT_SCOPE)
        endif()
    endforeach()
endfunction()

function(tiermesh_test)
    cmake_parse_arguments(TEST "SERIAL" "NAME;TIMEOUT"
        "SOURCES;USES;LABELS;ARGS;COMMAND;ENVIRONMENT;DEFINITIONS" ${ARGN})
    if(TEST_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "test ${TEST_NAME}: unknown arguments ${TEST_UNPARSED_ARGUMENTS}")
    endif()
    tiermesh_missing(missing ${TEST_USES})
    if(missing)
        message(STATUS "test ${TEST_NAME} is left out: ${missing} has no sources")
        return()
    endif()
    if(TEST_SOURCES)
        list(TRANSFORM TEST_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/ REGEX "^[^/$]")
        tiermesh_test_program(${TEST_NAME} SOURCES ${TEST_SOURCES} USES ${TEST_USES} DEFINITIONS ${TEST_DEFINITIONS})
        set(TEST_COMMAND ${TEST_NAME} ${TEST_ARGS})
    endif()
    list(GET TEST_COMMAND 0 program)
    set(needed ${program})
    foreach(argument ${TEST_COMMAND})
        if(argument MATCHES "^.<TARGET_FILE:(.+)>$")
            list(APPEND needed ${CMAKE_MATCH_1})
        endif()
    endforeach()
    if(TEST_COMMAND MATCHES dsmrun)
        list(APPEND needed dsmrun)
    endif()
    foreach(label ${TEST_LABELS})
        foreach(target ${needed})
            if(TARGET tests_${label} AND TARGET ${target})
                add_dependencies(tests_${label} ${target})
            endif()
        endforeach()
    endforeach()
    if(NOT TEST_TIMEOUT)
        set(TEST_TIMEOUT 60)
    endif()
    math(EXPR timeout "${TEST_TIMEOUT} * ${TIERMESH_TIMEOUT_FACTOR}")
    add_test(NAME ${TEST_NAME} COMMAND ${TEST_COMMAND} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
    set_tests_properties(${TEST_NAME} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${timeout} LABELS "${TEST_LABELS}"
        ENVIRONMENT "TIERMESH_SOURCE=${CMAKE_SOURCE_DIR};TIERMESH_BUILD=${CMAKE_BINARY_DIR};${TEST_ENVIRONMENT}")
    if(TEST_SERIAL)
        set_tests_properties(${TEST_NAME} PROPERTIES RUN_SERIAL ON)
    endif()
endfunction()

# The same program serves two ends: libFuzzer drives it in the fuzz build, and fuzz_main.c replays the corpus and
# seeded variations of it in every other build, so that gcc and the sanitizers see the decoders too.
function(tiermesh_fuzz)
    cmake_parse_arguments(FUZZ "" "NAME;CORPUS" "SOURCES;USES" ${ARGN})
    set(main ${CMAKE_SOURCE_DIR}/tests/support/fuzz_main.c)
    set(args)
    if(FUZZ_CORPUS)
        set(args ${CMAKE_CURRENT_LIST_DIR}/${FUZZ_CORPUS})
    endif()
    if(TIERMESH_FUZZ)
        set(main)
        list(PREPEND args -max_total_time=20 -rss_limit_mb=1024 -print_final_stats=1)
    endif()
    tiermesh_test(NAME ${FUZZ_NAME} SOURCES ${FUZZ_SOURCES} ${main} USES ${FUZZ_USES}
        LABELS fuzz TIMEOUT 120 ARGS ${args})
    if(TIERMESH_FUZZ AND TARGET ${FUZZ_NAME})
        target_link_options(${FUZZ_NAME} PRIVATE -fsanitize=fuzzer)
    endif()
endfunction()

# tests/unit/<folder>/test_<file>.c becomes test_<folder>_<file>, linked with that folder's library alone, unless the
# folder has its own fragment.
file(GLOB unit_folders CONFIGURE_DEPENDS LIST_DIRECTORIES true ${CMAKE_SOURCE_DIR}/tests/unit/*)
foreach(path ${unit_folders})
    get_filename_component(folder ${path} NAME)
    if(EXISTS ${path}/tests.cmake)
        include(${path}/tests.cmake)
        continue()
    endif()
    file(GLOB programs CONFIGURE_DEPENDS ${path}/test_*.c)
    foreach(source ${programs})
        get_filename_component(stem ${source} NAME_WE)
        string(REGEX REPLACE "^test_" "" stem ${stem})
        tiermesh_test(NAME test_${folder}_${stem} SOURCES ${source} USES tm_${folder} LABELS unit TIMEOUT 60)
    endforeach()
endforeach()

file(GLOB fragments CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/*/tests.cmake)
foreach(fragment ${fragments})
    include(${fragment})
endforeach()
