/* The learning rate: linear warm-up over the first tenth of the steps, then linearly to 0. */
#ifndef BERT_SCHEDULE_H
#define BERT_SCHEDULE_H

/* step counts from 0. */
static inline double bert_schedule(int step, int n_steps)
{
    int warm = (n_steps >= 10) ? n_steps / 10 : 1;

    return (step < warm) ? (double)(step + 1) / warm : (double)(n_steps - step) / (n_steps - warm + (n_steps == warm));
}

#endif
