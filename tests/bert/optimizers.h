/* Names of --optim: everything the library has, and a few settings of it with names of their own. */
#ifndef BERT_OPTIMIZERS_H
#define BERT_OPTIMIZERS_H

#include <linnet/linnet.h>

#include "options.h"

enum { OPTIM_OPTIONS_MAX = 512 };

typedef struct bert_optimizer {
    const char *name;      /* as given to --optim */
    const char *algorithm; /* the library's name */
    char options[OPTIM_OPTIONS_MAX];
} bert_optimizer_t;

/* Also puts the optimizer's learning rate and number of steps where the options leave the choice to it. False after a
 * message: no such optimizer. */
bool bert_optimizer_find(bert_options_t *options, bert_optimizer_t *optimizer);
void bert_optimizers_print(void);

#endif
