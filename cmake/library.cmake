# SPDX-License-Identifier: Apache-2.0
# libtiermesh.so, what it exports, and how other projects find it.
#
# Only the shared library is installed: inside it our names are hidden by the symbol map. A static archive would leave
# hundreds of short names (frame_take, error_set) to collide with the program's.
if(NOT TARGET tm_runtime)
    return()
endif()

set(objects)
foreach(folder base mmu tiers fabric coherence cluster prefetch runtime)
    if(TARGET tm_${folder})
        list(APPEND objects $<TARGET_OBJECTS:tm_${folder}>)
    endif()
endforeach()

# The map exports what runtime/ defines as dsm_*; a hidden symbol could not be exported.
set_target_properties(tm_runtime PROPERTIES C_VISIBILITY_PRESET default)

set(map ${CMAKE_SOURCE_DIR}/runtime/libtiermesh.map)
add_library(tiermesh SHARED ${objects})
set_target_properties(tiermesh PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
    LINK_DEPENDS ${map} LINKER_LANGUAGE C)
target_include_directories(tiermesh INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(tiermesh PRIVATE PkgConfig::URING PkgConfig::NUMA PkgConfig::XXHASH PkgConfig::LZ4
    PkgConfig::ZSTD ${pmem2} ${verbs} Threads::Threads)
target_link_options(tiermesh PRIVATE LINKER:--version-script=${map} LINKER:-z,relro,-z,now)
if(NOT TIERMESH_SANITIZE)
    target_link_options(tiermesh PRIVATE LINKER:-z,defs)
endif()

install(TARGETS tiermesh EXPORT tiermeshTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/tiermesh DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

# Relative to the .pc file, so that an installed tree may be moved.
file(RELATIVE_PATH TIERMESH_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" TIERMESH_PC_PREFIX "${TIERMESH_PC_PREFIX}")
configure_file(cmake/tiermesh.pc.in tiermesh.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tiermesh.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/tiermesh)
configure_package_config_file(cmake/tiermeshConfig.cmake.in tiermeshConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(tiermeshConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/tiermeshConfig.cmake ${CMAKE_BINARY_DIR}/tiermeshConfigVersion.cmake
    DESTINATION ${package})
install(EXPORT tiermeshTargets NAMESPACE tiermesh:: DESTINATION ${package})
