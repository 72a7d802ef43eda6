/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_doc.c - docs/CONFIG.md lists every option with its default, and no option that there is not.
 *
 * The argument is the document. Rows of its table begin with "| `name` | `default` |".
 */
#include "runtime/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct document {
    char text[1 << 16];
    int findings, options;
};

static void look_up(void *context, const char *name, const char *fallback, const char *help)
{
    struct document *document = context;
    char row[256];

    (void)help;
    snprintf(row, sizeof(row), "\n| `%s` | `%s` | ", name, fallback);
    document->options++;
    if (strstr(document->text, row) == NULL) {
        printf("option %s, default %s, has no such row\n", name, fallback);
        document->findings++;
    }
}

static int rows_count(const char *text)
{
    int rows = 0;

    for (const char *at = text; (at = strstr(at, "\n| `")) != NULL; at++)
        rows++;
    return rows;
}

int main(int argc, char **argv)
{
    static struct document document;
    FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;

    if (file == NULL) {
        perror("config_doc");
        return EXIT_FAILURE;
    }
    document.text[fread(document.text, 1, sizeof(document.text) - 1, file)] = '\0';
    fclose(file);
    config_visit(look_up, &document);
    if (rows_count(document.text) != document.options) {
        printf("%d rows for %d options\n", rows_count(document.text), document.options);
        document.findings++;
    }
    return document.findings == 0 && document.options > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
