/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.c - rows, verdicts and JSON lines. Used by one thread of the process that measures.
 */
#include "bench/report.h"
#include "bench/setup.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *json;

void report_open(const char *json_path)
{
    if (json_path == NULL)
        return;
    json = fopen(json_path, "ae");
    if (json == NULL)
        die("open %s: %s", json_path, strerror(errno));
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;

    return (left > right) - (left < right);
}

double quantile(double *values, unsigned count, double q)
{
    qsort(values, count, sizeof(*values), compare);
    return values[(unsigned)(q * (count - 1) + 0.5)];
}

static double quantile_of(const double *values, unsigned count, double q)
{
    double sorted[ROUNDS_MAX];

    memcpy(sorted, values, count * sizeof(*values));
    return quantile(sorted, count, q);
}

void figure_add(struct figure *figure, double product, double reference, double ratio)
{
    if (figure->rounds_count == ROUNDS_MAX)
        die("%s: more than %d rounds", figure->name, ROUNDS_MAX);
    figure->product[figure->rounds_count] = product;
    figure->reference[figure->rounds_count] = reference;
    figure->ratio[figure->rounds_count] = ratio;
    figure->rounds_count++;
}

/* `bar` and `verdict` are empty for a figure that is only told. */
static void print(const struct figure *figure, const char *bar, const char *verdict)
{
    unsigned count = figure->rounds_count;
    double product;
    double reference;
    double ratio[3];

    if (count == 0)
        die("%s was never measured", figure->name);
    product = quantile_of(figure->product, count, 0.5);
    reference = quantile_of(figure->reference, count, 0.5);
    for (int i = 0; i < 3; i++)
        ratio[i] = quantile_of(figure->ratio, count, 0.5 * i);
    printf("%-30s %10.2f %10.2f %-8s %7.3f  %7.3f %7.3f  %s\n", figure->name, product, reference, figure->unit,
           ratio[1], ratio[0], ratio[2], bar);
    if (verdict[0] != '\0')
        printf("%s %s %.3f %s\n", verdict, figure->name, ratio[1], bar);
    fflush(stdout);
    if (json == NULL)
        return;
    fprintf(json,
            "{\"name\":\"%s\",\"unit\":\"%s\",\"product\":%.4f,\"reference\":%.4f,\"ratio\":%.4f,\"ratio_min\":%.4f,"
            "\"ratio_max\":%.4f,\"rounds\":%u,\"bar\":\"%s\",\"verdict\":\"%s\"}\n",
            figure->name, figure->unit, product, reference, ratio[1], ratio[0], ratio[2], count, bar, verdict);
    fflush(json);
}

void figure_judge(const struct figure *figure, enum bar_kind kind, double bar)
{
    double ratio = figure->rounds_count > 0 ? quantile_of(figure->ratio, figure->rounds_count, 0.5) : 0;
    bool is_met = kind == BAR_AT_MOST ? ratio <= bar : ratio >= bar;
    char text[32];

    snprintf(text, sizeof(text), "%s%g", kind == BAR_AT_MOST ? "<=" : ">=", bar);
    print(figure, text, is_met ? "met" : "missed");
}

void figure_tell(const struct figure *figure)
{
    print(figure, "", "");
}

void figure_skip(const char *name, const char *why)
{
    printf("skipped %s: %s\n", name, why);
    fflush(stdout);
    if (json == NULL)
        return;
    fprintf(json, "{\"name\":\"%s\",\"verdict\":\"skipped\",\"why\":\"", name);
    for (const char *c = why; *c != '\0'; c++)
        if (*c >= ' ' && *c != '"' && *c != '\\')
            fputc(*c, json);
    fputs("\"}\n", json);
    fflush(json);
}

void report_note(const char *format, ...)
{
    va_list arguments;

    fputs("    ", stdout);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}
