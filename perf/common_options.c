/* Reading command lines by table. Long names may be given as --name value, --name=value; letters as -x value or
 * -xvalue. */
#include "common_options.h"

#include <stdio.h>
#include <string.h>

#include "../src/base/error.h"
#include "../src/base/memory.h"

enum { MAX_OPTIONS = 64, WHAT_BYTES = 64 };

static bool is_switch(const tool_option_t *option)
{
    return option->argument == NULL;
}

static void print_help(const tool_t *tool)
{
    printf("%s: %s\n\n", tool->name, tool->purpose);
    for (const tool_option_t *option = tool->options; option->row.name != NULL; option++) {
        char head[WHAT_BYTES], letter[8] = "    ";

        if (option->letter != 0) (void)snprintf(letter, sizeof(letter), "-%c, ", option->letter);
        (void)snprintf(head, sizeof(head), "%s--%s%s%s", letter, option->row.name, is_switch(option) ? "" : " ",
                       is_switch(option) ? "" : option->argument);
        printf("  %-28s %s", head, option->row.help);
        if (!is_switch(option) && option->row.default_text[0] != '\0')
            printf(" (default %s)", option->row.default_text);
        printf("\n");
    }
    printf("  %-28s %s\n", "-h, --help", "this text");
    if (tool->notes != NULL) printf("\n%s\n", tool->notes);
}

static const tool_option_t *find_letter(const tool_t *tool, char letter)
{
    for (const tool_option_t *option = tool->options; option->row.name != NULL; option++) {
        if (option->letter == letter) return option;
    }
    return NULL;
}

static const tool_option_t *find_name(const tool_t *tool, const char *name)
{
    for (const tool_option_t *option = tool->options; option->row.name != NULL; option++) {
        if (strcmp(option->row.name, name) == 0) return option;
    }
    return NULL;
}

static int refuse_unknown(const tool_t *tool, const char *text)
{
    const char *names[MAX_OPTIONS] = {"help"}, *near = NULL;
    size_t n = 1;

    for (const tool_option_t *option = tool->options; option->row.name != NULL && n < MAX_OPTIONS; option++)
        names[n++] = option->row.name;
    if (text[0] == '-' && text[1] == '-') near = lnt_nearest_name(text + 2, names, n);
    (void)fprintf(stderr, "%s: unknown option %s", tool->name, text);
    if (near != NULL) (void)fprintf(stderr, "; did you mean --%s?", near);
    (void)fprintf(stderr, " (%s --help lists all)\n", tool->name);
    return TOOL_USAGE;
}

/* Where one argument stands: the option, the value inside the same argument (or NULL). */
typedef struct token {
    const tool_option_t *option;
    const char *value;
} token_t;

static token_t read_token(const tool_t *tool, const char *text)
{
    char name[WHAT_BYTES];
    const char *equals = strchr(text, '=');
    size_t length = (equals != NULL) ? (size_t)(equals - text) : strlen(text);

    if (text[0] != '-' || text[1] == '\0') return (token_t){NULL, NULL};
    if (text[1] != '-') {
        const tool_option_t *option = find_letter(tool, text[1]);
        return (token_t){(option != NULL && is_switch(option) && text[2] != '\0') ? NULL : option,
                         (text[2] != '\0') ? text + 2 : NULL};
    }
    (void)snprintf(name, sizeof(name), "%.*s", (int)(length - 2), text + 2);
    return (token_t){find_name(tool, name), (equals != NULL) ? equals + 1 : NULL};
}

static int set_option(const tool_t *tool, const tool_option_t *option, const char *value, void *config)
{
    char what[WHAT_BYTES];

    (void)snprintf(what, sizeof(what), "--%s", option->row.name);
    if (value == NULL) {
        (void)fprintf(stderr, "%s: %s needs a value: %s\n", tool->name, what, option->argument);
        return TOOL_USAGE;
    }
    if (option->row.type == LNT_CFG_STRING) { /* the last one counts */
        char **field = (char **)((char *)config + option->row.offset);
        lnt_free(*field);
        *field = NULL;
    }
    if (lnt_config_set(&option->row, what, value, config) < 0) {
        (void)tool_complain(tool->name);
        return TOOL_USAGE;
    }
    return TOOL_OK;
}

