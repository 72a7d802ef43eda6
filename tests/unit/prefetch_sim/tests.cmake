# SPDX-License-Identifier: Apache-2.0
# The simulation behind tiermesh-replay --prefetch. From its sources: the benchmarks come after the tests.
set(replay ${CMAKE_SOURCE_DIR}/bench/replay)
tiermesh_test(NAME test_prefetch_sim LABELS unit USES tm_prefetch tm_base
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_prefetch_sim.c
    ${replay}/prefetch_sim.c ${replay}/prefetch_ours.c ${replay}/prefetch_rivals.c)
