/* Version, and every LINNET_* knob as text and as docs/config.md. A secret's value is never shown. */
#include <stdio.h>
#include <string.h>

#include <linnet/linnet.h>

#include "info_tool.h"

int info_version(void)
{
    printf("%s\n", lnt_build_info());
    printf("headers of this tool: %s\n", LINNET_VERSION_STRING);
    return TOOL_OK;
}

static const char *shown_value(const lnt_knob_t *knob)
{
    if (knob->value == NULL) return NULL;
    return (strcmp(knob->name, "LINNET_SECRET") == 0) ? "(set, not shown)" : knob->value;
}

/* The listing shows values as they are set; whether they can be read is the library's own judgement. */
static int check_values(void)
{
    lnt_context_t *context;

    if (tool_create_context("linnet-info", &context) < 0) return tool_complain("linnet-info");
    return (lnt_context_destroy(context) < 0) ? tool_complain("linnet-info") : TOOL_OK;
}

int info_knobs(void)
{
    lnt_knob_t knob;

    for (size_t i = 0; lnt_knob_get(i, &knob) == LNT_OK; i++) {
        const char *value = shown_value(&knob);

        printf("%s=%s\n", knob.name, (value != NULL) ? value : knob.default_text);
        printf("    [%s] %s; default \"%s\"\n    %s\n", knob.module,
               (value != NULL) ? "from the environment" : "default", knob.default_text, knob.help);
    }
    return check_values();
}

/* A | would end a table's cell. */
static void print_cell(const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '|') (void)putchar('\\');
        (void)putchar(*text);
    }
}

static void print_row(const lnt_knob_t *knob)
{
    printf("| `%s` | ", knob->name);
    if (knob->default_text[0] != '\0') {
        printf("`");
        print_cell(knob->default_text);
        printf("`");
    } else {
        printf("empty");
    }
    printf(" | ");
    print_cell(knob->help);
    printf(" |\n");
}

int info_config_md(void)
{
    lnt_knob_t knob;
    const char *module = "";

    printf("# Configuration\n\n"
           "Printed from the library's tables by `linnet-info --config-md`; do not edit. `linnet-info -c` shows the "
           "values in force.\n\n"
           "A field of a params struct comes first, then the variable, then the default. A malformed value is an error "
           "that names the "
           "variable; an unknown `LINNET_*` name is a warning with the nearest name. Bytes take k, m, g (powers of "
           "1024), times ms, s, min, "
           "h (a plain number is seconds), switches on or off. "
           "Starting by environment also reads `MASTER_ADDR`, `MASTER_PORT`, `RANK`, `WORLD_SIZE` "
           "(include/linnet/comm.h).\n");
    for (size_t i = 0; lnt_knob_get(i, &knob) == LNT_OK; i++) {
        if (strcmp(module, knob.module) != 0) {
            module = knob.module;
            printf("\n## %s\n\n| variable | default | meaning |\n|---|---|---|\n", module);
        }
        print_row(&knob);
    }
    return TOOL_OK;
}
