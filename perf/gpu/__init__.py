"""Everything worth doing on a machine with a GPU in one go: `make gpu-prepare` here, `make gpu-check` there."""