static int set_defaults(const tool_t *tool, void *config)
{
    for (const tool_option_t *option = tool->options; option->row.name != NULL; option++) {
        if (option->row.type == LNT_CFG_STRING) *(char **)((char *)config + option->row.offset) = NULL;
    }
    for (const tool_option_t *option = tool->options; option->row.name != NULL; option++) {
        if (lnt_config_set(&option->row, option->row.name, option->row.default_text, config) < 0)
            return tool_complain(tool->name);
    }
    return TOOL_OK;
}

int tool_read_options(const tool_t *tool, int argc, char *const *argv, void *config, bool *help_p)
{
    return tool_read_command(tool, argc, argv, config, help_p, NULL, NULL);
}

int tool_read_command(const tool_t *tool, int argc, char *const *argv, void *config, bool *help_p,
                      const char **operands, uint32_t *n_operands_p)
{
    int code = set_defaults(tool, config);

    *help_p = false;
    if (operands != NULL) *n_operands_p = 0;
    for (int i = 1; i < argc && code == TOOL_OK; i++) {
        token_t token = read_token(tool, argv[i]);

        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            print_help(tool);
            *help_p = true;
            return TOOL_OK;
        }
        if (operands != NULL && argv[i][0] != '-') {
            operands[(*n_operands_p)++] = argv[i];
            continue;
        }
        if (token.option == NULL) return refuse_unknown(tool, argv[i]);
        if (is_switch(token.option) && token.value == NULL) token.value = "on";
        if (token.value == NULL && i + 1 < argc) token.value = argv[++i];
        code = set_option(tool, token.option, token.value, config);
    }
    return code;
}

void tool_release(const tool_t *tool, void *config)
{
    for (const tool_option_t *option = tool->options; option->row.name != NULL; option++) {
        char **field = (char **)((char *)config + option->row.offset);

        if (option->row.type != LNT_CFG_STRING) continue;
        lnt_free(*field);
        *field = NULL;
    }
}

bool tool_listed(const char *list, const char *name)
{
    size_t length = strlen(name);

    if (strcmp(list, "all") == 0) return true;
    for (const char *at = list; *at != '\0'; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
        if (strcspn(at, ",") == length && strncmp(at, name, length) == 0) return true;
    }
    return false;
}

static int refuse_name(const tool_t *tool, const char *what, const char *name, const char *const *names, size_t n)
{
    const char *near = lnt_nearest_name(name, names, n);

    (void)fprintf(stderr, "%s: there is no %s \"%s\"", tool->name, what, name);
    if (near != NULL) (void)fprintf(stderr, "; did you mean %s?", near);
    for (size_t i = 0; i < n; i++)
        (void)fprintf(stderr, "%s%s", (i == 0) ? "; known: " : ", ", names[i]);
    (void)fprintf(stderr, "\n");
    return TOOL_USAGE;
}

int tool_check_list(const tool_t *tool, const char *what, const char *list, const char *const *names, size_t n)
{
    char name[64];

    for (const char *at = list; *at != '\0'; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
        size_t i = 0;

        (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(at, ","), at);
        while (i < n && strcmp(names[i], name) != 0)
            i++;
        if (i == n) return refuse_name(tool, what, name, names, n);
    }
    return TOOL_OK;
}

static void show_line(void *arg, lnt_log_level_t level, const char *line)
{
    if (level != LNT_LOG_ERROR) (void)fprintf(stderr, "%s: %s\n", (const char *)arg, line);
}

lnt_status_t tool_create_context(const char *name, lnt_context_t **context_p)
{
    lnt_context_params_t params = {.struct_size = sizeof(params), .log = show_line, .log_arg = (void *)(uintptr_t)name};

    return lnt_context_create(&params, context_p);
}

int tool_finish(const char *name, int code)
{
    if (fflush(stdout) == 0 && ferror(stdout) == 0) return code;
    (void)fprintf(stderr, "%s: standard output could not be written whole\n", name);
    return (code == TOOL_OK) ? TOOL_FAILED : code;
}

int tool_complain(const char *name)
{
    const lnt_error_info_t *error = lnt_last_error();

    char who[96] = "", blame[96] = "";

    if (error->rank >= 0) (void)snprintf(who, sizeof(who), " (reported by rank %lld)", (long long)error->rank);
    if (error->peer >= 0) (void)snprintf(blame, sizeof(blame), " (rank %lld is to blame)", (long long)error->peer);
    /* One call, so that the lines of several ranks do not mix. */
    (void)fprintf(stderr, "%s: %s: %s%s%s%s%s\n", name, lnt_status_string(error->status), error->cause, who, blame,
                  (error->cure[0] != '\0') ? "; " : "", error->cure);
    return TOOL_FAILED;
}
