# SPDX-License-Identifier: Apache-2.0
# Messages of coherence/.
tiermesh_fuzz(NAME fuzz_message SOURCES fuzz_message.c USES tm_coherence tm_base CORPUS corpus/message)
