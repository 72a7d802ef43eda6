# SPDX-License-Identifier: Apache-2.0
# Traces through the policies and predictors as they are shipped. tm_replay is the program without main(), for tests.
file(GLOB replay_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/replay/*.c)
list(REMOVE_ITEM replay_sources ${CMAKE_SOURCE_DIR}/bench/replay/replay.c)
add_library(tm_replay STATIC ${replay_sources})
target_include_directories(tm_replay PUBLIC ${CMAKE_SOURCE_DIR})
target_link_libraries(tm_replay PUBLIC tm_tiers tm_prefetch tm_base PkgConfig::ZSTD)
add_executable(tiermesh-replay ${CMAKE_SOURCE_DIR}/bench/replay/replay.c)
target_link_libraries(tiermesh-replay PRIVATE tm_replay)
set_target_properties(tiermesh-replay PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
install(TARGETS tiermesh-replay RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

add_executable(bench_synthetic_traces ${CMAKE_SOURCE_DIR}/bench/synthetic_traces.c)
target_include_directories(bench_synthetic_traces PRIVATE ${CMAKE_SOURCE_DIR})
target_link_libraries(bench_synthetic_traces PRIVATE m)
set_target_properties(bench_synthetic_traces PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
