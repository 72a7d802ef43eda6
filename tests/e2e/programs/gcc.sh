#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gcc on a large generated file: the driver starts the compiler and the assembler by vfork, and the object must not
# differ by a byte. cc1 has its own collector over mmap.
source "$(dirname "$0")/common.sh"
gcc=$(need gcc gcc)

awk 'BEGIN {
    srand(3)
    print "struct node { struct node *next; long value[8]; };"
    for (i = 0; i < 500; i++) {
        printf "static long table_%d[] = {", i
        for (j = 0; j < 200; j++)
            printf "%d,", rand() * 1e9
        printf "};\nlong function_%d(struct node *node, long x)\n{\n", i
        for (j = 0; j < 6; j++)
            printf "    for (long i = 0; i < x; i++) node->value[%d] += table_%d[i %% 200] * %d;\n", j, i, j + i
        printf "    return node->next ? function_%d(node->next, x + %d) : node->value[%d];\n}\n", i, i, i % 8
    }
}' >program.c
natively "$gcc" -O1 -c ../program.c -o program.o
managed "$gcc" -O1 -c ../program.c -o program.o
same program.o
verdict
