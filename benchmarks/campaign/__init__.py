"""What benchmarks/gpu.py is made of: what travels to a machine without a network, the parts, and what they measure."""
