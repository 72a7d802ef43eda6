# SPDX-License-Identifier: Apache-2.0
# Included by consumer.sh into a configure run that must fail: there is no such version.
find_package(tiermesh 9.0 REQUIRED)
