/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.h - what a benchmark says: a figure of the product beside its raw reference, round by round.
 *
 * A program prints one row of the table for each figure, a line "met NAME RATIO BAR" or "missed NAME RATIO BAR" for
 * each that has a bar, and appends one line of JSON for each to the file that --json names. The ratio is taken within
 * a round, so that what disturbs the machine disturbs both sides; the median over the rounds is what counts.
 */
#ifndef TIERMESH_BENCH_REPORT_H
#define TIERMESH_BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#define ROUNDS_MAX 64

enum bar_kind {
    BAR_AT_MOST,
    BAR_AT_LEAST,
};

struct figure {
    const char *name;
    const char *unit;
    unsigned rounds_count;
    double product[ROUNDS_MAX];
    double reference[ROUNDS_MAX];
    double ratio[ROUNDS_MAX];
};

/* The file that JSON lines are appended to; NULL: none. Ends the process when it cannot be opened. */
void report_open(const char *json_path);

void figure_add(struct figure *figure, double product, double reference, double ratio);

/* Prints a figure that is judged, or one that is only told. A figure without rounds is an error of the program. */
void figure_judge(const struct figure *figure, enum bar_kind kind, double bar);
void figure_tell(const struct figure *figure);

/* A bar that this machine cannot judge, and why. */
void figure_skip(const char *name, const char *why);

/* A remark below the table's row. */
void report_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The q-quantile (0 to 1) of the values, which it sorts; count > 0. */
double quantile(double *values, unsigned count, double q);

#endif
