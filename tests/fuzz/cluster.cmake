# SPDX-License-Identifier: Apache-2.0
# What peers and agents say to each other about the job.
tiermesh_fuzz(NAME fuzz_cluster SOURCES fuzz_cluster.c USES tm_cluster)
tiermesh_fuzz(NAME fuzz_agent SOURCES fuzz_agent.c USES tm_agent CORPUS corpus/agent)
tiermesh_fuzz(NAME fuzz_broker SOURCES fuzz_broker.c USES tm_agent CORPUS corpus/broker)
