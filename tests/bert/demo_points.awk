# The demo's curves: step, MB between nodes, seconds, [MASK] loss, at every evaluation of a run.
has($0, "step") {
    step = number($0, "step")
    bytes += number($0, "wire_bytes_inter")
    seconds += number($0, "step_ms") / 1000
}
has($0, "eval_mask_loss") { print step, bytes / 1e6, seconds, number($0, "eval_mask_loss") }
