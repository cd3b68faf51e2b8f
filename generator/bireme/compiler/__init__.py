"""From a SavedModel to a feature plan, embedding tables and a dense ONNX.

The passes, in order, each in the file of its name; `pipeline.py` runs and checks them:

1. `load`       SavedModel → one inlined graph; tables and vocabularies stay references
2. `unroll`     loops of known length and decided branches become plain ops
3. `trim`       only what the outputs need
4. `fold`       dense weights and constant subgraphs become constants
5. `batchnorm`  multiply-adds melt into dense layers
6. `merge`      what is computed twice is computed once; reshapes and casts that change nothing go
7. `split`      the embedding frontier; what the CPU can do is decided by the rules in `lower`
8. `dense`      the dense side as ONNX, row-wise, by `rows_first` with the rows in front
9. `user_once`  rows → [users, candidates], user side once; proves that no op mixes candidates
10. `precision` FP16 typed in the graph, as few FP32 nodes as scores and ranking allow

After them, if asked for: `user_ahead` cuts the finished model in two, one for the user and one for slices of
candidates (`frontier`: the network, `half_plans`: the feature plan, `user_ahead_*`: what it saves).

What they stand on:

* `partial`: loading no more than a signature needs
* `graph`, `shapes`, `session_tables`: TensorFlow's graph
* `values`, `lower`, `pooling`, `refusal`: what a tensor means on the CPU side, by which rule, and what is
  said where none fits
* `vocabularies`, `tables_export`, `export`, `staged`: the files of the CPU side
* `known_values`, `tensor_lists`: what a graph says about itself before it runs
* `row_dims`, `row_bench`, `row_view`, `row_views`, `row_view_fills`, `row_view_math`: rows that wander, for
  `rows_first`
* `listwise`, `listwise_ops`, `row_shapes`: user_once for models that rank a list as a whole
* `lifted`, `row_ops`, `row_products`, `canonical`: ONNX
* `half`, `emulate`, `ranges`, `half_limits`, `layers`, `patterns`, `trials`, `precision_search`, `evidence`,
  `ranking`: precision, from the cast pass to the measure of a ranking
* `features`, `samples`: the spec against the model
* `check`, `acceptance`: every pass against the original
* `storage`, `storage_check`, `storage_report`, `ranking`: tables in fewer bytes
* `report`, `report_flow`, `report_rows`, `report_picture`, `report_html`: the report
* `tidy`, `parked`: memory
"""
