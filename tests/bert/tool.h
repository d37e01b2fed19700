/* Other programs as steps: run one, wait, show the end of its log when it fails. */
#ifndef BERT_TOOL_H
#define BERT_TOOL_H

#include <stdbool.h>

/* argv ends in NULL; its output goes to the file `log`. False after a message, which says where `argv[0]` comes from
 * (`package`) if it is not installed. */
bool tool_run(char *const *argv, const char *log, const char *package);

#endif
