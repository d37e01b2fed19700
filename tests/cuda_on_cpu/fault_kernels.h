/* Kernels that are wrong, each in one way, and what runs them. A run that the layer does not stop returns whether the
 * result is wrong. The line to blame carries the name of the fault as a comment, with an @ before it.
 */
#ifndef LNT_TESTS_FAULT_KERNELS_H
#define LNT_TESTS_FAULT_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

int fault_exit_while_waiting(void);
int fault_barrier_after_exit(void);
int fault_two_barriers(void);
int fault_two_barriers_one_line(void);
int fault_missed_shuffle(void);
int fault_missed_ballot(void);
int fault_returned_lane(void);
int fault_deadlock(void);
int fault_other_op(void);
int fault_other_mask(void);
int fault_other_site(void);
int fault_not_in_mask(void);
int fault_outside_mask(void);
int fault_partial_block(void);
int fault_bad_width(void);
int fault_unwritten_shared(void);
int fault_unwritten_dynamic(void);
int fault_missing_barrier(void);
int fault_missing_loop_barrier(void);
int fault_missing_syncwarp(void);
int fault_global_race(void);
int fault_grid_race(void);
int fault_static_bounds(void);
int fault_dynamic_bounds(void);
int fault_global_bounds(void);
int fault_global_bounds_near(void);
int fault_global_before(void);
int fault_misaligned(void);
int fault_misaligned_ldg(void);
int fault_host_read(void);
int fault_host_write(void);
int fault_copy_kind(void);
int fault_copy_length(void);
int fault_big_block(void);
int fault_empty_grid(void);
int fault_much_shared(void);
int fault_endless(void);
int fault_deep_stack(void);
int fault_trap(void);
int fault_nested_launch(void);

#ifdef __cplusplus
}
#endif
#endif
