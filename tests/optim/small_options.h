/* Options with which an algorithm walks through all its phases in a dozen steps of a small model: what tests over all
 * algorithms share. An algorithm that the list does not mention needs nothing here, unless its options would keep it in
 * its first phase.
 */
#ifndef TESTS_OPTIM_SMALL_OPTIONS_H
#define TESTS_OPTIM_SMALL_OPTIONS_H

#include <string.h>

#include <linnet/linnet.h>

enum { SMALL_FREEZE = 4 }; /* commits before the freeze */

static inline bool has_option(const char *algorithm, const char *name)
{
    lnt_optim_option_t option;

    for (size_t i = 0; lnt_optim_option_get(algorithm, i, &option) == LNT_OK; i++) {
        if (strcmp(option.name, name) == 0) return true;
    }
    return false;
}

/* "key=value,...", never empty at the end of a non-empty text: more may be appended after a comma. */
static inline void small_options(const char *algorithm, char *text, size_t size)
{
    static const struct {
        const char *name, *value;
    } small[] = {{"block", "64"},
                 {"freeze_step", "4"},
                 {"max_dead_share", "0.5"},
                 {"var_freeze_step", "4"},
                 {"var_update_scaler", "2"},
                 {"local_step_scaler", "6"},
                 {"local_step_clipper", "4"}};

    text[0] = '\0';
    for (size_t i = 0; i < sizeof(small) / sizeof(small[0]); i++) {
        if (!has_option(algorithm, small[i].name)) continue;
        (void)snprintf(text + strlen(text), size - strlen(text), "%s%s=%s", text[0] != '\0' ? "," : "", small[i].name,
                       small[i].value);
    }
}

#endif
