#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# in_group.sh CGROUP COMMAND...: becomes COMMAND, inside the cgroup.
echo $$ >"$1/cgroup.procs" || exit 1
shift
exec "$@"
