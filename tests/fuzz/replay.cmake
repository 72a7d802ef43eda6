# SPDX-License-Identifier: Apache-2.0
# Traces come from anywhere.
tiermesh_fuzz(NAME fuzz_trace SOURCES fuzz_trace.c USES tm_replay CORPUS corpus/trace)
