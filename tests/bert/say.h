/* Messages of linnet-bert for people: standard error, one line each. */
#ifndef BERT_SAY_H
#define BERT_SAY_H

#include <stdbool.h>

void bert_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same, and false: for `return bert_fail(...)`. */
bool bert_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
