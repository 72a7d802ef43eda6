# SPDX-License-Identifier: Apache-2.0
# Promela models of what is concurrent: each must hold and each planted bug must be found.

tiermesh_test(NAME model COMMAND ${CMAKE_CURRENT_LIST_DIR}/run.sh LABELS model TIMEOUT 120)
