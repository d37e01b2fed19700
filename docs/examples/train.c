/* Two tensors learn with 1-bit Adam. Start one process per rank, with torchrun or a shell loop:
 *   for r in 0 1; do MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 WORLD_SIZE=2 RANK=$r LINNET_NODE=$r ./train & done; wait
 * LINNET_NODE lets one machine play two nodes: signs travel between nodes only. */
#include <linnet/linnet.h>
#include <stdio.h>
#include <stdlib.h>

static void try(lnt_status_t status)
{
    if (status < 0) {
        fprintf(stderr, "%s: %s (%s)\n", lnt_status_string(status), lnt_last_error()->cause, lnt_last_error()->cure);
        exit(1);
    }
}

int main(void)
{
    static float weight[1000], bias[10], weight_grad[1000], bias_grad[10];
    const void *const grads[] = {bias_grad, weight_grad};
    lnt_context_t *context;
    lnt_bootstrap_t bootstrap;
    lnt_comm_t *comm;
    lnt_plan_t *plan;
    lnt_optim_t *optim;
    lnt_group_t group;
    uint32_t tensor;

    try(lnt_context_create(NULL, &context));
    try(lnt_bootstrap_env(context, &bootstrap));
    try(lnt_comm_create(context, &(lnt_comm_params_t){sizeof(lnt_comm_params_t), .bootstrap = &bootstrap}, &comm));
    try(lnt_plan_create(comm, NULL, &plan));
    try(lnt_plan_add_tensor(plan, &(lnt_tensor_params_t){sizeof(lnt_tensor_params_t), "bias", 10, .param = bias},
                            &tensor));
    try(lnt_plan_add_tensor(plan, &(lnt_tensor_params_t){sizeof(lnt_tensor_params_t), "weight", 1000, .param = weight},
                            &tensor));
    lnt_group_defaults(&group);
    group.lr = 0.02;
    try(lnt_optim_create(
        plan, &(lnt_optim_params_t){sizeof(lnt_optim_params_t), "onebit_adam", "freeze_step=150", &group, 1}, &optim));
    try(lnt_plan_commit(plan));
    for (int step = 0; step < 400; step++) {
        /* Every rank pulls towards a place of its own; the mean of two ranks is 2 and -1. */
        for (int i = 0; i < 1000; i++)
            weight_grad[i] = weight[i] - 2.0f + ((bootstrap.rank % 2) ? 0.5f : -0.5f);
        for (int i = 0; i < 10; i++)
            bias_grad[i] = bias[i] + 1.0f;
        try(lnt_optim_step(optim, grads));
    }
    printf("rank %u: weight %.2f bias %.2f\n", bootstrap.rank, weight[0], bias[0]);
    try(lnt_optim_destroy(optim));
    try(lnt_plan_destroy(plan));
    try(lnt_comm_destroy(comm));
    lnt_bootstrap_destroy(&bootstrap);
    try(lnt_context_destroy(context));
    return 0;
}
