/* Command lines of the tools: one table per tool, from which parsing, defaults, help and the nearest name come.
 *
 * A row is a configuration row of the library with a letter; values are parsed and refused by the library's own code.
 * Exit codes of every tool: 0 all is well, 1 something failed or is wrong, 2 the command line is.
 */
#ifndef PERF_COMMON_OPTIONS_H
#define PERF_COMMON_OPTIONS_H

#include <linnet/context.h>

#include "../src/base/config.h"

enum { TOOL_OK = 0, TOOL_FAILED = 1, TOOL_USAGE = 2 };

typedef struct tool_option {
    char letter;          /* 0: long form only */
    const char *argument; /* what the help calls the value; NULL: a switch, whose row is LNT_CFG_BOOL */
    lnt_cfg_row_t row;    /* row.name is the long form; NULL ends the table */
} tool_option_t;

typedef struct tool {
    const char *name;
    const char *purpose; /* printed above the options */
    const char *notes;   /* printed below them */
    const tool_option_t *options;
} tool_t;

/* Defaults, then the command line. TOOL_OK; TOOL_USAGE after a complaint on stderr; *help_p: the help was asked for and
 * printed. Strings in config are released by tool_release, also after a failure. */
int tool_read_options(const tool_t *tool, int argc, char *const *argv, void *config, bool *help_p);
/* The same for tools that take operands (names of files) between their options. operands: room for argc of them. */
int tool_read_command(const tool_t *tool, int argc, char *const *argv, void *config, bool *help_p,
                      const char **operands, uint32_t *n_operands_p);
void tool_release(const tool_t *tool, void *config);

/* Lists of names with commas. listed: is the name in it? ("all" lists every name.) check: TOOL_USAGE after a complaint
 * that says the nearest and all known names, when one of the list is not among the n names. */
bool tool_listed(const char *list, const char *name);
int tool_check_list(const tool_t *tool, const char *what, const char *list, const char *const *names, size_t n);

/* A context whose warnings go to stderr; errors do not, since the tool itself reports them with tool_complain. */
lnt_status_t tool_create_context(const char *name, lnt_context_t **context_p);

/* The exit code of a tool that comes to `code`: what it printed must have arrived, or it failed after a complaint. */
int tool_finish(const char *name, int code);

/* The thread's last error on stderr, with who and how to mend it; returns TOOL_FAILED. */
int tool_complain(const char *name);

#endif
