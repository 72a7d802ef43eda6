# SPDX-License-Identifier: Apache-2.0
# CXL memory (emulated by QEMU) as a devdax file, mapped by libpmem2 as a store; sizes that do not fit are refused.
./dsmctl topology
./dsmrun -n 1 --ddr 8M --cxl "64M:$CXL_DAX" tests/devdax_pages || { echo "pages through $CXL_DAX"; exit 1; }
for size in 65537K 64G; do
    if ./dsmrun -n 1 --ddr 8M --cxl "$size:$CXL_DAX" tests/devdax_pages >/tmp/log 2>&1; then
        echo "$size was not refused"
        exit 1
    fi
    grep "CXL device $CXL_DAX" /tmp/log || { cat /tmp/log; exit 1; }
done
if ./dsmrun -n 1 --ddr 8M --cxl 64M:/dev/dax99.0 tests/devdax_pages >/tmp/log 2>&1; then exit 1; fi
grep 'dax99.0: No such file' /tmp/log || { cat /tmp/log; exit 1; }
echo "CXL memory (emulated) as a device works"
