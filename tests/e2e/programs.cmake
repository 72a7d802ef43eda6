# SPDX-License-Identifier: Apache-2.0
# Real programs under the preload library: one test a script in programs/, and one a class of stress-ng.
if(NOT TARGET tiermesh-preload OR NOT TARGET dsmrun)
    return()
endif()

# program_test(name script ARGS ... LABELS ... TIMEOUT seconds): the limits inside the script end both halves before.
function(program_test name script)
    cmake_parse_arguments(PROGRAM "" "TIMEOUT" "ARGS;LABELS" ${ARGN})
    if(NOT PROGRAM_TIMEOUT)
        set(PROGRAM_TIMEOUT 400)
    endif()
    tiermesh_test(NAME e2e_program_${name} COMMAND ${CMAKE_CURRENT_LIST_DIR}/programs/${script}.sh ${PROGRAM_ARGS}
        LABELS e2e ${PROGRAM_LABELS} TIMEOUT ${PROGRAM_TIMEOUT})
endfunction()

foreach(program sort sqlite redis memcached numpy python gcc node perl java postgres rocksdb xz memtester pipelines)
    program_test(${program} ${program})
endforeach()
foreach(class vm mmap mremap malloc fork vm-rw madvise mprotect userfaultfd)
    program_test(stress_${class} stress ARGS ${class})
endforeach()
