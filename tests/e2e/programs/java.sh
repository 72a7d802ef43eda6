#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# java with a heap above the budget: it is reserved as a whole, committed as it grows, and collected by moving objects.
source "$(dirname "$0")/common.sh"
lower=(--zmem 96M --nvme "4G:$scratch")
javac=$(need javac default-jdk-headless)
java=$(need java default-jdk-headless)

cat >Program.java <<'JAVA'
import java.util.ArrayList;
import java.util.HashMap;

public class Program {
    public static void main(String[] arguments) {
        HashMap<Integer, ArrayList<String>> table = new HashMap<>();
        long x = 1;
        for (int i = 0; i < 1_200_000; i++) {
            x = (x * 6364136223846793005L + 1442695040888963407L);
            table.computeIfAbsent((int) (x >>> 48), k -> new ArrayList<>()).add("entry " + x + " of " + i);
            if (i % 4 == 3)
                table.remove((int) (x >>> 49));
        }
        long[] numbers = new long[8_000_000];
        for (int i = 0; i < numbers.length; i++)
            numbers[i] = (numbers[i / 2] ^ i) * 0x9E3779B97F4A7C15L;
        long sum = 0;
        for (ArrayList<String> list : table.values())
            for (String text : list)
                sum = sum * 31 + text.hashCode();
        for (long number : numbers)
            sum += number;
        System.out.println(table.size() + " lists, " + sum);
    }
}
JAVA
"$javac" Program.java
options=(-XX:+UseSerialGC -Xms64m -Xmx400m -XX:TieredStopAtLevel=1)
natively "$java" "${options[@]}" -cp .. Program
managed "$java" "${options[@]}" -cp .. Program
same out
verdict
