# SPDX-License-Identifier: Apache-2.0
# The programs. dsmrun has none of the data path: it links the agent, what decides views, and the table of options.
file(GLOB agent_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/runtime/agent_*.c)
# The broker of preloaded programs, and of the tiers what keeps its store.
list(APPEND agent_sources ${CMAKE_SOURCE_DIR}/runtime/broker_ask.c ${CMAKE_SOURCE_DIR}/runtime/broker_server.c
    ${CMAKE_SOURCE_DIR}/runtime/broker_store.c ${CMAKE_SOURCE_DIR}/runtime/broker_wire.c
    ${CMAKE_SOURCE_DIR}/runtime/stats.c ${CMAKE_SOURCE_DIR}/tiers/nvme_file.c ${CMAKE_SOURCE_DIR}/tiers/shared_slots.c)
# What dsmctl topology shows.
list(APPEND agent_sources ${CMAKE_SOURCE_DIR}/runtime/machine.c ${CMAKE_SOURCE_DIR}/runtime/topology_file.c
    ${CMAKE_SOURCE_DIR}/tiers/classify.c ${CMAKE_SOURCE_DIR}/tiers/node_measure.c ${CMAKE_SOURCE_DIR}/tiers/topology.c)
if(NOT agent_sources OR NOT TARGET tm_cluster OR NOT EXISTS ${CMAKE_SOURCE_DIR}/runtime/config.c)
    return()
endif()

add_library(tm_agent STATIC ${agent_sources} ${CMAKE_SOURCE_DIR}/runtime/config.c)
target_include_directories(tm_agent PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
target_link_libraries(tm_agent PUBLIC tm_cluster tm_mmu tm_base)

set(tools ${CMAKE_SOURCE_DIR}/tools)
add_executable(dsmrun ${tools}/dsmrun.c ${tools}/elf.c ${tools}/guard.c ${tools}/hosts.c ${tools}/launch.c
    ${tools}/options.c ${tools}/output.c ${tools}/preload.c ${tools}/program.c ${tools}/recording.c
    ${tools}/summary.c)
target_link_libraries(dsmrun PRIVATE tm_agent)
# Where the preload library is when dsmrun is installed; a build with a sanitizer has none.
target_compile_definitions(dsmrun PRIVATE TIERMESH_LIBDIR="${CMAKE_INSTALL_LIBDIR}"
    TIERMESH_HAS_PRELOAD=$<TARGET_EXISTS:tiermesh-preload>)
add_executable(dsmctl ${tools}/dsmctl.c ${tools}/summary.c)
target_link_libraries(dsmctl PRIVATE tm_agent)
install(TARGETS dsmrun dsmctl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${CMAKE_SOURCE_DIR}/docs/man/dsmrun.1 ${CMAKE_SOURCE_DIR}/docs/man/dsmctl.1
    DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
