/* The number type of the model: float, or double when the gradient check compiles the same sources again. */
#ifndef BERT_REAL_H
#define BERT_REAL_H

#ifdef BERT_DOUBLE
typedef double real_t;
#else
typedef float real_t;
#endif

#endif
