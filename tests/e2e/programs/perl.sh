#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# perl with a large hash of lists.
source "$(dirname "$0")/common.sh"
lower=(--zmem 64M --nvme "4G:$scratch")
perl=$(need perl perl)

cat >script.pl <<'PERL'
use strict;
use warnings;
my (%table, $sum, $bytes);
my $x = 12345;
for my $i (1 .. 120000) {
    $x = ($x * 1103515245 + 12345) & 0x7fffffff;
    push @{$table{"k" . ($x % 60000)}}, "value $i " . ("$x " x (20 + $x % 100));
}
delete $table{"k" . ($_ * 7)} for 0 .. 60000 / 7;
for my $key (sort keys %table) {
    for my $value (@{$table{$key}}) {
        $bytes += length $value;
        $sum = ((($sum // 0) * 31) + unpack("%32C*", $value)) % 1000000007;
    }
}
print scalar(keys %table), " keys, $bytes bytes, $sum\n";
PERL
natively "$perl" ../script.pl
managed "$perl" ../script.pl
same out
verdict
