# SPDX-License-Identifier: Apache-2.0
# rxe.sh - a soft-RoCE device rxe0 on the network between the guests.
modprobe -a rdma_rxe ib_uverbs rdma_ucm
rdma link add rxe0 type rxe netdev eth0
rdma link show rxe0/1
