"""From a SavedModel to a feature plan, embedding tables and a dense ONNX.

The passes, in order, each in the file of its name; `pipeline.py` runs and checks them:

1. `load`       SavedModel → one inlined graph; tables and vocabularies stay references
2. `trim`       only what the outputs need
3. `fold`       dense weights and constant subgraphs become constants
4. `batchnorm`  multiply-adds melt into dense layers
5. `split`      the embedding frontier; what the CPU can do is decided by the rules in `lower`
6. `dense`      the dense side as ONNX, row-wise
7. `user_once`  rows → [users, candidates], user side once; proves that no op mixes candidates
8. `precision`  FP16 typed in the graph, as few FP32 nodes as scores and ranking allow

After them, if asked for: `user_ahead` cuts the finished model in two, one for the user and one for slices of
candidates (`frontier`: the network, `half_plans`: the feature plan, `user_ahead_*`: what it saves).

What they stand on:

* `partial`: loading no more than a signature needs
* `graph`, `shapes`, `session_tables`: TensorFlow's graph
* `values`, `lower`, `pooling`, `refusal`: what a tensor means on the CPU side, by which rule, and what is
  said where none fits
* `vocabularies`, `tables_export`, `export`, `staged`: the files of the CPU side
* `lifted`, `row_ops`, `row_products`, `canonical`: ONNX
* `half`, `emulate`, `ranges`, `half_limits`, `layers`, `patterns`, `trials`, `precision_search`, `evidence`,
  `ranking`: precision, from the cast pass to the measure of a ranking
* `features`, `samples`: the spec against the model
* `check`, `acceptance`: every pass against the original
* `storage`, `storage_check`, `storage_report`, `ranking`: tables in fewer bytes
* `tidy`: memory
"""
