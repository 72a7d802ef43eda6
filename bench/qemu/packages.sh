# SPDX-License-Identifier: Apache-2.0
# Sourced by build.sh: what the rig is made of.

# Run in place from the host tree.
host_packages="qemu-system-x86 cpio kmod xz-utils"
# Of that closure, what QEMU, cpio, kmod and xz never load.
host_useless='^(perl|libperl|udev|systemd|dpkg|debconf|adduser|passwd|base-files|usrmerge|libpam|libicu)'

# The cloud flavour will not do: it has neither soft-RoCE nor 9p.
kernel_package=linux-image-amd64

# Of this machine's release, so that programs built here find their libraries there. rdma-core itself (udev rules, perl,
# iwpmd) is not needed: ibverbs-providers brings the driver of soft-RoCE.
guest_packages="busybox-static bash coreutils kmod iproute2 e2fsprogs dropbear-bin
    ibverbs-providers ibverbs-utils rdmacm-utils perftest
    ndctl daxctl numactl libpmem2 sqlite3
    liburing2 libxxhash0 liblz4-1 libzstd1 libcmocka0 libjemalloc2 libstdc++6"
guest_useless='^(perl|libperl|libfile-find|libnumber-|libtext-|dpkg|debconf|adduser|passwd|tar|usrmerge|debianutils)
^(init-system-helpers|libpam|libsemanage|libaudit|mawk|libcap2-bin|base-files|libdb5|libgdbm|gcc-12-base|libcap-ng0)
^(sysvinit-utils|lsb-base|procps|logsave|udev|systemd)'

# Kernel modules that the guests carry, and with them those that these need.
guest_modules="virtio_net 9p 9pnet_virtio crc32-pclmul crc32_generic
    rdma_rxe ib_uverbs rdma_ucm
    cxl_acpi cxl_pci cxl_mem cxl_pmem device_dax kmem dax_cxl dax_hmem
    dax_pmem nd_pmem nfit
    nvme ext4 sch_netem"
