# SPDX-License-Identifier: Apache-2.0
# The contract suite runs over every transport, plain and under `faulty`, on the loops of runtime/.
set(fabric_loop ${CMAKE_SOURCE_DIR}/runtime/loop_core.c ${CMAKE_SOURCE_DIR}/runtime/loop_epoll.c
    ${CMAKE_SOURCE_DIR}/runtime/loop_uring.c)
set(fabric_uses tm_fabric tm_base PkgConfig::URING)

tiermesh_test(NAME fabric_contract_loopback SOURCES contract.c world.c ${fabric_loop} USES ${fabric_uses}
    LABELS unit TIMEOUT 60 ARGS loopback)
if(TARGET fabric_contract_loopback)
    foreach(transport tcp shm pool)
        tiermesh_test(NAME fabric_contract_${transport} COMMAND fabric_contract_loopback ${transport}
            LABELS unit TIMEOUT 60)
        tiermesh_test(NAME fabric_contract_${transport}_uring COMMAND fabric_contract_loopback ${transport} io_uring
            LABELS unit TIMEOUT 60)
    endforeach()
    foreach(transport loopback tcp shm pool)
        tiermesh_test(NAME fabric_contract_faulty_${transport} COMMAND fabric_contract_loopback ${transport} faulty
            LABELS unit TIMEOUT 90)
    endforeach()
    # Skipped where there is no RDMA device. TIERMESH_TEST_ADDRESS is an address that one has; with
    # TIERMESH_TEST_NEEDS_VERBS a device that is missing is a failure.
    tiermesh_test(NAME fabric_contract_verbs COMMAND fabric_contract_loopback verbs LABELS rig TIMEOUT 120)
    tiermesh_test(NAME fabric_contract_verbs_uring COMMAND fabric_contract_loopback verbs io_uring
        LABELS rig TIMEOUT 120)
    tiermesh_test(NAME fabric_contract_faulty_verbs COMMAND fabric_contract_loopback verbs faulty
        LABELS rig TIMEOUT 120)
endif()

if(VERBS_FOUND)
    foreach(name faults pages)
        tiermesh_test(NAME fabric_verbs_${name} SOURCES verbs_${name}.c world.c ${fabric_loop} USES ${fabric_uses}
            LABELS rig TIMEOUT 120)
    endforeach()
    # The same in guests with a soft-RoCE device, where the rig is there to boot them.
    set(rig ${CMAKE_SOURCE_DIR}/tests/rig/boot.sh)
    if(EXISTS ${rig} AND TARGET dsmrun AND NOT TIERMESH_SANITIZE)
        tiermesh_test(NAME rig_verbs LABELS rig TIMEOUT 360 SERIAL
            COMMAND ${rig} ${CMAKE_BINARY_DIR} verbs -t 330 -c 1 --rxe)
        tiermesh_test(NAME rig_verbs_nodes LABELS rig TIMEOUT 360 SERIAL
            COMMAND ${rig} ${CMAKE_BINARY_DIR} verbs_nodes -t 330 --rxe --nvme 512)
        tiermesh_test(NAME rig_verbs_demo LABELS rig TIMEOUT 240 SERIAL
            COMMAND ${rig} ${CMAKE_BINARY_DIR} verbs_demo -t 200 -n 2 -c 1 --ssh --rxe --nvme 512)
    endif()
endif()

# The fabric as it is built without rdma-core, whether that is there or not.
if(TARGET tm_fabric)
    file(GLOB bare CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/fabric/*.c)
    list(APPEND bare ${CMAKE_SOURCE_DIR}/fabric/verbs_none.c)
    list(REMOVE_DUPLICATES bare)
    foreach(name ${verbs_sources})
        list(REMOVE_ITEM bare ${CMAKE_SOURCE_DIR}/${name})
    endforeach()
    tiermesh_test(NAME fabric_without_verbs SOURCES without_verbs.c world.c ${fabric_loop} ${bare}
        USES tm_base PkgConfig::URING LABELS unit)
endif()

tiermesh_test(NAME fabric_hostile SOURCES hostile.c world.c ${fabric_loop} USES ${fabric_uses} LABELS unit TIMEOUT 60)

tiermesh_test(NAME fabric_pool_caches SOURCES pool_caches.c USES ${fabric_uses} LABELS unit TIMEOUT 60)
tiermesh_test(NAME fabric_pool_hostile SOURCES pool_hostile.c world.c ${fabric_loop} USES ${fabric_uses}
    LABELS unit TIMEOUT 60)

tiermesh_fuzz(NAME fabric_fuzz_stream SOURCES fuzz_stream.c USES tm_fabric tm_base CORPUS corpus_stream)
tiermesh_fuzz(NAME fabric_fuzz_ring SOURCES fuzz_ring.c USES tm_fabric tm_base CORPUS corpus_ring)

tiermesh_test(NAME fabric_threads_tcp SOURCES threads.c ${fabric_loop} USES ${fabric_uses}
    LABELS unit threads TIMEOUT 60 ARGS tcp epoll)
if(TARGET fabric_threads_tcp)
    tiermesh_test(NAME fabric_threads_tcp_uring COMMAND fabric_threads_tcp tcp io_uring LABELS unit threads TIMEOUT 60)
    tiermesh_test(NAME fabric_threads_shm COMMAND fabric_threads_tcp shm epoll LABELS unit threads TIMEOUT 60)
    tiermesh_test(NAME fabric_threads_shm_uring COMMAND fabric_threads_tcp shm io_uring LABELS unit threads TIMEOUT 60)
endif()
