"""What tensors on the CPU side mean, and the rules that find it out; `lower.RULES` names them by op."""
